"""Processes that work for this one, end with it, and leave Ctrl-C to it.

A terminal sends Ctrl-C to all processes. A worker that is interrupted while it starts, or takes work, prints where it
was and can leave the others waiting for ever; an executor that is interrupted while it gives out work or shuts down may
never end. (`timeout -s INT` sends it twice.) So workers never hear it, and the parent only notes it, ends them, and
raises KeyboardInterrupt when that is safe. What they write must therefore be whole or not there at all.

A worker that dies, as a system short of memory lets it, takes the pool with it: the others are ended, and the error is
one plain line.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from earmark.errors import WorkerError

__all__ = ["Workers", "cores"]

_LOOK_EVERY = 0.1  # seconds between looks whether Ctrl-C was pressed

P = ParamSpec("P")
R = TypeVar("R")


def cores() -> int:
    """How many cores this process may use: not all, where it was given some (taskset, a batch system)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        self._context = _Context()
        self._pool = ProcessPoolExecutor(count, self._context, _begin, (begin, arguments))
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
        """Give out work; WorkerError where a worker has died."""
        try:
            return self._pool.submit(function, *args, **options)
        except BrokenProcessPool as error:
            raise _death() from error

    def wait(self, running: Iterable[Future[R]]) -> set[Future[R]]:
        """Those that are done, as soon as one is.

        KeyboardInterrupt is raised where Ctrl-C was pressed, WorkerError where a worker has died.
        """
        futures = list(running)
        while not self._asked:
            done = wait(futures, _LOOK_EVERY, FIRST_COMPLETED).done
            if done and not self._asked:
                for future in done:
                    if isinstance(error := future.exception(), BrokenProcessPool):
                        raise _death() from error
                return done
        raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        try:
            if kind is not None:  # at once, in the middle of their work
                for process in self._context.made:
                    if process.is_alive():
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
    """Makes the processes of one pool, and remembers them."""

    def __init__(self) -> None:
        self.made: list[_Worker] = []

    def Process(self, *args: Any, **options: Any) -> _Worker:  # type: ignore[override]
        self.made.append(_Worker(*args, **options))
        return self.made[-1]


def _death() -> WorkerError:
    return WorkerError("a worker process died, perhaps for want of memory; the same command goes on")


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
