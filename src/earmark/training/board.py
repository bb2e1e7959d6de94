"""A log for TensorBoard, beside `log.jsonl` (extra `tensorboard`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from earmark.errors import MissingExtraError

__all__ = ["Board"]


class Board:
    """Writes scalars to `out/tensorboard`; after a resumed run's first epoch, what came later before is dropped."""

    def __init__(self, out: Path, first_epoch: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError("training.tensorboard", "tensorboard") from error
        self._writer = SummaryWriter(out / "tensorboard", purge_step=first_epoch + 1)

    def log(self, epoch: int, scalars: dict[str, float], classes: Sequence[str], alpha: Sequence[float] | None) -> None:
        """Write an epoch's numbers."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, epoch)
        for label, value in zip(classes, alpha or (), strict=False):
            self._writer.add_scalar(f"alpha/{label}", value, epoch)
        self._writer.flush()
