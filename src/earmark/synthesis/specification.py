"""The specification of a soundscape: its events with their sources, times and levels, in Scaper's terms.

An `Event` is an excerpt of a source, `event_duration` seconds from `source_time` on. Shifted in pitch and stretched in
time, it lasts `event_duration * time_stretch` seconds in the soundscape, from `event_time` on, cut off at the end. That
span, to the microsecond, is the true label. Levels are loudness (LUFS): the background is at `ref_db` plus its `snr`
(nearly always 0), an event at `ref_db + snr`.

`read_events` reads a table such as the one that summarises URBAN-SED's 10,000 annotations: one row per event with
columns split, clip, label, src, time, snr, edur, and optionally pitch and stretch (other columns are ignored).
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from earmark.annotations import Label
from earmark.errors import DataError
from earmark.formats.text import largest_table, one_line, read_text, too_large, whole_lines
from earmark.schema import parse, record

Split = Literal["train", "validate", "test"]
SPLITS: tuple[Split, ...] = ("train", "validate", "test")

_COLUMNS = ("split", "clip", "label", "src", "time", "snr", "edur")
_BYTES_PER_EVENT = 256  # of the largest table
_SHORTEST, _LONGEST = 0.001, 86400.0  # seconds
_LOUDEST = 200.0  # LUFS, up or down: far beyond any sound, and within float32
_NUMBERS = {
    "event_time": "time",
    "event_duration": "edur",
    "snr": "snr",
    "pitch_shift": "pitch",
    "time_stretch": "stretch",
}


@record
class Event:
    """One sound in a soundscape; fields are named as in Scaper's annotations.

    >>> event = Event("dog_bark", "a.wav", event_time=8.0, event_duration=2.0, snr=10.0, time_stretch=1.2)
    >>> event.span(10.0)
    (8.0, 10.0)
    """

    label: str
    source_file: str = Field(description="Name of a file in the sound bank; empty for any of the class.")
    event_time: float = Field(ge=0)
    event_duration: float = Field(gt=0, description="Seconds of the source that are used, before stretching.")
    snr: float = Field(description="Loudness above the background, in decibels.")
    source_time: float = Field(default=0.0, ge=0)
    pitch_shift: float | None = Field(default=None, description="Semitones.")
    time_stretch: float | None = Field(default=None, gt=0, description="Length after over length before.")
    role: str = "foreground"

    @property
    def duration(self) -> float:
        """Seconds that it lasts in a soundscape that does not end first."""
        return self.event_duration * (self.time_stretch or 1.0)

    def span(self, limit: float) -> tuple[float, float]:
        """Onset and offset in a soundscape of `limit` seconds, rounded to microseconds as Scaper rounds them."""
        return round(self.event_time, 6), round(min(self.event_time + self.duration, limit), 6)


@record
class Soundscape:
    """One clip to render. Its sound depends only on these fields and the sound bank."""

    name: str
    events: tuple[Event, ...]
    split: Split = "train"
    duration: float = Field(default=10.0, gt=0)
    ref_db: float = Field(default=-50.0, description="Loudness of the background (LUFS); events are relative to it.")
    fade_in: float = 0.01
    fade_out: float = 0.01
    reverb: float | None = Field(default=None, ge=0, le=1)
    background: Event | None = Field(default=None, description="A recording, or noise: brownian, pink or white.")
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith(".") or any(char in self.name for char in "/\\\t\r\n\0"):
            raise DataError(f"soundscape: expected a name that a file can have, got {self.name!r}")
        if not _SHORTEST <= self.duration <= _LONGEST:
            raise DataError(f"{self.name}: expected a duration from {_SHORTEST} to {_LONGEST:g} s, got {self.duration}")
        for event in (*self.events, *([self.background] if self.background else [])):
            if abs(self.ref_db + event.snr) > _LOUDEST:
                level = f"{self.ref_db + event.snr:g}"
                raise DataError(f"{self.name}: {event.label}: expected a level within {_LOUDEST:g} LUFS, got {level}")
            if event.source_time + event.event_duration > _LONGEST:
                raise DataError(f"{self.name}: {event.label}: expected at most {_LONGEST:g} s of a source")
        for event in self.events:
            if event.event_time >= self.duration:
                raise DataError(
                    f"{self.name}: {event.label}: expected an onset before {self.duration} s, got {event.event_time}"
                )

    @property
    def filename(self) -> str:
        """Path of its audio file in the output folder."""
        return f"audio/{self.split}/{self.name}.flac"

    @property
    def annotation(self) -> str:
        """Path of its annotation in the output folder."""
        return f"annotations/{self.split}/{self.name}.jams"

    def labels(self) -> list[Label]:
        """The true labels: one row per event, in order of onset."""
        rows = [Label(self.filename, *event.span(self.duration), event.label) for event in self.events]
        return sorted(rows, key=lambda row: (row.onset, row.offset, row.label))


def draw(seed: int, *purpose: object) -> np.random.Generator:
    """An independent random generator for each purpose, the same on every machine and in every process."""
    key = json.dumps([seed, *map(str, purpose)])
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest()))


def read_events(path: Path, *, seed: int = 0) -> list[Soundscape]:
    """Soundscapes of ten seconds on Brownian noise at -50 LUFS, from a table of events (.csv or .csv.gz).

    There is no reverberation, since the table does not mention it.
    """
    clips: dict[tuple[str, str], list[Event]] = {}
    most = largest_table() // _BYTES_PER_EVENT
    reader = csv.DictReader(whole_lines(read_text(path)))
    try:
        columns = list(reader.fieldnames or ())
        if not set(_COLUMNS) <= set(columns):
            raise DataError(f"{path}:1: expected columns {', '.join(_COLUMNS)}, got {one_line(', '.join(columns))}")
        for count, row in enumerate(reader, 1):
            if count > most:
                raise DataError(f"{path}: {too_large(f'{most:,} events')}")
            clips.setdefault((row["split"], row["clip"]), []).append(_event_of(row, path, reader.line_num))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not a table: {error}") from error
    if not clips:
        raise DataError(f"{path}: expected at least one event, got none")
    shared = {"background": noise("brownian", 10.0), "seed": seed}
    return [
        parse(Soundscape, {"name": name, "events": tuple(events), "split": split, **shared}, where=f"{path}: {name}")
        for (split, name), events in clips.items()
    ]


def _event_of(row: dict[str, str], path: Path, line: int) -> Event:
    try:
        numbers = {field: float(row[column]) for field, column in _NUMBERS.items() if row.get(column)}
    except ValueError as error:
        raise DataError(f"{path}:{line}: {one_line(str(error))}") from error
    return parse(Event, {"label": row["label"], "source_file": row["src"] or "", **numbers}, where=f"{path}:{line}")


def noise(colour: str, duration: float) -> Event:
    """A background of noise: brownian, pink or white."""
    return Event("noise", colour, 0.0, duration, 0.0, role="background")


def spread(plan: Iterable[Soundscape], clips: int) -> list[Soundscape]:
    """The first soundscapes of each split, `clips` in all, in proportion to the sizes of the splits.

    >>> plan = [Soundscape(f"{split}{i}", (), split) for split in SPLITS for i in range(6)]
    >>> [s.name for s in spread(plan, 4)]
    ['train0', 'train1', 'validate0', 'test0']
    """
    plan = list(plan)
    if clips > len(plan):
        raise DataError(f"clips: expected at most {len(plan)}, got {clips}")
    left = shares({split: sum(s.split == split for s in plan) for split in SPLITS}, clips)
    chosen = []
    for soundscape in plan:
        if left[soundscape.split] > 0:
            left[soundscape.split] -= 1
            chosen.append(soundscape)
    return chosen


def shares(sizes: Mapping[Split, int], clips: int) -> dict[Split, int]:
    """Distribute clips in proportion to sizes; largest remainders round up.

    >>> shares({"train": 6000, "validate": 2000, "test": 2000}, 7)
    {'train': 4, 'validate': 2, 'test': 1}
    """
    if clips < 1:
        raise DataError(f"clips: expected at least 1, got {clips}")
    total = sum(sizes.values())
    counts = {name: clips * size // total for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: -(clips * sizes[name] % total))
    for name in by_remainder[: clips - sum(counts.values())]:
        counts[name] += 1
    return counts
