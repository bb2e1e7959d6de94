"""One model for tables of results, written as plain text, Markdown, LaTeX, HTML, or styled for a terminal.

The best value of a column (or row) is bold; values that a test does not distinguish from it are underlined.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from earmark.errors import ArgumentError
from earmark.text import visible

if TYPE_CHECKING:
    import rich.console

__all__ = ["DASH", "Cell", "Column", "Table", "import_pandas", "number_cell", "short_number"]

DASH = "\N{EN DASH}"
_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    DASH: "--",
    **{c: rf"\{c}" for c in "&%$#_{}"},
}


def short_number(value: float | None, digits: int = 3) -> str:
    """A score without the zero before the point; a dash for an unknown one.

    >>> short_number(0.5321), short_number(2.1), short_number(-0.04), short_number(-1e-9), short_number(float("nan"))
    ('.532', '2.100', '-.040', '.000', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:z.{digits}f}")


@dataclass(frozen=True)
class Cell:
    """A cell: its text, the value to sort by (the text if there is none), an interval, and whether it is marked.

    `tied` marks a value that is not distinguishable from the best.
    """

    text: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    best: bool = False
    tied: bool = False

    @property
    def interval_text(self) -> str:
        """Both bounds; empty without an interval.

        >>> number_cell(0.5, (0.41, 0.59)).interval_text
        '.410–.590'
        """
        if self.interval is None or not all(map(math.isfinite, self.interval)):
            return ""
        return DASH.join(short_number(bound) for bound in self.interval)


def number_cell(
    value: float | None, interval: tuple[float, float] | None = None, *, best: bool = False, tied: bool = False
) -> Cell:
    """A cell with a score; a dash where there is none."""
    known = value is not None and math.isfinite(value)
    return Cell(short_number(value), value if known else None, interval, best, tied)


@dataclass(frozen=True)
class Column:
    """A column heading. Adjacent columns of the same `group` share a heading above theirs; text is left-aligned."""

    heading: str
    group: str = ""
    is_text: bool = False
    lower_is_better: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells below column headings, with an optional caption above and a note below.

    Examples
    --------
    >>> columns = [Column("model", is_text=True), Column("F1", "dynamic"), Column("P", "dynamic")]
    >>> rows = [
    ...     [Cell("CAP"), number_cell(0.533, (0.52, 0.54), best=True), number_cell(0.622)],
    ...     [Cell("RAP_1"), number_cell(0.529, tied=True), number_cell(None)],
    ... ]
    >>> print(Table(columns, rows))
          dynamic
    model      F1    P
    CAP      .533 .622
    RAP_1    .529    –
    >>> print(Table(columns, rows).to_markdown())
    | model | dynamic F1 | dynamic P |
    |:---|---:|---:|
    | CAP | **.533** | .622 |
    | RAP\\_1 | <ins>.529</ins> | – |
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ArgumentError(f"expected rows of {len(self.columns)} cells, got one of {len(row)}")

    def __str__(self) -> str:
        """As plain text, without marks."""
        import rich.console

        text = io.StringIO()
        rich.console.Console(file=text, width=10_000, color_system=None).print(self.to_rich())
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        return str(self.to_html())

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Group headings with the number of their columns; empty if no column has a group."""
        groups = [(name, len(list(columns))) for name, columns in groupby(column.group for column in self.columns)]
        return groups if any(name for name, _ in groups) else []

    def to_rich(self) -> rich.console.Group:
        """For a terminal, with marks as text styles. Lines longer than the terminal is wide are not shortened."""
        import rich.console
        from rich.text import Text

        headings = [visible(column.heading).split("\n") for column in self.columns]
        lines = [[Text.assemble((text, "bold")) for text in line] for line in zip_longest(*headings, fillvalue="")]
        lines += [
            [Text.assemble((visible(cell.text), _marked(cell, "bold", "underline", ""))) for cell in row]
            for row in self.rows
        ]
        widths = [max(text.cell_len for text in column) for column in zip(*lines, strict=True)]
        above = self._group_headings(widths)
        for line in lines:
            for text, column, width in zip(line, self.columns, widths, strict=True):
                text.align("left" if column.is_text else "right", width)
        whole: dict[str, Any] = {"no_wrap": True, "overflow": "ignore"}
        titles = [Text(line, "bold", **whole) for line in (self.caption, above) if line]
        return rich.console.Group(*titles, *(Text(" ", **whole).join(line) for line in lines))

    def _group_headings(self, widths: list[int]) -> str:
        """The line of group headings above columns of these widths; the last column of a narrow group is widened."""
        line, first = "", 0
        for name, count in self.groups:
            width = sum(widths[first : first + count]) + count - 1  # with a space between columns
            widths[first + count - 1] += max(0, len(name) - width)
            line += name.ljust(max(len(name), width) + 1)
            first += count
        return line.rstrip()

    def to_markdown(self, *, intervals: bool = False) -> str:
        """As a Markdown table (GitHub's dialect)."""
        headings = [_escape_markdown(f"{column.group} {column.heading}".strip()) for column in self.columns]
        rows = [headings, *([_markdown_cell(cell, intervals) for cell in row] for row in self.rows)]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, f"|{'|'.join(':---' if column.is_text else '---:' for column in self.columns)}|")
        return "\n".join(lines)

    def to_latex(self, *, intervals: bool = False) -> str:
        """As a `tabular` that needs the package booktabs."""
        alignment = "".join("l" if column.is_text else "r" for column in self.columns)
        lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
        if self.groups:
            cells, rules, first = [], [], 1
            for name, count in self.groups:
                if name:
                    cells.append(rf"\multicolumn{{{count}}}{{c}}{{{_escape_latex(name)}}}")
                    rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
                else:
                    cells.append(" &" * (count - 1))
                first += count
            lines += [_latex_row(cells), " ".join(rules)]
        lines += [_latex_row(_escape_latex(column.heading) for column in self.columns), r"\midrule"]
        lines += [_latex_row(_latex_cell(cell, intervals) for cell in row) for row in self.rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def to_html(self) -> Markup:
        """As HTML, complete without style or script; report pages add both, and sort it by its headings."""
        return Markup(_html_template().render(table=self))


def import_pandas() -> Any:
    """Import pandas, an optional dependency, when a result is converted."""
    try:
        import pandas
    except ImportError as error:
        raise ArgumentError("to_pandas needs pandas; install it with: pip install pandas") from error
    return pandas


def _marked(cell: Cell, best: str, tied: str, plain: str) -> str:
    """One of three styles or patterns, by the mark of a cell."""
    if cell.best:
        return best
    return tied if cell.tied else plain


def _markdown_cell(cell: Cell, intervals: bool) -> str:
    text = _marked(cell, "**{}**", "<ins>{}</ins>", "{}").format(_escape_markdown(cell.text))
    return f"{text} ({cell.interval_text})" if intervals and cell.interval_text else text


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", " ".join(text.split()))


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell, intervals: bool) -> str:
    text = _marked(cell, r"\textbf{{{}}}", r"\underline{{{}}}", "{}").format(_escape_latex(cell.text))
    if intervals and cell.interval_text:
        text += rf" {{\scriptsize {_escape_latex(cell.interval_text)}}}"
    return text


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in " ".join(text.split()))


@cache
def _html_template() -> jinja2.Template:
    loader = jinja2.PackageLoader("earmark", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("table.html.j2")
