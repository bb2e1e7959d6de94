"""Labels: which classes occur in which files, when, and which are known to be absent.

One type for weak labels, strong labels and mixtures of them. A table has rows (filename, onset, offset, label); a row
without times means "somewhere in this file". A row may also state that a class is *not* in the file (`present=False`),
with times that it is not in this interval, or that its presence is unknown (`present=None`). Classes without a row are
decided by the table as a whole: in a `complete` table every listed file was checked for every class, so they are
absent; otherwise they are unknown. A class with events is absent outside them, unless a row without times marks it
as unknown: then it is only known within the intervals of its rows, as in a recording that was checked in part.

Unknown labels are never guessed: they are NaN in targets, and losses and scores ignore them.

Times are seconds from the start of the file. File names are as in the label file, with forward slashes; data sets match
them with audio files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.tables import Cell, Column, Table, import_pandas
from earmark.text import as_names, counted
from earmark.timing import joined_spans, span_to_frames

if TYPE_CHECKING:
    import pandas

__all__ = ["Label", "LabelTable"]

_PRECEDENCE = {False: 0, None: 1, True: 2}  # of contradicting rows of a class in a file; the highest counts
_SHOWN = 20  # rows of a printed table
_LATEST = 1e9  # seconds, 32 years: later times are mistakes

Targets = npt.NDArray[np.float32]


class Label(NamedTuple):
    """One row: a class in a file.

    `onset` and `offset` are seconds, both or neither. `present` is False for "not in this file", or with times "not in
    this interval", and None for "unknown", without times. `confidence` is in [0, 1], or None.
    """

    filename: str
    onset: float | None
    offset: float | None
    label: str
    present: bool | None = True
    confidence: float | None = None

    @property
    def has_times(self) -> bool:
        """Whether the row has onset and offset."""
        return self.onset is not None

    @property
    def is_event(self) -> bool:
        """Whether the class is present between onset and offset."""
        return self.present is True and self.onset is not None

    @property
    def span(self) -> tuple[float, float] | None:
        """Onset and offset; None for a row without times."""
        return None if self.onset is None or self.offset is None else (self.onset, self.offset)

    def overlaps(self, other: Label) -> bool:
        """Whether both rows have times that overlap."""
        if self.span is None or other.span is None:
            return False
        return self.span[0] < other.span[1] and other.span[0] < self.span[1]


def checked(row: Label) -> Label:
    """Return the row if it is valid, else raise an error.

    >>> checked(Label("a.wav", 2.0, 1.0, "dog"))
    Traceback (most recent call last):
    earmark.errors.DataError: event ends before it begins: onset 2.0, offset 1.0
    """
    if not row.filename:
        raise DataError("no file name")
    if not row.label:
        raise DataError("no label")
    if (row.onset is None) != (row.offset is None):
        raise DataError(f"expected both onset and offset, got onset {row.onset}, offset {row.offset}")
    if not (row.present is None or isinstance(row.present, bool)):
        raise DataError(f"present: expected True, False or None, got {row.present!r}; confidence is the sixth value")
    for value in (row.onset, row.offset, row.confidence):
        if not (value is None or isinstance(value, Real)):
            raise DataError(f"expected numbers as onset, offset and confidence, got {value!r}")
    if row.onset is not None and row.offset is not None:
        if row.present is None:
            raise DataError(f"{row.label!r} is marked as unknown and cannot have times")
        if not (math.isfinite(row.onset) and math.isfinite(row.offset)):
            raise DataError(f"expected finite times, got onset {row.onset}, offset {row.offset}")
        if row.onset < 0:
            raise DataError(f"event begins before the file: onset {row.onset}")
        if row.offset < row.onset:
            raise DataError(f"event ends before it begins: onset {row.onset}, offset {row.offset}")
        if row.offset > _LATEST:
            raise DataError(f"expected times in seconds, at most {_LATEST:g}, got offset {row.offset:g}")
    if row.confidence is not None and not 0 <= row.confidence <= 1:
        raise DataError(f"confidence: expected a number in [0, 1], got {row.confidence}")
    return row


def clock_cells(began: datetime | None, onset: float | None) -> tuple[str, str]:
    """Date and time of day this many seconds after the start, for tables; empty if the start is unknown.

    >>> clock_cells(datetime(2026, 5, 14, 23, 59, 59), 1.5)
    ('2026-05-15', '00:00:00.500')
    """
    if began is None or onset is None:
        return "", ""
    try:
        moment = began + timedelta(seconds=round(onset, 3))
    except OverflowError:  # after the year 9999
        return "", ""
    return moment.date().isoformat(), moment.timetz().isoformat(timespec="milliseconds")


def _are_plain(rows: Iterable[Label]) -> bool:
    """Whether all rows are positive, have times and pass `checked`: a fast path for large tables of events."""
    try:
        for name, onset, offset, label, present, confidence in rows:
            if not (name and label and present is True and 0 <= onset <= offset <= _LATEST):  # type: ignore[operator]
                return False
            if confidence is not None and not 0 <= confidence <= 1:
                return False
    except TypeError:  # None, or not a number
        return False
    return True


def _as_label(row: Label | tuple[object, ...]) -> Label:
    try:
        return row if isinstance(row, Label) else Label(*row)  # type: ignore[arg-type]
    except TypeError:  # not a sequence, or one of another length
        raise ArgumentError(
            f"expected rows (filename, onset, offset, label), got {row!r}; of a data frame, pass "
            "df[['filename', 'onset', 'offset', 'label']].itertuples(index=False)"
        ) from None


class LabelTable(Sequence[Label]):
    """Labels of any number of files; a sequence of rows.

    Parameters
    ----------
    rows
        `Label`s, or tuples (filename, onset, offset, label, ...).
    filenames
        Files in the table, including those without rows. Files of rows are added.
    classes
        Classes in the order of targets; by default those of the rows, sorted.
    complete
        Whether classes without a row are absent (True) or unknown (False).
    splits
        Split by file name, for files that have one; other files are ignored.
    began
        Start times of recordings, by file name, where known: tables then have the date and time of day of events.

    Attributes
    ----------
    has_only_events
        Whether all rows state that a class is present and when, so that metrics need not look for others.

    Examples
    --------
    >>> table = LabelTable([("a.wav", 0.5, 1.5, "dog"), ("a.wav", None, None, "cat")], filenames=["b.wav"])
    >>> table.classes, table.filenames
    (('cat', 'dog'), ('b.wav', 'a.wav'))
    >>> table.bag_targets()
    array([[0., 0.],
           [1., 1.]], dtype=float32)
    >>> table.frame_targets("a.wav", 4, hop=0.5)  # the times of the cat are unknown
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
        began: Mapping[str, datetime] | None = None,
    ) -> None:
        self._rows = tuple(map(_as_label, rows))
        self._by_file: dict[str, list[Label]] = {name: [] for name in as_names(filenames)}
        is_plain = _are_plain(self._rows)
        for row in self._rows:
            self._by_file.setdefault(row.filename, []).append(row if is_plain else checked(row))
        labels = {row.label for row in self._rows}
        self.classes = as_names(sorted(labels) if classes is None else classes)
        self.complete = complete
        self.splits = {name: split for name, split in (splits or {}).items() if name in self._by_file}
        self.began = {name: moment for name, moment in (began or {}).items() if name in self._by_file}
        self.has_only_events = is_plain or all(row.present and row.has_times for row in self._rows)
        known = set(self.classes)
        if len(known) != len(self.classes):
            raise ArgumentError(f"duplicate class in classes: {', '.join(self.classes)}")
        if not labels <= known:
            raise unknown_name("label", next(r.label for r in self._rows if r.label not in known), self.classes)
        if not is_plain:
            self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        """Reject a class that is both present in a file and absent from it, or both present and unknown."""
        present = {(row.filename, row.label) for row in self._rows if row.present}
        somewhere = {(row.filename, row.label) for row in self._rows if row.present and not row.has_times}
        for row in self._rows:
            if row.present is True or row.has_times:
                continue
            if (row.filename, row.label) in (somewhere if row.present is None else present):
                raise DataError(f"{row.filename}: {row.label!r} is marked both present and absent or unknown")

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
        return vars(self) == vars(other) and self.filenames == other.filenames

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<LabelTable: {len(self)} rows, {len(self.filenames)} files, {len(self.classes)} classes>"

    def __str__(self) -> str:
        """The first rows as an aligned table, and the number of rows."""
        return f"{self._first_rows()}\n{self._summary()}"

    def _repr_html_(self) -> str:
        return self._first_rows()._repr_html_()

    def _first_rows(self) -> Table:
        columns = [Column(name, is_text=name in ("filename", "label", "present")) for name in self._columns()]
        rows = [[_cell(getattr(row, column.heading)) for column in columns] for row in self._rows[:_SHOWN]]
        return Table(columns, rows, note=self._summary())

    def _summary(self) -> str:
        shown = f"the first {_SHOWN} of " if len(self) > _SHOWN else ""
        return f"{shown}{counted(len(self), 'row')}, {counted(len(self.filenames), 'file')}"

    def _columns(self) -> list[str]:
        columns = ["filename", "onset", "offset", "label", "confidence"]
        if any(row.present is not True for row in self._rows):
            columns.append("present")
        return columns

    def to_pandas(self) -> pandas.DataFrame:
        """Rows as a data frame: filename, onset, offset, label, confidence.

        There are also columns `present` if any row is not positive, and `date` and `time_of_day` of onsets if start
        times are known.
        """
        columns = self._columns()
        rows = [[getattr(row, column) for column in columns] for row in self]
        if self.began:
            columns = [*columns, "date", "time_of_day"]
            rows = [[*cells, *self.clock(row)] for cells, row in zip(rows, self, strict=True)]
        return import_pandas().DataFrame(rows, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """The table as plain Python values: `classes`, `filenames`, `complete`, and `rows`, a dictionary each."""
        return {
            "classes": list(self.classes),
            "filenames": list(self.filenames),
            "complete": self.complete,
            "rows": [row._asdict() for row in self],
        }

    @property
    def filenames(self) -> tuple[str, ...]:
        """All files, in order of first appearance."""
        return tuple(self._by_file)

    def of(self, filename: str) -> tuple[Label, ...]:
        """Rows of one file."""
        if filename not in self._by_file:
            raise ArgumentError(f"{filename!r} is not one of the {len(self._by_file)} files of this table")
        return tuple(self._by_file[filename])

    def clock(self, row: Label) -> tuple[str, str]:
        """Date and time of day of a row's onset; empty where they are not known."""
        return clock_cells(self.began.get(row.filename), row.onset)

    def presence(self, filename: str, label: str) -> bool | None:
        """Whether a class is in a file: True, False, or None for unknown."""
        rows = [row for row in self.of(filename) if row.label == label]
        marks = [row.present for row in rows if row.present or not row.has_times]
        if True in marks:
            return True
        is_unknown = None in marks if marks else not self.complete
        return None if is_unknown else False

    def active_times(self) -> dict[str, dict[str, float]]:
        """Seconds that each class is active in each file, {class: {filename: seconds}}, where its times are known.

        Overlaps of events of one class count once.

        >>> LabelTable([("a.wav", 0, 1, "dog"), ("a.wav", 0.5, 2, "dog"), ("b.wav", 1, 2, "dog")]).active_times()
        {'dog': {'a.wav': 2, 'b.wav': 1}}
        """
        times: dict[str, dict[str, float]] = {label: {} for label in self.classes}
        for name in self.filenames:
            spans: dict[str, list[tuple[float, float]]] = {}
            for row in self.of(name):
                if row.present and row.span is not None:
                    spans.setdefault(row.label, []).append(row.span)
            for label, events in spans.items():
                times[label][name] = sum(offset - onset for onset, offset in joined_spans(events))
        return times

    def bag_targets(self, filenames: Iterable[str] | None = None) -> Targets:
        """Targets per file: (files, classes), 1 present, 0 absent, NaN unknown."""
        names = self.filenames if filenames is None else as_names(filenames)
        targets = np.full((len(names), len(self.classes)), 0 if self.complete else np.nan, np.float32)
        column = {label: c for c, label in enumerate(self.classes)}
        value = {True: 1.0, False: 0.0, None: np.nan}
        for f, name in enumerate(names):
            rows = [row for row in self.of(name) if row.present or not row.has_times]
            for row in sorted(rows, key=lambda row: _PRECEDENCE[row.present]):
                targets[f, column[row.label]] = value[row.present]
        return targets

    def frame_targets(self, filename: str, frames: int, hop: float) -> Targets:
        """Targets per frame: (frames, classes); NaN for a class that is present without times, or unknown.

        Where a class has events and rows of presence without times, the latter are ignored.
        """
        (bag,) = self.bag_targets([filename])
        column = {label: c for c, label in enumerate(self.classes)}
        rows = self.of(filename)
        whole = np.where(bag == 1, np.nan, bag)
        whole[[column[row.label] for row in rows if row.is_event]] = 0
        whole[[column[row.label] for row in rows if row.present is None]] = np.nan
        targets = np.tile(whole.astype(np.float32), (frames, 1))
        for row in sorted(rows, key=lambda row: row.present is True):  # where rows overlap, presence wins
            if row.span is not None:
                first, last = span_to_frames(*row.span, hop)
                targets[first:last, column[row.label]] = float(row.present is True)
        return targets

    def replace(self, **changes: Any) -> LabelTable:
        """The same table with other `rows`, `filenames`, `classes`, `complete`, `splits` or `began`.

        >>> LabelTable([("a.wav", 0, 1, "dog")]).replace(classes=["cat", "dog"]).classes
        ('cat', 'dog')
        """
        same = {name: getattr(self, name) for name in ("filenames", "classes", "complete", "splits", "began")}
        return LabelTable(**{"rows": self._rows, **same, **changes})

    def select(self, filenames: Iterable[str]) -> LabelTable:
        """Labels of some files, in the order given; classes stay."""
        names = tuple(dict.fromkeys(as_names(filenames)))
        return self.replace(rows=[row for name in names for row in self.of(name)], filenames=names)

    def renamed(self, names: Mapping[str, str]) -> LabelTable:
        """The same labels with other file names; files missing from `names` keep theirs."""
        new = [names.get(name, name) for name in self.filenames]
        if len(set(new)) != len(new):
            raise ArgumentError(f"two files would have the name {max(new, key=new.count)!r}")
        return self.replace(
            rows=[row._replace(filename=names.get(row.filename, row.filename)) for row in self],
            filenames=new,
            splits={names.get(name, name): split for name, split in self.splits.items()},
            began={names.get(name, name): moment for name, moment in self.began.items()},
        )


def _cell(value: object) -> Cell:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return Cell(f"{value:.3f}", float(value))
    return Cell("" if value is None else str(value))
