"""The ledger of a detection job: one SQLite file with every recording, its events and the files written for it.

A recording is identified by its absolute path, size and modification time. It is `failed` if there is a reason why it
could not be read, `done` if its events were decoded with the job's current decoder, and otherwise `pending`. A
`missing` recording was removed from a folder that was given: its results are kept in case it returns, but tables and
counts leave it out.

`attempts` is increased before a recording is read and reset afterwards, so a file that crashes the process is noticed.
Of every file that the job writes, the ledger holds the SHA-256: a file with another hash was edited by the user.

Every change is one transaction: a job that is killed at any moment continues from the last complete one. Paths are
stored as the bytes of the file system.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field

from earmark.annotations import Label
from earmark.errors import ArgumentError, DataError
from earmark.platforms import refuse_link
from earmark.schema import parse, record

_VERSION = 4
_LARGEST = 2**63 - 1  # integer in SQLite
UNSAFE = r"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff]"
"""A pattern for characters that names cannot hold: backslashes, control characters, bytes that are not UTF-8."""
_SCHEMA = f"""
BEGIN;
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE recordings (
    id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, size INTEGER, mtime INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0, missing INTEGER NOT NULL DEFAULT 0, reason TEXT, decoder TEXT, duration REAL,
    events INTEGER, scores INTEGER NOT NULL DEFAULT 0, horizon REAL, presence BLOB, began TEXT
);
CREATE VIEW entries AS SELECT *, CASE
    WHEN reason IS NOT NULL THEN 'failed'
    WHEN decoder = (SELECT value FROM about WHERE key = 'decoder') THEN 'done'
    ELSE 'pending' END AS state FROM recordings;
