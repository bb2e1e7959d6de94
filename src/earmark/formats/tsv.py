"""Tab-separated tables, as the DCASE challenges and URBAN-SED use them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format, at_line
from earmark.formats.columns import add_cells, find_columns, lay_out
from earmark.formats.rows import LOST_FLAT, Rows
from earmark.formats.text import (
    first_line,
    numbered_lines,
    read_text,
    sayable,
    sayable_name,
    stem_of,
    without_sound_suffix,
    write_text,
)

__all__ = ["TSV"]

_LAYOUTS = {  # of tables without a heading, by the number of columns
    1: ("filename",),
    2: ("filename", "labels"),
    3: ("onset", "offset", "label"),
    4: ("filename", "onset", "offset", "label"),
    5: ("filename", "scene", "onset", "offset", "label"),
}
_NUMBER = re.compile(r"\d+(\.\d*)?(e-?\d+)?", re.I)
_EXTRA = ("scene", "scene_label", "identifier", "source_label", "index")  # other people's columns; no part of a label


@FORMATS.register("tsv", "tab-separated table, with or without a heading: DCASE, DESED, URBAN-SED's text files")
class TSV(Format):
    """Columns filename, onset, offset, label (or event_label) in any order, and perhaps present, confidence and split.

    `event_labels` holds several labels with commas between. Empty times mean "somewhere"; a file name alone means
    "listened to". Without a heading the number of columns decides: 2 (filename, labels), 3 (onset, offset, label of the
    recording that the file is called after), 4 (filename first), 5 (a scene, left out, in second place). There are no
    quotes, so that no name can hold a tab.
    """

    suffix = ".tsv"
    loses = LOST_FLAT

    def read(self, path: Path) -> LabelTable:
        """Labels in a file."""
        lines = [
            (number, [cell.strip() for cell in line.split("\t")]) for number, line in numbered_lines(read_text(path))
        ]
        rows = Rows(path)
        if not lines:
            return rows.table()
        columns = find_columns(lines[0][1])
        if _is_heading(lines[0][1], columns):
            _check_heading(lines[0][1], columns, path)
            width = len(lines.pop(0)[1])
        else:
            layout = _layout(path, *next((line for line in lines if len(line[1]) > 1), lines[0]))
            columns, width = {column: index for index, column in enumerate(layout)}, len(layout)
        for number, cells in lines:
            with at_line(path, number):
                named = _named(cells, columns, width)
                named.setdefault("filename", stem_of(path))
                add_cells(rows, named, separators=",")
        return rows.table()

    def write(self, table: LabelTable, path: Path) -> None:
        """Write a table, always with a heading."""
        for name in (*table.filenames, *table.splits.values()):
            sayable_name(name, self.name)
        for label in {row.label for row in table}:
            sayable(label, self.name)
        write_text(path, "".join("\t".join(cells) + "\n" for cells in lay_out(table)))

    def recognises(self, path: Path, head: str) -> bool:
        """The suffix, a heading that it knows, or a first line with sound, or times, in the right column."""
        cells = [cell.strip() for cell in first_line(head).split("\t")]
        columns = find_columns(cells)
        if path.name.removesuffix(".gz").endswith(self.suffix) or _is_heading(cells, columns):
            return len(cells) > 1 or path.name.removesuffix(".gz").endswith(self.suffix)
        named = dict(zip(_LAYOUTS.get(len(cells), ()), cells, strict=False))
        is_timed = "onset" in named and all(_NUMBER.fullmatch(named[column]) for column in ("onset", "offset"))
        return is_timed or (len(cells) > 1 and without_sound_suffix(cells[0]) != cells[0])


def _is_heading(cells: Sequence[str], columns: dict[str, int]) -> bool:
    return bool(columns.keys() & {"filename", "onset"}) and not any(cell.strip()[:1].isdigit() for cell in cells)


def _check_heading(cells: Sequence[str], columns: dict[str, int], path: Path) -> None:
    for index, cell in enumerate(cells):
        if index not in columns.values() and cell.lower() not in _EXTRA:
            raise DataError(
                f"{path}:1: column {cell!r} is not known. Known: filename, onset, offset, event_label, event_labels, "
                "present, confidence, split; other columns can be kept in csv"
            )
    if set(columns) == {"filename", "duration"}:
        raise DataError(f"{path}:1: holds durations, not labels: {', '.join(cells)}")
    if not columns.keys() & {"label", "labels"} and set(columns) - {"filename", "split"}:
        raise DataError(f"{path}:1: no column with labels (event_label) among {', '.join(cells)}")


def _layout(path: Path, line: int, cells: Sequence[str]) -> tuple[str, ...]:
    layout = _LAYOUTS.get(len(cells))
    if layout is None:
        raise DataError(
            f"{path}:{line}: without a heading 2 columns (filename, labels), 3 (onset, offset, label), 4 (filename "
            f"first) or 5 (filename, scene, ...) are expected, {len(cells)} found: {' | '.join(cells)}"
        )
    return layout


def _named(cells: Sequence[str], columns: dict[str, int], width: int) -> dict[str, str]:
    cells = list(cells)
    while len(cells) > width and not cells[-1]:
        cells.pop()
    if len(cells) == 1 and columns.get("filename") == 0:
        return {"filename": cells[0]}
    if len(cells) != width:
        raise DataError(f"{width} columns expected, {len(cells)} found: {' | '.join(cells)}")
    return {column: cells[index] for column, index in columns.items()}
