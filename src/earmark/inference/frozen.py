"""Networks with batch normalisation folded into their convolutions: the same function with fewer operations.

Batch normalisation with fixed statistics is y = a r + b per channel. After a ReLU, as in a `CNN`, y = a max(z, 0) + b,
which is max(a z + b, b) where a is positive and min(a z + b, b) elsewhere. So a and b are folded into the convolution
that computes z, and its result is clamped. Clamping commutes with the maximum, so it follows max-pooling, when a
quarter of the values is left. Zero padding comes after the fold, so the result is exact, at the borders too, up to
rounding.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from earmark.encoders.mobilenet import folded
from earmark.fine_tuning import TunedEncoder
from earmark.networks import CNN, CRNN, VGGGRU, ConvBlock, NormBlock, both_directions


def frozen(network: nn.Module) -> nn.Module:
    """The network in its folded form, in evaluation mode; a network of another type as it is."""
    if type(network) is CNN:
        return FrozenCNN(network)
    if type(network) is CRNN:
        copied = copy.deepcopy(network)
        copied.cnn = frozen(network.cnn)  # type: ignore[assignment]
        return copied
    if type(network) is VGGGRU:
        return _FrozenVGGGRU(network)
    if isinstance(network, TunedEncoder):
        tuned = folded(network)
        tuned.head = frozen(network.head)  # type: ignore[assignment]
        return tuned
    return network


class _FrozenConvolutions(nn.Module):
    """Normalised features through layers: (bags, bands, frames) -> (bags, frames', channels), without masks."""

    scale: Tensor
    shift: Tensor

    def __init__(self, norm0: nn.BatchNorm2d, layers: list[nn.Module]) -> None:
        super().__init__()
        for name, value in zip(("scale", "shift"), _affine(norm0), strict=True):
            self.register_buffer(name, value.to(norm0.weight.dtype))
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, mask: None = None) -> Tensor:
        x = torch.addcmul(self.shift, x, self.scale)
        x = x.unsqueeze(-1).permute(0, 3, 1, 2)  # one channel, but with the strides of channels last
        for layer in self.layers:
            x = layer(x)
        return x[:, :, 0].transpose(1, 2)


class FrozenCNN(_FrozenConvolutions):
    """A `CNN` in evaluation mode: (bags, bands, frames) -> (bags, frames', embedding)."""

    def __init__(self, network: CNN) -> None:
        layers: list[nn.Module] = []
        for block in network.blocks:
            assert isinstance(block, ConvBlock)
            layers += [_Layer(block.conv1, block.norm1, None), _Layer(block.conv2, block.norm2, block.pool)]
        super().__init__(network.norm0, [*layers, _Layer(network.squeeze, network.norm_out, None)])


class _FrozenVGGGRU(_FrozenConvolutions):
    """A `VGGGRU`, whose normalisation precedes ReLU and is folded as it is."""

    def __init__(self, network: VGGGRU) -> None:
        layers: list[nn.Module] = []
        for block in network.blocks:
            assert isinstance(block, NormBlock)
            layers += [fuse_conv_bn_eval(block.conv1, block.norm1), nn.ReLU(inplace=True)]
            layers += [fuse_conv_bn_eval(block.conv2, block.norm2), block.pool, nn.ReLU(inplace=True)]
        layers += [fuse_conv_bn_eval(network.squeeze, network.norm_out), nn.ReLU(inplace=True)]
        super().__init__(network.norm0, layers)
        self.layers.requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.forth, self.back = network.forth, network.back

    def forward(self, x: Tensor, mask: None = None, beside: Tensor | None = None) -> Tensor:
        """As `VGGGRU.forward`, without masks."""
        x = super().forward(x)
        if beside is not None:
            x = torch.cat([x, beside], -1)
        return both_directions(x, None, self.forth, self.back)


class _Layer(nn.Module):
    """Convolution, ReLU, batch normalisation and optional max-pooling, as convolution, max-pooling and clamping."""

    low: Tensor
    high: Tensor

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, pool: nn.MaxPool2d | None) -> None:
        super().__init__()
        scale, shift = _affine(norm)
        assert conv.bias is not None
        dtype = conv.weight.dtype
        weight = (conv.weight.detach().double() * scale[:, None, None, None]).to(dtype)
        bias = (conv.bias.detach().double() * scale + shift).to(dtype)
        self.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last), requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        bound = shift.to(dtype)[None, :, None, None]
        self.register_buffer("low", bound.masked_fill((scale < 0)[None, :, None, None], -torch.inf))
        self.register_buffer("high", bound.masked_fill((scale > 0)[None, :, None, None], torch.inf))
        self.padding = conv.padding
        self.kernel = None if pool is None else pool.kernel_size

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.weight, self.bias, padding=self.padding)
        if self.kernel is not None:
            x = F.max_pool2d(x, self.kernel)
        return x.clamp_(self.low, self.high)


def _affine(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Scale and shift of batch normalisation with its running statistics, in float64."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
    return scale, norm.bias.detach().double() - norm.running_mean.double() * scale
