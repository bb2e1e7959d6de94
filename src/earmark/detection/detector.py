"""A trained model, ready to detect.

detector = earmark.load("run")
events = detector.detect("night.flac")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.annotations import LabelTable
from earmark.audio import AnyPath
from earmark.audio.clock import recording_start
from earmark.datasets import Clip
from earmark.detection.inputs import find_recordings
from earmark.detection.spans import LocalExecutor, make_scores, score_files
from earmark.errors import ArgumentError, DataError, ModelFileError
from earmark.events import Decoder, decode_scores
from earmark.files import as_paths, path_text
from earmark.inference.recordings import feature_frames, score_samples, score_together
from earmark.inference.scorer import Scorer
from earmark.inference.scores import RecordingScores
from earmark.parallel import cores, parallel_map
from earmark.progress import OnProgress, Progress, ignore_progress

if TYPE_CHECKING:
    from earmark.pooling import Pool

__all__ = ["SoundDetector", "load"]


def load(path: AnyPath, *, device: str | None = None, pooled: bool = False) -> SoundDetector:
    """Load a detector from a run folder, a model file or an exported ONNX file, which needs no PyTorch.

    `device` is "cpu" or "cuda", by default a GPU if there is one; ONNX models always run on the CPU. With `pooled`,
    scores include the clip probabilities of the model's pooling operator.
    """
    place = Path(path_text(path, "model"))
    if place.suffix == ".onnx":
        from earmark.inference.onnx_scorer import OnnxScorer

        if device not in (None, "cpu"):
            raise ArgumentError(f"device={device!r}: an ONNX model runs on the CPU")
        exported = OnnxScorer(place)
        decoder = _stored_decoder(exported.about, place)
        return SoundDetector(exported, path=place, load_again=partial(load, place), decoder=decoder)
    from earmark.checkpoint import model_file, read_model_info
    from earmark.inference.torch_scorer import load_scorer

    place = model_file(place, "MODEL RECORDINGS")
    scorer = load_scorer(place, device=device, pooled=pooled)
    decoder = _stored_decoder(read_model_info(place), place)
    load_again = partial(load, place, device=device, pooled=pooled)
    return SoundDetector(scorer, path=place, load_again=load_again, decoder=decoder)


def _stored_decoder(about: Mapping[str, Any], path: Path) -> Decoder | None:
    """The decoder that was chosen for a model, from the metadata of its file; None if there is none."""
    if about.get("decoder") is None:
        return None
    try:
        decoder = Decoder.from_dict(about["decoder"])
        decoder.check_classes(len(about["classes"]))
    except (ArgumentError, TypeError) as error:
        raise ModelFileError(f"{path}: decoder: {error}") from None
    return decoder


class SoundDetector:
    """Detects events in recordings of any length; made by `load`.

    Examples
    --------
    An untrained network that detects a dog everywhere:

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

    def __init__(
        self,
        scorer: Scorer,
        *,
        path: Path | None = None,
        load_again: Callable[[], SoundDetector] | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        self.scorer = scorer
        self.decoder = decoder or Decoder()  # the one chosen after training, or the paper's threshold of 0.5
        self.classes = scorer.classes  # names of what it detects
        self.path = path
        self._load_again = load_again
        self._model: Any = getattr(scorer, "detector", None)  # with its pooling operator; None for ONNX models

    def __reduce__(self) -> Any:
        """A copy for another process is loaded there."""
        return (self._load_again, ()) if self._load_again else super().__reduce__()

    def __repr__(self) -> str:
        return f"<SoundDetector: {', '.join(self.classes)}>"

    @cached_property
    def pool(self) -> Pool:
        """The model's pooling operator."""
        if self._model is None:
            raise ArgumentError("pooling needs the model's operator, which only model.safetensors has")
        return self._model.pool  # type: ignore[no-any-return]

    @property
    def pool_name(self) -> str:
        """Name of the model's pooling operator, also of an ONNX model."""
        about = getattr(self.scorer, "about", None)
        return str(about["pool"]["name"]) if about else self.pool.name

    @property
    def alpha(self) -> list[float] | None:
        """The operator's alpha of each class; None for an operator without, and for ONNX models."""
        return None if self._model is None else self._model.alpha

    def detect(
        self,
        recordings: AnyPath | Iterable[AnyPath] | npt.NDArray[Any],
        *,
        rate: int | None = None,
        decoder: Decoder | None = None,
        damaged: str = "refuse",
        workers: int | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> LabelTable:
        """Detect events in recordings.

        A file that cannot be read raises an error. For many files, some of which may be damaged, see
        `earmark.detection.job.run_job`.

        Parameters
        ----------
        recordings
            A file, a folder, several of either, or mono samples (samples,) with full scale 1, named "samples".
        rate
            Sample rate of samples, in Hz.
        decoder
            How probabilities become events; by default the model's own, which has the thresholds that were chosen after
            training, or else the paper's 0.5.
        damaged
            What to do with files whose sound is not intact: "refuse" raises an error, "keep" takes gaps for silence.
        workers
            Threads; None for one per core.
        """
        decoder = decoder or self.decoder
        if isinstance(recordings, np.ndarray):
            scores = [self.score_samples(recordings, rate)]
        else:
            if rate is not None:
                raise ArgumentError("rate is only for samples, a NumPy array; files have their own")
            scores = self.score_files(
                _files(as_paths(recordings)), damaged=damaged, workers=workers, on_progress=on_progress
            )
        events = [event for one in scores for event in decode_scores(one, decoder, one.filename)]
        names = [one.filename for one in scores]
        began = recording_starts({Path(name): name for name in names})
        return LabelTable(events, filenames=names, classes=self.classes, began=began)

    def score_files(
        self,
        paths: AnyPath | Iterable[AnyPath],
        *,
        damaged: str = "refuse",
        workers: int | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> list[RecordingScores]:
        """Frame probabilities of files, in the order given, each once."""
        order = list(dict.fromkeys(as_paths(paths)))
        results: dict[Path, RecordingScores] = {}

        def keep(path: Path, result: RecordingScores | Exception) -> None:
            if isinstance(result, Exception):
                raise result
            results[path] = result
            on_progress(Progress("detecting", len(results), len(order), "files"))

        executor = LocalExecutor(self.scorer, workers)
        score_files(order, self.scorer, executor, on_result=keep, damaged=damaged)
        return [results[path] for path in order]

    def score_clips(
        self, clips: Sequence[Clip], *, on_progress: OnProgress = ignore_progress
    ) -> tuple[list[RecordingScores], dict[str, str]]:
        """Frame probabilities of the clips of a data set, exactly as `detect` computes them.

        Returns scores in the order of the clips, and the reason for each clip that could not be read, by name.
        """
        results: dict[str, RecordingScores] = {}
        failed: dict[str, str] = {}

        def keep(clip: Clip, result: RecordingScores | Exception) -> None:
            if isinstance(result, DataError):
                failed[clip.filename] = str(result).removesuffix(audio.KEEP_HINT)
            elif isinstance(result, Exception):
                raise result
            else:
                results[clip.filename] = replace(result, filename=clip.filename)
            on_progress(Progress("scoring", len(results) + len(failed), len(clips), "clips"))

        def score_sum(clip: Clip) -> RecordingScores:  # of a clip that is the sum of several files
            return self.score_samples(clip.read(self.scorer.rate), self.scorer.rate)

        left = self._score_together(clips, keep) if self.scorer.clips_at_once > 1 else clips
        files = {clip.sources[0].path: clip for clip in left if clip.is_file}
        sums = [clip for clip in left if files.get(clip.sources[0].path) is not clip]
        executor = LocalExecutor(self.scorer)
        score_files(files, self.scorer, executor, on_result=lambda path, result: keep(files[path], result))
        for clip, result in parallel_map(score_sum, sums, workers=cores()):
            keep(clip, result)
        return [results[clip.filename] for clip in clips if clip.filename in results], failed

    def _score_together(
        self, clips: Sequence[Clip], keep: Callable[[Clip, RecordingScores | Exception], None]
    ) -> list[Clip]:
        """Score short clips, several at once; returns those that are longer than a window.

        Groups are those of the order given, however fast clips are read, so that rounding is the same in every run.
        """
        scorer, longer = self.scorer, []

        def read(clip: Clip) -> tuple[npt.NDArray[np.float32], float] | None:
            duration = max(source.duration for source in clip.sources)
            return None if duration > scorer.window else (clip.read(scorer.rate), duration)

        for first in range(0, len(clips), scorer.clips_at_once):
            group = clips[first : first + scorer.clips_at_once]
            found = {clip.filename: sound for clip, sound in parallel_map(read, group, workers=cores())}
            sounds = {}
            for clip in group:
                sound = found[clip.filename]
                if sound is None:
                    longer.append(clip)
                elif isinstance(sound, Exception):
                    keep(clip, sound)
                else:
                    sounds[clip] = sound
            scored = score_together(scorer, [samples for samples, _ in sounds.values()])
            for (clip, (samples, duration)), values in zip(sounds.items(), scored, strict=True):
                frames = feature_frames(scorer, len(samples))
                keep(clip, make_scores(clip.filename, values, scorer, frames, duration))
        return longer

    def score_samples(self, samples: npt.ArrayLike, rate: int | None) -> RecordingScores:
        """Frame probabilities of mono samples (samples,)."""
        if rate is None:
            raise ArgumentError("samples need their rate: detect(samples, rate=44100)")
        sound = audio.resample(samples, rate, self.scorer.rate)
        if not len(sound):
            raise ArgumentError("expected at least one sample, got none")
        values = np.concatenate(list(score_samples(self.scorer, sound)))
        frames = feature_frames(self.scorer, len(sound))
        return make_scores("samples", values, self.scorer, frames, len(sound) / self.scorer.rate)


def recording_starts(names: Mapping[Path, str]) -> dict[str, datetime]:
    """Start times of recordings, by name, where known."""
    starts = {name: recording_start(path) for path, name in names.items()}
    return {name: began for name, began in starts.items() if began is not None}


def _files(given: Sequence[Path]) -> list[Path]:
    """The files given, and those in the folders given."""
    files: list[Path] = []
    for place in given:
        files += [path for _, path in find_recordings([place])] if place.is_dir() else [place]
    if given and not files:
        raise DataError(f"{given[0]}: expected audio files, got none")
    return files
