"""Networks: from frames of features to an embedding per output frame.

`cnn`, `crnn` and `vgg-gru` are for log-mel features; heads, `linear`, `mlp` and `gru`, for the embeddings of a
pretrained encoder.

A detector takes any module (bags, bands, frames) -> (bags, frames', embedding) with the attributes `embedding` (its
size) and `reduction` (input frames per output frame: frames' = frames // reduction). `forward` may take a `mask` (bags,
frames), True where a frame is real; a bag's padding comes after its real frames. If a network declares in `context` how
many frames around it an output frame depends on, long recordings are scored in blocks, with the result of the whole.

Axes inside are (bags, channels, bands, frames).
"""

import math
from itertools import pairwise
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # torch.compiler.disable imports the compiler: most of a second

from earmark.errors import ArgumentError
from earmark.registry import Registry

__all__ = ["CNN", "CRNN", "GRU", "MLP", "NETWORKS", "VGGGRU", "Head", "Linear", "Network", "create_network"]


_MOST_WEIGHTS = 1 << 28  # of one layer: 1 GiB
_WIDEST, _MOST_HIDDEN, _MOST_LAYERS = 64, 4096, 64


def reduce_mask(mask: Tensor, reduction: int) -> Tensor:
    """Which output frames of padded bags are real: those whose input frames all are. (bags, frames) -> (bags, frames').

    The first output frame of a bag is real even if the bag is too short to fill it, so that no bag is empty.

    >>> reduce_mask(torch.arange(8) < torch.tensor([[8], [5], [1], [0]]), 4)
    tensor([[ True,  True],
            [ True, False],
            [ True, False],
            [False, False]])
    """
    mask = mask != 0
    if reduction == 1:
        return mask
    frames = mask.shape[1] // reduction
    is_first = torch.arange(frames, device=mask.device) == 0
    return mask[:, : frames * reduction].reshape(len(mask), frames, reduction).all(-1) | (is_first & mask[:, :1])


class Network(nn.Module):
    """Base class of the networks in earmark. A `reduction` of 16 is the paper's; 8, 4, 2, 1 are finer."""

    name: ClassVar[str]
    embedding: int

    def __init__(self, n_bands: int, reduction: int) -> None:
        super().__init__()
        if type(reduction) is not int or reduction not in (1, 2, 4, 8, 16):
            raise ArgumentError(f"reduction: expected 1, 2, 4, 8 or 16, got {reduction!r}")
        self.n_bands = n_bands
        self.reduction = reduction

    @property
    def context(self) -> int | None:
        """Input frames on either side that an output frame depends on beyond its span; None if it depends on all."""
        return None


NETWORKS: Registry[Network] = Registry("network")


def create_network(name: str, n_bands: int, **options: object) -> Network:
    """Create a network by name.

    >>> create_network("cnn", 128)(torch.zeros(2, 128, 431)).shape  # ten seconds of the paper's features
    torch.Size([2, 26, 256])
    """
    return NETWORKS.create(name, n_bands, **options)


