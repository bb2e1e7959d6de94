"""Recipes: soundscapes drawn at random from distributions that a TOML file gives.

`recipes/urban-sed.toml` shows all there is to say. Drawing follows Scaper: an event longer than what its source holds
is shortened to that (or, with `too_short = "repeat"`, its source repeated); one that would last beyond the end is moved
to end there; no source is heard twice in a soundscape while the bank has others.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from earmark.errors import DataError, unknown_name
from earmark.synthesis.distributions import Distribution, parse_distribution
from earmark.synthesis.sources import Bank
from earmark.synthesis.specification import SPLITS, Event, Soundscape, draw, noise, shares

__all__ = ["Recipe", "read_recipe", "recipe_names"]

_KEYS = {
    "summary": str,
    "duration": float,
    "ref_db": float,
    "fade_in": float,
    "fade_out": float,
    "reverb": float,
    "background": str,
    "too_short": str,
    "classes": list,
    "splits": dict,
    "events": dict,
}
_EVENT_KEYS = ("count", "time", "duration", "snr", "pitch_shift", "time_stretch")
_TOO_SHORT = ("shorten", "repeat")


@dataclass(frozen=True)
class Recipe:
    """Distributions to draw soundscapes from."""

    name: str
    summary: str
    settings: dict[str, Any]
    """What all its soundscapes share: duration, ref_db, fade_in, fade_out, reverb."""
    background: str
    repeats: bool
    """Whether sources that are too short are repeated."""
    classes: tuple[str, ...]
    """Empty for those of the bank."""
    splits: dict[str, int]
    count: Distribution
    times: dict[str, tuple[Distribution, ...]]
    durations: dict[str, Distribution]
    """By class; under the empty name for every other class."""
    snr: Distribution
    pitch_shift: Distribution | None
    time_stretch: Distribution | None

    def plan(self, bank: Bank, *, clips: int | None = None, seed: int = 0) -> list[Soundscape]:
        """Soundscapes with sources from a bank; `clips` in all, in the recipe's shares (None: as many as it says)."""
        counts = self.splits if clips is None else shares(self.splits, clips)
        classes = self.classes or tuple(c for c in bank.classes if "" in self.durations or c in self.durations)
        if not classes:
            raise DataError(
                f"recipe {self.name}: says no duration for any class of the bank: {', '.join(bank.classes)}"
            )
        plan = []
        for split, n in counts.items():
            for number, kind in zip(range(n), cycle(self.times), strict=False):
                name = f"soundscape_{split}_{kind}{number // len(self.times)}"
                plan.append(self._soundscape(name, split, kind, classes, bank, seed))
        return plan

    def _soundscape(
        self, name: str, split: str, kind: str, classes: tuple[str, ...], bank: Bank, seed: int
    ) -> Soundscape:
        rng = draw(seed, self.name, name)
        events: list[Event] = []
        for _ in range(round(self.count.sample(rng))):
            label = classes[int(rng.integers(len(classes)))]
            used = [event.source_file for event in events]
            events.append(self._event(label, bank.pick(label, split, rng, avoid=used), kind, bank, rng))
        background = noise(self.background, self.settings["duration"])
        return Soundscape(name, tuple(events), split, background=background, seed=seed, **self.settings)

    def _event(self, label: str, source: str, kind: str, bank: Bank, rng: np.random.Generator) -> Event:
        limit = self.settings["duration"]
        times = self.times[kind]
        time = times[int(rng.integers(len(times)))].sample(rng)
        duration = self.durations.get(label, self.durations.get("")).sample(rng)  # type: ignore[union-attr]
        stretch = None if self.time_stretch is None else self.time_stretch.sample(rng)
        if not self.repeats:
            duration = min(duration, bank.seconds(source))
        duration = min(duration, limit / (stretch or 1.0))
        return Event(
            label=label,
            source_file=source,
            event_time=min(max(time, 0.0), max(limit - duration * (stretch or 1.0), 0.0)),  # rounding
            event_duration=duration,
            snr=self.snr.sample(rng),
            pitch_shift=None if self.pitch_shift is None else self.pitch_shift.sample(rng),
            time_stretch=stretch,
        )


