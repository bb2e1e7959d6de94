"""The largest errors of a detector, to look at and to listen to.

A false alarm is a detected event that overlaps no event of its class in the reference; the higher its probability, the
worse. A miss is a reference event that no detected event of its class overlaps; the lower its probability, the worse.
Classes that the reference leaves unknown count as neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.datasets import Clip
from earmark.features import FeatureConfig
from earmark.plots.clip import clip_figure, log_mel, within
from earmark.reporting.pages import inline_audio, inline_png
from earmark.timing import span_to_frames, time_to_frame, time_to_sample

Floats = npt.NDArray[np.floating[Any]]

_MARGIN = 1.0  # seconds of audio before and after a mistake
_LONGEST_AUDIO = 8.0  # seconds
_LONGEST_IMAGE = 30.0  # seconds
_MOST_CLASSES = 6  # in an image
_MOST = 3  # mistakes of each kind


@dataclass(frozen=True)
class Mistake:
    """A false alarm or a miss; `p` is the highest probability of the class between onset and offset."""

    filename: str
    label: str
    onset: float
    offset: float
    p: float
    is_miss: bool


def worst_mistakes(reference: LabelTable, estimate: LabelTable, p: Mapping[str, Floats], hop: float) -> list[Mistake]:
    """The worst false alarms, then the worst misses: three of each kind, at most one per class.

    Parameters
    ----------
    p : file -> (frames, classes), with the reference's classes
    hop
        Seconds between frames of p.

    Examples
    --------
    >>> reference = LabelTable([("a.wav", 0.0, 1.0, "dog"), ("a.wav", 3.0, 4.0, "dog")])
    >>> estimate = LabelTable([("a.wav", 0.5, 1.5, "dog"), ("a.wav", 2.0, 2.5, "dog")])
    >>> p = {"a.wav": np.array([[0.9], [0.9], [0.6], [0.1], [0.8], [0.1], [0.2], [0.1]])}
    >>> for mistake in worst_mistakes(reference, estimate, p, 0.5):
    ...     print(mistake)
    Mistake(filename='a.wav', label='dog', onset=2.0, offset=2.5, p=0.8, is_miss=False)
    Mistake(filename='a.wav', label='dog', onset=3.0, offset=4.0, p=0.2, is_miss=True)
    """
    alarms, misses = [], []
    for name, values in p.items():
        truth, detected = (
            [row for row in table.of(name) if row.present and row.has_times] for table in (reference, estimate)
        )
        timed = {row.label for row in truth}
        for rows, others in ((detected, truth), (truth, detected)):
            for row in rows:
                onset, offset = row.onset or 0.0, row.offset or 0.0
                if any(
                    row.label == o.label and onset < (o.offset or 0.0) and (o.onset or 0.0) < offset for o in others
                ):
                    continue
                first, last = span_to_frames(onset, offset, hop)
                highest = values[min(first, len(values) - 1) : last, reference.classes.index(row.label)].max()
                mistake = Mistake(name, row.label, onset, offset, float(highest), is_miss=rows is truth)
                if mistake.is_miss:
                    misses.append(mistake)
                elif row.label in timed or reference.presence(name, row.label) is False:
                    alarms.append(mistake)
    alarms.sort(key=lambda m: (-m.p, m.onset - m.offset))  # of equals, the longer first
    misses.sort(key=lambda m: (m.p, m.onset - m.offset))
    return [*_one_per_class(alarms), *_one_per_class(misses)]


def _one_per_class(mistakes: list[Mistake]) -> list[Mistake]:
    first = {mistake.label: mistake for mistake in reversed(mistakes)}
    return [mistake for mistake in mistakes if first[mistake.label] is mistake][:_MOST]


def show_mistake(
    mistake: Mistake,
    clip: Clip,
    features: FeatureConfig,
    reference: LabelTable,
    estimate: LabelTable,
    p: Floats,
    model: str,
) -> dict[str, Any]:
    """Image and audio of a mistake as `data:` URLs, with their times in the clip, for the template.

    p is (frames, classes) at the rate of the features.
    """
    samples = clip.read(features.rate)
    end = len(samples) / features.rate
    onset = max(0.0, min(mistake.onset - _MARGIN, end - 2 * _MARGIN))
    offset = min(end, max(onset + 2 * _MARGIN, min(mistake.offset + _MARGIN, onset + _LONGEST_AUDIO)))
    begin = max(0.0, min((onset + offset - _LONGEST_IMAGE) / 2, end - _LONGEST_IMAGE))
    first = time_to_frame(begin, features.hop)
    begin, stop = first * features.hop, min(end, begin + _LONGEST_IMAGE)
    last = min(len(p), span_to_frames(begin, stop, features.hop)[1])
    truth, detected = (within(table.of(mistake.filename), begin, stop) for table in (reference, estimate))
    labels = dict.fromkeys([mistake.label, *(row.label for row in (*truth, *detected))])
    figure = clip_figure(
        log_mel(samples, features)[:, first:last],
        features,
        truth,
        {model: p[first:last]},
        reference.classes,
        duration=stop - begin,
        events={model: detected},
        only=list(labels)[:_MOST_CLASSES],
    )
    part = samples[time_to_sample(onset, features.rate) : time_to_sample(offset, features.rate)]
    return {
        "mistake": mistake,
        "image": inline_png(figure),
        "image_onset": begin,
        "audio": inline_audio(part, features.rate),
        "audio_onset": onset,
        "audio_offset": offset,
    }
