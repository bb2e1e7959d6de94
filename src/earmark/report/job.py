"""The page of a detection job: what was heard, when, in which recording; and what could not be read.

Totals are exact, however many events there are. Timelines are bounded, so that the page is: the 1,000 recordings
with the most events have one. Up to 50,000 events are drawn one by one; of more, those of quiet recordings are, and a
busy recording is cut into equal parts, of which the page knows how many events of each class sound in each.
"""

from __future__ import annotations

import json
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from earmark.detection.ledger import Ledger
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text, make_folder, written_whole
from earmark.report.activity import Activity, Found, Recording, by_clock, by_day, by_position, lanes, recorded_at
from earmark.report.inline import fill_template

__all__ = ["Job", "read_job", "render_job", "write_job_report"]

_MOST_TIMELINES = 1000
_MOST_EVENTS = 50_000  # drawn one by one
_MOST_CELLS = 2_000_000  # of timelines in parts, a character each
_MOST_LANES = 20  # classes of one timeline in parts
_MOST_FAILURES = 500
_PARTS = (24, 240)  # of a timeline: at least, at most
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # the last stands for 35 and more


@dataclass(frozen=True)
class Job:
    """A detection job, as its page sees it.

    Attributes
    ----------
    name
        What the page is headed with.
    classes
        That the model knows, in its order.
    recordings
        Those that were searched to the end.
    found
        Their events.
    failed : (file, reason)
    waiting
        How many files are still to be searched.
    settings
        What the job was told, by name.
    """

    name: str
    classes: tuple[str, ...]
    recordings: tuple[Recording, ...]
    found: Found
    failed: tuple[tuple[str, str], ...] = ()
    waiting: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)


def write_job_report(folder: Path, out: Path | None = None, *, figures: Iterable[Path] = ()) -> Path:
    """Write the page of a detection job, whole or not at all; it may be one that is still running.

    Parameters
    ----------
    folder
        What the job was told to write to: holds `ledger.sqlite` and `job.json`.
    out
        The page; `report.html` in the folder if not given.
    figures
        PNG files to be shown: see `earmark.report.stretches`.
    """
    out = folder / "report.html" if out is None else out
    page = render_job(read_job(folder), [(path.stem, path.read_bytes()) for path in figures])
    make_folder(out.parent)
    with written_whole(out) as draft:
        draft.write_text(page, encoding="utf-8")
    return out


def read_job(folder: Path) -> Job:
    """The job in a folder."""
    if not (folder / "ledger.sqlite").is_file():
        raise ArgumentError(f"{folder} holds no detection job: there is no ledger.sqlite in it")
    settings = _settings(folder / "job.json")
    classes = {str(label): c for c, label in enumerate(settings.pop("classes", ()))}
    with Ledger(folder / "ledger.sqlite", read_only=True) as ledger:
        counts = ledger.counts()
        failed = tuple((entry.name, entry.reason or "no reason is known") for entry in ledger.entries("failed"))
        recordings = tuple(
            Recording(entry.name, entry.duration or 0.0, recorded_at(entry.name)) for entry in ledger.entries("done")
        )
        number = {recording.name: r for r, recording in enumerate(recordings)}
        whole, times = array("q"), array("d")
        for name, row in ledger.all_events():
            if row is not None and row.onset is not None and row.offset is not None and name in number:
                whole.extend((number[name], classes.setdefault(row.label, len(classes))))
                times.extend((row.onset, row.offset, 1.0 if row.confidence is None else row.confidence))
    numbers, seconds = np.array(whole).reshape(-1, 2), np.array(times).reshape(-1, 3)
    found = Found(numbers[:, 0].astype(np.int64), numbers[:, 1].astype(np.int64), *seconds.T)
    return Job(folder.absolute().name, tuple(classes), recordings, found, failed, counts["pending"], settings)


