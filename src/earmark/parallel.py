"""A bounded parallel map over threads or processes.

`parallel_map` draws items lazily, keeps a bounded number in flight, and yields each item with its result or exception
as soon as it is available. Close the iterator (`contextlib.closing`) to cancel what has not started.

Ctrl-C and the other signals of `earmark.interrupt` raise KeyboardInterrupt between results. Worker processes ignore
them, since a worker that is interrupted while it starts may block the pool; the parent kills its workers instead, so
they must write files atomically. Workers exit when the parent does. If one dies, for example because memory ran out,
the others are killed and one WorkerError is raised.

A thread cannot be killed. A thread whose call exceeds its time limit is abandoned: another one takes its place, and the
program does not wait for it when it ends.
"""

import atexit
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from itertools import islice
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

from earmark.errors import ArgumentError, WorkerError
from earmark.interrupt import SIGNALS, Interruption, interruptible

__all__ = ["WeightedSemaphore", "call_limited", "cores", "in_flight", "parallel_map", "worker_count"]

_POLL_INTERVAL = 0.1  # seconds between checks for an interruption
_LONGEST_STEP = 1.0  # seconds that count between two checks: the process may have been suspended
_MOST_WORKERS = 1000

Item = TypeVar("Item")
Result = TypeVar("Result")
Handle = TypeVar("Handle", bound=Hashable)


def cores() -> int:
    """Number of cores this process may use, which `taskset` or a batch system can restrict."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(workers: int | None) -> int:
    """Number of workers, checked; one per core if None."""
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers: expected at least 1, got {workers}")
    if workers is not None and workers > _MOST_WORKERS:
        raise ArgumentError(f"workers: expected at most {_MOST_WORKERS}, got {workers}")
    return workers or cores()


def parallel_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int,
    limit: int | None = None,
    processes: bool = False,
    stop: threading.Event | None = None,
    seconds: Callable[[Item], float] = lambda item: math.inf,
) -> Generator[tuple[Item, Result | Exception], None, None]:
    """Apply a function to items in parallel; yields (item, result or exception) in order of completion.

    Items are drawn lazily, in the calling thread, and may be endless; `limit` are in flight, 2 * workers by default.
    Processes are started by `spawn`; threads run PyTorch on one core each. `stop` is set when a map over threads ends
    early, so that a long-running function can poll it and return. A call in a thread that takes longer than `seconds`
    of its item gives a WorkerError.
    """
    bound = limit or 2 * workers
    with (
        interruptible() as interruption,
        _process_pool(workers, function, interruption) if processes else _thread_pool(workers, stop) as executor,
    ):

        def submit(item: Item) -> Future[Result]:
            if isinstance(executor, _ThreadPool):
                return executor.submit_limited(function, item, seconds(item))
            return executor.submit(_call, item)

        wait_for = executor.wait if isinstance(executor, _ThreadPool) else _wait
        with closing(in_flight(items, submit, wait_for, Future.cancel, limit=lambda: bound)) as finished:
            for item, future in finished:
                error = future.exception()
                if error is not None and (isinstance(error, BrokenProcessPool) or not isinstance(error, Exception)):
                    raise error
                yield item, future.result() if error is None else error


def in_flight(
    items: Iterable[Item],
    submit: Callable[[Item], Handle],
    wait: Callable[[Collection[Handle]], Iterable[Handle]],
    cancel: Callable[[Handle], object],
    *,
    limit: Callable[[], int],
) -> Generator[tuple[Item, Handle], None, None]:
    """Submit items lazily, at most `limit()` at a time; yields (item, handle) of those that are done.

    `submit` starts work on an item and returns a handle. `wait` returns those of the handles in flight that are done,
    none after a short time-out. `cancel` is called for the rest when the iterator is closed or the work interrupted.
    """
    source = iter(items)
    running: dict[Handle, Item] = {}
    with interruptible() as interruption:
        try:
            while True:
                interruption.check()
                for item in islice(source, max(0, limit() - len(running))):
                    running[submit(item)] = item
                if not running:
                    break
                for handle in wait(running):
                    yield running.pop(handle), handle
        finally:
            for handle in running:
                cancel(handle)
    interruption.check()


def call_limited(function: Callable[[Item], Result], argument: Item, *, seconds: float) -> Result:
    """Call a function in a thread; a WorkerError if it takes longer than that many seconds."""
    pool = _ThreadPool(1)
    try:
        future = pool.submit_limited(function, argument, seconds)
        with interruptible() as interruption:
            while not pool.wait([future]):
                interruption.check()
        return future.result()
    finally:
        pool.shutdown(wait=False)


def cause(code: int | None) -> str:
    """Why a process ended: the name of a signal, or its exit code."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _wait(running: Collection[Future[Result]]) -> Iterable[Future[Result]]:
    return wait(running, _POLL_INTERVAL, FIRST_COMPLETED).done


class WeightedSemaphore:
    """Limits the total weight of what several threads do at the same time.

    A weight above the limit is admitted when nothing else is running.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def acquire(self, weight: int) -> Iterator[None]:
        """Wait until the weight fits, and hold it for the duration of the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + weight <= self._limit)
            self._used += weight
        try:
            yield
        finally:
            with self._changed:
                self._used -= weight
                self._changed.notify_all()


