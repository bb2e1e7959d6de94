"""Speed of detection, compared with a plain script with librosa and PyTorch, and phase by phase.

    python benchmarks/detection.py [--device cpu|cuda] [--seconds S] [--rounds N] [--recipe best] [--json FILE]

The network is the paper's, or on the CPU that of a recipe: 44.1 kHz, 128 bands, ten classes; its weights are random,
which does not affect the speed. Speeds are multiples of real time.

On the CPU: from a FLAC file of noise to events, with as many threads as there are cores, each of which scores a part of
the file with one thread of PyTorch. The plain script loads the file with librosa, computes features of ten seconds at a
time with librosa, runs the detector's module on them with all cores, and applies the threshold. After a warm-up, both
take turns for several rounds, of which the median is reported, so that the ratio is meaningful on a busy machine too.
The share of frames with the same probabilities in the first piece is printed. Phases are timed alone, on one core:
decoding, features, network. The floor is the network's convolutions alone.

On a GPU: from decoded sound in ordinary host memory to probabilities in host memory. Phases are timed alone: the copy
into page-locked memory, the copy from there to the GPU, features, network. The floor is the slower one of the copy to
the GPU and the network's convolutions alone.

With --memory HOURS, prints instead the peak of resident memory while two threads score a recording of that length.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import torch
import torch.nn.functional as F
from measuring import in_turns, timed
from measuring import memory as resident

from earmark import audio
from earmark.detector import Detector
from earmark.events import Decoder, InterpolationStream, interpolate
from earmark.features import FeatureConfig, LogMel
from earmark.inference.frozen import FrozenCNN, frozen
from earmark.inference.recordings import feature_frames, output_frames, score_recording, score_samples
from earmark.inference.torch_scorer import TorchScorer
from earmark.networks import CNN
from earmark.settings import load_recipe
from earmark.training import create_detector

RATE = 44100
CLASSES = [f"class{i}" for i in range(10)]
PIECE = 10  # seconds that the plain script scores at once
CORES = len(os.sched_getaffinity(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=int, help="of sound; by default 300, on a GPU 14,400")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recipe", default="paper", help="on the CPU, with log-mel features")
    parser.add_argument("--blocks", type=float, nargs="*", help="also time these lengths of blocks, in seconds")
    parser.add_argument("--memory", type=float, metavar="HOURS", help="measure memory instead")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    if args.memory:
        numbers = memory(args.memory, args.recipe)
    elif args.device == "cuda":
        numbers = on_gpu(args.seconds or 14_400, args.rounds, args.blocks or [])
    else:
        numbers = on_cpu(args.seconds or 300, args.rounds, args.blocks or [], args.recipe)
    for name, value in numbers.items():
        print(f"{name:44s} {value if isinstance(value, str) else format(value, '12,.1f')}")
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=1) + "\n")


def make_detector(recipe: str = "paper") -> Detector:
    torch.manual_seed(0)
    settings = load_recipe(recipe).changed({"scaling": "fixed", "pad_mode": "zeros"})
    return create_detector(settings, tuple(CLASSES)).eval()


def noise(seconds: int) -> npt.NDArray[np.float32]:
    """Noise whose level changes."""
    rng = np.random.default_rng(0)
    level = 0.1 * (1.1 + np.sin(np.arange(RATE) * (2 * np.pi / RATE))).astype(np.float32)
    minute = np.concatenate([rng.standard_normal(RATE, np.float32) * level * 0.3 for _ in range(min(60, seconds))])
    return np.resize(minute, seconds * RATE)


def detect(scorer: TorchScorer, path: Path, threads: int) -> list[npt.NDArray[np.float32]]:
    """Events as frames (feature frames, classes), by threads that score a stretch each."""
    total = audio.info(path).samples_at(scorer.rate)
    bounds = np.linspace(0, output_frames(scorer, total), threads + 1).astype(int).tolist()

    def score(k: int) -> npt.NDArray[np.float32]:
        return np.concatenate(list(score_recording(scorer, path, first=bounds[k], last=bounds[k + 1])))

    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as threads_:
        parts = list(threads_.map(score, range(threads)))
    stream = InterpolationStream(scorer.reduction, len(scorer.classes))
    decoder = Decoder().stream(scorer.hop, scorer.classes, path.name, total / scorer.rate)
    events = [event for part in parts for event in decoder.update(stream.update(part))]
    events += [*decoder.update(stream.finish(feature_frames(scorer, total))), *decoder.finish()]
    assert events
    return parts


def plainly(detector: Detector, path: Path) -> list[npt.NDArray[np.float32]]:
    """The same with librosa and the unmodified module."""
    import librosa

    torch.set_num_threads(CORES)
    y, _ = librosa.load(path, sr=RATE)
    parts = []
    with torch.no_grad():
        for k in range(0, len(y), PIECE * RATE):
            energy = librosa.feature.melspectrogram(
                y=y[k : k + PIECE * RATE], sr=RATE, n_fft=2048, hop_length=1024, n_mels=128
            )
            level = librosa.power_to_db(energy, ref=100.0, top_db=None).clip(-80)
            parts.append(detector(torch.from_numpy(level[None])).dynamic[0].numpy())
    p = np.concatenate(parts)
    n = detector.reduction
    active = interpolate(p, n, n * len(p), align="middle") >= 0.5
    changes = np.diff(active.astype(np.int8), axis=0, prepend=0, append=0)
    events = [(c, np.flatnonzero(changes[:, c] > 0), np.flatnonzero(changes[:, c] < 0)) for c in range(len(CLASSES))]
    assert events
    return parts


def on_cpu(seconds: int, rounds: int, blocks: list[float], recipe: str) -> dict[str, float | str]:
    detector = make_detector(recipe)
    scorer = TorchScorer(detector, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        short, path = Path(folder) / "short.flac", Path(folder) / "long.flac"
        audio.write(short, noise(2 * PIECE), RATE)
        audio.write(path, noise(seconds), RATE)
        ways: dict[str, Callable[[Path], list[npt.NDArray[np.float32]]]] = {
            "earmark": lambda file: detect(scorer, file, CORES),
            "librosa and eager PyTorch": lambda file: plainly(detector, file),
        }
        parts = {name: way(short) for name, way in ways.items()}
        ours, theirs = np.concatenate(parts["earmark"]), np.concatenate(parts["librosa and eager PyTorch"])
        n = len(parts["librosa and eager PyTorch"][0])
        alike = np.isclose(ours[: n - 3], theirs[: n - 3], atol=1e-3).mean()
        rounds_of = in_turns({name: partial(way, path) for name, way in ways.items()}, rounds)
        times = {name: statistics.median(values) for name, values in rounds_of.items()}
        torch.set_num_threads(1)
        numbers: dict[str, float | str] = {
            "machine": f"{platform.processor() or platform.machine()}, {CORES} cores, PyTorch {torch.__version__}",
            "recipe": recipe,
            "seconds of sound": seconds,
            "frames of the first piece that agree, %": 100 * float(alike),
            **{f"{name}, x real time": seconds / time_ for name, time_ in times.items()},
            "ratio": times["librosa and eager PyTorch"] / times["earmark"],
        }
        for block in blocks:
            alone = median(partial(exhaust, score_recording, scorer, path, block=block), rounds)
            numbers[f"one core, blocks of {block:g} s, x real time"] = seconds / alone
        phases: dict[str, Callable[[], object]] = {
            "decoding": partial(exhaust, audio.stream, path, block=scorer.block),
            **(phases_of(detector, "cpu", scorer.block) if isinstance(detector.network, CNN) else {}),
        }
        for name, phase in phases.items():
            whole = seconds if name == "decoding" else scorer.block
            numbers[f"one core, {name} alone, x real time"] = whole / median(phase, rounds)
    return numbers


def on_gpu(seconds: int, rounds: int, blocks: list[float]) -> dict[str, float | str]:
    torch.backends.cudnn.allow_tf32 = False  # as the scorer has it, for the phases timed alone
    detector = make_detector()
    sound = noise(seconds)
    numbers: dict[str, float | str] = {
        "machine": f"{torch.cuda.get_device_name()}, {CORES} cores, PyTorch {torch.__version__}",
        "seconds of sound": seconds,
    }
    exact = np.concatenate(list(score_samples(TorchScorer(detector, device="cpu"), sound[: 60 * RATE])))
    scorer = TorchScorer(detector, device="cuda")
    off = np.abs(np.concatenate(list(score_samples(scorer, sound[: 60 * RATE]))) - exact).max()
    numbers["float32, largest difference from the CPU, 1e-6"] = 1e6 * float(off)
    for block in [scorer.block, *blocks]:
        alone = median(partial(exhaust, score_samples, scorer, sound, block=block), rounds)
        numbers[f"float32, blocks of {block:g} s, x real time"] = seconds / alone
    for name, phase in phases_of(detector, "cuda", scorer.block).items():
        numbers[f"float32, {name} alone, x real time"] = scorer.block / median(phase, rounds)
    staged = torch.empty(round(scorer.block * RATE), pin_memory=True)
    part = torch.from_numpy(sound[: len(staged)])

    def send() -> None:
        staged.to("cuda", non_blocking=True)
        torch.cuda.synchronize()

    numbers["to page-locked memory alone, x real time"] = scorer.block / median(lambda: staged.copy_(part), rounds)
    numbers["from there to the GPU alone, x real time"] = scorer.block / median(send, rounds)
    return numbers


def phases_of(detector: Detector, device: str, block: float) -> dict[str, Callable[[], object]]:
    """Features, network, and convolutions without anything else, of one block."""
    assert isinstance(detector.features, FeatureConfig)
    logmel = LogMel(detector.features).to(device)
    x = torch.from_numpy(noise(round(block)))[None].to(device)
    assert isinstance(detector.network, CNN)
    network = frozen(detector.network).to(device)
    assert isinstance(network, FrozenCNN)
    with torch.inference_mode():
        features = logmel(x)
        inputs: list[tuple[Any, torch.Tensor]] = []
        z = features.unsqueeze(-1).permute(0, 3, 1, 2)
        for layer in network.layers:
            inputs.append((layer, z))
            z = layer(z)

    def ready(work: Callable[[], object]) -> Callable[[], None]:
        @torch.inference_mode()
        def run() -> None:
            work()
            if device == "cuda":
                torch.cuda.synchronize()

        return run

    return {
        "features": ready(lambda: logmel(x)),
        "network": ready(lambda: network(features)),
        "convolutions (floor)": ready(
            lambda: [F.conv2d(z, layer.weight, layer.bias, padding=layer.padding) for layer, z in inputs]
        ),
    }


def memory(hours: float, recipe: str) -> dict[str, float | str]:
    """Peak of the process's resident memory, and that before any sound was scored."""
    scorer = TorchScorer(make_detector(recipe), device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.flac"
        minute = noise(60) / 100  # quiet, so that a day fits on a disk
        with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16", format="FLAC") as file:
            for _ in range(round(60 * hours)):
                file.write(minute)
        before = resident("VmHWM")
        seconds = timed(lambda: detect(scorer, path, 2))
    return {
        "hours of sound": hours,
        "peak before, MiB": before / 2**20,
        "peak, MiB": resident("VmHWM") / 2**20,
        "x real time": 3600 * hours / seconds,
    }


def exhaust(generator: Callable[..., Iterable[object]], *arguments: object, **options: object) -> None:
    """Call a generator and draw all that it yields."""
    for _ in generator(*arguments, **options):
        pass


def median(work: Callable[[], object], rounds: int) -> float:
    work()
    return statistics.median(timed(work) for _ in range(rounds))


if __name__ == "__main__":
    main()
