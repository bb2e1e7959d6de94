"""Linear interpolation of probabilities to the rate of the features, of a clip or block by block."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, DataError, unknown_name

Floats = npt.NDArray[np.floating[Any]]

_SHIFTS = {"start": 0.0, "middle": 0.5}


def interpolate(p: npt.ArrayLike, factor: float, n_frames: int, *, align: str = "start") -> Floats:
    """Linear interpolation to a higher rate: (frames, classes) -> (n_frames, classes).

    With "start", value k is placed at frame k * factor of the result, and the last one is held to the end. The paper's
    authors did so with `n_frames / len(p)` as factor: for ten seconds 430 / 26 = 16.54 instead of the network's 16,
    which moves the last frames by up to a third of a second. With either factor, events are half an output frame early,
    since value k depends on sound up to frame (k + 1) * factor. With "middle", values are placed at the centres of
    their output frames, and the first and last are held to the ends.

    >>> interpolate([[0.0], [1.0]], 4, 8).T
    array([[0.  , 0.25, 0.5 , 0.75, 1.  , 1.  , 1.  , 1.  ]])
    >>> interpolate([[0.0], [1.0]], 4, 8, align="middle").T
    array([[0.   , 0.   , 0.125, 0.375, 0.625, 0.875, 1.   , 1.   ]])
    """
    values = probabilities(p)
    if not len(values):
        raise DataError("there are no frames to interpolate between")
    _check_factor(factor)
    if n_frames < 0:
        raise ArgumentError(f"n_frames: expected at least 0, got {n_frames}")
    if align not in _SHIFTS:
        raise unknown_name("align", align, _SHIFTS)
    return _between(values, _positions(0, n_frames, factor, _SHIFTS[align], len(values) - 1), 0)


class InterpolationStream:
    """`interpolate` with align="middle", block by block and bit for bit; keeps one value per class.

    A frame is returned as soon as both values around it are known.

    >>> stream = InterpolationStream(4, 1)
    >>> stream.update([[0.0]]).T, stream.update([[1.0]]).T, stream.finish(8).T
    (array([[0., 0.]]), array([[0.125, 0.375, 0.625, 0.875]]), array([[1., 1.]]))
    """

    def __init__(self, factor: float, n_classes: int) -> None:
        _check_factor(factor)
        self.factor, self.n_classes = factor, n_classes
        self._last: Floats | None = None  # the newest value
        self._values = self._frames = 0  # numbers of values received and frames returned
        self._is_finished = False

    def update(self, p: npt.ArrayLike) -> Floats:
        """Frames that are certain with the next values: p (frames, classes), in [0, 1]."""
        if self._is_finished:
            raise ArgumentError("this stream is finished; start another")
        values = probabilities(p, self.n_classes)
        if not len(values):
            return values
        # A frame is certain unless it lies after the newest value. `stop` is beyond the last certain one.
        stop = math.floor((self._values + len(values) - 0.5) * self.factor - 0.5) + 2
        position = _positions(self._frames, stop, self.factor, 0.5, math.inf)
        position = position[position <= self._values + len(values) - 1]
        known, first = values, self._values
        if self._last is not None:
            known, first = np.concatenate([self._last, values]), self._values - 1
        self._values += len(values)
        self._frames += len(position)
        self._last = values[-1:].copy()
        return _between(known, position, first)

    def finish(self, n_frames: int) -> Floats:
        """The remaining frames, up to `n_frames` in all, at the end of the recording."""
        if self._is_finished:
            raise ArgumentError("this stream is finished already")
        if self._last is None:
            raise DataError("there are no frames to interpolate between")
        if n_frames < self._frames:
            raise ArgumentError(f"n_frames: expected at least the {self._frames} returned so far, got {n_frames}")
        self._is_finished = True
        position = _positions(self._frames, n_frames, self.factor, 0.5, self._values - 1)
        return _between(self._last, position, self._values - 1)


def probabilities(p: npt.ArrayLike, n_classes: int | None = None) -> Floats:
    """Probabilities (frames, classes), checked."""
    values = np.asarray(p)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    if values.ndim != 2 or (n_classes is not None and values.shape[1] != n_classes):
        wanted = "classes" if n_classes is None else n_classes
        raise DataError(f"probabilities: expected shape (frames, {wanted}), got {values.shape}")
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # false for NaN too
        raise DataError("probabilities: expected numbers in [0, 1], got others or NaN")
    return values


def _check_factor(factor: float) -> None:
    if not (math.isfinite(factor) and factor > 0):
        raise ArgumentError(f"factor: expected a positive number, got {factor}")


def _positions(first: int, stop: int, factor: float, shift: float, end: float) -> npt.NDArray[np.float64]:
    """Positions of frames of the result on the axis of the values: with factor 4 and shift 0.5, frame 2 is at 0.125."""
    return np.clip((np.arange(first, stop) + shift) / factor - shift, 0, end)


def _between(values: Floats, position: npt.NDArray[np.float64], first: int) -> Floats:
    """Interpolated values at positions, where `values[0]` is at position `first`."""
    left = position.astype(np.int64) - first
    right = np.minimum(left + 1, len(values) - 1)
    weight = (position - (left + first)).astype(values.dtype)[:, None]
    return np.asarray(values[left] + weight * (values[right] - values[left]))
