"""Eq. (8) and its gradients as Triton kernels: p is read once forward, once backward, and nothing of its size is kept.

One program processes a range of one bag's frames, BLOCK_T rows of BLOCK_C classes at a time. Each of its lanes keeps a
running soft-max (reference, mass, moment) over its rows, so that the loop has one exponential per element and no
exchange between threads; lanes are merged once, at the end. Long bags are split among programs (`splits`), and a
second, tiny kernel merges their results.

alpha < 0 is folded away by u = sign(alpha) p and beta = |alpha|: the greatest weight is then always at the greatest u.
"""

import functools
import shutil
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of PyTorch
    triton = None

NOTHING = -2.0
"""The reference of a lane without any frame: below every u in [-1, 1]."""
TILE_ELEMENTS = 4096
PROGRAMS_WANTED = 1024
"""Enough programs to fill a large GPU several times over."""
MOST_SPLITS = 128


if triton is not None:

    @triton.jit
    def _merge_lanes(reference, mass, moment, beta):  # type: ignore[no-untyped-def]
        top = tl.max(reference, 0)
        shift = reference - top[None, :]
        scale = tl.exp(beta[None, :] * shift)
        return top, tl.sum(mass * scale, 0), tl.sum((moment + shift * mass) * scale, 0)

    @triton.jit
    def _store_state(state_ptr, P_ptr, at, plane, sign, reference, mass, moment, in_c):  # type: ignore[no-untyped-def]
        offset = moment / mass
        tl.store(P_ptr + at, sign * (reference + offset), in_c)
        tl.store(state_ptr + at, reference, in_c)
        tl.store(state_ptr + plane + at, mass, in_c)
        tl.store(state_ptr + 2 * plane + at, offset, in_c)

    @triton.jit  # type: ignore[untyped-decorator]
    def _forward_kernel(  # type: ignore[no-untyped-def]
        p_ptr, alpha_ptr, mask_ptr, state_ptr, P_ptr, frames, classes, alpha_stride, stretch, plane,
        HAS_MASK: tl.constexpr, WHOLE: tl.constexpr, NOTHING: tl.constexpr,
        BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
    ):  # fmt: skip
        bag, split = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
        c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
        in_c = c < classes
        alpha = tl.load(alpha_ptr + bag * alpha_stride + c, in_c, 0.0)
        sign = tl.where(alpha < 0, -1.0, 1.0)
        beta = tl.abs(alpha)
        reference = tl.full((BLOCK_T, BLOCK_C), NOTHING, tl.float32)
        mass = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
        moment = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
        begin = split * stretch
        end = tl.minimum(begin + stretch, frames)
        for t0 in range(begin, end, BLOCK_T):
            t = t0 + tl.arange(0, BLOCK_T)
            real = t < end
            if HAS_MASK:
                real = real & (tl.load(mask_ptr + bag * frames + t, real, 0) != 0)
            live = real[:, None] & in_c[None, :]
            u = sign[None, :] * tl.load(p_ptr + (bag * frames + t[:, None]) * classes + c[None, :], live, 0.0)
            step = u - reference
            e = tl.exp(-beta[None, :] * tl.abs(step))
            higher = live & (step > 0)
            lower = live & (step <= 0)
            moment = tl.where(higher, (moment - step * mass) * e, tl.where(lower, moment + step * e, moment))
            mass = tl.where(higher, mass * e + 1.0, tl.where(lower, mass + e, mass))
            reference = tl.where(higher, u, reference)
        top, m0, m1 = _merge_lanes(reference, mass, moment, beta)
        if WHOLE:
            _store_state(state_ptr, P_ptr, bag * classes + c, plane, sign, top, m0, m1, in_c)
        else:
            at = (bag * tl.num_programs(1) + split) * classes + c
            tl.store(state_ptr + at, top, in_c)
            tl.store(state_ptr + plane + at, m0, in_c)
            tl.store(state_ptr + 2 * plane + at, m1, in_c)

    @triton.jit  # type: ignore[untyped-decorator]
    def _merge_kernel(  # type: ignore[no-untyped-def]
        alpha_ptr, parts_ptr, state_ptr, P_ptr, splits, classes, alpha_stride, parts_plane, plane,
        NOTHING: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
    ):  # fmt: skip
        bag = tl.program_id(0).to(tl.int64)
        c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
        in_c = c < classes
        alpha = tl.load(alpha_ptr + bag * alpha_stride + c, in_c, 0.0)
        s = tl.arange(0, BLOCK_S)
        live = (s < splits)[:, None] & in_c[None, :]
        part = (bag * splits + s[:, None]) * classes + c[None, :]
        reference = tl.load(parts_ptr + part, live, NOTHING)
        mass = tl.load(parts_ptr + parts_plane + part, live, 0.0)
        moment = tl.load(parts_ptr + 2 * parts_plane + part, live, 0.0)
        top, m0, m1 = _merge_lanes(reference, mass, moment, tl.abs(alpha))
        sign = tl.where(alpha < 0, -1.0, 1.0)
        _store_state(state_ptr, P_ptr, bag * classes + c, plane, sign, top, m0, m1, in_c)

    @triton.jit  # type: ignore[untyped-decorator]
    def _backward_kernel(  # type: ignore[no-untyped-def]
        p_ptr, alpha_ptr, mask_ptr, state_ptr, grad_ptr, grad_p_ptr, grad_alpha_ptr, frames, classes, alpha_stride,
        stretch, plane, HAS_MASK: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
    ):  # fmt: skip
        bag, split = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
        c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
        in_c = c < classes
        alpha = tl.load(alpha_ptr + bag * alpha_stride + c, in_c, 0.0)
        sign = tl.where(alpha < 0, -1.0, 1.0)
        beta = tl.abs(alpha)
        at = bag * classes + c
        reference = tl.load(state_ptr + at, in_c, 0.0)
        share = tl.load(grad_ptr + at, in_c, 0.0) / tl.load(state_ptr + plane + at, in_c, 1.0)
        offset = tl.load(state_ptr + 2 * plane + at, in_c, 0.0)
        total = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
        begin = split * stretch
        end = tl.minimum(begin + stretch, frames)
        for t0 in range(begin, end, BLOCK_T):
            t = t0 + tl.arange(0, BLOCK_T)
            inside = (t < end)[:, None] & in_c[None, :]
            live = inside
            if HAS_MASK:
                live = live & (tl.load(mask_ptr + bag * frames + t, t < end, 0) != 0)[:, None]
            here = (bag * frames + t[:, None]) * classes + c[None, :]
            x = sign[None, :] * tl.load(p_ptr + here, live, 0.0) - reference[None, :]
            w = tl.where(live, share[None, :] * tl.exp(beta[None, :] * x), 0.0)
            d = x - offset[None, :]
            tl.store(grad_p_ptr + here, w * (1.0 + beta[None, :] * d), inside)
            total += w * d * d
        tl.store(grad_alpha_ptr + (bag * tl.num_programs(1) + split) * classes + c, tl.sum(total, 0), in_c)


