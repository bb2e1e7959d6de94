"""JSON lines: one object per line, for programs."""

import json
from dataclasses import asdict
from pathlib import Path

from pydantic_core import from_json

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format, Rows
from earmark.formats.columns import find_columns, records, refuse_unknown_times
from earmark.formats.text import check_class, check_name, first_line, has_suffix, numbered_lines, write_text
from earmark.schema import parse, record


@record
class _Line:
    filename: str | None = None
    onset: float | None = None
    offset: float | None = None
    duration: float | None = None
    label: str | None = None
    present: bool | None = True
    confidence: float | None = None
    split: str | None = None


@FORMATS.register("json", "JSON lines: an object per event with filename, onset, offset, label")
class JSONLines(Format):
    r"""Objects such as `{"filename": "a.wav", "onset": 0.5, "offset": 2.0, "label": "dog"}`, one per line.

    Missing and null values are unknown, except `present`: missing means true, false means absent, null unknown. An
    object with only a file name lists a file without events; with `"present": null` it marks what no other line states
    as unknown.
    """

    suffix = ".jsonl"

    def _read(self, text: str, rows: Rows) -> None:
        for rows.line, line in numbered_lines(text):
            try:
                entry = from_json(line)
            except ValueError as error:
                raise DataError(f"expected one JSON object per line: {error}") from error
            if not isinstance(entry, dict):
                raise DataError(f"expected one JSON object per line, got {line[:40]!r}")
            keys = list(entry)
            columns = find_columns(keys)
            refuse_unknown_times(keys, columns)
            row = asdict(parse(_Line, {column: entry[keys[index]] for column, index in columns.items()}))
            rows.add(**row | {column: row[column] or "" for column in ("filename", "label", "split")})

    def write(self, table: LabelTable, path: Path) -> None:
        for name in table.filenames:
            check_name(name, self.name, forbidden=None)
        for label in {row.label for row in table}:
            check_class(label, self.name)
        lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records(table)]
        write_text(path, "".join(lines))

    def recognises(self, path: Path, head: str) -> bool:
        if has_suffix(path, self.suffix):
            return True
        try:
            entry = from_json(first_line(head))
        except ValueError:
            return False
        return isinstance(entry, dict) and "filename" in find_columns(list(entry))
