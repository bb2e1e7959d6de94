"""Figures of a run report; captions are in the templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from earmark import plots
from earmark.annotations import LabelTable
from earmark.evaluation.comparison import Entry
from earmark.evaluation.curves import Curve
from earmark.evaluation.scoring import segment_curve
from earmark.evaluation.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DESCRIPTIONS", "class_figure", "common_threshold", "curve_figure", "duration_figure", "learning_figure"]

DESCRIPTIONS = {
    "classes": "F1 by class and model, with intervals",
    "alphas": "Learned alpha by class and model",
    "durations": "Active time of each class per clip",
    "curves": "Precision against recall by model",
    "example": "Output for one clip: spectrogram, reference, likelihoods",
    "published": "F1 of each system beside the paper's",
}
"""What a figure shows, by its name, for screen readers."""


def class_figure(scores: Mapping[str, Interval], classes: Sequence[str]) -> Figure | None:
    """F1 by class and system, with intervals where they are known; None if no class has a score."""
    if not any(np.isfinite(f1.value).any() for f1 in scores.values()):
        return None
    values, bars = {}, {}
    for name, f1 in scores.items():
        values[name] = dict(zip(classes, f1.value.tolist(), strict=True))
        bounds = dict(zip(classes, np.stack([f1.low, f1.high], axis=1).tolist(), strict=True))
        bars[name] = {label: (low, high) for label, (low, high) in bounds.items() if np.isfinite([low, high]).all()}
    return plots.f1_by_class(values, bars)


def duration_figure(labels: LabelTable, durations: Mapping[str, float]) -> Figure | None:
    """Active time of each class in each clip; None if the reference has no times."""
    if not durations or not any(row.has_times for row in labels):
        return None
    median = float(np.median(list(durations.values())))
    is_uniform = all(abs(duration - median) < 0.01 * median for duration in durations.values())
    return plots.event_durations(labels, clip_duration=round(median, 2) if is_uniform else None)


def curve_figure(entries: Sequence[Entry], labels: LabelTable, threshold: float) -> Figure | None:
    """Precision against recall of segments at every threshold, for the first seed of each system.

    None without probabilities. `labels` is the reference of the evaluation; a mark is drawn at `threshold`.
    """
    drawn: dict[str, Curve] = {}
    for entry in entries:
        saved = entry.evaluations[0]
        if saved.dynamic_counts is None or not saved.probabilities():
            continue
        curve = segment_curve(saved, labels)
        if curve.n_ref:
            drawn[entry.name] = curve
    return plots.precision_recall(drawn, threshold) if drawn else None


def common_threshold(entries: Sequence[Entry]) -> float:
    """The threshold of all systems if they share one, else 0.5."""
    thresholds = [(entry.evaluations[0].scores.get("decoder") or {}).get("threshold") for entry in entries]
    first = thresholds[0]
    return float(first) if isinstance(first, int | float) and thresholds.count(first) == len(thresholds) else 0.5


def learning_figure(log: Path, classes: Sequence[str]) -> Figure | None:
    """Loss, scores and alpha by epoch; None without a log."""
    if not log.is_file() or not log.read_text().strip():
        return None
    return plots.learning_curves(log, classes)
