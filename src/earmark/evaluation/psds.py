"""Polyphonic sound detection score: events compared by overlap, at every threshold (Bilen et al. 2020).

At a threshold, frames with a score at or above it form detections. A detection is *relevant* if reference events of its
class cover at least a share `dtc` of it; otherwise it is a false positive, and a *cross trigger* of every other class
whose events cover a share `cttc` of it. A reference event is detected if relevant detections cover a share `gtc` of it.
Detected events over the rate of false positives per hour, plus `alpha_ct` times the rate of cross triggers per hour of
the other classes' events, is a curve for each class. The score is the area under the mean of these curves minus
`alpha_st` times their standard deviation, up to `max_efpr`, as a share of the whole.

Every distinct score is a threshold, so the result is exact (Ebbers et al. 2022). As the threshold falls, detections
appear, grow and merge: a column of n frame scores forms at most n different ones over all thresholds, found in one
pass.

Differences from `sed_scores_eval.intersection_based.psds`, which the tests compare everything else with:

1. A class without a reference event, or unknown in every clip, has no rate of detected events: it is left out of mean,
   deviation and cross triggers, and its score is NaN. There it is an error.
2. Reference events of one class that overlap or touch are joined: no detection could distinguish them. There they are
   an error.
3. A class that is unknown in a clip, or present without times, is left out of that clip, whose duration then does not
   count for it either. There, labels are always known.
4. A single class has no cross triggers. There its score is NaN if `alpha_ct` is not 0.

The package psds_eval gives the same if every distinct score is one of its operating points, except that it compares
shares without rounding: a detection from 1 to 2 s that an event covers from 1.7 s on reaches its share of 0.3 there
(2.0 - 1.7 is 0.30000000000000004), and a second later it does not. Here times are compared to the microsecond, as in
sed_scores_eval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
from pydantic import Field

from earmark.errors import ArgumentError, DataError
from earmark.evaluation.base import (
    DECIMALS,
    Bools,
    Floats,
    FrameTimes,
    Integers,
    Labels,
    Pair,
    as_table,
    frame_scores,
    pair_labels,
)
from earmark.schema import record
from earmark.timing import joined_spans

__all__ = ["PSDS", "Roc", "Scenario", "evaluate"]

_HOUR = 3600.0

Number = TypeVar("Number", np.int64, np.float64)


@record
class Scenario:
    """What a score emphasizes."""

    dtc: float = Field(gt=0, le=1, description="Share of a detection that reference events must cover.")
    gtc: float = Field(gt=0, le=1, description="Share of a reference event that detections must cover.")
    cttc: float | None = Field(
        default=None, gt=0, le=1, description="Share that makes a false positive a cross trigger; None ignores these."
    )
    alpha_ct: float = Field(default=0.0, ge=0, description="Weight of cross triggers.")
    alpha_st: float = Field(default=0.0, ge=0, description="Weight of the standard deviation between classes.")
    max_efpr: float = Field(default=100.0, gt=0, description="False positives per hour up to which the curve counts.")

    def __post_init__(self) -> None:
        if (self.cttc is None) != (self.alpha_ct == 0):
            raise ArgumentError(
                f"cttc and alpha_ct must be given together, got cttc={self.cttc}, alpha_ct={self.alpha_ct}"
            )


SCENARIO_1 = Scenario(dtc=0.7, gtc=0.7, alpha_st=1.0)
"""DCASE's first scenario: fast reaction."""

SCENARIO_2 = Scenario(dtc=0.1, gtc=0.1, cttc=0.3, alpha_ct=0.5, alpha_st=1.0)
"""DCASE's second scenario: no confusion of classes."""


class Roc(NamedTuple):
    """Share of detected events over effective false positives per hour: a staircase, `tpr[i]` from `efpr[i]` on."""

    efpr: Floats
    tpr: Floats


@dataclass(frozen=True)
class PSDS:
    """The score, in [0, 1], and its curve; the same for each class, NaN and None without reference."""

    value: float
    roc: Roc
    per_class: dict[str, float]
    rocs: dict[str, Roc | None]


