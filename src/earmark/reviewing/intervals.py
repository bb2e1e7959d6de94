"""Unions of intervals: sorted lists of (onset, offset) in seconds that neither overlap nor touch."""

from collections.abc import Iterable
from itertools import chain
from typing import TypeAlias

from earmark.timing import joined_spans

Intervals: TypeAlias = list[tuple[float, float]]

_LEAST = 1e-6  # seconds; shorter remainders are rounding


def union(*parts: Iterable[tuple[float, float]]) -> Intervals:
    """The union of all intervals.

    >>> union([(3, 4), (0, 1)], [(1, 2)])
    [(0, 2), (3, 4)]
    """
    return joined_spans(chain(*parts), slack=_LEAST)


def subtract(whole: Iterable[tuple[float, float]], part: Iterable[tuple[float, float]]) -> Intervals:
    """The parts of `whole` that are not in `part`.

    >>> subtract([(0, 10)], [(2, 3), (9, 12)])
    [(0, 2), (3, 9)]
    """
    rest, holes = union(whole), union(part)
    kept: Intervals = []
    h = 0
    for onset, offset in rest:
        while h < len(holes) and holes[h][1] <= onset:
            h += 1
        k = h
        while k < len(holes) and holes[k][0] < offset:
            if holes[k][0] - onset > _LEAST:
                kept.append((onset, holes[k][0]))
            onset = max(onset, holes[k][1])
            k += 1
        if offset - onset > _LEAST:
            kept.append((onset, offset))
    return kept


def covers(intervals: Intervals, onset: float, offset: float) -> bool:
    """Whether one interval contains another, give or take a microsecond.

    >>> covers([(0, 2), (3, 4)], 0.5, 2), covers([(0, 2), (3, 4)], 1, 3.5)
    (True, False)
    """
    return any(first <= onset + _LEAST and offset <= last + _LEAST for first, last in intervals)
