"""Pooling a recording that arrives in pieces: exact, in constant memory, in any order of merging.

A `Stream` checks its input, reduces each chunk to a small state and adds that to its own. The state depends on the
operator; a `Summary` computes one from frames, adds two, and computes the result from one. Adding states is
associative, so a cluster can pool a recording in pieces and merge the pieces' streams pairwise.

State is kept in float64, whatever the chunks' dtype, so that a million small chunks add up to what one large one gives.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from earmark.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from earmark.pooling.base import Pool

State = tuple[Tensor, ...]


class Summary(ABC):
    """The state that a stream keeps of past frames.

    A state is a tuple of `size` float64 tensors whose first axis is the bag; the last one counts its frames.
    """

    size: int
    finish: Callable[..., Tensor]

    @abstractmethod
    def digest(self, p: Tensor, mask: Tensor, embedding: Tensor | None) -> State:
        """The state of one chunk: p (bags, frames, classes), mask (bags, frames)."""

    @abstractmethod
    def add(self, a: State, b: State) -> State:
        """The state of a's frames and b's frames together."""

    def result(self, state: State) -> Tensor:
        """P (bags, classes)."""
        return self.finish(*state)


class Sums(Summary):
    """The sum over frames of f(p), and the number of frames: `finish(total, count)`."""

    size = 2

    def __init__(self, f: Callable[[Tensor], Tensor], finish: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.f, self.finish = f, finish

    def digest(self, p: Tensor, mask: Tensor, embedding: Tensor | None) -> State:
        return torch.where(mask.unsqueeze(-1), self.f(p), 0.0).sum(1), _count(p, mask)

    def add(self, a: State, b: State) -> State:
        return a[0] + b[0], a[1] + b[1]


class Largest(Summary):
    """The k largest values per class, in falling order, filled up with -inf: `finish(top, count)`, top (bags, k,
    classes)."""

    size = 2

    def __init__(self, k: int, finish: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.k, self.finish = k, finish

    def digest(self, p: Tensor, mask: Tensor, embedding: Tensor | None) -> State:
        return self._keep(p.masked_fill(~mask.unsqueeze(-1), -torch.inf)), _count(p, mask)

    def add(self, a: State, b: State) -> State:
        return self._keep(torch.cat((a[0], b[0]), dim=1)), a[1] + b[1]

    def _keep(self, p: Tensor) -> Tensor:
        missing = self.k - p.shape[1]
        if missing > 0:
            p = torch.cat((p, p.new_full((p.shape[0], missing, p.shape[2]), -torch.inf)), dim=1)
        return p.topk(self.k, dim=1).values


class LogSums(Summary):
    """Sums under a soft-max, kept relative to the largest score so far: `finish(peak, mass, moment, count)`.

    peak = max s; mass = sum of exp(s - peak); moment = sum of p exp(s - peak), with scores s = `scores(p, mask,
    embedding)`.
    """

    size = 4

    def __init__(
        self,
        scores: Callable[[Tensor, Tensor | None, Tensor | None], Tensor],
        finish: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    ) -> None:
        self.scores, self.finish = scores, finish

    def digest(self, p: Tensor, mask: Tensor, embedding: Tensor | None) -> State:
        scores = self.scores(p, mask, embedding).masked_fill(~mask.unsqueeze(-1), -torch.inf)
        peak = scores.amax(1)
        e = torch.exp(scores - _finite(peak).unsqueeze(1))
        return peak, e.sum(1), (e * p).sum(1), _count(p, mask)

    def add(self, a: State, b: State) -> State:
        peak = torch.maximum(a[0], b[0])
        scale_a, scale_b = torch.exp(a[0] - _finite(peak)), torch.exp(b[0] - _finite(peak))
        return peak, scale_a * a[1] + scale_b * b[1], scale_a * a[2] + scale_b * b[2], a[3] + b[3]


class Together(Summary):
    """Two summaries side by side: `finish(state of the first, state of the second)`."""

    def __init__(self, first: Summary, second: Summary, finish: Callable[[State, State], Tensor]) -> None:
        self.first, self.second, self.finish = first, second, finish
        self.size = first.size + second.size

    def digest(self, p: Tensor, mask: Tensor, embedding: Tensor | None) -> State:
        return self.first.digest(p, mask, embedding) + self.second.digest(p, mask, embedding)

    def add(self, a: State, b: State) -> State:
        n = self.first.size
        return self.first.add(a[:n], b[:n]) + self.second.add(a[n:], b[n:])

    def result(self, state: State) -> Tensor:
        return self.finish(state[: self.first.size], state[self.first.size :])


class Stream:
    """A running pool; made by `pool.stream()`.

    The operator is copied as it is now: training it further does not change a stream that is under way. No gradients.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = copy.deepcopy(pool).eval().requires_grad_(False).double()
        self._summary = self._pool._summary()
        self._state: State | None = None
        self._single = False
        self._dtype = torch.float32

    @torch.no_grad()
    def update(self, p: Tensor, mask: Tensor | None = None, *, embedding: Tensor | None = None) -> None:
        """Add frames.

        Parameters
        ----------
        p : (frames, classes) of one recording, or (bags, frames, classes) of several
        mask : (frames,) or (bags, frames)
        embedding : (frames, dim) or (bags, frames, dim)
        """
        single = p.ndim == 2
        if self._state is not None and single != self._single:
            raise ArgumentError(
                f"p: expected {2 if self._single else 3} axes, as in the first chunk, got shape {tuple(p.shape)}"
            )
        if single:
            p, mask, embedding = (None if x is None else x.unsqueeze(0) for x in (p, mask, embedding))  # type: ignore[assignment]
        if self._state is not None and p.ndim == 3 and self._state[0].shape[0] != p.shape[0]:
            raise ArgumentError(f"p: expected {self._state[0].shape[0]} bags, as in the first chunk, got {p.shape[0]}")
        h = None if embedding is None else embedding.double()
        x, real, h = self._pool._admit(p.double(), mask, h, part=True)
        if x.shape[1] == 0:
            return
        if real is None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        state = self._summary.digest(torch.where(real.unsqueeze(-1), x, 0.0), real, h)
        self._state = state if self._state is None else self._summary.add(self._state, state)
        self._single, self._dtype = single, p.dtype

    def value(self) -> Tensor:
        """P of everything so far: (classes,) or (bags, classes), as the chunks were."""
        if self._state is None:
            raise DataError("expected at least one frame before value(), got none")
        if not bool((self._state[-1] > 0).all()):
            raise DataError(
                f"bag {int((self._state[-1] == 0).flatten().nonzero()[0])}: expected at least one frame, got none"
            )
        P = self._summary.result(self._state).to(self._dtype)
        return P[0] if self._single else P

    def merge(self, other: Stream) -> None:
        """Add all frames of another stream of the same pool. Associative: merge in any grouping."""
        if not isinstance(other, Stream) or not _same(self._pool, other._pool):
            raise ArgumentError("expected a stream of the same pool with the same parameters, got another")
        if other._state is None:
            return
        if self._state is None:
            self._state, self._single, self._dtype = other._state, other._single, other._dtype
            return
        if self._single != other._single or self._state[0].shape[0] != other._state[0].shape[0]:
            raise ArgumentError("expected a stream with the same number of bags, got another")
        self._state = self._summary.add(self._state, tuple(x.to(self._state[0].device) for x in other._state))


def _same(a: Pool, b: Pool) -> bool:
    if type(a) is not type(b) or a.extra_repr() != b.extra_repr():
        return False
    mine, theirs = a.state_dict(), b.state_dict()
    return all(torch.equal(mine[k].cpu(), theirs[k].cpu()) for k in mine)


def _count(p: Tensor, mask: Tensor) -> Tensor:
    return mask.sum(1, keepdim=True, dtype=p.dtype)


def _finite(peak: Tensor) -> Tensor:
    """-inf (no frame yet) would give -inf - -inf; any finite number does, since what it scales is 0."""
    return peak.clamp_min(torch.finfo(peak.dtype).min)
