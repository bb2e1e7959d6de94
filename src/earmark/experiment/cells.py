"""Runs the cells of a grid: each is trained, evaluated and saved, one after the other or several at once.

Finished cells are kept and an interrupted one is resumed, so a grid can be killed at any moment and started again.
Several cells at once run in separate processes. On a GPU they take turns, unless NVIDIA's multi-process service lets
their kernels overlap (`benchmarks/sharing.py`).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch

from earmark.datasets import open_data
from earmark.datasets.base import Collection
from earmark.detection.detector import load
from earmark.errors import ArgumentError, TrainingError, WorkerError
from earmark.evaluation.authors import authors_reference
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.experiment.grid import Cell, EvaluationSpec, Grid
from earmark.experiment.kept import Kept, read_runs
from earmark.files import locked, make_folder
from earmark.parallel import parallel_map
from earmark.progress import OnProgress, Progress, ignore_progress, renamed
from earmark.schema import differences, read_json
from earmark.settings import Settings, load_recipe
from earmark.training.run import feature_store, make_fabric, run, split_for_training

KEPT = "runs.npz"
"""The file of a grid's folder that has all evaluated runs."""

OnCell = Callable[[Cell, str], None]
"""Receives a cell and its new status: "kept", "started", "done", "interrupted", or why it failed."""


def data_of(source: str, fold: int | None) -> Collection:
    """The data of a cell."""
    name, _, path = source.partition(":")
    return open_data(source if fold is None else f"{name},fold={fold}:{path}")


def is_done(folder: Path, evaluations: Mapping[str, EvaluationSpec], kept: Kept) -> bool:
    """Whether a cell has been trained and evaluated in these ways: in its folder, or in a file of kept runs."""
    for name, spec in evaluations.items():
        path = folder / name / "scores.json"
        about: Mapping[str, Any]
        if path.exists():
            about = read_json(dict[str, Any], path)
        elif (folder.name, name) in kept:
            about = kept[folder.name, name].about
        else:
            return False
        if any(about.get(key, default) != getattr(spec, key) for key, default in vars(EvaluationSpec()).items()):
            return False
    return True


def settings_of(folder: Path, kept: Kept) -> dict[str, dict[str, Any]]:
    """The settings that a cell was trained with, from its folder or a file of kept runs; empty if unknown."""
    if (folder / "config.toml").exists():
        return load_recipe(folder / "config.toml").to_dict()
    for (cell, _), evaluation in kept.items():
        if cell == folder.name and evaluation.about["config"]:
            return Settings.from_dict(evaluation.about["config"], where=evaluation.where).to_dict()
    return {}


def changed_settings(then: Mapping[str, Mapping[str, Any]], cell: Cell) -> dict[str, tuple[object, object]]:
    """Settings in which a cell that was trained with `then` differs from the grid: (of the run, of the grid)."""
    return differences(then, cell.settings.to_dict()) if then else {}


def run_grid(
    grid: Grid,
    out: Path,
    *,
    cache: Path,
    at_once: int = 1,
    on_cell: OnCell = lambda cell, status: None,
    on_progress: OnProgress = ignore_progress,
) -> bool:
    """Run the cells that are not done, in `out/cells`.

    Parameters
    ----------
    cache : folder for features, with a folder for each data set
    at_once : number of cells that run at the same time
    on_progress : called with the progress of the current cell or, if several run at once, the number of finished cells

    Returns
    -------
    False if it was interrupted. If cells fail, the others are run, and the first reason is raised at the end.
    """
    with locked(make_folder(out)):
        return _run_cells(grid, out, cache, at_once, on_cell, on_progress)


def _run_cells(grid: Grid, out: Path, cache: Path, at_once: int, on_cell: OnCell, on_progress: OnProgress) -> bool:
    folder, kept = make_folder(out / "cells"), read_runs(out / KEPT)
    due = [cell for cell in grid.cells if not _is_kept(grid, cell, folder / cell.name, kept, on_cell)]
    running: dict[str, Cell] = {}
    failures = []

    def start() -> Iterator[Cell]:
        for cell in due:
            running[cell.name] = cell
            on_cell(cell, "started")
            yield cell

    work = partial(_run_cell, evaluations=grid.evaluations, folder=folder, cache=cache)
    try:
        if at_once == 1 or len(due) <= 1:
            outcomes = _one_by_one(work, start(), len(due), on_progress)
        else:
            outcomes = _at_once(work, start(), due, at_once, cache, on_progress)
        with closing(outcomes) as results:
            for cell, result in results:
                if result is False:
                    raise KeyboardInterrupt
                del running[cell.name]
                if isinstance(result, TrainingError):
                    failures.append(result)
                elif isinstance(result, Exception):
                    raise result
                on_cell(cell, "done" if result is True else str(result))
    except KeyboardInterrupt:
        for cell in running.values():
            on_cell(cell, "interrupted")
        return False
    except WorkerError as error:  # a failed run: results so far can be reported
        raise TrainingError(str(error)) from error
    if failures:
        raise TrainingError(f"{len(failures)} of {len(due)} runs failed, the others are done; the first: {failures[0]}")
    return True


