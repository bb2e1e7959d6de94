"""Progress and results of a detection job, counted while it runs."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from earmark.progress import Progress
from earmark.text import counted

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

    def __str__(self) -> str:
        out, done = Path(self.out), self.done + self.redecoded + self.kept
        before = f", {self.kept} of them before" if self.kept else ""
        again = f", {self.redecoded} from kept results" if self.redecoded else ""
        lines = [f"{done} of {self.files} recordings done{before}{again}; {self.events} events in {out / 'events.csv'}"]
        if self.hours and self.seconds:
            speed = 3600 * self.hours / self.seconds
            lines.append(f"{self.hours:.2f} hours of sound in {self.seconds:.1f} s: {speed:.0f} times real time")
        if self.presence is not None:
            lines.append(f"probabilities of {counted(self.presence, 'recording')} in {out / 'presence.csv'}")
        if self.failed:
            lines.append(f"{self.failed} failed: {out / 'failed.csv'} says which and why")
        for n, noun, what in (
            (self.missing, "recording", "no longer there: left out of events.csv, files in events stay"),
            (self.pending, "recording", "of earlier runs still to do: not in events.csv until then"),
            (self.edited, "file", "edited or added by hand: kept with .edited in the name"),
        ):
            if n:
                lines.append(f"{counted(n, noun)} {what}")
        return "\n".join(lines)


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
