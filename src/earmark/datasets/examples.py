"""A small data set of synthetic sounds, for trying things out."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError
from earmark.files import make_folder
from earmark.formats import TSV
from earmark.synthesis import bank
from earmark.timing import time_to_sample


def write_example(root: Path, *, seed: int = 0) -> None:
    """Write twelve recordings of 3 s in two folders, and a table with times for most of their sounds."""
    make_folder(root)
    if any(root.iterdir()):
        raise ArgumentError(f"{root} is not empty; an example data set needs a new folder")
    rng = np.random.default_rng(seed)
    classes = ("dog_bark", "siren", "children_playing")
    split_names = ("train", "train", "validate", "test")
    rows: list[Label] = []
    splits: dict[str, str] = {}
    for i in range(12):
        name = f"{'north' if i % 2 else 'south'}/night{i:02d}.{'wav' if i % 3 else 'flac'}"
        events = draw_scene(name, classes, rng, duration=3.0, events=i % 3)
        write_scene(root / name, events, classes, rng, duration=3.0, rate=16000)
        rows += events if i % 4 else [row._replace(onset=None, offset=None) for row in events]
        splits[name] = split_names[i // 3]
    TSV().write(LabelTable(rows, filenames=splits, splits=splits), root / "labels.tsv")


def draw_scene(
    filename: str, classes: Sequence[str], rng: np.random.Generator, *, duration: float, events: int = 2
) -> list[Label]:
    """Random events of one clip, of different classes, each a quarter to a half of it, rounded to milliseconds."""
    rows = []
    for label in rng.choice(np.asarray(classes), size=min(events, len(classes)), replace=False):
        length = duration * rng.uniform(0.25, 0.5)
        onset = rng.uniform(0, duration - length)
        rows.append(Label(filename, round(onset, 3), round(onset + length, 3), str(label)))
    return sorted(rows, key=lambda row: row[1:3])


def write_scene(
    path: Path, rows: Sequence[Label], classes: Sequence[str], rng: np.random.Generator, *, duration: float, rate: int
) -> None:
    """Write the sound of a clip: faint noise, and a sound of the embedded bank for each row.

    Classes that the bank lacks get the sound at the same position in its list.
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
