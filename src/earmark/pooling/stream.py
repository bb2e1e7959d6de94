"""Pooling a recording that arrives in pieces: exact, in constant memory, in any order of merging.

A `Stream` checks its input, reduces each chunk to a small state and adds that to its own. What the state holds depends
on the operator; a `Summary` computes one from frames and adds two, and the operator's `_conclude` computes P from one.
Adding is associative, so a cluster can pool a recording in pieces and merge the pieces' streams pairwise.

State is kept in float64, whatever the chunks' dtype, so that a million small chunks add up to what one large one gives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from earmark.errors import ArgumentError, DataError
from earmark.pooling.autopool import hide_padding

if TYPE_CHECKING:
    from earmark.pooling.base import Pool

State = dict[str, Tensor]


class Summary:
    """What a stream keeps of past frames, by name; the first axis is the bag. f(p) is p by default.

    count               (bags, 1)           the number of frames
    total               (bags, classes)     the sum of f(p)
    top                 (bags, k, classes)  with `k`: the k largest f(p), in falling order, filled up with -inf
    peak, mass, moment  (bags, classes)     with `scores`, which gives s: max s, and the sums of exp(s - peak) and of
                                            p exp(s - peak)
    """

    def __init__(
        self,
        *,
        f: Callable[[Tensor], Tensor] = torch.positive,
        k: int = 0,
        scores: Callable[[Tensor, Tensor | None, Tensor | None], Tensor] | None = None,
    ) -> None:
        self.f, self.k, self.scores = f, k, scores

    def digest(self, p: Tensor, mask: Tensor, embedding: Tensor | None) -> State:
        """The state of one chunk: p (bags, frames, classes), mask (bags, frames)."""
        x = self.f(p)
        state = {"count": mask.sum(1, keepdim=True, dtype=p.dtype), "total": hide_padding(x, mask).sum(1)}
        if self.k:
            state["top"] = self._largest(hide_padding(x, mask, -torch.inf))
        if self.scores is not None:
            scores = hide_padding(self.scores(p, mask, embedding), mask, -torch.inf)
            state["peak"] = scores.amax(1)
            e = torch.exp(scores - _finite(state["peak"]).unsqueeze(1))
            state |= {"mass": e.sum(1), "moment": (e * p).sum(1)}
        return state

    def add(self, a: State, b: State) -> State:
        """The state of a's frames and b's frames together."""
        state = {"count": a["count"] + b["count"], "total": a["total"] + b["total"]}
        if self.k:
            state["top"] = self._largest(torch.cat((a["top"], b["top"]), dim=1))
        if self.scores is not None:
            state["peak"] = peak = torch.maximum(a["peak"], b["peak"])
            scale_a, scale_b = torch.exp(a["peak"] - _finite(peak)), torch.exp(b["peak"] - _finite(peak))
            state |= {name: scale_a * a[name] + scale_b * b[name] for name in ("mass", "moment")}
        return state

    def _largest(self, x: Tensor) -> Tensor:
        missing = self.k - x.shape[1]
        if missing > 0:
            x = torch.cat((x, x.new_full((x.shape[0], missing, x.shape[2]), -torch.inf)), dim=1)
        return x.topk(self.k, dim=1).values


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
        if self._state is not None and p.ndim == 3 and len(self._state["count"]) != p.shape[0]:
            raise ArgumentError(
                f"p: expected {len(self._state['count'])} bags, as in the first chunk, got {p.shape[0]}"
            )
        h = None if embedding is None else embedding.double()
        x, real, h = self._pool._admit(p.double(), mask, h, part=True)
        if x.shape[1] == 0:
            return
        if real is None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        state = self._summary.digest(hide_padding(x, real), real, h)
        self._state = state if self._state is None else self._summary.add(self._state, state)
        self._single, self._dtype = single, p.dtype

    def value(self) -> Tensor:
        """P of everything so far: (classes,) or (bags, classes), as the chunks were."""
        if self._state is None:
            raise DataError("expected at least one frame before value(), got none")
        empty = (self._state["count"] == 0).flatten().nonzero()
        if len(empty):
            raise DataError(f"bag {int(empty[0])}: expected at least one frame, got none")
        P = self._pool._conclude(self._state).to(self._dtype)
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
        if self._single != other._single or len(self._state["count"]) != len(other._state["count"]):
            raise ArgumentError("expected a stream with the same number of bags, got another")
        device = self._state["count"].device
        self._state = self._summary.add(self._state, {name: x.to(device) for name, x in other._state.items()})


def _same(a: Pool, b: Pool) -> bool:
    if type(a) is not type(b) or a.extra_repr() != b.extra_repr():
        return False
    mine, theirs = a.state_dict(), b.state_dict()
    return all(torch.equal(mine[k].cpu(), theirs[k].cpu()) for k in mine)


def _finite(peak: Tensor) -> Tensor:
    """-inf (no frame yet) would give -inf - -inf; any finite number does, since what it scales is 0."""
    return peak.clamp_min(torch.finfo(peak.dtype).min)
