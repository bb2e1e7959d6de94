"""Model files: whole, self-sufficient, and refused with the reason when they are not what they should be."""

import hashlib
import json
import os
import pickle
import struct

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import earmark
from earmark import checkpoint
from earmark.checkpoint import (
    load_detector,
    load_weights,
    model_file,
    read_model_info,
    read_tensors,
    save_detector,
    write_tensors,
)
from earmark.detector import Detector
from earmark.errors import ModelFileError
from earmark.features import FeatureConfig
from earmark.inference.torch_scorer import load_scorer
from earmark.networks import NETWORKS, FrameNorm, create_network
from earmark.pooling import POOLS, create_pool

CLASSES = ("dog", "Schüsse, fern", "雨")
FEATURES = FeatureConfig(rate=16000, n_fft=512, hop_samples=160, n_bands=32, fmax=7000.0, norm=None)
NETWORK = {"name": "cnn", "width": 0.05}


def make(network=NETWORK, pool=None, classes=CLASSES):
    network, pool = dict(network), dict(pool or {"name": "rap"})
    return Detector(
        classes,
        FEATURES,
        create_network(network.pop("name"), FEATURES.n_bands, **network),
        create_pool(pool.pop("name"), len(classes), **pool),
    )


def write(path, network=NETWORK, pool=None, **options):
    """A model file, and the detector in it, which has seen a batch."""
    pool = pool or {"name": "rap"}
    detector = make(network, pool)
    detector.train()(torch.randn(2, 32, 50))
    save_detector(path, detector, network=network, pool=pool, **options)
    return detector.eval()


