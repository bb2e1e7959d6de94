"""Time from files to stored features, and from stored features to batches.

    python benchmarks/bags.py [--clips N]

1. Files to store: ten-second FLAC clips to stored log-mel features, compared with joblib and librosa on the same cores
   (if librosa is installed): `librosa.load`, `melspectrogram`, `power_to_db`, one `numpy.save` per clip.
2. Verification of a whole store by its checksums, as at the start of training.
3. Store to batches: clips per second in batches of 16, from a store on disk and, if there is a GPU, to it and from its
   own memory. Loading is a bottleneck only if it is slower than training (benchmarks/training.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import timed

from earmark import audio
from earmark.annotations import LabelTable
from earmark.bags import Bags, FeatureStore, build_store
from earmark.datasets import Clip, Source
from earmark.features import FeatureConfig

RATE, SECONDS, BATCH = 44100, 10, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        clips = make_clips(root, arguments.clips)
        print(f"{len(clips)} FLAC clips of {SECONDS} s at {RATE} Hz, {cores} cores\n")
        files_to_store(root, clips, arguments.rounds, cores)
        store_to_batches(FeatureStore(root / "store0"), clips)


def make_clips(root: Path, count: int) -> list[Clip]:
    rng = np.random.default_rng(0)
    clips = []
    for i in range(count):
        path = root / f"{i}.flac"
        audio.write(path, 0.1 * rng.standard_normal(RATE * SECONDS).astype(np.float32), RATE)
        clips.append(Clip(path.name, (Source(path),)))
    return clips


def files_to_store(root: Path, clips: list[Clip], rounds: int, cores: int) -> None:
    ours, theirs = [], []
    for i in range(rounds):
        ours.append(timed(partial(build_store, root / f"store{i}", clips, FeatureConfig())))
        with contextlib.suppress(ImportError):
            theirs.append(timed(partial(joblib_loop, root / f"npy{i}", clips, cores)))
    print("files to stored features, clips per second (median of rounds)")
    print(f"  earmark           {len(clips) / statistics.median(ours):8.1f}")
    if theirs:
        ratio = statistics.median(theirs) / statistics.median(ours)
        print(f"  joblib + librosa  {len(clips) / statistics.median(theirs):8.1f}   earmark is {ratio:.2f}x as fast")
    print()


def joblib_loop(out: Path, clips: list[Clip], cores: int) -> None:
    from joblib import Parallel, delayed

    out.mkdir()
    Parallel(n_jobs=cores)(delayed(one_clip)(clip.sources[0].path, out / f"{clip.filename}.npy") for clip in clips)


def one_clip(path: Path, target: Path) -> None:
    import librosa

    samples, _ = librosa.load(path, sr=RATE, mono=True)
    power = librosa.feature.melspectrogram(y=samples, sr=RATE, n_fft=2048, hop_length=1024, n_mels=128)
    np.save(target, librosa.power_to_db(power, ref=np.max).astype(np.float16))


def store_to_batches(store: FeatureStore, clips: list[Clip]) -> None:
    rng = np.random.default_rng(1)
    rows = [(c.filename, 1.0, 4.0, f"class {k}") for c in clips for k in rng.choice(10, 3, replace=False)]
    labels = LabelTable(rows)
    taken = timed(lambda: store.damaged(store.filenames, len(os.sched_getaffinity(0))))
    print(f"verification: {store.nbytes / 1e6:.0f} MB at {store.nbytes / taken / 1e9:.2f} GB/s\n")
    print(f"store to batches of {BATCH}, clips per second")
    report("disk, to the CPU", Bags(store, labels))
    if torch.cuda.is_available():
        report("disk, to the GPU", Bags(store, labels, device="cuda", resident=False))
        report("in the GPU's memory", Bags(store, labels, device="cuda", resident=True))


def report(name: str, bags: Bags, steps: int = 300) -> None:
    for warm_up in (True, False):
        begin = time.perf_counter()
        for batch in bags.draw(30 if warm_up else steps, BATCH, patch=SECONDS, seed=0):
            last = batch
        if last.features.is_cuda:
            torch.cuda.synchronize()
        taken = time.perf_counter() - begin
    print(f"  {name:20} {steps * BATCH / taken:10.0f}")


if __name__ == "__main__":
    main()
