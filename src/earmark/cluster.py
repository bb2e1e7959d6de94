"""Detection on a Ray cluster (extra `cluster`).

`RayExecutor` scores the same spans as `earmark.detection.spans.LocalExecutor`, with identical results. Each span is a
Ray task; if its process or machine is lost, it is retried elsewhere. Two tasks per core are in flight, one running and
one waiting. Machines may join and leave.

All machines need the same version of earmark, and the sound files at the same paths. The model is sent to them; every
process loads it once. Each task uses one core, and a share of a GPU if the cluster has GPUs.

Anyone who can reach a Ray cluster can run programs on it. A cluster started by `local` listens only on the loopback
interface and requires a token. To join a cluster that requires one, set RAY_AUTH_MODE=token. A token file that other
users can read is rejected. See docs/cluster.md.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import os
import platform
import re
import secrets
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from earmark.audio.containers import plain_name
from earmark.detection.spans import Results, Span, score_span
from earmark.errors import ArgumentError, DataError, EarmarkError, MissingExtraError
from earmark.inference.recordings import Probabilities
from earmark.parallel import in_flight, worker_count

if TYPE_CHECKING:
    from earmark.inference.scorer import Scorer

__all__ = ["RayExecutor"]

_RETRIES = 4  # of a span whose process or machine was lost; limited, since a file may crash every process that reads it
_MIN_GPU_SHARE = 1 / 16  # each process needs half a GiB of GPU memory before it does anything
_STORE = 256 << 20  # bytes of shared memory for a Ray started here: results are small
_RESIZE_INTERVAL = 5.0  # seconds between queries for the size of the cluster
_POLL_INTERVAL = 0.5  # seconds between checks for an interruption
_CONNECT_TIMEOUT = 5.0  # seconds


class RayExecutor:
    """Runs spans on a Ray cluster; a context manager that stops what it started.

    Parameters
    ----------
    address
        `ray://host:10001`, or `host:6379` from a machine of the cluster, or `auto` for the cluster that this machine
        belongs to, or `local` to start Ray on this machine, with `workers` cores, by default all.
    model
        A model file, a run folder or an exported ONNX file, on this machine.
    """

    def __init__(self, address: str, model: str | os.PathLike[str], *, workers: int | None = None) -> None:
        n_workers = worker_count(workers)
        path = Path(model)
        if path.is_dir():
            from earmark.checkpoint import model_file  # imports PyTorch, which ONNX files do not need

            path = model_file(path)
        data = path.read_bytes()
        self._ray = _ray(address)
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            _connect(self._ray, address, n_workers)
        self._model = _Model(path.suffix, hashlib.sha256(data).hexdigest(), version("earmark"))
        self._data = self._ray.put(np.frombuffer(data, np.uint8))
        self._share = 0.0 if path.suffix == ".onnx" else _gpu_share(self._ray.cluster_resources())
        self._task = self._ray.remote(num_cpus=1, num_gpus=self._share, max_retries=_RETRIES)(_run_span)
        self._limit = 0
        self._limit_updated = -_RESIZE_INTERVAL

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; stop it if it was started here."""
        if self._is_ours and self._ray.is_initialized():
            self._ray.shutdown()

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """See `earmark.detection.spans.Executor`."""

        def submit(span: Span) -> Any:
            remote = span._replace(path=Path(os.path.abspath(span.path)))
            return self._task.remote(self._data, self._model, remote, self._share > 0)

        def wait(running: Collection[Any]) -> list[Any]:
            refs = list(running)
            if not self._ray.wait(refs, num_returns=1, timeout=_POLL_INTERVAL)[0]:
                return []
            done: list[Any] = self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]
            return done

        cancel = partial(self._ray.cancel, force=True)
        with closing(in_flight(spans, submit, wait, cancel, limit=self._current_limit)) as finished:
            for span, ref in finished:
                yield span, self._fetched(ref, span)

    def _current_limit(self) -> int:
        """Tasks to have in flight: one running and one waiting for each core."""
        if time.monotonic() - self._limit_updated >= _RESIZE_INTERVAL:
            resources = self._ray.cluster_resources()
            cores = resources.get("CPU", 0.0)
            slots = min(cores, resources.get("GPU", 0.0) / self._share) if self._share else cores
            self._limit = 2 * max(1, int(slots))
            self._limit_updated = time.monotonic()
        return self._limit

    def _fetched(self, ref: Any, span: Span) -> Probabilities | Exception:
        errors = self._ray.exceptions
        try:
            result = self._ray.get(ref)
        except errors.RayTaskError as error:  # raised before our code ran
            raise ArgumentError(f"the cluster cannot run earmark: {_last_line(error)}") from error
        except errors.RayError as error:
            return DataError(
                f"{plain_name(span.path)}: the process or machine reading it was lost {_RETRIES + 1} times; the file "
                f"may crash them, or they ran out of memory: {_last_line(error)}"
            )
        if isinstance(result, ArgumentError):
            raise result
        return result if isinstance(result, Exception) else np.array(result)  # a copy, to release Ray's shared memory


