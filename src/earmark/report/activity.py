"""What was heard when: events of many recordings counted by class, by hour, and along each recording.

Counts are exact. An event belongs to the hour in which it begins, so that hours add up to the total; along a recording
it counts wherever it lasts. Rates are events per hour of sound, since recorders sleep: ten calls in ten minutes are
more than twenty in an hour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Activity", "Found", "Recording", "by_clock", "by_day", "by_position", "lanes", "recorded_at"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_HOUR = 3600.0
_WIDTHS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400)  # seconds: of columns
_COLUMNS = 24
_DAYS = 62  # rows of days; beyond, rows are months
_CLOCK = re.compile(
    r"(?<![0-9])(?P<year>(?:19|20)[0-9]{2})(?P<dash>-?)(?P<month>[0-9]{2})(?P=dash)(?P<day>[0-9]{2})"
    r"[-_T$ ](?P<hour>[0-9]{2})(?P<colon>[-:_]?)(?P<minute>[0-9]{2})(?P=colon)(?P<second>[0-9]{2})(?![0-9])"
)


@dataclass(frozen=True)
class Recording:
    """A recording that was searched: how long it is, and when it began if that is known."""

    name: str
    duration: float
    began: datetime | None = None


@dataclass(frozen=True)
class Found:
    """Events as columns: recording and class as numbers, times in seconds."""

    recording: Ints
    label: Ints
    onset: Floats
    offset: Floats
    confidence: Floats

    def __len__(self) -> int:
        return len(self.recording)

    def of(self, chosen: Any) -> Found:
        """Some of the events: by a mask, or by their numbers."""
        columns = (self.recording, self.label, self.onset, self.offset, self.confidence)
        return Found(*(column[chosen] for column in columns))


@dataclass(frozen=True)
class Activity:
    """Events counted in rows and columns, and how much was recorded.

    Attributes
    ----------
    rows, columns : names
    counts : (rows, columns)
    seconds : (rows, columns) or (columns,), of sound
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Ints
    seconds: Floats

    @property
    def rates(self) -> Floats:
        """Events per hour of sound; 0 where nothing was recorded."""
        hours = np.broadcast_to(self.seconds, self.counts.shape) / _HOUR
        return np.divide(self.counts, hours, out=np.zeros(self.counts.shape), where=hours > 0)


def recorded_at(name: str) -> datetime | None:
    """When a recording began, by the recorder's clock, if its file name says so; folders are not asked.

    Field recorders write the date and the time next to each other. A name that has digits of which no date and time can
    be made says nothing, and so does one with a date alone. Of two, a beginning and an end, the first counts.

    >>> print(recorded_at("plot 3/20260514_221500.WAV"), recorded_at("SM4-07_20260514_221500.wav"))
    2026-05-14 22:15:00 2026-05-14 22:15:00
    >>> print(recorded_at("2026-05-14T22-15-00.flac"), recorded_at("20261399_221500.wav"), recorded_at("10032-3-0.wav"))
    2026-05-14 22:15:00 None None
    """
    for match in _CLOCK.finditer(re.split(r"[/\\]", name)[-1]):
        try:
            parts = ("year", "month", "day", "hour", "minute", "second")
            return datetime(**{part: int(match[part]) for part in parts})  # type: ignore[arg-type]
        except ValueError:  # 31 April, 25 o'clock
            continue
    return None


