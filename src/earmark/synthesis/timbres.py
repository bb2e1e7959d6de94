"""Building blocks of the sound bank: tones, noises, strikes, envelopes and acoustics.

A *colour* is a function from frequencies in Hz to gains, for tones and noises. A `Canvas` is a time span with a random
generator: it draws numbers and makes arrays of its length. Times are seconds, frequencies Hz, levels dB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import fft

Signal: TypeAlias = NDArray[np.float64]
Colour: TypeAlias = Callable[[Signal], Signal]
Span: TypeAlias = tuple[float, float]

_TABLE = 8192  # samples of one period: harmonic 200 is interpolated to -50 dB
_GRID = np.geomspace(10.0, 30000.0, 300)  # frequencies at which colours of noise are evaluated


def gain(level: float) -> float:
    """Factor of a level in dB."""
    return math.pow(10.0, level / 20.0)


def tilt(slope: float) -> Colour:
    """A spectrum with a slope in dB per octave; 0 dB at 1 kHz, flat below 30 Hz."""
    power = slope / (20.0 * math.log10(2.0))
    return lambda hertz: (np.maximum(hertz, 30.0) / 1000.0) ** power


def band(low: float, high: float, steep: int = 2) -> Colour:
    """A band pass; `steep` is the order of both edges."""
    return lambda hertz: ((1.0 + (low / np.maximum(hertz, 1.0)) ** 4) * (1.0 + (hertz / high) ** 4)) ** (-steep / 4.0)


def peaks(centres: ArrayLike, widths: ArrayLike, levels: ArrayLike = 0.0, floor: float = -40.0) -> Colour:
    """Resonances over a floor in dB, such as the formants of a voice."""
    c, w, g = np.broadcast_arrays(*np.atleast_1d(centres, widths, np.power(10.0, np.divide(levels, 20.0))))
    return lambda hertz: gain(floor) + (g / (1.0 + ((hertz[:, None] - c) / (w / 2.0)) ** 2)).sum(1)


def both(*colours: Colour) -> Colour:
    """Product of colours."""
    return lambda hertz: math.prod((colour(hertz) for colour in colours), start=np.ones(len(hertz)))


def ring(strikes: Signal, rate: int, centres: Iterable[float], decays: Iterable[float]) -> Signal:
    """Struck bodies: each mode rings at its frequency and decays by 60 dB in its decay time."""
    sound = np.zeros_like(strikes)
    for centre, decay in zip(centres, decays, strict=True):
        if centre < 0.45 * rate:
            radius = 10.0 ** (-3.0 / (decay * rate))
            angle = 2.0 * math.pi * centre / rate
            poles = [1.0, -2.0 * radius * math.cos(angle), radius * radius]
            sound += scipy.signal.lfilter([math.sqrt(1.0 - radius) * math.sin(angle)], poles, strikes)
    return sound


def blend(*parts: tuple[Signal, float]) -> Signal:
    """Mix sounds, each scaled to its level in dB (root mean square); silence stays silent."""
    sound = np.zeros_like(parts[0][0])
    for part, level in parts:
        power = float(np.mean(part * part))
        if power > 0.0:
            sound += part * (gain(level) / math.sqrt(power))
    return sound


@dataclass(frozen=True)
class Canvas:
    """A time span to fill with sound.

    >>> canvas = Canvas(np.random.default_rng(0), 8000, 4000)
    >>> canvas.tone(440.0, tilt(-6.0)).shape, canvas.noise(tilt(-3.0)).shape
    ((4000,), (4000,))
    """

    rng: np.random.Generator
    rate: int
    samples: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return self.samples / self.rate

    @cached_property
    def time(self) -> Signal:
        """Time of each sample."""
        return np.arange(self.samples) / self.rate

    def part(self, seconds: float) -> Canvas:
        """A canvas of another length with the same generator."""
        return Canvas(self.rng, self.rate, max(16, round(seconds * self.rate)))

    def between(self, low: float, high: float) -> float:
        """A uniform random number."""
        return float(self.rng.uniform(low, high))

    def octaves(self, low: float, high: float) -> float:
        """A log-uniform random number."""
        return float(np.exp(self.rng.uniform(math.log(low), math.log(high))))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def pick(self, choices: Sequence[float]) -> float:
        """One of several numbers."""
        return choices[int(self.rng.integers(len(choices)))]

    def several(self, count: int, low: float, high: float) -> Signal:
        """Sorted log-uniform random numbers, such as frequencies of resonances."""
        return np.sort(np.exp(self.rng.uniform(math.log(low), math.log(high), count)))

    def through(self, *points: tuple[float, float]) -> Signal:
        """A piecewise linear curve through points (time, value), constant outside."""
        times, values = zip(*points, strict=True)
        return np.asarray(np.interp(self.time, times, values))

    def wander(self, speed: float, depth: float) -> Signal:
        """A smooth random curve around 0: `speed` turns per second, standard deviation `depth`."""
        knots = max(2, math.ceil(self.seconds * speed * 2.0) + 1)
        values = self.rng.normal(0.0, depth, knots)
        return np.interp(self.time, np.linspace(0.0, self.seconds, knots), values)

    def swing(self, speed: float) -> Signal:
        """A sine between -1 and 1 with a random phase."""
        turns = speed * self.time + self.rng.random()
        return np.sin((2.0 * math.pi * turns).astype(np.float32)).astype(np.float64)  # float32 is five times as fast

    def tone(self, pitch: float | Signal, colour: Colour, *, rough: float = 0.0, pulsed: bool = False) -> Signal:
        """All harmonics of a pitch, which may vary, except those near half the rate.

        The colour gives the gain of a harmonic by its mean frequency; `rough` is the standard deviation in dB from it.
        Pulsed harmonics start in phase, as from glottis or exhaust, others with random phases.
        """
        curve: Signal = np.broadcast_to(np.asarray(pitch, dtype=np.float64), (self.samples,))
        count = min(int(0.45 * self.rate / curve.max()), _TABLE // 8)
        if count < 1:
            return np.zeros(self.samples)
        gains = colour(np.arange(1, count + 1, dtype=np.float64) * curve.mean(dtype=np.float64))
        gains = gains * np.power(10.0, self.rng.normal(0.0, rough / 20.0, count))
        turns = np.zeros(count) if pulsed else self.rng.random(count)
        harmonics = np.zeros(_TABLE // 2 + 1, dtype=complex)
        harmonics[1 : count + 1] = gains * np.exp(2j * math.pi * turns)
        table = fft.irfft(harmonics, _TABLE) * (_TABLE / 2.0)
        table = np.append(table, table[0])
        place = np.cumsum(curve) * (_TABLE / self.rate)
        below = place.astype(np.int64)
        place -= below
        below &= _TABLE - 1
        low = table[below]
        return low + place * (table[below + 1] - low)

    def noise(self, colour: Colour) -> Signal:
        """Gaussian noise of a colour."""
        length = fft.next_fast_len(self.samples, real=True)
        hertz = fft.rfftfreq(length, 1.0 / self.rate)
        gains = np.interp(hertz, _GRID, colour(_GRID) * math.sqrt(length / 2.0), left=0.0).astype(np.float32)
        draws = self.rng.standard_normal(2 * len(hertz), dtype=np.float32).view(np.complex64)
        draws *= gains
        return np.asarray(fft.irfft(draws, length)[: self.samples], dtype=np.float64)

    def onsets(self, gap: float, jitter: float = 0.0) -> Signal:
        """Times from the start, `gap` apart, with relative standard deviation `jitter`."""
        count = math.ceil(self.seconds / gap * (1.0 + 2.0 * jitter)) + 8
        gaps = gap * np.clip(1.0 + jitter * self.rng.standard_normal(count), 0.3, 1.7)
        times: Signal = np.cumsum(gaps) - gaps[0]
        return times[: int(np.searchsorted(times, self.seconds))]

    def strikes(self, times: ArrayLike, strengths: ArrayLike = 1.0) -> Signal:
        """Unit impulses at the given times; those after the end are omitted."""
        where = (np.asarray(times) * self.rate).astype(np.int64)
        weights = np.broadcast_to(np.asarray(strengths, dtype=np.float64), where.shape)
        return np.bincount(where, weights, self.samples)[: self.samples].astype(np.float64)

    def fading(self, strikes: Signal, decay: float) -> Signal:
        """Envelope of strikes, each decaying by 60 dB in `decay` seconds."""
        return np.asarray(scipy.signal.lfilter([1.0], [1.0, -(10.0 ** (-3.0 / (decay * self.rate)))], strikes))

    def runs(self, on: Span, off: Span) -> list[Span]:
        """Spans of activity that cover the canvas, with random lengths and pauses."""
        spans, start = [], 0.0
        while start < self.seconds:
            stop = start + self.octaves(*on)
            spans.append((start, stop))
            start = stop + self.between(*off)
        return spans

    def gate(self, spans: Iterable[Span], attack: float, release: float) -> Signal:
        """1 within the spans and 0 between them, with slopes inside the spans."""
        points: list[tuple[float, float]] = []
        for start, stop in spans:
            rise, fall = min(attack, (stop - start) / 3.0), min(release, (stop - start) / 3.0)
            points += [(start, 0.0), (start + rise, 1.0), (stop - fall, 1.0), (stop, 0.0)]
        return self.through(*points)

    def place(self, grains: Iterable[tuple[float, Signal]]) -> Signal:
        """Short sounds added at their times and cut at the end."""
        sound = np.zeros(self.samples)
        for time, grain in grains:
            first = round(time * self.rate)
            if first < self.samples:
                kept = grain[: self.samples - first]
                sound[first : first + len(kept)] += kept
        return sound

    def recorded(self, sound: Signal) -> Signal:
        """The sound as recorded in a street: from a distance, with echoes, reverberation and background noise."""
        tail = self.octaves(0.06, 0.5)
        echo = self.part(tail)
        reverb = echo.noise(band(150.0, 5000.0, 1)) * np.exp(-6.9 * echo.time / tail)
        reverb *= gain(self.between(-26.0, -4.0)) / math.sqrt(float(np.sum(reverb * reverb)))
        response = reverb + echo.strikes(self.rng.uniform(0.002, 0.03, 4), self.rng.normal(0.0, 0.15, 4))
        response[0] += 1.0
        edges = [self.octaves(20.0, 120.0), min(self.octaves(3000.0, 18000.0), 0.45 * self.rate)]
        response = scipy.signal.lfilter(*scipy.signal.butter(1, edges, "bandpass", fs=self.rate), response)
        wet = scipy.signal.oaconvolve(sound, response)[: self.samples]
        murmur = self.noise(both(tilt(self.between(-9.0, -3.0)), band(30.0, 9000.0, 1)))
        return blend((wet, 0.0), (murmur, self.between(-60.0, -24.0)))
