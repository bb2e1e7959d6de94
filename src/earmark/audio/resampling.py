"""Resampling of sound that arrives in blocks."""

import math
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import soxr

Samples = npt.NDArray[np.float32]

_MARGIN = 512  # samples at the lower of two rates, more than half of soxr's filter
_SEGMENT = 30  # minimum seconds of a segment, where soxr rounds its clock


def resampled_length(samples: int, from_rate: int, to_rate: int) -> int:
    """Number of samples after resampling."""
    return -(-samples * to_rate // from_rate)


class Grid:
    """The common grid of two rates: a period of `p` input samples gives exactly `q` output samples.

    soxr starts at phase 0, so resampling must start at a whole number of periods. With long periods soxr rounds its
    clock and drifts, by a hundredth of a sample in an hour; such sound is resampled in segments of a fixed length, a
    whole number of periods, each with a lead before it and a margin behind it. Therefore any excerpt has the same
    samples as the whole, and costs no more than a segment and its own length.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        common = math.gcd(from_rate, to_rate)
        self.p, self.q = from_rate // common, to_rate // common
        is_long = self.p > 5000 or self.q > 640
        self.segment = -(-_SEGMENT * from_rate // self.p) * self.p if is_long else sys.maxsize // self.p * self.p
        self.margin = math.ceil(_MARGIN * max(1.0, self.p / self.q))
        self.lead = -(-self.margin // self.p) * self.p

    def start(self, sample: int) -> int:
        """Input sample at which resampling starts for an output sample: the start of its segment or period."""
        whole = self.segment if self.segment < sys.maxsize // 2 else self.p
        return sample * self.p // self.q // whole * whole

    def output(self, start: int) -> int:
        """Output sample at an input sample that is a whole number of periods."""
        return start // self.p * self.q


class _Segment:
    """A part of the sound that is resampled on its own, from `lead` samples before it to `grid.margin` behind it."""

    def __init__(self, from_rate: int, to_rate: int, grid: Grid, lead: int) -> None:
        self._resampler = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")
        self._skip = grid.output(lead)  # output samples before the segment
        self._left = grid.output(grid.segment)  # output samples of the segment that are still to come
        self._until_tail = grid.segment - grid.lead + lead  # input samples that the next segment does not need
        self.room = grid.segment + grid.margin + lead  # input samples that are still to come
        self.tail: list[Samples] = []  # input samples that the next segment needs too

    def add(self, samples: Samples, *, last: bool) -> Samples:
        """Resample the next samples; returns those of the segment."""
        if len(samples) > self._until_tail:
            self.tail.append(samples[self._until_tail :])
        self._until_tail = max(0, self._until_tail - len(samples))
        self.room -= len(samples)
        piece: Samples = self._resampler.resample_chunk(samples, last=last)
        part = piece[self._skip :][: self._left]
        self._skip = max(0, self._skip - len(piece))
        self._left -= len(part)
        return part


def resampled(
    blocks: Iterable[Samples], from_rate: int, to_rate: int, limit: int | None = None, *, lead: int = 0
) -> Iterator[Samples]:
    """Blocks at another rate: `limit` samples, or as many as the blocks last.

    The first `lead` samples, a whole number of periods, only lead up to the first output sample.
    """
    grid = Grid(from_rate, to_rate)
    segment = _Segment(from_rate, to_rate, grid, lead)
    received = -lead
    given = 0
    for block in blocks:
        received += len(block)
        while len(block):
            part, block = block[: segment.room], block[segment.room :]
            is_complete = len(part) == segment.room
            piece = segment.add(part, last=is_complete)
            if is_complete:
                block = np.concatenate([*segment.tail, block])
                segment = _Segment(from_rate, to_rate, grid, grid.lead)
            if limit is not None:
                piece = piece[: limit - given]
            given += len(piece)
            yield piece
    total = resampled_length(received, from_rate, to_rate) if limit is None else limit
    # soxr rounds the number of samples in both directions; silence after the end completes it
    yield segment.add(np.zeros(grid.margin, np.float32), last=True)[: total - given]
