"""From frame probabilities to events: thresholds, smoothing, durations.

A `Decoder` holds the decisions; `decode` takes a whole clip, `stream` a recording that arrives in pieces, with the same
events at the end. Frame k stands for the time from k * hop up to (k + 1) * hop. In this order:

1. median filter: each frame becomes the median of the frames around it, the first and last frame repeated beyond the
   ends;
2. hysteresis: an event begins with a frame at or above `threshold` and lasts while frames are at or above `low`;
3. gaps shorter than `min_gap` are closed;
4. events shorter than `min_duration` are dropped.

The confidence of an event is the largest probability of its class between its ends, after the median filter. So it is
at least the threshold, an event with confidence c is what a threshold of c would just have found, and without a filter
the most confident event of a clip has the clip's probability under max-pooling. A mean would depend on where the ends
were put.

The paper's rule is `interpolate` and then `Decoder()`: linear interpolation to the rate of the features, and 0.5.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.timing import span_to_frames

__all__ = ["Decoder", "DecoderStream", "interpolate", "tune_thresholds"]

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Runs = tuple[Ints, Ints, Ints, Floats]  # class, first frame, one past the last, largest probability

_BLOCK = 1 << 13  # frames decoded at once: bounds memory, and stays in the cache
_SLACK = 1e-6  # of a frame, as in `timing`: 0.3 s at a hop of 0.1 s are 3 frames
_CANDIDATES = tuple(round(0.05 * i, 2) for i in range(1, 20))
_ALIGNMENTS = ("start", "middle")


def interpolate(p: npt.ArrayLike, factor: float, n_frames: int, *, align: str = "start") -> Floats:
    """Probabilities at a higher rate, on straight lines between those given: (frames, classes) -> (n_frames, classes).

    With "start", frame k's value stands at frame k * factor of the result, and the last value holds from there on. So
    did the paper's authors, whose factor was the quotient of the two numbers of frames, `n_frames / len(p)`: for ten
    seconds 430 / 26 = 16.54, although the network reduces 16-fold, so that the last frames move by up to a third of a
    second. The network's own factor keeps them where they are. Either way, an event comes out half an output frame
    early: frame k saw the sound up to frame (k + 1) * factor. With "middle", values stand in the middle of what they
    saw, and hold before the first and after the last.

    >>> interpolate([[0.0], [1.0]], 4, 8).T
    array([[0.  , 0.25, 0.5 , 0.75, 1.  , 1.  , 1.  , 1.  ]])
    >>> interpolate([[0.0], [1.0]], 4, 8, align="middle").T
    array([[0.   , 0.   , 0.125, 0.375, 0.625, 0.875, 1.   , 1.   ]])
    """
    values = _probabilities(p)
    if not len(values):
        raise DataError("there are no frames to interpolate between")
    if not (math.isfinite(factor) and factor > 0):
        raise ArgumentError(f"factor must be a positive number, found {factor}")
    if n_frames < 0:
        raise ArgumentError(f"n_frames must be at least 0, found {n_frames}")
    if align not in _ALIGNMENTS:
        raise unknown_name("align", align, _ALIGNMENTS)
    shift = 0.0 if align == "start" else 0.5
    place = np.clip((np.arange(n_frames) + shift) / factor - shift, 0, len(values) - 1)
    left = place.astype(np.int64)
    right = np.minimum(left + 1, len(values) - 1)
    weight = (place - left).astype(values.dtype)[:, None]
    return np.asarray(values[left] + weight * (values[right] - values[left]))


@dataclass(frozen=True)
class Decoder:
    """How probabilities become events. Every setting is one value, or one per class in the order of `classes`.

    The default is the paper's decision: a frame is positive where p >= 0.5, Eq. (1).

    Parameters
    ----------
    threshold
        An event begins with a frame at or above it. Compared in the precision of the probabilities, so that a float32
        0.7 is at 0.7.
    low
        An event lasts while frames are at or above it; by default the threshold.
    median
        Length of the median filter in seconds: as many whole frames as fit into half of it, on either side.
    min_duration
        Shortest event that is kept, in seconds.
    min_gap
        Shortest gap that parts two events, in seconds.
    tuned_on
        What the thresholds were chosen on, where they were; see `tune_thresholds`.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.4, 0.2], [0.6, 0.8], [0.1, 0.7]]
    >>> for event in Decoder().decode(p, 0.5, ["dog", "cat"], "a.wav"):
    ...     print(event.label, event.onset, event.offset, event.confidence)
    dog 0.0 0.5 0.9
    dog 1.0 1.5 0.6
    cat 1.0 2.0 0.8
    >>> [(event.label, event.offset) for event in Decoder(low=0.4).decode(p, 0.5, ["dog", "cat"], "a.wav")]
    [('dog', 1.5), ('cat', 2.0)]
    """

    threshold: float | tuple[float, ...] = 0.5
    low: float | tuple[float, ...] | None = None
    median: float | tuple[float, ...] = 0.0
    min_duration: float | tuple[float, ...] = 0.0
    min_gap: float | tuple[float, ...] = 0.0
    tuned_on: str | None = None

    def __post_init__(self) -> None:
        for name in ("threshold", "low", "median", "min_duration", "min_gap"):
            if not (name == "low" and self.low is None):
                object.__setattr__(self, name, _setting(name, getattr(self, name)))
        if not isinstance(self.tuned_on, str | None):
            raise ArgumentError(f"tuned_on must be text, found {self.tuned_on!r}")
        lengths = {
            field.name: len(value) for field in fields(self) if isinstance(value := getattr(self, field.name), tuple)
        }
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} for {count}" for name, count in lengths.items())
            raise ArgumentError(f"settings per class must be for as many classes each, found {told}")
        n_classes = max(lengths.values(), default=1)
        threshold, low = self._per_class("threshold", n_classes), self._per_class("low", n_classes)
        if np.any(low > threshold):
            c = int(np.argmax(low > threshold))
            raise ArgumentError(f"low must not be above threshold, found low {low[c]:g}, threshold {threshold[c]:g}")

    def decode(
        self, p: npt.ArrayLike, hop: float, classes: Sequence[str], filename: str, duration: float | None = None
    ) -> list[Label]:
        """Events of a whole clip, by onset, offset and class.

        Parameters
        ----------
        p : (frames, classes), in [0, 1]
        hop
            Seconds between frames.
        duration
            Of the clip, in seconds: events end there at the latest, and none begins there or later.
        """
        stream = self.stream(hop, classes, filename, duration)
        events = [*stream.update(p), *stream.finish()]
        place = {label: c for c, label in enumerate(stream.classes)}
        return sorted(events, key=lambda e: (e.onset, e.offset, place[e.label]))

    def stream(self, hop: float, classes: Sequence[str], filename: str, duration: float | None = None) -> DecoderStream:
        """A decoder for a recording that arrives in pieces."""
        return DecoderStream(self, hop, classes, filename, duration)

    def to_dict(self) -> dict[str, Any]:
        """Every setting, as plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Decoder:
        """The decoder with these settings, and defaults for the others.

        >>> Decoder.from_dict(Decoder(threshold=(0.3, 0.6)).to_dict())
        Decoder(threshold=(0.3, 0.6), low=None, median=0.0, min_duration=0.0, min_gap=0.0, tuned_on=None)
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise unknown_name("decoder setting", name, known)
        return cls(**settings)

    def _per_class(self, name: str, n_classes: int) -> npt.NDArray[np.float64]:
        value = getattr(self, name)
        if name == "low" and value is None:
            value = self.threshold
        if isinstance(value, tuple) and len(value) != n_classes:
            raise ArgumentError(f"{name} is given for {len(value)} classes, but there are {n_classes}")
        return np.broadcast_to(np.asarray(value, np.float64), (n_classes,))


class DecoderStream:
    """Decides block by block; the events are those of the whole, whatever the blocks.

    An event is given out as soon as nothing can change it any more: `latency` seconds after its end. Kept in memory are
    the frames that the median filter still needs, and one unfinished event per class. Events come in the order of their
    ends, more or less; `Decoder.decode` sorts them.

    Examples
    --------
    >>> stream = Decoder(min_gap=1.0).stream(0.5, ["dog"], "night.wav")
    >>> stream.latency
    1.0
    >>> stream.update([[0.9], [0.2]]), stream.update([[0.8], [0.1]])
    ([], [])
    >>> stream.finish()
    [Label(filename='night.wav', onset=0.0, offset=1.5, label='dog', present=True, confidence=0.9)]
    """

    def __init__(
        self, decoder: Decoder, hop: float, classes: Sequence[str], filename: str, duration: float | None
    ) -> None:
        if not (math.isfinite(hop) and hop > 0):
            raise ArgumentError(f"hop must be a positive number of seconds, found {hop}")
        if duration is not None and not (math.isfinite(duration) and duration >= 0):
            raise ArgumentError(f"duration must be a number of seconds, found {duration}")
        if not classes or len(set(classes)) != len(classes):
            raise ArgumentError(f"classes must be names, each given once, found {list(classes)}")
        self.classes = tuple(classes)
        self.hop, self.filename, self.duration = hop, filename, duration
        per_class = {name: decoder._per_class(name, len(self.classes)) for name in _SETTINGS}
        self._threshold, self._low = per_class["threshold"], per_class["low"]
        self._half = np.floor(per_class["median"] / (2 * hop) + _SLACK).astype(np.int64)
        self._shortest = np.ceil(per_class["min_duration"] / hop - _SLACK).astype(np.int64)
        self._parting = np.maximum(1, np.ceil(per_class["min_gap"] / hop - _SLACK)).astype(np.int64)
        self._reach = int(self._half.max())
        self._kept: Floats | None = None
        self._position = 0  # frames decided
        self._active = np.zeros(len(self.classes), np.bool_)  # in the last of them
        self._open = _no_runs()
        self._is_finished = False

    @property
    def latency(self) -> float:
        """Seconds from the end of an event until it is given out, at most, while frames keep coming."""
        return float((self._reach + self._parting.max()) * self.hop)

    def update(self, p: npt.ArrayLike) -> list[Label]:
        """Events that the next frames make certain: p (frames, classes), in [0, 1]."""
        if self._is_finished:
            raise ArgumentError("this stream is finished; begin another with Decoder.stream")
        values = _probabilities(p, len(self.classes))
        return [event for i in range(0, len(values), _BLOCK) for event in self._labels(values[i : i + _BLOCK])]

    def finish(self) -> list[Label]:
        """The events left when no more frames come."""
        if self._is_finished:
            raise ArgumentError("this stream is finished already")
        self._is_finished = True
        events: list[Label] = []
        if self._kept is not None and self._reach:
            events += self._labels(np.repeat(self._kept[-1:], self._reach, axis=0))
        runs, self._open = self._open, _no_runs()
        return events + list(self._as_labels(runs))

    def _labels(self, values: Floats) -> Iterator[Label]:
        return self._as_labels(self._runs(values))

    def _runs(self, values: Floats) -> Runs:
        """Finished runs of active frames, once these frames are known too."""
        reach = self._reach
        before = np.repeat(values[:1], reach, axis=0) if self._kept is None else self._kept
        values = np.concatenate([before, values]) if reach else values
        self._kept = values[max(0, len(values) - 2 * reach) :].copy() if reach else values[:0]
        n_frames = len(values) - 2 * reach
        if n_frames <= 0:
            return _no_runs()
        smooth = self._smoothed(np.ascontiguousarray(values.T), n_frames)
        found = _runs_of(self._hysteresis(smooth), smooth, self._position)
        self._position += n_frames
        return self._settled(found)

    def _smoothed(self, by_class: Floats, n_frames: int) -> Floats:
        """The medians of the frames that can be decided, (classes, frames), of frames with `reach` more either side."""
        decided = slice(self._reach, self._reach + n_frames)
        smooth = by_class[:, decided].copy()
        can_be = by_class.max(axis=1) >= self._low.astype(smooth.dtype)  # other rows are below, smooth or not
        for c in np.flatnonzero((self._half > 0) & can_be):
            smooth[c] = median_filter(by_class[c], size=2 * int(self._half[c]) + 1)[decided]
        return smooth

    def _hysteresis(self, smooth: Floats) -> Flags:
        above = smooth >= self._threshold.astype(smooth.dtype)[:, None]
        if np.array_equal(self._low, self._threshold):
            active = above
        else:
            below = smooth < self._low.astype(smooth.dtype)[:, None]
            # A frame above switches on, one below switches off, others change nothing: the latest switch counts.
            switch = np.zeros((len(smooth), smooth.shape[1] + 1), np.int32)
            switch[:, 0] = self._active
            clock = np.arange(2, 2 * smooth.shape[1] + 2, 2, dtype=np.int32)
            np.multiply(above | below, clock + above, out=switch[:, 1:])
            active = (np.maximum.accumulate(switch, axis=1)[:, 1:] & 1).astype(np.bool_)
        self._active = active[:, -1].copy()
        return active

    def _settled(self, found: Runs) -> Runs:
        """Runs that no later frame can touch; those that one can are kept for later, one per class at most."""
        runs = tuple(np.concatenate(pair) for pair in zip(self._open, found, strict=True))
        order = np.argsort(runs[0], kind="stable")  # what was open comes first in its class
        label, first, last, peak = (column[order] for column in runs)
        if not len(label):
            return _no_runs()
        is_new = np.ones(len(label), np.bool_)
        is_new[1:] = (label[1:] != label[:-1]) | (first[1:] - last[:-1] >= self._parting[label[1:]])
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], len(label)) - 1
        label, first, last = label[starts], first[starts], last[ends]
        peak = np.maximum.reduceat(peak, starts)
        is_open = self._position - last < self._parting[label]
        self._open = (label[is_open], first[is_open], last[is_open], peak[is_open])
        return label[~is_open], first[~is_open], last[~is_open], peak[~is_open]

    def _as_labels(self, runs: Runs) -> Iterator[Label]:
        for c, first, last, peak in zip(*(column.tolist() for column in runs), strict=True):
            onset, offset = first * self.hop, last * self.hop
            if self.duration is not None:
                offset = min(offset, self.duration)
            if last - first >= self._shortest[c] and (self.duration is None or onset < self.duration):
                yield Label(self.filename, onset, offset, self.classes[c], True, peak)


def tune_thresholds(
    scores: Mapping[str, npt.ArrayLike],
    reference: LabelTable,
    hop: float,
    *,
    tuned_on: str,
    decoder: Decoder | None = None,
    segment: float = 1.0,
    candidates: Sequence[float] = _CANDIDATES,
) -> Decoder:
    """The decoder with the threshold per class that gives the best segment-based F1 on validation data.

    Nothing in earmark calls this unasked. Thresholds chosen on the clips that are then judged flatter the model, so
    clips of the split "test" are refused, and the decoder returned says what it was tuned on.

    Parameters
    ----------
    scores
        Probabilities (frames, classes) by file name, classes as in `reference`.
    reference
        Strong labels of these files. What they leave unknown is left out.
    hop
        Seconds between frames.
    tuned_on
        What the data are, for the record; the number of clips and a fingerprint of their labels are added.
    decoder
        The other settings; by default none. Its `low` is kept, or cut to the threshold where that is below.
    segment
        Length of segments, in seconds.
    candidates
        Thresholds to try. Among equally good ones the nearest to the decoder's own is taken; a class that no candidate
        ever finds keeps the decoder's own.
    """
    decoder = decoder or Decoder()
    if not tuned_on:
        raise ArgumentError("tuned_on must say what the thresholds are tuned on")
    if not (math.isfinite(segment) and segment > 0):
        raise ArgumentError(f"segment must be a positive number of seconds, found {segment}")
    if not scores or not candidates:
        raise ArgumentError("tuning needs at least one clip and one candidate")
    seen = [name for name in scores if reference.splits.get(name) == "test"]
    if seen:
        raise ArgumentError(f"{seen[0]!r} belongs to the test split; thresholds are tuned on validation data only")
    truths = {name: _segments(reference, name, len(np.asarray(p)) * hop, segment) for name, p in scores.items()}
    if all(np.isnan(truth).all() for truth in truths.values()):
        raise DataError("the reference says of no class when it is active; tuning needs strong labels")
    n_classes = len(reference.classes)
    own = decoder._per_class("threshold", n_classes)
    low = None if decoder.low is None else decoder._per_class("low", n_classes)
    tries = np.array(sorted(set(candidates)), np.float64)
    trials = [
        replace(decoder, threshold=float(t), low=None if low is None else tuple(np.minimum(low, t))) for t in tries
    ]
    f1 = np.array([_segment_f1(trial, scores, truths, reference.classes, hop, segment) for trial in trials])
    distance = np.abs(tries[:, None] - own)
    distance[f1 < f1.max(axis=0)] = np.inf
    best = np.where(f1.max(axis=0) > 0, tries[distance.argmin(axis=0)], own)
    digest = hashlib.sha256(repr([reference.of(name) for name in sorted(scores)]).encode()).hexdigest()[:16]
    return replace(
        decoder,
        threshold=tuple(best.tolist()),
        low=None if low is None else tuple(np.minimum(low, best).tolist()),
        tuned_on=f"{tuned_on}: {len(scores)} clips, labels {digest}, segments of {segment:g} s",
    )


_SETTINGS = ("threshold", "low", "median", "min_duration", "min_gap")


def _segments(reference: LabelTable, filename: str, duration: float, segment: float) -> npt.NDArray[np.float32]:
    """What is active in which segment: (segments, classes), with NaN for unknown."""
    ends = [row.offset for row in reference.of(filename) if row.offset is not None]
    return reference.frame_targets(filename, span_to_frames(0.0, max([duration, *ends]), segment)[1], segment)


def _segment_f1(
    decoder: Decoder,
    scores: Mapping[str, npt.ArrayLike],
    truths: Mapping[str, npt.NDArray[np.float32]],
    classes: Sequence[str],
    hop: float,
    segment: float,
) -> npt.NDArray[np.float64]:
    """F1 of segments, (classes,); 0 where nothing is right."""
    tp, either = (np.zeros(len(classes)) for _ in range(2))
    for name, p in scores.items():
        found = LabelTable(decoder.decode(p, hop, classes, name), filenames=[name], classes=classes)
        guess = found.frame_targets(name, len(truths[name]), segment)
        tp += np.nansum(truths[name] * guess, axis=0)
        either += np.nansum(truths[name] + guess, axis=0)  # NaN where the truth is
    return np.divide(2 * tp, either, out=np.zeros_like(tp), where=either > 0)


def _setting(name: str, value: object) -> float | tuple[float, ...]:
    """The value, as plain numbers, if it can be meant."""
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.ndim > 1 or not numbers.size or isinstance(value, str):
        numbers = np.full(1, np.nan)
    top = 1.0 if name in ("threshold", "low") else np.inf
    if not np.all((numbers >= 0) & (numbers <= top) & np.isfinite(numbers)):
        wanted = "in [0, 1]" if top == 1 else "a number of seconds"
        raise ArgumentError(f"{name} must be {wanted}, or one such value per class, found {value!r}")
    return float(numbers) if numbers.ndim == 0 else tuple(numbers.tolist())


def _probabilities(p: npt.ArrayLike, n_classes: int | None = None) -> Floats:
    values = np.asarray(p)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    if values.ndim != 2 or (n_classes is not None and values.shape[1] != n_classes):
        wanted = "classes" if n_classes is None else n_classes
        raise DataError(f"probabilities must be (frames, {wanted}), found an array of shape {values.shape}")
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # so NaN is refused too
        raise DataError("probabilities must be in [0, 1], and none NaN")
    return values


def _no_runs() -> Runs:
    none = np.zeros(0, np.int64)
    return none, none, none, np.zeros(0)


def _runs_of(active: Flags, p: Floats, position: int) -> Runs:
    """Runs of active frames, class by class: active and p (classes, frames), the first frame being `position`."""
    n_classes, n_frames = active.shape
    padded = np.zeros((n_classes, n_frames + 2), np.int8)
    padded[:, 1:-1] = active
    label, edge = np.nonzero(np.diff(padded, axis=1))
    label, first, last = label[::2], edge[::2], edge[1::2]
    if not len(label):
        return _no_runs()
    bounds = np.empty(2 * len(label), np.int64)
    bounds[::2], bounds[1::2] = label * n_frames + first, label * n_frames + last
    if bounds[-1] == p.size:  # a run to the very end needs no upper bound
        bounds = bounds[:-1]
    peak = np.maximum.reduceat(p.ravel(), bounds)[::2].astype(np.float64)
    return label, first + position, last + position, peak
