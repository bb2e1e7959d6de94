"""Self-training: frame targets from the scores of a trained detector, masked by what the labels say."""

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from earmark.annotations import LabelTable
from earmark.augment import union
from earmark.bags import Bags
from earmark.detector import Detector

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Floats = npt.NDArray[np.float32]

_BATCH = 64
_RELIABLE = 0.1  # a class that never reaches this in a clip that has it is not scaled up
_SLACK = 1e-6  # of a frame, for rounding


@torch.no_grad()
def score_frames(
    detector: Detector, bags: Bags, patch: float, fabric: "Fabric", *, leave_out: Container[str] = ()
) -> dict[str, Floats]:
    """Frame probabilities of clips by file name, (frames', classes): means over variants and overlapping patches.

    Clips that are left out have zeros.
    """
    detector.eval()
    reduction = detector.reduction
    sizes = [max(1, frames // reduction) for frames in bags.frames.values()]
    sums = [np.zeros((size, len(detector.classes)), np.float32) for size in sizes]
    counts = [np.zeros((size, 1), np.float32) for size in sizes]
    for batch, plan in bags.windows(_BATCH, patch=patch, multiple=reduction, leave_out=leave_out):
        batch = batch.filled_up(reduction, detector.features.silence)
        with fabric.autocast():
            p = detector(batch.features, batch.mask).dynamic.float().cpu().numpy()
        for row, clip, offset in zip(p, plan[0], plan[2], strict=True):
            first = offset // reduction
            n = min(len(row), sizes[clip] - first)
            sums[clip][first : first + n] += row[:n]
            counts[clip][first : first + n] += 1
    return {name: total / np.maximum(count, 1) for name, total, count in zip(bags.filenames, sums, counts, strict=True)}


def frame_targets(
    bags: Bags,
    labels: LabelTable,
    scores: Mapping[str, Floats],
    *,
    hop: float,
    use_times: bool,
    mixtures: Mapping[str, tuple[str, str]],
) -> dict[str, Floats]:
    """Targets of feature frames by file name, (frames, classes), for `Bags.teach`.

    Labels take precedence: a class is 0 where it is absent, NaN where it is unknown and, with `use_times`, as labelled
    where times are known. Elsewhere in clips with the class, the target is the score, divided by its maximum over the
    clip if that is reliable. In a mixture of two clips, it is the larger of both targets.

    `scores` are `hop` seconds apart; the classes are those of the labels.
    """
    frames, step = bags.frames, bags.config.hop
    targets = {
        name: _clip_targets(labels, name, frames[name], scores[name], step=step, hop=hop, use_times=use_times)
        for name in bags.filenames
        if name not in mixtures
    }
    for name, pair in mixtures.items():
        if name in frames:
            first, second = (torch.from_numpy(_fitted(targets[part], frames[name])) for part in pair)
            targets[name] = union(first, second).numpy()
    return targets


def _clip_targets(
    labels: LabelTable, name: str, frames: int, p: Floats, *, step: float, hop: float, use_times: bool
) -> Floats:
    tags = labels.bag_targets([name])[0]
    if use_times:
        known = labels.frame_targets(name, frames, step)
    else:
        known = np.broadcast_to(np.where(tags == 1, np.nan, tags), (frames, len(tags)))
    peak = p.max(0)
    p = np.where(peak > _RELIABLE, p / np.maximum(peak, _RELIABLE), p)
    places = (np.arange(frames) * (step / hop) + _SLACK).astype(np.int64)  # the score of each feature frame
    estimates = p[np.minimum(places, len(p) - 1)]
    return np.where(np.isnan(known) & (tags == 1), estimates, known).astype(np.float32)


def _fitted(targets: Floats, frames: int) -> Floats:
    """Targets of a clip that is cut, or padded with silence, to a number of frames."""
    return np.pad(targets[:frames], ((0, max(0, frames - len(targets))), (0, 0)))
