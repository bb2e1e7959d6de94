"""Draws docs/images/review-*.png: pages of `earmark review` with made-up calls. Needs chromium and the extra dev.

python tools/review_screenshots.py [OUT]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from earmark import audio
from earmark.annotations import Label
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import JobFolder
from earmark.files import json_text
from earmark.inference.scores import RecordingScores, write_scores
from earmark.reviewing.running import Address, start_review

RATE, SECONDS, HOP = 22050, 180, 0.1
CLASSES = ("tawny owl", "nightjar", "fox", "rain")
LENGTHS = (1.6, 5.0, 0.8)  # seconds of a call
NAMES = ("20260514_213000.flac", "20260514_223000.flac", "20260514_233000.flac")

KEYS = {"review": ("y", "y", "x", "y", "-", "-"), "review-dark": ("w", "k"), "review-grid": ("g",)}


def call(kind: int, t: Any, length: float) -> Any:
    """The sound of a call at times from its start."""
    swell = np.sin(np.pi * np.clip(t / length, 0, 1)) ** 0.5
    if kind == 0:  # a wavering hoot
        return swell * np.sin(2 * np.pi * (780 * t + 9 * np.sin(2 * np.pi * 5 * t) / 5)) * (t % 0.9 < 0.7)
    if kind == 1:  # a churr
        return swell * np.sin(2 * np.pi * 1900 * t) * (np.sin(2 * np.pi * 31 * t) > 0)
    harmonics = sum(np.sin(2 * np.pi * 520 * k * (t - 0.2 * t**2)) / k for k in range(1, 7))
    return swell * harmonics


def make_job(root: Path) -> Path:
    """A job in which most calls are detected."""
    job = JobFolder(root / "marsh-found")
    job.root.mkdir()
    rng = np.random.default_rng(4)
    with Ledger(job.ledger) as ledger:
        ledger.set_about({"decoder": "screenshots"})
        for name in NAMES:
            sound = 0.002 * rng.normal(size=SECONDS * RATE)
            p = (0.03 + 0.04 * rng.random((round(SECONDS / HOP), len(CLASSES)))).astype(np.float32)
            events = []
            for _ in range(24):
                kind, onset = int(rng.integers(0, 3)), float(rng.uniform(1, SECONDS - 9))
                length = LENGTHS[kind] * float(rng.uniform(0.7, 1.4))
                t = np.arange(round(length * RATE)) / RATE
                first = round(onset * RATE)
                sound[first : first + len(t)] += 0.1 * float(rng.uniform(0.3, 1)) * call(kind, t, length)
                confidence = float(np.clip(rng.beta(4, 2), 0.3, 0.99))
                label = CLASSES[kind] if rng.random() > 0.15 else CLASSES[int(rng.integers(0, 4))]
                events.append(Label(name, round(onset, 3), round(onset + length, 3), label, True, confidence))
                frames = slice(round(onset / HOP), round((onset + length) / HOP))
                noise = 0.08 * rng.normal(size=frames.stop - frames.start)
                p[frames, CLASSES.index(label)] = np.clip(confidence + noise, 0, 1)
            path = root / name
            audio.write(path, np.clip(sound, -1, 1).astype(np.float32), RATE)
            ledger.add([(path, name)])
            events.sort(key=lambda event: event.onset or 0.0)
            ledger.finish(path, events, status=path.stat(), duration=float(SECONDS), scores=True)
            job.scores(name).parent.mkdir(exist_ok=True)
            scores = RecordingScores(name, CLASSES, p, HOP, 1, len(p), float(SECONDS))
            write_scores(job.scores(name), scores)
    job.about.write_text(json_text({"classes": CLASSES, "decoder": {"threshold": 0.5}}))
    return job.root


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(900)


def shrink(path: Path) -> None:
    """Save a picture with 256 colours: most of them common ones, and some rare ones, such as those of verdicts."""
    with Image.open(path) as picture:
        whole = picture.convert("RGB")
    common = whole.quantize(200, Image.Quantize.MEDIANCUT).getpalette() or []
    rare = whole.quantize(56, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette(common[: 3 * 200] + rare[: 3 * 56])
    whole.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "images"
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        found = make_job(Path(folder))
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with start_review(found, browser=False, address=Address(port=0)) as server:
            size: ViewportSize = {"width": 1366, "height": 800}
            for name in KEYS:
                theme: Literal["light", "dark"] = "light" if name == "review" else "dark"
                context = browser.new_context(viewport=size, color_scheme=theme)
                page = context.new_page()
                page.goto(server.url)
                page.evaluate("localStorage.setItem('reviewer', 'ada')")
                page.reload()
                page.wait_for_timeout(3000)
                press(page, *KEYS[name])
                page.wait_for_timeout(4000)
                page.screenshot(path=out / f"{name}.png")
                shrink(out / f"{name}.png")
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
