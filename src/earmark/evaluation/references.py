"""References from any file: names matched with clips, and notes on what is left out and how reliable scores are.

    table, notes = fit_reference(read_labels("truth.jams"), clips, classes)     labels of the clips
    table, notes = read_reference("truth.jams", labels, clips, classes)         the same, of a file or the data's own
    table, (events, notes) = fit_estimate(read_labels("events.csv"), table)     events from another program
    seconds = read_durations("durations.tsv")

File names are matched in the same way as labels with the recordings of a data set: exactly, else by the end of the
path, else without suffix; a name that matches two clips is an error. Labels that differ from a class only in case or
spaces are that class. Each note is one sentence. Nothing is left out without a note.
"""

import csv
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from earmark.annotations import LabelTable
from earmark.counts import Counts
from earmark.datasets.cleaning import match_spellings, read_clean_labels
from earmark.datasets.matching import match_names
from earmark.errors import DataError
from earmark.evaluation.authors import authors_reference
from earmark.formats.text import first_line, number, one_line, read_text, whole_lines
from earmark.text import counted, first_few, plural

FEW_CLIPS = 30
FEW_OF_CLASS = 5
_SHOWN = 3  # classes that are named
_SEEN = {
    "train": "these clips were trained on",
    "validate": "training chose its epoch by these clips",
    "all": "the model was trained on some of these clips",
}
_REMEDY = "evaluate against labels with onsets and offsets (--reference FILE)"
_SINGULAR = {"clips": "clip", "files": "file", "labels": "label", "classes": "class"}
_SINGULAR |= {"are": "is", "were": "was", "have": "has", "count": "counts", "they": "it", "their": "its"}


class Fitted(NamedTuple):
    """Labels with the names of the clips and classes to evaluate, and notes on what was left out."""

    table: LabelTable
    notes: tuple[str, ...]


def fit_reference(reference: LabelTable, clips: Sequence[str], classes: Sequence[str] | None = None) -> Fitted:
    """The reference of some clips and classes. It does not contain clips without reference, so they are not evaluated.

    `classes` are those of the model, in its order; by default those of the reference. Others are left out.

    >>> truth = LabelTable([("a", 0, 1, "dog"), ("b.wav", 0, 1, "owl"), ("c.wav", 0, 1, "dog")])
    >>> table, notes = fit_reference(truth, ["x/a.wav", "x/b.wav", "x/d.wav"], ["dog"])
    >>> table.filenames, len(table)
    (('x/a.wav', 'x/b.wav'), 1)
    >>> print(*notes, sep="\\n")
    2 files of the reference were matched by part of their name: a with x/a.wav, b.wav with x/b.wav
    1 file of the reference is not among the clips and is left out: c.wav
    1 clip has no reference and is not evaluated: x/d.wav
    1 label of the reference is unknown to the model and not evaluated: owl
    """
    spelling: tuple[str, ...] = ()
    if classes is not None:
        reference, spelling = match_spellings(reference, classes)
    if classes is not None and reference.classes and not set(reference.classes).intersection(classes):
        raise DataError(
            f"no class in common: the model has {first_few(classes)}, the labels have {first_few(reference.classes)}"
        )
    named, notes = _with_clip_names(reference, clips, "reference")
    if not named.filenames:
        raise DataError(
            f"no file of the reference is among the clips: it names {first_few(reference.filenames)}, "
            f"the clips are {first_few(clips)}"
        )
    notes += spelling
    matched, labels = set(named.filenames), {row.label for row in named}
    without = [clip for clip in clips if clip not in matched]
    notes += _note(without, "{n} {clips} {have} no reference and {are} not evaluated")
    table = named.select(clip for clip in clips if clip in matched)
    if classes is not None:
        table = table.replace(rows=[row for row in table if row.label in classes], classes=classes)
    absent = [label for label in table.classes if label not in labels]
    if len(absent) < len(table.classes):
        notes += _note(absent, "{n} {classes} {are} nowhere in the reference, so all of {their} detections are wrong")
    unknown = sorted(labels.difference(table.classes))
    notes += _note(unknown, "{n} {labels} of the reference {are} unknown to the model and not evaluated")
    return Fitted(table, tuple(notes))


def read_reference(
    source: str | None,
    labels: LabelTable,
    clips: Sequence[str],
    classes: Sequence[str] | None = None,
    *,
    separator: str | None = None,
) -> Fitted:
    """The reference of some clips, of a source: the data's `labels` if it is None, "authors", or a file or folder.

    "authors" is the reference of the paper's authors, derived from `labels`. Labels of a file are cleaned as those of a
    data set, with the same `separator`. See `fit_reference` for the rest.
    """
    if source is None:
        return fit_reference(labels, clips, classes)
    if source == "authors":
        return fit_reference(authors_reference(labels), clips, classes)
    table, notes = read_clean_labels(source, separator, known=classes or ())
    fitted = fit_reference(table, clips, classes)
    return Fitted(fitted.table, notes + fitted.notes)


