"""Tables of a grid: each judgement's, ours beside published ones, and systems ranked over folds as in Table III."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from earmark.errors import DataError
from earmark.evaluation.comparison import Comparison
from earmark.experiment.grid import REFERENCES, Grid, Judging, Published
from earmark.experiment.results import Row, by_system, compare_folds
from earmark.report.tables import PAPER_COLUMNS, Cell, Column, Table, comparison_table, number_cell, short_number
from earmark.report.words import listed

__all__ = [
    "CLOSE",
    "by_fold",
    "fold_table",
    "judgement_table",
    "mean_interval",
    "mean_scores",
    "published_tables",
    "short_table",
]

CLOSE = 0.05
"""How far F1 of segments may be from a published one and still count as the same."""

_HEADINGS = {"f1": "F1", "precision": "P", "recall": "R", "error_rate": "error rate"}
_PUBLISHED = (*(("static", name) for name in list(_HEADINGS)[:3]), *(("dynamic", name) for name in _HEADINGS))
_SHORT = (*(("dynamic", name) for name in _HEADINGS), ("static_pooled", "f1"))
_TESTED = "dynamic_f1"


def mean_scores(rows: Sequence[Row]) -> dict[str, float]:
    """Scores of a system: the mean over its seeds and folds."""
    return {name: float(np.mean([row.scores[name] for row in rows])) for name in rows[0].scores}


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of a mean, as of folds; unknown for fewer than two.

    >>> low, high = mean_interval([0.5, 0.6, 0.7])
    >>> print(f"{low:.3f} {high:.3f}")
    0.352 0.848
    """
    if len(values) < 2:
        return math.nan, math.nan
    reach = float(stats.t.ppf(0.5 + level / 2, len(values) - 1)) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)) - reach, float(np.mean(values)) + reach


def judgement_table(first: Comparison, above: Comparison | None, name: str, judging: Judging) -> Table:
    """Systems judged one way.

    Parameters
    ----------
    first
        Those that compete.
    above
        The best of them and those that were told when, which stand below the others, unmarked; None if there are none.
    """
    table = comparison_table(first)
    rows, said = list(table.rows), [table.note]
    if above is not None:
        told = [row for row in comparison_table(above).rows if row[0].text != first.best]
        rows += [tuple(replace(cell, best=False, tied=False) for cell in row) for row in told]
        said.append(_told_when([row[0].text for row in told]))
    said.append(_judged(judging))
    return Table(table.columns, tuple(rows), f"Judgement {name}: {table.caption.lower()}", " ".join(said))


def _told_when(names: Sequence[str]) -> str:
    who = listed(names)
    be = "is" if len(names) == 1 else "are"
    return f"{who[0].upper()}{who[1:]} learned from labels that say when, and {be} neither marked nor in the test."


def _judged(judging: Judging) -> str:
    said = f"Reference: {REFERENCES[judging.reference]}; static scores are against it too."
    return f"Reference: {REFERENCES[judging.reference]}." if judging.reference == "data" else said


def short_table(rows: Sequence[Row], judgement: str) -> Table:
    """The scores that matter most, for a terminal: means over seeds and folds."""
    cells = []
    for system, own in by_system(row for row in rows if row.judgement == judgement).items():
        scores = mean_scores(own)
        numbers = [number_cell(scores[f"{part}_{score}"]) for part, score in _SHORT]
        cells.append((Cell(system), Cell(str(len(own)), len(own)), *numbers))
    columns = [Column(_HEADINGS[score], part.replace("_", ", ")) for part, score in _SHORT]
    where = f"{rows[0].cell.dataset}, judgement" if rows[0].cell.dataset else "Judgement"
    caption = f"{where} {judgement}: means over runs"
    return Table((Column("system", is_text=True), Column("runs"), *columns), tuple(cells), caption)


def published_tables(
    grid: Grid, rows: Sequence[Row], intervals: Mapping[str, tuple[float, float]] | None = None
) -> tuple[Table, Table] | None:
    """F1 of each system beside the published one, and all seven scores; None where nothing was published.

    Parameters
    ----------
    intervals
        Of dynamic F1, by system, where they are known.
    """
    told = grid.published
    if told is None:
        return None
    dynamic = by_system(row for row in rows if row.judgement == told.judgement)
    static = by_system(row for row in rows if row.judgement == told.static_judgement)
    short, full = [], []
    for name, own in dynamic.items():
        if own[0].cell.system in told.scores:
            paper = dict(zip(_PUBLISHED, told.scores[own[0].cell.system], strict=True))
            scores = {"static": mean_scores(static[name]), "dynamic": mean_scores(own)}
            keys = {"static": f"static_{told.static_rule}", "dynamic": "dynamic"}
            ours = {(part, score): scores[part][f"{keys[part]}_{score}"] for part, score in _PUBLISHED}
            short.append(_short_row(name, len(own), ours, paper, (intervals or {}).get(name)))
            away = {key: ours[key] - paper[key] for key in _PUBLISHED}
            full.append((Cell(f"{name}, ours"), *(_beside(ours[key], away[key]) for key in _PUBLISHED)))
            full.append((Cell(f"{name}, paper"), *(number_cell(paper[key]) for key in _PUBLISHED)))
    columns = [Column("system", is_text=True), Column("runs")]
    for group in ("dynamic F1", "static F1"):
        columns += [Column("ours", group), Column("paper", group), Column("diff.", group)]
    columns.insert(5, Column(f"within {short_number(CLOSE, 2)}", "dynamic F1"))
    wide = [Column("system", is_text=True), *(Column(_HEADINGS[score], part) for part, score in _PUBLISHED)]
    first = Table(tuple(columns), tuple(short), f"F1 beside {told.table} of the paper", _published_note(grid, told))
    note = "Differences in brackets: ours less the paper's."
    return first, Table(tuple(wide), tuple(full), f"All scores beside {told.table} of the paper", note)


