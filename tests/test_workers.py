"""Processes that work for this one: they end with it, and leave Ctrl-C to it."""

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from earmark.errors import EarmarkError
from earmark.workers import Workers, cores


@pytest.fixture
def pool(tmp_path):
    return Workers(1, os.chdir, (tmp_path,))


def pid_of(workers):
    return workers.wait([workers.submit(os.getpid)]).pop().result()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_they_begin_as_told_and_answer(tmp_path):
    with Workers(2, os.chdir, (tmp_path,)) as workers:
        running = {workers.submit(pow, x, 2) for x in range(5)} | {workers.submit(os.getcwd)}
        found = []
        while running:
            done = workers.wait(running)
            running -= done
            found += [future.result() for future in done]
    assert sorted(found, key=str) == sorted([0, 1, 4, 9, 16, str(tmp_path)], key=str)
    assert os.getcwd() != str(tmp_path)


def test_what_they_raise_is_raised_where_it_is_asked_for(pool):
    with pool as workers:
        (done,) = workers.wait([workers.submit(int, "no")])
        assert isinstance(done.exception(), ValueError)


def test_ctrl_c_ends_them_and_is_raised_once_that_is_safe(pool):
    before, begin, pids = signal.getsignal(signal.SIGINT), time.monotonic(), []

    def work():
        with pool as workers:
            pids.append(pid_of(workers))
            signal.raise_signal(signal.SIGINT)  # only noted, however often
            signal.raise_signal(signal.SIGINT)
            workers.wait([workers.submit(time.sleep, 600)])

    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - begin < 300
    assert not is_alive(pids[0])
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_at_the_very_end_is_heard(pool):
    def work():
        with pool as workers:
            pid_of(workers)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_mistake_here_does_not_wait_for_them(pool):
    pids, begin = [], time.monotonic()

    def work():
        with pool as workers:
            pids.append(pid_of(workers))
            workers.submit(time.sleep, 600)
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        work()
    assert time.monotonic() - begin < 300
    assert not is_alive(pids[0])


def test_where_ctrl_c_is_ignored_it_stays_so(pool):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pool as workers:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert pid_of(workers)
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_may_have_workers_too(pool):
    found = []

    def work():
        with pool as workers:
            found.append(pid_of(workers))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(300)
    assert len(found) == 1


@pytest.mark.parametrize("after", [0, 60])
def test_a_worker_that_dies_is_one_plain_line(tmp_path, after):
    """While it works, or between two pieces of work; the others end too."""
    pids = []

    def work():
        with Workers(2, os.chdir, (tmp_path,)) as workers:
            pids.append(pid_of(workers))
            last = workers.submit(time.sleep, after)
            os.kill(pids[0], signal.SIGKILL)
            while True:
                workers.wait([last])
                last = workers.submit(time.sleep, 0)

    with pytest.raises(EarmarkError, match=r"^a worker process died, perhaps for want of memory; the same command"):
        work()
    assert not is_alive(pids[0])


def test_work_is_not_given_to_a_pool_that_has_lost_a_worker(pool):
    with pool as workers:
        gone = workers.submit(os._exit, 1)
        assert gone.exception(timeout=300) is not None
        with pytest.raises(EarmarkError, match="a worker process died"):
            workers.submit(os.getpid)


def test_the_end_of_one_pool_leaves_another_alone(pool, tmp_path):
    with pool as workers:
        pid = pid_of(workers)
        with suppress(ValueError), Workers(1, os.chdir, (tmp_path,)) as others:
            other = pid_of(others)
            raise ValueError
        assert not is_alive(other)
        assert pid_of(workers) == pid


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken away here")
def test_cores_are_those_that_the_process_was_given():
    before = os.sched_getaffinity(0)
    assert cores() == len(before)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, before)
