"""The state of a review: events with their verdicts, derived from the source and the journal.

Reviewers judge independently; an event on which they disagree is `disputed` until they agree or one of them settles it.
An event without a verdict is `wrong` if a reviewer has marked its interval as having no other events. Undone actions do
not count. The state is a function of the journal, so that it is the same after a restart and in every process.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError
from earmark.reviewing.events import STATUSES, Decision, Event, Tally
from earmark.reviewing.intervals import Intervals, covers, subtract, union
from earmark.reviewing.journal import (
    Add,
    Checked,
    Entry,
    Journal,
    Note,
    Redo,
    Stretch,
    Target,
    Undo,
    Verdict,
    parse_entry,
)
from earmark.reviewing.source import Given, Recording, Source

Floats = npt.NDArray[np.float64]


class _Stack:
    """Actions of one reviewer that can be undone, and those that can be redone."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.undone: list[str] = []

    def act(self, entry: Entry) -> None:
        if isinstance(entry.action, Undo | Redo):
            source, target = (self.done, self.undone) if isinstance(entry.action, Undo) else (self.undone, self.done)
            if entry.action.target in source:
                source.remove(entry.action.target)
                target.append(entry.action.target)
        else:
            self.done.append(entry.id)
            self.undone.clear()


class Review:
    """A review in progress. Methods may be called from several threads."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.journal = Journal(source.folder / "verdicts.jsonl")
        self.lock = threading.RLock()
        self.number = 0  # of actions so far
        self.events: dict[str, Event] = {given.id: Event(given) for given in source.events}
        self.by_recording: dict[int, list[str]] = defaultdict(list)
        for given in source.events:
            self.by_recording[given.recording].append(given.id)
        self.index = {recording.name: recording.index for recording in source.recordings}
        self.classes: list[str] = list(source.classes)
        self.notes: dict[str, str] = {}  # by id of the event, or "recording:NAME"
        self.entries: dict[str, Entry] = {}
        self.sequence: list[Entry] = []
        self.reviewers: Counter[str] = Counter()
        self._inactive: set[str] = set()  # undone
        self._removed: dict[str, Event] = {}  # whose addition is undone
        self._stacks: dict[str, _Stack] = defaultdict(_Stack)
        self._about_recording: dict[int, list[Entry]] = defaultdict(list)  # stretches and checks
        self._notes: dict[str, list[tuple[str, Note]]] = defaultdict(list)  # with the ids of their actions
        self._empty: dict[int, Intervals] = {}
        self.checked: dict[int, bool] = {}
        self._changed_recordings: dict[int, int] = {}
        self._changes: list[tuple[int, str]] = []  # number of an action, and an event that it changed
        self._spans: dict[int, tuple[list[str], Floats, Floats]] = {}
        self.tally = Tally()
        for event in self.events.values():
            self.tally.update(event)
        self.update()

    # Reading

    def update(self) -> None:
        """Apply actions that were appended to the journal, by this process or others."""
        with self.lock:
            for entry in self.journal.read_new():
                self._apply(entry)

    def event(self, id: str) -> Event:
        """One event."""
        event = self.events.get(id)
        if event is None:
            raise ArgumentError(f"there is no event {id!r}")
        return event

    def recording(self, index: int) -> Recording:
        """One recording."""
        if not 0 <= index < len(self.source.recordings):
            raise ArgumentError(f"there is no recording {index}")
        return self.source.recordings[index]

    def events_of(self, index: int) -> list[Event]:
        """Events of a recording."""
        return [self.events[id] for id in self.by_recording.get(index, ())]

    def events_between(self, index: int, onset: float, offset: float) -> list[Event]:
        """Events of a recording that overlap an interval, corrected or as they were given."""
        if index not in self._spans:
            events = self.events_of(index)
            extents = np.array([event.extent for event in events], np.float64).reshape(-1, 2)
            self._spans[index] = [event.id for event in events], extents[:, 0], extents[:, 1]
        ids, first, last = self._spans[index]
        return [self.events[ids[k]] for k in np.flatnonzero((first < offset) & (last > onset))]

    def describe(self, event: Event) -> dict[str, Any]:
        """An event as JSON for the page."""
        return event.to_dict(self.source.recordings[event.given.recording], self.notes)

    def empty_intervals(self, index: int) -> Intervals:
        """Intervals of a recording that were marked as having no other events."""
        if self.checked.get(index):
            return [(0.0, self.source.recordings[index].seconds() or 1e9)]
        return self._empty.get(index, [])

    def describe_recording(self, index: int) -> dict[str, Any]:
        """Statements about a whole recording, and counts of its events, as JSON for the page."""
        name = self.source.recordings[index].name
        counts = self.tally.by_recording[index]
        return {
            "index": index,
            "name": name,
            "checked": self.checked.get(index, False),
            "empty": [list(interval) for interval in self._empty.get(index, [])],
            "note": self.notes.get(f"recording:{name}", ""),
            "counts": {status: counts[status] for status in STATUSES if counts[status]},
        }

    def changed_since(self, number: int) -> tuple[list[Event], list[int]]:
        """Events and indices of recordings that were changed by actions after number `number`."""
        first = bisect_right(self._changes, number, key=lambda change: change[0])
        ids = dict.fromkeys(id for _, id in self._changes[first:])
        events = [self.events[id] for id in ids if id in self.events]
        return events, [index for index, at in self._changed_recordings.items() if at > number]

    def progress(self) -> dict[str, Any]:
        """Counts of events by class and status, of checked recordings, and of actions by reviewer."""
        with self.lock:
            counts = {label: self.tally.by_label[label] for label in self.classes}
            total = sum(counts.values(), Counter())
            return {
                "classes": [{"label": label, **_all(count)} for label, count in counts.items()],
                "total": _all(total),
                "recordings": len(self.source.recordings),
                "checked": sum(self.checked.values()),
                "reviewers": dict(self.reviewers),
                "damaged": self.journal.damaged,
                "number": self.number,
            }

    def can_undo(self, reviewer: str) -> dict[str, str | None]:
        """Ids of the actions that undo and redo would affect."""
        stack = self._stacks[reviewer]
        return {"undo": stack.done[-1] if stack.done else None, "redo": stack.undone[-1] if stack.undone else None}

    def history(self, limit: int = 100) -> Iterator[tuple[Entry, bool]]:
        """The latest actions, newest first, and whether they count."""
        for entry in self.sequence[: -limit - 1 : -1]:
            yield entry, entry.id not in self._inactive

    # Acting

    def act(self, values: Mapping[str, Any]) -> Entry:
        """Check the action of a request, write it to the journal and apply it; a repeated one changes nothing."""
        with self.lock:
            self.update()
            known = self.entries.get(str(values.get("id")))
            if known is not None:
                return known
            entry = parse_entry(self._completed(values), error=ArgumentError)
            self._check(entry)
            self.journal.append(entry)
            self.update()
            return self.entries[entry.id]

    def _completed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A request with what only the server knows: the events as they were given, and the action to undo or redo."""
        whole = {name: value for name, value in values.items() if name != "time"}
        kind, reviewer = whole.get("action"), whole.get("reviewer")
        if kind == "verdict":
            ids = whole.get("events")
            if not isinstance(ids, list) or not ids or not all(isinstance(id, str) for id in ids):
                raise ArgumentError("events: expected a list of ids")
            whole["events"] = [self._target(self.event(id)) for id in dict.fromkeys(ids)]
        if kind in ("undo", "redo") and "target" not in whole:
            target = self.can_undo(str(reviewer))[str(kind)]
            if target is None:
                raise ArgumentError(f"there is nothing to {kind}")
            whole["target"] = target
        return whole

    def _target(self, event: Event) -> dict[str, Any]:
        given = event.given
        name = self.source.recordings[given.recording].name
        target = {"id": given.id, "recording": name, "label": given.label, "onset": given.onset}
        return target | {"offset": given.offset, "confidence": given.confidence}

    def _check(self, entry: Entry) -> None:
        """Reject unknown recordings, events and actions, and times after the end of the recording."""
        action = entry.action
        if isinstance(action, Add | Stretch | Checked | Note) and action.recording not in self.index:
            raise ArgumentError(f"there is no recording {action.recording!r}")
        if isinstance(action, Note) and action.event is not None:
            self.event(action.event)
        if isinstance(action, Undo | Redo):
            stack = self._stacks[entry.reviewer]
            if action.target not in (stack.done if isinstance(action, Undo) else stack.undone):
                raise ArgumentError(f"{entry.reviewer} has no action {action.target!r} to change")
        if isinstance(action, Add | Stretch | Verdict) and action.offset is not None:
            name = action.events[0].recording if isinstance(action, Verdict) else action.recording
            seconds = self.source.recordings[self.index[name]].seconds()
            if seconds and action.offset > seconds + 0.01:
                raise ArgumentError(f"expected an offset within the {seconds:.3f} s of {name}, got {action.offset}")

    # Applying

    def _apply(self, entry: Entry) -> None:
        if entry.id in self.entries:
            return
        self.entries[entry.id] = entry
        self.sequence.append(entry)
        self.number += 1
        self.reviewers[entry.reviewer] += 1
        self._stacks[entry.reviewer].act(entry)
        action = entry.action
        if isinstance(action, Undo | Redo):
            earlier = self.entries.get(action.target)
            if earlier is not None and earlier.reviewer == entry.reviewer:
                if isinstance(action, Undo):
                    self._inactive.add(earlier.id)
                else:
                    self._inactive.discard(earlier.id)
                self._refresh(earlier)
            return
        if isinstance(action, Verdict):
            for target in action.events:
                self._known(target).entries.append(entry)
        elif isinstance(action, Note):
            self._notes[_note_key(action)].append((entry.id, action))
        elif isinstance(action, Stretch | Checked) and action.recording in self.index:
            self._about_recording[self.index[action.recording]].append(entry)
        self._refresh(entry)

    def _known(self, target: Target) -> Event:
        """The event that a verdict is about; it is added if the latest detection does not contain it."""
        event = self.events.get(target.id)
        if event is not None:
            return event
        if target.recording not in self.index:
            return Event(Given(target.id, -1, target.label, target.onset, target.offset, None))  # of another job
        index = self.index[target.recording]
        given = Given(target.id, index, target.label, target.onset, target.offset, target.confidence)
        for id in list(self.by_recording[index]):
            other = self.events[id]
            if other.source == "given" and not other.entries and _overlap(other.given, given) >= 0.5:
                given = given._replace(confidence=other.given.confidence)  # detected again, with other edges
                self._remove(other)
        return self._insert(Event(given, "earlier"))

    def _insert(self, event: Event) -> Event:
        self.events[event.id] = event
        self.by_recording[event.given.recording].append(event.id)
        self._add_class(event.given.label)
        self._note_change(event, moved=True)
        return event

    def _remove(self, event: Event) -> None:
        del self.events[event.id]
        self.by_recording[event.given.recording].remove(event.id)
        self._note_change(event, moved=True, is_gone=True)

    def _refresh(self, entry: Entry) -> None:
        """Update what an action concerns, after it was written, undone or redone."""
        action = entry.action
        if isinstance(action, Verdict):
            for target in action.events:
                if target.id in self.events:
                    self._judge(self.events[target.id])
            if action.label:
                self._add_class(action.label)
        elif isinstance(action, Add):
            self._refresh_added(entry, action)
        elif isinstance(action, Note):
            self._refresh_note(action)
        elif isinstance(action, Stretch | Checked) and action.recording in self.index:
            self._refresh_recording(self.index[action.recording])

    def _add_class(self, label: str) -> None:
        if label not in self.classes:
            self.classes.append(label)

    def _refresh_note(self, action: Note) -> None:
        """Derive the note on an event or a recording: the latest text that is not undone."""
        key = _note_key(action)
        texts = [note.text for id, note in self._notes[key] if id not in self._inactive]
        self.notes.pop(key, None)
        if texts and texts[-1].strip():
            self.notes[key] = texts[-1]
        if action.event in self.events:
            self._note_change(self.events[str(action.event)])
        elif action.recording in self.index:
            self._changed_recordings[self.index[action.recording]] = self.number

    def _refresh_added(self, entry: Entry, action: Add) -> None:
        """Insert an added event, and remove it while its addition is undone."""
        if action.recording not in self.index:
            return
        index = self.index[action.recording]
        is_active = entry.id not in self._inactive
        if is_active and entry.id not in self.events:
            given = Given(entry.id, index, action.label, action.onset, action.offset, None)
            self._insert(self._removed.pop(entry.id, Event(given, "added", entries=[entry])))
        elif not is_active and entry.id in self.events:
            self._removed[entry.id] = self.events[entry.id]
            self._remove(self.events[entry.id])
        self._changed_recordings[index] = self.number
        if entry.id in self.events:
            self._judge(self.events[entry.id])

    def _refresh_recording(self, index: int) -> None:
        """Derive stretches and checks of a recording, and the verdicts that follow from them."""
        empty: Intervals = []
        is_checked = False
        for entry in self._about_recording[index]:
            action = entry.action
            if entry.id in self._inactive:
                continue
            if isinstance(action, Checked):
                is_checked = action.checked
            elif isinstance(action, Stretch):
                part = [(action.onset, action.offset)]
                empty = union(empty, part) if action.empty else subtract(empty, part)
        self._empty[index], self.checked[index] = empty, is_checked
        self._changed_recordings[index] = self.number
        for event in self.events_of(index):
            if not event.decisions:
                self._judge(event)

    def _judge(self, event: Event) -> None:
        """Derive the status of an event from the actions about it."""
        given = event.given
        decisions: dict[str, Decision] = {}
        for entry in event.entries:
            action = entry.action
            if entry.id in self._inactive:
                continue
            if isinstance(action, Add):
                decisions[entry.reviewer] = Decision("right", given.label, given.onset, given.offset)
            elif isinstance(action, Verdict):
                if action.settles:
                    decisions.clear()
                decisions.pop(entry.reviewer, None)
                if action.verdict != "none":
                    decisions[entry.reviewer] = Decision(
                        action.verdict,
                        action.label or given.label,
                        given.onset if action.onset is None else action.onset,
                        given.offset if action.offset is None else action.offset,
                    )
        opinions = {(d.verdict, d.label if d.verdict == "right" else "") for d in decisions.values()}
        before = event.status, event.by_stretch, event.decisions
        event.decisions = decisions
        event.by_stretch = False
        if len(opinions) > 1:
            event.status = "disputed"
        elif opinions:
            event.status = next(iter(opinions))[0]
        else:
            event.by_stretch = covers(self.empty_intervals(given.recording), given.onset, given.offset)
            event.status = "wrong" if event.by_stretch else "open"
        if (event.status, event.by_stretch, event.decisions) != before:
            edges = {(d.onset, d.offset) for d in (*before[2].values(), *decisions.values())}
            self._note_change(event, moved=bool(edges - {(given.onset, given.offset)}))

    def _note_change(self, event: Event, *, moved: bool = False, is_gone: bool = False) -> None:
        """Record that an event changed; `moved` if its interval may have."""
        self._changes.append((self.number, event.id))
        self.tally.update(event, is_gone=is_gone)
        if moved:
            self._spans.pop(event.given.recording, None)


def _all(counts: Mapping[str, int]) -> dict[str, int]:
    return {status: counts.get(status, 0) for status in STATUSES}


def _note_key(action: Note) -> str:
    return action.event or f"recording:{action.recording}"


def _overlap(a: Given, b: Given) -> float:
    """Intersection over union of two events; 0 if they have different labels."""
    common = min(a.offset, b.offset) - max(a.onset, b.onset)
    if a.label != b.label or common <= 0:
        return 0.0
    return common / (max(a.offset, b.offset) - min(a.onset, b.onset))
