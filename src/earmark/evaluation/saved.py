"""Schemas of the files of an evaluation: `scores.json`, `counts.npz` and `probabilities.npz`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, Strict

from earmark.arrays import Shapes, read_arrays
from earmark.counts import Counts
from earmark.errors import ArgumentError, DataError
from earmark.events import Decoder
from earmark.inference.scores import MOST_REDUCTION, RecordingScores, check_scores
from earmark.schema import Names, Number, open_record, parse, read_json, record

KINDS = ("static", "pooled", "dynamic", "event")
_TABLES, _TOTALS = ("tp", "fp", "fn", "tn"), ("substitutions", "deletions", "insertions")
_COUNT = "u1 u2 u4"
_NUMBERS = ("dynamic", "event", "psds", "intervals")  # entries in which null is NaN, besides those of "static"

_Align = Literal["middle", "authors"]
_Interval = Annotated[tuple[Number, Number], Strict(False)]


@record
class _Ratios:
    f1: Number
    precision: Number
    recall: Number
    error_rate: Number
    substitution_rate: Number
    deletion_rate: Number
    insertion_rate: Number
    accuracy: Number
    sensitivity: Number
    specificity: Number
    balanced_accuracy: Number
    n_ref: Number
    n_est: Number


@record
class _Scores:
    overall: _Ratios
    macro: _Ratios
    per_class: dict[str, _Ratios]


@record
class _ClipScores(_Scores):
    """Scores of probabilities; events from another program have only the first three."""

    rule: str = ""
    average_precision: dict[str, Number] = Field(default_factory=dict)
    roc_auc: dict[str, Number] = Field(default_factory=dict)
    macro_average_precision: Number = None
    macro_roc_auc: Number = None


@record
class _Static:
    maximum: _ClipScores
    pooled: _ClipScores | None


@record
class _Psds:
    psds1: Number
    psds2: Number


@record
class _Grid:
    hop: Annotated[float, Field(gt=0)]
    reduction: Annotated[int, Field(ge=1, le=MOST_REDUCTION)]
    align: _Align


@open_record
class _File:
    """`scores.json`; callers of `evaluate_scores` may add other entries."""

    segment: Annotated[float, Field(gt=0)]
    convention: Literal["plain", "sed_eval"]
    classes: Names
    clips: Annotated[int, Field(ge=0)]
    static: _Static
    dynamic: _Scores | None
    event: _Scores | None
    psds: _Psds | None
    decoder: dict[str, Any] | None
    grid: _Grid | None
    reference_fingerprint: str
    notes: list[str]
    intervals: dict[str, _Interval]
    interval_block: Number = None
    reference: str = "data"
    model: str | None = None
    events: str | None = None
    data: str | None = None
    split: str | None = None
    tune_on: str | None = None
    tune: str | None = None
    align: _Align | None = None
    alpha: list[Number] | None = None
    config: dict[str, dict[str, Any]] | None = None
    skipped: dict[str, str] = Field(default_factory=dict)
    threshold: Any = None


def read_scores_file(path: Path) -> dict[str, Any]:
    """The contents of `scores.json`, with NaN for undefined numbers."""
    return check_scores_file(read_json(dict[str, Any], path), path)


def check_scores_file(scores: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """The contents of a `scores.json`, checked, with NaN for undefined numbers; errors begin with `path`."""
    about = parse(_File, scores, where=path)
    parts: dict[str, _Scores | None] = {"static.maximum": about.static.maximum, "static.pooled": about.static.pooled}
    parts |= {"dynamic": about.dynamic, "event": about.event}
    for name, part in parts.items():
        if part is not None and set(part.per_class) != set(about.classes):
            raise DataError(f"{path}: {name}.per_class: expected the classes of the evaluation, got others")
    if about.alpha is not None and len(about.alpha) != len(about.classes):
        raise DataError(f"{path}: alpha: expected {len(about.classes)} numbers, got {len(about.alpha)}")
    if about.decoder is not None:
        try:
            Decoder.from_dict(about.decoder).check_classes(len(about.classes))
        except ArgumentError as error:
            raise DataError(f"{path}: decoder: {error}") from None
    scores |= {name: _with_nan(scores[name]) for name in _NUMBERS if scores[name]}
    scores["static"] = {rule: part and _with_nan(part) for rule, part in scores["static"].items()}
    return scores


def _with_nan(value: Any) -> Any:
    """The value with NaN for null, at any depth."""
    if isinstance(value, dict):
        return {name: _with_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_nan(part) for part in value]
    return math.nan if value is None else value


def read_counts(path: Path, scores: Mapping[str, Any]) -> dict[str, Counts]:
    """The counts in `counts.npz`, by kind, which belong to these scores."""
    shapes: Shapes = {f"{kind}.{name}": (_COUNT, ("clips", "classes")) for kind in KINDS for name in _TABLES}
    totals: Shapes = {f"{kind}.{name}": (_COUNT, ("clips",)) for kind in KINDS for name in _TOTALS}
    names: Shapes = {"filenames": ("U", ("clips",)), "classes": ("U", ("classes",))}
    arrays = read_arrays(path, names, optional={**shapes, **totals})
    filenames, classes = distinct_texts(path, arrays["filenames"]), distinct_texts(path, arrays["classes"])
    if list(classes) != scores["classes"] or len(filenames) != scores["clips"]:
        raise DataError(f"{path}: expected the clips and classes of scores.json, got others")
    scored = {**scores, **scores["static"], "static": scores["static"]["maximum"]}  # scores by kind
    counts = {}
    for kind in KINDS:
        if not scored[kind]:
            continue
        values: dict[str, Any] = {"tn": None}  # events have no true negatives
        for name in (*_TABLES, *_TOTALS):
            if f"{kind}.{name}" in arrays:
                values[name] = arrays[f"{kind}.{name}"].astype(np.int64)
            elif name != "tn":
                raise DataError(f"{path}: {kind}.{name} is missing")
        counts[kind] = Counts(filenames, classes, **values)
    return counts


def read_recordings(path: Path, scores: Mapping[str, Any], static: Counts) -> dict[str, RecordingScores]:
    """The frame probabilities in `probabilities.npz`, by file name, which belong to these scores and counts."""
    n_classes, grid = len(static.classes), scores["grid"]
    shapes: Shapes = {
        "filenames": ("U", (len(static.filenames),)),
        "p": ("f4", ("frames", n_classes)),
        "starts": ("i4 i8", (len(static.filenames) + 1,)),
        "frames": ("i4 i8", (len(static.filenames),)),
        "durations": ("f8", (len(static.filenames),)),
        "pooled": ("f4", (len(static.filenames), n_classes)),
    }
    arrays = read_arrays(path, shapes)
    names, starts, p = distinct_texts(path, arrays["filenames"]), arrays["starts"], arrays["p"]
    if set(names) != set(static.filenames) or grid is None:
        raise DataError(f"{path}: expected the clips of scores.json, got others")
    if starts[0] != 0 or starts[-1] != len(p) or np.any(np.diff(starts) < 0):
        raise DataError(f"{path}: starts: expected numbers from 0 up to {len(p)}, in order")
    recordings = {}
    for i, name in enumerate(names):
        recordings[name] = RecordingScores(
            filename=name,
            classes=static.classes,
            p=p[starts[i] : starts[i + 1]],
            feature_hop=float(grid["hop"]),
            reduction=int(grid["reduction"]),
            frames=int(arrays["frames"][i]),
            duration=float(arrays["durations"][i]),
            pooled=None if scores["static"]["pooled"] is None else _pooled(path, name, arrays["pooled"][i]),
        )
        check_scores(path, recordings[name])
    return recordings


def _pooled(path: Path, name: str, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError(f"{path}: {name!r}: pooled: expected probabilities in [0, 1], got others or NaN")
    return values


def distinct_texts(path: Path, array: npt.NDArray[Any]) -> tuple[str, ...]:
    """Names in an array, each once."""
    try:
        names = tuple(array.tolist())
    except ValueError as error:  # numbers that are not characters
        raise DataError(f"{path}: names: {error}") from None
    if len(set(names)) < len(names):
        raise DataError(f"{path}: names: expected each once, got some twice")
    return names