def by_position(recordings: Sequence[Recording], found: Found, classes: Sequence[str]) -> Activity:
    """Classes by hour within the recording; in columns of other lengths where an hour is too long or too short."""
    longest = max((recording.duration for recording in recordings), default=0.0)
    widths = [w for w in _WIDTHS if w >= _HOUR or longest <= _HOUR]
    width = next((w for w in widths if longest <= w * _COLUMNS), 86400 * math.ceil(longest / 86400 / _COLUMNS))
    n = max(1, math.ceil(longest / width - 1e-9))
    counts = np.zeros((len(classes), n), np.int64)
    np.add.at(counts, (found.label, np.minimum(found.onset // width, n - 1).astype(int)), 1)
    starts = np.arange(n) * float(width)
    seconds = np.zeros(n)
    for recording in recordings:
        seconds += np.clip(recording.duration - starts, 0, width)
    return Activity(tuple(classes), tuple(_position(start, width) for start in starts), counts, seconds)


def by_clock(recordings: Sequence[Recording], found: Found, classes: Sequence[str]) -> Activity:
    """Classes by hour of the day, for recordings of which it is known when they began.

    The longest time of the day in which nothing was ever recorded is left out, and hours begin after it: nights stay in
    one piece.
    """
    known, hours = _hours(recordings, found)
    counts = np.zeros((len(classes), 24), np.int64)
    np.add.at(counts, (known.label, hours % 24), 1)
    seconds = np.zeros(24)
    for hour, lasted in _recorded_hours(recordings):
        seconds[hour % 24] += lasted
    shown = _after_longest_gap(seconds > 0)
    return Activity(tuple(classes), tuple(f"{hour:02d}" for hour in shown), counts[:, shown], seconds[shown])


def by_day(recordings: Sequence[Recording], found: Found) -> Activity:
    """All classes together, days by hours of the day; months instead of days where days are many."""
    recorded = list(_recorded_hours(recordings))
    _, hours = _hours(recordings, found)
    days = sorted({hour // 24 for hour, _ in recorded} | set((hours // 24).tolist()))
    names = {day: datetime.fromordinal(day).date().isoformat() for day in days}
    if len(days) > _DAYS:
        names = {day: name[:7] for day, name in names.items()}
    rows = list(dict.fromkeys(names.values()))
    row = {day: rows.index(name) for day, name in names.items()}
    counts, seconds = np.zeros((len(rows), 24), np.int64), np.zeros((len(rows), 24))
    np.add.at(counts, (np.array([row[int(day)] for day in hours // 24], int), hours % 24), 1)
    for hour, lasted in recorded:
        seconds[row[hour // 24], hour % 24] += lasted
    return Activity(tuple(rows), tuple(f"{hour:02d}" for hour in range(24)), counts, seconds)


def lanes(found: Found, duration: float, parts: int) -> tuple[Ints, Ints]:
    """Events of one recording in equal parts of it: classes (lanes,), and how many events sound when (lanes, parts)."""
    labels, lane = np.unique(found.label, return_inverse=True)
    first = np.clip((found.onset * (parts / duration)).astype(int), 0, parts - 1)
    last = np.clip(np.ceil(found.offset * (parts / duration)).astype(int) - 1, first, parts - 1)
    steps = np.zeros((len(labels), parts + 1), np.int64)
    np.add.at(steps, (lane, first), 1)
    np.add.at(steps, (lane, last + 1), -1)
    return labels, steps.cumsum(axis=1)[:, :parts]


def _after_longest_gap(recorded: npt.NDArray[np.bool_]) -> list[int]:
    """Hours of the day, from the end of the longest gap to its beginning; all 24 where there is none, or nothing else.

    >>> _after_longest_gap(np.isin(np.arange(24), [21, 22, 23, 0, 2]))
    [21, 22, 23, 0, 1, 2]
    """
    if recorded.all() or not recorded.any():
        return list(range(24))
    hours = np.flatnonzero(recorded)
    gaps = np.diff(hours, append=hours[0] + 24)  # from each to the next that was recorded
    start = int(hours[(gaps.argmax() + 1) % len(hours)])
    return [(start + k) % 24 for k in range(25 - int(gaps.max()))]


def _position(start: float, width: float) -> str:
    """The name of a column: hours where columns are hours or longer, else when it begins."""
    if width >= _HOUR:
        return f"{start / _HOUR:.0f} h"
    minutes, seconds = divmod(int(start), 60)
    return f"{minutes}:{seconds:02d}"


def _hours(recordings: Sequence[Recording], found: Found) -> tuple[Found, Ints]:
    """Events of recordings with a clock, and the hour, counted from year 0, in which each begins."""
    began = np.array([np.nan if r.began is None else _second(r.began) for r in recordings])
    known = found.of(np.isfinite(began[found.recording]) if len(found) else slice(0))
    return known, ((began[known.recording] + known.onset) // _HOUR).astype(np.int64)


def _recorded_hours(recordings: Sequence[Recording]) -> list[tuple[int, float]]:
    """Hours of the calendar that were recorded, and how many seconds of each."""
    pieces: list[tuple[int, float]] = []
    for recording in recordings:
        if recording.began is not None:
            start = _second(recording.began)
            end = start + recording.duration
            while start < end:
                hour = int(start // _HOUR)
                stop = min(end, (hour + 1) * _HOUR)
                pieces.append((hour, stop - start))
                start = stop
    return pieces


def _second(moment: datetime) -> float:
    """Seconds since the calendar began, so that hour // 24 is the day's ordinal."""
    return (
        moment.toordinal() * 86400
        + timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second).total_seconds()
    )
