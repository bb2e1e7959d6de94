"""Walk through the pages of an ogg file (Vorbis or Opus): checksums, sequence numbers, granule positions, final page.

libsndfile skips damaged pages silently, so that everything after them comes too early. Here each run of intact pages
becomes a piece. A granule position is the number of samples up to the end of its page, which gives a piece its place.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from earmark.audio.containers import Bytes, bad_file
from earmark.audio.pieces import Contents, EntryPoint, Gap, Piece, PieceFile, gaps_between
from earmark.audio.quiet import QuietFile

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_LAST = 4  # flag of the final page
_OPUS_RATE = 48000  # of granule positions in Opus
_LONGEST_PAGE = 255 * 5760  # longest plausible page, in samples, if its checksum is wrong: 255 packets of 120 ms


class _Page(NamedTuple):
    begin: int
    end: int
    flags: int
    granule: int  # -1 if no packet ends on this page
    serial: int
    number: int


class _Run(NamedTuple):
    """Intact pages in a row, and their last granule position."""

    begin: int
    end: int
    granule: int


class _Stream:
    """The headers of a stream."""

    def __init__(self, first: bytes, others: bytes, is_whole_start: bool) -> None:
        self.is_opus = first[28:36] == b"OpusHead"
        self.preskip = struct.unpack_from("<H", first, 38)[0] if self.is_opus else 0
        self.head = (_without_preskip(first) if self.is_opus else first) + others
        self.is_whole_start = is_whole_start  # whether the first page of sound is intact

    def sample(self, granule: int, rate: int) -> int:
        """Number of samples before a granule position."""
        return round((granule - self.preskip) * rate / _OPUS_RATE) if self.is_opus else granule


def walk(path: Path, data: Bytes, start: int) -> Contents:
    """Check the ogg stream from byte `start` on; reject several streams and damaged headers."""
    pages = _pages(data, start)
    last = next(pages, None)
    if last is None or last.begin != start:
        raise bad_file(path, "damaged: the first ogg page is not intact")
    serial = last.serial
    first_end = head_end = last.end
    runs: list[_Run] = []
    for page in pages:
        if page.serial != serial or last.flags & _LAST:
            raise bad_file(path, "contains several streams, of which only the first can be read; split or convert it")
        is_next = page.begin == last.end and page.number == last.number + 1
        if not runs and page.granule in (0, -1) and not page.flags & _LAST:
            if is_next:
                head_end = page.end
        elif runs and is_next:
            runs[-1] = _Run(runs[-1].begin, page.end, max(page.granule, runs[-1].granule))
        else:
            runs.append(_Run(page.begin, page.end, page.granule))
        last = page
    runs = [run for run in runs if run.granule > 0]
    if not runs:
        raise bad_file(path, "truncated or damaged: the ogg file contains no intact samples")
    is_whole_start = runs[0].begin == head_end
    is_whole_end = bool(last.flags & _LAST)
    if len(runs) == 1 and is_whole_start and is_whole_end:
        return Contents()
    stream = _Stream(bytes(data[start:first_end]), bytes(data[first_end:head_end]), is_whole_start)
    if (b"OpusTags" if stream.is_opus else b"\x05vorbis") not in stream.head:
        raise bad_file(path, "damaged: the headers of the ogg stream are not intact")
    return _place(path, runs, stream, last.granule if is_whole_end else _stated_end(data, last))


def _place(path: Path, runs: list[_Run], stream: _Stream, end: int | None) -> Contents:
    """Pieces and gaps; `end` is the last granule position, or None if it is not known."""
    pieces: list[Piece] = []
    origin = rate = at = 0
    for run in runs:
        with PieceFile(path, stream.head, run.begin, run.end) as raw, QuietFile(raw) as file:
            rate, samples = file.samplerate, file.frames
        stop = stream.sample(run.granule, rate)
        if not pieces and stream.is_whole_start:  # its first sample is not 0 if it was cut out of a longer one
            origin = stop - samples - stream.sample(0, rate)
        first, at = stop - samples - origin, stop - origin
        pieces.append(Piece(first, at, run.end, (EntryPoint(first, first, stream.head, run.begin),), can_seek=True))
    gaps = gaps_between(pieces, rate, "damaged or missing ogg pages")
    total = at if end is None else max(at, stream.sample(end, rate) - origin)
    if end is None or total > at:
        gaps.append(Gap(at / rate, None if end is None else total / rate, "the end is damaged or missing"))
    return Contents(total, tuple(pieces), tuple(gaps))


def _pages(data: Bytes, at: int) -> Iterator[_Page]:
    """Intact pages from byte `at` on; what is between them is skipped."""
    while at >= 0:
        page = _page(data, at)
        end = at + 1
        if page is not None and _has_checksum(data, page):
            yield page
            end = page.end
        at = data.find(b"OggS", end)


def _page(data: Bytes, at: int) -> _Page | None:
    """The page at a position, intact or not, if it is complete."""
    head = data[at : at + 27]
    if len(head) < 27 or head[:5] != b"OggS\0":
        return None
    end = at + 27 + head[26] + sum(data[at + 27 : at + 27 + head[26]])
    granule, serial, number = struct.unpack_from("<qII", head, 6)
    return _Page(at, end, head[5], granule, serial, number) if end <= len(data) else None


def _has_checksum(data: Bytes, page: _Page) -> bool:
    stated = int.from_bytes(data[page.begin + 22 : page.begin + 26], "little")
    return _checksum(data[page.begin : page.begin + 22] + bytes(4) + data[page.begin + 26 : page.end]) == stated


def _checksum(page: bytes) -> int:
    """CRC-32 of ogg, which is that of zlib with all bits in reverse order, and 0 at the beginning and the end."""
    crc = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(crc.to_bytes(4, "little").translate(_REVERSED), "big")


def _without_preskip(page: bytes) -> bytes:
    """The first page of Opus with a pre-skip of 0: a piece from the middle is played from its first sample."""
    page = page[:22] + bytes(4) + page[26:38] + bytes(2) + page[40:]
    return page[:22] + struct.pack("<I", _checksum(page)) + page[26:]


def _stated_end(data: Bytes, last: _Page) -> int | None:
    """Granule position of a damaged final page behind the last intact one, if it is plausible."""
    at = data.rfind(b"OggS")
    head = data[at : at + 27]
    if at <= last.begin or len(head) < 27 or not head[5] & _LAST:
        return None
    granule, serial, number = struct.unpack_from("<qII", head, 6)
    limit = max(last.granule, 0) + _LONGEST_PAGE * max(1, number - last.number)
    return granule if serial == last.serial and last.granule < granule <= limit else None
