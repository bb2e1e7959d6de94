"""Walk through the frames of a flac file, each with a sample number, a CRC-8 of its header and a CRC-16 of the whole.

libFLAC detects any damage while it decodes, so this walk is only needed to locate it.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from earmark.audio.containers import Bytes, bad_file
from earmark.audio.pieces import Contents, EntryPoint, Gap, Piece, gaps_between

Positions = npt.NDArray[np.int64]

_AT_ONCE = 2048  # frames
_ENTRY = 16  # frames from one entry to the next


class _Frame(NamedTuple):
    begin: int
    first: int  # sample
    samples: int

    @property
    def last(self) -> int:
        """One past its last sample."""
        return self.first + self.samples


def walk(path: Path, data: Bytes, start: int) -> Contents:
    """Check the frames from byte `start` on; reject damaged headers."""
    head_end, block, rate, total = _header(path, data, start)
    if not total:
        raise bad_file(path, "its header does not state its length; re-encode it, for example with flac")
    frames = [frame for frame in _frames(data, head_end, block) if frame.last <= total]
    if not frames:
        raise bad_file(path, "damaged, truncated or without samples: no flac frame is intact")
    end = len(data) - 128 if data[-128:-125] == b"TAG" else len(data)
    ends = [frame.begin for frame in frames[1:]] + [end]
    is_intact = _checked(data, np.array([frame.begin for frame in frames]), np.array(ends))
    head = bytes(data[start:head_end])
    pieces: list[Piece] = []
    for run in _runs(frames, is_intact):
        first, last = frames[run[0]].first, frames[run[-1]].last
        entries = tuple(EntryPoint(frames[k].first, frames[k].first, head, frames[k].begin) for k in run[::_ENTRY])
        if first >= (pieces[-1].last if pieces else 0):
            pieces.append(Piece(first, last, ends[run[-1]], entries))
    if not pieces:
        raise bad_file(path, "damaged, truncated or without samples: no flac frame is intact")
    gaps = gaps_between(pieces, rate, "damaged flac frames")
    at = pieces[-1].last
    if at < total:
        gaps.append(Gap(at / rate, total / rate, "the end is damaged or missing"))
    return Contents(total, tuple(pieces), tuple(gaps)) if gaps else Contents()


def _runs(frames: list[_Frame], is_intact: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Indices of intact frames, for each run of frames that follow each other without a gap."""
    runs: list[list[int]] = []
    for k in map(int, np.flatnonzero(is_intact)):
        if runs and runs[-1][-1] == k - 1 and frames[k - 1].last == frames[k].first:
            runs[-1].append(k)
        else:
            runs.append([k])
    return runs


def _header(path: Path, data: Bytes, start: int) -> tuple[int, int, int, int]:
    """End of the metadata, samples per frame, rate and number of samples."""
    at, is_last = start + 4, False
    info = data[at + 4 : at + 38]
    while not is_last:
        block = data[at : at + 4]
        if len(block) < 4 or block[0] == 0xFF:
            raise bad_file(path, "damaged, truncated or without samples: its flac header is not intact")
        is_last = bool(block[0] & 0x80)
        at += 4 + int.from_bytes(block[1:], "big")
    if len(info) < 34 or data[start + 4] & 0x7F or at >= len(data):
        raise bad_file(path, "damaged, truncated or without samples: its flac header is not intact")
    packed = int.from_bytes(info[10:18], "big")
    return at, int.from_bytes(info[:2], "big"), max(1, packed >> 44), packed & ((1 << 36) - 1)


def _frames(data: Bytes, at: int, block: int) -> list[_Frame]:
    """Frames with a valid header, by position; `block` is the number of samples in each, if it is fixed."""
    matches = re.finditer(rb"\xff[\xf8\xf9]", memoryview(data)[at:])
    heads = ((at + match.start(), data[at + match.start() : at + match.start() + 16]) for match in matches)
    candidates = (_frame(begin, head.ljust(16, b"\0"), block) for begin, head in heads)
    return [frame for frame in candidates if frame is not None]


def _frame(begin: int, head: bytes, block: int) -> _Frame | None:
    """The frame with that header, if it is one."""
    ones = 8 - (head[4] ^ 0xFF).bit_length()  # at the start of the number, which is coded like UTF-8
    size, rate = head[2] >> 4, head[2] & 15
    if ones in (1, 8) or not size or rate == 15 or head[3] & 1:
        return None
    number = head[4] & (0x7F >> ones)
    at = 5
    for byte in head[5 : 4 + ones]:
        number, at = number << 6 | byte & 0x3F, at + 1
    samples = {1: 192, 6: head[at] + 1, 7: (head[at] << 8 | head[at + 1]) + 1}.get(size)
    if samples is None:
        samples = 576 << size - 2 if size < 6 else 256 << size - 8
    at += {6: 1, 7: 2}.get(size, 0) + {12: 1, 13: 2, 14: 2}.get(rate, 0)
    if _crc8(head[:at]) != head[at]:
        return None
    return _Frame(begin, number if head[1] & 1 else number * block, samples)


def _table(polynomial: int, bits: int) -> list[int]:
    """CRC of each byte."""
    table = []
    for value in range(256):
        value <<= bits - 8
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> bits - 1 else 0)
            value &= (1 << bits) - 1
        table.append(value)
    return table


_CRC8, _CRC16 = _table(0x07, 8), np.array(_table(0x8005, 16), np.uint16)


def _crc8(head: bytes) -> int:
    crc = 0
    for byte in head:
        crc = _CRC8[crc ^ byte]
    return crc


def _checked(data: Bytes, begins: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    """Whether the CRC-16 of each frame is right; many frames at once, byte by byte."""
    values = np.frombuffer(data, np.uint8)
    lengths = ends - begins
    order = np.argsort(-lengths)
    is_right = np.zeros(len(begins), np.bool_)
    for k in range(0, len(order), _AT_ONCE):
        frames = order[k : k + _AT_ONCE]  # the longest first: those that continue are always the first ones
        crc = np.zeros(len(frames), np.uint16)
        active = np.searchsorted(-lengths[frames], -np.arange(lengths[frames[0]]), side="left")
        for at, n in enumerate(active.tolist()):
            crc[:n] = crc[:n] << 8 ^ _CRC16[crc[:n] >> 8 ^ values[begins[frames[:n]] + at]]
        is_right[frames] = crc == 0  # the frame ends with its own CRC
    return is_right
