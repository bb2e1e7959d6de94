"""Scores with a PyTorch detector: features, network and output layer, on a CPU or a GPU.

On a GPU, copies and computation overlap: samples pass through page-locked memory and the GPU's copy engine, and results
return the same way. Consecutive excerpts of equal length are computed as one batch. Convolutions use full float32:
TF32, PyTorch's default on a GPU, rounds to ten bits.
"""

import copy
import hashlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from earmark.audio import Samples
from earmark.checkpoint import load_detector, model_file, read_model_info
from earmark.detector import Detector, unsaturated_sigmoid
from earmark.devices import gpu_memory, without_tf32
from earmark.encoders import EncoderFeatures
from earmark.encoders.base import OVERLAP
from earmark.encoders.features import front_end, stored_encoder
from earmark.errors import ArgumentError, unknown_name
from earmark.inference.frozen import frozen
from earmark.inference.scorer import Scorer

_PATCH = 10.0  # seconds, as in the paper; for model files without the length of their training patches
_GPU_BLOCK = 300.0  # seconds per batch, so that launching it takes a small part of computing it
_ON_CPU = "free some, or use the CPU: set CUDA_VISIBLE_DEVICES= in the environment"
_IN_FLIGHT = 3  # batches being copied or computed at the same time


class TorchScorer(Scorer):
    """Scores with a copy of a detector, by default on a GPU if there is one.

    With `pooled`, `pool` applies the detector's operator. If that weighs frames by their embedding, `score` returns the
    embedding after the probabilities.
    """

    def __init__(
        self,
        detector: Detector,
        *,
        window: float = _PATCH,
        fingerprint: str = "",
        device: str | torch.device | None = None,
        pooled: bool = False,
    ) -> None:
        c = detector.features
        self.classes = detector.classes
        self.rate = c.rate
        self.hop_samples = c.hop_samples
        self.n_fft = c.n_fft
        self.padding = c.padding
        self.reduction = detector.reduction
        self.window = window
        self.fingerprint = fingerprint
        self.pooled = pooled
        self.device = _device(device)
        self.detector = copy.deepcopy(detector).to(self.device).eval().requires_grad_(False)
        self._embedding = self.detector.head.in_features if pooled and self.detector.pool.uses_embedding else 0
        # the original of a compiled network
        network: nn.Module = getattr(self.detector.network, "_orig_mod", self.detector.network)
        if isinstance(c, EncoderFeatures):
            self.context = None
            self.window = c.window_samples / c.rate
            self.overlap = OVERLAP
        else:
            self.context = getattr(network, "context", None) if c.scaling == "fixed" else None
        self._network = frozen(network).to(self.device)
        self._front_end = front_end(c).to(self.device)
        self._stored = stored_encoder(c)
        self.is_stored = self._stored is not None
        if self.device.type != "cpu":
            self.block = _GPU_BLOCK
            self.clips_at_once = 1 if self.is_stored else max(1, round(_GPU_BLOCK / self.window))
        self._local = threading.local()

    def score(self, samples: Samples) -> npt.NDArray[np.float32]:
        """Probabilities (frames', classes) of samples (n,)."""
        return next(self.score_all([samples]))

    def score_all(self, excerpts: Iterable[Samples]) -> Iterator[npt.NDArray[np.float32]]:
        """`score` of each excerpt, in order."""
        if self.device.type == "cuda":
            return self._score_on_gpu(excerpts)
        return (self._probabilities(_tensor(samples)[None].to(self.device))[0].cpu().numpy() for samples in excerpts)

    def stored_features(self, path: Path, samples: int) -> npt.NDArray[np.float32] | None:
        """Embeddings (frames, dimension) that were computed elsewhere; None if they are computed here."""
        return None if self._stored is None else self._stored.embeddings_of(path, samples)

    def score_features(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities (frames', columns) of features (frames, bands)."""
        x = torch.from_numpy(features.T[None].copy()).to(self.device)
        return self._probabilities(x, is_sound=False)[0].cpu().numpy()

    @torch.inference_mode()
    def _probabilities(self, x: Tensor, *, is_sound: bool = True) -> Tensor:
        """(bags, samples), or features (bags, bands, frames) -> (bags, frames', columns)"""
        with without_tf32() if self.device.type == "cuda" else nullcontext():
            embedding = self._network(self._front_end(x) if is_sound else x)
            p = unsaturated_sigmoid(self.detector.head(embedding))
        return torch.cat([p, embedding], -1) if self._embedding else p

    @property
    def columns(self) -> int:
        """Width of the last axis of `score`."""
        return len(self.classes) + self._embedding

    @torch.inference_mode()
    def pool(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | None:
        """Clip probabilities (classes,) of a recording, by the detector's operator."""
        if not self.pooled:
            return None
        x = torch.from_numpy(values)[None].to(self.device)
        p, embedding = x[..., : len(self.classes)], x[..., len(self.classes) :]
        P = self.detector.pool(p, embedding=embedding if self._embedding else None)
        return np.asarray(P[0].float().cpu(), np.float32)

    def _streams(self) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
        """Streams of this thread for copying and computing; reused, since memory is cached for each stream."""
        if not hasattr(self._local, "streams"):
            copying = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            computing = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            computing.wait_stream(torch.cuda.current_stream(self.device))  # which copied the weights
            self._local.streams = copying, computing
        return self._local.streams  # type: ignore[no-any-return]

    def _score_on_gpu(self, excerpts: Iterable[Samples]) -> Iterator[npt.NDArray[np.float32]]:
        in_flight: deque[tuple[Tensor, torch.cuda.Event]] = deque()
        copying, computing = self._streams()
        for batch in _batches(excerpts, round(self.block * self.rate)):
            if len(in_flight) == _IN_FLIGHT:
                yield from _received(*in_flight.popleft())
            # Page-locked memory comes from a cache that tracks when copies from it are complete.
            staged = torch.empty(len(batch), len(batch[0]), pin_memory=True)
            for row, samples in zip(staged, batch, strict=True):
                row.copy_(_tensor(samples))
            with torch.cuda.stream(copying), gpu_memory(_ON_CPU):
                x = staged.to(self.device, non_blocking=True)
            computing.wait_stream(copying)
            x.record_stream(computing)
            with torch.cuda.stream(computing), gpu_memory(_ON_CPU):
                p = self._probabilities(x)
                back = torch.empty(p.shape, pin_memory=True)
                back.copy_(p, non_blocking=True)
                done = torch.cuda.Event()  # type: ignore[no-untyped-call]
                done.record(computing)
            in_flight.append((back, done))
        while in_flight:
            yield from _received(*in_flight.popleft())


def _received(p: Tensor, done: torch.cuda.Event) -> Iterator[npt.NDArray[np.float32]]:
    done.synchronize()
    yield from p.clone().numpy()  # a copy, to release the page-locked memory


def _batches(excerpts: Iterable[Samples], at_once: int) -> Iterator[list[Samples]]:
    """Consecutive excerpts of equal length, up to `at_once` samples together."""
    batch: list[Samples] = []
    for samples in excerpts:
        if batch and (len(samples) != len(batch[0]) or (len(batch) + 1) * len(samples) > at_once):
            yield batch
            batch = []
        batch.append(samples)
    if batch:
        yield batch


def _device(name: str | torch.device | None) -> torch.device:
    """A device by name; by default a GPU if there is one."""
    has_gpu = torch.cuda.is_available()
    try:
        device = torch.device(name or ("cuda" if has_gpu else "cpu"))
    except RuntimeError:
        raise unknown_name("device", name, ("cpu", "cuda")) from None
    if device.type == "cuda" and not has_gpu:
        raise ArgumentError(f"device={str(name)!r}: no GPU found; use 'cpu'")
    return device


def _tensor(samples: Samples) -> Tensor:
    return torch.from_numpy(np.require(samples, np.float32, "W"))  # torch warns about read-only arrays


def load_scorer(path: str | Path, *, device: str | torch.device | None = None, pooled: bool = False) -> TorchScorer:
    """The scorer of a model file, or of the best model of a run folder."""
    path = model_file(Path(path))
    about = read_model_info(path)
    detector = load_detector(path)
    window = about["provenance"].get("patch", _PATCH)
    # "False" has no meaning, but without it detection jobs would no longer recognise the models they began with
    identity = f"{about['tensors']} {detector.features.fingerprint()} {sorted(about['network'].items())} False"
    fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]
    scorer = TorchScorer(detector, window=float(window), fingerprint=fingerprint, device=device, pooled=pooled)
    scorer.source = str(path)
    return scorer
