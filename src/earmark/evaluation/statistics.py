"""What the data can tell and what they cannot: intervals, paired tests, seeds, and verdicts in plain words.

Everything works on counts per clip, with clips as what was sampled: sums over resampled clips are products of weights
with the counts, so that thousands of resamples cost milliseconds. A statistic is the name of a ratio ("f1",
"error_rate"; "macro.f1"; "per_class.f1" for one value per class), or a function of (counts, weights) that takes
weights (..., clips) and returns (...,); `ratio` makes such functions, with a choice of convention. Counts are `Counts`,
or, for functions, any array with clips first.

- `bootstrap`: a score with its interval.
- `compare`, `compare_models`: do two models differ on the same clips? In a table, p-values are adjusted (Holm).
- `seed_variance`, `compare_seeds`: the same with several trainings of each model, so that luck in training is not
  taken for merit.
- `friedman`, `holm`: ranks over splits, and what is indistinguishable from the best; see `earmark.evaluation.ranks`.

Intervals are percentile intervals: they stay within the range of the score, need nothing but the resamples, and serve
scores and differences alike. On sets of ordinary size they are, to a tenth of their width, what the more elaborate BCa
gives, and cover the truth as often as they say; the tests simulate both. With a handful of clips they are too narrow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.evaluation.base import Counts, ratio
from earmark.evaluation.ranks import Friedman, friedman, holm

__all__ = [
    "Friedman",
    "Interval",
    "SeedScore",
    "Verdict",
    "bootstrap",
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
Statistic: TypeAlias = str | Callable[[Any, Floats], npt.ArrayLike]

_CHUNK = 1 << 17  # weights held at once: few enough to stay in the cache


@dataclass(frozen=True)
class Interval:
    """A score between bounds; arrays where the statistic gives one value per class. NaN where it has no meaning."""

    value: Floats
    low: Floats
    high: Floats
    level: float


@dataclass(frozen=True)
class Verdict:
    """Whether two models differ.

    `difference` is the first score minus the second, `interval` its confidence interval. `is_different` asks for both:
    a p-value (adjusted, in a table) of at most 1 - level, and an interval without 0. `text` says "better" only then.
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
        """The name of the better model; None where the data do not say."""
        if not self.is_different:
            return None
        return self.names[int((self.difference > 0) == self.lower_is_better)]

    @property
    def text(self) -> str:
        """The verdict in words, with its numbers."""
        first, second = (0, 1) if self.better in (None, self.names[0]) else (1, 0)
        sign = 1 if first == 0 else -1
        low, high = sorted(sign * bound for bound in self.interval)
        a, b = self.names[first], self.names[second]
        said = f"{a} is better than {b}" if self.is_different else f"{a} and {b} are not distinguishable"
        return (
            f"{said}: {self.statistic} {_short(self.scores[first])} vs {_short(self.scores[second])}, "
            f"difference {_short(sign * self.difference, '+')} [{_short(low, '+')}, {_short(high, '+')}], "
            f"p {'< .001' if self.p_value < 0.0005 else _short(self.p_value)} ({self.basis})"
        )


@dataclass(frozen=True)
class SeedScore:
    """A score over several trainings, and where its variance comes from.

    `score` is the mean of `scores`, one per seed, and `interval` its confidence interval for other seeds and other
    clips. The variance of one training's score on as many clips is `from_seeds` + `from_clips` + `from_both`: luck in
    training, which clips were drawn, and that trainings differ in which clips they get right.
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
    """A score, and its percentile interval over resampled clips.

    Resamples in which the statistic is NaN, as the F1 of a class that was not drawn, are left out.

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


