"""Quality of a detector on the validation clips, between epochs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from earmark.bags import Bags, Batch
from earmark.counts import f1_score
from earmark.detector import Detector
from earmark.errors import DataError
from earmark.loss import bag_loss, frame_loss, reduce_targets
from earmark.schema import record
from earmark.settings import Training

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_BATCH = 64
_Count = Annotated[int, Field(ge=0)]


@record
class Tally:
    """What validation counts: the sum of losses over the known targets, their number, and decisions about them.

    >>> Tally.total([Tally(1.0, 4, 1, 1, 0), Tally(2.0, 6, 1, 0, 1)]).scores
    {'loss': 0.3, 'accuracy': 0.8, 'f1': 0.6666666666666666}
    """

    loss: float
    known: Annotated[int, Field(ge=1)]
    tp: _Count
    fp: _Count
    fn: _Count

    @property
    def scores(self) -> dict[str, float]:
        """Loss, accuracy and micro-averaged F1, which is 1 if there is nothing to detect and nothing was."""
        f1 = float(np.nan_to_num(f1_score(self.tp, self.fp, self.fn), nan=1.0))
        accuracy = (self.known - self.fp - self.fn) / self.known
        return {"loss": self.loss / self.known, "accuracy": accuracy, "f1": f1}

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum of several."""
        rows = [(t.loss, t.known, t.tp, t.fp, t.fn) for t in tallies]
        return cls(*(sum(column) for column in zip(*rows, strict=True)))


@torch.no_grad()
def validate(detector: Detector, bags: Bags, options: Training, fabric: Fabric) -> Tally:
    """Losses and decisions about clips, by the pooled output at 0.5.

    Clips longer than a patch count patch by patch, as in training. With strong supervision, which does not use pooling,
    loss and scores are those of frames.
    """
    detector.eval()
    sums = torch.zeros(5, dtype=torch.float64, device=fabric.device)
    share = (fabric.global_rank, fabric.world_size)
    for batch in bags.pieces(_BATCH, patch=options.patch, min_share=options.min_share, part=share):
        with fabric.autocast():  # not the wrapped module, which would wait for processes with fewer batches
            p, true, loss = _predict(detector, batch, options.supervision)
        known, positive, truth = ~true.isnan(), p >= 0.5, true == 1
        tp = (positive & truth).sum()
        fp = (positive & ~truth & known).sum()
        fn = (~positive & truth).sum()
        count = known.sum()
        sums += torch.stack([loss * count, count, tp, fp, fn]).double()
    total, *counts = fabric.all_reduce(sums, reduce_op="sum").tolist()  # type: ignore[union-attr]
    if counts[0] == 0:
        raise DataError("no validation clip has a known label; training needs some to choose its best epoch")
    return Tally(total, *map(int, counts))


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
