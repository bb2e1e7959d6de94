"""The contract of a label format, and the rows that a reader collects.

A row states that a class occurs in a file, with or without times. Two further kinds of row make every table
representable:

- a file name without a label lists the file; it has no events unless other rows name some;
- the same with "unknown" as presence makes everything that no row states about the file unknown. One such row makes the
  whole table incomplete (`complete=False`), because unknown labels are never guessed.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from earmark.annotations import Label, LabelTable, checked
from earmark.errors import ArgumentError, DataError
from earmark.formats.text import class_name, file_name, largest_table, one_line, read_text, stem_of, too_large
from earmark.registry import Registry

_BYTES_PER_ROW = 32  # of the largest table; a row needs about six times as much memory


class Format(ABC):
    """One file format for labels."""

    name: ClassVar[str]
    suffix: ClassVar[str]  # of written files, such as ".tsv"
    per_recording: ClassVar[bool] = False  # whether a file holds the labels of one recording and is named after it
    loses: ClassVar[str] = "the order of classes, and classes that no row names"  # what it cannot represent

    def read(self, path: Path, *, may_be_empty: bool = False) -> LabelTable:
        """Read a file; errors name the file and the line. A table without rows is an error unless it may be empty."""
        rows = Rows(path, may_be_empty=may_be_empty)
        text = read_text(path)
        with rows.located_errors():
            self._read(text, rows)
            rows.line = None
            return rows.table()

    @abstractmethod
    def _read(self, text: str, rows: Rows) -> None:
        """Add the labels in a text; `rows.line` is the line that an error is about."""

    @abstractmethod
    def write(self, table: LabelTable, path: Path) -> None:
        """Write a table atomically; with `per_recording`, the table of one recording."""

    @abstractmethod
    def recognises(self, path: Path, head: str) -> bool:
        """Whether a file looks like this format; `head` holds the first few thousand characters of its text."""


FORMATS: Registry[Format] = Registry("format")


class Rows:
    """Collects the rows of one or more label files into a table, which has some unless it may be empty."""

    def __init__(self, path: Path, *, may_be_empty: bool = False) -> None:
        self.path = path
        self.may_be_empty = may_be_empty
        self.recording = stem_of(path)
        self.line: int | None = None
        self.labels: list[Label] = []
        self.splits: dict[str, str] = {}
        self.classes: tuple[str, ...] | None = None
        self.complete = True
        self._names: dict[str, str] = {}
        self._classes: dict[str, str] = {}  # as read, and as kept
        self._most = largest_table() // _BYTES_PER_ROW

    def add_file(self, filename: str, split: str = "") -> str:
        """List a file, with or without labels; returns its name in the table."""
        name = file_name(filename)
        name = self._names.setdefault(name, name)
        if len(self._names) + len(self.labels) > self._most:
            raise too_large(f"{self._most:,} rows")
        if split and self.splits.setdefault(name, split) != split:
            raise DataError(f"{name} is in two splits, {self.splits[name]!r} and {split!r}")
        return name

    def add(
        self,
        filename: str,
        onset: float | None,
        offset: float | None,
        label: str,
        present: bool | None = True,
        confidence: float | None = None,
        *,
        duration: float | None = None,
        split: str = "",
    ) -> None:
        """Add a row. Without a label it only lists the file; with `present=None` as well, other labels are unknown."""
        name = self.add_file(filename, split)
        if onset is not None and offset is None and duration is not None:
            offset = onset + duration
        if label and label not in self._classes:
            self._classes[label] = class_name(label)
        label = self._classes.get(label, "")
        if label:
            self.labels.append(checked(Label(name, onset, offset, label, present, confidence)))
        elif onset is not None or offset is not None or confidence is not None or present is False:
            raise DataError("no label: add one or delete the row; a file name alone means that the file has no events")
        elif present is None:
            self.complete = False

    def table(self) -> LabelTable:
        """All rows as a table."""
        if not self._names and not self.may_be_empty:
            raise DataError("contains no labels")
        return LabelTable(
            self.labels, filenames=self._names, classes=self.classes, complete=self.complete, splits=self.splits
        )

    @contextmanager
    def located_errors(self) -> Iterator[None]:
        """Prefix errors raised inside the block with file and line, and keep them to one line."""
        try:
            yield
        except (DataError, csv.Error) as error:
            where = self.path if self.line is None else f"{self.path}:{self.line}"
            what = "" if isinstance(error, DataError) else "not a table: "
            raise DataError(f"{where}: {what}{one_line(str(error))}") from error


def check_width(cells: Sequence[str], width: int, columns: str = "", hint: str = "") -> None:
    """Reject a line with another number of cells."""
    if len(cells) != width:
        raise DataError(f"expected {width} columns{columns}, got {len(cells)}: {' | '.join(cells)}{hint}")


LOST_PER_RECORDING = (
    "absent and unknown classes, splits, .wav and the like in file names, the order of files and classes"
)
LOST_TIMED = f"{LOST_PER_RECORDING} (labels without times are rejected)"


def only_recording(table: LabelTable) -> str:
    """The one recording of a table."""
    if len(table.filenames) != 1:
        raise ArgumentError(
            f"expected labels of one recording, got {len(table.filenames)}; write_labels writes a folder with a file "
            "for each"
        )
    return table.filenames[0]


def timed(table: LabelTable, format: str) -> Iterator[tuple[Label, float, float]]:
    """Positive rows with onset and offset; one without times is an error."""
    for row in table:
        if not row.present:
            continue
        if row.span is None:
            raise DataError(
                f"{row.filename}: {row.label!r} has no times, which {format} requires; use tsv, csv, json or jams"
            )
        onset, offset = row.span
        yield row, float(onset), float(offset)
