"""The report of a detection job: an HTML page with events by class, hour and recording, and failed recordings.

Totals are exact for any number of events. Timelines are limited: only the 1,000 recordings with the most events have
one. Up to 50,000 events are drawn one by one; beyond that, recordings with many events are divided into equal parts,
and the page contains the number of events of each class in each part.

Events are a structured array with the fields of `EVENT`. An event belongs to the hour in which it begins, so that the
hours add up to the total; along a recording it counts wherever it is active. Rates are events per hour of audio,
because recorders pause: ten calls in ten minutes are more than twenty in an hour.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from pydantic import Field

from earmark.annotations import Label
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import JobFolder, writing_views
from earmark.errors import ArgumentError
from earmark.evaluation.reliability import NAMES
from earmark.events import describe
from earmark.files import json_text
from earmark.inference.scorer import Scorer
from earmark.reporting.pages import fill_page, write_page
from earmark.reporting.reliability import Reliability, read_reliability, with_events
from earmark.reporting.stretches import choose_stretches, draw_stretches, figure_path
from earmark.schema import Names, open_record, parse, read_json
from earmark.tables import Cell, Column, Table
from earmark.text import clock_time, printable

Events = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

EVENT = np.dtype(
    [("recording", np.int64), ("label", np.int64), ("onset", float), ("offset", float), ("confidence", float)]
)
"""Index of the recording, index of the class, times in seconds, confidence in [0, 1]."""

_HOUR, _DAY = 3600, 86400  # seconds
_WIDTHS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, _DAY)  # of columns, in seconds
_MOST_COLUMNS = 24
_MOST_DAYS = 62  # as rows; beyond, rows are months
_MOST_TIMELINES = 1000
_MOST_EVENTS = 50_000  # drawn one by one
_MOST_CELLS = 2_000_000  # of timelines in parts, a character each
_MOST_LANES = 20  # classes of one timeline in parts
_MOST_FAILURES = 500
_PARTS = (24, 240)  # of a timeline: at least, at most
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # the last means 35 or more


@dataclass(frozen=True)
class Job:
    """A detection job, as far as its report needs it."""

    name: str
    """Title of the page."""
    classes: tuple[str, ...]
    recordings: tuple[Recording, ...]
    """Those that are done."""
    events: Events
    """Of these recordings, with the fields of `EVENT`."""
    failed: tuple[tuple[str, str], ...] = ()
    """File and reason."""
    pending: int = 0
    """Number of recordings that are neither done nor failed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    reliability: Reliability = field(default_factory=Reliability)


@open_record
class _Settings:
    """The contents of `job.json`."""

    classes: Names
    model: str | None = None
    fingerprint: str = ""
    decoder: dict[str, Any] = Field(default_factory=dict)
    formats: list[str] = Field(default_factory=list)
    presence: float | Literal["recording"] | None = None
    keep_scores: bool = False
    versions: dict[str, str] = Field(default_factory=dict)
    command: str | None = None


def write_views(folder: Path, scorer: Scorer, wanted: Iterable[str] = (), *, report: bool = False) -> list[Path]:
    """Draw excerpts of a job's recordings, and write its report with them; returns the PNG files and the report.

    Files of earlier calls are replaced, or kept under another name if the user has edited them. `wanted` are requests
    for `choose_stretches`.
    """
    stretches = [stretch for request in wanted for stretch in choose_stretches(folder, request)]
    paths = [figure_path(folder, stretch).with_suffix(end) for stretch in stretches for end in (".png", ".svg")]
    page = [folder / "report.html"] if report else []
    with writing_views(folder, [*paths, *page]):
        drawn = draw_stretches(folder, scorer, stretches)
        return [*drawn, *([write_job_report(folder, figures=drawn)] if report else [])]


def write_job_report(folder: Path, *, figures: Iterable[Path] = ()) -> Path:
    """Write `report.html` to the folder of a detection job, which may still be running.

    `figures` are PNG files to include: see `earmark.reporting.stretches`.
    """
    job = read_job(folder)
    with JobFolder(folder).read_ledger() as ledger:
        job = replace(job, reliability=with_events(read_reliability(job.settings.get("model")), _located(ledger)))
    page = render_job(job, [(path.stem, path.read_bytes()) for path in figures])
    return write_page(folder / "report.html", page)


