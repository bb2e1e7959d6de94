"""The detector: a network and a pooling operator, joined.

Features of bags in, probabilities out: one per frame and class (dynamic), one per bag and class (static).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from earmark.features import FeatureConfig
from earmark.networks import reduce_mask
from earmark.pooling import Pool

__all__ = ["Detector", "Output"]

_LIMIT = 15.0  # of logits on their way to the pool: sigmoid(15) is 1 - 3e-7, the last float32 that is not yet 1


class Output(NamedTuple):
    """What a detector says about bags.

    Attributes
    ----------
    dynamic : (bags, frames', classes), in (0, 1)
    static : (bags, classes), in (0, 1): the dynamic probabilities, pooled
    logits : (bags, frames', classes), of which `dynamic` are the probabilities
    mask : (bags, frames'), True for real frames; None where no bag is padded
    """

    dynamic: Tensor
    static: Tensor
    logits: Tensor
    mask: Tensor | None


class Detector(nn.Module):
    """A network with an output layer, and a pooling operator.

    Parameters
    ----------
    classes
        Names, in the order of the last axis.
    features
        The features it wants. It does not compute them; it knows which.
    network
        (bags, bands, frames) -> (bags, frames', embedding), with attributes `embedding` and `reduction`.
    pool
        For as many classes.

    Examples
    --------
    >>> from earmark.networks import create_network
    >>> from earmark.pooling import create_pool
    >>> detector = Detector(["dog", "cat"], FeatureConfig(), create_network("cnn", 128), create_pool("rap", 2))
    >>> output = detector(torch.zeros(3, 128, 431))
    >>> output.dynamic.shape, output.static.shape
    (torch.Size([3, 26, 2]), torch.Size([3, 2]))
    """

    def __init__(self, classes: Sequence[str], features: FeatureConfig, network: nn.Module, pool: Pool) -> None:
        super().__init__()
        self.classes = tuple(classes)
        self.features = features
        self.network = network
        self.head = nn.Linear(int(network.embedding), len(self.classes))  # type: ignore[arg-type]
        nn.init.xavier_uniform_(self.head.weight)  # Keras' default for a dense layer
        nn.init.zeros_(self.head.bias)
        self.pool = pool

    @property
    def reduction(self) -> int:
        """Feature frames per output frame."""
        return int(self.network.reduction)  # type: ignore[arg-type]

    @property
    def hop(self) -> float:
        """Seconds between output frames."""
        return self.features.hop * self.reduction

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Output:
        """Features (bags, bands, frames) and their mask (bags, frames) to probabilities."""
        embedding = self.network(x) if mask is None else self.network(x, mask)
        reduced = None if mask is None else reduce_mask(mask, self.reduction)
        with torch.autocast(x.device.type, enabled=False):
            embedding = embedding.float()
            logits = self.head(embedding)
            dynamic = _alive_sigmoid(logits)
            static = self.pool(dynamic, reduced, embedding=embedding if self.pool.uses_embedding else None)
        return Output(dynamic, static, logits, reduced)


def _alive_sigmoid(logits: Tensor) -> Tensor:
    """Probabilities that never reach 0 or 1, with the gradient of a sigmoid that is not cut.

    A float32 sigmoid is exactly 1 from about 17 on; there the gradient of any bag loss would be 0 for ever.
    """
    cut = logits + (logits.clamp(-_LIMIT, _LIMIT) - logits).detach()
    return cut.sigmoid()
