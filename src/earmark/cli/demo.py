"""`earmark demo`"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.app import Json, app, make_console
from earmark.cli.display import live_display
from earmark.cli.train import parse_changes
from earmark.files import json_text

if TYPE_CHECKING:
    from earmark.demo import Story

__all__ = ["demo"]

_SHOWN = 8  # events printed
_BAR = 8  # characters, for the largest alpha


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything; made if need be.")] = Path("demo"),
    clips: Annotated[int, typer.Option(min=20, help="Soundscapes to make.")] = 200,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a knob of the recipe quick; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the whole job on soundscapes made here: train five operators, judge them, detect. Minutes on two cores.

    Example: earmark demo --out demo
    """
    from earmark.demo import SYSTEMS, run
    from earmark.files import make_folder

    begin = time.monotonic()
    make_folder(out)
    console = make_console(quiet=as_json)
    console.print(
        f"{clips} soundscapes of ten seconds are made here, each with up to five of ten kinds of sound. From labels\n"
        f"that say which sounds are in a clip, and never when, {len(SYSTEMS)} pooling operators learn to find them.\n"
    )
    with live_display(quiet=as_json) as display:
        story = run(out, clips=clips, changes=parse_changes(change or []), on_progress=display)
    if as_json:
        print(json_text(_as_dict(story)))
        return
    _tell_scores(console, story)
    _tell_alphas(console, story)
    _tell_events(console, story)
    for name, path in story.pages.items():
        console.print(f"{name + ':':12}{path}")
    console.print(f"Done in {time.monotonic() - begin:.0f} s.")


def _as_dict(story: Story) -> dict[str, object]:
    scores = {
        name: {score: value.value for score, value in own.items()} for name, own in story.comparison.values.items()
    }
    return {
        "heard": dict(story.heard),
        "scores": scores,
        "alpha": {name: dict(own) for name, own in story.alpha.items()},
        "ranks": dict(story.ranks),
        "best": story.best,
        "recording": {"f1": story.f1, "found": len(story.found), "there": len(story.truth)},
        "pages": {name: str(path) for name, path in story.pages.items()},
    }


def _tell_scores(console: Console, story: Story) -> None:
    console.print("Judged second by second, on clips that nobody trained on", style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("pool")
    for heading in ("F1", "precision", "recall", "error rate"):
        table.add_column(heading, justify="right")
    for entry in story.comparison.entries:
        own = story.comparison.values[entry.name]
        scores = [own[f"dynamic.{name}"].value for name in ("f1", "precision", "recall", "error_rate")]
        table.add_row(entry.name, *(f"{score:.3f}" for score in scores))
    console.print(table)
    for line in story.comparison.lines:
        console.print(line)
    values = story.comparison.values
    careful, eager = (max(values, key=lambda n: values[n][f"dynamic.{k}"].value) for k in ("precision", "recall"))
    console.print(f"What {careful} finds is most often right; {eager} misses least.\n")


def _tell_alphas(console: Console, story: Story) -> None:
    from earmark.pooling import alpha_to_active_share
    from earmark.reporting.results import frame_sizes

    least = frame_sizes(story.comparison.entries)  # nobody can ask for less than one frame
    console.print("Nobody said how long sounds last. What alpha learned about it", style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("\nsound", no_wrap=True)
    table.add_column("heard\nfor", justify="right", no_wrap=True)
    for name in story.alpha:
        table.add_column(f"alpha\n{name}", justify="right", no_wrap=True)
        table.add_column("", min_width=_BAR, no_wrap=True)
    for label, seconds in story.heard.items():
        cells = []
        for own in story.alpha.values():
            span = max(own.values()) - min(own.values())
            size = round(1 + (_BAR - 1) * (own[label] - min(own.values())) / span) if span > 0.01 else _BAR
            cells += [f"{own[label]:.2f}", "▇" * size]
        table.add_row(label, f"{seconds:.1f} s", *cells)
    console.print(table)
    for name, rank in story.ranks.items():
        own = story.alpha[name]
        first, last = max(own, key=own.__getitem__), min(own, key=own.__getitem__)
        needs = [max(10 * float(alpha_to_active_share(own[label])), least[name].seconds) for label in (first, last)]
        console.print(
            f"{name}: {first} needs {needs[0]:.1f} s of a clip to be believed, {last} {needs[1]:.1f} s. "
            f"Rank correlation of alpha and time heard: {rank:.2f}"
        )
    console.print()


def _tell_events(console: Console, story: Story) -> None:
    console.print(f"A recording of two minutes, searched with {story.best}", style="bold")
    console.print(f"{len(story.found)} events found, {len(story.truth)} are there; F1 of seconds {story.f1:.3f}.")
    table = Table(box=None, pad_edge=False)
    for heading in ("onset", "offset", "label", "confidence"):
        table.add_column(heading, justify="left" if heading == "label" else "right")
    for row in story.found[:_SHOWN]:
        table.add_row(f"{row.onset:.2f}", f"{row.offset:.2f}", row.label, f"{row.confidence:.2f}")
    console.print(table)
    if len(story.found) > _SHOWN:
        console.print(f"... and {len(story.found) - _SHOWN} more in {story.pages['detection'].parent / 'events.csv'}\n")
