"""Read and write label files, and folders of them, in any format."""

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.files import make_folder, path_text
from earmark.formats.base import FORMATS, Format, Rows
from earmark.formats.text import WORKBOOK, has_suffix, read_text, stem_of, without_sound_suffix
from earmark.platforms import replace

_HEAD = 8192
_GENERAL = ("csv", "tsv")  # tried last: they would also accept more specific formats
_SUFFIXES = (".txt", ".tsv", ".csv", WORKBOOK, ".jams", ".json", ".jsonl")
_EVENTS = "events.csv"
_JOB = (_EVENTS, "job.json", "ledger.sqlite")  # files of a detection job


def read_labels(
    path: str | os.PathLike[str], format: str | Format | None = None, *, may_be_empty: bool = False
) -> LabelTable:
    """Read the labels in a file, compressed or not, or in a folder of label files.

    In a folder, label files without file names inside are named by their path below it, without the suffix, and all
    files have one format. Files with other suffixes than .txt, .tsv, .csv, .xlsx, .jams, .json and .jsonl are skipped.
    The format is its name, or a format with options; by default it is guessed from the content. A table that has only a
    header row is an error, unless it may be empty because it lists detected events.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "night.txt").write_text("0.5\\t2.0\\tdog\\n", encoding="utf-8")
    ...     list(read_labels(folder))
    [Label(filename='night', onset=0.5, offset=2.0, label='dog', present=True, confidence=None)]
    """
    place = Path(path_text(path))
    if not place.is_dir():
        return _format(format or guess_format(place)).read(place, may_be_empty=may_be_empty)
    if format is None and all((place / name).is_file() for name in _JOB):
        raise DataError(f"{place}: is the folder of a detection job; its labels are in {place / _EVENTS}: pass that")
    files = _label_files(place, format)
    if not files:
        raise DataError(f"{place}: no label files in this folder (expected suffixes {', '.join(_SUFFIXES)})")
    return _joined(place, files, _format(format or _guess_folder(place, files)), may_be_empty)


def write_labels(table: LabelTable, path: str | os.PathLike[str], format: str | Format) -> list[Path]:
    """Write a table atomically: one file or, for a format per recording, a folder with one file for each.

    Returns the files written. Folders in file names are kept; two recordings that would share a label file (`a.wav` and
    `a.flac`) are an error.
    """
    place, chosen = Path(path), _format(format)
    if not chosen.per_recording:
        chosen.write(table, place)
        return [place]
    targets: dict[str, str] = {}
    for name in table.filenames:
        parts = name.split("/")
        if not parts[-1] or ".." in parts or name.startswith("/") or "\0" in name:
            raise DataError(f"{name!r} is not a path below a folder, so its label file cannot be placed")
        target = without_sound_suffix(name) + chosen.suffix
        if target in targets:
            raise DataError(f"{targets[target]!r} and {name!r} would share the label file {target!r}; rename one")
        targets[target] = name
    if not targets:
        raise DataError("cannot write a table without files")
    if place.exists() and not place.is_dir():
        raise ArgumentError(f"{place} is a file; {chosen.name} needs a folder, with a file for each recording")
    with tempfile.TemporaryDirectory(dir=make_folder(place.parent), prefix=".labels-") as draft:
        for target, name in targets.items():
            chosen.write(table.select([name]), Path(draft) / target)
        for target in targets:
            make_folder((place / target).parent)
            replace(Path(draft) / target, place / target)
    return [place / target for target in targets]


def guess_format(path: Path) -> str:
    """Name of the format of a label file, from its content and its name."""
    head = read_text(path)[:_HEAD]
    if not head.strip():
        raise DataError(f"{path}: is empty: contains no labels")
    for entry in sorted(FORMATS, key=lambda entry: entry.name in _GENERAL):
        if entry.cls().recognises(path, head):
            return entry.name
    names = ", ".join(entry.name for entry in FORMATS)
    raise DataError(
        f"{path}: not a known label format; a table needs a first line such as filename,onset,offset,label; in Python, "
        f"read_labels(path, format) reads it as one of: {names}"
    )


def _format(format: str | Format) -> Format:
    return format if isinstance(format, Format) else FORMATS.create(format)


def _guess_folder(folder: Path, files: Sequence[Path]) -> str:
    """The one format of the files in a folder; empty files are recordings without events."""
    guesses = Counter(guess_format(path) for path in files if path.stat().st_size)
    if len(guesses) != 1:
        counts = ", ".join(f"{name} ({count} files)" for name, count in guesses.items()) or "only empty files"
        raise DataError(
            f"{folder}: expected label files of one format, got {counts}; keep one of them in this folder, or pass its "
            "name in Python: read_labels(path, format)"
        )
    return next(iter(guesses))


def _label_files(folder: Path, format: str | Format | None) -> list[Path]:
    """Label files below a folder; for a given format those with its suffix or else those that end in .txt."""
    files = []
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not is_hidden and path.name.lower().removesuffix(".gz").endswith(_SUFFIXES) and path.is_file():
            files.append(path)
    if format is None:
        return files
    suffix = _format(format).suffix
    return [p for p in files if has_suffix(p, suffix)] or [p for p in files if has_suffix(p, ".txt")]


def _joined(folder: Path, files: Sequence[Path], format: Format, may_be_empty: bool) -> LabelTable:
    rows = Rows(folder, may_be_empty=may_be_empty)
    for path in files:
        table = format.read(path, may_be_empty=may_be_empty)
        names = {name: name for name in table.filenames}
        if format.per_recording or table.filenames == (stem_of(path),):
            names = {name: (path.parent / name).relative_to(folder).as_posix() for name in table.filenames}
        rows.complete = rows.complete and table.complete
        for name in table.filenames:
            rows.add_file(names[name], table.splits.get(name, ""))
        for row in table:
            rows.add(names[row.filename], *row[1:])
        if table.classes != tuple(sorted({row.label for row in table})):  # the format states the classes
            rows.classes = tuple(dict.fromkeys((*(rows.classes or ()), *table.classes)))
    with rows.located_errors():
        return rows.table()
