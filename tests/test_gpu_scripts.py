"""`experiments/all.sh`, `experiments/collect.sh` and `benchmarks/few_labels.py`, without training."""

import argparse
import importlib.util
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from earmark.experiment import load_grid

ROOT = Path(__file__).parents[1]
STUB = """#!/bin/sh
printf '%s|' "$@" >> "$CALLS"
echo >> "$CALLS"
case "$*" in *{failing}*) exit {code} ;; esac
"""


def run_all(tmp_path, *stages, failing="nothing", code=1, **environment):
    """Run the script with a python3 that only records its arguments: exit code, output, and the arguments."""
    stub, calls = tmp_path / "bin" / "python3", tmp_path / "calls"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text(STUB.format(failing=failing, code=code))
    stub.chmod(0o755)
    calls.write_text("")
    done = subprocess.run(
        ["bash", str(ROOT / "experiments" / "all.sh"), "events.csv.gz", "bank", str(tmp_path / "out"), *stages],
        env={**os.environ, "PATH": f"{stub.parent}:/usr/bin:/bin", "CALLS": str(calls), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, [line.split("|")[:-1] for line in calls.read_text().splitlines()]


def option(words, name):
    return words[words.index(name) + 1]


def test_stages_name_existing_systems(tmp_path):
    code, shown, calls = run_all(tmp_path)
    assert code == 0, shown
    grids = [words for words in calls if "reproduce" in words]
    systems = []
    for words in grids:
        grid = load_grid(option(words, "reproduce"))
        if "--pools" in words:
            chosen = option(words, "--pools").split(",")
            assert list(grid.selected(systems=chosen).systems) == chosen
            systems += chosen
    beyond = load_grid(ROOT / "experiments" / "beyond.toml")
    assert {*systems, "mn04 without rounds"} == set(beyond.systems)
    assert [Path(option(words, "reproduce")).stem for words in grids] == ["beyond"] * 5 + ["operators"]
    assert all("--no-report" in words for words in grids)
    table, labels = (next(words for words in calls if words[0].endswith(name)) for name in ("e_1.py", "labels.py"))
    assert "--set" not in table
    assert option(labels, "--cache") == option(grids[0], "--cache") == str(tmp_path / "out" / "features")


def test_stages_have_options_and_their_output_and_time_are_kept(tmp_path):
    stages = ("mn04,strong --seeds 1", "mn04 frozen", "few-labels --systems fused tuned --sizes 20")
    code, _, calls = run_all(tmp_path, *stages, CHANGES="epochs=1 steps=2")
    assert code == 0
    assert calls[0][-4:] == ["--pools", "mn04,strong,strong with mn04", "--seeds", "1"]
    assert {"--set=epochs=1", "--set=steps=2"} <= set(calls[0])
    assert calls[1][-2:] == ["--pools", "mn04 frozen"]
    assert calls[2][-8:] == ["--set", "epochs=1", "steps=2", "--systems", "fused", "tuned", "--sizes", "20"]
    times = [line.split("\t") for line in (tmp_path / "out" / "times.tsv").read_text().splitlines()]
    assert [(stage, code) for stage, _, _, code in times] == [(stage, "0") for stage in stages]
    assert {path.name for path in (tmp_path / "out" / "logs").iterdir()} == {
        "mn04,strong.txt",
        "mn04 frozen.txt",
        "few-labels.txt",
    }


def test_a_failed_stage_does_not_stop_the_others_but_an_interrupted_one_does(tmp_path):
    code, shown, calls = run_all(tmp_path, "sound", "best", "operators", failing="beyond")
    assert (code, len(calls)) == (1, 3)
    assert "Failed: best; see" in shown
    code, _, calls = run_all(tmp_path, "sound", "best", "operators", failing="beyond", code=143)
    assert (code, len(calls)) == (143, 2)


def test_what_is_collected_is_small_and_can_be_continued(tmp_path):
    out = tmp_path / "out"
    wanted = {
        "times.tsv",
        "logs/mn04,strong.txt",
        "few/results.csv",
        "few/head-20-0.log",
        "beyond/runs.npz",
        "beyond/.earmark.jsonl",
        "beyond/table-clean.md",
        "beyond/figures/network.png",
        "table-1/times.json",
    }
    others = {
        "sound/labels.tsv",
        "sound/.earmark.jsonl",
        "features/train/features.bin",
        "mps/log",
        "beyond/.lock",
        "beyond/.runs~0123abcd.npz",
        "beyond/cells/best/model.safetensors",
        "few/head-20-0/last.ckpt",
        "few/head-20-0/test/figures/f1.png",
    }
    for name in (*wanted, *others, "beyond/cells/best/round-0/log.jsonl"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("text")
    target = tmp_path / "new" / "all.tar.gz"
    for _ in range(2):
        subprocess.run(["bash", str(ROOT / "experiments" / "collect.sh"), str(out), str(target)], check=True)
    with tarfile.open(target) as archive:
        names = [name.removeprefix("./") for name in archive.getnames()]
    assert set(names) == {*wanted, "beyond/curves/best/round-0/log.jsonl"}
    assert names.index("beyond/.earmark.jsonl") > names.index("beyond/table-clean.md")
    assert [path.name for path in target.parent.iterdir()] == ["all.tar.gz"]


@pytest.fixture
def few_labels(tmp_path, monkeypatch):
    """The benchmark, whose processes only sleep: the first ones briefly, and they fail."""
    spec = importlib.util.spec_from_file_location("few_labels", ROOT / "benchmarks" / "few_labels.py")
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "few_labels", tool)
    spec.loader.exec_module(tool)
    tool.started = []

    def start(arguments, job):
        command = "exit 3" if len(tool.started) < arguments.failing else "exec sleep 60"
        tool.started.append(subprocess.Popen(["sh", "-c", command]))
        return tool.started[-1]

    monkeypatch.setattr(tool, "start", start)
    values = {"out": tmp_path, "sizes": [20, 50], "systems": ["head"], "draws": [0, 1], "split": "test", "jobs": 2}
    return tool, argparse.Namespace(**values)


def test_few_labels_ends_its_processes_when_the_time_is_over(few_labels, capsys):
    tool, arguments = few_labels
    arguments.minutes, arguments.failing = 0.02, 1
    begin = time.monotonic()
    assert tool.run_all(arguments) == 1
    assert time.monotonic() - begin < 30
    assert [process.returncode for process in tool.started] == [3, -15, -15]
    assert "head with 20 clips, draw 0: failed; see" in capsys.readouterr().out


def test_few_labels_repeats_no_result_of_the_same_split(few_labels, monkeypatch):
    tool, arguments = few_labels
    numbers = dict.fromkeys(("f1", "precision", "recall", "macro_f1", "clip_f1", "seconds"), 0.5)
    done = [tool.Result("head", size, draw, "test", **numbers) for size in (20, 50) for draw in (0, 1)]
    tool.write(done, arguments.out / "results.csv")
    arguments.minutes, arguments.failing = 0.2, 4
    assert tool.run_all(arguments) == 0
    arguments.split = "validate"
    assert tool.run_all(arguments) == 4
