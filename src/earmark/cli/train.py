"""`earmark train`"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import Json, app, counted
from earmark.cli.display import live_display
from earmark.errors import ArgumentError
from earmark.files import json_text
from earmark.interrupt import exit_code

__all__ = ["default_cache", "parse_changes", "train"]


@app.command()
def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder of recordings with labels, a label table beside them, or NAME:PATH of a known data set "
            "(earmark list datasets), with options NAME,OPTION=VALUE:PATH.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run folder.", show_default=False)],
    pool: Annotated[str | None, typer.Option(help="Pooling operator (earmark list pools), or strong.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe (earmark list recipes) or a TOML file; paper, or what a resumed run has."),
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any knob of the recipe; repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Resume an interrupted run; start one if there is none.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder for features, shared by runs; a folder in the user's cache if not given."),
    ] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="GPUs, or processes on a CPU.")] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines, with torchrun or SLURM.")] = 1,
    as_json: Json = False,
) -> None:
    """Train a detector from labels of clips.

    Example: earmark train recordings --out run --pool rap --recipe quick --set epochs=20
    """
    from earmark.datasets import open_data
    from earmark.settings import load_recipe
    from earmark.training import check_folder

    is_resumed = check_folder(out, resume=resume)  # training checks too, but only after computing features
    is_default = recipe is None and not is_resumed
    if recipe is None:
        recipe = str(out / "config.toml") if is_resumed else "paper"
    settings = load_recipe(recipe).changed(parse_changes(pool, change or []))
    collection = open_data(data)
    from earmark.plots import learning_curves, save
    from earmark.training.run import make_fabric, run

    fabric = make_fabric(settings, devices=devices, nodes=nodes)
    quiet = as_json or not fabric.is_global_zero
    if is_default and not quiet and fabric.device.type == "cpu":
        print(f"Note: no GPU here: the recipe {recipe} is meant for one; --recipe quick takes minutes", flush=True)
    command = "earmark train " + shlex.join(sys.argv[2:])
    try:
        with live_display(quiet=quiet) as display:
            report = run(
                collection,
                settings,
                out,
                cache=cache or default_cache(data),
                fabric=fabric,
                resume=resume,
                provenance={"command": command, "data_source": data, "recipe": recipe},
                on_progress=display,
                on_note=None if quiet else lambda note: print(f"Note: {note}"),
            )
    except KeyboardInterrupt:
        again = _with_resume(command) if (out / "last.ckpt").exists() else command
        raise KeyboardInterrupt(f"continue with: {again}") from None
    if not fabric.is_global_zero:
        return
    save(learning_curves(out / "log.jsonl", collection.classes), out / "figures" / "learning")
    if as_json:
        print(json_text({**report.to_dict(), "out": str(out)}))
    elif not report.is_finished:
        print(f"Interrupted after {counted(report.epochs, 'epoch')}; continue with: {_with_resume(command)}")
        print(f"{out / 'model.safetensors'} is that of epoch {report.best_epoch}" if report.scores else "No model yet")
    if not report.is_finished:
        raise typer.Exit(exit_code())
    if as_json:
        return
    scores = ", ".join(f"{name} {value:.3f}" for name, value in report.scores.items())
    epochs = f"{counted(report.epochs, 'epoch')} by {settings.training.monitor}"
    print(f"Best of {epochs}: {report.best_epoch}; validation {scores}")
    print(f"Model: {out / 'model.safetensors'}")
    print(f"Figure: {out / 'figures' / 'learning.png'}")


def parse_changes(pool: str | None, texts: list[str]) -> dict[str, str]:
    """What `--pool` and `--set` ask for, by knob."""
    changes = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError(f"--set {text!r}: KEY=VALUE expected, for example --set epochs=20")
        changes[key.strip()] = value.strip()
    if pool == "strong":  # the paper's ninth system: no pooling while training, the maximum afterwards
        return {"pool": "max", "supervision": "strong", **changes}
    return {"pool": pool, **changes} if pool else changes


def default_cache(data: str) -> Path:
    """Where features of a data set are kept: in the user's cache, or below EARMARK_CACHE."""
    import hashlib

    name, colon, path = data.partition(":")
    place = str(Path(path if colon and len(name) > 1 else data).resolve())
    base = Path(os.environ.get("EARMARK_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:12]  # a path may be any bytes
    return base / "earmark" / "features" / f"{Path(place).stem}-{digest}"


def _with_resume(command: str) -> str:
    return command if "--resume" in command else f"{command} --resume"