def needs_labels(source: str | None) -> bool:
    """Whether the reference of a source is made from the labels of the data."""
    return source in (None, "authors")


def fit_estimate(estimate: LabelTable, reference: LabelTable) -> tuple[LabelTable, Fitted]:
    """The reference with the classes of both, and events from another program over its clips.

    A clip that is not in the estimate has no detections; an estimate may be empty. Events of a class that is not in the
    reference are false alarms.

    >>> reference = LabelTable([("a.wav", 0, 1, "dog"), ("b.wav", 0, 1, "dog")])
    >>> reference, (table, notes) = fit_estimate(LabelTable([("a.wav", 0, 1, "owl")]), reference)
    >>> table.filenames, reference.classes
    (('a.wav', 'b.wav'), ('dog', 'owl'))
    >>> print(*notes, sep="\\n")
    1 clip is not in the estimate, so it has no detections: b.wav
    1 label of the estimate is nowhere in the reference, so all of its detections are wrong: owl
    """
    clips = reference.filenames
    estimate, spelling = match_spellings(estimate, reference.classes)
    named, notes = _with_clip_names(estimate, clips, "estimate")
    notes += spelling
    matched = set(named.filenames)
    if estimate.filenames and not matched:
        raise DataError(
            f"no file of the estimate is in the reference: it names {first_few(estimate.filenames)}, "
            f"the reference {first_few(clips)}"
        )
    without = [clip for clip in clips if clip not in matched]
    notes += _note(without, "{n} {clips} {are} not in the estimate, so {they} {have} no detections")
    unknown = sorted({row.label for row in named}.difference(reference.classes))
    notes += _note(
        unknown, "{n} {labels} of the estimate {are} nowhere in the reference, so all of {their} detections are wrong"
    )
    classes = (*reference.classes, *unknown)
    rows = [row for clip in clips if clip in matched for row in named.of(clip)]
    return reference.replace(classes=classes), Fitted(LabelTable(rows, filenames=clips, classes=classes), tuple(notes))


def match_clips(names: Iterable[str], clips: Iterable[str]) -> dict[str, str]:
    """The clip that each name refers to; names that match no clip are left out.

    >>> match_clips(["b", "c"], ["x/a.wav", "x/b.wav"])
    {'b': 'x/b.wav'}
    """
    root = Path("DATA")  # a placeholder for the data folder, in messages
    paths = {root / clip: clip for clip in clips}
    return {name: paths[path] for name, path in match_names(names, paths, root).items()}


def read_durations(path: Path) -> dict[str, float]:
    """Seconds by file name, from a table with columns `filename` and `duration` (DCASE; tab or comma)."""
    text = read_text(path)
    reader = csv.reader(whole_lines(text), delimiter="\t" if "\t" in first_line(text) else ",")
    try:
        rows = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not a table: {error}") from error
    columns = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    if not {"filename", "duration"} <= set(columns):
        got = one_line(", ".join(columns)) or "an empty file"
        raise DataError(f"{path}: expected columns filename and duration, got {got}")
    durations: dict[str, float] = {}
    for line, cells in rows[1:]:
        where = f"{path}:{line}"
        if len(cells) != len(columns):
            raise DataError(f"{where}: expected {len(columns)} columns, got {len(cells)}")
        row = dict(zip(columns, cells, strict=True))
        name = row["filename"].strip().replace("\\", "/")
        try:
            seconds = number(row["duration"], "duration")
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if not name or seconds is None or not (0 <= seconds < math.inf):
            raise DataError(
                f"{where}: expected a file name and a duration in seconds, got {one_line(', '.join(cells))}"
            )
        if durations.setdefault(name, seconds) != seconds:
            raise DataError(f"{where}: {name} has two durations, {durations[name]:g} s and {seconds:g} s")
    if not durations:
        raise DataError(f"{path}: expected durations, got none")
    return durations


def fit_durations(durations: Mapping[str, float], reference: LabelTable) -> tuple[dict[str, float], Fitted]:
    """Durations by the reference's names, and the reference with the clips that are only in the durations.

    These are clips without events, which references of DCASE do not list.
    """
    clips = match_clips(durations, reference.filenames)
    silent = [name for name in durations if name not in clips]
    seconds = {clips.get(name, name): value for name, value in durations.items()}
    table = reference.replace(filenames=(*reference.filenames, *silent))
    notes = _note(silent, "{n} {clips} {are} in the durations only, so {they} {count} as having no events")
    return seconds, Fitted(table, tuple(notes))


