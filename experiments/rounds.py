"""The gain of rounds of self-training: recipe `best` after each round, and with strong labels, for several seeds.

    python experiments/rounds.py SOUNDSCAPES OUT [--seeds 3] [--at-once 2]

SOUNDSCAPES is the output of `earmark synth events.csv.gz SOUNDSCAPES --soundbank FOLDER`. Each network learns from the
one of the previous round, with another seed. Run the same command again to continue: finished runs are kept, the others
resume from their last epoch. Writes and prints OUT/rounds.csv, and the difference in dynamic F1 on test clips between
rounds: the mean over seeds with a 95% interval (Student's t, paired by seed).
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

FIRST_SEEDS = (0, 100, 300)  # of each round
COLUMNS = {  # of the table: where they are in an evaluation
    "dynamic_f1": ("dynamic", "overall", "f1"),
    "dynamic_precision": ("dynamic", "overall", "precision"),
    "dynamic_recall": ("dynamic", "overall", "recall"),
    "dynamic_macro_f1": ("dynamic", "macro", "f1"),
    "static_maximum_f1": ("static", "maximum", "macro", "f1"),
    "static_pooled_f1": ("static", "pooled", "macro", "f1"),
    "event_f1": ("event", "overall", "f1"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("soundscapes", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=2, help="runs that share the device")
    arguments = parser.parse_args()
    data = f"urban-sed:{arguments.soundscapes}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        chains = [pool.submit(chain, data, arguments.out, seed) for seed in range(arguments.seeds)]
        chains += [pool.submit(strong, data, arguments.out, seed) for seed in range(arguments.seeds)]
        for future in chains:
            future.result()
    show(write_table(arguments.out))


def chain(data: str, out: Path, seed: int) -> None:
    """Train the network of each round, with that of the previous round as the teacher."""
    for number in range(len(FIRST_SEEDS)):
        settings: dict[str, Any] = {"rounds": min(number, 1), "seed": FIRST_SEEDS[number] + seed}
        if number:
            settings["teacher"] = str(out / f"round-{number - 1}-seed-{seed}")
        train(data, out / f"round-{number}-seed-{seed}", settings)


def strong(data: str, out: Path, seed: int) -> None:
    """Train the same network with strong labels."""
    train(data, out / f"strong-seed-{seed}", {"rounds": 0, "seed": seed, "supervision": "strong", "pool": "max"})


def train(data: str, run: Path, settings: dict[str, Any]) -> None:
    """Train and evaluate, unless the results exist."""
    if not run.with_suffix(".done").exists():
        changes = [f"--set={key}={value}" for key, value in settings.items()]
        earmark("train", data, "--out", str(run), "--recipe", "best", "--resume", *changes)
        run.with_suffix(".done").touch()
    for split in ("validate", "test"):
        result = run.with_name(f"{run.name}-{split}.json")
        if not result.exists():
            text = earmark("evaluate", str(run), data, "--split", split, "--out", str(run / split), "--json")
            result.write_text(text, encoding="utf-8")


def earmark(*arguments: str) -> str:
    command = [sys.executable, "-m", "earmark.cli", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def write_table(out: Path) -> list[dict[str, Any]]:
    """One row for every evaluation, in OUT/rounds.csv."""
    rows = []
    for path in sorted(out.glob("*-seed-*.json")):
        system, rest = path.stem.split("-seed-")
        seed, split = rest.split("-")
        evaluation = json.loads(path.read_text(encoding="utf-8"))
        scores = {name: f"{value_at(evaluation, keys):.6f}" for name, keys in COLUMNS.items()}
        rows.append({"system": system, "seed": seed, "split": split, **scores})
    with (out / "rounds.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["system", "seed", "split", *COLUMNS], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    print((out / "rounds.csv").read_text(encoding="utf-8"))
    return rows


def value_at(evaluation: dict[str, Any], keys: tuple[str, ...]) -> float:
    value: Any = evaluation
    for key in keys:
        value = value[key]
    return float(value)


def show(rows: list[dict[str, Any]]) -> None:
    """Print means over seeds, and differences between rounds."""
    f1: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["split"] == "test":
            f1.setdefault(row["system"], {})[row["seed"]] = float(row["dynamic_f1"])
    for system, by_seed in f1.items():
        print(f"{system}: mean {np.mean(list(by_seed.values())):.3f} of {len(by_seed)} seeds")
    for a, b in ((0, 1), (1, 2), (0, 2)):
        before, after = f1.get(f"round-{a}", {}), f1.get(f"round-{b}", {})
        gains = [after[seed] - before[seed] for seed in after if seed in before]
        if len(gains) > 1:
            low, high = stats.t.interval(0.95, len(gains) - 1, np.mean(gains), stats.sem(gains))
            print(f"round {b} against round {a}: {np.mean(gains):+.4f} ({low:+.4f} to {high:+.4f}), {len(gains)} seeds")


if __name__ == "__main__":
    main()
