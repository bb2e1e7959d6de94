"""The recipe `auto`: what it chooses for which data and machine, what it says, and that explicit wishes win."""

import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import earmark
from earmark import audio
from earmark.datasets import Collection, open_data, with_separator
from earmark.errors import GpuMemoryError
from earmark.settings import load_recipe
from earmark.training import choosing
from earmark.training.choosing import choose, estimate
from earmark.training.run import torch_threads
from earmark.training.steps import Step

CPU, GPU = torch.device("cpu"), torch.device("cuda")

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
def gpu(monkeypatch):
    """A GPU that nothing is computed on."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a large one")
    monkeypatch.setattr(choosing, "estimate", lambda *of: 60.0)


@pytest.fixture
def encoder(monkeypatch, tmp_path):
    """Weights that nobody reads."""
    monkeypatch.setattr(choosing, "find", lambda card: tmp_path)
    monkeypatch.setattr(choosing, "estimate", lambda *of: 60.0)


@pytest.fixture
def no_encoder(monkeypatch, tmp_path):
    monkeypatch.setenv("EARMARK_HOME", str(tmp_path / "home"))


def test_without_encoder_and_gpu_a_small_network(folder, no_encoder):
    choice = choose(open_data(folder), {}, CPU)
    assert choice.recipe == "small"
    assert "earmark encoders get mn04" in choice.reasons[0]
    assert 1.0 < choice.settings.training.patch <= 2.0
    assert choice.settings.features.scaling == "fixed"
    assert choice.settings.training.epochs == 100
    assert choose(open_data(folder), {"epochs": 7}, CPU).settings.training.epochs == 7


@pytest.mark.parametrize(("clips", "epochs"), [(1, 100), (200, 100), (400, 50), (1000, 30), (6000, 30)])
def test_a_small_network_passes_more_often_over_few_clips(clips, epochs):
    assert choosing._suited("small", clips, [10.0], 0, 60.0)["epochs"] == epochs


def test_on_a_gpu_the_recipe_best_with_fewer_steps_for_few_clips(folder, no_encoder, gpu):
    choice = choose(open_data(folder), {}, GPU)
    assert choice.recipe == "best"
    assert choice.settings.training.steps < load_recipe("best").training.steps
    assert choice.settings.training.rounds == 1
    assert choice.settings.features.scaling == "fixed"
    assert choose(open_data(folder), {"scaling": "clip"}, GPU).settings.features.scaling == "clip"
    assert choice.reasons[2].startswith("computed on a large one; ")
    strong = choose(open_data(folder), {"pool": "max", "supervision": "strong"}, GPU)
    assert strong.settings.training.rounds == 0


def test_with_the_encoder_a_head(folder, encoder, gpu, monkeypatch):
    monkeypatch.setattr(choosing, "FEW", 1)
    for device in (GPU, CPU):
        choice = choose(open_data(folder), {}, device)
        assert choice.recipe == "head"
        assert choice.settings.features.encoder == "mn04"
        assert choice.settings.pool == {"name": "linear"}
        assert (choice.settings.training.rounds, choice.settings.augment.mixtures) == (0, 0)


def test_few_classes_start_with_low_probabilities(folder, encoder, monkeypatch):
    monkeypatch.setattr(choosing, "FEW", 1)
    data = open_data(folder)
    assert choose(data, {"prior": 0.3}, CPU).settings.training.prior == 0.3
    for count, prior in ((1, 0.1), (3, 0.1), (4, 0.5)):
        more = tuple(f"class {k}" for k in range(count - len(data.classes)))
        changed = replace(data, labels=data.labels.replace(classes=(*data.classes, *more)))
        assert choose(changed, {}, CPU).settings.training.prior == prior


def test_a_named_encoder_has_the_choices_of_one_that_is_found(folder, encoder):
    found, named = (choose(open_data(folder), changes, CPU) for changes in ({}, {"encoder": "mn04"}))
    assert (named.recipe, named.settings) == (found.recipe, found.settings)
    assert named.reasons[0] == "recipe head: a small network on the encoder mn04"
    assert choose(open_data(folder), {"features.encoder": "tiny"}, CPU).settings.features.encoder == "tiny"


def test_train_with_an_encoder_and_no_recipe_suits_the_recordings(folder, no_encoder, tmp_path):
    notes = []
    settings = {"epochs": 1, "steps": 2}
    compute = earmark.api.Compute(cache=tmp_path / "cache")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    earmark.train(folder, tmp_path / "run", encoder="tiny", settings=settings, compute=compute, on_note=notes.append)
    assert notes[0].endswith("run already contains other files, which stay as they are: thesis.txt")
    assert notes[1] == "recipe head: a small network on the encoder tiny"
    options = load_recipe(str(tmp_path / "run" / "config.toml")).training
    assert 1.0 < options.patch <= 2.0
    assert options.folds == 3


def test_excerpts_are_shorter_where_the_encoder_is_trained(folder, encoder, monkeypatch):
    monkeypatch.setattr(choosing, "_durations", lambda data: [4000.0] * len(data))
    choice = choose(open_data(folder), {"encoder": "tiny", "train_encoder": True}, CPU)
    assert choice.settings.training.patch == 60


def test_on_a_gpu_many_clips_train_the_encoder_too(folder, encoder, gpu, monkeypatch):
    assert choose(open_data(folder), {}, GPU).recipe == "head"  # too few
    monkeypatch.setattr(choosing, "_MANY", 12)
    choice = choose(open_data(folder), {"epochs": 3}, GPU)
    assert choice.recipe == "best"
    assert choice.settings.features.encoder == "mn04"
    assert choice.settings.features.train_encoder
    assert choice.settings.network["name"] == "vgg-gru"
    assert choice.settings.training.epochs == 3
    assert "the encoder mn04, both trained" in choice.reasons[0]
    for changes in ({"encoder": "mn04"}, {"network": "linear"}, {"network.layers": 2}):  # the last for mlp
        other = choose(open_data(folder), changes, GPU)
        assert other.recipe == "head"
        assert not other.settings.features.train_encoder
    assert choose(open_data(folder), {}, CPU).recipe == "head"


def test_batches_fit_into_the_memory_of_the_gpu(folder, no_encoder, gpu, monkeypatch):
    def estimate_of(settings, clips, seconds, device):
        if settings.training.batch_size > 16:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return 60.0

    whole = choose(open_data(folder), {}, GPU).settings.training
    monkeypatch.setattr(choosing, "estimate", estimate_of)
    choice = choose(open_data(folder), {}, GPU)
    assert (whole.batch_size, choice.settings.training.batch_size) == (64, 16)
    assert choice.settings.training.steps == 4 * whole.steps
    assert choice.reasons[2] == "batches of 16 instead of 64 excerpts, since the GPU has too little memory for more"
    assert choose(open_data(folder), {"steps": 5}, GPU).settings.training.steps == 5
    with pytest.raises(
        GpuMemoryError, match=r"it was to train on batches of 32 excerpts of .* try --set batch_size=16"
    ):
        choose(open_data(folder), {"batch_size": 32}, GPU)


def test_training_beyond_the_memory_of_the_gpu_is_one_line(folder, tmp_path, monkeypatch):
    def step(*of):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(Step, "__call__", step)
    what = r"^the GPU does not have enough free memory; it was to train on batches of 4 excerpts of 1 s; try --set"
    with pytest.raises(GpuMemoryError, match=what):
        earmark.train(folder, tmp_path / "run", recipe="small", settings={**TINY, "patch": 1.0})


def test_settings_that_an_encoder_does_not_have_mean_another_recipe(folder, encoder):
    assert choose(open_data(folder), {"n_bands": 32}, CPU).recipe == "small"
    choice = choose(open_data(folder), {"n_bands": 32, "hidden": 8}, CPU)
    assert choice.recipe == "best"
    assert choice.reasons[0] == "recipe best: the only recipe with the given settings"


def test_steps_of_a_head(folder, encoder, monkeypatch):
    data = open_data(folder)
    for clips, steps in ((10, 6), (39, 6), (40, 25), (200, 25), (6000, 94)):
        monkeypatch.setattr(Collection, "__len__", lambda _, n=clips: n)
        options = choose(data, {}, CPU).settings.training
        assert (options.steps, options.epochs) == (steps, 20)


def test_a_head_on_few_clips_is_sharper_unless_a_pool_is_given(folder, encoder):
    settings = choose(open_data(folder), {}, CPU).settings
    assert settings.pool == {"name": "linear-cap", "min_active": 0.05, "alpha": 2.0}
    assert settings.training.prior == 0.1
    settings = choose(open_data(folder), {"pool": "max"}, CPU).settings
    assert settings.pool == {"name": "max"}
    assert settings.training.prior == 0.1


def test_excerpts_are_as_long_as_recordings_up_to_a_limit(folder, encoder, monkeypatch):
    monkeypatch.setattr(choosing, "_durations", lambda data: [50.0] * len(data))
    assert choose(open_data(folder), {}, CPU).settings.training.patch == 50
    monkeypatch.setattr(choosing, "_durations", lambda data: [4000.0] * len(data))
    choice = choose(open_data(folder), {}, CPU)
    assert choice.settings.training.patch == 300
    assert choice.reasons[1] == "excerpts of 300 s, parts of longer recordings"


def test_excerpts_of_long_recordings_count_with_their_own_length(folder, no_encoder):
    """As clips from verdicts are."""
    whole = open_data(folder)
    clips = tuple(replace(clip, sources=(replace(clip.sources[0], offset=0.5),)) for clip in whole.clips)
    choice = choose(replace(whole, clips=clips), {"epochs": 1, "folds": 0}, CPU)
    assert choice.settings.training.patch == 1.0
    assert choosing._durations(replace(whole, clips=clips)) == [0.5] * 12


def test_plain_train_says_what_it_chose_and_explicit_settings_win(folder, no_encoder, tmp_path):
    notes = []
    compute = earmark.api.Compute(cache=tmp_path / "cache")
    run = earmark.train(folder, tmp_path / "run", settings=TINY | {"patch": 1.5}, compute=compute, on_note=notes.append)
    assert run.is_finished
    assert notes[0].startswith("recipe small: ")
    assert notes[1] == "excerpts of 1.5 s, parts of longer recordings"
    assert notes[2].startswith("computed on ")
    assert "expected to take" in notes[2]
    settings = load_recipe(str(tmp_path / "run" / "config.toml"))
    assert (settings.training.patch, settings.training.epochs, settings.pool["name"]) == (1.5, 1, "linear")


def test_a_folder_may_be_called_like_a_recipe(folder, no_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("auto", "quick"):
        (tmp_path / name).mkdir()
        compute = earmark.api.Compute(cache=tmp_path / "cache")
        run = earmark.train(
            folder, tmp_path / f"run-{name}", recipe=name, settings={**TINY, "steps": 1}, compute=compute
        )
        assert run.is_finished


def test_a_named_encoder_rejects_settings_that_it_does_not_have(folder, tmp_path):
    with pytest.raises(earmark.errors.ArgumentError, match="n_bands"):
        earmark.train(folder, tmp_path / "run", encoder="tiny", settings={"n_bands": 32})


def test_an_estimate_for_an_encoder(no_encoder):
    head = load_recipe("head").changed({"encoder": "tiny", "patch": 2.0, "mixtures": 0})
    assert 0 < estimate(head, 64, 640.0, CPU) < 3600
    assert 0 < estimate(head.changed({"train_encoder": True}), 64, 640.0, CPU) < 3600


def test_an_estimate_for_embeddings_in_files_is_that_of_training(no_encoder, tmp_path):
    np.savez(tmp_path / "clip.npz", times=0.5 * np.arange(10), embeddings=np.zeros((10, 8), np.float32))
    files = load_recipe("head").changed({"encoder": f"files:{tmp_path}"})
    assert choosing._seconds_of_features(files.features) == 0
    assert 0 < estimate(files, 64, 640.0, CPU) < 3600


def test_an_estimate_leaves_out_waiting(no_encoder, monkeypatch):
    def wait(*of):
        time.sleep(0.5)
        return compute(*of)

    settings = load_recipe("small").changed({**TINY, "patch": 1.0, "steps": 1})
    compute = choosing.bag_loss
    monkeypatch.setattr(choosing, "bag_loss", wait)
    assert choosing._seconds_of_step(settings, CPU) < 0.4


def test_an_estimate_counts_the_networks_that_will_be_trained(folder, no_encoder, monkeypatch):
    counted = []
    monkeypatch.setattr(choosing, "_seconds_of_step", lambda settings, device: 1.0)
    monkeypatch.setattr(choosing, "_seconds_of_features", lambda config: 0.0)
    monkeypatch.setattr(choosing, "estimate", lambda *of: counted.append(estimate(*of)) or 60.0)
    for changes in ({}, {"folds": 0}, {"teacher": "run"}, {"teacher": "run", "rounds": 1}, {"start": "m.safetensors"}):
        choose(open_data(folder), {**TINY, "epochs": 10, "steps": 1, **changes}, CPU)
    assert counted == pytest.approx([3 * 16, 16, 16, 16, 16])


def test_steps_are_measured_with_one_thread(no_encoder, monkeypatch):
    """Threads that wait for each other on a busy machine use processor time."""
    threads = []
    monkeypatch.setattr(choosing, "_seconds_of_step", lambda *of: threads.append(torch.get_num_threads()) or 10.0)
    monkeypatch.setattr(choosing, "_seconds_of_features", lambda *of: threads.append(torch.get_num_threads()) or 0.0)
    settings, seconds = load_recipe("small").changed(TINY), []
    for number in (1, 4):
        with torch_threads(number):
            seconds.append(estimate(settings, 64, 640.0, CPU))
            assert torch.get_num_threads() == number
    assert threads == [1, 1, 1, 1]
    assert seconds[0] / seconds[1] == pytest.approx(4**0.6)


def test_an_estimate_grows_with_the_work(no_encoder):
    settings = load_recipe("small").changed(TINY)
    times = [estimate(settings.changed({"epochs": n}), 64, 640.0, CPU) for n in (1, 1000)]
    assert 0 < times[0] < times[1]


def test_data_are_evaluated_with_the_separator_of_training(folder, no_encoder, tmp_path, recwarn):
    """Otherwise the labels are other ones, so splits differ, and clips seem to have been trained on."""
    root, lines = tmp_path / "both", (folder / "labels.csv").read_text().replace(",tone", ",tone;hum").splitlines()
    shutil.copytree(folder, root)
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    source = with_separator(str(root), ";")
    run = earmark.train(source, tmp_path / "run", recipe="small", settings={**TINY, "patch": 1.0, "steps": 1})
    plain, stated = (earmark.evaluate(run, data, split="all", out=tmp_path / "o") for data in (root, source))
    assert plain.scores["classes"] == ["hum", "tone"]
    assert plain.scores["data"] == stated.scores["data"] == source
    assert plain.scores["notes"] == stated.scores["notes"]
    assert plain.scores["static"] == stated.scores["static"]
