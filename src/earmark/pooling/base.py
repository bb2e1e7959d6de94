"""The base classes of all pooling operators: checked entry points, and the registry.

An operator implements only its maths. It subclasses

- `Pool` and implements `_reduce(p, mask, embedding) -> P`, or
- `WeightedPool` (P is a weighted mean of p) and implements `_weights(p, mask, embedding)`, or
- `ScoredPool` (the weights are a soft-max over frames) and implements `_scores(p, mask, embedding)`,

and, if needed, `penalty`, `project`, and for streams `_summary` and `_conclude`. When these are called, shapes have
been checked, p is at least float32 and padded frames hold 0 in p and in the embedding, so that padding has no
influence, even if it holds NaN.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, SupportsIndex

import torch
from torch import Tensor, nn

from earmark.errors import ArgumentError, DataError
from earmark.pooling.autopool import hide_padding, is_transformed
from earmark.pooling.stream import State, Stream, Summary
from earmark.registry import Registry

_ROUNDING = 16  # machine epsilons by which probabilities may be outside [0, 1], such as means of several models


class Pool(nn.Module, ABC):
    """A pooling operator: from the probabilities of a bag's frames to one probability for the bag, for each class."""

    name: ClassVar[str]
    is_mean: ClassVar[bool] = True
    """The result lies within [min, max] of its frames; one frame, or a constant bag, is itself."""
    is_ordered: ClassVar[bool] = False
    """The order of the frames matters."""
    uses_embedding: ClassVar[bool] = False
    """The weights come from an embedding of the frames rather than from their probabilities."""
    why_no_weights: ClassVar[str] = ""
    why_no_stream: str = ""

    check_values: bool = True
    """Check the values of p and mask, to reject NaN, values outside [0, 1] and empty bags; False saves one pass over p.
    On a GPU this requires synchronisation, so there only the first ten calls and every hundredth are checked. Compiled,
    exported, vmapped and graph-captured calls are not checked."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes = count("n_classes", n_classes)
        self._calls = 0

    def forward(self, p: Tensor, mask: Tensor | None = None, *, embedding: Tensor | None = None) -> Tensor:
        """Pool each bag.

        Parameters
        ----------
        p : (bags, frames, classes), in [0, 1]
            Probability of each class in each frame.
        mask : (bags, frames), bool or 0/1 integers
            True where a frame is real, False where it is padding. None: all are real.
        embedding : (bags, frames, dim)
            The network's embedding of each frame, for the operators that use it.

        Returns
        -------
        P : (bags, classes)
            In p's dtype; half precision is computed in float32 and rounded once.
        """
        x, mask, embedding = self._admit(p, mask, embedding)
        P = self._reduce(x, mask, embedding)
        return P if P.dtype == p.dtype else P.to(p.dtype)

    def weights(self, p: Tensor, mask: Tensor | None = None, *, embedding: Tensor | None = None) -> Tensor:
        """Responsibilities, as in Fig. 1: w (bags, frames, classes) >= 0, sum 1 over the real frames, 0 on padding.

        P is the sum of w p.
        """
        x, mask, embedding = self._admit(p, mask, embedding)
        return self._weights(x, mask, embedding).to(p.dtype)

    def penalty(self) -> Tensor:
        """The operator's term in the loss; a scalar, 0 for most."""
        return torch.zeros(())

    @torch.no_grad()
    def project(self) -> None:
        """Project the parameters onto their allowed range; call it after each step of the optimiser."""
        return None

    def at_frame_rate(self, frame_rate: float) -> None:
        """Set the number of frames per second, for an operator with options in seconds; called by the detector."""
        return None

    def class_axes(self, name: str) -> tuple[int, ...]:
        """Axes of a tensor of `state_dict` that have an entry for each class; axes that it does not have are ignored.

        >>> pool = create_pool("gated-attention", n_classes=2, embedding_dim=8)
        >>> pool.class_axes("look.weight"), pool.class_axes("gate.weight")
        ((0,), ())
        """
        return (0,)

    def stream(self) -> Stream:
        """A running pool over a recording that arrives in pieces: exact, in constant memory, mergeable.

        >>> pool = create_pool("mean", n_classes=1)
        >>> s = pool.stream()
        >>> s.update(torch.tensor([[0.25], [0.75]]))
        >>> s.update(torch.tensor([[1.0], [1.0]]))
        >>> s.value()
        tensor([0.7500])
        """
        if self.why_no_stream:
            raise ArgumentError(f"pool {self.name!r} cannot be streamed: {self.why_no_stream}")
        return Stream(self)

    def extra_repr(self) -> str:
        return f"n_classes={self.n_classes}"

    @abstractmethod
    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        """(bags, classes) from checked input."""

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        raise ArgumentError(f"pool {self.name!r} has no weights: {self.why_no_weights}")

    def _summary(self) -> Summary:
        """What a stream keeps of past frames."""
        return Summary()

    def _conclude(self, state: State) -> Tensor:
        """(bags, classes) from the state of a stream."""
        raise NotImplementedError

    def _admit(
        self, p: Tensor, mask: Tensor | None, embedding: Tensor | None, *, part: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Check and prepare; a `part` of a bag, unlike a whole one, may be empty."""
        self._check_shapes(p, mask, embedding)
        if mask is not None and mask.dtype != torch.bool:
            mask = mask != 0
        is_clean = False
        if self.check_values and self._is_check_due(p):
            p, is_clean = _checked_values(p, mask, part)
        if p.dtype in (torch.float16, torch.bfloat16):
            p = p.float()
        if mask is None:
            return p, None, embedding
        return self._hide(p, mask, is_clean), mask, None if embedding is None else hide_padding(embedding, mask)

    def _hide(self, p: Tensor, mask: Tensor, is_clean: bool) -> Tensor:
        """p with its padding replaced, by 0 by default; `is_clean` if the padding is known to hold probabilities."""
        return hide_padding(p, mask)

    def _is_check_due(self, p: Tensor) -> bool:
        """Whether to check the values of p in this call: reading them from a GPU requires synchronisation."""
        if is_transformed(p):
            return False
        if not p.is_cuda:
            return True
        if torch.cuda.is_current_stream_capturing():
            return False
        self._calls += 1
        return self._calls <= FIRST_CHECKS or self._calls % CHECK_INTERVAL == 0

    def _check_shapes(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> None:
        if not isinstance(p, Tensor) or not (mask is None or isinstance(mask, Tensor)):
            kinds = f"{type(p).__name__} and {type(mask).__name__}"
            raise ArgumentError(f"p and mask: expected torch tensors, got {kinds}; convert them with torch.as_tensor")
        if p.ndim != 3 or p.shape[2] != self.n_classes:
            raise ArgumentError(
                f"p: expected (bags, frames, classes) with classes = {self.n_classes}, got {tuple(p.shape)}"
            )
        if not p.is_floating_point():
            raise ArgumentError(f"p: expected a floating-point tensor, got {p.dtype}")
        if mask is not None:
            if mask.shape != p.shape[:2]:
                raise ArgumentError(f"mask: expected (bags, frames) = {tuple(p.shape[:2])}, got {tuple(mask.shape)}")
            if mask.is_floating_point():
                raise ArgumentError(f"mask: expected bool (True = real frame) or 0/1 integers, got {mask.dtype}")
        if embedding is not None and (embedding.ndim != 3 or embedding.shape[:2] != p.shape[:2]):
            raise ArgumentError(
                f"embedding: expected (bags, frames, dim) with {tuple(p.shape[:2])} first, got {tuple(embedding.shape)}"
            )


class WeightedPool(Pool):
    """A pool that is a weighted mean of its frames: P = sum over t of w_t p_t."""

    def _reduce(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return (self._weights(p, mask, embedding) * p).sum(1)

    @abstractmethod
    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        """(bags, frames, classes), summing to 1 over the real frames."""


class ScoredPool(WeightedPool):
    """A weighted mean whose weights are a soft-max of scores over the frames: w_t = exp(s_t) / sum of exp(s_z)."""

    @abstractmethod
    def _scores(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        """(bags, frames, classes), any real numbers."""

    def _weights(self, p: Tensor, mask: Tensor | None, embedding: Tensor | None) -> Tensor:
        return torch.softmax(hide_padding(self._scores(p, mask, embedding), mask, -torch.inf), dim=1)

    def _summary(self) -> Summary:
        return Summary(scores=self._scores)

    def _conclude(self, state: State) -> Tensor:
        return state["moment"] / state["mass"]


POOLS: Registry[Pool] = Registry("pool")
FLOOR = 1e-7
FIRST_CHECKS, CHECK_INTERVAL = 10, 100  # calls on a GPU in which values are checked


def create_pool(name: str, n_classes: int, **options: object) -> Pool:
    """Build a pooling operator by name.

    >>> create_pool("rap", n_classes=10, penalty=1e-3)
    RegularizedAutoPool(n_classes=10, penalty=0.001)
    >>> create_pool("atuo", n_classes=10)
    Traceback (most recent call last):
    earmark.errors.ArgumentError: pool='atuo' is not known; did you mean 'auto'? Choose from: max, min, mean, ...
    """
    return POOLS.create(name, n_classes, **options)


def floored(p: Tensor) -> Tensor:
    """p, but at least FLOOR, for operators with a logarithm; the gradient is finite, and passes as if without floor."""
    return p + (p.clamp_min(FLOOR) - p).detach()


def count(name: str, value: SupportsIndex, *, most: float = math.inf) -> int:
    """A whole number of at least 1 and at most `most`, numpy's included."""
    try:
        number = int(operator.index(value))
    except TypeError:
        number = 0
    if number < 1:
        raise ArgumentError(f"{name}: expected a whole number of at least 1, got {value!r}")
    if number > most:
        raise ArgumentError(f"{name}: expected at most {most}, got {value!r}")
    return number


def per_class(name: str, value: float | Sequence[float] | Tensor, n_classes: int) -> Tensor:
    """One finite float32 number per class from a number or a sequence of them."""
    try:
        values = torch.as_tensor(value, dtype=torch.float32)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}: expected one number or one per class ({n_classes}), got {value!r}") from None
    if values.ndim > 1 or (values.ndim == 1 and len(values) != n_classes):
        raise ArgumentError(
            f"{name}: expected one number or one per class ({n_classes}), got shape {tuple(values.shape)}"
        )
    if not torch.isfinite(values).all():
        raise ArgumentError(f"{name}: expected finite numbers, got {values.tolist()}")
    return values.expand(n_classes).clone()


