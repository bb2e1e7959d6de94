"""The folder of a detection job: ledger.sqlite with crafted columns or damaged bytes, kept scores, job.json."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import numpy as np

from fuzz import kit
from fuzz.cases import Case, reader, write
from fuzz.evaluations import damaged_arrays
from fuzz.mutations import damaged, damaged_json, hostile

_COLUMNS = {
    "recordings": "id path name size mtime attempts missing reason decoder duration events scores horizon presence",
    "events": "recording onset offset label confidence",
    "outputs": "path sha256 kind recording",
    "about": "key value",
}
_TEXTS = ("../victim.txt", "../../x", "/tmp/x", "", "\x1b[31m", "x" * 5000, "a\x00b", "notes.txt", "events/notes.txt")


@reader
def make(rng: Random) -> Case:
    """A job with a damaged file, which is run again with other settings."""
    kit.copy("job", "kit")
    write("victim.txt", "mine")
    keeps = ["kit/out/notes.txt", "kit/out/figures/mine.png", "kit/out/events/notes.txt"]
    for name in keeps:
        write(name, "mine")
    choice = rng.random()
    if choice < 0.6:
        note = _craft_ledger(rng, Path("kit/out/ledger.sqlite"))
    else:
        path = Path("kit/out", rng.choice(("ledger.sqlite", "job.json", "scores/00.wav.npz", "scores/00.wav.npz")))
        content, note = _damaged_file(rng, path)
        path.write_bytes(content)
        note = f"{path.name}: {note}"
    threshold = rng.choice((0.5, 0.3))
    files = [str(kit.part("recordings") / f"{i:02}.wav") for i in range(4)]
    command = ["detect", str(kit.part("run") / "run"), *files, "--out", "kit/out", "--threshold", str(threshold)]
    return Case(
        f"{note}, threshold {threshold}",
        lambda: run(files, threshold),
        writes=["kit/out"],
        keeps=keeps,
        command=command,
    )


def run(files: list[str], threshold: float) -> None:
    """Run the job again; tables may hold numbers only where they should."""
    from earmark.detection.job import JobOptions, run_job
    from earmark.events import Decoder
    from earmark.formats import read_labels

    options = JobOptions(decoder=Decoder(threshold=threshold), keep_scores=True, presence=float("inf"))
    run_job(kit.part("run") / "run", files, "kit/out", options, workers=1)
    read_labels("kit/out/events.csv")
    assert "nan" not in Path("kit/out/presence.csv").read_text(), "nan in presence.csv"


def _craft_ledger(rng: Random, path: Path) -> str:
    """Change one cell of some rows, whatever the column's type, or the schema."""
    if rng.random() < 0.15:
        statement = rng.choice(
            (
                "PRAGMA user_version = 99",
                "DROP TABLE events",
                "DROP VIEW entries",
                "DELETE FROM about",
                "ALTER TABLE recordings RENAME COLUMN name TO title",
                "CREATE TRIGGER t AFTER UPDATE ON recordings BEGIN DELETE FROM recordings; END",
                "INSERT INTO outputs VALUES ('../victim.txt', 'x', 'view', 1)",
            )
        )
        values: tuple[object, ...] = ()
    else:
        table = rng.choice(("recordings", "recordings", "recordings", "events", "outputs", "about"))
        column = rng.choice(_COLUMNS[table].split())
        value = rng.choice((*_TEXTS, *_TEXTS, hostile(rng), rng.randbytes(9), 2**62, -1, 1e308, float("inf")))
        if isinstance(value, list | dict | bool) or (isinstance(value, int) and abs(value) >= 2**63):
            value = str(value)[:5000]
        if isinstance(value, str):
            value = value.encode(errors="replace").decode()
        statement, values = f"UPDATE OR REPLACE {table} SET {column} = ?", (value,)
        if table != "about" and rng.random() < 0.5:
            statement += " WHERE rowid = 1"
    with closing(sqlite3.connect(path, isolation_level=None)) as database, suppress(sqlite3.DatabaseError):
        database.execute(statement, values)
    return f"ledger: {statement}" + "".join(f" ({value!r:.40})" for value in values)


def _damaged_file(rng: Random, path: Path) -> tuple[bytes, str]:
    content = path.read_bytes()
    if path.suffix == ".npz" and rng.random() < 0.7:
        return damaged_arrays(rng, content) if rng.random() < 0.4 else _crafted_scores(rng, path)
    return damaged(rng, content)


def _crafted_scores(rng: Random, path: Path) -> tuple[bytes, str]:
    """Kept scores whose description is changed."""
    import json
    from io import BytesIO

    with np.load(path, allow_pickle=False) as file:
        about, p = json.loads(str(file["about"])), file["p"]
    text, note = damaged_json(rng, about)
    stream = BytesIO()
    np.savez(stream, allow_pickle=False, about=text.encode(errors="replace").decode(), p=p)
    return stream.getvalue(), note
