"""Means of frame probabilities: those from the literature, and linear soft-max with the paper's alpha.

linear, power                           weighted by p, or by p to a learned power
linear-auto, linear-cap, linear-rap     weighted by exp(alpha p) - 1, alpha free, bounded or penalised
lse, gm                                 log-mean-exp and the generalised mean
top-k, rank, mean-max                   by rank
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from earmark.errors import ArgumentError
from earmark.pooling.autopool import hide_padding
from earmark.pooling.base import FLOOR, POOLS, Pool, ScoredPool, WeightedPool, count, floored, per_class
from earmark.pooling.bounds import Floats, alpha_to_sufficient_share, sufficient_share_to_alpha
from earmark.pooling.paper import AutoPool, MaxPool, MeanPool, PenalisedAlpha, mean_weights, penalty_strength
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


@POOLS.register("linear-auto", "weighted by exp(alpha p) - 1, alpha learned: from linear to max")
class AdaptiveLinearPool(ScoredPool):
    """Adaptive linear soft-max: P = sum of p_t w_t / sum of w_t, w_t = (exp(alpha p_t) - 1) / alpha, alpha >= 0
    learned, one per class.

    Like `auto` it learns how sharp it is, but a frame at 0 has no weight: bags of zeros and ones give 1, however few of
    the ones there are, so that a network gains nothing by spreading its probabilities over silent frames. In a positive
    bag, frames are pushed down below the p at which P - p = (1 - e^(-alpha p)) / alpha: below P/2 for alpha = 0, and
    below about P - 1/alpha for a large alpha.

    alpha can also be expressed as a duration: a bag is positive once a share of it, 1/9 for alpha = 0 and less for a
    larger alpha, is active, whatever the values of the others (`earmark.pooling.bounds.alpha_to_sufficient_share`).

    Limits: alpha = 0 is `linear` (Wang, Li and Metze, ICASSP 2019), alpha -> inf the maximum. An all-zero bag gives 0.
    Nothing keeps alpha from growing; `linear-cap` and `linear-rap` do. `project()` keeps alpha >= 0. `alpha` is the
    start value, one or one per class.

    >>> AdaptiveLinearPool(n_classes=2, alpha=[0.0, 4.0])(torch.tensor([[[0.2, 0.2], [0.8, 0.8]]])).tolist()
    [[0.680..., 0.7702...]]
    """

    at_zero: ClassVar[str] = "linear soft-max"

    def __init__(self, n_classes: int, *, alpha: float | Sequence[float] | Tensor = 1.0) -> None:
        super().__init__(n_classes)
        start = per_class("alpha", alpha, n_classes)
        if not bool((start >= 0).all()):
            raise ArgumentError(f"alpha: expected numbers of at least 0, got {start.tolist()}")
        self.alpha = nn.Parameter(start)

    @staticmethod
    def active_share(alpha: float | Sequence[float] | Tensor) -> Floats:
        """Share of a bag that makes it positive if it is active."""
        return alpha_to_sufficient_share(alpha)

    @torch.no_grad()
    def project(self) -> None:
        self.alpha.clamp_min_(0.0)

    def _alpha(self) -> Tensor:
        """(classes,)"""
        return self.alpha

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        # ln w = ln p + ln((e^x - 1) / x), x = alpha p. Near x = 0 the quotient loses digits: there, two terms of its
        # series. Both branches are finite everywhere, or the gradient of the one not taken would be NaN.
        p = floored(p)
        x = self._alpha().to(p.dtype) * p
        is_small = x.abs() < torch.finfo(x.dtype).eps ** 0.2
        small, large = torch.where(is_small, x, 0.0), torch.where(is_small, 1.0, x)
        series = small / 2 + small**2 / 24
        size = large.abs()
        exact = large.clamp_min(0) + (-torch.expm1(-size) / size).log()  # also of x < 0, before project()
        return p.log() + torch.where(is_small, series, exact)


@POOLS.register("linear-cap", "linear-auto with alpha bounded by the shortest share of a bag")
class ConstrainedLinearPool(AdaptiveLinearPool):
    """Constrained adaptive linear soft-max: P = sum of p_t w_t / sum of w_t, w_t = (exp(alpha p_t) - 1) / alpha, with
    alpha bounded as in `cap`.

    The bound is the least alpha with which a bag is positive once a share `min_active` of it is active, whatever its
    other frames hold (`earmark.pooling.bounds.sufficient_share_to_alpha`). A larger alpha is not needed to find events
    of that length, and fits the weak labels at the cost of the frames. In contrast to `cap` the bound does not depend
    on the number of frames, since frames at 0 have no weight.

    Limits: min_active -> 0 is `linear-auto`; from 1/9 on it is `linear` (Wang, Li and Metze, ICASSP 2019), which finds
    events of that length already. A stored alpha outside the bounds is brought back by `project()`, after each step
    of the optimiser, and does not count until then. `min_active` is a share of the bag, in (0, 1), one number or one
    per class: 0.05 is half a second in ten. `alpha` is the start value.

    >>> pool = ConstrainedLinearPool(n_classes=2, min_active=[0.01, 0.05], alpha=100.0)
    >>> pool.project()
    >>> print([f"{a:.2f}" for a in pool.alpha])
    ['4.93', '1.96']
    """

    highest: Tensor

    def __init__(
        self,
        n_classes: int,
        *,
        min_active: float | Sequence[float] | Tensor = 0.05,
        alpha: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(n_classes, alpha=alpha)
        shares = per_class("min_active", min_active, n_classes)
        if not bool(((shares > 0) & (shares < 1)).all()):
            raise ArgumentError(f"min_active: expected numbers between 0 and 1, got {shares.tolist()}")
        self.shares = shares.tolist()
        highest = torch.as_tensor(sufficient_share_to_alpha(shares), dtype=torch.float32)
        self.register_buffer("highest", highest, persistent=False)

    @torch.no_grad()
    def project(self) -> None:
        self.alpha.copy_(self._alpha().clamp_min(0.0))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, min_active={[round(share, 3) for share in self.shares]}"

    def _alpha(self) -> Tensor:
        return torch.clamp(self.alpha, max=self.highest.to(self.alpha.dtype))


@POOLS.register("linear-rap", "linear-auto with a penalty lambda ||alpha||^2")
class RegularizedLinearPool(PenalisedAlpha, AdaptiveLinearPool):
    """Regularised adaptive linear soft-max: P = sum of p_t w_t / sum of w_t, w_t = (exp(alpha p_t) - 1) / alpha, and
    lambda ||alpha||^2 added to the loss, as in `rap`.

    Limits: lambda -> 0 is `linear-auto`, lambda -> inf is `linear` (Wang, Li and Metze, ICASSP 2019): the penalty pulls
    towards linear soft-max, that of `rap` towards the mean. Since silent frames have no weight, P changes less with
    alpha than in `rap`, so smaller penalties have an effect. `penalty` is lambda, `alpha` the start value, one or one
    per class.

    >>> pool = RegularizedLinearPool(n_classes=3, penalty=0.01, alpha=[1.0, 2.0, 3.0])
    >>> print(f"{pool.penalty():.2f}")
    0.14
    """

    def __init__(self, n_classes: int, *, penalty: float = 1e-4, alpha: float | Sequence[float] | Tensor = 1.0) -> None:
        super().__init__(n_classes, alpha=alpha)
        self.strength = penalty_strength(penalty)


def alpha_family(name: str | None) -> type[AutoPool] | type[AdaptiveLinearPool] | None:
    """The family of an operator, which says what its alpha means; None if it is neither of these two.

    The name None, of a run whose operator is not recorded, stands for the paper's family.
    """
    cls = AutoPool if name is None else next((entry.cls for entry in POOLS if entry.name == name), Pool)
    for family in (AutoPool, AdaptiveLinearPool):
        if issubclass(cls, family):
            return family
    return None


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
        self.share = share
        self.k = 0
        if share is None:
            self.k = count("k", 3 if k is None else k)
        else:
            self.why_no_stream = "it keeps a share of all frames, which grows with the recording; give k instead"

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, " + (f"k={self.k}" if self.share is None else f"share={self.share:g}")

    def _rank_weights(self, ranks: Tensor, m: Tensor) -> Tensor:
        if self.share is None:
            k = m.clamp_max(self.k)
        else:  # 0.008 of 375 frames are 3, but more than 3 in float32, and 0.07 of 100 are more than 7 in float64
            k = torch.ceil(m.double() * self.share * (1 - 1e-15)).clamp_min(1).to(m.dtype)
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
