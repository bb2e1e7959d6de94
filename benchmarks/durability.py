"""The cost of surviving a power cut: writes and detection jobs with and without waiting for the disk.

    python benchmarks/durability.py [--files 200] [--rounds 3] [--folder DIR]

Files are flushed before they replace others, folders after that, and the ledger of a job commits with `synchronous =
FULL`. The variant without flushing is the same code with a replaced `fsync` and `synchronous = OFF`; files then survive
the end of the process, but not that of the machine. Both take turns; the median of several rounds is reported. The disk
is that of DIR, by default that of the folder for temporary files; a RAM disk flushes at no cost, so the kind of file
system is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
from measuring import timed

from earmark import audio
from earmark.detection.detector import SoundDetector
from earmark.detection.job import run_job
from earmark.detection.ledger import Ledger
from earmark.detector import Detector
from earmark.features import FeatureConfig
from earmark.files import written_whole
from earmark.inference.torch_scorer import TorchScorer
from earmark.networks import create_network
from earmark.pooling import create_pool

RATE, SECONDS = 22050, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        root, files = Path(place), arguments.files
        kind = subprocess.run(["stat", "-f", "-c", "%T", root], capture_output=True, text=True).stdout.strip()
        print(f"{files} files on {kind or 'an unknown file system'}, {arguments.rounds} rounds, ms per file\n")
        sounds = make_recordings(root / "recordings", files)
        features = FeatureConfig(rate=RATE, n_bands=40)
        detector = Detector(["a"], features, create_network("cnn", 40, width=4), create_pool("auto", 1))
        model = SoundDetector(TorchScorer(detector, device="cpu"))
        number = iter(range(1000))

        def write() -> None:
            for k in range(files):
                with written_whole(root / f"{k}.txt") as draft:
                    draft.write_bytes(bytes(10_000))

        def detect() -> None:
            run_job(model, [sounds], root / f"out{next(number)}")

        for name, work in (("files of 10 kB", write), (f"recordings of {SECONDS} s, detected", detect)):
            compare(name, work, files, arguments.rounds)


def make_recordings(folder: Path, files: int) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for k in range(files):
        audio.write(folder / f"{k}.wav", 0.1 * rng.standard_normal(RATE * SECONDS), RATE)
    return folder


def compare(name: str, work: Callable[[], None], files: int, rounds: int) -> None:
    durable, careless = [], []
    for _ in range(rounds):
        durable.append(timed(work))
        with mock.patch.object(os, "fsync"), mock.patch.object(Ledger, "_set_up", without_flushing(Ledger._set_up)):
            careless.append(timed(work))
    ours, theirs = (1000 * statistics.median(times) / files for times in (durable, careless))
    print(f"{name:28} {ours:8.2f} durable {theirs:8.2f} not   {ours - theirs:+.2f} ms, {ours / theirs:.2f}x")


def without_flushing(set_up: Callable[..., None]) -> Callable[..., None]:
    def careless(ledger: Ledger, *arguments: bool) -> None:
        set_up(ledger, *arguments)
        ledger._database.execute("PRAGMA synchronous = OFF")

    return careless


if __name__ == "__main__":
    main()
