"""When to learn slower and when to stop: decided by one validation score, as in the paper (IV.C)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Schedule"]

_MIN_GAIN = 1e-4  # less is no improvement for the learning rate: Keras' number


@dataclass
class Schedule:
    """The learning rate, cut when the score no longer rises, and the end, when it has not for long.

    The score is one of which more is better. Counters are as in Keras, which the authors used: the learning rate falls
    after `plateau_epochs` epochs without a gain of at least 1e-4, the run ends after `stop_epochs` without any.

    Examples
    --------
    >>> schedule = Schedule(1e-3, plateau_epochs=2, plateau_factor=0.1, stop_epochs=3)
    >>> [(schedule.is_best(s), round(schedule.learning_rate, 9), schedule.is_over) for s in (0.5, 0.6, 0.6, 0.55, 0.58)]
    [(True, 0.001, False), (True, 0.001, False), (False, 0.001, False), (False, 0.0001, False), (False, 0.0001, True)]
    """

    learning_rate: float
    plateau_epochs: int
    plateau_factor: float
    stop_epochs: int
    best: float = float("-inf")
    plateau_best: float = float("-inf")
    since_best: int = 0
    since_plateau: int = 0

    def is_best(self, score: float) -> bool:
        """Take in the score of an epoch; whether it is the best so far."""
        if score > self.plateau_best + _MIN_GAIN:
            self.plateau_best, self.since_plateau = score, 0
        else:
            self.since_plateau += 1
            if self.since_plateau >= self.plateau_epochs:
                self.learning_rate *= self.plateau_factor
                self.since_plateau = 0
        if score > self.best:
            self.best, self.since_best = score, 0
            return True
        self.since_best += 1
        return False

    @property
    def is_over(self) -> bool:
        """Whether the score has not risen for too long."""
        return self.since_best >= self.stop_epochs

    def state(self) -> dict[str, Any]:
        """Everything it remembers, for a checkpoint; `Schedule(**state)` is it again. What JSON cannot say, the best
        before there is one, is left out."""
        return {name: value for name, value in asdict(self).items() if value != float("-inf")}
