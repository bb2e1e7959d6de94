"""Intervals, paired tests and variance over seeds, with clips as the sampled unit.

Everything is computed from counts per clip. Sums over resampled clips are products of weights with the counts, so
thousands of resamples take milliseconds. A statistic is a `ratio`: ratio("f1"), ratio("error_rate", "macro").

- `bootstrap`, `bootstrap_ratios`: scores with their intervals.
- `compare`: do two models differ on the same clips?
- `seed_variance`, `compare_seeds`: the same with several training runs of each model, so that training variance is not
  mistaken for a difference.
- `compare_systems`: the best system with each other one, with p-values adjusted for their number (Holm).
- `friedman`: methods ranked over splits, seeds or data sets. Ranks ignore how large a difference is, and splits of the
  same clips are not independent: for two models on the same clips, `compare` has more power.

Intervals are percentile intervals: they stay within the range of the score, need only the resamples, and work for
scores and differences alike. On sets of ordinary size they agree with the more elaborate BCa intervals to a tenth
of their width and have their nominal coverage; the tests simulate both. With very few clips they are too narrow.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy

from earmark.counts import Counts, ratio, ratios
from earmark.errors import ArgumentError, DataError
from earmark.evaluation.base import Floats
from earmark.tables import short_number
from earmark.text import as_names

__all__ = [
    "Friedman",
    "Interval",
    "Verdict",
    "bootstrap",
    "bootstrap_ratios",
    "compare",
    "compare_seeds",
    "compare_systems",
    "friedman",
    "holm",
    "seed_variance",
]

Number = TypeVar("Number", float, Floats)

_REPETITIONS = 2000
_CHUNK = 1 << 17  # weights computed at once: few enough to stay in the cache


class Interval(NamedTuple, Generic[Number]):
    """A score and its bounds; arrays if the statistic has one value per class. NaN where it is undefined."""

    value: Number
    low: Number
    high: Number


@dataclass(frozen=True)
class Verdict:
    """Whether two models differ.

    `difference` is the first score minus the second, `interval` its confidence interval. `is_different` requires both
    a p-value (adjusted, in a table) of at most 1 - level and an interval without 0. `text` says "better" only then.
    `lower_is_better` is True for statistics whose name ends in "_rate".
    """

    names: tuple[str, str]
    statistic: str
    scores: tuple[float, float]
    difference: float
    interval: tuple[float, float]
    p_value: float
    is_different: bool
    lower_is_better: bool
    basis: str

    @property
    def better(self) -> str | None:
        """The name of the better model; None if they are not distinguishable."""
        if not self.is_different:
            return None
        return self.names[int((self.difference > 0) == self.lower_is_better)]

    @property
    def text(self) -> str:
        """The verdict as a sentence, with its numbers."""
        first, second = (0, 1) if self.better in (None, self.names[0]) else (1, 0)
        sign = 1 if first == 0 else -1
        low, high = sorted(sign * bound for bound in self.interval)
        a, b = self.names[first], self.names[second]
        verdict = f"{a} is better than {b}" if self.is_different else f"{a} and {b} are not distinguishable"
        return (
            f"{verdict}: {self.statistic} {short_number(self.scores[first])} vs {short_number(self.scores[second])}, "
            f"difference {_signed(sign * self.difference)} [{_signed(low)}, {_signed(high)}], "
            f"p {'< .001' if self.p_value < 0.0005 else short_number(self.p_value)} ({self.basis})"
        )


@dataclass(frozen=True)
class Friedman:
    """Methods ranked over blocks (splits, seeds or data sets); rank 1 is best.

    `p_value` is that of `f` (Iman and Davenport). `p_values` compare each method with `control`, the one with the best
    average score, adjusted (Holm); `indistinguishable` are the methods that do not differ from it, itself included.
    """

    names: tuple[str, ...]
    average_scores: tuple[float, ...]
    average_ranks: tuple[float, ...]
    chi2: float
    f: float
    p_value: float
    control: str
    p_values: dict[str, float]
    indistinguishable: tuple[str, ...]


def bootstrap(statistic: Callable[[Floats], Floats], clips: int, *, level: float = 0.95) -> Interval[Floats]:
    """A score with its percentile interval over resampled clips.

    The statistic is a function of weights, (..., clips): how often each clip counts. Resamples in which it is NaN, such
    as the F1 of a class that was not drawn, are left out. A single clip has no interval: its bounds are NaN.

    >>> hits = np.array([9, 7, 10, 6, 8])
    >>> interval = bootstrap(lambda weights: weights @ hits / 50, 5)
    >>> interval.value.item(), interval.low.item(), interval.high.item()
    (0.8, 0.68, 0.92)
    """
    if clips < 1:
        raise DataError("expected at least one clip, got none")
    if clips == 1:
        value = statistic(np.ones(1))
        return Interval(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    rng = np.random.default_rng(0)
    values = np.concatenate([statistic(weights) for weights in _resamples(rng, clips)])
    return Interval(statistic(np.ones(clips)), *_quantiles(values, level))


def bootstrap_ratios(
    counts: Counts, names: Sequence[str], *, convention: str = "plain", level: float = 0.95
) -> dict[str, Interval[float]]:
    """Several ratios with their intervals, from one set of resamples, by name.

    `names` are those of ratios, or of their averages over classes: "f1", "macro.f1".
    """
    names = as_names(names)

    def stacked(weights: Floats) -> Floats:
        values = ratios(counts, weights, convention=convention)
        columns = []
        for key in names:
            average, _, name = key.rpartition(".")
            columns.append(values[average or "overall"][name])
        return np.stack(columns, axis=-1)

    interval = bootstrap(stacked, len(counts.filenames), level=level)
    return {name: Interval(*bounds) for name, bounds in zip(names, np.stack(interval, axis=-1).tolist(), strict=True)}


def compare(
    a: Counts,
    b: Counts,
    statistic: ratio,
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
    exchanges: int = _REPETITIONS,
) -> Verdict:
    """Whether two models differ on the same clips.

    The p-value is that of a permutation test: if the models were equal, their results could be exchanged in any clip.
    All exchanges are tried if there are at most `exchanges`, else that many random ones. The interval is a bootstrap
    interval of the difference, with the same resampled clips for both. The test does not include the variance of
    training: see `compare_seeds`.
    """
    n, b = len(a.filenames), b.in_order_of(a)
    scores = (float(statistic(a)), float(statistic(b)))
    rng = np.random.default_rng(0)
    resampled = np.concatenate([statistic(a, w) - statistic(b, w) for w in _resamples(rng, n)])
    low, high = _quantiles(resampled, level).tolist()
    both = a.joined(b)
    differences = []
    for keep in _exchanges(rng, exchanges, n):
        first, second = np.hstack([keep, 1 - keep]), np.hstack([1 - keep, keep])
        differences.append(statistic(both, first) - statistic(both, second))
    swapped = np.concatenate(differences)
    as_large = int(np.count_nonzero(~(np.abs(swapped) < abs(scores[0] - scores[1]) - 1e-12)))  # NaN counts as large
    p_value = as_large / len(swapped) if len(swapped) == 2**n else (as_large + 1) / (len(swapped) + 1)
    return _verdict(names, statistic, scores, (low, high), p_value, level, f"{n} clips")


def compare_systems(
    systems: Mapping[str, Sequence[Counts]], best: str, statistic: ratio, *, level: float = 0.95
) -> list[Verdict]:
    """Verdicts on one system and each other one, with p-values adjusted for their number (Holm).

    `systems` have the counts of each training. Two that were both trained once are compared as two fixed models, with
    four times the exchanges below which no adjusted p-value is significant.
    """
    others = [name for name in systems if name != best]
    exchanges = max(_REPETITIONS, math.ceil(4 * len(others) / (1 - level)))
    verdicts = []
    for other in others:
        a, b, names = systems[best], systems[other], (best, other)
        if len(a) == len(b) == 1:
            verdicts.append(compare(a[0], b[0], statistic, names=names, level=level, exchanges=exchanges))
            continue
        test = compare_seeds if min(len(a), len(b)) > 1 else _compare_one_with_seeds
        try:
            verdicts.append(test(a, b, statistic, names=names, level=level))
        except DataError:  # no estimate of variance, as where a single clip has events: without it there is no score
            means = (_mean(a, statistic), _mean(b, statistic))
            basis = f"{_basis(a, b)}: too few to decide"
            verdicts.append(_verdict(names, statistic, means, (-math.inf, math.inf), 1.0, level, basis))
    p_values = holm([verdict.p_value for verdict in verdicts]).tolist()
    return [
        replace(verdict, p_value=p, is_different=verdict.is_different and p <= 1 - level)
        for verdict, p in zip(verdicts, p_values, strict=True)
    ]


def seed_variance(seeds: Sequence[Counts], statistic: ratio, *, level: float = 0.95) -> tuple[Interval[float], float]:
    """The mean score of several training runs on the same clips, with an interval for other seeds and other clips.

    The second value is the part of the variance of one training's score that is due to training.

    Jackknife pseudo-values express each score as a mean over clips; a two-way analysis of variance (seeds by clips)
    separates the components, and the interval is Student's with Satterthwaite's degrees of freedom. A bootstrap of
    three seeds would miss a third of their variance; the coverage of this interval is slightly too low only where three
    seeds differ far more than clips do.
    """
    scores, pseudo = _pseudo_values(statistic, seeds)
    of_seeds, of_clips, of_both = _mean_squares(scores, pseudo)
    n_seeds, n_clips = pseudo.shape
    total = max(of_seeds + of_clips - of_both, of_seeds, of_clips)
    freedom = [n_seeds - 1, n_clips - 1, (n_seeds - 1) * (n_clips - 1)]
    degrees = _satterthwaite(total, [of_seeds, of_clips, of_both], freedom)
    score = float(scores.mean())
    interval = Interval(score, *_student(score, total / pseudo.size, degrees, level))
    return interval, max(0.0, of_seeds - of_both) / n_clips


def compare_seeds(
    a: Sequence[Counts],
    b: Sequence[Counts],
    statistic: ratio,
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
) -> Verdict:
    """Whether two models differ, each trained with several seeds and evaluated on the same clips.

    Clips are paired, seeds are not. The variance of the difference is the sum of that over clips, between the means of
    the training runs, and that of training either model again; the test is Student's.
    """
    scores_a, pseudo_a = _pseudo_values(statistic, a)
    scores_b, pseudo_b = _pseudo_values(statistic, [other.in_order_of(a[0]) for other in b])
    n_clips = pseudo_a.shape[1]
    over_clips = float(np.var(pseudo_a.mean(axis=0) - pseudo_b.mean(axis=0), ddof=1)) / n_clips
    total, terms, freedom = over_clips, [over_clips], [n_clips - 1]
    for scores, pseudo in ((scores_a, pseudo_a), (scores_b, pseudo_b)):
        of_seeds, _, of_both = _mean_squares(scores, pseudo)
        total += max(0.0, of_seeds - of_both) / pseudo.size
        terms.append(of_seeds / pseudo.size)
        freedom.append(len(scores) - 1)
    means = (float(scores_a.mean()), float(scores_b.mean()))
    test = _student_test(means, total, _satterthwaite(total, terms, freedom), level)
    return _verdict(names, statistic, means, *test, level, _basis(a, b))


def friedman(
    scores: npt.ArrayLike, names: Sequence[str], *, level: float = 0.95, lower_is_better: bool = False
) -> Friedman:
    """Friedman's test over blocks, and which methods do not differ from the best, with Holm's correction.

    As in Demsar (2006), which the paper follows (V.C): ties share their ranks and are not corrected for, so the test
    is conservative with many ties. Methods are compared with the control by the difference of their average ranks,
    divided by sqrt(k (k + 1) / (6 n)) for k methods and n blocks, and only if the test finds any difference at all.

    Parameters
    ----------
    scores : (blocks, methods)
    """
    values = np.asarray(scores, np.float64)
    if values.ndim != 2 or min(values.shape) < 2:
        raise DataError(f"expected scores (blocks, methods), at least two of each, got shape {values.shape}")
    if np.isnan(values).any():
        raise DataError("expected scores of all methods in all blocks, got NaN; leave out such blocks")
    n, k = values.shape
    if len(names) != k or len(set(names)) != k:
        raise ArgumentError(f"expected {k} different names, one per method, got {list(names)}")
    better = values if lower_is_better else -values
    ranks = scipy.stats.rankdata(better, axis=1).mean(axis=0)
    chi2 = 12 * n / (k * (k + 1)) * (float(np.sum(ranks**2)) - k * (k + 1) ** 2 / 4)
    rest = n * (k - 1) - chi2
    f = (n - 1) * chi2 / rest if rest > 1e-9 else math.inf  # the same ranks in every block
    p_value = float(scipy.stats.f.sf(f, k - 1, (k - 1) * (n - 1)))
    control = int(np.argmin(better.mean(axis=0)))
    others = [i for i in range(k) if i != control]
    z = np.abs(ranks[others] - ranks[control]) / math.sqrt(k * (k + 1) / (6 * n))
    adjusted = dict(zip(others, holm(2 * scipy.stats.norm.sf(z)).tolist(), strict=True))
    is_any = p_value <= 1 - level
    return Friedman(
        names=tuple(names),
        average_scores=tuple(values.mean(axis=0).tolist()),
        average_ranks=tuple(ranks.tolist()),
        chi2=chi2,
        f=f,
        p_value=p_value,
        control=names[control],
        p_values={names[i]: p for i, p in adjusted.items()},
        indistinguishable=tuple(names[i] for i in range(k) if i == control or not is_any or adjusted[i] > 1 - level),
    )


def holm(p_values: npt.ArrayLike) -> Floats:
    """P-values adjusted for their number (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, raised)
    return adjusted


