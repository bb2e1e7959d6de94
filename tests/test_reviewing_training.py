"""Training with verdicts: excerpts of long recordings, labels of both kinds, weights to start from."""

import json
import re
import sys
import time

import numpy as np
import pytest
import torch
from review_job import make_job, served

from earmark import api, audio
from earmark.annotations import LabelTable
from earmark.checkpoint import load_detector, load_weights, read_model_info
from earmark.datasets import Clip, Collection, Source, open_data
from earmark.detection.job import JobOptions, run_job
from earmark.errors import ArgumentError, DataError, ModelFileError
from earmark.events import Decoder
from earmark.formats import read_labels, write_labels
from earmark.inference.scores import RecordingScores
from earmark.retraining import _compare_on_verdicts, _highest, _main, retrain
from earmark.reviewing.again import Trainer
from earmark.reviewing.clips import HELD_OUT, LONGEST, with_labels
from earmark.reviewing.source import open_source
from earmark.reviewing.state import Review
from earmark.settings import load_recipe
from earmark.training.loop import create_detector

NAN = np.nan


def test_a_clip_can_be_part_of_a_file(tmp_path):
    audio.write(tmp_path / "a.wav", np.linspace(-1, 1, 8000).astype(np.float32), 8000)
    whole, part = Source(tmp_path / "a.wav"), Source(tmp_path / "a.wav", 1.0, 0.25, 0.5)
    clip = Clip("part", (part,))
    np.testing.assert_array_equal(clip.read(8000), Clip("whole", (whole,)).read(8000)[2000:4000])
    assert (clip.is_file, Clip("whole", (whole,)).is_file, part.duration) == (False, True, 0.25)


@pytest.fixture
def judged(tmp_path):
    """A job with a recording of ten seconds and one of five minutes, and verdicts on both."""
    found = make_job(tmp_path, names=("short.wav",))
    audio.write(tmp_path / "sound" / "long.wav", np.zeros(8000 * 300), 8000)
    (found / "ledger.sqlite").unlink()
    paths = {name: str(tmp_path / "sound" / name) for name in ("short.wav", "long.wav")}
    (found / "recordings.json").write_text(str({"recordings": paths}).replace("'", '"'))
    rows = [
        ("short.wav", 1.0, 2.0, "owl"),
        ("short.wav", None, None, "dog", False),
        ("long.wav", 100.0, 101.0, "owl"),
        ("long.wav", 103.0, 105.0, "owl", False),
        ("long.wav", None, None, "owl", None),
        ("long.wav", 200.0, 270.0, "dog", False),
    ]
    write_labels(LabelTable(rows, complete=False), found / "verdicts.csv", "csv")
    return found / "verdicts.csv"


def test_excerpts_have_what_was_judged_and_nothing_else(judged, recordings):
    data = open_data(recordings)
    joined, _ = with_labels(data, judged)
    clips = joined.clips[len(data) :]
    names = [clip.filename for clip in clips]
    assert names == ["short.wav", "long.wav@95.50-109.00", "long.wav@198.00-235.00", "long.wav@235.00-272.00"]
    assert all(clip.sources[0].duration <= LONGEST for clip in clips)
    targets = joined.labels.bag_targets(names)[:, 2:]  # dog, owl
    np.testing.assert_array_equal(targets, [[0, 1], [NAN, 1], [NAN, NAN], [NAN, NAN]])
    owl = joined.labels.frame_targets(names[1], 135, 0.1)[:, 3]
    assert (owl[45:55] == 1).all()
    assert (owl[75:95] == 0).all()
    assert np.isnan(owl).sum() == 135 - 30
    dog = joined.labels.frame_targets(names[2], 370, 0.1)[:, 2]
    assert (np.isnan(dog[:20]).all(), (dog[20:] == 0).all()) == (True, True)


def test_verdicts_join_a_data_set(judged, recordings):
    data = open_data(recordings)
    joined, notes = with_labels(data, judged)
    assert joined.classes == ("click", "hum", "dog", "owl")
    assert len(joined) == len(data) + 4
    name = data.clips[0].filename
    np.testing.assert_array_equal(joined.labels.bag_targets([name])[0], [*data.labels.bag_targets([name])[0], NAN, NAN])
    assert {clip.split for clip in joined.clips[len(data) :]} <= {"train", HELD_OUT}
    assert notes[0].startswith("verdicts.csv: 4 clips added, ")


