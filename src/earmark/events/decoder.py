"""Decoders: events from the frame probabilities of a clip or of a recording that arrives in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from earmark.annotations import Label
from earmark.errors import ArgumentError, unknown_name
from earmark.events.boxes import LONGEST, BoxStream
from earmark.inference.interpolation import Floats, InterpolationStream, probabilities
from earmark.inference.scores import RecordingScores
from earmark.schema import Names, parse, read_json
from earmark.text import as_names, counted, first_few, listed, printable
from earmark.timing import frames_covering, frames_within

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_BLOCK = 1 << 13  # frames decoded at once: bounds memory, and fits into the cache
_LONGEST = 1e12  # seconds: longer durations mean the same, and would overflow as frames
_LONGEST_MEDIAN = 3600.0  # seconds: the filter keeps its window in memory
_LONGEST_WINDOW = 60.0  # seconds: boxes are up to twenty times as long, and kept in memory
_SETTINGS = ("threshold", "low", "median", "min_duration", "min_gap", "boxes")


class _Runs(NamedTuple):
    """Runs of active frames as columns: class, first frame, one past the last, largest probability."""

    label: Ints
    first: Ints
    last: Ints
    peak: Floats

    def select(self, index: npt.NDArray[np.generic]) -> _Runs:
        """Some of the runs, by index or mask."""
        return _Runs(self.label[index], self.first[index], self.last[index], self.peak[index])


@dataclass(frozen=True)
class Decoder:
    """How probabilities become events. Every setting is one value, or one per class in the order of `classes`.

    The default is the paper's decision: a frame is positive where p >= 0.5, Eq. (1). Thresholds are compared in the
    precision of the probabilities. The median filter takes the whole frames that fit into half of its length on either
    side; it is at most an hour long.

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

    threshold: float | tuple[float, ...] = 0.5  # an event starts with a frame at or above it
    low: float | tuple[float, ...] | None = None  # and lasts while frames are at or above this; None: the threshold
    median: float | tuple[float, ...] = 0.0  # length of the median filter, in seconds
    min_duration: float | tuple[float, ...] = 0.0  # of an event, in seconds
    min_gap: float | tuple[float, ...] = 0.0  # between two events, in seconds
    boxes: float | tuple[float, ...] = 0.0  # window of the change points between boxes, in seconds; 0: no boxes
    tuned_on: str | None = None  # data that the thresholds were chosen on; see `earmark.evaluation.thresholds`

    def __post_init__(self) -> None:
        for name in _SETTINGS:
            if not (name == "low" and self.low is None):
                object.__setattr__(self, name, _setting(name, getattr(self, name)))
        if not isinstance(self.tuned_on, str | None):
            raise ArgumentError(f"tuned_on: expected text, got {self.tuned_on!r}")
        lengths = {name: len(value) for name in _SETTINGS if isinstance(value := getattr(self, name), tuple)}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} for {name}" for name, count in lengths.items())
            raise ArgumentError(f"settings per class: expected the same number of values, got {counts}")
        n_classes = max(lengths.values(), default=1)
        threshold, low = self._per_class("threshold", n_classes), self._per_class("low", n_classes)
        if np.any(low > threshold):
            c = int(np.argmax(low > threshold))
            raise ArgumentError(f"low: expected at most the threshold {threshold[c]:g}, got {low[c]:g}")

    def decode(
        self, p: npt.ArrayLike, hop: float, classes: Sequence[str], filename: str, duration: float | None = None
    ) -> list[Label]:
        """Events of a whole clip, by onset, offset and class: p (frames, classes), in [0, 1], `hop` seconds apart.

        Events are cut at the `duration` of the clip, in seconds.
        """
        stream = self.stream(hop, classes, filename, duration)
        return _sorted([*stream.update(p), *stream.finish()], stream.classes)

    def stream(self, hop: float, classes: Sequence[str], filename: str, duration: float | None = None) -> DecoderStream:
        """A decoder for a recording that arrives in pieces."""
        return DecoderStream(self, hop, classes, filename, duration)

    def changed(self, **settings: Any) -> Decoder:
        """A copy with other values for some settings; None keeps a value.

        A new threshold is no longer a tuned one, and where `low` is higher, it is lowered to the threshold.

        >>> Decoder(threshold=(0.3, 0.6), min_gap=0.5, tuned_on="validate").changed(threshold=0.5, median=None)
        Decoder(threshold=0.5, low=None, median=0.0, min_duration=0.0, min_gap=0.5, boxes=0.0, tuned_on=None)
        """
        given = {name: value for name, value in settings.items() if value is not None}
        if "threshold" in given:
            given = {"low": _at_most(self.low, _setting("threshold", given["threshold"])), "tuned_on": None, **given}
        return replace(self, **given)

    def to_dict(self) -> dict[str, Any]:
        """Every setting, as plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Decoder:
        """The decoder with these settings, and defaults for the others.

        >>> Decoder.from_dict(Decoder(threshold=(0.3, 0.6)).to_dict())
        Decoder(threshold=(0.3, 0.6), low=None, median=0.0, min_duration=0.0, min_gap=0.0, boxes=0.0, tuned_on=None)
        """
        for name in settings:
            if name not in (*_SETTINGS, "tuned_on"):
                raise unknown_name("decoder setting", name, (*_SETTINGS, "tuned_on"))
        return cls(**settings)

    def check_classes(self, n_classes: int) -> None:
        """Raise an error unless settings per class are for that many classes."""
        for name in _SETTINGS:
            self._per_class(name, n_classes)

    def for_classes(self, classes: Sequence[str], names: Sequence[str]) -> Decoder:
        """A copy for other classes: settings per class, which are in the order of `names`, in the order of `classes`.

        Classes that are not among the names get the defaults.

        >>> Decoder(threshold=(0.3, 0.6)).for_classes(["dog", "owl"], names=["cat", "dog"]).threshold
        (0.6, 0.5)
        """
        defaults = Decoder(low=Decoder.threshold)
        changes: dict[str, Any] = {}
        for name in _SETTINGS:
            if isinstance(values := getattr(self, name), tuple):
                by_class = dict(zip(names, values, strict=True))
                changes[name] = tuple(by_class.get(label, getattr(defaults, name)) for label in classes)
        return replace(self, **changes)

    def _per_class(self, name: str, n_classes: int) -> npt.NDArray[np.float64]:
        value = getattr(self, name)
        if name == "low" and value is None:
            value = self.threshold
        if isinstance(value, tuple) and len(value) != n_classes:
            raise ArgumentError(
                f"{name}: expected values for {counted(n_classes, 'class', 'classes')}, got {len(value)}"
            )
        return np.broadcast_to(np.asarray(value, np.float64), (n_classes,))


class DecoderStream:
    """Decodes block by block, with the same events as for the whole recording, roughly in the order of their ends.

    An event is returned as soon as no later frame can change it, at most `latency` seconds after its end. Memory holds
    the frames that the median filter and the open boxes still need, and one unfinished event per class.

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
            raise ArgumentError(f"hop: expected a positive number of seconds, got {hop}")
        if duration is not None and not (math.isfinite(duration) and duration >= 0):
            raise ArgumentError(f"duration: expected a number of seconds, got {duration}")
        self.classes = as_names(classes)
        if not classes or len(set(self.classes)) != len(self.classes):
            raise ArgumentError(f"classes: expected distinct names, got {list(classes)}")
        self.hop, self.filename, self.duration = hop, filename, duration
        per_class = {name: decoder._per_class(name, len(self.classes)) for name in _SETTINGS}
        self._threshold, self._low = per_class["threshold"], per_class["low"]
        self._boxes = _BoxStreams(frames_within(per_class["boxes"], hop).astype(np.int64))
        self._half = frames_within(per_class["median"], 2 * hop).astype(np.int64)
        # Not as int64, which could overflow.
        self._shortest = frames_covering(np.minimum(per_class["min_duration"], _LONGEST), hop)
        self._gap = np.maximum(1, frames_covering(np.minimum(per_class["min_gap"], _LONGEST), hop))
        self._reach = int(self._half.max())
        self._kept: Floats | None = None
        self._position = 0  # number of frames decided
        self._active = np.zeros(len(self.classes), np.bool_)  # in the last of these
        self._open = _no_runs()
        self._is_finished = False

    @property
    def latency(self) -> float:
        """Longest delay in seconds between the end of an event and its output."""
        return float((self._reach + self._boxes.delay + self._gap.max()) * self.hop)

    def update(self, p: npt.ArrayLike) -> list[Label]:
        """Events that are certain with the next frames: p (frames, classes), in [0, 1]."""
        if self._is_finished:
            raise ArgumentError("this stream is finished; start another with Decoder.stream")
        values = probabilities(p, len(self.classes))
        blocks = (values[i : i + _BLOCK] for i in range(0, len(values), _BLOCK))
        return [event for block in blocks for event in self._labels(self._runs(block))]

    def finish(self) -> list[Label]:
        """The remaining events, at the end of the recording."""
        if self._is_finished:
            raise ArgumentError("this stream is finished already")
        self._is_finished = True
        events: list[Label] = []
        if self._kept is not None and self._reach:
            events += self._labels(self._runs(np.repeat(self._kept[-1:], self._reach, axis=0)))
        events += self._labels(self._decided(self._boxes.finish()))
        return events + list(self._labels(self._open))

    def _runs(self, values: Floats) -> _Runs:
        """Runs of active frames that are complete with these frames."""
        reach = self._reach
        before = np.repeat(values[:1], reach, axis=0) if self._kept is None else self._kept
        values = np.concatenate([before, values]) if reach else values
        self._kept = values[max(0, len(values) - 2 * reach) :].copy() if reach else values[:0]
        n_frames = len(values) - 2 * reach
        if n_frames <= 0:
            return _no_runs()
        return self._decided(self._boxes.update(self._smoothed(np.ascontiguousarray(values.T), n_frames)))

    def _decided(self, smooth: Floats) -> _Runs:
        """Runs that are complete with these smooth probabilities, (classes, frames)."""
        if not smooth.shape[1]:
            return _no_runs()
        runs = _runs_of(self._hysteresis(smooth), smooth, self._position)
        self._position += smooth.shape[1]
        return self._merged(runs)

    def _smoothed(self, by_class: Floats, n_frames: int) -> Floats:
        """Medians of the frames that can be decided, (classes, frames); `by_class` has `reach` more on either side."""
        decided = slice(self._reach, self._reach + n_frames)
        smooth = by_class[:, decided].copy()
        # Classes that cannot be active need no filter, unless their values belong to boxes that continue.
        is_needed = (by_class.max(axis=1) >= self._low.astype(smooth.dtype)) | self._boxes.has_boxes
        for c in np.flatnonzero((self._half > 0) & is_needed):
            smooth[c] = scipy.ndimage.median_filter(by_class[c], size=2 * int(self._half[c]) + 1)[decided]
        return smooth

    def _hysteresis(self, smooth: Floats) -> Flags:
        above = smooth >= self._threshold.astype(smooth.dtype)[:, None]
        if np.array_equal(self._low, self._threshold):
            active = above
        else:
            below = smooth < self._low.astype(smooth.dtype)[:, None]
            # A frame above switches on, one below off, others change nothing: the latest switch counts. Frame k that
            # switches has the number 2 k + 2, plus 1 for on, so the running maximum is the latest one, odd if on.
            switch = np.zeros((len(smooth), smooth.shape[1] + 1), np.int32)
            switch[:, 0] = self._active
            clock = np.arange(2, 2 * smooth.shape[1] + 2, 2, dtype=np.int32)
            np.multiply(above | below, clock + above, out=switch[:, 1:])
            active = (np.maximum.accumulate(switch, axis=1)[:, 1:] & 1).astype(np.bool_)
        self._active = active[:, -1].copy()
        return active

    def _merged(self, new: _Runs) -> _Runs:
        """Runs joined across short gaps that no later frame can extend; the others are kept, at most one per class."""
        both = _Runs(*(np.concatenate(columns) for columns in zip(self._open, new, strict=True)))
        label, first, last, peak = both.select(np.argsort(both.label, kind="stable"))  # the open run of a class first
        if not len(label):
            return _no_runs()
        is_new = np.ones(len(label), np.bool_)
        is_new[1:] = (label[1:] != label[:-1]) | (first[1:] - last[:-1] >= self._gap[label[1:]])
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], len(label)) - 1
        runs = _Runs(label[starts], first[starts], last[ends], np.maximum.reduceat(peak, starts))
        is_open = self._position - runs.last < self._gap[runs.label]
        self._open = runs.select(is_open)
        return runs.select(~is_open)

    def _labels(self, runs: _Runs) -> Iterator[Label]:
        end = math.inf if self.duration is None else self.duration
        for c, first, last, peak in zip(*(column.tolist() for column in runs), strict=True):
            onset, offset = first * self.hop, min(last * self.hop, end)
            if last - first >= self._shortest[c] and onset < end:
                yield Label(self.filename, round(onset, 3), round(offset, 3), self.classes[c], True, round(peak, 4))


