"""Detectors on an encoder, from features to events, with the small random encoder in place of a pretrained one."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import earmark as product
from earmark import audio, encoders
from earmark.bags import build_store
from earmark.checkpoint import load_detector, read_model_info, read_tensors
from earmark.datasets import open_data
from earmark.detection.job import JobOptions, run_job
from earmark.encoders import CallableEncoder, Card, EncoderFeatures, frontend, load, mn04, tiny
from earmark.encoders.features import TRUSTED, embed_bags, front_end
from earmark.errors import ArgumentError, DataError, ModelFileError
from earmark.events import Decoder
from earmark.export import _ProductFrontEnd, export_model
from earmark.formats import read_labels
from earmark.inference.onnx_scorer import OnnxScorer
from earmark.inference.recordings import score_blocks, score_recording, score_samples
from earmark.inference.torch_scorer import load_scorer
from earmark.settings import load_recipe
from earmark.training.loop import TrainingInterrupted
from earmark.training.memory import one_cycle, read_log

SHORT = {"epochs": 2, "steps": 4, "batch_size": 4, "mixtures": 6}


@pytest.fixture(scope="module")
def run(recordings, tmp_path_factory):
    """A run on the encoder `tiny`."""
    out = tmp_path_factory.mktemp("runs") / "run"
    compute = product.api.Compute(cache=out.parent / "cache")
    return product.train(recordings, out, recipe="head", encoder="tiny", settings=SHORT, compute=compute)


def noise(seconds, seed=0):
    return (0.1 * np.random.default_rng(seed).standard_normal(round(seconds * 8000))).astype(np.float32)


def test_a_run_records_its_encoder(run):
    about = read_model_info(run.path / "model.safetensors")
    assert about["features"] == EncoderFeatures.of(load("tiny")).to_dict()
    assert about["network"]["name"] == "mlp"
    assert about["provenance"]["training_clips"] == 12  # not the mixtures
    assert run.best_epoch == run.epochs == 2  # the last


def test_evaluating_and_detecting_give_the_same_events(run, recordings, tmp_path):
    product.evaluate(run, recordings, out=tmp_path / "e")
    saved = read_labels(tmp_path / "e" / "events.tsv")
    names = [clip.filename for clip in open_data(str(recordings)).split("test").clips]
    found = product.load(run.path).detect([recordings / name for name in names])
    assert [row[:4] for row in saved] == [(Path(row.filename).name, *row[1:4]) for row in found]
    assert len(saved) > 0


@pytest.mark.parametrize("seconds", [0.05, 0.16, 3.0, 10.24, 10.4, 15.0, 40.0])
def test_features_of_any_length_are_those_of_detection(run, seconds, tmp_path):
    """In the store, in memory, and in a recording that arrives in blocks: the same windows."""
    samples = noise(seconds)
    detector, scorer = load_detector(run.path / "model.safetensors"), load_scorer(run.path, device="cpu")
    x = front_end(detector.features)(torch.from_numpy(samples)[None])
    with torch.inference_mode():
        due = detector(x).dynamic[0].numpy()
    audio.write(tmp_path / "a.wav", samples, 8000, subtype="FLOAT")
    for block in (1.0, 7.3, 100.0):
        found = np.concatenate(list(score_recording(scorer, tmp_path / "a.wav", block=block)))
        np.testing.assert_allclose(found, due, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(list(score_samples(scorer, samples))), due, atol=1e-6)
    pieces = [samples[k : k + 3001] for k in range(0, len(samples), 3001)]
    np.testing.assert_allclose(np.concatenate(list(score_blocks(scorer, pieces))), due, atol=1e-6)


def test_long_recordings_keep_the_middle_of_windows():
    """Frame by frame: the window that keeps it, embedded alone."""
    encoder, samples = load("tiny"), noise(30, seed=1)
    hop, size = encoder.card.hop_samples, 64
    found, frames = encoder(samples, encoder.card.rate), len(samples) // encoder.card.hop_samples
    starts = [0, 48, 96, frames - size]
    windows = [encoder.embed(samples[s * hop : (s + size) * hop]) for s in starts]
    for frame in range(frames):
        kept = 0 if frame < 56 else 1 if frame < 104 else 2 if frame < min(152, frames - size + 8) else 3
        np.testing.assert_array_equal(found[frame], windows[kept][frame - starts[kept]])


def test_features_are_computed_once(recordings, tmp_path, monkeypatch):
    config = EncoderFeatures.of(load("tiny"))
    clips = open_data(str(recordings)).clips[:3]
    store = build_store(tmp_path, clips, config)
    content = (tmp_path / "features.bin").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(encoders.Encoder, "embed", None)
        build_store(tmp_path, clips, config)
    assert (tmp_path / "features.bin").read_bytes() == content
    x = front_end(config)(torch.from_numpy(clips[0].read(config.rate))[None])[0].T.numpy()
    np.testing.assert_allclose(store[clips[0].filename][0], x, atol=2e-3 * np.abs(x).max())  # float16


def test_pitch_is_not_shifted_for_an_encoder(recordings, tmp_path):
    with pytest.raises(ArgumentError, match="semitones: an encoder does not support pitch shifts"):
        product.train(recordings, tmp_path / "r", encoder="tiny", settings={**SHORT, "semitones": [1.0]})


def test_other_weights_are_refused(run, monkeypatch):
    monkeypatch.setattr(encoders.TinyEncoder, "version", encoders.TinyEncoder.version + 1)
    monkeypatch.setattr("earmark.encoders.features._provided", {})
    with pytest.raises(
        ModelFileError, match=r"encoder 'tiny': expected the weights with fingerprint .*, as in training"
    ):
        product.load(run.path)


def test_recipe_head_has_the_settings_of_the_paper_s_data_flow():
    settings = load_recipe("head")
    assert settings.features == EncoderFeatures.named("mn04")  # without its weights
    assert load_recipe("paper").changed({"encoder": "tiny"}).features.n_bands == 64
    again = settings.from_dict(settings.to_dict())
    assert again == settings


@pytest.fixture
def own_encoder(monkeypatch):
    """An encoder of the user's own, that a model file cannot create."""
    monkeypatch.setattr("earmark.encoders.features._provided", {})
    card = Card(
        name="python:mine:encode", rate=8000, window_samples=80000, hop_samples=800, dimension=2, licence="mine"
    )
    return CallableEncoder(lambda x: np.stack([x.reshape(-1, 800).std(1), x.reshape(-1, 800).max(1)], 1), card)


