"""Runs the cells of a grid, one after the other or several at once.

Finished cells are kept and an interrupted one is resumed, so a grid can be killed at any moment and started again.
Several cells at once run in separate processes: where one training leaves a GPU idle between its small kernels, another
fills the gaps (`benchmarks/sharing.py` measures whether that is faster).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
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
    out : cells are written to `out/cells`
    cache : folder for features, with a folder for each data set
    at_once : number of cells that run at the same time
    on_cell : called when the status of a cell changes
    on_progress : called with the progress of the current cell or, if several run at once, the number of finished cells

    Returns
    -------
    False if it was interrupted. If cells fail, the others are run, and the first reason is raised at the end.
    """
    on_cell, on_progress = on_cell or (lambda cell, status: None), on_progress or ignore_progress
    folder = make_folder(out / "cells")
    due = [cell for cell in grid.cells if not _is_kept(grid, cell, folder / cell.name, on_cell)]
    running: dict[str, Cell] = {}
    failures = []

    def start() -> Iterator[Cell]:
        for cell in due:
            running[cell.name] = cell
            on_cell(cell, "started")
            yield cell

    run = partial(_run_one, grid=grid, folder=folder, cache=cache)
    try:
        with closing(_results(run, start(), due, at_once, on_progress)) as results:
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


def _results(
    run: partial[bool], cells: Iterable[Cell], due: list[Cell], at_once: int, on_progress: OnProgress
) -> Generator[tuple[Cell, bool | Exception], None, None]:
    """Run cells one after the other, or several at once in worker processes; yields each with its result or failure."""
    threads = torch.get_num_threads()
    if at_once == 1 or len(due) <= 1:
        for number, cell in enumerate(cells, 1):
            on_cell_progress = partial(_rename_stage, f"{cell.name} ({number} of {len(due)})", on_progress)
            try:
                yield cell, run(cell, threads=threads, on_progress=on_cell_progress)
            except TrainingError as error:
                yield cell, error
        return
    distinct = {(c.data, c.fold, c.settings.features, c.settings.augment): c for c in due}
    for cell in distinct.values():  # first, since workers would compute the same features
        make_features(cell, cache=run.keywords["cache"] / cell.dataset, on_progress=on_progress)
    on_progress(Progress("training", 0, len(due), "runs"))
    work = partial(run, threads=max(1, threads // at_once))
    with closing(parallel_map(work, cells, workers=at_once, limit=at_once, processes=True)) as results:
        for done, (cell, result) in enumerate(results, 1):
            yield cell, result
            on_progress(Progress("training", done, len(due), "runs"))


def _rename_stage(name: str, on_progress: OnProgress, progress: Progress) -> None:
    on_progress(replace(progress, stage=name) if progress.stage == "training" else progress)


def _run_one(
    cell: Cell, grid: Grid, folder: Path, cache: Path, threads: int, on_progress: OnProgress = ignore_progress
) -> bool:
    """Run a cell with so many threads; False if it was interrupted."""
    torch.set_num_threads(threads)
    return run_cell(cell, folder / cell.name, grid.judgements, cache=cache / cell.dataset, on_progress=on_progress)
