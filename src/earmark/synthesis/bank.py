"""A sound bank without files: random sounds of the ten classes of URBAN-SED.

Demonstrations and tests need labelled sounds without a download. These are modelled on real sounds: a siren sweeps, a
jackhammer strikes, a dog has a size. Every call draws pitch, resonances, tempo, distance and reverberation, with enough
variation that a detector has to learn the class rather than one sound.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from earmark.errors import ArgumentError, unknown_name
from earmark.synthesis.machines import (
    air_conditioner,
    car_horn,
    drilling,
    engine_idling,
    gun_shot,
    jackhammer,
    siren,
)
from earmark.synthesis.timbres import Canvas, Signal, gain
from earmark.synthesis.voices import children_playing, dog_bark, street_music

__all__ = ["CLASSES", "make_sound"]

_PEAK = gain(-3.0)

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
    """Generate a sound of a class, active from its first to its last sample, with its peak at -3 dBFS.

    Parameters
    ----------
    label
        One of `CLASSES`.
    rng
        The same state gives the same sound.
    rate
        Samples per second, at least 4000.
    duration
        Seconds; None draws a natural duration for the class. Short sounds are repeated to fill it.

    Returns
    -------
    float32 (samples,)

    >>> bark = make_sound("dog_bark", np.random.default_rng(0), rate=16000, duration=1.5)
    >>> bark.shape, bark.dtype
    ((24000,), dtype('float32'))
    """
    if label not in _VOICES:
        raise unknown_name("label", label, CLASSES)
    if rate < 4000:
        raise ArgumentError(f"rate must be at least 4000 Hz, got {rate!r}")
    voice, shortest, longest = _VOICES[label]
    if duration is None:
        duration = float(np.exp(rng.uniform(math.log(shortest), math.log(longest))))
    if not (math.isfinite(duration) and duration * rate > 0.5):
        raise ArgumentError(f"duration must be at least one sample, got {duration!r}")
    samples = round(duration * rate)
    canvas = Canvas(rng, rate, max(samples, rate // 20))  # shorter sounds are the start of one of 50 ms
    sound = canvas.recorded(voice(canvas))[:samples]
    edge = min(round(0.004 * rate), samples)
    sound[samples - edge :] *= np.linspace(1.0, 0.0, edge)  # avoids a click
    return np.asarray(sound * (_PEAK / np.abs(sound).max()), dtype=np.float32)
