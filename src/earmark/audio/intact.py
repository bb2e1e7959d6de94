"""Whether the sound in a file is intact: `examine`.

libsndfile silently shortens truncated files, guesses lengths, skips damaged parts and follows damaged headers. This
walk reads every page of an ogg and every frame of an mp3, and of other files what states their length. It is cached by
size, modification time and inode, because a long recording is opened once for each excerpt. mutagen does not replace
it: it accepts files that are cut off, reads neither RF64 nor RIFX, and estimates the length of an mp3 without a header.
"""

import mmap
import stat
import struct
from functools import lru_cache
from pathlib import Path
from typing import IO

import soundfile

from earmark.audio import flac, mp3, ogg
from earmark.audio.containers import bad_file, checked_kind, folder_problem, riff_chunks, skip_id3
from earmark.audio.pieces import Contents, EntryPoint, Gap, Piece, PieceFile
from earmark.audio.quiet import QuietFile
from earmark.errors import DataError

_WALKS = {"flac": flac.walk, "mp3": mp3.walk, "ogg": ogg.walk}


def examine(path: Path, *, with_flac: bool) -> Contents:
    """Gaps in the sound of a file, and its intact pieces; reject what is not audio, misnamed or has a damaged header.

    The frames of a flac file are only examined if requested: its decoder notices damage by itself.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise bad_file(path, folder_problem(path) or "expected a file, got a folder")
        if not stat.S_ISREG(status.st_mode):
            raise bad_file(path, "is not a regular file")
        if not status.st_size:
            with path.open("rb"):
                raise bad_file(path, "is empty: 0 bytes")
        return _examined(path, (status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino), with_flac)
    except soundfile.SoundFileError as error:
        raise bad_file(path, f"damaged, truncated or without samples: {reason_of(error)}") from error
    except FileNotFoundError as error:
        raise bad_file(path, "no such file") from error
    except OSError as error:
        raise bad_file(path, f"cannot be read: {error.strerror}") from error
    except DataError:
        raise
    except ValueError as error:
        raise bad_file(path, f"is not a valid file name: {error}") from error


@lru_cache(maxsize=64)
def _examined(path: Path, stamp: tuple[int, ...], with_flac: bool) -> Contents:
    with path.open("rb") as file:
        start = skip_id3(file)
        kind = checked_kind(path, file.read(4096))
        if kind == "wav":
            return _examine_wav(path, file, start, stamp[0])
        if kind == "aiff":
            return _examine_aiff(path, file, start, stamp[0])
        if kind == "flac" and not with_flac:
            return Contents()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _WALKS[kind](path, data, start)


def _examine_wav(path: Path, file: IO[bytes], start: int, size: int) -> Contents:
    """Compare the stated size of the data chunk with the file."""
    file.seek(start)
    order = ">" if file.read(12).startswith(b"RIFX") else "<"
    bytes_per_second = 0
    for name, stated, body in riff_chunks(file, order):
        if name == b"fmt ":
            rate, bytes_per_second = struct.unpack(f"{order}II", file.read(12)[4:].ljust(8, b"\0"))
        if name != b"data":
            continue
        actual = size - body
        is_unknown = stated in (0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000)  # written to a pipe
        if not stated and actual:
            raise bad_file(path, f"its header was never completed: states no samples, contains {actual} bytes")
        if is_unknown or stated <= actual:
            break
        if not actual or not bytes_per_second:
            raise bad_file(path, f"truncated: expected {stated} bytes of samples, got {actual}")
        return _cut(path, size, stated * rate // bytes_per_second)
    return Contents()


def _examine_aiff(path: Path, file: IO[bytes], start: int, size: int) -> Contents:
    """Compare the size stated in the first bytes with the file."""
    file.seek(start + 4)
    stated = struct.unpack(">I", file.read(4).ljust(4, b"\0"))[0]
    actual = size - start - 8
    if stated <= actual:
        return Contents()
    file.seek(start + 12)
    for name, _, _ in riff_chunks(file, ">"):
        if name == b"COMM":
            return _cut(path, size, struct.unpack(">I", file.read(6)[2:].ljust(4, b"\0"))[0])
    raise bad_file(path, f"truncated: expected {stated} bytes, got {actual}")


def _cut(path: Path, size: int, stated: int) -> Contents:
    """A file of `size` bytes that ends before its stated number of samples does."""
    with PieceFile(path, b"", 0, size) as raw, QuietFile(raw) as file:
        rate, samples = file.samplerate, file.frames
    if not samples:
        raise bad_file(path, "truncated: contains no samples")
    piece = Piece(0, samples, size, (EntryPoint(0, 0, b"", 0),), can_seek=True)
    gap = Gap(samples / rate, max(samples, stated) / rate, "truncated")
    return Contents(max(samples, stated), (piece,), (gap,))


def reason_of(error: soundfile.SoundFileError) -> str:
    """The message of libsndfile, without a full stop."""
    return str(getattr(error, "error_string", error)).rstrip(".")
