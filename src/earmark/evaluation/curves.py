"""Segment-based metrics at every threshold: precision, recall and F1 as functions of it, from frame scores.

A segment's score is the largest among the frames it touches, so a threshold activates exactly the segments whose score
is at or above it: sorting the scores once gives the counts of every threshold. The best F1 of a curve is the best that
any threshold could have reached on these very clips: an upper bound, not a result.

    evaluate(reference, estimate, hop=...)      curves, best F1 and average precision of every class, and their means
    counts(reference, estimate, hop=...)        score and truth of every segment, with its clip
    curve(counts, label)                        one class, or all pooled, at all thresholds

Frame scores are a mapping from file name to an array (frames, classes). Every file of the reference must have scores; a
clip with scores that the reference does not have is one without events. What the reference does not know (a class
without times, or marked unknown) is left out. To resample clips, pass `curve` or `scores` weights: how often each clip
was drawn.

Differences from sed_scores_eval's `segment_based`, which the tests compare everything else with:

1. 1.1 s have 11 segments of 0.1 s. There they have 12, because 1.1 / 0.1 is 11.000000000000002.
2. A class that is nowhere in the reference has NaN for recall, F1 and average precision, and is left out of means.
   There it is an error.
3. A segment that no frame reaches is never active. There it has score 0.
4. Events activate the segments of `earmark.timing.span_to_frames`: one that ends a rounding error behind a boundary
   does not reach into the next segment, and one of length 0 on a boundary is in the segment behind it. There it is the
   other way.
5. Events of one class may overlap or touch. There that is an error.
6. Of several thresholds with the same F1, the highest is the best. There rounding decides.
7. A score that equals the threshold is active, as everywhere in earmark. There it is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.counts import f1_score, nan_mean
from earmark.errors import ArgumentError, unknown_name
from earmark.evaluation.base import DECIMALS, FrameTimes, Labels, as_table, frame_scores
from earmark.timing import frames_covering

__all__ = ["Best", "Curve", "CurveScores", "SegmentScores", "counts", "curve", "evaluate", "scores"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SegmentScores:
    """Score and truth of every segment.

    Attributes
    ----------
    filenames, classes
        Clips and columns.
    clip
        (segments,), the clip of each.
    score
        (segments, classes), -inf where no frame reaches.
    truth
        (segments, classes): 1 active, 0 inactive, NaN unknown.
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
        (levels,) infinity, then the distinct scores, falling. Thresholds above `level[i + 1]` and up to `level[i]` give
        the counts at i.
    tp, fp
        (levels,) true and false positives.
    n_ref
        Active segments of the reference.
    """

    level: Floats
    tp: Floats
    fp: Floats
    n_ref: float

    @property
    def precision(self) -> Floats:
        """tp / (tp + fp); 1 where nothing is detected."""
        detected = self.tp + self.fp
        return np.where(detected > 0, self.tp / np.maximum(detected, 1e-300), 1.0)

    @property
    def recall(self) -> Floats:
        """tp / n_ref; NaN without reference."""
        return self.tp / self.n_ref if self.n_ref else np.full(len(self.tp), np.nan)

    @property
    def f1(self) -> Floats:
        """F1; NaN without reference."""
        return f1_score(self.tp, self.fp, self.n_ref - self.tp) if self.n_ref else np.full(len(self.tp), np.nan)

    def at(self, threshold: float) -> int:
        """The index of a threshold: scores at or above it are active."""
        return int(np.count_nonzero(self.level >= threshold)) - 1

    @property
    def best(self) -> Best:
        """The best F1 of any threshold, and the highest such threshold, midway to the next score."""
        if not self.n_ref:
            return Best(math.nan, math.nan, math.nan, math.nan, 0.0, 0.0)
        i = int(np.argmax(self.f1))
        below = (self.level[i] + self.level[i + 1]) / 2 if i + 1 < len(self.level) else -math.inf
        picked = (self.f1[i], self.precision[i], self.recall[i], below, self.tp[i], self.fp[i])
        return Best(*(float(value) for value in picked))

    @property
    def average_precision(self) -> float:
        """Mean precision over recall: sum of (R_i - R_(i-1)) P_i, falling thresholds; NaN without reference."""
        return float(np.sum(np.diff(self.recall) * self.precision[1:])) if self.n_ref else math.nan


class Best(NamedTuple):
    """A point of a curve: scores and their threshold."""

    f1: float
    precision: float
    recall: float
    threshold: float
    tp: float
    fp: float


@dataclass(frozen=True)
class CurveScores:
    """Curves of all classes and their summary. NaN, for a class without reference, is left out of means.

    Attributes
    ----------
    classes, curves, best
        One each per class.
    average_precision
        (classes,).
    mean_average_precision, macro_f1
        Means over classes of average precision and of best F1.
    micro_f1
        F1 of the counts of all classes together, each at its best threshold.
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
    **times: Unpack[FrameTimes],
) -> SegmentScores:
    """Score and truth of every segment; arguments as for `evaluate`."""
    if not 0 < segment < math.inf:
        raise ArgumentError(f"expected a segment length above 0 s, got {segment!r}")
    table = as_table(reference)
    frames = frame_scores(table, estimate, **times)
    table = LabelTable(table, filenames=frames.filenames, classes=frames.classes, complete=table.complete)
    clip, score, truth = [], [], []
    for i, (filename, values, edges) in enumerate(zip(frames.filenames, frames.values, frames.edges, strict=True)):
        n = int(frames_covering(frames.durations[i], segment))
        clip.append(np.full(n, i))
        score.append(_largest(values, edges, n, segment))
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
    padded = np.concatenate((values, np.full((1, values.shape[1]), -np.inf)))  # reduceat needs indices inside
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
        raise ArgumentError(f"expected one weight per clip, ({len(counts.filenames)},), got shape {weight.shape}")
    each = np.broadcast_to(weight[counts.clip][:, None], score.shape)
    known = ~np.isnan(truth)
    score, truth, each = score[known], truth[known] * each[known], each[known]
    order = np.argsort(-score, kind="stable")
    order = order[score[order] > -np.inf]
    level, n_ref = score[order], float(truth.sum())
    ends = np.flatnonzero(np.append(level[1:] != level[:-1], True)) if len(level) else np.empty(0, np.int64)
    tp, detected = (np.append(0.0, np.cumsum(x[order])[ends]) for x in (truth, each))
    return Curve(np.append(np.inf, level[ends]), tp, detected - tp, n_ref)


