"""JSON lines: one object per line, for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from earmark.annotations import Label, LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format, at_line
from earmark.formats.columns import find_columns, refuse_strange_times
from earmark.formats.rows import LOST_FLAT, Rows, flat
from earmark.formats.text import first_line, numbered_lines, read_text, write_text

__all__ = ["JSONLines"]

_TYPES: dict[str, tuple[type, ...]] = {
    "filename": (str,),
    "onset": (int, float),
    "offset": (int, float),
    "duration": (int, float),
    "label": (str,),
    "present": (bool,),
    "confidence": (int, float),
    "split": (str,),
}


@FORMATS.register("json", "JSON lines: an object per event with filename, onset, offset, label")
class JSONLines(Format):
    r"""Objects such as `{"filename": "a.wav", "onset": 0.5, "offset": 2.0, "label": "dog"}`, one on each line.

    What is null or left out is not known, but `present`, which is true unless it is said: false for absent, null for
    unknown. An object with a file name alone means "listened to"; with `"present": null`, that nothing is known about
    what no other line says.
    """

    suffix = ".jsonl"
    loses = LOST_FLAT

    def read(self, path: Path) -> LabelTable:
        """Labels in a file."""
        rows = Rows(path)
        for number, line in numbered_lines(read_text(path)):
            with at_line(path, number):
                self._add(rows, line)
        return rows.table()

    def _add(self, rows: Rows, line: str) -> None:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"one JSON object on each line expected: {error}") from error
        if not isinstance(entry, dict):
            raise DataError(f"one JSON object on each line expected, found {line[:40]!r}")
        keys = list(entry)
        columns = find_columns(keys)
        refuse_strange_times(keys, columns)
        said: dict[str, Any] = {column: entry[keys[index]] for column, index in columns.items()}
        for column, value in said.items():
            types = _TYPES.get(column, (str,))
            if value is not None and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
                raise DataError(f"{column} is {value!r}, expected {' or '.join(t.__name__ for t in types)}")
        try:
            onset, offset, length = (
                None if said.get(key) is None else float(said[key]) for key in ("onset", "offset", "duration")
            )
        except OverflowError as error:
            raise DataError(f"times must be finite: {error}") from error
        if onset is not None and offset is None and length is not None:
            offset = onset + length
        rows.add(
            said.get("filename") or "",
            onset,
            offset,
            said.get("label") or "",
            said.get("present", True),
            said.get("confidence"),
            said.get("split") or "",
        )

    def write(self, table: LabelTable, path: Path) -> None:
        """Write a table; keys that say nothing are left out."""
        for name in table.filenames:
            if "\\" in name:
                raise DataError(
                    f"{name!r} has a backslash in it, which is read as the slash of a path; rename the file"
                )
        lines = [self._line(table, name, row) for name, row in flat(table)]
        write_text(path, "".join(line + "\n" for line in lines))

    def _line(self, table: LabelTable, name: str, row: Label | None) -> str:
        entry: dict[str, Any] = {"filename": name}
        if row is None:
            if not table.complete:
                entry["present"] = None
        else:
            if row.onset is not None and row.offset is not None:
                entry |= {"onset": float(row.onset), "offset": float(row.offset)}
            entry["label"] = row.label
            if row.present is not True:
                entry["present"] = row.present
            if row.confidence is not None:
                entry["confidence"] = float(row.confidence)
        if name in table.splits:
            entry["split"] = table.splits[name]
        return json.dumps(entry, ensure_ascii=False, allow_nan=False)

    def recognises(self, path: Path, head: str) -> bool:
        """Lines that are objects with a file name."""
        if path.name.removesuffix(".gz").endswith(self.suffix):
            return True
        try:
            entry = json.loads(first_line(head))
        except (ValueError, RecursionError):
            return False
        return isinstance(entry, dict) and "filename" in find_columns(list(entry))
