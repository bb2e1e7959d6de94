"""All cells of a grid, one after the other or several at once.

Cells that are done are kept, one that was cut goes on. So a grid may be killed at any moment and started again. Several
cells at once are processes of their own; where one training leaves a GPU idle between its small kernels, another fills
it (`benchmarks/sharing.py` measures whether that is faster).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import torch

from earmark.errors import ArgumentError, TrainingError, WorkerError
from earmark.experiment.cells import changed_settings, is_done, make_features, run_cell
from earmark.experiment.grid import Cell, Grid
from earmark.files import make_folder
from earmark.training.watch import Progress
from earmark.workers import Workers

__all__ = ["run_grid"]

Features = Callable[[int, int], None]
Told = Callable[[Cell, str], None]
"""Told about a cell: "kept", "begun", "done", "interrupted", or why it failed."""


def run_grid(
    grid: Grid,
    out: Path,
    *,
    cache: Path,
    at_once: int = 1,
    told: Told | None = None,
    hook: Callable[[Progress], None] | None = None,
    features_hook: Features | None = None,
) -> bool:
    """Run what is still to be run.

    Parameters
    ----------
    out
        Cells go into `out/cells`.
    cache
        Folder for features, shared by all cells; each of several data sets has its own inside.
    at_once
        How many cells run at the same time.
    told
        Told what happens to each cell.
    hook, features_hook
        Told about progress within a cell, where one runs at a time.

    Returns
    -------
    False if it was interrupted. A cell whose training fails costs nothing else; the first reason is raised at the end.
    """
    told = told or (lambda cell, what: None)
    folder = make_folder(out / "cells")
    due = []
    for cell in grid.cells:
        if changed := changed_settings(folder / cell.name, cell):
            knob, (then, now) = next(iter(changed.items()))
            raise ArgumentError(
                f"{folder / cell.name} was run with {knob} = {then}, now {now}; run the grid as it was, or in another "
                "folder"
            )
        place = folder / cell.name
        if is_done(place, grid.judgements):
            told(cell, "kept")
        elif any(place.glob("*/scores.json")) and not (place / "last.ckpt").exists():
            raise ArgumentError(
                f"{place} was judged otherwise than the grid says, and its weights are gone; judge as before, or run "
                "the grid in another folder"
            )
        else:
            due.append(cell)
    if at_once > 1 and len(due) > 1:
        features = {
            (c.data, c.fold, c.settings.features, c.settings.augment.semitones, c.settings.augment.compression): c
            for c in due
        }
        for cell in features.values():
            # first, since two processes would write the same files
            make_features(cell, grid.judgements, cache=cache / cell.dataset, hook=features_hook)
        return _together(grid, due, folder, cache, at_once, told)
    failures = []
    for cell in due:
        told(cell, "begun")
        try:
            finished = run_cell(
                cell,
                folder / cell.name,
                grid.judgements,
                cache=cache / cell.dataset,
                hook=hook,
                features_hook=features_hook,
            )
        except TrainingError as error:
            failures.append(error)
            told(cell, str(error))
            continue
        told(cell, "done" if finished else "interrupted")
        if not finished:
            return False
    _complain(failures)
    return True


def _complain(failures: list[TrainingError]) -> None:
    if failures:
        raise TrainingError(f"{len(failures)} of the runs failed, the others are done; the first: {failures[0]}")


def _together(grid: Grid, due: list[Cell], folder: Path, cache: Path, at_once: int, told: Told) -> bool:
    """Several processes, each with a cell at a time."""
    waiting, running, failures = list(due), dict[Future[bool], Cell](), list[TrainingError]()
    try:
        with Workers(at_once, _begin, (at_once,)) as workers:
            while waiting or running:
                while waiting and len(running) < at_once:
                    cell = waiting.pop(0)
                    told(cell, "begun")
                    place, own = folder / cell.name, cache / cell.dataset
                    running[workers.submit(run_cell, cell, place, grid.judgements, cache=own)] = cell
                for future in workers.wait(running):
                    cell = running.pop(future)
                    try:
                        future.result()
                    except TrainingError as error:
                        failures.append(error)
                    told(cell, "done" if future.exception() is None else str(future.exception()))
    except KeyboardInterrupt:
        for cell in running.values():
            told(cell, "interrupted")
        return False
    except WorkerError as error:  # a failure too: what is done can be reported
        raise TrainingError(str(error)) from error
    _complain(failures)
    return True


def _begin(at_once: int) -> None:
    """A worker takes its share of the cores."""
    torch.set_num_threads(max(1, torch.get_num_threads() // at_once))
