"""What can be run over recordings: a scorer gives frame probabilities for an excerpt of sound.

Feature frame k of an excerpt belongs to its samples around k * hop_samples; output frame k to the feature frames from
k * reduction up to (k + 1) * reduction. So an excerpt that begins at a multiple of hop_samples * reduction has its
output frames on the recording's own grid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["Scorer"]


class Scorer(ABC):
    """Gives frame probabilities for an excerpt of mono sound. Several threads may use one at the same time.

    Attributes
    ----------
    classes
        Names, in the order of the last axis.
    rate
        Samples per second that it wants.
    hop_samples, n_fft, padding
        Of its features, in samples: `earmark.features.FeatureConfig`.
    reduction
        Feature frames per output frame.
    context
        Feature frames on either side that an output frame can see beyond its own; None if it sees everything, as with
        scaling "clip" or a recurrent network.
    window
        Seconds of the patches it learned from: how much it wants to see at once where `context` is None.
    fingerprint
        Tells models apart: scores kept on disk remember it.
    block
        Seconds of a long recording that are best scored at once.
    """

    classes: tuple[str, ...]
    rate: int
    hop_samples: int
    n_fft: int
    padding: int
    reduction: int
    context: int | None
    window: float
    fingerprint: str
    block: float = 20.0

    @abstractmethod
    def score(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities (frames', classes) of samples (n,), long enough for one output frame at least."""

    def score_all(self, excerpts: Iterable[npt.NDArray[np.float32]]) -> Iterator[npt.NDArray[np.float32]]:
        """What `score` gives for each excerpt, in turn. A device may begin the next before it gives one out."""
        return map(self.score, excerpts)

    @property
    def hop(self) -> float:
        """Seconds between feature frames."""
        return self.hop_samples / self.rate

    @property
    def least_samples(self) -> int:
        """The shortest excerpt that has an output frame."""
        return max(1, (self.reduction - 1) * self.hop_samples + self.n_fft - 2 * self.padding)

    def frames(self, samples: int) -> int:
        """Feature frames of an excerpt."""
        return max(0, 1 + (samples + 2 * self.padding - self.n_fft) // self.hop_samples)