class _BoxStreams:
    """The means of boxes of the classes that have a window, (classes,) frames; the values of the others."""

    def __init__(self, windows: Ints) -> None:
        self.has_boxes = windows > 0
        self.delay = (LONGEST + 2) * int(windows.max())  # frames
        self._streams = {int(c): BoxStream(int(windows[c])) for c in np.flatnonzero(self.has_boxes)}
        self._waiting: list[Floats] = []  # values by class, of frames that are not known for all classes

    def update(self, p: Floats) -> Floats:
        """Values (classes, frames) that are known for all classes with the next ones."""
        if not self._streams:
            return p
        return self._aligned([self._streams[c].update(row) if c in self._streams else row for c, row in enumerate(p)])

    def finish(self) -> Floats:
        """The remaining values."""
        if not self._streams or not self._waiting:
            return np.empty((len(self.has_boxes), 0))
        rows = enumerate(self._waiting)
        return self._aligned([self._streams[c].finish() if c in self._streams else row[:0] for c, row in rows])

    def _aligned(self, new: list[Floats]) -> Floats:
        rows = [np.concatenate(pair) for pair in zip(self._waiting, new, strict=True)] if self._waiting else new
        n_known = min(map(len, rows))
        self._waiting = [row[n_known:] for row in rows]
        return np.stack([row[:n_known] for row in rows])


