"""What differs between operating systems in writing files durably, in one place.

Other differences are handled where they occur: signals that Windows lacks in `interrupt`, memory limits and the number
of usable cores in `parallel`. `docs/architecture.md` lists them all.
"""

import os
import sys
import time
from pathlib import Path

from earmark.errors import ArgumentError

__all__ = ["append_line", "flush", "link_error", "refuse_link", "replace", "sync"]

_ATTEMPTS, _PAUSE = 20, 0.1  # seconds


def sync(handle: int) -> None:
    """Wait until an open file is on the disk. On macOS, fsync alone leaves it in the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
        except OSError:  # a file system without it, such as one of a network
            pass
    os.fsync(handle)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; Windows cannot do that for folders."""
    is_windows = os.name == "nt"
    if is_windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)  # Windows flushes only what may be written
    try:
        sync(handle)
    finally:
        os.close(handle)


def refuse_link(path: Path) -> None:
    """Refuse to write through a symbolic link."""
    if path.is_symlink():
        raise link_error(path)


def link_error(path: Path) -> ArgumentError:
    """What is raised instead of writing through a symbolic link."""
    return ArgumentError(f"{path}: refusing to write through a symbolic link; remove it or choose another place")


def append_line(path: Path, line: bytes) -> None:
    """Append a line, which ends with a line feed, to a file and wait until it is on the disk.

    If that fails, for example because the disk is full, nothing is appended. If the last line of the file is
    incomplete, a line feed is written first. Symbolic links are rejected.
    """
    refuse_link(path)
    if path.exists() and not path.is_file():
        raise ArgumentError(f"{path}: expected a file; remove it or choose another place")
    # Windows would replace line ends without O_BINARY, and has no O_NOFOLLOW
    flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | flags, 0o666)
    try:
        size = os.fstat(handle).st_size
        os.lseek(handle, max(size - 1, 0), os.SEEK_SET)
        if size and os.read(handle, 1) != b"\n":
            line = b"\n" + line
        try:
            written = os.write(handle, line)
            if written < len(line):
                os.write(handle, line[written:])  # raises the error of a full disk
            sync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def replace(source: Path, target: Path) -> None:
    """Rename a file over another one. Windows fails while another process reads it: wait for up to two seconds."""
    for attempt in range(_ATTEMPTS):
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if os.name != "nt" or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE)
