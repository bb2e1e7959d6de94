"""The detector: a network combined with a pooling operator.

It maps features of bags to probabilities: one per frame and class (dynamic), and one per bag and class (static).
"""

import inspect
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from earmark.encoders.features import Features
from earmark.errors import ArgumentError
from earmark.networks import reduce_mask
from earmark.pooling import Pool
from earmark.text import as_names

__all__ = ["Detector", "Output"]

_LIMIT = 15.0  # for the logits that reach the pool: sigmoid(15) is 1 - 3e-7, distinct from 1 in float32


class Output(NamedTuple):
    """Predictions of a detector for a batch of bags."""

    dynamic: Tensor  # (bags, frames', classes), in (0, 1)
    static: Tensor  # (bags, classes), in (0, 1): the dynamic probabilities, pooled
    logits: Tensor  # (bags, frames', classes), of which `dynamic` are the probabilities
    mask: Tensor | None  # (bags, frames'), True for real frames; None if no bag is padded


class Detector(nn.Module):
    """A network with an output layer, and a pooling operator.

    Names of classes are in the order of the last axis. `features` describes the input; the detector does not compute
    it. The network is as `earmark.networks` describes it; if its `forward` has no parameter `mask`, only the pool
    ignores padding.

    >>> from earmark.features import FeatureConfig
    >>> from earmark.networks import create_network
    >>> from earmark.pooling import create_pool
    >>> detector = Detector(["dog", "cat"], FeatureConfig(), create_network("cnn", 128), create_pool("rap", 2))
    >>> output = detector(torch.zeros(3, 128, 431))
    >>> output.dynamic.shape, output.static.shape
    (torch.Size([3, 26, 2]), torch.Size([3, 2]))
    """

    def __init__(self, classes: Sequence[str], features: Features, network: nn.Module, pool: Pool) -> None:
        super().__init__()
        self.classes = as_names(classes)
        if not self.classes or len(set(self.classes)) < len(self.classes):
            raise ArgumentError(f"classes: expected one or more names, each once, got {list(self.classes)}")
        if pool.n_classes != len(self.classes):
            raise ArgumentError(f"pool: expected one for {len(self.classes)} classes, got one for {pool.n_classes}")
        for name in ("embedding", "reduction"):
            if not isinstance(getattr(network, name, None), int):
                raise ArgumentError(
                    f"network: expected an attribute {name!r}, a whole number, got none; see earmark.networks"
                )
        self.features = features
        self.network = network
        plain = getattr(network, "_orig_mod", network)  # the original of a compiled network
        self._takes_mask = "mask" in inspect.signature(plain.forward).parameters
        self.head = nn.Linear(int(network.embedding), len(self.classes))  # type: ignore[arg-type]
        nn.init.xavier_uniform_(self.head.weight)  # Keras' default for a dense layer
        nn.init.zeros_(self.head.bias)
        pool.at_frame_rate(1 / (features.hop * self.reduction))
        self.pool = pool

    @property
    def reduction(self) -> int:
        """Feature frames per output frame."""
        return int(self.network.reduction)  # type: ignore[arg-type]

    @property
    def alpha(self) -> list[float] | None:
        """The operator's alpha of each class; None for an operator without."""
        alpha = getattr(self.pool, "alpha", None)
        return alpha.tolist() if isinstance(alpha, Tensor) else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Output:
        """Features (bags, bands, frames) and their mask (bags, frames) to probabilities."""
        embedding = self.network(x, mask=mask) if self._takes_mask and mask is not None else self.network(x)
        self._check(x, embedding)
        reduced = None if mask is None else reduce_mask(mask, self.reduction)
        with torch.autocast(x.device.type, enabled=False):
            embedding = embedding.to(self.head.weight.dtype)
            logits = self.head(embedding)
            dynamic = unsaturated_sigmoid(logits)
            static = self.pool(dynamic, reduced, embedding=embedding if self.pool.uses_embedding else None)
        return Output(dynamic, static, logits, reduced)

    def _check(self, x: Tensor, embedding: Tensor) -> None:
        if torch.compiler.is_compiling():  # lengths may be symbolic, and a comparison would make them constant
            return
        expected = (len(x), x.shape[-1] // self.reduction, self.head.in_features)
        if embedding.shape != expected:
            raise ArgumentError(
                f"network: expected an output (bags, frames', embedding) = {expected}, got {(*embedding.shape,)}"
            )


def unsaturated_sigmoid(logits: Tensor) -> Tensor:
    """The sigmoid of logits clipped at +-15, which never reaches 0 or 1; the gradient passes through the clipping.

    A float32 sigmoid is exactly 1 above about 17, where the gradient of any bag loss would be 0.
    """
    values = logits.detach()
    return (values.clamp(-_LIMIT, _LIMIT) + (logits - values)).sigmoid()