def render_job(job: Job, figures: Sequence[tuple[str, bytes]] = ()) -> str:
    """The page of a job, as HTML, with figures (name, PNG) of stretches if there are any."""
    clocked = sum(recording.began is not None for recording in job.recordings)
    heard = _heard(job)
    days = by_day(job.recordings, job.found) if clocked else None
    timelines, drawn = _timelines(job)
    page = fill_template(
        "job.html",
        title=_printable(job.name),
        version=version("earmark"),
        date=date.today().isoformat(),
        audio=_lasting(sum(recording.duration for recording in job.recordings)),
        n_recordings=len(job.recordings),
        n_events=len(job.found),
        n_failed=len(job.failed),
        waiting=job.waiting,
        totals=_totals(job),
        clock=_heat(by_clock(*heard)) if clocked else None,
        clocked=clocked,
        days=_heat(days) | {"rows_are": "day" if "-" in days.rows[0][5:] else "month"}
        if days and len(days.rows) > 1
        else None,
        position=_heat(by_position(*heard)),
        failed=[(_printable(name), _printable(reason)) for name, reason in job.failed[:_MOST_FAILURES]],
        settings=[(_printable(name), _said(value)) for name, value in job.settings.items()],
        timelines=_embedded({"classes": [_printable(label) for label in job.classes], "recordings": timelines}),
        drawn=drawn,
        figures=[(_printable(name), Markup(b64encode(png).decode())) for name, png in figures],
    )
    return str(page)


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise DataError(f"{path} must hold one JSON object, found {type(settings).__name__}")
    return settings


def _heard(job: Job) -> tuple[Sequence[Recording], Found, list[str]]:
    """The job without classes of which nothing was found."""
    present, numbers = np.unique(job.found.label, return_inverse=True)
    return job.recordings, replace(job.found, label=numbers), [job.classes[c] for c in present]


def _totals(job: Job) -> list[dict[str, Any]]:
    """A row for each class: events, how long they last, where; the most frequent first."""
    found, seconds = job.found, sum(recording.duration for recording in job.recordings)
    events = np.bincount(found.label, minlength=len(job.classes))
    rows: list[dict[str, Any]] = []
    for c in np.argsort(-events, kind="stable"):
        cells: list[tuple[float | None, str]] = [(None, "")] * 5
        if events[c]:
            own = found.of(found.label == c)
            lengths = own.offset - own.onset
            total, median, confidence = (
                float(lengths.sum()),
                float(np.median(lengths)),
                float(np.median(own.confidence)),
            )
            part, recordings = total / seconds if seconds else 0.0, len(np.unique(own.recording))
            said = (f"{_few_digits(100 * part)} %", f"{median:.2f} s", f"{confidence:.2f}", f"{recordings:,}")
            cells = list(zip((total, part, median, confidence, recordings), (_lasting(total), *said), strict=True))
        width = f"{100 * events[c] / max(1, events.max()):.2f}"
        rows.append({"label": _printable(job.classes[c]), "events": int(events[c]), "width": width, "cells": cells})
    return rows


def _heat(activity: Activity) -> dict[str, Any]:
    """Rows of cells, each with its count and how dark it is: its rate, as part of the greatest, on a scale of roots."""
    rates = activity.rates
    darkness = np.sqrt(rates / max(rates.max(initial=0.0), 1e-12)).round(2)
    recorded = np.broadcast_to(activity.seconds, activity.counts.shape) > 0
    rows = [
        {
            "label": _printable(label),
            "total": int(counts.sum()),
            "cells": [
                {
                    "count": int(n),
                    "short": _short(int(n)) if n else "",
                    "darkness": d,
                    "rate": _few_digits(q),
                    "recorded": r,
                }
                for n, d, q, r in zip(counts, dark, rate, lasted, strict=True)
            ],
        }
        for label, counts, dark, rate, lasted in zip(
            activity.rows, activity.counts, darkness, rates, recorded, strict=True
        )
    ]
    seconds = np.atleast_2d(activity.seconds).sum(axis=0)
    unit, size = next((u for u in _UNITS if seconds.max(initial=0.0) >= u[1] / 2), _UNITS[-1])
    lasted = [_few_digits(s / size) if s else "" for s in seconds]
    all_lasted = _few_digits(seconds.sum() / size)
    return {"columns": activity.columns, "rows": rows, "unit": unit, "lasted": lasted, "all_lasted": all_lasted}


