"""Render the specification of a soundscape to audio, as Scaper does.

Each event is an excerpt of its source, changed in pitch and time, faded at both ends, scaled to its loudness and added
at its onset. The background is noise or a recording, scaled to the reference loudness. Reverberation, where specified,
is applied to the sum.

Differences from Scaper:
- Events are processed at the rate of their source if that is lower than the output's: half the work for 22.05 kHz, with
  the same result except within a few semitones of half that rate.
- A source that ends before its event is repeated with crossfades of 20 ms, so that the event lasts as annotated.
- A source quieter than -70 LUFS, the lower gate of loudness, is scaled as if it had that loudness, and counted as
  silent.
- A sum beyond full scale is scaled down, counted, and its annotation gets the new reference level, so that relative
  levels stay correct.
- Reverberation is a tail of decaying noise with the decay time and energy of SoX's reverb at the same setting; at 0.1,
  as in URBAN-SED, it decays by 60 dB in 0.3 s, 26 dB below the direct sound.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from scipy import fft

from earmark import audio, effects
from earmark.effects import Samples
from earmark.errors import DataError
from earmark.synthesis.sources import Bank
from earmark.synthesis.specification import Event, Soundscape, draw
from earmark.synthesis.timbres import gain
from earmark.timing import time_to_sample

COLOURS = ("brownian", "pink", "white")
_FLOOR_HZ = 20.0  # noise is flat below; with this, Brownian noise at -50 LUFS has URBAN-SED's -43 dBFS RMS
_QUIETEST = -70.0  # LUFS
_CROSSFADE = 0.02
_FULL = 1.0 - 2.0**-15  # the largest sample that 16 bits hold


@dataclass(frozen=True)
class Rendered:
    """Audio of a soundscape."""

    samples: Samples
    gain_db: float  # applied to avoid clipping; mostly 0
    silent: int  # number of events whose source is nearly silent


def render(soundscape: Soundscape, bank: Bank, rate: int = 44100) -> Rendered:
    """Render a soundscape whose sources are in `bank` (see `Bank.resolved`)."""
    mix = _background(soundscape, rate)
    silent = 0
    for event in soundscape.events:
        onset, offset = event.span(soundscape.duration)
        first, last = time_to_sample(onset, rate), time_to_sample(offset, rate)
        if last > first:
            sound, level = _event_sound(event, soundscape, bank, rate, last - first)
            silent += level < _QUIETEST
            sound *= gain(soundscape.ref_db + event.snr - max(level, _QUIETEST))
            mix[first:last] += sound
    if soundscape.reverb is not None:
        mix = _reverberated(mix, soundscape.reverb, draw(soundscape.seed, soundscape.name, "reverb"), rate)
    peak = max(float(mix.max()), -float(mix.min()))
    if peak <= _FULL:
        return Rendered(mix, 0.0, silent)
    return Rendered(mix * np.float32(_FULL / peak), 20 * math.log10(_FULL / peak), silent)


def _event_sound(event: Event, soundscape: Soundscape, bank: Bank, rate: int, length: int) -> tuple[Samples, float]:
    """Samples of an event before scaling, and their loudness."""
    sound, source_rate = bank.read(event, rate)
    if len(sound) == 0:
        raise DataError(f"{event.source_file}: ends before source_time, {event.source_time} s")
    sound = _repeated(sound, max(1, round(event.event_duration * source_rate)), round(_CROSSFADE * source_rate))
    if event.pitch_shift or event.time_stretch not in (None, 1.0):
        semitones, stretch = event.pitch_shift or 0.0, event.time_stretch or 1.0
        sound = effects.change_pitch_and_time(sound, source_rate, semitones=semitones, stretch=stretch)
    sound = effects.fade(sound, source_rate, soundscape.fade_in, soundscape.fade_out)
    level = effects.loudness(sound, source_rate)
    sound = audio.resample(sound, source_rate, rate)[:length]
    return np.pad(sound, (0, length - len(sound))), level  # resampling may differ by a few samples


def _background(soundscape: Soundscape, rate: int) -> Samples:
    event = soundscape.background
    length = time_to_sample(soundscape.duration, rate)
    if event is None:
        return np.zeros(length, np.float32)
    path = Path(event.source_file)
    colour = path.stem
    if colour in COLOURS:
        sound = make_noise(colour, length, draw(soundscape.seed, soundscape.name, "background"), rate)
    else:
        if not path.is_file():
            raise DataError(f"{path}: no such background; expected an audio file or one of {', '.join(COLOURS)}")
        recorded = audio.read(path, rate=rate, onset=event.source_time, offset=event.source_time + soundscape.duration)
        sound = _repeated(recorded, length, round(_CROSSFADE * rate))
    sound *= gain(soundscape.ref_db + event.snr - max(effects.loudness(sound, rate), _QUIETEST))
    return sound


def make_noise(colour: str, length: int, rng: np.random.Generator, rate: int = 44100) -> Samples:
    """Noise whose power falls by 6 dB per octave (brownian), by 3 (pink) or not at all (white), from 20 Hz upwards."""
    white = rng.standard_normal(length, dtype=np.float32)
    if colour == "white":
        return white
    if colour == "brownian":
        keep = math.exp(-2 * math.pi * _FLOOR_HZ / rate)
        # start in the stationary state, without a rise at the start
        start = np.array([keep * rng.standard_normal() / math.sqrt(1 - keep * keep)], np.float32)
        return np.asarray(
            scipy.signal.lfilter(np.ones(1, np.float32), np.array([1, -keep], np.float32), white, zi=start)[0]
        )
    spectrum = fft.rfft(white)
    frequencies = np.maximum(fft.rfftfreq(length, 1 / rate), _FLOOR_HZ).astype(np.float32)
    return np.asarray(fft.irfft(spectrum / np.sqrt(frequencies), length), np.float32)


def _repeated(sound: Samples, length: int, crossfade: int) -> Samples:
    """A sound cut to a length, or repeated with crossfades to reach it."""
    crossfade = min(crossfade, len(sound) // 2)
    step = len(sound) - crossfade
    if len(sound) >= length:
        return sound[:length]
    whole = np.zeros(length + len(sound), np.float32)
    ramp = np.sqrt(np.linspace(0, 1, crossfade, dtype=np.float32))
    for start in range(0, length, step):
        piece = sound.copy()
        if start:
            piece[:crossfade] *= ramp
        piece[step:] *= ramp[::-1]
        whole[start : start + len(sound)] += piece
    return whole[:length]


def _reverberated(dry: Samples, amount: float, rng: np.random.Generator, rate: int) -> Samples:
    # SoX's reverb (after Freeverb): eight combs, 31 ms long on average, fed back by 0.3 to 0.98, at a gain of 0.015.
    feedback = 1 - 0.7 * (0.02 / 0.7) ** amount
    seconds = 3 * 0.031 / -math.log10(feedback)
    time = np.arange(round(seconds * rate), dtype=np.float32) / rate
    tail = rng.standard_normal(len(time), dtype=np.float32) * 10 ** (-3 * time / seconds)
    tail *= math.sqrt(8 * 0.015**2 / (1 - feedback**2) / float(np.sum(tail**2)))
    return dry + np.asarray(scipy.signal.oaconvolve(dry, tail)[: len(dry)], np.float32)
