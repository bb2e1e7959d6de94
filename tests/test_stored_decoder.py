"""The decoder that is chosen after training: stored in the model file, and used wherever the model detects."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import earmark
from earmark.annotations import LabelTable
from earmark.audio import write
from earmark.checkpoint import read_model_info, read_tensors, save_decoder, save_detector
from earmark.cli.decoding import decoder_of
from earmark.datasets import open_data
from earmark.detection.job import run_job
from earmark.errors import ModelFileError
from earmark.evaluation import EvaluationOptions, decoders
from earmark.evaluation.decoders import store_decoder
from earmark.evaluation.reliability import Outcomes
from earmark.events import Decoder
from earmark.formats import read_labels
from earmark.inference.scores import RecordingScores
from earmark.progress import ignore_progress
from earmark.settings import load_recipe
from earmark.training import create_detector

CLASSES = ("cat", "dog")
SETTINGS = load_recipe("quick").changed({"width": 0.25, "n_bands": 32, "reduction": 4, "patch": 4.0})


@pytest.fixture
def run(tmp_path):
    """A run folder with an untrained model, whose probabilities are far from 0.5."""
    detector = create_detector(SETTINGS, CLASSES)
    torch.nn.init.normal_(detector.head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    parts = {"network": SETTINGS.network, "pool": SETTINGS.pool}
    (tmp_path / "run").mkdir()
    save_detector(tmp_path / "run" / "model.safetensors", detector, **parts, provenance={"patch": 4.0})
    return tmp_path / "run"


def recordings(tmp_path, n_validate, n_train=2):
    """A folder with clips of noise; a dog is in every second one."""
    folder, rng = tmp_path / "recordings", np.random.default_rng(1)
    folder.mkdir(parents=True)
    rows = ["filename,label,split"]
    for i in range(n_validate + n_train):
        write(folder / f"{i}.wav", (0.1 * rng.normal(size=24000)).astype(np.float32), 8000)
        rows.append(f"{i}.wav,{'dog' if i % 2 else 'cat'},{'validate' if i < n_validate else 'train'}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return open_data(str(folder))


class FakeDetector:
    """Its probabilities of a dog are 0.3 for 3 s of clips with one, and 0.2 elsewhere; those of a cat are right."""

    classes = CLASSES
    scorer = SimpleNamespace(hop=0.1, reduction=1)

    def score_clips(self, clips, *, on_progress):
        scores = []
        for clip in clips:
            p = np.full((100, 2), (0.0, 0.2), np.float32)
            if int(clip.filename.split(".")[0]) % 2:
                p[40:70, 1] = 0.3
            else:
                p[20:50, 0] = 0.9
            scores.append(RecordingScores(clip.filename, CLASSES, p, 0.1, 1, 100, 10.0))
        return scores, {}


def test_without_validation_clips_the_thresholds_of_the_first_model_stay(run, tmp_path):
    data = recordings(tmp_path, 0, 4)
    settings = SETTINGS.changed({"monitor": "last"})
    none = "0.5, since no clips were set aside to validate with"
    assert store_decoder(shutil.copytree(run, tmp_path / "a"), data, settings, ignore_progress) == none
    first = create_detector(SETTINGS, ("owl", "dog"))  # one class is gone, another is new
    model = tmp_path / "first.safetensors"
    save_detector(model, first, network=SETTINGS.network, pool=SETTINGS.pool)
    settings = settings.changed({"start": str(model)})
    assert store_decoder(shutil.copytree(run, tmp_path / "b"), data, settings, ignore_progress) == none
    save_decoder(model, Decoder(threshold=(0.1, 0.3), low=(0.1, 0.2), min_gap=0.4).to_dict())
    text = store_decoder(run, data, settings, ignore_progress)
    assert text.startswith("0.3 for dog, 0.5 for cat; those of the model that training started from")
    assert earmark.load(run, device="cpu").decoder == Decoder(threshold=(0.5, 0.3), low=(0.5, 0.2), min_gap=0.4)


def test_the_thresholds_that_are_clearly_better_are_stored_once(run, tmp_path, monkeypatch):
    data = recordings(tmp_path, 12)
    monkeypatch.setattr(decoders, "load", lambda path: FakeDetector())
    before = read_tensors(run / "model.safetensors", "model")[0]
    text = store_decoder(run, data, SETTINGS, ignore_progress)
    assert text == "0.3 for dog, 0.5 for cat; chosen on the 12 validation clips"
    outcomes = Outcomes.load(run)
    assert (outcomes.clips, outcomes.is_timed) == ("12 validation clips", False)
    assert {label: (sum(n.right), sum(n.wrong)) for label, n in outcomes.classes.items()} == {
        "cat": (6, 0),
        "dog": (6, 0),
    }
    stored = earmark.load(run, device="cpu").decoder
    assert (stored.threshold, stored.min_gap) == ((0.5, 0.3), 0.5)
    assert stored.tuned_on.startswith("validation: 12 clips (labels ")
    after = read_tensors(run / "model.safetensors", "model")[0]
    assert all(torch.equal(after[name], value) for name, value in before.items())
    monkeypatch.delattr(decoders, "load")  # not needed any more
    assert store_decoder(run, data, SETTINGS, ignore_progress) == "0.3 for dog, 0.5 for cat"


def test_without_evidence_the_thresholds_stay_and_short_pauses_are_joined(run, tmp_path, monkeypatch):
    few, many = recordings(tmp_path / "few", 9), recordings(tmp_path / "many", 10)
    trained_on = recordings(tmp_path / "none", 0, n_train=12)
    last = SETTINGS.changed({"monitor": "last"})

    def silence(self, clips, *, on_progress):
        p = np.zeros((100, 2), np.float32)
        return [RecordingScores(clip.filename, CLASSES, p, 0.1, 1, 100, 10.0) for clip in clips], {}

    monkeypatch.setattr(decoders, "load", lambda path: FakeDetector())
    for data, settings, scores, expected in (
        (few, SETTINGS, None, "0.5, since 9 validation clips are too few to choose others"),
        (trained_on, last, None, "0.5, since no clips were set aside to validate with"),
        (
            many,
            SETTINGS,
            lambda *_, **__: ([], {}),
            "0.5, since others could not be chosen: expected at least one clip to evaluate, got none",
        ),
        (many, SETTINGS, silence, "0.5, since no others are clearly better on the 10 validation clips"),
    ):
        monkeypatch.setattr(FakeDetector, "score_clips", scores)
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        copy = shutil.copytree(run, tmp_path / "copy")
        assert store_decoder(copy, data, settings, ignore_progress) == expected
        assert earmark.load(copy, device="cpu").decoder == Decoder(min_gap=0.5)


def test_a_pause_is_at_least_two_output_frames(run, tmp_path, monkeypatch):
    monkeypatch.setattr(FakeDetector, "scorer", SimpleNamespace(hop=0.1, reduction=4))
    monkeypatch.setattr(decoders, "load", lambda path: FakeDetector())
    store_decoder(run, recordings(tmp_path, 9), SETTINGS, ignore_progress)
    assert earmark.load(run, device="cpu").decoder == Decoder(min_gap=0.8)


def rows(table):
    return [(event.onset, event.offset, event.label, event.confidence) for event in table]


def test_detect_evaluate_and_jobs_use_the_stored_decoder(run, tmp_path):
    data, file = recordings(tmp_path, 0).clips, tmp_path / "recordings" / "0.wav"
    (scores,) = earmark.load(run, device="cpu").score_files([file])
    middle = tuple(float(value) for value in np.median(scores.p, axis=0))
    plain = rows(earmark.load(run, device="cpu").detect(file))
    save_decoder(run / "model.safetensors", Decoder(threshold=middle, tuned_on="validation").to_dict())
    detector = earmark.load(run, device="cpu")
    found = rows(detector.detect(file))
    assert found == rows(detector.detect(file, decoder=Decoder(threshold=middle)))
    assert found != plain == rows(detector.detect(file, decoder=Decoder()))
    run_job(run, [file], tmp_path / "found")
    assert rows(read_labels(tmp_path / "found" / "events.csv")) == found
    folder = str(tmp_path / "recordings")
    evaluation = earmark.evaluate(run, folder, split="train", out=tmp_path / "scores")
    assert evaluation.scores["decoder"]["threshold"] == list(middle)
    assert rows(LabelTable(evaluation.estimate().of(data[0].filename), classes=CLASSES)) == found
    fixed = earmark.evaluate(
        detector, folder, split="train", out=tmp_path / "fixed", options=EvaluationOptions(decoder=Decoder())
    )
    assert fixed.scores["decoder"]["threshold"] == 0.5


def test_tuning_thresholds_keeps_the_other_settings_of_the_model(run, earmark, tmp_path):
    recordings(tmp_path, 4)
    save_decoder(run / "model.safetensors", Decoder(threshold=(0.3, 0.4), min_gap=0.5, median=0.2).to_dict())
    for options, median in (((), 0.2), (("--median", 0.6), 0.6)):
        arguments = (run, tmp_path / "recordings", "--split", "train", "--tune-on", "validate", *options, "--json")
        code, out, _ = earmark("evaluate", *arguments)
        decoder = json.loads(out)["decoder"]
        assert (code, decoder["min_gap"], decoder["median"]) == (0, 0.5, median)
        assert "recordings, validate: 4 clips" in decoder["tuned_on"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": [0.5, 0.4, 0.3]}, "decoder: threshold: expected values for 2 classes, got 3"),
        ({"threshold": 2.0}, r"decoder: threshold: expected a value in \[0, 1\], or one per class, got 2.0"),
        ({"treshold": 0.5}, "decoder: decoder setting='treshold' is not known; did you mean 'threshold'"),
    ],
)
def test_a_decoder_that_does_not_fit_is_refused_with_the_name_of_the_file(run, settings, message):
    save_decoder(run / "model.safetensors", settings)
    with pytest.raises(ModelFileError, match=message):
        earmark.load(run)


def test_models_without_a_decoder_have_the_threshold_of_the_paper(run):
    assert "decoder" not in read_model_info(run / "model.safetensors")
    assert earmark.load(run).decoder == Decoder()


def test_an_option_of_the_command_line_changes_one_setting_of_the_stored_decoder(run, capsys):
    stored = Decoder(threshold=(0.3, 0.6), low=(0.2, 0.5), median=0.1, min_gap=0.2, tuned_on="validation")
    save_decoder(run / "model.safetensors", stored.to_dict())
    detector, nothing = earmark.load(run, device="cpu"), {"threshold": None, "low": None, "median": None}

    def changed(**options):
        return decoder_of(detector, None, {**nothing, **options})

    assert changed() == stored
    assert changed(median=0.5) == replace(stored, median=0.5)
    assert changed(threshold=0.5) == replace(stored, threshold=0.5, tuned_on=None)
    assert changed(threshold=0.4) == replace(stored, threshold=0.4, low=(0.2, 0.4), tuned_on=None)
    assert changed(threshold=0.6, low=0.1) == replace(stored, threshold=0.6, low=0.1, tuned_on=None)
    assert capsys.readouterr().err == ""


def test_detect_and_evaluate_keep_the_stored_settings_beside_a_threshold(run, earmark, tmp_path):
    recordings(tmp_path, 4)
    save_decoder(run / "model.safetensors", Decoder(threshold=(0.3, 0.4), min_gap=0.5, median=0.2).to_dict())
    options = ("--threshold", 0.6, "--json")
    code, out, _ = earmark("evaluate", run, tmp_path / "recordings", "--split", "train", *options)
    expected = Decoder(threshold=0.6, min_gap=0.5, median=0.2).to_dict()
    assert (code, json.loads(out)["decoder"]) == (0, expected)
    code, _, err = earmark("detect", run, tmp_path / "recordings", "--out", tmp_path / "found", *options)
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "found" / "job.json").read_text())["decoder"] == expected
