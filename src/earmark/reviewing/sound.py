"""Excerpts of recordings as 16-bit wav files, computed while they are sent.

A browser requests byte ranges of such a file, and only the sound in that range is read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from earmark import audio
from earmark.audio import Samples
from earmark.errors import ArgumentError, DataError
from earmark.reviewing.source import read_info

LONGEST = 1800.0
"""Seconds of one excerpt."""

_HEADER = 44  # bytes
_BLOCK = 4.0  # seconds read at once
_HIGHEST_RATE = 96_000  # Hz, the highest that browsers play; slowed-down ultrasound needs it


@dataclass(frozen=True)
class Excerpt:
    """Part of a recording as a wav file."""

    path: Path
    rate: int
    first: int  # sample at `rate`
    samples: int

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return _HEADER + 2 * self.samples

    def header(self) -> bytes:
        """The header of a mono wav file."""
        body = 2 * self.samples
        form = struct.pack("<IHHIIHH", 16, 1, 1, self.rate, 2 * self.rate, 2, 16)
        return b"RIFF" + struct.pack("<I", 36 + body) + b"WAVEfmt " + form + b"data" + struct.pack("<I", body)

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Bytes `begin` to `end` of the file."""
        if begin < _HEADER:
            yield self.header()[begin : min(end, _HEADER)]
        at, stop = max(begin, _HEADER) - _HEADER, end - _HEADER
        block = int(_BLOCK * self.rate)
        while at < stop:
            first = at // 2
            last = min(first + block, -(-stop // 2), self.samples)
            data = _as_pcm(read_part(self.path, self.rate, self.first + first, self.first + last))
            chunk = data[at - 2 * first : stop - 2 * first]
            if not chunk:
                return
            yield chunk
            at += len(chunk)


def excerpt(path: Path, onset: float, offset: float | None) -> Excerpt:
    """The part of a recording between two times, up to its end."""
    about = read_info(path)
    if not 0 <= onset < about.duration:
        raise ArgumentError(f"onset: expected 0 to {about.duration:.3f} s, got {onset}")
    end = about.duration if offset is None else min(offset, about.duration)
    if not end > onset:
        raise ArgumentError(f"offset: expected a time after the onset, got onset {onset}, offset {offset}")
    rate = min(about.rate, _HIGHEST_RATE)
    first, last = round(onset * rate), round(min(end, onset + LONGEST) * rate)
    total = about.samples_at(rate)
    first = min(first, total - 1)
    return Excerpt(path, rate, first, max(1, min(last, total) - first))


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The bytes [first, last) that a Range header asks for; None for all of them, an error if there are none.

    >>> byte_range("bytes=0-99", 1000), byte_range("bytes=900-", 1000), byte_range("bytes=-50", 1000)
    ((0, 100), (900, 1000), (950, 1000))
    """
    if header is None:
        return None
    match = re.fullmatch(r"bytes=([0-9]{0,15})-([0-9]{0,15})", header.strip())
    if match is None or not any(match.groups()):
        return None  # several ranges or another unit: a server may send the whole
    first, last = match.groups()
    begin = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if begin >= end:
        raise ArgumentError(f"expected a range within {size} bytes, got {header!r:.60}")
    return begin, end


def read_part(path: Path, rate: int, first: int, last: int) -> Samples:
    """Samples `first` to `last` of a file, counted at `rate`; gaps in damaged sound are silence."""
    if last <= first:
        return np.empty(0, np.float32)
    return _read_damaged_too(partial(audio.read, path, rate=rate, onset=first / rate, offset=last / rate))


def read_glimpses(path: Path, starts: list[int], samples: int) -> Samples:
    """Short excerpts of a file at its own rate: (excerpts, samples); gaps in damaged sound are silence."""
    return _read_damaged_too(partial(audio.read_pieces, path, starts, samples))


def _read_damaged_too(read: Callable[..., Samples]) -> Samples:
    try:
        return read()
    except DataError:
        return read(damaged="keep")


def _as_pcm(samples: Samples) -> bytes:
    return np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
