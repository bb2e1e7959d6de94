"""`earmark demo`"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from earmark.cli.app import Json, app, counted, make_console
from earmark.cli.train import parse_changes
from earmark.files import json_text

if TYPE_CHECKING:
    from earmark.demo import DemoResult

__all__ = ["demo"]

_EVENTS = 8  # printed
_BAR = 8  # characters, for the largest alpha


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Output folder; created if necessary.")] = Path("demo"),
    clips: Annotated[int, typer.Option(min=20, help="Soundscapes to synthesise.")] = 240,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each operator.")] = 3,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the whole job on synthesised soundscapes: train five operators, evaluate, detect. Minutes on two cores.

    Example: earmark demo --out demo
    """
    from earmark.demo import SYSTEMS, conclusions, run
    from earmark.files import make_folder

    start = time.monotonic()
    make_folder(out)
    console = make_console(quiet=as_json)
    console.print(
        f"{clips} soundscapes of ten seconds are synthesised, each with up to five of ten kinds of sound.\n"
        f"{len(SYSTEMS)} pooling operators learn from labels that say which sounds are in a clip, but not when; "
        f"each is trained with {counted(seeds, 'seed')}.\n"
    )
    bar_console = make_console(stderr=True, quiet=as_json)
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=bar_console, transient=True, disable=not bar_console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def on_progress(name: str, done: int, total: int) -> None:
            bar.update(task, description=name, completed=done, total=total or None)

        changes = parse_changes(None, change or [])
        result = run(out, clips=clips, seeds=seeds, changes=changes, on_progress=on_progress)
    if as_json:
        print(json_text(_as_dict(result)))
        return
    _print_scores(console, result)
    _print_alphas(console, result)
    for line in conclusions(result.scores, result.trends):
        console.print(line)
    console.print()
    _print_events(console, result)
    for name, path in result.pages.items():
        console.print(f"{name + ':':12}{path}")
    console.print(f"Done in {time.monotonic() - start:.0f} s.")


def _as_dict(result: DemoResult) -> dict[str, object]:
    return {
        "seconds": dict(result.seconds),
        "scores": {
            name: {score: value.value for score, value in values.items()}
            for name, values in result.comparison.values.items()
        },
        "seeds": {name: dict(values) for name, values in result.scores.items()},
        "alpha": {name: dict(values) for name, values in result.alpha.items()},
        "trends": {name: vars(trend) for name, trend in result.trends.items()},
        "best": result.best,
        "recording": {"f1": result.recording_f1, "found": len(result.events), "there": len(result.reference)},
        "pages": {name: str(path) for name, path in result.pages.items()},
    }


def _print_scores(console: Console, result: DemoResult) -> None:
    seeds = len(result.comparison.entries[0].judgements)
    means = f", means of {seeds} trainings" if seeds > 1 else ""
    console.print(f"Scores of one-second segments of the test clips{means}", style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("pool")
    for heading in ("F1", "precision", "recall", "error rate"):
        table.add_column(heading, justify="right")
    values = result.comparison.values
    for name, scores in values.items():
        cells = [scores[f"dynamic.{measure}"].value for measure in ("f1", "precision", "recall", "error_rate")]
        table.add_row(name, *(f"{score:.3f}" for score in cells))
    console.print(table)
    for line in result.comparison.lines:
        console.print(line)
    precise = max(values, key=lambda name: values[name]["dynamic.precision"].value)
    sensitive = max(values, key=lambda name: values[name]["dynamic.recall"].value)
    console.print(f"Highest precision: {precise}. Highest recall: {sensitive}.\n")


def _print_alphas(console: Console, result: DemoResult) -> None:
    console.print("Learned alpha beside the mean duration of each sound, which no label states", style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("\nsound", no_wrap=True)
    table.add_column("mean\nduration", justify="right", no_wrap=True)
    for name in result.alpha:
        table.add_column(f"alpha\n{name}", justify="right", no_wrap=True)
        table.add_column("", min_width=_BAR, no_wrap=True)
    for label, seconds in result.seconds.items():
        cells = []
        for values in result.alpha.values():
            low, high = min(values.values()), max(values.values())
            share = (values[label] - low) / (high - low) if high - low > 0.01 else 1.0
            cells += [f"{values[label]:.2f}", "▇" * round(1 + (_BAR - 1) * share)]
        table.add_row(label, f"{seconds:.1f} s", *cells)
    console.print(table)


def _print_events(console: Console, result: DemoResult) -> None:
    console.print(f"Events in a recording of two minutes, detected with {result.best}", style="bold")
    console.print(
        f"{len(result.events)} events detected, {len(result.reference)} in the reference; "
        f"F1 of segments {result.recording_f1:.3f}."
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("onset", "offset", "label", "confidence"):
        table.add_column(heading, justify="left" if heading == "label" else "right")
    for row in result.events[:_EVENTS]:
        table.add_row(f"{row.onset:.2f}", f"{row.offset:.2f}", row.label, f"{row.confidence:.2f}")
    console.print(table)
    if len(result.events) > _EVENTS:
        rest = len(result.events) - _EVENTS
        console.print(f"... and {rest} more in {result.pages['detection'].parent / 'events.csv'}\n")