def _timelines(job: Job) -> tuple[list[dict[str, Any]], str]:
    """What the page draws, recording by recording, and what to say of it."""
    order = np.argsort(job.found.recording, kind="stable")
    edges = np.searchsorted(job.found.recording[order], np.arange(len(job.recordings) + 1))
    events = np.diff(edges)
    chosen = np.sort(np.argsort(-events, kind="stable")[:_MOST_TIMELINES])
    few = _MOST_EVENTS if events[chosen].sum() <= _MOST_EVENTS else _MOST_EVENTS // len(chosen)
    busy = int((events[chosen] > few).sum())
    parts = int(np.clip(_MOST_CELLS // max(1, busy * min(len(job.classes), _MOST_LANES)), *_PARTS))
    timelines = []
    for r in chosen:
        recording, own = job.recordings[r], job.found.of(order[edges[r] : edges[r + 1]])
        length = max(recording.duration, float(own.offset.max(initial=0.01)))
        entry = {
            "name": _printable(recording.name),
            "seconds": round(recording.duration, 2),
            "length": round(length, 2),
        }
        entry["events"] = int(events[r])
        if recording.began is not None:
            entry["began"] = str(recording.began)
        entry |= _in_parts(own, length, parts) if events[r] > few else {"each": _each(own)}
        timelines.append(entry)
    return timelines, _drawn(len(chosen), len(job.recordings), busy, few, parts)


def _drawn(chosen: int, recordings: int, busy: int, few: int, parts: int) -> str:
    """What is drawn, and what had to be left out."""
    if chosen == recordings and not busy:
        return "Every event is drawn."
    said = f"The {chosen:,} recordings with the most events are drawn." if chosen < recordings else ""
    if busy:
        said += (
            f" {busy:,} recordings with more than {few:,} events each are cut into {parts} parts: the darker a part, "
            "the more events sound in it."
        )
    return f"{said.strip()} Totals above count every event, and events.csv has each."


def _in_parts(found: Found, length: float, parts: int) -> dict[str, Any]:
    """By class, a digit for each part of the recording; the rarest classes are left out where there are many."""
    labels, counts = lanes(found, length, parts)
    frequent = np.sort(np.argsort(-np.bincount(found.label)[labels], kind="stable")[:_MOST_LANES])
    rows = {int(labels[i]): "".join(_DIGITS[min(n, 35)] for n in counts[i].tolist()) for i in frequent}
    return {"parts": rows, "left_out": len(labels) - len(rows)}


def _each(found: Found) -> dict[int, list[int]]:
    """By class, three numbers to an event: onset and length in hundredths of a second, confidence in per cent."""
    columns = (100 * found.onset, 100 * (found.offset - found.onset), 100 * found.confidence)
    numbers = np.round(np.stack(columns, axis=1)).astype(int)
    return {int(c): numbers[found.label == c].ravel().tolist() for c in np.unique(found.label)}


def _embedded(data: object) -> Markup:
    """JSON that can stand inside a script element, whatever its strings hold."""
    text = json_text(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _printable(text: str) -> str:
    """A name as it can be shown: on one line, with a mark for bytes that are no text."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    # a joiner holds emoji together
    return "".join(c if c.isprintable() or c == "\u200d" else c.encode("unicode_escape").decode() for c in text)


def _said(value: object) -> str:
    """A setting in words."""
    if isinstance(value, str):
        return _printable(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{_said(k)}: {_said(v)}" for k, v in value.items())
    if isinstance(value, Sequence):
        return ", ".join(_said(v) for v in value)
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _few_digits(value: float) -> str:
    """A number of any size in as many digits as matter.

    >>> [_few_digits(x) for x in (0.004, 0.25, 9.96, 1234.5)]
    ['< 0.01', '0.25', '10', '1.2k']
    """
    if value < 0.01:
        return "< 0.01" if value else "0"
    return _short(round(value)) if value >= 9.95 else f"{value:.2g}"


def _lasting(seconds: float) -> str:
    """A length of time in the two units that matter.

    >>> [_lasting(s) for s in (0.25, 59.96, 61, 3600 * 25.5)]
    ['0.2 s', '1 min 0 s', '1 min 1 s', '25 h 30 min']
    """
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    return "{:,} h {} min".format(*divmod(round(seconds / 60), 60))


def _short(count: int) -> str:
    """A count in at most four characters.

    >>> [_short(n) for n in (0, 999, 1234, 99_960, 999_600, 1_200_000)]
    ['0', '999', '1.2k', '100k', '1.0M', '1.2M']
    """
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if round(count / unit, 3) >= 1:
            return f"{count / unit:.1f}{name}" if count < 9.95 * unit else f"{count / unit:.0f}{name}"
    return str(count)
