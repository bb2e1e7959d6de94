"""Walk through the frames of an mp3: bytes that are not frames, and frames that its header counts and that are missing.

libmpg123 silently skips bytes that are not a frame, and everything after them comes too early. Here each run of frames
becomes a piece, preceded by a frame that states their number. Times follow from the number of frames in a gap: its
bytes divided by the mean frame size around it, and in total as many as the header counts, if there is one.
"""

import re
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from earmark.audio.containers import Bytes, bad_file, mp3_bits, mp3_frame, mp3_rate
from earmark.audio.pieces import Contents, EntryPoint, Gap, Piece, gaps_between

_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3")
_CHAIN = 4  # frames in a row that a gap must be followed by: fewer may be chance
_STEP = 512  # frames from one entry to the next
_MOST_MUTED = 65  # frames at an entry that may need bits of frames before it
_WARM_UP = 4  # frames after an entry until the frames before it no longer affect the sound
_DECODER_DELAY = 529  # samples that libmpg123 drops at the start if a header states the encoder's delay


class _Header(NamedTuple):
    """What a first frame of Xing or Info states."""

    end: int
    frames: int | None  # number of the others
    bytes: int  # with itself
    skipped: int  # samples that are dropped at the start
    samples: int | None  # without delay and padding
    size_at: int | None = None  # where `bytes` is stated


def walk(path: Path, data: Bytes, start: int) -> Contents:
    """Check the mp3 stream from byte `start` on."""
    first = data[start : start + 4]
    frame = mp3_frame(first)
    if frame is None:
        raise bad_file(path, "damaged: it does not begin with an mp3 frame")
    length, spf = frame
    header = _header(data, start, length, spf)
    runs = _runs(data, header.end)
    if not runs:
        raise bad_file(path, "truncated: the mp3 file contains no complete frame")
    if not _fit(first, data[runs[0][0] : runs[0][0] + 4]):
        raise bad_file(path, "damaged: its first mp3 frame does not match the others")
    is_cut = header.bytes > len(data) - start or _is_broken(data, runs[-1][-1])
    lost = _lost(path, header, runs, is_cut)
    missing = _missing(data, runs, spf, None if is_cut else lost)
    pieces, at = [], 0  # `at` counts frames
    for run, gap in zip(runs, [*missing, 0], strict=True):
        pieces.append(_piece(data, run, at * spf - header.skipped, spf))
        at += len(run) - 1 + gap
    rate = mp3_rate(first)
    gaps = gaps_between(pieces, rate, "bytes that are not mp3 frames, or missing frames", start=pieces[0].first)
    total = at * spf if header.samples is None else header.samples
    if header.frames is None:
        if is_cut:
            gaps.append(Gap(total / rate, None, "the last mp3 frames are damaged or incomplete"))
    elif lost and header.frames - at > (0 if is_cut else 1):
        gaps.append(Gap((at * spf - header.skipped) / rate, total / rate, "the last mp3 frames are missing"))
    samples = total if header.frames is None or gaps else None
    return Contents(samples, tuple(pieces), tuple(gaps), _corrected_head(data, start, header, pieces[-1].end))


def _lost(path: Path, header: _Header, runs: list[list[int]], is_cut: bool) -> int | None:
    """Number of frames that the header counts and that are missing; None if it counts none."""
    if header.frames is None:
        return None
    intact = sum(len(run) - 1 for run in runs)
    lost = header.frames - intact
    if len(runs) > 1:
        return lost
    if lost < -1:
        raise bad_file(path, f"its header states {header.frames} mp3 frames, but there are {intact}; re-encode it")
    return 0 if lost == 1 and not is_cut else lost  # some encoders count the header as a frame


def _corrected_head(data: Bytes, start: int, header: _Header, end: int) -> bytes:
    """The first bytes of the file with the right size, if the header states a wrong one, which libmpg123 reports."""
    if header.size_at is None or header.bytes == end - start:
        return b""
    return data[: header.size_at] + struct.pack(">I", min(end - start, 0xFFFFFFFF))


def _header(data: Bytes, start: int, length: int, spf: int) -> _Header:
    """Read a first frame of Xing or Info: flags, the fields that they declare, and the delay that LAME states."""
    head = data[start : start + length]
    tag = re.search(rb"Xing|Info", head[:48])
    if tag is None:
        return _Header(start, None, 0, 0, None)
    at = tag.end() + 4
    flags = int.from_bytes(head[tag.end() : at], "big")
    fields: dict[str, int] = {}  # positions of those that are present
    for bit, (name, size) in enumerate((("frames", 4), ("bytes", 4), ("seek table", 100), ("quality", 4))):
        if flags & 1 << bit:
            fields[name] = at
            at += size
    values = {name: int.from_bytes(head[place : place + 4], "big") for name, place in fields.items()}
    frames, n_bytes = values.get("frames"), values.get("bytes", 0)
    size_at = None
    if "bytes" in fields and length >= tag.end() + 12:
        size_at = start + fields["bytes"]
    end = start + length
    if frames is None:
        return _Header(end, None, n_bytes, 0, None, size_at)
    gapless = head[at + 21 : at + 24]
    if len(gapless) < 3:
        return _Header(end, frames, n_bytes, 0, frames * spf, size_at)
    delay, padding = divmod(int.from_bytes(gapless, "big"), 1 << 12)
    samples = max(1, frames * spf - delay - padding)
    return _Header(end, frames, n_bytes, delay + _DECODER_DELAY, samples, size_at)