def _compare_one_with_seeds(
    a: Sequence[Counts], b: Sequence[Counts], statistic: ratio, *, names: tuple[str, str], level: float
) -> Verdict:
    """A system trained once against one with several seeds, whose variance is assumed for both.

    Two or three seeds may agree by chance, so the test has their degrees of freedom, however many clips there are.
    """
    each = [compare(x, y, statistic, level=level) for x in a for y in b]
    _, of_training = seed_variance(max(a, b, key=len), statistic, level=level)
    from_seeds = of_training * (1 + 1 / len(each))
    normal = float(scipy.stats.norm.ppf(0.5 + level / 2))
    from_clips = float(np.mean([((v.interval[1] - v.interval[0]) / 2 / normal) ** 2 for v in each]))
    means = (_mean(a, statistic), _mean(b, statistic))
    test = _student_test(means, from_seeds + from_clips, len(each) - 1, level)
    return _verdict(names, statistic, means, *test, level, _basis(a, b))


def _basis(a: Sequence[Counts], b: Sequence[Counts]) -> str:
    return f"{len(a[0].filenames)} clips, {len(a)} and {len(b)} seeds"


def _mean(seeds: Sequence[Counts], statistic: ratio) -> float:
    return float(np.mean([statistic(counts) for counts in seeds]))