class _ThreadPool(Executor):
    """Threads that run calls, and are abandoned if a call takes too long; each runs `prepare` first."""

    def __init__(self, workers: int, prepare: Callable[[], None] = lambda: None) -> None:
        self._prepare = prepare
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[Any], Any], Any] | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._running: dict[Future[Any], threading.Thread] = {}
        self._left: dict[Future[Any], tuple[float, float]] = {}  # seconds allowed, and left
        self._checked = time.monotonic()
        self._lock = threading.Lock()
        for _ in range(workers):
            self._start_thread()
        atexit.register(self.shutdown)  # unlike other threads, these do not keep the program from ending by themselves

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        self._threads.add(thread)
        thread.start()

    def submit_limited(self, function: Callable[[Item], Result], item: Item, seconds: float) -> Future[Result]:
        """Call a function in a thread; the result is a WorkerError if that takes longer than `seconds`."""
        future: Future[Result] = Future()
        if seconds < math.inf:
            self._left[future] = seconds, seconds
        self._calls.put((future, function, item))
        return future

    def wait(self, running: Collection[Future[Result]]) -> Iterable[Future[Result]]:
        """Futures that are done, none after a short time-out; abandons calls that exceed their time limit.

        It must be called repeatedly, from one thread.
        """
        done = _wait(running)
        self.abandon_late_calls()
        return done

    def abandon_late_calls(self) -> None:
        """Fail calls that exceed their time limit, and replace their threads."""
        now = time.monotonic()
        step, self._checked = min(now - self._checked, _LONGEST_STEP), now
        for future in [future for future in self._left if future.done()]:
            del self._left[future]
        for future, (allowed, left) in self._left.items():
            self._left[future] = allowed, left - step if future.running() else left
            if left < 0:
                self._abandon(future, WorkerError(f"no result after {allowed:.0f} s"))

    def _abandon(self, future: Future[Any], error: Exception) -> None:
        with self._lock:
            thread = self._running.pop(future, None)
            if thread is not None and not future.done():
                self._threads.discard(thread)
                future.set_exception(error)
                self._start_thread()

    def _work(self) -> None:
        self._prepare()
        while (call := self._calls.get()) is not None:
            future, function, item = call
            if not future.set_running_or_notify_cancel():
                continue
            with self._lock:
                self._running[future] = threading.current_thread()
            result, error = None, None
            try:
                result = function(item)
            except BaseException as problem:
                error = problem
            with self._lock:
                if self._running.pop(future, None) is None:
                    return  # abandoned meanwhile
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            del call, future, item, result, error  # not kept while this waits for the next call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the calls that are running; others are not started."""
        while not self._calls.empty():
            with suppress(queue.Empty):
                if call := self._calls.get_nowait():
                    call[0].cancel()
        for _ in self._threads:
            self._calls.put(None)
        for thread in list(self._threads) if wait else ():
            thread.join()
        atexit.unregister(self.shutdown)


@contextmanager
def _thread_pool(workers: int, stop: threading.Event | None) -> Iterator[Executor]:
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    with _ThreadPool(workers, use_one_torch_thread) as pool:
        try:
            yield pool
        finally:
            if stop is not None:
                stop.set()
            pool.shutdown(cancel_futures=True)
            if torch:
                torch.set_num_threads(threads)


def use_one_torch_thread() -> None:
    """Parallel items are faster than parallel operations, and results do not depend on the number of threads."""
    if torch := sys.modules.get("torch"):  # not loaded for ONNX models
        torch.set_num_threads(1)


@contextmanager
def _process_pool(workers: int, function: Callable[..., Any], interruption: Interruption) -> Iterator[Executor]:
    context = _Context()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (function,))
    with interruption.hold():  # an exception inside the executor's own code could leave it waiting forever
        try:
            yield pool
        except BaseException as error:
            for process in context.started:
                if process.is_alive():
                    process.kill()
            if not isinstance(error, BrokenProcessPool):
                raise
            raise WorkerError(
                "a worker process died, possibly out of memory; run the same command again to continue"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Block the signals while a process is started, which inherits the mask of its parent."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Process(SpawnProcess):
    """A process that starts with the signals blocked."""

    def start(self) -> None:
        with blocked_signals():
            super().start()


class _Context(SpawnContext):
    """Starts the processes of one pool and keeps track of them."""

    def __init__(self) -> None:
        self.started: list[_Process] = []

    def Process(self, *args: Any, **options: Any) -> _Process:  # type: ignore[override]
        self.started.append(_Process(*args, **options))
        return self.started[-1]


_function: Callable[[Any], Any] | None = None  # in a worker process


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    ignore_signals()
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def ignore_signals() -> None:
    """Ignore the signals, where they cannot be blocked and in processes that a worker starts."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def limit_memory(memory: int) -> None:
    """Allow this process to allocate that many bytes more than it has now, where the system can limit it."""
    with suppress(ImportError, OSError, ValueError, StopIteration):
        import resource

        with open("/proc/self/status", encoding="ascii") as file:
            used = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData"))
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, hard))


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)


def _exit_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
