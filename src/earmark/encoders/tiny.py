"""`tiny`: a network of the same kind as `mn04` with random weights, for tests where no weights are at hand."""

import numpy as np
import torch
from torch import nn

from earmark.encoders.base import ENCODERS, Card
from earmark.encoders.frontend import FrontEndConfig
from earmark.encoders.mn04 import MobileNetEncoder, empty_embedder
from earmark.encoders.mobilenet import REDUCTION, Block, FrameEmbedder, Layout

FRONT_END = FrontEndConfig(rate=8000, n_fft=256, win_samples=200, hop_samples=80, n_bands=64, fmax=4000.0)
LAYOUT = Layout(
    bands=FRONT_END.n_bands,
    stem=8,
    blocks=(
        Block(3, 8, 8, is_squeezed=False, is_smooth=False, stride=2),
        Block(3, 16, 8, is_squeezed=False, is_smooth=False, stride=2),
        Block(3, 16, 8, is_squeezed=True, is_smooth=True, stride=2),
        Block(3, 16, 16, is_squeezed=True, is_smooth=True, stride=2),
        Block(3, 32, 16, is_squeezed=True, is_smooth=True, stride=1),
    ),
    last=16,
    hidden=8,
    classes=4,
)


_SUMMARY = "for tests: random weights"


@ENCODERS.register("tiny", _SUMMARY, is_listed=False)
class TinyEncoder(MobileNetEncoder):
    """A small network with fixed random weights, at 8 kHz."""

    front_end, layout = FRONT_END, LAYOUT
    card = Card(
        name="tiny",
        rate=8000,
        window_samples=81920,
        hop_samples=FRONT_END.hop_samples * REDUCTION,
        dimension=LAYOUT.dimension,
        licence="MIT",
        summary=_SUMMARY,
    )

    def __init__(self) -> None:
        super().__init__(_random_embedder())


def _random_embedder() -> FrameEmbedder:
    embedder = empty_embedder(FRONT_END, LAYOUT)
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for layer in embedder.network.modules():
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                continue
            bound = (7 / layer.weight[0].numel()) ** 0.5  # about keeps the scale of values from layer to layer
            values = rng.uniform(-bound, bound, tuple(layer.weight.shape))
            if isinstance(layer, nn.Conv2d) and layer.kernel_size[1] == 3:
                # in time, as trained networks do: halving joins values 2 m and 2 m + 1, other kernels are centred
                values *= np.array([0.0, 1.0, 1.0] if layer.stride[0] == 2 else [0.5, 1.0, 0.5])
            layer.weight.copy_(torch.from_numpy(values))
            if layer.bias is not None:
                layer.bias.zero_()
    return embedder
