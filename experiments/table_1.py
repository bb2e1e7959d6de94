"""Table I from rendered clips: trains and evaluates the nine systems, writes tables and figures, and measures the time.

    python experiments/table_1.py SOUNDSCAPES OUT [--seeds 1] [--at-once 9] [--minutes 9]
                                  [--restore FILE.tar.gz] [--archive FILE.tar.gz]

SOUNDSCAPES is the output of `earmark synth events.csv.gz SOUNDSCAPES --soundbank FOLDER`. Run the same command again to
continue: finished runs are kept, the others resume from their last epoch. With --minutes it stops by itself, like an
interrupted one, and then writes the archive. OUT/times.json contains the time of each stage over all calls.

--archive writes tables, figures and runs.npz, which contains settings, scores and counts of finished runs, but no
weights. --restore extracts such an archive into an OUT without runs, on another machine; finished runs are then not
repeated, and unfinished ones start from the beginning.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tarfile
import threading
import time
from pathlib import Path

from earmark.experiment import Cell, Grid, gather, keep_runs, load_grid, run_grid
from earmark.files import json_text, make_folder
from earmark.interrupt import exit_code, raising_signals
from earmark.progress import Progress
from earmark.reporting.grid import write_grid_report
from earmark.reporting.grid_tables import published_tables

KEPT = {"runs.npz", "data.json", "results.csv", "times.json", ".earmark.jsonl"}
KEPT_ENDS = {".md", ".tex", ".html", ".png"}


class Clock:
    """Seconds of each stage over all calls, saved every few seconds, so that killed calls are included."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        self._stage, self._since, self._saved = "start", time.monotonic(), 0.0

    def __call__(self, progress: Progress) -> None:
        """Count the time since the last call to its stage, and begin that of `progress`."""
        known = ("features", "scoring", "report")
        stage = progress.stage.rpartition(", ")[2]  # without the name of the run
        self.switch(stage if stage in known else "training")

    def switch(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now
        if now - self._saved > 5:
            self.save()

    def save(self) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text(json_text(self.seconds, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path)
        self._saved = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("soundscapes", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=9)
    parser.add_argument("--minutes", type=float, help="stop after this time, to be continued")
    parser.add_argument("--systems", nargs="+", help="only these; by default all nine")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the recipe, for trials")
    parser.add_argument("--restore", type=Path)
    parser.add_argument("--archive", type=Path)
    arguments = parser.parse_args()
    changes = dict(change.split("=", 1) for change in arguments.set)
    source = f"urban-sed:{arguments.soundscapes}"
    grid = load_grid("urban-sed").selected(
        data=source, seeds=arguments.seeds, systems=arguments.systems, changes=changes
    )
    make_folder(arguments.out)
    if arguments.restore and not (arguments.out / "runs.npz").exists():
        with tarfile.open(arguments.restore) as archive:
            archive.extractall(arguments.out, filter="data")
    clock = Clock(arguments.out / "times.json")
    if arguments.minutes:
        timer = threading.Timer(60 * arguments.minutes, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    with raising_signals():
        is_done = run(grid, arguments.out, arguments.at_once, clock)
    show(grid, clock, is_done)
    if arguments.archive:
        write_archive(arguments.out, arguments.archive)
    if not is_done:
        raise SystemExit(exit_code())


def run(grid: Grid, out: Path, at_once: int, clock: Clock) -> bool:
    """Finish all runs and write the report; False if interrupted."""
    started: dict[str, float] = {}

    def print_status(cell: Cell, status: str) -> None:
        now = time.monotonic()
        took = f" after {now - started[cell.name]:.0f} s" if cell.name in started else ""
        started.setdefault(cell.name, now)
        if status == "done":  # at once: the next one may be killed
            keep_runs(gather(grid, out, cells=[cell]), out)
        print(f"{cell.name}: {status}{took}", flush=True)

    try:
        is_done = run_grid(grid, out, cache=out / "features", at_once=at_once, on_cell=print_status, on_progress=clock)
        if is_done:
            clock.switch("report")
            rows = gather(grid, out)
            command = "python experiments/table_1.py SOUNDSCAPES OUT"
            write_grid_report(grid, rows, out, command=command, force=True, on_progress=clock)  # or restored ones stay
    except KeyboardInterrupt:
        is_done = False
    clock.switch("end")
    clock.save()
    return is_done


def show(grid: Grid, clock: Clock, is_done: bool) -> None:
    """Print the table so far, and the time of each stage over all calls."""
    rows = gather(grid, clock.path.parent)
    keep_runs(rows, clock.path.parent)
    tables = published_tables(grid, rows) if rows else None
    if tables:
        print(tables[0])
    finished = len({row.cell.name for row in rows})
    print(f"{'All' if is_done else 'So far'}: {finished} of {len(grid.cells)} runs")
    for stage, seconds in clock.seconds.items():
        print(f"{stage:>10} {seconds:7.0f} s")
    total = sum(clock.seconds.values())
    to_table = total - clock.seconds.get("report", 0.0)
    minutes = to_table / 60
    print(f"{to_table:.0f} s ({minutes:.1f} min) from rendered clips to table, {total:.0f} s with figures and report")


def write_archive(out: Path, path: Path) -> None:
    """Tables, figures and finished runs, without weights and features."""
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted([*out.glob("*"), *(out / "figures").glob("*")]):
            if file.name in KEPT or file.suffix in KEPT_ENDS:
                archive.add(file, str(file.relative_to(out)))
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
