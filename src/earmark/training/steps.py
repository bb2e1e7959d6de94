"""One step of training, as fast as the machine allows and the same everywhere.

On a single GPU the whole step (forward, loss, backward, Adam, projection) is recorded once as a CUDA graph and
replayed: at the paper's batch of 16 the network is so small that starting its kernels one by one would take most of the
time. When the run is long enough to pay for it, PyTorch's compiler fuses kernels first. Elsewhere the step is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from earmark.bags import Batch
from earmark.detector import Detector
from earmark.loss import detector_loss
from earmark.settings import Settings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Step", "make_optimizer", "set_learning_rate"]

_WARM_UP = 3  # steps before a graph is recorded, so that every library has made its plans


def make_optimizer(detector: Detector, learning_rate: float, device: torch.device, *, alpha_rate: float = 1.0) -> Adam:
    """Adam with Keras' epsilon; on a GPU fused, and able to be part of a graph.

    Parameters
    ----------
    alpha_rate
        How much faster than the network the operator's own parameters learn.
    """
    on_gpu = device.type == "cuda"
    own = {id(p) for p in detector.pool.parameters()}
    groups = [
        {"params": [p for p in detector.parameters() if id(p) not in own], "share": 1.0},
        {"params": list(detector.pool.parameters()), "share": alpha_rate},
    ]
    for group in groups:
        group["lr"] = torch.tensor(learning_rate, device=device) if on_gpu else learning_rate
    optimizer = Adam([group for group in groups if group["params"]], eps=1e-7, fused=on_gpu or None, capturable=on_gpu)
    set_learning_rate(optimizer, learning_rate)
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The network's rate; the operator's parameters keep their multiple of it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["share"])  # in place: a recorded graph points to it
        else:
            group["lr"] = rate * group["share"]


class Step:
    """Features and targets in, one step of the optimiser done, loss out.

    Parameters
    ----------
    fabric
        Where and in which precision.
    detector
        As it is; `module` is the same, wrapped by Fabric.
    settings
        Of the run.
    compiled
        Whether PyTorch's compiler fuses the kernels.
    """

    def __init__(
        self,
        fabric: Fabric,
        module: nn.Module,
        detector: Detector,
        optimizer: torch.optim.Optimizer,
        settings: Settings,
        *,
        compiled: bool = False,
    ) -> None:
        self.fabric = fabric
        self.module = module
        self.detector = detector
        self.optimizer = optimizer
        self.settings = settings.training
        self._loss: Callable[..., Tensor] = torch.compile(self.loss, dynamic=False) if compiled else self.loss
        self._graph: torch.cuda.CUDAGraph | None = None
        self.is_recorded = fabric.device.type == "cuda" and fabric.world_size == 1

    def loss(self, x: Tensor, mask: Tensor | None, targets: Tensor, frame_targets: Tensor | None) -> Tensor:
        """What a batch costs: Eq. (4) or its strong form, the operator's penalty, the penalty on output biases."""
        output = self.module(x, mask)
        cost = detector_loss(
            output,
            targets,
            frame_targets,
            supervision=self.settings.supervision,
            reduction=self.detector.reduction,
        )
        cost = cost + self.settings.bias_penalty * self.detector.head.bias.square().sum()
        penalty = self.detector.pool.penalty()
        return cost + penalty if penalty.requires_grad else cost  # else it is a constant 0, perhaps of another device

    def __call__(self, batch: Batch) -> Tensor:
        """One step; the loss before it."""
        parts = batch.features, batch.mask, batch.targets, batch.frame_targets
        if not self.is_recorded:
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
        """Bring alpha back within its bound: that of the longest bag of any process, so that all do the same."""
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
            torch.cuda.current_stream().wait_stream(side)  # before weights are put back, or the last step is late
        self.optimizer.zero_grad()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._cost = self._plain(*self._places)


@contextmanager
def _restored(detector: Detector, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Weights and moments after the block as before it, in the same memory, which a graph will point to."""
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
