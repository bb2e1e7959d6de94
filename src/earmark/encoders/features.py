"""Embeddings as features: what store, training and detection need to know about an encoder, and its front end.

`earmark.inference.recordings` cuts recordings of any length into the same windows as `Encoder.__call__`, so that
features in training are those in detection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Annotated, Any, TypeGuard

import torch
import torch.nn.functional as F
from pydantic import Discriminator, Field, Tag
from torch import Tensor, nn

from earmark.devices import without_tf32
from earmark.encoders.base import ENCODERS, Card, Encoder, card_of, imports_code, load, windows
from earmark.encoders.frontend import FrontEnd, to_decibels
from earmark.encoders.mn04 import MobileNetEncoder
from earmark.encoders.stored import FileEncoder
from earmark.errors import ArgumentError, DataError, ModelFileError
from earmark.features import FeatureConfig, LogMel
from earmark.files import json_digest
from earmark.schema import parse, record

TRUSTED = "EARMARK_TRUSTED_ENCODERS"
"""Environment variable: encoders that run Python code and that files may name nevertheless, separated by commas."""

_SILENCE = -50.0  # decibels: the lowest level of the front end

_provided: dict[str, Encoder] = {}


@record
class EncoderFeatures:
    """Features that an encoder computes; what `FeatureConfig` is for log-mel.

    Examples
    --------
    >>> features = EncoderFeatures.of(load("tiny"))
    >>> features.n_bands, features.hop, features.frames(8000)
    (64, 0.16, 6)
    """

    encoder: str = Field(min_length=1, max_length=200, description="Name of the encoder: earmark encoders.")
    identity: str = Field(pattern="^[0-9a-f]{16}$", description="Fingerprint of its weights and geometry.")
    rate: int = Field(ge=1, le=10_000_000, description="Samples per second.")
    window_samples: int = Field(ge=1, le=1 << 26, description="The longest excerpt that is embedded at once.")
    hop_samples: int = Field(ge=1, le=1 << 26, description="Samples from one frame to the next.")
    dimension: int = Field(ge=1, le=1 << 16, description="Numbers per frame.")
    train_encoder: bool = Field(
        default=False, description="Train the encoder too; features are then the log-mel frames of its front end."
    )

    def __post_init__(self) -> None:
        if self.train_encoder:
            c = trainable_encoder(self.encoder).front_end
            if (self.rate, self.hop_samples, self.dimension) != (c.rate, c.hop_samples, c.n_bands):
                raise ArgumentError(f"features: expected the geometry of the front end of {self.encoder!r}")

    @classmethod
    def of(cls, encoder: Encoder, *, train_encoder: bool = False) -> EncoderFeatures:
        """The features of an encoder, or those of its front end if it will be trained."""
        return cls._from_card(encoder.card, encoder.fingerprint, train_encoder)

    @classmethod
    def named(cls, name: str, *, train_encoder: bool = False) -> EncoderFeatures:
        """The features of an encoder whose name may come from a file; loads no weights if earmark knows its card."""
        known = None if name in _provided else card_of(name)
        if known is None:
            return cls.of(_encoder(name), train_encoder=train_encoder)
        return cls._from_card(*known, train_encoder)

    @classmethod
    def _from_card(cls, card: Card, identity: str, train_encoder: bool) -> EncoderFeatures:
        window = card.frames(card.window_samples) * card.hop_samples
        hop, dimension = card.hop_samples, card.dimension
        if train_encoder:
            front = trainable_encoder(card.name).front_end
            hop, dimension = front.hop_samples, front.n_bands
        return cls(card.name, identity, card.rate, window, hop, dimension, train_encoder=train_encoder)

    @property
    def n_bands(self) -> int:
        """Numbers per frame."""
        return self.dimension

    @property
    def hop(self) -> float:
        """Seconds from one frame to the next."""
        return self.hop_samples / self.rate

    @property
    def n_fft(self) -> int:
        """Samples that a frame stands for."""
        return self.hop_samples

    @property
    def padding(self) -> int:
        """Zeros before the first sample, and after the last: none."""
        return 0

    @property
    def silence(self) -> float:
        """Value of padded frames."""
        return _SILENCE if self.train_encoder else 0.0

    def frames(self, n_samples: int) -> int:
        """Number of frames for a number of samples; a shorter sound is padded to one, or two of the front end."""
        if n_samples < 1:
            raise DataError("expected at least one sample, got a sound without samples")
        return max(2 if self.train_encoder else 1, n_samples // self.hop_samples)

    def to_dict(self) -> dict[str, Any]:
        """Every setting, as plain values."""
        return asdict(self)

    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the features."""
        return json_digest(self.to_dict())


