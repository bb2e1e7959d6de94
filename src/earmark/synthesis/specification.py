"""What is to be heard in a soundscape: its events with their sources, times and levels, in Scaper's terms.

An `Event` is a stretch of a source, `event_duration` seconds from `source_time` on; shifted in pitch and stretched in
time it lasts `event_duration * time_stretch` seconds in the soundscape, from `event_time` on, cut off at the end. That
span, to the microsecond, is the truth. Levels are loudness (LUFS): the background lies at `ref_db` plus its own `snr`
(nearly always 0), an event at `ref_db + snr`.

`read_events` reads the table that URBAN-SED's 10,000 annotations boil down to: one row per event with columns split,
clip, label, src, time, snr, edur, and where they are used pitch and stretch (other columns are not looked at).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from earmark.annotations import Label
from earmark.errors import DataError

__all__ = ["SPLITS", "Event", "Soundscape", "draw", "noise", "read_events", "shares", "spread"]

SPLITS = ("train", "validate", "test")
_NEEDED = ("split", "clip", "label", "src", "time", "snr", "edur")


@dataclass(frozen=True)
class Event:
    """One sound in a soundscape; fields are named as in Scaper's annotations.

    >>> event = Event("dog_bark", "a.wav", event_time=8.0, event_duration=2.0, snr=10.0, time_stretch=1.2)
    >>> event.span(10.0)
    (8.0, 10.0)
    """

    label: str
    source_file: str
    """Name of a file in the sound bank; empty for any of the class."""
    event_time: float
    event_duration: float
    """Seconds of the source that are used, before stretching."""
    snr: float
    source_time: float = 0.0
    pitch_shift: float | None = None
    """Semitones."""
    time_stretch: float | None = None
    """Length after over length before."""
    role: str = "foreground"

    def __post_init__(self) -> None:
        numbers = (self.event_time, self.event_duration, self.snr, self.source_time, self.pitch_shift or 0.0)
        if not all(math.isfinite(number) for number in numbers):
            raise DataError(f"{self.label}: numbers must be finite, found {self}")
        if self.event_time < 0 or self.source_time < 0:
            raise DataError(
                f"{self.label}: times must not be negative, found event_time {self.event_time}, "
                f"source_time {self.source_time}"
            )
        if self.event_duration <= 0:
            raise DataError(f"{self.label}: event_duration must be above 0, found {self.event_duration}")
        if self.time_stretch is not None and not 0 < self.time_stretch < math.inf:
            raise DataError(f"{self.label}: time_stretch must be above 0, found {self.time_stretch}")

    @property
    def duration(self) -> float:
        """Seconds it lasts in the soundscape, unless that ends first."""
        return self.event_duration * (self.time_stretch or 1.0)

    def span(self, limit: float) -> tuple[float, float]:
        """Onset and offset in a soundscape of `limit` seconds, rounded to microseconds as Scaper rounds them."""
        return round(self.event_time, 6), round(min(self.event_time + self.duration, limit), 6)


@dataclass(frozen=True)
class Soundscape:
    """One clip to be rendered. All that its sound depends on is in here, but for the sound bank."""

    name: str
    events: tuple[Event, ...]
    split: str = "train"
    duration: float = 10.0
    ref_db: float = -50.0
    """Loudness of the background (LUFS), to which events are relative."""
    fade_in: float = 0.01
    fade_out: float = 0.01
    reverb: float | None = None
    """0 to 1, or None for none."""
    background: Event | None = None
    """A recording, or noise: a source called brownian, pink or white."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or "\\" in self.name or self.name.startswith("."):
            raise DataError(f"a soundscape's name becomes a file's; {self.name!r} cannot")
        if self.split not in SPLITS:
            raise DataError(f"{self.name}: split {self.split!r} is none of {', '.join(SPLITS)}")
        if not 0 < self.duration < math.inf:
            raise DataError(f"{self.name}: duration must be above 0, found {self.duration}")
        if self.reverb is not None and not 0 <= self.reverb <= 1:
            raise DataError(f"{self.name}: reverb must be in [0, 1], found {self.reverb}")
        for event in self.events:
            if event.event_time >= self.duration:
                raise DataError(
                    f"{self.name}: {event.label} begins at {event.event_time}, after the end of {self.duration} s"
                )

    @property
    def filename(self) -> str:
        """Where its sound goes, below the output folder."""
        return f"audio/{self.split}/{self.name}.flac"

    @property
    def annotation(self) -> str:
        """Where its annotation goes, below the output folder."""
        return f"annotations/{self.split}/{self.name}.jams"

    def labels(self) -> list[Label]:
        """The truth: one row per event, in order of onset."""
        rows = [Label(self.filename, *event.span(self.duration), event.label) for event in self.events]
        return sorted(rows, key=lambda row: (row.onset, row.offset, row.label))

    def fingerprint(self) -> str:
        """A short name for exactly this specification."""
        written = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(written.encode(), digest_size=8).hexdigest()


