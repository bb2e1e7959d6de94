"""A detection job over many files, some of them damaged, that is killed halfway: its duration, and any data loss.

    python benchmarks/job.py [--files 500] [--damaged 10] [--seconds 5] [--model run/model.safetensors]

Creates a folder of short recordings (noise with tones, in five kinds of file), damages some, and runs `earmark detect`.
Once half of them are done the process is killed (SIGKILL), and the same command is run again. A second job over the
same files runs without interruption; both must write the same bytes. Without --model, an untrained network of the
paper's size is used.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import soundfile

from earmark import audio
from earmark.checkpoint import save_detector
from earmark.detection.ledger import Ledger
from earmark.settings import load_recipe
from earmark.training import create_detector

KINDS = (".wav", ".flac", ".mp3", ".ogg", ".wav")
RATES = (44100, 22050, 48000, 16000, 8000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--damaged", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each recording")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--format", default="tsv,raven")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = arguments.model or untrained(folder / "model.safetensors")
        start = time.monotonic()
        make_recordings(folder / "recordings", arguments.files, arguments.seconds)
        damage(folder / "recordings", arguments.damaged)
        print(
            f"{arguments.files} recordings of {arguments.seconds:g} s, {arguments.damaged} of them damaged, made in "
            f"{time.monotonic() - start:.0f} s"
        )
        command = [sys.executable, "-m", "earmark.cli", "detect", str(model), str(folder / "recordings")]
        command += ["--format", arguments.format, "--out"]
        killed_and_continued([*command, str(folder / "out")], folder / "out", arguments.files // 2)
        describe(folder / "out")
        start = time.monotonic()
        run([*command, str(folder / "uninterrupted")])
        print(f"without interruption: {time.monotonic() - start:.1f} s")
        one, other = contents(folder / "out"), contents(folder / "uninterrupted")
        print(
            "both jobs wrote the same files with the same bytes"
            if one == other
            else f"THE FILES DIFFER: {sorted(one.items() ^ other.items())}"
        )


def run(command: list[str]) -> str:
    """The output of a job, which ends with exit code 1 because some recordings are damaged."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)
    return done.stdout


def untrained(path: Path) -> Path:
    settings = load_recipe("paper").changed({"scaling": "fixed", "pool": "rap"})
    detector = create_detector(settings, tuple(f"class {k}" for k in range(10)))
    save_detector(path, detector, network=settings.network, pool=settings.pool)
    return path


def make_recordings(folder: Path, files: int, seconds: float) -> None:
    rng = np.random.default_rng(0)
    for k in range(files):
        rate = RATES[k % len(RATES)]
        t = np.arange(int(seconds * rate)) / rate
        x = 0.05 * rng.normal(size=len(t)) + 0.5 * np.sin(2 * np.pi * 100 * (1 + k % 30) * t) * (t % 2 < 1)
        path = folder / f"site {k % 3}" / f"{k // 3:05d}{KINDS[k % len(KINDS)]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".mp3":  # in stereo, as recorders do
            soundfile.write(path, np.stack([x, x], 1), rate)
        else:
            audio.write(path, x, rate)


def damage(folder: Path, count: int) -> None:
    """Truncate, empty or overwrite the beginning of some files, in turn."""
    paths = audio.find(folder)
    for k, path in enumerate(paths[:: max(1, len(paths) // max(1, count))][:count]):
        data = path.read_bytes()
        path.write_bytes((data[: len(data) // 2], b"", b"no sound at all" + data[15:])[k % 3])


def killed_and_continued(command: list[str], out: Path, at: int) -> None:
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None and done(out) < at:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        print(f"killed after {time.monotonic() - start:.1f} s: {dict(ledger.counts())}")
    start = time.monotonic()
    output = run(command)
    print(
        f"the same command again: {time.monotonic() - start:.1f} s\n"
        + "".join(f"    {line}\n" for line in output.splitlines()),
        end="",
    )


def done(out: Path) -> int:
    if not (out / "ledger.sqlite").exists():
        return 0
    return sum(1 for path in (out / "events").rglob("*") if path.suffix == ".tsv")


def describe(out: Path) -> None:
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        print(f"ledger: {dict(ledger.counts())}")
        reasons = Counter((entry.reason or "").split(":")[0] for entry in ledger.entries("failed"))
        for reason, count in reasons.most_common():
            print(f"    {count} failed: {reason}")


def contents(out: Path) -> dict[str, str]:
    """Hashes of all files, except the lock and those that contain times or the command."""
    files = (path for path in out.rglob("*") if path.is_file() and path.name != ".lock")
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in ("ledger.sqlite", "job.json")
    }


if __name__ == "__main__":
    main()
