"""The ledger of a job: one SQLite file that knows of every recording what became of it, and its events.

A recording is `pending`, `running`, `done` or `failed` with a reason. Each change is a transaction, so that a job
killed at any moment finds the last whole state. Recordings that were `running` when a process died are suspects: they
may have killed it. The second time, a suspect is failed, so that one file that crashes its decoder does not block a job
for ever. One whose file was taken away is `gone`: it is in no table and in no count, but its events are kept, in case
it comes back.

Where a recording has settings, its events here and its files are those of the file with this size and time, decided
with these settings; where it has none, it must be run. So one that is pending may be done again at no cost.

Paths are kept as the bytes that the file system has; names, under which outputs go, are plain text and unique.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from earmark.annotations import Label
from earmark.errors import ArgumentError, DataError

__all__ = ["DIED_TWICE", "STATES", "Entry", "Ledger", "Stretch"]

Stretch = tuple[float, float, npt.NDArray[np.floating[Any]]]
"""Of a recording: onset, offset, and how likely each class is somewhere in it: P (classes,)."""

STATES = ("pending", "running", "done", "failed")
DIED_TWICE = "the process died while reading it, twice"

_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, size INTEGER, mtime INTEGER,
    state TEXT NOT NULL, reason TEXT, attempts INTEGER NOT NULL DEFAULT 0, duration REAL, events INTEGER, seconds REAL,
    settings TEXT, formats TEXT, scores INTEGER NOT NULL DEFAULT 0, digest TEXT
);
CREATE TABLE IF NOT EXISTS events (
    file INTEGER NOT NULL, onset REAL NOT NULL, offset REAL NOT NULL, label TEXT NOT NULL, confidence REAL
);
CREATE INDEX IF NOT EXISTS events_of ON events (file);
CREATE TABLE IF NOT EXISTS presence (file INTEGER NOT NULL, onset REAL NOT NULL, offset REAL NOT NULL, p BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS presence_of ON presence (file);
"""
_COLUMNS = (
    "path, name, size, mtime, state, reason, attempts, duration, events, seconds, settings, formats, scores, digest"
)
_NO_OUTPUTS = "duration = NULL, events = NULL, seconds = NULL, settings = NULL, formats = NULL, scores = 0"
_OLD = (("settings", "NULL"), ("scores", "0"))  # what is no longer true of a file that has changed


@dataclass(frozen=True)
class Entry:
    """What the ledger knows of a recording."""

    path: Path
    name: str
    """Relative, unique in the job, plain text: what tables call it."""
    size: int | None
    """In bytes, when it was run; None if it could not be asked."""
    mtime: int | None
    """In nanoseconds, when it was run."""
    state: str
    reason: str | None
    """Why it failed."""
    attempts: int
    """How often a process died while it was running."""
    duration: float | None
    """In seconds, of sound."""
    events: int | None
    """How many."""
    seconds: float | None
    """From when it was begun until it was done."""
    settings: str | None
    """What its events were decided with; None if they are out of date, or there are none."""
    formats: str | None
    """Formats it was written in, with commas between."""
    scores: bool
    """Whether its frame probabilities were kept."""
    digest: str | None
    """Of a part of the file, when it was run: two recorders may well name, time and size their files alike."""

    @property
    def written(self) -> list[str]:
        """Formats it was written in, by name."""
        return self.formats.split(",") if self.formats else []

    def is_unchanged(self, status: os.stat_result) -> bool:
        """Whether the file is still the one that was run, by size and time."""
        return (self.size, self.mtime) == (status.st_size, status.st_mtime_ns)


