"""Tables of an experiment grid: one per evaluation, comparisons with the paper, and systems over folds (Table III)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy

from earmark.counts import HEADINGS
from earmark.errors import DataError
from earmark.evaluation.comparison import PAPER_COLUMNS, Comparison, clipped_interval
from earmark.experiment.grid import REFERENCES, EvaluationSpec, Grid, Published
from earmark.experiment.results import COLUMNS, Row, by_fold, by_system, compare_folds
from earmark.reporting.pages import fill_text
from earmark.tables import Cell, Column, Table, number_cell, short_number
from earmark.text import counted

_CLOSE = 0.05  # largest difference from a published segment F1 that counts as agreement
_PUBLISHED = (*(("static", name) for name in list(HEADINGS)[:3]), *(("dynamic", name) for name in HEADINGS))
_SUMMARY = (  # heading and group; the key of a comparison, with intervals, or of a row's scores
    (("F1", "dynamic"), "dynamic.f1"),
    (("macro F1", "dynamic"), "dynamic.macro.f1"),
    (("F1, maximum", "static"), "static.maximum.macro.f1"),
    (("F1, pooled", "static"), "static.pooled.macro.f1"),
    (("F1", "event"), "event_f1"),
    (("1", "PSDS"), "psds1"),
    (("2", "PSDS"), "psds2"),
)
_SHORT = (*(("dynamic", name) for name in HEADINGS), ("static_pooled", "f1"))


def mean_scores(rows: Sequence[Row]) -> dict[str, float]:
    """Scores of a system, averaged over seeds and folds."""
    return {name: float(np.mean([row.scores[name] for row in rows])) for name in rows[0].scores}


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95% interval of the mean; NaN for fewer than two values.

    >>> low, high = mean_interval([0.5, 0.6, 0.7])
    >>> print(f"{low:.3f} {high:.3f}")
    0.352 0.848
    """
    if len(values) < 2:
        return math.nan, math.nan
    mean, reach = np.mean(values), scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return float(mean - reach), float(mean + reach)


def evaluation_table(tested: Comparison, untested: Comparison | None, name: str, spec: EvaluationSpec) -> Table:
    """Systems in one evaluation.

    `untested` compares the best of them with the systems trained with event times, which are listed last, unmarked.
    """
    table = tested.table()
    strong = [] if untested is None else [row for row in untested.table().rows if row[0].text != tested.best]
    rows = [*table.rows, *([replace(cell, best=False, tied=False) for cell in row] for row in strong)]
    note = fill_text("table-note.txt.j2", untested=[row[0].text for row in strong], p_value=None, **_reference(spec))
    caption = f"Evaluation {name}: {table.caption[0].lower()}{table.caption[1:]}"
    return Table(table.columns, rows, caption, f"{table.note} {note}")


def summary_table(tested: Comparison, untested: Comparison | None, rows: Sequence[Row], name: str) -> Table:
    """The scores by which sound event detectors are commonly compared; `untested` as for `evaluation_table`."""
    systems = by_system(row for row in rows if row.evaluation == name)
    cells = _summary_rows(tested, systems)
    strong = [] if untested is None else [row for row in _summary_rows(untested, systems) if row[0].text != tested.best]
    cells += [[replace(cell, best=False, tied=False) for cell in row] for row in strong]
    columns = [Column("system", is_text=True), Column("runs"), *(Column(*headings) for headings, _ in _SUMMARY)]
    known = [i for i in range(len(columns)) if i == 0 or any(row[i].value is not None for row in cells)]
    note = fill_text("summary-note.txt.j2", segment=tested.segment, untested=[row[0].text for row in strong])
    caption = f"Evaluation {name}: means over runs"
    return Table([columns[i] for i in known], [[row[i] for i in known] for row in cells], caption, note)