def test_a_table_about_the_data_says_more_about_its_clips(recordings):
    data = open_data(recordings)
    train, test = (next(clip.filename for clip in data.clips if clip.split == s) for s in ("train", "test"))
    rows = [(train, None, None, "hum", False), (test, None, None, "hum", False), ("gone.wav", 0, 1, "hum")]
    write_labels(LabelTable(rows, complete=False), recordings / "more.csv", "csv")
    joined, notes = with_labels(data, recordings / "more.csv")
    (recordings / "more.csv").unlink()
    assert joined.labels.presence(train, "hum") is False
    assert joined.labels.presence(train, "click") == data.labels.presence(train, "click")
    assert joined.labels.presence(test, "hum") == data.labels.presence(test, "hum")
    assert "1 recording to validate or test with stay" in notes[1]
    assert "not found: gone.wav" in notes[2]


def test_recordings_that_cannot_be_read_are_left_out_with_a_note(recordings, tmp_path):
    audio.write(tmp_path / "x.wav", np.zeros(8000), 8000)
    (tmp_path / "torn.wav").write_bytes(b"")
    (tmp_path / "more.csv").write_text("filename,label\nx.wav,owl\ntorn.wav,owl\n")
    data = open_data(recordings)
    joined, notes = with_labels(data, tmp_path / "more.csv")
    assert [clip.filename for clip in joined.clips[len(data) :]] == ["x.wav"]
    assert notes[-1] == "more.csv: 1 recording could not be read and is left out: torn.wav (is empty: 0 bytes)"


def test_a_table_without_times_adds_its_labels(recordings, tmp_path):
    """Classes without a row are absent, as in the data set; a longer recording stays whole."""
    for name, seconds in (("x.wav", 2), ("y.wav", 2), ("z.wav", 70)):
        audio.write(tmp_path / name, np.zeros(8000 * seconds), 8000)
    (tmp_path / "more.csv").write_text("filename,label\nx.wav,owl\ny.wav,\nz.wav,owl\nz.wav,hum\n")
    joined, _ = with_labels(open_data(recordings), tmp_path / "more.csv")
    targets = joined.labels.bag_targets(["x.wav", "y.wav", "z.wav"])
    assert joined.classes == ("click", "hum", "owl")
    np.testing.assert_array_equal(targets, [[NAN, 0, 1], [NAN, 0, 0], [NAN, 1, 1]])


def test_labels_of_a_further_table_are_cleaned_and_spelled_as_in_the_data(recordings, tmp_path):
    for name in ("x.wav", "y.wav"):
        audio.write(tmp_path / name, np.zeros(16000), 8000)
    (tmp_path / "more.csv").write_text("filename,label\nx.wav,Hum ;CLICK\ny.wav,none\n")
    joined, notes = with_labels(open_data(recordings), tmp_path / "more.csv")
    assert joined.classes == ("click", "hum")
    np.testing.assert_array_equal(joined.labels.bag_targets(["x.wav", "y.wav"]), [[1, 1], [0, 0]])
    assert notes[1:] == [
        "more.csv: 1 cell with several labels was divided: 'Hum ;CLICK'",
        "more.csv: labels that differ only in case or spaces are one class: 'CLICK' is 'click', 'Hum' is 'hum'",
        "more.csv: 1 label that means \"nothing\" ('none') was dropped: its recording counts as empty",
    ]


@pytest.mark.parametrize("label", ["", "none"])
def test_a_further_table_of_empty_recordings_has_no_class(recordings, tmp_path, label):
    audio.write(tmp_path / "x.wav", np.zeros(16000), 8000)
    (tmp_path / "more.csv").write_text(f"filename,label\nx.wav,{label}\n")
    joined, _ = with_labels(open_data(recordings), tmp_path / "more.csv")
    np.testing.assert_array_equal(joined.labels.bag_targets(["x.wav"]), [[0, 0]])


SMALL = {"features.n_bands": 16, "features.rate": 8000, "epochs": 1, "steps": 1, "batch_size": 2, "patch": 1.0}


@pytest.fixture(scope="module")
def first(recordings, tmp_path_factory):
    """A run of one step."""
    return api.train(recordings, tmp_path_factory.mktemp("first") / "run", recipe="quick", settings=SMALL)


