"""How far a job is, and what it did: counted while it runs."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from earmark.progress import Progress

__all__ = ["JobProgress", "JobReport", "Tally"]


@dataclass(frozen=True, kw_only=True)
class JobProgress(Progress):
    """Progress of a job, in hours of sound; the total is estimated from file sizes until all recordings are opened."""

    settled: int
    """Recordings that are done or failed, also in earlier runs."""
    files: int
    """Recordings in all."""


@dataclass(frozen=True)
class JobReport:
    """What a run of a job did."""

    out: str
    files: int
    """Recordings that were asked for."""
    done: int
    """Of these, run now."""
    redecided: int
    """Decided anew from kept scores, or written in other formats."""
    kept: int
    """Done already, and not touched."""
    failed: int
    """Not to be read: see failed.csv."""
    trouble: str | None
    """One of these, and why."""
    gone: int
    """Recordings that were there at the last run and are not now: left out of the tables."""
    waiting: int
    """Recordings of earlier runs that are still to be done, with these settings: not in the tables yet."""
    edited: int
    """Files that somebody has changed: kept under another name, with `.edited` in it."""
    events: int
    """In events.csv."""
    presence: int | None
    """Recordings in presence.csv; None if there is no such file."""
    hours: float
    """Of sound, run now."""
    seconds: float
    """That it took."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass
class Tally:
    """What was done so far, and how much is left."""

    files: int = 0
    done: int = 0
    redecided: int = 0
    kept: int = 0
    failed: int = 0
    trouble: str | None = None
    gone: int = 0
    edited: int = 0
    events: int = 0
    presence: int | None = None
    heard: float = 0.0
    begun: dict[Path, tuple[float, os.stat_result | None]] = field(default_factory=dict)
    _sizes: dict[Path, int] = field(default_factory=dict)
    _bytes_left: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _known: dict[str, tuple[int, float]] = field(default_factory=lambda: defaultdict(lambda: (0, 0.0)))

    def expect(self, path: Path, size: int) -> None:
        """A recording of so many bytes is to be run."""
        self._sizes[path] = size
        self._bytes_left[path.suffix.lower()] += size

    def begin(self, path: Path, status: os.stat_result | None) -> None:
        """A recording is looked at: it is no longer guessed at."""
        self.begun[path] = time.monotonic(), status
        self._bytes_left[path.suffix.lower()] -= self._sizes[path]

    def know(self, path: Path, duration: float) -> None:
        """A recording's duration is known."""
        size, seconds = self._known[path.suffix.lower()]
        self._known[path.suffix.lower()] = size + self._sizes[path], seconds + duration

    def progress(self) -> JobProgress:
        """So far."""
        known_bytes, known = (
            (sum(column) for column in zip(*self._known.values(), strict=True)) if self._known else (0, 0.0)
        )
        guess = known / known_bytes if known_bytes else 0.0  # seconds per byte, for suffixes not yet met
        left = 0.0
        for suffix, size in self._bytes_left.items():
            own_bytes, own = self._known.get(suffix, (0, 0.0))
            left += size * (own / own_bytes if own_bytes else guess)
        settled = self.done + self.redecided + self.kept + self.failed
        return JobProgress(
            stage="detecting",
            done=self.heard / 3600,
            total=(known + left) / 3600,
            unit="h",
            detail=f"{settled} of {self.files} recordings",
            settled=settled,
            files=self.files,
        )

    def report(self, out: Path, waiting: int, seconds: float) -> JobReport:
        """At the end, after so many seconds."""
        own = ("files", "done", "redecided", "kept", "failed", "trouble", "gone", "edited", "events", "presence")
        values: dict[str, Any] = {name: getattr(self, name) for name in own}
        return JobReport(out=str(out), waiting=waiting, hours=self.heard / 3600, seconds=seconds, **values)
