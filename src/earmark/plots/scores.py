"""Figures of results: F1 and alpha of each class for each model, and precision against recall.

Values are dots, with a row per class and a line within it per model, which stays readable with nine models, seventeen
classes and intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earmark.errors import ArgumentError, unknown_name
from earmark.evaluation.curves import Curve
from earmark.plots.style import COLUMN, PAGE, STYLE, looks, readable

__all__ = ["f1_by_class", "learned_alpha", "precision_recall"]

Values = Mapping[str, Mapping[str, float]]
Intervals = Mapping[str, Mapping[str, tuple[float, float]]]


def f1_by_class(f1: Values, intervals: Intervals | None = None, *, label: str = "$F_1$") -> Figure:
    """F1 by class and model, as in Fig. 7, Fig. 10 and Fig. 12; classes are sorted by their mean.

    Parameters
    ----------
    f1 : model -> class -> F1
        Models in the order of the legend and, within a class, from top to bottom. NaN and missing values are not drawn.
    intervals : model -> class -> (low, high)
        Drawn as bars where given; see `earmark.evaluation.statistics.bootstrap`.
    label
        Of the axis; describes the score and the bars in a figure without a caption.
    """
    classes = _order(f1)
    with mpl.rc_context(STYLE):
        figure, axes = _rows(f1, classes, PAGE)
        _dots(axes, f1, classes, intervals or {})
        _legend(figure, len(f1), 5)
        axes.set_xlabel(label)
        shown = [v for own in f1.values() for v in own.values()]
        shown += [v for own in (intervals or {}).values() for pair in own.values() for v in pair]
        low, high = np.floor(20 * np.nanmin(shown) - 0.2) / 20, np.ceil(20 * np.nanmax(shown) + 0.2) / 20
        axes.set_xlim(max(low, -0.01), min(high, 1.01))  # dots at 0 and 1 are not cut
    return figure


def learned_alpha(alpha: Values, bounds: Mapping[str, float] | None = None) -> Figure:
    """Learned alpha by class and model, as in Fig. 8 and Fig. 11; classes are sorted by their mean.

    Lines mark soft-max pooling (alpha 1) and mean pooling (alpha 0).

    Parameters
    ----------
    alpha : model -> class -> alpha
    bounds : model -> largest |alpha| that CAP allows
        Dashed, in the model's colour.
    """
    classes = _order(alpha)
    for name in bounds or {}:
        if name not in alpha:
            raise unknown_name("model", name, alpha)
    with mpl.rc_context(STYLE):
        figure, axes = _rows(alpha, classes, COLUMN)
        for fixed, name, side in ((0, "mean", "right"), (1, "soft-max", "left")):
            axes.axvline(fixed, color="#999999", lw=0.8, zorder=1)
            axes.annotate(
                name, (fixed, 1.005), xycoords=("data", "axes fraction"), ha=side, fontsize=7, color="#555555"
            )
        _dots(axes, alpha, classes, {})
        lowest = np.nanmin([value for own in alpha.values() for value in own.values()])
        for name, bound in (bounds or {}).items():
            dashed: dict[str, Any] = {"color": looks(alpha)[name].colour, "ls": (0, (4, 2)), "lw": 1.2, "zorder": 1}
            axes.axvline(bound, label=f"bound of {readable(name, 40)}", **dashed)
            if lowest < -bound / 2:
                axes.axvline(-bound, **dashed)
        axes.set_xlabel(r"learned $\alpha$")
        _legend(figure, len(alpha) + len(bounds or {}), 3)
    return figure


def precision_recall(curves: Mapping[str, Curve], threshold: float = 0.5) -> Figure:
    """Precision against recall at every threshold, one curve per model, with a mark at `threshold`.

    Grey lines connect points of equal F1.

    Parameters
    ----------
    curves : model -> curve
        From `earmark.evaluation.curves.curve`: of one class, or of all classes pooled.
    """
    if not curves:
        raise ArgumentError("expected at least one model to draw, got none")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN, COLUMN))
        axes = figure.subplots()
        for level in np.arange(0.1, 1.0, 0.1):
            recall = np.linspace(level / (2 - level), 1, 100)
            axes.plot(recall, level * recall / (2 * recall - level), color="#DDDDDD", lw=0.7, zorder=1)
            axes.annotate(
                f"{level:.1f}",
                (1.005, level / (2 - level)),
                fontsize=6.5,
                color="#777777",
                va="center",
                annotation_clip=False,
            )
        axes.annotate("$F_1$", (1.005, 1.0), fontsize=7, color="#777777", va="center", annotation_clip=False)
        for name, (colour, marker, size) in looks(curves).items():
            curve = curves[name]
            at = curve.at(threshold)
            axes.plot(curve.recall, curve.precision, color=colour, lw=1.2)
            point: dict[str, Any] = {"ms": 1.3 * size, "mec": "white", "mew": 0.6, "clip_on": False, "zorder": 3}
            axes.plot(curve.recall[at], curve.precision[at], marker, color=colour, **point)
            axes.plot([], [], color=colour, marker=marker, ms=size, lw=1.2, label=readable(name))
        axes.grid(False)
        axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel="recall", ylabel="precision", aspect="equal")
        _legend(figure, len(curves), 3)
    return figure


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
    axes.set_yticks(range(len(classes)), [readable(label) for label in classes])
    axes.set_ylim(-0.5, len(classes) - 0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    return figure, axes


def _dots(axes: Axes, values: Values, classes: list[str], intervals: Intervals) -> None:
    """Draw a dot for each model and class, and its interval."""
    for name in intervals:
        if name not in values:
            raise unknown_name("model", name, values)
    reach = min(0.36, 0.12 * (len(values) - 1))  # few models stay close together, away from the next class
    lines = np.linspace(reach, -reach, len(values))
    for line, (name, (colour, marker, size)) in zip(lines, looks(values).items(), strict=True):
        own = intervals.get(name, {})
        for i, label in enumerate(classes):
            if label in own:
                axes.plot(own[label], [i + line] * 2, color=colour, lw=1.1, solid_capstyle="butt", zorder=2)
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


def _legend(figure: Figure, entries: int, most: int) -> None:
    """A legend above the axes, in lines of similar length with at most `most` entries."""
    columns = math.ceil(entries / math.ceil(entries / most))
    figure.legend(loc="outside upper center", ncols=columns, handlelength=1.5, handletextpad=0.4, columnspacing=1.2)
