"""Settings of features, and the mel filters that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from earmark.errors import ArgumentError, DataError
from earmark.files import json_digest
from earmark.schema import parse, record

_LONGEST_FFT = 1 << 20  # samples
_LARGEST_FILTERS = 1 << 26  # n_fft * n_bands; the matrix of filters has half as many numbers

Window = Literal["hann", "hamming", "blackman", "blackmanharris", "nuttall", "bartlett", "cosine", "boxcar"]


@record
class FeatureConfig:
    """How samples become frames. The defaults are the paper's, except `pad_mode`, which its recipe sets to "reflect".

    Bands that are too narrow for any FFT bin are rejected (librosa warns and leaves them empty). With `center`, the
    sound is padded at both ends by half of n_fft; without, frame k begins at sample k * hop_samples, and samples after
    the last whole frame are ignored.

    `pad_mode` changes the first and the last frames of a sound only. The paper's librosa 0.5.1 pads by reflection,
    newer versions with zeros. Models and recipes that do not name it have zeros.

    The default `reference_db` is about the level of the loudest band and frame of ordinary recordings at the default
    settings: 18 dB in the median over 2,985 slices of UrbanSound8K, between 2 and 33 dB for nine in ten
    (`benchmarks/features.py --sounds FOLDER`). So values cover about the same range as with "clip"; loud sounds exceed
    0. Other values of n_fft, window, norm and power shift all levels.

    Examples
    --------
    >>> config = FeatureConfig(rate=22050, n_bands=64)
    >>> round(config.hop, 4), config.frames(220500)
    (0.0464, 216)
    >>> FeatureConfig.from_dict(config.to_dict()) == config
    True
    >>> FeatureConfig(rate=0)
    Traceback (most recent call last):
    earmark.errors.ArgumentError: rate: expected a whole number from 1 to 10000000, got 0
    >>> FeatureConfig.from_dict({"bands": 64})
    Traceback (most recent call last):
    earmark.errors.ArgumentError: features: key='bands' is not known; did you mean 'n_bands'? Choose from: ...
    """

    rate: int = Field(default=44100, ge=1, le=10_000_000, description="Samples per second.")
    n_fft: int = Field(default=2048, ge=2, le=_LONGEST_FFT, description="Length of the Fourier transform, in samples.")
    hop_samples: int = Field(default=1024, ge=1, le=1 << 20, description="Samples from one frame to the next.")
    win_samples: int | None = Field(default=None, ge=1, description="Length of the window; None is n_fft.")
    window: Window = Field(default="hann", description="Shape of the window.")
    center: bool = Field(default=True, description="Centre frame k on sample k * hop_samples.")
    pad_mode: Literal["zeros", "reflect"] = Field(
        default="zeros", description="How clips are padded at their ends, for centred frames."
    )
    n_bands: int = Field(default=128, ge=1, le=1 << 13, description="Number of mel bands.")
    fmin: float = Field(default=0.0, ge=0, description="Lower end of the lowest band, in Hz.")
    fmax: float | None = Field(default=None, description="Upper end of the highest band, in Hz; None is half the rate.")
    htk: bool = Field(default=False, description="HTK's mel scale instead of Slaney's.")
    norm: Literal["slaney", None] = Field(default="slaney", description="Filters of equal area; None: equal height.")
    power: float = Field(
        default=2.0, gt=0, le=8, description="Exponent of the magnitude before bands are summed; 2: energy."
    )
    scaling: Literal["clip", "fixed"] = Field(
        default="clip", description="What 0 dB is: the maximum of the clip, or a fixed level."
    )
    range_db: float = Field(
        default=80.0, gt=0, le=1000, description="Values further below the reference are raised to this limit."
    )
    reference_db: float = Field(
        default=20.0, ge=-1000, le=1000, description='For "fixed": the level that becomes 0 dB.'
    )
    amin: float = Field(default=1e-10, ge=1e-37, le=1_000_000, description="Smallest power distinguished from zero.")

    def __post_init__(self) -> None:
        if self.n_fft * self.n_bands > _LARGEST_FILTERS:
            raise ArgumentError(
                f"expected n_fft times n_bands of at most {_LARGEST_FILTERS}, got {self.n_fft} times {self.n_bands}"
            )
        if self.window_length > self.n_fft:
            raise ArgumentError(f"expected win_samples of at most n_fft ({self.n_fft}), got {self.win_samples}")
        if self.top > self.rate / 2:
            raise ArgumentError(f"expected fmax of at most {self.rate / 2:g} Hz (half the rate), got {self.top:g}")
        if self.fmin >= self.top:
            raise ArgumentError(f"expected fmin below fmax ({self.top:g} Hz), got {self.fmin:g}")
        if empty := _empty_bands(self):
            raise ArgumentError(
                f"{empty} of {self.n_bands} bands lie between two bins of the FFT and would always be empty; "
                f"choose {_remedy(self)}"
            )

    @property
    def window_length(self) -> int:
        """Length of the window, in samples."""
        return self.n_fft if self.win_samples is None else self.win_samples

    @property
    def top(self) -> float:
        """Upper end of the highest band, in Hz."""
        return self.rate / 2 if self.fmax is None else self.fmax

    @property
    def hop(self) -> float:
        """Seconds from one frame to the next."""
        return self.hop_samples / self.rate

    @property
    def padding(self) -> int:
        """Samples added before the first sample, and after the last."""
        return self.n_fft // 2 if self.center else 0

    @property
    def silence(self) -> float:
        """The lowest value, of padded frames."""
        return -self.range_db

    def frames(self, n_samples: int) -> int:
        """Number of frames for a number of samples."""
        if n_samples < 1:
            raise DataError("expected at least one sample, got a sound without samples")
        if n_samples + 2 * self.padding < self.n_fft:
            raise DataError(
                f"a sound of {n_samples} samples is shorter than one frame of n_fft {self.n_fft}; "
                "pad it, or choose center=True"
            )
        return 1 + (n_samples + 2 * self.padding - self.n_fft) // self.hop_samples

    def to_dict(self) -> dict[str, Any]:
        """Every setting, as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> FeatureConfig:
        """The configuration with these settings, and defaults for the others."""
        return parse(cls, dict(settings), where="features", error=ArgumentError)

    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the features.

        An explicit default changes nothing, nor does `reference_db` with scaling "clip", or `pad_mode` without padding.

        >>> FeatureConfig().fingerprint() == FeatureConfig(fmax=22050, win_samples=2048).fingerprint()
        True
        """
        settings = self.to_dict() | {"fmax": self.top, "win_samples": self.window_length, "kind": "log-mel 1"}
        if self.scaling == "clip":
            del settings["reference_db"]
        if self.pad_mode == "zeros" or not self.center:
            del settings["pad_mode"]  # which older models lack
        return json_digest(settings)


def mel_matrix(config: FeatureConfig, semitones: float = 0.0) -> npt.NDArray[np.float32]:
    """Triangular filters: (bands, bins), equal to `librosa.filters.mel`.

    With `semitones`, the sound is in effect shifted in pitch, upwards if positive. Energy at frequency f moves to r f,
    r = 2^(semitones / 12), so band b weighs energy at f with M_b(r f): corners are divided by r, heights stay.
    Tones keep their level, and noise is spread over r times the bandwidth, as by a real pitch shift. Up to two
    semitones, peaks of tones are within 0.6 dB at the default settings; larger shifts reveal the resolution of the FFT
    in the lowest bands. Bands that a downward shift would fill from beyond half the rate hold the floor, as in a
    shifted recording.
    """
    ratio = 2.0 ** (semitones / 12)
    if empty := _empty_bands(config, ratio=ratio):
        raise ArgumentError(
            f"shifted by {semitones:g} semitones, {empty} of {config.n_bands} bands lie between two bins of the FFT; "
            "choose a smaller shift, a longer n_fft or fewer bands"
        )
    corners = _corners(config, config.n_bands)
    bins = _bins(config, config.n_fft)
    weights = triangles(bins * ratio, corners, config.norm)
    if semitones:
        # The lowest filters are only three bins wide, and moving one changes its sum by up to a decibel. Restore the
        # sum of the original, unless a part of the filter lies beyond the last bin.
        actual = weights.sum(axis=1)
        expected = triangles(bins, corners, config.norm).sum(axis=1) / ratio
        is_inside = corners[2:] <= ratio * config.rate / 2
        weights *= np.divide(expected, actual, out=np.ones_like(expected), where=is_inside)[:, None]
    return np.asarray(weights, np.float32)


def triangles(
    frequencies: npt.NDArray[np.float64], corners: npt.NDArray[np.float64], norm: str | None
) -> npt.NDArray[np.float64]:
    """Triangular filters between three consecutive corners each: (bands, frequencies) for bands + 2 corners."""
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    sides = np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle))
    heights = 2.0 / (high - low) if norm == "slaney" else np.ones_like(high)
    return np.asarray(np.maximum(0.0, sides) * heights, np.float64)


def _bins(config: FeatureConfig, n_fft: int) -> npt.NDArray[np.float64]:
    return np.asarray(np.arange(n_fft // 2 + 1) * (config.rate / n_fft), np.float64)


def _corners(config: FeatureConfig, n_bands: int) -> npt.NDArray[np.float64]:
    """Frequencies at which filters begin, peak and end, in Hz: (bands + 2,), evenly spaced in mel."""
    if config.htk:
        mel = np.linspace(_htk_mel(config.fmin), _htk_mel(config.top), n_bands + 2)
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    mel = np.linspace(_slaney_mel(config.fmin), _slaney_mel(config.top), n_bands + 2)
    hertz = np.where(mel < 15, mel * 200 / 3, 1000.0 * np.exp((mel - 15) * _SLANEY_STEP))
    return np.asarray(hertz, np.float64)


_SLANEY_STEP = math.log(6.4) / 27  # above 1 kHz, 27 mel are a factor of 6.4; below, a mel is 200/3 Hz


def _htk_mel(frequency: float) -> float:
    return 2595.0 * math.log10(1.0 + frequency / 700.0)


def _slaney_mel(frequency: float) -> float:
    return frequency * 3 / 200 if frequency < 1000 else 15 + math.log(frequency / 1000) / _SLANEY_STEP


def _empty_bands(
    config: FeatureConfig, *, n_fft: int | None = None, n_bands: int | None = None, ratio: float = 1.0
) -> int:
    """How many bands hold no bin, except those whose sound would come from beyond half the rate."""
    corners = _corners(config, n_bands or config.n_bands) / ratio
    bins = _bins(config, n_fft or config.n_fft)
    covered = np.searchsorted(bins, corners[2:], "left") - np.searchsorted(bins, corners[:-2], "right")
    return int(np.count_nonzero((covered < 1) & (corners[2:] <= config.rate / 2)))


def _remedy(config: FeatureConfig) -> str:
    """Settings with which no band is empty: the next longer FFT, or fewer bands."""
    remedies = []
    doublings = (config.n_fft << i for i in range(1, 7))
    longer = next((n for n in doublings if n <= _LONGEST_FFT and not _empty_bands(config, n_fft=n)), None)
    if longer:
        remedies.append(f"n_fft {longer}")
    if fewer := _most_bands(config):
        remedies.append(f"n_bands {fewer}")
    return " or ".join(remedies) or "fmin and fmax farther apart"


def _most_bands(config: FeatureConfig) -> int:
    """About the most bands of which none is empty, by bisection; 0 if a single one is."""
    full, some_empty = 0, config.n_bands
    while some_empty - full > 1:
        middle = (full + some_empty) // 2
        full, some_empty = (full, middle) if _empty_bands(config, n_bands=middle) else (middle, some_empty)
    return full
