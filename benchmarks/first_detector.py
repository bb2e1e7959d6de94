"""The first detector of a new user: `earmark train`, `evaluate` and `detect` without a single option.

    python benchmarks/first_detector.py SOUNDBANK --out first [--case NAME] [--recordings 200] [--classes car_horn ...]

SOUNDBANK has folders FOLD/CLASS with short recordings, such as UrbanSound8K in the layout of URBAN-SED. From it come
field-like recordings: 10 to 60 s of soft rain, wind or crickets, most of them with events of one or two classes, 6 to
20 dB above it. Training recordings have tags only. Test recordings, and an hour with 97 events, are timed and use
sounds of another fold. With one class, half of the recordings have none of it.

Cases, each smaller or more awkward than `all`, which is the default; the hour is only in the first two:

    all          200 recordings, six classes
    against      30 recordings, 15 with sirens and 15 without
    ten          10 recordings, six classes
    single       30 recordings, all of them with sirens: no negative examples
    once         30 recordings of two classes, the second of which is in one of them
    empty        30 recordings with a column `split`, where no validation recording has an event

EARMARK_HOME determines whether the encoder mn04 is found; run it with and without. Prints scores and times of the
commands.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from earmark import audio

RATE = 44100
CLASSES = ["car_horn", "dog_bark", "gun_shot", "jackhammer", "siren", "street_music"]
Samples = Any

CASES = {  # recordings and classes
    "all": (200, CLASSES),
    "against": (30, ["siren"]),
    "ten": (10, CLASSES),
    "single": (30, ["siren"]),
    "once": (30, ["siren", "dog_bark"]),
    "empty": (30, ["siren", "dog_bark"]),
}
WITH_HOUR = ("all", "against")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("soundbank", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=CASES, default="all")
    parser.add_argument("--recordings", type=int, help="number of recordings, if not that of the case")
    parser.add_argument("--classes", nargs="+", help="classes, if not those of the case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="options for earmark train, for trials")
    arguments = parser.parse_args()
    out, case, (recordings, classes) = arguments.out, arguments.case, CASES[arguments.case]
    recordings, classes = arguments.recordings or recordings, arguments.classes or classes
    make(arguments.soundbank, out, case, classes, recordings, arguments.seed)
    scores = {}
    seconds = {"train": earmark(out, "train", "recordings", "--out", "run", *arguments.train)}
    for name in ("test", "hour") if case in WITH_HOUR else ("test",):
        seconds[f"evaluate {name}"] = earmark(out, "evaluate", "run", name, "--out", f"{name}-scores")
        scores[name] = json.loads((out / f"{name}-scores" / "scores.json").read_text())
    if case in WITH_HOUR:
        seconds["detect"] = earmark(out, "detect", "run", "hour", "--out", "found")
    for name, result in scores.items():
        overall = result["dynamic"]["overall"]
        numbers = ", ".join(f"{key} {overall[key]:.3f}" for key in ("f1", "precision", "recall"))
        print(f"{name}: 1-s segments {numbers}")
    if case in WITH_HOUR:
        found = next((out / "found").rglob("*.csv"), None)
        rows = list(csv.DictReader(found.open())) if found else []
        true = list(csv.DictReader((out / "hour" / "labels.csv").open()))
        print(f"hour: {len(rows)} events reported, {len(true)} true")
    print(", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()))


def earmark(folder: Path, *words: str) -> float:
    """Run a command in a folder; returns its seconds."""
    print("$ earmark", *words, flush=True)
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "earmark.cli", *words], cwd=folder, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}")
    return time.perf_counter() - begin


def make(soundbank: Path, out: Path, case: str, classes: list[str], recordings: int, seed: int) -> None:
    """Recordings to train on, with tags; recordings and an hour to test with, with times."""
    folds = sorted(path for path in soundbank.iterdir() if path.is_dir())
    bank = {name: [sorted((fold / name).iterdir()) for fold in folds] for name in classes}
    seen = {name: [file for files in parts[1:] for file in files] for name, parts in bank.items()}
    unseen = {name: parts[0] for name, parts in bank.items()}
    rng = np.random.default_rng(seed)
    for name, sounds, count in (("recordings", seen, recordings), ("test", unseen, 60)):
        rows, times = [], []
        for number in range(count):
            duration = float(rng.uniform(10, 60))
            present = draw_classes(rng, case if name == "recordings" else "all", classes, number)
            wanted = [label for label in present for _ in range(rng.integers(1, 4))]
            sound, events = scene(rng, sounds, wanted, duration)
            file = f"recording {number:03}.wav"
            audio.write(ready(out / name / file), sound, RATE)
            split = {"split": "train" if number % 6 else "validate"} if case == "empty" else {}
            rows += [{"filename": file, "label": label, **split} for label in present or [""]]
            times += [{"filename": file, **event} for event in events] or [{"filename": file, "label": ""}]
        write_table(out / name / "labels.csv", rows if name == "recordings" else times)
        if name == "recordings":
            write_table(out / "train-times.csv", times)  # for benchmarks/thresholds.py; training does not use it
    if case not in WITH_HOUR:
        return
    sound, events = scene(rng, unseen, [classes[k % len(classes)] for k in range(97)], 3600.0)
    file = "20260512_043000.WAV"
    audio.write(ready(out / "hour" / file), sound, RATE)
    write_table(out / "hour" / "labels.csv", [{"filename": file, **event} for event in events])


def draw_classes(rng: np.random.Generator, case: str, classes: list[str], number: int) -> list[str]:
    """Classes of a recording: none in one of six, else one or two; with a single class, none in every second."""
    if case == "single":
        return classes
    if case == "once":
        return classes[1:] if number == 1 else classes[:1] if number % 2 else []
    if len(classes) == 1:
        return classes if number % 2 else []
    if number % 6 == 0:
        return []
    return [str(name) for name in rng.choice(classes, int(rng.integers(1, 3)), replace=False)]


def scene(
    rng: np.random.Generator, sounds: dict[str, list[Path]], wanted: list[str], duration: float
) -> tuple[Samples, list[dict[str, Any]]]:
    """A recording with an event for each class in `wanted`, and when they are."""
    sound = background(rng, round(duration * RATE))
    level = float(np.sqrt(np.mean(sound**2)))
    events = []
    for label in wanted:
        path = sounds[label][int(rng.integers(len(sounds[label])))]
        event = np.asarray(audio.read(path, rate=RATE))[: round(min(4.0, duration / 2) * RATE)]
        gain = level * 10 ** (rng.uniform(6, 20) / 20) / max(float(np.sqrt(np.mean(event**2))), 1e-6)
        first = int(rng.integers(0, len(sound) - len(event)))
        sound[first : first + len(event)] += gain * event
        onset, offset = first / RATE, (first + len(event)) / RATE
        events.append({"onset": round(onset, 3), "offset": round(offset, 3), "label": label})
    return (sound * min(1.0, 0.9 / float(np.abs(sound).max()))).astype(np.float32), events


def background(rng: np.random.Generator, samples: int) -> Samples:
    """Soft rain, wind or crickets."""
    kind = rng.integers(3)
    noise = rng.standard_normal(samples).astype(np.float32)
    if kind == 0:  # rain
        sound = scipy.signal.lfilter([1.0], [1.0, -0.7], noise)
    elif kind == 1:  # wind
        sound = scipy.signal.lfilter([1.0], [1.0, -0.98], noise)
        sound *= 1 + 0.5 * np.sin(2 * np.pi * rng.uniform(0.05, 0.2) * np.arange(samples) / RATE)
    else:  # crickets over faint rain
        time = np.arange(samples) / RATE
        chirp = np.sin(2 * np.pi * rng.uniform(3500, 5500) * time) * (
            np.sin(2 * np.pi * rng.uniform(10, 25) * time) > 0
        )
        sound = 0.3 * noise + chirp
    return np.asarray(0.01 * sound / np.sqrt(np.mean(sound**2)), np.float32)


def ready(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
