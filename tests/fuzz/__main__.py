"""`python -m fuzz`: fuzz all readers for some minutes, or repeat cases."""

import argparse
import faulthandler
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from fuzz.cases import MODULES
from fuzz.harness import Outcome, serve
from fuzz.runner import Tally, run_cases

_EVERY = 30  # seconds between lines of progress


def main() -> None:
    """Parse arguments, run cases, print the table; exit code 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Hostile input for every reader of earmark.")
    parser.add_argument("cases", nargs="*", help="cases to repeat, such as audio:123; otherwise random ones")
    parser.add_argument("--minutes", type=float, default=30.0, help="for how long (30)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--readers", default=",".join(MODULES), help=f"some of {','.join(MODULES)}")
    parser.add_argument("--seed", type=int, help="the number of the first case of each reader; random if not given")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        faulthandler.enable()
        replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # nothing but replies goes to the runner
        serve(options.serve, replies)
        return
    tally, started = Tally(), time.monotonic()
    told = started

    def handle(outcome: Outcome) -> None:
        nonlocal told
        failures = len(tally.failures)
        tally.add(outcome)
        if options.cases or len(tally.failures) > failures:  # at once, should the rest be interrupted
            print(
                f"{outcome.name}: {outcome.outcome} in {outcome.seconds:.2f} s: {outcome.about}\n  {outcome.reason}",
                flush=True,
            )
        if time.monotonic() - told > _EVERY:
            told = time.monotonic()
            inputs = sum(counter.total() for counter in tally.counts.values())
            print(f"{(told - started) / 60:.1f} min: {inputs} inputs, {len(tally.failures)} failed", flush=True)

    with tempfile.TemporaryDirectory(prefix="earmark-fuzz-") as folder:
        names = iter(options.cases) if options.cases else _random_names(options, started)
        run_cases(names, Path(folder).resolve(), options.workers, handle)
    print(tally)
    sys.exit(1 if tally.failures else 0)


def _random_names(options: argparse.Namespace, started: float) -> Iterator[str]:
    """Cases of all readers in turn, until the time is over; what failed once comes first."""
    from fuzz.known import INPUTS

    readers = options.readers.split(",")
    first = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    print(f"Fuzzing {', '.join(readers)} for {options.minutes:g} minutes; repeat with --seed {first}", flush=True)
    if "known" in readers:
        yield from (f"known:{number}" for number in range(len(INPUTS)))
    for number in count(first) if readers != ["known"] else ():
        for kind in readers:
            if time.monotonic() - started > 60 * options.minutes:
                return
            if kind != "known":
                yield f"{kind}:{number}"


if __name__ == "__main__":
    main()
