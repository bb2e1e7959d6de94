"""How fast a run goes and how long it will take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Watch"]


@dataclass
class Progress:
    """Where a run is."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    """Average over the epoch so far."""
    score: float
    """Of the last validation; NaN before the first."""
    clips_per_second: float
    seconds_left: float
    """If it goes on to the last epoch."""


class Watch:
    """Looks at the clock and tells the hook."""

    def __init__(self, epochs: int, steps: int, batch_size: int, hook: Callable[[Progress], None] | None) -> None:
        self._batch_size = batch_size
        self._hook = hook or (lambda progress: None)
        self._begin = self._epoch_begin = self._saved = time.monotonic()
        self._done = self._epoch_done = 0
        self._progress = Progress(0, epochs, 0, steps, math.nan, math.nan, 0.0, math.nan)

    @property
    def clips_per_second(self) -> float:
        """Of this epoch so far, as last looked at."""
        return self._progress.clips_per_second

    @property
    def since_saving(self) -> float:
        """Seconds."""
        return time.monotonic() - self._saved

    def saved(self) -> None:
        """The state was written."""
        self._saved = time.monotonic()

    def stepped(self, epoch: int, step: int) -> None:
        """A step was done."""
        self._done += 1
        self._epoch_done += 1
        self._progress.epoch, self._progress.step = epoch + 1, step

    def looked(self, loss: float) -> None:
        """The loss is known."""
        now, at = time.monotonic(), self._progress
        left = (at.epochs - at.epoch) * at.steps + at.steps - at.step
        at.loss = loss
        at.clips_per_second = self._epoch_done * self._batch_size / max(now - self._epoch_begin, 1e-9)
        at.seconds_left = left * (now - self._begin) / self._done
        self._hook(at)

    def validated(self, score: float) -> None:
        """An epoch is over."""
        self._progress.score = score
        self._hook(self._progress)
        self._epoch_begin, self._epoch_done = time.monotonic(), 0
