"""The demonstration: training, evaluation and detection on synthetic soundscapes, in minutes on two cores.

The ten classes differ in duration. Five operators learn from labels that say which classes are in a clip, but not
when. Each is trained with several seeds, evaluated on one-second segments and reported; the best one detects events in
a recording of two minutes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy

from earmark import plots
from earmark.annotations import LabelTable
from earmark.datasets import open_data
from earmark.detection.detector import load
from earmark.detection.job import JobOptions, run_job
from earmark.evaluation import segment
from earmark.evaluation.comparison import Comparison, compare_entries
from earmark.evaluation.systems import System
from earmark.experiment import Grid, gather, run_grid, write_results
from earmark.experiment.results import by_system
from earmark.formats import read_labels
from earmark.ownership import owned
from earmark.pooling import max_alpha
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.reporting.job import write_views
from earmark.reporting.results import active_shares, learned_alphas
from earmark.reporting.runs import write_report
from earmark.synthesis import join, synthesise

__all__ = ["SYSTEMS", "AlphaTrend", "DemoResult", "conclusions", "run"]

SYSTEMS = {"mean": "mean", "max": "max", "auto": "auto", "CAP": "cap", "RAP": "rap"}  # their pools, by name
_FIXED = ("mean", "max")  # the other operators are adaptive: they learn alpha
_SEED = 11  # of the soundscapes; the settings below were chosen on others, by experiments/demo_settings.py
_SETTINGS = {  # changes to the recipe `quick`: coarser features and smaller batches, for more steps a minute
    "hop_samples": "2048",
    "reduction": "4",
    "n_bands": "40",
    "batch_size": "8",
    "epochs": "20",
    "alpha_rate": "10",  # runs are short, so alpha must change quickly
    "monitor": "accuracy",  # F1 would choose the first epoch, in which every class is predicted for every clip
}
_CLIP = 10.0  # seconds, of the soundscapes
_RECORDING = 120.0  # seconds
_FRAMES = 27  # output frames of a clip, which determine the bound of CAP

Scores = Mapping[str, Mapping[str, Sequence[float]]]  # by operator and measure (f1, ...), one value per seed


class AlphaTrend(NamedTuple):
    """How the alphas of an operator are related to the durations of the classes."""

    shorter: float  # mean alpha of the shorter half of the classes
    longer: float  # mean alpha of the longer half
    correlation: float  # Spearman's rank correlation of alpha and duration
    p_value: float  # of the correlation


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration."""

    seconds: Mapping[str, float]  # mean duration of each class in the training clips that contain it, shortest first
    comparison: Comparison
    scores: Scores  # of segments, one value per seed
    alpha: Mapping[str, Mapping[str, float]]  # by operator and class, means over seeds, for operators that learn it
    trends: Mapping[str, AlphaTrend]  # by operator, for those whose alphas differ between classes
    events: LabelTable  # that a model of the best operator detects in the recording
    reference: LabelTable
    recording_f1: float  # of one-second segments of the recording
    pages: Mapping[str, Path]  # files to open: `report`, `detection`, `figure`


def run(
    out: Path,
    *,
    clips: int = 400,
    seeds: int = 3,
    changes: Mapping[str, str] | None = None,
    at_once: int = 2,
    on_progress: OnProgress = ignore_progress,
) -> DemoResult:
    """Synthesise soundscapes, train, evaluate, report, detect. Results of an earlier call are kept.

    Three fifths of the clips are for training. `changes` are to the settings of all runs, of which `at_once` run
    at the same time.
    """
    sounds = out / "soundscapes"
    synthesise("durations", sounds, clips=clips, seed=_SEED, on_progress=on_progress)
    models, entries = _train(sounds, out, seeds, {**_SETTINGS, **(changes or {})}, at_once, on_progress)
    on_progress(Progress("comparing"))
    comparison = compare_entries(entries)
    seconds, alpha = _durations(sounds), learned_alphas(entries)
    title = "Five operators, ten kinds of sound"
    pages = {"report": write_report(comparison, out / "report.html", title=title, on_progress=on_progress)[0]}
    shares = [duration / _CLIP for duration in seconds.values()]
    learned = {name: [values[label] for label in seconds] for name, values in alpha.items()}
    figure = plots.alpha_against_share(list(seconds), shares, learned, float(max_alpha(0.5, _FRAMES)))
    with owned(out):
        pages["figure"] = plots.save(figure, out / "learned_alpha")[0]
    events, reference, pages["detection"] = _detect(models[comparison.best], sounds, out, on_progress)
    return DemoResult(
        seconds,
        comparison,
        {entry.name: _seed_scores(entry) for entry in entries},
        alpha,
        {name: _trend(seconds, values) for name, values in alpha.items() if np.ptp(list(values.values())) > 0.01},
        events,
        reference,
        segment.evaluate(reference, events, missing="empty").overall.f1,
        pages,
    )


