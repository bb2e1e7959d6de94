"""One cell of a grid: trained, judged, kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from earmark.annotations import LabelTable
from earmark.bags import Bags, FeatureStore, build_store
from earmark.checkpoint import load_detector
from earmark.datasets import open_data
from earmark.datasets.base import Collection
from earmark.evaluation.authors import authors_reference
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.experiment.grid import Cell, Judging
from earmark.inference.bags import score_bags
from earmark.settings import load_recipe
from earmark.training.run import feature_store, make_fabric, run, split_for_training
from earmark.training.watch import Progress

__all__ = ["changed_settings", "data_of", "is_done", "make_features", "run_cell"]


def data_of(source: str, fold: int | None) -> Collection:
    """The data of a cell."""
    name, _, path = source.partition(":")
    return open_data(source if fold is None else f"{name},fold={fold}:{path}")


def is_done(folder: Path, judgements: Mapping[str, Judging]) -> bool:
    """Whether a cell has been trained, and judged in these ways. Its weights may be gone."""
    return all(_is_judged(folder / name / "scores.json", judging) for name, judging in judgements.items())


def _is_judged(path: Path, judging: Judging) -> bool:
    if not path.exists():
        return False
    said = json.loads(path.read_text(encoding="utf-8"))
    return all(said.get(key, value) == value for key, value in vars(judging).items())


def changed_settings(folder: Path, cell: Cell) -> dict[str, tuple[object, object]]:
    """Knobs with which a cell was trained otherwise than the grid says: (then, in the grid).

    A knob that came after the run has the value that leaves things as they were.
    """
    if not (folder / "config.toml").exists():
        return {}
    then, now = load_recipe(folder / "config.toml").to_dict(), cell.settings.to_dict()
    knobs = dict.fromkeys((section, key) for said in (then, now) for section, own in said.items() for key in own)
    pairs = {f"{s}.{k}": (then[s].get(k), now[s].get(k)) for s, k in knobs}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def make_features(
    cell: Cell, judgements: Mapping[str, Judging], *, cache: Path, hook: Callable[[int, int], None] | None = None
) -> None:
    """Everything that cells with the same data and features need, so that several can then run at once."""
    collection = data_of(cell.data, cell.fold)
    training, validation, _ = split_for_training(collection)
    for part in (training, validation):
        feature_store(part, cell.settings, cache, to_learn=part is training, progress=hook)
    for split in {judging.split for judging in judgements.values()}:
        _to_judge(collection, split, cell, cache, hook)


def run_cell(
    cell: Cell,
    folder: Path,
    judgements: Mapping[str, Judging],
    *,
    cache: Path,
    hook: Callable[[Progress], None] | None = None,
    features_hook: Callable[[int, int], None] | None = None,
) -> bool:
    """Train a cell, or go on with it, and judge it.

    Returns
    -------
    False if it was interrupted; it can be called again.
    """
    collection = data_of(cell.data, cell.fold)
    fabric = make_fabric(cell.settings)
    report = run(
        collection,
        cell.settings,
        folder,
        cache=cache,
        fabric=fabric,
        go_on=(folder / "last.ckpt").exists(),
        provenance={"data_source": cell.data, "system": cell.system, "fold": cell.fold},
        hook=hook,
        features_hook=features_hook,
    )
    if not report.result.is_finished:
        return False
    _judge(cell, folder, collection, judgements, cache, str(fabric.device), features_hook)
    return True


def _judge(
    cell: Cell,
    folder: Path,
    collection: Collection,
    judgements: Mapping[str, Judging],
    cache: Path,
    device: str,
    features_hook: Callable[[int, int], None] | None,
) -> None:
    detector = load_detector(folder / "model.safetensors").to(device)
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
        labels, store = _to_judge(collection, split, cell, cache, features_hook)
        labels = labels.with_classes(detector.classes)
        bags = Bags(store, labels, device=device)
        clips = [clip.as_scores(detector) for clip in score_bags(detector, bags)]
        about |= {"split": split, "clips": len(clips), "skipped": store.skipped}
        for name, judging in judgements.items():
            if judging.split == split:
                way = {"segment": judging.segment, "align": judging.align, "reference": judging.reference}
                options = EvaluationOptions(segment=judging.segment, align=judging.align)
                reference = _reference(labels, judging.reference)
                evaluate_scores(clips, reference, options, about=about | way).save(folder / name)


def _to_judge(
    collection: Collection, split: str, cell: Cell, cache: Path, hook: Callable[[int, int], None] | None
) -> tuple[LabelTable, FeatureStore]:
    """Labels and features of the clips that a cell is judged on."""
    if split == "validate":
        part = split_for_training(collection)[1]
        return part.labels, feature_store(part, cell.settings, cache, to_learn=False, progress=hook)
    part, features = collection.split(split), cell.settings.features
    return part.labels, build_store(cache / f"{split}-{features.fingerprint()}", part.clips, features, progress=hook)


def _reference(labels: LabelTable, reference: str) -> LabelTable:
    return authors_reference(labels) if reference == "authors" else labels
