"""Resampling of sound that arrives in blocks."""

import math
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import soxr

Samples = npt.NDArray[np.float32]

_MARGIN = 512  # samples at the lower of two rates, more than half of soxr's filter
_SEGMENT = 30  # seconds, at least, that are resampled on their own where soxr rounds its clock


def resampled_length(samples: int, from_rate: int, to_rate: int) -> int:
    """Number of samples after resampling."""
    return -(-samples * to_rate // from_rate)


class Grid:
    """How two rates fit together: `p` samples in are exactly `q` samples out.

    soxr starts at phase 0, so resampling must start at a whole number of periods. With long periods soxr rounds its
    clock and drifts, by a hundredth of a sample in an hour; such sound is resampled in segments of a fixed length, a
    whole number of periods, each with a lead before it and a margin behind it. So any excerpt has the same samples and
    costs no more than a segment and its own length.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        common = math.gcd(from_rate, to_rate)
        self.p, self.q = from_rate // common, to_rate // common
        is_long = self.p > 5000 or self.q > 640
        self.segment = -(-_SEGMENT * from_rate // self.p) * self.p if is_long else sys.maxsize // self.p * self.p
        self.margin = math.ceil(_MARGIN * max(1.0, self.p / self.q))
        self.lead = -(-self.margin // self.p) * self.p

    def start(self, sample: int) -> int:
        """Where resampling starts for an output sample: the input sample at a segment or, if there are none, period."""
        whole = self.segment if self.segment < sys.maxsize // 2 else self.p
        return sample * self.p // self.q // whole * whole

    def output(self, start: int) -> int:
        """Output sample at an input sample that is a whole number of periods."""
        return start // self.p * self.q


def resampled(
    blocks: Iterable[Samples], from_rate: int, to_rate: int, limit: int | None = None, *, lead: int = 0
) -> Iterator[Samples]:
    """Blocks at another rate: `limit` samples, or as many as the blocks last.

    The first `lead` samples, a whole number of periods, only lead up to the first output sample.
    """
    grid = Grid(from_rate, to_rate)
    size = grid.segment
    received, given, at = -lead, 0, -lead  # `at` counts from the start of the segment
    resampler, skip, left = _soxr(from_rate, to_rate), grid.output(lead), grid.output(size)
    held: list[Samples] = []  # samples that the next segment needs too

    def cut(piece: Samples) -> Samples:
        """The part of a piece that belongs to the segment and is within the limit."""
        nonlocal skip, left, given
        end = left if limit is None else min(left, limit - given)
        part = piece[skip:][:end]
        skip, left, given = max(0, skip - len(piece)), left - len(part), given + len(part)
        return part

    for block in blocks:
        received += len(block)
        while len(block):
            part, block = block[: size + grid.margin - at], block[max(0, size + grid.margin - at) :]
            if at + len(part) > size - grid.lead:
                held.append(part[max(0, size - grid.lead - at) :])
            at += len(part)
            is_complete = at == size + grid.margin
            yield cut(resampler.resample_chunk(part, last=is_complete))
            if is_complete:
                block, held, at = np.concatenate([*held, block]), [], -grid.lead
                resampler, skip, left = _soxr(from_rate, to_rate), grid.output(grid.lead), grid.output(size)
    total = resampled_length(received, from_rate, to_rate) if limit is None else limit
    # soxr rounds the number of samples in both directions; silence after the end completes it
    limit = total
    yield cut(resampler.resample_chunk(np.zeros(grid.margin, np.float32), last=True))


def _soxr(from_rate: int, to_rate: int) -> soxr.ResampleStream:
    return soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")
