"""Decisions: from frame probabilities to events, of a clip and of a recording that arrives in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from earmark.annotations import Label
from earmark.errors import ArgumentError, unknown_name
from earmark.inference.interpolation import Floats, InterpolationStream, probabilities
from earmark.inference.scores import RecordingScores
from earmark.timing import frames_covering, frames_within

__all__ = ["Decoder", "DecoderStream", "decode_scores"]

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Runs = tuple[Ints, Ints, Ints, Floats]  # class, first frame, one past the last, largest probability

_BLOCK = 1 << 13  # frames decoded at once: bounds memory, and stays in the cache
_LONGEST_MEDIAN = 3600.0  # seconds: the filter keeps in memory all that it looks at
_SETTINGS = ("threshold", "low", "median", "min_duration", "min_gap")


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
        Length of the median filter in seconds, an hour at most: as many whole frames as fit into half of it, on either
        side.
    min_duration
        Shortest event that is kept, in seconds.
    min_gap
        Shortest gap that parts two events, in seconds.
    tuned_on
        What the thresholds were chosen on, where they were; see `earmark.evaluation.thresholds`.

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
        self._half = frames_within(per_class["median"], 2 * hop).astype(np.int64)
        self._shortest = frames_covering(per_class["min_duration"], hop)  # not as int64, which they may be beyond
        self._parting = np.maximum(1, frames_covering(per_class["min_gap"], hop))
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
        values = probabilities(p, len(self.classes))
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
    if name == "median" and np.any(numbers > _LONGEST_MEDIAN):
        raise ArgumentError(f"median must be at most {_LONGEST_MEDIAN:g} seconds, found {value!r}")
    return float(numbers) if numbers.ndim == 0 else tuple(numbers.tolist())


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


def decode_scores(scores: RecordingScores, decoder: Decoder, filename: str, *, align: str = "middle") -> list[Label]:
    """Events of a recording: probabilities interpolated to the rate of the features (IV.C), then decoded.

    `detect` and `evaluate` both decode with this function.

    Parameters
    ----------
    filename
        Of the events.
    align
        One of `earmark.inference.scores.ALIGNMENTS`.

    >>> p = np.array([[0.1], [0.9], [0.1]], np.float32)
    >>> scores = RecordingScores("a.wav", ("dog",), p, 0.1, 4, 12, 1.2)
    >>> [(round(event.onset, 3), round(event.offset, 3)) for event in decode_scores(scores, Decoder(), "a.wav")]
    [(0.4, 0.8)]
    """
    if align != "middle":
        return decoder.decode(scores.dense(align), scores.feature_hop, scores.classes, filename, scores.duration)
    dense = InterpolationStream(scores.reduction, len(scores.classes))
    stream = decoder.stream(scores.feature_hop, scores.classes, filename, scores.duration)
    events: list[Label] = []
    for k in range(0, len(scores.p), _BLOCK):  # a day of probabilities at the rate of the features is large
        events += stream.update(dense.update(scores.p[k : k + _BLOCK]))
    events += stream.update(dense.finish(scores.frames))
    events += stream.finish()
    place = {label: c for c, label in enumerate(scores.classes)}
    return sorted(events, key=lambda event: (event.onset, event.offset, place[event.label]))