def test_a_callable_is_provided_by_its_user(own_encoder, recordings, tmp_path, monkeypatch):
    encoders.provide(own_encoder)
    name = own_encoder.card.name
    run = product.train(recordings, tmp_path / "r", recipe="head", settings={**SHORT, "encoder": name})
    assert product.load(run.path).detect(recordings / "00.wav").classes == ("click", "hum")
    monkeypatch.setattr("earmark.encoders.features._provided", {})
    with pytest.raises(
        ArgumentError, match=f"encoder '{name}' runs Python code; if you trust it, set {TRUSTED}={name}"
    ):
        product.load(run.path)


def test_a_function_of_a_module_is_found_by_its_name(recordings, tmp_path, monkeypatch):
    monkeypatch.setattr("earmark.encoders.features._provided", {})
    (tmp_path / "own_module.py").write_text(
        "from earmark.encoders import Card\n"
        "def level(x):\n"
        "    return (x[: len(x) // 800 * 800].reshape(-1, 800) ** 2).mean(1, keepdims=True)\n"
        "level.card = Card('level', rate=8000, window_samples=80000, hop_samples=800, dimension=1, licence='MIT')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = "python:own_module:level"
    run = product.train(recordings, tmp_path / "r", recipe="head", encoder=name, settings=SHORT)
    assert product.load(run).scorer.detector.features.encoder == name


@pytest.mark.parametrize("by_name", [False, True])
def test_an_encoder_can_be_passed_to_train(by_name, own_encoder, recordings, tmp_path):
    encoder = encoders.provide(own_encoder).card.name if by_name else own_encoder
    run = product.train(recordings, tmp_path / "r", recipe="head", encoder=encoder, settings=SHORT)
    assert product.load(run).scorer.detector.features.encoder == own_encoder.card.name


def test_a_recipe_imports_nothing(tmp_path, recordings, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[features]\nencoder = "hear:evil"\n')
    with pytest.raises(ArgumentError, match="encoder 'hear:evil' runs Python code"):
        product.train(recordings, tmp_path / "r", recipe=recipe)


def test_the_command_trains_on_an_encoder(earmark, recordings, tmp_path, monkeypatch):
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    changes = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
    code, out, err = earmark("train", recordings, "--out", tmp_path / "r", "--encoder", "tiny", *changes, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["best_epoch"] == 2
    code, _, err = earmark("train", recordings, "--out", tmp_path / "r2", "--encoder", "mn4", *changes)
    assert (code, err.splitlines()[0].split("?")[0]) == (2, "earmark: encoder='mn4' is not known; did you mean 'mn04'")
    monkeypatch.setenv("EARMARK_HOME", str(tmp_path / "home"))
    code, _, err = earmark("train", recordings, "--out", tmp_path / "r2", "--encoder", "mn04", *changes)
    assert code == 2
    assert "its weights are not on this machine; download them with: earmark encoders get mn04" in err
    assert not Path(tmp_path / "r2" / "last.ckpt").exists()


def test_mixtures_of_an_unreadable_clip_are_left_out_without_being_counted(recordings, tmp_path):
    folder = tmp_path / "recordings"
    shutil.copytree(recordings, folder)
    (folder / "03.wav").write_bytes(b"RIFF")
    compute = product.api.Compute(cache=tmp_path / "cache")
    run = product.train(folder, tmp_path / "r", encoder="tiny", settings={**SHORT, "mixtures": 40}, compute=compute)
    (note,) = [note for note in run.notes if "could not be read" in note]
    assert note.startswith("1 clip could not be read and will not be used: ")
    assert read_model_info(run.path / "model.safetensors")["provenance"]["training_clips"] == 11


def test_an_interrupted_run_ends_with_the_same_bits(recordings, tmp_path):
    """Also with a one-cycle learning rate, weight decay and dropout."""
    settings = {**SHORT, "epochs": 4, "save_minutes": 0}
    options = {"encoder": "tiny", "settings": settings, "compute": product.api.Compute(cache=tmp_path / "cache")}
    whole = product.train(recordings, tmp_path / "whole", **options)

    def interrupt(progress):
        if progress.stage.startswith("training") and progress.done >= 1.5 and not sent:
            sent.append(progress.done)
            os.kill(os.getpid(), signal.SIGINT)

    sent = []
    with pytest.raises(KeyboardInterrupt, match=r"resume=True continues the run in .*parts$") as stop:
        product.train(recordings, tmp_path / "parts", **options, on_progress=interrupt)
    assert sent
    assert isinstance(stop.value, TrainingInterrupted)
    assert (stop.value.run.path, stop.value.run.is_finished) == (tmp_path / "parts", False)
    again = product.train(recordings, tmp_path / "parts", **options, resume=True)
    assert again.is_finished
    for name, kind in (("model.safetensors", "model"), ("last.ckpt", "training state")):
        one, two = (read_tensors(run.path / name, kind)[0] for run in (whole, again))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)
    with pytest.raises(ArgumentError, match=r"was started with training\.epochs = 4, got 6"):
        product.train(recordings, tmp_path / "parts", **{**options, "settings": {**settings, "epochs": 6}}, resume=True)


def test_the_learning_rate_rises_once_and_falls_to_nothing(run):
    """The log has the rate of the last step of each epoch."""
    steps, rates = 4, [line.learning_rate for line in read_log(run.path / "log.jsonl")]
    due = [3e-4 * one_cycle((epoch * steps - 1) / (2 * steps)) for epoch in (1, 2)]
    assert rates == pytest.approx(due)


def test_a_pass_over_all_clips_is_an_epoch(recordings, tmp_path):
    settings = {**SHORT, "steps": 0, "epochs": 1, "mixtures": 7}
    compute = product.api.Compute(cache=tmp_path / "cache")
    run = product.train(recordings, tmp_path / "r", encoder="tiny", settings=settings, compute=compute)
    assert "steps = 5\n" in (run.path / "config.toml").read_text()  # 12 clips and 7 mixtures in batches of 4


def test_nothing_is_held_out_where_nothing_is_decided_by_it(recordings, tmp_path):
    data = open_data(str(recordings)).split("train")
    compute = product.api.Compute(cache=tmp_path / "cache")
    run = product.train(data, tmp_path / "r", recipe="head", encoder="tiny", settings=SHORT, compute=compute)
    assert run.notes[0].startswith("12 clips, 2 classes: 12 to train on; labels from ")
    assert "validation scores are those of the training clips" in run.notes[1]


@pytest.fixture(scope="module")
def exported(run):
    path = run.path.with_name("model.onnx")
    assert export_model(run.path, path) < 1e-4
    return path


def test_an_exported_model_finds_the_same_events(run, exported, tmp_path):
    """Encoder and head in one file: the same windows, without the encoder itself."""
    sound = np.concatenate([noise(0.05), 0.3 * np.sin(np.arange(100000) * 2.0), noise(13)]).astype(np.float32)
    audio.write(tmp_path / "a.wav", sound, 8000)
    ours, theirs = (product.load(path) for path in (run.path, exported))
    one, two = (detector.detect(tmp_path / "a.wav", decoder=Decoder(threshold=0.4)) for detector in (ours, theirs))
    assert [row[:4] for row in one] == [row[:4] for row in two]
    assert len(one) > 0
    scorer, other = ours.scorer, theirs.scorer
    names = ("rate", "hop_samples", "n_fft", "padding", "reduction", "context", "window", "overlap", "fingerprint")
    assert [getattr(scorer, name) for name in names] == [getattr(other, name) for name in names]
    for n in (1, 1280, 1300, 81920, 83300, len(sound)):
        p, q = (np.concatenate(list(score_samples(each, sound[:n]))) for each in (scorer, other))
        np.testing.assert_allclose(p, q, rtol=0, atol=1e-4)


def test_an_exported_model_has_the_card_of_its_encoder(exported):
    about = OnnxScorer(exported).about
    assert about["encoder"]["name"] == about["features"]["encoder"] == "tiny"
    assert about["encoder"]["licence"] == "MIT"


@pytest.mark.parametrize("module", [tiny, mn04])
def test_the_front_end_in_products_is_the_front_end(module):
    c = module.FRONT_END
    samples = torch.from_numpy(noise(1.0).repeat(4)[None, : 16 * c.hop_samples])
    torch.testing.assert_close(
        _ProductFrontEnd(c, c.hop_samples)(samples), frontend.FrontEnd(c)(samples), atol=1e-4, rtol=0
    )


def test_an_encoder_without_a_network_of_pytorch_is_not_exported(own_encoder, recordings, tmp_path):
    encoders.provide(own_encoder)
    settings = {**SHORT, "encoder": own_encoder.card.name, "mixtures": 0}
    run = product.train(recordings, tmp_path / "r", recipe="head", settings=settings)
    with pytest.raises(ArgumentError, match=r"a model with the encoder 'python:mine:encode' cannot be exported"):
        export_model(run.path, tmp_path / "a.onnx")


def test_an_interrupted_detection_ends_with_the_same_events(run, tmp_path):
    """Also with recordings longer than a window."""
    (tmp_path / "in").mkdir()
    for i, seconds in enumerate((1, 12, 27)):
        audio.write(tmp_path / "in" / f"{i}.wav", noise(seconds, seed=i), 8000)
    detector, options = product.load(run.path), JobOptions(decoder=Decoder(threshold=0.4))
    run_job(detector, [tmp_path / "in"], tmp_path / "whole", options)

    def interrupt(progress):
        if progress.detail.startswith("1 of "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(detector, [tmp_path / "in"], tmp_path / "parts", options, workers=1, on_progress=interrupt)
    run_job(detector, [tmp_path / "in"], tmp_path / "parts", options, workers=1)
    whole, parts = (read_labels(tmp_path / name / "events.csv") for name in ("whole", "parts"))
    assert list(whole) == list(parts)
    assert len(whole) > 0


def test_a_model_on_an_onnx_file_names_its_card(recordings, tmp_path, monkeypatch):
    """So that another process finds it."""
    embedding = onnx.helper.make_node("Reshape", ["samples", "shape"], ["frames"])
    value = onnx.helper.make_tensor_value_info
    ends = [value("samples", onnx.TensorProto.FLOAT, ["n"])], [value("frames", onnx.TensorProto.FLOAT, ["f", 800])]
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [-1, 800])
    graph = onnx.helper.make_graph([embedding], "g", *ends, [shape])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "e.onnx")
    card = 'name = "e"\nfile = "e.onnx"\nlicence = "MIT"\nrate = 8000\nwindow_samples = 8000\n'
    (tmp_path / "e.toml").write_text(card + "hop_samples = 800\ndimension = 800\n")
    name, settings = f"onnx:{tmp_path}/e.toml", {**SHORT, "mixtures": 0}
    run = product.train(recordings, tmp_path / "r", encoder=name, settings=settings)
    monkeypatch.setattr("earmark.encoders.features._provided", {})
    assert product.load(run.path).detect(recordings / "00.wav").classes == ("click", "hum")
    shutil.copytree(tmp_path, tmp_path.with_name("moved"))
    assert load(f"onnx:{tmp_path.with_name('moved')}/e.toml").fingerprint == load(name).fingerprint


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seconds", [0.05, 3.0, 10.3, 25.0])
def test_bags_on_a_device_have_the_embeddings_of_the_cpu(device, seconds):
    encoder = load("tiny")
    bags = np.stack([noise(seconds, seed) for seed in range(3)])
    found = embed_bags(encoder, torch.from_numpy(bags).to(device)).cpu().numpy()
    for bag, samples in zip(found, bags, strict=True):
        np.testing.assert_allclose(bag, encoder(samples, encoder.card.rate), atol=1e-4, rtol=1e-4)
    with pytest.raises(DataError, match="expected finite numbers"):
        embed_bags(encoder, torch.full((1, 8000), torch.nan, device=device))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_store_computed_on_a_gpu_is_that_of_the_cpu(recordings, tmp_path):
    clips = open_data(str(recordings)).clips
    features = EncoderFeatures.of(load("tiny"))
    here = build_store(tmp_path / "cpu", clips, features)
    there = build_store(tmp_path / "gpu", clips, features, device=torch.device("cuda"))
    for clip in clips:
        np.testing.assert_allclose(here[clip.filename], there[clip.filename], atol=2e-3, rtol=2e-3)
