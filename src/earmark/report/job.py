"""The report of a detection job: an HTML page with events by class, hour and recording, and failed recordings.

Totals are exact for any number of events. Timelines are limited: only the 1,000 recordings with the most events have
one. Up to 50,000 events are drawn one by one; beyond that, recordings with many events are divided into equal parts,
and the page contains the number of events of each class in each part.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from earmark.detection.ledger import Ledger
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text
from earmark.report.activity import EVENT, Activity, Recording, by_clock, by_day, by_position, lanes, recorded_at
from earmark.report.pages import fill_page, write_text
from earmark.tables import Cell, Column, Table

__all__ = ["Job", "read_job", "render_job", "write_job_report"]

Events = npt.NDArray[np.void]

_MOST_TIMELINES = 1000
_MOST_EVENTS = 50_000  # drawn one by one
_MOST_CELLS = 2_000_000  # of timelines in parts, a character each
_MOST_LANES = 20  # classes of one timeline in parts
_MOST_FAILURES = 500
_PARTS = (24, 240)  # of a timeline: at least, at most
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # the last means 35 or more


@dataclass(frozen=True)
class Job:
    """A detection job, as far as its report needs it.

    Attributes
    ----------
    name
        Title of the page.
    classes
        Of the model, in its order.
    recordings
        Those that are done.
    events
        Of these recordings, with the fields of `earmark.report.activity.EVENT`.
    failed : (file, reason)
    pending
        Number of recordings that are neither done nor failed.
    settings
        Settings of the job, by name.
    """

    name: str
    classes: tuple[str, ...]
    recordings: tuple[Recording, ...]
    events: Events
    failed: tuple[tuple[str, str], ...] = ()
    pending: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)


def write_job_report(folder: Path, out: Path | None = None, *, figures: Iterable[Path] = ()) -> Path:
    """Write the report of a detection job, which may still be running.

    Parameters
    ----------
    folder
        Output folder of the job, with `ledger.sqlite` and `job.json`.
    out
        The HTML file; by default `report.html` in the folder.
    figures
        PNG files to include: see `earmark.report.stretches`.
    """
    page = render_job(read_job(folder), [(path.stem, path.read_bytes()) for path in figures])
    return write_text(folder / "report.html" if out is None else out, page)


def read_job(folder: Path) -> Job:
    """Read the job in a folder."""
    path = folder / "ledger.sqlite"
    if not path.is_file():
        raise ArgumentError(f"{folder}: not the folder of a detection job: no ledger.sqlite")
    settings = _read_settings(folder / "job.json")
    classes = {str(label): c for c, label in enumerate(settings.pop("classes", ()))}
    with Ledger(path, read_only=True) as ledger:
        counts = ledger.counts()
        failed = tuple((entry.name, entry.reason or "unknown reason") for entry in ledger.entries("failed"))
        recordings = tuple(
            Recording(entry.name, entry.duration or 0.0, recorded_at(entry.name)) for entry in ledger.entries("done")
        )
        index = {recording.name: r for r, recording in enumerate(recordings)}
        events = np.fromiter(_event_rows(ledger, index, classes), EVENT)
    return Job(folder.absolute().name, tuple(classes), recordings, events, failed, counts["pending"], settings)


def _event_rows(ledger: Ledger, recordings: Mapping[str, int], classes: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    """Events of the ledger as rows of `EVENT`; classes that are not known yet are added."""
    for name, row in ledger.all_events():
        if row is not None and row.onset is not None and name in recordings:
            label = classes.setdefault(row.label, len(classes))
            yield recordings[name], label, row.onset, row.offset, 1.0 if row.confidence is None else row.confidence


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise DataError(f"{path}: expected a JSON object, got {type(settings).__name__}")
    return settings


def render_job(job: Job, figures: Sequence[tuple[str, bytes]] = ()) -> str:
    """The report of a job as HTML, with figures (name, PNG) of excerpts."""
    clocked = sum(recording.began is not None for recording in job.recordings)
    present, labels = np.unique(job.events["label"], return_inverse=True)
    events = job.events.copy()
    events["label"] = labels  # without classes that have no events
    shown = (job.recordings, events, [job.classes[c] for c in present])
    days = by_day(job.recordings, events) if clocked else None
    failed = [[Cell(_printable(text)) for text in failure] for failure in job.failed[:_MOST_FAILURES]]
    return fill_page(
        "job.html.j2",
        title=_printable(job.name),
        audio=_duration_text(sum(recording.duration for recording in job.recordings)),
        n_recordings=len(job.recordings),
        n_events=len(job.events),
        n_failed=len(job.failed),
        pending=job.pending,
        totals=_totals(job),
        clock=_heat(by_clock(*shown)) if clocked else None,
        clocked=clocked,
        days=_day_heat(days) if days is not None and len(days.rows) > 1 else None,
        position=_heat(by_position(*shown)),
        failed=Table([Column("file", is_text=True), Column("reason", is_text=True)], failed),
        settings=[(_printable(name), _setting_text(value)) for name, value in job.settings.items()],
        figures=[(_printable(name), Markup(b64encode(png).decode())) for name, png in figures],
        **_timelines(job),
    )


def _totals(job: Job) -> list[dict[str, Any]]:
    """A row for each class, the most frequent first: events, total and median duration, confidence, recordings."""
    audio = sum(recording.duration for recording in job.recordings)
    n_events = np.bincount(job.events["label"], minlength=len(job.classes))
    rows: list[dict[str, Any]] = []
    for c in np.argsort(-n_events, kind="stable"):
        cells = [Cell("")] * 5
        if n_events[c]:
            events = job.events[job.events["label"] == c]
            durations = events["offset"] - events["onset"]
            total, median = float(durations.sum()), float(np.median(durations))
            share, confidence = total / audio if audio else 0.0, float(np.median(events["confidence"]))
            recordings = len(np.unique(events["recording"]))
            cells = [
                Cell(_duration_text(total), total),
                Cell(f"{_short_number(100 * share)} %", share),
                Cell(f"{median:.2f} s", median),
                Cell(f"{confidence:.2f}", confidence),
                Cell(f"{recordings:,}", recordings),
            ]
        width = f"{100 * n_events[c] / max(1, n_events.max()):.2f}"
        rows.append({"label": _printable(job.classes[c]), "events": int(n_events[c]), "width": width, "cells": cells})
    return rows


def _heat(activity: Activity) -> dict[str, Any]:
    """Rows of cells with counts; darkness is the square root of the rate, relative to the highest rate."""
    rates = activity.rates
    darkness = np.sqrt(rates / max(rates.max(initial=0.0), 1e-12)).round(2)
    recorded = np.broadcast_to(activity.seconds, activity.counts.shape) > 0
    rows = []
    for r, label in enumerate(activity.rows):
        cells = [
            {
                "count": int(count),
                "short": _short_count(int(count)) if count else "",
                "darkness": darkness[r, c],
                "rate": _short_number(rates[r, c]),
                "recorded": recorded[r, c],
            }
            for c, count in enumerate(activity.counts[r])
        ]
        rows.append({"label": _printable(label), "total": int(activity.counts[r].sum()), "cells": cells})
    seconds = np.atleast_2d(activity.seconds).sum(axis=0)
    unit, size = next((u for u in _UNITS if seconds.max(initial=0.0) >= u[1] / 2), _UNITS[-1])
    return {
        "columns": activity.columns,
        "rows": rows,
        "unit": unit,
        "recorded": [_short_number(s / size) if s else "" for s in seconds],
        "all_recorded": _short_number(seconds.sum() / size),
    }


def _day_heat(days: Activity) -> dict[str, Any]:
    return _heat(days) | {"rows_are": "day" if len(days.rows[0]) == len("2026-05-14") else "month"}


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
        recording, events = job.recordings[r], job.events[order[edges[r] : edges[r + 1]]]
        length = max(recording.duration, float(events["offset"].max(initial=0.01)))
        timelines.append(
            {
                "name": _printable(recording.name),
                "seconds": round(recording.duration, 2),
                "length": round(length, 2),
                "events": len(events),
                **({} if recording.began is None else {"began": str(recording.began)}),
                **(_in_parts(events, length, parts) if len(events) > few else {"each": _each(events)}),
            }
        )
    embedded = _embedded({"classes": [_printable(label) for label in job.classes], "recordings": timelines})
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


def _embedded(data: object) -> Markup:
    """JSON that is safe inside a script element, whatever its strings contain."""
    text = json_text(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _printable(text: str) -> str:
    """Text on one line, with undecodable bytes replaced and control characters escaped."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    # the zero-width joiner combines emoji
    return "".join(c if c.isprintable() or c == "\u200d" else c.encode("unicode_escape").decode() for c in text)


