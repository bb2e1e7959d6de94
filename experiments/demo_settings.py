"""The settings of `earmark demo`, chosen on validation clips of soundscapes that the demo does not use.

    python experiments/demo_settings.py OUT [--at-once 2]

Every candidate trains the demo's five operators with three seeds. The candidate with the highest F1 of validation
segments, averaged over all operators and seeds, is the one to use: no operator is preferred. OUT keeps the trainings,
so that an interrupted call can be repeated, and the table is written to OUT/settings.txt.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from earmark.demo import SYSTEMS
from earmark.evaluation.comparison import Entry
from earmark.experiment import Grid, gather, run_grid
from earmark.experiment.grid import EvaluationSpec
from earmark.experiment.results import by_system
from earmark.synthesis import synthesise

SEED = 1  # of the soundscapes; the demo has another
SEEDS = (0, 1, 2)  # of the trainings
VALIDATION = {"validation": EvaluationSpec(split="validate")}

CLIPS = 400
CANDIDATES = {  # changes to the recipe `quick`
    "6 epochs": {"epochs": 6},
    "8 epochs": {"epochs": 8},
    "8 epochs, mixtures": {"epochs": 8, "mixup": 0.5},
    "8 epochs, width 0.25": {"epochs": 8, "width": 0.25},
    "12 epochs, width 0.25": {"epochs": 12, "width": 0.25},
}
COMMON = {"alpha_rate": 10, "monitor": "accuracy", "compile": "no"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=2, help="trainings at the same time")
    arguments = parser.parse_args()
    lines = [f"{'candidate':24}{'minutes':>8}{'F1':>7}" + "".join(f"{name:>7}" for name in SYSTEMS)]
    sounds = arguments.out / "soundscapes"
    synthesise("durations", sounds, clips=CLIPS, seed=SEED)
    for candidate, changes in CANDIDATES.items():
        start = time.monotonic()
        systems = {name: {"pool": pool, **COMMON, **changes} for name, pool in SYSTEMS.items()}
        grid = Grid("demo", {"": str(sounds)}, systems, recipe="quick", seeds=SEEDS, evaluations=VALIDATION)
        folder = arguments.out / candidate.replace(" ", "-").replace(",", "")
        cache = arguments.out / "features"
        if not run_grid(grid, folder, cache=cache, at_once=arguments.at_once):
            raise SystemExit("interrupted; repeat the command to continue")
        entries = [
            Entry(pool, tuple(row.saved() for row in rows)) for pool, rows in by_system(gather(grid, folder)).items()
        ]
        f1 = [np.mean([own.scores["dynamic"]["overall"]["f1"] for own in entry.evaluations]) for entry in entries]
        minutes = (time.monotonic() - start) / 60
        lines.append(f"{candidate:24}{minutes:8.1f}{np.mean(f1):7.3f}" + "".join(f"{value:7.3f}" for value in f1))
        print(lines[-1], flush=True)
    (arguments.out / "settings.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
