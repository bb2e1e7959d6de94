"""Figures of results: F1 and alpha of each class for each model, precision against recall, active times of classes.

Values are dots, with a row per class and a line within it per model, which stays readable with nine models, seventeen
classes and intervals.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from earmark.annotations import LabelTable
from earmark.counts import ratio
from earmark.errors import ArgumentError, DataError
from earmark.evaluation.base import Floats
from earmark.evaluation.curves import Curve
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import segment_curve
from earmark.evaluation.statistics import Interval, bootstrap
from earmark.events import Decoder
from earmark.plots.style import (
    COLOURS,
    COLUMN,
    PAGE,
    SCORE_RANGE,
    STYLE,
    check_names,
    legend_above,
    looks,
    name_rows,
    readable,
)
from earmark.pooling import alpha_family
from earmark.text import as_names

Values = Mapping[str, Mapping[str, float]]  # by model and class
Intervals = Mapping[str, Mapping[str, tuple[float, float]]]

_MANY = 2000  # points drawn as vectors; more are rasterised


@mpl.rc_context(STYLE)
def f1_by_class(f1: Values, intervals: Intervals | None = None, *, label: str = "$F_1$") -> Figure:
    """F1 by class and model, as in Fig. 7, Fig. 10 and Fig. 12, with intervals as bars; classes are sorted by mean.

    NaN and missing values are not drawn; a class without any is marked. `label`, of the axis, describes score and bars
    in a figure without a caption.
    """
    classes = _order(f1)
    figure, axes = _rows(f1, classes, PAGE)
    _dots(axes, f1, classes, intervals or {})
    legend_above(figure, len(f1), 5)
    axes.set_xlabel(label)
    axes.set_xlim(SCORE_RANGE)
    for row, name in enumerate(classes):
        if not any(np.isfinite(by_class.get(name, np.nan)) for by_class in f1.values()):
            place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center"}
            axes.annotate("no clips", (0.01, row), fontsize=7, color="#777777", **place)
    return figure


@mpl.rc_context(STYLE)
def f1_by_clips(f1: Mapping[str, Mapping[int, Sequence[float]]]) -> Figure:
    """F1 of systems against the number of training clips: a dot for each run, and lines through their means."""
    figure = Figure(figsize=(1.5 * COLUMN, 3.1))
    axes = figure.subplots()
    axes.set_xscale("log")
    sizes = sorted({size for by_size in f1.values() for size in by_size})
    for (name, by_size), look in zip(f1.items(), looks(f1).values(), strict=True):
        means = [(size, float(np.mean(by_size[size]))) for size in sorted(by_size)]
        axes.plot(*zip(*means, strict=True), look.marker + "-", color=look.colour, ms=look.size, label=name)
        for size, values in by_size.items():
            axes.plot([size] * len(values), values, ".", color=look.colour, ms=3, alpha=0.6)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="training clips", ylabel="segment $F_1$", ylim=SCORE_RANGE)
    legend_above(figure, len(f1), 2)
    return figure


@mpl.rc_context(STYLE)
def learned_alpha(
    alpha: Values, bounds: Mapping[str, float] | None = None, *, at_zero: Collection[str] = ("mean",)
) -> Figure:
    """Learned alpha by class and model, as in Fig. 8 and Fig. 11; classes are sorted by their mean.

    Lines mark what the operators are at alpha = 0, `at_zero`, and soft-max pooling (alpha = 1) if that is the mean.
    Dashed lines in a model's colour are `bounds`, the largest |alpha| that a constrained operator allows.
    """
    classes, at_zero = _order(alpha), as_names(at_zero)
    check_names("model", bounds or {}, alpha)
    figure, axes = _rows(alpha, classes, COLUMN)
    marks = [(0, ", ".join(at_zero), "right"), (1, "soft-max", "left")]
    for fixed, name, side in marks if "mean" in at_zero else [(0, ", ".join(at_zero), "left")]:
        axes.axvline(fixed, color="#999999", lw=0.8, zorder=1)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": side}
        axes.annotate(name, (fixed, 1.005), fontsize=7, color="#555555", **place)
    _dots(axes, alpha, classes, {})
    for name, bound in (bounds or {}).items():
        dashed: dict[str, Any] = {"color": looks(alpha)[name].colour, "ls": (0, (4, 2)), "lw": 1.2, "zorder": 1}
        axes.axvline(bound, label=f"bound of {readable(name, 40)}", **dashed)
        if np.nanmin(list(alpha[name].values())) < -bound / 2:
            axes.axvline(-bound, **dashed)
    axes.set_xlabel(r"learned $\alpha$")
    legend_above(figure, len(alpha) + len(bounds or {}))
    return figure


@mpl.rc_context(STYLE)
def precision_recall(curves: Mapping[str, Curve], chosen: Mapping[str, tuple[float, float]] | None = None) -> Figure:
    """Precision against recall at every threshold, one curve per model, with a mark at 0.5.

    `chosen` has recall and precision of models with a decoder of their own. They are marked, with an open mark at 0.5
    for comparison; with thresholds per class, they may lie off the curve. Grey lines connect points of equal F1.
    """
    if not curves:
        raise ArgumentError("expected at least one model to draw, got none")
    figure = Figure(figsize=(COLUMN, COLUMN))
    axes = figure.subplots()
    marks = chosen or {}
    style: dict[str, Any] = {"color": "#777777", "va": "center", "annotation_clip": False}
    for level in np.arange(0.1, 1.0, 0.1):
        recall = np.linspace(level / (2 - level), 1, 100)
        axes.plot(recall, level * recall / (2 * recall - level), color="#DDDDDD", lw=0.7, zorder=1)
        axes.annotate(f"{level:.1f}", (1.005, level / (2 - level)), fontsize=6.5, **style)
    axes.annotate("$F_1$", (1.005, 1.0), fontsize=7, **style)
    for name, (colour, marker, size) in looks(curves).items():
        curve = curves[name]
        at = curve.at(0.5)
        axes.plot(curve.recall, curve.precision, color=colour, lw=1.2)
        point: dict[str, Any] = {"ms": 1.3 * size, "mec": "white", "mew": 0.6, "clip_on": False, "zorder": 3}
        half = curve.recall[at], curve.precision[at]
        if name in marks:
            axes.plot(*half, marker, **{**point, "mec": colour, "mew": 1.0, "mfc": "white"})
        axes.plot(*marks.get(name, half), marker, color=colour, **point)
        axes.plot([], [], color=colour, marker=marker, ms=size, lw=1.2, label=readable(name))
    if marks:
        axes.plot([], [], "o", ms=5, color="#555555", mec="white", mew=0.6, label="chosen thresholds")
        axes.plot([], [], "o", ms=5, mec="#555555", mew=1.0, mfc="white", label="0.5")
    axes.grid(False)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel="recall", ylabel="precision", aspect="equal")
    legend_above(figure, len(curves) + 2 * bool(marks))
    return figure


def _order(values: Values) -> list[str]:
    """Classes by ascending mean over models; those without values come first."""
    known: dict[str, list[float]] = {}
    for by_class in values.values():
        for label, value in by_class.items():
            finite = known.setdefault(label, [])
            if np.isfinite(value):
                finite.append(value)
    if not any(known.values()):
        raise ArgumentError("expected a value of at least one model and class to draw, got none")
    return sorted(known, key=lambda label: float(np.mean(known[label])) if known[label] else -np.inf)


def _rows(values: Values, classes: list[str], width: float) -> tuple[Figure, Axes]:
    """A figure with a row per class, tall enough for a line per model, and no taller than a page."""
    row = max(0.26, 0.055 * len(values) + 0.06)
    figure = Figure(figsize=(width, min(9.0, 0.85 + row * len(classes))))
    axes = figure.subplots()
    for i in range(0, len(classes), 2):
        axes.axhspan(i - 0.5, i + 0.5, color="#F3F3F3", lw=0, zorder=0)
    name_rows(axes, classes)
    return figure, axes


def _dots(axes: Axes, values: Values, classes: list[str], intervals: Intervals) -> None:
    """Draw a dot for each model and class, and its interval."""
    check_names("model", intervals, values)
    reach = min(0.36, 0.12 * (len(values) - 1))  # few models stay close together, away from the next class
    lines = np.linspace(reach, -reach, len(values))
    for line, (name, (colour, marker, size)) in zip(lines, looks(values).items(), strict=True):
        bars = intervals.get(name, {})
        for i, label in enumerate(classes):
            if label in bars:
                axes.plot(bars[label], [i + line] * 2, color=colour, lw=1.1, solid_capstyle="butt", zorder=2)
        x = [values[name].get(label, np.nan) for label in classes]
        axes.plot(
            x,
            np.arange(len(classes)) + line,
            marker,
            color=colour,
            ms=size,
            mec="white",
            mew=0.3,
            label=readable(name, 40),
        )


EVALUATION_FIGURES = ("f1_by_class", "learned_alpha", "precision_recall")


def evaluation_figures(evaluation: Evaluation, reference: LabelTable, name: str) -> dict[str, Figure]:
    """The figures that an evaluation has numbers for; `name` is that of the model, for the legend."""
    scores = evaluation.scores
    counts, what = evaluation.dynamic_counts, "segments"
    if counts is None:
        counts, what = evaluation.static_counts, "clips"
    f1 = bootstrap(partial(ratio("f1", "per_class", scores["convention"]), counts), len(counts.filenames))
    figures = {"f1_by_class": class_figure({name: f1}, counts.classes, f"F1 of {what}; lines: 95% intervals")}
    if scores.get("alpha") is not None:
        alpha = dict(zip(evaluation.static_counts.classes, scores["alpha"], strict=True))
        family = alpha_family(evaluation.pool)
        figures["learned_alpha"] = learned_alpha({name: alpha}, at_zero=[family.at_zero] if family else [])
    figures["precision_recall"] = curve_figure({name: evaluation}, reference)
    return {name: figure for name, figure in figures.items() if figure is not None}


def class_figure(scores: Mapping[str, Interval[Floats]], classes: Sequence[str], label: str = "$F_1$") -> Figure | None:
    """F1 by class and system, with intervals where they are known; None if no class has a score."""
    if not any(np.isfinite(f1.value).any() for f1 in scores.values()):
        return None
    values, bars = {}, {}
    for name, f1 in scores.items():
        values[name] = dict(zip(classes, f1.value.tolist(), strict=True))
        bounds = zip(classes, f1.low.tolist(), f1.high.tolist(), strict=True)
        bars[name] = {label: (low, high) for label, low, high in bounds if np.isfinite([low, high]).all()}
    return f1_by_class(values, bars, label=label)


def curve_figure(evaluations: Mapping[str, Evaluation], reference: LabelTable) -> Figure | None:
    """Precision against recall of segments at every threshold, with marks; None without probabilities."""
    curves, chosen = {}, {}
    for name, evaluation in evaluations.items():
        if evaluation.dynamic_counts is not None and evaluation.probabilities():
            curve = segment_curve(evaluation, reference)
            if curve.n_ref:
                curves[name] = curve
                decoder = replace(Decoder.from_dict(evaluation.scores["decoder"]), tuned_on=None)
                if decoder != Decoder() and evaluation.dynamic is not None:
                    chosen[name] = (evaluation.dynamic.overall.recall, evaluation.dynamic.overall.precision)
    return precision_recall(curves, chosen) if curves else None


@mpl.rc_context(STYLE)
def event_durations(table: LabelTable, *, clip_duration: float | None = None, log: bool = False) -> Figure:
    """Active time of each class, as in Fig. 3, Fig. 4 and Fig. 5: a point for each clip, a bar for the mean.

    Overlaps of events of one class count once. Classes are sorted by their means, with the number of their points on
    the right. A class without times has an empty row. `clip_duration`, of a clip or of the training patches, is a
    dashed line.
    With `log` the time axis is logarithmic; events of zero length are not drawn then, but count in the mean.
    """
    if clip_duration is not None and not clip_duration > 0:
        raise ArgumentError(f"clip_duration: expected a positive number, got {clip_duration}")
    points = {label: list(times.values()) for label, times in table.active_times().items()}
    n_points = sum(map(len, points.values()))
    if not n_points:
        raise DataError("expected strong labels, got a table without event times: there are no durations to draw")
    means = {label: float(np.mean(values)) if values else -1.0 for label, values in points.items()}
    order = sorted(points, key=means.__getitem__)
    rng = np.random.default_rng(0)  # reproducible jitter
    figure = Figure(figsize=(COLUMN, 0.75 + 0.26 * len(order)))
    axes = figure.subplots()
    for row, label in enumerate(order):
        values = points[label]
        height = row + rng.uniform(-0.3, 0.3, len(values))
        strength = float(np.clip(70 / max(len(values), 1), 0.25, 0.7))
        size = float(np.clip(90 / max(len(values), 1), 3, 6))
        (dots,) = axes.plot(values, height, ".", color=COLOURS["blue"], ms=size, mew=0, alpha=strength)
        dots.set_rasterized(n_points > _MANY)
        if len(values):
            axes.plot([means[label]] * 2, [row - 0.38, row + 0.38], color=COLOURS["vermilion"], lw=2)
        axes.annotate(f"{len(values)}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    name_rows(axes, order)
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.annotate("clips", (1.01, len(order) - 0.4), xycoords=("axes fraction", "data"), fontsize=7)
    axes.set_xlabel("active time in a clip (s)")
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
    axes.plot([], [], ".", color=COLOURS["blue"], ms=5, label="one clip")
    axes.plot([], [], "|", color=COLOURS["vermilion"], ms=8, mew=2, label="mean")
    if clip_duration is not None:
        mark: dict[str, Any] = {"color": COLOURS["grey"], "ls": (0, (4, 2)), "lw": 1.2, "zorder": 1.5}
        axes.axvline(clip_duration, label=f"{clip_duration:g} s", **mark)
        axes.set_xlim(right=max(axes.get_xlim()[1], 1.03 * clip_duration))  # a line at the end would look like an axis
    if not log:
        axes.set_xlim(left=0)  # last, because plotting widens the axis
    legend_above(figure, 3)
    return figure
