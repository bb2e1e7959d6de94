"""Audio containers: which kind of file it is, what can be read from a few of its bytes, and how errors name it."""

import mmap
import os
import shlex
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from earmark.errors import DataError

Bytes = bytes | mmap.mmap

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
"""Suffixes of formats that must be converted first: common on phones, but not read by libsndfile or earmark."""

MP3_FRAME = 1152  # samples

_HEADS = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"\x1aE\xdf\xa3": "Matroska or WebM",
    b"#!AMR": "AMR",
    b"caff": "CAF",
    b"0&\xb2u\x8ef\xcf\x11": "WMA",
}


def checked_kind(path: Path, head: bytes) -> str:
    """Kind of an audio file, if it can be read and has the right suffix; other files are rejected."""
    kind = _kind(head)
    if kind not in ("aiff", "flac", "mp3", "ogg", "wav"):
        target = path.with_suffix(".wav" if path.suffix.lower() == ".flac" else ".flac")
        command = f"ffmpeg -i {shlex.quote(plain_name(path))} -vn {shlex.quote(plain_name(target))}"
        hint = "" if kind in ("text", "unknown or damaged data") else f"; convert it: {command}"
        raise bad_file(path, f"contains {kind}; earmark reads aiff, flac, mp3, ogg, opus and wav{hint}")
    suffix = path.suffix.lower()
    if suffix not in KINDS or KINDS[suffix][0] != kind:
        raise bad_file(path, f"contains {kind}, which does not match its name; rename it to end in .{kind}")
    return kind


def skip_id3(file: IO[bytes]) -> int:
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
    if mp3_frame(head[:4]) is not None:
        return "mp3"
    for start, kind in _HEADS.items():
        if head.startswith(start):
            return kind
    return "text" if head.isascii() and b"\0" not in head else "unknown or damaged data"


def riff_chunks(file: IO[bytes], order: str = "<") -> Iterator[tuple[bytes, int, int]]:
    """Name, stated size and position of each chunk of a wav file, which must be positioned behind its first 12 bytes.

    The file may be read at the position of the chunk's body while the iterator waits. Samples of more than 4 GiB have
    their size in an earlier chunk `ds64` (RF64).
    """
    long_size = None
    while len(head := file.read(8)) == 8:
        name, size = head[:4], struct.unpack(f"{order}I", head[4:])[0]
        body = file.tell()
        if name == b"ds64":
            long_size = min(struct.unpack("<QQ", file.read(16).ljust(16, b"\0"))[1], 1 << 62)  # what seek accepts
            file.seek(body)
        elif name == b"data" and size == 0xFFFFFFFF and long_size is not None:
            size = long_size
        yield name, size, body
        file.seek(body + size + size % 2)


_BIT_RATES = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def mp3_frame(head: bytes) -> tuple[int, int] | None:
    """Bytes and samples of the MPEG layer III frame with these first four bytes, or None."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2 or head[1] & 0x18 == 0x08:
        return None
    if head[2] >> 4 in (0, 15) or head[2] & 0x0C == 0x0C:
        return None
    samples = MP3_FRAME if head[1] & 0x18 == 0x18 else MP3_FRAME // 2
    return samples * mp3_bits(head) // 8 // mp3_rate(head) + (head[2] >> 1 & 1), samples


def mp3_bits(head: bytes) -> int:
    """Bits per second of a frame."""
    return 1000 * _BIT_RATES[1 if head[1] & 0x18 == 0x18 else 2][head[2] >> 4]


def mp3_rate(head: bytes) -> int:
    """Samples per second of a frame."""
    divisor = {0x18: 1, 0x10: 2, 0x00: 4}[head[1] & 0x18]  # MPEG 1, 2, and 2.5
    return (44100, 48000, 32000)[head[2] >> 2 & 3] // divisor


def folder_problem(path: Path) -> str | None:
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
