"""`python:MODULE:NAME`: any Python callable with a card.

In Python, `CallableEncoder(function, card)` is an encoder. On the command line, NAME in MODULE is an `Encoder`, or a
function that has its `Card` as attribute `card`. The module is imported, so this encoder is created only when a user
names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.audio import Samples
from earmark.encoders.base import ENCODERS, Card, Encoder, fitted
from earmark.encoders.hear import import_named, package_version
from earmark.errors import ArgumentError

Function = Callable[[Samples], npt.ArrayLike]
"""Maps samples (n,), float32, to embeddings (n // hop_samples, dimension), give or take a frame."""


class CallableEncoder(Encoder):
    """Embeds with a function, which one thread calls at a time.

    Examples
    --------
    >>> card = Card(name="energy", rate=8000, window_samples=80000, hop_samples=800, dimension=1, licence="mine")
    >>> encoder = CallableEncoder(lambda x: (x.reshape(-1, 800) ** 2).mean(1, keepdims=True), card)
    >>> encoder.embed(np.ones(1700, np.float32)).tolist()
    [[1.0], [1.0]]
    """

    def __init__(self, function: Function, card: Card) -> None:
        self.card = card
        self._function = function
        self._lock = threading.Lock()

    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        with self._lock:
            embeddings = self._function(samples)
        return fitted(np.asarray(embeddings), self.card, len(samples))


@ENCODERS.register("python", "any Python callable with a card")
class NamedEncoder(Encoder):
    """An encoder, or a function with a card, of a module."""

    target = "MODULE:NAME"
    imports_code = True

    def __init__(self, path: str) -> None:
        module, _, name = path.partition(":")
        if not module or not name.isidentifier():
            raise ArgumentError(f"encoder: expected python:MODULE:NAME, got python:{path}")
        value = getattr(import_named(module, (name,)), name)
        if isinstance(value, Encoder):
            self._encoder = value
        elif callable(value) and isinstance(getattr(value, "card", None), Card):
            self._encoder = CallableEncoder(value, value.card)
        else:
            raise ArgumentError(f"{path}: expected an Encoder, or a function whose attribute `card` is a Card")
        self._module = module
        self.card = replace(self._encoder.card, name=f"python:{path}")  # by which a model file finds it

    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        return self._encoder.embed(samples)

    def _identity(self) -> dict[str, object]:
        return {**self._encoder._identity(), "package": package_version(self._module)}
