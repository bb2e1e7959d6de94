"""Mixtures of training clips: two recordings at the same time, with the labels of both."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from earmark.annotations import Label, LabelTable
from earmark.datasets.base import Clip, Collection

SPREAD_DB = 5.0
"""The second clip of a mixture is up to this much louder or softer than it was recorded."""


def with_mixtures(data: Collection, count: int) -> Collection:
    """The clips and `count` mixtures of two of them, drawn at random but always the same.

    A class is in a mixture if it is in either clip, and absent if it is absent from both; otherwise it is unknown. If
    its times are known in one clip only, it is unknown outside them.
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
        i, j = rng.choice(len(data), 2, replace=False)
        first, second = data.clips[int(i)], data.clips[int(j)]
        level = round(float(rng.uniform(-SPREAD_DB, SPREAD_DB)), 1)
        yield f"mixture {number + 1} of {first.filename} and {second.filename} at {level:+} dB", first, second, level


def _labels(labels: LabelTable, first: str, second: str, name: str) -> Iterator[Label]:
    """Rows of a mixture."""
    for label in labels.classes:
        rows = [row for row in (*labels.of(first), *labels.of(second)) if row.label == label]
        presence = {labels.presence(first, label), labels.presence(second, label)}
        if True in presence:
            if None in presence or any(row.present is None for row in rows):  # it may be there at other times too
                yield Label(name, None, None, label)
            else:
                yield from _present_rows(rows, name)
        elif None in presence:
            yield Label(name, None, None, label, None)
        elif not labels.complete:  # else a class without a row is absent
            yield Label(name, None, None, label, False)


def _present_rows(rows: Sequence[Label], name: str) -> Iterator[Label]:
    """Rows of a mixture about a class that is in one of its clips or in both."""
    timed = {row.filename for row in rows if row.is_event}
    is_partial = timed and any(row.present and row.filename not in timed for row in rows)
    kept = (row for row in rows if row.present and (row.has_times or not is_partial))
    yield from dict.fromkeys(row._replace(filename=name) for row in kept)
    if is_partial:
        yield Label(name, None, None, rows[0].label, None)
