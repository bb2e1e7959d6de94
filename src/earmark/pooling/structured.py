"""Operators that use more than a frame's probability: its embedding, or its neighbours.

    attention, gated-attention      weights from the embedding of the frame
    hierarchical                    pooled in segments first, then over segments

The attention here is at decision level: it weighs the frames' probabilities, so that those keep their meaning (section
II.D of the paper: attention over embeddings gives no instance-level model).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from earmark.errors import ArgumentError
from earmark.pooling.base import POOLS, ScoredPool, WeightedPool, count

_WIDEST = 1 << 14  # inputs or outputs of a learned layer
_MOST_STAGES = 32


class _EmbeddingPool(ScoredPool):
    uses_embedding = True

    def __init__(self, n_classes: int, embedding_dim: int | None) -> None:
        super().__init__(n_classes)
        self.embedding_dim = None if embedding_dim is None else count("embedding_dim", embedding_dim, most=_WIDEST)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, embedding_dim={self.embedding_dim}"

    def _input(self, p: Tensor, embedding: Tensor | None, like: Tensor) -> Tensor:
        """The embedding, or p if the pool has no embedding, in the dtype of the layer that receives it."""
        if self.embedding_dim is None:
            return p.to(like.dtype)
        if embedding is None or embedding.shape[-1] != self.embedding_dim:
            got = "none" if embedding is None else tuple(embedding.shape)
            raise ArgumentError(
                f"embedding: expected (bags, frames, {self.embedding_dim}) for pool {self.name!r}, got {got}"
            )
        return embedding.to(like.dtype)


@POOLS.register("attention", "weights from a linear layer on the frame's embedding")
class AttentionPool(_EmbeddingPool):
    """Decision-level attention: P = sum of w_t p_t, w = soft-max over t of (u_c . h_t + b_c), one u and b per class.

    Kong, Xu, Wang and Plumbley, "Audio Set classification with attention model: a probabilistic perspective" (ICASSP
    2018); Xu, Kong, Wang and Plumbley (ICASSP 2018).

    Limits: u = 0 is the mean. P can be any convex combination of the frames, so a high P need not mean that any
    interpretable share of the bag is active.

    h_t is an embedding of width `embedding_dim`; None for the frame's probabilities of all classes.
    """

    def __init__(self, n_classes: int, *, embedding_dim: int | None = None) -> None:
        super().__init__(n_classes, embedding_dim)
        self.look = nn.Linear(embedding_dim or n_classes, n_classes)

    def class_axes(self, name: str) -> tuple[int, ...]:
        return (0, 1) if self.embedding_dim is None else (0,)

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        scores: Tensor = self.look(self._input(p, embedding, self.look.weight))
        return scores.to(p.dtype)


@POOLS.register("gated-attention", "attention through a gated hidden layer")
class GatedAttentionPool(_EmbeddingPool):
    """Gated attention: P = sum of w_t p_t, w = soft-max over t of u_c . (tanh(V h_t) * s(U h_t)), s the logistic
    function.

    Ilse, Tomczak and Welling, "Attention-based deep multiple instance learning" (ICML 2018); here at decision level,
    with one u per class.

    Limits: u = 0 is the mean; otherwise those of `attention`, and so is `embedding_dim`. `hidden` is the width of V and
    U.
    """

    def __init__(self, n_classes: int, *, embedding_dim: int | None = None, hidden: int = 64) -> None:
        super().__init__(n_classes, embedding_dim)
        hidden = count("hidden", hidden, most=_WIDEST)
        self.value = nn.Linear(embedding_dim or n_classes, hidden)
        self.gate = nn.Linear(embedding_dim or n_classes, hidden)
        self.look = nn.Linear(hidden, n_classes, bias=False)

    def class_axes(self, name: str) -> tuple[int, ...]:
        if name.startswith("look."):
            return (0,)
        return (1,) if self.embedding_dim is None else ()

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        h = self._input(p, embedding, self.look.weight)
        scores: Tensor = self.look(torch.tanh(self.value(h)) * torch.sigmoid(self.gate(h)))
        return scores.to(p.dtype)


@POOLS.register("hierarchical", "pooled within segments, then over segments")
class HierarchicalPool(WeightedPool):
    """Hierarchical pooling: P = pool over segments of (pool over each segment's frames of p_t).

    He, Shen and Zhang, "Hierarchical pooling structure for weakly labeled sound event detection" (Interspeech 2019).
    Neighbours share their responsibility, so that an event's edge frames are not left out.

    Depends on the frames' order. Segments are counted over a bag's real frames; the last one of a bag may be shorter.

    Limits: a segment of one frame, or as long as the bag, gives the plain operator.

    `base` is the operator of every stage, by name; it must be a weighted mean of the frames' probabilities alone.
    `sizes` are the frames per segment and then, for each further stage, the segments per segment. The last stage pools
    what remains.

    >>> HierarchicalPool(n_classes=1, base="max", sizes=[2])(torch.tensor([[[0.2], [0.4], [0.6], [0.8]]]))
    tensor([[0.8000]])
    """

    is_ordered = True
    why_no_stream = (
        "its segments are counted from the start of the recording, so the streams of two pieces cannot be merged"
    )

    def __init__(self, n_classes: int, *, base: str = "linear", sizes: Sequence[int] = (5,)) -> None:
        super().__init__(n_classes)
        if not isinstance(sizes, Sequence) or not 1 <= len(sizes) <= _MOST_STAGES:
            raise ArgumentError(f"sizes: expected a sequence of 1 to {_MOST_STAGES} segment sizes, got {sizes!r}")
        cls = POOLS[base].cls
        if not issubclass(cls, WeightedPool) or cls.uses_embedding or cls.is_ordered:
            raise ArgumentError(f"base: expected a weighted mean of the frames' probabilities alone, got {base!r}")
        self.sizes, self.base = tuple(count("sizes", n) for n in sizes), base
        self.stages = nn.ModuleList(POOLS.create(base, n_classes) for _ in range(len(sizes) + 1))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, base={self.base!r}, sizes={self.sizes}"

    def penalty(self) -> Tensor:
        return torch.stack([stage.penalty() for stage in self._pools()]).sum()

    @torch.no_grad()
    def project(self) -> None:
        for stage in self._pools():
            stage.project()

    def _pools(self) -> list[WeightedPool]:
        return [stage for stage in self.stages if isinstance(stage, WeightedPool)]

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        real = p.new_ones(p.shape[:2], dtype=torch.bool) if mask is None else mask
        # Real frames first, in their order, so that padding does not move the segments.
        order = (~real).to(torch.uint8).argsort(dim=1, stable=True)
        spread = order.unsqueeze(-1).expand_as(p)
        w = self._staged(p.gather(1, spread), real.gather(1, order), self._pools(), self.sizes)
        return torch.zeros_like(p).scatter(1, spread, w)

    def _staged(self, x: Tensor, real: Tensor, pools: Sequence[WeightedPool], sizes: Sequence[int]) -> Tensor:
        """Weights of x's frames: that within their segment, times that of the segment."""
        if not sizes:
            return pools[0]._weights(x, real, None)
        (bags, frames, classes), size = x.shape, sizes[0]
        segments = (frames + size - 1) // size
        slots = torch.arange(segments * size, device=x.device)
        inside = slots < frames  # slots past the end repeat the last frame, masked
        parts = x.index_select(1, slots.clamp_max(frames - 1)).reshape(bags * segments, size, classes)
        real = (real.index_select(1, slots.clamp_max(frames - 1)) & inside).reshape(bags * segments, size)
        empty = ~real.any(1, keepdim=True)  # a segment of padding alone: pool whatever is there, then ignore it
        inner = pools[0]._weights(parts, real | empty, None)
        y = (inner * parts).sum(1).reshape(bags, segments, classes)
        outer = self._staged(y, ~empty.reshape(bags, segments), pools[1:], sizes[1:])
        frame = torch.arange(frames, device=x.device)
        within = inner.reshape(bags, segments, size, classes)[:, frame // size, frame % size]
        return within * outer[:, frame // size]
