"""Intervals, paired tests and variance over seeds, with clips as the sampled unit.

Everything is computed from counts per clip. Sums over resampled clips are products of weights with the counts, so
thousands of resamples take milliseconds. A statistic is the name of a ratio ("f1", "error_rate"; "macro.f1";
"per_class.f1" for one value per class), or a function of (counts, weights) that takes weights (..., clips) and returns
(...,); `ratio` makes such functions, with a choice of convention. Counts are `Counts`, or, for functions, any array
with clips first.

- `bootstrap`, `bootstrap_ratios`: scores with their intervals.
- `compare`, `compare_models`: do two models differ on the same clips? In a table, p-values are adjusted (Holm).
- `seed_variance`, `compare_seeds`: the same with several trainings of each model, so that the variance of training is
  not mistaken for a difference.
- `friedman`, `holm`: ranks over splits; see `earmark.evaluation.ranks`.

Intervals are percentile intervals: they stay within the range of the score, need nothing but the resamples, and work
for scores and differences alike. On sets of ordinary size they agree with the more elaborate BCa intervals to a tenth
of their width and have their nominal coverage; the tests simulate both. With very few clips they are too narrow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

from earmark.counts import Counts, ratio, ratios
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.evaluation.ranks import Friedman, friedman, holm
from earmark.tables import short_number

__all__ = [
    "Friedman",
    "Interval",
    "SeedScore",
    "Verdict",
    "adjusted",
    "bootstrap",
    "bootstrap_ratios",
    "compare",
    "compare_models",
    "compare_seeds",
    "friedman",
    "holm",
    "ratio",
    "seed_variance",
]

Floats = npt.NDArray[np.float64]
Data: TypeAlias = Counts | npt.NDArray[Any]
Function: TypeAlias = Callable[[Any, Floats], npt.ArrayLike]
Statistic: TypeAlias = str | Function

_CHUNK = 1 << 17  # weights computed at once: few enough to stay in the cache


@dataclass(frozen=True)
class Interval:
    """A score and its bounds; arrays if the statistic has one value per class. NaN where it is undefined."""

    value: Floats
    low: Floats
    high: Floats
    level: float


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
class SeedScore:
    """A score over several trainings, and the components of its variance.

    `score` is the mean of `scores`, one per seed, and `interval` its confidence interval for other seeds and other
    clips. The variance of one training's score on as many clips is `from_seeds` + `from_clips` + `from_both`: the
    variance between trainings, that between samples of clips, and their interaction.
    """

    score: float
    interval: tuple[float, float]
    scores: tuple[float, ...]
    from_seeds: float
    from_clips: float
    from_both: float


def bootstrap(
    counts: Data, statistic: Statistic = "f1", *, level: float = 0.95, repetitions: int = 2000, seed: int = 0
) -> Interval:
    """A score with its percentile interval over resampled clips.

    Resamples in which the statistic is NaN, such as the F1 of a class that was not drawn, are left out.

    Examples
    --------
    >>> hits_of_ten = np.array([[9, 10], [7, 10], [10, 10], [6, 10], [8, 10]])
    >>> accuracy = lambda counts, weights: (weights @ counts)[..., 0] / (weights @ counts)[..., 1]
    >>> interval = bootstrap(hits_of_ten, accuracy)
    >>> interval.value.item(), interval.low.item(), interval.high.item()
    (0.8, 0.68, 0.92)
    """
    _check(level, repetitions)
    f = _function(statistic)
    rng = np.random.default_rng(seed)
    values = np.concatenate([_values(f, counts, weights) for weights in _resamples(rng, repetitions, _length(counts))])
    low, high = _quantiles(values, level)
    return Interval(_values(f, counts, np.ones(_length(counts))), low, high, level)


def bootstrap_ratios(
    counts: Counts, names: Sequence[str], *, convention: str = "plain", level: float = 0.95
) -> dict[str, tuple[float, float, float]]:
    """Several ratios, each with the bounds of its interval, from one set of resamples: {name: (value, low, high)}.

    `names` are those of statistics: "f1", "macro.f1".
    """

    def stacked(counts: Counts, weights: Floats) -> Floats:
        values = ratios(counts, weights, convention=convention)
        columns = [values[average or "overall"][name] for average, _, name in (key.rpartition(".") for key in names)]
        return np.stack(columns, axis=-1)

    interval = bootstrap(counts, stacked, level=level)
    bounds = np.stack([interval.value, interval.low, interval.high], axis=-1).tolist()
    return {name: (value, low, high) for name, (value, low, high) in zip(names, bounds, strict=True)}


def compare(
    a: Data,
    b: Data,
    statistic: Statistic = "f1",
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
    repetitions: int = 2000,
    exchanges: int = 2000,
    seed: int = 0,
) -> Verdict:
    """Whether two models differ on the same clips.

    The p-value is that of a permutation test: if the models were equal, their results could be exchanged in any clip.
    All exchanges are tried if there are at most `exchanges`, else so many random ones. The interval is a bootstrap
    interval of the difference, with the same resampled clips for both. The test does not include the variance of
    training: see `compare_seeds`.

    Examples
    --------
    >>> a, b = np.array([[9, 10]] * 8 + [[7, 10]] * 4), np.array([[7, 10]] * 12)
    >>> accuracy = lambda counts, weights: (weights @ counts)[..., 0] / (weights @ counts)[..., 1]
    >>> print(compare(a, b, accuracy, names=("new", "old")).text)
    new is better than old: score .833 vs .700, difference +.133 [+.083, +.183], p .009 (12 clips)
    """
    _check(level, min(repetitions, exchanges))
    f, n = _function(statistic), _length(a)
    b = _aligned(a, b)
    scores = (_scalar(f, a), _scalar(f, b))
    difference = scores[0] - scores[1]
    rng = np.random.default_rng(seed)
    resampled = np.concatenate([_values(f, a, w) - _values(f, b, w) for w in _resamples(rng, repetitions, n)])
    low, high = _quantiles(resampled, level)
    both = _joined(a, b)
    swapped = np.concatenate(
        [
            _values(f, both, np.hstack([keep, 1 - keep])) - _values(f, both, np.hstack([1 - keep, keep]))
            for keep in _exchanges(rng, exchanges, n)
        ]
    )
    as_large = int(np.count_nonzero(~(np.abs(swapped) < abs(difference) - 1e-12)))  # NaN counts as large
    p_value = as_large / len(swapped) if len(swapped) == 2**n else (as_large + 1) / (len(swapped) + 1)
    interval = (float(low), float(high))
    return _verdict(names, statistic, scores, interval, p_value, level, f"{n} clips")


def compare_models(
    models: Mapping[str, Data],
    statistic: Statistic = "f1",
    *,
    against: str | None = None,
    level: float = 0.95,
    repetitions: int = 2000,
    seed: int = 0,
) -> list[Verdict]:
    """Verdicts on all pairs of models, or on all against one, with p-values adjusted for their number (Holm).

    Each pair is compared by `compare`, with four times the exchanges below which no adjusted p-value is significant.
    """
    _check(level, repetitions)
    if len(models) < 2:
        raise ArgumentError(f"expected at least two models to compare, got {len(models)}")
    if against is not None and against not in models:
        raise unknown_name("against", against, models)
    pairs = [pair for pair in itertools.combinations(models, 2) if against is None or against in pair]
    exchanges = max(repetitions, math.ceil(4 * len(pairs) / (1 - level)))
    options: dict[str, Any] = {"level": level, "repetitions": repetitions, "exchanges": exchanges, "seed": seed}
    verdicts = [compare(models[a], models[b], statistic, names=(a, b), **options) for a, b in pairs]
    return adjusted(verdicts, level)


def adjusted(verdicts: Sequence[Verdict], level: float) -> list[Verdict]:
    """The verdicts with p-values adjusted for their number (Holm)."""
    return [
        replace(verdict, p_value=p, is_different=verdict.is_different and p <= 1 - level)
        for verdict, p in zip(verdicts, holm([v.p_value for v in verdicts]).tolist(), strict=True)
    ]


def seed_variance(seeds: Sequence[Data], statistic: Statistic = "f1", *, level: float = 0.95) -> SeedScore:
    """The mean score of several trainings on the same clips, with an interval for other seeds and other clips.

    Jackknife pseudo-values express each score as a mean over clips; a two-way analysis of variance (seeds by clips)
    separates the components, and the interval is Student's with Satterthwaite's degrees of freedom. A bootstrap of
    three seeds would miss a third of their variance; the coverage of this interval is slightly too low only where three
    seeds differ far more than clips do.
    """
    _check(level)
    f = _function(statistic)
    scores, pseudo = _pseudo_values(f, seeds)
    of_seeds, of_clips, of_both = _mean_squares(scores, pseudo)
    n_seeds, n_clips = pseudo.shape
    total = max(of_seeds + of_clips - of_both, of_seeds, of_clips)
    freedom = [n_seeds - 1, n_clips - 1, (n_seeds - 1) * (n_clips - 1)]
    degrees = _satterthwaite(total, [of_seeds, of_clips, of_both], freedom)
    score = float(scores.mean())
    return SeedScore(
        score,
        _student(score, total / pseudo.size, degrees, level),
        tuple(scores.tolist()),
        max(0.0, of_seeds - of_both) / n_clips,
        max(0.0, of_clips - of_both) / n_seeds / n_clips,
        of_both / n_clips,
    )


def compare_seeds(
    a: Sequence[Data],
    b: Sequence[Data],
    statistic: Statistic = "f1",
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
) -> Verdict:
    """Whether two models differ, each trained with several seeds and evaluated on the same clips.

    Clips are paired, seeds are not. The variance of the difference is the sum of that over clips, between the means of
    the trainings, and that of training either model again; the test is Student's.
    """
    _check(level)
    f = _function(statistic)
    ours, our_values = _pseudo_values(f, a)
    theirs, their_values = _pseudo_values(f, [_aligned(a[0], other) for other in b])
    n_clips = our_values.shape[1]
    over_clips = float(np.var(our_values.mean(axis=0) - their_values.mean(axis=0), ddof=1)) / n_clips
    total, terms, freedom = over_clips, [over_clips], [n_clips - 1]
    for scores, pseudo in ((ours, our_values), (theirs, their_values)):
        of_seeds, _, of_both = _mean_squares(scores, pseudo)
        total += max(0.0, of_seeds - of_both) / pseudo.size
        terms.append(of_seeds / pseudo.size)
        freedom.append(len(scores) - 1)
    degrees = _satterthwaite(total, terms, freedom)
    means = (float(ours.mean()), float(theirs.mean()))
    difference = means[0] - means[1]
    interval = _student(difference, total, degrees, level)
    p_value = float(2 * stats.t.sf(abs(difference) / math.sqrt(total), degrees)) if total else float(difference == 0)
    basis = f"{n_clips} clips, {len(a)} and {len(b)} seeds"
    return _verdict(names, statistic, means, interval, p_value, level, basis)


def _pseudo_values(f: Function, seeds: Sequence[Data]) -> tuple[Floats, Floats]:
    """Scores (seeds,), and jackknife pseudo-values (seeds, clips), whose means are approximately the scores."""
    if len(seeds) < 2:
        raise ArgumentError(f"expected at least two seeds to estimate their variance, got {len(seeds)}")
    n = _length(seeds[0])
    if n < 2:
        raise DataError(f"expected at least two clips to estimate their variance, got {n}")
    scores, pseudo = np.empty(len(seeds)), np.empty((len(seeds), n))
    for s, counts in enumerate(seeds):
        aligned = _aligned(seeds[0], counts)
        scores[s] = _scalar(f, aligned)
        pseudo[s] = n * scores[s] - (n - 1) * _without_each(f, aligned)
    if not np.isfinite(pseudo).all():
        raise DataError("the statistic is undefined for some seed, or without one of the clips")
    return scores, pseudo


def _without_each(f: Function, counts: Data) -> Floats:
    """The statistic of all clips but one, for each of them."""
    if isinstance(f, ratio) and isinstance(counts, Counts):
        return f.without_each(counts)
    n = _length(counts)
    step = max(1, _CHUNK // n)
    weights = (1.0 - np.eye(min(step, n - first), n, first) for first in range(0, n, step))
    return np.concatenate([_values(f, counts, w) for w in weights])


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
    reach = float(stats.t.ppf(0.5 + level / 2, freedom)) * math.sqrt(variance)
    return centre - reach, centre + reach


def _verdict(
    names: tuple[str, str],
    statistic: Statistic,
    scores: tuple[float, float],
    interval: tuple[float, float],
    p_value: float,
    level: float,
    basis: str,
) -> Verdict:
    name = statistic if isinstance(statistic, str) else getattr(statistic, "__name__", "score")
    name = "score" if name == "<lambda>" else name
    difference, has_zero = scores[0] - scores[1], interval[0] <= 0 <= interval[1]
    is_different = p_value <= 1 - level and not has_zero and math.isfinite(difference)
    return Verdict(names, name, scores, difference, interval, p_value, is_different, name.endswith("_rate"), basis)


def _function(statistic: Statistic) -> Function:
    if not isinstance(statistic, str):
        return statistic
    average, _, name = statistic.rpartition(".")
    return ratio(name, average or "overall")


def _values(f: Function, counts: Data, weights: Floats) -> Floats:
    return np.asarray(f(counts, weights), np.float64)


def _scalar(f: Function, counts: Data) -> float:
    value = _values(f, counts, np.ones(_length(counts)))
    if value.ndim:
        raise ArgumentError(f"expected a statistic with one value, got shape {value.shape}; choose one class")
    return float(value)


def _length(counts: Data) -> int:
    n = len(counts.filenames) if isinstance(counts, Counts) else len(counts)
    if n < 1:
        raise DataError("expected at least one clip, got none")
    return n


def _aligned(a: Data, b: Data) -> Data:
    """The second model's counts with clips in the first one's order."""
    if isinstance(a, Counts) and isinstance(b, Counts):
        place = {name: i for i, name in enumerate(b.filenames)}
        if set(place) != set(a.filenames) or a.classes != b.classes:
            raise ArgumentError("models can only be compared on the same clips and classes")
        return b if a.filenames == b.filenames else b.select([place[name] for name in a.filenames])
    if isinstance(a, Counts) or isinstance(b, Counts) or np.shape(a) != np.shape(b):
        raise ArgumentError("models can only be compared on the same clips: expected counts of the same kind and shape")
    return b


def _joined(a: Data, b: Data) -> Data:
    """Clips of a, then clips of b."""
    if isinstance(a, Counts) and isinstance(b, Counts):
        return a.joined(b)
    arrays: npt.NDArray[Any] = np.concatenate([np.asarray(a), np.asarray(b)])
    return arrays


def _resamples(rng: np.random.Generator, repetitions: int, n: int) -> Iterator[Floats]:
    """How often each clip was drawn, in n draws with replacement: (some, n), `repetitions` in all."""
    for size in _sizes(repetitions, n):
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
    """Bounds of the central part of the finite values, along the first axis: (2, ...)."""
    there = np.isfinite(values)
    if there.all():
        return np.asarray(np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0))
    flat, ok = values.reshape(len(values), -1), there.reshape(len(values), -1)
    bounds = np.full((2, flat.shape[1]), np.nan)
    for c in np.flatnonzero(ok.any(axis=0)):
        bounds[:, c] = np.quantile(flat[ok[:, c], c], [0.5 - level / 2, 0.5 + level / 2])
    return bounds.reshape(2, *values.shape[1:])


def _check(level: float, repetitions: int = 1) -> None:
    if not 0 < level < 1:
        raise ArgumentError(f"expected a level between 0 and 1, such as 0.95, got {level}")
    if repetitions < 1:
        raise ArgumentError(f"expected at least 1 repetition, got {repetitions}")


def _signed(value: float) -> str:
    """A difference with its sign: +.029."""
    text = short_number(abs(value)) if math.isfinite(value) else str(abs(value))
    return f"{'-' if value < 0 else '+'}{text}"