def _setting(name: str, value: object) -> float | tuple[float, ...]:
    """A setting as plain numbers, checked."""
    top = 1.0 if name in ("threshold", "low") else np.inf
    numbers = _numbers(value)
    if numbers is None or not np.all((numbers >= 0) & (numbers <= top) & np.isfinite(numbers)):
        wanted = "a value in [0, 1]" if top == 1 else "a number of seconds"
        raise ArgumentError(f"{name}: expected {wanted}, or one per class, got {value!r}")
    longest = {"median": _LONGEST_MEDIAN, "boxes": _LONGEST_WINDOW}.get(name, np.inf)
    if np.any(numbers > longest):
        raise ArgumentError(f"{name}: expected at most {longest:g} seconds, got {value!r}")
    return float(numbers) if numbers.ndim == 0 else tuple(map(float, numbers.tolist()))


def _at_most(
    low: float | tuple[float, ...] | None, threshold: float | tuple[float, ...]
) -> float | tuple[float, ...] | None:
    """The lower threshold of a decoder, nowhere above its threshold."""
    if low is None or (isinstance(low, tuple) and isinstance(threshold, tuple) and len(low) != len(threshold)):
        return low  # which `Decoder` rejects, if the numbers of classes differ
    return _setting("low", np.minimum(low, threshold))


