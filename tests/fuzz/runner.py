"""Starts workers, gives them cases, and notices which case a worker died, hung or grew on."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import warm

from fuzz.harness import MOST_BYTES, MOST_SECONDS, Outcome

_MOST_SECONDS_TO_MAKE = 300  # of a case, which may begin with a training run or an export for the kit
_LONGEST = 180  # seconds of any case by the clock; processor time is limited further
_PAUSE = 0.05  # seconds between looks at the memory of a worker


class Worker:
    """A process that runs cases one after the other; a new one is started when it is lost."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process: subprocess.Popen[bytes] | None = None
        self._log = root / f"log-{threading.get_ident()}"

    def run(self, name: str) -> Outcome:
        """Run a case."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(f"{name}\n".encode())
        process.stdin.flush()
        made, why = self._reply(_MOST_SECONDS_TO_MAKE, _MOST_SECONDS_TO_MAKE)
        if made is None:
            return self._failed(Outcome(name, "failed", f"{why} while the case was made: {self._last_words()}"))
        reply, why = self._reply(MOST_SECONDS, _LONGEST)
        if reply is None:
            return self._failed(Outcome(name, "failed", f"{why}: {self._last_words()}", about=made["about"]))
        outcome = Outcome(**reply)
        return self._failed(outcome) if outcome.megabytes > MOST_BYTES >> 20 else outcome

    def _failed(self, outcome: Outcome) -> Outcome:
        self.stop()
        return outcome

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"EARMARK_CACHE": str(self.root / "cache"), "TMPDIR": str(self.root / "temporary")}
        places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        (self.root / "temporary").mkdir(exist_ok=True)
        with self._log.open("wb") as log:
            return warm.Popen(
                [sys.executable, "-m", "fuzz", "--serve", str(self.root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                bufsize=0,  # lines that are buffered here would be hidden from select
                start_new_session=True,
            )

    def _reply(self, limit: float, longest: float) -> tuple[dict[str, str] | None, str]:
        """The next line of the worker; or None, and what happened: limits are for processor time and for the clock."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        end, begun = time.monotonic() + longest, _processor_time(process.pid)
        while time.monotonic() < end and _processor_time(process.pid) < begun + limit:
            if select.select([process.stdout], [], [], _PAUSE)[0]:
                line = process.stdout.readline()
                if not line:
                    return None, f"the process died ({_death(process.wait())})"
                return json.loads(line), ""
            if (size := _memory(process.pid)) > MOST_BYTES:
                return None, f"took {size >> 20} MB"
        process.send_signal(signal.SIGUSR1)
        time.sleep(1)  # it writes where it is to its log
        return None, f"took more than {limit:.0f} s"

    def _last_words(self) -> str:
        """Where the worker was, as far as its log tells."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        ours = [line for line in lines if f"{os.sep}earmark{os.sep}" in line]
        return "; ".join(ours[:3] or lines[-3:])

    def stop(self) -> None:
        """End the process and what it has started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None


def _death(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _processor_time(pid: int) -> float:
    """Seconds of processor time of a process and its children."""
    total = 0.0
    with suppress(OSError, IndexError):
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            total += _processor_time(int(child))
    return total


def _memory(pid: int) -> int:
    """Bytes of memory of a process and its children."""
    total = 0
    with suppress(OSError, IndexError):
        total = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            total += _memory(int(child))
    return total


@dataclass
class Tally:
    """Outcomes by reader."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    slowest: dict[str, Outcome] = field(default_factory=dict)
    largest: dict[str, Outcome] = field(default_factory=dict)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        kind = outcome.name.partition(":")[0]
        self.counts[kind][outcome.outcome] += 1
        self.slowest[kind] = max(self.slowest.get(kind, outcome), outcome, key=lambda o: o.seconds)
        self.largest[kind] = max(self.largest.get(kind, outcome), outcome, key=lambda o: o.megabytes)
        if outcome.outcome == "failed":
            self.failures.append(outcome)

    def __str__(self) -> str:
        heading = f"{'reader':<12}{'inputs':>8}{'refused':>9}{'accepted':>9}{'failed':>8}  {'slowest':<24}{'memory':>9}"
        lines = [heading]
        for kind, count in sorted(self.counts.items()):
            slow, large = self.slowest[kind], self.largest[kind]
            spent = f"{slow.seconds:.1f} s ({slow.name})"
            numbers = f"{count.total():>8}{count['refused']:>9}{count['accepted']:>9}{count['failed']:>8}"
            lines.append(f"{kind:<12}{numbers}  {spent:<24}{large.megabytes:>6.0f} MB")
        return "\n".join(lines + self._failures())

    def _failures(self) -> list[str]:
        """Failures, those of one kind together, with the command that repeats the first."""
        groups = defaultdict[tuple[str, str], list[Outcome]](list)
        for failure in self.failures:
            kind = failure.name.partition(":")[0]
            groups[kind, failure.place or failure.reason[:40]].append(failure)
        lines = []
        for (kind, place), group in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
            first = group[0]
            lines += ["", f"{kind}: {len(group)} x {place}: {first.reason}", f"  input: {first.about}"]
            lines.append(f"  repeat: PYTHONPATH=tests python -m fuzz {' '.join(one.name for one in group[:5])}")
        return lines


def run_cases(names: Iterator[str], root: Path, workers: int, on_outcome: Callable[[Outcome], None]) -> None:
    """Run cases in some workers until the names end; outcomes are told one at a time."""
    lock = threading.Lock()

    def work() -> None:
        worker = Worker(root)
        try:
            while True:
                with lock:
                    name = next(names, None)
                if name is None:
                    return
                outcome = worker.run(name)
                with lock:
                    on_outcome(outcome)
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
