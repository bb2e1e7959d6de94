"""Control characters in names never reach a terminal or a pipe: they are shown as escapes."""

import json
import os
import pty
import sys

import numpy as np
import pytest
import torch
import warm

from earmark import audio
from earmark.checkpoint import save_detector
from earmark.detector import Detector
from earmark.features import FeatureConfig
from earmark.files import json_text
from earmark.networks import create_network
from earmark.pooling import create_pool
from earmark.tables import Cell, Column, Table
from earmark.text import printable

HOSTILE = {
    "title": "\x1b]0;title\x07",
    "clear": "\x1b[2J",
    "c1": "\x9b31m",
    "delete": "\x7f\x08",
    "bidi": "\u202egpj.exe",
    "isolate": "\u2066x\u2069",
    "zero width": "do\u200bg\u2060\ufeff",
    "joined": "d\u200dog",
}
HARMLESS = ["näme", "鸟", "👩\u200d🌾", "\u0645\u06cc\u200c\u062e", "a\u00a0b", "back\\slash"]


def shown_by(code, *, on_terminal, cwd="."):
    """Standard output and error, together, of Python code in a separate process."""
    words = [sys.executable, "-c", code]
    if not on_terminal:
        done = warm.run(words, stdout=warm.PIPE, stderr=warm.STDOUT, cwd=cwd)
        assert done.returncode == 0
        return done.stdout
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm"}
    with warm.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environment) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            parts.append(part)
        os.close(ours)
    assert process.returncode == 0
    return b"".join(parts)


@pytest.mark.parametrize("name", HOSTILE)
def test_every_hidden_character_is_shown(name):
    shown = printable(HOSTILE[name])
    assert shown.isprintable()
    assert all(ord(char) < 128 for char in shown)
    assert shown.encode().decode("unicode_escape") == HOSTILE[name]


@pytest.mark.parametrize("name", HARMLESS)
def test_other_scripts_and_emoji_stay(name):
    assert printable(name) == name


def test_undecodable_file_names_can_be_printed():
    code = "from earmark.cli.terminal import escaped_output\nwith escaped_output(): print('a\\udcff.wav')"
    assert shown_by(code, on_terminal=False) == b"a\\udcff.wav\n"


@pytest.mark.parametrize("on_terminal", [False, True])
def test_print_warnings_consoles_and_progress_are_escaped(on_terminal):
    code = f"""
import sys, warnings
from earmark.cli.display import live_display
from earmark.cli.terminal import escaped_output, make_console
from earmark.progress import Progress
from earmark.tables import Cell, Column, Table

name = "<" + {"".join(HOSTILE.values())!r} + ">"
with escaped_output():
    print("print", name)
    print("error", name, file=sys.stderr)
    warnings.warn(name)
    make_console().print(name, style="bold")
    make_console().print(Table([Column(name, is_text=True)], [[Cell(name)]]).to_rich())
    with live_display() as display:
        display(Progress("stage " + name, 1, 2, "clips", name))
        print("during", name)
        display.print("note " + name)
"""
    shown = shown_by(code, on_terminal=on_terminal).decode()
    whole = printable("<" + "".join(HOSTILE.values()) + ">")
    assert shown.count(whole) >= 8
    for hostile in HOSTILE.values():
        assert hostile not in shown
    assert "\x1b]" not in shown
    assert ("\x1b[1m" in shown) == on_terminal  # rich's own bold


@pytest.fixture
def model(tmp_path):
    """A detector that always detects both of its classes."""
    features = FeatureConfig(rate=8000, n_bands=64, scaling="fixed")
    classes = [HOSTILE["title"] + "owl", HOSTILE["c1"] + HOSTILE["bidi"] + HOSTILE["delete"]]
    detector = Detector(classes, features, create_network("cnn", 64), create_pool("max", 2)).eval()
    with torch.no_grad():
        detector.head.weight.zero_()
        detector.head.bias.fill_(5.0)
    save_detector(tmp_path / "model.safetensors", detector, network={"name": "cnn"}, pool={"name": "max"})
    audio.write(tmp_path / "night.wav", np.zeros(8000), 8000)
    os.rename(tmp_path / "night.wav", tmp_path / "ni\x1b[2Jght.wav")
    return classes


@pytest.mark.parametrize("on_terminal", [False, True])
def test_a_command_shows_hostile_names(tmp_path, model, on_terminal):
    code = """
import sys
from earmark.cli import main
sys.argv = ["earmark", "detect", "model.safetensors", "ni\\x1b[2Jght.wav", "ni\\x1b[2Jght.wav"]
main()"""
    shown = shown_by(code, on_terminal=on_terminal, cwd=tmp_path).decode()
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    for label in model:
        assert printable(label) in shown


def test_json_is_escaped_and_still_json(tmp_path, model):
    code = """
import sys
from earmark.cli import main
sys.argv = ["earmark", "detect", "model.safetensors", "ni\\x1b[2Jght.wav", "--json"]
main()"""
    shown = shown_by(code, on_terminal=False, cwd=tmp_path).decode()
    assert shown.isascii()
    assert shown[:-1].isprintable()
    assert {event["label"] for event in json.loads(shown)["events"]} == set(model)
    assert json.loads(json_text("".join(HOSTILE.values()))) == "".join(HOSTILE.values())


def test_columns_of_tables_stay_aligned():
    from earmark.cli.terminal import make_console

    table = Table(
        [Column("class", is_text=True), Column("F1")], [[Cell("\x1b[2J"), Cell("0.5")], [Cell("a"), Cell("1")]]
    )
    console = make_console()
    with console.capture() as capture:
        console.print(table.to_rich())
    assert len({len(line.rstrip()) for line in capture.get().splitlines()}) == 1
