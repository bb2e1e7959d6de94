"""Tables of results, made once and written as Markdown, LaTeX, HTML or for a terminal.

The best value of a column is bold. What the data do not tell apart from the best is underlined.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import rich.table
from markupsafe import Markup
from rich.text import Text

from earmark.errors import ArgumentError
from earmark.report.inline import fill_template

if TYPE_CHECKING:
    from earmark.evaluation.comparison import Comparison

__all__ = ["DASH", "PAPER_COLUMNS", "Cell", "Column", "Table", "comparison_table", "number_cell", "short_number"]

DASH = "\N{EN DASH}"
_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{c: rf"\{c}" for c in "&%$#_{}"},
}
PAPER_COLUMNS = (  # those of Tables I to III
    ("static, maximum", "F1", "static.maximum.macro.f1"),
    ("static, maximum", "P", "static.maximum.macro.precision"),
    ("static, maximum", "R", "static.maximum.macro.recall"),
    ("static, pooled", "F1", "static.pooled.macro.f1"),
    ("static, pooled", "P", "static.pooled.macro.precision"),
    ("static, pooled", "R", "static.pooled.macro.recall"),
    ("dynamic", "F1", "dynamic.f1"),
    ("dynamic", "P", "dynamic.precision"),
    ("dynamic", "R", "dynamic.recall"),
    ("dynamic", "error rate", "dynamic.error_rate"),
)


def short_number(value: float | None, digits: int = 3) -> str:
    """A score as tables print it: no zero before the point, a dash for what is not known.

    >>> short_number(0.5321), short_number(2.1), short_number(-0.04), short_number(float("nan"))
    ('.532', '2.100', '-.040', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:.{digits}f}"
    return re.sub(r"^(-?)0\.", r"\1.", text)


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table."""

    text: str
    value: float | None = None
    """What the row is sorted by; its text where there is none."""
    interval: tuple[float, float] | None = None
    best: bool = False
    tied: bool = False
    """Not distinguishable from the best."""

    def interval_text(self) -> str:
        """Both bounds, or nothing.

        >>> number_cell(0.5, (0.41, 0.59)).interval_text()
        '.410–.590'
        """
        if self.interval is None or not all(map(math.isfinite, self.interval)):
            return ""
        return DASH.join(short_number(bound) for bound in self.interval)


def number_cell(
    value: float | None,
    interval: tuple[float, float] | None = None,
    *,
    digits: int = 3,
    best: bool = False,
    tied: bool = False,
) -> Cell:
    """A cell with a score; a dash where there is none."""
    known = value is not None and math.isfinite(value)
    return Cell(short_number(value, digits), value if known else None, interval, best, tied)


@dataclass(frozen=True)
class Column:
    """A heading; neighbours of one `group` stand below it together. `is_text` columns are aligned on the left."""

    heading: str
    group: str = ""
    is_text: bool = False
    lower_is_better: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells below columns.

    Examples
    --------
    >>> columns = (Column("model", is_text=True), Column("F1", "dynamic"), Column("P", "dynamic"))
    >>> rows = (
    ...     (Cell("CAP"), number_cell(0.533, (0.52, 0.54), best=True), number_cell(0.622)),
    ...     (Cell("RAP_1"), number_cell(0.529, tied=True), number_cell(None)),
    ... )
    >>> print(Table(columns, rows).to_markdown())
    | model | dynamic F1 | dynamic P |
    |:---|---:|---:|
    | CAP | **.533** | .622 |
    | RAP\\_1 | <ins>.529</ins> | – |
    >>> print(Table(columns, rows).to_latex(intervals=True))
    \\begin{tabular}{lrr}
    \\toprule
     & \\multicolumn{2}{c}{dynamic} \\\\
    \\cmidrule(lr){2-3}
    model & F1 & P \\\\
    \\midrule
    CAP & \\textbf{.533} {\\scriptsize .520--.540} & .622 \\\\
    RAP\\_1 & \\underline{.529} & -- \\\\
    \\bottomrule
    \\end{tabular}
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    note: str = ""
    """What is to be known about it, in a sentence or two below."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ArgumentError(f"a table of {len(self.columns)} columns has a row of {len(row)} cells")

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings above the headings, each with the number of its columns; empty if no column has one."""
        found = [(name, len(list(own))) for name, own in groupby(column.group for column in self.columns)]
        return found if any(name for name, _ in found) else []

    def to_markdown(self, *, intervals: bool = False) -> str:
        """As GitHub and others read it."""
        heads = [" ".join(filter(None, (c.group, c.heading))) for c in self.columns]
        lines = [_line(map(_markdown, heads))]
        lines.append("|" + "|".join(":---" if c.is_text else "---:" for c in self.columns) + "|")
        for row in self.rows:
            lines.append(
                _line(
                    _marked(_markdown(cell.text), cell, "**{}**", "<ins>{}</ins>")
                    + _behind(" ({})" if intervals else "", cell)
                    for cell in row
                )
            )
        return "\n".join(lines)

    def to_latex(self, *, intervals: bool = False) -> str:
        """A `tabular` for the package booktabs."""
        lines = [rf"\begin{{tabular}}{{{''.join('l' if c.is_text else 'r' for c in self.columns)}}}", r"\toprule"]
        if self.groups:
            lines += self._latex_groups()
        lines += [" & ".join(_latex(c.heading) for c in self.columns) + r" \\", r"\midrule"]
        for row in self.rows:
            cells = (
                _marked(_latex(cell.text), cell, r"\textbf{{{}}}", r"\underline{{{}}}")
                + _behind(r" {{\scriptsize {}}}" if intervals else "", cell).replace(DASH, "--")
                for cell in row
            )
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def to_html(self) -> Markup:
        """A table that can be sorted by its headings, in the pages of this room, which have style and script for it."""
        return fill_template("table.html", table=self)

    def to_text(self, *, intervals: bool = False) -> rich.table.Table:
        """For a terminal; `rich.print` shows it."""
        table = rich.table.Table(
            box=None, pad_edge=False, padding=(0, 1, 0, 0), title=self.caption or None, title_justify="left"
        )
        above = [word for name, count in self.groups for word in _spread(name, count)]
        for i, column in enumerate(self.columns):
            heading = f"{above[i]}\n{column.heading}" if above else column.heading
            table.add_column(Text(heading), justify="left" if column.is_text else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(self._text(cell, intervals) for cell in row))
        return table

    @staticmethod
    def _text(cell: Cell, intervals: bool) -> Text:
        text = Text(cell.text, style="bold" if cell.best else "underline" if cell.tied else "")
        return Text.assemble(text, (_behind(" {}", cell), "dim")) if intervals else text

    def _latex_groups(self) -> list[str]:
        cells, rules, first = [], [], 1
        for name, count in self.groups:
            cells.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex(name)}}}" if name else " &" * (count - 1))
            if name:
                rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
            first += count
        return [" & ".join(cells) + r" \\", " ".join(rules)]


def _spread(name: str, columns: int) -> list[str]:
    """The words of a group's name above its columns, so that no column is as wide as the name."""
    words = name.split()
    return [*words[: columns - 1], " ".join(words[columns - 1 :]), *[""] * (columns - 1 - len(words))]


