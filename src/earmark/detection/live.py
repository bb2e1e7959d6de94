"""Events while the sound arrives: from a pipe, or from a file that grows.

`listen` gives out each event as soon as nothing that may still come can change it; the events are those of the whole
recording. How long that takes after the event's end, counted in sound that has arrived, is bounded, and `latency_bound`
says by how much:

    block           sound is looked at in blocks, so it may wait for its block to be full
  + resampling      what soxr keeps to itself, where the sound has another rate than the model
  + scoring         an output frame needs the rest of its own sound, and what the network sees beyond
                    (`earmark.inference.recordings.latency`; with the window rule, about a window)
  + interpolation   half an output frame: values are drawn on lines between the middles of output frames
  + decoding        half the median filter, and the shortest gap that parts events (`DecoderStream.latency`)

The time that computing takes comes on top, and for a growing file up to a twentieth of a second until growth is seen.
The end of the sound gives out all that is left. Memory does not grow with the length of the sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from earmark.annotations import Label
from earmark.errors import DataError
from earmark.events import Decoder, InterpolationStream
from earmark.inference.recordings import feature_frames, latency, score_blocks
from earmark.inference.scorer import Scorer

__all__ = ["Latency", "latency_bound", "listen"]

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Latency:
    """Seconds of sound from the end of an event until it is given out, at most; by what they are spent on.

    >>> Latency(block=0.5, scoring=1.25, interpolation=0.25, decoding=0.5).total
    2.5
    """

    block: float
    resampling: float = 0.0
    scoring: float = 0.0
    interpolation: float = 0.0
    decoding: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return float(sum(astuple(self)))


def latency_bound(scorer: Scorer, decoder: Decoder, *, block: float, resampling: float = 0.0) -> Latency:
    """How long after its end an event is given out by `listen`, at most.

    Parameters
    ----------
    block
        Seconds in the longest block of sound.
    resampling
        Seconds that resampling keeps to itself: `earmark.audio.pcm.LiveSound.delay`.
    """
    return Latency(
        block=block,
        resampling=resampling,
        scoring=latency(scorer),
        interpolation=scorer.hop * scorer.reduction / 2,
        decoding=decoder.stream(scorer.hop, scorer.classes, "live").latency,
    )


def listen(scorer: Scorer, blocks: Iterable[Samples], decoder: Decoder, *, name: str) -> Iterator[Label]:
    """Events of sound that arrives in blocks (samples,), mono at the scorer's rate, as they close.

    Sound that turns out to be damaged raises its error after the events before the damage.

    Parameters
    ----------
    name
        What the events' file is called.
    """
    sound = _Counted(blocks)
    dense = InterpolationStream(scorer.reduction, len(scorer.classes))
    stream = decoder.stream(scorer.hop, scorer.classes, name)
    for p in score_blocks(scorer, sound):
        yield from stream.update(dense.update(p))
    if sound.heard:
        stream.duration = sound.heard / scorer.rate
        yield from stream.update(dense.finish(feature_frames(scorer, sound.heard)))
        yield from stream.finish()
    if sound.trouble is not None:
        raise sound.trouble


class _Counted:
    """Blocks, counted; trouble with them ends them, and is kept for later."""

    def __init__(self, blocks: Iterable[Samples]) -> None:
        self.blocks = blocks
        self.heard = 0
        self.trouble: DataError | None = None

    def __iter__(self) -> Iterator[Samples]:
        try:
            for block in self.blocks:
                self.heard += len(block)
                yield block
        except DataError as error:
            self.trouble = error
