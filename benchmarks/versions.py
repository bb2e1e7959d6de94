"""Two versions of earmark, benchmark by benchmark, in turn on the same machine.

    git worktree add ../before v0.1.0
    python benchmarks/versions.py ../before . [--rounds 2] ["evaluation --clips 500" ...]

Each benchmark is the file that comes with its version, run with that version's package. The versions take turns, so
that a change in the machine's load shows as a difference between rounds of the same version. By default,
the benchmarks that need neither a GPU nor real data are run, with sizes that take minutes rather than hours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = (
    "evaluation",
    "features",
    "bags --clips 60",
    "training --seconds 5",
    "pooling",
    "detection --seconds 60 --rounds 3",
    "export",
    "job --files 100 --damaged 4 --seconds 5",
    "augment --files 10",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="a checkout of one version")
    parser.add_argument("after", type=Path, help="a checkout of the other")
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS, help="names, each with its arguments")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_intermixed_args()
    for benchmark in arguments.benchmarks:
        name, *options = benchmark.split()
        for number in range(arguments.rounds):
            for tree in (arguments.before, arguments.after):
                print(f"\n=== {benchmark}, {tree}, round {number + 1}", flush=True)
                environment = os.environ | {"PYTHONPATH": str(tree.resolve() / "src")}
                subprocess.run([sys.executable, f"benchmarks/{name}.py", *options], cwd=tree, env=environment)


if __name__ == "__main__":
    main()
