"""A sound bank without files: random sounds of the ten classes of URBAN-SED.

Demonstrations and tests need labelled sounds without a download. These are modelled on real sounds: a siren sweeps, a
jackhammer strikes, a dog has a size. Every call draws pitch, resonances, tempo, distance and reverberation from wide
but realistic ranges. Parts that only some sounds of a class have are mixed in at -90 dB otherwise.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from earmark.errors import ArgumentError, unknown_name
from earmark.synthesis.timbres import Canvas, Colour, Signal, band, blend, both, gain, peaks, ring, tilt

_SWEEPS = {"wail": (0.12, 0.4), "yelp": (2.0, 5.0), "hi-lo": (0.4, 1.2), "rotor": (0.06, 0.2)}  # turns per second


def air_conditioner(c: Canvas) -> Signal:
    """Mains hum and a fan under a broad flow of air that beats slowly; some rattle."""
    mains = c.pick([50.0, 60.0, 100.0, 120.0]) * (1.0 + c.wander(0.2, 0.001))
    hum = c.tone(mains, tilt(c.between(-14.0, -5.0)), rough=8.0)
    fan = c.tone(c.octaves(70.0, 700.0) * (1.0 + c.wander(0.3, 0.003)), tilt(c.between(-18.0, -8.0)), rough=6.0)
    body = peaks(c.several(5, 80.0, 6000.0), c.octaves(80.0, 900.0), c.rng.uniform(-14.0, 0.0, 5), floor=-8.0)
    flow = c.noise(both(tilt(c.between(-9.0, -2.0)), body))
    flow *= 1.0 + c.between(0.0, 0.3) * c.swing(c.octaves(0.2, 4.0)) + c.wander(1.0, 0.05)
    rattle = c.strikes(c.onsets(1.0 / c.octaves(6.0, 25.0), 0.1))
    rattle = ring(rattle, c.rate, c.several(3, 800.0, 6000.0), [0.02, 0.015, 0.01])
    rattling = c.between(-22.0, -8.0) if c.chance(0.35) else -90.0
    return blend((flow, 0.0), (hum, c.between(-22.0, 2.0)), (fan, c.between(-24.0, -2.0)), (rattle, rattling))


def car_horn(c: Canvas) -> Signal:
    """One or two reeds, rich in harmonics, in one honk or several."""
    honks = c.runs((0.15, 3.0), (0.05, 0.25))
    pitches = c.octaves(290.0, 600.0) * np.array([1.0, c.pick([1.19, 1.25, 1.26, 1.33, 1.5])])[: 1 + c.chance(0.7)]
    flare = peaks(c.several(3, 700.0, 5000.0), c.between(500.0, 2000.0), c.rng.uniform(-8.0, 4.0, 3), floor=-18.0)
    colour = both(flare, tilt(c.between(-5.0, 0.0)))
    # Pressure comes and goes at both ends of a honk, and takes the pitch along a little.
    press = c.gate(honks, c.between(0.01, 0.06), c.between(0.02, 0.09))
    droop = 1.0 - c.between(0.0, 0.04) * (1.0 - press)
    drive = c.octaves(0.995, 1.0) if c.chance(0.5) else c.octaves(0.97, 1.03)  # passing by, for some
    pass_by = c.through((0.0, 1.0), (c.seconds, drive))
    reeds = [(c.tone(pitch * droop * pass_by, colour, rough=5.0), c.between(-5.0, 0.0)) for pitch in pitches]
    buzz = c.noise(both(flare, tilt(-3.0)))
    return blend(*reeds, (buzz, c.between(-34.0, -16.0))) * press


def drilling(c: Canvas) -> Signal:
    """A motor that speeds up and slows down, its gears, and the grinding of what it bores; some hammer."""
    runs = c.runs((0.5, 4.0), (0.02, 0.2))
    speed = c.between(0.3, 0.8) + c.gate(runs, c.octaves(0.05, 0.5), c.octaves(0.05, 0.3))
    load = 1.0 + c.wander(2.0, 0.02) + c.wander(0.5, c.octaves(0.005, 0.06))
    motor = c.octaves(60.0, 400.0) * speed * load
    gears = c.tone(motor * int(c.rng.integers(4, 14)), tilt(c.between(-12.0, -3.0)), rough=4.0)
    body = both(
        peaks(c.several(4, 300.0, 8000.0), c.octaves(200.0, 2000.0), c.rng.uniform(-12.0, 3.0, 4), -12.0), tilt(1.0)
    )
    turning = c.tone(motor, both(body, tilt(c.between(-6.0, 0.0))), rough=6.0, pulsed=True)
    bite = np.abs(c.tone(motor, lambda hertz: (np.arange(len(hertz)) < 2).astype(float)))
    grinding = c.noise(both(body, tilt(c.between(-2.0, 3.0)))) * (1.0 + c.between(0.0, 1.0) * bite)
    grinding *= 1.0 + c.wander(6.0, 0.25)
    blows = c.noise(body) * c.fading(c.strikes(c.onsets(1.0 / c.octaves(35.0, 70.0), 0.03)), c.octaves(0.015, 0.06))
    hammering = c.between(-6.0, 3.0) if c.chance(0.4) else -90.0
    sound = blend((turning, c.between(-14.0, 0.0)), (gears, c.between(-18.0, 0.0)), (grinding, 0.0), (blows, hammering))
    return sound * c.gate(runs, c.between(0.01, 0.1), c.between(0.02, 0.15))


def engine_idling(c: Canvas) -> Signal:
    """Firing pulses, no two cylinders alike, through the exhaust; valves tick and air hisses."""
    firing = c.octaves(14.0, 60.0)
    times = c.onsets(1.0 / firing, c.between(0.01, 0.06))
    cylinders = int(c.pick([2, 4, 4, 6, 8]))
    uneven = c.rng.normal(1.0, c.between(0.05, 0.35), cylinders)
    pulses = c.strikes(times, np.resize(uneven, len(times)) * c.rng.normal(1.0, 0.12, len(times)))
    exhaust = ring(pulses, c.rate, c.several(4, 40.0, 500.0), c.rng.uniform(0.02, 0.15, 4))
    body = both(tilt(c.between(-8.0, -4.0)), peaks(c.several(4, 100.0, 4000.0), c.octaves(100.0, 800.0), floor=-8.0))
    puffs = c.noise(body) * c.fading(pulses, c.octaves(0.02, 0.15))
    ticks = ring(c.strikes(times + 0.3 / firing), c.rate, c.several(3, 1000.0, 7000.0), [0.015, 0.01, 0.008])
    hiss = c.noise(both(body, tilt(c.between(0.0, 3.0))))
    belt = c.tone(c.octaves(200.0, 2500.0) * (1.0 + c.wander(0.5, 0.005)), tilt(-12.0), rough=4.0)
    sound = blend(
        (exhaust, c.between(-9.0, 2.0)),
        (puffs, 0.0),
        (ticks, c.between(-30.0, -8.0)),
        (hiss, c.between(-24.0, -5.0)),
        (belt, c.between(-40.0, -18.0)),
    )
    return sound * (1.0 + c.wander(0.7, 0.08))


def gun_shot(c: Canvas) -> Signal:
    """A crack, a thump and a long rumbling decay, with echoes; single shots or a burst."""
    crack, thump, rumble = c.octaves(0.015, 0.1), c.octaves(50.0, 200.0), c.octaves(0.4, 1.8)
    tint, far = tilt(c.between(-4.0, 1.0)), c.octaves(900.0, 7000.0)
    booming, rumbling = c.between(-14.0, 2.0), c.between(-20.0, -6.0)
    audible = min(1.0, rumble * (40.0 + rumbling) / 60.0)  # until 40 dB below the crack

    def shot() -> Signal:
        v = c.part(audible + 0.3)
        hit = v.strikes([0.0])
        echoes = v.strikes([0.0, *c.rng.uniform(0.04, 0.3, 3)], [1.0, *c.rng.uniform(0.0, 0.35, 3)])
        blast = v.noise(tint) * v.fading(echoes, crack)
        boom = ring(hit, c.rate, [thump, thump * 1.7], [0.15, 0.1])
        decay = v.noise(both(tilt(-3.0), band(60.0, far, 1))) * v.fading(hit, rumble)
        loudest = float(np.abs(blast).max())
        boom *= gain(booming) * loudest / float(np.abs(boom).max())
        return np.asarray(blast + boom + decay * (gain(rumbling) * loudest))

    automatic = c.chance(0.25)
    gap = 1.0 / c.octaves(6.0, 14.0) if automatic else audible * c.between(0.7, 1.0) + 0.15
    shots = [shot(), shot(), shot()]  # in turn, so that a burst costs no more than these
    times = c.onsets(gap, 0.02 if automatic else 0.05)
    return c.place((time, shots[k % 3] * gain(c.between(-3.0, 0.0))) for k, time in enumerate(times))


def jackhammer(c: Canvas) -> Signal:
    """Blows at 8 to 30 a second on something that rings and crumbles, over a compressor."""
    runs = c.runs((0.7, 5.0), (0.05, 0.2))
    pace = c.octaves(8.0, 30.0)
    times = c.onsets(1.0 / pace, c.between(0.01, 0.07))
    blows = c.strikes(times, c.rng.normal(1.0, c.between(0.05, 0.3), len(times))) * c.gate(runs, 0.05, 0.05)
    steel = ring(blows, c.rate, c.several(6, 250.0, 7000.0), c.rng.uniform(0.02, 0.2, 6))
    ground = both(tilt(c.between(-3.0, 1.5)), peaks(c.several(4, 150.0, 5000.0), c.octaves(200.0, 1500.0), floor=-10.0))
    rubble = c.noise(ground) * c.fading(blows, c.octaves(0.04, 0.25))
    exhaust = c.noise(both(tilt(1.0), band(800.0, 9000.0))) * (1.0 + c.swing(pace))
    compressor = c.tone(c.octaves(25.0, 110.0) * (1.0 + c.wander(0.5, 0.01)), tilt(c.between(-9.0, -5.0)), rough=6.0)
    site = c.noise(tilt(c.between(-6.0, -2.0)))
    return blend(
        (rubble, 0.0),
        (steel, c.between(-16.0, 0.0)),
        (exhaust, c.between(-24.0, -5.0)),
        (compressor, c.between(-26.0, -6.0)),
        (site, c.between(-26.0, -8.0)),
    )


def siren(c: Canvas) -> Signal:
    """A wail, a yelp, a hi-lo or a turning rotor, passing by at some speed."""
    kind = str(c.rng.choice(list(_SWEEPS)))
    wave = (c.octaves(*_SWEEPS[kind]) * c.time + c.rng.random()) % 1.0
    rise = c.between(0.3, 0.6)
    sweep = np.minimum(wave / rise, (1.0 - wave) / (1.0 - rise))
    low, width = c.octaves(380.0, 900.0), c.between(1.6, 2.8)
    if kind == "hi-lo":
        sweep, width = np.round(wave), c.pick([1.19, 1.25, 1.33, 1.5])
    elif kind != "yelp":  # a motor runs up fast and then lingers
        sweep = np.sin(0.5 * math.pi * sweep)
    speed = c.between(-0.06, 0.06)
    nearest = c.between(-0.5, 1.5) * c.seconds
    approach = np.tanh((c.time - nearest) / c.octaves(0.5, 2.0))
    pitch = low * np.exp(math.log(width) * sweep) * (1.0 - speed * approach)
    horn = peaks(c.several(3, 600.0, 4000.0), c.octaves(300.0, 1500.0), c.rng.uniform(-10.0, 4.0, 3), floor=-14.0)
    sound = c.tone(pitch, both(horn, tilt(c.between(-14.0, -2.0))), rough=4.0)
    street = c.noise(both(tilt(c.between(-7.0, -2.0)), band(50.0, 9000.0, 1))) * (1.0 + c.wander(1.0, 0.2))
    nearness = gain(-c.between(0.0, 6.0)) ** (np.abs(c.time - nearest) / c.seconds)
    return blend((sound * nearness * (1.0 + c.wander(4.0, 0.08)), 0.0), (street, c.between(-34.0, -8.0)))


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
    first = v.tone(pitch, both(tint, _formants(c, size)), rough=3.0, pulsed=True)
    second = v.tone(pitch, both(tint, _formants(c, size)), rough=3.0, pulsed=True)
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


# Generator of each class, with its shortest and longest natural duration.
_VOICES: dict[str, tuple[Callable[[Canvas], Signal], float, float]] = {
    "air_conditioner": (air_conditioner, 3.0, 10.0),
    "car_horn": (car_horn, 0.3, 3.0),
    "children_playing": (children_playing, 1.5, 8.0),
    "dog_bark": (dog_bark, 0.3, 2.0),
    "drilling": (drilling, 1.0, 6.0),
    "engine_idling": (engine_idling, 2.0, 10.0),
    "gun_shot": (gun_shot, 0.3, 1.0),
    "jackhammer": (jackhammer, 1.0, 6.0),
    "siren": (siren, 2.0, 8.0),
    "street_music": (street_music, 2.0, 10.0),
}

CLASSES: tuple[str, ...] = tuple(_VOICES)
"""Classes of URBAN-SED, in the order of their numbers in UrbanSound8K."""


def make_sound(
    label: str, rng: np.random.Generator, *, rate: int = 44100, duration: float | None = None
) -> NDArray[np.float32]:
    """Generate a sound of a class, active from its first to its last sample, with its peak at -3 dBFS: (samples,).

    The same state of `rng` gives the same sound. Without a duration, a natural one for the class is drawn; short sounds
    are repeated to fill it.

    >>> bark = make_sound("dog_bark", np.random.default_rng(0), rate=16000, duration=1.5)
    >>> bark.shape, bark.dtype
    ((24000,), dtype('float32'))
    """
    if label not in _VOICES:
        raise unknown_name("label", label, CLASSES)
    if rate < 4000:
        raise ArgumentError(f"rate: expected at least 4000 Hz, got {rate!r}")
    voice, shortest, longest = _VOICES[label]
    if duration is None:
        duration = float(np.exp(rng.uniform(math.log(shortest), math.log(longest))))
    if not (math.isfinite(duration) and duration * rate > 0.5):
        raise ArgumentError(f"duration: expected at least one sample, got {duration!r}")
    samples = round(duration * rate)
    canvas = Canvas(rng, rate, max(samples, rate // 20))  # shorter sounds are the start of one of 50 ms
    sound = canvas.recorded(voice(canvas))[:samples]
    edge = min(round(0.004 * rate), samples)
    sound[samples - edge :] *= np.linspace(1.0, 0.0, edge)  # avoids a click
    return np.asarray(sound * (gain(-3.0) / np.abs(sound).max()), dtype=np.float32)