def conclusions(scores: Scores, trends: Mapping[str, AlphaTrend]) -> list[str]:
    """What the numbers show about adaptive operators, in sentences.

    Examples
    --------
    >>> scores = {
    ...     "mean": {"f1": [0.3, 0.3], "precision": [0.2, 0.2], "recall": [0.6, 0.6]},
    ...     "max": {"f1": [0.4, 0.6], "precision": [0.8, 0.8], "recall": [0.3, 0.5]},
    ...     "auto": {"f1": [0.5, 0.5], "precision": [0.5, 0.5], "recall": [0.5, 0.4]},
    ... }
    >>> for line in conclusions(scores, {"auto": AlphaTrend(3.4, 2.6, -0.9, 0.001)}):
    ...     print(line)
    Adaptive operators (auto) compared with operators trained with the same seed:
    F1 0.500, higher than mean (0.300) in 2 of 2 runs, than max (0.500) in 1 of 2
    precision 0.500, between mean (0.200) and max (0.800) in 2 of 2
    recall 0.450, between mean (0.600) and max (0.400) in 1 of 2
    Alpha, on average for the shorter and for the longer half of the sounds:
    auto 3.40 and 2.60; rank correlation with duration -0.90 (p 0.001)
    """
    adaptive = [name for name in scores if name not in _FIXED]
    lines = [f"Adaptive operators ({', '.join(adaptive)}) compared with operators trained with the same seed:"]
    for measure in ("f1", "precision", "recall"):
        ours = np.array([scores[name][measure] for name in adaptive])  # (operators, seeds)
        mean = np.array(scores["mean"][measure])
        largest = np.array(scores["max"][measure])
        with_mean = f"mean ({mean.mean():.3f})"
        with_max = f"max ({largest.mean():.3f})"
        n = ours.size
        if measure == "f1":
            above = f"higher than {with_mean} in {np.sum(ours > mean)} of {n} runs"
            lines.append(f"F1 {ours.mean():.3f}, {above}, than {with_max} in {np.sum(ours > largest)} of {n}")
        else:
            between = (ours > np.minimum(mean, largest)) & (ours < np.maximum(mean, largest))
            relation = f"between {with_mean} and {with_max} in {between.sum()} of {n}"
            lines.append(f"{measure} {ours.mean():.3f}, {relation}")
    lines.append("Alpha, on average for the shorter and for the longer half of the sounds:")
    for name, trend in trends.items():
        relation = f"rank correlation with duration {trend.correlation:.2f} (p {trend.p_value:.3f})"
        lines.append(f"{name} {trend.shorter:.2f} and {trend.longer:.2f}; {relation}")
    return lines


def _train(
    sounds: Path, out: Path, seeds: int, changes: Mapping[str, str], at_once: int, on_progress: OnProgress
) -> tuple[dict[str, Path], list[System]]:
    """Train and evaluate all operators: the folder of a model of each, and the evaluations of all seeds."""
    systems = {name: {"pool": pool, **changes} for name, pool in SYSTEMS.items()}
    grid = Grid("demo", {"": str(sounds)}, systems, recipe="quick", seeds=tuple(range(seeds)))
    if not run_grid(grid, out, cache=out / "features", at_once=at_once, on_progress=on_progress):
        raise KeyboardInterrupt("run the same command again to continue")
    rows = gather(grid, out)
    write_results(rows, out / "results.csv")
    entries = [System(name, tuple(row.saved() for row in runs)) for name, runs in by_system(rows).items()]
    return {entry.name: entry.evaluations[0].folder.parent for entry in entries}, entries


def _seed_scores(entry: System) -> dict[str, list[float]]:
    overall = [run.scores["dynamic"]["overall"] for run in entry.evaluations]
    return {name: [float(run[name]) for run in overall] for name in ("f1", "precision", "recall")}


def _durations(sounds: Path) -> dict[str, float]:
    """Seconds that each class lasts in the training clips that contain it, on average; shortest first."""
    data = open_data(sounds, "train")
    active = active_shares(data.labels, {clip.filename: _CLIP for clip in data.clips})
    return {label: active[label][0] for label in sorted(active, key=active.__getitem__)}


def _trend(seconds: Mapping[str, float], alpha: Mapping[str, float]) -> AlphaTrend:
    learned = [alpha[label] for label in seconds]
    half = len(learned) // 2
    rank = scipy.stats.spearmanr(learned, list(seconds.values()))
    means = float(np.mean(learned[:half])), float(np.mean(learned[-half:]))
    return AlphaTrend(*means, float(rank.statistic), float(rank.pvalue))


def _detect(model: Path, sounds: Path, out: Path, on_progress: OnProgress) -> tuple[LabelTable, LabelTable, Path]:
    """Events detected in a recording joined from test clips, the reference, and the report."""
    recording = join(sounds, "test", duration=_RECORDING)
    folder = out / "detection"
    options = JobOptions(formats=("tsv", "audacity"), keep_scores=True)
    run_job(model, [recording.path], folder, options, on_progress=on_progress)
    page = write_views(folder, load(model).scorer, ["busiest"], report=True)[-1]
    return read_labels(folder / "events.csv"), read_labels(recording.labels), page
