"""Several training runs on one GPU at the same time: clips per second in total, compared with a single one.

    python benchmarks/sharing.py [--at-once 1 2 3 4] [--seconds 5]

Each run is a process with its own model, graph and features, as with `earmark reproduce --at-once N`. NVIDIA's
multi-process service (`nvidia-cuda-mps-control -d`) lets their kernels overlap; without it they take turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import torch
from training import make_bags, ours, wait

from earmark.settings import load_recipe

BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{device}, torch {torch.__version__}, batches of {BATCH}, compiled")
    print("at once    clips/s together     ratio")
    alone = None
    for n in arguments.at_once:
        together = sum(measured(n, arguments.seconds))
        alone = alone or together
        print(f"{n:7}{together:20.0f}{together / alone:9.2f}x", flush=True)


def measured(n: int, seconds: float) -> list[float]:
    """Clips per second of each of n processes."""
    spawn = multiprocessing.get_context("spawn")
    barrier, rates = spawn.Barrier(n), spawn.Queue()
    workers = [spawn.Process(target=train, args=(barrier, rates, seconds)) for _ in range(n)]
    for worker in workers:
        worker.start()
    result = [rates.get() for _ in workers]
    for worker in workers:
        worker.join()
    return result


def train(barrier: Barrier, rates: Queue[float], seconds: float) -> None:
    settings = load_recipe("paper").changed({"pool": "auto", "batch_size": str(BATCH)})
    step = ours(settings, make_bags(settings), BATCH, compiled=torch.cuda.is_available())
    for _ in range(5):
        step()
    wait()
    barrier.wait()
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(50 if torch.cuda.is_available() else 1):
            step()
            steps += 1
        wait()
    rates.put(steps * BATCH / (time.perf_counter() - begin))


if __name__ == "__main__":
    main()
