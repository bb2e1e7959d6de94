"""Events with the decisions of reviewers, and counts of events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from earmark.reviewing.journal import Entry
from earmark.reviewing.source import Given, Recording

STATUSES = ("open", "right", "wrong", "unsure", "disputed")


class Decision(NamedTuple):
    """The decision of one reviewer about an event, with the label and edges that it should have."""

    verdict: str
    label: str
    onset: float
    offset: float


@dataclass
class Event:
    """An event with the decisions of reviewers."""

    given: Given
    source: str = "given"  # or "added" by a reviewer, or "earlier": judged, but not in the latest detection
    decisions: dict[str, Decision] = field(default_factory=dict)  # by reviewer
    status: str = "open"
    by_stretch: bool = False  # wrong because a reviewer marked the interval as having no other events
    entries: list[Entry] = field(default_factory=list)  # of the journal, about this event
    tallied: tuple[str, str, bool] | None = None  # label, status and whether it is judged, as `Tally` counted it last

    @property
    def id(self) -> str:
        """The id of the event as it was given."""
        return self.given.id

    @property
    def extent(self) -> tuple[float, float]:
        """The interval that covers the event, both corrected and as it was given."""
        now, given = self.current, self.given
        return min(now.onset, given.onset), max(now.offset, given.offset)

    @property
    def current(self) -> Decision:
        """Label and edges after corrections; of several reviewers, the latest who says that it is right."""
        given = self.given
        if not self.decisions:
            return Decision(self.status, given.label, given.onset, given.offset)
        right = [decision for decision in self.decisions.values() if decision.verdict == "right"]
        return right[-1] if right else Decision(self.status, given.label, given.onset, given.offset)

    def to_dict(self, recording: Recording, notes: Mapping[str, str]) -> dict[str, Any]:
        """The event as JSON for the page."""
        now, given = self.current, self.given
        values: dict[str, Any] = {
            "id": given.id,
            "recording": recording.index,
            "name": recording.name,
            "label": now.label,
            "onset": round(now.onset, 4),
            "offset": round(now.offset, 4),
            "confidence": None if given.confidence is None else round(given.confidence, 4),
            "status": self.status,
            "source": self.source,
            "byStretch": self.by_stretch,
            "verdicts": {who: decision.verdict for who, decision in self.decisions.items()},
        }
        if (now.label, now.onset, now.offset) != (given.label, given.onset, given.offset):
            values["given"] = {"label": given.label, "onset": given.onset, "offset": given.offset}
        if given.id in notes:
            values["note"] = notes[given.id]
        return values


class Group(NamedTuple):
    """Numbers of events of one class in one recording."""

    judged: int = 0
    right: int = 0
    possible: int = 0  # not wrong


class Tally:
    """Numbers of events by class, recording and status, kept up to date event by event."""

    def __init__(self) -> None:
        self.by_label: dict[str, Counter[str]] = defaultdict(Counter)
        self.by_recording: dict[int, Counter[str]] = defaultdict(Counter)
        self.groups: dict[tuple[int, str], Group] = defaultdict(Group)

    def update(self, event: Event, *, is_gone: bool = False) -> None:
        """Count an event in its present state."""
        if event.tallied is not None:
            self._add(event.given.recording, event.tallied, -1)
        event.tallied = None if is_gone else (event.current.label, event.status, bool(event.decisions))
        if event.tallied is not None:
            self._add(event.given.recording, event.tallied, 1)

    def _add(self, recording: int, counted: tuple[str, str, bool], sign: int) -> None:
        label, status, is_judged = counted
        self.by_label[label][status] += sign
        self.by_recording[recording][status] += sign
        group = self.groups[recording, label]
        self.groups[recording, label] = Group(
            group.judged + sign * is_judged,
            group.right + sign * (status == "right"),
            group.possible + sign * (status != "wrong"),
        )
