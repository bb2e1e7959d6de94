"""The decoder of a new model: chosen on its validation clips, and stored in its file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from earmark.annotations import LabelTable
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

SHORTEST_PAUSE = 0.5
"""Seconds: events of a class that are closer together are one event."""


def store_decoder(run: Path, data: Collection, settings: Settings, on_progress: OnProgress) -> str:
    """Choose the decoder of a trained model and store it in its file, unless it has one already.

    Returns what was chosen, or why the thresholds stay at 0.5, in one line. Only clips that the model was not trained
    on are used, and only classes for which another threshold is clearly better get one. The decoder also joins events
    that are less than `SHORTEST_PAUSE`, or two output frames, apart: probabilities dip within a sound. Without enough
    clips, a model that was trained from the weights of another one inherits its decoder. The numbers of right and wrong
    detections in the clips are saved in the run folder, for reports.
    """
    path = run / "model.safetensors"
    about = read_model_info(path)
    classes = about["classes"]
    if about.get("decoder"):
        return describe(Decoder.from_dict(about["decoder"]).threshold, classes)
    hold_out, folds = settings.training.monitor != "last", fold_count(data, settings)
    training, validation, _ = split_for_training(data, hold_out=hold_out, folds=folds)
    scorer = load(run).scorer
    plain = Decoder(min_gap=max(SHORTEST_PAUSE, round(2 * scorer.hop * scorer.reduction, 3)))
    if validation is training and not folds:
        decoder, text = _inherited(settings.training.start, classes, plain, "no clips were set aside to validate with")
    elif (n := len(validation)) < FEWEST_CLIPS:
        problem = f"{counted(n, 'validation clip')} {plural(n, 'is', 'are')} too few to choose others"
        decoder, text = _inherited(settings.training.start, classes, plain, problem)
    else:
        try:
            recordings = _unseen_scores(run, validation, folds > 0, on_progress)
            labels = validation.labels.select(r.filename for r in recordings).replace(classes=tuple(classes))
            decoder, text = _chosen(run, recordings, labels, plain, is_folded=folds > 0)
        except EarmarkError as error:  # the model can be used without
            decoder, text = plain, f"0.5, since others could not be chosen: {error}"
    with locked(run):
        save_decoder(path, decoder.to_dict())
    return text


def _chosen(
    run: Path, recordings: Sequence[RecordingScores], labels: LabelTable, plain: Decoder, *, is_folded: bool
) -> tuple[Decoder, str]:
    """The decoder with the best thresholds on the clips, and its description; outcomes are saved in the run folder."""
    options = EvaluationOptions(decoder=plain)
    decoder = tune_thresholds(recordings, labels, options, tuned_on="validation", cautious=True)
    if set(np.ravel(decoder.threshold)) == {plain.threshold}:
        decoder = plain
    number = counted(len(recordings), "cross-validated clip" if is_folded else "validation clip")
    Outcomes.of(decode_all(recordings, decoder, options.align), labels, number).save(run)
    if decoder == plain:
        return plain, f"0.5, since no others are clearly better on the {number}"
    return decoder, f"{describe(decoder.threshold, labels.classes)}; chosen on the {number}"


def _inherited(start: str | None, classes: Sequence[str], plain: Decoder, problem: str) -> tuple[Decoder, str]:
    """The decoder of the model that training started from, or a plain one; new classes have the default thresholds."""
    about = {} if start is None else read_model_info(start)
    if about.get("decoder") is None:
        return plain, f"0.5, since {problem}"
    decoder = Decoder.from_dict(about["decoder"]).for_classes(classes, about["classes"])
    text = f"{describe(decoder.threshold, classes)}; those of the model that training started from, since {problem}"
    return decoder, text


def _unseen_scores(run: Path, clips: Collection, is_folded: bool, on_progress: OnProgress) -> list[RecordingScores]:
    """Scores of validation clips; in cross-validation those of each fold by the model that was trained without it."""
    if not is_folded:
        return load(run).score_clips(clips.clips, on_progress=on_progress)[0]
    recordings: list[RecordingScores] = []
    for fold in sorted(run.glob("fold-*")):
        held = read_model_info(fold / "model.safetensors")["provenance"]["held_out"]
        recordings += load(fold).score_clips(clips.select(held).clips, on_progress=on_progress)[0]
    return recordings