class Ledger:
    """The ledger in a file, made if need be.

    Parameters
    ----------
    path
        Of the file.
    read_only
        For looking into a job, also while it runs.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder, "ledger.sqlite")) as ledger:
    ...     ledger.add([(Path("/night.wav"), "night.wav")])
    ...     ledger.fail(Path("/night.wav"), "is empty: 0 bytes")
    ...     [(entry.name, entry.state, entry.reason) for entry in ledger.entries()], ledger.counts()["failed"]
    ([('night.wav', 'failed', 'is empty: 0 bytes')], 1)
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.is_file():
            raise ArgumentError(f"{path}: there is no such ledger")
        # What a process that died left half done is rolled back by whoever opens the file next, if it may write.
        mode = "rwc" if not read_only else "rw" if os.access(path, os.W_OK) else "ro"
        with self._speaking():
            target = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
            self._database = sqlite3.connect(target, uri=True, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA busy_timeout = 10000")
            if read_only:
                self._database.execute("PRAGMA query_only = ON")
                self._database.execute("SELECT count(*) FROM files")
            else:
                # as safe as the defaults where a process dies, in a fraction of the time for each of many changes
                self._database.execute("PRAGMA synchronous = NORMAL")
                self._database.execute("PRAGMA journal_mode = TRUNCATE")
                self._database.executescript(_TABLES)
                if "digest" not in {row[1] for row in self._database.execute("PRAGMA table_info(files)")}:
                    self._database.execute("ALTER TABLE files ADD COLUMN digest TEXT")  # of a ledger before 0.1.0

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file, and leave it alone: nothing beside it."""
        with suppress(sqlite3.DatabaseError):  # where the disk may no longer be written to, an empty journal stays
            self._database.execute("PRAGMA journal_mode = DELETE")
        self._database.close()

    def about(self) -> dict[str, str]:
        """What the job is: see `earmark.detection.job`."""
        with self._speaking():
            return dict(self._database.execute("SELECT key, value FROM about"))

    def set_about(self, facts: Mapping[str, str]) -> None:
        """Remember what the job is."""
        with self._change() as database:
            database.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", facts.items())

    def place(self) -> str | None:
        """Where the folder of the job was when it was last run."""
        place = self.about().get("place")
        return None if place is None else str(json.loads(place))

    def set_place(self, place: str) -> None:
        """Remember where the folder of the job is."""
        self.set_about({"place": json.dumps(place)})  # which has words for bytes that are no text

    def add(self, files: Iterable[tuple[Path, str]]) -> None:
        """Enter recordings (path, name) as pending, all or none; those that are there stay as they are."""
        with self._change() as database:
            database.executemany(
                "INSERT OR IGNORE INTO files (path, name, state) VALUES (?, ?, 'pending')",
                ((os.fsencode(path), name) for path, name in files),
            )

    def move(self, moves: Iterable[tuple[Path, Path]]) -> None:
        """Recordings lie elsewhere now: (before, now)."""
        with self._change() as database:
            database.executemany(
                "UPDATE files SET path = ? WHERE path = ?",
                ((os.fsencode(now), os.fsencode(before)) for before, now in moves),
            )

    def drop_failed(self, paths: Iterable[Path]) -> None:
        """Recordings that failed are no longer there to be spoken of."""
        with self._change() as database:
            for path in paths:
                own = "SELECT id FROM files WHERE path = ? AND state = 'failed'"
                for table, column in (("events", "file"), ("presence", "file"), ("files", "id")):
                    database.execute(f"DELETE FROM {table} WHERE {column} IN ({own})", (os.fsencode(path),))

    def entry(self, path: Path) -> Entry:
        """What is known of one recording."""
        row = self._one(f"SELECT {_COLUMNS} FROM files WHERE path = ?", os.fsencode(path))
        if row is None:
            raise ArgumentError(f"{path} is not in the ledger {self.path}")
        return _entry(row)

    def entries(self, state: str | None = None) -> Iterator[Entry]:
        """Recordings by name, all or those in one state; one at a time, however many there are."""
        where, values = ("", ()) if state is None else ("WHERE state = ?", (state,))
        with self._speaking():
            for row in self._database.execute(f"SELECT {_COLUMNS} FROM files {where} ORDER BY name", values):
                yield _entry(row)

    def counts(self) -> dict[str, int]:
        """How many recordings are in each state; those that are gone are not counted."""
        with self._speaking():
            found = dict(self._database.execute("SELECT state, count(*) FROM files GROUP BY state"))
        return {state: found.get(state, 0) for state in STATES}

    def recover(self) -> list[Path]:
        """Settle what a process that died left running: suspects, pending again; those of its second death failed."""
        with self._change() as database:
            database.execute("UPDATE files SET attempts = attempts + 1 WHERE state = 'running'")
            dead = "state = 'running' AND attempts > 1"
            for table in ("events", "presence"):
                database.execute(f"DELETE FROM {table} WHERE file IN (SELECT id FROM files WHERE {dead})")
            database.execute(
                f"UPDATE files SET state = 'failed', reason = ?, {_NO_OUTPUTS} WHERE {dead}",
                (DIED_TWICE,),
            )
            database.execute("UPDATE files SET state = 'pending' WHERE state = 'running'")
        with self._speaking():
            suspects = "SELECT path FROM files WHERE state = 'pending' AND attempts > 0 ORDER BY name"
            return [_path(path) for (path,) in self._database.execute(suspects)]

    def begin(self, path: Path, status: os.stat_result | None = None) -> None:
        """The recording is running; events of an earlier run are replaced when this one ends, not before."""
        stamp = _stamp(status)
        kept = ", ".join(
            f"{name} = CASE WHEN size IS ? AND mtime IS ? THEN {name} ELSE {none} END" for name, none in _OLD
        )
        self._update(path, f"state = 'running', {kept}, size = ?, mtime = ?", *stamp, *stamp, *stamp)

    def release(self, settings: Iterable[str] = ()) -> None:
        """What was running is nobody's fault, as the job ends in good order: done as before, or pending.

        Parameters
        ----------
        settings
            With which a recording counts as done; each as in `Entry.settings`.
        """
        with self._change() as database:
            done = "UPDATE files SET state = 'done' WHERE state = 'running' AND settings = ?"
            database.executemany(done, ((own,) for own in settings))
            database.execute("UPDATE files SET state = 'pending' WHERE state = 'running'")

    def settings(self) -> list[str]:
        """All that events were decided with, each once."""
        with self._speaking():
            rows = self._database.execute("SELECT DISTINCT settings FROM files WHERE settings IS NOT NULL")
            return [text for (text,) in rows]

    def postpone(self, settings: Iterable[str]) -> int:
        """Recordings that were done with these settings are pending, until they are done otherwise; how many."""
        with self._change() as database:
            pending = "UPDATE files SET state = 'pending' WHERE state = 'done' AND settings = ?"
            return sum(database.execute(pending, (own,)).rowcount for own in settings)

    def restore(self, path: Path) -> None:
        """The recording is done, as it was before."""
        self._update(path, "state = 'done'")

    def unsettle(self, path: Path) -> None:
        """From now until it is finished, the recording's files and its events here may not agree."""
        self._update(path, "settings = NULL")

    def lose(self, paths: Iterable[Path]) -> None:
        """Recordings are gone from the disk, those that failed apart."""
        with self._change() as database:
            gone = "UPDATE files SET state = 'gone' WHERE path = ? AND state != 'failed'"
            database.executemany(gone, ((os.fsencode(path),) for path in paths))

    def forgive(self, path: Path) -> None:
        """A recording that failed because processes died is pending again, with a clean record."""
        self._update(path, "state = 'pending', reason = NULL, attempts = 0")

    def fail(self, path: Path, reason: str, status: os.stat_result | None = None) -> None:
        """The recording cannot be run, for this reason; events it had are gone."""
        with self._change() as database:
            self._forget(database, path)
            database.execute(
                "UPDATE files SET state = 'failed', reason = ?, size = ?, mtime = ?, attempts = 0, "
                f"{_NO_OUTPUTS} WHERE path = ?",
                (reason, *_stamp(status), os.fsencode(path)),
            )

    def finish(
        self,
        path: Path,
        events: Sequence[Label],
        *,
        status: os.stat_result,
        duration: float,
        seconds: float,
        settings: str,
        formats: str,
        scores: bool,
        digest: str | None = None,
        presence: Iterable[Stretch] = (),
    ) -> None:
        """The recording is done: its events take the place of any it had.

        Parameters
        ----------
        status
            Of the file, asked before it was read.
        digest
            As in `Entry`.
        presence
            Where it was asked for.
        """
        with self._change() as database:
            file = self._forget(database, path)
            database.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                ((file, row.onset, row.offset, row.label, row.confidence) for row in events),
            )
            self._add_presence(database, file, presence)
            database.execute(
                "UPDATE files SET state = 'done', reason = NULL, attempts = 0, size = ?, mtime = ?, duration = ?, "
                "events = ?, seconds = ?, settings = ?, formats = ?, scores = ?, digest = ? WHERE id = ?",
                (*_stamp(status), duration, len(events), seconds, settings, formats, scores, digest, file),
            )

    def set_formats(self, path: Path, formats: str) -> None:
        """The recording's events, unchanged, are now written in these formats."""
        self._update(path, "formats = ?", formats)

    def set_presence(self, path: Path, presence: Iterable[Stretch], settings: str) -> None:
        """The recording's events are what they were, its stretches are these."""
        with self._change() as database:
            row = database.execute("SELECT id FROM files WHERE path = ?", (os.fsencode(path),)).fetchone()
            database.execute("DELETE FROM presence WHERE file = ?", row)
            self._add_presence(database, row[0], presence)
            database.execute("UPDATE files SET settings = ? WHERE id = ?", (settings, row[0]))

    def drop_presence(self, settings: str, now: str) -> None:
        """Recordings decided with these settings have no stretches any more, and other settings, which say so."""
        with self._change() as database:
            database.execute(
                "DELETE FROM presence WHERE file IN (SELECT id FROM files WHERE settings = ?)", (settings,)
            )
            database.execute("UPDATE files SET settings = ? WHERE settings = ?", (now, settings))

    def presence(self, path: Path) -> list[Stretch]:
        """Stretches of a recording that is done, by onset."""
        with self._speaking():
            rows = self._database.execute(
                "SELECT onset, offset, p FROM presence JOIN files ON file = id WHERE path = ? ORDER BY presence.rowid",
                (os.fsencode(path),),
            )
            return [(onset, offset, np.frombuffer(P, "<f4")) for onset, offset, P in rows]

    def events(self, path: Path) -> list[Label]:
        """Events of a recording that is done, by onset."""
        with self._speaking():
            rows = self._database.execute(
                "SELECT name, onset, offset, label, confidence FROM events JOIN files ON file = id WHERE path = ? "
                "ORDER BY events.rowid",
                (os.fsencode(path),),
            )
            return [Label(name, on, off, label, True, confidence) for name, on, off, label, confidence in rows]

    def all_events(self) -> Iterator[tuple[str, Label | None]]:
        """Every recording that is done, by name, with its events; None for one without. One row at a time."""
        with self._speaking():
            for name, on, off, label, confidence in self._database.execute(
                "SELECT name, onset, offset, label, confidence FROM files LEFT JOIN events ON file = id "
                "WHERE state = 'done' ORDER BY name, events.rowid"
            ):
                yield name, None if label is None else Label(name, on, off, label, True, confidence)

    def all_presence(self) -> Iterator[tuple[str, float, float, npt.NDArray[np.float32]]]:
        """Stretches of recordings: name, onset, offset, P (classes,). One row at a time.

        Also of those whose events are still to be decided otherwise: what is likely does not depend on it.
        """
        with self._speaking():
            for name, onset, offset, P in self._database.execute(
                "SELECT name, onset, offset, p FROM files JOIN presence ON file = id "
                "WHERE state != 'gone' AND settings IS NOT NULL ORDER BY name, presence.rowid"
            ):
                yield name, onset, offset, np.frombuffer(P, "<f4")

    @staticmethod
    def _add_presence(database: sqlite3.Connection, file: int, presence: Iterable[Stretch]) -> None:
        database.executemany(
            "INSERT INTO presence VALUES (?, ?, ?, ?)",
            ((file, onset, offset, np.asarray(P, "<f4").tobytes()) for onset, offset, P in presence),
        )

    def _forget(self, database: sqlite3.Connection, path: Path) -> int:
        row = database.execute("SELECT id FROM files WHERE path = ?", (os.fsencode(path),)).fetchone()
        if row is None:
            raise ArgumentError(f"{path} is not in the ledger {self.path}")
        database.execute("DELETE FROM events WHERE file = ?", row)
        database.execute("DELETE FROM presence WHERE file = ?", row)
        return int(row[0])

    def _update(self, path: Path, changes: str, *values: object) -> None:
        with self._change() as database:
            database.execute(f"UPDATE files SET {changes} WHERE path = ?", (*values, os.fsencode(path)))

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self._speaking():
            row: tuple[Any, ...] | None = self._database.execute(query, values).fetchone()
            return row

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it or nothing."""
        with self._speaking():
            try:
                self._database.execute("BEGIN IMMEDIATE")  # within: an interruption may come right after it
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise DataError(f"{self.path}: the ledger cannot be used: {error}") from error


def _stamp(status: os.stat_result | None) -> tuple[int | None, int | None]:
    return (None, None) if status is None else (status.st_size, status.st_mtime_ns)


def _path(raw: bytes) -> Path:
    return Path(os.fsdecode(raw))


def _entry(row: Sequence[Any]) -> Entry:
    values: dict[str, Any] = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Entry(**values | {"path": _path(row[0]), "scores": bool(values["scores"])})