def _pseudo_values(statistic: ratio, seeds: Sequence[Counts]) -> tuple[Floats, Floats]:
    """Scores (seeds,), and jackknife pseudo-values (seeds, clips), whose means are approximately the scores."""
    if len(seeds) < 2:
        raise DataError(f"expected at least two training runs to estimate their variance, got {len(seeds)}")
    n = len(seeds[0].filenames)
    if n < 2:
        raise DataError(f"expected at least two clips to estimate their variance, got {n}")
    aligned = [counts.in_order_of(seeds[0]) for counts in seeds]
    scores = np.array([statistic(counts) for counts in aligned])
    pseudo = n * scores[:, None] - (n - 1) * np.stack([statistic.without_each(counts) for counts in aligned])
    if not np.isfinite(pseudo).all():
        raise DataError("the statistic is undefined for some seed, or without one of the clips")
    return scores, pseudo


def _mean_squares(scores: Floats, pseudo: Floats) -> tuple[float, float, float]:
    """Mean squares of a two-way table without replication: of seeds, of clips, and of their interaction."""
    n_seeds, n_clips = pseudo.shape
    by_seed, by_clip = pseudo.mean(axis=1, keepdims=True), pseudo.mean(axis=0, keepdims=True)
    rest = pseudo - by_seed - by_clip + pseudo.mean()
    of_both = float(np.sum(rest**2)) / ((n_seeds - 1) * (n_clips - 1))
    return n_clips * float(np.var(scores, ddof=1)), n_seeds * float(np.var(by_clip, ddof=1)), of_both