def _runs(data: Bytes, at: int) -> list[list[int]]:
    """Positions of frames in a row, and of their end, for each run of them."""
    runs: list[list[int]] = []
    sizes: dict[bytes, int] = {}
    first = data[at : at + 4]

    def size(head: bytes) -> int:
        """Bytes of a frame that matches the first one, or 0."""
        frame = mp3_frame(head)
        sizes[head] = frame[0] if frame and _fit(head, first) else 0
        return sizes[head]

    while at >= 0:
        run = [at]
        while length := sizes.get(head := data[at : at + 4]) or size(head):
            at += length
            if at > len(data):
                break
            run.append(at)
        at = _next_frame(data, run[-1], size)
        if at >= 0:
            run.pop()  # the last frame may have a damaged header, with a wrong length
        if len(run) > 1:
            runs.append(run)
    return runs


def _fit(head: bytes, other: bytes) -> bool:
    """Whether two frames have the same version, rate and number of channels."""
    is_same = (head[1] ^ other[1]) & 0xFE == (head[2] ^ other[2]) & 0x0C == 0
    return is_same and (head[3] >= 0xC0) == (other[3] >= 0xC0)


def _next_frame(data: Bytes, at: int, size: Callable[[bytes], int]) -> int:
    """Position of the next frame behind one that is damaged, or -1."""
    while (at := data.find(b"\xff", at + 1)) >= 0:
        end, chain = at, 0
        while chain < _CHAIN and (length := size(data[end : end + 4])):
            end, chain = end + length, chain + 1
        if chain == _CHAIN or (chain and end == len(data)):
            return at
    return -1


def _is_broken(data: Bytes, end: int) -> bool:
    rest = data[end : end + 4096]
    return bool(rest.strip(b"\0")) and not rest.startswith(_TAGS)


def _missing(data: Bytes, runs: list[list[int]], spf: int, lost: int | None) -> list[int]:
    """Frames missing between runs; in all `lost`, if it is known."""
    lengths = [np.diff(run) for run in runs]  # of frames, in bytes
    weights = []  # sizes of the gaps, in frames
    head = data[runs[0][0] : runs[0][0] + 4]
    is_constant = max(np.max(n) for n in lengths) - min(np.min(n) for n in lengths) <= 1
    for (before, after), (a, b) in zip(pairwise(lengths), pairwise(runs), strict=True):
        if is_constant:
            mean = spf * mp3_bits(head) / 8 / mp3_rate(head)
        else:
            mean = float(np.mean([*before[-32:], *after[:32]]))
        weights.append((b[0] - a[-1]) / mean)
    counts = np.maximum(1, np.round(weights)).astype(int)
    if lost is None or is_constant or not weights:
        return list(map(int, counts))
    ends = np.round(np.cumsum(weights) / np.sum(weights) * max(lost, 0)).astype(int)
    return list(map(int, np.diff(ends, prepend=0)))


def _piece(data: Bytes, run: list[int], first: int, spf: int) -> Piece:
    """Frames in a row, of which the first one begins at sample `first`."""
    head = data[run[0] : run[0] + 4]
    side = _side_bytes(head)
    silence = _silence(head, side, len(run))
    entries = []
    for k in range(0, len(run) - 1, _STEP):
        muted = _muted(data, run[k : k + _MOST_MUTED], side)
        usable = k + len(muted)
        certain = first + (usable + (_WARM_UP if k else 0)) * spf
        begin = run[min(usable, len(run) - 1)]
        entries.append(EntryPoint(certain, first + (k - 1) * spf + _DECODER_DELAY, silence + b"".join(muted), begin))
    return Piece(entries[0].certain, first + (len(run) - 1) * spf, run[-1], tuple(entries))


def _side_bytes(head: bytes) -> int:
    """Size of the side information, which follows the header of a frame."""
    is_mono = head[3] >= 0xC0
    if head[1] & 0x18 == 0x18:  # MPEG 1
        return 17 if is_mono else 32
    return 9 if is_mono else 17


def _silence(head: bytes, side: int, frames: int) -> bytes:
    """A frame that states the number of the others, and a silent one.

    If the number is stated, libmpg123 drops the delay of the decoder from the start: part of the silence.
    """
    for bits in range(1, 15):
        start = bytes([head[0], head[1] | 1, bits << 4 | head[2] & 0x0C, head[3]])
        length, _ = mp3_frame(start) or (0, 0)
        if length >= 4 + side + 12:
            counting = (start + bytes(side) + b"Xing" + struct.pack(">II", 1, frames)).ljust(length, b"\0")
            return counting + start.ljust(length, b"\0")
    raise AssertionError("frames of the highest bit rate are long enough")


def _muted(data: Bytes, frames: list[int], side: int) -> list[bytes]:
    """Frames at the start that need bits of frames before them, without instructions to decode anything.

    A frame states how many bytes before it belong to it. Frames that are muted still hold those of the next ones.
    """
    muted, available = [], 0
    for begin, end in pairwise(frames):
        frame = data[begin:end]
        at = 4 if frame[1] & 1 else 6  # behind a checksum, if there is one
        bits = 9 if frame[1] & 0x18 == 0x18 else 8  # of the number of bytes
        needed = int.from_bytes(frame[at : at + 2], "big") >> 16 - bits
        if needed <= available:
            break
        held = min(available, (1 << bits) - 1) << 16 - bits  # libmpg123 only passes on what a frame claims
        start = bytes([frame[0], frame[1] | 1, frame[2], frame[3]]) + held.to_bytes(2, "big")
        muted.append(start.ljust(at + side, b"\0") + frame[at + side :])
        available += len(frame) - at - side
    return muted
