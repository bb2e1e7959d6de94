"""Figures of data sets: how long classes are active."""

from __future__ import annotations

from collections import defaultdict

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.plots.style import COLOURS, COLUMN, STYLE, legend_above, name_rows

_MANY = 2000  # points drawn as vectors; more are rasterised


@mpl.rc_context(STYLE)
def event_durations(table: LabelTable, *, clip_duration: float | None = None, log: bool = False) -> Figure:
    """Active time of each class, as in Fig. 3, Fig. 4 and Fig. 5: a point for each clip, a bar for the mean.

    Overlaps of events of one class count once. Classes are sorted by their means, with the number of their points on
    the right. A class without times has an empty row.

    Parameters
    ----------
    clip_duration : of a clip, or of the training patches; drawn as a black line
    log : whether the time axis is logarithmic; events of zero length are not drawn then, but count in the mean
    """
    if clip_duration is not None and not clip_duration > 0:
        raise ArgumentError(f"clip_duration: expected a positive number, got {clip_duration}")
    points = _active_times(table)
    n_points = sum(map(len, points.values()))
    if not n_points:
        raise DataError("expected strong labels, got a table without event times: there are no durations to draw")
    means = {label: float(np.mean(values)) if len(values) else -1.0 for label, values in points.items()}
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
        axes.axvline(clip_duration, color="black", lw=1, zorder=1.5, label=f"{clip_duration:g} s")
    if not log:
        axes.set_xlim(left=0)  # last, because plotting widens the axis
    legend_above(figure, 3)
    return figure


def _active_times(table: LabelTable) -> dict[str, npt.NDArray[np.float64]]:
    """Active time of each class in each clip that has it with times."""
    spans = defaultdict(list)
    for row in table:
        if row.onset is not None and row.offset is not None:
            spans[row.label, row.filename].append((row.onset, row.offset))
    times: dict[str, list[float]] = {label: [] for label in table.classes}
    for (label, _), events in spans.items():
        total, reached = 0.0, 0.0
        for onset, offset in sorted(events):
            total += max(0.0, offset - max(onset, reached))
            reached = max(reached, offset)
        times[label].append(total)
    return {label: np.array(values, np.float64) for label, values in times.items()}
