"""A sound bank without files: the ten classes of URBAN-SED, drawn anew at every call.

Demonstrations and tests need sounds with known names and no download. These are no recordings, but they are made as the
real sounds are: a siren sweeps, a jackhammer strikes, a dog has a size. Every call draws its own pitch, resonances,
tempo, distance and room, widely enough that a detector has to learn the class rather than the sound.
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

# How each class is made, with its shortest and longest natural duration.
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
"""Those of URBAN-SED, each where its number in UrbanSound8K's file names puts it."""


def make_sound(
    label: str, rng: np.random.Generator, *, rate: int = 44100, duration: float | None = None
) -> NDArray[np.float32]:
    """One sound of a class, sounding from its first to its last sample, with its peak at -3 dBFS.

    Parameters
    ----------
    label
        One of `CLASSES`.
    rng
        The same state gives the same sound.
    rate
        Samples per second, at least 4000.
    duration
        Seconds; None draws what is natural for the class. A class of short sounds fills a longer time by repetition.

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
        raise ArgumentError(f"rate={rate!r}: the bank makes sounds at 4000 samples per second or more")
    voice, shortest, longest = _VOICES[label]
    if duration is None:
        duration = float(np.exp(rng.uniform(math.log(shortest), math.log(longest))))
    if not (math.isfinite(duration) and duration * rate > 0.5):
        raise ArgumentError(f"duration={duration!r}: at least one sample expected; None draws one")
    samples = round(duration * rate)
    canvas = Canvas(rng, rate, max(samples, rate // 20))  # a shorter sound is the beginning of one of 50 ms
    sound = canvas.heard(voice(canvas))[:samples]
    edge = min(round(0.004 * rate), samples)
    sound[samples - edge :] *= np.linspace(1.0, 0.0, edge)  # cut without a click
    return np.asarray(sound * (_PEAK / np.abs(sound).max()), dtype=np.float32)
