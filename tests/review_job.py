"""A detection job of made-up sound, for tests of `earmark review`; and a browser."""

import shutil
from contextlib import contextmanager

import numpy as np
import pytest

from earmark import audio
from earmark.annotations import Label
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import JobFolder
from earmark.files import json_text
from earmark.inference.scores import RecordingScores, write_scores
from earmark.reviewing.running import Address, start_review

RATE = 8000
CLASSES = ("owl", "dog")
EVENTS = [(1.0, 2.0, "owl", 0.9), (3.0, 3.5, "dog", 0.6), (5.0, 6.5, "owl", 0.7), (8.0, 8.4, "dog", 0.4)]
NAMES = ("20260514_221500.wav", "b <i>old</i>.wav".replace("/", "\N{FRACTION SLASH}"))


def make_job(folder, *, events=EVENTS, seconds=10.0, names=NAMES, classes=CLASSES):
    """A job whose recordings have tones where their events are."""
    sound = 0.001 * np.random.default_rng(0).normal(size=int(seconds * RATE))
    for onset, offset, label, _ in events[:100]:
        t = np.arange(int(onset * RATE), min(int(offset * RATE), len(sound)))
        sound[t] += 0.3 * np.sin(2 * np.pi * (600 if label == "owl" else 2000) * t / RATE)
    job = JobFolder(folder / "found")
    (folder / "sound").mkdir(parents=True)
    job.root.mkdir()
    frames = int(seconds * 10)
    p = np.full((frames, len(classes)), 0.05, np.float32)
    for onset, offset, label, confidence in events:
        p[int(onset * 10) : int(offset * 10), classes.index(label)] = confidence
    with Ledger(job.ledger) as ledger:
        ledger.set_about({"decoder": "test"})
        for name in names:
            path = folder / "sound" / name
            audio.write(path, sound.astype(np.float32), RATE)
            ledger.add([(path, name)])
            rows = [Label(name, onset, offset, label, True, c) for onset, offset, label, c in events]
            ledger.finish(path, rows, status=path.stat(), duration=seconds, scores=True)
            job.scores(name).parent.mkdir(exist_ok=True)
            write_scores(job.scores(name), RecordingScores(name, tuple(classes), p, 0.1, 1, frames, seconds))
    job.about.write_text(json_text({"classes": list(classes), "decoder": {"threshold": 0.5}, "model": None}))
    return job.root


def write_job_events(root, events, *, seconds=10.0):
    """Replace the events of all recordings of a job, as another detection does."""
    with Ledger(JobFolder(root).ledger) as ledger:
        for entry in list(ledger.entries("done")):
            rows = [Label(entry.name, onset, offset, label, True, c) for onset, offset, label, c in events]
            ledger.finish(entry.path, rows, status=entry.path.stat(), duration=seconds, scores=True)


@contextmanager
def served(place, **options):
    """A review of a job, at a free port."""
    address = options.pop("address", Address(port=0))
    with start_review(place, browser=False, address=address, **options) as server:
        yield server


@contextmanager
def chromium():
    """The system's chromium, driven by Playwright; the test is skipped without one."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no chromium on PATH")
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--autoplay-policy=no-user-gesture-required", "--mute-audio"]
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()
