"""Model files and training states: tensors and a line of JSON, in the safetensors format.

`model.safetensors` is self-contained: weights, classes, features, network, pool and provenance. Nothing in such a file
is ever executed. `last.ckpt` has the same format and holds the state from which training resumes. Files are written
whole or not at all.
"""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from earmark.detector import Detector
from earmark.errors import ArgumentError, EarmarkError, ModelFileError
from earmark.features import FeatureConfig
from earmark.files import json_text, written_whole
from earmark.networks import create_network
from earmark.pooling import create_pool

__all__ = ["load_detector", "model_file", "read_model_info", "read_tensors", "save_detector", "write_tensors"]

_VERSION = 1


def write_tensors(path: Path, kind: str, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors with their metadata."""
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    origin = {"kind": kind, "version": _VERSION, "written_by": version("earmark"), "tensors": _fingerprint(plain)}
    text = json_text({**about, **origin})
    header = {"earmark": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    with written_whole(path) as draft:
        try:
            save_file(plain, draft, metadata=header)
        except SafetensorError as error:  # a full disk, among others
            raise OSError(f"{path} could not be written: {error}") from error


def read_tensors(path: Path, kind: str, *, only_about: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `write_tensors`; anything else is refused with the reason."""
    if not path.is_file():
        raise ModelFileError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    try:
        with safe_open(path, "pt") as file:
            about = _read_about(path, kind, file.metadata() or {})
            if only_about:
                return {}, about
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError, LookupError, TypeError) as error:
        raise ModelFileError(f"{path}: damaged, cut short, or not a model file at all: {error}") from error
    if _fingerprint(tensors) != about.get("tensors"):
        raise ModelFileError(f"{path}: damaged: its weights are not those that were written")
    return tensors, about


def _read_about(path: Path, kind: str, header: dict[str, str]) -> dict[str, Any]:
    if not {"earmark", "sha256"} <= header.keys():
        raise ModelFileError(f"{path}: a file of weights that earmark did not write")
    if hashlib.sha256(header["earmark"].encode()).hexdigest() != header["sha256"]:
        raise ModelFileError(f"{path}: damaged: its metadata are not those that were written")
    about: dict[str, Any] = json.loads(header["earmark"])
    if about["version"] > _VERSION:
        raise ModelFileError(
            f"{path}: written by a newer earmark ({about['written_by']}); this one is {version('earmark')}"
        )
    if about["kind"] != kind:
        raise ModelFileError(f"{path}: holds a {about['kind']}, not a {kind}")
    return about


def _fingerprint(tensors: dict[str, Tensor]) -> str:
    """A digest of names, types, shapes and bytes; the format itself has no checksum."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_detector(
    path: str | Path,
    detector: Detector,
    *,
    network: dict[str, Any],
    pool: dict[str, Any],
    provenance: dict[str, Any] | None = None,
) -> None:
    """Write a model file; `network` and `pool` are the names and options that the parts were created with."""
    about = {
        "classes": list(detector.classes),
        "features": detector.features.to_dict(),
        "network": network,
        "pool": pool,
        "provenance": provenance or {},
    }
    write_tensors(Path(path), "model", detector.state_dict(), about)


def read_model_info(path: str | Path) -> dict[str, Any]:
    """Metadata of a model file: classes, features, network, pool, provenance. Reads no weights."""
    return read_tensors(Path(path), "model", only_about=True)[1]


def model_file(place: Path, order: str = "") -> Path:
    """The model file of a run folder, or the file itself; `order` of arguments is a hint for users who swapped them."""
    if not place.is_dir():
        return place
    path = place / "model.safetensors"
    if not path.exists() and (place / "config.toml").exists():
        raise ModelFileError(f"{place} has no model.safetensors yet: no epoch of its training has ended")
    if not path.exists():
        hint = f"; the order is {order}" if order else ""
        raise ModelFileError(f"{place} is not a run folder (it has no model.safetensors){hint}")
    return path


def load_detector(path: str | Path, *, network: nn.Module | None = None) -> Detector:
    """Load the detector of a model file, in evaluation mode; a custom `network` is passed in, with the same shapes."""
    tensors, about = read_tensors(Path(path), "model")
    try:
        with torch.random.fork_rng(devices=[]):  # initial weights are random; leave the caller's generator alone
            detector = _build(about, network, tensors)
        detector.load_state_dict(tensors)
    except (EarmarkError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ModelFileError(f"{path}: its parts do not fit together: {what}") from error
    return detector.eval()


def _build(about: dict[str, Any], network: nn.Module | None, tensors: dict[str, Tensor]) -> Detector:
    features = FeatureConfig.from_dict(about["features"])
    classes = about["classes"]
    if network is None:
        options = dict(about["network"])
        name = options.pop("name")
        with torch.device("meta"):  # takes no memory, however large a network the file describes
            sizes = create_network(name, features.n_bands, **options).state_dict()
        for key, like in sizes.items():
            shape = tuple(tensors[f"network.{key}"].shape)
            if shape != tuple(like.shape):
                raise ArgumentError(f"network.{key}: expected shape {tuple(like.shape)}, got {shape}")
        network = create_network(name, features.n_bands, **options)
    options = dict(about["pool"])
    pool = create_pool(options.pop("name"), len(classes), **options)
    return Detector(classes, features, network, pool)
