"""Segment-based precision, recall and F1 at every threshold, from frame scores.

A segment's score is the largest among the frames it touches, so a threshold activates exactly the segments whose score
is at or above it: sorting the scores once gives the counts of every threshold.

Differences from sed_scores_eval's `segment_based`, which the tests compare everything else with:

1. 1.1 s have 11 segments of 0.1 s. There they have 12, because 1.1 / 0.1 is 11.000000000000002.
2. A class that is nowhere in the reference has NaN for recall and F1. There it is an error.
3. A segment that no frame reaches is never active. There it has score 0.
4. Events activate the segments of `earmark.timing.span_to_frames`: one that ends a rounding error behind a boundary
   does not reach into the next segment, and one of length 0 on a boundary is in the segment behind it. There it is the
   other way.
5. Events of one class may overlap or touch. There that is an error.
6. A score that equals the threshold is active, as everywhere in earmark. There it is not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import numpy.typing as npt

from earmark.counts import f1_score
from earmark.errors import unknown_name
from earmark.evaluation.base import DECIMALS, Floats, FrameTimes, Labels, as_table, check_segment, frame_scores
from earmark.timing import frames_covering


@dataclass(frozen=True)
class Curve:
    """Counts at all thresholds, from the highest to the lowest; `n_ref` is the number of active reference segments.

    `level`, `tp` and `fp` are (levels,). Levels are infinity, then the distinct scores, falling; thresholds above
    `level[i + 1]` and up to `level[i]` give the counts at i.
    """

    level: Floats
    tp: Floats
    fp: Floats
    n_ref: float

    @property
    def precision(self) -> Floats:
        """tp / (tp + fp); 1 where nothing is detected."""
        detected = self.tp + self.fp
        return np.where(detected > 0, self.tp / np.maximum(detected, 1), 1.0)

    @property
    def recall(self) -> Floats:
        """tp / n_ref; NaN without reference."""
        return self.tp / (self.n_ref or math.nan)

    @property
    def f1(self) -> Floats:
        """F1; NaN without reference."""
        return f1_score(self.tp, self.fp, (self.n_ref or math.nan) - self.tp)

    def at(self, threshold: float) -> int:
        """The index of a threshold: scores at or above it are active."""
        return int(np.count_nonzero(self.level >= threshold)) - 1


def curve(
    reference: Labels,
    estimate: Mapping[str, npt.ArrayLike],
    label: str | None = None,
    *,
    segment: float = 1.0,
    **times: Unpack[FrameTimes],
) -> Curve:
    """One class, or all pooled under one threshold, at all thresholds.

    A class that is unknown in a clip, or present without times, is left out of that clip.

    Parameters
    ----------
    estimate
        By file name: (frames, classes), higher for more certain. On any scale; -inf is never active. Every file of the
        reference must have scores; a clip that is not in the reference has no events.
    times
        `hop` or `edges`, and `durations` and `classes`: see `earmark.evaluation.base.FrameTimes`.

    Examples
    --------
    >>> one = curve([("a.wav", 1.0, 3.0, "dog")], {"a.wav": [[0.1], [0.9], [0.6], [0.7]]}, hop=1.0)
    >>> one.level, one.f1.round(2)
    (array([inf, 0.9, 0.7, 0.6, 0.1]), array([0.  , 0.67, 0.5 , 0.8 , 0.67]))
    """
    check_segment(segment)
    table = as_table(reference)
    frames = frame_scores(table, estimate, times)
    if label is not None and label not in frames.classes:
        raise unknown_name("label", label, frames.classes)
    columns = slice(None) if label is None else [frames.classes.index(label)]
    table = table.replace(filenames=frames.filenames, classes=frames.classes)
    scores, truths = [], []
    for filename, values, edges, duration in zip(
        frames.filenames, frames.values, frames.edges, frames.durations, strict=True
    ):
        n = int(frames_covering(duration, segment))
        targets = table.frame_targets(filename, n, segment)[:, columns]
        known = ~np.isnan(targets)
        scores.append(_largest(values[:, columns], edges, n, segment)[known])
        truths.append(targets[known])
    score, truth = np.concatenate(scores), np.concatenate(truths).astype(np.float64)
    order = np.argsort(-score, kind="stable")
    order = order[score[order] > -np.inf]
    level = score[order]
    ends = np.flatnonzero(np.append(level[1:] != level[:-1], True))[: len(level)]  # of each tie
    tp = np.append(0.0, np.cumsum(truth[order])[ends])
    return Curve(np.append(np.inf, level[ends]), tp, np.append(0.0, ends + 1.0) - tp, float(truth.sum()))


def _largest(values: Floats, edges: Floats, n: int, segment: float) -> Floats:
    """(n, classes): the largest score of the frames that each segment touches; -inf where no frame reaches."""
    bounds = np.round(np.arange(n + 1) * segment, DECIMALS)
    times = np.round(edges, DECIMALS)
    first = np.maximum(np.searchsorted(times, bounds[:-1], side="right") - 1, 0)
    last = np.minimum(np.searchsorted(times, bounds[1:], side="left"), len(values))
    padded = np.concatenate((values, np.full((1, values.shape[1]), -np.inf)))  # reduceat needs indices inside
    largest: Floats = np.maximum.reduceat(padded, np.stack((np.minimum(first, last), last), axis=1).ravel())[::2]
    return np.where((first < last)[:, None], largest, -np.inf)
