"""Verdicts and events for other programs, as one file or a zip archive in memory, and snippets of sound."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from earmark import audio
from earmark.errors import ArgumentError, unknown_name
from earmark.formats import FORMATS, write_labels
from earmark.formats.spreadsheets import write_rows
from earmark.reviewing.events import Event
from earmark.reviewing.labels import label_table, verified_table
from earmark.reviewing.sound import excerpt, read_part
from earmark.reviewing.state import Review

WHICH = {
    "verified": "events that are right",
    "all": "events that are not wrong",
    "verdicts": "labels for earmark train: where classes are present, absent or unknown",
}
AUDIO = ("wav", "flac")
MOST_SNIPPETS = 2000
MOST_BYTES = 512 << 20
"""Size of all snippets together, as wav: they are kept in memory."""
_LONGEST = 300.0  # seconds of a snippet


class Export(NamedTuple):
    """A file to download."""

    name: str
    kind: str  # media type
    data: bytes


def export_labels(review: Review, format: str, which: str = "verified") -> Export:
    """Labels in a format of `earmark.formats`; a zip archive if the format has a file per recording."""
    if which not in WHICH:
        raise unknown_name("which", which, WHICH)
    cls = FORMATS[format].cls
    if which == "verdicts":
        if cls.per_recording:
            raise ArgumentError(f"{format} cannot say that a class is absent; choose csv, tsv or json")
        table = label_table(review)
        if not table.filenames:
            raise ArgumentError("nothing has been judged yet")
    else:
        table = verified_table(review, only_right=which == "verified")
    stem = _plain(f"{review.source.title}-{which}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"labels{'' if cls.per_recording else cls.suffix}"
        files = write_labels(table, place, format)
        if not cls.per_recording:
            return Export(f"{stem}{cls.suffix}", "text/plain; charset=utf-8", place.read_bytes())
        contents = {path.relative_to(place).as_posix(): path.read_bytes() for path in files}
    return Export(f"{stem}-{format}.zip", "application/zip", _zipped(contents))


def export_snippets(review: Review, events: Sequence[Event], kind: str = "wav", margin: float = 0.0) -> Export:
    """Sound of events, with `margin` seconds before and after, and a table that describes the files."""
    if kind not in AUDIO:
        raise unknown_name("kind", kind, AUDIO)
    if not events or len(events) > MOST_SNIPPETS:
        raise ArgumentError(f"expected 1 to {MOST_SNIPPETS} events, got {len(events)}")
    if not 0 <= margin <= 60:
        raise ArgumentError(f"margin: expected 0 to 60 s, got {margin}")
    contents: dict[str, bytes] = {}
    size = 0
    rows = [["file", "recording", "onset", "offset", "label", "status", "confidence", "reviewers", "begins"]]
    for number, event in enumerate(events, 1):
        now = event.current
        recording = review.recording(event.given.recording)
        onset = max(0.0, now.onset - margin)
        part = excerpt(recording.path, onset, min(now.offset + margin, onset + _LONGEST))
        size += part.size
        if size > MOST_BYTES:
            raise ArgumentError(f"expected at most {MOST_BYTES >> 20} MiB of sound, got more; select fewer events")
        name = f"{number:04}-{_plain(now.label)}-{_plain(Path(recording.name).stem)}-{now.onset:.2f}s.{kind}"
        samples = read_part(part.path, part.rate, part.first, part.first + part.samples)
        contents[name] = audio.encode(samples, part.rate, kind)
        confidence = "" if event.given.confidence is None else f"{event.given.confidence:.4f}"
        times = [f"{now.onset:.4f}", f"{now.offset:.4f}"]
        reviewers = "; ".join(event.decisions)
        rows.append([name, recording.name, *times, now.label, event.status, confidence, reviewers, f"{onset:.4f}"])
    text = io.StringIO(newline="")
    write_rows(text, rows)
    contents["snippets.csv"] = text.getvalue().encode()
    return Export(f"{_plain(review.source.title)}-snippets.zip", "application/zip", _zipped(contents))


def _zipped(contents: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return file.getvalue()


def _plain(name: str) -> str:
    """A name for a file, from any text.

    >>> _plain("owl, <b>?"), _plain("../..")
    ('owl_b', 'file')
    """
    return re.sub(r"[^\w.+-]+", "_", name).strip("_.")[:80] or "file"
