"""The progress display: one line on a terminal, a line now and then in a log, nothing with --json."""

import sys

import pytest

from earmark.cli import display
from earmark.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


def test_long_stages_are_logged_now_and_then(clock, capsys):
    with display.live_display() as show:
        for k in range(3):  # short
            show(Progress("loading", k, 2, "files"))
        for k in range(101):  # 100 s
            show(Progress("features", k, 100, "clips"))
            clock[0] += 1
        show(Progress("evaluating"))
        show.print("Note: hello")
    printed, logged = capsys.readouterr()
    assert printed == ""
    assert logged.splitlines() == [
        "features: 10/100 clips, 1 min 30 s left",
        "features: 40/100 clips, 1 min 00 s left",
        "features: 70/100 clips, 30 s left",
        "features: 100/100 clips, 1 min 40 s in all",
        "Note: hello",
    ]


def test_days_of_work_do_not_fill_the_log(clock, capsys):
    with display.live_display() as show:
        for k in range(8 * 3600):
            show(Progress("training", k / 3600, 8, "epochs", "loss 0.1"))
            clock[0] += 1
    lines = capsys.readouterr().err.splitlines()
    assert 50 < len(lines) < 250
    assert lines[1] == "training: 0.01/8 epochs, loss 0.1, 40 s so far"
    assert lines[15].endswith(" left")


def test_quiet_is_quiet(clock, capsys):
    with display.live_display(quiet=True) as show:
        for k in range(100):
            show(Progress("features", k, 100))
            clock[0] += 10
        show.print("Note: hello")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_one_line_that_changes_its_stage(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with display.live_display() as show:
        bar = show._bar
        for stage, total in (("features", 24), ("features", 8), ("training", 2), ("evaluating", None)):
            show(Progress(stage, 0, total, "clips"))
            (task,) = bar.tasks
            assert (task.description, task.total, task.completed) == (stage, total, 0)
            show(Progress(stage, 1, total, "clips"))
            (task,) = bar.tasks
            assert task.completed == 1