def _summary_rows(comparison: Comparison, systems: Mapping[str, Sequence[Row]]) -> list[list[Cell]]:
    """Cells of each system: its name, the number of runs, and scores, with intervals where the comparison has them."""
    names = list(comparison.values)
    rows = [[Cell(name), Cell(str(len(systems[name])), len(systems[name]))] for name in names]
    for _, key in _SUMMARY:
        if "." in key:
            column = comparison.cells(key)
        else:
            values = [mean_scores(systems[name])[key] for name in names]
            highest = short_number(max((value for value in values if math.isfinite(value)), default=math.nan))
            column = [number_cell(v, best=short_number(v) == highest and len(names) > 1) for v in values]
        for row, cell in zip(rows, column, strict=True):
            row.append(cell)
    return rows


def _reference(spec: EvaluationSpec) -> dict[str, str]:
    return {"reference": spec.reference, "description": REFERENCES[spec.reference]}


def short_table(rows: Sequence[Row], evaluation: str) -> Table:
    """The most important scores, averaged over seeds and folds, for a terminal."""
    cells = []
    for system, runs in by_system(row for row in rows if row.evaluation == evaluation).items():
        scores = mean_scores(runs)
        numbers = [number_cell(scores[f"{part}_{score}"]) for part, score in _SHORT]
        cells.append([Cell(system), Cell(str(len(runs)), len(runs)), *numbers])
    columns = [Column(HEADINGS[score], part.replace("_", ", ")) for part, score in _SHORT]
    dataset = rows[0].cell.dataset
    caption = f"{f'{dataset}, evaluation' if dataset else 'Evaluation'} {evaluation}: means over runs"
    return Table([Column("system", is_text=True), Column("runs"), *columns], cells, caption)


def published_tables(
    grid: Grid, rows: Sequence[Row], intervals: Mapping[str, tuple[float, float]] | None = None
) -> tuple[Table, Table] | None:
    """F1 of each system compared with the published one, and all seven scores; None without published scores.

    `intervals` are those of dynamic F1, by system, where known.
    """
    published = grid.published
    if published is None:
        return None
    short, full = [], []
    for name, n_runs, ours, paper in _compared(published, rows):
        f1 = "dynamic", "f1"
        cells = _beside(ours[f1], paper[f1], (intervals or {}).get(name))
        is_close = round(abs(ours[f1] - paper[f1]), 3) <= _CLOSE
        cells += [Cell("yes" if is_close else "no"), *_beside(ours["static", "f1"], paper["static", "f1"])]
        short.append([Cell(name), Cell(str(n_runs), n_runs), *cells])
        full.append([Cell(f"{name}, ours"), *(_with_difference(ours[key], paper[key]) for key in _PUBLISHED)])
        full.append([Cell(f"{name}, paper"), *(number_cell(paper[key]) for key in _PUBLISHED)])
    columns = [Column("system", is_text=True), Column("runs")]
    for group in ("dynamic F1", "static F1"):
        columns += [Column("ours", group), Column("paper", group), Column("diff.", group)]
    columns.insert(5, Column(f"within {short_number(_CLOSE, 2)}", "dynamic F1"))
    wide = [Column("system", is_text=True), *(Column(HEADINGS[score], part) for part, score in _PUBLISHED)]
    note = fill_text("published-note.txt.j2", published=published, **_reference(grid.evaluations[published.evaluation]))
    brackets = "Differences in brackets: ours minus the paper's."
    return (
        Table(columns, short, f"F1 beside {published.table} of the paper", note),
        Table(wide, full, f"All scores beside {published.table} of the paper", brackets),
    )


_Numbers = Mapping[tuple[str, str], float]  # by part and score, as in _PUBLISHED


def _compared(published: Published, rows: Sequence[Row]) -> Iterator[tuple[str, int, _Numbers, _Numbers]]:
    """Systems with published scores: the name, the number of runs, our scores and the paper's."""
    dynamic = by_system(row for row in rows if row.evaluation == published.evaluation)
    static = by_system(row for row in rows if row.evaluation == published.static_evaluation)
    keys = {"static": f"static_{published.static_rule}", "dynamic": "dynamic"}
    for name, runs in dynamic.items():
        system = runs[0].cell.system
        if system in published.scores:
            scores = {"static": mean_scores(static[name]), "dynamic": mean_scores(runs)}
            ours = {(part, score): scores[part][f"{keys[part]}_{score}"] for part, score in _PUBLISHED}
            yield name, len(runs), ours, dict(zip(_PUBLISHED, published.scores[system], strict=True))