def evaluate(
    reference: Labels,
    estimate: Mapping[str, npt.ArrayLike],
    *,
    scenario: Scenario = SCENARIO_1,
    **times: Unpack[FrameTimes],
) -> PSDS:
    """The score of frame scores.

    Parameters
    ----------
    estimate
        By file name: (frames, classes), higher for more certain. On any scale; -inf is never active.
    times
        `hop` or `edges`, and `durations` and `classes`: see `earmark.evaluation.base.FrameTimes`.

    Examples
    --------
    >>> reference = [("a.wav", 1.0, 3.0, "dog"), ("a.wav", 6.0, 7.0, "dog")]
    >>> dog = [0.1, 0.9, 0.8, 0.1, 0.7, 0.2, 0.3, 0.1]
    >>> up_to_900 = Scenario(dtc=0.7, gtc=0.7, max_efpr=900.0)
    >>> result = evaluate(reference, {"a.wav": [[p] for p in dog]}, hop=1.0, scenario=up_to_900)
    >>> result.roc  # half of the events without, all of them with one false positive in 8 s
    Roc(efpr=array([  0., 450.]), tpr=array([0.5, 1. ]))
    >>> result.value
    0.75
    """
    table = as_table(reference)
    frames = frame_scores(table, estimate, times)
    pair = pair_labels(table, (), classes=frames.classes, filenames=frames.filenames)
    events = _joined(pair)
    changes: list[list[tuple[Floats, Integers]]] = [[] for _ in frames.classes]
    for clip, (values, edges) in enumerate(zip(frames.values, frames.edges, strict=True)):
        covered = np.stack([_covered(by_class, edges) for by_class in events[clip]])
        for c in np.flatnonzero(pair.known[clip]).tolist():
            changes[c].append(_changes(_spans(values[:, c]), edges, covered, events[clip][c], c, scenario))
    n_ref = np.array([[len(by_class) for by_class in clip] for clip in events]).sum(0)
    t_ref = np.array([[np.diff(by_class).sum() for by_class in clip] for clip in events]).sum(0)
    seconds = frames.durations @ pair.known
    rocs: dict[str, Roc | None] = dict.fromkeys(frames.classes)
    for c in np.flatnonzero(n_ref).tolist():
        others = t_ref * (np.arange(len(t_ref)) != c)
        rocs[frames.classes[c]] = _roc(changes[c], n_ref[c], seconds[c], others, scenario)
    known = [roc for roc in rocs.values() if roc is not None]
    limit = scenario.max_efpr
    per_class = {label: math.nan if roc is None else _area(roc, limit) for label, roc in rocs.items()}
    if not known:
        return PSDS(math.nan, Roc(np.empty(0), np.empty(0)), per_class, rocs)
    efpr = np.unique(np.concatenate([roc.efpr for roc in known]))
    tpr = np.stack([roc.tpr[np.searchsorted(roc.efpr, efpr, side="right") - 1] for roc in known])
    mean = Roc(efpr, np.maximum(tpr.mean(0) - scenario.alpha_st * tpr.std(0), 0.0))
    return PSDS(_area(mean, limit), mean, per_class, rocs)


def _joined(pair: Pair) -> list[list[Floats]]:
    """Reference events by clip and class, (events, 2), in order; those that overlap or touch are joined."""
    spans: list[list[list[tuple[float, float]]]] = [[[] for _ in pair.classes] for _ in pair.filenames]
    for clip, label, onset, offset in zip(*(column.tolist() for column in pair.reference), strict=True):
        if onset == offset:
            raise DataError(
                f"{pair.filenames[clip]}: {pair.classes[label]!r} at {onset} s has length 0 and cannot be covered"
            )
        spans[clip][label].append((onset, offset))
    return [[np.array(joined_spans(events), np.float64).reshape(-1, 2) for events in clip] for clip in spans]


def _covered(events: Floats, times: Floats) -> Floats:
    """Seconds of events before each time; events in order, without overlap."""
    if not len(events):
        return np.zeros(len(times))
    total = np.cumsum(events[:, 1] - events[:, 0])
    at_edges = np.stack((np.append(0.0, total[:-1]), total), axis=1)
    return np.asarray(np.interp(times, events.ravel(), at_edges.ravel()), np.float64)


class _Spans(NamedTuple):
    """Detections of all thresholds: frames from `first` up to `last`, for thresholds above `outside` up to `inside`."""

    first: Integers
    last: Integers
    inside: Floats
    outside: Floats