def _is_kept(grid: Grid, cell: Cell, place: Path, kept: Kept, on_cell: OnCell) -> bool:
    """Whether a cell is done already; rejects one that was run with other settings."""
    if changed := changed_settings(settings_of(place, kept), cell):
        name, (then, now) = next(iter(changed.items()))
        raise ArgumentError(
            f"{place} was run with {name} = {then}, now {now}; restore the setting, or run the grid in another folder"
        )
    if is_done(place, grid.evaluations, kept):
        on_cell(cell, "kept")
        return True
    is_evaluated = any(place.glob("*/scores.json")) or any(name == cell.name for name, _ in kept)
    if is_evaluated and not (place / "last.ckpt").exists():
        raise ArgumentError(
            f"{place} was evaluated with other settings than the grid's, and its weights are gone; restore the "
            "settings, or run the grid in another folder"
        )
    return False


Outcomes = Generator[tuple[Cell, bool | Exception], None, None]
"""Cells with their results or failures."""


def _one_by_one(work: Callable[..., bool], cells: Iterable[Cell], total: int, on_progress: OnProgress) -> Outcomes:
    for number, cell in enumerate(cells, 1):
        on_cell_progress = renamed(on_progress, f"{cell.name} ({number} of {total}), {{}}")
        try:
            yield cell, work(cell, threads=torch.get_num_threads(), on_progress=on_cell_progress)
        except TrainingError as error:
            yield cell, error


def _at_once(
    work: Callable[..., bool],
    cells: Iterable[Cell],
    due: list[Cell],
    at_once: int,
    cache: Path,
    on_progress: OnProgress,
) -> Outcomes:
    """Run cells in worker processes."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # for embeddings
    distinct = {(c.data, c.fold, c.settings.features, c.settings.augment): c for c in due}
    for cell in distinct.values():  # first, since workers would compute the same features
        training, validation, _ = split_for_training(data_of(cell.data, cell.fold))
        for part in (training, validation):
            store = cache / cell.dataset
            to_learn = part is training
            feature_store(part, cell.settings, store, to_learn=to_learn, device=device, on_progress=on_progress)
    on_progress(Progress("training", 0, len(due), "runs"))
    work = partial(work, threads=max(1, torch.get_num_threads() // at_once))
    with closing(parallel_map(work, cells, workers=at_once, limit=at_once, processes=True)) as results:
        for done, (cell, result) in enumerate(results, 1):
            yield cell, result
            on_progress(Progress("training", done, len(due), "runs"))


def _run_cell(
    cell: Cell,
    evaluations: Mapping[str, EvaluationSpec],
    folder: Path,
    cache: Path,
    threads: int,
    on_progress: OnProgress = ignore_progress,
) -> bool:
    """Train a cell, or resume it, and evaluate it; False if it was interrupted."""
    torch.set_num_threads(threads)
    collection = data_of(cell.data, cell.fold)
    result = run(
        collection,
        cell.settings,
        folder / cell.name,
        cache=cache / cell.dataset,
        fabric=make_fabric(cell.settings),
        resume=True,
        provenance={"data_source": cell.data, "system": cell.system, "fold": cell.fold},
        on_progress=on_progress,
    )
    if result.is_finished:
        _evaluate(cell, folder / cell.name, collection, evaluations, on_progress)
    return result.is_finished


def _evaluate(
    cell: Cell, folder: Path, collection: Collection, evaluations: Mapping[str, EvaluationSpec], on_progress: OnProgress
) -> None:
    by_scores: dict[tuple[Path, str], dict[str, EvaluationSpec]] = {}
    for name, spec in evaluations.items():
        by_scores.setdefault((spec.network_of(folder), spec.split), {})[name] = spec
    for (network, split), specs in by_scores.items():
        detector = load(network, pooled=True)
        part = split_for_training(collection)[1] if split == "validate" else collection.split(split)
        labels = part.labels.replace(classes=detector.classes)
        recordings, skipped = detector.score_clips(part.clips, on_progress=on_progress)
        about: dict[str, Any] = {key: getattr(cell, key) for key in ("system", "network", "fold", "seed", "data")}
        about |= {"threshold": 0.5, "classes": list(detector.classes), "alpha": detector.alpha}
        about |= {"split": split, "clips": len(recordings), "skipped": skipped}
        for name, spec in specs.items():
            options = EvaluationOptions(segment=spec.segment, align=spec.align, with_psds=spec.with_psds)
            reference = authors_reference(labels) if spec.reference == "authors" else labels
            evaluate_scores(recordings, reference, options, about=about | vars(spec)).save(folder / name)
