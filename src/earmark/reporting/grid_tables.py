"""Tables of an experiment grid: one per evaluation, ours beside the published, and systems over folds (Table III)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from earmark.errors import DataError
from earmark.evaluation.comparison import PAPER_COLUMNS, Comparison, clipped_interval
from earmark.experiment.grid import REFERENCES, Grid, Judging, Published
from earmark.experiment.results import Row, by_system, compare_folds
from earmark.tables import Cell, Column, Table, number_cell, short_number
from earmark.text import counted, listed

__all__ = [
    "CLOSE",
    "by_fold",
    "evaluation_table",
    "fold_table",
    "mean_interval",
    "mean_scores",
    "published_tables",
    "short_table",
]

CLOSE = 0.05
"""Largest difference from a published segment F1 that counts as agreement."""

_HEADINGS = {"f1": "F1", "precision": "P", "recall": "R", "error_rate": "error rate"}
_PUBLISHED = (*(("static", name) for name in list(_HEADINGS)[:3]), *(("dynamic", name) for name in _HEADINGS))
_SHORT = (*(("dynamic", name) for name in _HEADINGS), ("static_pooled", "f1"))
_TESTED = "dynamic_f1"


def mean_scores(rows: Sequence[Row]) -> dict[str, float]:
    """Scores of a system, averaged over seeds and folds."""
    return {name: float(np.mean([row.scores[name] for row in rows])) for name in rows[0].scores}


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean; NaN for fewer than two values.

    >>> low, high = mean_interval([0.5, 0.6, 0.7])
    >>> print(f"{low:.3f} {high:.3f}")
    0.352 0.848
    """
    if len(values) < 2:
        return math.nan, math.nan
    reach = float(stats.t.ppf(0.5 + level / 2, len(values) - 1)) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)) - reach, float(np.mean(values)) + reach


def evaluation_table(tested: Comparison, untested: Comparison | None, name: str, judging: Judging) -> Table:
    """Systems in one evaluation.

    Parameters
    ----------
    tested
        The systems of the test.
    untested
        The best of them and the systems trained with event times, which are listed last, without marks; None if there
        are none.
    """
    table = tested.table()
    rows, notes = list(table.rows), [table.note]
    if untested is not None:
        strong = [row for row in untested.table().rows if row[0].text != tested.best]
        rows += [[replace(cell, best=False, tied=False) for cell in row] for row in strong]
        notes.append(_untested_note([row[0].text for row in strong]))
    notes.append(_reference_note(judging))
    caption = f"Evaluation {name}: {table.caption[0].lower()}{table.caption[1:]}"
    return Table(table.columns, rows, caption, " ".join(notes))


def _untested_note(names: Sequence[str]) -> str:
    return f"Trained with event times and therefore neither marked nor tested: {listed(names)}."


def _reference_note(judging: Judging) -> str:
    note = f"Reference: {REFERENCES[judging.reference]}"
    return f"{note}." if judging.reference == "data" else f"{note}; also for static scores."


def short_table(rows: Sequence[Row], judgement: str) -> Table:
    """The most important scores, averaged over seeds and folds, for a terminal."""
    cells = []
    for system, own in by_system(row for row in rows if row.judgement == judgement).items():
        scores = mean_scores(own)
        numbers = [number_cell(scores[f"{part}_{score}"]) for part, score in _SHORT]
        cells.append([Cell(system), Cell(str(len(own)), len(own)), *numbers])
    columns = [Column(_HEADINGS[score], part.replace("_", ", ")) for part, score in _SHORT]
    dataset = rows[0].cell.dataset
    caption = f"{f'{dataset}, evaluation' if dataset else 'Evaluation'} {judgement}: means over runs"
    return Table([Column("system", is_text=True), Column("runs"), *columns], cells, caption)


def published_tables(
    grid: Grid, rows: Sequence[Row], intervals: Mapping[str, tuple[float, float]] | None = None
) -> tuple[Table, Table] | None:
    """F1 of each system beside the published one, and all seven scores; None if the grid has no published scores.

    Parameters
    ----------
    intervals
        Of dynamic F1, by system, where known.
    """
    published = grid.published
    if published is None:
        return None
    dynamic = by_system(row for row in rows if row.judgement == published.judgement)
    static = by_system(row for row in rows if row.judgement == published.static_judgement)
    keys = {"static": f"static_{published.static_rule}", "dynamic": "dynamic"}
    short, full = [], []
    for name, own in dynamic.items():
        if own[0].cell.system not in published.scores:
            continue
        paper = dict(zip(_PUBLISHED, published.scores[own[0].cell.system], strict=True))
        scores = {"static": mean_scores(static[name]), "dynamic": mean_scores(own)}
        ours = {(part, score): scores[part][f"{keys[part]}_{score}"] for part, score in _PUBLISHED}
        short.append(_short_row(name, len(own), ours, paper, (intervals or {}).get(name)))
        full.append([Cell(f"{name}, ours"), *(_with_difference(ours[key], paper[key]) for key in _PUBLISHED)])
        full.append([Cell(f"{name}, paper"), *(number_cell(paper[key]) for key in _PUBLISHED)])
    columns = [Column("system", is_text=True), Column("runs")]
    for group in ("dynamic F1", "static F1"):
        columns += [Column("ours", group), Column("paper", group), Column("diff.", group)]
    columns.insert(5, Column(f"within {short_number(CLOSE, 2)}", "dynamic F1"))
    wide = [Column("system", is_text=True), *(Column(_HEADINGS[score], part) for part, score in _PUBLISHED)]
    note = "Differences in brackets: ours minus the paper's."
    return (
        Table(columns, short, f"F1 beside {published.table} of the paper", _published_note(grid, published)),
        Table(wide, full, f"All scores beside {published.table} of the paper", note),
    )


