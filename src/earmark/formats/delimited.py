"""Tables with delimiters: tsv as the DCASE challenges use it, and csv as spreadsheets and pandas write it."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format, Rows, check_width
from earmark.formats.columns import (
    CLOCK_COLUMNS,
    add_cells,
    find_columns,
    is_mark,
    lay_out,
    presence,
    refuse_unknown_times,
)
from earmark.formats.spreadsheets import unprotected, write_rows
from earmark.formats.text import (
    check_class,
    check_name,
    class_name,
    first_line,
    has_suffix,
    tab_cells,
    whole_lines,
    without_sound_suffix,
    write_text,
)

_LAYOUTS = {  # of tables without a header row, by the number of columns
    1: ("filename",),
    2: ("filename", "labels"),
    3: ("onset", "offset", "label"),
    4: ("filename", "onset", "offset", "label"),
    5: ("filename", "scene", "onset", "offset", "label"),
}
_NUMBER = re.compile(r"\d+(\.\d*)?(e-?\d+)?", re.I)
# columns that are not part of a label
_IGNORED = ("scene", "scene_label", "identifier", "source_label", "index", *CLOCK_COLUMNS)
_SEPARATOR_LINE = re.compile(r'"?sep=([,;|\t])"?\s*', re.I)  # Excel writes one above the heading
_BLANK = ("", "nan", "na", "n/a", "-")  # what programs write into an empty cell
_INDEX = ("", "index", "unnamed: 0")  # pandas numbers its lines


@FORMATS.register(
    "csv", "table with a header row and commas, semicolons or tabs: long, or wide with a column per class"
)
class CSV(Format):
    """Any table with a header row.

    Long: columns for filename, onset, offset and label under their usual names, in any order; a column `labels` holds
    several, separated by `;`, `|` or `,`; other columns are ignored. Wide: a column with the filename and one per
    class, with 1, 0 or an empty cell (unknown; one empty cell makes the whole table incomplete). A line `sep=;` above
    the heading names the delimiter. Names that look like formulas are written with an apostrophe, unless `safe` is
    False, and read without it; see `earmark.formats.spreadsheets`.
    """

    suffix = ".csv"

    def __init__(self, *, safe: bool = True) -> None:
        self.safe = safe

    def _read(self, text: str, rows: Rows) -> None:
        lines = _csv_cells(text, rows)
        if _SEPARATOR_LINE.fullmatch(first_line(text)):
            next(lines)
        rows.line, header = next(lines, (None, []))
        if not header:
            return
        columns = find_columns(header)
        if "filename" not in columns:
            raise DataError(
                f"no column with file names (filename, file, clip) in the first line: {', '.join(header)}; "
                "rename the column, or add a first line: filename,label"
            )
        if columns.keys() & {"label", "labels"}:
            refuse_unknown_times(header, columns)
            for rows.line, cells in lines:
                _check_csv_width(cells, len(header))
                add_cells(rows, {column: cells[index] for column, index in columns.items()}, separators=";|,")
        else:
            _read_wide(header, columns, lines, rows)

    def write(self, table: LabelTable, path: Path) -> None:
        _check_names(table, self.name, forbidden="\r")
        text = io.StringIO(newline="")
        write_rows(text, lay_out(table), safe=self.safe)
        write_text(path, text.getvalue())

    def recognises(self, path: Path, head: str) -> bool:
        first = first_line(head)
        is_csv = has_suffix(path, self.suffix)
        if _SEPARATOR_LINE.fullmatch(first):
            return True
        cells = next(csv.reader([first], delimiter=_sniff_delimiter(first)), [])
        has_names = "filename" in find_columns(cells)
        if "\t" in first:  # without a header row it is tsv
            return has_names and (is_csv or _is_wide(head, cells))
        return is_csv or (has_names and len(cells) > 1)


@FORMATS.register("tsv", "tab-separated table, with or without a header row: DCASE, DESED, URBAN-SED's text files")
class TSV(Format):
    """Columns filename, onset, offset, label (or event_label) in any order, optionally present, confidence and split.

    `event_labels` holds several labels separated by commas. Empty times mean "somewhere in this file"; a file name
    alone lists a file without events. Without a heading the number of columns decides: 2 (filename, labels), 3 (onset,
    offset, label of the recording that the file is named after), 4 (filename first), 5 (a scene, ignored, in second
    place). There are no quotes, so that no name can contain a tab.
    """

    suffix = ".tsv"

    def _read(self, text: str, rows: Rows) -> None:
        lines = tab_cells(text)
        rows.line, header = next(lines, (None, []))
        columns = find_columns(header)
        width = len(header)
        if _is_heading(header, columns):
            _check_heading(header, columns)
        elif header:
            # a line with only a file name does not show the number of columns
            rows.line, cells = next((line for line in tab_cells(text) if len(line[1]) > 1), (rows.line, header))
            width = len(cells)
            if width not in _LAYOUTS:
                raise DataError(
                    "expected, without a header row, 2 columns (filename, labels), 3 (onset, offset, label), 4 "
                    f"(filename first) or 5 (filename, scene, ...), got {width}: {' | '.join(cells)}"
                )
            columns = {column: index for index, column in enumerate(_LAYOUTS[width])}
            lines = tab_cells(text)
        for rows.line, cells in lines:
            add_cells(rows, {"filename": rows.recording, **_by_column(cells, columns, width)}, separators=",")

    def write(self, table: LabelTable, path: Path) -> None:
        _check_names(table, self.name, forbidden="\t\n\r")
        write_text(path, "".join("\t".join(cells) + "\n" for cells in lay_out(table)))

    def recognises(self, path: Path, head: str) -> bool:
        cells = [cell.strip() for cell in first_line(head).split("\t")]
        is_tsv = has_suffix(path, self.suffix)
        if is_tsv or _is_heading(cells, find_columns(cells)):
            return is_tsv or len(cells) > 1
        named = dict(zip(_LAYOUTS.get(len(cells), ()), cells, strict=False))
        is_timed = "onset" in named and all(_NUMBER.fullmatch(named[column]) for column in ("onset", "offset"))
        return is_timed or (len(cells) > 1 and without_sound_suffix(cells[0]) != cells[0])


def _is_wide(head: str, header: Sequence[str]) -> bool:
    """Whether a tab-separated table has a column per class: no known column of labels, and marks in all others."""
    columns = find_columns(header)
    others = [i for i, heading in enumerate(header) if i not in columns.values() and heading.lower() not in _INDEX]
    if not others or columns.keys() - {"filename", "split"}:
        return False
    _, cells = next(islice(tab_cells(head), 1, None), (0, []))
    return len(cells) == len(header) and all(is_mark(cells[i]) or cells[i].lower() in _BLANK for i in others)


def _csv_cells(text: str, rows: Rows) -> Iterator[tuple[int, list[str]]]:
    """Non-blank lines of a table with quotes, as stripped cells."""
    delimiter = _sniff_delimiter(first_line(text))
    reader = csv.reader(whole_lines(text), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            cells = [cell.strip() if delimiter == "\t" else unprotected(cell.strip()) for cell in row]
            if any(cells):
                yield reader.line_num, cells
    except csv.Error:
        rows.line = reader.line_num
        raise


def _check_csv_width(cells: Sequence[str], width: int) -> None:
    too_many = len(cells) > width
    hint = "; quote names with commas or semicolons" if too_many else "; keep the commas of empty cells"
    check_width(cells, width, hint=hint)


def _sniff_delimiter(first: str) -> str:
    """The delimiter: named by a line `sep=;`, or else the most frequent one in the heading."""
    named = _SEPARATOR_LINE.fullmatch(first)
    return named[1] if named else max(",;\t", key=first.count)


def _check_names(table: LabelTable, format: str, forbidden: str) -> None:
    for name in (*table.filenames, *table.splits.values()):
        check_name(name, format, forbidden)
    for label in {row.label for row in table}:
        check_class(label, format)


def _is_heading(cells: Sequence[str], columns: dict[str, int]) -> bool:
    return bool(columns.keys() & {"filename", "onset"}) and not any(cell[:1].isdigit() for cell in cells)


def _check_heading(cells: Sequence[str], columns: dict[str, int]) -> None:
    for index, cell in enumerate(cells):
        if index not in columns.values() and cell.lower() not in _IGNORED:
            raise DataError(
                f"unknown column {cell!r}. Known: filename, onset, offset, event_label, event_labels, present, "
                "confidence, split; csv ignores other columns"
            )
    if set(columns) == {"filename", "duration"}:
        raise DataError(f"expected labels, got durations: {', '.join(cells)}")
    if not columns.keys() & {"label", "labels"} and set(columns) - {"filename", "split"}:
        raise DataError(f"no column with labels (event_label) in {', '.join(cells)}")


def _by_column(cells: list[str], columns: dict[str, int], width: int) -> dict[str, str]:
    while len(cells) > width and not cells[-1]:
        cells = cells[:-1]
    if len(cells) == 1 and columns.get("filename") == 0:
        return {"filename": cells[0]}
    check_width(cells, width)
    return {column: cells[index] for column, index in columns.items()}


def _class_columns(header: Sequence[str], columns: dict[str, int]) -> dict[str, int]:
    """Columns of a wide table that are classes."""
    taken = {columns[column] for column in ("filename", "split") if column in columns}
    classes = [(class_name(h), i) for i, h in enumerate(header) if i not in taken and h.lower() not in _INDEX]
    if len(dict(classes)) != len(classes):
        raise DataError(f"two columns have the same name: {', '.join(header)}")
    if "onset" in columns:
        raise DataError(f"no column with labels (label, class, species, tag) in {', '.join(header)}")
    return dict(classes)


def _read_wide(
    header: Sequence[str], columns: dict[str, int], lines: Iterable[tuple[int, list[str]]], rows: Rows
) -> None:
    """Read a table with a column per class."""
    classes = _class_columns(header, columns)
    for rows.line, cells in lines:
        _check_csv_width(cells, len(header))
        _add_wide(rows, cells, columns, classes)
    rows.line, rows.classes = None, tuple(classes)
    if rows.complete:  # what is not present is absent, and needs no row
        rows.table()  # rejects lines that contradict each other
        rows.labels = [row for row in rows.labels if row.present]


def _add_wide(rows: Rows, cells: Sequence[str], columns: dict[str, int], classes: dict[str, int]) -> None:
    name = cells[columns["filename"]]
    rows.add_file(name, cells[columns["split"]] if "split" in columns else "")
    for label, index in classes.items():
        is_blank = cells[index].lower() in _BLANK
        try:
            present = None if is_blank else presence(cells[index])
        except DataError as error:
            raise DataError(
                f"column {label!r}: {error}; write 1 for yes, 0 for no, or delete the column if it is not a class"
            ) from error
        if present is None:
            rows.complete = False
        else:
            rows.add(name, None, None, label, present)