CREATE TABLE events (
    recording INTEGER NOT NULL, onset REAL NOT NULL, offset REAL NOT NULL, label TEXT NOT NULL, confidence REAL
);
CREATE INDEX events_of ON events (recording);
CREATE TABLE gaps (recording INTEGER NOT NULL, onset REAL NOT NULL, offset REAL, reason TEXT NOT NULL);
CREATE INDEX gaps_of ON gaps (recording);
CREATE TABLE outputs (
    path TEXT NOT NULL, sha256 TEXT NOT NULL, kind TEXT NOT NULL, recording INTEGER, PRIMARY KEY (path, sha256)
);
CREATE INDEX outputs_of ON outputs (recording);
INSERT INTO about VALUES ('decoder', '');
PRAGMA user_version = {_VERSION};
COMMIT;
"""


def _check_name(name: str) -> str:
    """Names become paths of output files, which must be below the folder of the job."""
    parts = name.split("/")
    if re.search(UNSAFE, name) or not all(parts) or {".", ".."} & set(parts):
        raise ValueError(f"expected a relative path, got {name!r}")
    return name


Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


@record
class Entry:
    """A recording in the ledger."""

    id: Count
    path: Path
    name: Annotated[str, AfterValidator(_check_name)]  # in tables: a path in plain text, unique within the job
    size: int | None  # bytes, when it was last read; None if there was no file
    mtime: int | None  # modification time in nanoseconds, when it was last read
    attempts: Count  # processes that died while they worked on it
    missing: bool  # whether it was removed from a folder that was given
    reason: str | None  # why it failed
    decoder: str | None  # identifies the decoder of its events; None if there are no valid events
    duration: Seconds | None
    events: Count | None  # number of events
    scores: bool  # whether its frame probabilities are kept
    horizon: Annotated[float, Field(gt=0, allow_inf_nan=True)] | None  # seconds of its presence; None without
    began: datetime | None  # when the recording began, by its name or metadata
    state: Literal["pending", "done", "failed"]

    def is_unchanged(self, status: os.stat_result | None) -> bool:
        """Whether the file has the size and modification time it had when it was read."""
        return (self.size, self.mtime) == _stamp(status)


@record
class _Event:
    onset: Seconds
    offset: Seconds
    label: str
    confidence: Annotated[float, Field(ge=0, le=1)] | None


_COLUMNS = ", ".join(field.name for field in fields(Entry))


class Ledger:
    """The ledger in a file, created if necessary. With `read_only`, it can be read while the job runs.

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
            raise ArgumentError(f"{path}: no such ledger")
        if not read_only:
            refuse_link(path)
        mode = "rwc"
        if read_only:
            # An unfinished transaction of a dead process is rolled back when the file is opened, if it is writable.
            mode = "rw" if os.access(path, os.W_OK) else "ro"
        target = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
        with self._database_errors():
            self._database = sqlite3.connect(target, uri=True, isolation_level=None, check_same_thread=False)
            try:
                self._set_up(read_only)
            except BaseException:
                self._database.close()
                raise

    def _set_up(self, read_only: bool) -> None:
        self._database.execute("PRAGMA busy_timeout = 10000")
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        is_new = not read_only and not self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version != _VERSION and not is_new:
            raise ArgumentError(f"{self.path}: written by another version of earmark; choose another folder")
        if read_only:
            self._database.execute("PRAGMA query_only = ON")
            return
        self._database.execute("PRAGMA synchronous = FULL")  # a change is on the disk when its transaction ends
        self._database.execute("PRAGMA journal_mode = TRUNCATE")
        if is_new:
            self._database.executescript(_SCHEMA)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; no journal is left next to it."""
        with suppress(sqlite3.DatabaseError):  # if the disk is no longer writable, an empty journal stays
            self._database.execute("PRAGMA journal_mode = DELETE")
        self._database.close()

    def about(self) -> dict[str, str]:
        """Facts about the job: see `earmark.detection.job`."""
        facts = {"decoder": "", **dict(self._rows("SELECT key, value FROM about"))}
        return parse(dict[str, str], facts, where=self.path)

    def entry(self, path: Path) -> Entry:
        """One recording."""
        for row in self._rows(f"SELECT {_COLUMNS} FROM entries WHERE path = ?", os.fsencode(path)):
            return self._entry(row)
        raise ArgumentError(f"{path} is not in the ledger {self.path}")

    def entries(self, state: str | None = None, *, with_missing: bool = False) -> Iterator[Entry]:
        """Recordings by name, all or those in one state; read one by one."""
        where = "(? IS NULL OR state = ?) AND (? OR NOT missing)"
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY name"
        return map(self._entry, self._rows(query, state, state, with_missing))

    def counts(self) -> Counter[str]:
        """Number of recordings in each state."""
        return Counter(dict(self._rows("SELECT state, count(*) FROM entries WHERE NOT missing GROUP BY state")))

    def events(self, entry: Entry) -> list[Label]:
        """Events of a recording, by onset."""
        query = "SELECT onset, offset, label, confidence FROM events WHERE recording = ? ORDER BY rowid"
        return [self._event(entry.name, row) for row in self._rows(query, entry.id)]

    def all_events(self) -> Iterator[tuple[str, Label | None]]:
        """Events of all recordings that are done, by name; a recording without events has one None."""
        for name, *row in self._rows(
            "SELECT name, onset, offset, label, confidence FROM entries LEFT JOIN events ON recording = id "
            "WHERE state = 'done' AND NOT missing ORDER BY name, events.rowid"
        ):
            yield name, None if row[2] is None else self._event(name, row)

    def all_gaps(self) -> Iterator[tuple[str, float, float | None, str]]:
        """Name, onset, offset and reason of missing sound in recordings that are done."""
        return self._rows(
            "SELECT name, onset, offset, gaps.reason FROM entries JOIN gaps ON recording = id "
            "WHERE state = 'done' AND NOT missing ORDER BY name, gaps.rowid"
        )

    def has_gaps(self, entry: Entry) -> bool:
        """Whether audio was missing in a recording."""
        return any(self._rows("SELECT 1 FROM gaps WHERE recording = ? LIMIT 1", entry.id))

    def all_presence(self, horizon: float) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
        """Names of recordings, and what `set_presence` stored for them, flat; those pooled over a horizon."""
        query = "SELECT name, presence FROM recordings WHERE NOT missing AND horizon = ? ORDER BY name"
        for name, presence in self._rows(query, horizon):
            if not isinstance(presence, bytes) or len(presence) % 8:
                raise DataError(f"{self.path}: {name!r}: presence: expected bytes of 64-bit numbers")
            yield name, np.frombuffer(presence, "<f8")

    def outputs(self, entry: Entry) -> dict[str, str]:
        """Kinds of the files that were written for a recording, by relative path."""
        rows = list(self._rows("SELECT path, kind FROM outputs WHERE recording = ?", entry.id))
        return dict(parse(list[tuple[str, str]], rows, where=self.path))

    def views(self) -> list[str]:
        """Relative paths of figures and reports."""
        rows = self._rows("SELECT DISTINCT path FROM outputs WHERE kind = 'view'")
        return parse(list[str], [path for (path,) in rows], where=self.path)

    def hashes(self, output: str) -> set[str]:
        """SHA-256 that a file of the job may have; two if a process died while it replaced the file."""
        return {row[0] for row in self._rows("SELECT sha256 FROM outputs WHERE path = ?", output)}

    def set_about(self, facts: Mapping[str, str]) -> None:
        """Store facts about the job."""
        self._write("INSERT OR REPLACE INTO about VALUES (?, ?)", facts.items())

    def add(self, recordings: Iterable[tuple[Path, str]]) -> None:
        """Enter recordings (path, name); those that are known keep their results and are not missing."""
        self._write(
            "INSERT INTO recordings (path, name) VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET missing = 0",
            ((os.fsencode(path), name) for path, name in recordings),
        )

    def set_missing(self, paths: Iterable[Path]) -> None:
        """Leave recordings out of all tables until they are added again."""
        self._write("UPDATE recordings SET missing = 1 WHERE path = ?", ((os.fsencode(path),) for path in paths))

    def begin(self, path: Path, status: os.stat_result | None = None) -> None:
        """A recording is about to be read. If the file changed, earlier results are no longer valid."""
        with self._transaction() as database:
            entry = self.entry(path)
            if not entry.is_unchanged(status):
                self._clear(entry.id)
            update = "UPDATE recordings SET attempts = attempts + 1, size = ?, mtime = ? WHERE id = ?"
            database.execute(update, (*_stamp(status), entry.id))

    def release(self, paths: Iterable[Path]) -> None:
        """Recordings were begun and not finished, but the process did not die."""
        update = "UPDATE recordings SET attempts = max(0, attempts - 1) WHERE path = ?"
        self._write(update, ((os.fsencode(path),) for path in paths))

    def finish(
        self,
        path: Path,
        events: Sequence[Label],
        *,
        status: os.stat_result,
        duration: float,
        scores: bool = False,
        began: datetime | None = None,
    ) -> None:
        """A recording is done. `status` was taken before the file was read; `scores` is whether they are kept."""
        with self._transaction() as database:
            id = self.entry(path).id
            database.execute("DELETE FROM events WHERE recording = ?", (id,))
            database.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                ((id, row.onset, row.offset, row.label, row.confidence) for row in events),
            )
            database.execute(
                "UPDATE recordings SET reason = NULL, attempts = 0, size = ?, mtime = ?, duration = ?, events = ?, "
                "scores = ?, began = ?, decoder = (SELECT value FROM about WHERE key = 'decoder') WHERE id = ?",
                (*_stamp(status), duration, len(events), scores, began and began.isoformat(), id),
            )

    def set_gaps(self, path: Path, gaps: Sequence[tuple[float, float | None, str]]) -> None:
        """Store onset, offset and reason of missing sound in a recording."""
        with self._transaction() as database:
            id = self.entry(path).id
            database.execute("DELETE FROM gaps WHERE recording = ?", (id,))
            database.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?)", ((id, *gap) for gap in gaps))

    def set_presence(self, path: Path, horizon: float, intervals: npt.NDArray[np.floating]) -> None:
        """Store probabilities pooled over a horizon: (intervals, 2 + classes), with onset and offset in front."""
        values = (horizon, np.asarray(intervals, "<f8").tobytes(), os.fsencode(path))
        self._write("UPDATE recordings SET horizon = ?, presence = ? WHERE path = ?", [values])

    def fail(self, path: Path, reason: str, status: os.stat_result | None = None, *, attempts: int = 0) -> None:
        """A recording could not be read; earlier results are dropped."""
        with self._transaction() as database:
            id = self.entry(path).id
            self._clear(id)
            update = "UPDATE recordings SET reason = ?, size = ?, mtime = ?, attempts = ? WHERE id = ?"
            database.execute(update, (reason, *_stamp(status), attempts, id))

    def record_outputs(
        self, outputs: Iterable[tuple[str, str, set[str]]], *, recording: Path | None = None, new_events: bool = False
    ) -> None:
        """Files (path, kind, hashes) will be replaced; with new events, the recording is pending until `finish`."""
        with self._transaction() as database:
            id = None if recording is None else self.entry(recording).id
            for path, kind, hashes in outputs:
                database.execute("DELETE FROM outputs WHERE path = ?", (path,))
                rows = ((path, sha256, kind, id) for sha256 in hashes)
                database.executemany("INSERT INTO outputs VALUES (?, ?, ?, ?)", rows)
            if new_events:
                database.execute("UPDATE recordings SET decoder = NULL WHERE id = ?", (id,))

    def forget_output(self, path: str) -> None:
        """A file is no longer the job's."""
        self._write("DELETE FROM outputs WHERE path = ?", [(path,)])

    def _clear(self, id: int) -> None:
        """Drop the results of a recording, within a transaction."""
        self._database.execute("DELETE FROM events WHERE recording = ?", (id,))
        self._database.execute("DELETE FROM gaps WHERE recording = ?", (id,))
        self._database.execute(
            "UPDATE recordings SET attempts = 0, reason = NULL, decoder = NULL, duration = NULL, events = NULL, "
            "scores = 0, horizon = NULL, presence = NULL, began = NULL WHERE id = ?",
            (id,),
        )

    def _entry(self, row: Sequence[Any]) -> Entry:
        values = dict(zip(_COLUMNS.split(", "), row, strict=True))
        kinds: dict[str, Callable[[Any], object]] = {
            "path": os.fsdecode,
            "missing": bool,
            "scores": bool,
            "began": datetime.fromisoformat,
        }
        for name, kind in kinds.items():
            with suppress(TypeError, ValueError):  # None stays None; anything else is reported below
                values[name] = kind(values[name])
        values["path"] = Path(values["path"]) if isinstance(values["path"], str) else None
        return parse(Entry, values, where=f"{self.path}: recording {values['name']!r}")

    def _event(self, name: str, row: Sequence[Any]) -> Label:
        values = dict(zip(("onset", "offset", "label", "confidence"), row, strict=True))
        event = parse(_Event, values, where=f"{self.path}: events of {name!r}")
        return Label(name, event.onset, event.offset, event.label, True, event.confidence)

    def _rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with self._database_errors():
            # through `map`, since closing this generator would close a cursor, perhaps of a closed database
            yield from map(tuple, self._database.execute(query, values))

    def _write(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        with self._transaction() as database:
            database.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._database_errors():
            try:
                self._database.execute("BEGIN IMMEDIATE")  # inside: an interruption may come right after it
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the second in the message of a damaged file
            raise DataError(f"{self.path}: the ledger cannot be used: {error}") from error


def _stamp(status: os.stat_result | None) -> tuple[int | None, int | None]:
    """Size and modification time; a clock beyond what SQLite can store, after 2262, is cut off there."""
    if status is None:
        return None, None
    return status.st_size, max(-_LARGEST - 1, min(status.st_mtime_ns, _LARGEST))
