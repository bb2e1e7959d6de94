"""Labels: what is heard in which file, when that is known, and what is known not to be.

One type for weak labels, strong labels and mixtures of them. A table has rows (filename, onset, offset, label); a row
without times says "somewhere in this file". A row may also say that a class is *not* in the file (`present=False`) or
that nobody knows (`present=None`). What no row says is decided by the table as a whole: in a `complete` table every
listed file was searched for every class, so that silence means absence; otherwise silence means "unknown".

Unknown is never guessed: it becomes NaN in targets, and losses and scores leave it out.

Times are seconds from the beginning of the file. File names are as the label file gives them, with forward slashes;
data sets match them with audio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.timing import span_to_frames

__all__ = ["Label", "LabelTable", "checked"]

Targets = npt.NDArray[np.float32]


class Label(NamedTuple):
    """One row: a class in a file.

    `onset` and `offset` are seconds, both or neither. `present` is False for "not in this file" and None for "unknown",
    both without times. `confidence` is in [0, 1] where somebody was asked for it.
    """

    filename: str
    onset: float | None
    offset: float | None
    label: str
    present: bool | None = True
    confidence: float | None = None

    @property
    def has_times(self) -> bool:
        """Whether the row says when."""
        return self.onset is not None


def checked(row: Label) -> Label:
    """The row, if it can be true; else an error that says what is wrong with it.

    >>> checked(Label("a.wav", 2.0, 1.0, "dog"))
    Traceback (most recent call last):
    earmark.errors.DataError: event ends before it begins: onset 2.0, offset 1.0
    """
    if not row.filename:
        raise DataError("no file name")
    if not row.label:
        raise DataError("no label")
    if (row.onset is None) != (row.offset is None):
        raise DataError(f"onset and offset go together, found onset {row.onset}, offset {row.offset}")
    if row.onset is not None and row.offset is not None:
        if row.present is not True:
            raise DataError(f"{row.label!r} is marked absent or unknown, so times mean nothing")
        if not (math.isfinite(row.onset) and math.isfinite(row.offset)):
            raise DataError(f"times must be finite, found onset {row.onset}, offset {row.offset}")
        if row.onset < 0:
            raise DataError(f"event begins before the file: onset {row.onset}")
        if row.offset < row.onset:
            raise DataError(f"event ends before it begins: onset {row.onset}, offset {row.offset}")
    if row.confidence is not None and not 0 <= row.confidence <= 1:
        raise DataError(f"confidence must be in [0, 1], found {row.confidence}")
    return row


def _are_plain(rows: Iterable[Label]) -> bool:
    """Whether all rows are positive, have times and pass `checked`: one cheap test each, for large tables of events."""
    try:
        for name, onset, offset, label, present, confidence in rows:
            if not (name and label and present is True and 0 <= onset <= offset < math.inf):  # type: ignore[operator]
                return False
            if confidence is not None and not 0 <= confidence <= 1:
                return False
    except TypeError:  # None, or no number at all
        return False
    return True


class LabelTable(Sequence[Label]):
    """Labels of any number of files; a sequence of rows.

    Parameters
    ----------
    rows
        `Label`s, or tuples (filename, onset, offset, label, ...) to be made into ones.
    filenames
        Files the table speaks of, also those without a row ("listened to, heard nothing"). Files of rows are added.
    classes
        Classes in the order in which targets have them; by default those of the rows, sorted.
    complete
        Whether silence means absence (True) or nothing (False).
    splits
        Name of the split, by file name, for files that have one. Files that the table does not speak of are left out.

    Examples
    --------
    >>> table = LabelTable([("a.wav", 0.5, 1.5, "dog"), ("a.wav", None, None, "cat")], filenames=["b.wav"])
    >>> table.classes, table.filenames
    (('cat', 'dog'), ('b.wav', 'a.wav'))
    >>> table.bag_targets()
    array([[0., 0.],
           [1., 1.]], dtype=float32)
    >>> table.frame_targets("a.wav", 4, hop=0.5)  # nobody said when the cat is heard
    array([[nan,  0.],
           [nan,  1.],
           [nan,  1.],
           [nan,  0.]], dtype=float32)
    """

    def __init__(
        self,
        rows: Iterable[Label | tuple[object, ...]] = (),
        *,
        filenames: Iterable[str] = (),
        classes: Iterable[str] | None = None,
        complete: bool = True,
        splits: Mapping[str, str] | None = None,
    ) -> None:
        self._rows = tuple(row if isinstance(row, Label) else Label(*row) for row in rows)  # type: ignore[arg-type]
        is_plain = _are_plain(self._rows)
        if not is_plain:
            for row in self._rows:
                checked(row)
        self._by_file: dict[str, list[Label]] = {name: [] for name in filenames}
        for row in self._rows:
            self._by_file.setdefault(row.filename, []).append(row)
        labels = {row.label for row in self._rows}
        self.classes = tuple(sorted(labels) if classes is None else classes)
        self.complete = complete
        self.splits = {name: split for name, split in (splits or {}).items() if name in self._by_file}
        known = set(self.classes)
        if len(known) != len(self.classes):
            raise ArgumentError(f"a class is named twice in classes: {', '.join(self.classes)}")
        if not labels <= known:
            raise unknown_name("label", next(r.label for r in self._rows if r.label not in known), self.classes)
        for name, own in self._by_file.items() if not is_plain else ():
            said = {row.label for row in own if row.present}
            for row in own:
                if row.present is not True and row.label in said:
                    raise DataError(
                        f"{name}: {row.label!r} is said both to be there and not to be (or not to be known)"
                    )

    @overload
    def __getitem__(self, index: int) -> Label: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Label, ...]: ...

    def __getitem__(self, index: int | slice) -> Label | tuple[Label, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Label]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelTable):
            return NotImplemented
        mine, theirs = ((t._rows, t.filenames, t.classes, t.complete, t.splits) for t in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<LabelTable: {len(self)} rows, {len(self.filenames)} files, {len(self.classes)} classes>"

    @property
    def filenames(self) -> tuple[str, ...]:
        """Every file the table speaks of, in order of first mention."""
        return tuple(self._by_file)

    @property
    def is_strong(self) -> bool:
        """Whether every positive row says when."""
        return all(row.has_times for row in self._rows if row.present)

    def of(self, filename: str) -> tuple[Label, ...]:
        """Rows of one file."""
        if filename not in self._by_file:
            raise ArgumentError(f"{filename!r} is not among the {len(self._by_file)} files of this table")
        return tuple(self._by_file[filename])

    def presence(self, filename: str, label: str) -> bool | None:
        """Whether a class is in a file: True, False, or None for unknown."""
        own = [row.present for row in self.of(filename) if row.label == label]
        if True in own:
            return True
        if own:
            return None if None in own else False
        return False if self.complete else None

    def bag_targets(self, filenames: Iterable[str] | None = None) -> Targets:
        """Targets per file: (files, classes), 1 present, 0 absent, NaN unknown."""
        names = self.filenames if filenames is None else tuple(filenames)
        targets = np.full((len(names), len(self.classes)), 0 if self.complete else np.nan, np.float32)
        column = {label: c for c, label in enumerate(self.classes)}
        value = {True: 1.0, False: 0.0, None: np.nan}
        for f, name in enumerate(names):
            for row in sorted(self.of(name), key=lambda row: row.present is None):  # unknown outweighs absent
                targets[f, column[row.label]] = value[row.present]
        return targets

    def frame_targets(self, filename: str, frames: int, hop: float) -> Targets:
        """Targets per frame: (frames, classes); NaN for a class that is present without times, or unknown.

        A class that has both rows with times and a row without is taken at the times' word.
        """
        (bag,) = self.bag_targets([filename])
        timed = [row for row in self.of(filename) if row.has_times]
        whole = np.where(bag == 1, np.nan, bag)
        column = {label: c for c, label in enumerate(self.classes)}
        for row in timed:
            whole[column[row.label]] = 0
        targets = np.tile(whole.astype(np.float32), (frames, 1))
        for row in timed:
            if row.onset is not None and row.offset is not None:
                first, last = span_to_frames(row.onset, row.offset, hop)
                targets[first:last, column[row.label]] = 1
        return targets

    def durations(self) -> dict[str, Targets]:
        """How long the events of each class last, in seconds."""
        return {
            label: np.array(
                [
                    row.offset - row.onset
                    for row in self
                    if row.label == label and row.onset is not None and row.offset is not None
                ],
                np.float32,
            )
            for label in self.classes
        }

    def weak(self) -> LabelTable:
        """The same labels without times: each class of a file once."""
        seen: dict[tuple[str, str], Label] = {}
        for row in self._rows:
            if (row.filename, row.label) not in seen:
                present = self.presence(row.filename, row.label)
                seen[row.filename, row.label] = Label(row.filename, None, None, row.label, present)
        return self._like(seen.values())

    def select(self, filenames: Iterable[str]) -> LabelTable:
        """Labels of some of the files, in the order given; classes stay."""
        names = tuple(dict.fromkeys(filenames))
        return self._like([row for name in names for row in self.of(name)], names)

    def renamed(self, names: Mapping[str, str]) -> LabelTable:
        """The same labels with files called otherwise; files that `names` lacks keep theirs."""
        new = [names.get(name, name) for name in self.filenames]
        if len(set(new)) != len(new):
            raise ArgumentError(f"two files would be called {max(new, key=new.count)!r}")
        return LabelTable(
            [row._replace(filename=names.get(row.filename, row.filename)) for row in self],
            filenames=new,
            classes=self.classes,
            complete=self.complete,
            splits={names.get(name, name): split for name, split in self.splits.items()},
        )

    def with_classes(self, classes: Iterable[str]) -> LabelTable:
        """The same labels with classes in another order, or more of them; one that rows use must be among them."""
        return LabelTable(
            self._rows, filenames=self.filenames, classes=classes, complete=self.complete, splits=self.splits
        )

    @classmethod
    def joined(cls, tables: Iterable[LabelTable]) -> LabelTable:
        """Tables of different files, or of the same, as one; classes in order of appearance."""
        parts = list(tables)
        if len({part.complete for part in parts}) > 1:
            raise ArgumentError("tables in which silence means absence cannot be joined with ones in which it does not")
        return cls(
            [row for part in parts for row in part],
            filenames=[name for part in parts for name in part.filenames],
            classes=dict.fromkeys(label for part in parts for label in part.classes),
            complete=all(part.complete for part in parts),
            splits={name: split for part in parts for name, split in part.splits.items()},
        )

    def _like(self, rows: Iterable[Label], filenames: Iterable[str] | None = None) -> LabelTable:
        names = self.filenames if filenames is None else tuple(filenames)
        splits = {name: self.splits[name] for name in names if name in self.splits}
        return LabelTable(rows, filenames=names, classes=self.classes, complete=self.complete, splits=splits)
