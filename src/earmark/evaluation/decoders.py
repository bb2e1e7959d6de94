"""The decoder of a new model: chosen on its validation clips, and stored in its file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from earmark.checkpoint import read_model_info, save_decoder
from earmark.datasets import Collection
from earmark.detection.detector import load
from earmark.errors import EarmarkError
from earmark.evaluation.reliability import Outcomes
from earmark.evaluation.scoring import EvaluationOptions, decode_all
from earmark.evaluation.thresholds import tune_thresholds
from earmark.events import Decoder, describe
from earmark.files import locked
from earmark.inference.scores import RecordingScores
from earmark.progress import OnProgress
from earmark.settings import Settings
from earmark.text import counted, plural
from earmark.training.run import fold_count, split_for_training

FEWEST_CLIPS = 10
"""Validation clips that a choice of thresholds needs."""


def store_decoder(run: Path, data: Collection, settings: Settings, on_progress: OnProgress) -> str:
    """Choose the thresholds of a trained model and store them in its file, unless it has some already.

    Returns what was chosen, or why the thresholds stay at 0.5, in one line. Only clips that the model was not trained
    on are used, and only classes for which another threshold is clearly better get one. The decoder also joins events
    that are less than two output frames apart: a dip of a single frame is no pause. Without enough such clips, a model
    that was trained from the weights of another has the decoder of that one. How many detections in the clips are right
    is kept in the run folder, for reports.
    """
    path = run / "model.safetensors"
    classes = read_model_info(path)["classes"]
    if stored := read_model_info(path).get("decoder"):
        return describe(Decoder.from_dict(stored).threshold, classes)
    hold_out, folds = settings.training.monitor != "last", fold_count(data, settings)
    training, validation, _ = split_for_training(data, hold_out=hold_out, folds=folds)
    problem = ""
    if validation is training and not folds:
        problem = "no clips were set aside to validate with"
    elif len(validation) < FEWEST_CLIPS:
        problem = (
            f"{counted(n := len(validation), 'validation clip')} {plural(n, 'is', 'are')} too few to choose others"
        )
    if problem:
        return _store_inherited(path, settings.training.start, classes, problem)
    try:
        recordings = _unseen_scores(run, validation, folds > 0, on_progress)
        labels = validation.labels.select(r.filename for r in recordings).replace(classes=tuple(classes))
        hop = recordings[0].hop if recordings else 0.0
        options = EvaluationOptions(decoder=Decoder(min_gap=round(2 * hop, 3)))
        decoder = tune_thresholds(recordings, labels, options, tuned_on="validation", cautious=True)
        if set(np.ravel(decoder.threshold)) == {Decoder().threshold}:
            decoder = Decoder()
    except EarmarkError as error:  # the model is good without
        return f"0.5, since others could not be chosen: {error}"
    kind = "cross-validated clip" if folds else "validation clip"
    clips = counted(len(recordings), kind)
    Outcomes.of(decode_all(recordings, decoder, options.align), labels, clips).save(run)
    if decoder == Decoder():
        return f"0.5, since no others are clearly better on the {clips}"
    with locked(run):
        save_decoder(path, decoder.to_dict())
    return f"{describe(decoder.threshold, classes)}; chosen on the {clips}"


def _store_inherited(path: Path, start: str | None, classes: Sequence[str], problem: str) -> str:
    """Store the decoder of the model that training started from, if it has one; new classes have the default's."""
    about = {} if start is None else read_model_info(start)
    if about.get("decoder") is None:
        return f"0.5, since {problem}"
    values = Decoder.from_dict(about["decoder"]).to_dict()
    for name, value in values.items():
        if isinstance(value, list | tuple):
            default = Decoder().threshold if name == "low" else getattr(Decoder(), name)
            own = dict(zip(about["classes"], value, strict=True))
            values[name] = [own.get(label, default) for label in classes]
    decoder = Decoder.from_dict(values)
    with locked(path.parent):
        save_decoder(path, decoder.to_dict())
    return f"{describe(decoder.threshold, classes)}; those of the model that training started from, since {problem}"


def _unseen_scores(run: Path, clips: Collection, is_folded: bool, on_progress: OnProgress) -> list[RecordingScores]:
    """Scores of validation clips; in cross-validation those of each fold by the model that was trained without it."""
    if not is_folded:
        return load(run).score_clips(clips.clips, on_progress=on_progress)[0]
    recordings: list[RecordingScores] = []
    for fold in sorted(run.glob("fold-*")):
        held = read_model_info(fold / "model.safetensors")["provenance"]["held_out"]
        recordings += load(fold).score_clips(clips.select(held).clips, on_progress=on_progress)[0]
    return recordings