def _spans(values: Floats) -> _Spans:
    """Every detection that some threshold forms from a column of scores, in one pass.

    The stack holds the detections still open at the current frame, each higher and later than the one below it.
    """
    starts, levels = [0], [-math.inf]
    first, last, inside, outside = [], [], [], []
    for frame, value in enumerate([*values.tolist(), -math.inf]):
        start = frame
        while levels[-1] > value:
            start = starts.pop()
            first.append(start)
            last.append(frame)
            inside.append(levels.pop())
            outside.append(value if value > levels[-1] else levels[-1])
        if value > levels[-1]:
            starts.append(start)
            levels.append(value)
    return _Spans(np.array(first, np.int64), np.array(last, np.int64), np.array(inside), np.array(outside))


def _changes(
    spans: _Spans, times: Floats, covered: Floats, events: Floats, column: int, scenario: Scenario
) -> tuple[Floats, Integers]:
    """How the counts of one class in one clip change as the threshold falls: levels, and rows of changes.

    A row is (tp, fp, *cross triggers of each class), the last only with `cttc`. `covered` is (classes, times), `events`
    are those of the class.
    """
    length = times[spans.last] - times[spans.first]
    overlap = np.round(covered[:, spans.last] - covered[:, spans.first], DECIMALS)
    relevant = overlap[column] >= np.round(scenario.dtc * length, DECIMALS)
    fp = (~relevant).astype(np.int64)[:, None]
    if scenario.cttc is None:
        ct = np.empty((len(length), 0), np.int64)
    else:
        ct = (overlap >= np.round(scenario.cttc * length, DECIMALS)).T * fp
        ct[:, column] = 0
    change = np.concatenate((np.zeros_like(fp), fp, ct), axis=1)
    level, rows = [spans.inside, spans.outside], [change, -change]
    for event in events:
        at, tp = _detected(event, spans, times, relevant, scenario.gtc)
        level.append(at)
        rows.append(np.pad(tp[:, None], ((0, 0), (0, change.shape[1] - 1))))
    levels, total = _summed(np.concatenate(level), np.concatenate(rows))
    keep = total.any(1) & (levels > -math.inf)
    return levels[keep], total[keep]


def _summed(level: Floats, rows: npt.NDArray[Number]) -> tuple[Floats, npt.NDArray[Number]]:
    """Distinct levels, falling, and the sum of the rows at each."""
    order = np.argsort(-level)
    level = level[order]
    first = np.flatnonzero(np.append(True, level[1:] != level[:-1]))[: len(level)]
    return level[first], np.add.reduceat(rows[order], first)


def _detected(event: Floats, spans: _Spans, times: Floats, relevant: Bools, gtc: float) -> tuple[Floats, Integers]:
    """The levels at which a reference event is detected (1), or lost again (-1) as detections outgrow it."""
    overlap = np.minimum(times[spans.last], event[1]) - np.maximum(times[spans.first], event[0])
    near = relevant & (overlap > 0)
    part = overlap[near]
    level, change = _summed(np.concatenate((spans.inside[near], spans.outside[near])), np.concatenate((part, -part)))
    detected = np.round(np.cumsum(change), DECIMALS) >= np.round(gtc * (event[1] - event[0]), DECIMALS)
    return level, np.diff(detected.astype(np.int64), prepend=0)


def _roc(
    changes: Sequence[tuple[Floats, Integers]], n_ref: int, seconds: float, others: Floats, scenario: Scenario
) -> Roc:
    """The curve of one class: the largest share of detected events for each rate of false positives.

    `changes` are those of each clip, `others` (classes,) the seconds of reference events of the other classes.
    """
    levels, rows = zip(*changes, strict=True)
    _, steps = _summed(np.concatenate(levels), np.concatenate(rows))
    total = np.pad(np.cumsum(steps, axis=0), ((1, 0), (0, 0)))
    efpr = _HOUR * total[:, 1] / seconds
    active = np.flatnonzero(others)
    if scenario.alpha_ct and len(active):
        efpr += _HOUR * scenario.alpha_ct * (total[:, 2 + active] @ (1 / others[active])) / len(active)
    tpr = total[:, 0] / n_ref
    order = np.lexsort((tpr, efpr))
    efpr, tpr = efpr[order], np.maximum.accumulate(tpr[order])
    is_last = np.append(efpr[1:] != efpr[:-1], True)  # of equal rates, the one with the largest share
    keep = is_last & (efpr <= scenario.max_efpr)
    efpr, tpr = efpr[keep], tpr[keep]
    rises = np.diff(tpr, prepend=-1.0) > 0
    return Roc(efpr[rises], tpr[rises])


def _area(roc: Roc, limit: float) -> float:
    return float(np.sum(roc.tpr * np.diff(roc.efpr, append=limit)) / limit)