def recipe_names() -> dict[str, str]:
    """Recipes that come with earmark, and what they are for.

    >>> sorted(recipe_names())
    ['durations', 'urban-sed']
    """
    return {name: read_recipe(name).summary for name in _embedded()}


def _embedded() -> list[str]:
    folder = resources.files("earmark.synthesis") / "recipes"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_recipe(source: str | Path) -> Recipe:
    """A recipe by name, or from a TOML file."""
    path = Path(source)
    try:
        if path.suffix == ".toml":
            written, name = path.read_text(encoding="utf-8"), path.stem
        elif str(source) in _embedded():
            name = str(source)
            written = (resources.files("earmark.synthesis") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
        else:
            raise unknown_name("recipe", str(source), _embedded())
        return _recipe_of(name, tomllib.loads(written))
    except FileNotFoundError:
        raise DataError(f"{source}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{source}: cannot be read as a recipe: {error}") from error
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def _recipe_of(name: str, written: dict[str, Any]) -> Recipe:
    _check(written)
    events = written["events"]
    settings: dict[str, Any] = {
        key: written[key] for key in ("duration", "ref_db", "fade_in", "fade_out", "reverb") if key in written
    }
    Soundscape("check", (), **settings)
    durations = events["duration"] if isinstance(events["duration"], dict) else {"": events["duration"]}
    if lacking := [label for label in written.get("classes", ()) if not durations.keys() & {"", label}]:
        raise DataError(f"events.duration: says nothing of {', '.join(lacking)}")
    times = events["time"] if isinstance(events["time"], dict) else {"": [events["time"]]}
    for kind, several in times.items():
        if not isinstance(several, list) or not several:
            raise DataError(
                f'events.time.{kind}: a list of distributions such as [["uniform", 0, 10]] expected, found {several!r}'
            )

    def optional(key: str) -> Distribution | None:
        return parse_distribution(events[key], f"events.{key}") if key in events else None

    return Recipe(
        name=name,
        summary=written.get("summary", ""),
        settings={"duration": 10.0, **settings},
        background=written.get("background", "brownian"),
        repeats=written.get("too_short", "shorten") == "repeat",
        classes=tuple(written.get("classes", ())),
        splits=dict(written["splits"]),
        count=parse_distribution(events["count"], "events.count"),
        times={k: tuple(parse_distribution(d, f"events.time.{k}") for d in v) for k, v in times.items()},
        durations={k: parse_distribution(v, f"events.duration.{k}".rstrip(".")) for k, v in durations.items()},
        snr=parse_distribution(events["snr"], "events.snr"),
        pitch_shift=optional("pitch_shift"),
        time_stretch=optional("time_stretch"),
    )


def _check(written: dict[str, Any]) -> None:
    for key, value in written.items():
        if key not in _KEYS:
            raise DataError(str(unknown_name("setting", key, _KEYS)))
        wanted = (int, float) if _KEYS[key] is float else _KEYS[key]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise DataError(f"{key}: {_KEYS[key].__name__} expected, found {value!r}")
    for key in ("splits", "events"):
        if not written.get(key):
            raise DataError(f"no table [{key}]")
    for split, count in written["splits"].items():
        if split not in SPLITS or not isinstance(count, int) or count < 0:
            raise DataError(
                f"splits: {', '.join(SPLITS)} with a number of clips each expected, found {split} = {count!r}"
            )
    if not any(written["splits"].values()):
        raise DataError("splits: at least one with a clip or more expected, found none")
    for key in written["events"]:
        if key not in _EVENT_KEYS:
            raise DataError(str(unknown_name("events", key, _EVENT_KEYS)))
    for key in ("count", "time", "duration", "snr"):
        if written["events"].get(key) in (None, [], {}):  # 0 is a number
            raise DataError(f"events: {key} is missing")
    if written.get("too_short", "shorten") not in _TOO_SHORT:
        raise DataError(f"too_short: one of {', '.join(_TOO_SHORT)} expected, found {written['too_short']!r}")
