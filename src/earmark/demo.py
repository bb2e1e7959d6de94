"""The demonstration: the whole job on soundscapes made here, in minutes on two cores.

Ten kinds of sound differ in how long they last. Five operators learn from labels that say which sounds are in a clip
and never when; they are judged second by second, and the best one searches a recording of two minutes. Everything is
what the commands do: `synth`, `reproduce`, `report`, `detect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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

__all__ = ["SYSTEMS", "Story", "run"]

SYSTEMS: Mapping[str, Mapping[str, str]] = {
    "mean": {"pool": "mean"},
    "max": {"pool": "max"},
    "auto": {"pool": "auto"},
    "CAP": {"pool": "cap"},
    "RAP": {"pool": "rap"},
}
_SHORT = {"epochs": "8", "alpha_rate": "10"}  # five operators in minutes; and alpha has far to go in so few steps
_CLIP = 10.0  # seconds, of the recipe's soundscapes
_RECORDING = 120.0  # seconds
_FRAMES = 27  # of the outputs for a clip, which give CAP its bound


@dataclass(frozen=True)
class Story:
    """What came out."""

    heard: Mapping[str, float]
    """For how long each class is heard in a training clip that has it, in seconds; shortest first."""
    comparison: Comparison
    alpha: Mapping[str, Mapping[str, float]]
    """By operator and class, for operators that learn it."""
    ranks: Mapping[str, float]
    """Spearman's rank correlation of alpha with the time heard, for operators whose alphas differ."""
    best: str
    found: LabelTable
    """Events that the best operator's model found in the recording."""
    truth: LabelTable
    f1: float
    """Of the recording's segments."""
    pages: Mapping[str, Path]
    """What to open: `report`, `detection`, `figure`."""


def run(
    out: Path,
    *,
    clips: int = 200,
    changes: Mapping[str, str] | None = None,
    at_once: int = 2,
    on_progress: OnProgress | None = None,
) -> Story:
    """Make soundscapes, train, judge, report, detect. What an earlier call has done is kept.

    Parameters
    ----------
    clips
        Soundscapes to make; three fifths are for training.
    changes
        To the recipe `quick`, by knob.
    at_once
        Trainings that share the machine.
    """
    sounds, report = out / "soundscapes", on_progress or ignore_progress
    synthesise("durations", sounds, clips=clips, on_progress=report)
    rows, comparison = _train(sounds, out, {**_SHORT, **(changes or {})}, at_once, report)
    alpha = learned_alphas(comparison.entries)
    taught = open_data(sounds, "train")
    shares = active_shares(taught.labels, {clip.filename: _CLIP for clip in taught.clips})
    heard = {label: shares[label][0] for label in sorted(shares, key=lambda label: shares[label][0])}
    title = "Five operators, ten kinds of sound"
    pages = {"report": write_report(comparison, out / "report.html", title=title, on_progress=report)[0]}
    learned = {name: [own[label] for label in heard] for name, own in alpha.items()}
    drawn = plots.alpha_against_share(
        list(heard), [heard[label] / _CLIP for label in heard], learned, float(max_alpha(0.5, _FRAMES))
    )
    pages["figure"] = next(path for path in plots.save(drawn, out / "learned_alpha") if path.suffix == ".png")
    ranks = {
        name: float(spearmanr(own, list(heard.values())).statistic)
        for name, own in learned.items()
        if np.ptp(own) > 0.01
    }
    best = comparison.best or comparison.entries[0].name
    found, truth, pages["detection"] = _detect(rows[best], sounds, out, report)
    f1 = segment.evaluate(truth, found, missing="empty").overall.f1
    return Story(heard, comparison, alpha, ranks, best, found, truth, f1, pages)


def _train(
    sounds: Path, out: Path, changes: Mapping[str, str], at_once: int, on_progress: OnProgress
) -> tuple[dict[str, Path], Comparison]:
    """Model folders by operator, and how the operators compare."""
    systems = {name: {**own, **changes} for name, own in SYSTEMS.items()}
    grid = Grid("demo", {"": str(sounds)}, systems, recipe="quick")
    if not run_grid(grid, out, cache=out / "features", at_once=at_once, on_progress=on_progress):
        raise KeyboardInterrupt("run the same command again to continue")
    rows = gather(grid, out)
    write_results(rows, out / "results.csv")
    entries = [Entry(name, tuple(row.saved() for row in own)) for name, own in by_system(rows).items()]
    on_progress(Progress("comparing"))
    return {row.cell.system: row.folder.parent for row in rows}, compare_entries(entries)


def _detect(model: Path, sounds: Path, out: Path, on_progress: OnProgress) -> tuple[LabelTable, LabelTable, Path]:
    """Events found in a recording of soundscapes that nobody trained on, the truth, and the page."""
    recording = join(sounds, "test", duration=_RECORDING)
    folder = out / "detection"
    options = JobOptions(formats=("tsv", "audacity"), keep_scores=True)
    run_job(model, [recording.path], folder, options, on_progress=on_progress)
    drawn = draw_stretches(folder, load(model).scorer, choose_stretches(folder, "busiest"))
    page = write_job_report(folder, figures=drawn)
    return read_labels(folder / "events.csv"), read_labels(recording.labels), page
