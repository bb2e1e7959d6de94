"""A block diagram of the paper's network, with the shapes that it really has."""

from typing import Any

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from earmark.errors import ArgumentError
from earmark.networks import CNN, Network
from earmark.plots.style import COLOURS, PAGE, STYLE

_POOLS = ("max, mean,", "soft-max,", "auto, CAP", "or RAP")
_CAPTION = "ReLU and batch normalisation follow each convolution."
_TEXT: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5}
_X = "\N{MULTIPLICATION SIGN}"
_WIDTH, _GAP = 1.0, 0.28  # of a box, and between two


@mpl.rc_context(STYLE)
def network_diagram(network: Network, frames: int, n_classes: int) -> Figure:
    """Fig. 6: the layers of the network from features of a bag to its static prediction, with the shapes between them.

    `frames` is the number of feature frames of a bag. Shapes are filters x bands x frames.
    """
    if not isinstance(network, CNN):
        raise ArgumentError(f"network: expected a CNN, the paper's network, got {type(network).__name__}")
    stages = _stages(network, frames, n_classes)
    step = _WIDTH + _GAP
    figure = Figure(figsize=(PAGE, 2.05))
    axes = figure.subplots()
    for i, (lines, shape) in enumerate(stages):
        colour = "sky" if i < len(stages) - 1 else "orange"
        _draw_box(axes, i * step, lines, "white" if i == 0 else COLOURS[colour])
        axes.text(i * step + _WIDTH / 2, -0.17, shape, **_TEXT)
        if i:
            arrow: dict[str, Any] = {"arrowstyle": "-|>", "lw": 0.9, "color": "#444444", "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (i * step, 0.5), (i * step - _GAP, 0.5), arrowprops=arrow)
    last = (len(stages) - 1) * step
    for left, right, name in ((step, last - _GAP, "dynamic predictor"), (last, last + _WIDTH, "static")):
        axes.plot([left, right], [1.14, 1.14], color="#444444", lw=0.9)
        axes.text((left + right) / 2, 1.27, name, **_TEXT)
    axes.text((step + last - _GAP) / 2, -0.47, _CAPTION, **_TEXT)
    axes.set(xlim=(-0.05, last + _WIDTH + 0.05), ylim=(-0.6, 1.4))
    axes.axis("off")
    return figure


def _stages(network: CNN, frames: int, n_classes: int) -> list[tuple[list[str], str]]:
    """What each box does, and the shape of its output, measured by passing a bag through the network."""
    shapes: list[torch.Size] = []
    layers = [*network.blocks, network.squeeze]
    hooks = [layer.register_forward_hook(lambda *given: shapes.append(given[2].shape)) for layer in layers]
    device, was_training = next(network.parameters()).device, network.training
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, network.n_bands, frames, device=device))
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    *blocks, (_, filters, _, outputs) = shapes
    height, width = network.squeeze.kernel_size
    stages = [(["log-mel", "features"], f"{network.n_bands} {_X} {frames}")]
    for number, (block, (_, channels, bands, after)) in enumerate(zip(network.blocks, blocks, strict=True)):
        pooled = f"max-pool 2{_X}{2 if block.halve_time else 1}"
        norm = ["batch norm"] if number == 0 else []
        stages.append(
            ([*norm, f"2 {_X} conv 3{_X}3", f"{channels} filters", pooled], f"{channels} {_X} {bands} {_X} {after}")
        )
    stages.append(([f"conv {height}{_X}{width}", f"{filters} filters"], f"{filters} {_X} 1 {_X} {outputs}"))
    stages.append((["dense,", "sigmoid,", "each frame"], f"{n_classes} {_X} {outputs}"))
    stages.append((["pooling:", *_POOLS], f"{n_classes}"))
    return stages


def _draw_box(axes: Axes, left: float, lines: list[str], colour: str) -> None:
    style: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.06", "ec": "#444444", "lw": 0.8}
    axes.add_patch(FancyBboxPatch((left, 0), _WIDTH, 1, fc=mpl.colors.to_rgba(colour, 0.35), **style))
    axes.text(left + _WIDTH / 2, 0.5, "\n".join(lines), linespacing=1.35, **_TEXT)
