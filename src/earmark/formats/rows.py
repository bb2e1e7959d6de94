"""Rows between a file and a `LabelTable`: how a table lies flat in tsv, csv and json.

A row says that a class is in a file, with or without times. Two more kinds make every table sayable:

- a row with a file name and no label: the file was listened to (and is without events, if it has no other row);
- the same with `?` for `present`: whatever no row says about this file is unknown. One such row makes the whole table
  one in which silence means nothing (`complete=False`): unknown is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from earmark.annotations import Label, LabelTable, checked
from earmark.errors import DataError

__all__ = ["LOST_FLAT", "Rows", "flat"]

LOST_FLAT = "the order of classes, and classes that no row names"
"""What of a table even flat rows do not say."""


class Rows:
    """Rows of one or more label files on their way into a table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.labels: list[Label] = []
        self.splits: dict[str, str] = {}
        self.classes: tuple[str, ...] | None = None
        self.complete = True
        self._names: dict[str, None] = {}

    def mention(self, filename: str, split: str = "") -> str:
        """Enter a file, with or without labels; its name as the table has it."""
        name = filename.replace("\\", "/")
        if not name:
            raise DataError("no file name")
        self._names.setdefault(name)
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
        split: str = "",
    ) -> None:
        """Enter a row; one without a label only mentions the file, and with `present=None` leaves the rest unknown."""
        name = self.mention(filename, split)
        if label:
            self.labels.append(checked(Label(name, onset, offset, label, present, confidence)))
        elif onset is not None or offset is not None or confidence is not None or present is False:
            raise DataError("no label: write one, or delete the row; a file name alone says that nothing was heard")
        elif present is None:
            self.complete = False

    def table(self) -> LabelTable:
        """All of them as a table."""
        if not self._names:
            raise DataError(f"{self.path}: holds no labels")
        try:
            return LabelTable(
                self.labels, filenames=self._names, classes=self.classes, complete=self.complete, splits=self.splits
            )
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error


def flat(table: LabelTable) -> Iterator[tuple[str, Label | None]]:
    """Rows with their file names, in an order that tells files and rows apart; None where a file is only mentioned.

    >>> [row and row.label for _, row in flat(LabelTable([("a.wav", 0, 1, "dog")], filenames=["b.wav"]))]
    [None, 'dog']
    """
    if not table.filenames:
        raise DataError("a table without files has nothing to write")
    waiting = list(reversed(table.filenames))
    said: set[str] = set()
    for row in table:
        while row.filename not in said:
            name = waiting.pop()
            said.add(name)
            if name != row.filename or not table.complete:
                yield name, None
        yield row.filename, row
    for name in reversed(waiting):
        yield name, None
