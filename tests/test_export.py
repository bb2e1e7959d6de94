"""Export: the ONNX file says what PyTorch says, alone and without PyTorch, and says clearly what it is not."""

import io
import json
import subprocess
import sys
import textwrap
from contextlib import redirect_stdout

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import earmark
from earmark import audio, export
from earmark.checkpoint import save_decoder, save_detector
from earmark.cli import app
from earmark.detection.detector import load
from earmark.detector import Detector
from earmark.errors import ArgumentError, DataError, MissingExtraError, ModelFileError
from earmark.events import Decoder
from earmark.export import export_onnx
from earmark.features import FeatureConfig, LogMel
from earmark.formats import read_labels
from earmark.inference.onnx_scorer import FORMAT, OnnxScorer, sealed
from earmark.inference.torch_scorer import TorchScorer, load_scorer
from earmark.networks import create_network
from earmark.pooling import create_pool

CLASSES = ("dog", "Schüsse, fern", "雨")
FIXED = FeatureConfig(rate=16000, n_fft=512, hop_samples=200, n_bands=32, scaling="fixed")
NETWORK = {"name": "cnn", "width": 0.1, "reduction": 4}
POOL = {"name": "rap", "alpha": 2.0}

BLOCKED = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "lightning_fabric", "triton"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, NoTorch())
"""


def make(network=NETWORK, pool=POOL, features=FIXED):
    """A detector that has heard noise, so that its probabilities are neither 0 nor 1."""
    network, pool = dict(network), dict(pool)
    detector = Detector(
        CLASSES,
        features,
        create_network(network.pop("name"), features.n_bands, norm_momentum=1.0, **network),
        create_pool(pool.pop("name"), len(CLASSES), **pool),
    )
    with torch.no_grad():
        detector.train()(LogMel(features)(noise((4, 16000))))
    return detector.eval()


def noise(shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    swelling = 10 ** torch.linspace(-2, 0, shape[-1])
    return 0.2 * swelling * torch.randn(shape, generator=g)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model file, its ONNX file, and what the command printed."""
    folder = tmp_path_factory.mktemp("export")
    torch.manual_seed(0)
    model = folder / "run" / "model.safetensors"
    model.parent.mkdir()
    save_detector(model, make(), network=NETWORK, pool=POOL, provenance={"patch": 2.5, "data": "noise"})
    save_decoder(model, Decoder(tuned_on="noise").to_dict())
    path = folder / "new" / "model.onnx"
    with redirect_stdout(io.StringIO()) as printed:
        app(["export", str(model.parent), "--out", str(path), "--json"], standalone_mode=False)
    return model, path, printed.getvalue()


def rewritten(exported, tmp_path, change):
    """The file with something else in its metadata, and the right digest."""
    model = onnx.load(exported[1])
    about = json.loads(model.metadata_props[0].value)
    change(about)
    del model.metadata_props[:]
    model.metadata_props.add(key="earmark", value=json.dumps(about))
    path = tmp_path / "changed.onnx"
    path.write_bytes(sealed(model.SerializeToString()))
    return path


def test_the_decoder_of_the_model_is_exported_too(exported, tmp_path):
    model, path, _ = exported
    assert earmark.load(path).decoder == earmark.load(model).decoder == Decoder(tuned_on="noise")
    changed = rewritten(exported, tmp_path, lambda about: about.update(decoder={"threshold": 3}))
    with pytest.raises(ModelFileError, match=r"changed.onnx: decoder: threshold: expected a value in \[0, 1\]"):
        earmark.load(changed)


def test_command_tells_size_and_difference(exported):
    model, path, printed = exported
    told = json.loads(printed)
    assert told["model"] == str(model.parent)
    assert told["out"] == str(path)
    assert told["bytes"] == path.stat().st_size
    assert 0 <= told["difference"] < 1e-5
    assert [p.name for p in path.parent.glob("[!.]*")] == ["model.onnx"]


