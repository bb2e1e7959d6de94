"""Settings of a training run: recipes, changes to them, and the file that a run folder keeps.

A recipe is a TOML file with sections `features`, `network`, `pool`, `augment` and `training`, and defaults as declared
here. A change names a setting by section and name, `training.epochs`, or by name alone where that is unambiguous. The
text "none" stands for no value.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from earmark.bags import PitchShift
from earmark.effects import PRESETS
from earmark.encoders.features import CheckedFeatures, completed
from earmark.errors import ArgumentError, unknown_name
from earmark.features import FeatureConfig
from earmark.networks import NETWORKS
from earmark.pooling import POOLS
from earmark.registry import Registry
from earmark.schema import Many, allowed, embedded_toml, load_toml, parse, record

__all__ = ["Augmentation", "Settings", "Training", "load_recipe", "pool_changes", "recipes"]

_FAMILIES: dict[str, Registry[Any]] = {"network": NETWORKS, "pool": POOLS}


@record
class Augmentation:
    """Random changes to training features."""

    semitones: Many[float] = Field(default=(), description="Pitch shifts used in addition to the original clip.")
    pitch_shift: PitchShift = Field(default="filters", description="Shift by moving the mel filters, or the sound.")
    compression: Many[str] = Field(
        default=(), description="Presets of dynamic-range compression used in addition to the original clip."
    )
    band_mask: int = Field(default=0, ge=0, description="Widest mask over frequency, in bands.")
    filter_db: float = Field(default=0.0, ge=0, description="Largest gain of a random filter, in decibels.")
    frame_mask: int = Field(default=0, ge=0, description="Widest mask over time, in feature frames.")
    mixtures: int = Field(
        default=0, ge=0, le=1_000_000, description="Mixtures of two training clips, used in addition to them."
    )
    mixup: float = Field(default=0.0, ge=0, le=1, description="Share of bags that another bag is mixed into.")

    def __post_init__(self) -> None:
        for preset in self.compression:
            if preset not in PRESETS:
                raise unknown_name("compression", preset, PRESETS)


def _text(value: object) -> object:
    """`precision = 32` means "32"."""
    return str(value) if type(value) is int else value


Supervision = Literal["weak", "propagated", "strong", "mixed"]
WITHOUT_TIMES: tuple[Supervision, ...] = ("weak", "propagated")
"""Kinds of supervision that use the labels of bags only."""
Monitor = Literal["accuracy", "f1", "loss", "last"]
Precision = Annotated[Literal["auto", "32", "bf16"], BeforeValidator(_text)]


@record
class Training:
    """The training schedule. The recipe `paper` holds the paper's values."""

    supervision: Supervision = Field(
        default="weak",
        description="Bag labels, bag labels given to every frame, frame labels, or whichever is known.",
    )
    patch: float = Field(default=10.0, gt=0, le=86400, description="Length of a training excerpt, in seconds.")
    batch_size: int = Field(default=16, ge=1, description="Excerpts per batch.")
    steps: int = Field(default=512, ge=0, description="Batches per epoch; 0: as many as hold all clips once.")
    epochs: int = Field(default=150, ge=1, description="Maximum number of epochs.")
    learning_rate: float = Field(default=1e-3, gt=0, description="Learning rate of Adam: the first, or the highest.")
    schedule: Literal["plateau", "one-cycle"] = Field(
        default="plateau", description="Reduce the rate on a plateau, or raise it once and lower it to the end."
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Decoupled weight decay (AdamW).")
    average: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the epochs, counted from the end, over which weights are averaged.",
    )
    rounds: int = Field(
        default=0,
        ge=0,
        description="Rounds of self-training: in each, a new network learns from the scores of the last one.",
    )
    teacher: str | None = Field(
        default=None, description="Run folder or model whose scores are learned from; it counts as the first network."
    )
    start: str | None = Field(default=None, description="Model file whose weights training starts from.")
    alpha_rate: float = Field(default=1.0, gt=0, description="Learning rate of the pool, relative to the network's.")
    encoder_rate: float = Field(
        default=0.1,
        ge=0,
        description="Learning rate of an encoder that is trained too, relative to the network's; 0: it stays as it is.",
    )
    plateau_epochs: int = Field(default=10, ge=1, description="Epochs without improvement before the rate is reduced.")
    plateau_factor: float = Field(default=0.1, gt=0, le=1, description="Factor by which the rate is reduced.")
    stop_epochs: int = Field(default=30, ge=1, description="Epochs without improvement before training stops.")
    monitor: Monitor = Field(
        default="accuracy", description="Validation score that decides which epoch is kept; last: the last one."
    )
    prior: float = Field(
        default=0.5, gt=0, lt=1, description="Probability of every class in every frame before training starts."
    )
    bias_penalty: float = Field(default=0.01, ge=0, description="L2 penalty on the output layer's biases.")
    folds: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Folds of cross-validation before training on all clips, if no clips are set aside; 0: none.",
    )
    balanced: bool = Field(default=False, description="Draw every class equally often.")
    min_share: float = Field(default=0.1, ge=0, le=1, description="Share of an excerpt that a timed class must fill.")
    choose_thresholds: bool = Field(
        default=False, description="Choose the threshold of each class on the validation clips, for the model file."
    )
    freeze_norm: bool = Field(default=False, description="Use batch normalisation's running statistics unchanged.")
    seed: int = Field(default=0, ge=0, description="Seed of everything random.")
    precision: Precision = Field(default="auto", description="auto: bf16 on a GPU that supports it, 32 elsewhere.")
    compile: Literal["auto", "yes", "no"] = Field(default="auto", description="auto: on a GPU, if the run is long.")
    tensorboard: bool = Field(default=False, description="Also write a TensorBoard log (extra `tensorboard`).")
    save_minutes: float = Field(
        default=5.0, ge=0, allow_inf_nan=True, description="Time between saves within an epoch; each epoch's end saves."
    )


