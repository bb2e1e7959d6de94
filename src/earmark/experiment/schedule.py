"""Runs the cells of a grid, one after the other or several at once.

Finished cells are kept and an interrupted one is resumed, so a grid can be killed at any moment and started again.
Several cells at once run in separate processes: where one training leaves a GPU idle between its small kernels, another
fills the gaps (`benchmarks/sharing.py` measures whether that is faster).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from earmark.errors import ArgumentError, TrainingError, WorkerError
from earmark.experiment.cells import changed_settings, is_done, make_features, run_cell
from earmark.experiment.grid import Cell, Grid
from earmark.files import make_folder
from earmark.parallel import parallel_map
from earmark.progress import OnProgress, Progress, ignore_progress

__all__ = ["run_grid"]

OnCell = Callable[[Cell, str], None]
"""Receives a cell and its new status: "kept", "started", "done", "interrupted", or why it failed."""


def run_grid(
    grid: Grid,
    out: Path,
    *,
    cache: Path,
    at_once: int = 1,
    on_cell: OnCell | None = None,
    on_progress: OnProgress | None = None,
) -> bool:
    """Run the cells that are not done.

    Parameters
    ----------
    out
        Cells are written to `out/cells`.
    cache
        Folder for features, shared by all cells; with a folder for each data set.
    at_once
        Number of cells that run at the same time.
    on_cell
        Called when the status of a cell changes.
    on_progress
        Called with the progress of the current cell or, if several run at once, with the number of finished cells.

    Returns
    -------
    False if it was interrupted. If cells fail, the others are run, and the first reason is raised at the end.
    """
    on_cell, on_progress = on_cell or (lambda cell, status: None), on_progress or ignore_progress
    folder = make_folder(out / "cells")
    due = [cell for cell in grid.cells if not _is_kept(grid, cell, folder / cell.name, on_cell)]
    run = _run_together if at_once > 1 and len(due) > 1 else _run_in_turn
    try:
        failures = run(grid, due, folder, cache, at_once, on_cell, on_progress)
    except KeyboardInterrupt:
        return False
    except WorkerError as error:  # a failed run: results so far can be reported
        raise TrainingError(str(error)) from error
    if failures:
        raise TrainingError(f"{len(failures)} of {len(due)} runs failed, the others are done; the first: {failures[0]}")
    return True


def _is_kept(grid: Grid, cell: Cell, place: Path, on_cell: OnCell) -> bool:
    """Whether a cell is done already; refuses one that was run with other settings."""
    if changed := changed_settings(place, cell):
        knob, (then, now) = next(iter(changed.items()))
        raise ArgumentError(
            f"{place} was run with {knob} = {then}, now {now}; restore the setting, or run the grid in another folder"
        )
    if is_done(place, grid.judgements):
        on_cell(cell, "kept")
        return True
    if any(place.glob("*/scores.json")) and not (place / "last.ckpt").exists():
        raise ArgumentError(
            f"{place} was evaluated with other settings than the grid's, and its weights are gone; restore the "
            "settings, or run the grid in another folder"
        )
    return False


def _run_in_turn(
    grid: Grid, due: list[Cell], folder: Path, cache: Path, at_once: int, on_cell: OnCell, on_progress: OnProgress
) -> list[TrainingError]:
    """Run one cell after the other; returns failures, raises KeyboardInterrupt."""
    failures = []
    for number, cell in enumerate(due, 1):
        on_cell(cell, "started")
        on_cell_progress = partial(_rename_stage, f"{cell.name} ({number} of {len(due)})", on_progress)
        try:
            if not _run_one(cell, grid, folder, cache, torch.get_num_threads(), on_cell_progress):
                raise KeyboardInterrupt
        except TrainingError as error:
            failures.append(error)
            on_cell(cell, str(error))
        except KeyboardInterrupt:
            on_cell(cell, "interrupted")
            raise
        else:
            on_cell(cell, "done")
    return failures


def _rename_stage(name: str, on_progress: OnProgress, progress: Progress) -> None:
    on_progress(replace(progress, stage=name) if progress.stage == "training" else progress)


def _run_together(
    grid: Grid, due: list[Cell], folder: Path, cache: Path, at_once: int, on_cell: OnCell, on_progress: OnProgress
) -> list[TrainingError]:
    """Run several cells at a time, each in a worker process; returns failures, raises KeyboardInterrupt."""
    distinct = {(c.data, c.fold, c.settings.features, c.settings.augment): c for c in due}
    for cell in distinct.values():  # first, since workers would compute the same features
        make_features(cell, cache=cache / cell.dataset, on_progress=on_progress)
    running: dict[str, Cell] = {}
    failures = []

    def draw() -> Iterator[Cell]:
        for cell in due:
            running[cell.name] = cell
            on_cell(cell, "started")
            yield cell

    threads = max(1, torch.get_num_threads() // at_once)
    work = partial(_run_one, grid=grid, folder=folder, cache=cache, threads=threads)
    on_progress(Progress("training", 0, len(due), "runs"))
    try:
        with closing(parallel_map(work, draw(), workers=at_once, limit=at_once, processes=True)) as results:
            for done, (cell, result) in enumerate(results, 1):
                del running[cell.name]
                if isinstance(result, TrainingError):
                    failures.append(result)
                elif isinstance(result, Exception):
                    raise result
                on_cell(cell, str(result) if isinstance(result, TrainingError) else "done")
                on_progress(Progress("training", done, len(due), "runs"))
    except KeyboardInterrupt:
        for cell in running.values():
            on_cell(cell, "interrupted")
        raise
    return failures


def _run_one(
    cell: Cell, grid: Grid, folder: Path, cache: Path, threads: int, on_progress: OnProgress = ignore_progress
) -> bool:
    """Run a cell with so many threads; False if it was interrupted."""
    torch.set_num_threads(threads)
    return run_cell(cell, folder / cell.name, grid.judgements, cache=cache / cell.dataset, on_progress=on_progress)
