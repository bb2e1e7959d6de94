"""The interface of models: a scorer maps an excerpt of sound to frame probabilities.

Feature frame k of an excerpt is centred on sample k * hop_samples; output frame k covers the feature frames from
k * reduction up to (k + 1) * reduction. So an excerpt that starts at a multiple of hop_samples * reduction has its
output frames on the grid of the recording.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt


class Scorer(ABC):
    """Maps an excerpt of mono sound to frame probabilities. Safe to call from several threads at the same time."""

    classes: tuple[str, ...]  # in the order of the last axis
    rate: int  # samples per second of the input
    hop_samples: int  # of the features, like `n_fft` and `padding`, in samples: see `earmark.features.FeatureConfig`
    n_fft: int
    padding: int
    reduction: int  # feature frames per output frame
    context: int | None
    """Feature frames on either side that affect an output frame; None if all frames do, as with scaling "clip" or a
    recurrent network."""
    window: float  # seconds of the patches it was trained on: the length of an excerpt where `context` is None
    overlap: float = 0.5  # share of a window that the next one repeats, where `context` is None
    fingerprint: str  # identifies the model in saved scores
    source: str = "the model"  # its file, for messages
    is_stored: bool = False  # whether features are read from files: `stored_features` and `score_features`
    block: float = 20.0  # seconds of a long recording to score at once
    clips_at_once: int = 1  # no longer than `window`; 1 if more together are not faster

    @abstractmethod
    def score(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities (frames', columns) of samples (n,), long enough for at least one output frame."""

    def stored_features(self, path: Path, samples: int) -> npt.NDArray[np.float32] | None:
        """Features (frames, bands) of a recording, if they are read from a file; None if they are computed."""
        return None

    def score_features(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities (frames', columns) of features (frames, bands)."""
        raise NotImplementedError

    def score_all(self, excerpts: Iterable[npt.NDArray[np.float32]]) -> Iterator[npt.NDArray[np.float32]]:
        """`score` of each excerpt, in order. A device may start the next one before it returns the previous."""
        return map(self.score, excerpts)

    def pool(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | None:
        """Clip probabilities (classes,) from all `score` values of a recording; None if the scorer does not pool."""
        return None

    @property
    def columns(self) -> int:
        """Width of the last axis of `score`: the classes and, for a scorer that pools by embedding, the embedding."""
        return len(self.classes)

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
