"""Figures of results: F1 and alpha of each class for each model, and precision against recall.

Values are dots, with a row per class and a line within it per model, which stays readable with nine models, seventeen
classes and intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earmark.errors import ArgumentError, unknown_name
from earmark.evaluation.curves import Curve
from earmark.plots.style import COLUMN, PAGE, STYLE, legend_above, looks, name_rows, readable

Values = Mapping[str, Mapping[str, float]]
Intervals = Mapping[str, Mapping[str, tuple[float, float]]]


@mpl.rc_context(STYLE)
def f1_by_class(f1: Values, intervals: Intervals | None = None, *, label: str = "$F_1$") -> Figure:
    """F1 by class and model, as in Fig. 7, Fig. 10 and Fig. 12; classes are sorted by their mean.

    Parameters
    ----------
    f1 : model -> class -> F1; NaN and missing values are not drawn
    intervals : model -> class -> (low, high), drawn as bars where given
    label : of the axis; describes the score and the bars in a figure without a caption
    """
    classes = _order(f1)
    figure, axes = _rows(f1, classes, PAGE)
    _dots(axes, f1, classes, intervals or {})
    legend_above(figure, len(f1), 5)
    axes.set_xlabel(label)
    shown = [v for own in f1.values() for v in own.values()]
    shown += [v for own in (intervals or {}).values() for pair in own.values() for v in pair]
    low, high = np.floor(20 * np.nanmin(shown) - 0.2) / 20, np.ceil(20 * np.nanmax(shown) + 0.2) / 20
    axes.set_xlim(max(low, -0.01), min(high, 1.01))  # dots at 0 and 1 are not cut
    return figure


@mpl.rc_context(STYLE)
def learned_alpha(alpha: Values, bounds: Mapping[str, float] | None = None) -> Figure:
    """Learned alpha by class and model, as in Fig. 8 and Fig. 11; classes are sorted by their mean.

    Lines mark soft-max pooling (alpha 1) and mean pooling (alpha 0).

    Parameters
    ----------
    alpha : model -> class -> alpha
    bounds : model -> largest |alpha| that CAP allows, dashed in the model's colour
    """
    classes = _order(alpha)
    _check_models(bounds or {}, alpha)
    figure, axes = _rows(alpha, classes, COLUMN)
    for fixed, name, side in ((0, "mean", "right"), (1, "soft-max", "left")):
        axes.axvline(fixed, color="#999999", lw=0.8, zorder=1)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": side}
        axes.annotate(name, (fixed, 1.005), fontsize=7, color="#555555", **place)
    _dots(axes, alpha, classes, {})
    lowest = np.nanmin([value for own in alpha.values() for value in own.values()])
    for name, bound in (bounds or {}).items():
        dashed: dict[str, Any] = {"color": looks(alpha)[name].colour, "ls": (0, (4, 2)), "lw": 1.2, "zorder": 1}
        axes.axvline(bound, label=f"bound of {readable(name, 40)}", **dashed)
        if lowest < -bound / 2:
            axes.axvline(-bound, **dashed)
    axes.set_xlabel(r"learned $\alpha$")
    legend_above(figure, len(alpha) + len(bounds or {}))
    return figure


@mpl.rc_context(STYLE)
def precision_recall(curves: Mapping[str, Curve], threshold: float = 0.5) -> Figure:
    """Precision against recall at every threshold, one curve per model, with a mark at `threshold`.

    Grey lines connect points of equal F1.
    """
    if not curves:
        raise ArgumentError("expected at least one model to draw, got none")
    figure = Figure(figsize=(COLUMN, COLUMN))
    axes = figure.subplots()
    beside: dict[str, Any] = {"color": "#777777", "va": "center", "annotation_clip": False}
    for level in np.arange(0.1, 1.0, 0.1):
        recall = np.linspace(level / (2 - level), 1, 100)
        axes.plot(recall, level * recall / (2 * recall - level), color="#DDDDDD", lw=0.7, zorder=1)
        axes.annotate(f"{level:.1f}", (1.005, level / (2 - level)), fontsize=6.5, **beside)
    axes.annotate("$F_1$", (1.005, 1.0), fontsize=7, **beside)
    for name, (colour, marker, size) in looks(curves).items():
        curve = curves[name]
        at = curve.at(threshold)
        axes.plot(curve.recall, curve.precision, color=colour, lw=1.2)
        point: dict[str, Any] = {"ms": 1.3 * size, "mec": "white", "mew": 0.6, "clip_on": False, "zorder": 3}
        axes.plot(curve.recall[at], curve.precision[at], marker, color=colour, **point)
        axes.plot([], [], color=colour, marker=marker, ms=size, lw=1.2, label=readable(name))
    axes.grid(False)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel="recall", ylabel="precision", aspect="equal")
    legend_above(figure, len(curves))
    return figure


def _check_models(names: Iterable[str], known: Values) -> None:
    for name in names:
        if name not in known:
            raise unknown_name("model", name, known)


def _order(values: Values) -> list[str]:
    """Classes by ascending mean over models; those without values come first."""
    if not any(np.isfinite(value) for own in values.values() for value in own.values()):
        raise ArgumentError("expected a value of at least one model and class to draw, got none")
    classes = dict.fromkeys(label for own in values.values() for label in own)
    known = {label: [own[label] for own in values.values() if np.isfinite(own.get(label, np.nan))] for label in classes}
    return sorted(classes, key=lambda label: float(np.mean(known[label])) if known[label] else -np.inf)


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
    _check_models(intervals, values)
    reach = min(0.36, 0.12 * (len(values) - 1))  # few models stay close together, away from the next class
    lines = np.linspace(reach, -reach, len(values))
    for line, (name, (colour, marker, size)) in zip(lines, looks(values).items(), strict=True):
        own = intervals.get(name, {})
        for i, label in enumerate(classes):
            if label in own:
                axes.plot(own[label], [i + line] * 2, color=colour, lw=1.1, solid_capstyle="butt", zorder=2)
        x, y = [values[name].get(label, np.nan) for label in classes], np.arange(len(classes)) + line
        axes.plot(x, y, marker, color=colour, ms=size, mec="white", mew=0.3, label=readable(name, 40))
