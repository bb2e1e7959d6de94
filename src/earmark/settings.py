"""Settings of a training run: recipes, changes to them, and the file that a run folder keeps.

A recipe is a TOML file with sections `features`, `network`, `pool`, `augment` and `training`. What a recipe leaves out
has the default written here. A change names a knob by section and name, `training.epochs`, or by name alone where that
is clear. Anything unknown is refused, with the nearest name that is known. The word "none" stands for no value.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

from earmark.effects import PRESETS
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.features import FeatureConfig
from earmark.networks import NETWORKS
from earmark.pooling import POOLS
from earmark.registry import Registry

__all__ = ["Augmentation", "Settings", "Training", "load_recipe", "recipes"]


@dataclass(frozen=True)
class Augmentation:
    """What is done to training features."""

    semitones: tuple[float, ...] = ()
    """Pitch variants beside the clip as it is."""
    compression: tuple[str, ...] = ()
    """Variants with compressed dynamic range beside the clip as it is: presets of `earmark.effects.PRESETS`."""
    band_mask: int = 0
    """Widest mask over bands, in bands."""
    frame_mask: int = 0
    """Widest mask over time, in feature frames."""
    mixup: float = 0.0
    """Share of bags that get another one mixed in."""

    def __post_init__(self) -> None:
        _check_range(self, "augment", ("band_mask", "frame_mask"), 0)
        _check_range(self, "augment", ("mixup",), 0, 1)
        for preset in self.compression:
            if preset not in PRESETS:
                raise unknown_name("augment.compression", preset, PRESETS)


@dataclass(frozen=True)
class Training:
    """The schedule. The paper's numbers are in the recipe `paper`."""

    supervision: str = "weak"
    patch: float = 10.0
    batch_size: int = 16
    steps: int = 512
    epochs: int = 150
    learning_rate: float = 1e-3
    alpha_rate: float = 1.0
    """How much faster than the network the operator's own parameters learn."""
    plateau_epochs: int = 10
    plateau_factor: float = 0.1
    stop_epochs: int = 30
    monitor: str = "accuracy"
    bias_penalty: float = 0.01
    balanced: bool = False
    min_share: float = 0.1
    freeze_norm: bool = False
    """Whether batch normalisation uses, and leaves alone, its running statistics."""
    seed: int = 0
    precision: str = "auto"
    """"32", "bf16", or "auto": bf16 on a GPU that has it, 32 elsewhere."""
    compile: str = "auto"
    """"yes", "no", or "auto": on a GPU when the run is long enough to pay for it."""
    tensorboard: bool = False
    """Whether to write a log for TensorBoard too (extra `tensorboard`)."""
    save_minutes: float = 5.0
    """How often `last.ckpt` is written within an epoch; at the end of every epoch it is written anyway."""

    def __post_init__(self) -> None:
        for name in (
            *("patch", "batch_size", "steps", "epochs"),
            *("learning_rate", "alpha_rate", "plateau_epochs", "plateau_factor", "stop_epochs"),
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise ArgumentError(f"training.{name} must be positive, got {getattr(self, name)}")
        _check_range(self, "training", ("plateau_factor", "min_share"), 0, 1)
        _check_range(self, "training", ("bias_penalty", "seed", "save_minutes"), 0)
        choices = {
            "supervision": ("weak", "strong", "mixed"),
            "monitor": ("accuracy", "f1", "loss"),
            "precision": ("auto", "32", "bf16"),
            "compile": ("auto", "yes", "no"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise unknown_name(f"training.{name}", getattr(self, name), known)


@dataclass(frozen=True)
class Settings:
    """Everything a run was told.

    Examples
    --------
    >>> settings = load_recipe("paper").changed({"epochs": "3", "pool.penalty": "1e-3"})
    >>> settings.training.epochs, settings.pool
    (3, {'name': 'rap', 'penalty': 0.001})
    >>> settings.changed({"epoch": "3"})
    Traceback (most recent call last):
    earmark.errors.ArgumentError: setting='epoch' is not known; did you mean 'epochs'? ...
    """

    features: FeatureConfig = field(default_factory=FeatureConfig)
    network: dict[str, Any] = field(default_factory=lambda: {"name": "cnn"})
    pool: dict[str, Any] = field(default_factory=lambda: {"name": "rap"})
    augment: Augmentation = field(default_factory=Augmentation)
    training: Training = field(default_factory=Training)

    @classmethod
    def from_dict(cls, sections: Mapping[str, Mapping[str, Any]]) -> Settings:
        """Settings from the sections of a TOML file."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name, section in sections.items():
            if name not in known:
                raise unknown_name("section", name, known)
            if not isinstance(section, Mapping):
                raise ArgumentError(f"{name} must be a section, got {section!r}")
        said = {name: {k: None if v == "none" else v for k, v in own.items()} for name, own in sections.items()}
        return cls(
            features=FeatureConfig.from_dict(said.get("features", {})),
            network=_named("network", {"name": "cnn", **said.get("network", {})}),
            pool=_named("pool", {"name": "rap", **said.get("pool", {})}),
            augment=_build(Augmentation, "augment", said.get("augment", {})),
            training=_build(Training, "training", said.get("training", {})),
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Sections and their knobs, all of them."""
        return {
            "features": self.features.to_dict(),
            "network": dict(self.network),
            "pool": dict(self.pool),
            "augment": {
                **dataclasses.asdict(self.augment),
                "semitones": list(self.augment.semitones),
                "compression": list(self.augment.compression),
            },
            "training": dataclasses.asdict(self.training),
        }

    def changed(self, changes: Mapping[str, str]) -> Settings:
        """The same with some knobs set otherwise; values as in TOML, where quotes around words may be left out."""
        sections = self.to_dict()
        kinds = {"pool": "pool", "pool.name": "pool", "network": "network", "network.name": "network"}
        for key in [k for k in changes if k in kinds]:  # first, since the other knobs depend on them
            section, name = kinds[key], str(_value(changes[key]))
            if name != sections[section]["name"]:
                known = _FAMILIES[section][name].options()
                # Networks mean the same by the same option. Pools do not.
                kept = {k: v for k, v in sections[section].items() if section == "network" and k in known}
                sections[section] = {"name": name, **kept}
        for key, text in changes.items():
            if key not in kinds:
                section, name = _resolve(key, self._knobs(sections))
                sections[section][name] = _value(text)
        return Settings.from_dict(sections)

    def to_toml(self) -> str:
        """The text of `config.toml`."""
        return "\n".join(
            f"[{section}]\n" + "".join(f"{k} = {_literal(v)}\n" for k, v in knobs.items())
            for section, knobs in self.to_dict().items()
        )

    def _knobs(self, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
        knobs = {section: list(own) for section, own in sections.items()}
        for section, family in _FAMILIES.items():
            knobs[section] = ["name", *family[sections[section]["name"]].options()]
        return knobs


def recipes() -> dict[str, str]:
    """Recipes that come with earmark, by name, with the first line of their text."""
    folder = resources.files("earmark") / "recipes"
    texts = {Path(entry.name).stem: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".toml")}
    return {name: texts[name].splitlines()[0].lstrip("# ") for name in sorted(texts)}


def load_recipe(recipe: str | Path) -> Settings:
    """A recipe by name, or from a TOML file."""
    path = Path(recipe)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not TOML: {error}") from error
    elif str(recipe) in recipes():
        text = (resources.files("earmark") / "recipes" / f"{recipe}.toml").read_text(encoding="utf-8")
    else:
        raise unknown_name("recipe", str(recipe), [*recipes(), "or a file that ends in .toml"])
    try:
        return Settings.from_dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not TOML: {error}") from error
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from error


_FAMILIES: dict[str, Registry[Any]] = {"network": NETWORKS, "pool": POOLS}


def _build(cls: type[Any], section: str, values: Mapping[str, Any]) -> Any:
    kinds = get_type_hints(cls)
    checked = {}
    for name, value in values.items():
        if name not in kinds:
            raise unknown_name(f"{section} setting", name, kinds)
        checked[name] = _as_kind(f"{section}.{name}", value, kinds[name])
    return cls(**checked)


def _as_kind(name: str, value: Any, kind: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == tuple[float, ...] and isinstance(value, list) and all(type(v) in (int, float) for v in value):
        return tuple(float(v) for v in value)
    if kind == tuple[str, ...] and isinstance(value, list) and all(type(v) is str for v in value):
        return tuple(value)
    if inspect.isclass(kind) and type(value) is kind:
        return value
    if kind is str and type(value) is int:  # precision = 32
        return str(value)
    said = {
        tuple[str, ...]: "a list of words",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a word",
    }.get(kind)
    raise ArgumentError(f"{name} must be {said or 'a list of numbers'}, got {value!r}")


def _check_range(settings: Any, section: str, names: Iterable[str], low: float, high: float = math.inf) -> None:
    for name in names:
        value = getattr(settings, name)
        if not low <= value <= high:
            limits = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise ArgumentError(f"{section}.{name} must be {limits}, got {value}")


def _named(section: str, values: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(values["name"], str):
        raise ArgumentError(f"{section}.name must be a word, got {values['name']!r}")
    known = _FAMILIES[section][values["name"]].options()
    for option in values:
        if option != "name" and option not in known:
            raise unknown_name(f"{section} {values['name']!r}: option", option, known or ["(none)"])
    return values


def _resolve(key: str, knobs: Mapping[str, list[str]]) -> tuple[str, str]:
    section, _, name = key.rpartition(".")
    places = [s for s in knobs if name in knobs[s] and section in ("", s)]
    if len(places) == 1:
        return places[0], name
    if places:
        raise ArgumentError(f"setting {key!r} could be any of: {', '.join(f'{s}.{name}' for s in places)}")
    if section:
        raise unknown_name("setting", key, [f"{s}.{n}" for s in knobs for n in knobs[s]])
    raise unknown_name("setting", key, dict.fromkeys(n for s in knobs for n in knobs[s]))


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _literal(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)  # the rest is written alike in JSON and TOML
