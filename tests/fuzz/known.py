"""Inputs that made earmark fail once; all are generated, and run with every `make test`."""

import gzip
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz import audio, encoders, evaluations, jobs, kit, labels, models, runs, settings
from fuzz.cases import Case, reader, write

INPUTS: list[Callable[[], Case]] = []


def _known(make: Callable[[], Case]) -> Callable[[], Case]:
    INPUTS.append(make)
    return make


@reader
def make(numbered: Random) -> Case:
    """The input of a number; the docstring of its function says what it is."""
    return INPUTS[numbered.number]()  # type: ignore[attr-defined]


def _changed_scores(change: Callable[[str], str], about: str) -> Case:
    path = kit.copy("evaluation", "kit") / "evaluation" / "scores.json"
    path.write_text(change(path.read_text()))
    other = str(kit.part("evaluation") / "evaluation")
    return Case(about, lambda: evaluations.show(other, str(path)))


@_known
def deep_scores() -> Case:
    """scores.json nested 100,000 deep: RecursionError."""
    return _changed_scores(lambda text: "[" * 100_000, "scores.json: 100,000 brackets")


@_known
def scores_of_another_type() -> Case:
    """scores.json whose intervals are a number: TypeError."""
    return _changed_scores(lambda text: json.dumps({**json.loads(text), "intervals": 3}), "scores.json: intervals = 3")


@_known
def long_number_in_scores() -> Case:
    """scores.json with a number of 5,000 digits: ValueError of int()."""
    return _changed_scores(lambda text: text.replace('"segment"', f'"x": {"9" * 5000}, "segment"', 1), "5,000 digits")


def _model(change: Callable[[dict[str, Any], Any], object], about: str) -> Case:
    from safetensors.numpy import load

    content = (kit.part("run") / "run" / "model.safetensors").read_bytes()
    tensors, facts = load(content), models.about_of(content)
    change(tensors, facts)
    write("model.safetensors", models.sealed(tensors, facts))
    write("sound.wav", kit.audio_bytes("wav"))
    return Case(f"model.safetensors: {about}", lambda: models.check("model.safetensors"))


@_known
def alpha_is_nan() -> Case:
    """A model whose alpha is NaN, with right digests: NaN in presence.csv."""
    return _model(lambda tensors, _: tensors["pool.alpha"].fill(np.nan), "alpha is NaN")


@_known
def weights_are_nan() -> Case:
    """A model whose output layer is NaN: frame probabilities of NaN, reported without the model's name."""
    return _model(lambda tensors, _: tensors["head.weight"].fill(np.nan), "head.weight is NaN")


@_known
def classes_are_numbers() -> Case:
    """A model whose classes are numbers: TypeError in a table."""
    return _model(lambda _, facts: facts.update(classes=[1, 2]), "classes = [1, 2]")


@_known
def transform_is_huge() -> Case:
    """A model with n_fft = 2**40: MemoryError."""
    return _model(lambda _, facts: facts["features"].update(n_fft=2**40), "n_fft = 2**40")


@_known
def bands_are_many() -> Case:
    """A model with n_bands = 2**20: hung in the search for a number of bands that fits."""
    return _model(lambda _, facts: facts["features"].update(n_bands=2**20), "n_bands = 2**20")


@_known
def width_is_huge() -> Case:
    """A model with width = 1e308: OverflowError."""
    return _model(lambda _, facts: facts["network"].update(width=1e308), "width = 1e308")


def _table(name: str, content: bytes, about: str) -> Case:
    write(name, content)
    return Case(f"{name}: {about}", lambda: labels.check(name, None))


@_known
def offset_is_huge() -> Case:
    """An offset of 1e308 in a table: OverflowError."""
    rows = "filename\tonset\toffset\tlabel\na.wav\t1\t1e308\tdog\n"
    return _table("labels.tsv", rows.encode(), "offset = 1e308")


@_known
def long_number_in_jams() -> Case:
    """A time of 10**400 in JAMS: OverflowError."""
    data = [{"time": 10**400, "duration": 1.0, "value": "dog", "confidence": None}]
    jams = {"file_metadata": {"duration": 10.0}, "annotations": [{"namespace": "tag_open", "data": data}]}
    return _table("labels.jams", json.dumps(jams).encode(), "time = 10**400")


@_known
def damaged_gzip() -> Case:
    """A compressed table with a damaged block: zlib.error."""
    content = bytearray(gzip.compress(b"filename,onset,offset,label\n" + b"a.wav,1,2,dog\n" * 50, mtime=0))
    content[14] ^= 0xFF
    return _table("labels.csv.gz", bytes(content), "a damaged block")


@_known
def gzip_bomb() -> Case:
    """A table of 1 GB compressed to 1 MB: took 6 GB of memory."""
    head = b"filename,onset,offset,label\n"
    block = gzip.compress(b"a.wav,1,2,dog\n" * 750_000, mtime=0)
    return _table("labels.csv.gz", gzip.compress(head, mtime=0) + block * 100, "1 GB of rows")


