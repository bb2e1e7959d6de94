"""Tuning: what is tried, what is kept, what is said; and that test clips have no part in it."""

import csv
import json
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import warm
from small_recipe import SMALL

from earmark.annotations import Label, LabelTable
from earmark.checkpoint import read_model_info, read_tensors
from earmark.cli import app
from earmark.cli.app import main
from earmark.counts import ratio
from earmark.datasets import MissingDataWarning, open_data
from earmark.errors import ArgumentError, DataError, MissingExtraError, TrainingError
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.evaluation.statistics import compare_systems
from earmark.events import Decoder
from earmark.formats.text import write_text
from earmark.inference.scores import RecordingScores
from earmark.ownership import owned
from earmark.plots import tuning_figure
from earmark.settings import load_recipe
from earmark.training.run import run
from earmark.tuning import Trial, _reductions, tune

RECIPE = f"""{SMALL}norm_momentum = 0.3
[training]
patch = 1.0
batch_size = 4
steps = 6
epochs = 2
learning_rate = 0.01
monitor = "loss"
"""
SEARCH = ("penalty", "threshold")


@pytest.fixture(scope="module")
def folder(recordings):
    (recordings / "recipe.toml").write_text(RECIPE)
    return recordings


def search_in(folder, out, **changes):
    """A search with the settings that all have here."""
    given = {
        "cache": str(folder.parent / "cache"),
        "search": SEARCH,
        "provenance": {"data_source": "recordings"},
        **changes,
    }
    return tune(open_data(folder), load_recipe(folder / "recipe.toml"), str(out), **given)


@pytest.fixture(scope="module")
def whole(folder):
    """A search without interruption: the trials that are fixed, and one that Optuna chose."""
    heard = []
    out = folder.parent / "whole"
    found = search_in(folder, out, trials=6, on_trial=lambda trial, n: heard.append((trial.number, n)))
    assert heard == [(i, 6) for i in range(1, 7)]
    return found, out


def same(one, two):
    """Whether trials are the same, wherever they lie."""
    return [(t.number, t.values, t.f1, t.interval) for t in one] == [
        (t.number, t.values, t.f1, t.interval) for t in two
    ]


def same_model(one, two):
    """Whether two trials have the same weights, to the last bit, and the same story."""
    (ours, about), (theirs, their_about) = (read_tensors(t.folder / "model.safetensors", "model") for t in (one, two))
    return about == their_about and all(torch.equal(ours[name], theirs[name]) for name in {**ours, **theirs})


