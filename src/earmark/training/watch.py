"""Measures the speed of a run and reports its progress."""

import math
import time
from dataclasses import dataclass

from earmark.progress import OnProgress, Progress
from earmark.settings import Training

_REPORT_EVERY = 1.0  # seconds


@dataclass(frozen=True, kw_only=True)
class TrainingProgress(Progress):
    """Progress of a run, in epochs."""

    epoch: int  # the current one, counted from 1
    step: int
    loss: float  # mean over the epoch so far; NaN before it is first computed
    score: float  # of the last validation; NaN before the first


class Watch:
    """Measures the speed of a run and calls `on_progress`."""

    def __init__(self, options: Training, epoch: int, step: int, on_progress: OnProgress) -> None:
        self._options = options
        self._on_progress = on_progress
        self._epoch, self._step = epoch + 1, step
        self._epoch_start = self._reported = time.monotonic()
        self._epoch_done = 0
        self._loss = self._score = math.nan
        self.clips_per_second = 0.0  # of this epoch so far
        self._report()  # where the run starts or resumes

    def stepped(self, epoch: int, step: int) -> None:
        """Count a step, and report if the last report is old."""
        self._epoch_done += 1
        self._epoch, self._step = epoch + 1, step
        if time.monotonic() - self._reported > _REPORT_EVERY:
            self._report()

    def loss_read(self, loss: float) -> None:
        """Report the mean loss of the epoch so far."""
        self._loss = loss
        elapsed = max(time.monotonic() - self._epoch_start, 1e-9)
        self.clips_per_second = self._epoch_done * self._options.batch_size / elapsed
        self._report()

    def validated(self, score: float) -> None:
        """Report the validation score at the end of an epoch."""
        self._score = score
        self._report()
        self._epoch_start, self._epoch_done = time.monotonic(), 0

    def _report(self) -> None:
        self._reported = time.monotonic()
        loss = "" if math.isnan(self._loss) else f"loss {self._loss:.4f}"
        name = "f1" if self._options.monitor == "last" else self._options.monitor
        score = "" if math.isnan(self._score) else f"validation {name} {self._score:.3f}"
        speed = f"{self.clips_per_second:.0f} clips/s" if self.clips_per_second else ""
        self._on_progress(
            TrainingProgress(
                stage="training",
                done=self._epoch - 1 + self._step / self._options.steps,
                total=self._options.epochs,
                unit="epochs",
                detail=", ".join(filter(None, (loss, score, speed))),
                epoch=self._epoch,
                step=self._step,
                loss=self._loss,
                score=self._score,
            )
        )
