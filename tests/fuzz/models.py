"""Model files: damaged bytes, and valid digests over crafted metadata or weights; ONNX where it is installed."""

import hashlib
import json
from importlib.util import find_spec
from random import Random
from typing import Any

import numpy as np

from fuzz import kit
from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged, damaged_json

_PART = 4  # one in so many models is ONNX


@reader
def make(rng: Random) -> Case:
    """A model that is loaded and scores a second of sound."""
    write("sound.wav", kit.audio_bytes("wav"))
    if find_spec("onnxruntime") and rng.randrange(_PART) == 0:
        name, (content, note) = "model.onnx", _onnx(rng)
    else:
        name, (content, note) = "model.safetensors", _safetensors(rng)
    write(name, content)
    command = ["detect", name, "sound.wav", "--out", "out", "--presence", "recording"]
    return Case(f"{name}: {note}", lambda: check(name), writes=["out"], command=command)


def check(name: str) -> None:
    """Load a model and score with it; what is accepted gives probabilities."""
    from earmark import load
    from earmark.events import Decoder, decode_scores
    from earmark.inference.scores import repool

    detector = load(name)
    assert all(isinstance(label, str) for label in detector.classes), "classes that are not text"
    (scores,) = detector.score_files(["sound.wav"], workers=1)
    assert ((scores.p >= 0) & (scores.p <= 1)).all(), "frame probabilities that are none"
    decode_scores(scores, Decoder(), "sound.wav")
    if name.endswith(".safetensors"):
        _, pooled = repool(scores, detector.pool)
        assert ((pooled >= 0) & (pooled <= 1)).all(), "pooled probabilities that are none"


def _safetensors(rng: Random) -> tuple[bytes, str]:
    content = (kit.part("run") / "run" / "model.safetensors").read_bytes()
    choice = rng.random()
    if choice < 0.2:
        return damaged(rng, content)
    return crafted(rng, content, in_weights=choice > 0.85)


def crafted(rng: Random, content: bytes, *, in_weights: bool = False) -> tuple[bytes, str]:
    """A file of `write_tensors` with other metadata or weights, and digests that are right for them."""
    from safetensors.numpy import load

    tensors, about = load(content), about_of(content)
    if in_weights:
        note = _change_weights(rng, tensors)
        return sealed(tensors, about), note
    text, note = damaged_json(rng, about)
    return sealed(tensors, text), note


def about_of(content: bytes) -> Any:
    """The metadata of a file of `write_tensors`."""
    return json.loads(_header(content)["earmark"])


def _header(content: bytes) -> dict[str, str]:
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size])["__metadata__"]


def sealed(tensors: dict[str, Any], about: Any) -> bytes:
    """A file of tensors and metadata, as JSON or a value, whose digests are right."""
    from safetensors.numpy import save

    if not isinstance(about, str):
        about = json.dumps({**about, "tensors": _fingerprint(tensors)})
    raw = about.encode(errors="surrogatepass").decode(errors="replace")
    return save(tensors, {"earmark": raw, "sha256": hashlib.sha256(raw.encode()).hexdigest()})


def _fingerprint(tensors: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        kind = {"float32": "torch.float32", "int64": "torch.int64", "float64": "torch.float64"}[str(tensor.dtype)]
        digest.update(f"{name} {kind} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _change_weights(rng: Random, tensors: dict[str, Any]) -> str:
    name = rng.choice(sorted(tensors))
    action = rng.randrange(5)
    if action == 0:
        del tensors[name]
        return f"without {name}"
    if action == 1:
        tensors[name] = np.zeros((*tensors[name].shape, 2), np.float32)
        return f"{name} of another shape"
    if action == 2:
        tensors["surprise"] = np.zeros(3, np.float32)
        return "another tensor"
    value = rng.choice((np.nan, np.inf, -np.inf, 1e38, 0.0))
    tensors[name] = np.full_like(tensors[name], 0 if tensors[name].dtype.kind == "i" else value)
    return f"{name} = {value}"


def _onnx(rng: Random) -> tuple[bytes, str]:
    import onnx

    from earmark.inference.onnx_scorer import sealed as seal

    content = (kit.part("onnx") / "model.onnx").read_bytes()
    if rng.random() < 0.4:
        return damaged(rng, content)
    model = onnx.load_from_string(content)
    entries = [entry for entry in model.metadata_props if entry.key == "earmark"]
    text, note = damaged_json(rng, json.loads(entries[0].value))
    entries[0].value = text.encode(errors="surrogatepass").decode(errors="replace")
    del model.metadata_props[:]
    model.metadata_props.extend(entries)
    return seal(model.SerializeToString()), f"sealed, {note}"
