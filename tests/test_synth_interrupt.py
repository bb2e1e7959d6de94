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


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def begin():
    """Start the command in a session of its own; whatever it leaves is ended with the test."""
    running = []

    def call(*words):
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "earmark.cli", "synth", *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
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


def wait_for(process, folder, pattern, n=1):
    """Until so many files are there."""
    end = time.monotonic() + 60
    while len(list(folder.glob(pattern))) < n:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def ended(process):
    """Exit code and what was said. Workers hold its standard error too: this would not return while one lives."""
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def done(folder):
    """Clips whose two files are there, and when they were written."""
    sounds = {path.stem: path.stat().st_mtime_ns for path in folder.glob("audio/*/[!.]*.flac")}
    return {path.stem: sounds[path.stem] for path in folder.glob("annotations/*/[!.]*.jams") if path.stem in sounds}


def drafts(folder):
    return list(folder.rglob(".*"))


@pytest.mark.parametrize("send", [ALL, FIRST])
def test_it_ends_with_one_line_and_what_is_there_is_whole(send, begin, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 2)
    wait_for(process, out, "audio/train/[!.]*.flac", 2)
    send(process.pid, signal.SIGINT)
    with suppress(ProcessLookupError):  # it may be over
        send(process.pid, signal.SIGINT)  # `timeout -s INT` sends two, and so do people
    code, said, err = ended(process)
    assert (code, said) == (130, "")
    found = re.fullmatch(
        rf"earmark: interrupted; (\d+) of {CLIPS} soundscapes are done; the same command goes on\n", err
    )
    assert found, err
    assert drafts(out) == []
    assert not (out / "labels.tsv").exists()
    for path in out.rglob("*.flac"):
        assert len(audio.read(path)) == 44100
    before = done(out)
    assert len(before) == int(found[1]) >= 2

    def stop(n, total):
        if n > len(before):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=rf"\d+ of {CLIPS} soundscapes are done"):  # it goes on, and keeps them
        synthesise(recipe, out, workers=1, progress=stop)
    after = done(out)
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before


def test_it_ends_while_its_workers_start(begin, recipe, tmp_path):
    """They import for a second or more, and an interrupted import prints where it was."""
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 3)
    wait_for(process, out, "annotations/test")
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (
        130,
        f"earmark: interrupted; 0 of {CLIPS} soundscapes are done; the same command goes on\n",
    )


def test_without_workers_it_ends_the_same_way(begin, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 1, "--json")
    wait_for(process, out, "audio/train/[!.]*.flac")
    os.kill(process.pid, signal.SIGINT)
    code, said, err = ended(process)
    assert (code, said) == (130, "")
    assert err == f"earmark: interrupted; {len(done(out))} of {CLIPS} soundscapes are done; the same command goes on\n"
    assert drafts(out) == []


def test_workers_end_with_a_parent_that_is_killed(begin, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 2)
    wait_for(process, out, "audio/train/[!.]*.flac")
    process.kill()
    code, _, err = ended(process)
    assert code == -signal.SIGKILL
    assert "Traceback" not in err


def workers_of(process):
    """Their numbers, from what the system says of every process."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may be over
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == process.pid and b"spawn_main" in (place / "cmdline").read_bytes():
                yield int(place.name)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes cannot be listed here")
def test_a_worker_that_dies_is_one_line_and_the_same_command_goes_on(begin, recipe, tmp_path):
    out = tmp_path / "out"
    process = begin(recipe, out, "--workers", 2)
    wait_for(process, out, "audio/train/[!.]*.flac", 2)
    mine = out / "audio" / "train" / ".my-settings.flac"
    mine.write_text("")
    os.kill(next(workers_of(process)), signal.SIGKILL)
    code, said, err = ended(process)
    assert (code, said) == (2, "")
    assert err == "earmark: a worker process died, perhaps for want of memory; the same command goes on\n"
    assert drafts(out) == [mine]
    before = done(out)

    def stop(n, total):
        if n > len(before):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesise(recipe, out, workers=1, progress=stop)
    assert {name: done(out)[name] for name in before} == before


def test_before_anything_is_made_there_is_nothing_to_count(monkeypatch, capsys, tmp_path):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("earmark.synthesis.synthesise", interrupt)
    monkeypatch.setattr(sys, "argv", ["earmark", "synth", "urban-sed", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "earmark: interrupted; the same command goes on\n"
