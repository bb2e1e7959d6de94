"""Columns of label tables: what they are called, what their cells mean, and how a table is laid out in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.formats.rows import Rows, flat
from earmark.formats.text import number

__all__ = ["PRESENCE", "add_cells", "canonical", "find_columns", "lay_out", "presence", "refuse_strange_times"]

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
_MEANING = {name: (column, rank) for column, names in _NAMES.items() for rank, name in enumerate(names.split())}
_TIME = re.compile(r"onset|offset|start|begin|stop|(^|_)end(_|$)|(^|_)time")

PRESENCE: Mapping[str, bool | None] = {
    **dict.fromkeys(("1", "1.0", "yes", "y", "true", "present", "x"), True),
    **dict.fromkeys(("0", "0.0", "no", "n", "false", "absent"), False),
    **dict.fromkeys(("?", "unknown"), None),
}
"""Words for present, absent and unknown."""


def canonical(header: str) -> str:
    """A heading in plain form.

    >>> canonical(" Begin Time (s)"), canonical("File-Name")
    ('begin_time', 'file_name')
    """
    return re.sub(r"[\s_-]+", "_", re.sub(r"\((s|sec|seconds)\)\s*$", "", header.strip().lower()).strip())


def find_columns(header: Sequence[str]) -> dict[str, int]:
    """Which column is which; of two that could be the same one, the one that is more usually called so.

    >>> find_columns(["", "event_label", "Start", "End", "file", "notes"])
    {'label': 1, 'onset': 2, 'offset': 3, 'filename': 4}
    """
    found: dict[str, tuple[int, int]] = {}
    for index, heading in enumerate(header):
        column, rank = _MEANING.get(canonical(heading), ("", 0))
        if column and (column not in found or rank < found[column][0]):
            found[column] = rank, index
    return {column: index for column, (_, index) in sorted(found.items(), key=lambda item: item[1][1])}


def refuse_strange_times(header: Sequence[str], columns: Mapping[str, int]) -> None:
    """Refuse labels beside times under a name that is not known: read without, they would say something else."""
    for heading in header:
        if "onset" not in columns and _TIME.search(canonical(heading)):
            raise DataError(f"column {heading.strip()!r} looks like a time; call times 'onset' and 'offset'")


def presence(text: str) -> bool | None:
    """Present, absent or unknown, in one of several words for it."""
    try:
        return PRESENCE[text.strip().lower()]
    except KeyError:
        raise DataError(f"1 (present), 0 (absent) or ? (unknown) expected, found {text!r}") from None


def add_cells(rows: Rows, cells: Mapping[str, str], separators: str = "") -> None:
    """Enter one line of a table; `separators` are tried in turn on a cell with several labels."""
    onset, offset = number(cells.get("onset", ""), "onset"), number(cells.get("offset", ""), "offset")
    length = number(cells.get("duration", ""), "duration")
    if onset is not None and offset is None and length is not None:
        offset = onset + length
    labels = [cells.get("label", "")]
    if "label" not in cells and "labels" in cells:
        separator = next((char for char in separators if char in cells["labels"]), None)
        labels = [part.strip() for part in cells["labels"].split(separator)] if separator else [cells["labels"]]
    is_bare = labels == [""]
    present: bool | None = True
    if cells.get("present") or ("present" in cells and not is_bare):
        present = presence(cells["present"])
    confidence = number(cells.get("confidence", ""), "confidence")
    for label in labels:
        if not label and not is_bare:
            raise DataError(f"an empty label among {cells['labels']!r}")
        rows.add(cells.get("filename", ""), onset, offset, label, present, confidence, cells.get("split", ""))


def lay_out(table: LabelTable) -> list[list[str]]:
    """A table as lines of cells, the heading first; columns for presence, confidence and split only where needed."""
    with_presence = not table.complete or any(row.present is not True for row in table)
    with_confidence = any(row.confidence is not None for row in table)
    heads = ["filename", "onset", "offset", "label"]
    heads += ["present"] * with_presence + ["confidence"] * with_confidence + ["split"] * bool(table.splits)
    word = {True: "1", False: "0", None: "?"}
    lines = [heads]
    for name, row in flat(table):
        cells = [name, "", "", ""] if row is None else [name, _said(row.onset), _said(row.offset), row.label]
        if with_presence:
            cells.append(word[row.present] if row else "" if table.complete else "?")
        if with_confidence:
            cells.append(_said(row.confidence) if row else "")
        if table.splits:
            cells.append(table.splits.get(name, ""))
        lines.append(cells)
    return lines


def _said(value: float | None) -> str:
    return "" if value is None else repr(float(value))
