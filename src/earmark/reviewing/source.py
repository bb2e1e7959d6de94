"""The material of a review: recordings, and their events from a detection job or a label table."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from earmark import audio
from earmark.annotations import Label
from earmark.audio import AnyPath, AudioInfo
from earmark.audio.clock import recorded_at
from earmark.datasets.matching import match_names
from earmark.detection.inputs import check_exists, choose_names, find_recordings, reason_of
from earmark.detection.outputs import JobFolder
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.files import json_text, make_folder, path_text, written_whole
from earmark.formats import read_labels
from earmark.inference.scores import RecordingScores, read_scores
from earmark.ownership import owned, sha256
from earmark.schema import open_record, read_json
from earmark.text import first_few

RECORDINGS = "recordings.json"
"""File in the folder of a review that is not a detection job: paths of recordings by name."""


@dataclass
class Recording:
    """A recording to review; its header is read when it is first needed."""

    index: int
    name: str
    path: Path
    duration: float | None = None  # seconds; None until it is known
    began: datetime | None = None

    def info(self) -> AudioInfo:
        """The header of its file; damaged sound is read with silence in its gaps."""
        about = read_info(self.path)
        self.duration = about.duration
        return about

    def seconds(self) -> float:
        """Duration; 0 if the file cannot be read."""
        if self.duration is None:
            try:
                self.info()
            except EarmarkError:
                self.duration = 0.0
        return self.duration or 0.0

    def problem(self) -> str | None:
        """Why it cannot be read; None if it can."""
        try:
            self.info()
        except EarmarkError as error:
            return reason_of(error, self.path)
        return None


def read_info(path: Path) -> AudioInfo:
    """The header of a file, also if its sound has gaps."""
    try:
        return audio.info(path)
    except DataError:
        return audio.info(path, damaged="keep")


class Given(NamedTuple):
    """An event as it was given, by a model, a table or a reviewer who added it."""

    id: str
    recording: int
    label: str
    onset: float
    offset: float
    confidence: float | None


class Original:
    """The file that events were read from, which may change while they are reviewed; create it before reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stat, self._hash = self._now(), sha256(path)
        self._is_other = False

    def has_changed(self) -> bool:
        """Whether its content is different now. A file that is gone has not changed."""
        stat = self._now()
        if stat != self._stat:
            self._stat, self._is_other = stat, sha256(self.path) not in ("", self._hash)
        return self._is_other

    def _now(self) -> tuple[int, int] | None:
        try:
            about = self.path.stat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_size


@dataclass
class Source:
    """Recordings and events of a review, and the folder for its journal."""

    kind: str  # "job", "labels" or "recordings"
    title: str
    folder: Path
    recordings: list[Recording]
    events: list[Given] = field(default_factory=list)
    classes: tuple[str, ...] = ()
    model: Path | None = None
    threshold: float | dict[str, float] = 0.5
    original: Original | None = None  # None without events to begin with

    def notice(self) -> str | None:
        """A message for the reviewer if the events on disk are no longer those of the review."""
        if self.original is None or not self.original.has_changed():
            return None
        is_job = self.kind == "job"
        what = "Detection was repeated in this folder" if is_job else f"{self.original.path.name} has changed"
        return (
            f"{what}. This page still shows the earlier events: to see the new ones, stop earmark review and start it "
            "again. All verdicts are kept."
        )

    def scores(self, recording: Recording) -> RecordingScores | None:
        """Frame probabilities of a recording; None if the job did not keep them."""
        if self.kind != "job":
            return None
        path = JobFolder(self.folder).scores(recording.name)
        try:
            return _read_scores(path, path.stat().st_mtime_ns)
        except (OSError, EarmarkError):
            return None


@lru_cache(maxsize=4)
def _read_scores(path: Path, stamp: int) -> RecordingScores:
    return read_scores(path)


