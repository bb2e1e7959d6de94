"""Quality of a detector on the validation clips, between epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from earmark.bags import Bags, Batch
from earmark.counts import f1_score
from earmark.detector import Detector
from earmark.errors import DataError
from earmark.loss import bag_loss, frame_loss, reduce_targets
from earmark.settings import Training

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_BATCH = 64


@torch.no_grad()
def validate(detector: Detector, bags: Bags, knobs: Training, fabric: Fabric) -> dict[str, float]:
    """Loss, accuracy and micro-averaged F1 of clips, by the pooled output at 0.5.

    Clips longer than a patch count patch by patch, as in training. With strong supervision, which does not use pooling,
    loss and scores are those of frames.
    """
    detector.eval()
    sums = torch.zeros(6, dtype=torch.float64, device=fabric.device)
    share = (fabric.global_rank, fabric.world_size)
    for batch in bags.pieces(_BATCH, patch=knobs.patch, min_share=knobs.min_share, part=share):
        with fabric.autocast():  # not the wrapped module, which would wait for processes with fewer batches
            p, true, loss = _predict(detector, batch, knobs.supervision)
        known, positive, truth = ~true.isnan(), p >= 0.5, true == 1
        tp, fp, fn = (positive & truth).sum(), (positive & ~truth & known).sum(), (~positive & truth).sum()
        count = known.sum()
        sums += torch.stack([loss * count, count, count - fp - fn, tp, fp, fn]).double()
    total, count, correct, *decisions = fabric.all_reduce(sums, reduce_op="sum").tolist()  # type: ignore[union-attr]
    if count == 0:
        raise DataError("no validation clip has a known label; training needs some to choose its best epoch")
    f1 = np.nan_to_num(f1_score(*decisions), nan=1.0)  # without positives anywhere, nothing is wrong
    return {"loss": total / count, "accuracy": correct / count, "f1": float(f1)}


def _predict(detector: Detector, batch: Batch, supervision: str) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, targets and loss."""
    batch = batch.filled_up(detector.reduction, detector.features.silence)
    output = detector(batch.features.to(detector.head.weight.dtype), batch.mask)
    if supervision != "strong":
        return output.static, batch.targets, bag_loss(output.static, batch.targets)
    assert batch.frame_targets is not None
    true = reduce_targets(batch.frame_targets, detector.reduction)
    if output.mask is not None:
        true = true.masked_fill(~output.mask[..., None], torch.nan)
    return output.dynamic, true, frame_loss(output.logits, true)
