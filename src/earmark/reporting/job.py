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
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from earmark.detection.ledger import Ledger
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text
from earmark.reporting.activity import EVENT, Recording, by_clock, by_day, by_position, lanes, recorded_at
from earmark.reporting.pages import fill_page, write_text
from earmark.tables import Cell, Column, Table
from earmark.text import printable

Events = npt.NDArray[np.void]

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
    """Of these recordings, with the fields of `earmark.reporting.activity.EVENT`."""
    failed: tuple[tuple[str, str], ...] = ()
    """File and reason."""
    pending: int = 0
    """Number of recordings that are neither done nor failed."""
    settings: Mapping[str, Any] = field(default_factory=dict)


def write_job_report(folder: Path, *, figures: Iterable[Path] = ()) -> Path:
    """Write `report.html` to the folder of a detection job, which may still be running.

    `figures` are PNG files to include: see `earmark.reporting.stretches`.
    """
    page = render_job(read_job(folder), [(path.stem, path.read_bytes()) for path in figures])
    return write_text(folder / "report.html", page)


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
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise DataError(f"{path}: expected a JSON object, got {type(settings).__name__}")
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
        recording, events = job.recordings[r], job.events[order[edges[r] : edges[r + 1]]]
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
