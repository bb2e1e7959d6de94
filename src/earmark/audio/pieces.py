"""Results of the walk through a file: gaps in its sound, and the intact pieces between them.

A piece is a run of bytes that, after a short head, is a complete file of the same kind. It is decoded separately and
placed by its first sample, so that sound after a gap keeps its time.
"""

import io
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from earmark.audio.quiet import QuietFile


class Gap(NamedTuple):
    """Missing sound: an interval of a file in seconds, and why."""

    onset: float
    offset: float | None  # None if the end is missing and its time is not known
    reason: str


class EntryPoint(NamedTuple):
    """A file with the end of a piece: `head`, and the bytes from `begin` to the end of the piece."""

    certain: int  # sample of the recording from which on the decoded sound is exact
    first: int  # sample of the recording that is decoded first
    head: bytes
    begin: int


@dataclass(frozen=True)
class Piece:
    """Samples `first` to `last` of a recording, and where decoding can begin.

    `first` may be negative, if a codec begins before the sound does.
    """

    first: int
    last: int
    end: int  # byte
    entries: tuple[EntryPoint, ...]
    can_seek: bool = False  # whether the decoder may seek from there

    def entry(self, sample: int) -> EntryPoint:
        """The last entry from which `sample` is decoded exactly."""
        at = bisect_right(self.entries, sample, key=lambda entry: entry.certain)
        return self.entries[max(0, at - 1)]


@dataclass(frozen=True)
class Contents:
    """Result of the walk; without pieces, libsndfile reads the file as it is."""

    samples: int | None = None  # per channel; None if libsndfile counts them
    pieces: tuple[Piece, ...] = ()
    gaps: tuple[Gap, ...] = ()
    head: bytes = b""  # replaces the first bytes of an intact file


def gaps_between(pieces: Sequence[Piece], rate: int, reason: str, *, start: int = 0) -> list[Gap]:
    """Gaps before and between pieces."""
    ends = [start, *(piece.last for piece in pieces)]
    return [
        Gap(end / rate, piece.first / rate, reason)
        for end, piece in zip(ends[:-1], pieces, strict=True)
        if piece.first > end
    ]


class ForwardFile(QuietFile):
    """A sound file that soundfile does not ask for its position after each read: that seek fails in a piece of flac."""

    def seekable(self) -> bool:
        """False, although `seek` works."""
        return False


class PieceFile(io.RawIOBase):
    """A read-only file of `head` and the bytes `begin` to `end` of another file."""

    def __init__(self, path: Path, head: bytes, begin: int, end: int) -> None:
        self._file: IO[bytes] = path.open("rb")
        self._head = head
        self._begin = begin
        self._size = len(head) + end - begin
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        wanted = min(len(buffer), max(0, self._size - self._at))
        data = self._head[self._at : self._at + wanted]
        if len(data) < wanted:
            self._file.seek(self._begin + max(0, self._at - len(self._head)))
            data += self._file.read(wanted - len(data))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
