"""Voices and musicians of the sound bank: children, dogs and street music, made like `machines`."""

from __future__ import annotations

import math

import numpy as np

from earmark.synthesis.timbres import Canvas, Colour, Signal, band, blend, both, gain, peaks, ring, tilt

__all__ = ["children_playing", "dog_bark", "street_music"]


def _formants(c: Canvas, size: float) -> Colour:
    """A vowel of a vocal tract of the given size; 1 is an adult's."""
    centres = np.array([c.octaves(280.0, 900.0), c.octaves(900.0, 2400.0), c.between(2400.0, 3200.0), 3900.0]) / size
    return peaks(centres, centres * 0.08 + 90.0, [0.0, c.between(-12.0, 0.0), c.between(-18.0, -6.0), -18.0], floor=-34)


def _call(c: Canvas, seconds: float) -> Signal:
    """A child's shout or word: pitch on an arch, one vowel turning into another, some breath."""
    v = c.part(seconds)
    base = c.octaves(260.0, 700.0) if c.chance(0.85) else c.octaves(700.0, 1500.0)  # a voice or a shriek
    top, size = c.between(1.05, 1.7), c.between(0.6, 0.8)
    turn = c.between(0.2, 0.8) * seconds
    pitch = base * v.through((0.0, c.between(0.8, 1.1)), (turn, top), (seconds, c.between(0.7, 1.2)))
    pitch = pitch * (1.0 + c.between(0.0, 0.025) * v.swing(c.between(4.0, 8.0)) + v.wander(12.0, 0.01))
    tint = tilt(c.between(-6.0, -1.0))
    first, second = (v.tone(pitch, both(tint, _formants(c, size)), rough=3.0, pulsed=True) for _ in range(2))
    change = v.through((0.25 * seconds, 0.0), (0.75 * seconds, 1.0))
    breath = v.noise(both(_formants(c, size), tilt(2.0)))
    voice = blend((first * (1.0 - change) + second * change, 0.0), (breath, c.between(-30.0, -12.0)))
    if seconds > 0.45:  # syllables
        voice *= 1.0 + c.between(0.0, 0.9) * v.swing(c.between(3.0, 6.0))
    return voice * v.through((0.0, 0.0), (0.15 * seconds, 1.0), (0.7 * seconds, 0.8), (seconds, 0.0))


def children_playing(c: Canvas) -> Signal:
    """Voices that shout, call and shriek, near and far, over a babble; now and then a ball or a step."""
    spans = [span for _ in range(int(c.rng.integers(1, 3))) for span in c.runs((0.12, 0.9), (0.0, 0.6))]
    calls = [_call(c, stop - start) * gain(c.between(-12.0, 0.0)) for start, stop in spans]
    near = c.place((start, call) for (start, _), call in zip(spans, calls, strict=True))
    far = c.place((c.between(0.0, c.seconds), call) for call in calls * 3)  # the same voices, elsewhere
    yard = c.noise(
        both(peaks([600.0, 1500.0, 3200.0], [700.0, 1400.0, 1800.0], floor=-20.0), tilt(c.between(-6.0, -2.0)))
    )
    yard *= 1.0 + 0.5 * c.swing(c.between(2.5, 5.0)) * c.swing(c.between(0.4, 1.5)) + c.wander(3.0, 0.2)
    yard += yard * c.fading(c.strikes(c.onsets(c.between(0.3, 1.0), 0.5)), 0.12) * c.between(0.0, 2.0)
    return blend((near, 0.0), (far, c.between(-14.0, -2.0)), (yard, c.between(-20.0, 0.0)))


def dog_bark(c: Canvas) -> Signal:
    """Barks of one dog: bursts whose pitch rises and falls at once, hoarse, coloured by the dog's size."""
    size = c.between(0.0, 1.0)  # from a small dog to a large one
    pitch = 1100.0 * (0.2**size) * c.octaves(0.8, 1.25)
    muzzle = c.octaves(1500.0, 2300.0) * (0.33**size) * np.array([1.0, c.between(1.7, 2.4), c.between(3.2, 4.2)])
    colour = both(
        peaks(muzzle, muzzle * 0.35, [0.0, c.between(-12.0, -2.0), c.between(-20.0, -8.0)], -40.0), tilt(-1.0)
    )
    length, hoarse = c.octaves(0.1, 0.35), c.between(-16.0, 0.0)
    pauses = (0.04, c.between(0.08, 0.28))

    def bark(seconds: float) -> Signal:
        v = c.part(seconds)
        top = c.between(1.1, 1.5)
        curve = v.through((0.0, 0.75), (0.2 * seconds, top), (0.5 * seconds, 1.0), (seconds, c.between(0.45, 0.8)))
        voiced = v.tone(pitch * c.octaves(0.93, 1.07) * curve * (1.0 + v.wander(60.0, 0.012)), colour, pulsed=True)
        hoarseness = hoarse + c.between(-3.0, 3.0)
        shape = v.through((0.0, 0.0), (0.2 * seconds, 1.0), (0.45 * seconds, 0.7), (seconds, 0.0))
        return blend((voiced, 0.0), (v.noise(colour), hoarseness)) * shape * gain(c.between(-5.0, 0.0))

    barks = c.runs((length * 0.8, length * 1.25), pauses)
    sound = c.place((start, bark(stop - start)) for start, stop in barks)
    growl = c.noise(colour) * (1.0 + c.swing(c.between(20.0, 45.0)))
    growling = c.between(-24.0, -12.0) if c.chance(0.3) else -90.0
    return blend((sound, 0.0), (growl, growling))


