"""Cross-validation of few clips: what it chooses and stores, that the model learns from all, and that it resumes."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file

import earmark
from earmark import audio
from earmark.api import Compute
from earmark.checkpoint import read_model_info
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import decoders
from earmark.events import Decoder
from earmark.settings import load_recipe
from earmark.training import loop
from earmark.training.memory import read_log
from earmark.training.run import _tallies
from earmark.training.validation import Tally

RATE = 4000
TINY = {"rate": RATE, "n_fft": 256, "hop_samples": 128, "n_bands": 16, "width": 0.25, "patch": 1, "batch_size": 4}
TINY |= {"epochs": 3, "steps": 2, "folds": 3, "pool": "linear"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Nine recordings of a second, four of them with a tone and one of these with a click."""
    root, rng = tmp_path_factory.mktemp("recordings"), np.random.default_rng(4)
    lines = ["filename,label"]
    for i in range(9):
        sound = 0.02 * rng.standard_normal(RATE)
        if i % 2:
            sound[1000:2500] += 0.3 * np.sin(np.arange(1500))
        audio.write(root / f"{'abcdefghi'[i]}.wav", sound.astype(np.float32), RATE)
        lines.append(f"{'abcdefghi'[i]}.wav,{'tone' if i % 2 else ''}")
    (root / "labels.csv").write_text("\n".join([*lines, "b.wav,click"]) + "\n")
    return root


def trained(folder, out, **options):
    notes = []
    options = {"recipe": "quick", "settings": TINY, "compute": Compute(cache=out.parent / "cache")} | options
    return earmark.train(folder, out, on_note=notes.append, **options), notes


def epochs_of(out):
    return [json.loads(line)["validation"] for line in (out / "log.jsonl").read_text().splitlines()]


def test_each_fold_is_a_run_and_the_model_learns_from_all_clips(folder, tmp_path):
    run, notes = trained(folder, tmp_path / "run")
    assert run.is_finished
    assert run.folds == 3
    assert "no clips are set aside to validate with: 3-fold cross-validation, then training on all 9 clips" in notes
    assert "; 3-fold cross-validation loss " in str(run)
    folds = [tmp_path / "run" / f"fold-{k}" for k in (1, 2, 3)]
    told = [read_model_info(fold / "model.safetensors")["provenance"] for fold in folds]
    assert sum(about["validation_clips"] for about in told) == 9
    assert all(about["training_clips"] + about["validation_clips"] == 9 for about in told)
    about = read_model_info(tmp_path / "run" / "model.safetensors")["provenance"]
    assert (about["training_clips"], about["folds"]) == (9, 3)
    assert about["scores"] == run.scores
    assert epochs_of(tmp_path / "run") == [tally.scores for tally in _tallies(folds)]
    assert run.scores == epochs_of(tmp_path / "run")[run.best_epoch - 1]


def test_a_class_of_a_single_clip_is_named(folder, tmp_path):
    _, notes = trained(folder, tmp_path / "run", settings=TINY | {"epochs": 1, "steps": 1})
    assert any(
        note == "class 'click' is in one clip only: cross-validation counts it as missed; label more recordings of it"
        for note in notes
    )


class StoppedError(Exception):
    """Stands for whatever ends a process between two epochs."""


