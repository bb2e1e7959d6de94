"""`earmark compare`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.app import Json, app, make_console
from earmark.errors import ArgumentError
from earmark.files import json_text, make_folder, written_whole

if TYPE_CHECKING:
    from earmark.evaluation.comparison import Comparison

__all__ = ["compare"]


@app.command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Runs that were judged, or folders of evaluate --out.", show_default=False
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for comparison.json and tables.")] = None,
    level: Annotated[float, typer.Option(help="Confidence of intervals and tests.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Compare runs that were judged on the same clips. Runs that differ only in their seed count as one system.

    Example: earmark compare run-max run-rap-1 run-rap-2 --out comparison
    """
    from earmark.evaluation.comparison import compare_entries, group_runs

    if len(runs) < 2:
        raise ArgumentError("a comparison needs at least two runs")
    with make_console(stderr=True, quiet=as_json).status("comparing ..."):
        comparison = compare_entries(group_runs(runs), level=level)
    result = comparison.to_dict()
    if out is not None:
        _write(comparison, result, make_folder(out))
    if as_json:
        print(json_text(result))
        return
    _tell(comparison)
    if out is not None:
        print(f"Comparison: {out / 'comparison.json'}; tables: {out / 'table.md'}, {out / 'table.tex'}")


def _write(comparison: Comparison, result: dict[str, Any], out: Path) -> None:
    from earmark.reporting.tables import comparison_table

    table = comparison_table(comparison)
    said = "\n".join(f"- {line}" for line in (*comparison.lines, *(f"Note: {note}" for note in comparison.notes)))
    for name, text in (
        ("table.md", f"{table.to_markdown(intervals=True)}\n\n{said}\n"),
        ("table.tex", table.to_latex(intervals=True) + "\n"),
        ("comparison.json", json_text(result, indent=1)),
    ):
        with written_whole(out / name) as draft:
            draft.write_text(text, encoding="utf-8")


def _tell(comparison: Comparison) -> None:
    from earmark.reporting.tables import comparison_table
    from earmark.tables import short_number

    console = make_console()
    console.print(
        f"{comparison.clips} clips, segments of {comparison.segment:g} s; bold: best, underlined: tied with it"
    )
    console.print(comparison_table(comparison).to_rich())
    for name, own in comparison.values.items():
        score = own[comparison.statistic]
        bounds = f"{short_number(score.low)} to {short_number(score.high)}"
        text = f"{name}: {short_number(score.value)}, {100 * comparison.level:g} % interval {bounds}"
        console.print(text)
    for line in comparison.lines:
        console.print(line)
    for note in comparison.notes:
        console.print(f"Note: {note}")
