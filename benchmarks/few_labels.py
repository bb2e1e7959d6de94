"""Labels against F1: how many weakly labelled clips a detector needs, with and without a pretrained encoder.

    earmark encoders get mn04
    python benchmarks/few_labels.py urban-sed:URBAN-SED --out few [--sizes 50 200] [--systems head paper] [--jobs 2]

Of the training clips some are drawn, three times for each number; these and their tags are all that a system sees,
validation included. Scores are those of `earmark evaluate` on the test clips, at the default threshold: segment F1,
micro and macro, and clip F1. Each result is a line of results.jsonl; a line that is there is not computed again, so
that the script can be killed and started again. At the end it prints means and standard deviations over draws.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

SYSTEMS: dict[str, dict[str, Any]] = {
    "paper": {"recipe": "paper", "pool": "cap"},
    "quick": {"recipe": "quick"},
    "head": {"encoder": "mn04"},
    "once": {"encoder": "mn04", "settings": {"rounds": 0}},
    "gru": {"encoder": "mn04", "settings": {"network": "gru"}},
    "linear": {"encoder": "mn04", "settings": {"network": "linear"}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 50, 200, 1000, 6000])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["head", "paper"])
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--one", nargs=3, metavar=("SYSTEM", "SIZE", "DRAW"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        system, size, draw = arguments.one
        print(json.dumps(measure(arguments.data, arguments.out, system, int(size), int(draw))))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    due = [
        (system, size, draw)
        for size in sorted(arguments.sizes, reverse=True)
        for system in arguments.systems
        for draw in range(arguments.draws)
        if (system, size, draw) not in {(r["system"], r["size"], r["draw"]) for r in read(arguments.out)}
    ]
    with ThreadPoolExecutor(arguments.jobs) as threads:
        for done in as_completed([threads.submit(start, arguments, *job) for job in due]):
            line = done.result()
            with (arguments.out / "results.jsonl").open("a") as file:
                file.write(line)
            print(line, end="", flush=True)
    show(read(arguments.out))


def start(arguments: argparse.Namespace, system: str, size: int, draw: int) -> str:
    """Measure in a process of its own; returns the line with the result."""
    words = [arguments.data, "--out", str(arguments.out), "--one", system, str(size), str(draw)]
    threads = {} if arguments.jobs == 1 else {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, env=os.environ | threads
    )
    if done.returncode:
        raise SystemExit(f"{system} with {size} clips, draw {draw}: failed")
    return done.stdout.splitlines()[-1] + "\n"


def measure(source: str, out: Path, system: str, size: int, draw: int) -> dict[str, Any]:
    """Train on some clips and evaluate on the test clips."""
    import earmark
    from earmark.datasets import open_data

    data = open_data(source)
    names = sorted(clip.filename for clip in data.split("train").clips)
    chosen = sorted(np.random.default_rng([draw, size]).permutation(names)[:size].tolist())
    folder = out / f"{system}-{size}-{draw}"
    compute = earmark.api.Compute(cache=out / "cache" / f"{size}-{draw}")
    begin = time.perf_counter()
    run = earmark.train(data.select(chosen), folder, compute=compute, resume=True, **SYSTEMS[system])
    seconds = time.perf_counter() - begin
    evaluation = earmark.evaluate(run, source, split="test", out=folder / "test")
    scores = evaluation.to_dict()
    overall, static = scores["dynamic"]["overall"], scores["static"]["maximum"]
    return {
        "system": system,
        "size": size,
        "draw": draw,
        "micro": overall["f1"],
        "precision": overall["precision"],
        "recall": overall["recall"],
        "macro": scores["dynamic"]["macro"]["f1"],
        "clips": static["macro"]["f1"],
        "seconds": round(seconds, 1),
    }


def read(out: Path) -> list[dict[str, Any]]:
    """The results so far."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def show(results: list[dict[str, Any]]) -> None:
    """Print means and standard deviations over draws."""
    print(
        f"\n{'system':8} {'clips':>6} {'draws':>5} {'F1':>14} {'P':>6} {'R':>6} {'macro F1':>9} {'clip F1':>8} {'s':>6}"
    )
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["system"], result["size"]), []).append(result)
    for (system, size), rows in sorted(groups.items()):
        mean = {key: statistics.mean(row[key] for row in rows) for key in rows[0] if key not in ("system",)}
        spread = statistics.stdev(row["micro"] for row in rows) if len(rows) > 1 else float("nan")
        print(
            f"{system:8} {size:6} {len(rows):5} {mean['micro']:7.3f} +- {spread:.3f} {mean['precision']:6.3f} "
            f"{mean['recall']:6.3f} {mean['macro']:9.3f} {mean['clips']:8.3f} {mean['seconds']:6.0f}"
        )


if __name__ == "__main__":
    main()
