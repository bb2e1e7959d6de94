"""A detector run over sound: features, network and output layer, on a CPU or a GPU.

On a GPU, samples of the next excerpts travel while one is computed: they are copied to page-locked memory by the CPU,
from there by the GPU's copy engine, and results come back the same way. Excerpts of one length, as the window rule
gives, are computed together. Convolutions are those of float32: PyTorch's default on a GPU, TF32, rounds to ten bits.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from earmark.checkpoint import load_detector, model_file, read_model_info
from earmark.detector import Detector, alive_sigmoid
from earmark.errors import ModelFileError
from earmark.features import LogMel
from earmark.inference.frozen import frozen
from earmark.inference.scorer import Scorer

__all__ = ["TorchScorer", "load_scorer"]

Samples = npt.NDArray[np.float32]

_PATCH = 10.0  # seconds, the paper's; for model files that do not say what they learned from
_GPU_BLOCK = 300.0  # seconds at once: launching the work then takes a small part of its time
_IN_FLIGHT = 3  # batches on their way to, on, or back from a GPU
_launching = threading.Lock()


class TorchScorer(Scorer):
    """Scores with a detector.

    Parameters
    ----------
    detector
        Is copied: what becomes of it later changes nothing.
    window, fingerprint
        See `Scorer`.
    device
        Where to compute; by default a GPU if there is one.
    half
        Whether the network computes in bfloat16, as training on a GPU does.
    pooled
        Whether `pool` applies the detector's own operator. An operator that weighs frames by their embedding needs the
        embedding of every frame, so `score` then returns it after the probabilities.
    """

    def __init__(
        self,
        detector: Detector,
        *,
        window: float = _PATCH,
        fingerprint: str = "",
        device: str | torch.device | None = None,
        half: bool = False,
        pooled: bool = False,
    ) -> None:
        c = detector.features
        self.classes = detector.classes
        self.rate, self.hop_samples, self.n_fft, self.padding = c.rate, c.hop_samples, c.n_fft, c.padding
        self.reduction = detector.reduction
        network: nn.Module = getattr(detector.network, "_orig_mod", detector.network)  # of a compiled one
        self.context = getattr(network, "context", None) if c.scaling == "fixed" else None
        self.window, self.fingerprint, self.half, self.pooled = window, fingerprint, half, pooled
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.device.type != "cpu":
            self.block = _GPU_BLOCK
        self.detector = copy.deepcopy(detector).to(self.device).eval().requires_grad_(False)
        network = getattr(self.detector.network, "_orig_mod", self.detector.network)
        self._network = frozen(network, half=half).to(self.device)
        self._logmel = LogMel(c).to(self.device)
        self._own = threading.local()

    def score(self, samples: Samples) -> npt.NDArray[np.float32]:
        """Probabilities (frames', classes) of samples (n,)."""
        return next(self.score_all([samples]))

    def score_all(self, excerpts: Iterable[Samples]) -> Iterator[npt.NDArray[np.float32]]:
        """What `score` gives for each excerpt, in turn."""
        if self.device.type == "cuda":
            yield from self._score_on_gpu(excerpts)
            return
        for samples in excerpts:
            yield self._probabilities(_tensor(samples)[None].to(self.device))[0].cpu().numpy()

    @torch.inference_mode()
    def _probabilities(self, x: Tensor) -> Tensor:
        """(bags, samples) -> (bags, frames', columns)"""
        features = self._logmel(x)
        exactly = _without_tf32() if self.device.type == "cuda" else nullcontext()
        with exactly, torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            embedding = self._network(features)
        embedding = embedding.float()
        p = alive_sigmoid(self.detector.head(embedding))
        return torch.cat([p, embedding], -1) if self._returns_embedding else p

    @property
    def _returns_embedding(self) -> bool:
        return self.pooled and self.detector.pool.uses_embedding

    @property
    def columns(self) -> int:
        """Width of the last axis of `score`."""
        return len(self.classes) + (self.detector.head.in_features if self._returns_embedding else 0)

    @torch.inference_mode()
    def pool(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | None:
        """Clip probabilities (classes,) of a recording, by the detector's own operator."""
        if not self.pooled:
            return None
        x = torch.from_numpy(values)[None].to(self.device)
        p, embedding = x[..., : len(self.classes)], x[..., len(self.classes) :]
        P = self.detector.pool(p, embedding=embedding if self._returns_embedding else None)
        pooled: npt.NDArray[np.float32] = P[0].float().cpu().numpy()
        return pooled

    def _streams(self) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
        """Of this thread, always the same: memory is kept for each stream."""
        if not hasattr(self._own, "streams"):
            arriving, computing = (torch.cuda.Stream(self.device) for _ in range(2))  # type: ignore[no-untyped-call]
            computing.wait_stream(torch.cuda.current_stream(self.device))  # on which the weights came
            self._own.streams = arriving, computing
        return self._own.streams  # type: ignore[no-any-return]

    def _score_on_gpu(self, excerpts: Iterable[Samples]) -> Iterator[npt.NDArray[np.float32]]:
        under_way: deque[tuple[Tensor, torch.cuda.Event]] = deque()
        arriving, computing = self._streams()
        for batch in _batches(excerpts, round(self.block * self.rate)):
            if len(under_way) == _IN_FLIGHT:
                yield from _arrived(*under_way.popleft())
            # Page-locked memory comes from a cache, which knows when a copy from it is over.
            staged = torch.empty(len(batch), len(batch[0]), pin_memory=True)
            for row, samples in zip(staged, batch, strict=True):
                row.copy_(_tensor(samples))
            with torch.cuda.stream(arriving):
                x = staged.to(self.device, non_blocking=True)
            computing.wait_stream(arriving)
            x.record_stream(computing)
            with torch.cuda.stream(computing):
                p = self._probabilities(x)
                back = torch.empty(p.shape, pin_memory=True)
                back.copy_(p, non_blocking=True)
                done = torch.cuda.Event()  # type: ignore[no-untyped-call]
                done.record(computing)
            under_way.append((back, done))
        while under_way:
            yield from _arrived(*under_way.popleft())


@contextmanager
def _without_tf32() -> Iterator[None]:
    """The switch is the process's, so threads take turns; launching a block takes a small part of computing it."""
    with _launching:
        before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False
        try:
            yield
        finally:
            torch.backends.cudnn.allow_tf32 = before


def _arrived(p: Tensor, done: torch.cuda.Event) -> Iterator[npt.NDArray[np.float32]]:
    done.synchronize()
    yield from p.clone().numpy()  # page-locked memory is not for keeping


def _batches(excerpts: Iterable[Samples], at_once: int) -> Iterator[list[Samples]]:
    """Excerpts of one length that follow on each other, as many as have `at_once` samples together."""
    batch: list[Samples] = []
    for samples in excerpts:
        if batch and (len(samples) != len(batch[0]) or (len(batch) + 1) * len(samples) > at_once):
            yield batch
            batch = []
        batch.append(samples)
    if batch:
        yield batch


def _tensor(samples: Samples) -> Tensor:
    return torch.from_numpy(np.require(samples, np.float32, "W"))  # torch warns of arrays that cannot be written to


def load_scorer(
    path: str | Path, *, device: str | torch.device | None = None, half: bool = False, pooled: bool = False
) -> TorchScorer:
    """The scorer of a model file, or of the best model of a run folder."""
    path = model_file(Path(path))
    about = read_model_info(path)
    detector = load_detector(path)
    window = about["provenance"].get("patch", _PATCH)
    if not isinstance(window, int | float) or not 0 < window < float("inf"):
        raise ModelFileError(f"{path}: patch must be a positive number of seconds, found {window!r}")
    said = f"{about['tensors']} {detector.features.fingerprint()} {sorted(about['network'].items())} {half}"
    fingerprint = hashlib.sha256(said.encode()).hexdigest()[:16]
    return TorchScorer(detector, window=float(window), fingerprint=fingerprint, device=device, half=half, pooled=pooled)
