"""Ctrl-C, SIGTERM and SIGHUP stop long work without losing anything.

Inside `interruptible()`, the first signal only sets a flag; loops poll it between steps, save their state and stop. A
second signal raises KeyboardInterrupt at once. Elsewhere in the command line, which runs inside `raising_signals()`,
every signal raises KeyboardInterrupt.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["SIGNALS", "Interrupted", "Interruption", "exit_code", "interruptible", "raising_signals"]

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a process to stop."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_SAME_REQUEST = 0.5  # seconds; `timeout -s INT` signals the process and then its group, so one request arrives twice

_active: Interruption | None = None  # of the outermost `interruptible` block
_last_signal: int = signal.SIGINT


class Interrupted(KeyboardInterrupt):
    """What signals raise. Python ends with SIGINT, whatever the exit code, if a plain KeyboardInterrupt left `exec`."""


class Interruption:
    """A request to stop; true once a signal has arrived."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._arrived = 0.0
        self._holds = 0
        self._is_waiting = False

    def __bool__(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        """Raise KeyboardInterrupt if a stop was requested."""
        if self:
            raise KeyboardInterrupt

    def wait(self, function: Callable[[Argument], Result], argument: Argument) -> Result | None:
        """Call a function that blocks and cannot poll; None if a stop is requested before or meanwhile."""
        self._is_waiting = True
        try:
            return None if self else function(argument)
        except KeyboardInterrupt:
            if not self:
                raise
            return None
        finally:
            self._is_waiting = False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Do not raise inside this block, however many signals arrive: for code that polls and must not end halfway."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def _receive(self, number: int, frame: object) -> None:
        global _last_signal
        now = time.monotonic()
        if self.signal is None:
            self.signal, self._arrived, _last_signal = number, now, number
            if self._is_waiting:
                raise Interrupted
        elif not self._holds and now - self._arrived > _SAME_REQUEST:
            raise Interrupted


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Turn signals into a flag for the duration of the block; nested blocks share the outermost one's.

    Outside the main thread, where Python delivers no signals, the flag stays unset. Ignored signals stay ignored. If
    the block ends normally after a signal whose default action is to end the process, that action is taken then.
    """
    global _active
    if threading.current_thread() is not threading.main_thread():
        yield Interruption()
        return
    if _active is not None:
        yield _active
        return
    interruption = Interruption()
    with _handling(interruption._receive) as previous:
        _active = interruption
        try:
            yield interruption
        finally:
            _active = None
    if interruption.signal is not None and previous[interruption.signal] is signal.SIG_DFL:
        signal.raise_signal(interruption.signal)


@contextmanager
def raising_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP too, and remember the signal for `exit_code`."""
    global _last_signal

    def receive(number: int, frame: object) -> None:
        global _last_signal
        _last_signal = number
        raise Interrupted

    _last_signal = signal.SIGINT
    with _handling(receive):
        yield


def exit_code() -> int:
    """Exit code of an interrupted command: 128 plus the signal, so 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + _last_signal


@contextmanager
def _handling(handler: Any) -> Iterator[dict[int, Any]]:
    """Handle all signals that are not ignored, in the main thread; yields the previous handlers."""
    current = {number: signal.getsignal(number) for number in SIGNALS}
    previous = {number: old for number, old in current.items() if old not in (signal.SIG_IGN, None)}
    if threading.current_thread() is not threading.main_thread():
        previous = {}
    for number in previous:
        signal.signal(number, handler)
    try:
        yield previous
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