def rewrite(path, change_about=None, change_tensors=None):
    """The file with something else in it, and right checksums: what another program could write."""
    with safetensors.safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["earmark"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if change_tensors:
        change_tensors(tensors)
        about["tensors"] = checkpoint._fingerprint(tensors)
    if change_about:
        said = change_about(about)
        about = about if said is None else said
    text = json.dumps(about)
    header = {"earmark": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    safetensors.torch.save_file(tensors, path, metadata=header)


def assert_same(detector, other, frames=(16, 50, 211)):
    for n in frames:
        x, mask = torch.randn(2, 32, n), torch.arange(n) < torch.tensor([[n], [max(16, n // 2)]])
        with torch.no_grad():
            for a, b in zip(detector(x, mask), other(x, mask), strict=True):
                assert torch.equal(a, b)


VARIANTS = [{"name": entry.name} for entry in POOLS] + [
    {"name": "auto", "alpha": [0.5, 2.0, -1.0]},
    {"name": "cap", "alpha": 9.0, "min_duration": [0.1, 1.0, 2.0], "frame_rate": 6.25},
    {"name": "cap", "bag_size": 26, "phi": 0.3},
    {"name": "rap", "penalty": 0.01},
    {"name": "lse", "learned": True},
    {"name": "hierarchical", "base": "auto", "sizes": [3, 2]},
    {"name": "gated-attention", "embedding_dim": 13, "hidden": 4},
]


@pytest.mark.parametrize("pool", VARIANTS, ids=lambda pool: "-".join(str(v) for v in pool.values()))
def test_every_pool_comes_back_bit_by_bit(pool, tmp_path):
    detector = write(tmp_path / "model.safetensors", pool=pool)
    loaded = load_detector(tmp_path / "model.safetensors")
    assert not loaded.training
    assert repr(loaded) == repr(detector)
    assert_same(detector, loaded)


@pytest.mark.parametrize("name", [entry.name for entry in NETWORKS])
@pytest.mark.parametrize("reduction", [1, 16])
def test_every_network_comes_back_bit_by_bit(name, reduction, tmp_path):
    options = {"width": 0.1, "reduction": reduction, "norm_momentum": 0.1, "hidden": 8}
    network = {"name": name} | {key: value for key, value in options.items() if key in NETWORKS[name].options()}
    detector = write(tmp_path / "m.safetensors", network)
    loaded = load_detector(tmp_path / "m.safetensors")
    assert_same(detector, loaded)
    momentum = {m.momentum for m in loaded.modules() if isinstance(m, nn.BatchNorm2d | FrameNorm)}
    assert momentum == {0.1}


def test_the_file_alone_says_everything(tmp_path):
    provenance = {"command": "earmark train", "scores": {"f1": 0.5}, "nested": [1, None, "ü"]}
    detector = write(tmp_path / "m.safetensors", provenance=provenance)
    loaded = load_detector(str(tmp_path / "m.safetensors"))
    assert loaded.classes == detector.classes == CLASSES
    assert loaded.features == FEATURES
    assert loaded.reduction == detector.reduction
    about = read_model_info(tmp_path / "m.safetensors")
    assert about["provenance"] == provenance
    assert about["classes"] == list(CLASSES)
    assert (about["network"], about["pool"]) == (NETWORK, {"name": "rap"})
    assert about["written_by"] == earmark.__version__
    assert FeatureConfig.from_dict(about["features"]) == FEATURES


def test_what_cap_learned_comes_back(tmp_path):
    """Its alpha was brought within the bounds of the bags it met; bags of other lengths have their own."""
    pool = {"name": "cap", "alpha": 50.0}
    detector = make(pool=pool).train()
    detector(torch.randn(2, 32, 160))
    detector.pool.project()
    save_detector(tmp_path / "m.safetensors", detector, network=NETWORK, pool=pool)
    loaded = load_detector(tmp_path / "m.safetensors")
    torch.testing.assert_close(loaded.pool.alpha, torch.full((3,), 9.0).log())
    assert_same(detector.eval(), loaded, frames=(16, 32, 160, 1000))


def test_loading_leaves_the_callers_random_numbers_alone(tmp_path):
    write(tmp_path / "m.safetensors")
    state = torch.get_rng_state()
    load_detector(tmp_path / "m.safetensors")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_network_of_ones_own(tmp_path):
    class Own(nn.Module):
        embedding, reduction = 4, 1

        def __init__(self):
            super().__init__()
            self.look = nn.Linear(32, 4)

        def forward(self, x):
            return self.look(x.transpose(1, 2))

    path = tmp_path / "m.safetensors"
    detector = Detector(CLASSES, FEATURES, Own(), create_pool("max", 3)).eval()
    save_detector(path, detector, network={"name": "own"}, pool={"name": "max"})
    assert_same(detector, load_detector(path, network=Own()))
    with pytest.raises(ModelFileError, match=r"its parts do not match: network='own' is not known"):
        load_detector(path)
    with pytest.raises(ModelFileError, match=r"its parts do not match: network.norm0.weight is missing"):
        load_detector(path, network=create_network("cnn", 32, width=0.05))


def test_tensors_of_every_kind_come_back(tmp_path):
    tensors = {
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 4),
        "half": torch.randn(3).bfloat16(),
        "flags": torch.tensor([True, False]),
        "strided": torch.randn(4, 6).t()[::2],
        "learned": torch.randn(2, requires_grad=True),
    }
    tensors["shared"] = tensors["learned"]
    write_tensors(tmp_path / "last.ckpt", "training state", tensors, {"epoch": 3, "kind": "mine", "none": None})
    back, about = read_tensors(tmp_path / "last.ckpt", "training state")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    assert (about["epoch"], about["none"], about["kind"]) == (3, None, "training state")


FAILURES = [safetensors.SafetensorError("No space left on device"), OSError("disk"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(error, tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    detector = write(path)
    before = path.read_bytes()

    def fail(tensors, draft, metadata):
        draft.write_bytes(before[:100])
        raise error

    monkeypatch.setattr(checkpoint, "save_file", fail)
    kind = OSError if isinstance(error, Exception) else KeyboardInterrupt
    with pytest.raises(kind, match=r"could not be written: No space left|disk|^$"):
        save_detector(path, make(), network=NETWORK, pool={"name": "rap"})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.safetensors"]
    assert_same(detector, load_detector(path))


def test_a_folder_stands_for_its_model_and_another_folder_is_no_run(tmp_path):
    path = tmp_path / "model.safetensors"
    assert model_file(path, "MODEL DATA") == path
    with pytest.raises(ModelFileError) as refused:
        model_file(tmp_path, "MODEL DATA")
    assert (
        str(refused.value) == f"{tmp_path} is not a run folder (it has no model.safetensors); expected MODEL DATA, "
        f"in this order"
    )
    with pytest.raises(ModelFileError, match=r"it has no model\.safetensors\)$"):
        load_scorer(tmp_path)
    (tmp_path / "config.toml").touch()
    with pytest.raises(ModelFileError, match=r"has no model\.safetensors yet: its first epoch has not finished$"):
        model_file(tmp_path, "MODEL DATA")
    path.touch()
    assert model_file(tmp_path, "MODEL DATA") == path
    (tmp_path / "night.wav").write_bytes(b"RIFF")
    message = r"night\.wav is a recording, not a model; expected MODEL RECORDINGS, in this order$"
    with pytest.raises(ModelFileError, match=message):
        earmark.load(tmp_path / "night.wav")
    with pytest.raises(ModelFileError, match=r"is not a run folder .*; expected MODEL RECORDINGS, in this order$"):
        earmark.load(tmp_path.parent)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ModelFileError, match=r"m\.safetensors: no such file"):
        load_detector(tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError, match=r"a folder, not a file"):
        read_model_info(tmp_path)


class Bomb:
    """What a pickle can do to whoever loads it."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_files_that_are_something_else(tmp_path):
    path, sprung = tmp_path / "m.safetensors", tmp_path / "sprung"
    foreign = {
        "empty": b"",
        "text": b"filename\tonset\toffset\tlabel\n" * 9,
        "zeros": bytes(1000),
        "pickle": pickle.dumps(Bomb(sprung)),
        "huge header": struct.pack("<Q", 2**62) + b"{}",
    }
    for content in foreign.values():
        path.write_bytes(content)
        for read in (load_detector, read_model_info):
            with pytest.raises(ModelFileError, match=r"m\.safetensors: damaged, truncated, or not a model file"):
                read(path)
    torch.save({"weights": torch.zeros(3), "bomb": Bomb(sprung)}, path)
    with pytest.raises(ModelFileError, match="not a model file"):
        load_detector(path)
    assert not sprung.exists()


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}, {"earmark": "{}"}])
def test_weights_from_elsewhere(metadata, tmp_path):
    safetensors.torch.save_file({"a": torch.zeros(3)}, tmp_path / "m.safetensors", metadata=metadata)
    with pytest.raises(ModelFileError, match=r"m\.safetensors: a weights file that earmark did not write"):
        load_detector(tmp_path / "m.safetensors")


def test_a_file_cut_anywhere(tmp_path, rng):
    path, cut = tmp_path / "m.safetensors", tmp_path / "cut.safetensors"
    write(path)
    content = path.read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    lengths = [*range(20), *rng.integers(20, header, 30), header - 1, header, *rng.integers(header, len(content), 30)]
    for length in [*lengths, len(content) - 1]:
        cut.write_bytes(content[:length])
        for read in (load_detector, read_model_info):
            with pytest.raises(ModelFileError, match="damaged, truncated, or not a model file"):
                read(cut)
    cut.write_bytes(content + b"more")
    with pytest.raises(ModelFileError, match="damaged, truncated"):
        load_detector(cut)


def test_a_file_with_one_wrong_bit_is_refused_or_as_good_as_before(tmp_path, rng):
    """In the header as in the weights: another letter in the name of a class would be as bad as another weight."""
    path, bad = tmp_path / "m.safetensors", tmp_path / "bad.safetensors"
    detector = write(path)
    content = path.read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    places = [*rng.choice(header, 250, replace=False), *rng.integers(header, len(content), 50)]
    refused = 0
    for place in places:
        wrong = bytearray(content)
        wrong[place] ^= 1 << rng.integers(8)
        bad.write_bytes(wrong)
        try:
            loaded = load_detector(bad)
        except ModelFileError:
            refused += 1
        else:
            assert read_model_info(bad) == read_model_info(path)
            assert_same(detector, loaded, frames=(20,))
    assert refused > 0.95 * len(places)
    with pytest.raises(ModelFileError, match="damaged: its weights do not match their checksum"):
        load_wrong(bad, content, len(content) - 1)
    where = content.index(b"dog")
    with pytest.raises(ModelFileError, match="damaged: its metadata do not match their checksum"):
        load_wrong(bad, content, where)


def load_wrong(path, content, place):
    wrong = bytearray(content)
    wrong[place] ^= 1
    path.write_bytes(wrong)
    return load_detector(path)


def test_a_newer_file_and_a_file_of_another_kind(tmp_path):
    path = tmp_path / "m.safetensors"
    write(path)
    rewrite(path, lambda about: about | {"version": 99, "written_by": "7.0"})
    with pytest.raises(
        ModelFileError, match=rf"written by a newer earmark \(7\.0\); this one is {earmark.__version__}"
    ):
        load_detector(path)
    write_tensors(path, "training state", {"step": torch.zeros(1)}, {})
    for read in (load_detector, read_model_info):
        with pytest.raises(ModelFileError, match="contains a training state, not a model"):
            read(path)
    write(path)
    with pytest.raises(ModelFileError, match="contains a model, not a training state"):
        read_tensors(path, "training state")


def without(name):
    def remove(things):
        del things[name]

    return remove


def put(**values):
    return lambda things: things.update(values)


TENSORS = [
    ("missing", without("head.bias"), "head.bias is missing"),
    ("missing in the network", without("network.squeeze.bias"), "squeeze.bias is missing"),
    ("extra", put(extra=torch.zeros(3)), "unexpected tensor 'extra'"),
    ("of another shape", put(**{"head.bias": torch.zeros(4)}), r"head\.bias: expected shape \(3,\), got \(4,\)"),
    (
        "of another shape in the network",
        put(**{"network.squeeze.bias": torch.zeros(4)}),
        r"squeeze\.bias: expected .* got \(4,\)",
    ),
    ("of another pool", put(**{"pool.alpha": torch.zeros(2)}), r"pool\.alpha: expected shape \(3,\), got \(2,\)"),
]


@pytest.mark.parametrize(("change", "message"), [t[1:] for t in TENSORS], ids=[t[0] for t in TENSORS])
def test_tensors_that_do_not_fit(change, message, tmp_path):
    write(tmp_path / "m.safetensors")
    rewrite(tmp_path / "m.safetensors", change_tensors=change)
    with pytest.raises(ModelFileError, match=rf"m\.safetensors: its parts do not match: .*{message}") as caught:
        load_detector(tmp_path / "m.safetensors")
    assert "\n" not in str(caught.value)


ABOUT = [
    ("one class fewer", put(classes=["a", "b"]), r"head\.weight: expected shape"),
    ("one class twice", put(classes=["a", "b", "a"]), "classes: expected one or more names, each once and not empty"),
    ("no classes", put(classes=[]), "classes: expected one or more names, each once and not empty"),
    ("classes that are none", put(classes=3), "classes: expected a list of texts, got 3"),
    ("no features", without("features"), "features: expected a table, got nothing"),
    ("unknown features", put(features={"n_bins": 3}), "features: key='n_bins' is not known"),
    ("features that are none", put(features=None), "features: expected a table, got None"),
    ("other bands", put(features={"n_bands": 64}), r"squeeze\.weight: expected shape .*, got"),
    ("unknown network", put(network={"name": "cnnn"}), "network='cnnn' is not known; did you mean 'cnn'"),
    ("no network", put(network={}), "network.name: expected text, got nothing"),
    ("a network that is none", put(network="cnn"), "network: expected a table, got 'cnn'"),
    ("a list for a name", put(network={"name": []}), r"network.name: expected text, got \[\]"),
    (
        "a network beyond all memory",
        put(network={"name": "cnn", "width": 64}),
        "expected layers of at most 268435456 weights",
    ),
    (
        "a network beyond all numbers",
        put(network={"name": "cnn", "width": 1e300}),
        "width: expected a number above 0 and at most 64",
    ),
    ("an impossible network", put(network={"name": "crnn", "hidden": -1}), "hidden: expected a whole number"),
    ("another network", put(network={"name": "crnn", "width": 0.05}), "cnn.norm0.weight is missing"),
    ("another pool", put(pool={"name": "max"}), "unexpected tensor 'pool.alpha'"),
    ("unknown option", put(pool={"name": "rap", "penalt": 1}), "option='penalt' is not known; did you mean"),
]


@pytest.mark.parametrize(("change", "message"), [a[1:] for a in ABOUT], ids=[a[0] for a in ABOUT])
def test_descriptions_that_do_not_fit(change, message, tmp_path):
    write(tmp_path / "m.safetensors")
    rewrite(tmp_path / "m.safetensors", change)
    with pytest.raises(ModelFileError, match=rf"m\.safetensors: (its parts do not match: )?.*{message}") as caught:
        load_detector(tmp_path / "m.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("about", [[], 3, {}, {"version": "1"}, {"version": 1}, {"version": 1, "kind": "model"}])
def test_descriptions_that_are_none(about, tmp_path):
    write(tmp_path / "m.safetensors")
    rewrite(tmp_path / "m.safetensors", lambda _: about)
    with pytest.raises(ModelFileError, match=r"m\.safetensors: .*expected .*, got (nothing|3|'1'|\[\])$"):
        load_detector(tmp_path / "m.safetensors")


def test_a_file_that_claims_huge_tensors(tmp_path):
    """The header says terabytes, the file has a few bytes; nothing is allocated."""
    claims = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    text = json.dumps(claims).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    with pytest.raises(ModelFileError, match="damaged, truncated"):
        load_detector(tmp_path / "m.safetensors")


def test_reading_about_a_model_reads_no_weights(tmp_path, monkeypatch):
    write(tmp_path / "m.safetensors")
    monkeypatch.setattr(checkpoint, "_fingerprint", lambda tensors: pytest.fail("weights were read"))
    assert read_model_info(tmp_path / "m.safetensors")["classes"] == list(CLASSES)


def test_what_json_cannot_say_is_not_written(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        write(tmp_path / "m.safetensors", provenance={"array": np.zeros(3)})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("pool", ["rap", "attention", "gated-attention"])
@pytest.mark.parametrize("classes", [CLASSES[::-1], ("owl", *CLASSES)])
def test_weights_go_to_their_classes(tmp_path, pool, classes):
    """Also those of an operator whose tensors have as many rows as there are classes, or classes on two axes."""
    settings = {"name": pool, **({"hidden": len(CLASSES)} if pool == "gated-attention" else {})}
    old = write(tmp_path / "model.safetensors", pool=settings)
    new = make(pool=settings, classes=classes)
    load_weights(new, tmp_path / "model.safetensors")
    order = [CLASSES.index(label) for label in classes if label in CLASSES]
    assert torch.equal(new.head.weight[-3:], old.head.weight[order])
    p = torch.rand(2, 9, 3)
    padded = torch.cat([torch.zeros(2, 9, len(classes) - 3), p[:, :, order]], 2)  # where another class is silent
    assert torch.allclose(new.pool(padded)[:, -3:], old.pool(p)[:, order], atol=1e-6)
