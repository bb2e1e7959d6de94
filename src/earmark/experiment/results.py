"""Results of a grid: one table, with a row per cell and evaluation.

`results.csv` holds every score, `runs.npz` the settings of all runs and their counts per clip, from which intervals and
tests are computed (`earmark.experiment.kept`). With it, the folders of cells are needed no more. `data.json` describes
the data, for when they are no longer available.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from earmark.errors import DataError
from earmark.evaluation.comparison import PAPER_COLUMNS
from earmark.evaluation.result import Evaluation
from earmark.evaluation.statistics import Friedman, friedman
from earmark.experiment.cells import KEPT, data_of, is_done, settings_of
from earmark.experiment.grid import Cell, Grid
from earmark.experiment.kept import KeptEvaluation, pack, read_runs, write_runs
from earmark.files import json_text, locked, make_folder, written_whole
from earmark.formats.spreadsheets import write_rows
from earmark.formats.text import write_text
from earmark.ownership import owned
from earmark.schema import parse, read_json, record
from earmark.synthesis.job import Request, read_request
from earmark.training.memory import read_log

COLUMNS = tuple(key.replace(".macro", "").replace(".", "_") for _, _, key in PAPER_COLUMNS)
"""The scores of the paper's tables: static ones averaged over classes, by two rules; dynamic ones over all segments."""

MORE_COLUMNS = ("dynamic_macro_f1", "event_f1", "psds1", "psds2")
"""Scores that the paper does not have: segments averaged over classes, events with a collar of 200 ms, and PSDS."""


@dataclass(frozen=True)
class Row:
    """A cell, evaluated one way."""

    cell: Cell
    evaluation: str
    """Its name in the grid."""
    folder: Path
    scores: Mapping[str, float]
    epochs: int
    best_epoch: int
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The settings it was trained with, by section; empty if unknown."""
    kept: KeptEvaluation | None = field(default=None, repr=False)
    """The evaluation, if the folder is gone."""

    def saved(self) -> Evaluation:
        """The saved evaluation, with its counts."""
        return Evaluation.load(self.folder) if self.kept is None else self.kept.unpack(self.folder)


@record
class _Description:
    """The contents of `data.json`."""

    data: str
    clips: dict[str, Annotated[int, Field(ge=0)]]
    soundscapes: Request | None = None


def scores_of(saved: Mapping[str, Any]) -> dict[str, float]:
    """The scores of the tables, from the contents of a `scores.json`; NaN for those that it lacks."""
    static, dynamic, event = saved["static"], saved["dynamic"], saved["event"]
    parts = {f"static_{rule}": static[rule]["macro"] if static[rule] else {} for rule in ("maximum", "pooled")}
    parts |= {"dynamic": dynamic["overall"], "dynamic_macro": dynamic["macro"]} if dynamic else {}
    parts |= {"event": event["overall"]} if event else {}
    every = {f"{part}_{name}": value for part, values in parts.items() for name, value in values.items()}
    every |= saved["psds"] or {}
    return {column: float(every.get(column, np.nan)) for column in (*COLUMNS, *MORE_COLUMNS)}


def gather(grid: Grid, out: Path, *, cells: Iterable[Cell] | None = None) -> list[Row]:
    """Rows of all finished cells, in the order of the grid, or of some of its cells."""
    rows, kept = [], read_runs(out / KEPT)
    for cell in grid.cells if cells is None else cells:
        folder = out / "cells" / cell.name
        if not is_done(folder, grid.evaluations, kept):
            continue
        config = settings_of(folder, kept)
        for name in grid.evaluations:
            if (folder / name / "scores.json").exists():
                evaluation = None
                log = read_log(folder / "log.jsonl")
                epochs = len(log)
                best_epoch = max((line.epoch for line in log if line.best), default=0)
            else:
                evaluation = kept[cell.name, name]
                epochs, best_epoch = evaluation.about["epochs"], evaluation.about["best_epoch"]
            row = Row(cell, name, folder / name, {}, epochs, best_epoch, config, evaluation)
            rows.append(replace(row, scores=scores_of(row.saved().scores)))
    return rows


def keep_runs(rows: Iterable[Row], out: Path) -> None:
    """Add the evaluations of cells that have a folder to `runs.npz`; those that are there already stay.

    A file that was copied from another machine is replaced too, since nothing in it is lost.
    """
    new = {}
    for row in rows:
        if row.kept is None:
            packed = pack(row.saved(), config=row.config, epochs=row.epochs, best_epoch=row.best_epoch)
            new[row.cell.name, row.evaluation] = packed
    if new:
        with locked(make_folder(out), name=".runs.lock", wait=True), owned(out, force=True):
            write_runs(out / KEPT, {**read_runs(out / KEPT), **new})


def write_results(rows: Iterable[Row], path: Path) -> None:
    """Write `results.csv`; it has a column `data` if the grid has several data sets, and PSDS if any run has it."""
    rows = list(rows)
    numbers = [*COLUMNS, *(name for name in MORE_COLUMNS if any(np.isfinite(row.scores[name]) for row in rows))]
    columns = ["data", "system", "network", "fold", "seed", "evaluation", "epochs", "best_epoch", *numbers]
    first = 0 if any(row.cell.dataset for row in rows) else 1
    with owned(path.parent), written_whole(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, [columns[first:]])
        for row in rows:
            cell = row.cell
            values = [cell.dataset, cell.system, cell.network, cell.fold, cell.seed]
            values += [row.evaluation, row.epochs, row.best_epoch]
            scores = (row.scores[name] for name in numbers)
            write_rows(file, [[*values[first:], *("" if np.isnan(score) else f"{score:.6f}" for score in scores)]])


def by_system(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each system, by its name; with several networks, the network's name is appended."""
    rows = list(rows)
    has_networks = len({row.cell.network for row in rows}) > 1
    systems: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row.cell.system}, {row.cell.network}" if has_networks else row.cell.system
        systems.setdefault(name, []).append(row)
    return systems


