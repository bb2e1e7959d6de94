"""Processes that work for this one, end with it, and leave Ctrl-C to it.

A terminal sends Ctrl-C to all processes. A worker that is interrupted while it starts, or takes work, prints where it
was and can leave the others waiting for ever; an executor that is interrupted while it gives out work or shuts down may
never end. (`timeout -s INT` sends it twice.) So workers never hear it, and the parent only notes it, ends them, and
raises KeyboardInterrupt when that is safe. What they write must therefore be whole or not there at all.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import active_children, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

__all__ = ["Workers"]

_LOOK_EVERY = 0.1  # seconds between looks whether Ctrl-C was pressed

P = ParamSpec("P")
R = TypeVar("R")


class Workers:
    """A pool of processes, to be used in a `with` block.

    Parameters
    ----------
    count
        How many.
    begin, arguments
        What each of them calls first.
    """

    def __init__(self, count: int, begin: Callable[..., None], arguments: tuple[Any, ...] = ()) -> None:
        self._pool = ProcessPoolExecutor(count, _Context(), _begin, (begin, arguments))
        self._asked = False
        self._before: Any = None

    def __enter__(self) -> Workers:
        in_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if in_main and before not in (signal.SIG_IGN, None):  # else nobody presses it, or it is not to be heard
            self._before = before
            signal.signal(signal.SIGINT, self._ask)
        return self

    def submit(self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs) -> Future[R]:
        """Give out work."""
        return self._pool.submit(function, *args, **options)

    def wait(self, running: Iterable[Future[R]]) -> set[Future[R]]:
        """Those that are done, as soon as one is; KeyboardInterrupt where Ctrl-C was pressed."""
        futures = list(running)
        while not self._asked:
            done = wait(futures, _LOOK_EVERY, FIRST_COMPLETED).done
            if done and not self._asked:
                return done
        raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        try:
            if kind is not None:  # at once, in the middle of their work
                for process in active_children():
                    if isinstance(process, _Worker):
                        process.kill()
            self._pool.shutdown(cancel_futures=True)
        finally:
            if self._before is not None:
                signal.signal(signal.SIGINT, self._before)
        if self._asked and kind is None:  # too late to end anything here, but the caller may have more to do
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: object) -> None:
        self._asked = True


class _Worker(SpawnProcess):
    """A process that never hears Ctrl-C."""

    def start(self) -> None:
        if not hasattr(signal, "pthread_sigmask"):
            super().start()
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process begins with its parent's mask
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    Process = _Worker


def _begin(begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems on which it cannot be blocked
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    begin(*arguments)


def _leave_with_parent() -> None:
    """End when the parent does, however it ends, instead of working on for nobody."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
