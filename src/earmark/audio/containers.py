"""Checks of audio containers before decoding: which kind of file it is, and whether it is complete.

libsndfile silently shortens truncated files, guesses lengths and follows damaged headers. These checks read a few bytes
at the start and the end (of some mp3 files, the head of every frame) and refuse incomplete files. mutagen does not
replace them: it accepts files that are cut off, reads neither RF64 nor RIFX, and estimates the length of an mp3 without
a header instead of counting its frames.
"""

import mmap
import os
import re
import shlex
import stat
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

from earmark.errors import DataError

# suffix: kind of file, and libsndfile's names of the container and the default encoding for writing
KINDS = {
    ".aif": ("aiff", "AIFF", "PCM_16"),
    ".aiff": ("aiff", "AIFF", "PCM_16"),
    ".flac": ("flac", "FLAC", "PCM_16"),
    ".mp3": ("mp3", "MP3", "MPEG_LAYER_III"),
    ".ogg": ("ogg", "OGG", "VORBIS"),
    ".opus": ("ogg", "OGG", "OPUS"),
    ".wav": ("wav", "WAV", "PCM_16"),
}
FOREIGN = (".3gp", ".aac", ".amr", ".caf", ".m4a", ".mp4", ".webm", ".wma")
"""Suffixes of audio that must be converted first: phones record it, and libsndfile or earmark cannot read it."""

MP3_FRAME = 1152  # samples

_HEADS = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"\x1aE\xdf\xa3": "Matroska or WebM",
    b"#!AMR": "AMR",
    b"caff": "CAF",
    b"0&\xb2u\x8ef\xcf\x11": "WMA",
}


