"""Seconds, samples and frames.

Bare times are seconds. Frame k of a grid with `hop` seconds between frames stands for the time from k * hop up to, but
excluding, (k + 1) * hop, whatever part of the signal its analysis window covers. An event activates every frame that it
touches, which is the rule by which the paper's authors trained and scored.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["frames_covering", "frames_within", "joined_spans", "span_to_frames", "time_to_frame", "time_to_sample"]

_SLACK = 1e-6  # of a frame: 0.3 / 0.1 is 2.9999999999999996, and means 3


def time_to_sample(time: float, rate: int) -> int:
    """The sample nearest to a time.

    >>> time_to_sample(0.5, 44100)
    22050
    """
    return math.floor(time * rate + 0.5)


def time_to_frame(time: float, hop: float) -> int:
    """The frame that a time falls into.

    >>> time_to_frame(0.3, 0.1), time_to_frame(0.29, 0.1)
    (3, 2)
    """
    return math.floor(time / hop + _SLACK)


def span_to_frames(onset: float, offset: float, hop: float) -> tuple[int, int]:
    """Frames touched by a span of time, as first and one past the last. A span of length 0 touches one frame.

    >>> span_to_frames(0.25, 0.9, 0.5), span_to_frames(0.5, 1.0, 0.5), span_to_frames(0.7, 0.7, 0.5)
    ((0, 2), (1, 2), (1, 2))
    """
    first = time_to_frame(onset, hop)
    return first, max(first + 1, math.ceil(offset / hop - _SLACK))


def joined_spans(spans: Iterable[tuple[float, float]], *, slack: float = 0.0) -> list[tuple[float, float]]:
    """Spans of time in order, with those joined that overlap, or that are at most `slack` seconds apart.

    >>> joined_spans([(2.0, 3.0), (0.0, 1.0), (1.0, 1.5)])
    [(0.0, 1.5), (2.0, 3.0)]
    """
    joined: list[tuple[float, float]] = []
    for onset, offset in sorted(spans):
        if joined and onset <= joined[-1][1] + slack:
            first, last = joined.pop()
            joined.append((first, max(last, offset)))
        else:
            joined.append((onset, offset))
    return joined


def frames_within(durations: npt.ArrayLike, hop: float) -> npt.NDArray[np.float64]:
    """How many whole frames fit into each duration. Floats, as durations may be far beyond integers.

    >>> frames_within([0.29, 0.3], 0.1)
    array([2., 3.])
    """
    return np.floor(np.asarray(durations, np.float64) / hop + _SLACK)


def frames_covering(durations: npt.ArrayLike, hop: float) -> npt.NDArray[np.float64]:
    """How many frames it takes to cover each duration.

    >>> frames_covering([0.3, 0.31], 0.1)
    array([3., 4.])
    """
    return np.ceil(np.asarray(durations, np.float64) / hop - _SLACK)
