"""`earmark compare`"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import Force, Json, app
from earmark.cli.terminal import make_console
from earmark.files import json_text


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Evaluated runs, or folders of evaluate --out.")],
    out: Annotated[Path | None, typer.Option(help="Folder for comparison.json and tables.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of intervals and tests.")] = 0.95,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare runs that were evaluated on the same clips. Runs that differ only in their seed count as one system.

    Example: earmark compare run-max run-rap-1 run-rap-2 --out comparison
    """
    from earmark import api

    with make_console(stderr=True, quiet=as_json).status("comparing ..."):
        comparison = api.compare(runs, out=out, level=level, force=force)
    if as_json:
        print(json_text(comparison.to_dict()))
        return
    console = make_console()
    console.print(f"{comparison.heading}; bold: best, underlined: tied with the best")
    console.print(replace(comparison.table(), caption="", note="").to_rich())
    for sentence in comparison.sentences():
        console.print(sentence)
    if out is not None:
        print(f"Comparison: {out / 'comparison.json'}; tables: {out / 'table.md'}, {out / 'table.tex'}")
