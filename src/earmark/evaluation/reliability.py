"""How many detections were right, by class and band of confidence.

A detection is right if it overlaps an event of its class in the reference or, where the reference has no times, if the
class is in the clip. Detections where the class is unknown are not counted. Training saves these numbers for the
validation clips, in `validation.json`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from earmark.annotations import Label, LabelTable
from earmark.files import json_text
from earmark.formats.text import write_text
from earmark.schema import open_record, read_json, record

FILE = "validation.json"

EDGES = (0.0, 0.7, 0.9, 1.0)
"""Bands of confidence: below 0.7, 0.7 to 0.9, 0.9 and above."""

NAMES = ("below 0.7", "0.7 to 0.9", "0.9 and above")

_Numbers = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=len(NAMES), max_length=len(NAMES))]


@record
class _Bands:
    right: _Numbers
    wrong: _Numbers


@open_record
class Outcomes:
    """Detections that were right and wrong, by class: a number for each band."""

    clips: str  # such as "60 clips of split test"
    is_timed: bool  # whether the reference has times, rather than only clips
    classes: dict[str, _Bands]

    @classmethod
    def of(cls, estimate: Iterable[Label], reference: LabelTable, clips: str) -> "Outcomes":
        """Count the detections in clips with known labels."""
        classes = {label: _Bands([0] * len(NAMES), [0] * len(NAMES)) for label in reference.classes}
        for event, is_right in judge(estimate, reference):
            counts = classes[event.label].right if is_right else classes[event.label].wrong
            counts[band_of(1.0 if event.confidence is None else event.confidence)] += 1
        return cls(clips, any(row.has_times for row in reference), classes)

    def save(self, run: Path) -> None:
        """Write the numbers of a run."""
        write_text(run / FILE, json_text(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, run: Path) -> "Outcomes":
        """Read the numbers of a run."""
        return read_json(cls, run / FILE)


def band_of(confidence: float) -> int:
    """Index of the band of a confidence.

    >>> [band_of(confidence) for confidence in (0.5, 0.7, 0.9, 1.0)]
    [0, 1, 2, 2]
    """
    return int(np.searchsorted(EDGES[1:-1], confidence, side="right"))


def judge(estimate: Iterable[Label], reference: LabelTable) -> Iterator[tuple[Label, bool]]:
    """Detections, and whether each was right; those that the reference cannot decide are left out."""
    filenames = set(reference.filenames)
    for event in estimate:
        if event.filename in filenames and event.has_times and (is_right := _is_right(event, reference)) is not None:
            yield event, is_right


def _is_right(event: Label, reference: LabelTable) -> bool | None:
    """Whether a detection is right; None if the reference does not decide it."""
    rows = [row for row in reference.of(event.filename) if row.label == event.label]
    overlapping = [row.present for row in rows if row.overlaps(event)]
    if overlapping:
        return any(overlapping)
    if any(row.is_event for row in rows):  # absent outside its events, unless it is known in part
        return None if any(row.present is None for row in rows) else False
    return reference.presence(event.filename, event.label)
