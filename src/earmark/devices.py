"""Computation on a GPU: with the numbers of a CPU, up to the rounding of float32, and within its memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from earmark.errors import GpuMemoryError

_launching = threading.RLock()


@contextmanager
def without_tf32() -> Iterator[None]:
    """Convolutions and products in full float32 inside the block: TF32, PyTorch's default, rounds to ten bits.

    Threads take turns, since the switch is global; launching a batch takes a small part of computing it.
    """
    with _launching:
        before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.backends.cudnn.allow_tf32 = before[0]
            torch.set_float32_matmul_precision(before[1])


@contextmanager
def gpu_memory(advice: str) -> Iterator[None]:
    """Turn PyTorch's error about a GPU's memory into one line with advice."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise GpuMemoryError(f"the GPU does not have enough free memory; {advice}") from None
