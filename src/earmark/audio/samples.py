"""Blocks of samples: rates, valid values, channels and resampling, for files and live sound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from earmark.audio.containers import bad_file
from earmark.errors import ArgumentError

__all__ = ["Samples", "averaged", "check_values", "checked_rate", "resampled", "resampled_length"]

Samples = npt.NDArray[np.float32]

LOWEST_RATE, HIGHEST_RATE = 1000, 2_000_000  # Hz; a header outside this range is damaged
MARGIN = 512  # samples at the lower of two rates, more than half of soxr's filter
_LOUDEST = 1e9  # full scale is 1; float files scaled like 16-bit or 24-bit integers still pass


def checked_rate(rate: int) -> int:
    """Return the rate if it is valid."""
    if not (LOWEST_RATE <= rate <= HIGHEST_RATE and rate == int(rate)):
        raise ArgumentError(f"rate must be an integer from {LOWEST_RATE} to {HIGHEST_RATE} Hz, got {rate}")
    return int(rate)


def check_values(path: Path, block: Samples, first: int, rate: int) -> None:
    """Refuse NaN and values far beyond full scale in (samples, channels); `first` is the number of the first sample."""
    # max and min propagate NaN, which fails every comparison
    if not max(block.max(), -block.min()) <= _LOUDEST:
        bad = ~(np.abs(block) <= _LOUDEST).all(axis=1)
        where = int(bad.argmax())
        value = block[where][~(np.abs(block[where]) <= _LOUDEST)][0]
        raise bad_file(path, f"sample {first + where} (at {(first + where) / rate:.3f} s) is {value}, full scale is 1")


def averaged(block: Samples) -> Samples:
    """Mean over channels: (samples, channels) to (samples,)."""
    mono = block[:, 0]
    if block.shape[1] > 1:
        for channel in block.T[1:]:  # faster than mean(axis=1) for a short axis
            mono = np.add(mono, channel)
        mono /= np.float32(block.shape[1])
    return mono


def resampled_length(samples: int, from_rate: int, to_rate: int) -> int:
    """Number of samples after resampling."""
    return -(-samples * to_rate // from_rate)


def resampled(blocks: Iterable[Samples], from_rate: int, to_rate: int, limit: int | None = None) -> Iterator[Samples]:
    """Blocks at another rate: `limit` samples, or as many as the blocks last."""
    resampler = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")
    received = given = 0
    for block in blocks:
        received += len(block)
        piece = resampler.resample_chunk(block)
        if limit is not None:
            piece = piece[: limit - given]
        given += len(piece)
        yield piece
    total = resampled_length(received, from_rate, to_rate) if limit is None else limit
    # soxr rounds the number of samples in both directions; silence after the end completes it
    silence = np.zeros(math.ceil(MARGIN * max(1.0, from_rate / to_rate)), np.float32)
    yield resampler.resample_chunk(silence, last=True)[: total - given]