def _short_row(
    name: str,
    runs: int,
    ours: Mapping[tuple[str, str], float],
    paper: Mapping[tuple[str, str], float],
    interval: tuple[float, float] | None,
) -> tuple[Cell, ...]:
    cells = [Cell(name), Cell(str(runs), runs)]
    for key in (("dynamic", "f1"), ("static", "f1")):
        away = ours[key] - paper[key]
        bounds = interval if key[0] == "dynamic" else None
        cells += [
            number_cell(ours[key], bounds),
            number_cell(paper[key]),
            replace(number_cell(away), text=_signed(away)),
        ]
        if key[0] == "dynamic":
            cells.append(Cell("yes" if round(abs(away), 3) <= CLOSE else "no"))
    return tuple(cells)


def _published_note(grid: Grid, told: Published) -> str:
    rule = {"pooled": "by the pooled output", "maximum": "by the likeliest moment"}[told.static_rule]
    judging = grid.judgements[told.judgement]
    same = "" if told.static_judgement == told.judgement else f", against judgement {told.static_judgement}"
    return (
        f"Dynamic: all segments together, judgement {told.judgement} ({REFERENCES[judging.reference]}). "
        f"Static: averaged over classes, {rule}{same}. Ours is the mean over runs."
    )


def _signed(difference: float) -> str:
    """With its sign, unless it is nothing as far as is printed."""
    rounded = round(difference, 3) + 0.0
    return f"+{short_number(rounded)}" if rounded > 0 else short_number(rounded)


def _beside(ours: float, away: float) -> Cell:
    return replace(number_cell(ours), text=f"{short_number(ours)} ({_signed(away)})")


def fold_table(grid: Grid, rows: Sequence[Row], name: str) -> Table:
    """Means over folds; bold are, in each column, all systems that are not distinguishable from the best (Table III).

    Systems that were told when stand below the others, untested. Intervals are Student's, over folds.
    """
    own = [row for row in rows if row.judgement == name]
    weak = [row for row in own if row.cell.is_weak]
    ordered = by_system([*weak, *(row for row in own if not row.cell.is_weak)])
    columns, cells = [Column("system", is_text=True)], {system: [Cell(system)] for system in ordered}
    said = []
    for group, heading, key in PAPER_COLUMNS:
        score = key.replace(".macro", "").replace(".", "_")
        if not np.isfinite([row.scores[score] for row in own]).all():
            continue
        columns.append(Column(heading, group, lower_is_better=score.endswith("rate")))
        try:
            test = compare_folds(weak, score)
            marked, p = test.indistinguishable, test.p_value
        except DataError:  # one fold, or one system
            marked, p = (), math.nan
        if score == _TESTED:
            said.append(_tested(p))
        for system, theirs in ordered.items():
            values = by_fold(theirs, score)
            low, high = mean_interval(values)  # Student's, which knows no limits
            interval = (max(low, 0.0), high if score.endswith("rate") else min(high, 1.0))  # NaN stays
            cells[system].append(number_cell(float(np.mean(values)), interval, best=system in marked))
    told = [system for system, theirs in ordered.items() if not theirs[0].cell.is_weak]
    if told:
        said.append(_told_when(told))
    folds = len({row.cell.fold for row in own})
    caption = f"Judgement {name}: means over {folds} split{'s' if folds > 1 else ''}"
    said.append(_judged(grid.judgements[name]))
    return Table(tuple(columns), tuple(tuple(row) for row in cells.values()), caption, " ".join(said))


def by_fold(rows: Sequence[Row], score: str) -> list[float]:
    """The score of each fold, seeds averaged."""
    folds = dict.fromkeys(row.cell.fold for row in rows)
    return [float(np.mean([row.scores[score] for row in rows if row.cell.fold == fold])) for fold in folds]


def _tested(p: float) -> str:
    if math.isnan(p):
        return "Nothing is marked: a test needs two systems with two splits in common."
    told = "below .001" if p < 0.001 else short_number(p)
    return (
        "Bold: not distinguishable from the best of the column (Friedman's test over the splits that all have, "
        f"Bonferroni-Holm, .05). For dynamic F1 the test's p is {told}."
    )
