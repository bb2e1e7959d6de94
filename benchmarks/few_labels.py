"""Labels against F1: how many weakly labelled clips a detector needs, with and without a pretrained encoder.

    earmark encoders get mn04
    python benchmarks/few_labels.py run urban-sed:URBAN-SED --out few [--systems head] [--sizes 50 200]
    python benchmarks/few_labels.py show few/results.csv [--figure docs/images/few_labels]

`run` draws some of the training clips, three times for each number. A system uses only these clips and their tags, also
for validation (`strong` also uses times); heads choose their thresholds by cross-validation, except `student`, which
keeps 0.5. Each draw has its own seed, so that the largest number, all clips, can be drawn three times too. Scores are
those of `earmark evaluate` with the model's own thresholds, on the test clips or those of --split: segment F1, micro
and macro, and clip F1. Each result is a line of results.csv. To resume after an interruption, also by --minutes, run
the same command again, or one with other systems, sizes and draws: finished results are kept, and unfinished training
runs continue. Several training runs at the same time (--jobs) use a GPU better than one. Features are computed once for
all of them; --cache names a folder that may already have them, from `earmark train` or `earmark reproduce`.

`show` prints means and standard deviations over draws, and draws a figure of them. It needs only the file, or several.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from earmark.interrupt import exit_code, raising_signals

STUDENT = {"network": "gru", "learning_rate": 1e-3, "rounds": 1, "choose_thresholds": False}
RECURRENT = {"folds": 3, "network": "gru", "learning_rate": 1e-3}
TUNED = {  # mixtures of log-mel frames, new ones in every batch, instead of mixtures of audio
    "train_encoder": True,
    "mixtures": 0,
    "mixup": 0.5,
    "filter_db": 6.0,
    "band_mask": 13,
    "steps": 64,
    "epochs": 30,
    "batch_size": 32,
    "average": 0.4,
}
FUSED = {  # convolutions in addition to the encoder, which is not trained
    "train_encoder": True,
    "encoder_rate": 0,
    "steps": 64,
    "epochs": 30,
    "batch_size": 32,
    "rounds": 1,
}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("the paper's network, CAP", {"recipe": "paper", "pool": "cap"}),
    "best": ("recipe best", {"recipe": "best"}),
    "head": ("head on mn04", {"encoder": "mn04", "settings": {"folds": 3}}),
    "recurrent": ("recurrent head on mn04", {"encoder": "mn04", "settings": RECURRENT}),
    "taught": ("head on mn04, self-training", {"encoder": "mn04", "settings": {"folds": 3, "rounds": 1}}),
    "strong": ("head on mn04, strong labels", {"encoder": "mn04", "pool": "strong", "settings": {"folds": 3}}),
    "student": ("recurrent student of a head", {"encoder": "mn04", "settings": STUDENT}),
    "fused": ("mn04 and convolutions, self-training", {"recipe": "best", "encoder": "mn04", "settings": FUSED}),
    "tuned": ("mn04 fine-tuned", {"encoder": "mn04", "settings": TUNED}),
}
SIZES = (20, 50, 200, 1000, 6000)


@dataclass(frozen=True)
class Result:
    """A line of results.csv: a system, trained on a draw of clips; scores of the test clips."""

    system: str
    clips: int
    draw: int
    split: str
    f1: float
    precision: float
    recall: float
    macro_f1: float
    clip_f1: float
    seconds: float  # of training, and of computing the features that were not stored yet

    @property
    def job(self) -> tuple[str, int, int]:
        return self.system, self.clips, self.draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train and evaluate what results.csv lacks")
    run.add_argument("data")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    run.add_argument("--draws", type=int, nargs="+", default=(0, 1, 2))
    run.add_argument("--systems", nargs="+", choices=SYSTEMS, default=tuple(SYSTEMS))
    run.add_argument("--split", default="test", help="clips to evaluate on; validate to choose between variants")
    run.add_argument("--cache", type=Path, help="folder for features; by default one in --out")
    run.add_argument("--jobs", type=int, default=1, help="training runs at the same time")
    run.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    run.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of all systems")
    run.add_argument("--one", nargs=3, metavar=("SYSTEM", "SIZE", "DRAW"), help=argparse.SUPPRESS)
    show = commands.add_parser("show", help="print the table, and draw the figure")
    show.add_argument("results", type=Path, nargs="+", help="results.csv")
    show.add_argument("--figure", type=Path, help="file without suffix; PNG and SVG are written")
    arguments = parser.parse_args()
    try:
        failures = call(arguments)
    except KeyboardInterrupt:  # what was running has saved its state
        raise SystemExit(exit_code()) from None
    raise SystemExit(1 if failures else 0)


def call(arguments: argparse.Namespace) -> int:
    """Do what the arguments say; returns how many runs failed."""
    if arguments.command == "show":
        results = [result for path in arguments.results for result in read(path)]
        print_table(results)
        if arguments.figure:
            draw_figure(results, arguments.figure)
    elif arguments.one:
        system, size, draw = arguments.one
        measure(arguments, system, int(size), int(draw))
    else:
        failures = run_all(arguments)
        print_table(read(arguments.out / "results.csv"))
        return failures
    return 0


def run_all(arguments: argparse.Namespace) -> int:
    """Start a process for each missing result, some at a time, until all are done or the time is over.

    Returns how many failed. Those that are running at the end, or when this process is interrupted, save their state.
    """
    end = time.monotonic() + 60 * arguments.minutes
    arguments.out.mkdir(parents=True, exist_ok=True)
    done = {result.job for result in read(arguments.out / "results.csv") if result.split == arguments.split}
    jobs = [(s, n, d) for n in arguments.sizes for s in arguments.systems for d in arguments.draws]
    due = [job for job in jobs if job not in done][::-1]
    running: dict[subprocess.Popen[bytes], tuple[str, int, int]] = {}
    failures = 0
    with raising_signals():
        try:
            while (due or running) and time.monotonic() < end:
                while due and len(running) < arguments.jobs:
                    job = due.pop()
                    running[start(arguments, job)] = job
                time.sleep(0.2)
                for process in [process for process in running if process.poll() is not None]:
                    system, size, draw = running.pop(process)
                    if process.returncode:
                        failures += 1
                        log = arguments.out / f"{system}-{size}-{draw}.log"
                        print(f"{system} with {size} clips, draw {draw}: failed; see {log}", flush=True)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
    return failures


def start(arguments: argparse.Namespace, job: tuple[str, int, int]) -> subprocess.Popen[bytes]:
    """Measure in a separate process, which appends its result to results.csv."""
    system, size, draw = map(str, job)
    words = [
        "run",
        arguments.data,
        "--out",
        str(arguments.out),
        "--split",
        arguments.split,
        "--one",
        system,
        size,
        draw,
    ]
    words += ["--cache", str(arguments.cache)] if arguments.cache else []
    words += ["--set", *arguments.set] if arguments.set else []
    threads = {} if arguments.jobs == 1 else {"OMP_NUM_THREADS": "1"}
    with (arguments.out / f"{system}-{size}-{draw}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, __file__, *words], stdout=log, stderr=subprocess.STDOUT, env=os.environ | threads
        )


def measure(arguments: argparse.Namespace, system: str, size: int, draw: int) -> None:
    """Train on some clips, evaluate on the test clips, and append the result to results.csv."""
    import earmark
    from earmark.datasets import open_data
    from earmark.files import locked

    out, source = arguments.out, arguments.data
    data = open_data(source)
    names = sorted(clip.filename for clip in data.split("train").clips)
    chosen = sorted(np.random.default_rng([draw, size]).permutation(names)[:size].tolist())
    folder = out / f"{system}-{size}-{draw}"
    options = dict(SYSTEMS[system][1])
    options["settings"] = {
        **options.get("settings", {}),
        "seed": draw,
        **dict(pair.split("=", 1) for pair in arguments.set),
    }
    compute = earmark.api.Compute(cache=arguments.cache or out / "cache")
    begin = time.perf_counter()
    if system == "student":
        head = {"seed": draw, "choose_thresholds": False}  # there are no clips to choose them on
        teacher = earmark.train(
            data.select(chosen), f"{folder}-teacher", encoder="mn04", settings=head, compute=compute, resume=True
        )
        options["settings"]["teacher"] = str(teacher.path)
    run = earmark.train(data.select(chosen), folder, compute=compute, resume=True, **options)
    seconds = time.perf_counter() - begin
    scores = earmark.evaluate(run, source, split=arguments.split, out=folder / arguments.split).to_dict()
    overall = scores["dynamic"]["overall"]
    result = Result(
        system=system,
        clips=size,
        draw=draw,
        split=arguments.split,
        f1=round(overall["f1"], 4),
        precision=round(overall["precision"], 4),
        recall=round(overall["recall"], 4),
        macro_f1=round(scores["dynamic"]["macro"]["f1"], 4),
        clip_f1=round(scores["static"]["maximum"]["macro"]["f1"], 4),
        seconds=round(seconds, 1),
    )
    with locked(out, name=".results.lock", wait=True):
        write([*read(out / "results.csv"), result], out / "results.csv")


def read(path: Path) -> list[Result]:
    """The results in a file; none if there is no file."""
    if not path.exists():
        return []
    types = {"system": str, "split": str, "clips": int, "draw": int}
    with path.open(newline="") as file:
        return [Result(**{k: types.get(k, float)(v) for k, v in row.items()}) for row in csv.DictReader(file)]


def write(results: Iterable[Result], path: Path) -> None:
    """Write a file of results, completely or not at all."""
    from earmark.files import written_whole

    with written_whole(path) as draft, draft.open("w", newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Result)], lineterminator="\n")
        table.writeheader()
        table.writerows(asdict(result) for result in sorted(results, key=lambda r: r.job))


def grouped(results: Iterable[Result]) -> Iterator[tuple[str, int, list[Result]]]:
    """Results of each system and number of clips, systems in their order."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((result.system, result.clips), []).append(result)
    for system, size in sorted(groups, key=lambda key: (list(SYSTEMS).index(key[0]), key[1])):
        yield system, size, groups[system, size]


