"""Encoders: their speed, the alignment of their frames in time, and AudioSet's classes of real sounds.

    python benchmarks/encoders.py [--encoder mn04] [--minutes M] [--rounds N] [--work] [--data FOLDER] [--sounds FOLDER]

Speed: windows in memory are embedded on one thread and on two, each with one thread of PyTorch. Then two FLAC files at
44.1 kHz are read, resampled and embedded in windows that overlap by a quarter, by one thread and by two. The variants
take turns; the median and the best round are printed, and the median CPU time, which other load on the machine affects
less.

With --work, wall and CPU time of whole tasks: detection in an hour of sound in one FLAC file at 44.1 kHz, with PyTorch
and with the exported model in onnxruntime, and whether both, and other block sizes, give the same events; embeddings of
200 clips of 10 s; the recipe `head` on 200 clips, without and with stored embeddings.

With --data, a folder of clips with labels that have times (`earmark synth urban-sed FOLDER`): how well a linear model
predicts events from the embeddings if labels are shifted relative to the frames. The best shift should be about 0.

With --sounds, a folder of UrbanSound8K's classes (foldN/LABEL/*): how often AudioSet's class is among the top five
and the first of the 527 that mn04 was trained on.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import torch

import earmark
from earmark import audio
from earmark.bags import build_store
from earmark.checkpoint import save_detector
from earmark.datasets import open_data
from earmark.detector import Detector
from earmark.encoders import Encoder, EncoderFeatures, Mn04, load
from earmark.formats import read_labels
from earmark.inference.recordings import score_recording
from earmark.networks import create_network
from earmark.parallel import parallel_map
from earmark.pooling import create_pool

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
    parser.add_argument("--work", action="store_true", help="an hour of sound, 200 clips, and the training of a head")
    parser.add_argument("--data", help="clips with timed labels, for the time that a frame stands for")
    parser.add_argument("--sounds", type=Path, help="UrbanSound8K, for AudioSet's classes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    encoder = load(args.encoder)
    print(f"{encoder!r}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    speed(encoder, args.minutes, args.rounds)
    if args.work:
        with tempfile.TemporaryDirectory() as folder:
            events(encoder, Path(folder))
            training(encoder, Path(folder))
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


@contextmanager
def timed(what: str, seconds: float = 0) -> Iterator[None]:
    """Print the time of a block of code, and its speed if it processes so many seconds of sound."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    speed = f"; {seconds / wall:4.0f} times real time" if seconds else ""
    print(f"{what:55} {wall:6.1f} s, CPU time {cpu:6.1f} s{speed}", flush=True)


def clip(rng: np.random.Generator, seconds: float) -> npt.NDArray[np.float32]:
    """Noise of changing level at 44.1 kHz; noise is the slowest sound to decode from FLAC."""
    n = round(seconds * 44100)
    swell = 1 + np.sin(np.arange(n) / 44100)
    return np.asarray(0.1 * rng.standard_normal(n, np.float32) * swell / 2, np.float32)


def events(encoder: Encoder, folder: Path) -> None:
    """Events in an hour of sound, by a head with random weights."""
    from earmark.export import export_model

    torch.manual_seed(0)
    features = EncoderFeatures.of(encoder)
    head, pool = {"name": "mlp", "hidden": 128}, {"name": "linear"}
    network = create_network("mlp", features.n_bands, hidden=128)
    detector = Detector(tuple("abcdefghij"), features, network, create_pool("linear", 10))
    torch.nn.init.normal_(detector.head.weight, std=1.0)
    save_detector(folder / "model.safetensors", detector, network=head, pool=pool, provenance={})
    rng = np.random.default_rng(0)
    with soundfile.SoundFile(folder / "hour.flac", "w", 44100, 1) as file:
        for _ in range(60):
            file.write(clip(rng, 60))
    export_model(folder / "model.safetensors", folder / "model.onnx")
    eager, exported = (detected(folder, name) for name in ("model.safetensors", "model.onnx"))
    print(f"{len(eager)} events with PyTorch, {len(exported)} with onnxruntime, the same: {eager == exported}")
    scorer = earmark.load(folder / "model.safetensors").scorer
    pieces = [
        np.concatenate(list(score_recording(scorer, folder / "hour.flac", last=2000, block=block)))
        for block in (3.0, 20.0, 61.0)
    ]
    print(f"probabilities equal for blocks of 3, 20 and 61 s: {all(np.array_equal(p, pieces[0]) for p in pieces)}")


def detected(folder: Path, model: str) -> list[tuple[object, ...]]:
    """Events (label, onset, offset) in the hour of sound, detected by the command in a separate process."""
    command = [sys.executable, "-m", "earmark.cli", "detect", str(folder / model), str(folder / "hour.flac")]
    command += ["--out", str(folder / f"found {model}")]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall, cpu = time.perf_counter() - begin, used.ru_utime + used.ru_stime
    assert status == 0
    cores = os.cpu_count() or 1
    print(
        f"earmark detect {model}, an hour of sound: {wall:.1f} s, {3600 / wall:.0f} times real time; CPU time "
        f"{cpu:.1f} s, or {cores * 3600 / cpu:.0f} times real time on {cores} free cores; "
        f"{used.ru_maxrss / 1024:.0f} MB",
        flush=True,
    )
    return [(row.label, row.onset, row.offset) for row in read_labels(folder / f"found {model}" / "events.csv")]


def training(encoder: Encoder, folder: Path) -> None:
    """Embeddings of 200 clips, and the training of a head."""
    rng = np.random.default_rng(0)
    (folder / "clips").mkdir()
    rows = ["filename,label,split"]
    for i in range(250):
        audio.write(folder / "clips" / f"{i}.flac", clip(rng, 10), 44100)
        rows += [
            f"{i}.flac,{label},{'train' if i < 200 else 'validate'}" for label in rng.choice(list("abcdefghij"), 3)
        ]
    (folder / "clips" / "labels.csv").write_text("\n".join(rows) + "\n")
    clips = open_data(str(folder / "clips"), "train").clips
    with timed("embeddings of 200 clips of 10 s", 2000):
        build_store(folder / "store", clips, EncoderFeatures.of(encoder))
    compute = earmark.api.Compute(cache=folder / "cache")
    train = partial(earmark.train, folder / "clips", encoder=encoder.card.name, compute=compute)
    with timed("recipe head, 200 clips, with embeddings and mixtures"):
        train(folder / "first")
    with timed("recipe head, 200 clips, embeddings are stored"):
        train(folder / "second")


def run(function: Callable[[Any], object], items: Sequence[object], threads: int) -> None:
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
        for name, frames in embeddings.items():
            start = np.arange(4, 4 + len(frames)) + shift
            active = np.zeros((len(frames), len(labels)))
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
