"""The operators of McFee, Salamon and Bello, "Adaptive pooling operators for weakly labeled sound event detection"
(2018).

max, min, mean      the fixed ones
softmax             Eq. (6)
auto                Eq. (8): alpha learned per class, free
cap                 alpha bounded so that no instance can weigh more than phi, Eqs. (11) to (13)
rap                 alpha penalised by lambda ||alpha||^2
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor, nn

from earmark.errors import ArgumentError
from earmark.pooling.autopool import autopool, has_kernels, hide_padding, is_transformed
from earmark.pooling.base import POOLS, ScoredPool, WeightedPool, count, per_class
from earmark.pooling.bounds import Floats, alpha_to_active_share
from earmark.pooling.stream import State, Summary

MOST_FRAMES_KEPT = 1 << 20


def _log_odds(expected: str, phi: object) -> float:
    """ln(phi / (1 - phi)) of a weight."""
    if not (isinstance(phi, int | float | Real) and 0 < float(phi) < 1):
        raise ArgumentError(f"{expected}, between 0 and 1, got {phi!r}")
    return math.log(phi) - math.log1p(-phi)


def penalty_strength(penalty: float) -> float:
    """The lambda of a penalty lambda ||alpha||^2, checked."""
    if not (isinstance(penalty, int | float | Real) and 0 <= penalty < math.inf):
        raise ArgumentError(f"penalty: expected a number of at least 0, got {penalty!r}")
    return float(penalty)


def mean_weights(p: Tensor, mask: Tensor | None) -> Tensor:
    """(bags, frames, classes): 1/m on the real frames."""
    if mask is None:
        return torch.full_like(p, 1 / p.shape[1])
    real = mask.unsqueeze(-1).to(p.dtype)
    return (real / real.sum(1, keepdim=True)).expand_as(p)


@POOLS.register("max", "the largest frame decides")
class MaxPool(WeightedPool):
    """The largest frame: P = max over t of p_t, Eq. (2).

    The definition of a positive bag in multiple-instance learning, but hard to train: all responsibility, hence all
    gradient, goes to one frame (Eq. (5)), which early in training is a random one. Frames that tie for the maximum
    share it evenly, one element of the sub-differential.

    Limits: the limit of `auto` for alpha -> +inf. One frame of noise makes a bag positive.

    >>> MaxPool(n_classes=1)(torch.tensor([[[0.1], [0.9], [0.4]]]))
    tensor([[0.9000]])
    """

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return p.amax(1)  # padding holds 0, which is never above the maximum

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        ties = hide_padding((p == p.amax(1, keepdim=True)).to(p.dtype), mask)
        return ties / ties.sum(1, keepdim=True)

    def _summary(self) -> Summary:
        return Summary(k=1)

    def _conclude(self, state: State) -> Tensor:
        return state["top"][:, 0]


@POOLS.register("min", "the smallest frame decides: positive only if every frame is")
class MinPool(WeightedPool):
    """The smallest frame: P = min over t of p_t.

    The opposite end of `auto` (alpha -> -inf): a conjunction, for events that must fill the whole bag (section III.D).

    Limits: one frame of silence makes a bag negative; gradients as sparse as those of `max`.

    >>> MinPool(n_classes=1)(torch.tensor([[[0.1], [0.9], [0.4]]]))
    tensor([[0.1000]])
    """

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return hide_padding(p, mask, torch.inf).amin(1)

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        high = hide_padding(p, mask, torch.inf)
        ties = (high == high.amin(1, keepdim=True)).to(p.dtype)
        return ties / ties.sum(1, keepdim=True)

    def _summary(self) -> Summary:
        return Summary(f=torch.neg, k=1)

    def _conclude(self, state: State) -> Tensor:
        return -state["top"][:, 0]


@POOLS.register("mean", "every frame counts the same")
class MeanPool(WeightedPool):
    """The plain average: P = (1/m) sum over t of p_t.

    Every frame is held responsible, also those far from the event; P >= 1/2 needs the event to fill half the bag
    (section I).

    Limits: `auto` with alpha = 0. Poor for short events: training lowers their frames.

    >>> MeanPool(n_classes=1)(torch.tensor([[[0.0], [1.0]]]))
    tensor([[0.5000]])
    """

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return p.mean(1) if mask is None else p.sum(1) / mask.sum(1, keepdim=True)

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return mean_weights(p, mask)

    def _conclude(self, state: State) -> Tensor:
        return state["total"] / state["count"]


class _AlphaPool(ScoredPool):
    """Eq. (8) with whatever `_alpha` says: P = sum of p_t exp(alpha p_t) / sum of exp(alpha p_z)."""

    def _alpha(self, p: Tensor, mask: Tensor | None) -> Tensor:
        """(classes,), or (bags, classes)."""
        raise NotImplementedError

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return autopool(p, self._alpha(p, mask), mask)

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return self._alpha(p, mask).unsqueeze(-2) * hide_padding(p, mask)

    def _hide(self, p: Tensor, mask: Tensor, is_clean: bool) -> Tensor:
        return p if is_clean or has_kernels(p) else hide_padding(p, mask)


@POOLS.register("softmax", "weighted by exp(p): close to the mean on long bags")
class SoftmaxPool(_AlphaPool):
    """Soft-max pooling: P = sum of p_t exp(p_t) / sum of exp(p_z), Eq. (6).

    The precursor of auto-pool (Salamon, McFee, Li and Bello, DCASE 2017): smooth, and every frame gets some gradient.

    Limits: `auto` with alpha = 1. A frame's weight is Theta(1/m), Eq. (7), so on long bags it is practically
    the mean.

    >>> SoftmaxPool(n_classes=1)(torch.tensor([[[0.0], [1.0]]]))
    tensor([[0.7311]])
    """

    def _alpha(self, p: Tensor, mask: Tensor | None) -> Tensor:
        return p.new_ones(self.n_classes)


@POOLS.register("auto", "alpha learned per class, between min, mean, soft-max and max")
class AutoPool(_AlphaPool):
    """Auto-pooling: P = sum of p_t exp(alpha p_t) / sum of exp(alpha p_z), alpha learned, one per class, Eq. (8).

    alpha can also be expressed as a duration: the bag turns positive once a share 1/(1 + e^alpha) of it is active
    (`earmark.pooling.bounds.alpha_to_active_share`).

    Limits: alpha = 0 the mean, 1 soft-max, +inf the maximum, -inf the minimum. Nothing keeps alpha from growing until
    the operator is the maximum and fits the weak labels alone; `cap` and `rap` do.

    `alpha` is the start value, one or one per class. The paper starts at 1 and recommends 0 or 1.

    A padded frame does not count, whatever its value:

    >>> pool = AutoPool(n_classes=1, alpha=2.0)
    >>> p = torch.tensor([[[0.2], [0.9], [0.7]]])
    >>> mask = torch.tensor([[True, True, False]])
    >>> pool(p, mask), pool(p[:, :2])
    (tensor([[0.7615]], grad_fn=<SumBackward1>), tensor([[0.7615]], grad_fn=<SumBackward1>))
    """

    at_zero: ClassVar[str] = "mean"
    """What it is at alpha = 0, for figures."""

    def __init__(self, n_classes: int, *, alpha: float | Sequence[float] | Tensor = 1.0) -> None:
        super().__init__(n_classes)
        self.alpha = nn.Parameter(per_class("alpha", alpha, n_classes))

    @staticmethod
    def active_share(alpha: float | Sequence[float] | Tensor) -> Floats:
        """Share of a bag that must be active to make it positive."""
        return alpha_to_active_share(alpha)

    def _alpha(self, p: Tensor, mask: Tensor | None) -> Tensor:
        return self.alpha.to(p.dtype)


@POOLS.register("cap", "auto with alpha bounded by bag length, share or duration")
class ConstrainedAutoPool(AutoPool):
    """Constrained auto-pooling: Eq. (8) with alpha bounded, so that no frame can weigh more than phi, Eqs. (11) to
    (13).

    For a bag of m frames alpha <= ln(phi / (1 - phi)) + ln(m - 1); with the default phi = 0.5 it is ln(m - 1), the
    least that still lets one frame carry the vote. Alternatively, the bag must not turn positive on fewer than k active
    frames, so alpha <= ln(m/k - 1): `min_active` gives k as a share of the bag, `min_duration` in seconds.

    From below, `phi_minus` is the weight that the largest frame of an extremal bag keeps at least: alpha >=
    ln(phi_minus / (1 - phi_minus)) + ln(m - 1), Eq. (12), and alpha >= 0 where phi_minus exceeds 1/m. The paper's CAP
    has no such bound. Without it, the lower bound mirrors the upper one, alpha >= -(ln(phi / (1 - phi)) + ln(m - 1)),
    as in the authors' code (with a minimum share or duration, alpha >= -ln(m - 1)).

    m is each bag's own number of real frames. A short bag in a padded batch is pooled with an alpha cut to its own
    bound; the stored alpha is brought back by `project()`, after each step of the optimiser, to the bound of
    `bag_size`.

    Limits: phi -> 1 is `auto`; phi = 1/m is `mean`. A bag of two frames is pooled by the mean, unless phi_minus allows
    less. In a bag no longer than `min_duration`, nearly every frame must be active, as for `min`.

    Parameters
    ----------
    phi
        Greatest weight of one frame, in (0, 1).
    phi_minus
        Least weight of the largest frame, in (0, 1); None mirrors the upper bound.
    bag_size
        Frames in a bag, for `project()`. None: the longest bag met in training so far, which is saved with alpha.
    min_active
        Share of the bag, in (0, 1), one number or one per class; replaces phi.
    min_duration
        Seconds, one number or one per class; replaces phi.
    frame_rate
        Frames per second, for `min_duration`; by default that of the detector which the operator is part of.
    alpha
        Start value, one or one per class.

    Examples
    --------
    The paper's CAP, ten seconds in 26 frames:

    >>> pool = ConstrainedAutoPool(n_classes=10, bag_size=26, alpha=100.0)
    >>> pool.project()
    >>> print(f"{pool.alpha.max():.4f}")
    3.2189

    Gun shots last half a second at least, sirens four:

    >>> pool = ConstrainedAutoPool(n_classes=2, bag_size=27, min_duration=[0.5, 4.0], frame_rate=2.69, alpha=100.0)
    >>> pool.project()
    >>> print([f"{a:.2f}" for a in pool.alpha])
    ['2.95', '0.41']

    A fifth of the bag must be active, and no frame may weigh less than 1 % where it is the only active one:

    >>> pool = ConstrainedAutoPool(n_classes=2, bag_size=26, min_active=0.2, phi_minus=0.01, alpha=[100.0, -100.0])
    >>> pool.project()
    >>> print([f"{a:.2f}" for a in pool.alpha])
    ['1.39', '-1.38']
    """

    shares: Tensor | None
    seconds: Tensor | None
    longest: Tensor

    def __init__(
        self,
        n_classes: int,
        *,
        phi: float = 0.5,
        phi_minus: float | None = None,
        bag_size: int | None = None,
        min_active: float | Sequence[float] | Tensor | None = None,
        min_duration: float | Sequence[float] | Tensor | None = None,
        frame_rate: float | None = None,
        alpha: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(n_classes, alpha=alpha)
        self.log_odds = _log_odds("phi: expected the greatest weight of one frame", phi)
        self.least_log_odds = None
        if phi_minus is not None:
            self.least_log_odds = _log_odds("phi_minus: expected the least weight of the largest frame", phi_minus)
        if min_active is not None and min_duration is not None:
            raise ArgumentError("min_active and min_duration: expected one of them, got both")
        if frame_rate is not None and (min_duration is None or not frame_rate > 0):
            raise ArgumentError(
                f"frame_rate: expected a positive number, together with min_duration, got {frame_rate!r}"
            )
        shares = None if min_active is None else per_class("min_active", min_active, n_classes)
        if shares is not None and not bool(((shares > 0) & (shares < 1)).all()):
            raise ArgumentError(f"min_active: expected numbers between 0 and 1, got {shares.tolist()}")
        seconds = None if min_duration is None else per_class("min_duration", min_duration, n_classes)
        if seconds is not None and not bool((seconds > 0).all()):
            raise ArgumentError(f"min_duration: expected positive numbers, got {seconds.tolist()}")
        self.phi, self.phi_minus, self.frame_rate = phi, phi_minus, frame_rate
        self.bag_size = None if bag_size is None else count("bag_size", bag_size)
        self.register_buffer("shares", shares, persistent=False)
        self.register_buffer("seconds", seconds, persistent=False)
        self.register_buffer("longest", torch.tensor(self.bag_size or 0))

    def at_frame_rate(self, frame_rate: float) -> None:
        if self.seconds is not None and self.frame_rate is None:
            self.frame_rate = frame_rate

    @torch.no_grad()
    def project(self) -> None:
        low, high = self._bounds(self.longest.reshape(1, 1))
        cut = self.alpha.clamp(low[0].to(self.alpha), high[0].to(self.alpha))
        self.alpha.copy_(torch.where(self.longest > 0, cut, self.alpha))  # no branch: this can be part of a CUDA graph

    def extra_repr(self) -> str:
        bound = f"phi={self.phi:g}"
        if self.shares is not None:
            bound = f"min_active={[round(share, 3) for share in self.shares.tolist()]}"
        elif self.seconds is not None:
            bound = f"min_duration={[round(s, 3) for s in self.seconds.tolist()]}, frame_rate={self.frame_rate}"
        below = "" if self.phi_minus is None else f", phi_minus={self.phi_minus:g}"
        return f"{super().extra_repr()}, {bound}{below}, bag_size={self.bag_size}"

    def _least_frames(self, m: Tensor) -> Tensor | None:
        """Active frames that a bag of m frames needs at least, (classes,) or (bags, classes); None if phi decides."""
        if self.shares is not None:
            return self.shares.to(m.dtype) * m
        if self.seconds is None:
            return None
        if self.frame_rate is None:
            raise ArgumentError(
                "frame_rate: expected the number of frames per second, together with min_duration, got none"
            )
        return self.seconds.to(m.dtype) * self.frame_rate

    def _bounds(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest alpha of bags of m frames: m (bags, 1), bounds (bags, classes)."""
        m = m.to(self.alpha.dtype).clamp_min(2)  # ln 1 = 0: one frame is its own mean
        even = torch.log(m - 1).expand(-1, self.n_classes)
        least = self._least_frames(m)
        if least is None:
            high = (self.log_odds + even).clamp_min(0)  # phi < 1/m cannot be had: the mean is nearest
            low = -high
        else:
            high = torch.log(m / torch.minimum(least.clamp_min(1), m - 1) - 1)
            low = -even
        if self.least_log_odds is not None:
            low = (self.least_log_odds + even).clamp_max(0)  # phi_minus > 1/m cannot be had either
        return low, high

    def _alpha(self, p: Tensor, mask: Tensor | None) -> Tensor:
        m = p.new_full((1, 1), p.shape[1]) if mask is None else mask.sum(1, keepdim=True)
        if self.training and self.bag_size is None and (torch.compiler.is_compiling() or not is_transformed(p)):
            self.longest.copy_(torch.maximum(self.longest, m.max().to(self.longest.dtype)))
        low, high = self._bounds(m)
        if mask is None:
            low, high = low[0], high[0]
        return torch.clamp(self.alpha, low, high).to(p.dtype)

    def _summary(self) -> Summary:
        # The bound of a recording follows from its length, which is known only at the end of a stream. But from some
        # length on, the bound has no effect; up to there, all frames are kept, and `_conclude` pools them with the
        # alpha of the true length.
        return Summary(scores=self._free_scores, k=self._unbound_length())

    def _free_alpha(self) -> Tensor:
        """Alpha in a bag of unlimited length: only a minimum share bounds it from above, only phi_minus from below."""
        alpha = self.alpha if self.phi_minus is None else self.alpha.clamp_min(0)
        if self.shares is None:
            return alpha
        return torch.minimum(alpha, torch.log(1 / self.shares.to(alpha.dtype) - 1))  # last, as in a clamp

    def _unbound_length(self) -> int:
        """Frames from which on alpha is the same as in a bag of unlimited length."""
        a = self._free_alpha().double()
        if self.shares is not None:
            m = torch.maximum(1 + torch.exp(a), 1 / (1 - self.shares.double()))
        elif (k := self._least_frames(a)) is not None:
            k = k.double().clamp_min(1)
            m = torch.maximum(k * (1 + torch.exp(a)), k + 1)
        else:
            m = 1 + torch.exp(a - self.log_odds)
        if self.least_log_odds is not None:
            below = torch.where(self.alpha < 0, 1 + math.exp(-self.least_log_odds), 0.0)
        else:
            below = 1 + torch.exp(-a - (self.log_odds if self.shares is None and self.seconds is None else 0.0))
        most = float(torch.maximum(m, below).max())
        if most > MOST_FRAMES_KEPT:
            out = f"alpha is too far out of its bounds to be streamed ({self.alpha.tolist()})"
            raise ArgumentError(f"{out}: give bag_size, and call project()")
        return max(2, math.ceil(most))

    def _free_scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return self._free_alpha().to(p.dtype) * p

    def _conclude(self, state: State) -> Tensor:
        top, count = state["top"], state["count"]
        real = torch.isfinite(top)
        low, high = self._bounds(count)
        scores = (torch.clamp(self.alpha, low, high).unsqueeze(1) * top).masked_fill(~real, -torch.inf)
        bounded = (torch.softmax(scores, 1) * torch.where(real, top, 0.0)).sum(1)
        return torch.where(count <= top.shape[1], bounded, super()._conclude(state))