def scores(counts: SegmentScores, *, weights: npt.ArrayLike | None = None) -> CurveScores:
    """Curves of every class and their summary; `weights` as for `curve`."""
    every = tuple(curve(counts, label, weights=weights) for label in counts.classes)
    best = tuple(one.best for one in every)
    precisions = np.array([one.average_precision for one in every])
    tp, fp, n_ref = sum(b.tp for b in best), sum(b.fp for b in best), sum(c.n_ref for c in every)
    return CurveScores(
        classes=counts.classes,
        curves=every,
        best=best,
        average_precision=precisions,
        mean_average_precision=float(nan_mean(precisions)),
        macro_f1=float(nan_mean([b.f1 for b in best])),
        micro_f1=float(f1_score(tp, fp, n_ref - tp)) if n_ref else math.nan,
    )


def evaluate(
    reference: Labels,
    estimate: Mapping[str, npt.ArrayLike],
    *,
    segment: float = 1.0,
    **times: Unpack[FrameTimes],
) -> CurveScores:
    """Segment-based scores at every threshold.

    Parameters
    ----------
    estimate
        By file name: (frames, classes), higher for more certain. On any scale; -inf is never active.
    segment
        Length of segments, in seconds.
    times
        `hop` or `edges`, and `durations` and `classes`: see `earmark.evaluation.base.FrameTimes`.

    Examples
    --------
    >>> reference = [("a.wav", 1.0, 3.0, "dog")]
    >>> result = evaluate(reference, {"a.wav": [[0.1], [0.9], [0.6], [0.7]]}, hop=1.0)
    >>> result.best[0].f1, result.best[0].threshold
    (0.8, 0.35)
    >>> print(f"{result.average_precision[0]:.4f}")
    0.8333
    """
    return scores(counts(reference, estimate, segment=segment, **times))