def _run(name: str, content: bytes, about: str) -> Case:
    path = kit.copy("run", "kit") / "run" / name
    path.write_bytes(content)
    kit.adopt(path)
    data = str(kit.part("recordings"))
    return Case(f"{name}: {about}", lambda: runs.resume(data), writes=["kit/run", "kit/cache"])


@_known
def log_is_damaged() -> Case:
    """A log.jsonl that is no JSON: JSONDecodeError when the run is resumed and its curves are drawn."""
    return _run("log.jsonl", b'{"epoch": 1\n\xff\n', "not JSON")


@_known
def state_of_another_type() -> Case:
    """A last.ckpt with right digests whose memory is a list: TypeError."""
    from safetensors.numpy import load

    content = (kit.part("run") / "run" / "last.ckpt").read_bytes()
    return _run("last.ckpt", models.sealed(load(content), {**models.about_of(content), "memory": []}), "memory = []")


def _ledger(change: str) -> Case:
    """A detection job that goes on after a change of its ledger."""
    kit.copy("job", "kit")
    with closing(sqlite3.connect("kit/out/ledger.sqlite", isolation_level=None)) as database:
        database.execute(f"UPDATE recordings SET {change}")
    files = [str(kit.part("recordings") / f"{i:02}.wav") for i in range(4)]
    return Case(f"ledger: {change}", lambda: jobs.run(files, 0.3), writes=["kit/out"])


@_known
def ledger_with_other_names() -> Case:
    """A ledger whose recordings are named ../victim.txt: files were written outside of the folder."""
    write("victim.txt", "mine")
    return _ledger("name = '../../victim' || id")


@_known
def ledger_with_other_types() -> Case:
    """A ledger in which sizes and times are text: TypeError."""
    return _ledger("attempts = 'x', mtime = 'y'")


@_known
def kept_scores_with_a_long_number() -> Case:
    """Kept scores with 10**400 frames: OverflowError."""
    kit.copy("job", "kit")
    path = Path("kit/out/scores/00.wav.npz")
    with np.load(path) as file:
        arrays = dict(file)
    arrays["about"] = np.array(json.dumps({**json.loads(str(arrays["about"])), "frames": 10**400}))
    np.savez(path, **arrays)
    files = [str(kit.part("recordings") / f"{i:02}.wav") for i in range(4)]
    return Case("00.wav.npz: frames = 10**400", lambda: jobs.run(files, 0.3), writes=["kit/out"])


@_known
def deep_index() -> Case:
    """An index.jsonl nested 100,000 deep: RecursionError."""
    from fuzz import stores

    kit.copy("run", "kit")
    folder = sorted(Path("kit/cache").glob("train-*"))[0]
    (folder / "index.jsonl").write_text("[" * 100_000 + "\n")
    return Case("index.jsonl: 100,000 brackets", lambda: stores.read(folder))


@_known
def mp3_that_chats() -> Case:
    """An mp3 cut in a frame: its decoder printed a message of its own."""
    content = kit.audio_bytes("mp3", 3.0)
    write("sound.mp3", content[:1000] + bytes(300) + content[1300:])
    return Case("mp3 with zeros in the middle", lambda: audio.check("sound.mp3", None, 0.0))


@_known
def mp3_that_chats_when_it_is_opened() -> Case:
    """An mp3 with other bytes between its header and its frames: its decoder printed how many it skipped."""
    from earmark.audio.containers import mp3_frame

    content, frames = kit.audio_bytes("mp3", 3.0), [0]
    while frame := mp3_frame(content[frames[-1] :][:4]):
        frames.append(frames[-1] + frame[0])
    counted_at = re.search(b"(Xing|Info)....", content, re.DOTALL).end()  # type: ignore[union-attr]
    head, rest = content[: frames[2]], content[frames[-21] :]
    head = head[:counted_at] + (20).to_bytes(4, "big") + head[counted_at + 4 :]
    write("sound.mp3", head + bytes(range(1, 200)) * 12 + rest)
    return Case("mp3 with late frames", lambda: audio.check("sound.mp3", None, 0.0))


@_known
def onnx_without_outputs() -> Case:
    """An encoder in ONNX whose graph has no outputs: IndexError."""
    if not find_spec("onnxruntime"):
        return _table("labels.csv", b"", "empty, as onnxruntime is not installed")
    return encoders.onnx_case(encoders.CARD.encode(), encoders.onnx_model(outputs=False), "no outputs")


@_known
def grid_without_data() -> Case:
    """A grid without data sets: accepted, without anything to train."""
    return settings.grid_case(settings.GRID.replace('data = "recordings"', "data = {}"), "data = {}")


@_known
def grid_without_networks() -> Case:
    """A grid without networks: accepted, without anything to train."""
    return settings.grid_case(settings.GRID.replace('networks = ["cnn"]', "networks = []"), "networks = []")


@_known
def parquet_with_other_levels() -> Case:
    """A Parquet file whose times are optional in its statistics, required in its schema: pyarrow ended the process."""
    if not find_spec("pyarrow"):
        return _table("labels.csv", b"", "empty, as pyarrow is not installed")
    content = encoders.stored(".parquet").replace(b"\x25\x02\x18\x04time", b"\x25\x00\x18\x04time")
    return encoders.embeddings_case(".parquet", content, "time is required")
