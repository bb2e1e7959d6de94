"""Verdicts as training data: clips around judged events, in addition to those of a data set.

    data, notes = with_labels(open_data("clips"), Path("found/verdicts.csv"))

A recording of up to a minute becomes a clip, and so does one that has a class without times. Of other recordings, only
excerpts with known classes are used. One in five of these clips, chosen by name, is held out for testing: its split is
`HELD_OUT`.

If a table contains clips of the data set, its labels replace those of the classes that it names there. Clips of the
data set that are not in the split train stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.datasets import Clip, Collection, Source
from earmark.datasets.cleaning import read_clean_labels
from earmark.datasets.matching import match_names
from earmark.detection.inputs import reason_of
from earmark.errors import DataError, EarmarkError
from earmark.reviewing.intervals import Intervals, subtract, union
from earmark.reviewing.labels import absence_rows
from earmark.reviewing.source import RECORDINGS, recording_paths
from earmark.text import counted, first_few, plural

HELD_OUT = "verdicts"
"""Split of the clips that are held out for testing."""

LONGEST = 60.0
"""Seconds of a clip; longer recordings are cut."""

_LEAST = 10.0  # seconds of an excerpt, as those that the recipes train on
_MARGIN = 2.0  # seconds around what was judged
_SHARE = 5  # one in this many clips is held out


def with_labels(data: Collection, path: Path) -> tuple[Collection, list[str]]:
    """A data set, extended by a label table: a verdicts.csv, or any table with recordings next to it."""
    table, changes = read_clean_labels(path, data.separator, known=data.classes)
    if not table.classes:  # only recordings without any of the sounds
        table = table.replace(classes=data.classes)
    paths = _paths(table, path, data)
    known = {clip.sources[0].path.resolve(): clip for clip in data.clips if clip.is_file}
    changed: dict[str, list[Label]] = {}
    clips: list[Clip] = []
    rows: list[Label] = []
    ignored = 0
    unread: list[str] = []
    for name, recording in paths.items():
        clip = known.get(recording.resolve())
        if clip is None:
            try:
                seconds = audio.info(recording).duration
            except EarmarkError as error:
                unread.append(f"{name} ({reason_of(error, recording)})")
                continue
            for added, labels in _cut(name, recording, seconds, table):
                clips.append(added)
                rows += labels
        elif clip.split == "train":
            changed[clip.filename] = [row._replace(filename=clip.filename) for row in table.of(name)]
        else:
            ignored += 1
    joined = _joined(data, changed, clips, rows, table)
    held = sum(clip.split == HELD_OUT for clip in clips)
    parts = [f"{counted(len(changed), 'clip')} of the data with more labels"] if changed else []
    parts += [f"{counted(len(clips), 'clip')} added, {held} of them held out for testing"] if clips else []
    notes = [f"{path.name}: {'; '.join(parts) or 'no labels for training'}", *changes]
    if ignored:
        notes.append(f"{path.name}: {counted(ignored, 'recording')} to validate or test with stay as they are")
    if unread:
        left_out = f"could not be read and {plural(len(unread), 'is', 'are')} left out"
        notes.append(f"{path.name}: {counted(len(unread), 'recording')} {left_out}: {first_few(unread)}")
    missing = [name for name in table.filenames if name not in paths]
    if missing:
        notes.append(f"{path.name}: {counted(len(missing), 'recording')} not found: {first_few(missing)}")
    return joined, notes


def _paths(table: LabelTable, path: Path, data: Collection) -> dict[str, Path]:
    """Paths of the recordings that a table names: those of its review, next to it, or in the data set."""
    if (path.parent / "ledger.sqlite").is_file() or (path.parent / RECORDINGS).is_file():
        known = recording_paths(path.parent)
        return {name: known[name] for name in table.filenames if name in known and known[name].is_file()}
    paths = match_names(table.filenames, audio.find(path.parent), path.parent)
    named = set(table.filenames)
    for clip in data.clips:
        if clip.filename in named and clip.is_file:
            paths.setdefault(clip.filename, clip.sources[0].path)
    if not paths:
        raise DataError(f"{path}: none of its files is next to it or in the data: {first_few(table.filenames)}")
    return paths


def _cut(name: str, path: Path, seconds: float, table: LabelTable) -> Iterator[tuple[Clip, list[Label]]]:
    """Clips of one recording, with their labels."""
    known = {label: _known(table, name, label, seconds) for label in table.classes}
    untimed = [row for row in table.of(name) if row.present and not row.has_times and not known[row.label][0]]
    if seconds <= LONGEST or untimed:
        yield _clip(name, Source(path)), [*_rows(name, seconds, known), *dict.fromkeys(untimed)]
        return
    for onset, offset in _windows(known.values(), seconds):
        title = f"{name}@{onset:.2f}-{offset:.2f}"
        shifted = {label: (_within(p, onset, offset), _within(a, onset, offset)) for label, (p, a) in known.items()}
        yield _clip(title, Source(path, 1.0, onset, offset)), list(_rows(title, offset - onset, shifted))


def _clip(name: str, source: Source) -> Clip:
    digest = int(hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest(), 16)
    return Clip(name, (source,), HELD_OUT if digest % _SHARE == 0 else "train")


def _known(table: LabelTable, name: str, label: str, seconds: float) -> tuple[Intervals, Intervals]:
    """Where a class is present in a recording, and where it is absent."""
    rows = [row for row in table.of(name) if row.label == label]
    if not rows and table.complete:
        return [], [(0.0, seconds)]
    present = union(row.span for row in rows if row.present and row.span)
    absent = union(row.span for row in rows if row.present is False and row.span)
    is_absent = any(row.present is False and not row.has_times for row in rows)
    is_unknown = any(row.present is None for row in rows)
    if is_absent or (present and not is_unknown):  # known as a whole
        absent = [(0.0, seconds)]
    return present, subtract(absent, present)


def _windows(known: Iterable[tuple[Intervals, Intervals]], seconds: float) -> Iterator[tuple[float, float]]:
    """Excerpts with the known intervals and margins around them, of ten seconds to a minute."""
    marked = union(*(intervals for pair in known for intervals in pair))
    wide = []
    for onset, offset in marked:
        margin = max(_MARGIN, (_LEAST - (offset - onset)) / 2)
        wide.append((max(0.0, onset - margin), min(seconds, offset + margin)))
    for onset, offset in union(wide):
        parts = max(1, -(-round(offset - onset) // round(LONGEST)))
        step = (offset - onset) / parts
        for k in range(parts):
            yield round(onset + k * step, 2), round(min(seconds, onset + (k + 1) * step), 2)


def _within(intervals: Intervals, onset: float, offset: float) -> Intervals:
    """Intervals inside an excerpt, counted from its start."""
    return [(max(a, onset) - onset, min(b, offset) - onset) for a, b in intervals if a < offset and b > onset]


def _rows(name: str, seconds: float, known: dict[str, tuple[Intervals, Intervals]]) -> Iterator[Label]:
    for label, (present, absent) in known.items():
        yield from (Label(name, onset, offset, label) for onset, offset in present)
        yield from absence_rows(name, label, seconds, present, absent)


def _joined(
    data: Collection, changed: dict[str, list[Label]], clips: Sequence[Clip], rows: Sequence[Label], table: LabelTable
) -> Collection:
    """Both sets of clips; the absent classes that `complete` implied in the data set become rows."""
    merged: list[Label] = []
    for name in data.labels.filenames:
        merged += _merged(data.labels, name, changed.get(name, []))
    classes = (*data.classes, *(label for label in table.classes if label not in data.classes))
    names = [*data.labels.filenames, *(clip.filename for clip in clips)]
    splits = {**data.labels.splits, **{clip.filename: clip.split for clip in clips}}
    labels = LabelTable([*merged, *rows], filenames=names, classes=classes, complete=False, splits=splits)
    return replace(data, clips=(*data.clips, *clips), labels=labels)


def _merged(labels: LabelTable, name: str, changed: Sequence[Label]) -> Iterator[Label]:
    """Labels of a clip of the data set, replaced by `changed` for the classes in it."""
    replaced = {row.label for row in changed}
    for label in labels.classes:
        if label in replaced:
            continue
        rows = [row for row in labels.of(name) if row.label == label]
        if not rows and labels.complete:
            rows = [Label(name, None, None, label, False)]
        yield from rows
    yield from changed
