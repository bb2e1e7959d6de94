"""`earmark demo`"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from earmark.cli.app import Json, app

if TYPE_CHECKING:
    from earmark.demo import Lesson

__all__ = ["demo"]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figures; made if need be.")] = Path("demo"),
    as_json: Json = False,
) -> None:
    """Show what the pooling operators do and learn, on data made here.

    Example: earmark demo --out demo
    """
    from earmark import demo as show

    begin = time.monotonic()
    console = Console(quiet=as_json)
    working = Console(stderr=True, quiet=as_json)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=working, transient=True, disable=not working.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        lessons, files = show.run(out, lambda line: bar.update(task, description=line))
    if as_json:
        print(json.dumps({"lessons": [vars(lesson) for lesson in lessons], "files": [str(f) for f in files]}))
        return
    _tell(console, lessons)
    console.print(f"Figures in {out}/: " + ", ".join(f.name for f in files if f.suffix == ".png"), highlight=False)
    console.print(f"Done in {time.monotonic() - begin:.0f} s.", highlight=False)


def _tell(console: Console, lessons: list[Lesson]) -> None:
    from earmark.demo import DURATIONS, FRAMES, SECONDS, needed_seconds

    say = partial(console.print, highlight=False, soft_wrap=True)
    say(f"Six kinds of event in {SECONDS:g}-second bags of {FRAMES} frames. A label says only that an event is")
    say("somewhere in the bag; a linear classifier of frames was trained through each operator.\n")
    say("F1 on the frames of unseen bags", style="bold")
    scores = Table(box=None, pad_edge=False)
    scores.add_column("pool\n")
    for label, seconds in DURATIONS.items():
        scores.add_column(f"{label}\n{seconds:g} s", justify="right")
    scores.add_column("average\n", justify="right")
    for lesson in lessons:
        average = sum(lesson.frame_f1) / len(lesson.frame_f1)
        scores.add_row(lesson.pool, *(f"{f:.2f}" for f in lesson.frame_f1), f"{average:.2f}")
    console.print(scores)
    say(
        "\nAlpha as learned, and read as a duration: how much of the bag must be active to make it positive",
        style="bold",
    )
    adaptive = [lesson for lesson in lessons if lesson.alpha is not None]
    read = Table(box=None, pad_edge=False)
    read.add_column("event")
    read.add_column("lasts", justify="right")
    for lesson in adaptive:
        read.add_column(lesson.pool, justify="right", min_width=16)
    for c, (label, seconds) in enumerate(DURATIONS.items()):
        alphas = [lesson.alpha[c] for lesson in adaptive if lesson.alpha is not None]
        read.add_row(label, f"{seconds:g} s", *(f"{a:.2f}  {needed_seconds(a):6.2f} s" for a in alphas))
    console.print(read)
    say("\nMean-pooling cannot find what is short, max-pooling loses what is long. Nobody told auto and rap how long")
    say("events last, yet they order them: the shorter, the larger alpha. cap goes to its bound for all but rain.\n")
