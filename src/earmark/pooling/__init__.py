"""Pooling: from the probabilities of a bag's frames to one probability for the bag.

Axes are always (bags, frames, classes); p is a frame's probability, P a bag's, both in [0, 1]. A mask (bags, frames) is
True where a frame is real. Every operator is a PyTorch module, built by `create_pool(name, n_classes, **options)`:

    P = pool(p, mask, embedding=h)      # (bags, classes)
    w = pool.weights(p, mask)           # responsibilities, where P is a weighted mean
    loss = loss + pool.penalty()        # the operator's term in the loss
    pool.project()                      # after each step of the optimiser
    s = pool.stream()                   # for an endless recording
    s.update(chunk)                     # the result is exact
    s.value()
    s.merge(other)

Files, each importing only those before it: `bounds`, `kernels`, `autopool` (Eq. (8), fast), `stream`, `base` (the
checked entry point and the registry), `paper`, `means`, `votes`, `structured`.
"""

from earmark.pooling.base import POOLS, Pool, ScoredPool, WeightedPool, create_pool
from earmark.pooling.bounds import (
    active_share_to_alpha,
    alpha_to_active_share,
    alpha_to_sufficient_share,
    max_alpha,
    min_alpha,
    softmax_bounds,
    sufficient_share_to_alpha,
    weight_bounds,
)
from earmark.pooling.means import (
    AdaptiveLinearPool,
    ConstrainedLinearPool,
    GeneralizedMeanPool,
    LinearSoftmaxPool,
    LogMeanExpPool,
    MeanMaxPool,
    PowerPool,
    RankPool,
    RegularizedLinearPool,
    TopKPool,
    alpha_family,
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
from earmark.pooling.stream import Stream
from earmark.pooling.structured import AttentionPool, GatedAttentionPool, HierarchicalPool
from earmark.pooling.votes import ISRPool, NoisyAndPool, NoisyOrPool

__all__ = [
    "POOLS",
    "AdaptiveLinearPool",
    "AttentionPool",
    "AutoPool",
    "ConstrainedAutoPool",
    "ConstrainedLinearPool",
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
    "RegularizedLinearPool",
    "ScoredPool",
    "SoftmaxPool",
    "Stream",
    "TopKPool",
    "WeightedPool",
    "active_share_to_alpha",
    "alpha_family",
    "alpha_to_active_share",
    "alpha_to_sufficient_share",
    "create_pool",
    "max_alpha",
    "min_alpha",
    "softmax_bounds",
    "sufficient_share_to_alpha",
    "weight_bounds",
]
