"""Training an encoder together with a head, with the small random encoder in place of a pretrained one."""

import os
import signal

import numpy as np
import pytest
import torch

import earmark as product
from earmark import encoders
from earmark.checkpoint import load_detector, read_model_info, read_tensors
from earmark.detector import Detector
from earmark.encoders import EncoderFeatures, load
from earmark.encoders.features import front_end, windows
from earmark.encoders.frontend import from_decibels, to_decibels
from earmark.encoders.mobilenet import embed_frames, folded
from earmark.encoders.tiny import TinyEncoder
from earmark.errors import ArgumentError, ModelFileError
from earmark.export import export_model, export_onnx
from earmark.fine_tuning import FusedEncoder, TunedEncoder, network_for
from earmark.inference.frozen import frozen
from earmark.inference.recordings import score_samples
from earmark.inference.torch_scorer import TorchScorer
from earmark.pooling import create_pool
from earmark.settings import load_recipe
from earmark.training import create_detector
from earmark.training.run import torch_threads, training_threads
from earmark.training.steps import make_optimizer

MLP = {"name": "mlp", "hidden": 8}
FUSED = {"name": "vgg-gru", "width": 0.125, "hidden": 8}
SHORT = {"epochs": 2, "steps": 3, "batch_size": 4, "mixtures": 0, "rounds": 0, "train_encoder": True, "mixup": 0.5}


