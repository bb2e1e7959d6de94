"""Detection on many machines: the executor of a job's spans on Ray (extra `cluster`).

`RayExecutor` runs what `earmark.detection.spans.LocalExecutor` runs, and gives the same bits. A span is a Ray task: it
depends on nothing but the model and its file, so that a task whose process or machine is lost is run again elsewhere,
and one result per span comes back however often it ran. As many tasks are under way as the cluster has room for, and as
many again wait for their turn; all others are not drawn yet. Machines may come and go.

What must be the same everywhere: the version of earmark, and the paths of the sound, as on a shared file system. The
model travels by itself; every process loads it once. Each task takes one core, and a share of a GPU where the cluster
has GPUs. A cluster that asks for a token is joined as Ray wants it: with RAY_AUTH_MODE=token in the environment. A Ray
started by `local` is protected by such a token, which Ray keeps in the home folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from earmark.audio.containers import plain_name
from earmark.detection.spans import Probabilities, Span, score_span
from earmark.errors import ArgumentError, DataError, EarmarkError, MissingExtraError
from earmark.workers import cores

if TYPE_CHECKING:
    from earmark.inference.scorer import Scorer

__all__ = ["RayExecutor"]

_RETRIES = 4  # of a span whose process or machine was lost; a file that kills whoever reads it must end some time
_LEAST_SHARE = 1 / 16  # of a GPU: each process needs half a GiB of its memory before it does anything
_STORE = 256 << 20  # bytes of shared memory for a Ray started here: results are small
_LOOK = 5.0  # seconds between looks at how large the cluster is
_PATIENCE = 5.0  # seconds to wait for a first sign of life


class RayExecutor:
    """Runs spans on a Ray cluster. A context manager: what it started ends with it.

    Parameters
    ----------
    address
        `ray://host:10001`, or `host:6379` from a machine of the cluster, or `auto` for the cluster that this machine
        belongs to, or `local` for a Ray of its own on this machine.
    model
        A model file, a run folder or an exported ONNX file, on this machine.
    workers
        Cores to use with `local`; None is all of them. Other clusters know their size.
    """

    def __init__(self, address: str, model: str | os.PathLike[str], *, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ArgumentError(f"workers={workers}: at least 1 expected")
        path = Path(model)
        if path.is_dir():
            from earmark.checkpoint import model_file  # PyTorch, which an ONNX file does without

            path = model_file(path)
        data = path.read_bytes()
        self._ray = _ray()
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            _connect(self._ray, address, workers)
        self._model = _Model(path.suffix, hashlib.sha256(data).hexdigest(), version("earmark"))
        self._data = self._ray.put(np.frombuffer(data, np.uint8))
        self._share = 0.0 if path.suffix == ".onnx" else _gpu_share(self._ray.cluster_resources())
        self._task = self._ray.remote(num_cpus=1, num_gpus=self._share, max_retries=_RETRIES)(_run_span)
        self._room = 0
        self._looked = -_LOOK

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        if self._is_ours and self._ray.is_initialized():
            self._ray.shutdown()

    def map_spans(self, spans: Iterable[Span]) -> Iterator[tuple[Span, Probabilities | Exception]]:
        """See `earmark.detection.spans.Executor`."""
        source = iter(spans)
        running: dict[Any, Span] = {}
        try:
            while True:
                while len(running) < self._look() and (span := next(source, None)) is not None:
                    there = Span(Path(os.path.abspath(span.path)), span.first, span.last)
                    running[self._task.remote(self._data, self._model, there, self._share > 0)] = span
                if not running:
                    return
                self._ray.wait(list(running), num_returns=1)
                done, _ = self._ray.wait(list(running), num_returns=len(running), timeout=0)
                for ref in done:
                    span = running.pop(ref)
                    yield span, self._fetched(ref, span)
        finally:
            for ref in running:
                self._ray.cancel(ref, force=True)

    def _look(self) -> int:
        """Tasks to have under way: one for each core, and one for each to wait."""
        if time.monotonic() - self._looked >= _LOOK:
            there = self._ray.cluster_resources()
            cores = there.get("CPU", 0.0)
            slots = min(cores, there.get("GPU", 0.0) / self._share) if self._share else cores
            self._room, self._looked = 2 * max(1, int(slots)), time.monotonic()
        return self._room

    def _fetched(self, ref: Any, span: Span) -> Probabilities | Exception:
        errors = self._ray.exceptions
        try:
            found = self._ray.get(ref)
        except errors.RayTaskError as error:  # before it came to our code
            raise ArgumentError(f"the cluster cannot run earmark: {_last_line(error)}") from error
        except errors.RayError as error:
            return DataError(
                f"{plain_name(span.path)}: lost {_RETRIES + 1} times with the process or machine that read it; "
                f"it may crash them, or they are short of memory: {_last_line(error)}"
            )
        if isinstance(found, _Trouble):
            if found.kind == "setup":
                raise ArgumentError(found.text)
            return DataError(found.text) if found.kind == "data" else RuntimeError(found.text)
        return np.array(found)  # what Ray gives lies in shared memory, and keeps it


class _Model(NamedTuple):
    """What a worker has to know of a model besides its bytes."""

    suffix: str
    digest: str
    version: str


class _Trouble(NamedTuple):
    """What went wrong over there: with the set-up as a whole, with the sound, or in a way nobody thought of."""

    kind: Literal["setup", "data", "bug"]
    text: str


_scorers: dict[str, Scorer] = {}  # in a worker: the model it has loaded


def _run_span(data: Any, model: _Model, span: Span, on_gpu: bool) -> Probabilities | _Trouble:
    """In a worker: the probabilities of a span."""
    here = platform.node()
    if version("earmark") != model.version:
        return _Trouble(
            "setup",
            f"machine {here} of the cluster has earmark {version('earmark')}, this one {model.version}; "
            "install the same everywhere",
        )
    try:
        if not span.path.exists():
            return _Trouble(
                "data",
                f"{plain_name(span.path)}: machine {here} of the cluster does not see it; "
                "sound must lie at the same path on every machine",
            )
        return score_span(_loaded(data, model, on_gpu), span)
    except EarmarkError as error:
        return _Trouble("data", str(error))
    except Exception as error:
        return _Trouble("bug", f"{type(error).__name__}: {error}")


def _loaded(data: Any, model: _Model, on_gpu: bool) -> Scorer:
    from earmark.detection.detector import load

    if model.digest not in _scorers:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model").with_suffix(model.suffix)
            path.write_bytes(np.asarray(data).tobytes())
            scorer = load(path, device="cuda" if on_gpu else "cpu").scorer
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # as LocalExecutor's threads, whose bits these are to be
        _scorers.clear()
        _scorers[model.digest] = scorer
    return _scorers[model.digest]


def _ray() -> Any:
    # Ray prints what happens on the cluster to standard output, where results go; it asks for this before its import.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("detection on a cluster", "cluster") from error
    return ray


def _connect(ray: Any, address: str, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    place = re.fullmatch(r"(?:ray://)?\[?([^/\s]+?)\]?:(\d{1,5})", address)
    if address == "local":
        options |= {"num_cpus": workers or cores(), "include_dashboard": False, "object_store_memory": _STORE}
    elif place is not None:
        try:  # Ray itself would try for minutes
            socket.create_connection((place[1], int(place[2])), timeout=_PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise ArgumentError(f"cluster={address!r}: nobody answers there: {error}") from error
    elif address != "auto":
        raise ArgumentError(f"cluster={address!r}: expected ray://HOST:PORT, HOST:PORT, auto or local")
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ArgumentError(f"cluster={address!r} cannot be joined: {_last_line(error)}") from error


def _gpu_share(there: dict[str, float]) -> float:
    """How much of a GPU each core is to get; 0 where there are none."""
    if not there.get("GPU"):
        return 0.0
    return min(1.0, max(_LEAST_SHARE, there["GPU"] / max(1.0, there.get("CPU", 1.0))))


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
