"""The parallel map: lazy, bounded, interruptible; worker processes end with it."""

import itertools
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
import torch

from earmark import interrupt
from earmark.errors import EarmarkError, WorkerError
from earmark.interrupt import exit_code, interruptible, raising_signals
from earmark.isolation import IsolatedProcess
from earmark.parallel import WeightedSemaphore, _ThreadPool, call_limited, cores, parallel_map

LIMIT = 300  # seconds; only so that nothing waits for ever


@pytest.mark.parametrize("processes", [False, True])
def test_results_and_errors_come_with_their_items(processes):
    with closing(parallel_map(int, ["1", "no", "3"], workers=2, processes=processes)) as results:
        found = dict(results)
    assert (found["1"], found["3"]) == (1, 3)
    assert isinstance(found["no"], ValueError)


def test_items_are_drawn_lazily_and_only_so_many_are_in_flight():
    drawn, given = [], []

    def draw():
        for k in itertools.count():
            drawn.append((k, threading.current_thread()))
            yield k

    with closing(parallel_map(str, draw(), workers=2, limit=3)) as results:
        for k, text in results:
            assert text == str(k)
            given.append(k)
            assert len(drawn) - len(given) < 3
            if len(given) == 20:
                break
    assert {thread for _, thread in drawn} == {threading.main_thread()}


def test_closing_it_tells_the_work_that_runs_and_cancels_what_waits():
    stop, started = threading.Event(), []

    def work(k):
        started.append(k)
        return stop.wait(LIMIT) if k else None

    results = parallel_map(work, range(10), workers=2, limit=8, stop=stop)
    assert next(results) == (0, None)
    begin = time.monotonic()
    results.close()
    assert time.monotonic() - begin < LIMIT
    assert len(started) <= 4


