"""`earmark tune`"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from earmark.cli.app import Json, app, counted, make_console
from earmark.cli.display import live_display
from earmark.cli.train import parse_changes
from earmark.errors import ArgumentError
from earmark.files import json_text
from earmark.interrupt import exit_code

if TYPE_CHECKING:
    from earmark.tuning import Trial, Tuned

__all__ = ["tune"]

_HEADINGS = {"penalty": "lambda", "reduction": "reduction", "threshold": "threshold"}


@app.command()
def tune(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="As for train; validation clips must have labels with times. Test clips are not opened.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the search and the best model.", show_default=False)],
    pool: Annotated[str | None, typer.Option(help="Pooling operator; that of the recipe if not given.")] = None,
    trials: Annotated[int, typer.Option(help="How many to train, those of earlier calls included.")] = 10,
    recipe: Annotated[str, typer.Option(help="A recipe (earmark list recipes) or a TOML file.")] = "paper",
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any knob of the recipe; repeatable.")
    ] = None,
    search: Annotated[
        str, typer.Option(help="What to search for: penalty (lambda), reduction (time resolution), threshold.")
    ] = "penalty",
    cache: Annotated[Path | None, typer.Option(help="Folder for features, as for train.")] = None,
    as_json: Json = False,
) -> None:
    """Choose lambda on validation clips that say when sounds happen. The same command goes on after an interruption.

    Example: earmark tune recordings --out tuned --pool rap --trials 12 --search penalty,threshold
    """
    from earmark.bags import default_cache
    from earmark.datasets import open_data
    from earmark.settings import load_recipe, pool_changes

    wanted = [name.strip() for name in search.split(",") if name.strip()]
    changes = {**pool_changes(pool), **parse_changes(change or [])}
    for name in wanted:
        if given := [key for key in changes if key.rpartition(".")[2] == name]:
            raise ArgumentError(f"--set {given[0]} and a search for {name} do not go together; give one of them")
    settings = load_recipe(recipe).changed(changes)
    collection = open_data(data)
    from earmark.tuning import tune as search_for

    command = "earmark tune " + shlex.join(sys.argv[2:])
    with live_display(quiet=as_json) as display:
        found = search_for(
            collection,
            settings,
            out,
            cache=cache or default_cache(data),
            trials=trials,
            search=wanted,
            provenance={"command": command, "data_source": data, "recipe": recipe},
            on_trial=lambda trial, n: display.print(f"Trial {trial.number} of {n}: {trial.name}, F1 {_f1(trial)}"),
            on_progress=display,
            on_note=lambda note: display.print(f"Note: {note}"),
        )
    written = _draw(found, out) if found.is_finished else {}
    if as_json:
        print(json_text(_to_dict(found, out, written)))
    elif found.is_finished:
        _tell(found, data, out, written)
    if not found.is_finished:
        done = len(found.trials) + len(found.failed)
        enough = f", or use --trials {done} to stop with those that are done" if found.trials else ""
        display.print(f"Interrupted in trial {done + 1}; run the same command again to continue{enough}")
        raise typer.Exit(exit_code())


def _draw(found: Tuned, out: Path) -> dict[str, str]:
    """The figure; all files that people will want."""
    from earmark.plots import save, tuning_figure

    assert found.best is not None
    figure = save(tuning_figure(found.trials, found.best, found.tied), out / "figures" / "tuning")[0]
    files = {"model": out / "model.safetensors", "config": out / "config.toml", "table": out / "trials.csv"}
    if "threshold" in found.best.values:
        files["decoder"] = out / "decoder.json"
    return {name: str(path) for name, path in {**files, "figure": figure}.items()}


def _to_dict(found: Tuned, out: Path, written: dict[str, str]) -> dict[str, Any]:
    return {
        "out": str(out),
        "is_finished": found.is_finished,
        "clips": found.clips,
        "trials": [{**vars(t), "values": dict(t.values), "folder": str(t.folder)} for t in found.trials],
        "failed": dict(found.failed),
        "best": found.best and found.best.number,
        "tied": [trial.number for trial in found.tied],
        **written,
    }


def _tell(found: Tuned, data: str, out: Path, written: dict[str, str]) -> None:
    best = found.best
    assert best is not None
    console = make_console()
    table = Table(box=None, pad_edge=False)
    for heading in ("trial", *(_HEADINGS[knob] for knob in best.values), "F1", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in sorted(found.trials, key=lambda trial: -trial.f1):
        low, high = trial.interval
        verdict = "best" if trial is best else "tied" if trial in found.tied else ""
        knobs = (f"{value:g}" for value in trial.values.values())
        table.add_row(str(trial.number), *knobs, f"{trial.f1:.3f}", f"{low:.3f} to {high:.3f}", verdict)
    console.print(table)
    lines = [f"Best: {best.name}; F1 of 1-s segments {_f1(best)} on {counted(found.clips, 'validation clip')}"]
    if len(found.trials) > 1:
        lines.append(_verdict(found))
    lines += [f"Could not be trained: {name}" for name in found.failed]
    threshold = best.values.get("threshold")
    judged = ["earmark", "evaluate", str(out), data, *([] if threshold is None else ["--threshold", f"{threshold:g}"])]
    lines += [
        f"Train again with it: {shlex.join(['earmark', 'train', data, '--out', 'RUN', '--recipe', written['config']])}",
        f"Judge it on clips that had no part in the choice: {shlex.join(judged)}",
    ]
    if "decoder" in written:
        lines.append(f"Detect with its threshold: {shlex.join(['earmark', 'detect', str(out), 'RECORDINGS', '--out'])}")
        lines[-1] += f" FOUND --thresholds {shlex.quote(written['decoder'])}"
    lines += [f"{name.capitalize()}: {written[name]}" for name in ("model", "table", "figure")]
    for line in lines:
        console.print(line)


def _verdict(found: Tuned) -> str:
    tied, others = len(found.tied), len(found.trials) - 1
    luck = "Each was trained once: with another seed their order may be another."
    if not tied:
        return f"On these clips all others are worse. {luck}"
    few = f"{tied} of {others} other trials" if others > 1 else "the other trial"
    return f"These clips cannot tell it from {few} (tied). {luck}"


def _f1(trial: Trial) -> str:
    low, high = trial.interval
    return f"{trial.f1:.3f} ({low:.3f} to {high:.3f})"