def test_training_starts_from_the_weights_of_a_run(recordings, judged, first, tmp_path):
    second = api.train(
        [recordings, judged], tmp_path / "run2", recipe=first.path, settings={"learning_rate": 1e-9, "bias_penalty": 0}
    )
    old, new = (load_detector(run.path / "model.safetensors") for run in (first, second))
    assert new.classes == ("click", "hum", "dog", "owl")
    torch.testing.assert_close(new.head.weight[:2], old.head.weight, atol=1e-6, rtol=0)
    config = load_recipe(str(second.path / "config.toml"))
    assert (config.training.supervision, config.training.start) == ("mixed", str(first.path / "model.safetensors"))
    assert not torch.equal(create_detector(config, ("click",)).head.weight, torch.zeros(1))


def test_weights_that_do_not_fit(recordings, first, tmp_path):
    model = first.path / "model.safetensors"
    other = create_detector(load_recipe("quick").changed({**SMALL, "n_bands": 32}), ("hum",))
    with pytest.raises(ModelFileError, match="was trained on different features"):
        load_weights(other, model)
    other = create_detector(load_recipe("quick").changed({**SMALL, "pool.name": "max"}), ("hum",))
    with pytest.raises(ModelFileError, match="has a different network or pool"):
        load_weights(other, model)
    (tmp_path / "alone.safetensors").write_bytes(model.read_bytes())
    with pytest.raises(ArgumentError, match=r"no config\.toml next to it"):
        api.train(recordings, tmp_path / "x", recipe=tmp_path / "alone.safetensors")
    with pytest.raises(ArgumentError, match="data: expected a folder of recordings"):
        api.train([], tmp_path / "x", recipe=first.path)


def test_the_recipe_comes_from_the_run(earmark, tmp_path):
    code, _, err = earmark("train", tmp_path, "--out", tmp_path / "x", "--from", "run", "--recipe", "quick")
    assert (code, "--from uses the recipe of its run" in err) == (2, True)


def test_collections_stay_collections(recordings):
    data = open_data(recordings)
    assert isinstance(api._training_data(data, None)[0], Collection)


@pytest.fixture(scope="module")
def detected(recordings, first, tmp_path_factory):
    """A job of the run of one step, which finds something everywhere."""
    out = tmp_path_factory.mktemp("detected") / "found"
    run_job(first.path, [recordings], out, JobOptions(decoder=Decoder(threshold=0.01)))
    return out


def test_training_again_compares_and_detects(recordings, detected, tmp_path, capsys):
    with pytest.raises(DataError, match="nothing has been judged yet"):
        retrain(detected, recordings, tmp_path / "nothing")
    review = Review(open_source(detected))
    for number, event in enumerate(list(review.events)):
        verdict = "right" if number % 2 else "wrong"
        review.act({"id": f"v{number}", "reviewer": "a", "action": "verdict", "events": [event], "verdict": verdict})
    settings = json.dumps({"epochs": 1, "steps": 1})
    assert _main([str(detected), str(recordings), str(tmp_path / "again"), settings]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"features", "training", "scoring", "detecting"} <= {line.get("stage") for line in lines}
    assert {line["unit"] for line in lines if line.get("stage") == "training"} == {"epochs"}  # the page shows it
    result = lines[-1]["result"]
    assert re.match(r"On the test split \(6 clips, segments of 1 s\): the (old|new) model and the", result["lines"][0])
    assert result["lines"][1].startswith("No verdicts on recordings outside the training data")
    assert result["helped"] is None  # with six clips and one step, nothing can be shown
    new = open_source(result["found"])
    assert [one.name for one in new.recordings] == [one.name for one in review.source.recordings]
    judged = [event for event in Review(new).events.values() if event.decisions]
    assert len(judged) == len([event for event in review.events.values() if event.decisions])
    assert read_labels(detected / "verdicts.csv").classes == ("click", "hum")


