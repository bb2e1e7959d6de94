"""The command line, by what it prints and how it exits."""

import json
import subprocess
import sys

import pytest

from earmark import __version__
from earmark.pooling import POOLS


def earmark(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "earmark.cli", *map(str, args)], capture_output=True, text=True, cwd=cwd, timeout=300
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demo, run once."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return earmark("demo", "--out", out), out


def test_version():
    done = earmark("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"earmark {__version__}\n", "")


def test_list_pools_has_a_line_for_each():
    done = earmark("list", "pools")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(POOLS) >= 20
    assert lines[0].split()[0] == "max"
    assert all(len(line) <= 80 for line in lines)
    rows = json.loads(earmark("list", "pools", "--json").stdout)["pools"]
    assert [row["name"] for row in rows] == [line.split()[0] for line in lines]


def test_no_words_at_all_is_a_call_for_help():
    done = earmark()
    assert done.returncode == 0
    assert done.stdout == earmark("--help").stdout


@pytest.mark.parametrize("command", [[], ["list"], ["demo"]])
def test_help_has_an_example(command):
    done = earmark(*command, "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert not command or f"Example: earmark {command[0]}" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["list", "polls"], "earmark: list='polls' is not known; did you mean 'pools'? Choose from: pools\n"),
        (["lisst"], "earmark: No such command 'lisst'."),
        (["list", "pools", "--jsn"], "earmark: No such option: --jsn"),
        (["list"], "earmark: Missing argument 'pools'."),
        (["demo", "--out", "/dev/null/x"], "earmark: /dev/null/x cannot be made a folder: Not a directory\n"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(args, message):
    done = earmark(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_demo_tells_the_story_and_draws_it(shown):
    done, out = shown
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # quiet when not a terminal
    for word in ("gun shot", "rain", "mean", "rap", "F1 on the frames", "Done in"):
        assert word in done.stdout
    names = {f.name for f in out.iterdir()}
    assert names == {f"{n}.{s}" for n in ("responsibilities", "weight_bounds", "learned_alpha") for s in ("png", "svg")}


def test_what_the_demo_says_is_true(tmp_path):
    """Its closing words, checked on its own numbers."""
    told = json.loads(earmark("demo", "--out", tmp_path, "--json").stdout)
    lessons = {lesson["pool"]: lesson for lesson in told["lessons"]}
    mean, maximum, rap = (lessons[name]["frame_f1"] for name in ("mean", "max", "rap"))
    assert mean[0] < 0.3 < maximum[0]  # mean-pooling cannot find what is short
    assert maximum[-1] < mean[-1] - 0.1  # max-pooling loses what is long
    assert sum(rap) > max(sum(mean), sum(maximum))
    for name in ("auto", "rap"):  # the shorter, the larger alpha
        assert lessons[name]["alpha"] == sorted(lessons[name]["alpha"], reverse=True)
    cap = lessons["cap"]["alpha"]
    assert max(cap) == pytest.approx(min(cap[:-1])) == pytest.approx(3.8918, abs=1e-3)  # on its bound, all but rain
