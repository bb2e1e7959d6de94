"""Recipes: soundscapes drawn from the distributions in a TOML file.

`recipes/urban-sed.toml` shows every setting. Drawing follows Scaper: an event longer than its source is shortened to
its length (or, with `too_short = "repeat"`, the source is repeated); an event that would last beyond the end is moved
to end there; no source is used twice in a soundscape while the bank has others.

A distribution is written as in Scaper, a name and its parameters; a plain number is short for "const":

    ["const", value]                           always the same
    ["choose", [a, b, ...]]                    one of a list, all equally likely
    ["uniform", low, high]                     uniform between two bounds
    ["normal", mean, deviation]                normal
    ["truncnorm", mean, deviation, low, high]  normal, truncated at both ends
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema
from scipy.special import ndtr, ndtri

from earmark.errors import DataError, unknown_name
from earmark.schema import Many, embedded_toml, load_toml, parse, record
from earmark.synthesis.sources import Bank
from earmark.synthesis.specification import Event, Soundscape, Split, draw, noise, shares

_FOLDER = "synthesis/recipes"
_MOST_EVENTS = 10_000  # of a soundscape
_LARGEST = 1e12  # number in a recipe
_PARAMETERS = {
    "const": ("value",),
    "choose": ("list",),
    "uniform": ("low", "high"),
    "normal": ("mean", "deviation"),
    "truncnorm": ("mean", "deviation", "low", "high"),
}


@dataclass(frozen=True)
class Distribution:
    """A distribution of numbers; `parse_distribution` makes and checks it.

    >>> rng = np.random.default_rng(0)
    >>> parse_distribution(["uniform", 0.5, 4]).sample(rng)
    2.729...
    >>> parse_distribution(["choose", [1, 2, 3]]).sample(rng) in (1, 2, 3)
    True
    """

    name: str
    values: tuple[float, ...]

    def sample(self, rng: np.random.Generator) -> float:
        """Draw one number."""
        if self.name == "const":
            return self.values[0]
        if self.name == "choose":
            return self.values[int(rng.integers(len(self.values)))]
        if self.name == "uniform":
            low, high = self.values
            return float(rng.uniform(low, high))
        mean, deviation, *bounds = self.values
        if not bounds:
            return float(rng.normal(mean, deviation))
        low, high = bounds
        share = rng.uniform(ndtr((low - mean) / deviation), ndtr((high - mean) / deviation))
        return float(min(max(mean + deviation * ndtri(share), low), high))


def parse_distribution(value: object) -> Distribution:
    """The distribution that a number or a list (see the top of this file) describes.

    >>> parse_distribution(["uniform", 4, 0.5])
    Traceback (most recent call last):
    earmark.errors.DataError: uniform: expected low <= high, got 4 and 0.5
    """
    if isinstance(value, Distribution):
        return value
    if _is_number(value):
        value = ["const", value]
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], str):
        raise DataError(f'expected a list such as ["uniform", 0.5, 4] or a number, got {value!r}')
    name, *values = value
    if name not in _PARAMETERS:
        raise unknown_name("distribution", name, _PARAMETERS)
    names = _PARAMETERS[name]
    if len(values) != len(names):
        raise DataError(f"{name}: expected {len(names)} parameters ({', '.join(names)}), got {len(values)}")
    if name == "choose":
        values = list(values[0]) if isinstance(values[0], list | tuple) else []
    if not values or not all(map(_is_number, values)):
        raise DataError(f"{name}: expected finite numbers, got {value[1:]!r}")
    given = dict(zip(names, values, strict=False))
    if given.get("deviation", 1) <= 0:
        raise DataError(f"{name}: expected a deviation above 0, got {given['deviation']}")
    low, high = given.get("low", 0), given.get("high", 0)
    is_open = name == "truncnorm"
    if low > high or (is_open and low == high):
        raise DataError(f"{name}: expected low {'<' if is_open else '<='} high, got {low} and {high}")
    return Distribution(name, tuple(values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _by_class(value: object) -> object:
    return value if isinstance(value, Mapping) else {"": value}


def _by_kind(value: object) -> object:
    return value if isinstance(value, Mapping) else {"": [value]}


_SCHEMA = {"type": "array", "examples": [["uniform", 0.5, 4]]}  # for messages
Drawn = Annotated[Distribution, BeforeValidator(parse_distribution), WithJsonSchema(_SCHEMA)]
Alternatives = Annotated[Many[Drawn], Field(min_length=1, examples=[[["uniform", 0, 10]]])]
Durations = Annotated[dict[str, Drawn], Field(min_length=1), BeforeValidator(_by_class)]
Times = Annotated[dict[str, Alternatives], Field(min_length=1), BeforeValidator(_by_kind)]
Splits = dict[Split, Annotated[int, Field(ge=0)]]


@record
class EventRecipe:
    """Distributions of the events in a soundscape."""

    count: Drawn = Field(description="Events per soundscape.")
    time: Times = Field(description="Onset in seconds, by kind of soundscape; each event draws from one of the list.")
    duration: Durations = Field(description='Seconds of the source, by class; "" for every other class.')
    snr: Drawn = Field(description="Loudness above the background, in decibels.")
    pitch_shift: Drawn | None = Field(default=None, description="Semitones.")
    time_stretch: Drawn | None = Field(default=None, description="Length after stretching over length before.")


@record
class Recipe:
    """Distributions to draw soundscapes from."""

    splits: Splits = Field(description="Soundscapes in each split.")
    events: EventRecipe = Field(description="Distributions of the events.")
    name: str = Field(default="", description="By default that of the file; seeds depend on it.")
    summary: str = Field(default="", description="One line for lists.")
    duration: float = Field(default=10.0, gt=0, description="Length of a soundscape, in seconds.")
    ref_db: float = Field(default=-50.0, description="Loudness of the background, in LUFS.")
    fade_in: float = Field(default=0.01, ge=0, description="Length of an event's fade-in, in seconds.")
    fade_out: float = Field(default=0.01, ge=0, description="Length of an event's fade-out, in seconds.")
    reverb: float | None = Field(default=None, ge=0, le=1, description="Amount of reverberation.")
    background: str = Field(default="brownian", description="Colour of the noise, or a file.")
    too_short: Literal["shorten", "repeat"] = Field(default="shorten", description="If a source ends before its event.")
    classes: Many[str] = Field(default=(), description="Empty for all classes of the bank.")

    def __post_init__(self) -> None:
        if not any(self.splits.values()):
            raise DataError("splits: expected at least one soundscape, got none")
        if "" not in self.events.duration and (missing := set(self.classes) - set(self.events.duration)):
            raise DataError(f"events.duration: expected one for each class, got none for {', '.join(sorted(missing))}")

    def plan(self, bank: Bank, *, clips: int | None = None, seed: int = 0) -> list[Soundscape]:
        """Draw soundscapes with sources from a bank: `clips` in all, in proportion to the splits, or (None) all."""
        counts = self.splits if clips is None else shares(self.splits, clips)
        durations, times = self.events.duration, self.events.time
        classes = self.classes or tuple(c for c in bank.classes if "" in durations or c in durations)
        if not classes:
            raise DataError(
                f"recipe {self.name}: expected a duration for a class of the bank, got none for any of: "
                f"{', '.join(bank.classes)}"
            )
        plan = []
        for split, n in counts.items():
            for number, kind in zip(range(n), cycle(times), strict=False):
                name = f"soundscape_{split}_{kind}{number // len(times)}"
                plan.append(self._soundscape(name, split, kind, classes, bank, seed))
        return plan

    def _soundscape(
        self, name: str, split: Split, kind: str, classes: tuple[str, ...], bank: Bank, seed: int
    ) -> Soundscape:
        rng = draw(seed, self.name, name)
        events: list[Event] = []
        count = self.events.count.sample(rng)
        if count > _MOST_EVENTS:
            raise DataError(f"recipe {self.name}: count: expected at most {_MOST_EVENTS} events, got {count:g}")
        for _ in range(round(count)):
            label = classes[int(rng.integers(len(classes)))]
            used = [event.source_file for event in events]
            events.append(self._event(label, bank.pick(label, split, rng, avoid=used), kind, bank, rng))
        return Soundscape(
            name,
            tuple(events),
            split,
            duration=self.duration,
            ref_db=self.ref_db,
            fade_in=self.fade_in,
            fade_out=self.fade_out,
            reverb=self.reverb,
            background=noise(self.background, self.duration),
            seed=seed,
        )

    def _event(self, label: str, source: str, kind: str, bank: Bank, rng: np.random.Generator) -> Event:
        drawn = self.events
        times = drawn.time[kind]
        time = times[int(rng.integers(len(times)))].sample(rng)
        duration = drawn.duration[label if label in drawn.duration else ""].sample(rng)
        stretch = None if drawn.time_stretch is None else drawn.time_stretch.sample(rng)
        if self.too_short == "shorten":
            duration = min(duration, bank.seconds(source))
        duration = min(duration, self.duration / (stretch or 1.0))
        latest = max(self.duration - duration * (stretch or 1.0), 0.0)  # rounding may make it negative
        return Event(
            label=label,
            source_file=source,
            event_time=min(max(time, 0.0), latest),
            event_duration=duration,
            snr=drawn.snr.sample(rng),
            pitch_shift=None if drawn.pitch_shift is None else drawn.pitch_shift.sample(rng),
            time_stretch=stretch,
        )


def recipe_names() -> dict[str, str]:
    """Recipes that come with earmark, with their summaries."""
    return {name: read_recipe(name).summary for name in embedded_toml(_FOLDER)}


def read_recipe(source: str | Path) -> Recipe:
    """Read a recipe by name, or from a TOML file."""
    return parse(Recipe, {"name": Path(source).stem, **load_toml("recipe", source, _FOLDER)}, where=source)
