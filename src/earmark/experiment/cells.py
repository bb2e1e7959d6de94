"""One cell of a grid: trained, evaluated, saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from earmark.datasets import open_data
from earmark.datasets.base import Collection
from earmark.detection.detector import load
from earmark.evaluation.authors import authors_reference
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.experiment.grid import Cell, EvaluationSpec
from earmark.progress import OnProgress
from earmark.settings import load_recipe
from earmark.training.run import feature_store, make_fabric, run, split_for_training


def data_of(source: str, fold: int | None) -> Collection:
    """The data of a cell."""
    name, _, path = source.partition(":")
    return open_data(source if fold is None else f"{name},fold={fold}:{path}")


def is_done(folder: Path, evaluations: Mapping[str, EvaluationSpec]) -> bool:
    """Whether a cell has been trained and evaluated in these ways. Its weights may have been removed."""
    for name, spec in evaluations.items():
        path = folder / name / "scores.json"
        scores = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        if scores is None or any(scores.get(key, value) != value for key, value in vars(spec).items()):
            return False
    return True


def changed_settings(folder: Path, cell: Cell) -> dict[str, tuple[object, object]]:
    """Settings in which a trained cell differs from the grid: (of the run, of the grid)."""
    if not (folder / "config.toml").exists():
        return {}
    then, now = load_recipe(folder / "config.toml").to_dict(), cell.settings.to_dict()
    changed: dict[str, tuple[object, object]] = {}
    for section in now:
        for key in dict.fromkeys([*then[section], *now[section]]):
            before, after = then[section].get(key), now[section].get(key)
            if before != after:
                changed[f"{section}.{key}"] = (before, after)
    return changed


def make_features(cell: Cell, *, cache: Path, on_progress: OnProgress | None = None) -> None:
    """Compute the features that cells with the same data and features train on, so that several can run at once."""
    training, validation, _ = split_for_training(data_of(cell.data, cell.fold))
    for part in (training, validation):
        feature_store(part, cell.settings, cache, to_learn=part is training, on_progress=on_progress)


def run_cell(
    cell: Cell, folder: Path, evaluations: Mapping[str, EvaluationSpec], *, cache: Path, on_progress: OnProgress
) -> bool:
    """Train a cell, or resume it, and evaluate it.

    Returns
    -------
    False if it was interrupted; call again to continue
    """
    collection = data_of(cell.data, cell.fold)
    result = run(
        collection,
        cell.settings,
        folder,
        cache=cache,
        fabric=make_fabric(cell.settings),
        resume=True,
        provenance={"data_source": cell.data, "system": cell.system, "fold": cell.fold},
        on_progress=on_progress,
    )
    if result.is_finished:
        _evaluate(cell, folder, collection, evaluations, on_progress)
    return result.is_finished


def _evaluate(
    cell: Cell, folder: Path, collection: Collection, evaluations: Mapping[str, EvaluationSpec], on_progress: OnProgress
) -> None:
    detector = load(folder, pooled=True)
    about: dict[str, Any] = {key: getattr(cell, key) for key in ("system", "network", "fold", "seed", "data")}
    about |= {"threshold": 0.5, "classes": list(detector.classes), "alpha": detector.alpha}
    for split in dict.fromkeys(spec.split for spec in evaluations.values()):
        part = split_for_training(collection)[1] if split == "validate" else collection.split(split)
        labels = part.labels.replace(classes=detector.classes)
        recordings, skipped = detector.score_clips(part.clips, on_progress=on_progress)
        about |= {"split": split, "clips": len(recordings), "skipped": skipped}
        for name, spec in evaluations.items():
            if spec.split == split:
                options = EvaluationOptions(segment=spec.segment, align=spec.align)
                reference = authors_reference(labels) if spec.reference == "authors" else labels
                evaluate_scores(recordings, reference, options, about=about | vars(spec)).save(folder / name)
