"""Every command and every example in the README does what the README says."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.S)
COMMANDS = [line for block in CONSOLE for line in block.splitlines() if line.startswith("$ ")]


def run(*args, timeout=300):
    done = subprocess.run(
        args, capture_output=True, text=True, cwd=ROOT, timeout=timeout, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python_examples():
    run(
        sys.executable,
        "-m",
        "doctest",
        "-o",
        "ELLIPSIS",
        "-o",
        "NORMALIZE_WHITESPACE",
        "-o",
        "IGNORE_EXCEPTION_DETAIL",
        "README.md",
    )


def test_the_commands_are_of_known_kinds():
    assert COMMANDS
    for command in COMMANDS:
        assert re.match(r"\$ (make (demo|test)|pip install \.|earmark |python benchmarks/)", command), command


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("$ make")])
def test_make_targets_exist(command):
    target = command.split()[2]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("block", [b for b in CONSOLE if b.startswith("$ earmark")])
def test_earmark_commands_print_what_is_shown(block):
    command, _, shown = block.partition("\n")
    assert run(sys.executable, "-m", "earmark.cli", *command.split()[2:]) == shown


def test_the_demo_prints_the_table_shown(tmp_path):
    printed = run(sys.executable, "-m", "earmark.cli", "demo", "--out", str(tmp_path))
    table = re.search(r"```text\n(F1 on the frames.*?)```", README, re.S).group(1)
    rows = [line.rstrip() for line in printed.splitlines()]
    for line in table.splitlines():
        name, *shown = line.split()
        if name in ("mean", "max", "auto", "cap", "rap"):
            mine = next(row.split()[1:] for row in rows if row.split()[:1] == [name])
            assert [float(x) for x in mine[:7]] == pytest.approx([float(x) for x in shown], abs=0.05), name
        else:
            assert line.rstrip() in rows


def test_measured_tables_are_the_recorded_outputs():
    recorded = set()
    for file in (ROOT / "benchmarks" / "results").glob("*.txt"):
        recorded |= {line.rstrip() for line in file.read_text().splitlines()}
    blocks = [b for b in re.findall(r"```text\n(.*?)```", README, re.S) if "Musk1" in b or "formula" in b]
    assert len(blocks) == 2
    for line in "".join(blocks).splitlines():
        assert line.rstrip() in recorded, line


@pytest.mark.skipif(not (find_spec("keras") and find_spec("autopool")), reason="needs the extras keras and oracles")
def test_the_padding_table_is_what_the_benchmark_prints():
    printed = run(sys.executable, "-W", "ignore", "benchmarks/padding.py").splitlines()
    table = re.search(r"```text\n(layer  .*?)```", README, re.S).group(1)
    for line in table.splitlines()[1:]:
        assert any(row.startswith(line.rstrip()) for row in printed), line
