"""`earmark doctor`, for bug reports; and completion of commands in shells."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from earmark import __version__, doctor


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Folders of earmark's own, which do not exist yet."""
    monkeypatch.setenv("EARMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_says_what_a_bug_report_needs(place, earmark):
    code, out, err = earmark("doctor", "--json")
    found = json.loads(out)
    assert (code, err, found["problems"]) == (0, "", [])
    assert found["earmark"] == __version__
    assert {"numpy", "torch", "soundfile"} <= found["packages"]["core"].keys()
    assert found["devices"][0]["name"] == "cpu"
    assert {encoder["name"]: encoder["present"] for encoder in found["encoders"]}["mn04"] is False
    assert found["places"][1] | {"free": 0} == {
        "name": "data",
        "path": str(place / "home"),
        "writable": True,
        "free": 0,
    }
    assert not list(place.iterdir())  # nothing was made


def test_prints_it_as_text(place, earmark, monkeypatch):
    monkeypatch.setenv("EARMARK_TOKEN", "swordfish")
    code, out, _ = earmark("doctor")
    assert code == 0
    assert out.startswith(f"earmark      {__version__}\n")
    assert out.endswith("No problems found\n")
    assert "EARMARK_TOKEN=(hidden)" in out
    assert "swordfish" not in out


def test_problems_have_a_line_each_and_exit_code_1(place, earmark, monkeypatch):
    (place / "home").write_text("a file, where the folder should be")
    monkeypatch.setattr(doctor, "_packages", lambda: {"core": {"soxr": None}})
    monkeypatch.setattr("soundfile.available_formats", lambda: {"WAV": "", "FLAC": "", "OGG": ""})
    code, out, err = earmark("doctor")
    assert (code, err) == (1, "")
    problems = [line.removeprefix("PROBLEM").strip() for line in out.splitlines() if line.startswith("PROBLEM")]
    assert problems[0] == "required packages are not installed: soxr; run: pip install earmark"
    assert problems[1].endswith("cannot read mp3; run: pip install -U soundfile")
    assert problems[2] == f"{place / 'home'}: earmark cannot write here (data)"


def test_a_folder_that_this_user_may_not_enter_is_a_problem(place, monkeypatch):
    real = Path.is_file

    def is_file(path):
        if path.is_relative_to(place):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    monkeypatch.setattr(Path, "exists", is_file)
    monkeypatch.setattr(os, "access", lambda path, mode: path != place)
    assert f"{place / 'home'}: earmark cannot write here (data)" in doctor.examine()["problems"]


def test_a_home_of_nobody_is_one_line(earmark, monkeypatch):
    monkeypatch.setenv("EARMARK_HOME", "~nobody-of-this-name/earmark")
    code, _, err = earmark("doctor")
    assert (code, err.count("\n")) == (2, 1)
    assert "EARMARK_HOME: expected a folder, got '~nobody-of-this-name/earmark'" in err


def test_works_without_pytorch(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert doctor.examine()["devices"] == []


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [("earmark eva", 1, ["evaluate"]), ("earmark train --res", 2, ["--resume"])],
)
def test_bash_completes_commands_and_options(words, position, expected, earmark, monkeypatch):
    for name, value in {"_EARMARK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": position}.items():
        monkeypatch.setenv(name, str(value))
    code, out, _ = earmark()
    assert (code, out.split()) == (0, expected)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell, earmark, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    code, out, _ = earmark("--show-completion", shell)
    assert code == 0
    assert "_EARMARK_COMPLETE=complete_" + shell in out
