"""Running a detector: from sound or stored features to probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from earmark.bags import Bags
from earmark.detector import Detector
from earmark.inference.scores import RecordingScores

__all__ = ["ClipProbabilities", "score_bags"]


@dataclass(frozen=True)
class ClipProbabilities:
    """What a detector says about a clip.

    Attributes
    ----------
    dynamic : (frames', classes)
    static : (classes,), pooled
    frames : of the features that they were computed from
    duration : of the sound, in seconds
    """

    filename: str
    dynamic: npt.NDArray[np.float32]
    static: npt.NDArray[np.float32]
    frames: int
    duration: float

    def as_scores(self, detector: Detector) -> RecordingScores:
        """The same, with what is needed to place frames in time."""
        hop, reduction = detector.features.hop, detector.reduction
        return RecordingScores(
            self.filename, detector.classes, self.dynamic, hop, reduction, self.frames, self.duration, self.static
        )


@torch.inference_mode()
def score_bags(
    detector: Detector, bags: Bags, *, batch_size: int = 64, half: bool = False
) -> Iterator[ClipProbabilities]:
    """Probabilities of whole clips, a clip at a time; clips of like length come together.

    A clip shorter than one output frame has one, of the clip with silence behind it, as in detection.

    Parameters
    ----------
    detector
        On the bags' device.
    half
        Whether to compute in bfloat16, as training on a GPU does.
    """
    detector.eval()
    durations = bags.durations
    for batch in bags.whole(batch_size):
        filled = batch.filled_up(detector.reduction, -detector.features.range_db)
        with torch.autocast(bags.device.type, torch.bfloat16, enabled=half):
            output = detector(filled.features, filled.mask)
        dynamic, static = output.dynamic.float().cpu().numpy(), output.static.float().cpu().numpy()
        frames = [batch.features.shape[-1]] * len(static) if batch.mask is None else batch.mask.sum(1).tolist()
        real = [dynamic.shape[1]] * len(static) if output.mask is None else output.mask.sum(1).tolist()
        for b, filename in enumerate(batch.filenames):
            yield ClipProbabilities(filename, dynamic[b, : real[b]], static[b], int(frames[b]), durations[filename])