def print_table(results: list[Result]) -> None:
    """Print means, and standard deviations of F1, over draws."""
    for split in sorted({result.split for result in results}):
        print(f"\nMeans over draws, {split} clips")
        print(
            f"{'system':30} {'clips':>6} {'draws':>5} {'segment F1':>14} {'P':>6} {'R':>6} {'macro F1':>9} "
            f"{'clip F1':>8} {'seconds':>8}"
        )
        for system, size, rows in grouped(result for result in results if result.split == split):
            mean = {key: statistics.mean(getattr(row, key) for row in rows) for key in NUMBERS}
            spread = f"+- {statistics.stdev(row.f1 for row in rows):.3f}" if len(rows) > 1 else ""
            print(
                f"{SYSTEMS[system][0]:30} {size:6} {len(rows):5} {mean['f1']:7.3f} {spread:>8}{mean['precision']:6.3f} "
                f"{mean['recall']:6.3f} {mean['macro_f1']:9.3f} {mean['clip_f1']:8.3f} {mean['seconds']:8.0f}"
            )


NUMBERS = ("f1", "precision", "recall", "macro_f1", "clip_f1", "seconds")


def draw_figure(results: list[Result], path: Path) -> None:
    """Draw F1 against the number of clips."""
    from earmark import plots

    scores: dict[str, dict[int, list[float]]] = {}
    for system, size, rows in grouped(results):
        scores.setdefault(SYSTEMS[system][0], {})[size] = [row.f1 for row in rows]
    for file in plots.save(plots.f1_by_clips(scores), path):
        print(file)


if __name__ == "__main__":
    main()
