"""Progress and results of a detection job, counted while it runs."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from earmark.progress import Progress

__all__ = ["JobReport", "Tally"]


@dataclass
class JobReport:
    """What a run of a job did."""

    out: str
    files: int = 0
    """Recordings that were given."""
    done: int = 0
    """Of these, scored in this run."""
    redecoded: int = 0
    """Of these, decoded again from kept scores, or written in other formats."""
    kept: int = 0
    """Of these, done before and not touched."""
    failed: int = 0
    """Of these, not readable: see failed.csv."""
    first_failure: str | None = None
    """One of these, with the reason."""
    missing: int = 0
    """Recordings of earlier runs that were removed since: left out of the tables."""
    pending: int = 0
    """Recordings of earlier runs that are not done yet: not in the tables."""
    edited: int = 0
    """Files that somebody edited or added: kept under another name, with `.edited` in it."""
    events: int = 0
    """Events in events.csv."""
    presence: int | None = None
    """Recordings in presence.csv; None if there is no such file."""
    hours: float = 0.0
    """Hours of audio scored in this run."""
    seconds: float = 0.0
    """Duration of this run."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass
class Tally:
    """The report so far, and how much is left to do."""

    report: JobReport
    scored: float = 0.0
    """Seconds of audio scored in this run."""
    begun: dict[Path, os.stat_result | None] = field(default_factory=dict)
    """Recordings that are being read, with the state of their file before."""
    _sizes: dict[Path, int] = field(default_factory=dict)
    _bytes_left: int = 0  # of recordings that were not opened yet
    _bytes_known: int = 0  # of those whose duration is known
    _seconds_known: float = 0.0

    def expect(self, path: Path, size: int) -> None:
        """A recording of this many bytes is to be scored."""
        self._sizes[path] = size
        self._bytes_left += size

    def begin(self, path: Path, status: os.stat_result | None) -> None:
        """A recording is opened: its duration is no longer estimated."""
        self.begun[path] = status
        self._bytes_left -= self._sizes[path]

    def set_duration(self, path: Path, seconds: float) -> None:
        """The duration of a recording is known."""
        self._bytes_known += self._sizes[path]
        self._seconds_known += seconds

    def progress(self) -> Progress:
        """Hours scored and to score; the total is estimated from file sizes until all recordings are opened."""
        seconds_left = self._bytes_left * self._seconds_known / max(1, self._bytes_known)
        total = (self._seconds_known + seconds_left) / 3600
        report = self.report
        settled = report.done + report.redecoded + report.kept + report.failed
        return Progress("detecting", self.scored / 3600, total, "h", f"{settled} of {report.files} recordings")
