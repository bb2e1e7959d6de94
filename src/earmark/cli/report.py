"""`earmark report`"""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import Force, Json, app
from earmark.cli.display import live_display
from earmark.files import json_text


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders of evaluate --out.")],
    out: Annotated[Path, typer.Option(help="The HTML file; tables are written next to it.")],
    data: Annotated[
        str | None, typer.Option(help="Location of the clips, if they have moved since the evaluation.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a report about evaluated runs, as a single HTML file.

    It has tables, figures, and the largest errors with audio. Runs that differ only in their seed count as one
    model. Tables are also written as Markdown and LaTeX.

    Example: earmark report run-cap run-max --out report.html
    """
    from earmark.reporting.runs import write_report

    with live_display(quiet=as_json) as display:
        written = write_report(runs, out, data=data, title=title, force=force, on_progress=display)
    if as_json:
        print(json_text({"files": [str(path) for path in written]}))
        return
    page, *tables = written
    print(f"Report: {page}")
    print(f"Tables: {', '.join(str(path) for path in tables)}")
