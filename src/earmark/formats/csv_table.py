"""Tables of spreadsheets and pandas, with commas between: long, with an event per line, or wide, a column per class."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format, at_line
from earmark.formats.columns import add_cells, find_columns, lay_out, presence, refuse_strange_times
from earmark.formats.rows import LOST_FLAT, Rows
from earmark.formats.text import first_line, read_text, sayable, sayable_name, write_text

__all__ = ["CSV"]

_BLANK = ("", "nan", "na", "n/a", "-")  # what programs put into a cell that nobody filled
_INDEX = ("", "index", "unnamed: 0")  # pandas numbers its lines
_SEPARATOR = re.compile(r'"?sep=([,;|\t])"?\s*', re.I)  # Excel's own first line, which is no heading


@FORMATS.register("csv", "table with a heading and commas, semicolons or tabs: long, or wide with a column per class")
class CSV(Format):
    """Any table with a heading.

    Long: columns for filename, onset, offset and label under their usual names, in any order; a column `labels` holds
    several, with `;`, `|` or `,` between; other columns are left out. Wide: a column with the filename and one per
    class, with 1, 0 or nothing (unknown; one such cell, and silence means nothing in the whole table). A line `sep=;`
    above the heading says what stands between cells.
    """

    suffix = ".csv"
    loses = LOST_FLAT

    def read(self, path: Path) -> LabelTable:
        """Labels in a file."""
        lines = list(_records(path))
        rows = Rows(path)
        if not lines:
            return rows.table()
        first, header = lines.pop(0)
        columns = find_columns(header)
        is_long = bool(columns.keys() & {"label", "labels"})
        with at_line(path, first):
            if "filename" not in columns:
                raise DataError(
                    f"no column with file names (filename, file, clip) in the first line: {', '.join(header)}; "
                    "rename the column, or add a first line: filename,label"
                )
            if is_long:
                refuse_strange_times(header, columns)
            classes = {} if is_long else _classes(header, columns)
        for number, cells in lines:
            with at_line(path, number):
                if len(cells) != len(header):
                    mend = (
                        "put quotes around names with commas or semicolons"
                        if len(cells) > len(header)
                        else "empty cells need their commas, too"
                    )
                    raise DataError(f"{len(header)} columns expected, {len(cells)} found: {' | '.join(cells)}; {mend}")
                if is_long:
                    add_cells(rows, {column: cells[index] for column, index in columns.items()}, separators=";|,")
                else:
                    _add_wide(rows, cells, columns, classes)
        if not is_long:
            _settle_wide(rows, tuple(classes))
        return rows.table()

    def write(self, table: LabelTable, path: Path) -> None:
        """Write a table, long."""
        for name in (*table.filenames, *table.splits.values()):
            sayable_name(name, self.name, forbidden="\r")
        for label in {row.label for row in table}:
            sayable(label, self.name, forbidden="\r")
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(lay_out(table))
        write_text(path, text.getvalue())

    def recognises(self, path: Path, head: str) -> bool:
        """The suffix, or a heading with a column of file names and another; tabs without a heading are tsv's."""
        first = first_line(head)
        is_csv = path.name.removesuffix(".gz").endswith(self.suffix)
        if _SEPARATOR.fullmatch(first):
            return True
        cells = next(csv.reader([first], delimiter=_delimiter(first)), [])
        if "filename" not in find_columns(cells):
            return is_csv and "\t" not in first
        return is_csv or (len(cells) > 1 and "\t" not in first)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    text = read_text(path)
    first = first_line(text)
    named = _SEPARATOR.fullmatch(first)
    delimiter = named[1] if named else _delimiter(first)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        records = ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader)
        filled = (record for record in records if any(record[1]))
        if named:
            next(filled)
        yield from filled
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not a table: {error}") from error


def _delimiter(heading: str) -> str:
    return max(",;\t", key=heading.count)


def _classes(header: Sequence[str], columns: dict[str, int]) -> dict[str, int]:
    taken = {columns[column] for column in ("filename", "split") if column in columns}
    classes = [(h, i) for i, h in enumerate(header) if i not in taken and h.lower() not in _INDEX]
    if len(dict(classes)) != len(classes):
        raise DataError(f"two columns have the same name: {', '.join(header)}")
    if "onset" in columns:
        raise DataError(f"no column with labels (label, class, species, tag) among {', '.join(header)}")
    return dict(classes)


def _add_wide(rows: Rows, cells: Sequence[str], columns: dict[str, int], classes: dict[str, int]) -> None:
    name, split = cells[columns["filename"]], cells[columns["split"]] if "split" in columns else ""
    rows.mention(name, split)
    for label, index in classes.items():
        is_blank = cells[index].lower() in _BLANK
        try:
            present = None if is_blank else presence(cells[index])
        except DataError as error:
            raise DataError(
                f"column {label!r}: {error}; delete the column if it is not a class; write 1 for yes, 0 for no"
            ) from error
        if present is None:
            rows.complete = False
        else:
            rows.add(name, None, None, label, present)


def _settle_wide(rows: Rows, classes: tuple[str, ...]) -> None:
    """Silence says "absent" where no cell is blank, so that rows need not."""
    rows.classes = classes
    if rows.complete:
        rows.table()  # refuses lines of one file that contradict each other, which would be lost
        rows.labels = [row for row in rows.labels if row.present]
