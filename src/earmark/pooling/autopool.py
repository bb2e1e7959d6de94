"""Eq. (8) as one differentiable function, three ways.

- The formula itself, by torch.softmax, for small bags and wherever PyTorch must see through it: compilation, export,
  vmap, second derivatives. It is the fastest on small bags, where the number of operations counts, not their size.
- In blocks, for large bags on a CPU: every intermediate stays in the cache, and only p is kept for the backward pass.
- As Triton kernels, for large or padded bags on a GPU: p is read once forward and once backward.

The last two use the closed forms dP/dp_t = w_t (1 + alpha (p_t - P)) and dP/dalpha = Var_w(p). They keep p, and per bag
and class the reference r (the p with the greatest weight), the mass s = sum of exp(alpha (p - r)) and the offset P - r.
The offset is small where alpha is large, so that alpha (p - P) = alpha ((p - r) - (P - r)) keeps its digits.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from earmark.pooling import kernels

BLOCK_ELEMENTS = 1 << 18
"""Elements per thread and block on a CPU: a megabyte of float32. Smaller blocks are no faster, and every operation on a
block makes the threads wait for each other, which is expensive on a busy machine."""
LARGE_ELEMENTS = 1 << 20
"""From this size (on a CPU: per thread), the other two are faster despite their overhead in Python."""


def is_transformed(p: Tensor) -> bool:
    """Whether p is symbolic: while compiling or exporting, or under vmap and similar transforms."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or p.is_meta


def has_kernels(p: Tensor) -> bool:
    """Whether the kernels can run on p; they ignore padding whatever it holds, NaN included."""
    return p.is_cuda and p.dtype == torch.float32 and not is_transformed(p) and kernels.available()


def hide_padding(x: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """x (bags, frames, ...) with a value in padded frames; a selection, not a product, since NaN * 0 is NaN."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, value)


def autopool(p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
    """P_alpha (bags, classes), Eq. (8).

    Parameters
    ----------
    p : (bags, frames, classes), in [0, 1], also where padded unless p `has_kernels`
    alpha : (classes,), or (bags, classes)
    mask : (bags, frames), bool
    """
    if has_kernels(p) and (mask is not None or p.numel() >= LARGE_ELEMENTS):
        return _Fused.apply(p, alpha, mask)  # type: ignore[no-any-return, no-untyped-call]
    if is_transformed(p) or p.numel() < LARGE_ELEMENTS * (1 if p.is_cuda else torch.get_num_threads()):
        return _formula(p, alpha, mask)
    return _Blocks.apply(p, alpha, mask)  # type: ignore[no-any-return, no-untyped-call]


def _formula(p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
    per_bag = alpha.ndim == 2  # otherwise not even a view of alpha, which counts on small bags
    scores = hide_padding((alpha.unsqueeze(1) if per_bag else alpha) * p, mask, -torch.inf)
    return (torch.softmax(scores, dim=1) * p).sum(1)


def _twice_differentiable(saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients again, as a graph that can be differentiated once more."""
    p, alpha, mask = saved
    wanted = [x for x in (p, alpha) if x.requires_grad]
    clean = hide_padding(p, mask)  # the kernels take any padding, this does not
    grads = iter(torch.autograd.grad(_formula(clean, alpha, mask), wanted, grad, create_graph=True))
    return *(next(grads) if x.requires_grad else None for x in (p, alpha)), None


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
        a = alpha.unsqueeze(-2)
        reference = _reference(p, alpha, mask)
        mass, moment = torch.zeros_like(reference), torch.zeros_like(reference)
        for rows in _blocks(p):
            x = p[:, rows] - reference
            if mask is not None:
                x.masked_fill_(~mask[:, rows].unsqueeze(-1), 0.0)
            e = (x * a).exp_()
            if mask is not None:
                e.mul_(mask[:, rows].unsqueeze(-1))
            mass += e.sum(1, keepdim=True)
            moment += e.mul_(x).sum(1, keepdim=True)
        offset = moment / mass
        ctx.save_for_backward(p, alpha, mask, reference, mass, offset)
        return (reference + offset).squeeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        p, alpha, mask, reference, mass, offset = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _twice_differentiable((p, alpha, mask), grad)
        a = alpha.unsqueeze(-2)
        grad_p, grad_alpha = torch.empty_like(p), torch.zeros_like(grad)
        share = grad.unsqueeze(1) / mass
        for rows in _blocks(p):
            x = p[:, rows] - reference
            if mask is not None:
                x.masked_fill_(~mask[:, rows].unsqueeze(-1), 0.0)
            out = grad_p[:, rows]
            torch.mul(x, a, out=out).exp_().mul_(share)
            if mask is not None:
                out.mul_(mask[:, rows].unsqueeze(-1))
            d = x.sub_(offset)
            t = out * d
            out.addcmul_(t, a)
            grad_alpha += t.mul_(d).sum(1)
        return grad_p, grad_alpha if alpha.ndim == 2 else grad_alpha.sum(0), None


def _reference(p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
    """(bags, 1, classes): the p of the real frame with the greatest weight."""
    if bool((alpha < 0).any()):
        return torch.where(alpha.unsqueeze(-2) < 0, -_maximum(p, mask, -1), _maximum(p, mask, 1))
    return _maximum(p, mask, 1)


def _maximum(p: Tensor, mask: Tensor | None, sign: int) -> Tensor:
    """(bags, 1, classes): the greatest sign * p among real frames."""
    if mask is None:
        return p.amax(1, keepdim=True) if sign > 0 else -p.amin(1, keepdim=True)
    peak = p.new_full((p.shape[0], 1, p.shape[2]), -1.0)
    for rows in _blocks(p):
        peak = torch.maximum(peak, hide_padding(sign * p[:, rows], mask[:, rows], -1.0).amax(1, keepdim=True))
    return peak


def _blocks(p: Tensor) -> Iterator[slice]:
    """Slices of frames that cut p into blocks of about BLOCK_ELEMENTS per thread."""
    bags, frames, classes = p.shape
    n = max(1, BLOCK_ELEMENTS * torch.get_num_threads() // (bags * classes))
    return (slice(i, i + n) for i in range(0, frames, n))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
        P, state = kernels.forward(p, alpha, mask)
        ctx.save_for_backward(p, alpha, mask, state)
        return P

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        p, alpha, mask, state = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _twice_differentiable((p, alpha, mask), grad)
        return *kernels.backward(p, alpha, mask, state, grad), None
