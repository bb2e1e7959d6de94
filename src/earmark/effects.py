"""Effects on audio: pitch and time, fades, dynamic-range compression; and loudness.

Every effect takes mono samples (float32, full scale 1) and their rate and returns new samples, without clipping.
Results are deterministic in any process.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import python_stretch
import scipy
import soxr

from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.timing import time_to_sample

__all__ = ["PRESETS", "Compressor", "change_pitch_and_time", "compress", "fade", "loudness"]

Samples = npt.NDArray[np.float32]
Curve = npt.NDArray[np.float64]

_LONGEST_BLOCK = 0.07  # seconds; resolves partials 60 Hz apart and spreads a click over a few ms
_OVERLAP = 2.5  # blocks per sample, in input and output; with fewer, tones lose level and clicks get lost
_GATE_HOPS = 4  # of 0.1 s in a gating block
_SHORTEST = 0.5  # seconds; loudness of shorter sounds is measured by repeating them


def change_pitch_and_time(samples: Samples, rate: int, *, semitones: float = 0.0, stretch: float = 1.0) -> Samples:
    """Shift the pitch by `semitones` (-12 to 12) and scale the duration by `stretch` (0.5 to 2).

    Time t becomes t * stretch; the result has round(len(samples) * stretch) samples. The sound is resampled, which
    changes pitch and time together, and then stretched to its final length by Signalsmith's phase vocoder. So pitch is
    exact (the vocoder's transposition is off by up to a third of a semitone at 60 Hz, see `benchmarks/augment.py`), and
    one pass makes both changes. The cost is proportional to the rate: change a sound before upsampling it. Within 3
    semitones and a fifth of the length, tones keep their level.

    >>> tone = np.sin(2 * np.pi * 440 * np.arange(44100) / 44100).astype(np.float32)
    >>> change_pitch_and_time(tone, 44100, semitones=-2, stretch=1.1).shape
    (48510,)
    """
    samples = _checked(samples, rate)
    if not -12 <= semitones <= 12:
        raise ArgumentError(f"semitones: expected a number in [-12, 12], got {semitones}")
    if not 0.5 <= stretch <= 2:
        raise ArgumentError(f"stretch: expected a number in [0.5, 2], got {stretch}")
    length = round(len(samples) * stretch)
    if semitones == 0 and stretch == 1:
        return samples.copy()
    if not samples.any():
        return np.zeros(length, np.float32)
    # samples in a block of the vocoder: 2^k or 3 * 2^k, for fast Fourier transforms
    block = 1 << int(math.log2(max(_LONGEST_BLOCK * rate, 16)))
    if block * 1.5 <= _LONGEST_BLOCK * rate:
        block = block * 3 // 2
    ratio = 2 ** (semitones / 12)
    factor = ratio * stretch
    # silence after the end, because the vocoder's last blocks fade out
    padded = np.concatenate([samples, np.zeros(math.ceil(block * max(ratio, 1 / stretch)), np.float32)])
    if ratio != 1:
        padded = np.asarray(soxr.resample(padded, ratio, 1.0), dtype=np.float32)
    vocoder = python_stretch.Signalsmith.Stretch(0)  # seed of its random phases
    vocoder.configure(1, block, round(block / _OVERLAP * min(1.0, factor)))
    vocoder.setTimeFactor(1 / factor)
    return np.array(vocoder.process(padded[np.newaxis]), dtype=np.float32)[0, :length]


def loudness(samples: Samples, rate: int) -> float:
    """Integrated loudness in LUFS (ITU-R BS.1770-4): K-weighted mean square of the blocks that pass both gates.

    Blocks of 0.4 s start every 0.1 s; an incomplete last block is ignored. As in Scaper, sounds shorter than 0.5 s are
    repeated to that length. Where no block passes the gate at -70 LUFS, the loudness is -inf.

    >>> tone = np.sin(2 * np.pi * 997 * np.arange(480000) / 48000).astype(np.float32)
    >>> round(loudness(tone, 48000), 2), loudness(np.zeros(48000, np.float32), 48000)
    (-3.01, -inf)
    """
    samples = _checked(samples, rate)
    if not samples.any():
        return -math.inf
    if len(samples) < _SHORTEST * rate:
        samples = np.tile(samples, math.ceil(_SHORTEST * rate / len(samples)))
    weighted = scipy.signal.sosfilt(_k_weighting(rate), samples.astype(np.float64))
    np.square(weighted, out=weighted)
    hops = len(samples) * 10 // rate
    edges = np.array([time_to_sample(k / 10, rate) for k in range(hops + 1)])
    energy = np.add.reduceat(weighted, edges[:-1])
    energy[-1] = weighted[edges[-2] : edges[-1]].sum()  # reduceat's last sum includes the incomplete block
    power = np.convolve(energy, np.ones(_GATE_HOPS), "valid") / (edges[_GATE_HOPS:] - edges[:-_GATE_HOPS])

    power = power[power > 10 ** ((-70 + 0.691) / 10)]
    if not len(power):
        return -math.inf
    # the relative gate: a tenth of the mean is 10 LU below it
    return float(-0.691 + 10 * math.log10(power[power > power.mean() / 10].mean()))


def fade(samples: Samples, rate: int, fade_in: float = 0.01, fade_out: float = 0.01) -> Samples:
    """Fade in and out over the given seconds, along a quarter of a sine.

    Shape and default are those of Scaper and sox: the gain is 0 at the first sample and one sample after the last. A
    fade longer than the sound is shortened to it.

    >>> fade(np.ones(6, np.float32), 10, fade_in=0.3, fade_out=0.3).round(2)
    array([0.  , 0.5 , 0.87, 1.  , 0.87, 0.5 ], dtype=float32)
    """
    samples = _checked(samples, rate).copy()
    for name, view, seconds, first in (("fade_in", samples, fade_in, 0), ("fade_out", samples[::-1], fade_out, 1)):
        if not seconds >= 0:
            raise ArgumentError(f"{name}: expected 0 or more seconds, got {seconds}")
        n = time_to_sample(min(seconds, len(samples) / rate), rate)
        view[:n] *= np.sin(np.arange(first, first + n) * (np.pi / 2 / max(n, 1)))
    return samples


class Compressor(NamedTuple):
    """Settings of a compressor: levels in dB relative to full scale, times in seconds."""

    points: tuple[tuple[float, float], ...]  # input and output levels, interpolated linearly; constant gain outside
    attack: float = 0.1  # time constant of the level for rising sound
    decay: float = 0.3  # and for falling sound; at least as long
    gain: float = 0.0  # added to every level
    lookahead: float = 0.1  # time by which the gain leads the sound


PRESETS = {
    "radio": Compressor(((-90, -90), (-70, -70), (-60, -20), (0, 0)), 0.01, 1.0, gain=-5.0, lookahead=0.0),
    "film standard": Compressor(((-90, -90), (-70, -64), (-43, -37), (-31, -31), (-21, -21), (0, -20))),
    "film light": Compressor(((-90, -90), (-70, -64), (-53, -47), (-41, -41), (-21, -21), (0, -20))),
    "music standard": Compressor(((-90, -90), (-70, -58), (-55, -43), (-31, -31), (-21, -21), (0, -20))),
    "music light": Compressor(((-90, -90), (-70, -58), (-65, -53), (-41, -41), (-21, -21), (0, -11))),
    "speech": Compressor(((-90, -90), (-70, -55), (-50, -35), (-31, -31), (-21, -21), (0, -20))),
}
"""muda's presets. The paper's authors tried radio, film standard, music standard and speech."""


def compress(samples: Samples, rate: int, preset: str | Compressor) -> Samples:
    """Compress the dynamic range like `compand` of sox, with a preset (a name in `PRESETS`) or other settings.

    The level v follows |x|: v[n] = v[n-1] + c (|x[n]| - v[n-1]) from v[-1] = 1, with c = 1 - exp(-1 / (rate * attack))
    where |x[n]| exceeds v[n-1], and the same with `decay` elsewhere. The gain in dB is a piecewise linear function of v
    in dB; sample n is multiplied by the gain at n + lookahead, or by the last one.

    >>> quiet = np.full(4 * 44100, 0.001, np.float32)  # -60 dB
    >>> round(20 * np.log10(compress(quiet, 44100, "speech")[-1]))  # 15 dB up
    -45
    """
    samples = _checked(samples, rate)
    if isinstance(preset, str):
        if preset not in PRESETS:
            raise unknown_name("preset", preset, PRESETS)
        preset = PRESETS[preset]
    if not 0 < preset.attack <= preset.decay:
        raise ArgumentError(f"expected 0 < attack <= decay, got attack {preset.attack}, decay {preset.decay}")
    level = _follow(np.abs(samples.astype(np.float64)), rate, preset.attack, preset.decay)
    level_in, level_out = np.array(preset.points, dtype=np.float64).T
    gain_db = np.interp(20 * np.log10(np.maximum(level, 1e-20)), level_in, level_out - level_in + preset.gain)
    gain = np.exp(gain_db * (math.log(10) / 20))
    ahead = min(int(preset.lookahead * rate), max(len(gain) - 1, 0))
    gain = np.concatenate([gain[ahead:], np.repeat(gain[-1:], ahead)])
    return np.asarray(samples * gain, np.float32)


def _follow(s: Curve, rate: int, attack: float, decay: float) -> Curve:
    """Level of `compress`, exact up to rounding, without a loop over samples.

    Since attack <= decay, each step is the larger of two linear functions of v, for rising and falling. Guess which one
    each step takes, solve the linear recursion in closed form, correct the guess where the solution disagrees, and
    repeat. This is policy iteration: solutions increase towards the level and converge in a few rounds.
    """
    keep_rising = math.exp(-1 / (rate * attack))
    keep_falling = math.exp(-1 / (rate * decay))
    out = np.empty_like(s)
    v = 1.0
    # the closed form divides by the product of all factors so far, which must not underflow
    chunk = max(1, min(16384, int(400 / -math.log(keep_rising))))
    for start in range(0, len(s), chunk):
        part = s[start : start + chunk]
        rising = np.zeros(len(part), bool)
        while True:
            keep = np.where(rising, keep_rising, keep_falling)
            product = np.cumprod(keep)
            level = product * (v + np.cumsum((1 - keep) * part / product))
            before = np.concatenate([[v], level[:-1]])
            # in a tie either function is right; the margin prevents oscillation by rounding
            again = np.where(rising, part > before * (1 - 1e-12), part > before * (1 + 1e-12))
            if np.array_equal(again, rising):
                break
            rising = again
        out[start : start + chunk] = level
        v = float(level[-1])
    return out


@lru_cache(maxsize=16)
def _k_weighting(rate: int) -> Curve:
    """Second-order sections of BS.1770's two filters at any rate: a high shelf and a high pass."""
    # The standard's table for 48 kHz holds bilinear transforms of analogue filters with these parameters.
    gain = 10 ** (3.999843853973347 / 20)
    middle = gain**0.4996667741545416
    k, damping, poles = _poles(1681.974450955533, 0.7071752369554196, rate)
    shelf = [gain + middle * damping + k * k, 2 * (k * k - gain), gain - middle * damping + k * k, *poles]
    _, _, low_poles = _poles(38.13547087602444, 0.5003270373238773, rate)
    high_pass = [low_poles[0], -2 * low_poles[0], low_poles[0], *low_poles]
    return np.array([np.divide(shelf, poles[0]), np.divide(high_pass, low_poles[0])])


def _poles(frequency: float, quality: float, rate: int) -> tuple[float, float, tuple[float, float, float]]:
    """Warped frequency, damping and denominator of a second-order filter after the bilinear transform."""
    k = math.tan(math.pi * frequency / rate)
    damping = k / quality
    return k, damping, (1 + damping + k * k, 2 * (k * k - 1), 1 - damping + k * k)


def _checked(samples: Samples, rate: int) -> Samples:
    """Return the samples as float32 if they are mono and finite."""
    samples = np.asarray(samples, dtype=np.float32)
    if samples.ndim != 1:
        raise ArgumentError(f"expected mono samples of shape (samples,), got {samples.shape}; average the channels")
    if not rate > 0:
        raise ArgumentError(f"rate: expected a positive number, got {rate}")
    if not np.isfinite(samples).all():
        raise DataError(f"sample {int(np.argmin(np.isfinite(samples)))} is NaN or infinite")
    return samples
