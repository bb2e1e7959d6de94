"""The command line: words for people, `--json` for programs, one line and exit code 2 for what cannot be done."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from earmark import __version__
from earmark.errors import EarmarkError, unknown_name

if TYPE_CHECKING:
    from earmark.demo import Lesson
    from earmark.pooling import Pool
    from earmark.registry import Entry

__all__ = ["app", "main"]

app = typer.Typer(
    name="earmark",
    help="Learn when sounds happen from labels that only say that they happen.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
(_UsageError,) = typer.BadParameter.__bases__  # typer does not export it
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def main() -> None:
    """Run; anything earmark refuses, or cannot parse, is one line on standard error and exit code 2."""
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except EarmarkError as error:
        code = _refuse(str(error))
    except _UsageError as error:  # type: ignore[misc]
        code = _refuse(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        print("earmark: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # `earmark list pools | head`
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> int:
    print("earmark: " + " ".join(message.split()), file=sys.stderr)
    return 2


def _version(wanted: bool) -> None:
    if wanted:
        print(f"earmark {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn when sounds happen from labels that only say that they happen."""


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="pools", help="What to list.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List what there is to choose from.

    Example: earmark list pools
    """
    if what != "pools":
        raise unknown_name("list", what, ["pools"])
    from earmark.pooling import POOLS

    if as_json:
        print(json.dumps({"pools": [_describe(entry) for entry in POOLS]}))
        return
    for entry in POOLS:
        print(f"{entry.name:16} {entry.summary}")


def _describe(entry: Entry[Pool]) -> dict[str, object]:
    return {
        "name": entry.name,
        "summary": entry.summary,
        "class": entry.cls.__name__,
        "options": entry.options(),
        "weights": not entry.cls.why_no_weights,
        "stream": not entry.cls.why_no_stream,
    }


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


if __name__ == "__main__":
    main()
