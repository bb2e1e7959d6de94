"""MobileNetV3 over log-mel frames, as EfficientAT uses it (Schmid, Koutini and Widmer, 2023): frame embeddings.

The published network halves bands and frames five times, so its last feature map has a column for every 32 log-mel
frames. Here, the last halving leaves the frames alone, and later kernels skip every second column instead: one pass
has the columns of two passes over sound that is shifted by 16 frames, at little more than the cost of one.

Parameters have the names of the published weights, which are those of torchvision's implementation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from earmark.encoders.frontend import FrontEnd, FrontEndConfig
from earmark.features.logmel import reflected

Module = TypeVar("Module", bound=nn.Module)

REDUCTION = 16
"""Log-mel frames per column."""

# Log-mel frames that are mirrored before and after an excerpt, and columns that are dropped again. See `FrameEmbedder`:
# column 2 is centred on frame -8.
_BEFORE, _AFTER, _DROPPED = 40, 24, 2


class Block(NamedTuple):
    """One inverted residual: expand the channels, filter each in bands and frames, weigh them, project."""

    kernel: int
    expanded: int  # channels
    out: int  # channels
    is_squeezed: bool  # with squeeze-and-excitation
    is_smooth: bool  # with hard-swish instead of ReLU
    stride: int


@dataclass(frozen=True)
class Layout:
    """Sizes of a network."""

    bands: int  # of the log-mel frames
    stem: int  # channels
    blocks: tuple[Block, ...]
    last: int  # channels
    hidden: int  # of the classifier
    classes: int

    @property
    def halvings(self) -> list[int]:
        """The blocks that halve bands and frames, as the stem does."""
        return [i for i, block in enumerate(self.blocks) if block.stride == 2]

    @property
    def last_bands(self) -> int:
        """Bands of the last feature map, and of each map in an embedding."""
        return self.bands >> len(self.halvings) + 1

    @property
    def dimension(self) -> int:
        """Numbers of an embedding."""
        before_halvings = (self.blocks[i - 1] for i in self.halvings[-2:])
        return self.last_bands * sum(block.out for block in (*before_halvings, self.blocks[-1]))


def large(bands: int, width: float, classes: int) -> Layout:
    """MobileNetV3-Large, with channels multiplied by `width` and rounded to multiples of 8.

    >>> layout = large(128, 0.4, 527)
    >>> layout.last, layout.last_bands, layout.dimension
    (384, 4, 512)
    """
    rows = (  # kernel, expanded, out, is_squeezed, is_smooth, stride
        (3, 16, 16, False, False, 1),
        (3, 64, 24, False, False, 2),
        (3, 72, 24, False, False, 1),
        (5, 72, 40, True, False, 2),
        (5, 120, 40, True, False, 1),
        (5, 120, 40, True, False, 1),
        (3, 240, 80, False, True, 2),
        (3, 200, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 480, 112, True, True, 1),
        (3, 672, 112, True, True, 1),
        (5, 672, 160, True, True, 2),
        (5, 960, 160, True, True, 1),
        (5, 960, 160, True, True, 1),
    )
    blocks = [Block(row[0], _rounded(row[1] * width), _rounded(row[2] * width), *row[3:]) for row in rows]
    return Layout(bands, _rounded(16 * width), tuple(blocks), 6 * blocks[-1].out, _rounded(1280 * width), classes)


def _rounded(channels: float) -> int:
    """To the nearest multiple of 8, at least 8, and not more than a tenth below."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