Features = FeatureConfig | EncoderFeatures
"""Settings of features of either kind; both have `rate`, `hop`, `hop_samples`, `n_bands`, `frames` and `silence`."""


def trains_encoder(features: Features) -> TypeGuard[EncoderFeatures]:
    """Whether the network for these features contains an encoder, which is trained too."""
    return isinstance(features, EncoderFeatures) and features.train_encoder


def _kind(value: object) -> str:
    is_encoder = "encoder" in value if isinstance(value, dict) else isinstance(value, EncoderFeatures)
    return "<EncoderFeatures>" if is_encoder else "<FeatureConfig>"


CheckedFeatures = Annotated[
    Annotated[FeatureConfig, Tag("<FeatureConfig>")] | Annotated[EncoderFeatures, Tag("<EncoderFeatures>")],
    Discriminator(_kind),
]
"""The same, as a field of a record; values with a key `encoder` are those of an encoder."""


def parse_features(settings: Mapping[str, Any]) -> Features:
    """Features from plain values; those of an encoder have a key `encoder`."""
    kind: type[Features] = EncoderFeatures if "encoder" in settings else FeatureConfig
    return parse(kind, dict(settings), where="features", error=ArgumentError)


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of features, with the geometry of the encoder filled in if only its name is given."""
    if "encoder" in settings and settings.keys() <= {"encoder", "train_encoder"}:
        name, is_trained = settings["encoder"], settings.get("train_encoder", False)
        if isinstance(name, str):
            return EncoderFeatures.named(name, train_encoder=is_trained).to_dict()
    return dict(settings)


def trainable_encoder(name: str) -> type[MobileNetEncoder]:
    """The class of an encoder that is a network of PyTorch, whose weights can be trained."""
    cls = ENCODERS[name.partition(":")[0]].cls
    if not issubclass(cls, MobileNetEncoder):
        raise ArgumentError(
            f"train_encoder: expected an encoder that is a network of PyTorch, such as mn04, got {name!r}"
        )
    return cls


def provide(encoder: Encoder | str) -> Encoder:
    """Make an encoder available, in this process, to recipes and models that name it.

    This is needed for encoders that run Python code (`imports_code`), which are not imported because a file names them.
    """
    if isinstance(encoder, str):
        encoder = _provided.get(encoder) or load(encoder)
    _provided[encoder.card.name] = encoder
    return encoder


def encoder_of(features: EncoderFeatures) -> Encoder:
    """The encoder of features, with the weights that they were computed with."""
    if (stored := stored_encoder(features)) is not None:
        return stored
    encoder = _encoder(features.encoder)
    if EncoderFeatures.of(encoder, train_encoder=features.train_encoder) != features:
        raise ModelFileError(
            f"encoder {features.encoder!r}: expected the weights with fingerprint {features.identity}, as in training, "
            f"got {encoder.fingerprint}"
        )
    return encoder


def stored_encoder(features: Features) -> FileEncoder | None:
    """The encoder of features that are read from files; None for features that are computed."""
    if not isinstance(features, EncoderFeatures):
        return None
    kind, _, folder = features.encoder.partition(":")
    if kind != FileEncoder.name:
        return None
    names = ("rate", "window_samples", "hop_samples", "dimension")
    card = Card(name=features.encoder, licence="that of the encoder", **{n: getattr(features, n) for n in names})
    return FileEncoder(folder, card=card, fingerprint=features.identity)


def _encoder(name: str) -> Encoder:
    """An encoder whose name may come from a file."""
    if name in _provided:
        return _provided[name]
    if imports_code(name) and name not in os.environ.get(TRUSTED, "").split(","):
        raise ArgumentError(f"encoder {name!r} runs Python code; if you trust it, set {TRUSTED}={name}")
    return _created(name)


@lru_cache(maxsize=4)
def _created(name: str) -> Encoder:
    return load(name)


class EncoderFrontEnd(nn.Module):
    """Embeddings as a front end like `LogMel`: (bags, samples) to (bags, dimension, frames). No gradients.

    An encoder that is a network of PyTorch computes where the samples are, others on the CPU.
    """

    def __init__(self, features: EncoderFeatures) -> None:
        super().__init__()
        self.config = features
        self.encoder = encoder_of(features)

    def __deepcopy__(self, memory: dict[int, Any]) -> EncoderFrontEnd:
        return self  # has no state

    @torch.no_grad()
    def forward(self, samples: Tensor, *, semitones: Sequence[float] | None = None) -> Tensor:
        """Embeddings of mono samples of any length, at the encoder's rate."""
        if semitones is not None and any(semitones):
            raise ArgumentError("semitones: an encoder does not support pitch shifts; expected none")
        if samples.is_cuda and isinstance(self.encoder, MobileNetEncoder):
            with without_tf32():
                embeddings = embed_bags(self.encoder, samples).transpose(1, 2)
        else:
            bags = [torch.from_numpy(self.encoder(bag, self.config.rate)).T for bag in samples.cpu().numpy()]
            embeddings = torch.stack(bags).to(samples.device).contiguous()
        return embeddings if semitones is None else embeddings[:, None]


