"""The command line, by what it prints and how it exits."""

import io
import json
import re
import shlex
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from drawing import drawn
from in_process import without_workers

from earmark import __version__
from earmark.checkpoint import read_model_info
from earmark.cli.app import main
from earmark.cli.terminal import make_console
from earmark.datasets.examples import write_example
from earmark.detection.ledger import Ledger
from earmark.pooling import POOLS
from earmark.settings import load_recipe
from earmark.synthesis import read_recipe
from earmark.tables import Cell, Column, Table

LISTS = "pools, networks, datasets, formats, recipes, settings, encoders"
SHORT = ("--recipe", "quick", "--set", "epochs=1", "--set", "steps=1", "--set", "batch_size=2")


def earmark(*args, cwd="."):
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["earmark", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
    return subprocess.CompletedProcess(args, ended.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demo, run once, with few clips and steps."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    short = ("--seeds", 1, "--set", "epochs=1", "--set", "steps=2", "--set", "batch_size=4")
    with without_workers(), drawn():
        return earmark("demo", "--out", out, "--clips", 20, *short), out


@pytest.mark.parametrize("module", ["earmark", "earmark.cli"])
def test_version(module):
    words = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"earmark {__version__}\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot send itself Ctrl-C there")
def test_ctrl_c_while_the_command_line_is_imported_is_silent():
    code = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == "earmark.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from earmark.start import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_list_pools_has_a_line_for_each():
    done = earmark("list", "pools")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(list(POOLS)) >= 20
    assert lines[0].split()[0] == "max"
    assert all(len(line) <= 80 for line in lines)
    rows = json.loads(earmark("list", "pools", "--json").stdout)["pools"]
    assert [row["name"] for row in rows] == [line.split()[0] for line in lines]


@pytest.mark.parametrize("what", LISTS.split(", "))
def test_every_list_is_the_same_with_and_without_json(what):
    lines = earmark("list", what).stdout.splitlines()
    rows = json.loads(earmark("list", what, "--json").stdout)[what]
    assert [line.split()[0] for line in lines] == [row["name"] for row in rows] != []
    assert all(row["summary"] for row in rows)


def test_recipes_that_are_listed_can_be_used():
    rows = json.loads(earmark("list", "recipes", "--json").stdout)["recipes"]
    readers = {"train": load_recipe, "synth": read_recipe}
    assert {row["command"] for row in rows} == readers.keys()
    for row in rows:
        readers[row["command"]](row["name"])


def test_no_words_at_all_is_a_call_for_help():
    done = earmark()
    assert done.returncode == 0
    assert done.stdout == earmark("--help").stdout
    assert "..." not in done.stdout.split("Commands:")[1]  # every summary fits its line


@pytest.mark.parametrize("command", [[], ["list"], ["demo"], ["synth"], ["train"]])
def test_help_has_an_example(command):
    done = earmark(*command, "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert not command or f"Example: earmark {command[0]}" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["list", "polls"], f"earmark: list='polls' is not known; did you mean 'pools'? Choose from: {LISTS}\n"),
        (["lisst"], "earmark: No such command 'lisst'."),
        (["list", "pools", "--jsn"], "earmark: No such option: --jsn"),
        (["train", "x", "--gpu"], "earmark: No such option: --gpu; a GPU is used if PyTorch finds one; to use the CPU"),
        (
            ["train", "my", "recordings", "--out", "x"],
            "earmark: Got unexpected extra argument(s) (recordings); put a path with spaces in quotes",
        ),
        (["detect", "run", "a.wav", "--device", "cuda"], "earmark: No such option: --device"),
        (
            ["detect", "a.wav"],
            "earmark: detect: expected MODEL AUDIO, got one path; if there is no model yet: earmark train RECORDINGS",
        ),
        (["detect", "run", "a.wav"], "earmark: run: no such file; train a model first: earmark train RECORDINGS --out"),
        (["evaluate", "run", "x", "--threshold", "high"], "earmark: --threshold: expected a number, got 'high'\n"),
        (["synth", "durations", "x", "--clips", "1.5"], "earmark: --clips: expected a whole number, got '1.5'\n"),
        (["train", "x", "--out", "y", "--devices", "0"], "earmark: --devices: expected at least 1, got '0'\n"),
        (["list"], "earmark: Missing argument 'pools|networks|datasets|formats|recipes|settings|encoders'."),
        (["demo", "--out", "/dev/null/x"], "earmark: /dev/null/x: cannot create this folder: Not a directory\n"),
        (["synth", "durationz", "x"], "earmark: recipe='durationz' is not known; did you mean 'durations'?"),
        (["synth", "my.toml", "x"], "earmark: my.toml: no such file\n"),
        (["train", "nowhere", "--out", "x"], "earmark: nowhere: no such file or folder\n"),
        (["train", "nowhere", "--out", "x", "--from", "nope"], "earmark: --from: nope: no such folder; expected"),
        (["train", "nowhere", "--out", "x", "--resume"], "earmark: nowhere: no such file or folder\n"),
        (
            ["train", "nowhere", "--out", "x", "--set", "epochs"],
            "earmark: --set: expected KEY=VALUE, such as epochs=20, got 'epochs'",
        ),
        (["train", "nowhere", "--out", "x", "--set", "epoch=3"], "earmark: setting='epoch' is not known; did you"),
        (["train", "nowhere", "--out", "x", "--pool", "atuo"], "earmark: pool='atuo' is not known; did you mean"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(args, message, tmp_path):
    done = earmark(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_of_processes_that_train_together_one_speaks(tmp_path, monkeypatch):
    for rank, said in (("0", "earmark: nowhere: no such file or folder\n"), ("1", "")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        done = earmark("train", "nowhere", "--out", "x", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.slow
def test_demo_tells_the_story_and_leaves_what_it_promises(shown):
    done, out = shown
    assert done.returncode == 0, done.stderr
    assert all(re.match(r"[a-z]+: \d", line) for line in done.stderr.splitlines()), done.stderr  # progress alone
    for word in ("gun_shot", "engine_idling", "RAP", "one-second segments", "detected with", "Done in"):
        assert word in done.stdout
    for name in ("report.html", "detection/report.html", "detection/events.csv", "learned_alpha.png", "results.csv"):
        assert (out / name).stat().st_size > 0
        assert f"{name}\n" in done.stdout or name.endswith("csv")
    assert len(list((out / "cells").iterdir())) == 5
    with Ledger(
        out / "detection" / "ledger.sqlite", read_only=True
    ) as ledger:  # so that the next demo may replace them
        assert "report.html" in ledger.views()
        assert any(path.startswith("figures/") for path in ledger.views())


@pytest.mark.slow
def test_the_demo_in_the_readme_is_the_demo(shown):
    """Where docs/demo.md shows it: text and columns; numbers and what depends on them are those of the full demo."""
    done, _ = shown
    text = (Path(__file__).parents[1] / "docs" / "demo.md").read_text()
    recorded = "".join(re.findall(r"```text\n(\d+ soundscapes of ten seconds.*?)```", text, re.S))

    def plain(text):
        lines = (re.sub(r"[\d.▇]+", "#", " ".join(line.split())) for line in text.splitlines())
        return [line.replace("# #", "#").replace("-#", "#") for line in lines]

    depends = (
        r"# \w+ #$|.*(means of|trained with|better|No difference|distinguishable|Best|Highest|with duration"
        r"|higher than|between|detected|more in|Done|:)"
    )
    told = set(plain(done.stdout))
    for line in plain(recorded):
        assert line in told or re.match(depends, line), line


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    """A folder of recordings, and a place of its own for features."""
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "été au marais"
    write_example(folder)
    return folder


@pytest.mark.filterwarnings("always")
def test_labels_and_recordings_without_partner_are_a_line_each(recordings):
    with open(recordings / "labels.tsv", "a") as file:
        file.write("north/gone.wav\t\t\tsiren\ttrain\n")
    (recordings / "new.wav").write_bytes((recordings / "north" / "night01.wav").read_bytes())
    done = earmark("train", recordings, "--out", recordings.parent / "run", *SHORT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"earmark: {recordings}/labels.tsv: skipped 1 of 13 labelled files (no recording): north/gone.wav",
        f"earmark: {recordings}: skipped 1 of 13 recordings (no labels): new.wav",
    ]


@pytest.mark.filterwarnings("always")
def test_the_same_warning_is_said_once(recordings):
    lines = (recordings / "labels.tsv").read_text().replace("siren", "sirène")
    (recordings / "labels.tsv").write_bytes(lines.encode("latin-1"))
    done = earmark("train", recordings, "--out", recordings.parent / "run", *SHORT)
    assert done.stderr.startswith(f"earmark: {recordings}/labels.tsv:3: not UTF-8; read as Latin-1.")
    assert done.stderr.count("\n") == 1


def test_too_little_memory_is_one_line(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise MemoryError("Unable to allocate 58.2 TiB")

    monkeypatch.setattr("earmark.synthesis.synthesise", fail)
    done = earmark("synth", "urban-sed", tmp_path / "out")
    assert (done.returncode, done.stderr) == (2, "earmark: not enough memory: Unable to allocate 58.2 TiB\n")


@pytest.mark.filterwarnings("always")
def test_a_warning_about_a_table_of_events_is_one_line_too(tmp_path):
    (tmp_path / "events.csv").write_bytes(b"split,clip,label,src,time,snr,edur\ntrain,\xe9t\xe9,siren,,1,5,1\n")
    done = earmark("synth", tmp_path / "events.csv", tmp_path / "out", "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"earmark: {tmp_path}/events.csv:2: not UTF-8; read as Latin-1.")
    assert done.stderr.count("\n") == 1


def test_a_run_is_not_trained_over_but_resumed_with_its_own_settings(recordings):
    run = recordings.parent / "run"
    assert earmark("train", recordings, "--out", run, "--pool", "max", *SHORT).returncode == 0
    again = earmark("train", recordings, "--out", run, "--pool", "max", *SHORT)
    assert again.returncode == 2
    remedy = "continue it with --resume (resume=True), or choose another folder"
    assert again.stderr == f"earmark: {run} already contains a run; {remedy}\n"
    on = earmark("train", recordings, "--out", run, "--resume", "--set", "epochs=2", "--json")
    assert on.returncode == 0, on.stderr
    assert json.loads(on.stdout)["epochs"] == 2
    other = earmark("train", recordings, "--out", run, "--resume", "--pool", "mean")
    assert other.returncode == 2
    assert "was started with pool.name = max, got mean" in other.stderr


def test_force_is_mentioned_by_commands_that_have_it(recordings):
    run = recordings.parent / "run"
    (run / "figures").mkdir(parents=True)
    (run / "log.jsonl").write_text("not a log of earmark")
    done = earmark("train", recordings, "--out", run, *SHORT)
    assert done.stderr == (
        f"earmark: {run}/log.jsonl exists, and earmark did not write it or it was changed since; move it or choose "
        "another place\n"
    )
    events = recordings / "labels.tsv"
    (run / "scores.json").write_text("not scores of earmark")
    done = earmark("evaluate", events, events, "--split", "all", "--out", run)
    assert done.stderr.endswith("changed since; move it, or use --force (force=True) to replace it\n")


def test_a_command_with_spaces_in_it_is_kept_so_that_it_can_be_typed_again(recordings):
    run = recordings.parent / "run"
    assert earmark("train", recordings, "--out", run, *SHORT).returncode == 0
    command = read_model_info(run / "model.safetensors")["provenance"]["command"]
    assert shlex.split(command)[:3] == ["earmark", "train", str(recordings)]


def test_an_interrupted_demo_ends(tmp_path, monkeypatch):
    import earmark.demo

    monkeypatch.setattr(earmark.demo, "synthesise", lambda *args, **options: None)
    monkeypatch.setattr(earmark.demo, "run_grid", lambda *args, **options: False)
    with pytest.raises(KeyboardInterrupt, match="run the same command again to continue"):
        earmark.demo.run(tmp_path, clips=20, at_once=1)


def test_commands_import_only_what_they_need():
    """Parts of SciPy, PyTorch's compiler, and plots, take longer to import than most commands take to run."""
    heavy = ("matplotlib", "pandas", "scipy.stats", "scipy.signal", "scipy.optimize", "sklearn", "torch._dynamo")
    code = f"import sys, earmark.api, earmark.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_modules_are_attributes_of_the_package():
    """As in `import earmark; earmark.evaluation.segment.evaluate(...)`; importing earmark itself imports none."""
    code = (
        "import earmark, sys; assert not any(name.startswith('earmark.') for name in sys.modules)\n"
        "rows = [('a.wav', 0.0, 1.0, 'dog')]\n"
        "print(earmark.evaluation.segment.evaluate(rows, rows, segment=1.0).overall.f1)\n"
        "assert not hasattr(earmark, 'evaluations') and not hasattr(earmark, '_evaluation')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr


def test_a_narrow_window_cuts_nothing_off():
    page = io.StringIO()
    table = Table([Column("a long heading"), Column("another one")], [[Cell("0.123456789"), Cell("0.987654321")]])
    console = make_console(file=page, width=20)
    console.print(table.to_rich())
    console.print("a line that is longer than the window")
    assert "…" not in page.getvalue()
    assert "   0.123456789 0.987654321\n" in page.getvalue()
    assert page.getvalue().endswith("a line that is longer than the window\n")
