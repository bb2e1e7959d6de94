"""Feature stores: store.json, index.jsonl, features.bin, skipped.tsv."""

import json
from pathlib import Path
from random import Random

import numpy as np

from fuzz import kit
from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged, damaged_json
from fuzz.runs import damaged_lines, resume

_FILES = ("store.json", "store.json", "index.jsonl", "index.jsonl", "index.jsonl", "features.bin", "skipped.tsv")


@reader
def make(rng: Random) -> Case:
    """A store with one damaged file, which is read and then built again by a resumed run."""
    kit.copy("run", "kit")
    folder = sorted(Path("kit/cache").glob(rng.choice(("train", "validate")) + "-*"))[0]
    path = folder / rng.choice(_FILES)
    content = path.read_bytes() or b'"a.wav"\t"damaged"\n'
    if path.name == "store.json" and rng.random() < 0.8:
        text, note = damaged_json(rng, json.loads(content))
        content = text.encode()
    elif path.name == "index.jsonl" and rng.random() < 0.8:
        content, note = damaged_lines(rng, content)
    else:
        content, note = damaged(rng, content)
    path.write_bytes(content)
    kit.adopt(path)
    mine = f"{folder}/notes.txt"
    write(mine, "mine")
    data, is_read = str(kit.part("recordings")), rng.random() < 0.7
    command = ["train", data, "--out", "kit/run", "--resume", "--cache", "kit/cache"]
    return Case(
        f"{path.name}: {note}, {'read' if is_read else 'built again'}",
        (lambda: read(folder)) if is_read else (lambda: resume(data)),
        writes=["kit/run", "kit/cache"],
        keeps=[mine],
        command=command,
    )


def read(folder: Path) -> None:
    """Read the features of every clip."""
    from earmark.bags import FeatureStore

    store = FeatureStore(folder)
    for name in store.filenames:
        features = np.asarray(store[name], np.float32)
        assert features.ndim == 3, "another number of dimensions"
        assert np.isfinite(features).all(), "features that are not finite"
