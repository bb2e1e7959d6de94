"""Model files and training states: tensors and a line of JSON, in the safetensors format.

`model.safetensors` alone is enough to detect with: weights, classes, features, network and pool, and where they came
from. Nothing in such a file is ever executed. `last.ckpt` has the same format and holds what training needs to go on.
Files are written whole or not at all.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from earmark.detector import Detector
from earmark.errors import EarmarkError, ModelFileError
from earmark.features import FeatureConfig
from earmark.files import written_whole
from earmark.networks import create_network
from earmark.pooling import create_pool

__all__ = ["load_detector", "read_model_info", "read_tensors", "save_detector", "write_tensors"]

_VERSION = 1


def write_tensors(path: Path, kind: str, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and what is to be known about them."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {"earmark": json.dumps({"kind": kind, "version": _VERSION, "written_by": version("earmark"), **about})}
    with written_whole(path) as draft:
        try:
            save_file(plain, draft, metadata=header)
        except SafetensorError as error:  # a full disk, among others
            raise OSError(f"{path} could not be written: {error}") from error


def read_tensors(path: Path, kind: str, *, only_about: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_tensors` wrote; anything else is refused with the reason."""
    if not path.is_file():
        raise ModelFileError(f"{path}: no such file")
    try:
        with safe_open(path, "pt") as file:
            header = (file.metadata() or {}).get("earmark")
            tensors = {} if only_about or header is None else {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = None if header is None else json.loads(header)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path}: damaged, cut short, or not a model file at all: {error}") from error
    if not isinstance(about, dict) or "kind" not in about or not isinstance(about.get("version"), int):
        raise ModelFileError(f"{path}: a file of weights that earmark did not write")
    if about["version"] > _VERSION:
        raise ModelFileError(
            f"{path}: written by a newer earmark ({about.get('written_by')}); this one is {version('earmark')}"
        )
    if about["kind"] != kind:
        raise ModelFileError(f"{path}: holds a {about['kind']}, not a {kind}")
    return tensors, about


def save_detector(
    path: str | Path,
    detector: Detector,
    *,
    network: dict[str, Any],
    pool: dict[str, Any],
    provenance: dict[str, Any] | None = None,
) -> None:
    """Write a model file.

    Parameters
    ----------
    network, pool
        Name and options that the detector's parts were created with.
    provenance
        Where the weights came from: anything that JSON can say.
    """
    about = {
        "classes": list(detector.classes),
        "features": detector.features.to_dict(),
        "network": network,
        "pool": pool,
        "provenance": provenance or {},
    }
    write_tensors(Path(path), "model", detector.state_dict(), about)


def read_model_info(path: str | Path) -> dict[str, Any]:
    """What a model file says about itself: classes, features, network, pool, provenance. Reads no weights."""
    return read_tensors(Path(path), "model", only_about=True)[1]


def load_detector(path: str | Path, *, network: nn.Module | None = None) -> Detector:
    """The detector in a model file, ready to detect.

    Parameters
    ----------
    network
        For a detector that was trained with a network of your own: a module of the same shape.
    """
    tensors, about = read_tensors(Path(path), "model")
    try:
        features = FeatureConfig.from_dict(about["features"])
        kinds = {kind: dict(about[kind]) for kind in ("network", "pool")}
        if network is None:
            network = create_network(kinds["network"].pop("name"), features.n_bands, **kinds["network"])
        pool = create_pool(kinds["pool"].pop("name"), len(about["classes"]), **kinds["pool"])
        detector = Detector(about["classes"], features, network, pool)
        with torch.no_grad():
            detector.load_state_dict(tensors)
    except (EarmarkError, KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{path}: its parts do not fit together: {error}") from error
    return detector.eval()
