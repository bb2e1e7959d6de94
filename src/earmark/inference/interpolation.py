"""Probabilities at the rate of the features: of a clip, and of a recording that arrives in pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, DataError, unknown_name

__all__ = ["InterpolationStream", "interpolate", "probabilities"]

Floats = npt.NDArray[np.floating[Any]]

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
    values = probabilities(p)
    if not len(values):
        raise DataError("there are no frames to interpolate between")
    _check_factor(factor)
    if n_frames < 0:
        raise ArgumentError(f"n_frames must be at least 0, found {n_frames}")
    if align not in _ALIGNMENTS:
        raise unknown_name("align", align, _ALIGNMENTS)
    place = _places(0, n_frames, factor, 0.0 if align == "start" else 0.5, len(values) - 1)
    return _between(values, place, 0)


class InterpolationStream:
    """What `interpolate` gives with align="middle", block by block, to the last bit.

    A frame comes out as soon as both values that it lies between are in. Kept is one value per class.

    Parameters
    ----------
    factor
        As in `interpolate`.
    n_classes
        Of the probabilities.

    Examples
    --------
    >>> stream = InterpolationStream(4, 1)
    >>> stream.update([[0.0]]).T, stream.update([[1.0]]).T, stream.finish(8).T
    (array([[0., 0.]]), array([[0.125, 0.375, 0.625, 0.875]]), array([[1., 1.]]))
    """

    def __init__(self, factor: float, n_classes: int) -> None:
        _check_factor(factor)
        self.factor, self.n_classes = factor, n_classes
        self._last: Floats | None = None  # the newest value
        self._values = self._frames = 0  # heard, given out
        self._is_finished = False

    def update(self, p: npt.ArrayLike) -> Floats:
        """Frames that the next values make certain: p (frames, classes), in [0, 1]."""
        if self._is_finished:
            raise ArgumentError("this stream is finished; begin another")
        values = probabilities(p, self.n_classes)
        if not len(values):
            return values
        # A frame is certain if its place is not after the newest value.
        stop = math.floor((self._values + len(values) - 0.5) * self.factor - 0.5) + 2
        place = _places(self._frames, stop, self.factor, 0.5, math.inf)
        place = place[place <= self._values + len(values) - 1]
        known, first = values, self._values
        if self._last is not None:
            known, first = np.concatenate([self._last, values]), self._values - 1
        self._values += len(values)
        self._frames += len(place)
        self._last = values[-1:].copy()
        return _between(known, place, first)

    def finish(self, n_frames: int) -> Floats:
        """The frames that are left, up to `n_frames` in all, when no more values come."""
        if self._is_finished:
            raise ArgumentError("this stream is finished already")
        if self._last is None:
            raise DataError("there are no frames to interpolate between")
        if n_frames < self._frames:
            raise ArgumentError(f"n_frames must be at least the {self._frames} given out already, found {n_frames}")
        self._is_finished = True
        place = _places(self._frames, n_frames, self.factor, 0.5, self._values - 1)
        return _between(self._last, place, self._values - 1)


def probabilities(p: npt.ArrayLike, n_classes: int | None = None) -> Floats:
    """Probabilities (frames, classes), if they are."""
    values = np.asarray(p)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    if values.ndim != 2 or (n_classes is not None and values.shape[1] != n_classes):
        wanted = "classes" if n_classes is None else n_classes
        raise DataError(f"probabilities must be (frames, {wanted}), found an array of shape {values.shape}")
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # so NaN is refused too
        raise DataError("probabilities must be in [0, 1], and none NaN")
    return values


def _check_factor(factor: float) -> None:
    if not (math.isfinite(factor) and factor > 0):
        raise ArgumentError(f"factor must be a positive number, found {factor}")


def _places(first: int, stop: int, factor: float, shift: float, end: float) -> npt.NDArray[np.float64]:
    """Where frames of the result lie between the values given, counted in these."""
    return np.clip((np.arange(first, stop) + shift) / factor - shift, 0, end)


def _between(values: Floats, place: npt.NDArray[np.float64], first: int) -> Floats:
    """On the lines between values, of which the first is number `first`."""
    left = place.astype(np.int64) - first
    right = np.minimum(left + 1, len(values) - 1)
    weight = (place - (left + first)).astype(values.dtype)[:, None]
    return np.asarray(values[left] + weight * (values[right] - values[left]))
