"""Evaluated runs of a grid in one small file, `runs.npz`: what tables, figures, intervals and tests are computed from.

    write_runs(path, {("max-cnn-seed0", "clean"): pack(evaluation, config=..., epochs=82, best_epoch=52), ...})
    read_runs(path)["max-cnn-seed0", "clean"].unpack(folder)      # an Evaluation, without events and probabilities

Models that are evaluated on the same clips have the same reference, and mostly agree. Their counts are therefore stored
side by side, which compresses well:

    cells, evaluations, about   (rows,)  names of run and evaluation; JSON: `scores.json` without scores, but with the
                                         settings of the run (`config`), `epochs` and `best_epoch`
    groups                      (rows,)  rows with the same number have the same clips, classes and reference
    G.filenames, G.classes               of the group G
    G.KIND.reference, G.KIND.total       (clips, classes): positives of the reference; all decisions
    G.KIND.estimate                      (clips, classes, rows of the group): positives of the model
    G.KIND.tp, G.KIND.fp                 (clips, classes, rows of the group)
    G.KIND.substitutions                 (clips, rows of the group)

A kind is `static`, `pooled`, `dynamic` or `event`. The other counts follow: every miss is a substitution or a deletion,
every false alarm a substitution or an insertion. There is one static and one pooled decision per clip and class, so
that their `estimate` suffices. Counts of events are added up over all clips: they have scores, but no intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from earmark.arrays import Shapes, read_arrays, write_arrays
from earmark.counts import Counts, scores
from earmark.errors import DataError
from earmark.evaluation.result import Evaluation
from earmark.evaluation.saved import check_scores_file, distinct_texts
from earmark.files import json_text
from earmark.schema import open_record, parse, parse_json

__all__ = ["Kept", "KeptEvaluation", "pack", "read_runs", "write_runs"]

_STORED = {  # arrays of each kind
    "static": ("reference", "total", "estimate"),
    "pooled": ("reference", "total", "estimate"),
    "dynamic": ("reference", "total", "tp", "fp", "substitutions"),
    "event": ("reference", "tp", "fp", "substitutions"),  # without true negatives
}
_SHARED = ("reference", "total")  # by the rows of a group
_COUNT = "u1 u2 u4"

Arrays = dict[str, npt.NDArray[Any]]


@open_record
class _About:
    """The entries of `about` that are read here: the run behind an evaluation, and the convention of its scores."""

    config: dict[str, dict[str, Any]]
    epochs: Annotated[int, Field(ge=0)]
    best_epoch: Annotated[int, Field(ge=0)]
    convention: Literal["plain", "sed_eval"]


@dataclass(frozen=True)
class KeptEvaluation:
    """One evaluation of one run.

    `about` has everything of `scores.json` but scores, and `config`, `epochs` and `best_epoch`.
    """

    about: Mapping[str, Any]
    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    counts: Mapping[str, Arrays]
    """By kind, as they are stored."""
    where: str = ""
    """File and names, for errors."""

    def unpack(self, folder: Path) -> Evaluation:
        """The evaluation, of which `folder` is or was the folder."""
        counts = {kind: self._unpack(kind) for kind in _STORED if kind == "static" or kind in self.counts}
        convention = self.about["convention"]
        parts = {kind: scores(part, convention=convention).to_dict() for kind, part in counts.items()}
        static = {"maximum": parts["static"], "pooled": parts.get("pooled")}
        values = {**self.about, "static": static, "dynamic": parts.get("dynamic"), "event": parts.get("event")}
        checked = check_scores_file(parse_json(dict[str, Any], json_text(values)), self.where)
        if (tuple(checked["classes"]), checked["clips"]) != (self.classes, len(self.filenames)):
            raise DataError(f"{self.where}: expected counts of its clips and classes, got others")
        by_clip = {f"{kind}_counts": part for kind, part in counts.items() if kind != "event"}
        return Evaluation(checked, _folder=folder, **by_clip)  # type: ignore[arg-type]

    def _unpack(self, kind: str) -> Counts:
        arrays = self.counts.get(kind, {})
        if missing := [name for name in _STORED[kind] if name not in arrays]:
            raise DataError(f"{self.where}: {kind}.{missing[0]} is missing")
        parts = {name: array.astype(np.int64) for name, array in arrays.items()}
        reference = parts["reference"]
        if "estimate" in parts:
            tp = np.minimum(parts["estimate"], reference)
            fp = parts["estimate"] - tp
            substitutions = np.minimum((reference - tp).sum(1), fp.sum(1))
        else:
            tp, fp, substitutions = parts["tp"], parts["fp"], parts["substitutions"]
        fn = reference - tp
        tn = parts["total"] - reference - fp if "total" in parts else None
        deletions, insertions = fn.sum(1) - substitutions, fp.sum(1) - substitutions
        if any(part is not None and (part < 0).any() for part in (fn, tn, deletions, insertions)):
            raise DataError(f"{self.where}: {kind}: expected counts that add up, got some below 0")
        names = ("all clips",) if kind == "event" else self.filenames
        return Counts(names, self.classes, tp, fp, fn, tn, substitutions, deletions, insertions)


Kept = Mapping[tuple[str, str], KeptEvaluation]
"""Evaluations by the names of run and evaluation."""


def pack(evaluation: Evaluation, *, config: Mapping[str, Any], epochs: int, best_epoch: int) -> KeptEvaluation:
    """An evaluation as it is kept, with the settings of its run and the length of its training."""
    counts = {}
    for kind, stored in _STORED.items():
        part: Counts | None = getattr(evaluation, f"{kind}_counts")
        if part is None:
            continue
        if kind == "event":
            part = replace(part, **{name: value.sum(0, keepdims=True) for name, value in part.arrays().items()})
        arrays = {"reference": part.n_ref, "estimate": part.tp + part.fp, **part.arrays()}
        if part.tn is not None:
            arrays["total"] = part.n_ref + part.fp + part.tn
        counts[kind] = {name: arrays[name] for name in stored}
    about = {key: value for key, value in evaluation.scores.items() if key not in ("static", "dynamic", "event")}
    about |= {"config": config, "epochs": epochs, "best_epoch": best_epoch}
    static = evaluation.static_counts
    return KeptEvaluation(about, static.filenames, static.classes, counts)


def write_runs(path: Path, kept: Kept) -> None:
    """Write evaluations, atomically."""
    groups: dict[tuple[object, ...], list[KeptEvaluation]] = {}
    numbers = []
    for evaluation in kept.values():
        shared = [
            (kind, name, array.astype(np.int64).tobytes())
            for kind, arrays in evaluation.counts.items()
            for name, array in arrays.items()
            if name in _SHARED
        ]
        key = (evaluation.filenames, evaluation.classes, *shared)
        groups.setdefault(key, []).append(evaluation)
        numbers.append(list(groups).index(key))
    cells, evaluations = np.array(list(kept)).T
    arrays: Arrays = {"cells": cells, "evaluations": evaluations, "groups": np.array(numbers, np.uint32)}
    arrays["about"] = np.array([json_text(evaluation.about) for evaluation in kept.values()])
    for number, group in enumerate(groups.values()):
        first = group[0]
        arrays |= {f"{number}.filenames": np.array(first.filenames), f"{number}.classes": np.array(first.classes)}
        for kind, parts in first.counts.items():
            for name, array in parts.items():
                value = array
                if name not in _SHARED:
                    value = np.stack([evaluation.counts[kind][name] for evaluation in group], axis=-1)
                arrays[f"{number}.{kind}.{name}"] = value.astype(np.min_scalar_type(value.max(initial=0)))
    write_arrays(path, arrays, smaller=True)


def read_runs(path: Path) -> Kept:
    """Read what `write_runs` wrote; empty without a file."""
    if not path.exists():
        return {}
    texts: Shapes = dict.fromkeys(("cells", "evaluations", "about"), ("U", ("rows",)))
    index = read_arrays(path, {**texts, "groups": (_COUNT, ("rows",))})
    kept: dict[int, tuple[tuple[str, str], KeptEvaluation]] = {}
    for number in np.unique(index["groups"]):
        rows = np.flatnonzero(index["groups"] == number).tolist()
        arrays = _read_group(path, f"{number}.", len(rows))
        filenames, classes = (distinct_texts(path, arrays.pop(name)) for name in ("filenames", "classes"))
        for position, row in enumerate(rows):
            key = str(index["cells"][row]), str(index["evaluations"][row])
            where = f"{path}: {', '.join(key)}"
            about = parse_json(dict[str, Any], str(index["about"][row]), where=where)
            parse(_About, about, where=where)
            counts: dict[str, Arrays] = {}
            for name, array in arrays.items():
                kind, _, part = name.partition(".")
                counts.setdefault(kind, {})[part] = array if part in _SHARED else array[..., position]
            kept[row] = key, KeptEvaluation(about, filenames, classes, counts, where)
    return dict(kept[row] for row in sorted(kept))


def _read_group(path: Path, prefix: str, rows: int) -> Arrays:
    """The arrays of a group, without the prefix of their names."""
    names: Shapes = {f"{prefix}filenames": ("U", ("clips",)), f"{prefix}classes": ("U", ("classes",))}
    counts: dict[str, tuple[str, tuple[str | int, ...]]] = {}
    for kind, parts in _STORED.items():
        clips: str | int = 1 if kind == "event" else "clips"
        for part in parts:
            axes = [clips] if part == "substitutions" else [clips, "classes"]
            counts[f"{prefix}{kind}.{part}"] = (_COUNT, (*axes, *(() if part in _SHARED else (rows,))))
    arrays = read_arrays(path, names, optional=counts)
    return {name.removeprefix(prefix): array for name, array in arrays.items()}
