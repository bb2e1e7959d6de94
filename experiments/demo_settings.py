"""The settings of `earmark demo`, chosen on validation clips of soundscapes that the demo does not use.

    python experiments/demo_settings.py OUT [--at-once 2]

Each candidate trains the demo's five operators with three seeds on two sets of soundscapes. The demo uses the one with
the highest F1 of validation segments, averaged over all runs so that no operator is preferred, among those with which
it takes at most six minutes on two cores. The runs are stored in OUT, so that an interrupted call can be repeated, and
the table is written to OUT/settings.txt.
"""

import argparse
from pathlib import Path

import numpy as np

from earmark.demo import SYSTEMS
from earmark.experiment import Grid, gather, run_grid
from earmark.experiment.grid import EvaluationSpec
from earmark.experiment.results import by_system
from earmark.synthesis import synthesise

CLIPS = 400
SOUNDSCAPES = (1, 3)  # seeds of the soundscapes; the demo uses another
SEEDS = (0, 1, 2)  # of the runs
VALIDATION = {"validation": EvaluationSpec(split="validate")}

COMMON = {"alpha_rate": 10, "monitor": "accuracy", "compile": "no"}
COARSE = {"hop_samples": 2048, "reduction": 4, "n_bands": 40, "batch_size": 8}  # four times as many steps a minute
CANDIDATES: dict[str, dict[str, float]] = {  # changes to the recipe `quick`
    "20 coarse epochs, rate 1e-3": {**COARSE, "epochs": 20, "learning_rate": 1e-3},
    "20 coarse epochs": {**COARSE, "epochs": 20},
    "8 epochs": {"epochs": 8},  # takes the demo nine minutes
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time")
    arguments = parser.parse_args()
    sounds = {f"soundscapes-{seed}": arguments.out / f"soundscapes-{seed}" for seed in SOUNDSCAPES}
    for seed, folder in zip(SOUNDSCAPES, sounds.values(), strict=True):
        synthesise("durations", folder, clips=CLIPS, seed=seed)
    data = {name: str(folder) for name, folder in sounds.items()}
    lines = [f"{'candidate':28}{'F1':>7}" + "".join(f"{name:>7}" for name in SYSTEMS)]
    for candidate, changes in CANDIDATES.items():
        systems = {name: {"pool": pool, **COMMON, **changes} for name, pool in SYSTEMS.items()}
        grid = Grid("demo", data, systems, recipe="quick", seeds=SEEDS, evaluations=VALIDATION)
        folder = arguments.out / candidate.replace(" ", "-").replace(",", "")
        if not run_grid(grid, folder, cache=arguments.out / "features", at_once=arguments.at_once):
            raise SystemExit("interrupted; repeat the command to continue")
        rows = by_system(gather(grid, folder))
        f1 = [np.mean([row.saved().scores["dynamic"]["overall"]["f1"] for row in runs]) for runs in rows.values()]
        lines.append(f"{candidate:28}{np.mean(f1):7.3f}" + "".join(f"{value:7.3f}" for value in f1))
        print(lines[-1], flush=True)
    (arguments.out / "settings.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
