"""Figures of data sets: how long classes are active."""

from __future__ import annotations

from collections import defaultdict

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.plots.style import COLOURS, COLUMN, STYLE, readable

__all__ = ["event_durations"]

Floats = npt.NDArray[np.float64]

_PER = ("clip", "event")
_MANY = 2000  # points drawn as vectors; more are rasterised


def event_durations(
    table: LabelTable, *, clip_duration: float | None = None, log: bool = False, per: str = "clip"
) -> Figure:
    """Durations for each class, as in Fig. 3, Fig. 4 and Fig. 5: a point for each clip, a bar for the mean.

    Classes are sorted by their means, with the number of their points on the right. A class without times has an empty
    row.

    Parameters
    ----------
    clip_duration
        Of a clip, or of the training patches; drawn as a black line.
    log
        Whether the time axis is logarithmic. Events of zero length are not drawn then, but count in the mean.
    per
        What a point is. "clip": the active time of a class in a clip, as in the paper; overlaps of events of one class
        count once. "event": the duration of a single event.
    """
    if per not in _PER:
        raise unknown_name("per", per, _PER)
    if clip_duration is not None and not clip_duration > 0:
        raise ArgumentError(f"clip_duration: expected a positive number, got {clip_duration}")
    points = table.durations() if per == "event" else _active_times(table)
    if not any(len(values) for values in points.values()):
        raise DataError("expected strong labels, got a table without event times: there are no durations to draw")
    means = {label: float(np.mean(values)) if len(values) else -1.0 for label, values in points.items()}
    order = sorted(points, key=means.__getitem__)
    rng = np.random.default_rng(0)  # reproducible jitter
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN, 0.75 + 0.26 * len(order)))
        axes = figure.subplots()
        for row, label in enumerate(order):
            values = points[label]
            height = row + rng.uniform(-0.3, 0.3, len(values))
            strength = float(np.clip(70 / max(len(values), 1), 0.25, 0.7))
            size = float(np.clip(90 / max(len(values), 1), 3, 6))
            (dots,) = axes.plot(values, height, ".", color=COLOURS["blue"], ms=size, mew=0, alpha=strength)
            dots.set_rasterized(sum(map(len, points.values())) > _MANY)
            if len(values):
                axes.plot([means[label]] * 2, [row - 0.38, row + 0.38], color=COLOURS["vermilion"], lw=2)
            axes.annotate(f"{len(values)}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        axes.set_yticks(range(len(order)), [readable(label) for label in order])
        axes.set_ylim(-0.6, len(order) - 0.4)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.annotate(f"{per}s", (1.01, len(order) - 0.4), xycoords=("axes fraction", "data"), fontsize=7)
        axes.set_xlabel("time heard in a clip (s)" if per == "clip" else "duration of an event (s)")
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
        axes.plot([], [], ".", color=COLOURS["blue"], ms=5, label=f"one {per}")
        axes.plot([], [], "|", color=COLOURS["vermilion"], ms=8, mew=2, label="mean")
        if clip_duration is not None:
            axes.axvline(clip_duration, color="black", lw=1, zorder=1.5, label=f"{clip_duration:g} s")
        if not log:
            axes.set_xlim(left=0)  # last, because plotting widens the axis
        figure.legend(loc="outside upper center", ncols=3, handlelength=1, handletextpad=0.3, columnspacing=1.2)
    return figure


def _active_times(table: LabelTable) -> dict[str, Floats]:
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
