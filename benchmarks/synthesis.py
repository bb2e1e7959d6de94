"""Speed of the synthesis of soundscapes, and the time of its parts.

    python benchmarks/synthesis.py EVENTS --soundbank DIR [--clips 100] [--workers N]

Prints the time per clip of each part on one core, clips per second on one core and on all, the ratio to Scaper's 0.35 s
per clip and core (with changed pitch and time; measured on another machine, since Scaper needs sox), and the floor: the
time of decoding, pitch and time, and encoding, all of which are compiled code of other packages. Times are processor
time, which other load on the machine affects less; clips per second refer to wall time.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from earmark import audio, effects
from earmark.synthesis import FolderBank, job, plan_from, synthesise

SCAPER_SECONDS = 0.35


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", type=Path)
    parser.add_argument("--soundbank", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()

    bank = FolderBank(arguments.soundbank)
    plan = [bank.resolved(soundscape) for soundscape in plan_from(arguments.events, clips=arguments.clips)]
    n = len(plan)
    parts: defaultdict[str, float] = defaultdict(float)
    watch(parts, "decoding", audio, "read")
    watch(parts, "decoding", audio, "info")
    watch(parts, "pitch and time", effects, "change_pitch_and_time")
    watch(parts, "resampling", audio, "resample")
    watch(parts, "loudness", effects, "loudness")
    watch(parts, "fades", effects, "fade")
    watch(parts, "noise", importlib.import_module("earmark.synthesis.render"), "make_noise")
    watch(parts, "encoding", audio, "write")
    watch(parts, "annotation", job, "write_jams")
    with tempfile.TemporaryDirectory() as folder:
        start, clock = time.process_time(), time.perf_counter()
        synthesise(plan, Path(folder) / "one", bank=bank, workers=1)
        whole, clock = time.process_time() - start, time.perf_counter() - clock
    parts["the rest"] = whole - sum(parts.values())
    events = sum(len(soundscape.events) for soundscape in plan)
    print(f"{n} clips, {events / n:.1f} events each; processor time per clip on one core")
    for name, seconds in sorted(parts.items(), key=lambda part: -part[1]):
        print(f"  {name:16s} {1000 * seconds / n:7.1f} ms  {seconds / whole:5.0%}")
    floor = sum(parts[name] for name in ("decoding", "pitch and time", "encoding"))
    print(f"  {'together':16s} {1000 * whole / n:7.1f} ms")
    print(f"  {'floor':16s} {1000 * floor / n:7.1f} ms  (decoding, pitch and time, encoding)")
    print(
        f"Scaper's {SCAPER_SECONDS} s / {whole / n:.3f} s = {SCAPER_SECONDS / (whole / n):.1f} times as fast per core"
    )
    print(f"by the clock, one process: {n / clock:.1f} clips per second")
    with tempfile.TemporaryDirectory() as folder:
        clock = time.perf_counter()
        synthesise(plan, Path(folder) / "all", bank=arguments.soundbank, workers=arguments.workers)
        clock = time.perf_counter() - clock
    print(f"by the clock, {arguments.workers} processes, their start included: {n / clock:.1f} clips per second")


def watch(parts: defaultdict[str, float], part: str, module: object, name: str) -> None:
    """Replace a function by one that adds its time to a part."""
    function = getattr(module, name)

    def watched(*args: object, **options: object) -> object:
        start = time.process_time()
        try:
            return function(*args, **options)
        finally:
            parts[part] += time.process_time() - start

    setattr(module, name, watched)


if __name__ == "__main__":
    main()
