"""`QuietFile`: a sound file whose decoder prints nothing.

libmpg123, with which libsndfile decodes mp3, prints notes about damaged files to standard error, and libsndfile cannot
turn them off. They are written to `stderr`, a variable of the C library, which is set to the null device while
libsndfile is running. File descriptor 2 and `sys.stderr` do not change, so that output of Python from other threads is
not lost.

The GNU C library documents that this variable can be set. With others, where it may be read-only, notes are printed.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import soundfile

from earmark.audio.resampling import Samples


class _Redirection:
    """Whether `stderr` points to the null device: while at least one thread needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stderr, self._null = _streams()
        self._usual = self._stderr.value
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    @contextmanager
    def silent(self) -> Iterator[None]:
        with self._lock:
            if not self._users and self._null:
                self._usual, self._stderr.value = self._stderr.value, self._null
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and self._null:
                    self._stderr.value = self._usual

    def _reset(self) -> None:
        """Called in a fork of this process, which has none of its other threads."""
        if self._users and self._null:
            self._stderr.value = self._usual
        self._lock, self._users = threading.Lock(), 0


def _streams() -> tuple[ctypes.c_void_p, int | None]:
    """The variable `stderr` and a stream to the null device; None where the variable cannot be set."""
    try:
        library = ctypes.CDLL(None)
        if not hasattr(library, "gnu_get_libc_version"):
            return ctypes.c_void_p(), None
        library.fopen.argtypes, library.fopen.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_void_p
        return ctypes.c_void_p.in_dll(library, "stderr"), library.fopen(os.devnull.encode(), b"we")
    except (OSError, TypeError, ValueError):  # Windows has no library of that kind
        return ctypes.c_void_p(), None


_redirection = _Redirection()


class QuietFile(soundfile.SoundFile):  # type: ignore[misc]
    """A sound file, for reading."""

    def __init__(self, file: Any) -> None:
        with _redirection.silent():
            super().__init__(file)

    def read(self, *args: Any, **options: Any) -> Samples:
        """Read as `soundfile.SoundFile` does."""
        with _redirection.silent():
            return super().read(*args, **options)  # type: ignore[no-any-return]

    def seek(self, *args: Any) -> int:
        """Seek as `soundfile.SoundFile` does."""
        with _redirection.silent():
            return super().seek(*args)  # type: ignore[no-any-return]
