"""Figures of one evaluation."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from earmark.annotations import LabelTable
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import segment_curve
from earmark.evaluation.statistics import bootstrap, ratio
from earmark.plots.scores import f1_by_class, learned_alpha, precision_recall

__all__ = ["evaluation_figures"]


def evaluation_figures(evaluation: Evaluation, reference: LabelTable, name: str) -> dict[str, Figure]:
    """The figures that an evaluation has numbers for: F1 per class, alpha, precision and recall.

    Parameters
    ----------
    reference
        Labels that the evaluation is based on.
    name
        Of the model, for the legend.
    """
    scores = evaluation.scores
    figures = {}
    if (f1 := _f1_figure(name, evaluation)) is not None:
        figures["f1_by_class"] = f1
    if scores.get("alpha") is not None:
        alpha = dict(zip(evaluation.static_counts.classes, scores["alpha"], strict=True))
        figures["learned_alpha"] = learned_alpha({name: alpha})
    if evaluation.dynamic is not None and scores["grid"] is not None:
        curve = segment_curve(evaluation, reference)
        threshold = scores["decoder"]["threshold"]
        if curve.n_ref:
            mark = threshold if isinstance(threshold, float) else 0.5
            figures["precision_recall"] = precision_recall({name: curve}, mark)
    return figures


def _f1_figure(name: str, evaluation: Evaluation) -> Figure | None:
    """F1 of each class with its interval; None if no class has one."""
    counts, what = evaluation.dynamic_counts, "segments"
    if counts is None:
        counts, what = evaluation.static_counts, "clips"
    interval = bootstrap(counts, ratio("f1", "per_class", evaluation.scores["convention"]))
    f1, bars = {}, {}
    for label, value, low, high in zip(counts.classes, interval.value, interval.low, interval.high, strict=True):
        if not math.isnan(value):
            f1[label], bars[label] = float(value), (float(low), float(high))
    if not f1:
        return None
    return f1_by_class({name: f1}, {name: bars}, label=f"F1 of {what}; lines: 95 % intervals")