def _satterthwaite(total: float, terms: Sequence[float], freedom: Sequence[int]) -> float:
    spread = sum(term**2 / degrees for term, degrees in zip(terms, freedom, strict=True))
    return max(1.0, total**2 / spread) if spread else 1.0


def _student(centre: float, variance: float, freedom: float, level: float) -> tuple[float, float]:
    reach = float(scipy.stats.t.ppf(_tails(level)[1], freedom)) * math.sqrt(variance)
    return centre - reach, centre + reach


def _student_test(
    scores: tuple[float, float], variance: float, freedom: float, level: float
) -> tuple[tuple[float, float], float]:
    """The interval of the difference of two scores, and the p-value that it is 0."""
    difference = scores[0] - scores[1]
    p_value = float(difference == 0)
    if variance:
        p_value = float(2 * scipy.stats.t.sf(abs(difference) / math.sqrt(variance), freedom))
    return _student(difference, variance, freedom, level), p_value


def _verdict(
    names: tuple[str, str],
    statistic: ratio,
    scores: tuple[float, float],
    interval: tuple[float, float],
    p_value: float,
    level: float,
    basis: str,
) -> Verdict:
    name = statistic.__name__
    difference, has_zero = scores[0] - scores[1], interval[0] <= 0 <= interval[1]
    is_different = p_value <= 1 - level and not has_zero and math.isfinite(difference)
    return Verdict(names, name, scores, difference, interval, p_value, is_different, name.endswith("_rate"), basis)