def by_fold(rows: Iterable[Row], score: str) -> dict[int | None, float]:
    """The score of each fold, averaged over seeds."""
    folds: dict[int | None, list[float]] = {}
    for row in rows:
        folds.setdefault(row.cell.fold, []).append(row.scores[score])
    return {fold: float(np.mean(values)) for fold, values in folds.items()}


def compare_folds(rows: Iterable[Row], score: str = "dynamic_f1") -> Friedman:
    """Which systems are indistinguishable from the best over their common folds: the paper's test for MedleyDB."""
    systems = {system: by_fold(runs, score) for system, runs in by_system(rows).items()}
    first, *others = systems.values() or [{}]
    common = [fold for fold in first if all(fold in other for other in others)]
    means = [[folds[fold] for folds in systems.values()] for fold in common]
    return friedman(means, tuple(systems), lower_is_better=score.endswith("error_rate"))


def describe_data(grid: Grid, out: Path) -> dict[str, Any]:
    """Describe the grid's data: `data.json`, written while they are available and read afterwards.

    It has `clips` by split, and `soundscapes`, the request to `earmark synth` if it made them; empty if unknown.
    """
    path = out / "data.json"
    try:
        collection = data_of(grid.source, 0 if grid.folds else None)
    except DataError:
        if not path.is_file():
            return {}
        values = read_json(dict[str, Any], path)
        parse(_Description, values, where=path)
        return values
    clips = {name: len(collection.split(name)) for name in collection.splits}
    description: dict[str, Any] = {"data": grid.source, "clips": clips}
    request = Path(grid.source.partition(":")[2] or grid.source) / "soundscapes.json"
    if request.is_file():
        description["soundscapes"] = vars(read_request(request))
    write_text(path, json_text(description, indent=1) + "\n")
    return description
