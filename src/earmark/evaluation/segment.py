"""Segment-based metrics: each class is active or not in each of many equal segments of time (Mesaros et al. 2016).

    scores = evaluate(reference, estimate, segment=1.0)
    scores.overall.f1, scores.overall.error_rate, scores.macro.f1, scores.per_class["dog"].recall

The dynamic scores of the paper are these, with segments of one second. An event activates every segment that it
touches; in each segment and class, reference and estimate agree (tp, tn) or not (fp, fn). Within a segment as many
misses as possible are paired with false alarms, as substitutions; the others are deletions or insertions.

Counts equal those of `sed_eval.sound_event.SegmentBasedMetrics`, and with `convention="sed_eval"` so do the scores, to
the last digit. Rules of sed_eval that may surprise:

- A clip ends with the last offset in reference or estimate, unless `durations` gives its length; without durations, a
  clip without events has no segments. Events are cut at the given durations.
- An event of length 0 activates one segment, but none if it lies on a boundary.
- Times are divided by the segment length without a tolerance: with segments of 0.1 s, an offset of
  0.30000000000000004 s reaches into the fourth, and an event from 0.7 s on, which is 6.999999999999999 segments,
  begins in the seventh. With segments of whole or half seconds there is no such noise.
- Division by zero: see `earmark.counts`. With the default convention, a class that is never detected has F1 0; in
  sed_eval it has none and does not lower the macro average.

Differences from sed_eval:

1. sed_eval evaluates the files that it is given, one by one, so a file that the caller forgets is not evaluated. Here
   all files of reference and durations are evaluated, and an estimate for another file is an error; `missing="empty"`
   evaluates it against an empty reference, which is what sed_eval gives for such a file.
2. A label outside `classes` is an error in both; here the message names it. By default, `classes` are those of the
   reference; with `missing="empty"` also those of the estimate.
3. sed_eval skips rows without times. Here a class that the reference marks as present somewhere in the clip, or as
   unknown, is left out of that clip: no hits, false alarms or true negatives. In an estimate such a row is an error.
   A class that is known in some intervals only, as in a recording that was reviewed in part, counts in the segments
   within them and in those that its true events touch.
4. Negative times are an error (`earmark.annotations.checked`); in sed_eval they count from the end of the clip.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from earmark.counts import Counts, Scores, scores
from earmark.errors import ArgumentError
from earmark.evaluation.base import Events, Floats, Integers, Labels, Pair, check_segment, pair_labels

__all__ = ["counts", "evaluate"]

_SLACK = 1e-6  # of a segment, or seconds: ends of known intervals are rounded


class _Spans(NamedTuple):
    """Active spans that do not overlap, as first segment and one past the last.

    They lie on one axis: the segments of all clips for the first class, then for the second, and so on. The cost is
    that of sorting the events, whatever the lengths of segments and clips.
    """

    first: Integers
    last: Integers


def evaluate(reference: Labels, estimate: Labels, *, convention: str = "plain", **options: Any) -> Scores:
    """Precision, recall, F1, error rate and accuracy of segments: micro, macro and per class.

    `convention` is "plain" or "sed_eval": how to divide by zero; see `earmark.counts`. `options` are those of `counts`.

    >>> reference = [("a.wav", 0.0, 2.5, "dog"), ("a.wav", 4.0, 5.0, "cat")]
    >>> estimate = [("a.wav", 1.2, 2.0, "dog"), ("a.wav", 4.0, 5.0, "dog")]
    >>> result = evaluate(reference, estimate)
    >>> result.overall.precision, result.overall.recall, result.overall.error_rate  # 1 substitution, 2 deletions of 4
    (0.5, 0.25, 0.75)
    """
    return scores(counts(reference, estimate, **options), convention=convention)


def counts(
    reference: Labels,
    estimate: Labels,
    *,
    segment: float = 1.0,
    classes: Iterable[str] | None = None,
    durations: Mapping[str, float] | None = None,
    missing: str = "error",
) -> Counts:
    """Counts of segments, clip by clip.

    Parameters
    ----------
    reference, estimate
        Label tables, rows (filename, onset, offset, label), or files or folders of them.
    segment
        Length of a segment, in seconds.
    durations
        Length of each clip, in seconds, by file name. Then clips are evaluated up to their end, and clips that the
        reference does not have are evaluated as clips without events. By default a clip ends with its last offset.
    classes, missing
        See `earmark.evaluation.base.pair_labels`.
    """
    check_segment(segment)
    pair = pair_labels(reference, estimate, classes=classes, filenames=durations or (), missing=missing)
    seconds = _seconds(pair, durations)
    lengths = np.ceil(seconds / segment).astype(np.int64)  # without tolerance, as sed_eval
    starts = np.concatenate([[0], np.cumsum(lengths)])  # clips one after another, on one axis of segments
    shape = pair.known.shape
    true = _spans(pair.reference, segment, starts)
    detected = _spans(pair.estimate, segment, starts)
    n_known = np.where(pair.known, lengths[:, None], 0)
    if pair.partial is not None:
        active = _spans(pair.partial.reference, segment, starts)
        known = _merged(_concatenated(active, _inner_spans(pair.partial.known, segment, starts, seconds)))
        true = _concatenated(true, active)
        detected = _concatenated(detected, _common(_spans(pair.partial.estimate, segment, starts), known))
        n_known += _total(known, starts, shape)
    both = _common(true, detected)
    tp = _total(both, starts, shape)
    n_ref = _total(true, starts, shape)
    n_est = _total(detected, starts, shape)
    tn = n_known - (n_ref + n_est - tp)
    errors = _errors((true, detected, both), starts)
    return Counts(pair.filenames, pair.classes, tp, n_est - tp, n_ref - tp, tn, *errors)


def _seconds(pair: Pair, durations: Mapping[str, float] | None) -> Floats:
    """Length of each clip: (clips,)."""
    if durations is None:
        seconds = np.zeros(len(pair.filenames))
        for events in (pair.reference, pair.estimate, *(pair.partial or ())):
            np.maximum.at(seconds, events.clip, events.offset)
        return seconds
    if lacking := [name for name in pair.filenames if name not in durations]:
        raise ArgumentError(
            f"expected durations of {len(pair.filenames)} clips, got none for {len(lacking)}, such as {lacking[0]!r}"
        )
    for name in pair.filenames:
        if not (math.isfinite(durations[name]) and durations[name] >= 0):
            raise ArgumentError(f"{name!r}: expected a duration in seconds, got {durations[name]!r}")
    return np.array([durations[name] for name in pair.filenames], np.float64)


def _spans(events: Events, segment: float, starts: Integers) -> _Spans:
    """Segments that events touch, cut at the ends of clips; `starts` has the first segment of each, and the total."""
    ends = np.diff(starts)[events.clip]
    begin = starts[events.clip] + events.label * starts[-1]
    first = begin + np.minimum(np.floor(events.onset / segment), ends).astype(np.int64)
    last = begin + np.minimum(np.ceil(events.offset / segment), ends).astype(np.int64)
    return _merged(_Spans(first, last))


def _inner_spans(events: Events, segment: float, starts: Integers, seconds: Floats) -> _Spans:
    """Segments that lie within events; the last one of a clip may end after it."""
    ends = np.diff(starts)[events.clip]
    begin = starts[events.clip] + events.label * starts[-1]
    first = np.minimum(np.ceil(events.onset / segment - _SLACK), ends)
    last = np.minimum(np.floor(events.offset / segment + _SLACK), ends)
    last = np.where(events.offset >= seconds[events.clip] - _SLACK, ends, last)
    return _merged(_Spans(begin + first.astype(np.int64), begin + last.astype(np.int64)))


def _concatenated(a: _Spans, b: _Spans) -> _Spans:
    return _Spans(np.concatenate([a.first, b.first]), np.concatenate([a.last, b.last]))


def _merged(spans: _Spans) -> _Spans:
    """Spans in order, without overlap and without those of no length."""
    order = np.argsort(spans.first)
    order = order[spans.last[order] > spans.first[order]]
    first, reach = spans.first[order], np.maximum.accumulate(spans.last[order])
    is_new = np.ones(len(order), bool)
    is_new[1:] = first[1:] >= reach[:-1]  # not where spans only touch: they may belong to two clips
    return _Spans(first[is_new], reach[np.roll(is_new, -1)])


def _common(a: _Spans, b: _Spans) -> _Spans:
    """Where both are active."""
    points = np.concatenate([a.first, b.first, a.last, b.last])
    order = np.argsort(points, kind="stable")  # which is fast for four sorted parts
    depth = np.cumsum(np.where(order < len(a.first) + len(b.first), 1, -1))
    points = points[order]
    inside = np.flatnonzero((depth[:-1] == 2) & (points[1:] > points[:-1]))
    return _Spans(points[inside], points[inside + 1])


def _total(spans: _Spans, starts: Integers, shape: tuple[int, int]) -> Integers:
    """Active segments: (clips, classes)."""
    label, at = np.divmod(spans.first, max(1, starts[-1]))
    cell = _clip(at, starts) * shape[1] + label
    sums = np.bincount(cell, spans.last - spans.first, minlength=shape[0] * shape[1])
    return sums.astype(np.int64).reshape(shape)


def _errors(families: Sequence[_Spans], starts: Integers) -> list[Integers]:
    """Substitutions, deletions and insertions, (clips,), from the spans of reference, estimate and both."""
    firsts = [spans.first % max(1, starts[-1]) for spans in families]  # all classes on the same axis
    lasts = [first + (spans.last - spans.first) for first, spans in zip(firsts, families, strict=True)]
    points = np.concatenate([*firsts, *lasts])
    family = np.repeat([0, 1, 2, 0, 1, 2], [len(part) for part in (*firsts, *lasts)])
    step = np.repeat([1, -1], len(points) // 2)
    order = np.argsort(points)
    depth = np.cumsum((family[order] == np.arange(3)[:, None]) * step[order], axis=1)
    points = points[order]
    pieces = np.flatnonzero(np.diff(points))
    length = points[pieces + 1] - points[pieces]
    per_clip = np.diff(np.searchsorted(points[pieces], starts))
    clip = np.repeat(np.arange(len(per_clip)), per_clip)
    n_ref, n_est, tp = depth[:, pieces]
    each = [np.minimum(n_ref, n_est) - tp, np.maximum(n_ref - n_est, 0), np.maximum(n_est - n_ref, 0)]
    return [np.bincount(clip, part * length, minlength=len(starts) - 1).astype(np.int64) for part in each]


def _clip(at: Integers, starts: Integers) -> Integers:
    """The clip that a segment belongs to."""
    return np.searchsorted(starts, at, side="right") - 1