def fingerprint(reference: LabelTable) -> str:
    """A digest of the labels and names of a reference, whatever their order.

    >>> a, b = ("a.wav", 0, 1, "dog"), ("b.wav", 0, 1, "dog")
    >>> fingerprint(LabelTable([a, b])) == fingerprint(LabelTable([b, a])) != fingerprint(LabelTable([a]))
    True
    """
    rows = sorted(repr((*row[:1], *(t if t is None else float(t) for t in row[1:3]), *row[3:5])) for row in reference)
    content = (sorted(reference.filenames), sorted(reference.classes), reference.complete, rows)
    return hashlib.sha256(repr(content).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _with_clip_names(table: LabelTable, clips: Sequence[str], what: str) -> tuple[LabelTable, list[str]]:
    """Labels of those files that are clips, under the names of the clips."""
    matches = match_clips(table.filenames, clips)
    others = [f"{name} with {clip}" for name, clip in matches.items() if name != clip]
    left_out = [name for name in table.filenames if name not in matches]
    notes = _note(others, f"{{n}} {{files}} of the {what} {{were}} matched by part of {{their}} name")
    notes += _note(left_out, f"{{n}} {{files}} of the {what} {{are}} not among the clips and {{are}} left out")
    return table.select(matches).renamed(matches), notes


def _note(names: Sequence[str], text: str) -> list[str]:
    """A note on some names, with their number in place of {n}; none without names.

    >>> _note(["a.wav"], "{n} {clips} {are} left out")
    ['1 clip is left out: a.wav']
    """
    n = len(names)
    words = {many: plural(n, one, many) for many, one in _SINGULAR.items()}
    return [f"{text.format(n=n, **words)}: {first_few(names)}"] if names else []


def rough_notes(static: Counts) -> tuple[str, ...]:
    """A note if fewer than 30 clips were evaluated, or if fewer than 5, but not 0, have some class; else none.

    `static` are clip-based counts.
    """
    n_clips = len(static.filenames)
    totals = zip(static.classes, static.n_ref.sum(0).tolist(), strict=True)
    rare = [label for label, n in totals if 0 < n < FEW_OF_CLASS]
    reasons = []
    if n_clips < FEW_CLIPS:
        reasons.append(f"only {counted(n_clips, 'clip')} {plural(n_clips, 'was', 'were')} evaluated")
    if rare:
        reasons.append(f"{_named(rare)} {plural(len(rare), 'is', 'are')} in fewer than {FEW_OF_CLASS} clips")
    return (f"the numbers are rough: {', and '.join(reasons)}; evaluate more clips",) if reasons else ()


def seen_notes(split: str) -> tuple[str, ...]:
    """A note if a model is evaluated on a split of its training data that training used; else none.

    >>> print(*seen_notes("train"))
    these clips were trained on, so the scores are too optimistic; evaluate on clips that training did not use
    >>> seen_notes("test")
    ()
    """
    if split not in _SEEN:
        return ()
    return (f"{_SEEN[split]}, so the scores are too optimistic; evaluate on clips that training did not use",)


def untimed_notes(reference: LabelTable, estimate: LabelTable) -> tuple[str, ...]:
    """A note if times are missing that segment-based and event-based scores need; else none.

    >>> weak, strong = LabelTable([("a.wav", None, None, "dog")]), LabelTable([("a.wav", 0, 1, "dog")])
    >>> print(*untimed_notes(weak, strong))
    no scores of segments and events: the reference has no times; \
evaluate against labels with onsets and offsets (--reference FILE)
    >>> untimed_notes(strong, strong)
    ()
    """
    present = {row.label for row in reference if row.present}
    timed = {row.label for row in reference if row.is_event}
    if present and not timed:
        return (f"no scores of segments and events: the reference has no times; {_REMEDY}",)
    if len(estimate) and not any(row.has_times for row in estimate):
        return ("no scores of segments and events: the estimate has no times; evaluate events with onsets and offsets",)
    untimed = [label for label in reference.classes if label in present - timed]
    if not untimed:
        return ()
    what = f"the reference has no times of {_named(untimed)}, so scores of segments and events leave out such clips"
    return (f"{what}; {_REMEDY}",)


def identical_notes(reference: LabelTable, estimate: LabelTable) -> tuple[str, ...]:
    """A note if the events are those of the reference, whatever their confidence; else none.

    >>> truth = LabelTable([("a.wav", 0, 1, "dog")])
    >>> print(*identical_notes(truth, truth))
    the events are identical to the reference, so all scores are perfect; are they labels rather than detected events?
    >>> identical_notes(truth, LabelTable([("a.wav", 0, 1.1, "dog")]))
    ()
    """
    events, true = ({row[:4] for row in table if row.present} for table in (estimate, reference))
    if not events or events != true:
        return ()
    what = "the events are identical to the reference, so all scores are perfect"
    return (f"{what}; are they labels rather than detected events?",)


def _named(classes: Sequence[str]) -> str:
    more = len(classes) - _SHOWN
    return ", ".join(classes[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
