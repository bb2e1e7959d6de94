"""Small data sets with sounds made here: scenes drawn at random, for every layout's `write_example`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from earmark import audio
from earmark.annotations import Label
from earmark.errors import ArgumentError
from earmark.files import make_folder
from earmark.synthesis import bank
from earmark.timing import time_to_sample

__all__ = ["draw_scene", "new_folder", "write_scene"]


def new_folder(root: Path) -> Path:
    """The folder, made if need be; one that holds anything is refused: nobody's data are mixed with an example."""
    make_folder(root)
    if any(root.iterdir()):
        raise ArgumentError(f"{root} is not empty; an example data set is written into a new folder")
    return root


def draw_scene(
    filename: str, classes: Sequence[str], rng: np.random.Generator, *, duration: float, events: int = 2
) -> list[Label]:
    """Events of one clip, of different classes, each a quarter to a half of it, rounded to milliseconds."""
    rows = []
    for label in rng.choice(np.asarray(classes), size=min(events, len(classes)), replace=False):
        length = duration * rng.uniform(0.25, 0.5)
        onset = rng.uniform(0, duration - length)
        rows.append(Label(filename, round(onset, 3), round(onset + length, 3), str(label)))
    return sorted(rows, key=lambda row: row[1:3])


def write_scene(
    path: Path, rows: Sequence[Label], classes: Sequence[str], rng: np.random.Generator, *, duration: float, rate: int
) -> None:
    """Write the sound of a clip: faint noise, and a sound for each row at its times.

    The bank's sounds stand for the classes: its own where it has one of that name, else the one at the same place in
    the list.
    """
    samples = rng.normal(0, 1e-3, time_to_sample(duration, rate)).astype(np.float32)
    for row in rows:
        assert row.onset is not None
        assert row.offset is not None
        first, last = time_to_sample(row.onset, rate), time_to_sample(row.offset, rate)
        kind = row.label if row.label in bank.CLASSES else bank.CLASSES[classes.index(row.label) % len(bank.CLASSES)]
        sound = bank.make_sound(kind, rng, rate=rate, duration=(last - first) / rate)[: last - first]
        samples[first : first + len(sound)] += 0.3 * sound
    make_folder(path.parent)
    audio.write(path, np.clip(samples, -1, 1), rate)
