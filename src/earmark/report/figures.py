"""Figures of a page of runs, with the sentences below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from earmark import plots
from earmark.annotations import LabelTable
from earmark.evaluation import curves
from earmark.evaluation.comparison import Entry
from earmark.evaluation.curves import Curve
from earmark.evaluation.statistics import Interval
from earmark.report.inline import inline_svg
from earmark.report.results import dense_probabilities

__all__ = ["Drawing", "alpha_figure", "class_figure", "curve_figure", "duration_figure", "learning_figure"]


@dataclass(frozen=True)
class Drawing:
    """A figure of a page; `is_wide` ones fill it, of others two stand side by side where there is room."""

    drawing: Markup
    caption: str
    is_wide: bool = False


def class_figure(scores: Mapping[str, Interval], classes: Sequence[str]) -> Drawing | None:
    """F1 of each class for each model, with bars; None where no class has one."""
    if not any(np.isfinite(own.value).any() for own in scores.values()):
        return None
    values = {name: dict(zip(classes, own.value.tolist(), strict=True)) for name, own in scores.items()}
    bars = {
        name: {
            label: (low, high)
            for label, low, high in zip(classes, own.low.tolist(), own.high.tolist(), strict=True)
            if math.isfinite(low) and math.isfinite(high)
        }
        for name, own in scores.items()
    }
    drawing = inline_svg(plots.f1_by_class(values, bars), "F1 of each class by model, with intervals")
    return Drawing(drawing, "F1 of each class. Bars are 95 % intervals: what other clips might have given.", True)


def alpha_figure(alphas: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Alpha of each class for each model."""
    caption = "Alpha as learned. Far to the right one moment is enough to decide; at 0 every moment has the same vote."
    return Drawing(inline_svg(plots.learned_alpha(alphas), "Learned alpha of each class by model"), caption)


def duration_figure(labels: LabelTable, durations: Mapping[str, float]) -> Drawing | None:
    """For how long each class is heard in each clip; None where the reference does not say when."""
    if not durations or not any(row.has_times for row in labels):
        return None
    usual = float(np.median(list(durations.values())))
    line = round(usual, 2) if all(abs(own - usual) < 0.01 * usual for own in durations.values()) else None
    figure = plots.event_durations(labels, clip_duration=line)
    caption = "How long each class is heard in the clips that have it, as the reference says."
    return Drawing(inline_svg(figure, "Time for which each class is heard in a clip"), caption)


def curve_figure(entries: Sequence[Entry], labels: LabelTable) -> Drawing | None:
    """Precision and recall of segments at every threshold, of each model's first seed; None without probabilities.

    Parameters
    ----------
    labels
        What the entries were judged by.
    """
    found: dict[str, Curve] = {}
    for entry in entries:
        saved = entry.evaluations[0]
        dense = dense_probabilities(saved)
        if dense and saved.dynamic_counts is not None:
            durations = {name: heard.duration for name, heard in saved.probabilities().items()}
            when = {"segment": saved.scores["segment"], "hop": saved.scores["grid"]["hop"]}
            curve = curves.curve(curves.counts(labels.select(dense), dense, durations=durations, **when))
            if curve.n_ref:
                found[entry.name] = curve
    if not found:
        return None
    mark = _common_threshold(entries)
    seeds = " Of several seeds the first is drawn." if any(len(entry.evaluations) > 1 for entry in entries) else ""
    caption = (
        f"Precision against recall of segments, all classes together, at every threshold; marks at {mark:g}. A lower "
        f"threshold moves to the right: more is found, and less of it is right.{seeds}"
    )
    return Drawing(inline_svg(plots.precision_recall(found, mark), "Precision against recall by model"), caption)


def _common_threshold(entries: Sequence[Entry]) -> float:
    """That of all models, if they share one for all classes; else 0.5."""
    told = [(entry.evaluations[0].scores.get("decoder") or {}).get("threshold") for entry in entries]
    return float(told[0]) if isinstance(told[0], int | float) and told.count(told[0]) == len(told) else 0.5


def learning_figure(log: Path, classes: Sequence[str], name: str) -> Drawing | None:
    """Loss, scores and alpha by epoch; None where there is no log."""
    if not log.is_file() or not log.read_text().strip():
        return None
    return Drawing(inline_svg(plots.learning_curves(log, classes), f"Learning curves of {name}"), name, True)
