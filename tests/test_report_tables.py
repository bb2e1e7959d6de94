"""Tables: marks, escapes and headings in every output format."""

import io
import math
import re
import sys

import pytest
from rich.console import Console

from earmark.annotations import LabelTable
from earmark.cli.terminal import make_console
from earmark.errors import ArgumentError
from earmark.evaluation.comparison import Comparison
from earmark.evaluation.statistics import Interval
from earmark.evaluation.systems import System
from earmark.tables import DASH, Cell, Column, Table, number_cell, short_number

COLUMNS = (
    Column("model_1", is_text=True),
    Column("F1", "dynamic"),
    Column("error rate", "dynamic", lower_is_better=True),
)
ROWS = (
    (Cell("a & b|c <i>"), number_cell(0.5, (0.4, 0.6), best=True), number_cell(1.25)),
    (Cell("100 % {x} ~^\\"), number_cell(0.49, tied=True), number_cell(math.nan)),
)
TABLE = Table(COLUMNS, ROWS, "Scores")


def test_markdown_marks_and_escapes():
    lines = TABLE.to_markdown(intervals=True).splitlines()
    assert lines[0] == r"| model\_1 | dynamic F1 | dynamic error rate |"
    assert lines[2] == rf"| a & b\|c \<i\> | **.500** (.400{DASH}.600) | 1.250 |"
    assert lines[3].endswith(f"| <ins>.490</ins> | {DASH} |")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_latex_marks_and_escapes():
    text = TABLE.to_latex()
    assert r"a \& b|c \textless{}i\textgreater{} & \textbf{.500} & 1.250 \\" in text
    assert r"100 \% \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{} & \underline{.490} & -- \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert ".400" not in text


def test_html_marks_and_escapes():
    html = str(TABLE.to_html())
    assert "a &amp; b|c &lt;i&gt;" in html
    assert f'data-value="0.5"><b>.500</b> <small>.400{DASH}.600</small>' in html
    assert "<u>.490</u>" in html
    assert 'colspan="2">dynamic</th>' in html
    assert html.count('data-first="ascending"') == 2  # names, and errors


def test_a_terminal_shows_marks():
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=100).print(TABLE.to_rich())
    plain = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert "\x1b[1m.500" in out.getvalue()
    assert "\x1b[4m.490" in out.getvalue()
    assert str(TABLE) in "\n".join(line.rstrip() for line in plain.splitlines())


def test_a_narrow_terminal_shows_all_columns():
    out = io.StringIO()
    make_console(file=out, width=10).print(TABLE.to_rich())
    assert [line.rstrip() for line in out.getvalue().splitlines()] == str(TABLE).splitlines()


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ArgumentError, match="expected rows of 3 cells, got one of 1"):
        Table(COLUMNS, ((Cell("x"),),))


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.000"), (0.0, ".000"), (-0.25, "-.250"), (None, DASH), (0.9996, "1.000")]
)
def test_scores_are_printed_as_in_the_paper(value, text):
    assert short_number(value) == text


def a_comparison(scores, statistic="dynamic.f1", best="cap", tied=()):
    values = {name: {key: Interval(v, v - 0.1, v + 0.1) for key, v in own.items()} for name, own in scores.items()}
    entries = tuple(System(name, ()) for name in scores)
    return Comparison(entries, values, statistic, best, tied, (), (), (), 0.95, 12, 1.0, "data")


def test_a_comparison_has_the_columns_of_the_paper():
    rules = ("maximum", "pooled")
    keys = [f"static.{rule}.macro.{k}" for rule in rules for k in ("f1", "precision", "recall")]
    keys += [f"dynamic.{k}" for k in ("f1", "precision", "recall", "error_rate")]
    scores = {"cap": dict.fromkeys(keys, 0.5), "max": dict.fromkeys(keys, 0.4)}
    table = a_comparison(scores, tied=("max",)).table()
    heads = [(column.group, column.heading) for column in table.columns]
    assert heads[1:7] == [(f"static, {rule}", heading) for rule in rules for heading in ("F1", "P", "R")]
    assert heads[7:] == [("dynamic", "F1"), ("dynamic", "P"), ("dynamic", "R"), ("dynamic", "error rate")]
    cap, other = table.rows
    assert [cell.best for cell in cap[1:]] == [True] * 9 + [False]
    assert [cell.best for cell in other[1:]] == [False] * 9 + [True]  # errors are better low
    assert [cell.tied for cell in other[1:]] == [False] * 6 + [True] + [False] * 3
    assert table.caption == "Static scores averaged over classes, dynamic scores over segments"
    assert "Underlined (dynamic F1): not distinguishable from the best" in table.note


def test_without_times_there_are_static_columns_only():
    table = a_comparison({"cap": {"static.maximum.f1": 0.95}}, "static.maximum.f1").table()
    assert [column.heading for column in table.columns] == ["model", "F1"]
    assert table.caption == "All classes pooled"
    (row,) = table.rows
    assert row[1].interval == (pytest.approx(0.85), 1.0)  # a score ends at 1
    assert not row[1].best  # it is alone


def test_a_score_that_one_model_lacks_is_a_dash():
    table = a_comparison({"cap": {"dynamic.f1": 0.5}, "x": {}}).table()
    assert table.rows[1][1].text == DASH


def test_without_pandas_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ArgumentError, match="to_pandas needs pandas; install it with: pip install pandas"):
        LabelTable([("a.wav", 0.0, 1.0, "dog")]).to_pandas()
