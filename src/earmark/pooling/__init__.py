"""Pooling: from the probabilities of a bag's frames to one probability for the bag.

Axes are always (bags, frames, classes); p is a frame's probability, P a bag's, both in [0, 1]. A mask (bags, frames) is
True where a frame is real. Every operator is a PyTorch module with the same constructor, `create_pool(name, n_classes,
**options)`, and the same call:

    P = pool(p, mask, embedding=h)      (bags, classes)
    w = pool.weights(p, mask)           responsibilities, where P is a weighted mean
    loss = loss + pool.penalty()        what the operator asks of the loss
    pool.project()                      after each step of the optimiser
    s = pool.stream()                   exact pooling of an endless recording: s.update(chunk), s.value(),
    s.merge(other)

Rooms, each importing only those before it: `bounds` and `stream`, `base` (the checked entry point and the registry),
`kernels`, `autopool` (Eq. (8), fast), `paper`, `rivals`, `structured`.
"""

from earmark.pooling.base import POOLS, Pool, ScoredPool, WeightedPool, create_pool
from earmark.pooling.bounds import (
    active_share_to_alpha,
    alpha_to_active_share,
    max_alpha,
    min_alpha,
    softmax_bounds,
    weight_bounds,
)
from earmark.pooling.paper import (
    AutoPool,
    ConstrainedAutoPool,
    MaxPool,
    MeanPool,
    MinPool,
    RegularizedAutoPool,
    SoftmaxPool,
)
from earmark.pooling.rivals import (
    GeneralizedMeanPool,
    ISRPool,
    LinearSoftmaxPool,
    LogMeanExpPool,
    MeanMaxPool,
    NoisyAndPool,
    NoisyOrPool,
    PowerPool,
    RankPool,
    TopKPool,
)
from earmark.pooling.stream import Stream
from earmark.pooling.structured import AttentionPool, GatedAttentionPool, HierarchicalPool

__all__ = [
    "POOLS",
    "AttentionPool",
    "AutoPool",
    "ConstrainedAutoPool",
    "GatedAttentionPool",
    "GeneralizedMeanPool",
    "HierarchicalPool",
    "ISRPool",
    "LinearSoftmaxPool",
    "LogMeanExpPool",
    "MaxPool",
    "MeanMaxPool",
    "MeanPool",
    "MinPool",
    "NoisyAndPool",
    "NoisyOrPool",
    "Pool",
    "PowerPool",
    "RankPool",
    "RegularizedAutoPool",
    "ScoredPool",
    "SoftmaxPool",
    "Stream",
    "TopKPool",
    "WeightedPool",
    "active_share_to_alpha",
    "alpha_to_active_share",
    "create_pool",
    "max_alpha",
    "min_alpha",
    "softmax_bounds",
    "weight_bounds",
]
