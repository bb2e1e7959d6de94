"""`earmark reproduce`"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.app import Changes, Force, Json, app
from earmark.cli.display import live_display
from earmark.cli.terminal import make_console
from earmark.cli.train import parse_changes
from earmark.errors import ArgumentError, TrainingError
from earmark.files import json_text
from earmark.interrupt import exit_code
from earmark.text import counted

if TYPE_CHECKING:
    from earmark.experiment import Cell, Grid, Row


@app.command()
def reproduce(
    grid: Annotated[
        str,
        typer.Argument(
            metavar="urban-sed|dcase2017|medleydb|GRID.toml",
            help="One of the paper's experiments, or your own grid.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs, tables, figures and the report.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data set; not needed if the grid names its data.")
    ] = None,
    pools: Annotated[
        str | None,
        typer.Option(help="Only these systems, such as max,CAP; rap means all systems with that pool.  [default: all]"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds.  [default: the grid's]")] = None,
    folds: Annotated[
        int | None, typer.Option(min=1, help="Number of splits to use, if the data set has several.")
    ] = None,
    change: Changes = None,
    at_once: Annotated[int, typer.Option(min=1, help="Number of runs to train at the same time.")] = 1,
    cache: Annotated[Path | None, typer.Option(help="Folder for features, as for train.")] = None,
    only_report: Annotated[
        bool,
        typer.Option(
            "--only-report", help="Do not train: only write tables, figures and report from the results in --out."
        ),
    ] = False,
    no_report: Annotated[
        bool,
        typer.Option("--no-report", help="Only train and evaluate; --only-report writes tables and report later."),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Reproduce an experiment of the paper, or run your own grid.

    Trains and evaluates all its systems, and compares the results with the paper's. To continue after an interruption,
    run the same command again; finished runs are kept, also on another machine that has only the file runs.npz of
    --out. --only-report rewrites tables and report without data or GPU.

    Example: earmark reproduce urban-sed --data URBAN-SED --out results --at-once 4
    """
    from earmark.bags import default_cache
    from earmark.experiment import gather, keep_runs, load_grid

    if only_report and no_report:
        raise ArgumentError("--only-report and --no-report exclude each other; choose one")
    systems = None if pools is None else [name.strip() for name in pools.split(",")]
    chosen = load_grid(grid).selected(systems=systems, seeds=seeds, folds=folds, changes=parse_changes(change))
    failure = None
    if not only_report:
        chosen = _with_data(chosen, data)
        key = chosen.source if len(chosen.data) == 1 else str(Path(grid).resolve())
        try:
            _run(chosen, out, cache or default_cache(key), at_once, force, as_json)
        except TrainingError as error:  # raised below, after the tables of finished runs are written
            failure = error
    rows = gather(chosen, out)
    keep_runs(rows, out)
    if only_report and len(chosen.data) == 1:
        evaluated_on = rows[0].saved().scores["data"] if rows else chosen.source
        chosen = chosen.selected(data=evaluated_on) if data is None else _with_data(chosen, data)
    if no_report:
        done = len({row.cell.name for row in rows})
        text = f"{out}: {done} of {counted(len(chosen.cells), 'run')} finished"
        print(json_text({"out": str(out), "rows": len(rows), "written": []}) if as_json else text)
    elif failure is None or rows:
        source = ["--data", chosen.source.partition(":")[2] or chosen.source] if len(chosen.data) == 1 else []
        command = shlex.join(["earmark", "reproduce", grid, *source, "--out", str(out)])
        _report(chosen, rows, out, command, force, as_json)
    if failure is not None:
        raise failure


def _with_data(chosen: Grid, data: Path | None) -> Grid:
    """The grid with the location of its data, which must exist."""
    if data is not None:
        from earmark.datasets import DATASETS

        name = next(iter(chosen.data.values())).partition(":")[0]
        return chosen.selected(data=f"{name}:{data}" if name in {entry.name for entry in DATASETS} else str(data))
    for source in chosen.data.values():
        if not Path(source.partition(":")[2] or source).exists():
            is_single = len(chosen.data) == 1
            raise ArgumentError(f"--data is needed: the folder with {source}" if is_single else f"{source}: not found")
    return chosen


def _run(chosen: Grid, out: Path, cache: Path, at_once: int, force: bool, quiet: bool) -> None:
    from earmark.experiment import gather, keep_runs, run_grid, write_results
    from earmark.ownership import owned

    with live_display(quiet=quiet) as display:

        def on_cell(cell: Cell, status: str) -> None:
            if status == "done":  # at once: the next one may be killed
                keep_runs(gather(chosen, out, cells=[cell]), out)
            if status != "started":
                display.print(f"{cell.name}: {status}")

        finished = run_grid(chosen, out, cache=cache, at_once=at_once, on_cell=on_cell, on_progress=display)
    if not finished:
        rows = gather(chosen, out)
        with owned(out, force=force):
            write_results(rows, out / "results.csv")
        keep_runs(rows, out)
        display.print(
            f"Interrupted, {len(rows)} evaluations done; run the same command again to continue, or with --only-report "
            "to see them"
        )
        raise typer.Exit(exit_code())


def _report(chosen: Grid, rows: list[Row], out: Path, command: str, force: bool, as_json: bool) -> None:
    """Write tables and a page for each data set, in separate folders if there are several."""
    from earmark.experiment import write_results
    from earmark.ownership import owned
    from earmark.reporting.grid import write_grid_report
    from earmark.reporting.grid_tables import published_tables, short_table

    written, console = [], make_console(quiet=as_json)
    if len(chosen.data) > 1:
        with owned(out, force=force):
            write_results(rows, out / "results.csv")
        written.append(out / "results.csv")
    for dataset in chosen.data:
        part, rows_here = chosen.on(dataset), [row for row in rows if row.cell.dataset == dataset]
        if not rows_here and len(chosen.data) > 1:
            console.print(f"{dataset}: no run is finished")
            continue
        with live_display(quiet=as_json) as display:
            options: dict[str, Any] = {"command": command, "force": force, "on_progress": display}
            written += write_grid_report(part, rows_here, out / dataset, **options)
        published = published_tables(part, rows_here)
        shown = [short_table(rows_here, name) for name in part.evaluations] if published is None else [published[0]]
        for table in shown:
            console.print(table.to_rich())
            if table.note:
                console.print(table.note)
    if as_json:
        print(json_text({"out": str(out), "rows": len(rows), "written": [os.fspath(path) for path in written]}))
        return
    for path in written:
        print(path)
