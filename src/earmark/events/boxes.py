"""Boxes: probabilities replaced by their means between change points, block by block.

The change at frame k is the sum of the `window` frames from k on, less the sum of the `window` frames before it. A
change point is a frame where the probabilities rise more, or fall more, than at any other frame within a window on
either side; of equal ones the first. The frames between two change points are a box: they all get the mean of their
probabilities. So a threshold decides which boxes belong to events, but no longer where they begin and end.

A box longer than `LONGEST` windows is divided, so that a stream need not wait for its end: the value of a frame is
known at most `LONGEST + 2` windows after it. Beyond the ends of a recording, its first and last frame are repeated.
Sums are of integers, and therefore exact: the length of blocks does not matter, and there is no change between equal
probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]

LONGEST = 20
"""Windows in the longest box."""

_UNIT = float(1 << 40)  # of a probability as an integer


class BoxStream:
    """Replaces the probabilities of one class by the means of their boxes.

    Examples
    --------
    >>> stream = BoxStream(2)
    >>> p = np.array([0.0, 0.0, 0.0, 0.5, 1.0, 0.75, 0.75, 0.0, 0.0, 0.0])
    >>> np.concatenate([stream.update(p), stream.finish()])
    array([0.  , 0.  , 0.  , 0.75, 0.75, 0.75, 0.75, 0.  , 0.  , 0.  ])
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._values: Ints | None = None  # from two windows before the beginning of the open box
        self._dtype: npt.DTypeLike = np.float64

    def update(self, p: Floats) -> Floats:
        """Means (frames,) that are known with the next probabilities, for the frames after those returned before."""
        if not len(p):
            return p
        self._dtype = p.dtype
        values = np.rint(np.asarray(p, np.float64) * _UNIT).astype(np.int64)
        before = np.repeat(values[:1], 2 * self.window) if self._values is None else self._values
        self._values = np.concatenate([before, values])
        return self._means(self._values, is_last=False)

    def finish(self) -> Floats:
        """Means of the remaining frames."""
        if self._values is None:
            return np.empty(0, self._dtype)
        return self._means(np.concatenate([self._values, np.repeat(self._values[-1:], 2 * self.window)]), is_last=True)

    def _means(self, values: Ints, *, is_last: bool) -> Floats:
        first, last = 2 * self.window, len(values) - 2 * self.window  # the open box, and what is known about changes
        if last <= first:
            return np.empty(0, self._dtype)
        points = first + 1 + np.flatnonzero(_is_change(values, self.window))
        edges = self._edges(first, [*points[points < last], last] if is_last else points)
        if not is_last:
            longest = LONGEST * self.window
            edges += range(edges[-1] + longest, last + 1, longest)
        self._values = values[edges[-1] - first :]
        if len(edges) == 1:
            return np.empty(0, self._dtype)
        lengths = np.diff(edges)
        means = np.add.reduceat(values[: edges[-1]], edges[:-1]) / lengths / _UNIT
        return np.repeat(means, lengths).astype(self._dtype)

    def _edges(self, first: int, points: Iterable[int]) -> list[int]:
        """Where boxes begin, and where the last of them ends: the change points, and divisions of long boxes."""
        longest, edges = LONGEST * self.window, [first]
        for point in points:
            edges += [*range(edges[-1] + longest, point, longest), int(point)]
        return edges


def _is_change(values: Ints, window: int) -> npt.NDArray[np.bool_]:
    """Whether frames are change points: those that have two windows before them and behind, but not the first."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    change = sums[2 * window :] - 2 * sums[window:-window] + sums[: -2 * window]  # at frames from `window` on
    return _is_peak(change, window) | _is_peak(-change, window)


def _is_peak(change: Ints, window: int) -> npt.NDArray[np.bool_]:
    """Whether values are positive, above all within a window before them, and not below any within a window behind."""
    largest = scipy.ndimage.maximum_filter1d(change, window, origin=-(window // 2))  # of a window from k on
    here = change[window + 1 : len(change) - window]
    before = largest[1 : 1 + len(here)]
    behind = largest[window + 2 : window + 2 + len(here)]
    result: npt.NDArray[np.bool_] = (here > 0) & (here > before) & (here >= behind)
    return result