def test_a_stopped_cross_validation_resumes_with_the_same_bits(folder, tmp_path, monkeypatch):
    settings = TINY | {"rounds": 1, "monitor": "last", "epochs": 2}
    whole, _ = trained(folder, tmp_path / "whole", settings=settings)
    validate, calls = loop.validate, []
    for stop_after in (1, 3, 5):  # in fold 1, in its second round, in fold 2

        def stopping(*arguments, stop_after=stop_after):
            calls.append(1)
            if len(calls) > stop_after:
                raise StoppedError
            return validate(*arguments)

        calls.clear()
        monkeypatch.setattr(loop, "validate", stopping)
        with pytest.raises(StoppedError):
            trained(folder, tmp_path / "parts", **({"settings": settings} if stop_after == 1 else RESUMED))
    monkeypatch.setattr(loop, "validate", validate)
    parts, _ = trained(folder, tmp_path / "parts", **RESUMED)
    assert parts.scores == whole.scores
    weights = [load_file(run.path / "model.safetensors") for run in (whole, parts)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


RESUMED = {"resume": True, "recipe": None, "settings": None}  # as `earmark train DATA --out RUN --resume`


def test_the_best_epoch_is_that_of_all_folds_together(folder, tmp_path, monkeypatch):
    """Each fold alone prefers another epoch."""
    right = [[4, 0, 1], [0, 4, 3], [1, 1, 4]]  # of five targets, fold by fold and epoch by epoch
    turns = iter([n for fold in right for n in fold])
    monkeypatch.setattr(loop, "validate", lambda *of: Tally(1.0, 5, next(turns), 0, 1))
    settings = TINY | {"monitor": "f1", "stop_epochs": 99}
    run, _ = trained(folder, tmp_path / "run", settings=settings)
    assert run.best_epoch == 3
    assert [line.best for line in read_log(tmp_path / "run" / "log.jsonl")] == [True, False, True]


def test_auto_cross_validates_few_clips_and_uses_a_split_where_there_is_one(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("EARMARK_HOME", str(tmp_path / "home"))  # without encoders
    small = {name: TINY[name] for name in TINY if name != "folds"} | {"epochs": 1}
    run, notes = trained(folder, tmp_path / "run", recipe="auto", settings=small)
    assert run.folds == 3
    assert load_recipe(tmp_path / "run" / "config.toml").training.folds == 3
    table = tmp_path / "labels.csv"
    table.write_text("filename,label,split\na.wav,,train\nb.wav,tone,train\nc.wav,,validate\nd.wav,tone,validate\n")
    for name in "abcd":
        (tmp_path / f"{name}.wav").symlink_to(folder / f"{name}.wav")
    run, notes = trained(table, tmp_path / "other", recipe="auto", settings=small)
    assert run.folds == 0
    assert any(": 2 to train on, 2 to validate with" in note for note in notes)


def test_weights_that_may_know_the_clips_are_not_cross_validated(folder, tmp_path):
    first, _ = trained(folder, tmp_path / "first", settings=TINY | {"folds": 0, "epochs": 1})
    run, _ = trained(folder, tmp_path / "run", recipe=first.path, settings={"folds": 3})
    assert run.folds == 0


def test_one_fold_is_refused():
    with pytest.raises(ArgumentError, match=r"training\.folds: expected 0 or at least 2, got 1"):
        load_recipe("quick").changed({"folds": 1})


def test_a_fold_without_tallies_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"epoch": 1, "best": true}\n')
    with pytest.raises(DataError, match=r"log\.jsonl: no epoch with validation counts"):
        _tallies([tmp_path])


def test_thresholds_are_chosen_by_models_that_have_not_heard_the_clips(folder, tmp_path, monkeypatch):
    asked = []

    def choose(recordings, labels, *options, **how):
        asked.extend(scores.filename for scores in recordings)
        return Decoder(threshold=0.75)

    monkeypatch.setattr(decoders, "FEWEST_CLIPS", 5)
    monkeypatch.setattr(decoders, "tune_thresholds", choose)
    loaded, load = [], decoders.load
    monkeypatch.setattr(decoders, "load", lambda path: loaded.append(path.name) or load(path))
    run, _ = trained(folder, tmp_path / "run", settings=TINY | {"epochs": 1, "steps": 1})
    assert sorted(asked) == [f"{name}.wav" for name in "abcdefghi"]
    assert loaded == ["run", "fold-1", "fold-2", "fold-3"]  # the first only for the distance of its frames
    assert run.thresholds.endswith("chosen on the 9 cross-validated clips")
    assert earmark.load(run).decoder.threshold == 0.75
