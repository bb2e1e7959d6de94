"""Processes of Python that start at once, for tests of commands that are killed, interrupted or started side by side.

Importing PyTorch and earmark takes a process seconds, more than most of these tests need. `Popen` and `run` are those
of `subprocess` for commands of this Python (-c, -m or a file), but such a process is forked from one that has imported
both already. In all else it is a process of its own: with its streams, environment, signals and exit code. What is
imported when, and options of Python itself, are not for these but for `subprocess`. So are other systems than Linux,
where the functions are those of `subprocess`.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from functools import cache
from types import ModuleType
from typing import Any

PIPE, STDOUT = subprocess.PIPE, subprocess.STDOUT
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_LIMIT = 1 << 20  # bytes of a request
_one_at_a_time = threading.Lock()


class _Forked(subprocess.Popen):
    """A child of this process that another one has forked; all but its start is as usual."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        *_, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = rest[:9]
        start_new_session = rest[14]
        assert args[0] == sys.executable, args
        assert not any((shell, preexec_fn, pass_fds))
        request = {
            "words": [os.fspath(word) for word in args[1:]],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "session": bool(start_new_session),
        }
        streams = [given if given != -1 else usual for usual, given in enumerate((p2cread, c2pwrite, errwrite))]
        prctl = ctypes.CDLL(None).prctl
        with _one_at_a_time:
            prctl(_SUBREAPER, 1, 0, 0, 0)  # the process is orphaned, and becomes a child of this one
            try:
                socket.send_fds(_server(), [json.dumps(request).encode()], streams)
                self.pid = int.from_bytes(_server().recv(4), "little")
            finally:
                prctl(_SUBREAPER, 0, 0, 0, 0)
        assert self.pid, "the process that forks is gone"
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


Popen = _Forked if sys.platform == "linux" else subprocess.Popen


def run(args: list[str], *, timeout: float | None = None, **options: Any) -> subprocess.CompletedProcess:
    """As `subprocess.run`, without input."""
    if options.pop("capture_output", False):
        options |= {"stdout": PIPE, "stderr": PIPE}
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


@cache
def _server() -> socket.socket:
    """A connection to the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, __file__, str(theirs.fileno())]
    server = subprocess.Popen(words, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    ours.settimeout(300)

    @atexit.register
    def stop() -> None:
        ours.close()
        server.wait()

    return ours


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork at every request, and return it in the new process."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, _LIMIT, 3)
        if not message:
            os._exit(0)
        read, write = os.pipe()
        between = os.fork()
        if not between:
            pid = os.fork()
            if not pid:
                os.close(read)
                os.close(write)
                connection.close()
                for usual, given in enumerate(streams):
                    os.dup2(given, usual)
                    os.close(given)
                return json.loads(message)
            os.write(write, pid.to_bytes(4, "little"))
            os._exit(0)
        os.close(write)
        os.waitpid(between, 0)  # from here on the new process is the test's
        connection.send(os.read(read, 4))
        for descriptor in (read, *streams):
            os.close(descriptor)


def _become(request: dict[str, Any]) -> list[str]:
    """Make this process what the request asks for; returns the words after `python`."""
    import torch

    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    added = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in added if path not in sys.path]
    os.environ.clear()
    os.environ.update(request["env"])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "0")) or torch.get_num_threads())
    through = {"write_through": bool(os.environ.get("PYTHONUNBUFFERED")), "line_buffering": os.isatty(1)}
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(**through)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    return request["words"]


def _start(words: list[str]) -> None:
    kind, *rest = words
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif kind == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(kind))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    for module in ("torch._dynamo", "earmark.cli.app", "earmark.training.run"):  # the first for every optimiser
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    del sys.path[0]  # the folder of this file
    _start(_become(_serve(socket.socket(fileno=int(sys.argv[1])))))
