"""Pitch shifts: the accuracy and cost of shifted mel filters, compared with shifted sound.

    python benchmarks/augment.py [--soundbank FOLDER] [--files 100] [--json FILE]

Three tables. The first compares, in decibels, log-mel features of shifted sound (`effects.change_pitch_and_time`) with

- warped: features of the unshifted sound with shifted filters (`LogMel.forward(semitones=...)`);
- another: sound shifted by another method, the vocoder's transposition. Two methods give different noise from the same
  noise, so no method can be expected to differ less;
- nothing: the features of the unshifted sound.

It considers cells (a band in a frame) that are less than 40 dB below the clip's maximum in the shifted sound, and gives
the mean absolute difference of cells, and of bands (averaged over the frames of the clip first, which reduces noise).
Sounds are the files in a folder, or a hundred from earmark's sound bank.

The second table is the error of pitch for pure tones. The third is processor time: medians of rounds taken in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import python_stretch
import torch
from measuring import in_turns

from earmark import audio
from earmark.effects import change_pitch_and_time, compress, loudness
from earmark.features import LogMel
from earmark.synthesis.bank import CLASSES, make_sound

RATE = 44100
ACTIVE_DB = 40.0
SHIFTS = (-2, -1, 1, 2)  # the paper's, in semitones


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--soundbank", type=Path, help="folder of sound files; by default sounds are synthesised")
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        results = {
            "sounds": str(args.soundbank.name) if args.soundbank else "synthesised",
            "closeness": closeness(args.soundbank, args.files),
            "cents": tuning(),
            "cost": cost(),
        }
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


def sounds(folder: Path | None, n: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    if folder is None:
        for i in range(n):
            yield make_sound(CLASSES[i % len(CLASSES)], rng, rate=RATE, duration=3.0)
        return
    files = audio.find(folder)
    for i in sorted(rng.choice(len(files), min(n, len(files)), replace=False)):
        yield audio.read(files[i], rate=RATE)


def transposed(samples: np.ndarray, rate: int, semitones: float, cheaper: bool = False) -> np.ndarray:
    """The other method: the vocoder shifts the pitch itself."""
    vocoder = python_stretch.Signalsmith.Stretch(0)
    vocoder.preset(1, rate, cheaper)
    vocoder.setTransposeSemitones(semitones)
    padded = np.pad(samples, (0, rate // 4))  # its last blocks fade away
    return np.asarray(vocoder.process(padded[np.newaxis]))[0, : len(samples)].copy()


def closeness(folder: Path | None, n: int) -> list[dict[str, float]]:
    logmel = LogMel()
    differences: dict[tuple[int, str], list[tuple[float, float]]] = {}
    count = 0
    for samples in sounds(folder, n):
        if not samples.any():
            continue
        count += 1
        warped = logmel(torch.from_numpy(samples)[None], semitones=(0, *SHIFTS))[0]
        for i, shift in enumerate(SHIFTS, start=1):
            real = logmel(torch.from_numpy(change_pitch_and_time(samples, RATE, semitones=shift))[None])[0]
            another = logmel(torch.from_numpy(transposed(samples, RATE, shift))[None])[0]
            for name, other in (("warped", warped[i]), ("another", another), ("nothing", warped[0])):
                differences.setdefault((shift, name), []).append(difference(real, other))
    print(f"\nlog-mel features against those of really shifted sound, mean absolute dB, {count} sounds")
    print(f"{'':>10} {'cells':-^33} {'bands':-^33}")
    print(f"{'semitones':>10}" + 2 * f" {'warped':>10} {'another':>11} {'nothing':>10}")
    rows = []
    for shift in SHIFTS:
        row: dict[str, float] = {"semitones": shift}
        for k, kind in enumerate(("cells", "bands")):
            for name in ("warped", "another", "nothing"):
                row[f"{name}_{kind}"] = statistics.mean(d[k] for d in differences[shift, name])
        print(f"{shift:>10}" + "".join(f" {v:>10.2f}" for k, v in row.items() if k != "semitones"), flush=True)
        rows.append(row)
    return rows


def difference(real: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """Mean absolute difference of active cells, and of bands averaged over their active cells."""
    active = real > -ACTIVE_DB
    gap = torch.where(active, other - real, 0.0)
    used = active.any(1)
    bands = gap.sum(1)[used] / active.sum(1)[used]
    return float(gap.abs().sum() / active.sum()), float(bands.abs().mean())


def tuning() -> list[dict[str, float]]:
    print("\nerror of pitch, cents, worst of 13 shifts from -3 to 3 semitones")
    print(f"{'tone, Hz':>10} {'earmark':>10} {'transposed':>11} {'cheaper':>10}")
    rows = []
    for frequency in (60, 100, 200, 500, 1000, 4000):
        tone = (0.3 * np.sin(2 * np.pi * frequency * np.arange(2 * RATE) / RATE)).astype(np.float32)
        worst = [0.0, 0.0, 0.0]
        for shift in np.linspace(-3, 3, 13):
            results = (
                change_pitch_and_time(tone, RATE, semitones=shift),
                transposed(tone, RATE, shift),
                transposed(tone, RATE, shift, cheaper=True),
            )
            for i, y in enumerate(results):
                worst[i] = max(worst[i], abs(1200 * np.log2(peak_frequency(y) / frequency) - 100 * shift))
        print(f"{frequency:>10} {worst[0]:>10.1f} {worst[1]:>11.1f} {worst[2]:>10.1f}", flush=True)
        rows.append({"hz": frequency, "earmark": worst[0], "transposed": worst[1], "cheaper": worst[2]})
    return rows


def peak_frequency(y: np.ndarray) -> float:
    middle = y[len(y) // 5 : -len(y) // 5]
    spectrum = np.log(np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 1 << 19)) + 1e-12)
    k = int(spectrum.argmax())
    a, b, c = spectrum[k - 1 : k + 2]
    return float((k + (a - c) / (a - 2 * b + c) / 2) * RATE / (1 << 19))


def cost() -> dict[str, float]:
    rng = np.random.default_rng(0)
    clip = (0.1 * rng.standard_normal(10 * RATE)).astype(np.float32)
    event = clip[: round(2.3 * RATE)]
    half = event[: len(event) // 2]
    logmel = LogMel()

    def by_sound() -> None:
        versions = [clip, *(change_pitch_and_time(clip, RATE, semitones=s) for s in SHIFTS)]
        for version in versions:
            logmel(torch.from_numpy(version)[None])

    jobs: dict[str, Callable[[], object]] = {
        "features of one clip of 10 s": lambda: logmel(torch.from_numpy(clip)[None]),
        "five-fold features, warped filters": lambda: logmel(torch.from_numpy(clip)[None], semitones=(0, *SHIFTS)),
        "five-fold features, shifted sound": by_sound,
        "pitch and time, 2.3 s at 44.1 kHz": lambda: change_pitch_and_time(event, RATE, semitones=-2, stretch=1.1),
        "pitch and time, 2.3 s at 22.05 kHz": lambda: change_pitch_and_time(half, RATE // 2, semitones=-2, stretch=1.1),
        "transposed, 2.3 s at 44.1 kHz": lambda: transposed(event, RATE, -2),
        "loudness of 10 s": lambda: loudness(clip, RATE),
        "compression of 10 s": lambda: compress(clip, RATE, "speech"),
    }
    rounds = in_turns(jobs, 7, time.process_time)
    seconds = {name: statistics.median(times) for name, times in rounds.items()}
    unit = seconds["features of one clip of 10 s"]
    print(f"\n{'cost, one core':<36} {'ms':>8} {'ratio':>8}")
    for name, value in seconds.items():
        print(f"{name:<36} {1000 * value:>8.1f} {value / unit:>8.2f}")
    saved = seconds["five-fold features, shifted sound"] / seconds["five-fold features, warped filters"]
    print(f"warped filters make the five-fold set {saved:.1f} times as fast as shifted sound")
    return seconds


if __name__ == "__main__":
    main()
