"""Judgements kept on disk, so that comparing and reporting need neither model nor sound.

    scores.json         every score, what was judged and how, notes
    events.tsv          the events found
    counts.npz          counts clip by clip: `static`, `pooled`, `dynamic`, `event`, each with `.tp`, `.fp`, ...
    probabilities.npz   frame probabilities of all clips, one after the other, in single precision: in half, all that is
                        nearly certain would be 1, and figures made of them would not be those of the judgement

Files are written whole or not at all, `scores.json` last, and that of an earlier judgement goes first: where it is, the
others are, and belong to it. A ratio without a divisor is NaN here, also where the file says null.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.evaluation.base import Counts
from earmark.evaluation.models import Judgement
from earmark.files import json_text, make_folder, written_whole
from earmark.formats import read_labels, write_labels

__all__ = ["Heard", "Saved", "load_judgement", "save_judgement"]

_KINDS = ("static", "pooled", "dynamic", "event")
_NUMBERS = ("dynamic", "event", "psds", "intervals")  # and what is in "static"
_COUNTS = tuple(field.name for field in fields(Counts) if field.name not in ("filenames", "classes"))


class Heard(NamedTuple):
    """What a detector said about a clip: p (frames', classes), from so many frames of features, and seconds."""

    p: npt.NDArray[np.floating[Any]]
    frames: int
    duration: float


@dataclass(frozen=True)
class Saved:
    """A judgement read back.

    Attributes
    ----------
    scores
        What `scores.json` holds, numbers that are missing being NaN.
    static_counts, pooled_counts, dynamic_counts, event_counts
        As in `earmark.evaluation.models.Judgement`.
    """

    folder: Path
    scores: dict[str, Any]
    static_counts: Counts
    pooled_counts: Counts | None
    dynamic_counts: Counts | None
    event_counts: Counts | None

    @property
    def config(self) -> Path | None:
        """The file with the settings of its run, beside it or one folder up; None where there is none."""
        places = (self.folder / "config.toml", self.folder.parent / "config.toml")
        return next((place for place in places if place.is_file()), None)

    def estimate(self) -> LabelTable:
        """The events found."""
        names, classes = self.static_counts.filenames, self.static_counts.classes
        found = read_labels(self.folder / "events.tsv", "tsv")
        return LabelTable(found, filenames=names, classes=classes)

    def probabilities(self) -> dict[str, Heard]:
        """Frame probabilities by file name; empty where events were judged that came without."""
        path = self.folder / "probabilities.npz"
        if not path.exists():
            return {}
        kept = _read_arrays(path, ("filenames", "p", "starts", "frames", "durations"))
        starts = kept["starts"]
        return {
            str(name): Heard(kept["p"][starts[i] : starts[i + 1]], int(kept["frames"][i]), float(kept["durations"][i]))
            for i, name in enumerate(kept["filenames"])
        }


def save_judgement(folder: Path, judgement: Judgement, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write a judgement, and return what `scores.json` holds, numbers that are missing being NaN.

    Parameters
    ----------
    about
        What else is to be known: model, data, split, ... Its `notes` go before those of the judgement, and its
        `reference` says where the reference came from, "data" if it does not.
    """
    make_folder(folder)
    scores = {
        "reference": "data",
        "segment": judgement.segment,
        "convention": judgement.convention,
        "classes": list(judgement.static_counts.classes),
        "clips": len(judgement.static_counts.filenames),
        **about,
        **judgement.to_dict(),
        "intervals": judgement.intervals(),
        "notes": [*about.get("notes", ()), *judgement.notes],
    }
    counts = _counts_to_arrays(judgement)  # refuses what cannot be kept, while what was there still stands
    (folder / "scores.json").unlink(missing_ok=True)
    write_labels(judgement.estimate, folder / "events.tsv", "tsv")
    _write_arrays(folder / "counts.npz", counts)
    if judgement.clips:
        _write_arrays(folder / "probabilities.npz", _probabilities_to_arrays(judgement))
    else:
        (folder / "probabilities.npz").unlink(missing_ok=True)  # of an earlier judgement
    with written_whole(folder / "scores.json") as draft:
        draft.write_text(json_text(scores, indent=1), encoding="utf-8")
    return scores


def load_judgement(folder: Path) -> Saved:
    """A judgement that `save_judgement` wrote, which is what `earmark evaluate` leaves in a run."""
    path = folder / "scores.json"
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; a run, or what evaluate left elsewhere, is expected")
    if not path.is_file() or not (folder / "counts.npz").is_file():
        raise DataError(f"{folder}: not judged yet; run: earmark evaluate {folder} DATA")
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(scores, dict):
            raise ValueError("an object expected")
        scores |= {name: _with_nan(scores[name]) for name in _NUMBERS if scores.get(name)}
        if isinstance(scores.get("static"), dict):
            scores["static"] = {rule: own and _with_nan(own) for rule, own in scores["static"].items()}
    except ValueError as error:
        raise DataError(f"{path}: damaged: {error}") from error
    kept = _read_arrays(folder / "counts.npz", ("filenames", "classes", "static.tp"))
    return Saved(folder, scores, *(_arrays_to_counts(kept, kind) for kind in _KINDS))  # type: ignore[arg-type]


def _with_nan(value: Any) -> Any:
    """The same with NaN for null; files of before have NaN itself."""
    if isinstance(value, dict):
        return {name: _with_nan(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_with_nan(own) for own in value]
    return math.nan if value is None else value


def _counts_to_arrays(judgement: Judgement) -> dict[str, npt.NDArray[Any]]:
    first = judgement.static_counts
    arrays: dict[str, npt.NDArray[Any]] = {"filenames": np.array(first.filenames), "classes": np.array(first.classes)}
    for kind in _KINDS:
        counts: Counts | None = getattr(judgement, f"{kind}_counts")
        if counts is None:
            continue
        if counts.filenames != first.filenames or counts.classes != first.classes:
            raise DataError(f"{kind} and static counts are not of the same clips; name all clips in the reference")
        for name in _COUNTS:
            if (value := getattr(counts, name)) is not None:
                arrays[f"{kind}.{name}"] = value.astype(np.min_scalar_type(value.max(initial=0)))  # they are small
    return arrays


def _arrays_to_counts(arrays: Mapping[str, npt.NDArray[Any]], kind: str) -> Counts | None:
    if f"{kind}.tp" not in arrays:
        return None
    names, classes = (tuple(arrays[part].tolist()) for part in ("filenames", "classes"))
    found = {name: arrays[f"{kind}.{name}"].astype(np.int64) for name in _COUNTS if f"{kind}.{name}" in arrays}
    return Counts(names, classes, **{"tn": None, **found})  # type: ignore[arg-type]


def _probabilities_to_arrays(judgement: Judgement) -> dict[str, npt.NDArray[Any]]:
    clips = judgement.clips
    return {
        "filenames": np.array([c.filename for c in clips]),
        "classes": np.array(judgement.static_counts.classes),
        "p": np.concatenate([c.dynamic for c in clips]).astype(np.float32),
        "starts": np.concatenate([[0], np.cumsum([len(c.dynamic) for c in clips])]),
        "frames": np.array([c.frames for c in clips]),
        "durations": np.array([c.duration for c in clips]),
        "pooled": np.stack([c.static for c in clips]).astype(np.float32),
    }


def _write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    with written_whole(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _read_arrays(path: Path, needed: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            arrays = {name: kept[name] for name in kept.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: damaged, or not what evaluate writes: {error}") from error
    for name in needed:
        if name not in arrays:
            raise DataError(f"{path}: not what evaluate writes: it holds no {name}")
    return arrays
