"""Speed of training steps in clips per second, compared with the same network in plain eager PyTorch.

    python benchmarks/training.py [--recipe paper] [--batch 16] [--seconds 10]

Ten-second clips, ten classes, the recipe's network, pool and optimiser: forward, loss, backward and step. The plain
variants use the same modules without graph and compiler, in float32 and with autocast to bf16. After a warm-up, all
variants are timed in turn for several rounds, of which the median is reported. On a GPU, features are drawn from a
table in its memory, so that loading is part of the measurement.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch
import torch.nn.functional as F

from earmark.annotations import LabelTable
from earmark.bags import Bags, build_store
from earmark.datasets.base import Clip, Source
from earmark.settings import Settings, load_recipe
from earmark.training import create_detector
from earmark.training.run import make_fabric
from earmark.training.steps import Step, make_optimizer

BASELINE = "plain eager float32"
CLASSES = tuple(f"class {k}" for k in range(10))
KERNELS = {  # parts of the names of kernels; the first match counts
    "dgrad": "convolution, gradient of its input",
    "wgrad": "convolution, gradient of its weights",
    "fprop": "convolution, forward",
    "conv": "convolution, other",
    "cudnn": "convolution, other",
    "nchw": "change of layout",
    "nhwc": "change of layout",
    "adam": "Adam",
    "max_pool": "max-pooling",
    "triton": "fused: ReLU, normalisation, pooling, loss",
    "gemm": "matrix product",
    "memcpy": "copies",
    "memset": "copies",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--seconds", type=float, default=10.0, help="per variant")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recipe", default="paper", help="paper or best, for example")
    parser.add_argument("--profile", action="store_true", help="also print the time of kinds of GPU kernels")
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"{device}, torch {torch.__version__}, recipe {arguments.recipe}")
    for batch in arguments.batch:
        settings = load_recipe(arguments.recipe).changed({"batch_size": str(batch)})
        bags = make_bags(settings)
        variants: dict[str, Callable[[], None]] = {BASELINE: plain(settings, bags, batch, torch.float32)}
        if on_gpu:
            variants["plain eager bf16"] = plain(settings, bags, batch, torch.bfloat16)
            variants["bf16, CUDA graph"] = ours(settings, bags, batch, compiled=False)
            variants["bf16, compiled, CUDA graph"] = ours(settings, bags, batch, compiled=True)
        else:
            variants["earmark"] = ours(settings, bags, batch, compiled=False)
            variants["earmark, compiled"] = ours(settings, bags, batch, compiled=True)
        table(variants, batch, arguments.rounds, arguments.seconds)
        if arguments.profile and on_gpu:
            profile(*list(variants.items())[-1])


def make_bags(settings: Settings) -> Bags:
    """Bags of noise."""
    rng, folder = np.random.default_rng(0), Path(tempfile.mkdtemp())
    rate, names = settings.features.rate, [f"{i}.wav" for i in range(64)]
    for name in names:
        soundfile.write(folder / name, rng.normal(0, 0.1, round(settings.training.patch * rate)), rate)
    clips = [Clip(name, (Source(folder / name),)) for name in names]
    labels = LabelTable([(n, 1.0, 4.0, CLASSES[k]) for n in names for k in rng.choice(10, 3, replace=False)])
    store = build_store(folder / "store", clips, settings.features)
    return Bags(store, labels, device="cuda" if torch.cuda.is_available() else "cpu")


def plain(settings: Settings, bags: Bags, batch: int, dtype: torch.dtype) -> Callable[[], None]:
    detector = create_detector(settings, CLASSES).to(bags.device).train()
    optimizer = torch.optim.Adam(detector.parameters(), 1e-3)
    batches = endless(bags, batch)

    def step() -> None:
        b = next(batches)
        optimizer.zero_grad()
        with torch.autocast(bags.device.type, dtype, enabled=dtype != torch.float32):
            output = detector(b.features)
        torch.autograd.backward(F.binary_cross_entropy(output.static.float(), b.targets))
        optimizer.step()

    return step


def ours(settings: Settings, bags: Bags, batch: int, *, compiled: bool) -> Callable[[], None]:
    settings = settings.changed({"compile": "yes" if compiled else "no"})
    fabric = make_fabric(settings)
    detector = create_detector(settings, CLASSES).to(bags.device)
    optimizer = make_optimizer(detector, settings.training, bags.device)
    module, wrapped = fabric.setup(detector, optimizer)
    detector.train()
    step = Step(fabric, module, detector, wrapped, settings)
    batches = endless(bags, batch)

    def one() -> None:
        step(next(batches))

    return one


def endless(bags: Bags, batch: int):  # type: ignore[no-untyped-def]
    epoch = 0
    while True:
        yield from bags.draw(512, batch, patch=10.0, seed=0, epoch=epoch, with_frames=False)
        epoch += 1


def table(variants: dict[str, Callable[[], None]], batch: int, rounds: int, seconds: float) -> None:
    rates: dict[str, list[float]] = {name: [] for name in variants}
    counts = {}
    for name, step in variants.items():
        begin = time.perf_counter()
        for _ in range(3):
            step()
        wait()
        warm = time.perf_counter() - begin
        begin = time.perf_counter()
        step()
        wait()
        counts[name] = max(2, min(2000, round(seconds / rounds / (time.perf_counter() - begin))))
        print(f"  {name}: first three steps {warm:.1f} s")
    for _ in range(rounds):
        for name, step in variants.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                step()
            wait()
            rates[name].append(counts[name] * batch / (time.perf_counter() - begin))
    base = statistics.median(rates[BASELINE])
    print(f"\nbatch {batch}{'':24}clips/s     ratio")
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"{name:30}{rate:9.0f}  {rate / base:7.2f}x")
    print()


def profile(name: str, step: Callable[[], None], steps: int = 50) -> None:
    """Print the share of the GPU's time by kind of kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as record:
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        taken = time.perf_counter() - begin
    kinds: dict[str, float] = {}
    for event in record.key_averages():
        kind = next((k for word, k in KERNELS.items() if word in event.key.lower()), "other")
        kinds[kind] = kinds.get(kind, 0.0) + event.self_device_time_total / 1e6
    print(f"{name}: share of {1000 * taken / steps:.2f} ms per step")
    for kind, used in sorted(kinds.items(), key=lambda pair: -pair[1]):
        print(f"  {kind:40}{used / taken:7.1%}")
    print(f"  {'no kernel running':40}{max(0.0, 1 - sum(kinds.values()) / taken):7.1%}\n")


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
