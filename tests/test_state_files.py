"""State files with wrong contents: one line that names the file, and nothing allocated; numbers are checked."""

import copy
import hashlib
import io
import json
import types
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors
import safetensors.torch
import torch

from earmark import checkpoint
from earmark.annotations import LabelTable
from earmark.api import evaluate
from earmark.audio import write
from earmark.checkpoint import save_detector
from earmark.detection.detector import SoundDetector
from earmark.detection.job import JobOptions, run_job
from earmark.detector import Detector
from earmark.errors import DataError, EarmarkError
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import evaluate_scores
from earmark.events.decoder import Decoder, load_decoder
from earmark.experiment.cells import is_done
from earmark.experiment.grid import EvaluationSpec
from earmark.experiment.results import describe_data
from earmark.features import FeatureConfig
from earmark.inference.onnx_scorer import OnnxScorer, sealed
from earmark.inference.scores import RecordingScores, read_scores, repool, write_scores
from earmark.inference.torch_scorer import TorchScorer, load_scorer
from earmark.plots import learning_curves
from earmark.pooling import create_pool
from earmark.reporting.job import _read_settings
from earmark.settings import Training, load_recipe
from earmark.synthesis.job import _Maker, _prepare
from earmark.synthesis.scaper import write_jams
from earmark.synthesis.specification import Soundscape
from earmark.training.averaging import Average
from earmark.training.loop import create_detector
from earmark.training.memory import Memory, Schedule, load_state, save
from earmark.training.steps import make_optimizer
from earmark.tuning import _Record

CLASSES = ("dog", "owl")
SETTINGS = load_recipe("quick").changed(
    {"features.rate": 8000, "n_fft": 256, "hop_samples": 200, "n_bands": 16, "width": 0.05, "reduction": 4, "steps": 9}
)


def make_model():
    return create_detector(SETTINGS, CLASSES)


def optimizer_of(detector):
    return make_optimizer(detector, Training(), torch.device("cpu"))


