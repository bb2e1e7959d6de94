"""`earmark reproduce`"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from earmark.cli.app import Json, app, progress_bar
from earmark.cli.train import default_cache, parse_changes, training_bar
from earmark.errors import ArgumentError

__all__ = ["reproduce"]


@app.command()
def reproduce(
    grid: Annotated[
        str,
        typer.Argument(
            metavar="urban-sed|dcase2017|medleydb|GRID.toml",
            help="One of the paper's experiments, or a grid of your own.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs, tables, figures and the report.", show_default=False)],
    data: Annotated[
        Path | None, typer.Option(help="The data set's folder; a grid of your own may name its data itself.")
    ] = None,
    pools: Annotated[str | None, typer.Option(help="Only these systems, as in max,CAP; all if not given.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, help="How many of the splits, where there are several.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a knob of all systems; repeatable.")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Runs that share the machine.")] = 1,
    cache: Annotated[Path | None, typer.Option(help="Folder for features, as for train.")] = None,
    as_json: Json = False,
) -> None:
    """Repeat an experiment of the paper: train and judge all its systems, and lay the tables beside the paper's.

    Call it again to go on after an interruption; what is done is kept.

    Example: earmark reproduce urban-sed --data URBAN-SED --out results --at-once 4
    """
    from earmark.experiment import gather, load_grid, run_grid, write_results

    chosen = load_grid(grid)
    if data is not None:
        source = f"{chosen.data.partition(':')[0]}:{data}"
    elif Path(chosen.data.partition(":")[2] or chosen.data).exists():
        source = chosen.data
    else:
        raise ArgumentError(f"--data is needed: the folder with {chosen.data}")
    systems = None if pools is None else [name.strip() for name in pools.split(",")]
    chosen = chosen.selected(
        data=source, systems=systems, seeds=seeds, folds=folds, changes=parse_changes(None, change or [])
    )
    console = Console(stderr=True, quiet=as_json, highlight=False)
    with progress_bar("features", quiet=as_json) as features_hook, training_bar(as_json) as hook:
        finished = run_grid(
            chosen,
            out,
            cache=cache or default_cache(source),
            at_once=at_once,
            told=lambda cell, what: console.print(f"{cell.name}: {what}") if what != "begun" else None,
            hook=hook,
            features_hook=features_hook,
        )
    rows = gather(chosen, out)
    write_results(rows, out / "results.csv")
    if not finished:
        console.print(f"Interrupted with {len(rows)} judgements done; the same command goes on.")
        raise typer.Exit(130)
    from earmark.report.grid import write_grid_report

    written = write_grid_report(chosen, rows, out)
    if as_json:
        print(json.dumps({"out": str(out), "rows": len(rows), "written": [os.fspath(path) for path in written]}))
        return
    for path in written:
        print(path)
