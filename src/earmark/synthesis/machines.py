"""Machines and alarms of the sound bank: each function fills a canvas with a random sound of its class.

Parameters are drawn from wide but realistic ranges. Parts that only some sounds have are mixed in at -90 dB otherwise.
"""

from __future__ import annotations

import math

import numpy as np

from earmark.synthesis.timbres import Canvas, Signal, band, blend, both, gain, peaks, ring, tilt

__all__ = ["air_conditioner", "car_horn", "drilling", "engine_idling", "gun_shot", "jackhammer", "siren"]

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
