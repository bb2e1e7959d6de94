"""Training: it learns, it survives being killed, several processes do what one does, and bad input gets one line."""

import json
import math
import os
import re
import signal
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import warm
from lightning_fabric import Fabric
from run_files import log_of
from safetensors.torch import load_file

import earmark
from earmark import audio
from earmark.annotations import LabelTable
from earmark.bags import Bags, FeatureStore, build_store, default_cache
from earmark.checkpoint import load_detector, read_model_info
from earmark.cli import main
from earmark.datasets import open_data
from earmark.errors import ArgumentError, DataError, TrainingError
from earmark.settings import Augmentation, load_recipe
from earmark.training import Run, Schedule, create_detector, train, validate
from earmark.training.memory import unfinished_note
from earmark.training.run import data_fingerprint, make_fabric, run, split_for_training
from earmark.training.steps import augmented
from earmark.training.watch import Watch

SMALL = {
    "rate": "8000",
    "n_fft": "256",
    "hop_samples": "128",
    "n_bands": "16",
    "width": "0.25",
    "patch": "2",
    "batch_size": "8",
    "steps": "6",
    "epochs": "4",
    "pool": "auto",
    "stop_epochs": "99",
}
SETTINGS = load_recipe("quick").changed(SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A biologist's folder: forty recordings of two seconds, `labels.csv` with tags and splits."""
    root = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(1)
    lines = ["filename,label,split"]
    for i in range(40):
        sound = 0.01 * rng.standard_normal(16000)
        split = "validate" if i % 4 == 3 else "train"
        tags = []
        if rng.random() < 0.5:
            at = rng.integers(0, 12000)
            sound[at : at + 4000] += 0.3 * np.sin(2 * np.pi * 1000 * np.arange(4000) / 8000)
            tags.append("beep")
        if rng.random() < 0.5:
            sound += 0.05 * rng.standard_normal(16000)
            tags.append("rain")
        audio.write(root / f"r{i}.wav", sound.astype(np.float32), 8000)
        lines += [f"r{i}.wav,{tag},{split}" for tag in tags] or [f"r{i}.wav,,{split}"]
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def bags(folder, tmp_path_factory):
    data = open_data(folder)
    store = build_store(tmp_path_factory.mktemp("store"), data.clips, SETTINGS.features)
    return [Bags(store, data.split(name).labels) for name in ("train", "validate")]


def assert_same(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(
            a[name], b[name], **(tolerance or {"rtol": 0, "atol": 0}), msg=lambda text, name=name: f"{name}: {text}"
        )


def test_it_learns_and_leaves_a_model_that_knows_itself(bags, fabric, tmp_path):
    settings = SETTINGS.changed({"epochs": "12", "steps": "20"})
    seen = []
    result = train(
        *bags, settings, tmp_path, fabric=fabric, provenance={"why": "test"}, on_progress=lambda p: seen.append(p.step)
    )
    assert result.is_finished
    assert result.scores["f1"] > 0.9
    assert result.epochs == 12
    assert seen
    info = read_model_info(tmp_path / "model.safetensors")
    assert info["classes"] == ["beep", "rain"]
    assert info["provenance"]["why"] == "test"
    assert info["provenance"]["epoch"] == result.best_epoch
    detector = load_detector(tmp_path / "model.safetensors")
    assert validate(detector, bags[1], settings.training, fabric).scores == pytest.approx(result.scores, abs=1e-6)
    lines = log_of(tmp_path)
    assert [line["epoch"] for line in lines] == list(range(1, 13))
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"]
    assert len(lines[0]["alpha"]) == 2
    assert load_recipe(tmp_path / "config.toml") == settings


def test_the_first_weights_depend_on_the_seed_alone():
    a, b, c = (create_detector(SETTINGS.changed({"seed": seed}), ("x",)).state_dict() for seed in ("1", "1", "2"))
    assert_same(a, b)
    assert not torch.equal(a["head.weight"], c["head.weight"])


def test_before_training_every_frame_has_the_prior():
    x = torch.zeros(2, SETTINGS.features.n_bands, 64)
    for prior in (0.5, 0.1):
        detector = create_detector(SETTINGS.changed({"prior": prior}), ("x", "y")).eval()
        detector.head.weight.data.zero_()
        torch.testing.assert_close(detector(x).dynamic, torch.full_like(detector(x).dynamic, prior))


@pytest.mark.parametrize("supervision", ["propagated", "strong", "mixed"])
def test_other_supervision(supervision, bags, fabric, tmp_path, folder):
    """Rain is said to be everywhere, nobody says when it beeps."""
    data = open_data(folder)
    rows = [row._replace(onset=0.0, offset=2.0) if row.label == "rain" else row for row in data.labels]
    table = LabelTable(rows, filenames=data.labels.filenames, classes=data.classes)
    store = build_store(tmp_path / "store", data.clips, SETTINGS.features)
    parts = [Bags(store, table.select(data.split(name).labels.filenames)) for name in ("train", "validate")]
    settings = SETTINGS.changed({"supervision": supervision, "epochs": "10", "steps": "15"})
    result = train(*parts, settings, tmp_path / "run", fabric=fabric)
    assert result.scores["accuracy"] > 0.9


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(bags, fabric, tmp_path):
    train(*bags, SETTINGS, tmp_path / "whole", fabric=fabric)

    pressed = []

    def press_ctrl_c(progress):
        if progress.epoch == 2 and not pressed:
            pressed.append(progress)
            os.kill(os.getpid(), signal.SIGINT)

    broken = train(*bags, SETTINGS, tmp_path / "parts", fabric=fabric, on_progress=press_ctrl_c)
    assert not broken.is_finished
    epochs = SETTINGS.training.epochs
    assert unfinished_note(tmp_path / "parts").startswith(
        f"training is not finished, 2 of {epochs} epochs: continue it"
    )
    result = train(*bags, SETTINGS, tmp_path / "parts", fabric=fabric, resume=True)
    assert result.is_finished
    assert unfinished_note(tmp_path / "parts") == ""
    for name in ("model.safetensors", "last.ckpt"):
        assert_same(load_file(tmp_path / "whole" / name), load_file(tmp_path / "parts" / name))
    assert log_of(tmp_path / "whole") == log_of(tmp_path / "parts")


def test_ctrl_c_at_the_very_end_is_not_lost(bags, fabric, tmp_path):
    """A search, or a grid, would go on with its next run."""
    settings = SETTINGS.changed({"epochs": "1", "steps": "2"})

    def press_ctrl_c(progress):
        if not math.isnan(progress.score):  # validated: nothing is left to do
            signal.raise_signal(signal.SIGINT)

    late = train(*bags, settings, tmp_path, fabric=fabric, on_progress=press_ctrl_c)
    assert (late.is_finished, late.epochs) == (False, 1)
    before = (tmp_path / "model.safetensors").read_bytes()
    again = train(*bags, settings, tmp_path, fabric=fabric, resume=True)
    assert (again.is_finished, again.epochs, again.scores) == (True, 1, late.scores)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_an_interrupted_command_says_how_to_go_on(folder, tmp_path, monkeypatch, capsys):
    fingers = []
    press = lambda *_: signal.raise_signal(fingers.pop()) if fingers else None  # noqa: E731
    monkeypatch.setattr("earmark.training.watch.Watch.loss_read", press)
    for name, more in (("a", []), ("b", ["--json"])):
        words = command(folder, tmp_path / name, *more, cache=tmp_path / "cache")[3:]
        monkeypatch.setattr(sys, "argv", ["earmark", *words])
        fingers.append(signal.SIGINT)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 130
    text, best, model, told = capsys.readouterr().out.splitlines()[-4:]
    assert text.startswith("Interrupted after 1 epoch; continue with: earmark train ")
    assert text.endswith(" --resume")
    assert best.startswith("Best epoch by f1: 1 of 1 (interrupted); validation loss ")
    assert model == f"Model: {tmp_path / 'a' / 'model.safetensors'}"
    assert json.loads(told)["is_finished"] is False
    note = "training is not finished, 1 of 4 epochs: continue it with earmark train ... --resume"
    assert earmark.evaluate(tmp_path / "a", folder, split="validate", out=tmp_path / "scores").notes[0] == note
    recording = next(iter(sorted(folder.glob("*.wav"))))
    monkeypatch.setattr(sys, "argv", ["earmark", "detect", str(tmp_path / "a"), str(recording)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().err == f"earmark: {tmp_path / 'a'}: {note}\n"


def test_a_command_stopped_in_its_first_epoch_says_that_there_is_no_model(folder, tmp_path, monkeypatch, capsys):
    """And one with the recipe paper, that it is not for this machine; one without recipe what it chose, once."""
    monkeypatch.setenv("EARMARK_HOME", str(tmp_path / "home"))
    small = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    stepped = Watch.stepped
    press = lambda watch, *at: (stepped(watch, *at), signal.raise_signal(signal.SIGINT))  # noqa: E731
    monkeypatch.setattr(Watch, "stepped", press)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    call = ["earmark", "train", str(folder), "--cache", str(tmp_path / "cache"), *small]
    said = []
    for name, more in (("a", []), ("a", ["--resume"]), ("b", ["--json"]), ("c", ["--recipe", "paper"])):
        monkeypatch.setattr(sys, "argv", [*call, "--out", str(tmp_path / name), *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 130
        said.append(capsys.readouterr().out.splitlines())
    assert said[0][0].startswith("Note: recipe small: no GPU and no encoder")
    assert not any("recipe small" in line for line in said[1])
    note = "Note: no GPU found: the recipe paper is designed for one; the recipe quick takes minutes on a CPU"
    assert said[3][0] == note
    assert said[0][-1] == said[1][-1] == "No model yet"
    assert json.loads("".join(said[2]))["best_epoch"] == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_it_begins_where_it_was_told_and_goes_on_where_it_was(folder, tmp_path):
    """Recording a graph warms up with real steps: they must leave no trace. And moments must come back as they lay."""
    settings = SETTINGS.changed({"epochs": "2", "precision": "32"})
    fabric = make_fabric(settings)
    data = open_data(folder)
    store = build_store(tmp_path / "store", data.clips, settings.features)
    moved = [Bags(store, data.split(name).labels, device=fabric.device) for name in ("train", "validate")]
    for name in ("once", "twice"):
        train(*moved, settings, tmp_path / name, fabric=fabric)
    assert log_of(tmp_path / "once") == log_of(tmp_path / "twice")
    train(*moved, settings.changed({"epochs": "1"}), tmp_path / "cut", fabric=fabric)
    train(*moved, settings, tmp_path / "cut", fabric=fabric, resume=True)
    assert_same(
        load_file(tmp_path / "once" / "last.ckpt"), load_file(tmp_path / "cut" / "last.ckpt"), rtol=1e-5, atol=1e-7
    )


def command(folder, out, *more, cache):
    options = [part for key, value in SMALL.items() if key != "pool" for part in ("--set", f"{key}={value}")]
    call = ["train", str(folder), "--out", str(out), "--recipe", "quick", "--pool", "auto", "--cache", str(cache)]
    return [sys.executable, "-m", "earmark.cli", *call, *options, *more]


ENVIRONMENT = dict(os.environ)


def test_a_killed_run_ends_with_the_same_bits(folder, tmp_path, monkeypatch, capsys):
    """Killed without warning while it trains, twice; then left to finish."""
    more = ["--set", "epochs=15", "--set", "save_minutes=0.0001"]
    cache = tmp_path / "cache"

    def call(out, *options):
        monkeypatch.setattr(sys, "argv", ["earmark", *command(folder, out, *more, *options, cache=cache)[3:]])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, capsys.readouterr().err
        assert "Best epoch by f1: " in capsys.readouterr().out

    call(tmp_path / "whole")
    out = tmp_path / "killed"
    seed = int.from_bytes(os.urandom(4), "little")  # any moment must do
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for attempt in range(2):
        resume = ["--resume"] if attempt else []
        with warm.Popen(
            command(folder, out, *more, *resume, cache=cache), stdout=warm.PIPE, text=True, env=ENVIRONMENT
        ) as process:
            before = (out / "last.ckpt").stat().st_mtime_ns if (out / "last.ckpt").exists() else 0
            while process.poll() is None and not (
                (out / "last.ckpt").exists() and (out / "last.ckpt").stat().st_mtime_ns > before
            ):
                time.sleep(0.01)
            time.sleep(float(rng.uniform(0, 0.5)))
            process.kill()
    call(out, "--resume")
    for name in ("model.safetensors", "last.ckpt"):
        assert_same(load_file(tmp_path / "whole" / name), load_file(out / name))
    assert log_of(tmp_path / "whole") == log_of(out)
    assert sorted(p.name for p in out.iterdir() if not p.name.startswith(".")) == [
        "config.toml",
        "figures",
        "last.ckpt",
        "log.jsonl",
        "model.safetensors",
        "validation.json",
    ]
    assert (out / "validation.json").read_bytes() == (tmp_path / "whole" / "validation.json").read_bytes()


TWO = """
import atexit
import shutil
import signal
import sys
from pathlib import Path
from lightning_fabric import Fabric
from earmark.bags import Bags, FeatureStore
from earmark.datasets import open_data
from earmark.settings import load_recipe
from earmark.training import train
from earmark.training.run import launch
from earmark.training.watch import Watch
folder, store, recipe, out = map(Path, sys.argv[1:])

@atexit.register  # called after all that is registered from here on
def threads_of_the_group():
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    sys.stdout.write(f"{sum('gloo' in name for name in names)} left\\n")

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp", precision="64-true")
launch(fabric)
data = open_data(folder)
bags = [Bags(FeatureStore(store), data.split(name).labels) for name in ("train", "validate")]
stepped = Watch.stepped

def interrupted(self, epoch, step):  # the two processes are interrupted at different steps
    stepped(self, epoch, step)
    if step == 7 + fabric.global_rank:
        signal.raise_signal(signal.SIGINT)

def run(name, epochs, steps, resume=False):
    settings = load_recipe(recipe).changed({"epochs": epochs, "steps": steps})
    result = train(*bags, settings, out / name, fabric=fabric, resume=resume)
    sys.stdout.write(f"{name} {fabric.global_rank} {fabric.world_size} {result.epochs}\\n")  # in one piece
    fabric.barrier()  # one process writes

run("two", "1", "3")
if fabric.is_global_zero:
    shutil.copytree(out / "two", out / "longer")
fabric.barrier()
run("longer", "2", "3", resume=True)
Watch.stepped = interrupted
run("cut", "1", "60")
Watch.stepped = stepped
run("cut", "1", "60", resume=True)
"""


def test_two_processes_do_what_one_does(folder, bags, tmp_path):
    """With batch normalisation frozen, and in float64, so that only rounding in the 16th digit differs.

    Weights and Adam's moments, which after the first step are the gradients themselves, are compared. Two processes
    write one set of files, and resume. If one of them is interrupted, both stop at the same step. At the end no thread
    of the process group is left: one that outlives the interpreter may abort it.
    """
    settings = SETTINGS.changed({"pool": "cap", "freeze_norm": "true", "epochs": "1", "steps": "3"})
    alone = Fabric(accelerator="cpu", devices=1, precision="64-true")
    train(*bags, settings, tmp_path / "one", fabric=alone)
    build_store(tmp_path / "store", open_data(folder).clips, SETTINGS.features)
    (tmp_path / "script.py").write_text(TWO)
    (tmp_path / "recipe.toml").write_text(settings.to_toml())
    call = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone"]
    call += [
        str(path) for path in (tmp_path / "script.py", folder, tmp_path / "store", tmp_path / "recipe.toml", tmp_path)
    ]
    done = warm.run(call, capture_output=True, text=True, env=ENVIRONMENT, timeout=600)
    assert done.returncode == 0, done.stderr[:2000]
    assert re.findall(r"\d+ left", done.stdout) == ["0 left"] * 2
    epochs = {"two": (1,), "longer": (2,), "cut": (0, 1)}
    due = [f"{name} {rank} 2 {n}" for name, each in epochs.items() for n in each for rank in (0, 1)]
    assert sorted(re.findall(r"^\w+ \d \d \d$", done.stdout, re.M)) == sorted(due)
    one, two = (load_file(tmp_path / name / "last.ckpt") for name in ("one", "two"))
    assert one["detector.head.weight"].dtype == torch.float64
    assert_same(one, two, rtol=1e-9, atol=1e-12)
    assert log_of(tmp_path / "two")[0]["loss"] == pytest.approx(log_of(tmp_path / "one")[0]["loss"], rel=1e-6)
    assert len(log_of(tmp_path / "longer")) == 2


def test_a_folder_with_a_run_is_not_overwritten(bags, fabric, tmp_path):
    settings = SETTINGS.changed({"pool.alpha": "2.0"})
    train(*bags, settings.changed({"epochs": "1"}), tmp_path, fabric=fabric)
    with pytest.raises(ArgumentError, match=r"already contains a run; continue it with --resume \(resume=True\)"):
        train(*bags, settings, tmp_path, fabric=fabric)
    with pytest.raises(ArgumentError, match=r"was started with pool.alpha = 2.0, got None"):
        train(*bags, SETTINGS, tmp_path, fabric=fabric, resume=True)
    with pytest.raises(
        ArgumentError, match=r"was started with training.learning_rate = 0.003, got 0.5; resume with the same"
    ):
        train(*bags, settings.changed({"learning_rate": "0.5"}), tmp_path, fabric=fabric, resume=True)
    settings = settings.changed({"epochs": "2"})
    longer = train(*bags, settings, tmp_path, fabric=fabric, resume=True)
    assert longer.epochs == 2
    assert load_recipe(tmp_path / "config.toml") == settings


def test_a_loss_that_is_no_number_stops_the_run(bags, fabric, tmp_path):
    with pytest.raises(
        TrainingError, match=r"the loss became (nan|inf) in epoch 1 before step 6; .* smaller learning_rate"
    ):
        train(*bags, SETTINGS.changed({"learning_rate": "1e30"}), tmp_path, fabric=fabric)


def test_validation_needs_a_label(bags, fabric, tmp_path, folder):
    data = open_data(folder)
    empty = LabelTable([], filenames=data.labels.filenames, classes=data.classes, complete=False)
    store = build_store(tmp_path / "store", data.clips, SETTINGS.features)
    with pytest.raises(DataError, match="no validation clip has a known label"):
        train(bags[0], Bags(store, empty), SETTINGS.changed({"epochs": "1"}), tmp_path / "run", fabric=fabric)


def test_what_the_data_lack_is_said(folder, fabric, tmp_path):
    """A bad file, no validation split, a class without positives, one without negatives."""
    data = open_data(folder)
    training = data.split("train")
    names = training.labels.filenames
    rows = [*training.labels, *((name, None, None, "always") for name in names)]
    labels = LabelTable(rows, filenames=names, classes=["always", "beep", "never", "rain"])
    clips = list(training.clips)
    broken = tmp_path / clips[0].filename
    broken.write_bytes(clips[0].sources[0].path.read_bytes()[:5000])
    clips[0] = type(clips[0])(clips[0].filename, (type(clips[0].sources[0])(broken),))
    data = type(data)(tuple(clips), labels)
    told = []
    settings, cache = SETTINGS.changed({"epochs": "1"}), tmp_path / "cache"
    hooks = {"on_note": told.append, "on_progress": lambda p: told.append(p) if p.stage == "training" else None}
    report = run(data, settings, tmp_path / "run", cache=cache, fabric=fabric, **hooks)
    assert tuple(told[: len(report.notes)]) == report.notes  # before training begins
    assert len(told) > len(report.notes)
    said = "\n".join(report.notes)
    assert re.search(r"no clips are set aside to validate with: \d of 30 training clips", said)
    assert "1 clip could not be read and will not be used: " in said
    assert "damaged: audio is missing from" in said
    assert "--damaged" not in said  # an option of detect
    assert "skipped.tsv" in said
    assert "class 'never' is in no training clip" in said
    assert "class 'always' is in every training clip" in said
    with pytest.raises(DataError, match="no clips to train on: the splits are validate"):
        run(open_data(folder).split("validate"), SETTINGS, tmp_path / "x", cache=tmp_path / "cache", fabric=fabric)


def test_the_fingerprint_of_data_sees_names_splits_and_labels(folder):
    data = open_data(folder)
    assert data_fingerprint(data) == data_fingerprint(open_data(folder))
    fewer = data.select([clip.filename for clip in data.clips[1:]])
    assert data_fingerprint(fewer) != data_fingerprint(data)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' own
def test_the_schedule_cuts_the_rate_and_ends_as_keras_does():
    """The counters of keras' callbacks, side by side."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = np.cumsum(rng.normal(0.001, 0.01, 60)).round(3)
        plateau = keras.callbacks.ReduceLROnPlateau(monitor="s", mode="max", factor=0.1, patience=3, min_lr=0)
        stop = keras.callbacks.EarlyStopping(monitor="s", mode="max", patience=7)
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(1e-3), "mse")
        for callback in (plateau, stop):
            callback.set_model(model)
            callback.on_train_begin()
        mine = Schedule(1e-3, plateau_epochs=3, plateau_factor=0.1, stop_epochs=7)
        for epoch, score in enumerate(scores):
            mine.is_best(float(score))
            for callback in (plateau, stop):
                callback.on_epoch_end(epoch, {"s": float(score)})
            assert mine.learning_rate == pytest.approx(float(model.optimizer.learning_rate.numpy()), rel=1e-4)
            assert mine.is_over == (stop.stopped_epoch > 0)
            if mine.is_over:
                break


def test_augmentation_depends_on_its_key_alone(bags):
    batch = next(bags[0].draw(1, 8, patch=2.0, seed=0))
    settings = Augmentation(mixup=0.5, band_mask=4, frame_mask=16)
    a, b, c = (augmented(batch, settings, key) for key in ((0, 1, 2), (0, 1, 2), (0, 1, 3)))
    assert torch.equal(a.features, b.features)
    assert torch.equal(a.targets, b.targets)
    assert not torch.equal(a.features, c.features)
    assert (a.targets >= batch.targets).all()
    assert augmented(batch, Augmentation(), (0,)) is batch


def test_augmented_training_resumes_too(bags, fabric, tmp_path):
    settings = SETTINGS.changed({"mixup": "0.5", "band_mask": "4", "frame_mask": "16", "epochs": "2"})
    train(*bags, settings, tmp_path / "whole", fabric=fabric)
    train(*bags, settings.changed({"epochs": "1"}), tmp_path / "parts", fabric=fabric)
    train(*bags, settings, tmp_path / "parts", fabric=fabric, resume=True)
    assert_same(load_file(tmp_path / "whole" / "last.ckpt"), load_file(tmp_path / "parts" / "last.ckpt"))


def test_training_draws_compressed_variants(folder, fabric, tmp_path):
    settings = SETTINGS.changed({"augment.compression": '["speech"]', "epochs": "1", "steps": "1"})
    assert settings.to_dict()["augment"]["compression"] == ["speech"]
    run(open_data(folder), settings, tmp_path / "run", cache=tmp_path / "cache", fabric=fabric)
    stores = {path.name.split("-")[0]: FeatureStore(path) for path in (tmp_path / "cache").iterdir()}
    assert (stores["train"].variants, stores["validate"].variants) == (2, 1)
    plain, compressed = stores["train"][stores["train"].filenames[0]]
    assert np.abs(plain - compressed).max() > 1
    with pytest.raises(ArgumentError, match=r"augment: compression='raido' is not known; did you mean 'radio'\?"):
        SETTINGS.changed({"augment.compression": '["raido"]'})


def test_training_draws_variants_of_shifted_sound(folder, fabric, tmp_path):
    for way in ("sound", "filters"):
        settings = SETTINGS.changed({"semitones": "[2]", "pitch_shift": way, "epochs": "1", "steps": "1"})
        run(open_data(folder), settings, tmp_path / way, cache=tmp_path / "cache", fabric=fabric)
    stores = [FeatureStore(path) for path in (tmp_path / "cache").iterdir() if path.name.startswith("train")]
    assert len(stores) == 2  # one does not take the place of the other
    (a, b), (c, d) = (store[min(store.filenames)] for store in stores)
    assert np.array_equal(a, c)
    assert np.abs(b - d).max() > 0.1


def test_tensorboard_gets_the_same_numbers(bags, fabric, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(*bags, SETTINGS.changed({"tensorboard": "true", "epochs": "2"}), tmp_path, fabric=fabric)
    board = events.EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    lines = log_of(tmp_path)
    assert [s.value for s in board.Scalars("loss")] == pytest.approx([line["loss"] for line in lines])
    assert [s.value for s in board.Scalars("alpha/beep")] == pytest.approx([line["alpha"][0] for line in lines])


def test_patches_that_teach_nothing_are_named(folder, fabric, tmp_path):
    settings = SETTINGS.changed({"epochs": "1", "patch": "1"})
    report = run(open_data(folder), settings, tmp_path / "run", cache=tmp_path / "cache", fabric=fabric)
    assert re.search(
        r"\d+ clips with labels without times, longer than an excerpt of 1 s: .* --set patch=2", report.notes[1]
    )


def test_the_first_note_says_what_was_found_and_where_labels_come_from(folder, fabric, tmp_path):
    data = open_data(folder)
    settings = SETTINGS.changed({"epochs": "1", "steps": "1"})
    counts = [sum(clip.split == split for clip in data.clips) for split in ("train", "validate")]
    report = run(data, settings, tmp_path / "run", cache=tmp_path / "cache", fabric=fabric)
    assert report.notes[0] == (
        f"{len(data)} clips, 2 classes: {counts[0]} to train on, {counts[1]} to validate with; labels from labels.csv"
    )
    guessed = replace(
        data, origin="the names of folders", clips=(*data.clips[:-1], replace(data.clips[-1], split="test"))
    )
    report = run(guessed, settings, tmp_path / "guessed", cache=tmp_path / "cache", fabric=fabric)
    assert report.notes[0].endswith(", 1 to test with; labels from the names of folders")
    assert report.notes[1] == "labels are the names of folders: 2 classes (beep, rain)"
    held = replace(data, clips=(*data.clips[:-1], replace(data.clips[-1], split="verdicts")))
    report = run(held, settings, tmp_path / "held", cache=tmp_path / "cache", fabric=fabric)
    assert report.notes[0].endswith(", 1 of split verdicts; labels from labels.csv")


def test_an_interrupted_run_does_not_say_how_many_epochs_there_will_be(tmp_path):
    interrupted = Run(tmp_path, 10, 10, {"loss": 0.5}, "last", is_finished=False)
    assert str(interrupted).splitlines()[0] == "Last epoch: 10 (interrupted); validation loss 0.500"
    assert str(replace(interrupted, is_finished=True)).splitlines()[0] == "Last epoch: 10 of 10; validation loss 0.500"


def test_labels_beyond_the_end_are_counted(folder, fabric, tmp_path):
    data = open_data(folder)
    names = data.labels.filenames
    settings = SETTINGS.changed({"epochs": "1", "steps": "1"})

    def noted(*rows):
        labels = LabelTable([*data.labels, *rows], filenames=names, splits=data.labels.splits)
        out = tmp_path / f"run{len(rows)}"
        report = run(replace(data, labels=labels), settings, out, cache=tmp_path / "cache", fabric=fabric)
        return [note for note in report.notes if "beyond" in note]

    in_time = (names[0], 1.9, 2.9, "beep"), (names[2], 0, 1, "rain")
    assert noted(*in_time) == []
    late = (names[3], 40, 45, "beep"), (names[1], 1.5, 3.5, "beep"), (names[1], 2.1, 2.2, "beep")
    one = f"{names[3]} 40-45 s, which lasts 2 s"
    assert noted(*in_time, late[0]) == [f"1 label lies beyond the end of its recording: {one}"]
    two = f"{names[1]} 1.5-3.5 s, which lasts 2 s"  # training clips come first
    assert noted(*in_time, *late) == [f"3 labels lie beyond the end of their recording, the first: {two}"]


def test_labels_that_never_say_no_are_refused(folder, fabric, tmp_path):
    data = open_data(folder)
    settings = SETTINGS.changed({"epochs": "1", "steps": "1"})

    def noted(*rows, out):
        labels = LabelTable(
            [*data.labels, *rows], filenames=data.labels.filenames, splits=data.labels.splits, complete=False
        )
        places = {"out": tmp_path / out, "cache": tmp_path / "cache"}
        return run(replace(data, labels=labels), settings, **places, fabric=fabric).notes

    hint = "there are no negative examples; empty cells mean unknown; write 0 where the class is absent"
    with pytest.raises(DataError, match=f"every known label is positive: {hint}"):
        noted(out="refused")
    name = next(c.filename for c in data.split("train").clips if not data.labels.presence(c.filename, "rain"))
    notes = noted((name, None, None, "rain", False), out="some")
    assert f"class 'beep' is in every training clip: {hint}" in notes
    assert not any("'rain' is in every" in note for note in notes)
    assert f"class 'rain' is in every training clip: {hint}" in noted((name, 0.5, 1.0, "rain"), out="timed")


def test_one_class_is_enough(folder, fabric, tmp_path):
    data = open_data(folder)
    rows = [row for row in data.labels if row.label == "beep"]
    labels = LabelTable(rows, filenames=data.labels.filenames, splits=data.labels.splits)
    one = type(data)(data.clips, labels)
    report = run(one, SETTINGS.changed({"epochs": "1"}), tmp_path / "run", cache=tmp_path / "cache", fabric=fabric)
    assert report.is_finished
    assert load_detector(tmp_path / "run" / "model.safetensors").classes == ("beep",)


def test_a_run_goes_on_with_the_data_it_began_with(bags, fabric, tmp_path):
    settings = SETTINGS.changed({"epochs": "1", "steps": "2"})
    train(*bags, settings, tmp_path, fabric=fabric, provenance={"data": "these"})
    more = settings.changed({"epochs": "2"})
    with pytest.raises(ArgumentError, match="was started with other clips or labels"):
        train(*bags, more, tmp_path, fabric=fabric, resume=True, provenance={"data": "those"})
    assert train(*bags, more, tmp_path, fabric=fabric, resume=True, provenance={"data": "these"}).epochs == 2


def test_some_clips_teach_and_some_decide_whatever_their_names(folder):
    some = open_data(folder).split("train")
    clips = tuple(replace(some.clips[i], filename=name) for i, name in enumerate(("r1.wav", "r9.wav", "r22.wav")))
    labels = LabelTable([(clip.filename, None, None, "beep") for clip in clips])
    training, validation, notes = split_for_training(type(some)(clips, labels))  # all hash to those that decide
    assert [clip.filename for clip in training.clips] == ["r1.wav", "r9.wav"]
    assert [clip.filename for clip in validation.clips] == ["r22.wav"]
    assert "1 of 3 training clips" in notes[0]


def test_names_that_are_no_utf8_are_split_and_have_a_cache(folder):
    some = open_data(folder).split("train")
    clips = tuple(replace(some.clips[i], filename=name) for i, name in enumerate(("a\udcff.wav", "b.wav")))
    labels = LabelTable([(clip.filename, None, None, "beep") for clip in clips])
    training, validation, _ = split_for_training(type(some)(clips, labels))
    assert len(training) == len(validation) == 1
    assert default_cache("night\udcff") != default_cache("night\udcfe")
