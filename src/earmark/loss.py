"""Losses of a detector's probabilities, given labels of any strength.

Targets are 1 (present), 0 (absent) or NaN (unknown). Unknown targets contribute neither loss nor gradient. Averages are
over the known targets, so that a batch with few labels weighs as much as one with many.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from earmark.detector import Output
from earmark.errors import ArgumentError, unknown_name

__all__ = ["SUPERVISION", "bag_loss", "detector_loss", "frame_loss"]

SUPERVISION = ("weak", "propagated", "strong", "mixed")


def bag_loss(P: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of bags, Eq. (4), from P (bags, classes) in (0, 1) and targets (bags, classes).

    >>> bag_loss(torch.tensor([[0.5, 0.9]]), torch.tensor([[1.0, torch.nan]]))
    tensor(0.6931)
    """
    return _mean(*_bag_costs(P, targets))


def frame_loss(logits: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of frames (bags, frames', classes): the paper's strong supervision."""
    return _mean(*_frame_costs(logits, targets, mask))


def reduce_targets(targets: Tensor, reduction: int) -> Tensor:
    """Targets of output frames: (bags, frames, classes) -> (bags, frames', classes).

    A class is present if it is present in any feature frame of the output frame, else unknown if it is unknown in any,
    else absent. Of probabilities, the largest is taken.

    >>> reduce_targets(torch.tensor([0.0, 1.0, 0.0, torch.nan, 0.0, 0.3])[None, :, None], 2).flatten()
    tensor([1.0000,    nan, 0.3000])
    """
    frames = targets.shape[1] // reduction
    grouped = targets[:, : frames * reduction].reshape(len(targets), frames, reduction, targets.shape[2])
    return torch.where((grouped == 1).any(2), 1.0, grouped.amax(2))  # the maximum of numbers and NaN is NaN


def detector_loss(
    output: Output,
    targets: Tensor,
    frame_targets: Tensor | None = None,
    *,
    supervision: str = "weak",
    reduction: int = 1,
) -> Tensor:
    """The loss of a detector's output.

    Parameters
    ----------
    targets : (bags, classes)
    frame_targets : (bags, frames, classes) on the grid of the features
    supervision
        "weak" uses bags only. "propagated" gives the label of a bag to each of its frames, a baseline that the paper
        names in section II.C. "strong" uses frames only. "mixed" uses the known frames of every bag and class, and the
        bag where frames are unknown and none is positive. Every class of every bag weighs the same, however much of it
        is known.
    """
    if supervision not in SUPERVISION:
        raise unknown_name("supervision", supervision, SUPERVISION)
    if supervision == "weak":
        return bag_loss(output.static, targets)
    if supervision == "propagated":
        return frame_loss(output.logits, targets[:, None].expand(-1, output.logits.shape[1], -1), output.mask)
    if frame_targets is None:
        raise ArgumentError(f"frame_targets: expected a tensor for supervision={supervision!r}, got None")
    frames = reduce_targets(frame_targets, reduction)
    if supervision == "strong":
        return frame_loss(output.logits, frames, output.mask)
    return _mixed_loss(output, targets, frames)


def _mixed_loss(output: Output, targets: Tensor, frames: Tensor) -> Tensor:
    """The mean cost of a class of a bag: the mean over its known frames, plus that of the bag where frames are unknown.

    Both are averaged together. A class that is absent from a bag is known in all frames, so nearly all bag costs are
    those of positive bags: averaged separately, they would give positive clips many times the weight of negative ones,
    and the detector would report too many events. For the same reason, the bag does not count if a frame is known to
    be positive: a partly reviewed clip as a whole can only be known to be positive.
    """
    cost, known = _frame_costs(output.logits, frames, output.mask)
    unknown = frames.isnan() if output.mask is None else frames.isnan() & output.mask[..., None]
    is_open = unknown.any(1) & ~(known & (frames == 1)).any(1)
    bag_cost, bag_known = _bag_costs(output.static, targets.masked_fill(~is_open, torch.nan))
    count = known.sum(1)
    by_frames = torch.where(known, cost, 0.0).sum(1) / count.clamp(min=1)
    return _mean(by_frames + torch.where(bag_known, bag_cost, 0.0), (count > 0) | bag_known)


def taught_loss(output: Output, targets: Tensor, frame_targets: Tensor, *, reduction: int = 1) -> Tensor:
    """The loss of self-training: that of frames, with a teacher's probabilities as targets, plus half that of bags."""
    frames = reduce_targets(frame_targets, reduction)
    return frame_loss(output.logits, frames, output.mask) + 0.5 * bag_loss(output.static, targets)


def _bag_costs(P: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Binary cross-entropy of each bag and class, and where it is known."""
    known, t = _known("P", P, targets)
    # not F.binary_cross_entropy, whose gradient at 0 and 1 is 1e12; with a clamp it would be 0
    p = torch.where(known, P if P.dtype == torch.float64 else P.float(), 0.5)
    return -(t * _floored(p).log() + (1 - t) * _floored(1 - p).log()), known


def _frame_costs(logits: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Binary cross-entropy of each frame and class, and where it is known."""
    known, t = _known("logits", logits, targets)
    if mask is not None:
        known = known & mask[..., None]
    # selected before the arithmetic, so that padding does not affect gradients, even if it is NaN
    return F.binary_cross_entropy_with_logits(torch.where(known, logits, 0.0), t, reduction="none"), known


def _known(name: str, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Where targets are known, and the targets with 0 elsewhere."""
    if predictions.shape != targets.shape:
        raise ArgumentError(f"targets: expected the shape of {name}, {(*predictions.shape,)}, got {(*targets.shape,)}")
    t = targets.to(predictions.dtype if predictions.dtype == torch.float64 else torch.float32)
    return ~t.isnan(), t.nan_to_num()


def _floored(p: Tensor) -> Tensor:
    """p, but at least the dtype's resolution; the gradient passes as if there were no floor."""
    values = p.detach()
    return values.clamp(min=torch.finfo(p.dtype).eps) + (p - values)


def _mean(cost: Tensor, known: Tensor) -> Tensor:
    return torch.where(known, cost, 0.0).sum() / known.sum().clamp(min=1)
