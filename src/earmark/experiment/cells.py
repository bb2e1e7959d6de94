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
from earmark.experiment.grid import Cell, Judging
from earmark.progress import OnProgress, ignore_progress
from earmark.settings import load_recipe
from earmark.training.run import feature_store, make_fabric, run, split_for_training

__all__ = ["changed_settings", "data_of", "is_done", "make_features", "run_cell"]


def data_of(source: str, fold: int | None) -> Collection:
    """The data of a cell."""
    name, _, path = source.partition(":")
    return open_data(source if fold is None else f"{name},fold={fold}:{path}")


def is_done(folder: Path, judgements: Mapping[str, Judging]) -> bool:
    """Whether a cell has been trained and evaluated in these ways. Its weights may have been removed."""
    return all(_is_evaluated(folder / name / "scores.json", judging) for name, judging in judgements.items())


def _is_evaluated(path: Path, judging: Judging) -> bool:
    if not path.exists():
        return False
    said = json.loads(path.read_text(encoding="utf-8"))
    return all(said.get(key, value) == value for key, value in vars(judging).items())


def changed_settings(folder: Path, cell: Cell) -> dict[str, tuple[object, object]]:
    """Settings in which a trained cell differs from the grid: (of the run, of the grid)."""
    if not (folder / "config.toml").exists():
        return {}
    then, now = load_recipe(folder / "config.toml").to_dict(), cell.settings.to_dict()
    knobs = dict.fromkeys((section, key) for said in (then, now) for section, own in said.items() for key in own)
    pairs = {f"{s}.{k}": (then[s].get(k), now[s].get(k)) for s, k in knobs}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def make_features(cell: Cell, *, cache: Path, on_progress: OnProgress | None = None) -> None:
    """Compute the features that cells with the same data and features train on, so that several can run at once."""
    training, validation, _ = split_for_training(data_of(cell.data, cell.fold))
    for part in (training, validation):
        feature_store(part, cell.settings, cache, to_learn=part is training, on_progress=on_progress)


def run_cell(
    cell: Cell,
    folder: Path,
    judgements: Mapping[str, Judging],
    *,
    cache: Path,
    on_progress: OnProgress = ignore_progress,
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
        _evaluate(cell, folder, collection, judgements, on_progress)
    return result.is_finished


def _evaluate(
    cell: Cell, folder: Path, collection: Collection, judgements: Mapping[str, Judging], on_progress: OnProgress
) -> None:
    detector = load(folder, pooled=True)
    about: dict[str, Any] = {
        "system": cell.system,
        "network": cell.network,
        "fold": cell.fold,
        "seed": cell.seed,
        "data": cell.data,
        "threshold": 0.5,
        "classes": list(detector.classes),
        "alpha": detector.alpha,
    }
    for split in dict.fromkeys(judging.split for judging in judgements.values()):
        part = split_for_training(collection)[1] if split == "validate" else collection.split(split)
        labels = part.labels.replace(classes=detector.classes)
        recordings, skipped = detector.score_clips(part.clips, on_progress=on_progress)
        about |= {"split": split, "clips": len(recordings), "skipped": skipped}
        for name, judging in judgements.items():
            if judging.split == split:
                way = {"segment": judging.segment, "align": judging.align, "reference": judging.reference}
                options = EvaluationOptions(segment=judging.segment, align=judging.align)
                reference = authors_reference(labels) if judging.reference == "authors" else labels
                evaluate_scores(recordings, reference, options, about=about | way).save(folder / name)
