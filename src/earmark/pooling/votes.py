"""Operators from the literature that are not means: the frames vote.

noisy-or        at least one frame fires
isr             the same, by odds
noisy-and       enough frames fire
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from earmark.errors import ArgumentError
from earmark.pooling.autopool import hide_padding
from earmark.pooling.base import FLOOR, POOLS, Pool, floored, per_class
from earmark.pooling.paper import mean_weights
from earmark.pooling.stream import State, Summary

NOT_A_MEAN = "it is not a weighted mean of its frames"


@POOLS.register("noisy-or", "at least one frame fires, independently")
class NoisyOrPool(Pool):
    """Noisy-or: P = 1 - product of (1 - p_t).

    Maron and Lozano-Pérez, "A framework for multiple-instance learning" (NIPS 1998); Zhang, Platt and Viola, "Multiple
    instance boosting for object detection" (NIPS 2005).

    Not a mean: P >= max over t of p_t, and P grows with the length of the bag (a hundred frames of 0.01 give 0.63). One
    frame is itself; an all-zero bag gives 0; any frame at 1 gives 1.

    >>> NoisyOrPool(n_classes=1)(torch.tensor([[[0.5], [0.5]]]))
    tensor([[0.7500]])
    """

    is_mean = False
    why_no_weights = NOT_A_MEAN

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return -torch.expm1(self._log_none(p).sum(1))  # padding holds 0: ln 1 = 0

    def _summary(self) -> Summary:
        return Summary(f=self._log_none)

    def _log_none(self, p: Tensor) -> Tensor:
        q = 1 - p
        return torch.log1p(-p + (q.clamp_min(FLOOR) - q).detach())

    def _conclude(self, state: State) -> Tensor:
        return -torch.expm1(state["total"])


@POOLS.register("noisy-and", "the mean through a learned threshold")
class NoisyAndPool(Pool):
    """Noisy-and: P = (s(a (mean - b)) - s(-a b)) / (s(a (1 - b)) - s(-a b)), s the logistic function, b learned, one
    per class.

    Kraus, Ba and Frey, "Classifying and segmenting microscopy images with deep multiple instance learning"
    (Bioinformatics 2016).

    Not a mean: a soft threshold on the mean at b. A bag of zeros gives 0 and a bag of ones 1; a constant bag in
    between, or a single frame, is bent towards its side of b. P grows with every frame.

    Limits: a -> 0 is the mean, a -> inf the decision mean > b. a is the `slope`, which is fixed; `threshold` is the
    start value of b, one or one per class, and `project()` keeps it in [0, 1].

    >>> print(f"{NoisyAndPool(n_classes=1)(torch.tensor([[[0.6], [0.8]]])).item():.4f}")
    0.8860
    """

    is_mean = False
    why_no_weights = NOT_A_MEAN

    def __init__(
        self, n_classes: int, *, slope: float = 10.0, threshold: float | Sequence[float] | Tensor = 0.5
    ) -> None:
        super().__init__(n_classes)
        if not 0 < slope < math.inf:
            raise ArgumentError(f"slope: expected a positive, finite number, got {slope!r}")
        self.slope = float(slope)
        self.threshold = nn.Parameter(per_class("threshold", threshold, n_classes))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, slope={self.slope:g}"

    @torch.no_grad()
    def project(self) -> None:
        self.threshold.clamp_(0.0, 1.0)

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return self._bend((mean_weights(p, mask) * p).sum(1))

    def _conclude(self, state: State) -> Tensor:
        return self._bend(state["total"] / state["count"])

    def _bend(self, mean: Tensor) -> Tensor:
        b = self.threshold.to(mean.dtype)
        low = torch.sigmoid(-self.slope * b)
        return (torch.sigmoid(self.slope * (mean - b)) - low) / (torch.sigmoid(self.slope * (1 - b)) - low)


@POOLS.register("isr", "sum of the frames' odds, as a probability")
class ISRPool(Pool):
    """Integrated segmentation and recognition: P = S / (1 + S), S = sum of p_t / (1 - p_t).

    Keeler, Rumelhart and Leow, "Integrated segmentation and recognition of hand-printed numerals" (NIPS 1990).

    Not a mean: P >= max over t of p_t, and P grows with the length of the bag. One frame is itself; an all-zero bag
    gives 0; any frame at 1 gives 1.

    >>> ISRPool(n_classes=1)(torch.tensor([[[0.5], [0.5]]])).item()
    0.666...
    """

    is_mean = False
    why_no_weights = NOT_A_MEAN

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        log_odds = hide_padding(self._scores(p, mask, embedding), mask, -torch.inf)
        return torch.sigmoid(torch.logsumexp(log_odds, dim=1))

    def _summary(self) -> Summary:
        return Summary(scores=self._scores)

    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return floored(p).log() - floored(1 - p).log()

    def _conclude(self, state: State) -> Tensor:
        return torch.sigmoid(state["peak"] + state["mass"].log())