def _numbers(value: object) -> npt.NDArray[Any] | None:
    """A number, or a sequence of numbers, as an array; None for anything else, such as booleans and empty lists."""
    if isinstance(value, list | tuple) and any(isinstance(each, bool) for each in value):
        return None  # NumPy would convert booleans next to numbers
    try:
        numbers = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return numbers if numbers.dtype.kind in "iuf" and numbers.ndim <= 1 and numbers.size else None


def _no_runs() -> _Runs:
    none = np.zeros(0, np.int64)
    return _Runs(none, none, none, np.zeros(0))


def _runs_of(active: Flags, p: Floats, position: int) -> _Runs:
    """Runs of active frames by class: active and p (classes, frames), of which the first frame is `position`."""
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
    return _Runs(label, first + position, last + position, peak)


def decode_scores(scores: RecordingScores, decoder: Decoder, filename: str, *, align: str = "middle") -> list[Label]:
    """Events of a recording: probabilities interpolated to the rate of the features (IV.C), then decoded.

    `detect` and `evaluate` both decode with this function. `align` is one of `earmark.inference.scores.ALIGNMENTS`.

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
    for k in range(0, len(scores.p), _BLOCK):  # in blocks: a day at the rate of the features is large
        events += stream.update(dense.update(scores.p[k : k + _BLOCK]))
    events += stream.update(dense.finish(scores.frames))
    return _sorted(events + stream.finish(), scores.classes)


def _sorted(events: Iterable[Label], classes: Sequence[str]) -> list[Label]:
    order = {label: c for c, label in enumerate(classes)}
    return sorted(events, key=lambda event: (event.onset, event.offset, order[event.label]))


def describe(values: float | Sequence[float], classes: Sequence[str]) -> str:
    """A setting of a decoder as text: its values with the classes that have them, the lowest first.

    >>> describe((0.3, 0.5, 0.3), ("bird", "cat", "dog"))
    '0.3 for bird and dog, 0.5 for cat'
    >>> describe(0.5, ("bird", "cat", "dog"))
    '0.5'
    """
    each = np.broadcast_to(values, len(classes)).tolist()
    if len(set(each)) == 1:
        return f"{each[0]:g}"
    names = {value: [label for label, other in zip(classes, each, strict=True) if other == value] for value in each}
    return ", ".join(f"{value:g} for {listed(map(printable, names[value]))}" for value in sorted(names))


def load_decoder(path: Path, classes: Sequence[str]) -> Decoder:
    """Read the decoder from a JSON file such as `scores.json`, for a model with these classes.

    The file holds a decoder's settings, by themselves or under "decoder". If it also names "classes", settings per
    class are matched by name.
    """
    settings: object = read_json(dict[str, Any], path, error=ArgumentError)
    names = None
    if isinstance(settings, dict) and "decoder" in settings:
        names, settings = settings.get("classes"), settings["decoder"]
    if not isinstance(settings, dict):
        raise ArgumentError(f"{path}: decoder: expected a decoder's settings, got {settings!r}")
    if names is not None:
        names = parse(Names, names, where=f"{path}: classes", error=ArgumentError)
    try:
        decoder = Decoder.from_dict(settings)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
    return decoder if names is None else _for_model(decoder, classes, names, path)


def _for_model(decoder: Decoder, classes: Sequence[str], names: Sequence[str], path: Path) -> Decoder:
    """The decoder of a file for the classes of a model; raises an error for a class that the file does not name."""
    per_class = {name: values for name, values in vars(decoder).items() if isinstance(values, tuple)}
    for name, values in per_class.items():
        if len(values) != len(names):
            raise ArgumentError(f"{path}: {name}: expected {len(names)} values, one per class, got {len(values)}")
    missing = [label for label in classes if label not in names]
    if per_class and missing:
        raise ArgumentError(
            f"{path}: no thresholds for {first_few(missing)}; tune them with this model: earmark evaluate --tune-on"
        )
    return decoder.for_classes(classes, names)
