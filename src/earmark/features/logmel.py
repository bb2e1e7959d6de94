"""The transform: samples to log-mel frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from earmark.errors import ArgumentError, DataError
from earmark.features.config import FeatureConfig, mel_matrix

Block = tuple[int, int, Tensor]  # see `nonzero_blocks`
Tables = tuple[Tensor, list[list[Block]]]  # window; blocks of each shift

# Frames are computed this many at a time: they stay in a core's cache, and a clip of ten seconds (431 frames) fills
# four groups. The last one is padded with zeros: every frame is computed by the same calls with the same shapes.
_GROUP = 108

# Mel filters are narrow, so most of the mel matrix is zeros. Each product takes this many bands and only the bins that
# they cover: a third of the work of one large product. Fewer bands skip more zeros and lose more to calls.
_BLOCK_BANDS = 32

_GPU_FRAMES = 1 << 15  # at a time: 0.8 GB on the way at the default n_fft


def nonzero_blocks(matrix: npt.NDArray[np.floating[Any]]) -> list[tuple[int, int, npt.NDArray[np.float32]]]:
    """The parts of a mel matrix (bins, bands) that are not zero, in order of bands.

    Each has its first row, one past its last, and its values (rows, bands).
    """
    blocks = []
    for band in range(0, matrix.shape[1], _BLOCK_BANDS):
        part = matrix[:, band : band + _BLOCK_BANDS]
        rows = np.flatnonzero(part.any(axis=1))
        first, last = (int(rows[0]), int(rows[-1]) + 1) if rows.size else (0, 0)
        blocks.append((first, last, np.ascontiguousarray(part[first:last], np.float32)))
    return blocks


def band_energies(spectrum: Tensor, banks: Sequence[Sequence[Block]], *, power: float = 2.0) -> Tensor:
    """Energies in bands, for each of several banks of filters: (..., frames, bins) to (..., banks, frames, bands).

    For power 2, filters have two rows for each bin, since the product adds its squared real and imaginary parts.
    """
    if power == 2:
        parts = torch.view_as_real(spectrum).flatten(-2)
        s = parts * parts
    else:
        s = spectrum.abs().pow(power)
    return torch.stack([torch.cat([s[..., a:b] @ part for a, b, part in bank], dim=-1) for bank in banks], dim=-3)


@lru_cache(maxsize=32)
def _blocks(config: FeatureConfig, semitones: float) -> list[tuple[int, int, npt.NDArray[np.float32]]]:
    """The mel matrix in blocks, as `band_energies` takes them."""
    return nonzero_blocks(mel_matrix(config, semitones).T.repeat(2 if config.power == 2 else 1, axis=0))


def _window(name: str, length: int) -> npt.NDArray[np.float64]:
    """A periodic window; the default one without `scipy.signal`, whose import takes longer than most commands."""
    if name == "hann" and length > 1:
        return np.asarray(np.hanning(length + 1)[:-1], np.float64)
    return np.asarray(scipy.signal.get_window(name, length))


def reflected(x: Tensor, first: int, last: int) -> Tensor:
    """Samples `first` up to, not including, `last` of a sound (..., samples) that is mirrored at both of its ends.

    Like `numpy.pad` with mode "reflect", the outermost samples are not repeated, and padding may exceed the sound.

    >>> reflected(torch.tensor([1.0, 2.0, 3.0]), -2, 5)
    tensor([3., 2., 1., 2., 3., 2., 1.])
    """
    end = torch.arange(x.shape[-1], device=x.device)[-1]  # a tensor: a length may be unknown while exporting
    place = torch.arange(first, last, device=x.device) % (2 * end).clamp_min(1)
    return x[..., torch.minimum(place, 2 * end - place)]


def pad(x: Tensor, config: FeatureConfig) -> Tensor:
    """(bags, samples) with the padding of centred frames at both ends."""
    if config.pad_mode == "reflect" and config.center:
        return reflected(x, -config.padding, x.shape[1] + config.padding)
    return F.pad(x, (config.padding, config.padding))


class LogMel(nn.Module):
    """Log-mel frames of sound: (bags, samples) to (bags, bands, frames), in decibels.

    Differentiable; computes in float32, or in float64 for such samples. Holds no parameters, and nothing in its state
    dict. On a CPU, results do not depend on the other bags of a batch; on a GPU, or compiled or exported, they agree to
    within rounding.

    Examples
    --------
    >>> logmel = LogMel(FeatureConfig(rate=16000, n_bands=64))
    >>> samples = torch.sin(torch.arange(32000) * 2 * torch.pi * 440 / 16000).expand(2, -1)
    >>> x = logmel(samples)
    >>> x.shape, x.max().item(), x.min().item()
    (torch.Size([2, 64, 32]), 0.0, -80.0)
    >>> logmel(samples, semitones=[-2, 0, 2]).shape  # (bags, shifts, bands, frames)
    torch.Size([2, 3, 64, 32])
    """

    window: Tensor

    def __init__(self, config: FeatureConfig | None = None) -> None:
        super().__init__()
        self.config = config or FeatureConfig()
        self._make_tables(torch.device("cpu"))

    def _make_tables(self, device: torch.device) -> None:
        c = self.config
        left = (c.n_fft - c.window_length) // 2
        window = np.zeros(c.n_fft, np.float32)
        window[left : left + c.window_length] = _window(c.window, c.window_length)
        self.register_buffer("window", torch.tensor(window, device=device), persistent=False)
        for i, (_, _, part) in enumerate(_blocks(c, 0.0)):
            self.register_buffer(f"mel_{i}", torch.tensor(part, device=device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LogMel:
        # Move to any device, but not to half precision; complete also after creation on the meta device.
        self._make_tables(fn(self.window).device)
        return self

    def forward(self, samples: Tensor, *, semitones: Sequence[float] | None = None) -> Tensor:
        """Features of mono samples at the configuration's rate: (bags, samples) to (bags, bands, frames).

        With `semitones` (shifts,), the pitch is shifted by each of these: (bags, shifts, bands, frames), from one
        Fourier transform, read by several sets of filters. See `mel_matrix`. Scaling "clip" then takes the maximum of
        each shifted version.
        """
        device = samples.device.type
        if torch.is_autocast_enabled(device):  # energies span more than half precision holds
            with torch.autocast(device, enabled=False):
                return self.forward(samples, semitones=semitones)
        if samples.dim() != 2:
            raise ArgumentError(f"samples: expected (bags, samples), got shape {tuple(samples.shape)}")
        if not samples.is_floating_point():
            raise ArgumentError(f"samples: expected floating-point numbers in about [-1, 1], got {samples.dtype}")
        x = samples if samples.dtype in (torch.float32, torch.float64) else samples.float()
        self.config.frames(x.shape[1])
        tables = self._tables(x.dtype, semitones)
        if device == "cpu" and not torch.compiler.is_compiling():
            features = torch.stack([self._scaled(self._whole_levels(bag, tables)) for bag in x])
            if not math.isfinite(features.detach().sum()):  # one pass over features is cheaper than one over samples
                raise DataError("samples: expected finite numbers, got NaN, infinity or numbers beyond float32")
        else:
            features = self._together(x, tables)
        features = features.transpose(-1, -2).contiguous()
        return features[:, 0] if semitones is None else features

    def _tables(self, dtype: torch.dtype, semitones: Sequence[float] | None) -> Tables:
        window = self.window.to(dtype)
        if semitones is None:
            blocks = enumerate(_blocks(self.config, 0.0))
            return window, [[(a, b, getattr(self, f"mel_{i}").to(dtype)) for i, (a, b, _) in blocks]]
        shifts = [float(s) for s in semitones]
        if not shifts or not all(map(math.isfinite, shifts)):
            raise ArgumentError(f"semitones: expected one or more finite numbers, got {shifts}")
        banks = [[(a, b, torch.from_numpy(part).to(window)) for a, b, part in _blocks(self.config, s)] for s in shifts]
        return window, banks

    def _whole_levels(self, x: Tensor, tables: Tables) -> Tensor:
        """Levels of one sound, `_GROUP` frames at a time: (samples,) to (shifts, frames, bands)."""
        c = self.config
        frames = c.frames(len(x))
        groups = []
        for first in range(0, frames, _GROUP):
            begin = first * c.hop_samples - c.padding
            end = begin + (_GROUP - 1) * c.hop_samples + c.n_fft
            excerpt = x[max(begin, 0) : end]
            if begin < 0 or end > len(x):
                excerpt = self._edge(x, begin, end)
            groups.append(self._levels(excerpt.unfold(0, c.n_fft, c.hop_samples), tables))
        return torch.cat(groups, dim=-2)[:, :frames]

    def _edge(self, x: Tensor, begin: int, end: int) -> Tensor:
        """Samples `begin` to `end` of a sound, of which some lie in its padding, or beyond it, where zeros are."""
        c = self.config
        stop = min(end, len(x) + c.padding)
        if c.pad_mode == "reflect" and c.center:
            return F.pad(reflected(x, begin, stop), (0, end - stop))
        return F.pad(x[max(begin, 0) : end], (max(-begin, 0), max(end - len(x), 0)))

    def _together(self, x: Tensor, tables: Tables) -> Tensor:
        """All bags in the same calls, for GPUs, compilation and export."""
        c = self.config
        frames = pad(x, c).unfold(1, c.n_fft, c.hop_samples)
        if torch.compiler.is_compiling():
            return self._scaled(self._levels(frames, tables))
        at_once = max(1, _GPU_FRAMES // c.frames(x.shape[1]))
        levels = torch.cat([self._levels(frames[i : i + at_once], tables) for i in range(0, len(x), at_once)])
        return self._scaled(levels)

    def _levels(self, frames: Tensor, tables: Tables) -> Tensor:
        """Unscaled decibels: (..., frames, n_fft) to (..., shifts, frames, bands)."""
        window, banks = tables
        energies = band_energies(torch.fft.rfft(frames * window), banks, power=self.config.power)
        return 10.0 * torch.log10(energies.clamp_min(self.config.amin))

    def _scaled(self, levels: Tensor) -> Tensor:
        c = self.config
        reference = levels.amax((-2, -1), keepdim=True) if c.scaling == "clip" else c.reference_db
        return (levels - reference).clamp_min(-c.range_db)