class ConvBlock(nn.Module):
    """Two 3x3 convolutions, each with ReLU and then batch normalisation, and 2x2 max-pooling (or 2x1: bands only)."""

    def __init__(self, inputs: int, outputs: int, halve_time: bool, momentum: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm1 = _norm(outputs, momentum)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm2 = _norm(outputs, momentum)
        self.pool = nn.MaxPool2d((2, 2 if halve_time else 1))
        self.halve_time = halve_time

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = _hide(self.norm1(self.conv1(x).relu()), mask)
        return self.pool(self.norm2(self.conv2(x).relu()))  # type: ignore[no-any-return]


@NETWORKS.register(
    "cnn", "the paper's dynamic predictor: four blocks of two 3x3 convolutions, then 256 full-height filters"
)
class CNN(Network):
    """The paper's convolutional network (IV.B), without its output layer, which is the detector's.

    Batch normalisation of the input; four blocks of two 3x3 convolutions with 16, 32, 64, 128 filters and 2x2
    max-pooling; 256 filters over all remaining bands. Convolution, ReLU, batch normalisation, in this order.

    In evaluation mode, the real frames of a padded bag do not depend on the padding. In training mode, batch statistics
    include the padding, which should therefore look like silence.

    `width` is a factor on the number of filters, at most 64; no layer may have more than 2^28 weights (1 GiB).
    `norm_momentum` is the weight of the newest batch in the running statistics of batch normalisation; 0.01 is what
    Keras calls 0.99, and short runs need a larger value.
    """

    def __init__(
        self, n_bands: int = 128, *, reduction: int = 16, width: float = 1.0, norm_momentum: float = 0.01
    ) -> None:
        super().__init__(n_bands, reduction)
        channels = _checked_channels(n_bands, width, norm_momentum, (16, 32, 64, 128, 256))
        halvings = int(math.log2(reduction))
        self.norm0 = _norm(1, norm_momentum)
        self.blocks = nn.ModuleList(
            ConvBlock(i, o, b < halvings, norm_momentum) for b, (i, o) in enumerate(pairwise([1, *channels[:4]]))
        )
        self.squeeze = nn.Conv2d(channels[3], channels[4], (n_bands // 16, 1))
        self.norm_out = _norm(channels[4], norm_momentum)
        self.embedding = channels[4]
        self.apply(_he_normal)

    @property
    def context(self) -> int:
        """Each of a block's two convolutions adds one frame at the block's resolution: 1, 2, 4 or 8 input frames.

        >>> CNN(reduction=16).context, CNN(reduction=4).context, CNN(reduction=1).context
        (30, 22, 8)
        """
        return sum(2 * min(1 << b, self.reduction) for b in range(len(self.blocks)))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // reduction, embedding)"""
        check_features(x, mask, self.n_bands, self.reduction)
        x, _ = _convolved(_hide(self.norm0(x[:, None]), mask), mask, self.blocks)
        x = self.norm_out(self.squeeze(x).relu())
        return x[:, :, 0].transpose(1, 2)


@NETWORKS.register(
    "crnn", "the same convolutions and three bidirectional recurrent layers of 128 (the authors' repository)"
)
class CRNN(Network):
    """The convolutional network with three bidirectional GRU layers on top, as in the authors' repository.

    `hidden` is the number of units in each direction, at most 4096, and `layers` that of recurrent layers, at most 64;
    the other options are as in `CNN`.
    """

    def __init__(
        self,
        n_bands: int = 128,
        *,
        reduction: int = 16,
        width: float = 1.0,
        norm_momentum: float = 0.01,
        hidden: int = 128,
        layers: int = 3,
    ) -> None:
        super().__init__(n_bands, reduction)
        _check_size(hidden, layers)
        self.cnn = CNN(n_bands, reduction=reduction, width=width, norm_momentum=norm_momentum)
        self.embedding = 2 * hidden
        self.forth = _recurrent_layers(self.cnn.embedding, hidden, layers)
        self.back = _recurrent_layers(self.cnn.embedding, hidden, layers)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // reduction, embedding)"""
        reduced = None if mask is None else reduce_mask(mask, self.reduction)
        return both_directions(self.cnn(x, mask), reduced, self.forth, self.back)


class NormBlock(nn.Module):
    """Two 3x3 convolutions, each with batch normalisation and then ReLU, max-pooling and dropout."""

    def __init__(self, inputs: int, outputs: int, halve_time: bool, momentum: float, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1 = _norm(outputs, momentum)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = _norm(outputs, momentum)
        self.pool = nn.MaxPool2d((2, 2 if halve_time else 1))
        self.dropout = nn.Dropout(dropout)
        self.halve_time = halve_time

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = _hide(self.norm1(self.conv1(x)).relu(), mask)
        return self.dropout(self.pool(self.norm2(self.conv2(x)).relu()))  # type: ignore[no-any-return]


@NETWORKS.register("vgg-gru", "four blocks of two 3x3 convolutions, 256 full-height filters, one recurrent layer")
class VGGGRU(Network):
    """A convolutional recurrent network with normalisation before ReLU, dropout, and fine output frames.

    Four blocks of two 3x3 convolutions with 32, 64, 128, 128 filters; 256 filters over all remaining bands; one GRU
    layer of `hidden` units in each direction; `dropout` before the output layer, a third of it after each block.
    `width` and `norm_momentum` are as in `CNN`.

    The recurrent layer can take `beside` additional inputs per output frame, from another network on the same sound.
    """

    def __init__(
        self,
        n_bands: int = 128,
        beside: int = 0,
        *,
        reduction: int = 4,
        width: float = 1.0,
        norm_momentum: float = 0.1,
        hidden: int = 128,
        dropout: float = 0.3,
    ) -> None:
        super().__init__(n_bands, reduction)
        channels = _checked_channels(n_bands, width, norm_momentum, (32, 64, 128, 128, 256))
        _check_size(hidden, 1)
        _check_dropout(dropout)
        halvings = int(math.log2(reduction))
        self.norm0 = _norm(1, norm_momentum)
        self.blocks = nn.ModuleList(
            NormBlock(i, o, b < halvings, norm_momentum, dropout / 3)
            for b, (i, o) in enumerate(pairwise([1, *channels[:4]]))
        )
        self.squeeze = nn.Conv2d(channels[3], channels[4], (n_bands // 16, 1), bias=False)
        self.norm_out = _norm(channels[4], norm_momentum)
        self.forth = _recurrent_layers(channels[4] + beside, hidden, 1)
        self.back = _recurrent_layers(channels[4] + beside, hidden, 1)
        self.dropout = nn.Dropout(dropout)
        self.embedding = 2 * hidden
        self.apply(_he_normal)

    def forward(self, x: Tensor, mask: Tensor | None = None, beside: Tensor | None = None) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // reduction, embedding)"""
        check_features(x, mask, self.n_bands, self.reduction)
        x, mask = _convolved(_hide(self.norm0(x[:, None]), mask), mask, self.blocks)
        x = self.norm_out(self.squeeze(x)).relu()[:, :, 0].transpose(1, 2)
        if beside is not None:
            x = torch.cat([x, beside.to(x.dtype)], -1)
        return self.dropout(both_directions(x, mask, self.forth, self.back))  # type: ignore[no-any-return]


class Head(Network):
    """Base class of networks for embeddings: frame by frame, on values that are normalised over the training clips.

    `reduction` is 1, since encoders have few frames per second.
    """

    def __init__(self, n_bands: int, *, hidden: int = 1, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__(n_bands, 1)
        _check_size(hidden, layers)
        _check_dropout(dropout)
        self.norm = FrameNorm(n_bands)
        self.embedding = n_bands

    @property
    def context(self) -> int | None:
        """0: an output frame depends on its input frame only."""
        return 0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(bags, bands, frames) -> (bags, frames, embedding)"""
        check_features(x, mask, self.n_bands, 1)
        return self.layers(self.norm(x, mask).transpose(1, 2), mask)

    def layers(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Normalised values (bags, frames, bands) to the embedding of frames."""
        return x


@NETWORKS.register("linear", "for encoders: no layer besides the output layer")
class Linear(Head):
    """Normalised embeddings as they are."""

    def __init__(self, n_bands: int) -> None:
        super().__init__(n_bands)


@NETWORKS.register("mlp", "for encoders: layers of hidden units, frame by frame")
class MLP(Head):
    """`layers` of `hidden` units with ReLU and dropout, at most 64 of 4096, the same for every frame."""

    def __init__(self, n_bands: int, *, hidden: int = 128, layers: int = 1, dropout: float = 0.3) -> None:
        super().__init__(n_bands, hidden=hidden, layers=layers, dropout=dropout)
        modules: list[nn.Module] = []
        for inputs, outputs in pairwise([n_bands] + [hidden] * layers):
            modules += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*modules)
        self.embedding = hidden

    def layers(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(bags, frames, bands) -> (bags, frames, hidden)"""
        return self.hidden(x)  # type: ignore[no-any-return]


@NETWORKS.register("gru", "for encoders: hidden units, then recurrent layers in both directions")
class GRU(Head):
    """A layer of `hidden` units with ReLU and dropout, then `layers` of as many recurrent units in each direction."""

    def __init__(self, n_bands: int, *, hidden: int = 64, layers: int = 1, dropout: float = 0.3) -> None:
        super().__init__(n_bands, hidden=hidden, layers=layers, dropout=dropout)
        self.hidden = nn.Sequential(nn.Linear(n_bands, hidden), nn.ReLU(), nn.Dropout(dropout))
        self.forth = _recurrent_layers(hidden, hidden, layers)
        self.back = _recurrent_layers(hidden, hidden, layers)
        self.embedding = 2 * hidden

    @property
    def context(self) -> int | None:
        """None: an output frame depends on all."""
        return None

    def layers(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(bags, frames, bands) -> (bags, frames, 2 * hidden)"""
        return both_directions(self.hidden(x), mask, self.forth, self.back)


class FrameNorm(nn.Module):
    """Batch normalisation over real frames, without scale and shift: (bags, bands, frames).

    `nn.BatchNorm1d` would count padding as values.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, n_bands: int, *, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(n_bands))
        self.register_buffer("var", torch.ones(n_bands))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise by the statistics of the batch in training, and by the running ones otherwise."""
        x = _hidden_frames(x, mask)
        mean, var = self.mean, self.var
        if self.training:
            weight = torch.ones_like(x[:, 0]) if mask is None else (mask != 0).to(x.dtype)
            weight = (weight / weight.sum().clamp_min(1))[:, None]
            mean = (x * weight).sum((0, 2))
            x = x - mean[:, None]
            var = x.square().mul_(weight).sum((0, 2))
            with torch.no_grad():
                self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
                self.var.lerp_(var.to(self.var.dtype), self.momentum)
        else:
            x = x - mean[:, None]
        return _hidden_frames(x * (var[:, None] + 1e-3).rsqrt(), mask)


def _hidden_frames(x: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return x
    # transposed, since bags are stored frame by frame: twice as fast
    return torch.where((mask != 0)[..., None], x.transpose(1, 2), 0.0).transpose(1, 2)


def _convolved(x: Tensor, mask: Tensor | None, blocks: nn.ModuleList) -> tuple[Tensor, Tensor | None]:
    """The output of blocks, zero in padding, and its mask."""
    for block in blocks:
        x = block(x, mask)
        if mask is not None and block.halve_time:
            mask = reduce_mask(mask, 2)
        x = _hide(x, mask)
    return x, mask


def _recurrent_layers(inputs: int, hidden: int, layers: int) -> nn.ModuleList:
    sizes = [inputs] + [2 * hidden] * (layers - 1)
    return nn.ModuleList(nn.GRU(size, hidden, batch_first=True) for size in sizes)


@_disable_dynamo  # its gradient under autocast fails to compile on a GPU
def both_directions(x: Tensor, mask: Tensor | None, forth: nn.ModuleList, back: nn.ModuleList) -> Tensor:
    """Recurrent layers over real frames, forwards and backwards: (bags, frames, inputs) -> (bags, frames, 2 hidden)."""
    # Packed sequences are equivalent, but need the lengths on the CPU, which cannot be read in a CUDA graph.
    order = _backwards(x, mask)
    for onward, backward in zip(forth, back, strict=True):
        y = backward(_sorted(x, order))[0]
        x = torch.cat([onward(x)[0], _sorted(y, order)], -1)
    return x


def _backwards(x: Tensor, mask: Tensor | None) -> Tensor:
    """The order of frames that reverses the real ones and leaves the padding behind them: (bags, frames)."""
    frames = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)  # len() would fix it in export
    if mask is None:
        return frames.flip(1)
    lengths = mask.sum(1, keepdim=True)
    return torch.where(frames < lengths, lengths - 1 - frames, frames)


def _sorted(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order[..., None].expand(-1, -1, x.shape[2]))


def _norm(channels: int, momentum: float) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=momentum)  # Keras' epsilon


def _he_normal(module: nn.Module) -> None:
    """He's initialisation as in Keras: a normal distribution cut at two deviations, rescaled to the right variance."""
    if isinstance(module, nn.Conv2d):
        deviation = math.sqrt(2 / module.weight[0].numel()) / 0.87962566103423978
        nn.init.trunc_normal_(module.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _hide(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else torch.where((mask != 0)[:, None, None], x, 0.0)  # not a product: NaN * 0 is NaN


def _checked_channels(n_bands: int, width: float, norm_momentum: float, channels: tuple[int, ...]) -> list[int]:
    """The number of filters in each layer at this width, if all options are valid."""
    if n_bands < 16:
        raise ArgumentError(f"n_bands: expected at least 16, since the network halves them four times, got {n_bands}")
    if not (_is_number(width) and 0 < width <= _WIDEST):
        raise ArgumentError(f"width: expected a number above 0 and at most {_WIDEST}, got {width!r}")
    if not (_is_number(norm_momentum) and 0 < norm_momentum <= 1):
        raise ArgumentError(f"norm_momentum: expected a number above 0 and at most 1, got {norm_momentum!r}")
    scaled = [max(1, round(width * c)) for c in channels]
    largest = scaled[3] * max(9 * scaled[3], scaled[4] * (n_bands // 16))
    if largest > _MOST_WEIGHTS:
        raise ArgumentError(f"width: expected layers of at most {_MOST_WEIGHTS} weights, got {largest} at {width:g}")
    return scaled


def _check_dropout(dropout: float) -> None:
    if not (_is_number(dropout) and 0 <= dropout < 1):
        raise ArgumentError(f"dropout: expected a number from 0 to below 1, got {dropout!r}")


def _check_size(hidden: int, layers: int) -> None:
    for name, value, most in (("hidden", hidden, _MOST_HIDDEN), ("layers", layers, _MOST_LAYERS)):
        if type(value) is not int or not 1 <= value <= most:
            raise ArgumentError(f"{name}: expected a whole number from 1 to {most}, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_features(x: Tensor, mask: Tensor | None, n_bands: int, reduction: int) -> None:
    """Reject features or a mask of other shapes than a network takes."""
    if x.ndim != 3 or x.shape[1] != n_bands:
        raise ArgumentError(f"features: expected (bags, {n_bands}, frames), got {tuple(x.shape)}")
    if x.shape[2] < reduction:
        raise ArgumentError(f"features: expected at least {reduction} frames, for one output frame, got {x.shape[2]}")
    if mask is not None and mask.shape != (len(x), x.shape[2]):
        raise ArgumentError(f"mask: expected (bags, frames) = {(len(x), x.shape[2])}, got {tuple(mask.shape)}")