def test_held_out_verdicts_are_counted_at_the_thresholds_of_each_model(tmp_path):
    class Fixed:
        classes = ("owl",)

        def __init__(self, p, threshold):
            self.p, self.decoder = p, Decoder(threshold=threshold)

        def score_clips(self, clips, on_progress):
            values = {"duration": 1.0, "hop": 1.0, "p": np.array([[self.p]]), "classes": ("owl",)}
            return [type("Scores", (), {**values, "filename": clip.filename}) for clip in clips], {}

    def compare(n_right, n_wrong):
        rows = [(f"{k}.wav", None, None, "owl", k < n_right) for k in range(n_right + n_wrong)]
        labels = LabelTable(rows, complete=False)
        clips = tuple(Clip(name, (Source(tmp_path / name),), HELD_OUT) for name in labels.filenames)
        old, nothing = Fixed(0.4, (0.3,)), Fixed(0.4, 0.5)
        return _compare_on_verdicts(old, nothing, Collection(clips, labels), None)

    counts, caution = compare(2, 18)  # of which a model that finds nothing agrees with 18
    assert counts == (
        "Among held-out verdicts, of 2 right events, the old model finds 2 and the new one 0; "
        "of 18 wrong events, the old model finds 18 and the new one 0."
    )
    assert "do not show which model is better" in caution
    assert compare(1, 0)[0] == "Among held-out verdicts, of 1 right event, the old model finds 1 and the new one 0."


def test_rounding_does_not_add_a_frame_to_a_verdict():
    """0.3 / 0.1 is 2.9999999999999996, and 0.7 / 0.1 is 6.999999999999999."""
    p = np.full((10, 1), 0.1, np.float32)
    p[[2, 6]] = 0.9
    scores = RecordingScores("a.wav", ("owl",), p, feature_hop=0.1, reduction=1, frames=10, duration=1.0)
    assert _highest(scores, "owl", 0.3, 0.6) == pytest.approx(0.1)
    assert _highest(scores, "owl", 0.7, 0.8) == pytest.approx(0.1)
    assert _highest(scores, "owl", 0.6, 0.7) == pytest.approx(0.9)
    assert _highest(scores, "owl", 5.0, 6.0) == pytest.approx(0.1)  # beyond the last frame


def test_the_learning_rate_is_lowered_once(first, tmp_path):
    rate = load_recipe(first.path / "config.toml").training.learning_rate
    _, changes = api._recipe_and_start(first.path)
    assert changes["training.learning_rate"] == pytest.approx(0.3 * rate)
    again = load_recipe(first.path / "config.toml").changed(changes)  # the run that continued, and its model
    (tmp_path / "config.toml").write_text(again.to_toml())
    (tmp_path / "model.safetensors").write_bytes((first.path / "model.safetensors").read_bytes())
    assert api._recipe_and_start(tmp_path)[1]["training.learning_rate"] == pytest.approx(0.3 * rate)


def test_an_epoch_that_was_one_pass_over_the_clips_stays_one(first, tmp_path):
    def steps_after(steps):
        text = (first.path / "config.toml").read_text()
        (tmp_path / "config.toml").write_text(re.sub(r"^steps = .*", f"steps = {steps}", text, flags=re.M))
        return api._recipe_and_start(tmp_path)[1]["training.steps"]

    model = first.path / "model.safetensors"
    (tmp_path / "model.safetensors").write_bytes(model.read_bytes())
    clips = read_model_info(model)["provenance"]["training_clips"]
    assert steps_after(-(-clips // SMALL["batch_size"])) == 0  # as many as hold all clips once
    assert steps_after(1) == 1


def test_the_page_follows_training(detected, monkeypatch, tmp_path):
    script = """import json, sys, time
print("a warning"); print(json.dumps({"note": "24 clips"}))
for loss in (0.9, 0.5):
    about = {"stage": "training, round 1 of 2", "done": 1, "total": 2, "unit": "epochs", "detail": f"loss {loss}"}
    print(json.dumps(about), flush=True)
time.sleep(float(sys.argv[2]))
print(json.dumps({"summary": "It helped.", "result": {}}))"""
    monkeypatch.setattr(Trainer, "command", (sys.executable, "-c", script))
    trainer = Trainer(open_source(detected))
    assert trainer.problem() is None
    with pytest.raises(ArgumentError, match="expected the folder of the labelled clips"):
        trainer.start(" ")
    trainer.start("0.3")
    with pytest.raises(ArgumentError, match="running already"):
        trainer.start("0.3")
    while (status := trainer.status())["running"] or status["summary"] is None:
        time.sleep(0.02)
    assert (status["lines"], status["share"]) == (
        ["a warning", "24 clips", "training, round 1 of 2: 1 of 2 epochs, loss 0.5"],
        0.5,
    )
    trainer.start("60")
    while not trainer.status()["lines"]:
        time.sleep(0.02)
    trainer.close()
    assert not trainer.status()["running"]
    with served(make_job(tmp_path)) as server:
        problem = Trainer(server.review.source).problem()
    assert problem == "there is no model to retrain; review a detection job"