def test_threads_use_one_core_each_and_the_callers_setting_returns():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with closing(parallel_map(lambda _: torch.get_num_threads(), range(3), workers=2)) as results:
            assert [n for _, n in results] == [1, 1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_is_no_ordinary_error_is_raised():
    def leave(_):
        sys.exit(3)

    with closing(parallel_map(leave, [1], workers=1)) as results, pytest.raises(SystemExit):
        next(results)


@pytest.mark.parametrize("processes", [False, True])
def test_ctrl_c_stops_it_between_results(processes):
    before = signal.getsignal(signal.SIGINT)

    def work():
        with closing(parallel_map(time.sleep, [0, 0.2, 0.2], workers=1, processes=processes)) as results:
            next(results)
            signal.raise_signal(signal.SIGINT)  # only noted, even twice
            signal.raise_signal(signal.SIGINT)
            next(results)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("processes", [False, True])
def test_ctrl_c_after_the_last_result_is_not_lost(processes):
    def work():
        with closing(parallel_map(abs, [1], workers=1, processes=processes)) as results:
            for _ in results:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        work()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_busy_processes_are_killed_when_the_caller_fails_or_is_interrupted(error):
    started = []

    def work():
        with closing(parallel_map(time.sleep, [0, 600, 600], workers=1, processes=True)) as results:
            next(results)
            started.extend(multiprocessing.active_children())
            if error is ValueError:
                raise ValueError
            signal.raise_signal(signal.SIGINT)
            next(results)

    begin = time.monotonic()
    with pytest.raises(error):
        work()
    assert time.monotonic() - begin < LIMIT
    assert [process.is_alive() for process in started] == [False]


def test_another_thread_may_use_processes_too():
    found = []
    thread = threading.Thread(target=lambda: found.extend(parallel_map(abs, [-1], workers=1, processes=True)))
    thread.start()
    thread.join(LIMIT)
    assert found == [(-1, 1)]


@pytest.mark.parametrize("idle", [False, True])
def test_a_worker_that_dies_is_one_plain_line(idle):
    """While it works, or between two items."""

    def work():
        items = [0] + 50 * [0 if idle else 60]
        with closing(parallel_map(time.sleep, items, workers=1, processes=True)) as results:
            next(results)
            multiprocessing.active_children()[0].kill()
            for _ in results:
                time.sleep(0.1)

    with pytest.raises(EarmarkError, match=r"^a worker process died, possibly out of memory; run the same command"):
        work()
    with pytest.raises(WorkerError), closing(parallel_map(os._exit, range(9), workers=1, processes=True)) as results:
        list(results)


def test_a_call_in_a_thread_that_takes_too_long_is_given_up():
    released = threading.Event()

    def work(item):
        return released.wait() if item == "hangs" else item

    try:
        allowed = {"hangs": 0.1}
        items = ["hangs", *range(20)]
        results = dict(parallel_map(work, items, workers=1, seconds=lambda item: allowed.get(item, math.inf)))
    finally:
        released.set()
    assert str(results.pop("hangs")) == "no result after 0 s"
    assert results == {item: item for item in range(20)}


def test_a_single_call_can_be_limited():
    released = threading.Event()
    assert call_limited(len, "abc", seconds=math.inf) == 3
    with pytest.raises(ZeroDivisionError):
        call_limited(lambda x: 1 // x, 0, seconds=math.inf)
    try:
        with pytest.raises(WorkerError, match="no result after 0 s"):
            call_limited(lambda _: released.wait(), None, seconds=0.1)
    finally:
        released.set()


@pytest.fixture(scope="module")
def isolated():
    with closing(IsolatedProcess(memory=1 << 28)) as process:
        yield process


def test_an_isolated_process_is_used_again_and_raises_the_errors_of_its_calls(isolated):
    first = isolated.call(eval, "__import__('os').getpid()", seconds=LIMIT)
    assert first != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        isolated.call(int, "x", seconds=LIMIT)
    assert isolated.call(eval, "__import__('os').getpid()", seconds=LIMIT) == first


# an incomplete bytes object, in the file of replies
DIES_WHILE_IT_REPLIES = "[__import__('os').write(3, bytes([128, 5, 66, 16])), __import__('os')._exit(4)]"


@pytest.mark.parametrize(
    ("code", "seconds", "reason"),
    [
        ("__import__('os').abort()", LIMIT, r"the process that read it died \(\w+"),
        ("__import__('os')._exit(3)", LIMIT, r"the process that read it died \(exit code 3\)"),
        (DIES_WHILE_IT_REPLIES, LIMIT, r"the process that read it died \(exit code 4\)"),
        ("__import__('time').sleep(3600)", 1, "no result after 1 s"),
    ],
)
def test_an_isolated_process_that_dies_or_hangs_is_replaced(isolated, capfd, code, seconds, reason):
    with pytest.raises(WorkerError, match=reason):
        isolated.call(eval, code, seconds=seconds)
    assert isolated.call(eval, "print('lost') or 1 + 1", seconds=LIMIT) == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_the_memory_of_an_isolated_process_is_limited(isolated):
    with pytest.raises(MemoryError):
        isolated.call(bytearray, 1 << 30, seconds=LIMIT)
    assert len(isolated.call(bytes, 1 << 20, seconds=LIMIT)) == 1 << 20


def test_an_isolated_process_ends_with_its_owner_even_in_the_middle_of_a_call():
    code = (
        "import os, threading; from earmark.isolation import IsolatedProcess; "
        "process = IsolatedProcess(memory=1 << 28); "
        "print(process.call(eval, \"__import__('os').getpid()\", seconds=60), flush=True); "
        "call = lambda: process.call(eval, \"__import__('time').sleep(3600)\", seconds=3600); "
        "threading.Thread(target=call, daemon=True).start(); input(); os.kill(os.getpid(), 9)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        pid = int(owner.stdout.readline())
        time.sleep(0.5)
        owner.communicate(b"\n")
    end = time.monotonic() + LIMIT
    while is_running(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_time_during_which_the_process_was_suspended_does_not_count(monkeypatch):
    """As with Ctrl-Z: the clock advances by an hour between two checks."""
    clock = [0.0]
    monkeypatch.setattr("earmark.parallel.time.monotonic", lambda: clock[0])
    released = threading.Event()
    pool = _ThreadPool(1)
    future = pool.submit_limited(lambda _: released.wait(), None, 10)
    try:
        while not future.running():
            pass
        for _ in range(5):
            clock[0] += 3600
            pool.abandon_late_calls()
        assert not future.done()
        for _ in range(10):
            clock[0] += 3600
            pool.abandon_late_calls()
        assert isinstance(future.exception(timeout=0), WorkerError)
    finally:
        released.set()
        pool.shutdown()


def test_the_program_does_not_wait_for_a_thread_that_hangs():
    code = """
import threading
from earmark.parallel import parallel_map
hang = lambda _: threading.Event().wait()
print([str(result) for _, result in parallel_map(hang, [0], workers=2, seconds=lambda _: 0.1)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['no result after 0 s']\n", "")


def test_a_semaphore_admits_what_fits_and_what_is_too_large_alone():
    semaphore, active, most = WeightedSemaphore(3), [], []

    def work(weight):
        with semaphore.acquire(weight):
            active.append(weight)
            most.append(sum(active))
            time.sleep(0.01)
            active.remove(weight)

    with closing(parallel_map(work, [1, 2, 1, 5, 1, 1, 1], workers=4)) as results:
        list(results)
    assert max(m for m in most if m != 5) <= 3
    assert len(most) == 7


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the cores of a process cannot be restricted here")
def test_cores_are_those_that_the_process_was_given():
    before = os.sched_getaffinity(0)
    assert cores() == len(before)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_signal_sets_a_flag_that_nested_blocks_share(monkeypatch):
    monkeypatch.setattr(interrupt, "_SAME_REQUEST", 0.0)
    with interruptible() as outer:
        with interruptible() as inner:
            assert not inner
            signal.raise_signal(signal.SIGINT)
        assert outer
        assert outer is inner
        with outer.hold():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with interruptible() as later:
        assert not later


def test_one_request_that_arrives_twice_is_one():
    with interruptible() as interruption:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interruption


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as interruption:
            signal.raise_signal(signal.SIGINT)
            assert not interruption
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_commands_exit_with_the_code_of_their_signal(name, code):
    if not hasattr(signal, name):
        pytest.skip(f"{name} does not exist on this system")
    number = getattr(signal, name)
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored here, as nohup does with SIGHUP")
    with pytest.raises(KeyboardInterrupt), raising_signals():
        signal.raise_signal(number)
    assert exit_code() == code
    with raising_signals(), interruptible() as interruption:
        signal.raise_signal(number)
        assert interruption.signal == number
    assert exit_code() == code
    assert signal.getsignal(number) is before
    with raising_signals():
        assert exit_code() == 130