def _checked_values(p: Tensor, mask: Tensor | None, part: bool) -> tuple[Tensor, bool]:
    """p without rounding errors beyond 0 and 1, if it can be pooled; and whether its padding holds probabilities."""
    if p.shape[1] == 0 and not part:
        raise DataError(f"bags are empty: p has no frames, shape {tuple(p.shape)}")
    if p.numel() == 0:
        return p, True
    if mask is not None and not part and not bool(mask.any(1).all()):
        empty = (~mask.any(1)).nonzero().flatten().tolist()
        raise DataError(f"bag {empty[0]} is empty: its mask has no True ({len(empty)} of {len(mask)} bags are empty)")
    low, high = _range(p)
    if low >= 0 and high <= 1:  # False for NaN
        return p, True
    if mask is not None:  # padding may hold anything
        low, high = _range(p[mask])
    if low != low:
        raise DataError("p has NaN among its real frames")
    slack = _ROUNDING * torch.finfo(p.dtype).eps
    if low < -slack or high > 1 + slack:
        hint = "are these logits? Apply torch.sigmoid first"
        raise DataError(f"p: expected probabilities in [0, 1], got values from {low:.9g} to {high:.9g}; {hint}")
    return p if low >= 0 and high <= 1 else p.clamp(0, 1), mask is None


def _range(p: Tensor) -> tuple[float, float]:
    """The lowest and the highest value; NaN if there is one."""
    low, high = torch.aminmax(p.detach())
    return low.item(), high.item()