def _line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _marked(text: str, cell: Cell, best: str, tied: str) -> str:
    return best.format(text) if cell.best else tied.format(text) if cell.tied else text


def _behind(pattern: str, cell: Cell) -> str:
    return pattern.format(cell.interval_text()) if cell.interval_text() else ""


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", " ".join(text.split()))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in " ".join(text.split())).replace(DASH, "--")


def comparison_table(comparison: Comparison) -> Table:
    """Models against scores, as in the paper's Tables I to III: static ones averaged over classes (macro), by both
    rules, dynamic ones of all classes together (micro). Without times all classes are together, as they are tested.

    The best of each column is bold. Underlines are in the column that was tested, `comparison.statistic`. A model alone
    is neither.
    """
    names = [entry.name for entry in comparison.entries]
    columns, rows = [Column("model", is_text=True)], [[Cell(name)] for name in names]
    is_micro = comparison.statistic.startswith("static")
    for group, heading, key in PAPER_COLUMNS:
        key = key.replace(".macro", "") if is_micro else key
        scores = {name: own[key] for name, own in comparison.values.items() if key in own}
        known = [score.value for score in scores.values() if math.isfinite(score.value)]
        if not known:
            continue
        is_rate, is_tested, is_alone = key.endswith("_rate"), key == comparison.statistic, len(names) == 1
        columns.append(Column(heading, group, lower_is_better=is_rate))
        best = short_number(min(known) if is_rate else max(known))
        for name, row in zip(names, rows, strict=True):
            if name not in scores:
                row.append(number_cell(None))
                continue
            score = scores[name]
            is_best = name == comparison.best if is_tested else short_number(score.value) == best
            is_tied = is_tested and name in comparison.tied
            # Student's interval, of several seeds, does not know where a score ends
            interval = (max(score.low, 0.0), score.high if is_rate else min(score.high, 1.0))  # NaN stays
            row.append(number_cell(score.value, interval, best=is_best and not is_alone, tied=is_tied))
    caption = "All classes together" if is_micro else "Static scores averaged over classes, dynamic ones over segments"
    return Table(tuple(columns), tuple(map(tuple, rows)), caption, _explained(comparison))


def _explained(comparison: Comparison) -> str:
    tested = "dynamic F1" if comparison.statistic == "dynamic.f1" else "static F1"
    said = ["Static: is the class somewhere in the clip; by its likeliest moment (maximum), or by the pooled output."]
    if comparison.statistic == "dynamic.f1":
        said.append(f"Dynamic: is it in this segment of {comparison.segment:g} s.")
    said.append("P is precision, R recall.")
    if len(comparison.entries) > 1:
        said.append(
            f"The best of a column is bold; for {tested}, what the data do not tell apart from it is underlined."
        )
    return " ".join(said)
