"""How much to believe the detections of a job: how many such detections were right on clips with known labels.

The numbers come from the evaluation in the run folder of the job's model (`earmark evaluate RUN DATA`). Its detections
are counted by class and band of confidence. A detection is right if it overlaps an event of its class in the reference;
where the reference has no times, if the class is in the clip. What the reference leaves unknown is not counted.

A sample of the job's own detections in each class and band can be played: short, and few enough for a page of bounded
size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.stats
from markupsafe import Markup

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.datasets import open_data
from earmark.errors import EarmarkError
from earmark.evaluation.references import fit_reference, seen_notes
from earmark.evaluation.result import Evaluation
from earmark.formats import read_labels
from earmark.reporting.pages import inline_audio
from earmark.text import counted

EDGES = (0.0, 0.7, 0.9, 1.0)
"""Bands of confidence: below 0.7, 0.7 to 0.9, 0.9 and above."""

NAMES = ("below 0.7", "0.7 to 0.9", "0.9 and above")
_MOST_SAMPLES = 30
_MOST_CANDIDATES = 200  # for a sample
_BEFORE, _LONGEST = 0.5, 4.0  # seconds of a sample: before the onset, and in all
_RATE = 22050

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """A detection of the job to play."""

    name: str
    onset: float
    confidence: float
    sound: Markup


@dataclass(frozen=True)
class Cell:
    """Detections of one class in one band: right and wrong ones of the evaluation, those of the job, and a sample."""

    right: int
    wrong: int
    events: int
    sample: Sample | None = None

    @property
    def share(self) -> float:
        """The share that was right; NaN if there was none."""
        n = self.right + self.wrong
        return self.right / n if n else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of this share (Jeffreys).

        >>> [round(bound, 2) for bound in Cell(9, 1, 0).interval]
        [0.62, 0.99]
        """
        share = scipy.stats.beta(self.right + 0.5, self.wrong + 0.5)
        return float(share.ppf(0.025)), float(share.ppf(0.975))


@dataclass(frozen=True)
class Reliability:
    """A row of cells for each class with events in the job or in the evaluation; or why there is none."""

    rows: tuple[tuple[str, tuple[Cell, ...]], ...] = ()
    clips: str = ""  # what was evaluated, such as "60 clips of split test"
    is_timed: bool = True  # whether the reference says when, rather than only in which clip
    notes: tuple[str, ...] = ()  # why the shares may flatter
    problem: str = ""


def band_of(confidence: float) -> int:
    """Index of the band of a confidence.

    >>> [band_of(confidence) for confidence in (0.5, 0.7, 0.9, 1.0)]
    [0, 1, 2, 2]
    """
    return int(np.searchsorted(EDGES[1:-1], confidence, side="right"))


def judge(estimate: Sequence[Label], reference: LabelTable) -> Iterator[tuple[Label, bool]]:
    """Detections, and whether each was right; those that the reference cannot decide are left out."""
    for event in estimate:
        if event.filename not in reference.filenames or event.onset is None or event.offset is None:
            continue
        rows = [row for row in reference.of(event.filename) if row.label == event.label and row.present]
        timed = [row for row in rows if row.onset is not None and row.offset is not None]
        if timed:
            onset, offset = event.onset, event.offset
            yield event, any(onset < (row.offset or 0) and (row.onset or 0) < offset for row in timed)
        elif (present := reference.presence(event.filename, event.label)) is not None:
            yield event, present


def read_reliability(model: str | None) -> Reliability:
    """What the evaluation of a model says about its detections; `model` is the path of the model file."""
    if not model:
        return Reliability(problem="the job does not name its model")
    folder = Path(model).parent
    command = f"earmark evaluate {folder} DATA"
    try:
        saved = Evaluation.load(folder)
        if (folder / "scores.json").stat().st_mtime < Path(model).stat().st_mtime:
            return Reliability(problem=f"the model was trained again after it was evaluated; run: {command}")
        scores = saved.scores
        labels = open_data(scores["data"], scores.get("split")).labels
        if scores.get("reference", "data") not in ("data", "authors"):
            labels = read_labels(scores["reference"])
        reference = fit_reference(labels, saved.static_counts.filenames, scores["classes"]).table
        estimate = saved.estimate()
    except (EarmarkError, OSError, KeyError):
        return Reliability(problem=f"the model has not been evaluated, or its test clips are not there; run: {command}")
    counts = {label: np.zeros((len(NAMES), 2), np.int64) for label in reference.classes}
    for event, is_right in judge(estimate, reference):
        counts[event.label][band_of(1.0 if event.confidence is None else event.confidence), int(is_right)] += 1
    rows = [(label, tuple(Cell(int(right), int(wrong), 0) for wrong, right in own)) for label, own in counts.items()]
    split = scores.get("split")
    clips = counted(len(reference.filenames), "clip") + (f" of split {split}" if split not in (None, "all") else "")
    notes = tuple(note for note in seen_notes(split or "") if note in saved.notes)
    return Reliability(tuple(rows), clips, is_timed=any(row.has_times for row in reference), notes=notes)


def with_events(found: Reliability, events: Iterable[tuple[Label, Path]]) -> Reliability:
    """The same with the numbers of a job's events, and a sample of each class and band to play."""
    numbers: Counter[tuple[str, int]] = Counter()
    groups: dict[tuple[str, int], list[tuple[Label, Path]]] = {}
    for event, path in events:
        key = event.label, band_of(event.confidence or 0.0)
        numbers[key] += 1
        if numbers[key] <= _MOST_CANDIDATES:
            groups.setdefault(key, []).append((event, path))
    cells_of = dict(found.rows) or {
        label: (Cell(0, 0, 0),) * len(NAMES) for label in sorted({key[0] for key in groups})
    }
    left, rows = _MOST_SAMPLES, []
    for label, cells in cells_of.items():
        row = []
        for band, cell in enumerate(cells):
            own = groups.get((label, band), [])
            sample = _sample(own) if own and left else None
            left -= sample is not None
            row.append(replace(cell, events=numbers[label, band], sample=sample))
        rows.append((label, tuple(row)))
    return replace(found, rows=tuple(row for row in rows if any(c.events or c.right or c.wrong for c in row[1])))


def _sample(events: Sequence[tuple[Label, Path]]) -> Sample | None:
    """The event of median confidence, or another one of the group if its recording cannot be read."""
    ordered = sorted(events, key=lambda pair: (pair[0].confidence or 0.0, pair[0].filename, pair[0].onset or 0.0))
    middle = len(ordered) // 2
    for event, path in (*ordered[middle : middle + 3], *ordered[:1]):
        onset = max(0.0, (event.onset or 0.0) - _BEFORE)
        offset = min(onset + _LONGEST, (event.offset or 0.0) + _BEFORE)
        try:
            samples = audio.read(path, rate=_RATE, onset=onset, offset=offset, damaged="keep")
        except (EarmarkError, OSError):
            continue
        return Sample(event.filename, event.onset or 0.0, event.confidence or 0.0, inline_audio(samples, _RATE))
    return None