class _Model(NamedTuple):
    """Describes a model to the workers, besides its bytes."""

    suffix: str
    digest: str
    version: str


_scorers: dict[str, Scorer] = {}  # in a worker: the loaded model, by digest


def _run_span(data: Any, model: _Model, span: Span, on_gpu: bool) -> Probabilities | Exception:
    """Probabilities of a span, or a DataError if its file cannot be read, an ArgumentError if no file can.

    Runs in a worker. Other exceptions become a RuntimeError, since not all can be sent.
    """
    here = platform.node()
    if version("earmark") != model.version:
        return ArgumentError(
            f"machine {here} of the cluster has earmark {version('earmark')}, this one {model.version}; "
            "install the same version everywhere"
        )
    try:
        if not span.path.exists():
            return DataError(
                f"{plain_name(span.path)}: not found on machine {here} of the cluster; "
                "audio files must have the same path on every machine"
            )
        return score_span(_loaded(data, model, on_gpu), span)
    except EarmarkError as error:
        return DataError(str(error))
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _loaded(data: Any, model: _Model, on_gpu: bool) -> Scorer:
    from earmark.detection.detector import load

    if model.digest not in _scorers:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model").with_suffix(model.suffix)
            path.write_bytes(np.asarray(data).tobytes())
            scorer = load(path, device="cuda" if on_gpu else "cpu").scorer
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # as in LocalExecutor, for identical results
        _scorers.clear()
        _scorers[model.digest] = scorer
    return _scorers[model.digest]


def _ray(address: str) -> Any:
    # Ray logs to standard output, where results go, and reads these settings when it is imported.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local":
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        # On every system, despite its name, this decides whether Ray may have other nodes. If not, it uses 127.0.0.1.
        # The argument _node_ip_address of ray.init does not: Ray replaces 127.0.0.1 there by the machine's address.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("detection on a cluster", "cluster") from error
    return ray


def _connect(ray: Any, address: str, workers: int) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    place = re.fullmatch(r"(?:ray://)?\[?([^/\s]+?)\]?:(\d{1,5})", address)
    if address == "local":
        options |= {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE}
        if not ipaddress.ip_address(ray.util.get_node_ip_address()).is_loopback:
            raise ArgumentError(
                "cluster='local': Ray would listen on all interfaces, since it was imported before; set "
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before importing it"
            )
    elif place is not None:
        try:  # Ray would retry for minutes
            socket.create_connection((place[1], int(place[2])), timeout=_CONNECT_TIMEOUT).close()
        except (OSError, OverflowError) as error:
            raise ArgumentError(f"cluster={address!r}: cannot connect: {error}") from error
    elif address != "auto":
        raise ArgumentError(f"cluster={address!r}: expected ray://HOST:PORT, HOST:PORT, auto or local")
    _check_token(is_new=address == "local")
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ArgumentError(f"cluster={address!r}: cannot join: {_last_line(error)}") from error


def _check_token(*, is_new: bool) -> None:
    """Reject a token file that other users can read; write one for a new cluster, since Ray's would be readable."""
    given = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(given) if given else Path.home() / ".ray" / "auth_token"
    if is_new and not given and not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (
            suppress(FileExistsError),  # another process was faster
            open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file,
        ):
            file.write(secrets.token_hex(32))
    if given and not path.is_file():
        raise ArgumentError(f"RAY_AUTH_TOKEN_PATH={given}: no such file")
    if os.name != "nt" and path.is_file() and path.stat().st_mode & 0o077:
        raise ArgumentError(
            f"{path}: other users can read this token, and with it run programs as you; make it private with: "
            f"chmod 600 {shlex.quote(str(path))}"
        )


def _gpu_share(resources: dict[str, float]) -> float:
    """Share of a GPU for each core; 0 if there are no GPUs."""
    if not resources.get("GPU"):
        return 0.0
    return min(1.0, max(_MIN_GPU_SHARE, resources["GPU"] / max(1.0, resources.get("CPU", 1.0))))


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
