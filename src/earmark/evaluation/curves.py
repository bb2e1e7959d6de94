"""Segments judged at every threshold: precision, recall and F1 as functions of it, from frame scores.

A segment's score is the largest among the frames it touches, so that a threshold calls active exactly the segments
whose score is at or above it: sorting the scores once gives the counts of every threshold. The best F1 of a curve is
the best that any threshold could have had on these very clips: an upper bound, not a result.

    evaluate(reference, estimate, hop=...)      curves, best F1 and average precision of every class, and their means
    counts(reference, estimate, hop=...)        what is counted: score and truth of every segment, with its clip
    curve(counts, label)                        one class, or all pooled, at all thresholds

Frame scores come as a mapping from file name to an array (frames, classes). Every file of the reference must have
scores; a clip with scores that the reference does not name was listened to, and nothing was heard. What the reference
does not know (a class without times, or marked unknown) is left out. To resample clips, give `curve` or `scores`
weights: how often each clip was drawn.

Differences from sed_scores_eval's `segment_based`, which the tests hold everything else against:

1. 1.1 s have 11 segments of 0.1 s. There they have 12, because 1.1 / 0.1 is 11.000000000000002.
2. A class that is nowhere in the reference has NaN for recall, F1 and average precision, and is left out of means.
   There it is an error.
3. A segment that no frame reaches is never called active. There it has score 0.
4. Events make active what `earmark.timing.span_to_frames` says: one that ends a rounding error behind a boundary does
   not reach into the next segment, and one of no length on a boundary is in the segment behind it. There it is the
   other way.
5. Events of one class may overlap or touch. There that is an error.
6. Between thresholds of one F1 the highest is the best. There rounding decides.
7. A threshold that equals a score calls it active, as everywhere in earmark. There it does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.evaluation.base import Labels, as_table

__all__ = [
    "DECIMALS",
    "Best",
    "Curve",
    "CurveScores",
    "FrameScores",
    "SegmentScores",
    "counts",
    "curve",
    "evaluate",
    "frame_scores",
    "scores",
]

Floats = npt.NDArray[np.float64]

DECIMALS = 6  # times are compared to the microsecond, so that 0.7 * 0.1 and 0.07 are one
_SLACK = 1e-6  # of a segment


class FrameScores(NamedTuple):
    """Frame scores of clips, checked, and when their frames are; clips of the reference first, in its order.

    `values` are (frames, classes) and `edges` (frames + 1,) seconds, one array per clip; `durations` (clips,) seconds.
    """

    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    values: tuple[Floats, ...]
    edges: tuple[Floats, ...]
    durations: Floats


def frame_scores(
    reference: LabelTable,
    estimate: Mapping[str, npt.ArrayLike],
    *,
    hop: float | None = None,
    edges: Mapping[str, npt.ArrayLike] | None = None,
    durations: Mapping[str, float] | None = None,
    classes: Sequence[str] | None = None,
) -> FrameScores:
    """Check frame scores against a reference.

    Parameters
    ----------
    reference
        What is true. Every file of it must have scores.
    estimate
        By file name: (frames, classes), larger for surer. Any scale; -inf is never active.
    hop
        Seconds from frame to frame, the first beginning at 0. Or else:
    edges
        By file name: (frames + 1,) increasing seconds; frame k lasts from edge k to edge k + 1.
    durations
        By file name, seconds; by default up to the last edge.
    classes
        What the columns are; by default the reference's classes, in its order.
    """
    if (hop is None) == (edges is None):
        raise ArgumentError("say when the frames are once: by hop or by edges")
    if hop is not None and not 0 < hop < math.inf:
        raise ArgumentError(f"hop must be positive and finite, got {hop!r}")
    names = reference.classes if classes is None else tuple(classes)
    if not names:
        raise DataError("the reference has no classes; name the columns of the scores with classes")
    if len(set(names)) != len(names):
        raise ArgumentError(f"a class is named twice in classes: {', '.join(names)}")
    for label in reference.classes:
        if label not in names:
            raise unknown_name("reference label", label, names)
    if not estimate:
        raise DataError("there are no scores: an empty mapping came")
    for filename in reference.filenames:
        if filename not in estimate:
            raise DataError(f"{filename}: in the reference but without scores; select() the files that were scored")
    for what, given in (("edges", edges), ("duration", durations)):
        for filename in estimate if given is not None else ():
            if filename not in (given or {}):
                raise DataError(f"{filename}: has scores but no {what}")
    filenames = tuple(dict.fromkeys((*reference.filenames, *estimate)))
    values = tuple(_checked_values(filename, estimate[filename], names) for filename in filenames)
    if hop is not None:
        times = tuple(np.arange(len(own) + 1, dtype=np.float64) * hop for own in values)
    else:
        said = edges or {}
        times = tuple(_checked_edges(name, said[name], len(own)) for name, own in zip(filenames, values, strict=True))
    lengths = [
        float(own[-1] if durations is None else durations[name]) for name, own in zip(filenames, times, strict=True)
    ]
    for filename, length in zip(filenames, lengths, strict=True):
        if not 0 < length < math.inf:
            raise DataError(f"{filename}: a duration must be positive and finite, found {length}")
    return FrameScores(filenames, names, values, times, np.array(lengths))


def _checked_values(filename: str, array: npt.ArrayLike, classes: Sequence[str]) -> Floats:
    values = np.asarray(array, np.float64)
    if values.ndim != 2 or values.shape[1] != len(classes) or not len(values):
        raise DataError(f"{filename}: scores must be (frames, {len(classes)} classes), found shape {values.shape}")
    if not (values < math.inf).all():
        raise DataError(f"{filename}: a score is NaN or infinite; only -inf may be, for never")
    return values


def _checked_edges(filename: str, array: npt.ArrayLike, frames: int) -> Floats:
    edges = np.asarray(array, np.float64)
    if edges.shape != (frames + 1,):
        raise DataError(f"{filename}: {frames} frames have {frames + 1} edges, found shape {edges.shape}")
    if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all() and edges[0] >= 0):
        raise DataError(f"{filename}: edges of frames must be finite, increasing and not below 0")
    return edges


@dataclass(frozen=True)
class SegmentScores:
    """Score and truth of every segment.

    Attributes
    ----------
    filenames, classes
        Clips and columns.
    clip
        (segments,) which clip each belongs to.
    score
        (segments, classes), -inf where no frame reaches.
    truth
        (segments, classes): 1 active, 0 not, NaN unknown.
    """

    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    clip: npt.NDArray[np.int64]
    score: Floats
    truth: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Curve:
    """Counts at all thresholds, from the highest to the lowest.

    Attributes
    ----------
    level
        (levels,) distinct scores, falling, after a first of infinity. Thresholds above `level[i + 1]` and up to
        `level[i]` make the counts at i.
    tp, fp
        (levels,) segments rightly and wrongly called active.
    n_ref
        Segments that are active.
    """

    level: Floats
    tp: Floats
    fp: Floats
    n_ref: float

    @property
    def precision(self) -> Floats:
        """tp / (tp + fp); 1 where nothing is called active."""
        called = self.tp + self.fp
        return np.where(called > 0, self.tp / np.maximum(called, 1e-300), 1.0)

    @property
    def recall(self) -> Floats:
        """tp / n_ref; NaN where nothing is active."""
        return self.tp / self.n_ref if self.n_ref else np.full(len(self.tp), np.nan)

    @property
    def f1(self) -> Floats:
        """2 tp / (tp + fp + n_ref); NaN where nothing is active."""
        return 2 * self.tp / (self.tp + self.fp + self.n_ref) if self.n_ref else np.full(len(self.tp), np.nan)

    def at(self, threshold: float) -> int:
        """Where in the curve a threshold is: scores at or above it are called active."""
        return int(np.count_nonzero(self.level >= threshold)) - 1

    @property
    def best(self) -> Best:
        """The best F1 that a threshold could have had; the highest such threshold, midway to the next score."""
        if not self.n_ref:
            return Best(math.nan, math.nan, math.nan, math.nan, 0.0, 0.0)
        i = int(np.argmax(self.f1))
        below = (self.level[i] + self.level[i + 1]) / 2 if i + 1 < len(self.level) else -math.inf
        picked = (self.f1[i], self.precision[i], self.recall[i], below, self.tp[i], self.fp[i])
        return Best(*(float(value) for value in picked))

    @property
    def average_precision(self) -> float:
        """Mean precision over recall: sum of (R_i - R_(i-1)) P_i, falling thresholds; NaN where nothing is active."""
        return float(np.sum(np.diff(self.recall) * self.precision[1:])) if self.n_ref else math.nan


class Best(NamedTuple):
    """A point of a curve: scores and the threshold that has them."""

    f1: float
    precision: float
    recall: float
    threshold: float
    tp: float
    fp: float


@dataclass(frozen=True)
class CurveScores:
    """What the curves of all classes come to. NaN, for a class without reference, is left out of means.

    Attributes
    ----------
    classes, curves, best
        One each per class.
    average_precision
        (classes,).
    mean_average_precision, macro_f1
        Means over classes of average precision and of best F1.
    micro_f1
        F1 of the counts of all classes together, each at its own best threshold.
    """

    classes: tuple[str, ...]
    curves: tuple[Curve, ...]
    best: tuple[Best, ...]
    average_precision: Floats
    mean_average_precision: float
    macro_f1: float
    micro_f1: float


def counts(
    reference: Labels,
    estimate: Mapping[str, npt.ArrayLike],
    *,
    segment: float = 1.0,
    hop: float | None = None,
    edges: Mapping[str, npt.ArrayLike] | None = None,
    durations: Mapping[str, float] | None = None,
    classes: Sequence[str] | None = None,
) -> SegmentScores:
    """Score and truth of every segment; arguments as in `frame_scores`."""
    if not 0 < segment < math.inf:
        raise ArgumentError(f"segment must be positive and finite, got {segment!r}")
    table = as_table(reference)
    frames = frame_scores(table, estimate, hop=hop, edges=edges, durations=durations, classes=classes)
    table = LabelTable(table, filenames=frames.filenames, classes=frames.classes, complete=table.complete)
    clip, score, truth = [], [], []
    for i, (filename, values, times) in enumerate(zip(frames.filenames, frames.values, frames.edges, strict=True)):
        n = math.ceil(frames.durations[i] / segment - _SLACK)
        clip.append(np.full(n, i))
        score.append(_largest(values, times, n, segment))
        truth.append(table.frame_targets(filename, n, segment))
    return SegmentScores(
        frames.filenames, frames.classes, np.concatenate(clip), np.concatenate(score), np.concatenate(truth)
    )


def _largest(values: Floats, edges: Floats, n: int, segment: float) -> Floats:
    """(n, classes): the largest score of the frames that each segment touches."""
    bounds = np.round(np.arange(n + 1) * segment, DECIMALS)
    times = np.round(edges, DECIMALS)
    first = np.maximum(np.searchsorted(times, bounds[:-1], side="right") - 1, 0)
    last = np.minimum(np.searchsorted(times, bounds[1:], side="left"), len(values))
    padded = np.concatenate((values, np.full((1, values.shape[1]), -np.inf)))  # reduceat wants indices inside
    largest: Floats = np.maximum.reduceat(padded, np.stack((np.minimum(first, last), last), axis=1).ravel())[::2]
    return np.where((first < last)[:, None], largest, -np.inf)


def curve(counts: SegmentScores, label: str | None = None, *, weights: npt.ArrayLike | None = None) -> Curve:
    """One class, or all pooled under one threshold, at all thresholds.

    Parameters
    ----------
    label
        The class; None for all.
    weights
        (clips,) how often each clip counts; by default once.
    """
    if label is not None and label not in counts.classes:
        raise unknown_name("label", label, counts.classes)
    columns = slice(None) if label is None else [counts.classes.index(label)]
    score, truth = counts.score[:, columns], counts.truth[:, columns]
    weight = np.ones(len(counts.filenames)) if weights is None else np.asarray(weights, np.float64)
    if weight.shape != (len(counts.filenames),):
        raise ArgumentError(f"weights must be one per clip, ({len(counts.filenames)},), got shape {weight.shape}")
    each = np.broadcast_to(weight[counts.clip][:, None], score.shape)
    known = ~np.isnan(truth)
    score, truth, each = score[known], truth[known] * each[known], each[known]
    order = np.argsort(-score, kind="stable")
    order = order[score[order] > -np.inf]
    level, n_ref = score[order], float(truth.sum())
    ends = np.flatnonzero(np.append(level[1:] != level[:-1], True)) if len(level) else np.empty(0, np.int64)
    tp, called = (np.append(0.0, np.cumsum(x[order])[ends]) for x in (truth, each))
    return Curve(np.append(np.inf, level[ends]), tp, called - tp, n_ref)


def scores(counts: SegmentScores, *, weights: npt.ArrayLike | None = None) -> CurveScores:
    """Curves of every class and what they come to; `weights` as in `curve`."""
    every = tuple(curve(counts, label, weights=weights) for label in counts.classes)
    best = tuple(one.best for one in every)
    precisions = np.array([one.average_precision for one in every])
    tp, fp, n_ref = (sum(values) for values in ([b.tp for b in best], [b.fp for b in best], [c.n_ref for c in every]))
    return CurveScores(
        classes=counts.classes,
        curves=every,
        best=best,
        average_precision=precisions,
        mean_average_precision=_mean(precisions),
        macro_f1=_mean(np.array([b.f1 for b in best])),
        micro_f1=2 * tp / (tp + fp + n_ref) if n_ref else math.nan,
    )


def _mean(values: Floats) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else math.nan


def evaluate(
    reference: Labels,
    estimate: Mapping[str, npt.ArrayLike],
    *,
    segment: float = 1.0,
    hop: float | None = None,
    edges: Mapping[str, npt.ArrayLike] | None = None,
    durations: Mapping[str, float] | None = None,
    classes: Sequence[str] | None = None,
) -> CurveScores:
    """Segments judged at every threshold; arguments as in `frame_scores`.

    >>> reference = [("a.wav", 1.0, 3.0, "dog")]
    >>> result = evaluate(reference, {"a.wav": [[0.1], [0.9], [0.6], [0.7]]}, hop=1.0)
    >>> result.best[0].f1, result.best[0].threshold
    (0.8, 0.35)
    >>> print(f"{result.average_precision[0]:.4f}")
    0.8333
    """
    return scores(
        counts(reference, estimate, segment=segment, hop=hop, edges=edges, durations=durations, classes=classes)
    )