class Tensors:
    """A file of `write_tensors`, whose metadata or tensors can be replaced; its digests are right."""

    def read(self):
        with safetensors.safe_open(self.path, "pt") as file:
            # copies, because safetensors maps the file, which `write` overwrites
            self.tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return json.loads(file.metadata()["earmark"])

    def write(self, about, text=None, tensors=None):
        tensors = self.tensors if tensors is None else tensors
        text = text or json.dumps(about)
        header = {"earmark": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        safetensors.torch.save_file(tensors, self.path, metadata=header)

    def write_tensors(self, change):
        tensors = dict(self.tensors)
        change(tensors)
        about = {**self.good, "tensors": checkpoint._fingerprint(tensors)}
        self.write(about, tensors=tensors)


class Model(Tensors):
    free = ("features.win_samples", "features.fmax", "provenance.note", "tensors")

    def __init__(self, folder):
        self.path = folder / "model.safetensors"
        provenance = {"patch": 1.0, "seed": 3, "data": "ab", "command": "earmark train", "scores": {"f1": None}}
        provenance |= {"epoch": 2, "data_source": "x", "recipe": "quick", "versions": {"torch": "2"}, "note": [None]}
        parts = {"network": SETTINGS.network, "pool": SETTINGS.pool}
        save_detector(self.path, make_model(), **parts, provenance=provenance)
        self.good = self.read()

    def load(self):
        load_scorer(self.path, device="cpu", pooled=True)


class State(Tensors):
    free = ("tensors", "settings.features.win_samples", "settings.features.fmax")
    free += tuple(f"settings.network.{name}" for name in ("reduction", "width", "norm_momentum"))

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "last.ckpt"
        detector = make_model()
        optimizer = optimizer_of(detector)
        sum(p.sum() for p in detector.parameters()).backward()
        optimizer.step()
        schedule = Schedule(1e-3, 2, 0.1, 3, best=0.5, plateau_best=0.5)
        scores = {"loss": 0.5, "accuracy": 0.5, "f1": 0.5}
        memory = Memory(schedule, epoch=2, step=3, loss=1.5, best_epoch=1, best_scores=scores)
        save(folder, memory, SETTINGS, detector, optimizer, Average(detector, SETTINGS.training), "data")
        self.good = self.read()

    def load(self):
        detector = make_model()
        average = Average(detector, SETTINGS.training)
        load_state(self.folder, SETTINGS, detector, optimizer_of(detector), average, "data")


class Json:
    """A file that holds one JSON document."""

    free = ()

    def write(self, value, text=None):
        self.path.write_text(text or json.dumps(value), encoding="utf-8")


class Log(Json):
    def __init__(self, folder):
        self.path = folder / "log.jsonl"
        validation = {"loss": 0.5, "accuracy": 0.5, "f1": 0.5}
        line = {"epoch": 1, "loss": 0.5, "validation": validation, "learning_rate": 1e-3, "best": True}
        self.good = {**line, "alpha": [1.0, 2.0], "clips_per_second": 3.5}

    def load(self):
        learning_curves(self.path, CLASSES)


def make_evaluation():
    rng = np.random.default_rng(0)
    p = [rng.random((5, 2)).astype(np.float32) for _ in range(3)]
    clips = [RecordingScores(f"{i}.wav", CLASSES, q, 0.1, 4, 20, 2.0, q.mean(0)) for i, q in enumerate(p)]
    rows = [(f"{i}.wav", 0.0, 1.0, CLASSES[i % 2]) for i in range(3)]
    about = {"model": "m", "data": "d", "split": "test", "align": "middle", "alpha": [1.0, 2.0], "skipped": {"a": "b"}}
    return evaluate_scores(clips, LabelTable(rows, classes=CLASSES), about={**about, "config": {"training": {}}})


class Scores(Json):
    free = ("decoder.low", "decoder.tuned_on")

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "scores.json"
        make_evaluation().save(folder)
        self.good = json.loads(self.path.read_text())

    def load(self):
        evaluation = Evaluation.load(self.folder)
        str(evaluation), evaluation.probabilities()


class Thresholds(Json):
    def __init__(self, folder):
        self.path = folder / "decoder.json"
        self.good = {"classes": list(CLASSES), "decoder": Decoder((0.3, 0.5), tuned_on="d").to_dict()}

    def load(self):
        load_decoder(self.path, CLASSES)


class Kept(Json):
    def __init__(self, folder):
        self.path = folder / "a.npz"
        write_scores(self.path, RecordingScores("a.wav", CLASSES, np.full((5, 2), 0.5, np.float32), 0.1, 4, 20, 2.0))
        with np.load(self.path) as file:
            self.good, self.p = json.loads(str(file["about"])), file["p"]

    def write(self, value, text=None):
        np.savez(self.path, about=text or json.dumps(value), p=self.p)

    def load(self):
        read_scores(self.path).dense()


class Search(Json):
    free = ("about",)

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "search.json"
        self.good = {"about": self.record()._about, "trials": [{"values": {"penalty": 1e-3, "reduction": 4}}]}
        outcome = {"f1": 0.5, "interval": [0.25, None], "chosen": {"threshold": 0.5}}
        self.good["trials"] += [{**self.good["trials"][0], **outcome}, {**self.good["trials"][0], "failed": "NaN"}]
        self.good["trials"].append(self.good["trials"].pop(0))

    def record(self):
        return _Record(self.folder, SETTINGS, ("penalty", "reduction", "threshold"), "data")

    def load(self):
        record = self.record()
        record.finished, record.failed, record.n_done, record.begin(dict)


class Soundscapes(Json):
    def __init__(self, folder):
        self.folder, self.path = folder, folder / "soundscapes.json"
        self.good = {"rate": 8000, "bank": "b", "clips": 3, "plan": "ab"}

    def load(self):
        _prepare(self.folder, dict(self.good))


class Notes(Json):
    free = ("annotations[0].namespace", "annotations[0].annotation_metadata", "annotations[0].data", "sandbox")
    free += ("annotations[0].sandbox.scaper", "annotations[0].sandbox.earmark.seed", "file_metadata")
    free += ("annotations[0].time", "annotations[0].duration")

    def __init__(self, folder):
        self.soundscape = Soundscape(name="a", events=(), split="train", duration=1.0)
        self.maker = _Maker(None, folder, 8000)
        self.path = folder / self.soundscape.annotation
        for name in (self.soundscape.filename, self.soundscape.annotation):
            (folder / name).parent.mkdir(parents=True)
            (folder / name).touch()
        write_jams(self.soundscape, self.path, notes={"gain_db": -1.0, "silent": 0})
        self.good = json.loads(self.path.read_text())

    def load(self):
        self.maker.make(self.soundscape)


class Data(Json):
    def __init__(self, folder):
        self.folder, self.path = folder, folder / "data.json"
        self.good = {"data": "d", "clips": {"train": 3}, "soundscapes": Soundscapes(folder).good}

    def load(self):
        describe_data(types.SimpleNamespace(source="urban-sed:gone", folds=0), self.folder)


class JobSettings(Json):
    free = ("decoder",)

    def __init__(self, folder):
        self.path = folder / "job.json"
        self.good = {"model": "m", "fingerprint": "ab", "classes": list(CLASSES), "decoder": Decoder().to_dict()}
        self.good |= {"formats": ["csv"], "presence": None, "keep_scores": True, "versions": {"numpy": "2"}}
        self.good |= {"command": "earmark detect"}

    def load(self):
        _read_settings(self.path)


class Exported(Json):
    free = ("features", "network", "provenance", "version")

    def __init__(self, folder):
        """A graph with two classes and a frame for every two samples."""
        self.path = folder / "model.onnx"
        samples = onnx.helper.make_tensor_value_info("samples", onnx.TensorProto.FLOAT, ["bags", "samples"])
        dynamic = onnx.helper.make_tensor_value_info("dynamic", onnx.TensorProto.FLOAT, ["bags", "frames", 2])
        tables = {"shape": np.array([1, -1, 2]), "weight": np.random.default_rng(0).random((2, 2), np.float32)}
        nodes = [
            onnx.helper.make_node("Reshape", ["samples", "shape"], ["pairs"]),
            onnx.helper.make_node("MatMul", ["pairs", "weight"], ["logits"]),
            onnx.helper.make_node("Sigmoid", ["logits"], ["dynamic"]),
        ]
        tensors = [onnx.numpy_helper.from_array(table, name) for name, table in tables.items()]
        graph = onnx.helper.make_graph(nodes, "g", [samples], [dynamic], tensors)
        self.model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
        self.good = {"version": 1, "written_by": "0.1.0", "classes": list(CLASSES), "rate": 8000, "hop_samples": 2}
        self.good |= {"n_fft": 2, "padding": 0, "reduction": 1, "context": 0, "window": 10.0, "fingerprint": "ab"}
        self.good |= {"pool": {"name": "max"}, "network": {"name": "cnn"}, "provenance": {}}

    def write(self, value, text=None):
        model = copy.deepcopy(self.model)
        model.metadata_props.add(key="earmark", value=text or json.dumps(value))
        self.path.write_bytes(sealed(model.SerializeToString()))

    def load(self):
        OnnxScorer(self.path).score(np.zeros(8000, np.float32))


KINDS = [Model, State, Log, Scores, Thresholds, Kept, Search, Soundscapes, Notes, Data, JobSettings, Exported]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A valid file of each kind, made when it is first asked for."""
    made = {}

    def file(kind):
        if kind not in made:
            made[kind] = kind(tmp_path_factory.mktemp(kind.__name__))
        return made[kind]

    return file


def wrong(value):
    """A value of another type."""
    return {"of": "another type"} if isinstance(value, bool | int | float | str | list | None) else "a text"


def mutations(value, free, path=""):
    """Where, and the document with a value of another type there."""
    if path.lstrip(".") in free and path:
        return
    yield path.lstrip("."), wrong(value)
    if isinstance(value, dict):
        for key in value:
            for where, part in mutations(value[key], free, f"{path}.{key}"):
                yield where, {**value, key: part}
    if isinstance(value, list):
        for i in range(len(value)):
            for where, part in mutations(value[i], free, f"{path}[{i}]"):
                yield where, [*value[:i], part, *value[i + 1 :]]


def complaint(file, load=None):
    """What is wrong with how a file is refused; empty if it is refused with one line that names it."""
    try:
        (load or file.load)()
    except EarmarkError as error:
        message = str(error)
        return "" if "\n" not in message and file.path.name in message else f"message: {message!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "accepted"


@pytest.mark.parametrize("kind", KINDS)
def test_a_valid_file_is_read(kind, files):
    file = files(kind)
    file.write(file.good)
    file.load()


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_type_anywhere_is_refused_with_one_line(kind, files):
    file, found = files(kind), {}
    for where, value in mutations(file.good, file.free):
        file.write(value)
        found[where] = complaint(file)
    bad = {where: what for where, what in found.items() if what}
    assert not bad, f"{len(bad)} of {len(found)}: {bad}"


TEXTS = {
    "deep": '{"a":' + "[" * 100_000,
    "digits": '{"version": 1' + "0" * 5000 + "}",
    "NaN": '{"version": NaN, "epoch": NaN, "decoder": {"threshold": NaN}, "about": NaN, "rate": NaN, "classes": NaN}',
    "text": "hello",
    "list": "[]",
    "number": "3",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_document_of_another_kind_is_refused_with_one_line(kind, text, files):
    file = files(kind)
    file.write(None, text)
    assert complaint(file) == ""


def changed(value, path, new):
    *steps, last = path.split(".")
    value = part = copy.deepcopy(value)
    for step in steps:
        part = part[step]
    part[last] = new
    return value


VALUES = [
    (Model, "classes", [1, 2]),
    (Model, "classes", ["dog", "dog"]),
    (Model, "classes", ["dog", ""]),
    (Model, "classes", []),
    (Model, "classes", ["dog", "\ud800"]),
    (Model, "provenance", None),
    (Model, "provenance.patch", 1e300),
    (Model, "network.width", 1e308),
    (Model, "network.width", 1e4),
    (Model, "features.n_fft", 2**40),
    (Model, "features.n_bands", 2**20),
    (Model, "features.n_bands", 2**13),
    (Model, "features.rate", 10**15),
    (Model, "features.hop_samples", 2**40),
    (Model, "pool", {"name": "gated-attention", "embedding_dim": 2**40}),
    (Model, "pool", {"name": "gated-attention", "hidden": 2**40}),
    (Model, "pool", {"name": "hierarchical", "sizes": [2] * 100}),
    (Model, "network", {"name": "crnn", "layers": 2**30}),
    (Model, "network", {"name": "crnn", "hidden": 2**30}),
    (State, "memory.epoch", -1),
    (State, "memory.step", -1),
    (State, "memory.step", 10**6),
    (State, "memory.best_epoch", 100),
    (State, "memory.schedule.learning_rate", -1.0),
    (State, "memory.schedule.stop_epochs", 0),
    (State, "classes", []),
    (Log, "epoch", 0),
    (Log, "alpha", [1.0]),
    (Scores, "classes", ["dog"]),
    (Scores, "classes", ["dog", "dog"]),
    (Scores, "alpha", [1.0]),
    (Scores, "clips", 2),
    (Scores, "segment", 0.0),
    (Scores, "grid.hop", 0.0),
    (Scores, "grid.reduction", 10**12),
    (Scores, "grid", None),
    (Scores, "decoder.threshold", [0.5]),
    (Scores, "decoder.threshold", 7),
    (Scores, "static.maximum.per_class", {}),
    (Thresholds, "decoder.threshold", True),
    (Thresholds, "decoder.threshold", ["0.5", "0.5"]),
    (Thresholds, "decoder.threshold", 10**400),
    (Thresholds, "decoder.median", -1),
    (Thresholds, "classes", ["dog", "dog"]),
    (Kept, "frames", 10**12),
    (Kept, "reduction", 0),
    (Kept, "reduction", 10**12),
    (Kept, "feature_hop", 0.0),
    (Kept, "duration", 1e300),
    (Kept, "classes", ["dog", "owl", "cat"]),
    (Search, "trials", [{"values": {"penalty": 1e-3}}]),
    (Search, "trials", [{"values": {"penalty": 1e-3, "reduction": 4.5}}]),
    (Search, "trials", [{"values": {"penalty": 1e-3, "reduction": 4}, "f1": 0.5}] * 2),
    (Notes, "annotations", []),
    (JobSettings, "classes", ["dog", "dog"]),
    (Exported, "reduction", -1),
    (Exported, "hop_samples", -1),
    (Exported, "rate", 0),
    (Exported, "context", -1),
    (Exported, "window", 0),
    (Exported, "classes", ["dog"]),
]


@pytest.mark.parametrize(
    ("kind", "where", "value"), VALUES, ids=[f"{k.__name__}-{w}-{str(v)[:20]}" for k, w, v in VALUES]
)
def test_an_impossible_value_is_refused_with_one_line(kind, where, value, files):
    file = files(kind)
    file.write(changed(file.good, where, value))
    assert complaint(file) == ""


@pytest.mark.parametrize("kind", [Model, State])
def test_weights_that_are_not_finite_or_do_not_fit_are_refused(kind, files):
    file = files(kind)
    prefix = "" if kind is Model else "detector."
    changes = {
        "NaN alpha": lambda t: t.update({f"{prefix}pool.alpha": torch.tensor([1.0, torch.nan])}),
        "infinite bias": lambda t: t.update({f"{prefix}head.bias": torch.tensor([1.0, -torch.inf])}),
        "another shape": lambda t: t.update({f"{prefix}head.bias": torch.zeros(3)}),
        "whole numbers": lambda t: t.update({f"{prefix}head.bias": torch.zeros(2, dtype=torch.int64)}),
        "one missing": lambda t: t.pop(f"{prefix}head.bias"),
        "one more": lambda t: t.update(more=torch.zeros(2)),
    }
    if torch.complex64 in safetensors.torch._TYPES.values():  # safetensors 0.4 cannot write them
        changes["complex numbers"] = lambda t: t.update({f"{prefix}head.bias": torch.zeros(2, dtype=torch.complex64)})
    if kind is State:
        changes["moments of another shape"] = lambda t: t.update({"adam.0.exp_avg": torch.zeros(7)})
        changes["moments missing"] = lambda t: t.pop("adam.0.exp_avg_sq")
    for name, change in changes.items():
        file.write_tensors(change)
        assert (name, complaint(file)) == (name, "")
    file.write_tensors(changes["NaN alpha"])
    with pytest.raises(EarmarkError, match=r"pool\.alpha: expected finite numbers, got NaN or infinity"):
        file.load()


def npy(array, shape=None):
    """An array as NumPy stores it, with a header that may state another shape."""
    file = io.BytesIO()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": shape or array.shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + array.tobytes()


@pytest.mark.parametrize("name", ["counts.npz", "probabilities.npz"])
def test_arrays_of_another_type_or_shape_are_refused_with_one_line(name, tmp_path):
    scores = Scores(tmp_path)
    scores.path = path = tmp_path / name
    with np.load(path) as file:
        good = {key: file[key] for key in file.files}
    bad = {}
    for key, array in good.items():
        text = np.array(["a", "a", "a"])
        wrong_type = np.zeros(array.shape, bool) if array.dtype.kind == "U" else np.full(array.shape, "a")
        for what, new in {"type": wrong_type, "shape": array[:-1], "axes": array[None], "text": text, "": None}.items():
            if (name, key) == ("probabilities.npz", "classes"):
                continue
            np.savez(path, **{k: v for k, v in {**good, key: new}.items() if v is not None})
            bad[key, what] = complaint(scores)
        if (name, key) == ("probabilities.npz", "classes"):
            continue  # not read
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for k, v in good.items():
                archive.writestr(f"{k}.npy", npy(v, (10**12,) if k == key else None))
        bad[key, "rows"] = complaint(scores)
    bad.pop(("static.tn", ""), None)  # events have none
    bad.pop(("pooled.tn", ""), None)
    bad.pop(("dynamic.tn", ""), None)
    assert not {where: what for where, what in bad.items() if what}


def test_a_header_that_states_many_rows_allocates_nothing(tmp_path):
    kept = Kept(tmp_path)
    about = np.array(json.dumps(kept.good))
    for p in (npy(kept.p, (10**12, 2)), npy(np.full((5, 2), np.nan, np.float32)), npy(kept.p + 2), b"", b"\x93NUMPY"):
        with zipfile.ZipFile(kept.path, "w") as archive:
            archive.writestr("about.npy", npy(about))
            archive.writestr("p.npy", p)
        assert complaint(kept) == ""


def test_arrays_much_larger_than_their_file_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("earmark.arrays._LARGEST", 1 << 20)
    kept = Kept(tmp_path)
    about = {**kept.good, "frames": 4 << 20}
    np.savez_compressed(kept.path, about=json.dumps(about), p=np.zeros((1 << 20, 2), np.float32))
    with pytest.raises(DataError, match=r"a\.npz: expected at most 1 MiB of arrays, got 8 MiB"):
        kept.load()


def test_a_long_header_of_a_model_file_is_refused(tmp_path):
    model = Model(tmp_path)
    model.write({**model.good, "more": "x" * (1 << 25)})
    assert complaint(model) == ""


def test_weights_of_an_onnx_file_in_another_file_are_refused(tmp_path, monkeypatch, files):
    """They are not covered by the seal; onnxruntime looks for them in the working directory."""
    monkeypatch.chdir(tmp_path)
    exported = files(Exported)
    model = copy.deepcopy(exported.model)
    model.metadata_props.add(key="earmark", value=json.dumps(exported.good))
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == "weight")
    onnx.external_data_helper.set_external_data(weight, "weights.bin")
    Path("weights.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    Path("m.onnx").write_bytes(model.SerializeToString())
    Path("m.onnx").write_bytes(sealed(Path("m.onnx").read_bytes()))
    file = types.SimpleNamespace(path=Path("m.onnx"))
    assert complaint(file, lambda: OnnxScorer("m.onnx")) == ""


def test_the_seal_is_checked_before_the_session_is_made(monkeypatch, files):
    exported = files(Exported)
    exported.write(exported.good)
    exported.path.write_bytes(exported.path.read_bytes()[:-1] + b"x")
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda *args, **options: pytest.fail("a session was made"))
    assert complaint(exported) == ""


def test_a_damaged_log_is_refused_when_a_run_is_resumed_or_reported(tmp_path):
    log = Log(tmp_path)
    line = json.dumps(log.good)
    for text in (line[:20], f"{line}\n{line}\n", f"{line}\n\n", "\udcff"):
        log.path.write_text(text, errors="surrogateescape")
        assert complaint(log) == ""


def test_settings_that_are_no_toml_are_refused_with_one_line(tmp_path, recordings):
    model = Model(tmp_path)
    config = types.SimpleNamespace(path=tmp_path / "config.toml")
    for text in ("[", "x = " + "[" * 100_000, "x = 1" + "0" * 5000, "\udcff", "x = 2020-01-01", "training = 3"):
        config.path.write_text(text, errors="surrogateescape")
        assert complaint(config, lambda: evaluate(model.path, recordings)) == ""


def test_damaged_scores_of_a_cell_are_refused_with_one_line(tmp_path):
    (tmp_path / "clean").mkdir()
    file = types.SimpleNamespace(path=tmp_path / "clean" / "scores.json")
    for text in ("{", "[]", '{"a":' + "[" * 100_000):
        file.path.write_text(text)
        assert complaint(file, lambda: is_done(tmp_path, {"clean": EvaluationSpec()}, {})) == ""


class Overflowing(TorchScorer):
    """A model that overflows in loud recordings."""

    source = "loud.safetensors"

    def score(self, samples):
        return next(self.score_all([samples]))

    def score_all(self, excerpts):
        for samples in excerpts:
            (p,) = super().score_all([samples])
            yield np.full_like(p, np.nan) if np.abs(samples).max() > 0.5 else p


@pytest.fixture
def overflowing():
    detector = Detector(CLASSES, FeatureConfig(rate=8000, n_bands=16), make_model().network, create_pool("rap", 2))
    return SoundDetector(Overflowing(detector, device="cpu", pooled=True))


@pytest.fixture
def two_recordings(tmp_path):
    folder = tmp_path / "sounds"
    folder.mkdir()
    for name, level in (("loud", 0.9), ("quiet", 0.1)):
        write(folder / f"{name}.wav", np.full(16000, level, np.float32), 8000)
    lines = ["filename,onset,offset,label,split", "loud.wav,0,1,dog,test", "quiet.wav,0,1,owl,test"]
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_probabilities_that_are_not_finite_cost_one_recording(overflowing, two_recordings, tmp_path):
    report = run_job(overflowing, [two_recordings], tmp_path / "out", JobOptions(presence=float("inf")))
    assert (report.done, report.failed) == (1, 1)
    assert "loud.safetensors gives NaN or infinity; expected probabilities" in report.first_failure
    assert "loud.wav" in report.first_failure
    assert "nan" not in (tmp_path / "out" / "presence.csv").read_text()
    with pytest.raises(DataError, match=r"loud\.wav: loud\.safetensors gives NaN or infinity"):
        overflowing.detect(two_recordings)


def test_evaluate_leaves_out_clips_whose_probabilities_are_not_finite(overflowing, two_recordings):
    evaluation = evaluate(overflowing, two_recordings)
    assert evaluation.scores["clips"] == 1
    assert list(evaluation.scores["skipped"]) == ["loud.wav"]
    assert any("loud.safetensors gives NaN or infinity" in note for note in evaluation.notes)


def test_a_pool_that_overflows_names_the_recording():
    scores = RecordingScores("a.wav", CLASSES, np.full((5, 2), 0.5, np.float32), 0.1, 4, 20, 2.0)
    pool = create_pool("auto", 2)
    with torch.no_grad():
        pool.alpha.fill_(torch.nan)
    with pytest.raises(DataError, match=r"a\.wav: pool 'auto' gives NaN or infinity"):
        repool(scores, pool)


def test_messages_quote_files_without_their_control_characters() -> None:
    assert str(DataError("search.json: sea\x7fch, \x1b[2J, clip\udcff.wav")) == (
        r"search.json: sea\x7fch, \x1b[2J, clip\udcff.wav"
    )
