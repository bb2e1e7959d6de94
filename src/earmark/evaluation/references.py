"""The reference that clips are judged by, from whatever file: names matched, what is left out counted and named.

    table, notes = fit_reference(read_labels("truth.jams"), clips, classes)     labels of the clips; what was left out
    table, (events, notes) = fit_estimate(read_labels("events.csv"), table)     events found elsewhere, likewise
    seconds = read_durations("durations.tsv")

File names are matched as data sets match labels with recordings: exactly, else by the end of the path, else without
suffix; a name that could mean two clips is an error. Each note is one line for people; nothing is left out without one.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from earmark.annotations import LabelTable
from earmark.datasets.matching import first_few, match_names
from earmark.errors import DataError
from earmark.formats.text import first_line, number, read_text

__all__ = ["Fitted", "fingerprint", "fit_durations", "fit_estimate", "fit_reference", "match_clips", "read_durations"]


class Fitted(NamedTuple):
    """Labels with clips and classes called as they are judged, and what had to be said about it."""

    table: LabelTable
    notes: tuple[str, ...]


def fit_reference(reference: LabelTable, clips: Sequence[str], classes: Sequence[str] | None = None) -> Fitted:
    """The reference of some clips and classes. Clips without reference are not in it, so not judged.

    Parameters
    ----------
    clips
        What the clips are called.
    classes
        Classes that can be found, in their order; by default those of the reference. Others are left out.

    Examples
    --------
    >>> truth = LabelTable([("a", 0, 1, "dog"), ("b.wav", 0, 1, "owl"), ("c.wav", 0, 1, "dog")])
    >>> table, notes = fit_reference(truth, ["x/a.wav", "x/b.wav", "x/d.wav"], ["dog"])
    >>> table.filenames, len(table)
    (('x/a.wav', 'x/b.wav'), 1)
    >>> print(*notes, sep="\\n")
    2 files of the reference were found by part of their name: a for x/a.wav, b.wav for x/b.wav
    1 file of the reference is not among the clips and is left out: c.wav
    1 clip has no reference and is not judged: x/d.wav
    1 label of the reference is not known to the model and is not judged: owl
    """
    if classes is not None and reference.classes and not set(reference.classes).intersection(classes):
        raise DataError(
            f"the model knows {first_few(classes)}; the labels know {first_few(reference.classes)}: no class in common"
        )
    named, notes = _named(reference, clips, "reference")
    there = [clip for clip in clips if clip in set(named.filenames)]
    if not there:
        raise DataError(
            f"no file of the reference is among the clips: it names {first_few(reference.filenames)}, "
            f"the clips are called {first_few(clips)}"
        )
    if len(there) < len(clips):
        left = [clip for clip in clips if clip not in set(there)]
        notes.append(f"{_clips_are(len(left))} no reference and {_is(left)} not judged: {first_few(left)}")
    table, more = _of_classes(named.select(there), classes)
    unheard = [label for label in table.classes if label not in {row.label for row in table}]
    if unheard and len(unheard) < len(table.classes):
        what = f"{_many(len(unheard), 'class')} {_is(unheard)}"
        notes.append(f"{what} nowhere in the reference, so that finding {_it(unheard)} is wrong: {first_few(unheard)}")
    return Fitted(table, (*notes, *more))


def fit_estimate(estimate: LabelTable, reference: LabelTable) -> tuple[LabelTable, Fitted]:
    """Events found elsewhere over the clips of the reference, and the reference with all classes that they name.

    A clip that is missing had no events. A class that the reference never names is one that was wrongly found.

    >>> reference = LabelTable([("a.wav", 0, 1, "dog"), ("b.wav", 0, 1, "dog")])
    >>> reference, (table, notes) = fit_estimate(LabelTable([("a.wav", 0, 1, "owl")]), reference)
    >>> table.filenames, reference.classes
    (('a.wav', 'b.wav'), ('dog', 'owl'))
    >>> print(*notes, sep="\\n")
    1 clip is not in the estimate, so nothing was found in it: b.wav
    1 label of the estimate is nowhere in the reference, so that finding it is wrong: owl
    """
    clips = reference.filenames
    named, notes = _named(estimate, clips, "estimate")
    there = set(named.filenames)
    if not there:
        raise DataError(
            f"no file of the estimate is in the reference: it names {first_few(estimate.filenames)}, "
            f"the reference {first_few(clips)}"
        )
    if left := [clip for clip in clips if clip not in there]:
        what = f"{_many(len(left), 'clip')} {_is(left)}"
        notes.append(f"{what} not in the estimate, so nothing was found in {_it(left)}: {first_few(left)}")
    if strange := sorted({row.label for row in named}.difference(reference.classes)):
        what = f"{_many(len(strange), 'label')} of the estimate {_is(strange)}"
        notes.append(f"{what} nowhere in the reference, so that finding {_it(strange)} is wrong: {first_few(strange)}")
    classes = (*reference.classes, *strange)
    rows = [row for clip in clips if clip in there for row in named.of(clip)]
    return reference.with_classes(classes), Fitted(LabelTable(rows, filenames=clips, classes=classes), tuple(notes))


def match_clips(names: Iterable[str], clips: Iterable[str]) -> dict[str, str]:
    """Which clip a name means; names that mean none are left out.

    >>> match_clips(["b", "c"], ["x/a.wav", "x/b.wav"])
    {'b': 'x/b.wav'}
    """
    root = Path("DATA")  # stands for wherever they are, in messages
    paths = {root / clip: clip for clip in clips}
    return {name: paths[path] for name, path in match_names(names, paths, root).items()}


def read_durations(path: Path) -> dict[str, float]:
    """Seconds by file name, from a table with columns `filename` and `duration` (DCASE; tab or comma)."""
    text = read_text(path)
    header = first_line(text)
    reader = csv.reader(text.splitlines(), delimiter="\t" if "\t" in header else ",")
    columns: list[str] | None = None
    found: dict[str, float] = {}
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if columns is None:
            columns = [cell.strip().lower() for cell in cells]
            if not {"filename", "duration"} <= set(columns):
                raise DataError(f"{path}: columns filename and duration expected, found {', '.join(columns)}")
            continue
        where = f"{path}:{reader.line_num}"
        if len(cells) != len(columns):
            raise DataError(f"{where}: {len(columns)} columns expected, {len(cells)} found")
        row = dict(zip(columns, cells, strict=True))
        name = row["filename"].strip().replace("\\", "/")
        try:
            seconds = number(row["duration"], "duration")
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if not name or seconds is None or not (0 <= seconds < math.inf):
            raise DataError(f"{where}: a file name and a duration in seconds expected, found {', '.join(cells)}")
        if found.setdefault(name, seconds) != seconds:
            raise DataError(f"{where}: {name} lasts {found[name]:g} s further up, and {seconds:g} s here")
    if not found:
        raise DataError(f"{path}: holds no durations")
    return found


def fit_durations(durations: Mapping[str, float], reference: LabelTable) -> tuple[dict[str, float], Fitted]:
    """Durations by the reference's names, and the reference with the clips that only durations name.

    These were listened to and nothing was heard, which DCASE says by leaving them out of the reference.
    """
    clips = match_clips(durations, reference.filenames)
    silent = [name for name in durations if name not in clips]
    seconds = {clips.get(name, name): value for name, value in durations.items()}
    if not silent:
        return seconds, Fitted(reference, ())
    table = LabelTable(
        reference,
        filenames=(*reference.filenames, *silent),
        classes=reference.classes,
        complete=reference.complete,
        splits=reference.splits,
    )
    what = _many(len(silent), "clip")
    note = f"{what} {_is(silent)} in the durations only, so nothing is to be heard there: {first_few(silent)}"
    return seconds, Fitted(table, (note,))


def fingerprint(reference: LabelTable) -> str:
    """A short print: references with the same one say the same about the same clips, in whatever order.

    >>> a, b = ("a.wav", 0, 1, "dog"), ("b.wav", 0, 1, "dog")
    >>> fingerprint(LabelTable([a, b])) == fingerprint(LabelTable([b, a])) != fingerprint(LabelTable([a]))
    True
    """
    rows = sorted(repr((*row[:1], *(t if t is None else float(t) for t in row[1:3]), *row[3:5])) for row in reference)
    said = (sorted(reference.filenames), sorted(reference.classes), reference.complete, rows)
    return hashlib.sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _named(table: LabelTable, clips: Sequence[str], what: str) -> tuple[LabelTable, list[str]]:
    """Labels of those files that are clips, called as the clips are."""
    found = match_clips(table.filenames, clips)
    notes = []
    loose = [f"{name} for {clip}" for name, clip in found.items() if name != clip]
    if loose:
        verb = "was" if len(loose) == 1 else "were"
        part = "its" if len(loose) == 1 else "their"
        notes.append(
            f"{_many(len(loose), 'file')} of the {what} {verb} found by part of {part} name: {first_few(loose)}"
        )
    left = [name for name in table.filenames if name not in found]
    if left:
        files = _many(len(left), "file")
        notes.append(
            f"{files} of the {what} {_is(left)} not among the clips and {_is(left)} left out: {first_few(left)}"
        )
    return table.select(found).renamed(found), notes


def _of_classes(table: LabelTable, classes: Sequence[str] | None) -> Fitted:
    """Labels of the classes that are judged."""
    if classes is None:
        return Fitted(table, ())
    known = set(classes)
    rows = [row for row in table if row.label in known]
    left = sorted({row.label for row in table} - known)
    kept = LabelTable(rows, filenames=table.filenames, classes=classes, complete=table.complete, splits=table.splits)
    what = f"{_many(len(left), 'label')} of the reference {_is(left)}"
    note = f"{what} not known to the model and {_is(left)} not judged: {first_few(left)}"
    return Fitted(kept, (note,) if left else ())


def _many(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}{'es' if what.endswith('s') else 's'}"


def _clips_are(n: int) -> str:
    return f"{n} clip has" if n == 1 else f"{n} clips have"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
