"""The files of an evaluation: scores.json, counts.npz, probabilities.npz, events.tsv, and thresholds read from JSON."""

import json
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np

from fuzz import kit
from fuzz.cases import Case, reader
from fuzz.mutations import damaged, damaged_json

_FILES = ("scores.json",) * 4 + ("counts.npz",) * 2 + ("probabilities.npz",) * 2
_FILES += ("events.tsv", "thresholds.json", "runs.npz", "runs.npz")


@reader
def make(rng: Random) -> Case:
    """An evaluation with one damaged file, which is shown and compared."""
    folder = kit.copy("evaluation", "kit") / "evaluation"
    name = rng.choice(_FILES)
    path = folder / name
    if name == "runs.npz":
        return _runs(rng, path)
    if name == "thresholds.json":
        settings = {"threshold": [0.5, 0.4], "low": None, "median": 0.1, "min_duration": 0.0, "min_gap": 0.1}
        text, note = damaged_json(rng, {"decoder": settings, "classes": ["click", "hum"]})
        content = text.encode()
    elif name == "scores.json" and rng.random() < 0.85:
        text, note = damaged_json(rng, json.loads(path.read_text()))
        content = text.encode()
    elif name.endswith(".npz") and rng.random() < 0.7:
        content, note = damaged_arrays(rng, path.read_bytes())
    else:
        content, note = damaged(rng, path.read_bytes())
    path.write_bytes(content)
    decoder = "kit/evaluation/thresholds.json" if name == "thresholds.json" else "kit/evaluation/scores.json"
    other = str(kit.part("evaluation") / "evaluation")
    command = rng.choice(
        (
            ["compare", "kit/evaluation", other],
            ["detect", str(kit.part("run") / "run"), str(kit.part("recordings") / "00.wav"), "--thresholds", decoder],
            ["report", "kit/evaluation", "--out", "page/report.html"],
        )
    )
    return Case(f"{name}: {note}", lambda: show(other, decoder), writes=["page"], command=command)


def _runs(rng: Random, path: Path) -> Case:
    """Evaluations of a grid, in one file."""
    from earmark.evaluation.result import Evaluation
    from earmark.experiment.kept import pack, read_runs, write_runs
    from earmark.settings import load_recipe

    own = pack(Evaluation.load(path.parent), config=load_recipe("quick").to_dict(), epochs=2, best_epoch=1)
    write_runs(path, {("max-cnn-seed0", "clean"): own, ("mean-cnn-seed0", "clean"): own})
    change = damaged_arrays if rng.random() < 0.7 else damaged
    content, note = change(rng, path.read_bytes())
    path.write_bytes(content)

    def call() -> None:
        for kept in read_runs(path).values():
            str(kept.unpack(path.parent))

    return Case(f"runs.npz: {note}", call)


def show(other: str, decoder: str) -> None:
    """Everything that is done with an evaluation, but for figures."""
    from earmark import compare
    from earmark.evaluation.result import Evaluation
    from earmark.events.decoder import load_decoder

    if decoder.endswith("thresholds.json"):
        load_decoder(Path(decoder), ("click", "hum")).decode(np.full((9, 2), 0.5), 0.1, ("click", "hum"), "a.wav")
        return
    evaluation = Evaluation.load(Path("kit/evaluation"))
    str(evaluation)
    evaluation._repr_html_()
    json.dumps(evaluation.to_dict())
    for name in ("maximum", "pooled", "dynamic", "event", "psds", "notes", "intervals"):
        getattr(evaluation, name)
    evaluation.estimate()
    for scores in evaluation.probabilities().values():
        assert ((scores.p >= 0) & (scores.p <= 1)).all(), "frame probabilities that are none"
        scores.dense()
    str(compare(["kit/evaluation", other]))
    load_decoder(Path(decoder), evaluation.static_counts.classes)


def damaged_arrays(rng: Random, content: bytes) -> tuple[bytes, str]:
    """An .npz file with one array replaced or left out."""
    with np.load(BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(sorted(arrays))
    array = arrays.pop(name)
    choices = {
        "left out": None,
        "NaN": np.full(array.shape, np.nan),
        "negative": np.full(array.shape, -5),
        "huge": np.full(array.shape, 2**62),
        "text": np.full(array.shape, "\x1b[31m"),
        "empty": np.atleast_1d(array)[:0],
        "a number": np.array(3),
        "one dimension more": array[..., None] if array.ndim else array,
        "one row more": np.concatenate([array, array[-1:]]) if array.ndim else array,
        "reversed": array[::-1] if array.ndim else array,
        "large and empty": np.empty((0, 10**6)),
        "complex": np.full(array.shape, 1j),
        "times": np.full(array.shape, np.datetime64("2020-01-01")),
        "float64": np.full(array.shape, 2.5),
    }
    note = rng.choice(sorted(choices))
    new = choices[note]
    if new is not None:
        arrays[name] = new
    file = BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue(), f"{name}: {note}"
