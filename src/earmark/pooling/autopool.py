"""Eq. (8) as one differentiable function, three ways.

- The formula itself, by torch.softmax, for small bags and wherever PyTorch must see through it: compilation, export,
  vmap, second derivatives. On small bags nothing beats it: its cost is the number of operations, not their size.
- In blocks, for large bags on a CPU: every intermediate stays in the cache, and only p is kept for the backward pass.
- As two Triton kernels, for CUDA: p is read once forward and once backward, whatever the size.

The last two use the closed forms dP/dp_t = w_t (1 + alpha (p_t - P)) and dP/dalpha = Var_w(p). They keep p, and per bag
and class the reference r (the p with the greatest weight), the mass s = sum of exp(alpha (p - r)) and the offset P - r.
The offset is small where alpha is large, so that alpha (p - P) = alpha ((p - r) - (P - r)) keeps its digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from earmark.pooling import kernels

__all__ = ["autopool"]

BLOCK_ELEMENTS = 1 << 17
"""Elements per block on a CPU: half a megabyte of float32, so that the four blocks in use fit a core's cache."""
LARGE_ELEMENTS = 1 << 20
"""From here on blocks pay for the Python that runs them."""


def autopool(p: Tensor, alpha: Tensor, mask: Tensor | None, *, eager: bool) -> Tensor:
    """P_alpha, Eq. (8).

    Parameters
    ----------
    p : (bags, frames, classes), in [0, 1], 0 where padded
    alpha : (1, classes), or (bags, classes)
    mask : (bags, frames), bool
    eager
        False while something transforms the call: only the formula can be transformed.

    Returns
    -------
    P : (bags, classes)
    """
    if eager and p.is_cuda and p.dtype == torch.float32 and kernels.available():
        return _Fused.apply(p, alpha, mask)  # type: ignore[no-any-return, no-untyped-call]
    if eager and p.numel() >= LARGE_ELEMENTS:
        return _Blocks.apply(p, alpha, mask)  # type: ignore[no-any-return, no-untyped-call]
    return _formula(p, alpha, mask)


def _formula(p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
    scores = alpha.unsqueeze(1) * p
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(-1), -torch.inf)
    return (torch.softmax(scores, dim=1) * p).sum(1)


def _twice_differentiable(saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients again, as a graph that can be differentiated once more."""
    p, alpha, mask = saved
    wanted = [x for x in (p, alpha) if x.requires_grad]
    grads = iter(torch.autograd.grad(_formula(p, alpha, mask), wanted, grad, create_graph=True))
    return *(next(grads) if x.requires_grad else None for x in (p, alpha)), None


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
        reference = _reference(p, alpha, mask)
        mass, moment = torch.zeros_like(reference), torch.zeros_like(reference)
        for bag, rows in _blocks(p):
            x = p[bag, rows] - reference[bag].unsqueeze(1)
            e = (x * _row(alpha, bag)).exp_()
            if mask is not None:
                e.masked_fill_(~mask[bag, rows].unsqueeze(-1), 0.0)
            mass[bag] += e.sum(1)
            moment[bag] += e.mul_(x).sum(1)
        offset = moment / mass
        ctx.save_for_backward(p, alpha, mask, reference, mass, offset)
        return reference + offset

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        p, alpha, mask, reference, mass, offset = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _twice_differentiable((p, alpha, mask), grad)
        grad_p, grad_alpha = torch.empty_like(p), torch.zeros_like(offset)
        share = grad / mass
        for bag, rows in _blocks(p):
            x = p[bag, rows] - reference[bag].unsqueeze(1)
            out = grad_p[bag, rows]
            torch.mul(x, _row(alpha, bag), out=out).exp_().mul_(share[bag].unsqueeze(1))
            if mask is not None:
                out.masked_fill_(~mask[bag, rows].unsqueeze(-1), 0.0)
            d = x.sub_(offset[bag].unsqueeze(1))
            t = out * d
            out.addcmul_(t, _row(alpha, bag))
            grad_alpha[bag] += t.mul_(d).sum(1)
        return grad_p, grad_alpha if alpha.shape[0] > 1 else grad_alpha.sum(0, keepdim=True), None


def _reference(p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
    """(bags, classes): the p of the frame with the greatest weight."""
    high = p.amax(1)  # padding holds 0, which is never above the maximum
    if bool((alpha >= 0).all()):
        return high
    low = p if mask is None else p.masked_fill(~mask.unsqueeze(-1), torch.inf)
    return torch.where(alpha < 0, low.amin(1), high)


def _blocks(p: Tensor) -> Iterator[tuple[slice, slice]]:
    """Index pairs (bags, frames) that cut p into blocks of about BLOCK_ELEMENTS."""
    bags, frames, classes = p.shape
    together = BLOCK_ELEMENTS // (frames * classes)
    if together > 1:
        yield from ((slice(i, i + together), slice(None)) for i in range(0, bags, together))
    else:
        n = max(1, BLOCK_ELEMENTS // classes)
        yield from ((slice(bag, bag + 1), slice(i, i + n)) for bag in range(bags) for i in range(0, frames, n))


def _row(alpha: Tensor, bag: slice) -> Tensor:
    """alpha for one block of bags: (bags or 1, 1, classes)."""
    return (alpha if alpha.shape[0] == 1 else alpha[bag]).unsqueeze(1)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
        P, reference, mass, offset = kernels.forward(p, alpha, mask)
        ctx.save_for_backward(p, alpha, mask, reference, mass, offset)
        return P

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        p, alpha, mask, reference, mass, offset = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _twice_differentiable((p, alpha, mask), grad)
        grad_p, grad_alpha = kernels.backward(p, alpha, mask, reference, mass, offset, grad)
        return grad_p, grad_alpha, None
