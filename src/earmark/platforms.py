"""What differs between operating systems in writing files durably, in one place.

Other differences are handled where they occur: signals that Windows lacks in `interrupt`, memory limits and the number
of usable cores in `parallel`. `docs/architecture.md` lists them all.
"""

import os
import sys
import time
from pathlib import Path

__all__ = ["flush", "open_appending", "replace", "sync"]

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


def open_appending(path: Path) -> int:
    """A handle to read and append bytes; Windows would replace line ends without O_BINARY."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)


def replace(source: Path, target: Path) -> None:
    """Rename a file over another one. Windows refuses while another process reads it: wait for up to two seconds."""
    for attempt in range(_ATTEMPTS):
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if os.name != "nt" or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE)
