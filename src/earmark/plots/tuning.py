"""Figures of a search: the score of each trial against its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from earmark.plots.style import COLOURS, COLUMN, STYLE

if TYPE_CHECKING:
    from earmark.tuning import Trial

_NAMES = {"penalty": r"$\lambda$", "reduction": "feature frames per output frame", "threshold": "best threshold"}
_RING: dict[str, Any] = {"mfc": "none", "mec": COLOURS["black"], "mew": 1.1}
_LOOKS = (("blue", "o"), ("orange", "s"), ("green", "D"), ("purple", "^"), ("vermilion", "v"))


@mpl.rc_context(STYLE)
def tuning_figure(trials: Sequence[Trial], best: Trial, tied: Sequence[Trial]) -> Figure:
    """F1 of each trial, with its interval, against lambda, or against the reduction if lambda was not searched.

    The best trial has a ring; filled dots are tied with it, hollow ones are worse. If both lambda and reduction were
    searched, colours and markers distinguish reductions. Thresholds have a separate panel.
    """
    knob = "penalty" if "penalty" in best.values else "reduction"
    both = {"penalty", "reduction"} <= best.values.keys()
    groups = sorted({trial.values["reduction"] for trial in trials}) if both else [None]
    panels = ["f1", *(["threshold"] if "threshold" in best.values else [])]
    figure = Figure(figsize=(1.4 * COLUMN, 2.9 + 1.2 * (len(panels) - 1)))
    heights = [2.4, 1.2][: len(panels)]
    rows = [*figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]]
    for panel, axes in zip(panels, rows, strict=True):
        for group, (colour, marker) in zip(groups, _LOOKS, strict=False):
            for trial in trials:
                if group is None or trial.values["reduction"] == group:
                    is_filled = trial is best or trial in tied
                    x, y = _dot(axes, trial, panel, knob, COLOURS[colour], marker, is_filled)
                    if trial is best:
                        axes.plot(x, y, "o", ms=11, clip_on=False, zorder=4, **_RING)
            if both and panel == "f1":
                axes.plot([], [], marker, color=COLOURS[colour], ms=5, label=f"reduction {group:g}")
    _label(rows, panels, knob, trials)
    grey = COLOURS["grey"]
    rows[0].plot([], [], "o", ms=8, label="best", **_RING)
    if tied:
        rows[0].plot([], [], "o", ms=5, color=grey, label="tied with it")
    if len(tied) + 1 < len(trials):
        rows[0].plot([], [], "o", ms=5, mfc="white", mec=grey, label="worse")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _dot(
    axes: Axes, trial: Trial, panel: str, knob: str, colour: str, marker: str, is_filled: bool
) -> tuple[float, float]:
    """Draw a trial, with the interval of its F1; returns its coordinates."""
    x, y = trial.values[knob], trial.f1 if panel == "f1" else trial.values[panel]
    if panel == "f1":
        axes.plot([x, x], trial.interval, color=colour, lw=1.0, alpha=0.45, zorder=2)
    fill = colour if is_filled else "white"
    axes.plot(x, y, marker, ms=5.5, mec=colour, mew=1.1, mfc=fill, clip_on=False, zorder=3)
    return x, y


def _label(rows: Sequence[Axes], panels: Sequence[str], knob: str, trials: Sequence[Trial]) -> None:
    rows[-1].set_xlabel(_NAMES[knob])
    rows[0].set_ylabel("$F_1$ of validation segments")
    for panel, axes in zip(panels, rows, strict=True):
        axes.set_xscale("log", base=10 if knob == "penalty" else 2)
        if panel == "threshold":
            axes.set(ylabel=_NAMES[panel], ylim=(0, 1))
        if knob == "reduction":
            values = sorted({trial.values[knob] for trial in trials})
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.xaxis.set_minor_locator(NullLocator())
        else:
            axes.xaxis.set_minor_formatter(NullFormatter())