@pytest.mark.filterwarnings("ignore:Glyph")  # in figures, where no font has one of the labels
def test_evaluate_gives_the_same_probabilities(exported, tmp_path):
    """Through the whole path: clips of several rates and lengths, shorter and longer than the model's window."""
    clips, rows = tmp_path / "clips", ["filename\tonset\toffset\tlabel\tsplit"]
    clips.mkdir()
    for i, (rate, seconds) in enumerate([(16000, 0.9), (44100, 2.5), (8000, 7.3)]):
        audio.write(clips / f"{i}.wav", noise((round(rate * seconds),), seed=i).numpy(), rate)
        rows += [f"{i}.wav\t0.1\t0.6\t{label}\ttest" for label in CLASSES]
    (clips / "labels.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    ours, theirs = (earmark.evaluate(path, clips, out=tmp_path / path.suffix).probabilities() for path in exported[:2])
    assert ours.keys() == theirs.keys() == {"0.wav", "1.wav", "2.wav"}
    for name, scores in ours.items():
        np.testing.assert_allclose(theirs[name].p, scores.p, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("bags", "samples"), [(1, 600), (1, 601), (2, 4000), (5, 16001), (1, 80000)])
def test_onnxruntime_and_pytorch_agree(exported, bags, samples):
    session = onnxruntime.InferenceSession(exported[1])
    torch.manual_seed(0)
    x = noise((bags, samples), seed=1)
    dynamic, static = session.run(None, {"samples": x.numpy()})
    with torch.inference_mode():
        due = make()(LogMel(FIXED)(x))
    np.testing.assert_allclose(dynamic, due.dynamic, atol=2e-5)
    np.testing.assert_allclose(static, due.static, atol=2e-5)
    assert np.ptp(dynamic) > 0.01


def test_a_recurrent_network_with_features_of_clips_is_exported_too(tmp_path):
    features = FeatureConfig(rate=16000, n_fft=400, hop_samples=160, n_bands=32, pad_mode="reflect", power=1.0)
    detector = make(
        {"name": "crnn", "width": 0.1, "hidden": 4, "layers": 1, "reduction": 2}, {"name": "top-k"}, features
    )
    detector.train()
    assert export_onnx(detector, tmp_path / "a.onnx") < 1e-5
    assert detector.training  # as it was
    scorer = OnnxScorer(tmp_path / "a.onnx")
    assert (scorer.context, scorer.window, scorer.padding) == (None, 10.0, 200)
    assert len(scorer.fingerprint) == 16
    x = noise((9000,)).numpy()
    np.testing.assert_allclose(scorer.score(x), TorchScorer(detector, device="cpu").score(x), atol=1e-5)


def test_adaptive_linear_soft_max_is_exported_with_its_bound(tmp_path):
    pool = create_pool("linear-cap", 3, alpha=[0.0, 1.0, 9.0], min_active=0.02).eval()
    with export._quiet(), torch.no_grad():
        torch.onnx.export(pool, (torch.rand(3, 9, 3),), tmp_path / "a.onnx", dynamo=True, verbose=False)
    p = torch.rand(3, 9, 3, generator=torch.Generator().manual_seed(0))
    p[0], p[1, 2:] = p[0].round(), 0.0
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    (P,) = session.run(None, {session.get_inputs()[0].name: p.numpy()})
    np.testing.assert_allclose(P, pool(p).detach(), atol=2e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scaling": "fixed"},
        {"pad_mode": "reflect"},
        {"power": 1.0, "window": "hamming", "win_samples": 1500},
        {"rate": 16000, "n_fft": 1000, "hop_samples": 300, "n_bands": 40},
        {"rate": 16000, "n_fft": 997, "hop_samples": 256, "n_bands": 40, "center": False},
        {"n_fft": 2047, "n_bands": 64, "fmin": 50, "fmax": 8000, "htk": True, "norm": None},
        {"n_fft": 512, "n_bands": 16, "hop_samples": 700},
    ],
    ids=str,
)
def test_features_in_products_are_the_features(settings):
    config = FeatureConfig(**settings)
    x = noise((2, 20001))
    torch.testing.assert_close(export._ProductLogMel(config)(x), LogMel(config)(x), atol=5e-4, rtol=0)


def test_scorer_has_all_it_needs_from_the_file(exported):
    model, path, _ = exported
    ours, theirs = OnnxScorer(path), load_scorer(model, device="cpu")
    for name in ("classes", "rate", "hop_samples", "n_fft", "padding", "reduction", "context", "window", "fingerprint"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.window == 2.5
    assert ours.context > 0
    assert ours.least_samples == theirs.least_samples
    assert ours.about["pool"] == POOL
    assert ours.about["network"] == NETWORK
    assert ours.about["provenance"] == {"patch": 2.5, "data": "noise"}
    assert FeatureConfig.from_dict(ours.about["features"]) == FIXED
    for n in (ours.least_samples, 12345):
        x = noise((n,)).numpy()
        np.testing.assert_allclose(ours.score(x), theirs.score(x), atol=2e-5)


def test_file_names_its_axes_and_no_place_of_this_machine(exported):
    model = onnx.load(exported[1])
    axes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    axes |= {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.output}
    assert axes == {"samples": ["bags", "samples"], "dynamic": ["bags", "frames", 3], "static": ["bags", 3]}
    assert [p.key for p in model.metadata_props] == ["earmark", "sha256"]
    assert b".py" not in exported[1].read_bytes()


def test_without_pytorch_the_command_detects_the_same(exported, tmp_path):
    model, path, _ = exported
    audio.write(tmp_path / "night.wav", noise((80000,)).numpy(), 16000)
    code = BLOCKED + "from earmark.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "detect", path, "night.wav", "--out", "found", "--format", "json,audacity"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    ours = read_labels(tmp_path / "found" / "events.csv")
    theirs = load(model, device="cpu").detect(tmp_path / "night.wav")
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert (a.label, a.onset, a.offset) == (b.label, pytest.approx(b.onset), pytest.approx(b.offset))
        assert a.confidence == pytest.approx(b.confidence, abs=1e-3)


def test_onnxruntime_alone_runs_it(exported, tmp_path):
    """The example of the documents: neither earmark nor PyTorch."""
    _, path, _ = exported
    code = BLOCKED.replace('"torch"', '"earmark", "torch"') + textwrap.dedent(
        """
        import json
        import numpy as np
        import onnxruntime

        session = onnxruntime.InferenceSession(sys.argv[1])
        about = json.loads(session.get_modelmeta().custom_metadata_map["earmark"])
        samples = np.random.default_rng(0).normal(0, 0.1, (1, 5 * about["rate"])).astype(np.float32)
        dynamic, static = session.run(["dynamic", "static"], {"samples": samples})
        hop = about["hop_samples"] * about["reduction"] / about["rate"]
        for label, P, p in zip(about["classes"], static[0], dynamic[0].T):
            print(f"{label}: {P:.2f} in the clip, most at {p.argmax() * hop:.2f} s")
        """
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code, path], capture_output=True, encoding="utf8", timeout=60
    )
    assert done.stderr == ""
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(CLASSES)


