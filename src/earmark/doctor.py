"""Facts about this machine for bug reports: versions, devices, audio libraries, encoders, folders.

Nothing is changed, written or downloaded.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from earmark.audio import SUFFIXES
from earmark.bags import default_cache
from earmark.encoders import ENCODERS, weights
from earmark.text import listed

__all__ = ["examine"]

_VARIABLES = re.compile(r"EARMARK_|CUDA_|OMP_|MKL_|ATEN_|TORCH|KERAS_BACKEND|HEAR_|NO_COLOR|COLUMNS|TERM$|LANG$|LC_")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)


def examine() -> dict[str, Any]:
    """Plain values about this installation and machine; `problems` has a line for each thing that is wrong."""
    facts: dict[str, Any] = {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "system": {"platform": platform.platform(), "machine": platform.machine(), "cores": os.cpu_count()},
        "packages": _packages(),
        "devices": _devices(),
        "audio": _audio(),
        "encoders": _encoders(),
        "places": _places(),
        "environment": {
            name: "(hidden)" if _SECRET.search(name) else value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.match(name)
        },
    }
    return facts | {"problems": _problems(facts)}


def _packages() -> dict[str, dict[str, str | None]]:
    """Versions of the packages of `core` and of each extra; None for those that are not installed."""
    try:
        required = importlib.metadata.requires("earmark") or []
    except importlib.metadata.PackageNotFoundError:  # run from a folder of sources
        return {}
    groups: dict[str, dict[str, str | None]] = {"core": {}}
    for line in required:
        match = re.match(r"([\w.-]+)[^;]*(?:;.*extra == ['\"](\w+)['\"])?", line)
        if match is None or match[1] == "earmark" or match[2] in ("dev", "docs", "oracles", "test"):
            continue
        groups.setdefault(match[2] or "core", {})[match[1]] = _version(match[1])
    return groups


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[dict[str, Any]]:
    """Devices that PyTorch can use."""
    try:
        import torch
    except ImportError:  # detection with an exported model does not need it
        return []
    devices: list[dict[str, Any]] = [{"name": "cpu", "threads": torch.get_num_threads()}]
    if torch.cuda.is_available():
        for k in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(k)
            devices.append({"name": f"cuda:{k}", "model": about.name, "bytes": about.total_memory})
    return devices


def _audio() -> dict[str, Any]:
    """Versions of the libraries that read and resample sound, and the suffixes of files that can be read."""
    import soundfile

    kinds = {"mp3": "MP3", "ogg": "OGG", "flac": "FLAC"}
    known = soundfile.available_formats()
    missing = [name for name, kind in kinds.items() if kind not in known]
    return {
        "libsndfile": soundfile.__libsndfile_version__,
        "soundfile": soundfile.__version__,
        "soxr": _version("soxr"),
        "suffixes": sorted(SUFFIXES),
        "missing": missing,
    }


def _encoders() -> list[dict[str, Any]]:
    """Encoders with weights to download, and whether they are installed."""
    cards = [entry.cls.card for entry in ENCODERS if entry.is_listed and not entry.cls.target]
    return [
        {"name": card.name, "present": weights.find(card) is not None, "path": str(weights.path_of(card))}
        for card in cards
    ]


def _places() -> list[dict[str, Any]]:
    """Folders that earmark writes to: whether they can be written, and how much is free."""
    folders = {"cache": default_cache("").parent, "data": weights.home(), "temporary": Path(tempfile.gettempdir())}
    places = []
    for name, folder in folders.items():
        existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.exists(place))
        places.append(
            {
                "name": name,
                "path": str(folder),
                "writable": existing.is_dir() and os.access(existing, os.W_OK | os.X_OK),
                "free": shutil.disk_usage(existing).free,
            }
        )
    return places


def _problems(facts: dict[str, Any]) -> list[str]:
    missing = [name for name, version in facts["packages"].get("core", {}).items() if version is None]
    problems = []
    if missing:
        problems.append(f"required packages are not installed: {listed(missing)}; run: pip install earmark")
    if facts["audio"]["missing"]:
        kinds = listed(facts["audio"]["missing"])
        problems.append(f"libsndfile {facts['audio']['libsndfile']} cannot read {kinds}; run: pip install -U soundfile")
    for place in facts["places"]:
        if not place["writable"]:
            problems.append(f"{place['path']}: earmark cannot write here ({place['name']})")
        elif place["free"] < 1e9:
            problems.append(f"{place['path']}: less than 1 GB is free ({place['name']})")
    return problems