def _resamples(rng: np.random.Generator, n: int) -> Iterator[Floats]:
    """How often each clip was drawn, in n draws with replacement: (some, n), `_REPETITIONS` in all."""
    for size in _sizes(_REPETITIONS, n):
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _exchanges(rng: np.random.Generator, most: int, n: int) -> Iterator[Floats]:
    """Which clips are not exchanged: (some, n) of 0 and 1; all possibilities if there are few enough."""
    if n < 60 and 2**n <= most:
        yield (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.float64)
        return
    for size in _sizes(most, n):
        yield rng.integers(2, size=(size, n), dtype=np.int8).astype(np.float64)


def _sizes(repetitions: int, n: int) -> Iterator[int]:
    step = max(1, _CHUNK // n)
    for first in range(0, repetitions, step):
        yield min(step, repetitions - first)


def _quantiles(values: Floats, level: float) -> Floats:
    """Bounds of the central part of the values that are not NaN, along the first axis: (2, ...)."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # where all are NaN
        return np.asarray(np.nanquantile(values, _tails(level), axis=0))


def _tails(level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise ArgumentError(f"expected a level between 0 and 1, such as 0.95, got {level}")
    return 0.5 - level / 2, 0.5 + level / 2


def _signed(value: float) -> str:
    """A difference with its sign: +.029."""
    text = short_number(abs(value)) if math.isfinite(value) else str(abs(value))
    return f"{'-' if value < 0 else '+'}{text}"
