"""Model files and training states: tensors and a line of JSON, in the safetensors format.

`model.safetensors` is self-contained: weights, classes, features, network, pool, provenance and, if one was chosen, the
decoder that `detect` uses. Nothing in such a file is ever executed. `last.ckpt` has the same format and holds the state
from which training resumes. Files are written whole or not at all.
"""

import hashlib
import struct
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from earmark.audio import SUFFIXES
from earmark.detector import Detector
from earmark.encoders.features import CheckedFeatures, parse_features
from earmark.errors import ArgumentError, EarmarkError, ModelFileError
from earmark.files import json_text, written_whole
from earmark.fine_tuning import network_for
from earmark.pooling import create_pool
from earmark.schema import Names, Number, open_record, parse, parse_json, record

__all__ = [
    "check_tensors",
    "load_detector",
    "load_weights",
    "model_file",
    "read_model_info",
    "read_tensors",
    "save_decoder",
    "save_detector",
    "write_tensors",
]

_VERSION = 1
_LONGEST_HEADER = 1 << 24  # bytes: names and shapes of tensors, and metadata


@open_record
class _Header:
    """Metadata of every file that `write_tensors` writes."""

    kind: str
    version: Annotated[int, Field(ge=1)]
    written_by: str
    tensors: str  # digest of the tensors


@open_record
class _Provenance:
    """Origin of the weights of a model, as far as it is known."""

    command: str = ""
    data: str | None = None
    data_source: str = ""
    epoch: int = Field(default=1, ge=1)
    patch: float = Field(default=10.0, gt=0, le=86400, description="Seconds of a training excerpt.")
    recipe: str = ""
    scores: dict[str, Number] = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0)
    training_clips: int = Field(default=0, ge=0)
    validation_clips: int = Field(default=0, ge=0)
    versions: dict[str, str] = Field(default_factory=dict)


@open_record
class _Part:
    """A network or pool, besides its options."""

    name: str


@record
class _ModelInfo:
    """Metadata of a model file."""

    kind: str
    version: int
    written_by: str
    tensors: str
    classes: Names
    features: CheckedFeatures
    network: _Part
    pool: _Part
    provenance: _Provenance
    decoder: dict[str, Any] | None = None


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


