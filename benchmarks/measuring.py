"""Time and memory of calls, for the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

Work = Callable[[], object]


def timed(work: Work, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a call takes."""
    start = clock()
    work()
    return clock() - start


def in_turns(
    variants: Mapping[str, Work], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each variant in each round; variants take turns, so that other load on the machine affects all."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, work in variants.items():
            times[name].append(timed(work, clock))
    return times


def memory(key: str, pid: int | str = "self") -> int:
    """Resident memory of a process in bytes: "VmRSS" at present, "VmHWM" at its peak; 0 without Linux's /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def extra_memory(work: Work) -> int:
    """Peak resident bytes during a call, above those before it; 0 without Linux's /proc."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return 0
    reset.write_text("5")  # resets the peak
    before = memory("VmRSS")
    work()
    return memory("VmHWM") - before
