"""The effect of padding on pooled predictions, with and without support for masks.

A batch of bags with 3 real frames each is padded with zeros to 10, like clips of unequal length. The authors' Keras
layer declares that it supports masks, and receives one: from a `keras.layers.Masking` layer before it, or as an
argument. It pools the padding nevertheless. The reference is Eq. (8) with NumPy on the 3 real frames.

Run it from the repository's root after `pip install -e '.[dev]'`; KERAS_BACKEND=jax chooses the other backend:

    python benchmarks/padding.py
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "torch")

REAL, PADDED = 3, 10
ALPHA = np.array([[0.0, 1.0, 5.0]], dtype="float32")  # mean, soft-max, close to the maximum
P_FRAMES = np.array(  # (bags, frames, classes), in [0, 1]
    [
        [[0.9, 0.9, 0.9], [0.8, 0.8, 0.8], [0.7, 0.7, 0.7]],
        [[0.1, 0.1, 0.1], [0.9, 0.9, 0.9], [0.2, 0.2, 0.2]],
    ],
    dtype="float32",
)


def truth(p: np.ndarray) -> np.ndarray:
    """Eq. (8) on bags without padding."""
    e: np.ndarray = np.exp(ALPHA * p)
    return np.asarray((p * e).sum(1) / e.sum(1))


def authors_layer() -> Any:
    """The authors' class, for which two functions that Keras 3 has moved are restored."""
    import keras
    from autopool.keras import AutoPool1D

    keras.backend.softmax, keras.backend.sum = keras.ops.softmax, keras.ops.sum
    return AutoPool1D


def by_keras(kind: Any, p: np.ndarray, mask: np.ndarray | None = None, masking: bool = False) -> np.ndarray:
    """P of a Keras layer: without a mask, with one as an argument, or after a Masking layer."""
    import keras

    pool = kind(axis=1)
    assert pool.supports_masking
    pool.build(p.shape)
    pool.set_weights([ALPHA])
    before = [keras.layers.Masking()] if masking else []
    P = keras.Sequential([*before, pool])(p) if mask is None else pool(p, mask=mask)
    return np.asarray(keras.ops.convert_to_numpy(P))


def by_torch(p: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """P of earmark's PyTorch module."""
    import torch

    from earmark.pooling import AutoPool

    pool = AutoPool(n_classes=p.shape[-1], alpha=ALPHA[0].tolist())
    return np.asarray(pool(torch.from_numpy(p), torch.from_numpy(mask)).detach())


def rows() -> Iterator[tuple[str, str, np.ndarray]]:
    """The layer, how it is informed of the padding, and P (bags, classes)."""
    from earmark.keras import AutoPool1D

    padded = np.pad(P_FRAMES, ((0, 0), (0, PADDED - REAL), (0, 0)))
    mask = np.broadcast_to(np.arange(PADDED) < REAL, padded.shape[:2]).copy()
    theirs = authors_layer()
    yield "numpy: the truth", "no padding", truth(P_FRAMES)
    yield "autopool.keras.AutoPool1D", "no padding", by_keras(theirs, P_FRAMES)
    yield "autopool.keras.AutoPool1D", "Masking layer", by_keras(theirs, padded, masking=True)
    yield "autopool.keras.AutoPool1D", "mask argument", by_keras(theirs, padded, mask)
    yield "earmark.keras.AutoPool1D", "Masking layer", by_keras(AutoPool1D, padded, masking=True)
    yield "earmark.keras.AutoPool1D", "mask argument", by_keras(AutoPool1D, padded, mask)
    yield "earmark.pooling.AutoPool", "mask argument", by_torch(padded, mask)


def main() -> None:
    """Print the table."""
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)  # between Keras and numpy
    expected = truth(P_FRAMES)
    print(f"Bags of {REAL} real frames, padded to {PADDED}; P for alpha = {', '.join(f'{a:g}' for a in ALPHA[0])}.\n")
    bags = "".join(f"{f'bag {b + 1}':<24}" for b in range(len(P_FRAMES)))
    print(f"{'layer':<28}{'masked by':<18}{bags}largest error")
    for layer, masked_by, P in rows():
        values = "".join("".join(f"{value:<7.3f}" for value in bag) + "   " for bag in P)
        print(f"{layer:<28}{masked_by:<18}{values}{abs(P - expected).max():.1e}")
    backend = os.environ["KERAS_BACKEND"]
    packages = dict.fromkeys(["earmark", "autopool", "keras", backend, "torch", "numpy"])
    print(f"\n{', '.join(f'{name} {version(name)}' for name in packages)}; backend of Keras: {backend}")


if __name__ == "__main__":
    main()
