"""`earmark train`"""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import Changes, Json, Separator, app, is_first_process, print_note
from earmark.cli.display import live_display
from earmark.errors import ArgumentError
from earmark.files import json_text
from earmark.interrupt import exit_code
from earmark.progress import ignore_note
from earmark.text import counted


@app.command()
def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder of recordings with labels, a label table next to them, or NAME:PATH of a known data set "
            "(earmark list datasets), with options NAME,OPTION=VALUE:PATH.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run folder.")],
    pool: Annotated[
        str | None,
        typer.Option(help="Pooling operator (earmark list pools), or strong or propagated to train on frames."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe (earmark list recipes) or a TOML file.  [default: auto, which suits the data and machine]"
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Pretrained encoder (earmark encoders) whose embeddings replace log-mel features."),
    ] = None,
    separator: Separator = None,
    labels: Annotated[
        list[Path] | None,
        typer.Option(metavar="TABLE", help="More labels: a table, such as the verdicts.csv of a review; repeatable."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Start from the weights of another run, with its recipe."),
    ] = None,
    change: Changes = None,
    resume: Annotated[bool, typer.Option(help="Resume an interrupted run; start one if there is none.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for features, shared by runs.  [default: in the user's cache folder]"),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Number of GPUs, or of processes on a CPU.  [default: one]")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Number of machines, with torchrun or SLURM.")] = 1,
    as_json: Json = False,
) -> None:
    """Train a detector from labelled clips.

    Example: earmark train recordings --out run --pool rap --recipe quick --set epochs=20

    Example: earmark train recordings --out run2 --labels found/verdicts.csv --from run
    """
    if start is not None and recipe is not None:
        raise ArgumentError("--from uses the recipe of its run; change settings with --set instead of --recipe")
    if start is not None and not start.exists():
        raise ArgumentError(f"--from: {start}: no such folder; expected the folder of an earlier run")
    command = "earmark train " + shlex.join(sys.argv[2:])
    is_silent = as_json or not is_first_process()
    try:
        from earmark import api  # takes seconds, in which a signal may come
        from earmark.datasets import with_separator
        from earmark.training.loop import TrainingInterrupted

        with live_display(quiet=is_silent) as display:
            try:
                run = api.train(
                    [with_separator(data, separator), *(labels or [])],
                    out,
                    recipe=start or recipe,
                    pool=pool,
                    encoder=encoder,
                    settings=parse_changes(change),
                    resume=resume,
                    compute=api.Compute(devices, nodes, cache, command),
                    on_progress=display,
                    on_note=ignore_note if is_silent else print_note,
                )
            except TrainingInterrupted as interruption:
                run = interruption.run
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"continue with: {_with_resume(command)}") from None
    if not is_first_process():
        return
    if as_json:
        print(json_text({**run.to_dict(), "out": str(out)}))
    elif run.is_finished:
        print(run)
        print(f"Figure: {out / 'figures' / 'learning.png'}")
    else:
        print(f"Interrupted after {counted(run.epochs, 'epoch')}; continue with: {_with_resume(command)}")
        print(run)
    if not run.is_finished:
        raise typer.Exit(exit_code())


def parse_changes(texts: list[str] | None) -> dict[str, str]:
    """Settings by name from the texts of `--set`."""
    changes = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError(f"--set: expected KEY=VALUE, such as epochs=20, got {text!r}")
        changes[key.strip()] = value.strip()
    return changes


def _with_resume(command: str) -> str:
    return command if "--resume" in command else f"{command} --resume"