def _short_row(
    name: str,
    runs: int,
    ours: Mapping[tuple[str, str], float],
    paper: Mapping[tuple[str, str], float],
    interval: tuple[float, float] | None,
) -> list[Cell]:
    cells = [Cell(name), Cell(str(runs), runs)]
    for part in ("dynamic", "static"):
        key = (part, "f1")
        difference = ours[key] - paper[key]
        cells += [
            number_cell(ours[key], interval if part == "dynamic" else None),
            number_cell(paper[key]),
            replace(number_cell(difference), text=_signed(difference)),
        ]
        if part == "dynamic":
            cells.append(Cell("yes" if round(abs(difference), 3) <= CLOSE else "no"))
    return cells


def _published_note(grid: Grid, published: Published) -> str:
    rule = {"pooled": "by the pooled output", "maximum": "by the most likely frame"}[published.static_rule]
    judging = grid.judgements[published.judgement]
    if published.static_judgement != published.judgement:
        rule += f", evaluation {published.static_judgement}"
    return (
        f"Dynamic: all segments pooled, evaluation {published.judgement} ({REFERENCES[judging.reference]}). "
        f"Static: averaged over classes, {rule}. Ours: mean over runs."
    )


def _signed(difference: float) -> str:
    """With a sign, unless it rounds to zero."""
    rounded = round(difference, 3) + 0.0
    return f"+{short_number(rounded)}" if rounded > 0 else short_number(rounded)


def _with_difference(ours: float, paper: float) -> Cell:
    return replace(number_cell(ours), text=f"{short_number(ours)} ({_signed(ours - paper)})")


def fold_table(grid: Grid, rows: Sequence[Row], name: str) -> Table:
    """Means over folds; systems not distinguishable from the best of a column are bold, as in Table III.

    Systems trained with event times are listed last, untested. Intervals are Student's, over folds.
    """
    rows = [row for row in rows if row.judgement == name]
    weak = [row for row in rows if row.cell.is_weak]
    systems = by_system(sorted(rows, key=lambda row: not row.cell.is_weak))
    columns, cells = [Column("system", is_text=True)], {system: [Cell(system)] for system in systems}
    notes = []
    for group, heading, key in PAPER_COLUMNS:
        score = key.replace(".macro", "").replace(".", "_")
        if not np.isfinite([row.scores[score] for row in rows]).all():
            continue
        is_rate = score.endswith("rate")
        columns.append(Column(heading, group, lower_is_better=is_rate))
        try:
            test = compare_folds(weak, score)
            marked, p = test.indistinguishable, test.p_value
        except DataError:  # a single fold or system
            marked, p = (), math.nan
        if score == _TESTED:
            notes.append(_fold_test_note(p))
        for system, own in systems.items():
            values = by_fold(own, score)
            interval = clipped_interval(*mean_interval(values), is_rate=is_rate)
            cells[system].append(number_cell(float(np.mean(values)), interval, best=system in marked))
    strong = [system for system, own in systems.items() if not own[0].cell.is_weak]
    if strong:
        notes.append(_untested_note(strong))
    notes.append(_reference_note(grid.judgements[name]))
    caption = f"Evaluation {name}: means over {counted(len({row.cell.fold for row in rows}), 'split')}"
    return Table(columns, list(cells.values()), caption, " ".join(notes))


def by_fold(rows: Sequence[Row], score: str) -> list[float]:
    """The score of each fold, averaged over seeds."""
    folds = dict.fromkeys(row.cell.fold for row in rows)
    return [float(np.mean([row.scores[score] for row in rows if row.cell.fold == fold])) for fold in folds]


def _fold_test_note(p: float) -> str:
    if math.isnan(p):
        return "Nothing is marked: the test needs two systems with two splits in common."
    p_text = "p < .001" if p < 0.001 else f"p = {short_number(p)}"
    return (
        "Bold: not distinguishable from the best of the column (Friedman test over the common splits, with "
        f"Bonferroni-Holm correction, level .05). For dynamic F1, {p_text}."
    )
