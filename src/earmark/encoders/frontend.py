"""Log-mel frames as EfficientAT's networks expect them: pre-emphasis, Kaldi's mel bands, logarithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from earmark.features.config import triangles
from earmark.features.logmel import Block, band_energies, nonzero_blocks

_GROUP = 128  # frames that are computed at a time: they stay in a core's cache


@dataclass(frozen=True)
class FrontEndConfig:
    """How samples become log-mel frames."""

    rate: int  # samples per second
    n_fft: int  # samples
    win_samples: int
    hop_samples: int
    n_bands: int
    fmax: float  # Hz


class FrontEnd(nn.Module):
    """Log-mel frames: (bags, samples) to (bags, bands, samples // hop_samples), about in [-1.5, 1.5].

    Frame k is centred on sample k * hop_samples. The sound is mirrored at both ends, as by `torch.stft`.
    """

    window: Tensor

    def __init__(self, config: FrontEndConfig) -> None:
        super().__init__()
        self.config = config
        window = np.hanning(config.win_samples)  # symmetric
        self.register_buffer("window", torch.tensor(window, dtype=torch.float32), persistent=False)
        self._rows = []
        for i, (first, last, part) in enumerate(_blocks(config)):
            self._rows.append((first, last))
            self.register_buffer(f"mel_{i}", torch.from_numpy(part), persistent=False)

    def forward(self, samples: Tensor) -> Tensor:
        bank = [(a, b, getattr(self, f"mel_{i}")) for i, (a, b) in enumerate(self._rows)]
        return self._frames(samples, [bank])[:, 0]

    def shifted(self, samples: Tensor, semitones: Sequence[float]) -> Tensor:
        """Frames with the pitch shifted by each of `semitones`, from one Fourier transform: (bags, shifts, bands, n).

        Filters are moved instead of the sound, as by `earmark.features.mel_matrix`.
        """
        banks = []
        for shift in semitones:
            blocks = _blocks(self.config, shift)
            banks.append([(a, b, torch.from_numpy(part).to(self.window)) for a, b, part in blocks])
        return self._frames(samples, banks)

    def _frames(self, samples: Tensor, banks: Sequence[Sequence[Block]]) -> Tensor:
        c = self.config
        reach = c.win_samples // 2
        x = F.pad(emphasised(samples), (reach, reach), mode="reflect")
        frames = x.unfold(1, c.win_samples, c.hop_samples)
        group = frames.shape[1] if frames.is_cuda else _GROUP
        levels = [self._levels(some, banks) for some in torch.split(frames, group, dim=1)]
        return torch.cat(levels, dim=2).transpose(2, 3)

    def _levels(self, frames: Tensor, banks: Sequence[Sequence[Block]]) -> Tensor:
        """(bags, frames, samples) -> (bags, banks, frames, bands)"""
        return scaled(band_energies(torch.fft.rfft(frames * self.window, n=self.config.n_fft), banks))


def emphasised(samples: Tensor) -> Tensor:
    """Samples with higher frequencies raised: (bags, samples) to (bags, samples - 1)."""
    return samples[:, 1:] - 0.97 * samples[:, :-1]


def scaled(energy: Tensor) -> Tensor:
    """Levels, about in [-1.5, 1.5], of energies in bands."""
    return (torch.log(energy + 1e-5) + 4.5) / 5


def to_decibels(levels: Tensor) -> Tensor:
    """Convert levels from `scaled` to decibels, at least -50: the unit of log-mel features and their augmentation."""
    return (5 * levels - 4.5) * (10 / math.log(10))


def from_decibels(x: Tensor) -> Tensor:
    """The inverse of `to_decibels`."""
    return (x * (math.log(10) / 10) + 4.5) / 5


def mel_filters(config: FrontEndConfig, semitones: float = 0.0) -> npt.NDArray[np.float64]:
    """Triangles in Kaldi's mel scale from 0 to fmax, all of height 1: (bands, n_fft // 2 + 1).

    Without a bin at half the rate. The lowest bands are narrower than a bin, and some of them are empty. With
    `semitones`, energy at a frequency is counted in the band of that frequency shifted upwards.
    """
    ratio = 2.0 ** (semitones / 12)
    bins = _mel(np.arange(config.n_fft // 2, dtype=np.float64) * (ratio * config.rate / config.n_fft))
    corners = np.linspace(0, _mel(np.float64(config.fmax)), config.n_bands + 2)
    return np.pad(triangles(bins, corners, norm=None), ((0, 0), (0, 1)))


def _blocks(config: FrontEndConfig, semitones: float = 0.0) -> list[tuple[int, int, npt.NDArray[np.float32]]]:
    """The filters in blocks, as `band_energies` takes them."""
    return nonzero_blocks(mel_filters(config, semitones).T.repeat(2, axis=0))


def _mel(frequency: npt.NDArray[np.float64] | np.float64) -> npt.NDArray[np.float64]:
    return np.asarray(1127 * np.log1p(frequency / 700), np.float64)
