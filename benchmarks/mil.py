"""Ten-fold accuracy of `earmark.mil.BagClassifier` on Musk1 and Elephant, beside the published attention-MIL figures.

The protocol is that of Ilse, Tomczak and Welling, "Attention-based deep multiple instance learning" (ICML 2018): ten
folds, five repetitions. Folds are stratified, repetition r is cut and trained with seed r, and every pool gets the same
folds and the defaults of `BagClassifier`. A cell is the mean of the 50 fold accuracies, +- the standard error of one
ten-fold mean (the deviation of the 50 divided by the root of 10), and in brackets the standard deviation of the five
ten-fold means. The published +- is copied as printed: how it was computed could not be checked here, the first of ours
is of the same size. With 92 and 200 bags, differences below .03 between rows mean little.

How the defaults were chosen. Hidden layers (256, 128, 64), dropout .5, weight decay 5e-3 and Adam are published
settings (Ilse et al., who train 100 epochs with one bag per step). The rest was tried by ten-fold cross-validation on
Musk1 and Elephant cut with other seeds (1000, 1001, 1002) than those reported here (0 to 4), and on a made-up set of
100 bags with one telling instance among 3 to 24: 36 combinations (26 also on the made-up set), not the whole grid, of

- hidden (64,), (256,), (128, 64), (256, 128, 64); dropout .2, .5; weight decay 1e-4, 5e-3, 5e-2
- learning rate 5e-4, 1e-3, 2e-3; batches of 8, 16; epochs 20, 25, 50
- pool learning rate 5e-4, 5e-3, 1e-2, 2e-2, 5e-2, and for three of these a larger epsilon of Adam, 1e-2 or 1e-1
- one network, and once the mean of three; once standardised features clipped at 3
- pool "auto" in most; max, mean, attention, cap and rap (penalty 1e-3, 3e-3, 1e-2) in a few

"auto" came out between .83 and .88 on Musk1 and between .80 and .86 on Elephant, most of it within the noise. One thing
mattered clearly. At a pool learning rate of 5e-4 alpha stays where it starts: no harm on these two sets, where the mean
does well, but .63 on the made-up bags, where it does not. At 5e-2 alpha wanders: .80 on Elephant. Between them, 1e-2
with the published layers gave .867, .848 and .88, and became the default; attention with the same settings gave .883,
.847 and .94. The mean of three networks was not clearly better than one, so there is one. Nothing was changed after the
first look at the reported folds.

Run it from the repository's root after `pip install -e '.[mil]'`; about a quarter of an hour on two cores:

    python benchmarks/mil.py --data FOLDER

The folder holds `musk1.csv` and `elephant.csv`: label of the bag, number of the bag, features; no header.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold

from earmark.mil import BagClassifier

FOLDS = 10
SETS = {"Musk1": "musk1.csv", "Elephant": "elephant.csv"}
POOLS = ["max", "mean", "auto", "cap", "rap", "attention", "gated-attention"]
PUBLISHED = {  # Ilse et al. (2018), Table 1
    "mi-Net (Wang et al. 2018)": {"Musk1": (0.889, 0.039), "Elephant": (0.858, 0.037)},
    "Attention (Ilse et al. 2018)": {"Musk1": (0.892, 0.040), "Elephant": (0.868, 0.022)},
    "Gated-Attention (Ilse et al. 2018)": {"Musk1": (0.900, 0.050), "Elephant": (0.863, 0.027)},
}

Bags = list[np.ndarray]


def read(path: Path) -> tuple[Bags, np.ndarray]:
    """Bags and their labels; columns: label of the bag, its number, features."""
    table = np.loadtxt(path, delimiter=",")
    numbers, first = np.unique(table[:, 1], return_index=True)
    return [table[table[:, 1] == number, 2:] for number in numbers], table[first, 0].astype(int)


def accuracy(pool: str, bags: Bags, y: np.ndarray, repetition: int, fold: int) -> float:
    """Accuracy on one fold after training on the others."""
    torch.set_num_threads(1)  # small matrices: two trainings side by side use two cores better
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=repetition)
    train, test = list(folds.split(bags, y))[fold]
    model = BagClassifier(pool=pool, random_state=repetition).fit([bags[i] for i in train], y[train])
    return float(model.score([bags[i] for i in test], y[test]))


def measure(pools: list[str], data: Path, repetitions: int, jobs: int) -> dict[str, dict[str, np.ndarray]]:
    """Accuracies (repetitions, folds) by pool and data set; progress goes to a terminal only."""
    sets = {name: read(data / file) for name, file in SETS.items()}
    cells = [(pool, name) for pool in pools for name in sets]
    tasks = (
        delayed(accuracy)(pool, *sets[name], r, fold)
        for pool, name in cells
        for r in range(repetitions)
        for fold in range(FOLDS)
    )
    values = []
    for value in Parallel(n_jobs=jobs, return_as="generator")(tasks):
        values.append(value)
        if sys.stderr.isatty():
            pool, name = cells[(len(values) - 1) // (repetitions * FOLDS)]
            print(f"\r{len(values)}/{len(cells) * repetitions * FOLDS} {pool} {name}\033[K", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    results: dict[str, dict[str, np.ndarray]] = {pool: {} for pool in pools}
    for (pool, name), cell in zip(cells, np.reshape(values, (len(cells), repetitions, FOLDS)), strict=True):
        results[pool][name] = cell
    return results


def summary(cell: np.ndarray) -> dict[str, float]:
    """Mean, standard error of one ten-fold mean, deviation of the ten-fold means, of (repetitions, folds)."""
    means = cell.mean(axis=1)
    spread = float(means.std(ddof=1)) if len(means) > 1 else 0.0
    return {"mean": float(cell.mean()), "error": float(cell.std(ddof=1) / FOLDS**0.5), "spread": spread}


def print_table(results: dict[str, dict[str, np.ndarray]]) -> None:
    print((f"\n{'':36}" + "".join(f"{name:<25}" for name in SETS)).rstrip(" "))
    for pool, cells in results.items():
        row = (summary(cells[name]) for name in SETS)
        texts = (f"{s['mean']:.3f} +- {s['error']:.3f} ({s['spread']:.3f})" for s in row)
        print((f"{pool:<36}" + "".join(f"{text:<25}" for text in texts)).rstrip())
    for method, published in PUBLISHED.items():
        texts = (f"{mean:.3f} +- {error:.3f}" for mean, error in (published[name] for name in SETS))
        print((f"{method:<36}" + "".join(f"{text:<25}" for text in texts)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of musk1.csv and elephant.csv")
    parser.add_argument("--pools", nargs="+", default=POOLS, metavar="POOL", help=f"default: {' '.join(POOLS)}")
    parser.add_argument("--repetitions", type=int, default=5, help="default: 5")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side; default: 2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all fold accuracies there")
    args = parser.parse_args()
    missing = [str(args.data / file) for file in SETS.values() if not (args.data / file).exists()]
    if missing:
        parser.error(f"not found: {', '.join(missing)}; say where they are with --data")

    setting: dict[str, Any] = BagClassifier().get_params() | {"pool": "as named", "random_state": "the repetition"}
    versions = {name: version(name) for name in ("torch", "scikit-learn", "numpy")}
    print("setting:", ", ".join(f"{key}={value}" for key, value in setting.items()))
    print(f"protocol: {FOLDS} stratified folds, repetitions with seeds 0 to {args.repetitions - 1}")
    print("versions:", ", ".join(f"{key} {value}" for key, value in versions.items()), flush=True)
    begin = time.perf_counter()
    results = measure(args.pools, args.data, args.repetitions, args.jobs)
    seconds = time.perf_counter() - begin
    print_table(results)
    print(f"\n{seconds / 60:.1f} minutes, {args.jobs} at a time")
    if args.json:
        accuracies = {pool: {name: cell.tolist() for name, cell in cells.items()} for pool, cells in results.items()}
        document = {"setting": setting, "versions": versions, "accuracies": accuracies, "published": PUBLISHED}
        args.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
