"""Encoders: times real time, the time that a frame stands for, and AudioSet's classes of real sounds.

    python benchmarks/encoders.py [--encoder mn04] [--minutes M] [--rounds N] [--data FOLDER] [--sounds FOLDER]

Speed: windows in memory are embedded on one thread and on two, each with one thread of PyTorch. Then two FLAC files at
44.1 kHz are read, resampled and embedded in windows that overlap by a quarter, by one thread and by two. All variants
take turns, round after round; the median and the best round are printed, and the CPU time of the median one, which
other work on the machine disturbs less.

With --data, a folder of clips with labels that have times (`earmark synth urban-sed FOLDER`): how well a linear model
predicts events from the embeddings if labels are shifted against the frames. The best shift should be about 0.

With --sounds, a folder of UrbanSound8K's classes (foldN/LABEL/*): how often AudioSet's class is among the top five
and the first of the 527 that mn04 was trained on.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from earmark import audio
from earmark.datasets import open_data
from earmark.encoders import Encoder, Mn04, create_encoder
from earmark.parallel import parallel_map

# Positions in AudioSet's list of 527 classes (class_labels_indices.csv) that fit the classes of UrbanSound8K.
AUDIOSET = {
    "air_conditioner": (412, 413),  # mechanical fan, air conditioning
    "car_horn": (308, 309, 318),  # car horn, toot, air horn
    "children_playing": (13, 71),  # children shouting, children playing
    "dog_bark": (74, 75, 76, 78),  # dog, bark, yip, bow-wow
    "drilling": (345, 420, 424, 425),  # dental drill, jackhammer, power tool, drill
    "engine_idling": (343, 348, 349, 352),  # engine, medium engine, heavy engine, idling
    "gun_shot": (426, 427, 428, 431),  # explosion, gunshot, machine gun, cap gun
    "jackhammer": (420,),
    "siren": (322, 323, 324, 325, 396, 397),  # emergency vehicles, siren, civil defence siren
    "street_music": (137,),  # music
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoder", default="mn04")
    parser.add_argument("--minutes", type=float, default=5, help="of each of the two files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", help="clips with timed labels, for the time that a frame stands for")
    parser.add_argument("--sounds", type=Path, help="UrbanSound8K, for AudioSet's classes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    encoder = create_encoder(args.encoder)
    print(f"{encoder!r}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    speed(encoder, args.minutes, args.rounds)
    if args.data:
        alignment(encoder, args.data)
    if args.sounds and isinstance(encoder, Mn04):
        tags(encoder, args.sounds)


def speed(encoder: Encoder, minutes: float, rounds: int) -> None:
    card = encoder.card
    rng = np.random.default_rng(0)
    windows = [(0.1 * rng.standard_normal(card.window_samples)).astype(np.float32) for _ in range(24)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.flac" for i in range(2)]
        for path in files:
            n = round(60 * minutes * 44100)
            audio.write(path, 0.1 * rng.standard_normal(n) * (1 + np.sin(np.arange(n) / 44100)) / 2, 44100)
        work: dict[str, tuple[float, Callable[[], object]]] = {}
        for threads in (1, 2):
            memory = partial(run, encoder.embed, windows, threads)
            whole = partial(run, partial(embed_file, encoder), files, threads)
            work[f"windows in memory, {threads} thread(s)"] = (len(windows) * card.window, memory)
            work[f"files, overlap of a quarter, {threads} thread(s)"] = (2 * 60 * minutes, whole)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
        for round_ in range(rounds + 1):
            for name, (_, function) in work.items():
                wall, cpu = time.perf_counter(), time.process_time()
                function()
                if round_:  # the first one warms up
                    times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    for name, (seconds, _) in work.items():
        wall, cpu = (statistics.median(values) for values in zip(*times[name], strict=True))
        best = min(wall for wall, _ in times[name])
        print(
            f"{name:40} {seconds / wall:6.0f} times real time, best round {seconds / best:5.0f}; "
            f"CPU time {3600 * cpu / seconds:5.1f} s per hour of sound"
        )


def run(function: Callable[[object], object], items: list[object], threads: int) -> None:
    for _, result in parallel_map(function, items, workers=threads):
        if isinstance(result, Exception):
            raise result


def embed_file(encoder: Encoder, path: Path) -> int:
    """Embed a file in windows that overlap by a quarter; of each, the middle three quarters are kept."""
    frames = 0
    edge = encoder.card.frames(encoder.card.window_samples) // 8
    for samples in windows_of(encoder, path):
        frames += len(encoder.embed(samples)[edge:-edge])
    return frames


def windows_of(encoder: Encoder, path: Path) -> Iterator[npt.NDArray[np.float32]]:
    size = encoder.card.window_samples
    step = encoder.card.frames(size) * 3 // 4 * encoder.card.hop_samples
    kept = np.empty(0, np.float32)
    for block in audio.stream(path, rate=encoder.card.rate, block=20.0):
        kept = np.concatenate([kept, block])
        while len(kept) >= size:
            yield kept[:size]
            kept = kept[step:]
    yield kept


def alignment(encoder: Encoder, data: str) -> None:
    """Share of the variance of event activity that ridge regression explains, by shift of the labels."""
    collection = open_data(data)
    card, labels = encoder.card, collection.labels.classes
    embeddings = {}
    for clip in collection.clips:
        samples = clip.read(card.rate)[: card.window_samples]
        embeddings[clip.filename] = encoder.embed(samples)[4:-4].astype(np.float64)  # not what the ends disturb
    x = np.concatenate(list(embeddings.values()))
    x = np.c_[(x - x.mean(0)) / (x.std(0) + 1e-6), np.ones(len(x))]
    inverse = np.linalg.inv(x.T @ x + 300 * np.eye(x.shape[1]))
    print(f"Share of variance explained in {len(embeddings)} clips, by shift of the labels in hops of {card.hop:g} s")
    for shift in np.arange(-2, 2.1, 0.5):
        parts = []
        for name, own in embeddings.items():
            start = np.arange(4, 4 + len(own)) + shift
            active = np.zeros((len(own), len(labels)))
            for event in collection.labels.of(name):
                assert event.onset is not None
                assert event.offset is not None
                overlap = np.minimum(start + 1, event.offset / card.hop) - np.maximum(start, event.onset / card.hop)
                column = labels.index(event.label)
                active[:, column] = np.maximum(active[:, column], np.clip(overlap, 0, 1))
            parts.append(active)
        y = np.concatenate(parts)
        residual = y - x @ (inverse @ (x.T @ y))
        print(f"{shift:+5.1f} {1 - np.square(residual).sum() / np.square(y - y.mean(0)).sum():.4f}")


def tags(encoder: Mn04, folder: Path) -> None:
    module = encoder.module()
    print("AudioSet's class among the top five of 527, and first")
    for label, wanted in AUDIOSET.items():
        paths = sorted(folder.glob(f"fold*/{label}/*"))[::8][:40]
        tops = []
        for path in paths:
            samples = torch.from_numpy(audio.read(path, rate=encoder.card.rate))[None]
            with torch.inference_mode():
                tops.append(module.network.classify(module.front(samples))[0].topk(5).indices.tolist())
        five, first = (sum(bool(set(top[:n]) & set(wanted)) for top in tops) for n in (5, 1))
        print(f"{label:18} {five:3} and {first:3} of {len(tops)}")


if __name__ == "__main__":
    main()
