"""A model that detects: the Python face.

detector = earmark.load("run/model.safetensors")
events = detector.detect("night.flac")
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.annotations import LabelTable
from earmark.detection.spans import LocalExecutor, decode_scores, score_files
from earmark.errors import ArgumentError
from earmark.events import Decoder
from earmark.inference.recordings import feature_frames, score_samples
from earmark.inference.scorer import Scorer
from earmark.inference.scores import RecordingScores

if TYPE_CHECKING:
    from earmark.pooling import Pool

__all__ = ["SoundDetector", "load"]

AnyPath = str | os.PathLike[str]


def load(path: AnyPath, *, device: str | None = None) -> SoundDetector:
    """The detector in a model file, a run folder or an exported ONNX file.

    Classes, rate and features are in the file. A model in ONNX is run without PyTorch.

    Parameters
    ----------
    device
        Where to compute: "cpu", "cuda"; by default a GPU if there is one. For ONNX always the CPU.
    """
    place = Path(path)
    if place.suffix == ".onnx":
        from earmark.inference.onnx_scorer import OnnxScorer

        if device not in (None, "cpu"):
            raise ArgumentError(f"device={device!r}: a model in ONNX is run on the CPU")
        return SoundDetector(OnnxScorer(place), path=place)
    from earmark.checkpoint import model_file
    from earmark.inference.torch_scorer import load_scorer

    return SoundDetector(load_scorer(model_file(place, "MODEL RECORDINGS"), device=device), path=place)


class SoundDetector:
    """Finds events in recordings of any length.

    Parameters
    ----------
    scorer
        What gives probabilities; `load` makes one from a model file.
    path
        Of the model file.

    Examples
    --------
    An untrained network that hears a dog everywhere:

    >>> import torch
    >>> from earmark.detector import Detector
    >>> from earmark.features import FeatureConfig
    >>> from earmark.inference.torch_scorer import TorchScorer
    >>> from earmark.networks import create_network
    >>> from earmark.pooling import create_pool
    >>> model = Detector(["dog"], FeatureConfig(), create_network("cnn", 128), create_pool("auto", 1))
    >>> _ = torch.nn.init.constant_(model.head.bias, 5.0), torch.nn.init.zeros_(model.head.weight)
    >>> detector = SoundDetector(TorchScorer(model, device="cpu"))
    >>> for event in detector.detect(np.zeros(88200), rate=44100):
    ...     print(event.label, event.onset, event.offset, round(event.confidence, 2))
    dog 0.0 2.0 0.99
    """

    def __init__(self, scorer: Scorer, *, path: Path | None = None) -> None:
        self.scorer = scorer
        self.path = path

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of what it can find."""
        return self.scorer.classes

    @cached_property
    def pool(self) -> Pool:
        """The model's own pooling operator."""
        if self.path is None or self.path.suffix == ".onnx":
            raise ArgumentError("probabilities per stretch need the pooling operator, which only model.safetensors has")
        from earmark.checkpoint import load_detector

        return load_detector(self.path / "model.safetensors" if self.path.is_dir() else self.path).pool

    def detect(
        self,
        recordings: AnyPath | Iterable[AnyPath] | npt.NDArray[Any],
        *,
        rate: int | None = None,
        decoder: Decoder | None = None,
        workers: int | None = None,
    ) -> LabelTable:
        """Events in one recording or several, with times and confidence; see `earmark.events` for what it means.

        Files are called in the table as they are here; samples are called "samples". A file that cannot be read is an
        error; for many files, of which some may be damaged, see `earmark.detection.job.run_job`.

        Parameters
        ----------
        recordings
            A file, several, or mono samples (samples,), full scale 1.
        rate
            Of samples, per second.
        decoder
            How probabilities become events; by default the paper's 0.5.
        workers
            Threads; None is one per core.
        """
        decoder = decoder or Decoder()
        if isinstance(recordings, np.ndarray):
            scores = [self.score_samples(recordings, rate)]
        else:
            if rate is not None:
                raise ArgumentError("rate goes with samples; files say theirs")
            paths = [recordings] if isinstance(recordings, str | os.PathLike) else list(recordings)
            scores = self.score_files(paths, workers=workers)
        events = [event for found in scores for event in decode_scores(found, decoder, found.filename)]
        return LabelTable(events, filenames=[found.filename for found in scores], classes=self.classes)

    def score_files(self, paths: Iterable[AnyPath], *, workers: int | None = None) -> list[RecordingScores]:
        """Frame probabilities of files, in the order given, each once."""
        order = list(dict.fromkeys(Path(path) for path in paths))
        found: dict[Path, RecordingScores] = {}

        def handle(path: Path, result: RecordingScores | Exception) -> None:
            if isinstance(result, Exception):
                raise result
            found[path] = result

        score_files(order, self.scorer, LocalExecutor(self.scorer, workers), handle=handle)
        return [found[path] for path in order]

    def score_samples(self, samples: npt.ArrayLike, rate: int | None) -> RecordingScores:
        """Frame probabilities of mono samples (samples,)."""
        if rate is None:
            raise ArgumentError("samples need their rate: detect(samples, rate=44100)")
        sound = audio.resample(samples, rate, self.scorer.rate)
        if not len(sound):
            raise ArgumentError("there are no samples")
        return RecordingScores(
            filename="samples",
            classes=self.classes,
            p=np.concatenate(list(score_samples(self.scorer, sound))),
            feature_hop=self.scorer.hop,
            reduction=self.scorer.reduction,
            frames=feature_frames(self.scorer, len(sound)),
            duration=len(sound) / self.scorer.rate,
            fingerprint=self.scorer.fingerprint,
        )
