"""What the bytes of a file say before anything is decoded: what it holds, whether it is all there.

libsndfile shortens truncated files, guesses lengths and follows damaged headers without a word. These checks read a few
bytes at the beginning and the end (of some mp3 files, the head of every frame) and refuse what cannot be heard whole.
"""

from __future__ import annotations

import mmap
import os
import re
import shlex
import stat
import struct
from functools import lru_cache
from pathlib import Path
from typing import IO

from earmark.errors import DataError

__all__ = [
    "FOREIGN",
    "KINDS",
    "MP3_FRAME",
    "bad_file",
    "check_container",
    "folder_trouble",
    "native_name",
    "plain_name",
]

# suffix: what the file holds, and what libsndfile calls container and default coding when writing
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
"""Suffixes of what telephones and others record and libsndfile, or earmark, cannot read: to be converted first."""

MP3_FRAME = 1152  # samples

_FOREIGN_HEADS = {
    b"\x1aE\xdf\xa3": "Matroska or WebM",
    b"#!AMR": "AMR",
    b"caff": "CAF",
    b"0&\xb2u\x8ef\xcf\x11": "WMA",
}


def check_container(path: Path) -> int | None:
    """Refuse what is no sound, misnamed or cut off; count the samples where libsndfile would only guess (some mp3)."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise bad_file(path, folder_trouble(path) or "is a folder, a file was expected")
        if not stat.S_ISREG(status.st_mode):
            raise bad_file(path, "is not a regular file")
        with path.open("rb") as file:
            if not status.st_size:
                raise bad_file(path, "is empty: 0 bytes")
            start = _skip_id3(file)
            head = file.read(4096)
            foreign = _foreign_kind(head)
            kind = foreign or _kind(head)
            suffix = path.suffix.lower()
            if kind not in ("aiff", "flac", "mp3", "ogg", "wav"):
                remedy = f"; convert it: {_conversion(path)}" if foreign else ""
                raise bad_file(path, f"holds {kind}; earmark reads aiff, flac, mp3, ogg, opus and wav{remedy}")
            if suffix not in KINDS or KINDS[suffix][0] != kind:
                raise bad_file(path, f"holds {kind}, which its name does not say; rename it to end in .{kind}")
            if kind == "wav":
                _check_wav(path, file, start, status.st_size)
            elif kind == "aiff":
                _check_aiff(path, file, start, status.st_size)
            elif kind == "ogg":
                _check_ogg(path, file, start, status.st_size)
            elif kind == "mp3":
                return _count_mp3(path, file, start, status)
    except DataError:
        raise
    except FileNotFoundError as error:
        raise bad_file(path, "there is no such file") from error
    except OSError as error:
        raise bad_file(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise bad_file(path, f"is no name of a file: {error}") from error
    return None


def _skip_id3(file: IO[bytes]) -> int:
    """Move past tags that some programs put in front of anything, and the silence of bytes after them."""
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
    """What a file holds, by how it begins."""
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    known = {b"fLaC": "flac", b"OggS": "ogg"}
    if head[:4] in known:
        return known[head[:4]]
    if _mp3_frame(head, 0) is not None:
        return "mp3"
    if head.isascii() and b"\0" not in head:
        return "text"
    return "nothing known, or is damaged at its beginning"


def _foreign_kind(head: bytes) -> str | None:
    """What a file holds that is sound, and that only a conversion makes readable."""
    if head[4:8] == b"ftyp":
        return "3GP (AMR or AAC)" if head[8:11] == b"3gp" else "MP4 (AAC or ALAC)"
    if head[:1] == b"\xff" and head[1:2] in (b"\xf0", b"\xf1", b"\xf8", b"\xf9"):  # as of mp3, but of layer 0
        return "AAC"
    return next((kind for start, kind in _FOREIGN_HEADS.items() if head.startswith(start)), None)


def _conversion(path: Path) -> str:
    """The command that makes a file readable, beside it; without any video or cover."""
    target = path.with_suffix(".wav" if path.suffix.lower() == ".flac" else ".flac")
    return f"ffmpeg -i {shlex.quote(plain_name(path))} -vn {shlex.quote(plain_name(target))}"


def _check_wav(path: Path, file: IO[bytes], start: int, size: int) -> None:
    """libsndfile shortens a truncated wav without a word: compare the data chunk with the file."""
    file.seek(start)
    order = ">" if file.read(12).startswith(b"RIFX") else "<"
    long = None
    while len(head := file.read(8)) == 8:
        name, promised = head[:4], struct.unpack(f"{order}I", head[4:])[0]
        body = file.tell()
        if name == b"ds64":
            long = struct.unpack("<QQ", file.read(16).ljust(16, b"\0"))[1]
        if name == b"data":
            there = size - body
            if promised == 0xFFFFFFFF and long is not None:
                promised = long
            elif promised in (0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000):
                return  # what programs write into a pipe, not knowing the length yet
            if promised > there:
                raise bad_file(path, f"truncated: {promised} bytes of samples promised, {there} there")
            if not promised and there:
                raise bad_file(path, f"its header was never completed: no samples promised, {there} bytes there")
            return
        file.seek(body + promised + promised % 2)


def _check_aiff(path: Path, file: IO[bytes], start: int, size: int) -> None:
    """An aiff says in its first bytes how long it is."""
    file.seek(start + 4)
    promised, there = struct.unpack(">I", file.read(4).ljust(4, b"\0"))[0], size - start - 8
    if promised > there:
        raise bad_file(path, f"truncated: {promised} bytes promised, {there} there")


def _check_ogg(path: Path, file: IO[bytes], start: int, size: int) -> None:
    """An ogg ends with a page that says so, of the stream it began with; libsndfile reads no further streams."""
    file.seek(start)
    first = file.read(27)
    file.seek(max(start, size - (1 << 17)))  # two of the longest pages there can be
    tail = file.read()
    page = tail[max(0, tail.rfind(b"OggS")) :]
    sizes = page[27 : 27 + page[26]] if len(page) > 26 else b""
    if len(page) < 27 or len(page) < 27 + page[26] + sum(sizes) or not page[5] & 4:
        raise bad_file(path, "truncated: the page that ends an ogg is missing")
    if page[14:18] != first[14:18]:
        raise bad_file(path, "holds several streams, of which only the first could be heard; split it or convert it")


def _count_mp3(path: Path, file: IO[bytes], start: int, status: os.stat_result) -> int | None:
    """Samples in the frames of an mp3; None if its first frame is a header that tells libsndfile."""
    size = status.st_size
    file.seek(start)
    head = file.read(200)
    tag = re.search(rb"Xing|Info", head[:48])
    if tag:
        flags, *fields = struct.unpack_from(">III", head.ljust(200, b"\0"), tag.end())
        promised = fields[flags & 1] if flags & 2 else 0
        if promised > size - start:
            raise bad_file(path, f"truncated: {promised} bytes of mp3 promised, {size - start} there")
        return None
    return _count_frames(path, start, size, (status.st_mtime_ns, status.st_dev, status.st_ino))


@lru_cache(maxsize=256)
def _count_frames(path: Path, start: int, size: int, stamp: tuple[int, ...]) -> int:
    """Samples in the frames of an mp3 from byte `start` on.

    Remembered for a file of this size and stamp: a long recording is opened for each stretch of it that is read, and
    would be walked through from end to end each time.
    """
    count = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        while (frame := _mp3_frame(data, start)) is not None:
            start += frame[0]
            count += frame[1]
        rest = data[min(start, size) : start + 4096]
    if start > size:
        raise bad_file(path, "truncated: the last frame of the mp3 is not whole")
    if rest.strip(b"\0") and not rest.startswith((b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3")):
        raise bad_file(path, f"damaged: no frame of mp3 at byte {start}")
    return count


_BIT_RATES = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def _mp3_frame(data: bytes | mmap.mmap, at: int) -> tuple[int, int] | None:
    """Bytes and samples of the frame of MPEG layer III that begins here, if one does."""
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
    """Why a folder cannot be looked into; None if it can."""
    try:
        with os.scandir(path) as entries:
            for _ in entries:  # a damaged card says so in the middle
                pass
    except OSError as error:
        return f"cannot be looked into: {error.strerror}"
    return None


def plain_name(path: Path) -> str:
    """The name, on one line whatever is in it."""
    return str(path) if str(path).isprintable() else repr(str(path))


def native_name(path: Path) -> str | bytes:
    """A name for libsndfile, which soundfile encodes too strictly where names may be any bytes."""
    return os.fsencode(path) if os.name == "posix" else str(path)


def bad_file(path: Path, reason: str) -> DataError:
    """The error that names a file, on one line whatever its name is, and says what is wrong with it."""
    return DataError(f"{plain_name(path)}: {reason}")