def test_a_file_that_is_no_onnx(tmp_path, exported):
    path = tmp_path / "model.onnx"
    for content in (b"", b"hello", exported[0].read_bytes(), exported[1].read_bytes()[:2000]):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.onnx: truncated, or not an ONNX file that earmark exported"):
            OnnxScorer(path)
    with pytest.raises(ModelFileError, match=r"absent\.onnx: no such file or directory"):
        OnnxScorer(tmp_path / "absent.onnx")
    with pytest.raises(ModelFileError, match=": is a directory"):
        OnnxScorer(tmp_path)


def test_somebody_elses_onnx(tmp_path):
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["x"], ["y"])], "g", [value], [out])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ModelFileError, match=r"other\.onnx: truncated, or not an ONNX file that earmark exported"):
        OnnxScorer(tmp_path / "other.onnx")


def test_a_wrong_bit_and_a_missing_end_are_noticed(exported, tmp_path):
    content = exported[1].read_bytes()
    path = tmp_path / "model.onnx"
    place = len(content) // 2
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(ModelFileError, match="damaged"):
        OnnxScorer(path)
    path.write_bytes(content[:-76])
    with pytest.raises(ModelFileError, match=r"model\.onnx: truncated, or not an ONNX file that earmark exported"):
        OnnxScorer(path)


def test_a_file_from_the_future(exported, tmp_path):
    path = rewritten(exported, tmp_path, lambda about: about.update(version=FORMAT + 1, written_by="9.0"))
    with pytest.raises(ModelFileError, match=r"exported by a newer earmark \(9\.0\) than this one"):
        OnnxScorer(path)


def test_metadata_that_lack_something(exported, tmp_path):
    path = rewritten(exported, tmp_path, lambda about: about.pop("rate"))
    with pytest.raises(
        ModelFileError, match=r"changed\.onnx: rate: expected a whole number from 1 to 10000000, got nothing"
    ):
        OnnxScorer(path)


def test_sound_that_is_not_finite(exported):
    with pytest.raises(DataError, match="samples hold NaN or infinity"):
        OnnxScorer(exported[1]).score(np.full(5000, np.nan, np.float32))


def test_missing_packages(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"^a model in ONNX needs packages .* pip install 'earmark\[onnx\]'$"):
        OnnxScorer(exported[1])
    with pytest.raises(MissingExtraError, match=r"^exporting needs packages .* pip install 'earmark\[onnx\]'$"):
        export_onnx(make(), tmp_path / "a.onnx")


def test_a_name_that_would_not_be_known_again(tmp_path):
    with pytest.raises(ArgumentError, match=r"expected a file name that ends in \.onnx, got .*a\.bin"):
        export_onnx(make(), tmp_path / "a.bin")


def test_a_file_that_says_something_else_is_not_left_behind(exported, tmp_path, monkeypatch):
    """As if the converter had mistaken one detector for another."""
    other = onnx.load(exported[1])
    del other.metadata_props[:]
    monkeypatch.setattr(export, "_convert", lambda whole, least: other)
    torch.manual_seed(1)
    with pytest.raises(
        DataError, match=r"^onnxruntime and PyTorch differ by 0\.\d+ .* more than 0\.0001; nothing written$"
    ):
        export_onnx(make(), tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_cannot_be_exported(tmp_path):
    class Odd(torch.nn.Module):
        embedding, reduction = 2, 1

        def forward(self, x):
            n = int(x.sum().item() > 0) + 1  # depends on values
            return x[:, :2].transpose(1, 2) * torch.ones(n).sum().item()

    detector = Detector(CLASSES, FIXED, Odd(), create_pool("mean", 3))
    with pytest.raises(
        ArgumentError, match=r"^PyTorch cannot write this detector \(network Odd, pool 'mean'\) as ONNX: "
    ):
        export_onnx(detector, tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_model(tmp_path):
    with pytest.raises(ModelFileError, match=r"is not a run folder \(it has no model\.safetensors\)$"):
        app(["export", str(tmp_path), "--out", str(tmp_path / "a.onnx")], standalone_mode=False)
