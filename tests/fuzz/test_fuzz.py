"""A few inputs for each reader, all that failed once, and what the harness itself must notice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.cases import MODULES
from fuzz.known import INPUTS
from fuzz.runner import Worker

CHEAP = {
    "audio": 30,
    "labels": 30,
    "settings": 24,
    "live": 8,
    "encoders": 12,
    "evaluations": 12,
    "jobs": 6,
    "reviews": 40,
    "stores": 6,
    "runs": 4,
}
FIRST = 1  # number of the first input; those that divide by 25 would start a command

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux does")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process that runs cases."""
    worker = Worker(tmp_path_factory.mktemp("fuzz"))
    yield worker
    worker.stop()


@pytest.mark.parametrize("kind", CHEAP)
def test_damaged_input_is_read_or_refused_with_a_line(worker, kind):
    numbers = [n for n in range(FIRST, FIRST + CHEAP[kind]) if n % 25]
    outcomes = [worker.run(f"{kind}:{number}") for number in numbers]
    assert [f"{o.name}: {o.reason}" for o in outcomes if o.outcome == "failed"] == []


@pytest.mark.parametrize("number", range(len(INPUTS)), ids=[make.__name__ for make in INPUTS])
def test_what_failed_once_does_not_fail_again(worker, number):
    outcome = worker.run(f"known:{number}")
    assert outcome.outcome != "failed", f"{outcome.name}: {outcome.reason}"


def test_every_reader_has_inputs():
    assert {*CHEAP, "models", "known"} == set(MODULES)  # crafted models are in `known`; a whole one takes seconds


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("raise DataError('')", "an empty message"),
        ("print('hello')", "printed 'hello\\n'"),
        ("import os; os.write(2, b'from a library in C')", "printed 'from a library in C'"),
        ("import warnings; warnings.warn('old', DeprecationWarning)", "DeprecationWarning: old"),
        ("open('mine.txt', 'w').close()", "changed or deleted mine.txt"),
        ("import os; os.remove('mine.txt')", "changed or deleted mine.txt"),
        ("open('new.txt', 'w').close()", "wrote new.txt"),
        ("open('../elsewhere.txt', 'w').close()", "wrote {root}/elsewhere.txt"),
        ("import os; os.abort()", "the process died (SIGABRT)"),
        ("x = bytearray(3 << 30)", "took"),
    ],
)
def test_failures_are_noticed(worker, code, reason):
    """A case that does one of the forbidden things; a second one is run after it all the same."""
    outcome = worker.run(f"planted:{code.encode().hex()}")
    assert outcome.outcome == "failed"
    assert reason.partition("{root}")[0] in outcome.reason
    assert worker.run("audio:1").outcome == "refused"
