"""Ctrl-C while soundscapes are made: sent to all processes, as a terminal does, or to the first alone."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from earmark import audio
from earmark.cli import main
from earmark.synthesis import synthesise

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups")
ALL, FIRST = (pytest.param(send, id=name) for send, name in ((os.killpg, "all"), (os.kill, "first")))
CLIPS = 200
RECIPE = f"""
duration = 1.0
[splits]
train = {CLIPS}
[events]
count = ["const", 1]
time = ["uniform", 0, 0.5]
duration = ["uniform", 0.3, 0.5]
snr = ["uniform", 10, 20]
"""
COMMAND = """
import atexit, signal, time
from earmark.cli import main
from earmark.synthesis.job import _Maker

make = _Maker.make


def make_some(maker, soundscape):
    while len(list(maker.out.glob("audio/train/[!.]*.flac"))) >= 20:
        time.sleep(0.01)
    return make(maker, soundscape)


make_some.__name__ = "make"  # under which workers, which begin with this file too, look it up
_Maker.make = make_some
if __name__ == "__main__":
    atexit.register(signal.raise_signal, signal.SIGINT)  # called last
    main()
"""
# After 20 clips all others wait, so that it is at work whenever a signal comes. Ctrl-C is pressed again while Python
# ends: `timeout -s INT` sends two, and so do people.
INTERRUPTED = rf"earmark: interrupted; (\d+) of {CLIPS} soundscapes are done; run the same command again to continue\n"
LIMIT = 300  # seconds; only so that nothing waits for ever


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def begin(tmp_path):
    """Start the command in a session of its own; whatever it leaves is ended with the test."""
    (tmp_path / "command.py").write_text(COMMAND)
    running = []

    def call(*words):
        with (tmp_path / "said").open("w") as said:
            running.append(
                subprocess.Popen(
                    [sys.executable, str(tmp_path / "command.py"), "synth", *map(str, words)],
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                    start_new_session=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
            )
        return running[-1]

    yield call
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def said(tmp_path):
    """Reads what the command says on standard error, apart from progress, which is logged where it takes long."""

    def read():
        lines = (tmp_path / "said").read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("soundscapes: "))

    return read


def wait_until(process, is_so):
    end = time.monotonic() + LIMIT
    while not is_so():
        assert process.poll() is None or is_so()
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_for_clips(process, folder, n=1):
    """Until the sound of so many is there."""
    wait_until(process, lambda: len(list(folder.glob("audio/train/[!.]*.flac"))) >= n)


def ended(process):
    """Exit code and what was printed. Workers hold its standard output too: this does not return while one lives."""
    printed, _ = process.communicate(timeout=LIMIT)
    return process.returncode, printed


def done(folder):
    """Clips whose two files are there, and when they were written."""
    sounds = {path.stem: path.stat().st_mtime_ns for path in folder.glob("audio/*/[!.]*.flac")}
    return {path.stem: sounds[path.stem] for path in folder.glob("annotations/*/[!.]*.jams") if path.stem in sounds}


def drafts(folder):
    return [path for path in folder.rglob(".*") if path.name not in (".lock", ".earmark.jsonl")]


@pytest.mark.parametrize("send", [ALL, FIRST])
def test_it_ends_with_one_line_and_what_is_there_is_whole(send, begin, said, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 2)
    wait_for_clips(process, out, 2)
    send(process.pid, signal.SIGINT)
    assert ended(process) == (130, "")
    found = re.fullmatch(INTERRUPTED, said())
    assert found, said()
    assert drafts(out) == []
    assert not (out / "labels.tsv").exists()
    for path in out.rglob("*.flac"):
        assert len(audio.read(path)) == 44100
    before = done(out)
    assert len(before) == int(found[1]) >= 2

    def stop(progress):
        if progress.done > len(before):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=rf"\d+ of {CLIPS} soundscapes are done"):  # it goes on, and keeps them
        synthesise(recipe, out, workers=1, on_progress=stop)
    after = done(out)
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before


def workers_of(process):
    """Their numbers, from what the system says of every process."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may be over
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == process.pid and b"spawn_main" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes cannot be listed here")
def test_it_ends_while_its_workers_start(begin, said, recipe, tmp_path):
    """They import for a second or more, and an interrupted import prints where it was."""
    process = begin(recipe, tmp_path / "out", "--workers", 3)
    wait_until(process, lambda: workers_of(process))
    os.killpg(process.pid, signal.SIGINT)
    assert ended(process) == (130, "")
    assert re.fullmatch(INTERRUPTED, said()), said()


def test_without_workers_it_ends_the_same_way(begin, said, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 1, "--json")
    wait_for_clips(process, out)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == (130, "")
    found = re.fullmatch(INTERRUPTED, said())
    assert found, said()
    assert int(found[1]) == len(done(out))
    assert drafts(out) == []


def test_workers_end_with_a_parent_that_is_killed(begin, said, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 2)
    wait_for_clips(process, out)
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    assert "Traceback" not in said()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes cannot be listed here")
def test_a_worker_that_dies_is_one_line_and_the_same_command_goes_on(begin, said, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 2)
    wait_for_clips(process, out, 2)
    mine = out / "audio" / "train" / ".my-settings.flac"
    mine.write_text("")
    os.kill(workers_of(process)[0], signal.SIGKILL)
    assert ended(process) == (2, "")
    assert said() == (
        "earmark: a worker process died, possibly out of memory; run the same command again to continue\n"
    )
    assert drafts(out) == [mine]
    before = done(out)

    def stop(progress):
        if progress.done > len(before):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesise(recipe, out, workers=1, on_progress=stop)
    assert {name: done(out)[name] for name in before} == before


def test_before_anything_is_made_there_is_nothing_to_count(monkeypatch, capsys, tmp_path):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("earmark.synthesis.synthesise", interrupt)
    monkeypatch.setattr(sys, "argv", ["earmark", "synth", "urban-sed", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "earmark: interrupted; run the same command again to continue\n"
