"""Figures of training, from the log of a run, and of a search: the score of each trial against its parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

from earmark.errors import DataError
from earmark.plots.style import COLOURS, COLUMN, SCORE_RANGE, STYLE, readable
from earmark.text import as_names

if TYPE_CHECKING:
    from earmark.training.memory import LogLine
    from earmark.tuning import Trial


@mpl.rc_context(STYLE)
def learning_curves(log: Path, classes: Sequence[str]) -> Figure:
    """Loss, validation scores, and alpha of each class if the operator has one, by epoch; from a run's `log.jsonl`."""
    from earmark.training.memory import read_log  # which imports PyTorch

    lines, classes = read_log(log), as_names(classes)
    epochs = [line.epoch for line in lines]
    alphas = _alphas(log, lines, len(classes))
    figure = Figure(figsize=(7.0, 2.6) if alphas is None else (7.0, 4.6))
    rows = figure.subplots(1 if alphas is None else 2, 2, squeeze=False)
    loss, scores = rows[0]
    loss.plot(epochs, _plotted(line.loss for line in lines), color=COLOURS["blue"], label="training")
    values = {name: _plotted(line.validation.get(name) for line in lines) for name in ("loss", "accuracy", "f1")}
    loss.plot(epochs, values["loss"], color=COLOURS["orange"], label="validation")
    for name, colour in (("accuracy", "green"), ("f1", "purple")):
        scores.plot(epochs, values[name], color=COLOURS[colour], label=name)
    best = [line.epoch for line in lines if line.best]
    for axes, title in ((loss, "loss"), (scores, "validation scores")):
        if best:
            _mark_best(axes, best[-1])
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
    scores.set_ylim(SCORE_RANGE)
    if alphas is not None:
        _alpha_curves(rows[1], epochs, alphas, classes, best[-1] if best else None)
    return figure


def _plotted(values: Iterable[float | None]) -> npt.NDArray[np.float64]:
    """Numbers with NaN, which is not drawn, for those that are not defined or too large for axes."""
    return np.array([math.nan if value is None or abs(value) > 1e100 else value for value in values])


def _alphas(log: Path, lines: Sequence[LogLine], n_classes: int) -> npt.NDArray[np.float64] | None:
    """Alpha by epoch and class; None if the operator has none."""
    if not lines or not lines[0].alpha:
        return None
    rows = [line.alpha or [] for line in lines]
    for line, row in zip(lines, rows, strict=True):
        if len(row) != n_classes:
            raise DataError(f"{log}: alpha: expected {n_classes} numbers in epoch {line.epoch}, got {len(row)}")
    return np.stack([_plotted(row) for row in rows])


def _mark_best(axes: Axes, epoch: int) -> None:
    axes.axvline(epoch, color=COLOURS["grey"], linewidth=0.8, linestyle=":", label="saved model")


def _alpha_curves(
    row: Sequence[Axes], epochs: list[int], alphas: npt.NDArray[np.float64], classes: Sequence[str], best: int | None
) -> None:
    """Alpha by epoch on the left, and that of the saved model on the right, in the same order and colours."""
    over_time, kept = row
    final = alphas[-1 if best is None else epochs.index(best)]
    order = np.argsort(final)
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(classes)))
    for shade, c in zip(shades, order, strict=True):
        over_time.plot(epochs, alphas[:, c], color=shade, linewidth=1.1)
    if best is not None:
        _mark_best(over_time, best)
    kept.barh(range(len(classes)), final[order], color=shades)
    kept.set_yticks(range(len(classes)), [readable(classes[c]) for c in order])
    kept.tick_params(axis="y", labelsize=7 if len(classes) <= 20 else 4)
    kept.grid(axis="y", visible=False)
    over_time.set(title=r"$\alpha$ of each class", xlabel="epoch")
    over_time.xaxis.set_major_locator(MaxNLocator(integer=True))
    kept.set(title=r"$\alpha$ after " + ("the last epoch" if best is None else f"epoch {best}, as saved"))


_NAMES = {"penalty": r"$\lambda$", "reduction": "feature frames per output frame", "threshold": "best threshold"}
_RING: dict[str, Any] = {"mfc": "none", "mec": COLOURS["black"], "mew": 1.1}
_LOOKS = (("blue", "o"), ("orange", "s"), ("green", "D"), ("purple", "^"), ("vermilion", "v"))


@mpl.rc_context(STYLE)
def tuning_figure(trials: Sequence[Trial], best: Trial, tied: Sequence[Trial]) -> Figure:
    """F1 of each trial, with its interval, against lambda, or against the reduction if lambda was not searched.

    The best trial has a ring; filled dots are tied with it, hollow ones are worse. If both lambda and reduction were
    searched, colours and markers distinguish reductions. Thresholds have a separate panel.
    """
    setting = "penalty" if "penalty" in best.values else "reduction"
    both = {"penalty", "reduction"} <= best.values.keys()
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.values["reduction"]) if both else trials:
        groups.setdefault(f"reduction {trial.values['reduction']:g}" if both else "", []).append(trial)
    panels = ["f1", "threshold"] if "threshold" in best.values else ["f1"]
    figure = Figure(figsize=(1.4 * COLUMN, 2.9 + 1.2 * (len(panels) - 1)))
    heights = [2.4, 1.2][: len(panels)]
    rows = [*figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]]
    for panel, axes in zip(panels, rows, strict=True):
        for (label, group), (colour, marker) in zip(groups.items(), _LOOKS, strict=False):
            for trial in group:
                is_filled = trial is best or trial in tied
                x, y = _dot(axes, trial, panel, setting, COLOURS[colour], marker, is_filled)
                if trial is best:
                    axes.plot(x, y, "o", ms=11, clip_on=False, zorder=4, **_RING)
            if label and panel == "f1":
                axes.plot([], [], marker, color=COLOURS[colour], ms=5, label=label)
    _label(rows, panels, setting, trials)
    grey = COLOURS["grey"]
    rows[0].plot([], [], "o", ms=8, label="best", **_RING)
    if tied:
        rows[0].plot([], [], "o", ms=5, color=grey, label="tied with it")
    if len(tied) + 1 < len(trials):
        rows[0].plot([], [], "o", ms=5, mfc="white", mec=grey, label="worse")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _dot(
    axes: Axes, trial: Trial, panel: str, setting: str, colour: str, marker: str, is_filled: bool
) -> tuple[float, float]:
    """Draw a trial, with the interval of its F1; returns its coordinates."""
    x = trial.values[setting]
    y = trial.f1 if panel == "f1" else trial.values[panel]
    if panel == "f1":
        axes.plot([x, x], trial.interval, color=colour, lw=1.0, alpha=0.45, zorder=2)
    fill = colour if is_filled else "white"
    axes.plot(x, y, marker, ms=5.5, mec=colour, mew=1.1, mfc=fill, clip_on=False, zorder=3)
    return x, y


def _label(rows: Sequence[Axes], panels: Sequence[str], setting: str, trials: Sequence[Trial]) -> None:
    rows[-1].set_xlabel(_NAMES[setting])
    rows[0].set(ylabel="$F_1$ of validation segments", ylim=SCORE_RANGE)
    for panel, axes in zip(panels, rows, strict=True):
        axes.set_xscale("log", base=10 if setting == "penalty" else 2)
        if panel == "threshold":
            axes.set(ylabel=_NAMES[panel], ylim=(0, 1))
        if setting == "reduction":
            values = sorted({trial.values[setting] for trial in trials})
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.xaxis.set_minor_locator(NullLocator())
        else:
            axes.xaxis.set_minor_formatter(NullFormatter())
