"""Detection in a live stream: audio from a pipe, or from a file that grows.

`listen` yields each event as soon as no later audio can change it; the events are those of the whole recording. The
delay after the end of an event, measured in audio that has arrived, is at most the sum of (`latency_bound`):

    block           audio is processed in blocks, and waits until its block is full
  + resampling      audio that soxr holds back, if the sample rate is not that of the model
  + scoring         an output frame needs the rest of its own audio and the context of the network
                    (`earmark.inference.recordings.latency`; with windows, about a window)
  + interpolation   half an output frame: values are interpolated between the centres of output frames
  + decoding        half the median filter, and the shortest gap between events (`DecoderStream.latency`)

Computing time and, for a growing file, up to 0.05 s until growth is noticed come on top. Memory use does not depend on
the length of the audio.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from earmark.annotations import Label
from earmark.audio import Samples
from earmark.errors import DataError
from earmark.events import Decoder, InterpolationStream
from earmark.inference.recordings import feature_frames, latency, score_blocks
from earmark.inference.scorer import Scorer


def latency_bound(scorer: Scorer, decoder: Decoder, *, block: float, resampling: float = 0.0) -> dict[str, float]:
    """The longest delay between the end of an event and its output by `listen`, by cause, in seconds of audio.

    `block` is the length of the longest block, `resampling` what `earmark.audio.pcm.LiveSound.delay` gives.
    """
    return {
        "block": block,
        "resampling": resampling,
        "scoring": latency(scorer),
        "interpolation": scorer.hop * scorer.reduction / 2,
        "decoding": decoder.stream(scorer.hop, scorer.classes, "live").latency,
    }


def listen(scorer: Scorer, blocks: Iterable[Samples], decoder: Decoder, *, name: str) -> Iterator[Label]:
    """Events in audio that arrives in blocks (samples,), mono at the sample rate of the scorer, as soon as they end.

    If the audio is damaged, the error is raised after the events before the damage. `name` is the file name in events.
    """
    samples = 0
    damage: DataError | None = None

    def counted() -> Iterator[Samples]:
        nonlocal samples, damage
        try:
            for block in blocks:
                samples += len(block)
                yield block
        except DataError as error:
            damage = error

    dense = InterpolationStream(scorer.reduction, len(scorer.classes))
    stream = decoder.stream(scorer.hop, scorer.classes, name)
    for p in score_blocks(scorer, counted()):
        if not np.isfinite(p).all():
            raise DataError(f"{name}: {scorer.source} gives NaN or infinity; expected probabilities")
        yield from stream.update(dense.update(p))
    if samples:
        stream.duration = samples / scorer.rate
        yield from stream.update(dense.finish(feature_frames(scorer, samples)))
        yield from stream.finish()
    if damage is not None:
        raise damage
