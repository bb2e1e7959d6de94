"""Log-mel features of ten-second clips: clips per second, against librosa, a plain torch.stft and the FFTs alone.

    python benchmarks/features.py [--json FILE] [--sounds FOLDER]

Runs on the CPU and, if there is one, on the GPU. Features are first compared with librosa's; then the variants are
timed in turn for several rounds, of which the median is reported, so that ratios are meaningful on a busy machine too.
The floor is the time of the FFTs alone: `torch.fft.rfft` of frames that are cut out and windowed already, in groups
that fit into the cache. Each variant runs on one thread; with two workers, two processes run at the same time. Memory
is the peak during a batch of 16 clips, above that before it; 0 means that the free space of the heap was sufficient.

With --sounds, also prints the levels from which `FeatureConfig.reference_db` was chosen: the loudest band and frame of
each sound file below a folder, resampled to 44.1 kHz.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from measuring import extra_memory
from torch import Tensor

from earmark.features import FeatureConfig, LogMel, mel_matrix

RATE, SECONDS = 44100, 10
SAMPLES = RATE * SECONDS
CLIPS = 4  # per turn
SHIFTS = [-2.0, -1.0, 0.0, 1.0, 2.0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sounds", type=Path, help="measure the levels of the sounds in this folder")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = on_cpu(args.rounds)
    if torch.cuda.is_available():
        rows += on_gpu(args.rounds)
    if args.sounds:
        rows.append(levels(args.sounds))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


def clips(n: int) -> Tensor:
    """Noise whose level changes: (n, samples)."""
    generator = torch.Generator().manual_seed(0)
    level = 10 ** (-2 + torch.sin(torch.arange(SAMPLES) * (2 * torch.pi / 20_000)))
    return torch.randn(n, SAMPLES, generator=generator) * level


def by_librosa() -> Callable[[Tensor], object]:
    import librosa

    def run(x: Tensor) -> list[np.ndarray]:
        energies = [librosa.feature.melspectrogram(y=y, sr=RATE, n_fft=2048, hop_length=1024) for y in x.numpy()]
        return [librosa.power_to_db(energy, ref=np.max) for energy in energies]

    return run


def by_stft(device: str = "cpu") -> Callable[[Tensor], Tensor]:
    """The transform as one would write it with torch.stft."""
    mel = torch.from_numpy(mel_matrix(FeatureConfig())).to(device)
    window = torch.hann_window(2048, device=device)

    def run(x: Tensor) -> Tensor:
        spectrum = torch.stft(x, 2048, 1024, window=window, pad_mode="constant", return_complex=True)
        level = 10 * torch.log10((mel @ spectrum.abs().square()).clamp_min(1e-10))
        return (level - level.amax((1, 2), keepdim=True)).clamp_min(-80)

    return run


def by_stft_one_by_one() -> Callable[[Tensor], list[Tensor]]:
    run = by_stft()
    return lambda x: [run(y) for y in torch.split(x, 1)]


def ffts_alone() -> Callable[[Tensor], object]:
    group = torch.randn(108, 2048)
    groups = -(-FeatureConfig().frames(SAMPLES) // len(group))
    return lambda x: [torch.fft.rfft(group) for _ in range(groups * len(x))]


def earmark(scaling: Literal["clip", "fixed"] = "clip") -> Callable[[Tensor], Tensor]:
    return LogMel(FeatureConfig(scaling=scaling))


def earmark_shifts() -> Callable[[Tensor], Tensor]:
    logmel = LogMel(FeatureConfig())
    return lambda x: logmel(x, semitones=SHIFTS)


VARIANTS: dict[str, Callable[[], Callable[[Tensor], Any]]] = {
    "librosa": by_librosa,
    "torch.stft, clip by clip": by_stft_one_by_one,
    "torch.stft, whole batch": by_stft,
    "earmark, clip": earmark,
    "earmark, fixed": lambda: earmark("fixed"),
    "earmark, 5 pitch shifts": earmark_shifts,
    "floor: FFTs alone": ffts_alone,
}
WITH_WORKERS = ["librosa", "torch.stft, clip by clip", "earmark, clip"]


def on_cpu(rounds: int) -> list[dict[str, object]]:
    x = clips(CLIPS)
    runs = {name: make() for name, make in VARIANTS.items()}
    check(runs, x)
    one = {name: CLIPS / t for name, t in time_in_turn(runs, x, rounds, "cpu").items()}
    memory = {name: batch_memory(run) for name, run in runs.items()}
    two = two_workers(rounds)
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"\ncpu: {platform.machine()}, {load}, torch {torch.__version__}; {SECONDS}-s clips per second")
    print(f"{'':26} {'1 process':>10} {'librosa':>9} {'floor':>7} {'2 workers':>10} {'librosa':>9} {'memory, MB':>11}")
    rows = []
    for name in runs:
        faster, share = one[name] / one["librosa"], one[name] / one["floor: FFTs alone"]
        both = f"{two[name]:10.0f} {two[name] / two['librosa']:8.2f}x" if name in two else f"{'-':>10} {'-':>9}"
        print(f"{name:26} {one[name]:10.0f} {faster:8.2f}x {share:7.0%} {both} {memory[name] / 1e6:11.1f}")
        rows.append({"device": "cpu", "name": name, "clips_per_s": one[name], "two_workers": two.get(name), "on": load})
    return rows


def check(runs: dict[str, Callable[[Tensor], Any]], x: Tensor) -> None:
    """Same features as librosa."""
    truth = np.stack(runs["librosa"](x))
    for name in ("torch.stft, whole batch", "earmark, clip"):
        error = np.abs(runs[name](x).numpy() - truth).max()
        if not error < 0.01:
            sys.exit(f"{name} is wrong: {error:.4f} dB from librosa")


def time_in_turn(runs: dict[str, Callable[[Tensor], object]], x: Tensor, rounds: int, device: str) -> dict[str, float]:
    """Median seconds of each. Every turn begins with a run that is not timed: the previous variant leaves a cold cache
    and memory that was returned to the system."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run(x)
            synchronize(device)
            begin = time.perf_counter()
            run(x)
            synchronize(device)
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(t) for name, t in times.items()}


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def two_workers(rounds: int) -> dict[str, float]:
    """Clips per second of two processes together."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        pool.starmap(timed_variant, [(name, 1) for name in WITH_WORKERS for _ in range(2)], chunksize=1)  # warm up
        rates = {}
        for name in WITH_WORKERS:
            begin = time.perf_counter()
            pool.starmap(timed_variant, [(name, rounds)] * 2, chunksize=1)
            rates[name] = 2 * rounds * CLIPS / (time.perf_counter() - begin)
    return rates


def timed_variant(name: str, rounds: int) -> None:
    """Run a variant in a worker, which keeps its clips and its transform from one call to the next."""
    if name not in _KEPT:
        _KEPT[name] = VARIANTS[name](), clips(CLIPS)
    run, x = _KEPT[name]
    for _ in range(rounds):
        run(x)


_KEPT: dict[str, tuple[Callable[[Tensor], object], Tensor]] = {}


def batch_memory(run: Callable[[Tensor], object]) -> int:
    """Peak resident bytes during a batch of 16, above those before it."""
    x = clips(16)
    run(x[:1])
    return extra_memory(lambda: run(x))


def on_gpu(rounds: int) -> list[dict[str, object]]:
    print(f"\ncuda: {torch.cuda.get_device_name()}, torch {torch.__version__}; {SECONDS}-s clips per second")
    print(f"{'':26} {'batch':>6} {'clips/s':>10} {'torch.stft':>11} {'memory, MB':>11}")
    rows: list[dict[str, object]] = []
    for batch in (64, 512):
        x = clips(64).cuda().repeat(batch // 64, 1)
        logmel = LogMel(FeatureConfig()).cuda()
        runs: dict[str, Callable[[Tensor], object]] = {"torch.stft": by_stft("cuda"), "earmark, clip": logmel}
        runs["earmark, 5 pitch shifts"] = partial(logmel, semitones=SHIFTS)
        error = (logmel(x[:4]).cpu() - LogMel(FeatureConfig())(x[:4].cpu())).abs().max()
        if not error < 0.01:
            sys.exit(f"the GPU is wrong: {error:.4f} dB")
        times = time_in_turn(runs, x, rounds, "cuda")
        for name, run in runs.items():
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run(x)
            torch.cuda.synchronize()
            memory = torch.cuda.max_memory_allocated() - before
            ratio = times["torch.stft"] / times[name]
            print(f"{name:26} {batch:6} {batch / times[name]:10,.0f} {ratio:10.2f}x {memory / 1e6:11,.0f}")
            rows.append({"device": "cuda", "name": name, "batch": batch, "clips_per_s": batch / times[name]})
    return rows


def levels(folder: Path) -> dict[str, object]:
    """Loudest band and frame of each file, before any scaling."""
    from earmark import audio

    config = FeatureConfig(scaling="fixed", reference_db=0.0, range_db=100.0)
    logmel = LogMel(config)
    loudest = []
    for path in audio.find(folder):
        samples = torch.from_numpy(audio.read(path, rate=config.rate))
        if len(samples):
            loudest.append(logmel(samples[None]).max().item())
    marks = np.percentile(loudest, [5, 25, 50, 75, 95]).round(1).tolist()
    print(f"\nloudest band and frame of {len(loudest)} files, dB at 5, 25, 50, 75, 95%: {marks}")
    return {"name": "levels", "files": len(loudest), "percentiles": marks}


if __name__ == "__main__":
    main()