def test_a_search_tries_the_papers_lambdas_first_and_keeps_a_trial(whole):
    found, out = whole
    penalties = [trial.values["penalty"] for trial in found.trials]
    assert penalties[:5] == [1e-3, 1e-2, 1e-4, 1e-5, 1e-1]
    assert 1e-5 <= penalties[5] <= 1e-1
    assert penalties[5] not in penalties[:5]
    assert found.is_finished
    assert found.clips == 6
    assert found.best.f1 == max(trial.f1 for trial in found.trials)
    settings = load_recipe(out / "config.toml")
    assert settings.pool == {"name": "rap", "penalty": found.best.values["penalty"]}
    assert (out / "model.safetensors").read_bytes() == (found.best.folder / "model.safetensors").read_bytes()
    about = read_model_info(out / "model.safetensors")["provenance"]
    assert about["tuning"] == {"penalty": found.best.values["penalty"]}
    assert (about["data_source"], about["training_clips"], about["validation_clips"]) == ("recordings", 12, 6)
    with (out / "trials.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(row["f1"]) for row in table] == pytest.approx([t.f1 for t in found.trials], abs=1e-6)
    assert [row["verdict"] for row in table].count("best") == 1
    assert (out / table[0]["folder"]) == found.trials[0].folder
    counts = {str(trial.number): [Evaluation.load(trial.folder).dynamic_counts] for trial in found.trials}
    verdicts = compare_systems(counts, str(found.best.number), ratio("f1"))
    tied = {int(name) for verdict in verdicts if not verdict.is_different for name in verdict.names}
    assert {trial.number for trial in found.tied} == tied - {found.best.number}


def test_the_threshold_is_the_best_of_each_trial(whole):
    found, out = whole
    saved = Evaluation.load(found.best.folder)
    decoder = Decoder.from_dict(json.loads((out / "decoder.json").read_text())["decoder"])
    assert decoder == Decoder.from_dict(saved.scores["decoder"])
    assert decoder.threshold == found.best.values["threshold"]
    assert decoder.tuned_on.startswith("recordings, validate: 6 clips (labels ")
    reference = open_data(found.best.folder.parents[2] / "recordings", "validate").labels
    for trial in found.trials:
        clips = Evaluation.load(trial.folder).probabilities().values()
        f1 = {}
        for t in (0.1, 0.3, 0.5, 0.7, 0.9, trial.values["threshold"]):
            other = evaluate_scores(clips, reference, EvaluationOptions(decoder=Decoder(threshold=t)))
            f1[t] = other.dynamic.overall.f1
        assert f1[trial.values["threshold"]] == pytest.approx(trial.f1, abs=1e-12)
        assert max(f1.values()) <= trial.f1 + 1e-12


def test_a_killed_search_goes_on_in_the_trial_it_was_in_and_ends_alike(folder, whole, tmp_path):
    script = (
        f"import os, signal, sys, pathlib, torch; torch.set_num_threads({torch.get_num_threads()})\n"
        "from earmark.datasets import open_data\n"
        "from earmark.settings import load_recipe\n"
        "from earmark.tuning import tune\n"
        "data, cache, out = map(pathlib.Path, sys.argv[1:])\n"
        "calls = []\n"
        "def hook(at):\n"
        "    calls.append(getattr(at, 'epoch', 0))\n"
        "    if list(zip(calls, calls[1:])).count((1, 2)) == 2:\n"  # in the second epoch of the second trial
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "tune(open_data(data), load_recipe(data / 'recipe.toml'), out, cache=cache, trials=2, on_progress=hook,\n"
        "     search=('penalty', 'threshold'), provenance={'data_source': 'recordings'})\n"
    )
    place = [folder, folder.parent / "cache", tmp_path]
    done = warm.run([sys.executable, "-c", script, *map(str, place)], capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "model.safetensors").exists()
    heard, epochs = [], []
    again = search_in(
        folder,
        tmp_path,
        trials=2,
        on_trial=lambda trial, n: heard.append(trial.number),
        on_progress=lambda at: epochs.append(at.epoch) if at.stage == "training" else None,
    )
    assert (heard, set(epochs)) == ([2], {2})  # the first trial is kept, the second goes on after its first epoch
    assert same(again.trials, whole[0].trials[:2])
    assert same_model(again.trials[1], whole[0].trials[1])


def test_what_comes_next_follows_from_the_trials_before_it(folder, whole, tmp_path):
    """However often the search was killed: Optuna is asked anew, and says the same."""
    found, out = whole
    shutil.copytree(out, tmp_path / "part")
    record = json.loads((tmp_path / "part" / "search.json").read_text())
    last = record["trials"].pop()
    with owned(tmp_path / "part", force=True):  # as if the search had written it
        write_text(tmp_path / "part" / "search.json", json.dumps(record))
    shutil.rmtree(tmp_path / "part" / "trials" / found.trials[-1].folder.name)
    again = search_in(folder, tmp_path / "part", trials=6)
    assert again.trials[-1].values["penalty"] == last["values"]["penalty"]
    assert same(again.trials, found.trials)


def test_an_interrupted_search_says_so(folder, tmp_path):
    once = [signal.SIGINT]
    found = search_in(
        folder, tmp_path, trials=2, on_progress=lambda at: signal.raise_signal(once.pop()) if once else None
    )
    assert (found.is_finished, found.trials, found.best) == (False, (), None)
    assert not (tmp_path / "trials.csv").exists()


def test_a_trial_that_cannot_be_trained_does_not_stop_the_others(folder, tmp_path, earmark, capsys, monkeypatch):
    """Nor is it tried again: it would fail as before."""

    def some_fail(data, settings, out, **rest):
        if settings.pool["penalty"] in bad:
            raise TrainingError("the loss became nan")
        return run(data, settings, out, **rest)

    monkeypatch.setattr("earmark.tuning.run", some_fail)
    bad, notes = {1e-3}, []
    found = search_in(folder, tmp_path / "a", trials=2, on_note=notes.append)
    assert notes == ["lambda 0.001: the loss became nan"]
    assert [(trial.number, trial.values["penalty"]) for trial in found.trials] == [(2, 1e-2)]
    assert (found.failed, found.is_finished) == ({"lambda 0.001": "the loss became nan"}, True)
    bad = set()
    assert same(search_in(folder, tmp_path / "a", trials=2).trials, found.trials)
    assert earmark("--out", tmp_path / "a", "--search", "penalty,threshold", "--trials", 2) == 0
    assert "Could not be trained: lambda 0.001\n" in capsys.readouterr().out
    bad = {1e-3, 1e-2}
    with pytest.raises(TrainingError, match="no trial could be trained; the first: the loss became nan"):
        search_in(folder, tmp_path / "b", trials=2)


def test_clips_of_the_test_split_have_no_part_in_it(folder, whole, tmp_path):
    """Half of them are gone and the others are no sound; the result is the same, to the last bit."""
    shutil.copytree(folder, tmp_path / "recordings")
    for i in range(18, 24):
        path = tmp_path / "recordings" / f"{i:02}.wav"
        path.write_bytes(b"no sound at all")
        if i % 2:
            path.unlink()
    with pytest.warns(MissingDataWarning, match=r"skipped 3 of 24 labelled files \(no recording\)"):
        found = search_in(tmp_path / "recordings", tmp_path / "out", trials=2, cache=tmp_path / "cache")
    assert same(found.trials, whole[0].trials[:2])
    for ours, theirs in zip(found.trials, whole[0].trials[:2], strict=True):
        assert same_model(ours, theirs)
    judged = Evaluation.load(found.best.folder).static_counts.filenames
    assert sorted(judged) == [f"{i:02}.wav" for i in range(12, 18)]
    assert not [path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(("train-", "validate-"))]


def test_a_search_for_the_reduction_ends_when_all_were_tried(folder, tmp_path):
    heard = []
    found = search_in(
        folder, tmp_path, trials=9, search=("reduction",), on_trial=lambda trial, n: heard.append((trial.number, n))
    )
    assert [trial.values for trial in found.trials] == [{"reduction": value} for value in (4, 16, 8, 2)]
    assert heard[-1] == (4, 4)
    assert load_recipe(tmp_path / "config.toml").network["reduction"] == found.best.values["reduction"]
    assert not (tmp_path / "decoder.json").exists()
    (axes,) = tuning_figure(found.trials, found.best, found.tied).axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["2", "4", "8", "16"]


def test_the_reduction_of_the_settings_is_tried_first(folder):
    settings = load_recipe(folder / "recipe.toml").changed({"network": "vgg-gru"})
    del settings.network["reduction"]
    assert _reductions(settings) == [4, 16, 8, 2]
    tuned = load_recipe("head").changed({"encoder": "tiny", "train_encoder": True, "network": "vgg-gru"})
    assert _reductions(tuned) == [4, 8, 2]


def test_the_best_trial_is_kept_and_those_not_clearly_worse_are_tied(folder, whole, tmp_path):
    """Evaluations are replaced by made ones: right everywhere but once, right everywhere, and half wrong."""
    names = [f"{i:02}.wav" for i in range(40)]
    reference = LabelTable([Label(name, 0.0, 1.0, "hum") for name in names], filenames=names, classes=("hum", "click"))
    out = tmp_path / "made"
    shutil.copytree(whole[1], out)
    record = json.loads((out / "search.json").read_text())
    record["trials"] = record["trials"][:3]
    for trial, own, n_right in zip(whole[0].trials, record["trials"], (39, 40, 20), strict=False):
        clips = []
        for i, name in enumerate(names):
            p = np.zeros((20, 2), np.float32)
            p[:10, int(i >= n_right)] = 0.99
            clips.append(RecordingScores(name, reference.classes, p, 0.1, 1, 20, 2.0, p.max(0)))
        evaluation = evaluate_scores(clips, reference)
        evaluation.save(out / "trials" / trial.folder.name)
        own["f1"] = evaluation.dynamic.overall.f1
    record["trials"][0]["interval"] = [None, None]  # as JSON says NaN
    (out / "search.json").write_text(json.dumps(record))
    found = search_in(folder, out, trials=3)
    assert np.isnan(found.trials[0].interval).all()
    assert found.best.number == 2
    assert [trial.number for trial in found.tied] == [1]
    assert load_recipe(out / "config.toml").pool["penalty"] == found.best.values["penalty"] == 1e-2
    assert (out / "model.safetensors").read_bytes() == (found.best.folder / "model.safetensors").read_bytes()
    with (out / "trials.csv").open() as file:
        assert [row["verdict"] for row in csv.DictReader(file)] == ["tied", "best", "worse"]


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({}, {"trials": 0}, "trials: expected at least 1, got 0"),
        ({"pool": "cap"}, {}, "pool 'cap' has no penalty to search for; choose pool rap, or search for reduction"),
        ({"network": "mlp"}, {"search": ("reduction",)}, "network 'mlp' has no reduction to search for"),
        ({"supervision": "strong"}, {}, "strong supervision does not use the pool, so there is no penalty"),
        ({}, {"search": ("penalty", "treshold")}, "search='treshold' is not known; did you mean 'threshold'"),
        ({}, {"search": ("threshold",)}, "nothing to train for: search for penalty or reduction"),
        ({}, {"search": ()}, "nothing to train for: search for penalty or reduction"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(folder, tmp_path, changes, given, message):
    settings = load_recipe(folder / "recipe.toml").changed(changes)
    with pytest.raises(ArgumentError, match=message):
        tune(open_data(folder), settings, tmp_path / "out", cache=tmp_path, **given)
    assert not (tmp_path / "out").exists()


def test_validation_clips_must_say_when(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "weak")
    rows = [line.split("\t") for line in (folder / "labels.tsv").read_text().splitlines()]
    for row in rows[1:]:
        row[1:3] = ["", ""] if row[4] == "validate" else row[1:3]
    (tmp_path / "weak" / "labels.tsv").write_text("\n".join("\t".join(row) for row in rows) + "\n")
    with pytest.raises(DataError, match="tuning evaluates when sounds happen, and no validation clip has times"):
        search_in(tmp_path / "weak", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(folder, whole, tmp_path):
    _, out = whole
    with pytest.raises(
        ArgumentError, match=r'another search: search was \["penalty", "threshold"\], now \["penalty"\]'
    ):
        search_in(folder, out, search=("penalty",))
    with pytest.raises(ArgumentError, match=r"another search: training\.epochs was 2, now 3; choose another folder"):
        tune(
            open_data(folder),
            load_recipe(folder / "recipe.toml").changed({"epochs": "3", "penalty": "1"}),
            out,
            cache=tmp_path,
            search=SEARCH,
        )
    data = open_data(folder)
    fewer = data.select([clip.filename for clip in data.clips][1:])
    with pytest.raises(ArgumentError, match="another search: its clips or labels have changed"):
        tune(fewer, load_recipe(folder / "recipe.toml"), out, cache=tmp_path, search=SEARCH)
    with pytest.raises(ArgumentError, match="contains a run; choose another folder for the search"):
        search_in(folder, whole[0].best.folder)
    (tmp_path / "search.json").write_text('{"about": 1')
    with pytest.raises(DataError, match=r"search\.json: "):
        search_in(folder, tmp_path)


def test_missing_packages(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"^earmark tune needs packages .* pip install 'earmark\[tune\]'$"):
        search_in(folder, tmp_path)


@pytest.fixture
def earmark(folder, monkeypatch):
    """The command line, without another process."""

    def call(*args):
        words = ["tune", str(folder), "--recipe", str(folder / "recipe.toml"), "--cache", str(folder.parent / "cache")]
        words = [*words, *map(str, args)]
        monkeypatch.setattr(sys, "argv", ["earmark", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    return call


def test_the_command_tells_what_was_found(drawn_figures, folder, whole, earmark, capsys, monkeypatch):
    found, out = whole
    assert earmark("--out", out, "--search", "penalty, threshold", "--trials", 6) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].split() == ["trial", "lambda", "threshold", "F1", "95%", "interval"]
    assert lines[1].split()[0] == str(found.best.number)
    assert lines[1].endswith("best")
    assert sum(line.rstrip().endswith("tied") for line in lines[1:7]) == len(found.tied)
    assert lines[7].startswith(f"Best: {found.best.name}; F1 of 1-s segments {found.best.f1:.3f} (")
    assert lines[7].endswith(") on 6 validation clips")
    assert f"{len(found.tied)} of 5 other trials (tied). Each was trained once" in lines[8]
    assert lines[9] == f"Train again with it: earmark train {folder} --out RUN --recipe {out}/config.toml"
    assert lines[10].endswith(f"earmark evaluate {out} {folder} --threshold {found.best.values['threshold']:g}")
    detect = lines[11].partition(": earmark ")[2].replace("RECORDINGS", f"{folder}/20.wav").replace("FOUND", f"{out}-f")
    assert app(detect.split(), standalone_mode=False) is None  # what it says can be done
    job = json.loads(Path(f"{out}-f", "job.json").read_text())
    assert job["decoder"]["tuned_on"].startswith("recordings, validate: 6 clips")
    assert (out / "figures" / "tuning.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "figures" / "tuning.svg").exists()
    capsys.readouterr()
    assert earmark("--out", out, "--search", "penalty,threshold", "--trials", 6, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["best"] == found.best.number
    assert [trial["f1"] for trial in told["trials"]] == [trial.f1 for trial in found.trials]
    assert told["figure"] == str(out / "figures" / "tuning.png")


def test_the_command_can_be_interrupted(earmark, capsys, tmp_path, monkeypatch):
    fingers = []
    press = lambda *_: signal.raise_signal(fingers.pop()) if fingers else None  # noqa: E731
    monkeypatch.setattr("earmark.training.watch.Watch.loss_read", press)
    fingers.append(signal.SIGINT)
    assert earmark("--out", tmp_path / "a") == 130
    assert capsys.readouterr().err.endswith("\nInterrupted in trial 1; run the same command again to continue\n")
    fingers.append(signal.SIGINT)
    assert earmark("--out", tmp_path / "b", "--json") == 130
    assert json.loads(capsys.readouterr().out)["is_finished"] is False


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--set", "pool.penalty=1"], "--set pool.penalty and a search for penalty cannot be combined; use one of"),
        (["--trials", "0"], "trials: expected at least 1, got 0"),
        (["--pool", "max"], "pool 'max' has no penalty to search for"),
    ],
)
def test_mistakes_are_one_line(earmark, capsys, tmp_path, args, message):
    assert earmark("--out", tmp_path / "out", *args) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"earmark: {message}")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not (tmp_path / "out").exists()


def test_the_figure_has_a_dot_for_each_trial(tmp_path):
    tried = [(1e-3, 4, 0.5, 0.7), (1e-2, 8, 0.4, 0.5), (1e-4, 8, 0.6, 0.69)]
    trials = [
        Trial(i, {"penalty": p, "reduction": r, "threshold": t}, f1, (f1 - 0.1, f1 + 0.1), tmp_path)
        for i, (p, r, t, f1) in enumerate(tried, 1)
    ]
    figure = tuning_figure(trials, trials[0], [trials[2]])
    upper, lower = figure.axes
    assert upper.get_xscale() == "log"
    assert upper.get_ylim() == (-0.01, 1.01)
    dots = [line for line in upper.lines if line.get_markersize() == 5.5]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in dots] == [(p, f1) for p, _, _, f1 in tried]
    assert dots[0].get_mec() != dots[1].get_mec() == dots[2].get_mec()
    assert [line.get_markerfacecolor() == "white" for line in dots] == [False, True, False]  # the second is worse
    (ring,) = (line for line in upper.lines if line.get_markersize() == 11)
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (1e-3, 0.7)
    assert [line.get_ydata()[0] for line in lower.lines if line.get_markersize() == 5.5] == [0.5, 0.4, 0.6]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        *("reduction 4", "reduction 8"),
        *("best", "tied with it", "worse"),
    ]
