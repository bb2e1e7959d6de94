"""A separate process for many calls of functions that are quick but may crash, such as those of libraries in C++."""

import atexit
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import spawn
from typing import Any, TypeVar

from earmark.errors import WorkerError
from earmark.parallel import (
    blocked_signals,
    call_limited,
    cause,
    ignore_signals,
    limit_memory,
    use_one_torch_thread,
)

__all__ = ["IsolatedProcess"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class IsolatedProcess:
    """A separate process that calls functions, one at a time; it starts with the first call, and again after a crash.

    It does not import the main module, so scripts need no `if __name__ == "__main__":`, and it can be used in any
    process. Functions and arguments must come from other modules. PyTorch runs on one core there, for the same results
    as in the threads of `parallel_map`. Anything that functions print is discarded.
    """

    def __init__(self, *, memory: int) -> None:
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def call(self, function: Callable[[Item], Result], argument: Item, *, seconds: float) -> Result:
        """Call a function, which may take that long and allocate `memory` bytes.

        Its exceptions are raised here. If the process dies or takes too long, a WorkerError gives the reason.
        """
        with self._lock:
            try:
                process = self._running()
                is_error, result = call_limited(_exchange, (process, function, argument), seconds=seconds)
            except (EOFError, OSError, pickle.UnpicklingError):  # the last: it died while it replied
                code = None if self._process is None else self._process.wait()
                self._stop()
                raise WorkerError(f"the process that read it died ({cause(code)})") from None
            except BaseException:  # a late result would be mistaken for that of the next call
                self._stop()
                raise
        if is_error:
            raise result
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process; the next call starts another."""
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        command = [spawn.get_executable(), "-P", "-c", _SERVE]
        with blocked_signals():
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self._stop)
        _send(self._process.stdin, (sys.path, self._memory))
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):  # what the process has not read is not written
                self._process.communicate()
            self._process = None
        atexit.unregister(self._stop)

    def _forget(self) -> None:
        """Called in a fork of this process, which must not use the pipes of its parent."""
        self._process, self._lock = None, threading.Lock()


_SERVE = "import pickle, sys; sys.path[:], memory = pickle.load(sys.stdin.buffer); "
_SERVE += "from earmark.isolation import _serve; _serve(memory)"


def _exchange(call: tuple[subprocess.Popen[bytes], Callable[[Any], Any], Any]) -> Any:
    process, *request = call
    _send(process.stdin, pickle.dumps(request))
    return pickle.load(process.stdout)  # type: ignore[arg-type]


def _send(pipe: Any, message: object) -> None:
    pickle.dump(message, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def _serve(memory: int) -> None:
    """In an isolated process: call what standard input names, send results to standard output; exit at its end."""
    requests = queue.SimpleQueue[bytes]()
    replies = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)  # a library that ends the process may print its reason
    ignore_signals()

    def read() -> None:
        with suppress(EOFError):
            while True:
                requests.put(pickle.load(sys.stdin.buffer))
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            function, argument = pickle.loads(requests.get())
            limit_memory(memory)
            use_one_torch_thread()
            reply = False, function(argument)
        except Exception as error:
            reply = True, error
        _send(replies, reply)
        del reply
