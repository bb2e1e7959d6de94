"""The recipe `auto`: what it chooses for which data and machine, what it says, and that explicit wishes win."""

import numpy as np
import pytest

import earmark
from earmark import audio
from earmark.datasets import open_data
from earmark.settings import load_recipe
from earmark.training import choosing
from earmark.training.choosing import choose, estimate

RATE = 8000
TINY = {"rate": RATE, "n_fft": 256, "hop_samples": 128, "n_bands": 16, "width": 0.25, "epochs": 1, "batch_size": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve recordings of one to two seconds, half of them with a tone."""
    root, rng = tmp_path_factory.mktemp("recordings"), np.random.default_rng(3)
    lines = ["filename,label"]
    for i in range(12):
        sound = 0.05 * rng.standard_normal(RATE + 700 * i)
        if i % 2:
            sound[2000:5000] += 0.3 * np.sin(np.arange(3000))
        audio.write(root / f"r{i}.wav", sound.astype(np.float32), RATE)
        lines.append(f"r{i}.wav,{'tone' if i % 2 else ''}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def no_encoder(monkeypatch, tmp_path):
    monkeypatch.setenv("EARMARK_HOME", str(tmp_path / "home"))


def test_without_encoder_and_gpu_a_small_network(folder, no_encoder):
    choice = choose(open_data(folder), on_gpu=False)
    assert choice.recipe == "small"
    assert "earmark encoders get mn04" in choice.reasons[0]
    assert 1.0 < choice.changes["patch"] <= 2.0
    assert load_recipe(choice.recipe).changed(choice.changes).features.scaling == "fixed"


def test_on_a_gpu_the_recipe_best_with_fewer_steps_for_few_clips(folder, no_encoder):
    choice = choose(open_data(folder), on_gpu=True)
    settings = load_recipe(choice.recipe).changed(choice.changes)
    assert choice.recipe == "best"
    assert settings.training.steps < load_recipe("best").training.steps
    assert settings.training.rounds == 1


def test_with_the_encoder_a_head(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(choosing, "find", lambda card: tmp_path)
    for on_gpu in (True, False):
        choice = choose(open_data(folder), on_gpu=on_gpu)
        assert choice.recipe == "head"
        settings = load_recipe(choice.recipe).changed(choice.changes)
        assert settings.features.encoder == "mn04"
        assert settings.augment.mixtures <= 1000


def test_longer_recordings_mean_fewer_mixtures_and_epochs_of_a_head(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(choosing, "find", lambda card: tmp_path)
    monkeypatch.setattr(choosing, "_durations", lambda data: [50.0] * len(data))
    choice = choose(open_data(folder), on_gpu=False)
    assert choice.changes["mixtures"] == 200
    assert choice.changes["patch"] == 50
    monkeypatch.setattr(choosing, "_durations", lambda data: [4000.0] * len(data))
    choice = choose(open_data(folder), on_gpu=False)
    assert choice.changes["patch"] == 300
    assert choice.reasons[1] == "excerpts of 300 s, parts of longer recordings"


def test_plain_train_says_what_it_chose_and_explicit_settings_win(folder, no_encoder, tmp_path):
    notes = []
    compute = earmark.api.Compute(cache=tmp_path / "cache")
    run = earmark.train(folder, tmp_path / "run", settings=TINY | {"patch": 1.5}, compute=compute, on_note=notes.append)
    assert run.is_finished
    assert notes[0].startswith("recipe small: ")
    assert notes[2].startswith("computed on ")
    assert "expected to take" in notes[2]
    settings = load_recipe(str(tmp_path / "run" / "config.toml"))
    assert (settings.training.patch, settings.training.epochs, settings.pool["name"]) == (1.5, 1, "linear")


def test_strong_labels_leave_out_self_training(folder, no_encoder, tmp_path, monkeypatch):
    table = "filename,onset,offset,label\n" + "".join(f"r{i}.wav,0.25,0.6,tone\n" for i in range(1, 12, 2))
    for path in folder.glob("*.wav"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "labels.csv").write_text(table + "".join(f"r{i}.wav,,,\n" for i in range(0, 12, 2)))
    best = choose(open_data(tmp_path), on_gpu=True)
    monkeypatch.setattr("earmark.training.choosing.choose", lambda data, on_gpu: best)
    settings = TINY | {"steps": 2, "hidden": 4, "mixup": 0}
    run = earmark.train(
        tmp_path, tmp_path / "run", pool="strong", settings=settings, compute=earmark.api.Compute(cache=tmp_path / "c")
    )
    assert run.is_finished
    assert load_recipe(str(tmp_path / "run" / "config.toml")).training.rounds == 0


def test_an_estimate_grows_with_the_work(no_encoder):
    settings = load_recipe("small").changed(TINY)
    device = earmark.training.run.torch.device("cpu")
    times = [estimate(settings.changed({"epochs": n}), 64, 640.0, device) for n in (1, 1000)]
    assert 0 < times[0] < times[1]
