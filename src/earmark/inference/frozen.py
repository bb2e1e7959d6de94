"""The convolutional network made ready to run: the same function with less to do.

Batch normalisation with fixed statistics is y = a r + b per channel, and with ReLU before it y = a max(z, 0) + b, which
is max(a z + b, b) where a is positive and min(a z + b, b) where it is not. So a and b go into the convolution that
gives z, and what remains is to clamp its result. Clamping commutes with taking the maximum, so it comes after
max-pooling, when there is a quarter left to clamp. Zeros that convolutions pad with are added later and not touched, so
all this is exact, at the borders too, up to rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from earmark.networks import CNN, CRNN, ConvBlock

__all__ = ["FrozenCNN", "frozen"]


def frozen(network: nn.Module, *, half: bool = False) -> nn.Module:
    """The network, made ready if it is one of ours; otherwise as it is.

    Parameters
    ----------
    half
        Whether convolutions are computed in bfloat16.
    """
    dtype = torch.bfloat16 if half else torch.float32
    if type(network) is CNN:
        return FrozenCNN(network, dtype)
    if type(network) is CRNN:
        return _FrozenCRNN(network, dtype)
    return network


class FrozenCNN(nn.Module):
    """What a `CNN` does in evaluation: (bags, bands, frames) -> (bags, frames', embedding)."""

    scale: Tensor
    shift: Tensor

    def __init__(self, network: CNN, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype
        scale, shift = _affine(network.norm0)
        self.register_buffer("scale", scale.float())
        self.register_buffer("shift", shift.float())
        self.layers = nn.ModuleList()
        for block in network.blocks:
            assert isinstance(block, ConvBlock)
            self.layers += [_Layer(block.conv1, block.norm1, None), _Layer(block.conv2, block.norm2, block.pool)]
        self.layers.append(_Layer(network.squeeze, network.norm_out, None))
        self.layers.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """As `CNN.forward`, without masks."""
        x = torch.addcmul(self.shift, x, self.scale).to(self.dtype)  # decibels are too fine for half precision
        x = x.unsqueeze(-1).permute(0, 3, 1, 2)  # one channel, but with the strides of channels last
        for layer in self.layers:
            x = layer(x)
        return x[:, :, 0].transpose(1, 2)


class _FrozenCRNN(nn.Module):
    """A `CRNN` on a frozen CNN."""

    def __init__(self, network: CRNN, dtype: torch.dtype) -> None:
        super().__init__()
        self.cnn = FrozenCNN(network.cnn, dtype)
        self.forth, self.back = network.forth, network.back

    def forward(self, x: Tensor) -> Tensor:
        x = self.cnn(x).float()
        for forth, back in zip(self.forth, self.back, strict=True):
            x = torch.cat([forth(x)[0], back(x.flip(1))[0].flip(1)], -1)
        return x


class _Layer(nn.Module):
    """Convolution, ReLU, batch normalisation and perhaps max-pooling, as convolution, max-pooling and clamping."""

    low: Tensor
    high: Tensor

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, pool: nn.MaxPool2d | None) -> None:
        super().__init__()
        scale, shift = _affine(norm)
        assert conv.bias is not None
        weight = conv.weight.detach().double() * scale[:, None, None, None]
        self.weight = nn.Parameter(weight.float().contiguous(memory_format=torch.channels_last), requires_grad=False)
        self.bias = nn.Parameter((conv.bias.detach().double() * scale + shift).float(), requires_grad=False)
        bound = shift.float()[None, :, None, None]
        self.register_buffer("low", bound.masked_fill((scale < 0)[None, :, None, None], -torch.inf))
        self.register_buffer("high", bound.masked_fill((scale > 0)[None, :, None, None], torch.inf))
        self.padding, self.kernel = conv.padding, None if pool is None else pool.kernel_size

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.weight, self.bias, padding=self.padding)
        if self.kernel is not None:
            x = F.max_pool2d(x, self.kernel)
        return x.clamp_(self.low, self.high)


def _affine(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """The factor and the summand that batch normalisation with its running statistics comes to, in float64."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
    return scale, norm.bias.detach().double() - norm.running_mean.double() * scale
