"""One optimiser step, as fast as the device allows, with the same result everywhere.

On a single GPU the whole step (forward, loss, backward, Adam, projection) is recorded once as a CUDA graph and
replayed: at the paper's batch size of 16 the network is so small that launching its kernels one by one would take most
of the time. In runs long enough to pay for it, PyTorch's compiler fuses kernels first. Elsewhere the step runs eagerly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW

from earmark.augment import filter_bands, mask_bands, mask_frames, mixup
from earmark.bags import Batch
from earmark.detector import Detector
from earmark.fine_tuning import TunedEncoder
from earmark.loss import detector_loss, taught_loss
from earmark.settings import Augmentation, Settings, Training

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_WARM_UP = 3  # steps before a graph is recorded, in which libraries choose their kernels


def augmented(batch: Batch, settings: Augmentation, key: tuple[int, ...]) -> Batch:
    """The batch with bags mixed, filtered and masked as the settings say; random numbers depend on the key alone."""
    if not (settings.mixup or settings.filter_db or settings.band_mask or settings.frame_mask):
        return batch
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
    if settings.mixup:
        batch = mixup(batch, probability=settings.mixup, generator=generator)
    x = batch.features
    if settings.filter_db:
        x = filter_bands(x, gain_db=settings.filter_db, mask=batch.mask, generator=generator)
    if settings.band_mask:
        x = mask_bands(x, width=settings.band_mask, mask=batch.mask, generator=generator)
    if settings.frame_mask:
        x = mask_frames(x, width=settings.frame_mask, mask=batch.mask, generator=generator)
    return replace(batch, features=x)


def make_optimizer(detector: Detector, options: Training, device: torch.device) -> Adam:
    """Adam with Keras' epsilon; on a GPU fused, and capturable by a CUDA graph.

    The learning rates of the pooling operator, and of an encoder, are relative to the network's. Weight decay is
    decoupled, as in AdamW, and leaves the operator alone.
    """
    on_gpu = device.type == "cuda"
    pooling, network = list(detector.pool.parameters()), detector.network
    encoder = list(network.encoder.parameters()) if isinstance(network, TunedEncoder) else []
    for p in encoder:
        p.requires_grad_(options.encoder_rate > 0)
    rest = [p for p in detector.parameters() if all(p is not other for other in (*pooling, *encoder))]
    groups: list[dict[str, Any]] = []
    for params, share, decay in (
        (rest, 1.0, options.weight_decay),
        (encoder, options.encoder_rate, options.weight_decay),
        (pooling, options.alpha_rate, 0.0),
    ):
        if params:
            rate = torch.tensor(options.learning_rate, device=device) if on_gpu else options.learning_rate
            groups.append({"params": params, "share": share, "weight_decay": decay, "lr": rate})
    kind = AdamW if options.weight_decay else Adam
    optimizer = kind(groups, eps=1e-7, fused=on_gpu or None, capturable=on_gpu)
    set_learning_rate(optimizer, options.learning_rate)
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the network; those of the pooling operator and an encoder stay relative to it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["share"])  # in place: a recorded graph reads this tensor
        else:
            group["lr"] = rate * group["share"]


class Step:
    """One optimiser step on a batch. `module` is the detector as wrapped by Fabric."""

    def __init__(
        self,
        fabric: Fabric,
        module: nn.Module,
        detector: Detector,
        optimizer: torch.optim.Optimizer,
        settings: Settings,
        *,
        is_taught: bool = False,
    ) -> None:
        self.fabric = fabric
        self.module = module
        self.detector = detector
        self.optimizer = optimizer
        self.settings = settings.training
        self.is_taught = is_taught
        is_compiled = _pays_to_compile(fabric, settings.training)
        if is_compiled:  # it advises TF32, which would change what precision = "32" means
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", module=r"torch\._inductor")
        self._loss: Callable[..., Tensor] = torch.compile(self.loss, dynamic=False) if is_compiled else self.loss
        self.has_dropout = any(isinstance(module, nn.Dropout) for module in detector.modules())
        self._graph: torch.cuda.CUDAGraph | None = None
        self._can_record = fabric.device.type == "cuda" and fabric.world_size == 1

    def loss(self, x: Tensor, mask: Tensor | None, targets: Tensor, frame_targets: Tensor | None) -> Tensor:
        """Loss of a batch: Eq. (4) or its strong form, the operator's penalty, the penalty on output biases."""
        output, supervision = self.module(x, mask), self.settings.supervision
        reduction = self.detector.reduction
        if self.is_taught:
            assert frame_targets is not None
            cost = taught_loss(output, targets, frame_targets, reduction=reduction)
        else:
            cost = detector_loss(output, targets, frame_targets, supervision=supervision, reduction=reduction)
        cost = cost + self.settings.bias_penalty * self.detector.head.bias.square().sum()
        penalty = self.detector.pool.penalty()
        return cost + penalty if penalty.requires_grad else cost  # else a constant 0, perhaps on another device

    def __call__(self, batch: Batch) -> Tensor:
        """Take one step; returns the loss before it."""
        parts = batch.features, batch.mask, batch.targets, batch.frame_targets
        # an encoder embeds bags of different lengths one after the other
        is_varied = isinstance(self.detector.network, TunedEncoder) and batch.mask is not None
        if is_varied or not self._can_record:
            return self._plain(*parts)
        if self._graph is None:
            self._record(parts)
            assert self._graph is not None
        for place, part in zip(self._places, parts, strict=True):
            if part is not None:
                place.copy_(part, non_blocking=True)
        self._graph.replay()
        return self._cost

    def _plain(self, x: Tensor, mask: Tensor | None, targets: Tensor, frame_targets: Tensor | None) -> Tensor:
        cost = self._loss(x, mask, targets, frame_targets)
        self.optimizer.zero_grad()
        self.fabric.backward(cost)
        self.optimizer.step()
        self._project()
        return cost.detach()

    def _project(self) -> None:
        """Project alpha into its bound, which depends on the longest bag of all processes, so that all agree."""
        pool = self.detector.pool
        longest = getattr(pool, "longest", None)
        if longest is not None and self.fabric.world_size > 1:
            longest.copy_(self.fabric.all_reduce(longest, reduce_op="max"))
        pool.project()

    def _record(self, parts: tuple[Any, ...]) -> None:
        self._places: list[Any] = [None if part is None else part.clone() for part in parts]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with _restored(self.detector, self.optimizer):
            with torch.cuda.stream(side):
                for _ in range(_WARM_UP):
                    self._plain(*self._places)
            # before weights are restored, or the last warm-up step comes after
            torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._cost = self._plain(*self._places)


def _pays_to_compile(fabric: Fabric, options: Training) -> bool:
    """Compiling takes about half a minute and saves a third to half of a GPU's time per step."""
    if options.compile != "auto":
        return options.compile == "yes"
    return fabric.device.type == "cuda" and options.epochs * options.steps * options.batch_size > 250_000


@contextmanager
def _restored(detector: Detector, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Restore weights and moments after the block, in place: a recorded graph will use the same memory."""
    weights = {name: tensor.clone() for name, tensor in detector.state_dict().items()}
    moments = {
        id(p): {k: v.clone() for k, v in state.items() if isinstance(v, Tensor)} for p, state in optimizer.state.items()
    }
    yield
    with torch.no_grad():
        for name, tensor in detector.state_dict().items():
            tensor.copy_(weights[name])
        for p, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    before = moments.get(id(p), {}).get(key)
                    value.zero_() if before is None else value.copy_(before)