def _note(
    c: Canvas, pitch: float, seconds: float, colour: Colour, attack: float, decay: float, vibrato: float
) -> Signal:
    """One note of an instrument: struck or plucked where it decays, blown or bowed where it does not."""
    v = c.part(seconds)
    sound = v.tone(pitch * (1.0 + vibrato * v.swing(5.5)), colour, rough=2.0)
    points = [(0.0, 0.0), (attack, 1.0)]
    points += [(t, math.exp((attack - t) / decay)) for t in np.linspace(2.0 * attack, seconds - 0.03, 8) if t > attack]
    return sound * v.through(*points, (seconds, 0.0))


def _instrument(c: Canvas) -> tuple[Colour, float, float, float]:
    """Colour, attack, decay and vibrato of something to play on."""
    body = peaks(c.several(3, 300.0, 3500.0), c.octaves(200.0, 1500.0), c.rng.uniform(-8.0, 3.0, 3), floor=-10.0)
    colour = both(body, tilt(c.between(-12.0, -3.0)))
    if c.chance(0.5):
        return colour, 0.005, c.octaves(0.15, 0.8), 0.0
    return colour, c.between(0.02, 0.08), 20.0, c.between(0.0, 0.012)


def _drums(c: Canvas, beat: float) -> Signal:
    """Kick, snare and hat in turn."""
    times = c.onsets(beat / 2.0)
    kick = ring(c.strikes(times[0::4]), c.rate, [c.between(50.0, 90.0)], [0.25])
    sticks = c.fading(c.strikes(times[2::4]), 0.15) + c.between(0.05, 0.4) * c.fading(c.strikes(times), 0.06)
    return blend((kick, 0.0), (c.noise(band(300.0, 14000.0)) * sticks, c.between(-12.0, 0.0)))


def street_music(c: Canvas) -> Signal:
    """A melody over chords with a bass, each with its instrument, some with drums, in front of a crowd."""
    beat, root = 60.0 / c.octaves(70.0, 170.0), c.octaves(98.0, 196.0)
    scale = [0, 2, 4, 5, 7, 9, 11] if c.chance(0.5) else [0, 2, 3, 5, 7, 8, 10]

    def play(starts: Signal, chords: list[list[int]]) -> Signal:
        instrument = _instrument(c)
        lengths = np.diff(starts, append=starts[-1] + 2.0 * beat) * c.between(0.85, 1.0)
        return c.place(
            (start, _note(c, root * 2.0 ** (degree // 7 + scale[degree % 7] / 12.0), length, *instrument))
            for start, length, chord in zip(starts, lengths, chords, strict=True)
            for degree in chord
        )

    steps = c.onsets(beat * c.pick([0.5, 0.5, 1.0]))
    steps = steps[(c.rng.random(len(steps)) < 0.8) | (steps == 0.0)]
    tune = np.abs(np.cumsum(c.rng.integers(-2, 3, len(steps))) + c.rng.integers(7, 15))
    bars = c.onsets(beat * c.pick([2.0, 4.0]))
    chords = [[base - 7, base + 2, base + 4] for base in c.rng.choice([0, 3, 4, 5], len(bars))]
    crowd = c.noise(both(tilt(c.between(-7.0, -3.0)), band(50.0, 5000.0, 1))) * (1.0 + c.wander(3.0, 0.3))
    sound = blend(
        (play(steps, [[degree] for degree in tune]), 0.0),
        (play(bars, chords), c.between(-14.0, 2.0)),
        (crowd, c.between(-30.0, -6.0)),
    )
    return blend((sound, 0.0), (_drums(c, beat), c.between(-12.0, 0.0))) if c.chance(0.4) else sound
