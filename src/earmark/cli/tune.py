"""`earmark tune`"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from earmark.cli.app import Changes, Json, app
from earmark.cli.display import live_display
from earmark.cli.train import parse_changes
from earmark.errors import ArgumentError
from earmark.files import json_text
from earmark.interrupt import exit_code
from earmark.ownership import owned

if TYPE_CHECKING:
    from earmark.tuning import Tuned


@app.command()
def tune(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="As for train; validation clips need labels with times. Test clips are not used.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the search and the best model.")],
    pool: Annotated[str | None, typer.Option(help="Pooling operator.  [default: that of the recipe]")] = None,
    trials: Annotated[int, typer.Option(help="Number of trials, including those of earlier runs.")] = 10,
    recipe: Annotated[str, typer.Option(help="A recipe (earmark list recipes) or a TOML file.")] = "paper",
    change: Changes = None,
    search: Annotated[
        str, typer.Option(help="What to search for: penalty (lambda), reduction (time resolution), threshold.")
    ] = "penalty",
    cache: Annotated[Path | None, typer.Option(help="Folder for features, as for train.")] = None,
    as_json: Json = False,
) -> None:
    """Choose the penalty lambda of RAP, or other settings, by trials.

    Trials are compared on validation clips, whose labels need times. To resume, run the same command again.

    Example: earmark tune recordings --out tuned --pool rap --trials 12 --search penalty,threshold
    """
    from earmark.bags import default_cache
    from earmark.datasets import open_data
    from earmark.settings import load_recipe, pool_changes

    names = [name.strip() for name in search.split(",") if name.strip()]
    changes = {**pool_changes(pool), **parse_changes(change)}
    for name in names:
        if given := [key for key in changes if key.rpartition(".")[2] == name]:
            raise ArgumentError(f"--set {given[0]} and a search for {name} cannot be combined; use one of them")
    settings = load_recipe(recipe).changed(changes)
    collection = open_data(data)
    from earmark.tuning import tune as search_for

    command = "earmark tune " + shlex.join(sys.argv[2:])
    with live_display(quiet=as_json) as display:
        result = search_for(
            collection,
            settings,
            out,
            cache=cache or default_cache(data),
            trials=trials,
            search=names,
            provenance={"command": command, "data_source": data, "recipe": recipe},
            on_trial=lambda trial, n: display.print(f"Trial {trial.number} of {n}: {trial.name}, F1 {trial.score}"),
            on_progress=display,
            on_note=lambda note: display.print(f"Note: {note}"),
        )
    files = _files(result, out) if result.is_finished else {}
    if as_json:
        print(json_text({"out": str(out), **result.to_dict(), **files}))
    elif result.is_finished:
        print(result, *_next_steps(result, data, out, files), sep="\n")
    if not result.is_finished:
        done = len(result.trials) + len(result.failed)
        enough = f", or use --trials {done} to stop with those that are done" if result.trials else ""
        display.print(f"Interrupted in trial {done + 1}; run the same command again to continue{enough}")
        raise typer.Exit(exit_code())


def _files(result: Tuned, out: Path) -> dict[str, str]:
    """Draw the figure; paths of all files of the search."""
    from earmark.plots import save, tuning_figure

    assert result.best is not None
    with owned(out):
        figure = save(tuning_figure(result.trials, result.best, result.tied), out / "figures" / "tuning")[0]
    files = {"model": out / "model.safetensors", "config": out / "config.toml", "table": out / "trials.csv"}
    if "threshold" in result.best.values:
        files["decoder"] = out / "decoder.json"
    return {name: str(path) for name, path in {**files, "figure": figure}.items()}


def _next_steps(result: Tuned, data: str, out: Path, files: dict[str, str]) -> list[str]:
    """Commands that use the result, and the files."""
    assert result.best is not None
    evaluate = ["earmark", "evaluate", str(out), data]
    if "threshold" in result.best.values:
        evaluate += ["--threshold", f"{result.best.values['threshold']:g}"]
    lines = [
        f"Train again with it: {shlex.join(['earmark', 'train', data, '--out', 'RUN', '--recipe', files['config']])}",
        f"Evaluate it on clips that were not used for the choice: {shlex.join(evaluate)}",
    ]
    if "decoder" in files:
        detect = ["earmark", "detect", str(out), "RECORDINGS", "--out", "FOUND", "--thresholds", files["decoder"]]
        lines.append(f"Detect with its threshold: {shlex.join(detect)}")
    return lines + [f"{name.capitalize()}: {files[name]}" for name in ("model", "table", "figure")]