def read_tensors(
    path: Path, kind: str, schema: type[object] | None = None, *, only_about: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `write_tensors`, with metadata that fit the schema; anything else is rejected with the reason."""
    if path.is_dir():
        raise ModelFileError(f"{path}: a folder, not a file")
    if not path.is_file():
        hint = f"; train a model first: earmark train RECORDINGS --out {path}" if kind == "model" else ""
        raise ModelFileError(f"{path}: no such file{hint if not path.suffix else ''}")
    try:
        _check_header_length(path)
        with safe_open(path, "pt") as file:
            about = _read_about(path, kind, file.metadata() or {}, schema)
            if only_about:
                return {}, about
            # copies, since safetensors maps the file, which may be overwritten while the tensors are in use
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, LookupError, TypeError) as error:
        raise ModelFileError(f"{path}: damaged, truncated, or not a model file: {error}") from error
    if _fingerprint(tensors) != about["tensors"]:
        raise ModelFileError(f"{path}: damaged: its weights do not match their checksum")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ModelFileError(f"{path}: {name}: expected finite numbers, got NaN or infinity")
    return tensors, about


def _check_header_length(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(8)
    if len(start) == 8 and struct.unpack("<Q", start)[0] > _LONGEST_HEADER:
        raise SafetensorError(f"expected a header of at most {_LONGEST_HEADER >> 20} MiB")


def _read_about(path: Path, kind: str, header: dict[str, str], schema: type[object] | None) -> dict[str, Any]:
    if not {"earmark", "sha256"} <= header.keys():
        raise ModelFileError(f"{path}: a weights file that earmark did not write")
    if hashlib.sha256(header["earmark"].encode()).hexdigest() != header["sha256"]:
        raise ModelFileError(f"{path}: damaged: its metadata do not match their checksum")
    about = parse_json(dict[str, Any], header["earmark"], where=path, error=ModelFileError)
    origin = parse(_Header, about, where=path, error=ModelFileError)
    if origin.version > _VERSION:
        raise ModelFileError(
            f"{path}: written by a newer earmark ({origin.written_by}); this one is {version('earmark')}"
        )
    if origin.kind != kind:
        raise ModelFileError(f"{path}: contains a {origin.kind}, not a {kind}")
    if schema is not None:
        parse(schema, about, where=path, error=ModelFileError)
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


def save_decoder(path: str | Path, settings: dict[str, Any]) -> None:
    """Add a decoder to a model file, or replace it: the values of `earmark.events.Decoder.to_dict`."""
    tensors, about = read_tensors(Path(path), "model", _ModelInfo)
    write_tensors(Path(path), "model", tensors, {**about, "decoder": settings})


def read_model_info(path: str | Path) -> dict[str, Any]:
    """Metadata of a model file: classes, features, network, pool, provenance, decoder. Reads no weights."""
    return read_tensors(Path(path), "model", _ModelInfo, only_about=True)[1]


def model_file(place: Path, order: str = "") -> Path:
    """The model file of a run folder, or the file itself; `order` is a hint for users who swapped two arguments."""
    hint = f"; expected {order}, in this order" if order else ""
    if place.is_file() and place.suffix.lower() in SUFFIXES:
        raise ModelFileError(f"{place} is a recording, not a model{hint}")
    if not place.is_dir():
        return place
    path = place / "model.safetensors"
    if not path.exists() and (place / "config.toml").exists():
        raise ModelFileError(f"{place} has no model.safetensors yet: its first epoch has not finished")
    if not path.exists():
        raise ModelFileError(f"{place} is not a run folder (it has no model.safetensors){hint}")
    return path


def load_detector(path: str | Path, *, network: nn.Module | None = None) -> Detector:
    """Load the detector of a model file, in evaluation mode; a custom `network` is passed in, with the same shapes."""
    tensors, about = read_tensors(Path(path), "model", _ModelInfo)
    try:
        with torch.random.fork_rng(devices=[]):  # initial weights are random; leave the caller's generator alone
            detector = _build(about, network, tensors)
        check_tensors(tensors, detector.state_dict())
        detector.load_state_dict(tensors)
    except (EarmarkError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path}: its parts do not match: {' '.join(str(error).split())}") from error
    return detector.eval()


def load_weights(detector: Detector, path: str | Path) -> None:
    """Load the weights of a model file into a detector; classes that are not in the file keep their weights."""
    start = load_detector(path)
    if start.features.fingerprint() != detector.features.fingerprint():
        raise ModelFileError(f"{path}: was trained on different features; start from a model with the same features")
    mine, theirs = detector.state_dict(), start.state_dict()
    if mine.keys() != theirs.keys():
        raise ModelFileError(f"{path}: has a different network or pool; start from a model with the same ones")
    shared = [label for label in detector.classes if label in start.classes]
    my_rows = torch.tensor([detector.classes.index(label) for label in shared], dtype=torch.long)
    their_rows = torch.tensor([start.classes.index(label) for label in shared], dtype=torch.long)
    for name, value in theirs.items():
        part, _, inner = name.partition(".")
        axes = {"head": (0,), "pool": detector.pool.class_axes(inner)}.get(part, ())
        sizes = [[n for axis, n in enumerate(tensor.shape) if axis not in axes] for tensor in (mine[name], value)]
        if sizes[0] != sizes[1]:
            raise ModelFileError(f"{path}: {name}: expected shape {(*mine[name].shape,)}, got {(*value.shape,)}")
        if any(axis < value.dim() for axis in axes):
            mine[name][_grid(value, axes, my_rows)] = value[_grid(value, axes, their_rows)]
        else:
            mine[name].copy_(value)
    detector.load_state_dict(mine)


def _grid(tensor: Tensor, axes: tuple[int, ...], rows: Tensor) -> tuple[Tensor, ...]:
    """The index of some rows along some axes, and of everything along the others."""
    along = [rows if axis in axes else torch.arange(n) for axis, n in enumerate(tensor.shape)]
    return torch.meshgrid(*along, indexing="ij")


def check_tensors(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """Reject tensors that do not have the names, shapes and kinds of numbers of others."""
    for name, expected in like.items():
        if name not in tensors:
            raise ArgumentError(f"{name} is missing")
        tensor = tensors[name]
        if tensor.shape != expected.shape:
            raise ArgumentError(f"{name}: expected shape {tuple(expected.shape)}, got {tuple(tensor.shape)}")
        if tensor.is_floating_point() != expected.is_floating_point() or tensor.is_complex():
            raise ArgumentError(f"{name}: expected {expected.dtype}, got {tensor.dtype}")
    for name in tensors:
        if name not in like:
            raise ArgumentError(f"unexpected tensor {name!r}")


def _build(about: dict[str, Any], network: nn.Module | None, tensors: dict[str, Tensor]) -> Detector:
    features = parse_features(about["features"])
    classes = about["classes"]
    if network is None:
        with torch.device("meta"):  # takes no memory, however large a network the file describes
            sizes = network_for(features, about["network"]).state_dict()
        parts = {key.removeprefix("network."): value for key, value in tensors.items() if key.startswith("network.")}
        check_tensors(parts, sizes)
        network = network_for(features, about["network"])
    options = dict(about["pool"])
    pool = create_pool(options.pop("name"), len(classes), **options)
    return Detector(classes, features, network, pool)
