"""The reliability of the detections of a job: the share of similar detections that was right on labelled clips.

The numbers (`earmark.evaluation.reliability`) come from the evaluation in the run folder of the job's model (`earmark
evaluate RUN DATA`). Without one, they are those that training stored for its validation clips.

For each class and band, the page has a short audio sample of the job's detections. The number of samples is limited,
and with it the size of the page.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import scipy.stats
from markupsafe import Markup

from earmark import audio
from earmark.annotations import Label
from earmark.errors import EarmarkError
from earmark.evaluation.references import seen_notes
from earmark.evaluation.reliability import NAMES, Outcomes, band_of
from earmark.evaluation.result import Evaluation
from earmark.reporting.pages import inline_audio
from earmark.reporting.results import true_labels
from earmark.text import counted

_MOST_SAMPLES = 30
_MOST_CANDIDATES = 200  # for a sample
_BEFORE, _LONGEST = 0.5, 4.0  # seconds of a sample: before the onset, and in all
_RATE = 22050


@dataclass(frozen=True)
class Sample:
    """A detection of the job to play."""

    name: str
    onset: float
    confidence: float
    sound: Markup


@dataclass(frozen=True)
class Band:
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

        >>> [round(bound, 2) for bound in Band(9, 1, 0).interval]
        [0.62, 0.99]
        """
        share = scipy.stats.beta(self.right + 0.5, self.wrong + 0.5)
        return float(share.ppf(0.025)), float(share.ppf(0.975))


@dataclass(frozen=True)
class Reliability:
    """A row of cells for each class with events in the job or in the evaluation; or why there is none."""

    rows: tuple[tuple[str, tuple[Band, ...]], ...] = ()
    clips: str = ""  # the evaluated clips, such as "60 clips of split test"
    is_timed: bool = True  # whether the reference has times, rather than only clips
    notes: tuple[str, ...] = ()  # why the shares may be too high
    problem: str = ""


def read_reliability(model: str | None) -> Reliability:
    """The reliability of the detections of a model, from its evaluation or else its validation; `model` is its file."""
    if not model:
        return Reliability(problem="the job does not name its model")
    folder = Path(model).parent
    command = f"{shlex.join(['earmark', 'evaluate', str(folder)])} DATA"
    problem = f"the model's folder has no evaluation, or its clips are not available; run, without --out: {command}"
    with suppress(EarmarkError, OSError, KeyError):
        saved = Evaluation.load(folder)
        if (folder / "scores.json").stat().st_mtime >= Path(model).stat().st_mtime:
            return _from_evaluation(saved)
        problem = f"the model was trained again after it was evaluated; run: {command}"
    with suppress(EarmarkError, OSError):
        outcomes = Outcomes.load(folder)
        note = f"thresholds were chosen on the same clips; for a test on others, run: {command}"
        return Reliability(_rows(outcomes), outcomes.clips, is_timed=outcomes.is_timed, notes=(note,))
    return Reliability(problem=problem)


def _from_evaluation(saved: Evaluation) -> Reliability:
    split = saved.scores.get("split")
    _, reference = true_labels(saved, saved.scores["data"])
    clips = counted(len(reference.filenames), "clip") + (f" of split {split}" if split not in (None, "all") else "")
    outcomes = Outcomes.of(saved.estimate(), reference, clips)
    notes = tuple(note for note in seen_notes(split or "") if note in saved.notes)
    return Reliability(_rows(outcomes), clips, is_timed=outcomes.is_timed, notes=notes)


def _rows(outcomes: Outcomes) -> tuple[tuple[str, tuple[Band, ...]], ...]:
    return tuple(
        (label, tuple(Band(right, wrong, 0) for right, wrong in zip(bands.right, bands.wrong, strict=True)))
        for label, bands in outcomes.classes.items()
    )


def with_events(reliability: Reliability, events: Iterable[tuple[Label, Path]]) -> Reliability:
    """Add the numbers of a job's events, and a sample to play for each class and band."""
    numbers: Counter[tuple[str, int]] = Counter()
    groups: dict[tuple[str, int], list[tuple[Label, Path]]] = {}
    for event, path in events:
        key = event.label, band_of(event.confidence or 0.0)
        numbers[key] += 1
        if numbers[key] <= _MOST_CANDIDATES:
            groups.setdefault(key, []).append((event, path))
    cells_of = dict(reliability.rows) or {
        label: (Band(0, 0, 0),) * len(NAMES) for label in sorted({key[0] for key in groups})
    }
    left, rows = _MOST_SAMPLES, []
    for label, cells in cells_of.items():
        row = []
        for band, cell in enumerate(cells):
            candidates = groups.get((label, band), [])
            sample = _sample(candidates) if candidates and left else None
            left -= sample is not None
            row.append(replace(cell, events=numbers[label, band], sample=sample))
        if any(cell.events or cell.right or cell.wrong for cell in row):
            rows.append((label, tuple(row)))
    return replace(reliability, rows=tuple(rows))


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
