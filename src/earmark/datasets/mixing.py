"""Mixtures of training clips: two recordings at the same time, with the labels of both."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from earmark.annotations import Label, LabelTable
from earmark.datasets.base import Clip, Collection

SPREAD_DB = 5.0
"""The second clip of a mixture is up to this much louder or softer than it was recorded."""


def with_mixtures(data: Collection, count: int) -> Collection:
    """The clips and `count` mixtures of two of them, drawn at random but always the same.

    A class is in a mixture if it is in either clip, and absent if it is absent from both; otherwise it is unknown.
    """
    if not count or len(data) < 2:
        return data
    mixtures, rows = [], list(data.labels)
    for name, first, second, level in _drawn(data, count):
        gain = 10 ** (level / 20)
        louder = tuple(replace(source, gain=source.gain * gain) for source in second.sources)
        mixtures.append(Clip(name, (*first.sources, *louder), first.split))
        rows += _labels(data.labels, first.filename, second.filename, name)
    names = [*data.labels.filenames, *(clip.filename for clip in mixtures)]
    labels = data.labels.replace(rows=rows, filenames=names)
    return replace(data, clips=(*data.clips, *mixtures), labels=labels)


def mixed_clips(data: Collection, count: int) -> dict[str, tuple[str, str]]:
    """File names of the two clips in each mixture, by the mixture's name."""
    return {name: (first.filename, second.filename) for name, first, second, _ in _drawn(data, count)}


def _drawn(data: Collection, count: int) -> Iterator[tuple[str, Clip, Clip, float]]:
    """Name, clips and level, in decibels, of each mixture."""
    rng = np.random.default_rng(len(data))
    for number in range(count if len(data) > 1 else 0):
        first, second = (data.clips[int(k)] for k in rng.choice(len(data), 2, replace=False))
        level = round(float(rng.uniform(-SPREAD_DB, SPREAD_DB)), 1)
        yield f"mixture {number + 1} of {first.filename} and {second.filename} at {level:+} dB", first, second, level


def _labels(labels: LabelTable, first: str, second: str, name: str) -> Iterator[Label]:
    """Rows of a mixture."""
    for label in labels.classes:
        known = labels.presence(first, label), labels.presence(second, label)
        marks = [row.present for file in (first, second) for row in labels.of(file) if row.label == label]
        if True not in known:
            if known == (False, False) and labels.complete:
                continue  # as for every class without a row
            yield Label(name, None, None, label, False if known == (False, False) else None)
        elif None in known or None in marks:  # it may be there at other times too
            yield Label(name, None, None, label)
        else:
            rows = [row for file in (first, second) for row in labels.of(file) if row.label == label and row.present]
            yield from dict.fromkeys(row._replace(filename=name) for row in rows)