def published_class_table(grid: Grid, rows: Sequence[Row]) -> Table | None:
    """Dynamic F1 of each class, with the difference from the published one; None if no class has one."""
    published = grid.published
    if published is None or not published.class_f1:
        return None
    systems = by_system(row for row in rows if row.evaluation == published.evaluation)
    columns = [Column("class", is_text=True)]
    labels = list(dict.fromkeys(label for f1 in published.class_f1.values() for label in f1))
    cells = {label: [Cell(label)] for label in labels}
    for name, runs in systems.items():
        paper = published.class_f1.get(runs[0].cell.system)
        if paper is None:
            continue
        per_class = [row.saved().scores["dynamic"]["per_class"] for row in runs]
        columns.append(Column(name))
        for label, row_cells in cells.items():
            ours = float(np.mean([scores[label]["f1"] if label in scores else math.nan for scores in per_class]))
            is_known = label in paper and math.isfinite(ours)
            row_cells.append(_with_difference(ours, paper[label]) if is_known else number_cell(ours))
    caption = f"Dynamic F1 by class beside the files behind {published.table}"
    return Table(columns, list(cells.values()), caption, "Differences in brackets: ours minus the paper's.")


def _signed(difference: float) -> str:
    """With a sign, unless it rounds to zero."""
    rounded = round(difference, 3) + 0.0
    return f"+{short_number(rounded)}" if rounded > 0 else short_number(rounded)


def _with_difference(ours: float, paper: float) -> Cell:
    """Our score, and the difference from the paper's in brackets."""
    return replace(number_cell(ours), text=f"{short_number(ours)} ({_signed(ours - paper)})")


def _beside(ours: float, paper: float, interval: tuple[float, float] | None = None) -> list[Cell]:
    """Our score, the paper's, and the difference."""
    difference = replace(number_cell(ours - paper), text=_signed(ours - paper))
    return [number_cell(ours, interval), number_cell(paper), difference]


def fold_table(grid: Grid, rows: Sequence[Row], name: str) -> Table:
    """Means over folds, as in Table III: the best of a column is bold, and those not distinguishable are underlined.

    Systems trained with event times are listed last, untested. Intervals are Student's, over folds.
    """
    rows = [row for row in rows if row.evaluation == name]
    weak = [row for row in rows if row.cell.is_weak]
    systems = by_system(sorted(rows, key=lambda row: not row.cell.is_weak))
    columns, cells = [Column("system", is_text=True)], {system: [Cell(system)] for system in systems}
    p_value = None
    for (group, heading, _), score in zip(PAPER_COLUMNS, COLUMNS, strict=True):
        if not np.isfinite([row.scores[score] for row in rows]).all():
            continue
        is_rate = score.endswith("rate")
        columns.append(Column(heading, group, lower_is_better=is_rate))
        try:
            test = compare_folds(weak, score)
            best, marked, p = test.control, test.indistinguishable, test.p_value
        except DataError:  # a single fold or system
            best, marked, p = "", (), math.nan
        p_value = p if score == "dynamic_f1" else p_value
        for system, runs in systems.items():
            values = [*by_fold(runs, score).values()]
            interval = clipped_interval(*mean_interval(values), is_rate=is_rate)
            is_best = system == best
            is_tied = system in marked and not is_best
            cells[system].append(number_cell(float(np.mean(values)), interval, best=is_best, tied=is_tied))
    strong = [system for system, runs in systems.items() if not runs[0].cell.is_weak]
    note = fill_text("table-note.txt.j2", untested=strong, p_value=p_value, **_reference(grid.evaluations[name]))
    caption = f"Evaluation {name}: means over {counted(len({row.cell.fold for row in rows}), 'split')}"
    return Table(columns, list(cells.values()), caption, note)
