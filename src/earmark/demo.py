"""The demonstration: the whole job on synthesised soundscapes, in minutes on two cores.

Ten kinds of sound differ in how long they last. Five operators learn from labels that say which sounds are in a clip,
but not when. Each is trained with several seeds, evaluated on one-second segments and reported; the best one detects
events in a recording of two minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from earmark import plots
from earmark.annotations import LabelTable
from earmark.datasets import open_data
from earmark.detection.detector import load
from earmark.detection.job import JobOptions, run_job
from earmark.evaluation import segment
from earmark.evaluation.comparison import Comparison, Entry, compare_entries
from earmark.experiment import Grid, gather, run_grid, write_results
from earmark.experiment.results import by_system
from earmark.formats import read_labels
from earmark.pooling import max_alpha
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.reporting.job import write_job_report
from earmark.reporting.results import active_shares, learned_alphas
from earmark.reporting.runs import write_report
from earmark.reporting.stretches import choose_stretches, draw_stretches
from earmark.synthesis import join, synthesise

__all__ = ["SYSTEMS", "DemoResult", "Rank", "conclusions", "run"]

SYSTEMS: Mapping[str, Mapping[str, str]] = {
    "mean": {"pool": "mean"},
    "max": {"pool": "max"},
    "auto": {"pool": "auto"},
    "CAP": {"pool": "cap"},
    "RAP": {"pool": "rap"},
}
_FIXED = ("mean", "max")  # the other operators are adaptive: they learn alpha
_SETTINGS = {  # changes to the recipe `quick`: short trainings of a small network, in which alpha moves quickly
    "width": "0.25",
    "epochs": "8",
    "steps": "40",
    "alpha_rate": "10",
}
_CLIP = 10.0  # seconds, of the soundscapes
_RECORDING = 120.0  # seconds
_FRAMES = 27  # output frames of a clip, which determine the bound of CAP
_LEVEL = 0.05  # p-value below which alpha is said to follow duration


class Rank(NamedTuple):
    """Spearman's rank correlation of alpha and duration over classes, and its p-value."""

    correlation: float
    p_value: float


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration."""

    seconds: Mapping[str, float]
    """Mean duration of each class in the training clips that contain it, shortest first."""
    comparison: Comparison
    f1: Mapping[str, Sequence[float]]
    """F1 of segments by operator, one value per seed."""
    alpha: Mapping[str, Mapping[str, float]]
    """By operator and class, means over seeds, for operators that learn it."""
    ranks: Mapping[str, Rank]
    """By operator, for those whose alphas differ between classes."""
    best: str
    events: LabelTable
    """Events that a model of the best operator detects in the recording."""
    reference: LabelTable
    recording_f1: float
    """F1 of one-second segments of the recording."""
    pages: Mapping[str, Path]
    """Files to open: `report`, `detection`, `figure`."""


def run(
    out: Path,
    *,
    clips: int = 200,
    seeds: int = 3,
    changes: Mapping[str, str] | None = None,
    at_once: int = 2,
    on_progress: OnProgress = ignore_progress,
) -> DemoResult:
    """Synthesise soundscapes, train, evaluate, report, detect. Results of an earlier call are kept.

    Parameters
    ----------
    clips
        Number of soundscapes; three fifths are for training.
    changes
        To the settings of all trainings.
    at_once
        Trainings that run at the same time.
    """
    sounds = out / "soundscapes"
    synthesise("durations", sounds, clips=clips, on_progress=on_progress)
    models, entries = _train(sounds, out, seeds, {**_SETTINGS, **(changes or {})}, at_once, on_progress)
    on_progress(Progress("comparing"))
    comparison = compare_entries(entries)
    seconds, alpha = _durations(sounds), learned_alphas(entries)
    title = "Five operators, ten kinds of sound"
    pages = {"report": write_report(comparison, out / "report.html", title=title, on_progress=on_progress)[0]}
    shares = [duration / _CLIP for duration in seconds.values()]
    learned = {name: [values[label] for label in seconds] for name, values in alpha.items()}
    figure = plots.alpha_against_share(list(seconds), shares, learned, float(max_alpha(0.5, _FRAMES)))
    pages["figure"] = plots.save(figure, out / "learned_alpha")[0]
    events, reference, pages["detection"] = _detect(models[comparison.best], sounds, out, on_progress)
    return DemoResult(
        seconds,
        comparison,
        {entry.name: [one.scores["dynamic"]["overall"]["f1"] for one in entry.evaluations] for entry in entries},
        alpha,
        {name: _rank(values, seconds) for name, values in learned.items() if np.ptp(values) > 0.01},
        comparison.best,
        events,
        reference,
        segment.evaluate(reference, events, missing="empty").overall.f1,
        pages,
    )


def conclusions(f1: Mapping[str, Sequence[float]], ranks: Mapping[str, Rank]) -> list[str]:
    """What the numbers show about adaptive operators, in sentences.

    Examples
    --------
    >>> f1 = {"mean": [0.3, 0.3], "max": [0.4, 0.5], "auto": [0.5, 0.5], "CAP": [0.6, 0.6]}
    >>> for line in conclusions(f1, {"auto": Rank(-0.9, 0.001), "CAP": Rank(-0.2, 0.5)}):
    ...     print(line)
    Adaptive operators (auto, CAP) have a higher F1 than mean in 4 of 4 trainings with the same seed.
    Adaptive operators (auto, CAP) have a higher F1 than max in 3 of 4 trainings with the same seed.
    auto: the shorter a sound, the larger its alpha (rank correlation -0.90, p 0.001).
    CAP: alpha is not clearly related to duration (rank correlation -0.20, p 0.500).
    """
    adaptive = [name for name in f1 if name not in _FIXED]
    lines = []
    for fixed in (name for name in f1 if name in _FIXED):
        higher = [ours > theirs for name in adaptive for ours, theirs in zip(f1[name], f1[fixed], strict=True)]
        lines.append(
            f"Adaptive operators ({', '.join(adaptive)}) have a higher F1 than {fixed} in {sum(higher)} of "
            f"{len(higher)} trainings with the same seed."
        )
    for name, rank in ranks.items():
        relation = "alpha is not clearly related to duration"
        if rank.p_value < _LEVEL and rank.correlation < 0:
            relation = "the shorter a sound, the larger its alpha"
        lines.append(f"{name}: {relation} (rank correlation {rank.correlation:.2f}, p {rank.p_value:.3f}).")
    return lines


def _train(
    sounds: Path, out: Path, seeds: int, changes: Mapping[str, str], at_once: int, on_progress: OnProgress
) -> tuple[dict[str, Path], list[Entry]]:
    """Train and evaluate all operators: the folder of a model of each, and the evaluations of all seeds."""
    systems = {name: {**pool, **changes} for name, pool in SYSTEMS.items()}
    grid = Grid("demo", {"": str(sounds)}, systems, recipe="quick", seeds=range(seeds))
    if not run_grid(grid, out, cache=out / "features", at_once=at_once, on_progress=on_progress):
        raise KeyboardInterrupt("run the same command again to continue")
    rows = gather(grid, out)
    write_results(rows, out / "results.csv")
    entries = [Entry(name, tuple(row.saved() for row in own)) for name, own in by_system(rows).items()]
    return {entry.name: entry.evaluations[0].folder.parent for entry in entries}, entries


def _durations(sounds: Path) -> dict[str, float]:
    """Seconds that each class lasts in the training clips that contain it, on average; shortest first."""
    data = open_data(sounds, "train")
    active = active_shares(data.labels, {clip.filename: _CLIP for clip in data.clips})
    return {label: active[label][0] for label in sorted(active, key=active.__getitem__)}


def _rank(alpha: Sequence[float], seconds: Mapping[str, float]) -> Rank:
    return Rank(*map(float, spearmanr(alpha, list(seconds.values()))))


def _detect(model: Path, sounds: Path, out: Path, on_progress: OnProgress) -> tuple[LabelTable, LabelTable, Path]:
    """Events detected in a recording joined from test clips, the reference, and the report."""
    recording = join(sounds, "test", duration=_RECORDING)
    folder = out / "detection"
    options = JobOptions(formats=("tsv", "audacity"), keep_scores=True)
    run_job(model, [recording.path], folder, options, on_progress=on_progress)
    figures = draw_stretches(folder, load(model).scorer, choose_stretches(folder, "busiest"))
    page = write_job_report(folder, figures=figures)
    return read_labels(folder / "events.csv"), read_labels(recording.labels), page