@functools.cache
def available() -> bool:
    """Whether the kernels can run here: Triton needs a C compiler to build its launcher."""
    if triton is None:
        return False
    if not any(shutil.which(cc) for cc in ("cc", "gcc", "clang")):
        warnings.warn("no C compiler found: auto-pool runs without its fused kernels", RuntimeWarning, stacklevel=2)
        return False
    return True


def forward(p: Tensor, alpha: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """P (bags, classes), and the state for the backward pass: reference, mass and offset (3, bags, classes), of u."""
    p, alpha, mask = p.contiguous(), alpha.contiguous(), None if mask is None else mask.contiguous()
    bags, frames, classes = p.shape
    plan = _plan(bags, frames, classes)
    stride = classes if alpha.ndim == 2 else 0
    P, state = p.new_empty(bags, classes), p.new_empty(3, bags, classes)
    whole = plan.splits == 1
    parts = state if whole else p.new_empty(3, bags, plan.splits, classes)
    with _on(p.device):
        _forward_kernel[plan.grid](
            p, alpha, mask, parts, P, frames, classes, stride, plan.stretch, bags * plan.splits * classes,
            HAS_MASK=mask is not None, WHOLE=whole, NOTHING=NOTHING, **plan.block,
        )  # fmt: skip
        if not whole:
            _merge_kernel[(bags, plan.grid[2])](
                alpha, parts, state, P, plan.splits, classes, stride, bags * plan.splits * classes, bags * classes,
                NOTHING=NOTHING, BLOCK_S=triton.next_power_of_2(plan.splits), BLOCK_C=plan.block["BLOCK_C"],
            )  # fmt: skip
    return P, state


def backward(p: Tensor, alpha: Tensor, mask: Tensor | None, state: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients for p and, in its own shape, for alpha."""
    p, alpha, mask = p.contiguous(), alpha.contiguous(), None if mask is None else mask.contiguous()
    bags, frames, classes = p.shape
    plan = _plan(bags, frames, classes)
    grad_p, parts = torch.empty_like(p), p.new_empty(bags, plan.splits, classes)
    with _on(p.device):
        _backward_kernel[plan.grid](
            p, alpha, mask, state, grad.contiguous(), grad_p, parts, frames, classes,
            classes if alpha.ndim == 2 else 0, plan.stretch, bags * classes, HAS_MASK=mask is not None, **plan.block,
        )  # fmt: skip
    return grad_p, parts.sum(1) if alpha.ndim == 2 else parts.sum((0, 1))


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device; changing it costs microseconds, so only if need be."""
    return nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)


class _Plan:
    """How a tensor of this shape is cut among programs."""

    def __init__(self, bags: int, frames: int, classes: int) -> None:
        block_c = min(triton.next_power_of_2(classes), 128)
        block_t = max(1, min(TILE_ELEMENTS // block_c, triton.next_power_of_2(frames)))
        columns = triton.cdiv(classes, block_c)
        splits = min(triton.cdiv(PROGRAMS_WANTED, bags * columns), triton.cdiv(frames, 4 * block_t), MOST_SPLITS)
        self.stretch = triton.cdiv(triton.cdiv(frames, splits), block_t) * block_t
        self.splits = triton.cdiv(frames, self.stretch)
        self.grid = (bags, self.splits, columns)
        self.block: dict[str, Any] = {"BLOCK_T": block_t, "BLOCK_C": block_c, "num_warps": 8}


_plan = functools.lru_cache(maxsize=256)(_Plan)