@record
class Settings:
    """All settings of a run.

    Examples
    --------
    >>> settings = load_recipe("paper").changed({"epochs": 3, "pool.penalty": "1e-3"})
    >>> settings.training.epochs, settings.pool
    (3, {'name': 'rap', 'penalty': 0.001})
    >>> settings.changed({"epoch": 3})
    Traceback (most recent call last):
    earmark.errors.ArgumentError: setting='epoch' is not known; did you mean 'epochs'?
    """

    features: CheckedFeatures = Field(default_factory=FeatureConfig, description="From samples to frames.")
    network: dict[str, Any] = Field(default_factory=lambda: {"name": "cnn"}, description="Its name and options.")
    pool: dict[str, Any] = Field(default_factory=lambda: {"name": "rap"}, description="Its name and options.")
    augment: Augmentation = Field(default_factory=Augmentation, description="Random changes to training features.")
    training: Training = Field(default_factory=Training, description="The schedule.")

    def __post_init__(self) -> None:
        for section, family in _FAMILIES.items():
            values = dict(getattr(self, section))
            name = values.pop("name", None)
            if not isinstance(name, str):
                raise ArgumentError(f"{section}.name: expected text, got {name!r}")
            for key, value in values.items():
                if not _is_plain(value):
                    raise ArgumentError(f"{section}.{key}: expected a number, text or a list of them, got {value!r}")
            family.check_options(name, values)
        if self.training.folds == 1:
            raise ArgumentError("training.folds: expected 0 or at least 2, got 1")
        supervision = self.training.supervision
        if self.training.rounds and supervision in ("strong", "propagated"):
            raise ArgumentError(f"training.rounds: expected 0, since {supervision} labels already cover all frames")

    @classmethod
    def from_dict(cls, sections: Mapping[str, Any], *, where: str | Path = "") -> Settings:
        """Settings from the sections of a TOML file; errors begin with `where`."""
        defaults = {"network": {"name": "cnn"}, "pool": {"name": "rap"}}
        values = {name: _complete(section, defaults.get(name, {})) for name, section in sections.items()}
        if isinstance(features := values.get("features"), dict):
            values["features"] = completed(features)
        return parse(cls, values, where=where, error=ArgumentError)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every section with all its settings, as plain values."""
        augment = asdict(self.augment) | {
            name: list(getattr(self.augment, name)) for name in ("semitones", "compression")
        }
        return {**asdict(self), "augment": augment}

    def changed(self, changes: Mapping[str, object]) -> Settings:
        """A copy with other values for some settings, given by name.

        Text is parsed as TOML, in which quotes around words are optional; other values are used as given. A different
        pool starts with its default options; a different network keeps the options that both networks have.
        """
        sections = self.to_dict()
        values = {key: _parsed(value) for key, value in changes.items()}
        encoder = {
            key.removeprefix("features."): values.pop(key)
            for key in ("encoder", "features.encoder", "train_encoder", "features.train_encoder")
            if key in values
        }
        if encoder:
            sections["features"] = _with_encoder(sections["features"], encoder)
        for section in _FAMILIES:  # first, since they determine which other settings exist
            for key in (section, f"{section}.name"):
                if key in values:
                    _select(sections, section, str(values.pop(key)))
        known = {section: list(settings) for section, settings in sections.items()}
        known |= {s: ["name", *family[sections[s]["name"]].options()] for s, family in _FAMILIES.items()}
        for key, value in values.items():
            section, name = _resolve(key, known)
            sections[section][name] = value
        return Settings.from_dict(sections)

    def to_toml(self) -> str:
        """The text of `config.toml`."""
        sections = (
            f"[{section}]\n" + "".join(f"{name} = {_literal(value)}\n" for name, value in values.items())
            for section, values in self.to_dict().items()
        )
        return "\n".join(sections)


def descriptions() -> list[dict[str, Any]]:
    """Settings, except the options of networks and pools: section, name, summary, values, and default in a recipe."""
    kinds: dict[str, Any] = {"features": FeatureConfig, "augment": Augmentation, "training": Training}
    rows = []
    for section, kind in kinds.items():
        values = allowed(kind)
        for name, field in kind.__pydantic_fields__.items():
            described = {"summary": field.description, "values": values[name], "default": _literal(field.default)}
            rows.append({"section": section, "name": name, **described})
    return rows


def recipes() -> dict[str, str]:
    """Recipes that come with earmark, by name, with the first line of their text."""
    return {name: text.splitlines()[0].lstrip("# ") for name, text in embedded_toml("recipes").items()}


def pool_changes(pool: str | None) -> dict[str, str]:
    """Settings for a pooling operator; "strong" and "propagated" train on frames and pool only afterwards, with max."""
    if pool in ("strong", "propagated"):
        return {"pool": "max", "supervision": pool}
    return {} if pool is None else {"pool": pool}


def load_recipe(recipe: str | Path) -> Settings:
    """Load a recipe by name, or from a TOML file."""
    return Settings.from_dict(load_toml("recipe", recipe, "recipes"), where=recipe)


def _is_plain(value: object) -> bool:
    """Whether a value can be stored in any file of a run; TOML also has dates."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _complete(section: object, defaults: Mapping[str, str]) -> object:
    """Complete a section with defaults, and convert "none" to None."""
    if not isinstance(section, Mapping):
        return section  # rejected later
    values = {**defaults, **section}
    return {name: None if isinstance(value, str) and value == "none" else value for name, value in values.items()}