def read_job(folder: Path) -> Job:
    """Read the job in a folder."""
    place = JobFolder(folder)
    if not place.ledger.is_file():
        raise ArgumentError(f"{folder}: not the folder of a detection job: no ledger.sqlite")
    settings = _read_settings(place.about)
    classes = {str(label): c for c, label in enumerate(settings.pop("classes", ()))}
    for name, value in settings.get("decoder", {}).items():
        if isinstance(value, list) and len(value) == len(classes):
            settings["decoder"][name] = describe(value, list(classes))
    with place.read_ledger() as ledger:
        counts = ledger.counts()
        failed = tuple((entry.name, entry.reason or "unknown reason") for entry in ledger.entries("failed"))
        recordings = tuple(
            Recording(entry.name, entry.duration or 0.0, entry.began) for entry in ledger.entries("done")
        )
        index = {recording.name: r for r, recording in enumerate(recordings)}
        events = np.fromiter(_event_rows(ledger, index, classes), EVENT)
    return Job(folder.absolute().name, tuple(classes), recordings, events, failed, counts["pending"], settings)


def _located(ledger: Ledger) -> Iterator[tuple[Label, Path]]:
    """Events of a job, each with the file of its recording."""
    paths = {entry.name: entry.path for entry in ledger.entries("done")}
    return ((event, paths[name]) for name, event in ledger.all_events() if event is not None and name in paths)


