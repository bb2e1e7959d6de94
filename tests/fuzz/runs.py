"""The files of a training run, resumed: last.ckpt, config.toml, log.jsonl, model.safetensors; and search.json."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random

from fuzz import kit
from fuzz.cases import Case, reader, write
from fuzz.models import crafted
from fuzz.mutations import damaged, damaged_json, damaged_toml

_FILES = ("last.ckpt", "last.ckpt", "last.ckpt", "config.toml", "log.jsonl", "log.jsonl", "search.json")
_MOST_REPORTS = 30


class EnoughError(Exception):
    """Training goes on: the files are accepted."""


@reader
def make(rng: Random) -> Case:
    """A run with one damaged file, which is resumed."""
    name = rng.choice(_FILES)
    if name == "search.json":
        return _search(rng)
    run = kit.copy("run", "kit") / "run"
    path = run / name
    content = path.read_bytes()
    if name == "last.ckpt":
        content, note = damaged(rng, content) if rng.random() < 0.2 else crafted(rng, content)
    elif name == "config.toml":
        content, note = damaged_toml(rng, content.decode())
    else:
        content, note = damaged_lines(rng, content)
    path.write_bytes(content)
    if rng.random() < 0.8:
        kit.adopt(path)
        note += ", in the manifest"
    write("kit/run/notes.txt", "mine")
    data = str(kit.part("recordings"))
    command = ["train", data, "--out", "kit/run", "--resume", "--cache", "kit/cache"]
    keeps = ["kit/run/notes.txt"]
    return Case(f"{name}: {note}", lambda: resume(data), writes=["kit/run", "kit/cache"], keeps=keeps, command=command)


def resume(data: str) -> None:
    """Resume the run for a few steps, and show its log."""
    from earmark import api
    from earmark.plots import learning_curves

    reports = 0

    def count(progress: object) -> None:
        nonlocal reports
        reports += 1
        if reports > _MOST_REPORTS:
            raise EnoughError

    with suppress(EnoughError):
        api.train(data, "kit/run", resume=True, compute=api.Compute(cache="kit/cache"), on_progress=count)
        learning_curves(Path("kit/run/log.jsonl"), ("hum", "click"))


def damaged_lines(rng: Random, content: bytes) -> tuple[bytes, str]:
    """JSON lines with one changed, or damaged bytes."""
    if rng.random() < 0.3:
        return damaged(rng, content)
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    lines[at], note = damaged_json(rng, json.loads(lines[at]))
    return ("\n".join(lines) + "\n").encode(), f"line {at + 1}: {note}"


def _search(rng: Random) -> Case:
    """A search with a damaged search.json, which is continued."""
    about = {"search": ["penalty"], "data": "x", "features": {}, "network": {}, "pool": {}, "training": {}}
    trial = {"values": {"penalty": 0.001}, "f1": 0.5, "interval": [0.4, 0.6], "chosen": {}}
    saved = {"about": about, "trials": [trial, {"values": {"penalty": 0.01}}]}
    if rng.random() < 0.3:
        content, note = damaged(rng, json.dumps(saved).encode())
    else:
        text, note = damaged_json(rng, saved)
        content = text.encode()
    path = write("search/search.json", content)
    kit.adopt(path)
    data = str(kit.part("recordings"))
    command = ["tune", data, "--out", "search", "--recipe", "quick", "--cache", "cache", "--trials", "1"]
    return Case(f"search.json: {note}", lambda: search(data), writes=["search", "cache"], command=command)


def search(data: str) -> None:
    """Continue a search for a few steps."""
    from earmark.datasets import open_data
    from earmark.settings import load_recipe
    from earmark.tuning import tune

    def stop(progress: object) -> None:
        raise EnoughError

    settings = load_recipe("quick").changed({**kit.SETTINGS, "pool.name": "rap"})
    with suppress(EnoughError):
        tune(open_data(data), settings, Path("search"), cache=Path("cache"), trials=1, on_progress=stop)
