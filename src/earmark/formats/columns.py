"""Columns of label tables: names, meaning of their cells, and the layout of a table in them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from earmark.annotations import Label, LabelTable
from earmark.errors import DataError
from earmark.formats.base import Rows
from earmark.formats.text import number

_NAMES = {
    "filename": "filename file file_name filepath file_path path audio_filename audio_file audio clip recording fname",
    "onset": "onset start begin start_time begin_time onset_time event_onset time",
    "offset": "offset end stop end_time stop_time offset_time event_offset",
    "duration": "duration dur length",
    "label": "label event_label class class_name species common_name tag event category annotation",
    "labels": "labels event_labels tags classes",
    "present": "present presence",
    "confidence": "confidence score probability",
    "split": "split subset",
}
CLOCK_COLUMNS = ("date", "time_of_day")
"""Of onsets, in tables of recordings whose start is known; they are not read."""
_MEANING = {name: (column, rank) for column, names in _NAMES.items() for rank, name in enumerate(names.split())}
_TIME = re.compile(r"onset|offset|start|begin|stop|(^|_)end(_|$)|(^|_)time")
_PRESENCE: Mapping[str, bool | None] = {
    **dict.fromkeys(("1", "1.0", "yes", "y", "true", "present", "x"), True),
    **dict.fromkeys(("0", "0.0", "no", "n", "false", "absent"), False),
    **dict.fromkeys(("?", "unknown"), None),
}


def canonical(heading: str) -> str:
    """Normalise a heading.

    >>> canonical(" Begin Time (s)"), canonical("File-Name")
    ('begin_time', 'file_name')
    """
    return re.sub(r"[\s_-]+", "_", re.sub(r"\((s|sec|seconds)\)\s*$", "", heading.strip().lower()).strip())


def find_columns(header: Sequence[str]) -> dict[str, int]:
    """Index of each known column; of two candidates for one column, the one with the more usual name.

    >>> find_columns(["", "event_label", "Start", "End", "file", "notes"])
    {'label': 1, 'onset': 2, 'offset': 3, 'filename': 4}
    """
    best: dict[str, tuple[int, int]] = {}
    for index, heading in enumerate(header):
        column, rank = _MEANING.get(canonical(heading), ("", 0))
        if column and (column not in best or rank < best[column][0]):
            best[column] = rank, index
    return {column: index for column, (_, index) in sorted(best.items(), key=lambda item: item[1][1])}


def refuse_unknown_times(header: Sequence[str], columns: Mapping[str, int]) -> None:
    """Reject time columns with unknown names: ignoring them would turn strong labels into weak ones."""
    for heading in header:
        if "onset" not in columns and _TIME.search(canonical(heading)):
            raise DataError(f"column {heading.strip()!r} looks like a time; name the times 'onset' and 'offset'")


def is_mark(text: str) -> bool:
    """Whether a cell means present, absent or unknown."""
    return text.strip().lower() in _PRESENCE


def presence(text: str) -> bool | None:
    """True for present, False for absent, None for unknown."""
    try:
        return _PRESENCE[text.strip().lower()]
    except KeyError:
        raise DataError(f"expected 1 (present), 0 (absent) or ? (unknown), got {text!r}") from None


def add_cells(rows: Rows, cells: Mapping[str, str], separators: str = "") -> None:
    """Add one line of a table, by column; `separators` are tried in turn on a cell with several labels."""
    labels = [cells.get("label", "")]
    if "label" not in cells and "labels" in cells:
        separator = next((char for char in separators if char in cells["labels"]), None)
        labels = [part.strip() for part in cells["labels"].split(separator)] if separator else [cells["labels"]]
    has_label = labels != [""]
    present: bool | None = True
    if cells.get("present") or ("present" in cells and has_label):
        present = presence(cells["present"])
    numbers = {name: number(cells.get(name, ""), name) for name in ("onset", "offset", "duration", "confidence")}
    for label in labels:
        if not label and has_label:
            raise DataError(f"empty label in {cells['labels']!r}")
        rows.add(cells.get("filename", ""), label=label, present=present, split=cells.get("split", ""), **numbers)


def records(table: LabelTable) -> Iterator[dict[str, Any]]:
    """Lines of a table by column, without empty columns; `present` only where it is not true.

    Files are listed in a line of their own where the order of files or `complete=False` requires it.

    >>> list(records(LabelTable([("a.wav", 0, 1, "dog")], filenames=["b.wav"])))
    [{'filename': 'b.wav'}, {'filename': 'a.wav', 'onset': 0.0, 'offset': 1.0, 'label': 'dog'}]
    """
    for name, row in _listed(table):
        record: dict[str, Any] = {"filename": name}
        if row is None and not table.complete:
            record["present"] = None
        if row is not None:
            if row.span is not None:
                record["onset"], record["offset"] = map(float, row.span)
            record["label"] = row.label
            if row.present is not True:
                record["present"] = row.present
            if row.confidence is not None:
                record["confidence"] = float(row.confidence)
        if name in table.splits:
            record["split"] = table.splits[name]
        if row is not None and table.clock(row) != ("", ""):
            record |= dict(zip(CLOCK_COLUMNS, table.clock(row), strict=True))
        yield record


def _listed(table: LabelTable) -> Iterator[tuple[str, Label | None]]:
    """Rows with their files, and None for files that need a line without a label: before the next file has rows."""
    if not table.filenames:
        raise DataError("cannot write a table without files")
    unlisted = iter(table.filenames)
    listed: set[str] = set()
    for row in table:
        while row.filename not in listed:
            name = next(unlisted)
            listed.add(name)
            if name != row.filename or not table.complete:
                yield name, None
        yield row.filename, row
    for name in unlisted:
        yield name, None


def lay_out(table: LabelTable) -> list[list[str]]:
    """A table as lines of cells, heading first; columns for presence, confidence, split and clock where needed."""
    lines = list(records(table))
    columns = ("present", "confidence", "split", *CLOCK_COLUMNS)
    optional = [column for column in columns if any(column in line for line in lines)]
    header = ["filename", "onset", "offset", "label", *optional]
    return [header, *([_cell(line, column) for column in header] for line in lines)]


def _cell(record: Mapping[str, Any], column: str) -> str:
    if column == "present":
        if "label" not in record and "present" not in record:
            return ""
        return {True: "1", False: "0", None: "?"}[record.get("present", True)]
    value = record.get(column, "")
    return value if isinstance(value, str) else repr(value)