def check_container(path: Path) -> int | None:
    """Refuse files that are not audio, misnamed or incomplete; count the samples of mp3 files without a header."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise bad_file(path, folder_trouble(path) or "expected a file, got a folder")
        if not stat.S_ISREG(status.st_mode):
            raise bad_file(path, "is not a regular file")
        with path.open("rb") as file:
            if not status.st_size:
                raise bad_file(path, "is empty: 0 bytes")
            start = _skip_id3(file)
            kind = _checked_kind(path, file.read(4096))
            if kind == "mp3":
                return _count_mp3(path, file, start, status)
            if kind in _CHECKS:
                _CHECKS[kind](path, file, start, status.st_size)
    except FileNotFoundError as error:
        raise bad_file(path, "there is no such file") from error
    except OSError as error:
        raise bad_file(path, f"cannot be read: {error.strerror}") from error
    except DataError:
        raise
    except ValueError as error:
        raise bad_file(path, f"is not a valid file name: {error}") from error
    return None


def _checked_kind(path: Path, head: bytes) -> str:
    """Kind of an audio file that can be read and has the right suffix."""
    kind = _kind(head)
    if kind not in ("aiff", "flac", "mp3", "ogg", "wav"):
        target = path.with_suffix(".wav" if path.suffix.lower() == ".flac" else ".flac")
        command = f"ffmpeg -i {shlex.quote(plain_name(path))} -vn {shlex.quote(plain_name(target))}"
        hint = "" if kind in ("text", "unknown or damaged data") else f"; convert it: {command}"
        raise bad_file(path, f"holds {kind}; earmark reads aiff, flac, mp3, ogg, opus and wav{hint}")
    suffix = path.suffix.lower()
    if suffix not in KINDS or KINDS[suffix][0] != kind:
        raise bad_file(path, f"holds {kind}, which does not match its name; rename it to end in .{kind}")
    return kind


def _skip_id3(file: IO[bytes]) -> int:
    """Skip ID3 tags, which some programs write in front of any format, and the zero bytes after them."""
    start = 0
    while (head := file.read(10))[:3] == b"ID3" and len(head) == 10:
        size = sum((byte & 127) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True))
        start += 10 + size + (10 if head[5] & 16 else 0)
        file.seek(start)
    file.seek(start)
    if start:
        padding = file.read(4096)
        start += len(padding) - len(padding.lstrip(b"\0"))
        file.seek(start)
    return start


def _kind(head: bytes) -> str:
    """Kind of file, from its first bytes."""
    if head[4:8] == b"ftyp":
        return "3GP (AMR or AAC)" if head[8:11] == b"3gp" else "MP4 (AAC or ALAC)"
    if head[:1] == b"\xff" and head[1:2] in (b"\xf0", b"\xf1", b"\xf8", b"\xf9"):  # as of mp3, but of layer 0
        return "AAC"
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if _mp3_frame(head, 0) is not None:
        return "mp3"
    unknown = "text" if head.isascii() and b"\0" not in head else "unknown or damaged data"
    return next((kind for start, kind in _HEADS.items() if head.startswith(start)), unknown)


def riff_chunks(file: IO[bytes], order: str = "<") -> Iterator[tuple[bytes, int, int]]:
    """Name, stated size and position of each chunk of a wav file, which must be positioned behind its first 12 bytes.

    The file may be read at the position of the chunk's body while the iterator waits.
    """
    while len(head := file.read(8)) == 8:
        size = struct.unpack(f"{order}I", head[4:])[0]
        body = file.tell()
        yield head[:4], size, body
        file.seek(body + size + size % 2)


def _check_wav(path: Path, file: IO[bytes], start: int, size: int) -> None:
    """Compare the stated size of the data chunk with the file."""
    file.seek(start)
    order = ">" if file.read(12).startswith(b"RIFX") else "<"
    long_size = None
    for name, stated, body in riff_chunks(file, order):
        if name == b"ds64":
            long_size = struct.unpack("<QQ", file.read(16).ljust(16, b"\0"))[1]
        if name != b"data":
            continue
        actual = size - body
        if stated == 0xFFFFFFFF and long_size is not None:
            stated = long_size
        elif stated in (0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000):
            return  # written to a pipe, before the length was known
        if stated > actual:
            raise bad_file(path, f"truncated: expected {stated} bytes of samples, got {actual}")
        if not stated and actual:
            raise bad_file(path, f"its header was never completed: states no samples, contains {actual} bytes")
        return


def _check_aiff(path: Path, file: IO[bytes], start: int, size: int) -> None:
    """Compare the size stated in the first bytes with the file."""
    file.seek(start + 4)
    stated, actual = struct.unpack(">I", file.read(4).ljust(4, b"\0"))[0], size - start - 8
    if stated > actual:
        raise bad_file(path, f"truncated: expected {stated} bytes, got {actual}")


def _check_ogg(path: Path, file: IO[bytes], start: int, size: int) -> None:
    """Require a final page of the first stream; libsndfile ignores further streams."""
    file.seek(start)
    first = file.read(27)
    file.seek(max(start, size - (1 << 17)))  # more than two pages of maximal length
    tail = file.read()
    page = tail[max(0, tail.rfind(b"OggS")) :]
    sizes = page[27 : 27 + page[26]] if len(page) > 26 else b""
    if len(page) < 27 or len(page) < 27 + page[26] + sum(sizes) or not page[5] & 4:
        raise bad_file(path, "truncated: the final ogg page is missing")
    if page[14:18] != first[14:18]:
        raise bad_file(path, "contains several streams, of which only the first can be read; split or convert it")


def _count_mp3(path: Path, file: IO[bytes], start: int, status: os.stat_result) -> int | None:
    """Samples in an mp3; None if its first frame is a header that libsndfile reads."""
    size = status.st_size
    file.seek(start)
    head = file.read(200)
    tag = re.search(rb"Xing|Info", head[:48])
    if tag:
        flags, *fields = struct.unpack_from(">III", head.ljust(200, b"\0"), tag.end())
        stated = fields[flags & 1] if flags & 2 else 0
        if stated > size - start:
            raise bad_file(path, f"truncated: expected {stated} bytes of mp3, got {size - start}")
        return None
    return _count_frames(path, start, size, (status.st_mtime_ns, status.st_dev, status.st_ino))


@lru_cache(maxsize=256)
def _count_frames(path: Path, start: int, size: int, stamp: tuple[int, ...]) -> int:
    """Samples in the frames of an mp3 from byte `start` on.

    Cached by size and modification time, because a long recording is opened once for each excerpt.
    """
    count = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        while (frame := _mp3_frame(data, start)) is not None:
            start += frame[0]
            count += frame[1]
        rest = data[min(start, size) : start + 4096]
    if start > size:
        raise bad_file(path, "truncated: the last mp3 frame is incomplete")
    if rest.strip(b"\0") and not rest.startswith((b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3")):
        raise bad_file(path, f"damaged: no mp3 frame at byte {start}")
    return count


_CHECKS: dict[str, Callable[[Path, IO[bytes], int, int], None]] = {
    "wav": _check_wav,
    "aiff": _check_aiff,
    "ogg": _check_ogg,
}
_BIT_RATES = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def _mp3_frame(data: bytes | mmap.mmap, at: int) -> tuple[int, int] | None:
    """Bytes and samples of the MPEG layer III frame at a position, or None."""
    head = data[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2 or head[1] & 0x18 == 0x08:
        return None
    version = {0x18: 1, 0x10: 2, 0x00: 4}[head[1] & 0x18]  # MPEG 1, 2, and 2.5 with a quarter of the rate
    bits, rate = head[2] >> 4, head[2] >> 2 & 3
    if bits in (0, 15) or rate == 3:
        return None
    samples = MP3_FRAME // min(version, 2)
    kbits = _BIT_RATES[min(version, 2)][bits]
    return samples * 125 * kbits // ((44100, 48000, 32000)[rate] // version) + (head[2] >> 1 & 1), samples


def folder_trouble(path: Path) -> str | None:
    """Why a folder cannot be listed; None if it can."""
    try:
        with os.scandir(path) as entries:
            list(entries)  # all: a damaged disk may fail halfway
    except OSError as error:
        return f"cannot be listed: {error.strerror}"
    return None


def plain_name(path: Path) -> str:
    """The path as one printable line."""
    return str(path) if str(path).isprintable() else repr(str(path))


def native_name(path: Path) -> str | bytes:
    """A path for libsndfile; soundfile's own encoding rejects names that are not valid UTF-8."""
    return os.fsencode(path) if os.name == "posix" else str(path)


def bad_file(path: Path, reason: str) -> DataError:
    """The error for a file that cannot be used, as one line."""
    return DataError(f"{plain_name(path)}: {reason}")
