"""What came out of a grid: one table, a row per cell and judgement.

`results.csv` holds every score; the counts per clip behind them, from which intervals and tests are rebuilt, stay in
the cells' folders. Neither needs the weights. `data.json` says what the data were, for when they are gone.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earmark.errors import DataError
from earmark.evaluation.ranks import Friedman, friedman
from earmark.evaluation.result import Evaluation
from earmark.experiment.cells import data_of, is_done
from earmark.experiment.grid import Cell, Grid
from earmark.files import json_text, written_whole

__all__ = [
    "COLUMNS",
    "Row",
    "by_system",
    "compare_folds",
    "describe_data",
    "gather",
    "paper_scores",
    "write_results",
]

COLUMNS = (
    *("static_maximum_f1", "static_maximum_precision", "static_maximum_recall"),
    *("static_pooled_f1", "static_pooled_precision", "static_pooled_recall"),
    *("dynamic_f1", "dynamic_precision", "dynamic_recall", "dynamic_error_rate"),
)
"""The scores of the paper's tables: static ones averaged over classes, by two rules; dynamic ones over all segments."""


@dataclass(frozen=True)
class Row:
    """A cell, judged one way."""

    cell: Cell
    judgement: str
    folder: Path
    scores: Mapping[str, float]
    epochs: int
    best_epoch: int

    def saved(self) -> Evaluation:
        """The judgement with its counts."""
        return Evaluation.load(self.folder)


def paper_scores(said: Mapping[str, Any]) -> dict[str, float]:
    """The scores of the paper's tables, out of the dictionary of a `scores.json`."""
    found = {
        f"static_{rule}_{name}": said["static"][rule]["macro"][name]
        for rule in ("maximum", "pooled")
        for name in ("f1", "precision", "recall")
    }
    dynamic = said["dynamic"]["overall"] if said["dynamic"] else dict.fromkeys(("f1", "precision", "recall"), np.nan)
    names = ("f1", "precision", "recall", "error_rate")
    return found | {f"dynamic_{name}": float(dynamic.get(name, np.nan)) for name in names}


def gather(grid: Grid, out: Path) -> list[Row]:
    """Everything that is there, in the order of the grid's cells."""
    return list(_rows(grid, out))


def _rows(grid: Grid, out: Path) -> Iterator[Row]:
    for cell in grid.cells:
        folder = out / "cells" / cell.name
        if not is_done(folder, grid.judgements):
            continue
        log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        best = max((line["epoch"] for line in log if line["best"]), default=0)
        for name in grid.judgements:
            said = Evaluation.load(folder / name).scores
            yield Row(cell, name, folder / name, paper_scores(said), len(log), best)


def write_results(rows: Iterable[Row], path: Path) -> None:
    """`results.csv`, whole."""
    rows = list(rows)
    dataset = ["data"] if any(row.cell.dataset for row in rows) else []
    with written_whole(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*dataset, "system", "network", "fold", "seed", "judgement", "epochs", "best_epoch", *COLUMNS])
        for row in rows:
            cell = row.cell
            own = [cell.system, cell.network, "" if cell.fold is None else cell.fold, cell.seed, row.judgement]
            numbers = [f"{row.scores[name]:.6f}" for name in COLUMNS]
            writer.writerow([*([cell.dataset] if dataset else []), *own, row.epochs, row.best_epoch, *numbers])


def by_system(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each system, by its name; where there are several networks, that of the network stands behind it."""
    own = list(rows)
    is_one = len({row.cell.network for row in own}) < 2
    found: dict[str, list[Row]] = {}
    for row in own:
        found.setdefault(row.cell.system if is_one else f"{row.cell.system}, {row.cell.network}", []).append(row)
    return found


def compare_folds(rows: Sequence[Row], score: str = "dynamic_f1", *, level: float = 0.95) -> Friedman:
    """Which systems are indistinguishable from the best over the folds they share: the paper's test for MedleyDB.

    Seeds of a fold are averaged.
    """
    systems = by_system(rows)
    found = [
        {row.cell.fold: [r.scores[score] for r in own if r.cell.fold == row.cell.fold] for row in own}
        for own in systems.values()
    ]
    shared = set.intersection(*(set(own) for own in found)) if found else set()
    by_fold = [[np.mean(own[fold]) for own in found] for fold in shared]
    return friedman(by_fold, tuple(systems), lower_is_better=score.endswith("error_rate"), level=level)


def describe_data(grid: Grid, out: Path) -> dict[str, Any]:
    """What the grid's data are: `data.json`, written while they are there and read when they are not.

    Returns
    -------
    `clips` by split and `soundscapes`, what `earmark synth` asked for, if it made them; nothing where nobody knows.
    """
    path = out / "data.json"
    try:
        collection = data_of(grid.source, 0 if grid.folds else None)
    except DataError:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    clips = {name: len(collection.split(name)) for name in collection.splits}
    made = Path(grid.source.partition(":")[2] or grid.source) / "soundscapes.json"
    found = {"data": grid.source, "clips": clips}
    if made.is_file():
        found["soundscapes"] = json.loads(made.read_text(encoding="utf-8"))
    with written_whole(path) as draft:
        draft.write_text(json_text(found, indent=1) + "\n", encoding="utf-8")
    return found
