"""Figures of a run report, as SVG elements; captions are in the templates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from earmark import plots
from earmark.annotations import LabelTable
from earmark.evaluation import curves
from earmark.evaluation.comparison import Entry
from earmark.evaluation.statistics import Interval
from earmark.report.pages import inline_svg
from earmark.report.results import dense_probabilities

__all__ = ["class_figure", "common_threshold", "curve_figure", "duration_figure", "learning_figure"]


def class_figure(scores: Mapping[str, Interval], classes: Sequence[str]) -> Markup | None:
    """F1 by class and system, with intervals; None if no class has a score."""
    if not any(np.isfinite(f1.value).any() for f1 in scores.values()):
        return None
    values = {name: dict(zip(classes, f1.value.tolist(), strict=True)) for name, f1 in scores.items()}
    bars = {
        name: {
            label: (low, high)
            for label, low, high in zip(classes, f1.low.tolist(), f1.high.tolist(), strict=True)
            if math.isfinite(low) and math.isfinite(high)
        }
        for name, f1 in scores.items()
    }
    return inline_svg(plots.f1_by_class(values, bars), "F1 by class and model, with intervals")


def duration_figure(labels: LabelTable, durations: Mapping[str, float]) -> Markup | None:
    """Active time of each class in each clip; None if the reference has no times."""
    if not durations or not any(row.has_times for row in labels):
        return None
    median = float(np.median(list(durations.values())))
    is_uniform = all(abs(duration - median) < 0.01 * median for duration in durations.values())
    figure = plots.event_durations(labels, clip_duration=round(median, 2) if is_uniform else None)
    return inline_svg(figure, "Active time of each class per clip")


def curve_figure(entries: Sequence[Entry], labels: LabelTable, threshold: float) -> Markup | None:
    """Precision against recall of segments at every threshold, for the first seed of each system.

    None without probabilities. `labels` is the reference of the evaluation; a mark is drawn at `threshold`.
    """
    drawn: dict[str, curves.Curve] = {}
    for entry in entries:
        saved = entry.judgements[0]
        dense = dense_probabilities(saved)
        if not dense or saved.dynamic_counts is None:
            continue
        durations = {name: clip.duration for name, clip in saved.probabilities().items()}
        segment, hop = saved.scores["segment"], saved.scores["grid"]["hop"]
        counts = curves.counts(labels.select(dense), dense, durations=durations, segment=segment, hop=hop)
        curve = curves.curve(counts)
        if curve.n_ref:
            drawn[entry.name] = curve
    if not drawn:
        return None
    return inline_svg(plots.precision_recall(drawn, threshold), "Precision against recall by model")


def common_threshold(entries: Sequence[Entry]) -> float:
    """The threshold of all systems if they share one, else 0.5."""
    thresholds = [(entry.judgements[0].scores.get("decoder") or {}).get("threshold") for entry in entries]
    first = thresholds[0]
    return float(first) if isinstance(first, int | float) and thresholds.count(first) == len(thresholds) else 0.5


def learning_figure(log: Path, classes: Sequence[str], name: str) -> Markup | None:
    """Loss, scores and alpha by epoch; None without a log."""
    if not log.is_file() or not log.read_text().strip():
        return None
    return inline_svg(plots.learning_curves(log, classes), f"Learning curves of {name}")
