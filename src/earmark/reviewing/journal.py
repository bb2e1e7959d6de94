"""The journal of a review: every action of every reviewer, one JSON line each, never changed afterwards.

    {"id": "5f0c...", "time": "2026-05-14T22:15:00.120Z", "reviewer": "ada", "action": "verdict", "verdict": "right",
     "events": [{"id": "91ab...", "recording": "night.wav", "label": "owl", "onset": 3.1, "offset": 4.0}]}

An action is acknowledged once its line is on the disk. Its `id` is chosen by the client, so that a request that is
repeated because its answer was lost changes nothing. Undoing and redoing are actions too. Several processes may append;
each reads what the others wrote. A line that a killed process or a full disk cut short is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from earmark.annotations import Label, checked
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.files import json_text, locked, named_errors
from earmark.platforms import append_line
from earmark.schema import Many, parse, parse_json, record

MOST_EVENTS = 10_000
"""Events of one bulk verdict."""

_LONGEST_LINE = 4 << 20  # bytes


def _plain(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError(f"expected text of one line without white space at its ends, got {text!r:.80}")
    return text


Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", examples=["5f0c9a"])]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]


@record
class Target:
    """An event as it was when it was judged, so that its verdict outlives another detection."""

    id: Id
    recording: str
    label: str
    onset: Seconds
    offset: Seconds
    confidence: float | None = None


@record
class Verdict:
    """A judgement of events; "none" withdraws it. `label`, `onset` and `offset` correct those of a single event."""

    events: Annotated[Many[Target], Field(min_length=1, max_length=MOST_EVENTS)]
    verdict: Literal["right", "wrong", "unsure", "none"]
    label: Name | None = None
    onset: Seconds | None = None
    offset: Seconds | None = None
    settles: bool = False  # whether it overrides the verdicts of other reviewers


@record
class Add:
    """An event that was missed. The action's id becomes the event's."""

    recording: str
    label: Name
    onset: Seconds
    offset: Seconds


@record
class Stretch:
    """States that an interval has no events other than those marked; with `empty` False, withdraws the statement."""

    recording: str
    onset: Seconds
    offset: Seconds
    empty: bool = True


@record
class Checked:
    """States that a whole recording has no events other than those marked, or withdraws the statement."""

    recording: str
    checked: bool = True


@record
class Note:
    """A remark on a recording or an event; an empty one removes it."""

    recording: str
    text: Annotated[str, Field(max_length=4000)]
    event: Id | None = None


@record
class Undo:
    """An earlier action no longer counts."""

    target: Id


@record
class Redo:
    """An action that was undone counts again."""

    target: Id


Action = Verdict | Add | Stretch | Checked | Note | Undo | Redo

KINDS: Mapping[str, type[Action]] = {
    "verdict": Verdict,
    "add": Add,
    "stretch": Stretch,
    "checked": Checked,
    "note": Note,
    "undo": Undo,
    "redo": Redo,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True)
class Entry:
    """One line of the journal."""

    id: str
    time: str  # UTC, ISO 8601
    reviewer: str
    action: Action

    def to_dict(self) -> dict[str, Any]:
        """The values of its line."""
        about = {"id": self.id, "time": self.time, "reviewer": self.reviewer, "action": _NAMES[type(self.action)]}
        return about | _without_defaults(self.action)


def parse_entry(values: Mapping[str, Any], *, error: type[EarmarkError] = DataError) -> Entry:
    """Check the values of a line or a request; a missing `time` is the present one."""
    rest = dict(values)
    about = {name: rest.pop(name, None) for name in ("id", "time", "reviewer", "action")}
    if about["time"] is None:
        about["time"] = now()
    head = parse(_Head, about, error=error)
    action = parse(KINDS[head.action], rest, error=error)
    _check_times(action)
    return Entry(head.id, head.time, head.reviewer, action)


@record
class _Head:
    id: Id
    time: Annotated[str, Field(pattern=r"^[0-9T:.+Z-]{10,40}$", examples=["2026-05-14T22:15:00.120Z"])]
    reviewer: Name
    action: Literal["verdict", "add", "stretch", "checked", "note", "undo", "redo"]


def _check_times(action: Action) -> None:
    """Reject intervals without a positive length, and corrections of several events or of wrong ones."""
    if isinstance(action, Verdict) and (action.label or action.onset is not None or action.offset is not None):
        if action.verdict != "right" or len(action.events) != 1:
            raise DataError("expected a correction of one event with verdict right")
        target = action.events[0]
        onset = target.onset if action.onset is None else action.onset
        offset = target.offset if action.offset is None else action.offset
        checked(Label(target.recording, onset, offset, action.label or target.label))
        _check_length(onset, offset)
    if isinstance(action, Add | Stretch):
        checked(Label(action.recording, action.onset, action.offset, getattr(action, "label", "any")))
        _check_length(action.onset, action.offset)


def _check_length(onset: float, offset: float) -> None:
    if offset <= onset:
        raise DataError(f"expected an offset after the onset, got onset {onset}, offset {offset}")


class Journal:
    """The journal in a file, created by the first action.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, "verdicts.jsonl"))
    ...     action = {"id": "a", "reviewer": "ada", "action": "checked", "recording": "night.wav"}
    ...     journal.append(parse_entry(action)), journal.append(parse_entry(action)), len(list(journal.read_new()))
    (True, False, 1)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0  # lines that could not be read
        self._read = 0  # bytes
        self._ids: set[str] = set()
        self._unseen: list[Entry] = []  # read, and not yet returned by `read_new`

    def append(self, entry: Entry) -> bool:
        """Write an action and wait until it is on the disk; False if it was written before."""
        line = json_text(entry.to_dict(), ensure_ascii=False).encode() + b"\n"
        if len(line) > _LONGEST_LINE:
            raise ArgumentError(f"expected an action of at most {_LONGEST_LINE >> 20} MiB, got {len(line) >> 20} MiB")
        with locked(self.path.parent, wait=True, name=".verdicts.lock"):
            self._update()
            if entry.id in self._ids:
                return False
            with named_errors(self.path):
                append_line(self.path, line)
            self._update()
        return True

    def read_new(self) -> Iterator[Entry]:
        """Actions, of this process and others, that were not returned before."""
        self._update()
        entries, self._unseen = self._unseen, []
        return iter(entries)

    def _update(self) -> None:
        """Read lines that were appended, up to the last complete one."""
        try:
            if self.path.exists() and not self.path.is_file():  # a pipe would wait for a writer
                raise DataError(f"{self.path}: expected a file")
            with self.path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror}") from error
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.split(b"\n")[:-1]:
            try:
                entry = parse_entry(parse_json(dict[str, Any], line))
            except (EarmarkError, UnicodeError):
                self.damaged += bool(line.strip())
                continue
            if entry.id not in self._ids:
                self._ids.add(entry.id)
                self._unseen.append(entry)


def now() -> str:
    """The time, in UTC to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _without_defaults(action: Action) -> dict[str, Any]:
    """Fields of an action, without those that are None and without `settles` if it is False."""
    values = {name: value for name, value in vars(action).items() if not name.startswith("_")}
    if isinstance(action, Verdict):
        values["events"] = [
            {name: value for name, value in vars(event).items() if value is not None} for event in action.events
        ]
        if not action.settles:
            del values["settles"]
    return {name: value for name, value in values.items() if value is not None}