class MobileNet(nn.Module):
    """From log-mel frames to embeddings: (bags, bands, frames) to (bags, frames', layout.dimension).

    frames' is frames / 16, rounded up. Column m is centred on frame 16 m.

    An embedding has three feature maps: those before the last two halvings and that of the last block, in as many bands
    as the last. Bands tell apart sounds that overlap in time. The published network ends with another convolution and
    its classifier, which know more about AudioSet's classes and less about others; here they serve only `classify`.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(1, layout.stem, 3, stride=(2, 2), act=nn.Hardswish())]
        channels = layout.stem
        first, last = layout.halvings[-2:]
        for i, block in enumerate(layout.blocks):
            step = 1 if i == last else block.stride
            skip = 2 if i > last else 1
            layers.append(_Residual(channels, block, stride=(block.stride, step), dilation=(1, skip)))
            channels = block.out
        layers.append(_conv(channels, layout.last, act=nn.Hardswish()))
        self.features = nn.Sequential(*layers)
        # layers whose maps are in an embedding (the stem precedes the blocks), and their columns per column of the last
        self.columns = {first: 2, last: 1, len(layout.blocks): 1}
        self.bands = layout.last_bands
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(layout.last, layout.hidden),
            nn.Hardswish(),
            nn.Dropout(0.2),
            nn.Linear(layout.hidden, layout.classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings of log-mel frames."""
        x, maps = x[:, None], []
        for i, layer in enumerate(list(self.features)[: max(self.columns) + 1]):
            x = layer(x)
            if i in self.columns:
                pooled = F.avg_pool2d(x, (x.shape[2] // self.bands, self.columns[i]), ceil_mode=True)
                maps.append(pooled.flatten(1, 2))
        return torch.cat(maps, 1).transpose(1, 2)

    def classify(self, x: Tensor) -> Tensor:
        """Logits of the classes that the network was trained on: (bags, bands, frames) to (bags, classes)."""
        return self.classifier(self.features(x[:, None]))  # type: ignore[no-any-return]


class _Residual(nn.Module):
    def __init__(self, channels: int, block: Block, *, stride: tuple[int, int], dilation: tuple[int, int]) -> None:
        super().__init__()
        wide = block.expanded

        def act() -> nn.Module:
            return nn.Hardswish() if block.is_smooth else nn.ReLU()

        layers: list[nn.Module] = [] if wide == channels else [_conv(channels, wide, act=act())]
        layers.append(_conv(wide, wide, block.kernel, stride=stride, dilation=dilation, groups=wide, act=act()))
        if block.is_squeezed:
            layers.append(_Squeezes(wide))
        layers.append(_conv(wide, block.out))
        self.block = nn.Sequential(*layers)
        self.adds = block.stride == 1 and channels == block.out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block(x)
        return y + x if self.adds else y


class _Squeezes(nn.Module):
    """Squeeze-and-excitation of channels, in a list of one module, so that parameters have the published names."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conc_se_layers = nn.ModuleList([_Squeeze(channels, _rounded(channels // 4))])

    def forward(self, x: Tensor) -> Tensor:
        return self.conc_se_layers[0](x)  # type: ignore[no-any-return]


class _Squeeze(nn.Module):
    """Weighs each channel by a function of the means of all channels over the whole excerpt."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, squeezed)
        self.fc2 = nn.Linear(squeezed, channels)

    def forward(self, x: Tensor) -> Tensor:
        weights: Tensor = self.fc2(self.fc1(x.mean((2, 3))).relu()).sigmoid()
        return x * weights[:, :, None, None]


def _conv(
    n_in: int,
    n_out: int,
    kernel: int = 1,
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    act: nn.Module | None = None,
) -> nn.Sequential:
    """Convolution over bands and frames, batch normalisation and activation.

    Output k is centred on input k * stride.
    """
    padding = (dilation[0] * (kernel // 2), dilation[1] * (kernel // 2))
    conv = nn.Conv2d(n_in, n_out, kernel, stride, padding, dilation, groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(n_out, eps=0.001, momentum=0.01), *([] if act is None else [act]))


class FrameEmbedder(nn.Module):
    """Sound to embeddings: (bags, samples) to (bags, frames, layout.dimension), a frame for every 16 log-mel frames.

    Differentiable. A trained network halves as pooling does: value m of a layer with stride 2 stands for the values 2 m
    and 2 m + 1 before it, although its kernel is centred on 2 m. After five halvings, a column whose kernels are
    centred on log-mel frame c stands for the frames from c to c + 31. So frame k, whose middle is 16 k + 8, is the
    column with c = 16 k - 8. Events confirm that: `benchmarks/encoders.py` finds the shift at which a linear model
    predicts them best.

    Log-mel frames are mirrored at both ends, so that the first and the last columns see sound on both sides.
    """

    def __init__(self, config: FrontEndConfig, layout: Layout) -> None:
        super().__init__()
        self.front = FrontEnd(config)
        self.network = MobileNet(layout)

    def forward(self, samples: Tensor) -> Tensor:
        """Embed bags of samples; their number is a multiple of 16 log-mel hops."""
        return embed_frames(self.network, self.front(samples))


def embed_frames(network: MobileNet, x: Tensor) -> Tensor:
    """Embeddings of log-mel frames, (bags, bands, frames) to (bags, frames // 16, dimension); see `FrameEmbedder`."""
    frames = x.shape[2]
    columns: Tensor = network(reflected(x, -_BEFORE, frames + _AFTER))
    return columns[:, _DROPPED : _DROPPED + frames // REDUCTION]


def folded(module: Module) -> Module:
    """A copy with the batch normalisation of pretraining folded into convolutions, in memory order channels last."""
    copied = copy.deepcopy(module).eval().requires_grad_(False)
    for part in list(copied.modules()):
        for name, child in part.named_children():
            if isinstance(child, nn.Sequential) and len(child) > 1 and isinstance(child[1], nn.BatchNorm2d):
                setattr(part, name, _folded(child))
    return copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _folded(layers: nn.Sequential) -> nn.Sequential:
    conv, norm, *acts = layers
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    for act in acts:
        act.inplace = True  # type: ignore[assignment]
    return nn.Sequential(fuse_conv_bn_eval(conv, norm), *acts)