def compare(
    a: Data,
    b: Data,
    statistic: Statistic = "f1",
    *,
    names: tuple[str, str] = ("A", "B"),
    lower_is_better: bool | None = None,
    level: float = 0.95,
    repetitions: int = 2000,
    exchanges: int = 2000,
    seed: int = 0,
) -> Verdict:
    """Whether two models differ on the same clips.

    The p-value is that of a permutation test: if the models were alike, which of the two gave which result would be
    chance, clip by clip. All exchanges are tried if there are at most `exchanges`, else so many at random. The interval
    is a bootstrap interval of the difference, both models being resampled with the same clips. The test says nothing
    about training the models again: see `compare_seeds`.

    Parameters
    ----------
    lower_is_better
        By default, what the name of the statistic says: rates of errors are better low.

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
    return _verdict(
        names, statistic, scores, (float(low), float(high)), p_value, level, lower_is_better, basis=f"{n} clips"
    )


def compare_models(
    models: Mapping[str, Data],
    statistic: Statistic = "f1",
    *,
    against: str | None = None,
    lower_is_better: bool | None = None,
    level: float = 0.95,
    repetitions: int = 2000,
    seed: int = 0,
) -> list[Verdict]:
    """Verdicts on all pairs of models, or on all against one, with p-values adjusted for their number (Holm).

    Each pair is compared as by `compare`, with four times the exchanges without which no p-value could be small enough.
    """
    _check(level, repetitions)
    if len(models) < 2:
        raise ArgumentError(f"a comparison needs at least two models, found {len(models)}")
    if against is not None and against not in models:
        raise unknown_name("against", against, models)
    pairs = [pair for pair in itertools.combinations(models, 2) if against is None or against in pair]
    exchanges = max(repetitions, math.ceil(4 * len(pairs) / (1 - level)))
    verdicts = [
        compare(
            models[a],
            models[b],
            statistic,
            names=(a, b),
            lower_is_better=lower_is_better,
            level=level,
            repetitions=repetitions,
            exchanges=exchanges,
            seed=seed,
        )
        for a, b in pairs
    ]
    adjusted = holm([verdict.p_value for verdict in verdicts])
    return [
        replace(v, p_value=float(p), is_different=bool(v.is_different and p <= 1 - level))
        for v, p in zip(verdicts, adjusted, strict=True)
    ]


def seed_variance(seeds: Sequence[Data], statistic: Statistic = "f1", *, level: float = 0.95) -> SeedScore:
    """The mean score of several trainings on the same clips, with an interval for other seeds and other clips.

    Jackknife pseudo-values make of each score a mean over clips; a two-way analysis of variance (seeds by clips) takes
    these apart, and the interval is Student's with Satterthwaite's degrees of freedom. A bootstrap of three seeds would
    leave out a third of their variance; this one covers a little less often than it says only where three seeds differ
    far more than clips do.
    """
    _check(level)
    f = _function(statistic)
    scores, pseudo = _pseudo_values(f, seeds)
    part = _components(scores, pseudo)
    n_seeds, n_clips = pseudo.shape
    mean_squares = np.array([part.seeds, part.clips, part.both])
    total = max(part.seeds + part.clips - part.both, part.seeds, part.clips)
    freedom = np.array([n_seeds - 1, n_clips - 1, (n_seeds - 1) * (n_clips - 1)])
    score = float(scores.mean())
    return SeedScore(
        score,
        _student(score, total / pseudo.size, _satterthwaite(total, mean_squares, freedom), level),
        tuple(scores.tolist()),
        max(0.0, part.seeds - part.both) / n_clips,
        max(0.0, part.clips - part.both) / n_seeds / n_clips,
        part.both / n_clips,
    )


def compare_seeds(
    a: Sequence[Data],
    b: Sequence[Data],
    statistic: Statistic = "f1",
    *,
    names: tuple[str, str] = ("A", "B"),
    lower_is_better: bool | None = None,
    level: float = 0.95,
) -> Verdict:
    """Whether two models differ, each trained with several seeds and judged on the same clips.

    Clips are paired, seeds are not. The variance of the difference is that over clips, as between two models that are
    each the mean of their trainings, and that of training either again; the test is Student's.
    """
    _check(level)
    f = _function(statistic)
    ours, our_values = _pseudo_values(f, a)
    theirs, their_values = _pseudo_values(f, [_aligned(a[0], other) for other in b])
    n_clips = our_values.shape[1]
    over_clips = float(np.var(our_values.mean(axis=0) - their_values.mean(axis=0), ddof=1)) / n_clips
    total, terms, freedom = over_clips, [over_clips], [n_clips - 1]
    for scores, pseudo in ((ours, our_values), (theirs, their_values)):
        part = _components(scores, pseudo)
        total += max(0.0, part.seeds - part.both) / pseudo.size
        terms.append(part.seeds / pseudo.size)
        freedom.append(len(scores) - 1)
    degrees = _satterthwaite(total, np.array(terms), np.array(freedom))
    difference = float(ours.mean() - theirs.mean())
    interval = _student(difference, total, degrees, level)
    p_value = float(2 * stats.t.sf(abs(difference) / math.sqrt(total), degrees)) if total else float(difference == 0)
    basis = f"{n_clips} clips, {len(a)} and {len(b)} seeds"
    scores_of = (float(ours.mean()), float(theirs.mean()))
    return _verdict(names, statistic, scores_of, interval, p_value, level, lower_is_better, basis)


@dataclass(frozen=True)
class _MeanSquares:
    seeds: float
    clips: float
    both: float


def _pseudo_values(f: Callable[[Any, Floats], npt.ArrayLike], seeds: Sequence[Data]) -> tuple[Floats, Floats]:
    """Scores (seeds,), and jackknife pseudo-values (seeds, clips), of which they are the means, nearly."""
    if len(seeds) < 2:
        raise ArgumentError(f"at least two seeds are needed to see how they differ, found {len(seeds)}")
    n = _length(seeds[0])
    if n < 2:
        raise DataError(f"at least two clips are needed to see how they differ, found {n}")
    scores, pseudo = np.empty(len(seeds)), np.empty((len(seeds), n))
    for s, counts in enumerate(seeds):
        own = counts if s == 0 else _aligned(seeds[0], counts)
        scores[s] = _scalar(f, own)
        pseudo[s] = n * scores[s] - (n - 1) * _without_each(f, own)
    if not np.isfinite(pseudo).all():
        raise DataError("the statistic has no value for some seed, or would have none without one clip")
    return scores, pseudo


def _without_each(f: Callable[[Any, Floats], npt.ArrayLike], counts: Data) -> Floats:
    """The statistic of all clips but one, for each of them."""
    if isinstance(f, ratio) and isinstance(counts, Counts):
        return f.without_each(counts)
    n = _length(counts)
    values, step = np.empty(n), max(1, _CHUNK // n)
    for first in range(0, n, step):
        left_out = np.arange(first, min(first + step, n))
        weights = np.ones((len(left_out), n))
        weights[np.arange(len(left_out)), left_out] = 0
        values[left_out] = _values(f, counts, weights)
    return values


def _components(scores: Floats, pseudo: Floats) -> _MeanSquares:
    """Mean squares of a two-way table without repetition."""
    n_seeds, n_clips = pseudo.shape
    by_seed, by_clip = pseudo.mean(axis=1, keepdims=True), pseudo.mean(axis=0, keepdims=True)
    rest = pseudo - by_seed - by_clip + pseudo.mean()
    return _MeanSquares(
        n_clips * float(np.var(scores, ddof=1)),
        n_seeds * float(np.var(by_clip, ddof=1)),
        float(np.sum(rest**2)) / ((n_seeds - 1) * (n_clips - 1)),
    )


def _satterthwaite(total: float, terms: Floats, freedom: npt.ArrayLike) -> float:
    spread = float(np.sum(terms**2 / np.asarray(freedom)))
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
    lower_is_better: bool | None,
    basis: str,
) -> Verdict:
    name = statistic if isinstance(statistic, str) else getattr(statistic, "__name__", "score")
    name = "score" if name == "<lambda>" else name
    if lower_is_better is None:
        lower_is_better = name.endswith("_rate")
    is_different = bool(p_value <= 1 - level and not interval[0] <= 0 <= interval[1])
    difference = scores[0] - scores[1]
    is_different = is_different and math.isfinite(difference)
    return Verdict(names, name, scores, difference, interval, p_value, is_different, lower_is_better, basis)


def _function(statistic: Statistic) -> Callable[[Any, Floats], npt.ArrayLike]:
    if not isinstance(statistic, str):
        return statistic
    average, _, name = statistic.rpartition(".")
    return ratio(name, average or "overall")


def _values(f: Callable[[Any, Floats], npt.ArrayLike], counts: Data, weights: Floats) -> Floats:
    return np.asarray(f(counts, weights), np.float64)


def _scalar(f: Callable[[Any, Floats], npt.ArrayLike], counts: Data) -> float:
    value = _values(f, counts, np.ones(_length(counts)))
    if value.ndim:
        raise ArgumentError(f"only single numbers can be compared, the statistic gives {value.shape}; choose one class")
    return float(value)


def _length(counts: Data) -> int:
    n = len(counts.filenames) if isinstance(counts, Counts) else len(counts)
    if n < 1:
        raise DataError("there are no clips, so nothing can be said")
    return n


def _aligned(a: Data, b: Data) -> Data:
    """The second model's counts with clips in the first one's order."""
    if isinstance(a, Counts) and isinstance(b, Counts):
        place = {name: i for i, name in enumerate(b.filenames)}
        if set(place) != set(a.filenames) or a.classes != b.classes:
            raise ArgumentError(
                "models can be compared on the same clips and classes only; judge them on the same data"
            )
        return b if a.filenames == b.filenames else b.select([place[name] for name in a.filenames])
    if isinstance(a, Counts) or isinstance(b, Counts) or np.shape(a) != np.shape(b):
        raise ArgumentError("models can be compared on the same clips only: counts of one kind and shape expected")
    return b


def _joined(a: Data, b: Data) -> Data:
    """Clips of a, then clips of b."""
    if isinstance(a, Counts) and isinstance(b, Counts):
        parts = {
            field.name: np.concatenate([getattr(a, field.name), getattr(b, field.name)])
            for field in fields(a)
            if isinstance(getattr(a, field.name), np.ndarray)
        }
        return replace(a, filenames=a.filenames + b.filenames, **parts)
    arrays: npt.NDArray[Any] = np.concatenate([np.asarray(a), np.asarray(b)])
    return arrays


def _resamples(rng: np.random.Generator, repetitions: int, n: int) -> Iterator[Floats]:
    """How often each clip was drawn, in n draws with replacement: (some, n), `repetitions` in all."""
    for size in _sizes(repetitions, n):
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _exchanges(rng: np.random.Generator, most: int, n: int) -> Iterator[Floats]:
    """Which clips stay with their model: (some, n) of 0 and 1; every possibility where there are few enough."""
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
    """Bounds of the middle part of the values that are numbers, along the first axis: (2, ...)."""
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
        raise ArgumentError(f"level must be between 0 and 1, as 0.95, found {level}")
    if repetitions < 1:
        raise ArgumentError(f"repetitions must be at least 1, found {repetitions}")


def _short(value: float, sign: str = "") -> str:
    """.582, or +.029, or 1.230."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:{sign}.3f}"
