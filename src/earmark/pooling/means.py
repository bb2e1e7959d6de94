"""Means of frame probabilities from the literature.

linear, power               weighted by p, or by p to a learned power
lse, gm                     log-mean-exp and the generalised mean
top-k, rank, mean-max       by rank
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from earmark.errors import ArgumentError
from earmark.pooling.autopool import hide_padding
from earmark.pooling.base import FLOOR, POOLS, Pool, ScoredPool, WeightedPool, count, floored, per_class
from earmark.pooling.paper import MaxPool, MeanPool, mean_weights
from earmark.pooling.stream import State, Summary


@POOLS.register("linear", "linear soft-max: weighted by p itself")
class LinearSoftmaxPool(ScoredPool):
    """Linear soft-max: P = sum of p_t^2 / sum of p_t.

    Wang, Li and Metze, "A comparison of five multiple instance learning pooling functions for sound event detection
    with weak labeling" (ICASSP 2019). The gradient's sign turns at p_t = P/2: frames below are pushed down even in a
    positive bag.

    Limits: `power` with exponent 1. An all-zero bag is pooled by the mean, the limit of constant bags.

    >>> LinearSoftmaxPool(n_classes=1)(torch.tensor([[[0.2], [0.8]]]))
    tensor([[0.6800]])
    """

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return floored(p).log()


@POOLS.register("power", "weighted by p to a learned power")
class PowerPool(ScoredPool):
    """Power pooling: P = sum of p_t^(n+1) / sum of p_t^n, n learned, one per class.

    Liu, Chen, Wang and Zhang, "Power pooling: an adaptive pooling function for weakly labelled sound event detection"
    (IJCNN 2021).

    Limits: n = 0 the mean, 1 `linear`, n -> inf the maximum. `project()` keeps n >= 0. For n < 1 the slope at p = 0 is
    infinite; here it is that at p = 1e-7. `exponent` is the start value of n, one or one per class.

    >>> PowerPool(n_classes=1, exponent=2.0)(torch.tensor([[[0.2], [0.8]]])).item()
    0.7647...
    """

    def __init__(self, n_classes: int, *, exponent: float | Sequence[float] | Tensor = 1.0) -> None:
        super().__init__(n_classes)
        self.exponent = nn.Parameter(per_class("exponent", exponent, n_classes))

    @torch.no_grad()
    def project(self) -> None:
        self.exponent.clamp_min_(0.0)

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return self.exponent.to(p.dtype) * floored(p).log()


class _SharpPool(Pool):
    """Shared by the two quasi-arithmetic means, of some f(p): one number r per class, fixed or learned."""

    why_no_weights = (
        "it is a mean, but its weights depend on more than the frames' share: P is not linear in any of them"
    )
    sharpness: Tensor

    def __init__(self, n_classes: int, sharpness: float | Sequence[float] | Tensor, learned: bool) -> None:
        super().__init__(n_classes)
        value = per_class("sharpness", sharpness, n_classes)
        if learned:
            self.sharpness = nn.Parameter(value)
        else:
            self.register_buffer("sharpness", value)

    def _f(self, p: Tensor) -> Tensor:
        return p

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return self.sharpness * self._f(p)

    def _summary(self) -> Summary:
        return Summary(f=self._f, scores=self._scores)

    def _conclude(self, state: State) -> Tensor:
        # (1/r) ln((1/m) sum of exp(r f(p))): in float64 the quotient has digits to spare. At r = 0, the mean of f(p).
        is_zero = self.sharpness.abs() < 1e-9
        r = torch.where(is_zero, 1.0, self.sharpness)
        log_mean = state["peak"] + (state["mass"] / state["count"]).log()
        return torch.where(is_zero, state["total"] / state["count"], log_mean / r)


def log_mean_exp(x: Tensor, r: Tensor, mask: Tensor | None) -> Tensor:
    """(1/r) ln((1/m) sum of exp(r x_t)), for x within a range of 1; its limit, the mean, at r = 0.

    Near 0 the quotient loses digits, so there it is the first four terms of its cumulant series.
    """
    m = x.new_full((1, 1), x.shape[1]) if mask is None else mask.sum(1, keepdim=True).to(x.dtype)
    near = r.abs() < torch.finfo(x.dtype).eps ** 0.2
    far = torch.where(near, 1.0, r)
    exact = (torch.logsumexp(hide_padding(far * x, mask, -torch.inf), dim=1) - m.log()) / far
    w = mean_weights(x, mask)
    mean = (w * x).sum(1)
    d = x - mean.unsqueeze(1)
    second, third, fourth = ((w * d**k).sum(1) for k in (2, 3, 4))
    small = torch.where(near, r, 0.0)
    series = mean + small / 2 * (second + small / 3 * (third + small / 4 * (fourth - 3 * second**2)))
    return torch.where(near, series, exact)


@POOLS.register("lse", "log-mean-exp, sharpness fixed or learned")
class LogMeanExpPool(_SharpPool):
    """Log-mean-exp (also log-sum-exp): P = (1/r) ln((1/m) sum of exp(r p_t)).

    Ramon and De Raedt, "Multi instance neural networks" (ICML workshop 2000); Pinheiro and Collobert, "From image-level
    to pixel-level labeling with convolutional networks" (CVPR 2015), who take r = 5.

    Limits: r -> 0 the mean, +inf the maximum, -inf the minimum. Softer than `auto` at the same sharpness: with k of m
    frames at 1, P is about 1 - ln(m/k)/r.

    r is the `sharpness`, one or one per class, and trained if `learned`.

    >>> LogMeanExpPool(n_classes=1)(torch.tensor([[[0.0], [1.0]]]))
    tensor([[0.8627]])
    """

    def __init__(
        self, n_classes: int, *, sharpness: float | Sequence[float] | Tensor = 5.0, learned: bool = False
    ) -> None:
        super().__init__(n_classes, sharpness, learned)

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return log_mean_exp(p, self.sharpness.to(p.dtype), mask)


@POOLS.register("gm", "generalised (power) mean, exponent fixed or learned")
class GeneralizedMeanPool(_SharpPool):
    """Generalised mean: P = ((1/m) sum of p_t^r)^(1/r).

    Babenko, Dollár, Tu and Belongie, "Simultaneous learning and alignment: multi-instance and multi-pose learning"
    (ECCV workshop 2008); as GeM pooling, with r learned from 3: Radenović, Tolias and Chum (TPAMI 2018).

    Limits: r = 1 the mean, 0 the geometric mean, +inf the maximum, -inf the minimum. For r <= 0 one frame at 0 pulls P
    to about 0.

    r is the `exponent`, one or one per class, and trained if `learned`.

    >>> GeneralizedMeanPool(n_classes=1, exponent=2.0)(torch.tensor([[[0.6], [0.8]]]))
    tensor([[0.7071]])
    """

    def __init__(
        self, n_classes: int, *, exponent: float | Sequence[float] | Tensor = 3.0, learned: bool = False
    ) -> None:
        super().__init__(n_classes, exponent, learned)

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        scale = -math.log(FLOOR)  # brings ln p into [-1, 0]
        return torch.exp(scale * log_mean_exp(self._f(p) / scale, scale * self.sharpness.to(p.dtype), mask))

    def _f(self, p: Tensor) -> Tensor:
        return floored(p).log()

    def _conclude(self, state: State) -> Tensor:
        return super()._conclude(state).exp()


class _RankedPool(WeightedPool):
    """Weights that depend only on a frame's rank, the largest first."""

    def _rank_weights(self, ranks: Tensor, m: Tensor) -> Tensor:
        """Weights of ranks 0, 1, ... (frames,) in bags of m real frames (bags, 1): (bags, frames), 0 from rank m on,
        sum 1."""
        raise NotImplementedError

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        m = p.new_full((p.shape[0], 1), p.shape[1]) if mask is None else mask.sum(1, keepdim=True).to(p.dtype)
        w = self._rank_weights(torch.arange(p.shape[1], device=p.device), m)
        order = hide_padding(p.detach(), mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
        return torch.zeros_like(p).scatter(1, order, w.to(p.dtype).unsqueeze(-1).expand_as(p))

    def _conclude(self, state: State) -> Tensor:
        top = state["top"]
        w = self._rank_weights(torch.arange(top.shape[1], device=top.device), state["count"])
        return (w.unsqueeze(-1) * torch.where(torch.isfinite(top), top, 0.0)).sum(1)


@POOLS.register("top-k", "the mean of the k largest frames")
class TopKPool(_RankedPool):
    """The mean of the k largest frames: P = (1/k) sum over j <= k of p_(j), with p_(1) >= p_(2) >= ...

    Zhu, Lou, Vang and Xie, "Deep multi-instance networks with sparse label assignment for whole mammogram
    classification" (MICCAI 2017), for its use in multiple-instance learning.

    Limits: k = 1 the maximum; k >= m, or share = 1, the mean.

    k is 3 by default; a shorter bag uses all it has. Instead, `share` is that of each bag's real frames, in (0, 1],
    rounded up; it cannot be streamed, since what must be kept grows with the recording.

    >>> TopKPool(n_classes=1, k=2)(torch.tensor([[[0.1], [0.9], [0.5]]]))
    tensor([[0.7000]])
    """

    def __init__(self, n_classes: int, *, k: int | None = None, share: float | None = None) -> None:
        super().__init__(n_classes)
        if k is not None and share is not None:
            raise ArgumentError(f"expected k or share, got both: k={k!r} and share={share!r}")
        if share is not None and not 0 < share <= 1:
            raise ArgumentError(f"share: expected a value in (0, 1], got {share!r}")
        self.k, self.share = count("k", 3 if k is None else k) if share is None else 0, share
        if share is not None:
            self.why_no_stream = "a share of all frames is kept, which grows with the recording; give k instead"

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, " + (f"k={self.k}" if self.share is None else f"share={self.share:g}")

    def _rank_weights(self, ranks: Tensor, m: Tensor) -> Tensor:
        k = m.clamp_max(self.k) if self.share is None else torch.ceil(m * self.share).clamp_min(1)
        return (ranks < k).to(m.dtype) / k

    def _summary(self) -> Summary:
        return Summary(k=self.k)


@POOLS.register("rank", "weights fall by a constant factor per rank")
class RankPool(_RankedPool):
    """Global weighted rank pooling: P = sum of d^(j-1) p_(j) / sum of d^(j-1), with p_(1) >= p_(2) >= ...

    Kolesnikov and Lampert, "Seed, expand and constrain" (ECCV 2016), who set d so that a tenth of the image has half
    the weight.

    Limits: d = 0 the maximum, 1 the mean. A stream keeps as many of the largest frames as have all but 1e-9 of the
    weight. d is the `decay`, in [0, 1].

    >>> RankPool(n_classes=1, decay=0.5)(torch.tensor([[[0.3], [0.9], [0.6]]])).item()
    0.7285...
    """

    def __init__(self, n_classes: int, *, decay: float = 0.9) -> None:
        super().__init__(n_classes)
        if not 0 <= decay <= 1:
            raise ArgumentError(f"decay: expected a value in [0, 1], got {decay!r}")
        self.decay = float(decay)
        if 0.99999 < decay < 1:
            self.why_no_stream = (
                f"decay={decay!r} spreads the weight over millions of frames, all of which would be kept"
            )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, decay={self.decay:g}"

    def _rank_weights(self, ranks: Tensor, m: Tensor) -> Tensor:
        if self.decay == 1:
            return (ranks < m).to(m.dtype) / m
        if self.decay == 0:
            return (ranks == 0).to(m.dtype).expand(m.shape[0], -1)
        log = math.log(self.decay)  # exp(j ln d) keeps digits that d^j loses in float32
        w = torch.exp(log * ranks.to(m.dtype)) * (ranks < m)
        return w * (1 - self.decay) / -torch.expm1(log * m)

    def _summary(self) -> Summary:
        if self.decay == 1:
            return Summary()
        return Summary(k=1 if self.decay == 0 else math.ceil(math.log(1e-9) / math.log(self.decay)))

    def _conclude(self, state: State) -> Tensor:
        return state["total"] / state["count"] if self.decay == 1 else super()._conclude(state)


@POOLS.register("mean-max", "between the mean and the maximum, fixed or learned")
class MeanMaxPool(WeightedPool):
    """A mixture of mean and maximum: P = (1 - a) mean + a max.

    Lee, Gallagher and Tu, "Generalizing pooling functions in convolutional neural networks: mixed, gated, and tree"
    (AISTATS 2016).

    Limits: a = 0 the mean, 1 the maximum. a is `mix`, one or one per class, and trained if `learned`; `project()` keeps
    it in [0, 1].

    >>> MeanMaxPool(n_classes=1)(torch.tensor([[[0.0], [1.0]]]))
    tensor([[0.7500]])
    """

    mix: Tensor

    def __init__(self, n_classes: int, *, mix: float | Sequence[float] | Tensor = 0.5, learned: bool = False) -> None:
        super().__init__(n_classes)
        value = per_class("mix", mix, n_classes)
        if not bool(((value >= 0) & (value <= 1)).all()):
            raise ArgumentError(f"mix: expected a value in [0, 1], got {value.tolist()}")
        if learned:
            self.mix = nn.Parameter(value)
        else:
            self.register_buffer("mix", value)
        self._mean, self._max = MeanPool(n_classes), MaxPool(n_classes)

    @torch.no_grad()
    def project(self) -> None:
        self.mix.clamp_(0.0, 1.0)

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return torch.lerp(self._mean._reduce(p, mask, None), self._max._reduce(p, mask, None), self.mix.to(p.dtype))

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return torch.lerp(self._mean._weights(p, mask, None), self._max._weights(p, mask, None), self.mix.to(p.dtype))

    def _summary(self) -> Summary:
        return Summary(k=1)

    def _conclude(self, state: State) -> Tensor:
        return torch.lerp(state["total"] / state["count"], state["top"][:, 0], self.mix)
