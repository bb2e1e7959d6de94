"""Figures of the pooling operators: responsibilities, bounds, alpha against the duration of events."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import scipy
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from earmark.plots.style import COLOURS, STYLE, readable
from earmark.pooling import Pool, active_share_to_alpha, create_pool, weight_bounds

_LABEL: dict[str, Any] = {"fontsize": 7.5, "rotation_mode": "anchor", "textcoords": "offset points"}


@mpl.rc_context(STYLE)
def responsibilities(p: ArrayLike = (0.1, 0.25, 0.9, 0.65, 0.3, 0.1, 0.15, 0.05), alpha: float = 5.0) -> Figure:
    """Fig. 1: responsibility of each frame of one bag under max, mean and soft-max pooling, and under auto-pooling.

    p is (frames,), in [0, 1]; alpha is that of auto-pooling.
    """
    x = np.asarray(p, dtype=np.float32)
    bag = torch.as_tensor(x).reshape(1, -1, 1)
    panels: list[tuple[str, Pool]] = [(name, create_pool(name, 1)) for name in ("max", "mean", "softmax")]
    panels.append((rf"auto, $\alpha$ = {alpha:g}", create_pool("auto", 1, alpha=alpha)))
    figure = Figure(figsize=(7.2, 2.3))
    for axes, (title, pool) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        with torch.no_grad():
            _draw_bag(axes, x, pool.weights(bag).flatten().numpy(), pool(bag).item())
        axes.set_title(title)
    figure.axes[0].set_ylabel("frame probability p", y=0.78)
    return figure


def _draw_bag(axes: Axes, p: np.ndarray, w: np.ndarray, P: float) -> None:
    """Draw frames as bars above, the bag as a disc below, and responsibilities as the darkness of the lines between."""
    centre, bag, foot = (len(p) - 1) / 2, -0.95, -0.05
    axes.bar(range(len(p)), p, width=0.62, color=COLOURS["sky"], edgecolor="none")
    for t, weight in enumerate(w):
        axes.plot([t, centre], [foot, bag], color="black", alpha=max(float(weight) ** 0.5, 0.05), lw=1.6, zorder=1)
    axes.plot(centre, bag, "o", ms=22, color=COLOURS["orange"], mec="#444444", mew=0.8, zorder=2)
    axes.text(centre, bag, f"{P:.2f}", ha="center", va="center", fontsize=8)
    axes.set(ylim=(-1.25, 1.02), xlim=(-0.7, len(p) - 0.3), xticks=[], yticks=[0, 0.5, 1])
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_bounds(0, 1)


@mpl.rc_context(STYLE)
def weight_bounds_by_size(sizes: ArrayLike = (2, 1000), alphas: Sequence[float] = (1.0, 3.2, 6.0)) -> Figure:
    """Fig. 2: smallest and largest weight of one instance against the size of the bag, Eqs. (7) and (9).

    With alpha = 1, soft-max pooling, the shaded region converges to 1/m; with larger alpha it stays wide.
    """
    low_m, high_m = np.asarray(sizes, dtype=float)
    m = np.geomspace(low_m, high_m, 200)
    names = ["sky", "green", "orange", "purple"]
    figure = Figure(figsize=(4.8, 2.6))
    axes = figure.subplots()
    for alpha, name in reversed(list(zip(alphas, names, strict=False))):
        low, high = weight_bounds(alpha, m)
        label = rf"$\alpha$ = {alpha:g}" + (" (soft-max)" if alpha == 1 else "")
        tint = tuple(1 - 0.45 * (1 - c) for c in mpl.colors.to_rgb(COLOURS[name]))
        axes.fill_between(m, low, high, color=tint, lw=0, label=label)
        axes.plot(m, np.stack([high, low], axis=1), color=COLOURS[name], lw=0.9)
    axes.plot(m, 1 / m, color="black", lw=1.2, label="1/m (mean)")
    axes.set(xscale="log", yscale="log", xlabel="bag size m", ylabel="weight of one instance", ylim=(1e-5, 1.5))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


@mpl.rc_context(STYLE)
def alpha_against_share(
    labels: Sequence[str], shares: ArrayLike, learned: Mapping[str, ArrayLike], bound: float | None = None
) -> Figure:
    """Learned alpha of each class against the share of the bag that its events fill, similar to Fig. 8.

    Parameters
    ----------
    labels : (classes,)
    shares : (classes,), mean share of a positive bag that is active
    learned : name of the operator -> (classes,)
    bound : of CAP, drawn as a line
    """
    x = np.asarray(shares, dtype=float)
    line = np.geomspace(x.min() * 0.7, 0.97, 200)
    markers = zip("os^Dv", ("blue", "vermilion", "green", "purple", "orange"), strict=True)
    figure = Figure(figsize=(5.2, 3.2))
    axes = figure.subplots()
    name = r"$\ln(1/share - 1)$: clip probability 1/2"
    axes.plot(100 * line, active_share_to_alpha(line), color=COLOURS["grey"], ls="--", label=name)
    if bound is not None:
        axes.axhline(bound, color=COLOURS["grey"], lw=0.9, ls=":", label="bound of CAP")
    for i, ((name, alpha), (marker, colour)) in enumerate(zip(learned.items(), markers, strict=False)):
        aside = 1.03 ** (i - (len(learned) - 1) / 2)  # keeps equal alphas apart
        axes.plot(100 * x * aside, np.asarray(alpha), marker, color=COLOURS[colour], ms=5, label=name)
    top = max(float(np.max(np.asarray(a))) for a in learned.values())
    axes.axhline(0, color="#BBBBBB", lw=0.8)
    axes.set(xscale="log", xlabel="share of the bag its events fill (%)", ylabel=r"learned $\alpha$")
    ticks = [2, 5, 10, 20, 50, 100]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    is_crowded = len(labels) > 6
    if is_crowded:
        _name_points(axes, labels, 100 * x, top, 0.88 * 72 * figure.get_figwidth())
    else:
        for label, share in zip(labels, x, strict=True):
            axes.annotate(readable(label), (100 * share, top), (0, 8), ha="center", **_LABEL)
    span = top - axes.get_ylim()[0]
    axes.set_ylim(top=top + (0.35 * span if is_crowded else 0.9))
    axes.legend(loc="lower left")
    return figure


def _name_points(axes: Axes, labels: Sequence[str], x: np.ndarray, top: float, width: float) -> None:
    """Oblique labels above the points at x, moved apart; `width`, of the logarithmic axis, is in points."""
    low, high = np.log(axes.get_xlim())
    place = (np.log(x) - low) / (high - low) * width
    line: dict[str, Any] = {"arrowstyle": "-", "color": "#999999", "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
    for label, share, aside in zip(labels, x, _spread(place, 14.5) - place, strict=True):
        axes.annotate(readable(label), (share, top), (aside + 2, 14), rotation=45, ha="left", **_LABEL)
        axes.annotate("", (share, top), (aside, 12), textcoords="offset points", arrowprops=line)


def _spread(x: ArrayLike, gap: float) -> np.ndarray:
    """The positions in the same order that are nearest to x, by least squares, and at least `gap` apart.

    >>> print(_spread([5.0, 1.0, 1.5], 1.0))
    [5.   0.75 1.75]
    """
    x = np.asarray(x, dtype=float)
    order = np.argsort(x, kind="stable")
    ahead = gap * np.arange(len(x))
    places = np.empty_like(x)
    places[order] = scipy.optimize.isotonic_regression(x[order] - ahead).x + ahead
    return places