def _setting_text(value: object) -> str:
    """
    >>> _setting_text({"threshold": 0.5, "low": None, "formats": ["tsv", "csv"], "scores": True})
    'threshold: 0.5, low: none, formats: tsv, csv, scores: yes'
    """
    if isinstance(value, str):
        return _printable(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{_setting_text(k)}: {_setting_text(v)}" for k, v in value.items())
    if isinstance(value, Sequence):
        return ", ".join(_setting_text(v) for v in value)
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short_number(value: float) -> str:
    """A positive number with two significant digits.

    >>> [_short_number(x) for x in (0.004, 0.25, 9.96, 1234.5)]
    ['< 0.01', '0.25', '10', '1.2k']
    """
    if value < 0.01:
        return "< 0.01" if value else "0"
    return _short_count(round(value)) if value >= 9.95 else f"{value:.2g}"


def _short_count(count: int) -> str:
    """A count in at most four characters.

    >>> [_short_count(n) for n in (0, 999, 1234, 99_960, 999_600, 1_200_000)]
    ['0', '999', '1.2k', '100k', '1.0M', '1.2M']
    """
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if round(count / unit, 3) >= 1:
            return f"{count / unit:.1f}{name}" if count < 9.95 * unit else f"{count / unit:.0f}{name}"
    return str(count)


def _duration_text(seconds: float) -> str:
    """A duration in its two largest units.

    >>> [_duration_text(s) for s in (0.25, 59.96, 61, 3600 * 25.5)]
    ['0.2 s', '1 min 0 s', '1 min 1 s', '25 h 30 min']
    """
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    return "{:,} h {} min".format(*divmod(round(seconds / 60), 60))