@pytest.fixture(scope="module")
def compute(tmp_path_factory):
    return product.api.Compute(cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def run(recordings, compute, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return product.train(recordings, out, encoder="tiny", settings=SHORT, compute=compute)


def features():
    return EncoderFeatures.named("tiny", train_encoder=True)


def tuned():
    return network_for(features(), MLP, pretrained=True).eval()


def noise(seconds, seed=0):
    return (0.1 * np.random.default_rng(seed).standard_normal(round(seconds * 8000))).astype(np.float32)


def test_an_encoder_is_trained_with_all_threads():
    head = load_recipe("head").changed({"encoder": "tiny", "batch_size": 4, "patch": 2.0})
    with torch_threads(2):
        assert training_threads(head) == 1  # they would mostly wait for each other
        assert training_threads(head.changed({"train_encoder": True})) == 2


def test_decibels_are_those_of_energies():
    levels = (torch.log(torch.tensor([0.0, 1.0, 100.0]) + 1e-5) + 4.5) / 5
    torch.testing.assert_close(to_decibels(levels), torch.tensor([-50.0, 0.0, 20.0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(from_decibels(to_decibels(levels)), levels)


@pytest.mark.parametrize("seconds", [0.16, 3.0, 3.1, 10.24])
@torch.inference_mode()
def test_before_training_it_is_the_encoder_with_a_head(seconds):
    samples, network = noise(seconds), tuned()
    x = front_end(features())(torch.from_numpy(samples)[None])
    assert x.shape[2] == features().frames(len(samples))
    due = network.head(torch.from_numpy(load("tiny")(samples, 8000)).T[None])
    found = network(x)
    assert found.shape == due.shape
    torch.testing.assert_close(found[:, :-2], due[:, :-2], atol=2e-3, rtol=2e-3)  # the encoder cuts the rest at the end


@torch.inference_mode()
def test_long_excerpts_are_embedded_in_windows():
    network = tuned()
    x = 20 * torch.rand(1, 64, 200 * 16) - 30
    embedded = torch.cat(
        [
            embed_frames(network.encoder, from_decibels(x[:, :, 16 * start : 16 * (start + 64)]))[
                :, a - start : b - start
            ]
            for start, a, b in windows(200, 64)
        ],
        1,
    )
    torch.testing.assert_close(network(x), network.head(embedded.transpose(1, 2)))


@torch.inference_mode()
def test_padding_is_invisible():
    network = tuned()
    x = 20 * torch.rand(3, 64, 320) - 30
    lengths = torch.tensor([320, 100, 16])
    mask = torch.arange(320) < lengths[:, None]
    y = network(torch.where(mask[:, None], x, torch.nan), mask)
    for bag, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[bag, : n // 16], network(x[bag : bag + 1, :, :n])[0], atol=1e-5, rtol=1e-5)


def test_the_encoder_learns_at_a_small_rate(run):
    weights = load_detector(run.path / "model.safetensors").network.encoder.state_dict()
    before = folded(load("tiny").module().network).state_dict()
    assert [name for name, value in weights.items() if not torch.equal(value, before[name])]
    settings = load_recipe("head").changed({"encoder": "tiny", "train_encoder": True, "encoder_rate": 0.2})
    detector = create_detector(settings, ("a", "b"))
    groups = make_optimizer(detector, settings.training, torch.device("cpu")).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert {rates[id(p)] for p in detector.network.encoder.parameters()} == {0.2 * settings.training.learning_rate}
    assert {rates[id(p)] for p in detector.network.head.parameters()} == {settings.training.learning_rate}
    assert len(rates) == len(list(detector.parameters()))


def test_the_model_has_its_encoder(run, recordings, tmp_path, monkeypatch):
    about = read_model_info(run.path / "model.safetensors")
    assert about["features"] == features().to_dict()
    assert about["features"]["identity"] == load("tiny").fingerprint  # where training began

    def absent(self):
        raise ModelFileError("no weights here")

    monkeypatch.setattr(encoders.TinyEncoder, "__init__", absent)
    monkeypatch.setattr("earmark.encoders.features._provided", {})
    found = [list(product.load(run.path).detect([recordings / "20.wav"]))]
    export_model(run.path, tmp_path / "m.onnx")
    found.append(list(product.load(tmp_path / "m.onnx").detect([recordings / "20.wav"])))
    assert [row[:4] for row in found[0]] == [row[:4] for row in found[1]]


def test_an_interrupted_run_ends_with_the_same_bits(run, recordings, compute, tmp_path):
    options = {"encoder": "tiny", "settings": SHORT, "compute": compute}

    def interrupt(progress):
        if progress.stage == "training" and progress.done >= 1 and not sent:
            sent.append(progress.done)
            os.kill(os.getpid(), signal.SIGINT)

    sent = []
    with pytest.raises(KeyboardInterrupt):
        product.train(recordings, tmp_path / "cut", **options, on_progress=interrupt)
    product.train(recordings, tmp_path / "cut", **options, resume=True)
    first, second = (read_tensors(p / "model.safetensors", "model")[0] for p in (run.path, tmp_path / "cut"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_head_teaches_an_encoder(recordings, compute, tmp_path):
    """Teacher and student have different features of the same sound."""
    options = {"encoder": "tiny", "compute": compute}
    product.train(recordings, tmp_path / "head", settings={**SHORT, "train_encoder": False, "mixup": 0.0}, **options)
    teacher = {"teacher": str(tmp_path / "head"), "rounds": 1}
    student = product.train(recordings, tmp_path / "run", settings={**SHORT, **teacher}, **options)
    assert student.is_finished
    assert isinstance(load_detector(student.path / "model.safetensors").network, TunedEncoder)


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("quick", {"train_encoder": True}, "train_encoder: expected features of an encoder, such as --encoder mn04"),
        ("head", {"encoder": "yamnet", "train_encoder": True}, "expected an encoder that is a network of PyTorch"),
        ("head", {"encoder": "tiny", "train_encoder": 3}, "train_encoder: .* got 3"),
        ("head", {"encoder_rate": -1}, "encoder_rate"),
    ],
)
def test_settings_that_mean_nothing_are_refused(recipe, changes, message):
    with pytest.raises(ArgumentError, match=message):
        load_recipe(recipe).changed(changes)


def test_some_networks_fit_an_encoder():
    with pytest.raises(ArgumentError, match="expected linear, mlp, gru or vgg-gru with an encoder, got 'cnn'"):
        network_for(features(), {"name": "cnn"})
    with pytest.raises(ArgumentError, match="reduction: expected 1, 2, 4 or 8 with an encoder, got 16"):
        network_for(features(), {"name": "vgg-gru", "reduction": 16})


def fused(**options):
    torch.manual_seed(0)
    return network_for(features(), {**FUSED, **options}, pretrained=True).eval()


@pytest.mark.parametrize("frames", [8, 16, 23, 100, 64 * 16, 1500])
@torch.inference_mode()
def test_convolutions_and_the_encoder_have_the_same_time(frames):
    """The recurrent layer gets for each output frame the encoder's column around it, in windows if necessary."""
    network, seen = fused(), []
    network.head.register_forward_hook(lambda module, args, output: seen.append(args))
    x = 20 * torch.rand(1, 64, frames) - 30
    assert network(x).shape == (1, frames // 8, network.embedding)
    halved, mask, beside = seen[0]
    assert mask is None
    torch.testing.assert_close(halved[0], x[0, :, : frames // 2 * 2].unflatten(1, (-1, 2)).mean(-1))
    columns = -(-frames // 16)
    filled = torch.cat([x, x[:, :, -1:].expand(-1, -1, 16 * columns - frames)], 2)
    due = network.beside(network._embed(filled).transpose(1, 2))
    torch.testing.assert_close(beside[0], due[0, torch.arange(frames // 8) // 2])


@torch.inference_mode()
def test_padding_is_invisible_beside_an_encoder():
    network = fused()
    lengths = torch.tensor([320, 109, 104, 30, 24, 8])
    x = 20 * torch.rand(len(lengths), 64, 320) - 30
    mask = torch.arange(320) < lengths[:, None]
    y = network(torch.where(mask[:, None], x, torch.nan), mask)
    assert y.shape == (len(lengths), 40, network.embedding)
    for bag, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[bag, : n // 8], network(x[bag : bag + 1, :, :n])[0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("options", [MLP, FUSED], ids=["mlp", "vgg-gru"])
@torch.inference_mode()
def test_a_frozen_encoder_is_the_same_function(options):
    torch.manual_seed(0)
    network = network_for(features(), options, pretrained=True).eval().double()
    x = 20 * torch.rand(2, 64, 80, dtype=torch.float64) - 30
    torch.testing.assert_close(frozen(network)(x), network(x))


@pytest.mark.parametrize("options", [MLP, FUSED], ids=["mlp", "vgg-gru"])
@pytest.mark.parametrize("samples", [1, 79, 400, 1280])
def test_a_recording_shorter_than_an_output_frame_has_one(options, samples):
    network = network_for(features(), options)
    detector = Detector(["a", "b"], features(), network, create_pool("mean", 2))
    scorer = TorchScorer(detector.eval(), window=10.0, device="cpu")
    found = np.concatenate(list(score_samples(scorer, noise(1)[:samples])))
    assert len(found) == max(1, samples // (features().hop_samples * network.reduction))
    assert np.isfinite(found).all()


def test_convolutions_are_trained_next_to_an_encoder_that_stays(recordings, compute, tmp_path):
    settings = {**SHORT, "network": "vgg-gru", "width": 0.125, "hidden": 8, "encoder_rate": 0, "semitones": [1]}
    run = product.train(recordings, tmp_path / "run", encoder="tiny", settings=settings, compute=compute)
    network = load_detector(run.path / "model.safetensors").network
    assert isinstance(network, FusedEncoder)
    before = folded(load("tiny").module().network).state_dict()
    assert all(torch.equal(value, before[name]) for name, value in network.encoder.state_dict().items())
    found = [list(product.load(run.path).detect([recordings / "20.wav"]))]
    export_model(run.path, tmp_path / "m.onnx")
    found.append(list(product.load(tmp_path / "m.onnx").detect([recordings / "20.wav"])))
    assert [row[:4] for row in found[0]] == [row[:4] for row in found[1]]


def test_convolutions_with_a_fine_resolution_are_exported(tmp_path):
    network = network_for(features(), {**FUSED, "reduction": 1})
    export_onnx(Detector(["a", "b"], features(), network, create_pool("mean", 2)), tmp_path / "m.onnx")


@torch.inference_mode()
def test_a_shift_of_pitch_moves_the_bands():
    """A tone shifted by an octave looks like the tone an octave above."""
    time = torch.arange(16000) / 8000
    low, high = (0.3 * torch.sin(2 * torch.pi * f * time)[None] for f in (500.0, 1000.0))
    transform = front_end(features())
    plain, shifted = transform(low, semitones=[0.0, 12.0])[0]
    torch.testing.assert_close(plain, transform(low)[0])
    assert (shifted.argmax(0) == transform(high)[0].argmax(0))[4:-4].all()
    assert not (shifted.argmax(0) == plain.argmax(0)).any()


def test_settings_keep_the_encoder():
    settings = load_recipe("head").changed({"encoder": "tiny"}).changed({"train_encoder": True})
    assert settings.features == EncoderFeatures.of(TinyEncoder(), train_encoder=True)
    assert settings.changed({"epochs": 3}).features == settings.features
    assert settings.changed({"train_encoder": False}).features == EncoderFeatures.of(TinyEncoder())


def test_another_geometry_is_refused():
    with pytest.raises(ArgumentError, match="expected the geometry of the front end of 'tiny'"):
        EncoderFeatures(**{**features().to_dict(), "dimension": 48})
