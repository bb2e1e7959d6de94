"""Figures of evaluations: F1 per class with intervals, alpha, precision and recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from earmark.annotations import LabelTable
from earmark.counts import ratio
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import segment_curve
from earmark.evaluation.statistics import Interval, bootstrap
from earmark.plots.scores import f1_by_class, learned_alpha, precision_recall


def evaluation_figures(evaluation: Evaluation, reference: LabelTable, name: str) -> dict[str, Figure]:
    """The figures that an evaluation has numbers for; `name` is that of the model, for the legend."""
    scores = evaluation.scores
    counts, what = evaluation.dynamic_counts, "segments"
    if counts is None:
        counts, what = evaluation.static_counts, "clips"
    f1 = bootstrap(partial(ratio("f1", "per_class", scores["convention"]), counts), len(counts.filenames))
    figures = {"f1_by_class": class_figure({name: f1}, counts.classes, f"F1 of {what}; lines: 95 % intervals")}
    if scores.get("alpha") is not None:
        alpha = dict(zip(evaluation.static_counts.classes, scores["alpha"], strict=True))
        figures["learned_alpha"] = learned_alpha({name: alpha})
    threshold = (scores["decoder"] or {}).get("threshold")
    mark = threshold if isinstance(threshold, float) else 0.5
    figures["precision_recall"] = curve_figure({name: evaluation}, reference, mark)
    return {name: figure for name, figure in figures.items() if figure is not None}


def class_figure(scores: Mapping[str, Interval], classes: Sequence[str], label: str = "$F_1$") -> Figure | None:
    """F1 by class and system, with intervals where they are known; None if no class has a score."""
    if not any(np.isfinite(f1.value).any() for f1 in scores.values()):
        return None
    values, bars = {}, {}
    for name, f1 in scores.items():
        values[name] = dict(zip(classes, f1.value.tolist(), strict=True))
        bounds = zip(classes, f1.low.tolist(), f1.high.tolist(), strict=True)
        bars[name] = {label: (low, high) for label, low, high in bounds if np.isfinite([low, high]).all()}
    return f1_by_class(values, bars, label=label)


def curve_figure(evaluations: Mapping[str, Evaluation], reference: LabelTable, threshold: float) -> Figure | None:
    """Precision against recall of segments at every threshold, with a mark at one; None without probabilities."""
    curves = {}
    for name, evaluation in evaluations.items():
        if evaluation.dynamic_counts is not None and evaluation.probabilities():
            curve = segment_curve(evaluation, reference)
            if curve.n_ref:
                curves[name] = curve
    return precision_recall(curves, threshold) if curves else None
