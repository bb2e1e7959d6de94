"""Queues: events of a review in a chosen order, such as by time, stratified by confidence, or most informative first.

The informative queue multiplies three numbers in (0, 1]: how uncertain the model is, how many events of the same class
and recording are judged or ranked before this one, and how likely its verdict changes whether the recording has the
class. `explain` describes them in a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, unknown_name
from earmark.reviewing.events import STATUSES, Event
from earmark.reviewing.state import Review
from earmark.text import counted

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ORDERS = {
    "time": "recording by recording, in order of time",
    "confident": "the most confident first",
    "doubtful": "the least confident first",
    "stratified": "the same number from each tenth of the confidence scale, at random: for calibration",
    "informative": "the most informative first: uncertain, unlike others, and able to change a recording's classes",
    "random": "in random order",
}
_STRATA = 10


@dataclass(frozen=True)
class Query:
    """The events of a queue, and their order."""

    order: str = "time"
    status: str = "open"  # one of `STATUSES`, "judged" or "all"
    label: str | None = None
    recording: int | None = None
    seed: int = 0


class _Columns:
    """Events as columns."""

    def __init__(self, events: list[Event]) -> None:
        now = [event.current for event in events]
        labels = {label: c for c, label in enumerate(dict.fromkeys(each.label for each in now))}
        self.recording = np.array([event.given.recording for event in events], np.int64)
        self.onset = np.array([each.onset for each in now])
        self.label = np.array([labels[each.label] for each in now], np.int64)
        known = [0.5 if event.given.confidence is None else event.given.confidence for event in events]
        self.confidence = np.array(known, np.float64)


def select(review: Review, query: Query) -> list[str]:
    """Ids of events, in order."""
    if query.order not in ORDERS:
        raise unknown_name("order", query.order, ORDERS)
    if query.status not in (*STATUSES, "judged", "all"):
        raise unknown_name("status", query.status, (*STATUSES, "judged", "all"))
    with review.lock:
        events = [event for event in review.events.values() if _matches(event, query)]
        if not events:
            return []
        return [events[int(k)].id for k in _ordered(review, events, query)]


def explain(review: Review, event: Event) -> str:
    """A description of the score of an event in the informative queue."""
    with review.lock:
        label = event.current.label
        events = review.events_of(event.given.recording)
        same = [other for other in events if other.current.label == label]
        uncertain, unlike, decisive = _factors(review, same, _Columns(same))
        k = same.index(event)
        group = review.tally.groups[event.given.recording, label]
    confidence = event.given.confidence
    model = "no confidence is known" if confidence is None else f"confidence {confidence:.2f}"
    times = "\N{MULTIPLICATION SIGN}"
    return (
        f"score {uncertain[k] * unlike[k] * decisive[k]:.2f} = uncertain {uncertain[k]:.2f} ({model}) {times} "
        f"unlike others {unlike[k]:.2f} ({group.judged} of {counted(len(same), f'{label} event')} here judged) {times} "
        f"decides the recording's classes {decisive[k]:.2f} ({group.possible} not ruled out)"
    )


def _matches(event: Event, query: Query) -> bool:
    if query.recording is not None and event.given.recording != query.recording:
        return False
    if query.label is not None and event.current.label != query.label:
        return False
    if query.status == "judged":
        return event.status != "open"
    return query.status == "all" or event.status == query.status


def _ordered(review: Review, events: list[Event], query: Query) -> Integers:
    """Positions of events in the order of a query."""
    columns = _Columns(events)
    if query.order == "time":
        return np.asarray(np.lexsort((columns.label, columns.onset, columns.recording)))
    if query.order in ("random", "stratified"):
        shuffled = np.random.default_rng(query.seed).permutation(len(events))
        if query.order == "random":
            return shuffled
        # repeatedly one event of each tenth of the confidence scale
        stratum = np.minimum((columns.confidence[shuffled] * _STRATA).astype(np.int64), _STRATA - 1)
        return np.asarray(shuffled[np.lexsort((stratum, _rank_within(stratum)))])
    if query.order == "informative":
        uncertain, unlike, decisive = _factors(review, events, columns)
        score = uncertain * unlike * decisive
    else:
        score = columns.confidence if query.order == "confident" else -columns.confidence
    return np.asarray(np.lexsort((columns.onset, columns.recording, -score)))


def _factors(review: Review, events: list[Event], columns: _Columns) -> tuple[Floats, Floats, Floats]:
    """Uncertainty, novelty and influence on the classes of the recording: three arrays (events,)."""
    uncertain = np.maximum(1 - 2 * np.abs(columns.confidence - 0.5), 0.02)
    group = columns.recording * (int(columns.label.max()) + 1) + columns.label
    order = np.argsort(-uncertain, kind="stable")
    rank = np.empty(len(events), np.int64)
    rank[order] = _rank_within(group[order])  # of equals in a recording, the most uncertain comes first
    # of the same recording and class: numbers of events that are judged, right and not wrong
    groups = [review.tally.groups[event.given.recording, event.current.label] for event in events]
    judged, right, candidates = np.array(groups, np.int64).T
    unlike = 1 / np.sqrt(1 + rank + judged)
    decisive = np.where(right > 0, 0.1, 1 / np.maximum(candidates, 1))
    return uncertain, unlike, decisive


def _rank_within(groups: Integers) -> Integers:
    """Position of each value among equals.

    >>> _rank_within(np.array([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    is_first = np.append(True, sorted_groups[1:] != sorted_groups[:-1])
    start = np.maximum.accumulate(np.where(is_first, np.arange(len(groups)), 0))
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - start
    return ranks


class Queues:
    """Queues that clients page through; each keeps the order that it had when it was created."""

    MOST = 32  # the oldest are dropped

    def __init__(self, review: Review) -> None:
        self.review = review
        self._made: dict[str, list[str]] = {}
        self._number = 0

    def make(self, query: Query) -> tuple[str, int]:
        """Create a queue; returns its name and its length."""
        ids = select(self.review, query)
        with self.review.lock:
            self._number += 1
            name = str(self._number)
            self._made[name] = ids
            while len(self._made) > self.MOST:
                del self._made[next(iter(self._made))]
        return name, len(ids)

    def page(self, name: str, first: int, count: int) -> list[Event]:
        """Some events of a queue; those that no longer exist are left out."""
        if name not in self._made:
            raise ArgumentError(f"there is no queue {name!r}; create it again")
        with self.review.lock:
            events = (self.review.events.get(id) for id in self._made[name][first : first + count])
            return [event for event in events if event is not None]