def draw(seed: int, *words: object) -> np.random.Generator:
    """A generator of its own for each purpose, the same on every machine and in every process.

    >>> float(draw(0, "clip1", "background").random()) == float(draw(0, "clip1", "background").random())
    True
    """
    written = json.dumps([seed, *map(str, words)])
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(written.encode(), digest_size=16).digest()))


def read_events(path: Path, *, seed: int = 0) -> list[Soundscape]:
    """Soundscapes of ten seconds on Brownian noise at -50 LUFS, from a table of events (.csv or .csv.gz).

    Reverberation is left off: the table does not speak of it.
    """
    clips: dict[tuple[str, str], list[Event]] = {}
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in _NEEDED if column not in (reader.fieldnames or ())]
            if missing:
                raise DataError(
                    f"{path}:1: no column {', '.join(missing)}; found: {', '.join(reader.fieldnames or ())}"
                )
            for row in reader:
                clips.setdefault((row["split"], row["clip"]), []).append(_event_of(row, path, reader.line_num))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as a table of events: {error}") from error
    if not clips:
        raise DataError(f"{path}: no events")
    try:
        return [
            Soundscape(name, tuple(events), split, background=noise("brownian", 10.0), seed=seed)
            for (split, name), events in clips.items()
        ]
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _event_of(row: dict[str, str], path: Path, line: int) -> Event:
    def number(column: str) -> float | None:
        return float(row[column]) if row.get(column) else None

    try:
        return Event(
            label=row["label"],
            source_file=row["src"] or "",
            event_time=float(row["time"]),
            event_duration=float(row["edur"]),
            snr=float(row["snr"]),
            pitch_shift=number("pitch"),
            time_stretch=number("stretch"),
        )
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}:{line}: {error}") from error


def noise(colour: str, duration: float) -> Event:
    """A background of noise: brownian, pink or white."""
    return Event("noise", colour, 0.0, duration, 0.0, role="background")


def spread(plan: Iterable[Soundscape], clips: int) -> list[Soundscape]:
    """The first so many soundscapes of each split, `clips` in all, splits keeping their shares.

    >>> plan = [Soundscape(f"{split}{i}", (), split) for split in SPLITS for i in range(6)]
    >>> [s.name for s in spread(plan, 4)]
    ['train0', 'train1', 'validate0', 'test0']
    """
    plan = list(plan)
    if clips > len(plan):
        raise DataError(f"clips={clips} asked for, {len(plan)} there are")
    left = shares({split: sum(s.split == split for s in plan) for split in SPLITS}, clips)
    chosen = []
    for soundscape in plan:
        if left[soundscape.split] > 0:
            left[soundscape.split] -= 1
            chosen.append(soundscape)
    return chosen


def shares(sizes: Mapping[str, int], clips: int) -> dict[str, int]:
    """So many clips, dealt out in proportion to sizes: largest remainders win.

    >>> shares({"train": 6000, "validate": 2000, "test": 2000}, 7)
    {'train': 4, 'validate': 2, 'test': 1}
    """
    if clips < 1:
        raise DataError(f"clips={clips}: at least 1 expected")
    total = sum(sizes.values())
    dealt = {name: clips * size // total for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: -(clips * sizes[name] % total))
    for name in by_remainder[: clips - sum(dealt.values())]:
        dealt[name] += 1
    return dealt