def _event_rows(ledger: Ledger, recordings: Mapping[str, int], classes: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    """Events of the ledger as rows of `EVENT`; classes that are not known yet are added."""
    for name, row in ledger.all_events():
        if row is not None and row.onset is not None and name in recordings:
            label = classes.setdefault(row.label, len(classes))
            yield recordings[name], label, row.onset, row.offset, 1.0 if row.confidence is None else row.confidence


def _read_settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    settings = read_json(dict[str, Any], path)
    parse(_Settings, settings, where=path)
    return settings


def render_job(job: Job, figures: Sequence[tuple[str, bytes]] = ()) -> str:
    """The report of a job as HTML, with figures (name, PNG) of excerpts."""
    has_clock = any(recording.began is not None for recording in job.recordings)
    present, labels = np.unique(job.events["label"], return_inverse=True)
    events = job.events.copy()
    events["label"] = labels  # without classes that have no events
    shown = (job.recordings, events, [job.classes[c] for c in present])
    failed = [[Cell(printable(text)) for text in failure] for failure in job.failed[:_MOST_FAILURES]]
    return fill_page(
        "job.html.j2",
        title=printable(job.name),
        job=job,
        totals=_totals(job),
        clock=by_clock(*shown) if has_clock else None,
        days=by_day(job.recordings, events) if has_clock else None,
        position=by_position(*shown),
        reliability=job.reliability,
        bands=NAMES,
        failed=Table([Column("file", is_text=True), Column("reason", is_text=True)], failed),
        figures=[(name, Markup(b64encode(png).decode())) for name, png in figures],
        **_timelines(job),
    )


def _totals(job: Job) -> list[dict[str, Any]]:
    """A row for each class, the most frequent first; values of classes without events are missing."""
    audio = sum(recording.duration for recording in job.recordings)
    n_events = np.bincount(job.events["label"], minlength=len(job.classes))
    rows: list[dict[str, Any]] = []
    for c in np.argsort(-n_events, kind="stable"):
        row = {"label": job.classes[c], "events": int(n_events[c]), "bar": n_events[c] / max(1, n_events.max())}
        if n_events[c]:
            events = job.events[job.events["label"] == c]
            durations = events["offset"] - events["onset"]
            row |= {
                "total": float(durations.sum()),
                "share": float(durations.sum()) / audio if audio else 0.0,
                "median": float(np.median(durations)),
                "confidence": float(np.median(events["confidence"])),
                "recordings": len(np.unique(events["recording"])),
            }
        rows.append(row)
    return rows


def _timelines(job: Job) -> dict[str, Any]:
    """Data of the timelines for the page's script, and their number and limits for its text."""
    order = np.argsort(job.events["recording"], kind="stable")
    edges = np.searchsorted(job.events["recording"][order], np.arange(len(job.recordings) + 1))
    n_events = np.diff(edges)
    drawn = np.sort(np.argsort(-n_events, kind="stable")[:_MOST_TIMELINES])
    few = _MOST_EVENTS if n_events[drawn].sum() <= _MOST_EVENTS else _MOST_EVENTS // len(drawn)
    n_busy = int((n_events[drawn] > few).sum())
    parts = int(np.clip(_MOST_CELLS // max(1, n_busy * min(len(job.classes), _MOST_LANES)), *_PARTS))
    timelines = []
    for r in drawn:
        recording = job.recordings[r]
        events = job.events[order[edges[r] : edges[r + 1]]]
        length = max(recording.duration, float(events["offset"].max(initial=0.01)))
        timelines.append(
            {
                "name": printable(recording.name),
                "seconds": round(recording.duration, 2),
                "length": round(length, 2),
                "events": len(events),
                **({} if recording.began is None else {"began": str(recording.began)}),
                **(_in_parts(events, length, parts) if len(events) > few else {"each": _each(events)}),
            }
        )
    data = {"classes": [printable(label) for label in job.classes], "recordings": timelines}
    embedded = htmlsafe_json_dumps(data, json_text, separators=(",", ":"))
    return {"timelines": embedded, "n_drawn": len(drawn), "n_busy": n_busy, "few": few, "parts": parts}


def _in_parts(events: Events, length: float, parts: int) -> dict[str, Any]:
    """By class, a digit for each part of the recording; of many classes only the most frequent."""
    labels, counts = lanes(events, length, parts)
    frequent = np.sort(np.argsort(-np.bincount(events["label"])[labels], kind="stable")[:_MOST_LANES])
    rows = {int(labels[i]): "".join(_DIGITS[min(n, 35)] for n in counts[i].tolist()) for i in frequent}
    return {"parts": rows, "left_out": len(labels) - len(rows)}


def _each(events: Events) -> dict[int, list[int]]:
    """By class, three numbers per event: onset and length in hundredths of a second, confidence in per cent."""
    columns = (100 * events["onset"], 100 * (events["offset"] - events["onset"]), 100 * events["confidence"])
    numbers = np.round(np.stack(columns, axis=1)).astype(int)
    return {int(c): numbers[events["label"] == c].ravel().tolist() for c in np.unique(events["label"])}


@dataclass(frozen=True)
class Recording:
    """A processed recording: its length in seconds, and when it began, if known."""

    name: str
    duration: float
    began: datetime | None = None


@dataclass(frozen=True)
class Activity:
    """Counts of events in rows and columns, and the amount of audio."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Ints
    """(rows, columns)"""
    seconds: Floats
    """Of audio: (rows, columns) or (columns,)"""

    @property
    def rates(self) -> Floats:
        """Events per hour of audio; 0 where nothing was recorded."""
        hours = np.broadcast_to(self.seconds, self.counts.shape) / _HOUR
        return np.divide(self.counts, hours, out=np.zeros(self.counts.shape), where=hours > 0)

    @property
    def column_seconds(self) -> Floats:
        """Seconds of audio in each column."""
        return np.asarray(np.atleast_2d(self.seconds).sum(axis=0))


def by_position(recordings: Sequence[Recording], events: Events, classes: Sequence[str]) -> Activity:
    """Classes by hour since the start of the recording, or by a unit that suits the longest recording."""
    longest = max((recording.duration for recording in recordings), default=0.0)
    widths = [w for w in _WIDTHS if w >= _HOUR or longest <= _HOUR]
    fitting = [w for w in widths if longest <= w * _MOST_COLUMNS]
    width = fitting[0] if fitting else _DAY * math.ceil(longest / _DAY / _MOST_COLUMNS)
    n = max(1, math.ceil(longest / width - 1e-9))
    counts = np.zeros((len(classes), n), np.int64)
    np.add.at(counts, (events["label"], np.minimum(events["onset"] // width, n - 1).astype(int)), 1)
    starts = np.arange(n) * float(width)
    durations = np.array([recording.duration for recording in recordings])
    seconds = np.clip(durations[:, None] - starts, 0, width).sum(axis=0)
    names = [f"{start / _HOUR:.0f} h" if width >= _HOUR else clock_time(start, hours=False) for start in starts]
    return Activity(tuple(classes), tuple(names), counts, seconds)


def by_clock(recordings: Sequence[Recording], events: Events, classes: Sequence[str]) -> Activity:
    """Classes by hour of the day, for recordings with a known start.

    The longest part of the day without any recording is left out, and columns begin after it, so that nights stay
    together.
    """
    known, hours = _event_hours(recordings, events)
    recorded, amounts = _recorded_hours(recordings)
    counts = np.zeros((len(classes), 24), np.int64)
    np.add.at(counts, (known["label"], hours % 24), 1)
    seconds = np.bincount(recorded % 24, amounts, 24).astype(float)
    shown = _after_longest_gap(seconds > 0)
    return Activity(tuple(classes), tuple(f"{hour:02d}" for hour in shown), counts[:, shown], seconds[shown])


def by_day(recordings: Sequence[Recording], events: Events) -> Activity:
    """All classes together, days (or months, if there are many days) by hours of the day."""
    recorded, amounts = _recorded_hours(recordings)
    _, hours = _event_hours(recordings, events)
    days = np.union1d(recorded // 24, hours // 24)
    names = [datetime.fromordinal(day).date().isoformat()[: 10 if len(days) <= _MOST_DAYS else 7] for day in days]
    rows, row_of_day = np.unique(names, return_inverse=True)
    counts = np.zeros((len(rows), 24), np.int64)
    seconds = np.zeros((len(rows), 24))
    np.add.at(counts, (row_of_day[np.searchsorted(days, hours // 24)], hours % 24), 1)
    np.add.at(seconds, (row_of_day[np.searchsorted(days, recorded // 24)], recorded % 24), amounts)
    return Activity(tuple(rows.tolist()), tuple(f"{hour:02d}" for hour in range(24)), counts, seconds)


def lanes(events: Events, duration: float, parts: int) -> tuple[Ints, Ints]:
    """Events of one recording, counted in equal parts of it: classes (lanes,), and counts (lanes, parts)."""
    labels, lane = np.unique(events["label"], return_inverse=True)
    first = np.clip((events["onset"] * (parts / duration)).astype(int), 0, parts - 1)
    last = np.clip(np.ceil(events["offset"] * (parts / duration)).astype(int) - 1, first, parts - 1)
    steps = np.zeros((len(labels), parts + 1), np.int64)
    np.add.at(steps, (lane, first), 1)
    np.add.at(steps, (lane, last + 1), -1)
    return labels, steps.cumsum(axis=1)[:, :parts]


def _after_longest_gap(recorded: npt.NDArray[np.bool_]) -> list[int]:
    """Hours of the day from the end of the longest gap to its beginning; all 24 if there is no gap, or no recording.

    >>> _after_longest_gap(np.isin(np.arange(24), [21, 22, 23, 0, 2]))
    [21, 22, 23, 0, 1, 2]
    """
    if recorded.all() or not recorded.any():
        return list(range(24))
    hours = np.flatnonzero(recorded)
    gaps = np.diff(hours, append=hours[0] + 24)  # from each recorded hour to the next
    start = int(hours[(gaps.argmax() + 1) % len(hours)])
    return [(start + k) % 24 for k in range(25 - int(gaps.max()))]


def _event_hours(recordings: Sequence[Recording], events: Events) -> tuple[Events, Ints]:
    """Events of recordings with a known start, and the hour in which each begins, counted from year 0."""
    began = np.array([np.nan if r.began is None else _calendar_second(r.began) for r in recordings], float)
    known = events[np.isfinite(began[events["recording"]])]
    return known, ((began[known["recording"]] + known["onset"]) // _HOUR).astype(np.int64)


def _recorded_hours(recordings: Sequence[Recording]) -> tuple[Ints, Floats]:
    """Calendar hours that were recorded, with repetitions, and the seconds of each."""
    hours, amounts = [np.empty(0, np.int64)], [np.empty(0)]
    for recording in recordings:
        if recording.began is not None:
            start = _calendar_second(recording.began)
            end = start + recording.duration
            hour = np.arange(start // _HOUR, np.ceil(end / _HOUR), dtype=np.int64)
            hours.append(hour)
            amounts.append(np.minimum(end, (hour + 1) * _HOUR) - np.maximum(start, hour * _HOUR))
    return np.concatenate(hours), np.concatenate(amounts)


def _calendar_second(moment: datetime) -> float:
    """Seconds since the calendar began, so that hour // 24 is the day's ordinal."""
    return float(moment.toordinal() * _DAY + moment.hour * _HOUR + moment.minute * 60 + moment.second)
