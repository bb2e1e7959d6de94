"""Verdicts as a label table that `earmark train` and `earmark evaluate` read: verdicts.csv.

Events that are right are strong labels. A class is absent where an event of it was wrong, where a correction removed
it, and outside the events of intervals that were marked as having no others. Everything else is unknown, and so are
events about which reviewers are unsure or disagree. A recording that was checked is known as a whole.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from earmark.annotations import Label, LabelTable
from earmark.errors import EarmarkError
from earmark.files import make_folder
from earmark.formats import write_labels
from earmark.ownership import owned, set_aside
from earmark.reviewing.events import Event
from earmark.reviewing.intervals import Intervals, covers, subtract, union
from earmark.reviewing.state import Review

TABLE = "verdicts.csv"


def label_table(review: Review) -> LabelTable:
    """The labels that follow from a review, without recordings about which nothing is known."""
    with review.lock:
        rows: list[Label] = []
        names = []
        for recording in review.source.recordings:
            events = review.events_of(recording.index)
            empty = review.empty_intervals(recording.index)
            if not empty and not any(event.decisions for event in events):
                continue
            names.append(recording.name)
            rows += _recording_rows(recording.name, recording.seconds(), events, empty, review.classes)
        return LabelTable(rows, filenames=names, classes=sorted(review.classes), complete=False)


def verified_table(review: Review, *, only_right: bool = True) -> LabelTable:
    """Events for other programs: those that are right, or all that are not wrong; with corrected labels and edges."""
    wanted = ("right",) if only_right else ("right", "open", "unsure", "disputed")
    rows = []
    with review.lock:
        for recording in review.source.recordings:
            for event in review.events_of(recording.index):
                if event.status in wanted:
                    now = event.current
                    row = Label(recording.name, now.onset, now.offset, now.label, True, event.given.confidence)
                    rows.append(row)
        names = [recording.name for recording in review.source.recordings]
        rows.sort(key=lambda row: (review.index[row.filename], row.onset or 0.0))
        return LabelTable(rows, filenames=names, classes=sorted({*review.classes, *(row.label for row in rows)}))


def write_table(review: Review) -> Path:
    """Write verdicts.csv; a version that the user has edited is kept as verdicts.edited.csv.

    There is no table if nothing is known, as after all verdicts were undone.
    """
    table = label_table(review)
    path = make_folder(review.source.folder) / TABLE
    with owned(review.source.folder) as owner:
        if not table.filenames:
            owner.remove(path)
            return path
        if os.path.lexists(path) and not owner.is_own(path):
            set_aside(path)
        write_labels(table, path, "csv")
    return path


def _recording_rows(
    name: str, seconds: float, events: Iterable[Event], empty: Intervals, classes: Iterable[str]
) -> list[Label]:
    present: dict[str, Intervals] = defaultdict(list)
    absent: dict[str, Intervals] = defaultdict(list)
    doubtful: dict[str, Intervals] = defaultdict(list)
    rows: list[Label] = []
    for event in events:
        given, now = event.given, event.current
        if event.status == "right":
            present[now.label].append((now.onset, now.offset))
            rows.append(Label(name, now.onset, now.offset, now.label))
        if event.status in ("right", "wrong"):
            absent[given.label].append((given.onset, given.offset))  # the part that is present is subtracted below
        if event.status in ("unsure", "disputed"):
            doubtful[given.label].append((given.onset, given.offset))
            for decision in event.decisions.values():
                doubtful[decision.label].append((decision.onset, decision.offset))
    for label in dict.fromkeys((*classes, *present)):
        gone = subtract(subtract(union(absent[label], empty), present[label]), doubtful[label])
        rows += absence_rows(name, label, seconds, present[label], gone)
    return sorted(rows, key=lambda row: (row.onset is not None, row.onset or 0.0, row.offset or 0.0, row.label))


def absence_rows(name: str, label: str, seconds: float, present: Intervals, absent: Intervals) -> list[Label]:
    """Rows that state where a class is absent from a recording, and whether it is unknown elsewhere.

    >>> absence_rows("a.wav", "dog", 10.0, [(1.0, 2.0)], [(2.0, 5.0)])
    [Label(filename='a.wav', onset=2.0, offset=5.0, label='dog', present=False, confidence=None),
     Label(filename='a.wav', onset=None, offset=None, label='dog', present=None, confidence=None)]
    """
    absent = [(onset, min(offset, seconds)) for onset, offset in absent if onset < seconds] if seconds else absent
    if seconds and covers(union(present, absent), 0.0, seconds):  # absent outside its events
        return [] if present else [Label(name, None, None, label, False)]
    rows = [Label(name, onset, offset, label, False) for onset, offset in absent]
    return [*rows, Label(name, None, None, label, None)] if present else rows


class TableWriter:
    """Writes verdicts.csv in a thread, two seconds after the first of several changes, and when it is closed."""

    DELAY = 2.0  # seconds

    def __init__(self, review: Review) -> None:
        self.review = review
        self.problem: str | None = None  # why the table could not be written
        self._changed, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="verdicts.csv", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Request that the table is written soon."""
        self._changed.set()

    def close(self) -> None:
        """Write the latest changes and end the thread."""
        self._stopped.set()
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._changed.wait()
            self._stopped.wait(self.DELAY)
            self._changed.clear()
            is_last = self._stopped.is_set()  # read last: `close` sets it before `_changed`, so no change is missed
            try:
                write_table(self.review)
                self.problem = None
            except (OSError, EarmarkError) as error:  # no verdict is lost: the journal has all of them
                self.problem = str(error)
