"""Segments judged at every threshold: precision, recall and F1 as functions of it, from frame scores.

A segment's score is the largest of the frames it touches, so one pass over the frames gives the counts of every threshold:
a segment is called active by every threshold below its score. Nothing is decoded and nothing is tuned on the sly; the
best F1 is the best that any threshold could have had on these very clips, and says so in its name.

    segment_scores(reference, scores, hop=...)   what is counted: a score and a truth for every segment, with its clip
    curve(segments, label)                       counts of one class at all thresholds, weighted by clip if asked
    evaluate(reference, scores, hop=...)         curves, best F1 and average precision of every class, and their means

Frame scores come as a mapping from file name to an array (frames, classes), columns in the order of `classes` (by default
the reference's). Every reference file must have scores; a clip with scores that the reference does not name was listened
to and nothing was heard. Clips resampled for an interval are weights: how often each was drawn.

Differences from sed_scores_eval's `segment_based`, with which everything else agrees:

1. A duration of 1.1 s has 11 segments of 0.1 s; there it has 12, because 1.1 / 0.1 is 11.000000000000002.
2. A class without a reference event has NaN for recall, F1 and average precision, and is left out of means; there it is an
   error.
3. Events of one class that overlap or touch are allowed; there they are an error.
4. A segment that no frame reaches is never called active; there it has score 0, which a threshold below 0 lets through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name

__all__ = [
    "Best",
    "Curve",
    "CurveScores",
    "FrameScores",
    "SegmentScores",
    "curve",
    "curves",
    "evaluate",
    "frame_scores",
    "segment_scores",
    "timed_events",
]

Floats = npt.NDArray[np.float64]
Span = tuple[float, float]

DECIMALS = 6  # times are compared to the microsecond, as sed_scores_eval does
_SLACK = 1e-6  # of a segment


@dataclass(frozen=True)
class FrameScores:
    """Frame scores of clips, checked, with the times of their frames.

    Attributes
    ----------
    filenames, classes
        Clips and the columns of their scores.
    values
        Per clip: (frames, classes).
    edges
        Per clip: (frames + 1,) seconds; frame k lasts from edge k to edge k + 1.
    durations
        (clips,) seconds.
    """

    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    values: tuple[Floats, ...]
    edges: tuple[Floats, ...]
    durations: Floats


def frame_scores(
    reference: LabelTable,
    scores: Mapping[str, npt.ArrayLike],
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
        What is true; every file of it must have scores.
    scores
        By file name: (frames, classes), any scale, larger for surer; no NaN.
    hop
        Seconds from frame to frame, the first beginning at 0. Or:
    edges
        By file name: (frames + 1,) increasing seconds.
    durations
        By file name: seconds; by default up to the last edge.
    classes
        What the columns are; by default the reference's classes. Every class of the reference must be among them.
    """
    if (hop is None) == (edges is None):
        raise ArgumentError("when frames are must be said once: by hop, or by edges")
    if hop is not None and not 0 < hop < math.inf:
        raise ArgumentError(f"hop must be positive and finite, got {hop!r}")
    if not scores:
        raise DataError("no clip has scores")
    names = reference.classes if classes is None else tuple(classes)
    for label in reference.classes:
        if label not in names:
            raise unknown_name("reference label", label, names)
    for filename in reference.filenames:
        if filename not in scores:
            raise DataError(f"{filename}: is in the reference but has no scores; score it, or select the files judged")
    values = tuple(_checked_scores(filename, array, len(names)) for filename, array in scores.items())
    if edges is None:
        times = tuple(np.arange(len(array) + 1) * hop for array in values)
    else:
        times = tuple(
            _checked_edges(name, _of(edges, name, "edges"), len(a)) for name, a in zip(scores, values, strict=True)
        )
    lengths = [t[-1] for t in times] if durations is None else [_of(durations, name, "duration") for name in scores]
    for name, length in zip(scores, lengths, strict=True):
        if not 0 < length < math.inf:
            raise DataError(f"{name}: duration must be positive and finite, found {length}")
    return FrameScores(tuple(scores), names, values, times, np.array(lengths, np.float64))


def _of[T](mapping: Mapping[str, T], filename: str, what: str) -> T:
    if filename not in mapping:
        raise DataError(f"{filename}: has scores but no {what}")
    return mapping[filename]
