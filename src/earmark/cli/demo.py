"""`earmark demo`"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from earmark.cli.app import Changes, Json, app
from earmark.cli.display import live_display
from earmark.cli.terminal import make_console
from earmark.cli.train import parse_changes
from earmark.files import json_text
from earmark.tables import Cell, Column, Table
from earmark.text import counted

if TYPE_CHECKING:
    from earmark.demo import DemoResult

_SCORES = {"f1": "F1", "precision": "precision", "recall": "recall", "error_rate": "error rate"}
_EVENTS = 8  # printed
_BAR = 8  # characters, for the largest alpha


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Output folder; created if necessary.")] = Path("demo"),
    clips: Annotated[int, typer.Option(min=20, help="Soundscapes to synthesise.")] = 400,
    seeds: Annotated[int, typer.Option(min=1, help="Training runs of each operator.")] = 3,
    change: Changes = None,
    as_json: Json = False,
) -> None:
    """Compare five pooling operators on synthetic soundscapes.

    Trains, evaluates, writes a report and detects events; takes about six minutes on two cores.

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
    with live_display(quiet=as_json) as display:
        result = run(out, clips=clips, seeds=seeds, changes=parse_changes(change), on_progress=display)
    if as_json:
        print(json_text(_as_dict(result)))
        return
    _print_scores(console, result)
    console.print("Learned alpha and mean duration of each class, which no label states", style="bold")
    console.print(_alpha_table(result).to_rich())
    for line in conclusions(result.scores, result.trends):
        console.print(line)
    _print_events(console, result)
    for name, path in result.pages.items():
        console.print(f"{name + ':':12}{path}")
    console.print(f"Done in {time.monotonic() - start:.0f} s.")


def _as_dict(result: DemoResult) -> dict[str, object]:
    values = result.comparison.values
    return {
        "seconds": dict(result.seconds),
        "scores": {name: {key: score.value for key, score in scores.items()} for name, scores in values.items()},
        "seeds": {name: dict(values) for name, values in result.scores.items()},
        "alpha": {name: dict(values) for name, values in result.alpha.items()},
        "trends": {name: trend._asdict() for name, trend in result.trends.items()},
        "best": result.comparison.best,
        "recording": {"f1": result.recording_f1, "found": len(result.events), "there": len(result.reference)},
        "pages": {name: str(path) for name, path in result.pages.items()},
    }


def _print_scores(console: Console, result: DemoResult) -> None:
    comparison, values = result.comparison, result.comparison.values
    seeds = len(comparison.entries[0].evaluations)
    means = f", means of {seeds} runs" if seeds > 1 else ""
    console.print(f"Scores of one-second segments of the test clips{means}", style="bold")
    columns = [Column("pool", is_text=True), *(Column(heading) for heading in _SCORES.values())]
    rows = []
    for name, scores in values.items():
        rows.append([Cell(name), *(Cell(f"{scores[f'dynamic.{s}'].value:.3f}") for s in _SCORES)])
    console.print(Table(columns, rows).to_rich(), *comparison.lines, sep="\n")
    best = {s: max(values, key=lambda name: values[name][f"dynamic.{s}"].value) for s in ("precision", "recall")}
    console.print(f"Highest precision: {best['precision']}. Highest recall: {best['recall']}.\n")


def _alpha_table(result: DemoResult) -> Table:
    columns = [Column("\nsound", is_text=True), Column("mean\nduration")]
    for name in result.alpha:
        columns += [Column(f"alpha\n{name}"), Column(" " * _BAR, is_text=True)]
    rows = []
    for label, seconds in result.seconds.items():
        cells = [Cell(label), Cell(f"{seconds:.1f} s")]
        for values in result.alpha.values():
            low, high = min(values.values()), max(values.values())
            share = (values[label] - low) / (high - low) if high - low > 0.01 else 1.0
            cells += [Cell(f"{values[label]:.2f}"), Cell("▇" * round(1 + (_BAR - 1) * share))]
        rows.append(cells)
    return Table(columns, rows)


def _print_events(console: Console, result: DemoResult) -> None:
    console.print(f"\nEvents in a recording of two minutes, detected with {result.comparison.best}", style="bold")
    console.print(
        f"{len(result.events)} events detected, {len(result.reference)} in the reference; "
        f"F1 of segments {result.recording_f1:.3f}."
    )
    columns = [Column("onset"), Column("offset"), Column("label", is_text=True), Column("confidence")]
    rows = [
        [Cell(f"{e.onset:.2f}"), Cell(f"{e.offset:.2f}"), Cell(e.label), Cell(f"{e.confidence:.2f}")]
        for e in result.events[:_EVENTS]
    ]
    console.print(Table(columns, rows).to_rich())
    if len(result.events) > _EVENTS:
        rest = len(result.events) - _EVENTS
        console.print(f"... and {rest} more in {result.pages['detection'].parent / 'events.csv'}\n")