def event_id(recording: str, label: str, onset: float, offset: float) -> str:
    """An id of an event that is the same if the same detection is run again."""
    text = f"{recording}\t{label}\t{onset:.4f}\t{offset:.4f}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def open_source(place: AnyPath, *, labels: AnyPath | None = None, out: AnyPath | None = None) -> Source:
    """A detection job, or recordings with or without a label table.

    `out` is the folder for the journal and what is derived from it: the job itself, or by default NAME.review next to
    the recordings.
    """
    path = Path(path_text(place, "found"))
    if JobFolder(path).ledger.is_file():
        if labels is not None or out is not None:
            raise ArgumentError(f"{path} is a detection job, which has its own events; --labels and --out do not apply")
        return _open_job(path)
    check_exists([path])
    if (path / "model.safetensors").is_file() or path.suffix in (".safetensors", ".onnx"):
        raise ArgumentError(f"{path} is a model; review the folder that earmark detect {path} RECORDINGS --out wrote")
    if (path / RECORDINGS).is_file():
        raise ArgumentError(f"{path} contains the verdicts of a review; pass the reviewed recordings")
    full = Path(os.path.abspath(path))  # which has a name, unlike "." and ".."
    if out is None and not full.name:
        raise ArgumentError(f"{path}: a review of a whole disk needs a folder for its verdicts: add --out")
    folder = Path(path_text(out, "out")) if out is not None else full.with_name(f"{full.name}.review")
    named = choose_names(find_recordings([path], folder), {})
    recordings = [Recording(i, name, where, began=recorded_at(name)) for i, (where, name) in enumerate(named)]
    if not recordings:
        raise DataError(f"{path}: there are no audio files in it; expected {', '.join(audio.SUFFIXES)}")
    source = Source("recordings" if labels is None else "labels", full.name, folder, recordings)
    if labels is not None:
        _add_labels(source, Path(path_text(labels, "labels")), full if full.is_dir() else full.parent)
    about = json_text({"recordings": {one.name: os.fspath(one.path) for one in recordings}}, indent=1)
    with owned(make_folder(folder)), written_whole(folder / RECORDINGS) as draft:
        draft.write_text(about, encoding="utf-8")
    return source


def _open_job(folder: Path) -> Source:
    job = JobFolder(folder)
    original = Original(job.merged)
    with job.read_ledger() as ledger:
        entries = list(ledger.entries("done"))
        recordings = [
            Recording(i, entry.name, entry.path, entry.duration, recorded_at(entry.name))
            for i, entry in enumerate(entries)
        ]
        index = {recording.name: recording.index for recording in recordings}
        rows = [row for _, row in ledger.all_events() if row is not None and row.filename in index]
    if not recordings:
        raise DataError(f"{folder}: no recording of this job is done; run earmark detect first")
    about = read_json(_About, job.about) if job.about.is_file() else _About()
    model = None if about.model is None else Path(about.model)
    source = Source("job", Path(os.path.abspath(folder)).name, folder, recordings, model=model, original=original)
    source.events = _given(rows, index)
    source.classes = tuple(dict.fromkeys((*about.classes, *(row.label for row in rows))))
    threshold = about.decoder.get("threshold", 0.5)
    if isinstance(threshold, list | tuple) and len(threshold) == len(about.classes):
        source.threshold = dict(zip(about.classes, map(float, threshold), strict=True))
    elif isinstance(threshold, int | float):
        source.threshold = float(threshold)
    return source


@open_record
class _About:
    """The contents of job.json, as far as a review needs them."""

    classes: list[str] = field(default_factory=list)
    model: str | None = None
    decoder: dict[str, Any] = field(default_factory=dict)


def _add_labels(source: Source, path: Path, root: Path) -> None:
    """Events of a label table; rows without times are events over the whole recording."""
    source.original = Original(path)
    table = read_labels(path)
    matched = match_names(table.filenames, [one.path for one in source.recordings], root)
    if not matched:
        raise DataError(f"{path}: none of its files is among the recordings: it names {first_few(table.filenames)}")
    by_path = {recording.path: recording for recording in source.recordings}
    by_name = {name: by_path[path] for name, path in matched.items()}
    rows = [_timed(row, by_name[row.filename]) for row in table if row.present and row.filename in by_name]
    source.events = _given(rows, {one.name: one.index for one in source.recordings})
    source.classes = table.classes


def _timed(row: Label, recording: Recording) -> Label:
    """The row with the name of the recording; without times, it lasts as long as the recording."""
    row = row._replace(filename=recording.name)
    return row if row.has_times else row._replace(onset=0.0, offset=max(recording.seconds(), 0.001))


def _given(rows: Iterable[Label], index: Mapping[str, int]) -> list[Given]:
    """Events, each once, in order of recording and time."""
    events: dict[str, Given] = {}
    for row in rows:
        onset, offset = map(float, row.span or (0.0, 0.0))
        key = event_id(row.filename, row.label, onset, offset)
        events.setdefault(key, Given(key, index[row.filename], row.label, onset, offset, row.confidence))
    return sorted(events.values(), key=lambda event: (event.recording, event.onset, event.offset, event.label))


def recording_paths(folder: Path) -> dict[str, Path]:
    """Paths of the recordings of a job or review by name, as in the tables derived from it."""
    if JobFolder(folder).ledger.is_file():
        with JobFolder(folder).read_ledger() as ledger:
            return {entry.name: entry.path for entry in ledger.entries(with_missing=True)}
    if (folder / RECORDINGS).is_file():
        about = read_json(_Paths, folder / RECORDINGS)
        return {name: Path(path) for name, path in about.recordings.items()}
    raise DataError(f"{folder}: neither a detection job nor a review: no ledger.sqlite, no {RECORDINGS}")


@open_record
class _Paths:
    recordings: dict[str, str]
