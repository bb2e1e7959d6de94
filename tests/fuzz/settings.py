"""Files that users write: recipes, grids, recipes of soundscapes; and soundscapes.json."""

import json
from pathlib import Path
from random import Random

from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged, damaged_json, damaged_toml

GRID = """title = "Mine"
data = "recordings"
recipe = "quick"
seeds = 2
folds = 0
networks = ["cnn"]
settings = { steps = 2 }

[systems]
max = { pool = "max" }
"RAP 1e-3" = { pool = "rap", penalty = 1e-3 }

[evaluations.clean]
reference = "data"
align = "middle"
segment = 1.0
split = "test"

[published]
table = "Table I"
evaluation = "clean"
static_rule = "pooled"
[published.scores]
max = [0.742, 0.774, 0.717, 0.463, 0.774, 0.330, 0.695]
"""
_SOUNDSCAPES = """duration = 1.0
[splits]
train = 2
[events]
count = ["const", 1]
time = ["uniform", 0, 0.5]
duration = ["uniform", 0.3, 0.5]
snr = ["uniform", 10, 20]
"""


@reader
def make(rng: Random) -> Case:
    """A damaged file of settings."""
    return rng.choice((_recipe, _recipe, _grid, _soundscapes, _request))(rng)


def _recipe(rng: Random) -> Case:
    from earmark.schema import embedded_toml

    name = rng.choice(("best", "paper", "quick"))
    content, note = damaged_toml(rng, embedded_toml("recipes")[name])
    write("mine.toml", content)

    def call() -> None:
        from earmark.settings import load_recipe

        load_recipe("mine.toml").to_toml()

    return Case(f"recipe {name}: {note}", call, command=["train", "nowhere", "--out", "run", "--recipe", "mine.toml"])


def _grid(rng: Random) -> Case:
    return grid_case(*damaged_toml(rng, GRID))


def grid_case(content: bytes | str, note: str) -> Case:
    """A grid that is read; it must have cells."""
    write("mine.toml", content)

    def call() -> None:
        from earmark.experiment import load_grid

        assert len({cell.name for cell in load_grid("mine.toml").cells}), "a grid without cells"

    command = ["reproduce", "mine.toml", "--out", "out", "--only-report"]
    return Case(f"grid: {note}", call, writes=["out"], command=command)


def _soundscapes(rng: Random) -> Case:
    content, note = damaged_toml(rng, _SOUNDSCAPES)
    write("mine.toml", content)

    def call() -> None:
        from earmark.synthesis import plan_from

        plan_from("mine.toml", clips=2)

    command = ["synth", "mine.toml", "out", "--clips", "2", "--workers", "1"]
    return Case(f"recipe of soundscapes: {note}", call, writes=["out"], command=command)


def _request(rng: Random) -> Case:
    """The record of a request for soundscapes, in a folder where they are continued."""
    write("mine.toml", _SOUNDSCAPES)
    valid = {"rate": 44100, "bank": "embedded", "clips": 2, "plan": "0123456789abcdef"}
    text, note = damaged_json(rng, valid)
    content = text.encode() if rng.random() < 0.7 else damaged(rng, json.dumps(valid).encode())[0]
    write("out/soundscapes.json", content)
    write("out/notes.txt", "mine")

    def call() -> None:
        from earmark.synthesis import synthesise

        synthesise(Path("mine.toml"), "out", clips=2, workers=1)

    command = ["synth", "mine.toml", "out", "--clips", "2", "--workers", "1"]
    return Case(f"soundscapes.json: {note}", call, writes=["out"], keeps=["out/notes.txt"], command=command)