class EncoderLogMel(nn.Module):
    """Log-mel frames of an encoder that is trained: (bags, samples) to (bags, bands, frames), in decibels."""

    def __init__(self, features: EncoderFeatures) -> None:
        super().__init__()
        self.config = features
        self.front = FrontEnd(trainable_encoder(features.encoder).front_end)

    def forward(self, samples: Tensor, *, semitones: Sequence[float] | None = None) -> Tensor:
        """Frames of mono samples of any length, at the encoder's rate; with shifts: (bags, shifts, bands, frames)."""
        whole = self.config.frames(samples.shape[1]) * self.config.hop_samples
        samples = F.pad(samples, (0, whole - samples.shape[1]))
        return to_decibels(self.front(samples) if semitones is None else self.front.shifted(samples, semitones))


def front_end(features: Features) -> LogMel | EncoderFrontEnd | EncoderLogMel:
    """The module that computes features: (bags, samples) to (bags, bands, frames)."""
    if not isinstance(features, EncoderFeatures):
        return LogMel(features)
    return EncoderLogMel(features) if features.train_encoder else EncoderFrontEnd(features)


@torch.inference_mode()
def embed_bags(encoder: MobileNetEncoder, samples: Tensor) -> Tensor:
    """Embeddings of bags of equal length, of any length, on their device: (bags, n) to (bags, frames, dimension)."""
    card, network = encoder.card, encoder.on(samples.device)
    hop, size = card.hop_samples, card.frames(card.window_samples)
    samples = F.pad(samples, (0, max(0, hop - samples.shape[1])))
    if not torch.isfinite(samples).all():
        raise DataError("samples: expected finite numbers, got NaN or infinity")
    frames = card.frames(samples.shape[1])
    parts = [
        network(samples[:, start * hop : min(start + size, frames) * hop])[:, first - start : stop - start]
        for start, first, stop in windows(frames, size)
    ]
    return torch.cat(parts, 1)