def _with_encoder(features: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Features with a different encoder, or with a different choice of whether it is trained."""
    values = {name: features[name] for name in ("encoder", "train_encoder") if name in features} | dict(changes)
    if "encoder" not in values:
        raise ArgumentError("train_encoder: expected features of an encoder, such as --encoder mn04, got log-mel")
    return completed(values)


def _select(sections: dict[str, dict[str, Any]], section: str, name: str) -> None:
    """Select a pool or network by name, and keep the options that remain valid."""
    if name == sections[section]["name"]:
        return
    known = _FAMILIES[section][name].options()
    # an option has the same meaning for all networks, but not for all pools
    kept = {k: v for k, v in sections[section].items() if section == "network" and k in known}
    sections[section] = {"name": name, **kept}


def _resolve(key: str, known: Mapping[str, list[str]]) -> tuple[str, str]:
    """The section and name that a key stands for."""
    section, _, name = key.rpartition(".")
    matches = [s for s in known if name in known[s] and section in ("", s)]
    if len(matches) == 1:
        return matches[0], name
    if matches:
        choices = " or ".join(f"{s}.{name}" for s in matches)
        raise ArgumentError(f"setting {key!r} is ambiguous: expected {choices}")
    if section:
        raise unknown_name("setting", key, [f"{s}.{n}" for s in known for n in known[s]])
    raise unknown_name("setting", key, dict.fromkeys(n for names in known.values() for n in names))


def _parsed(value: object) -> object:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if getattr(value, "ndim", None) == 0:
        return value.item()  # type: ignore[attr-defined]  # a number of NumPy or PyTorch
    if not isinstance(value, str):
        return value
    if value in ("True", "False"):
        return value == "True"
    try:
        return tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return float(value)  # ".5" and "5." are not numbers in TOML
    except ValueError:
        return value


def _literal(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)  # JSON and TOML write everything else the same way
