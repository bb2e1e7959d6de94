"""Figures of training, from the log of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from earmark.plots.style import COLOURS, STYLE, readable

Floats = npt.NDArray[np.float64]


@mpl.rc_context(STYLE)
def learning_curves(log: Path, classes: Sequence[str]) -> Figure:
    """Loss, validation scores, and alpha of each class if the operator has one, by epoch; from a run's `log.jsonl`."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    epochs = [line["epoch"] for line in lines]
    alphas = np.array([line["alpha"] for line in lines], float) if lines and lines[0]["alpha"] else None
    figure = Figure(figsize=(7.0, 2.6) if alphas is None else (7.0, 4.6))
    rows = figure.subplots(1 if alphas is None else 2, 2, squeeze=False)
    loss, scores = rows[0]
    loss.plot(epochs, [line["loss"] for line in lines], color=COLOURS["blue"], label="training")
    loss.plot(epochs, [line["validation"]["loss"] for line in lines], color=COLOURS["orange"], label="validation")
    for name, colour in (("accuracy", "green"), ("f1", "purple")):
        scores.plot(epochs, [line["validation"][name] for line in lines], color=COLOURS[colour], label=name)
    best = [line["epoch"] for line in lines if line["best"]]
    for axes, title in ((loss, "loss"), (scores, "validation scores")):
        if best:
            _mark_best(axes, best[-1])
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
    scores.set_ylim(0, 1)
    if alphas is not None:
        _alpha_curves(rows[1], epochs, alphas, classes, best[-1] if best else None)
    return figure


def _mark_best(axes: Axes, epoch: int) -> None:
    axes.axvline(epoch, color=COLOURS["grey"], linewidth=0.8, linestyle=":", label="best epoch")


def _alpha_curves(
    row: Sequence[Axes], epochs: list[int], alphas: Floats, classes: Sequence[str], best: int | None
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
    kept.set(title=r"$\alpha$ after " + ("the last epoch" if best is None else f"the best epoch, {best}"))