class PenalisedAlpha(nn.Module):
    """Adds lambda ||alpha||^2 to the loss of an operator with alpha; a second base class next to the operator's."""

    alpha: nn.Parameter
    strength: float

    def penalty(self) -> Tensor:
        return self.strength * self.alpha.square().sum()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, penalty={self.strength:g}"


@POOLS.register("rap", "auto with a penalty lambda ||alpha||^2")
class RegularizedAutoPool(PenalisedAlpha, AutoPool):
    """Regularised auto-pooling: Eq. (8), and lambda ||alpha||^2 added to the loss (section III.F).

    The penalty pulls towards the mean; `penalty()` gives it to the loss.

    Limits: lambda -> 0 is `auto`, lambda -> inf is `mean`. The paper tries 1e-2, 1e-3 and 1e-4, and advises choosing on
    strongly labelled validation data. `penalty` is lambda, `alpha` the start value, one or one per class.

    >>> pool = RegularizedAutoPool(n_classes=3, penalty=0.01, alpha=[1.0, 2.0, 3.0])
    >>> print(f"{pool.penalty():.2f}")
    0.14
    """

    def __init__(self, n_classes: int, *, penalty: float = 1e-3, alpha: float | Sequence[float] | Tensor = 1.0) -> None:
        super().__init__(n_classes, alpha=alpha)
        self.strength = penalty_strength(penalty)
