"""Auto-pool, forward and backward, against the same formula written with torch.softmax: time and memory, as ratios.

    python benchmarks/pooling.py [--json FILE]

Runs on the CPU and, if there is one, on the GPU. Both variants are first compared with float64, then timed in turn for
several rounds, of which the median is reported. Extra memory is the peak during forward and backward, above that before
(p and alpha); on a CPU it is the growth of the process's resident memory, which only large shapes show. The floor is
the time to move the necessary bytes (p read twice, its gradient written once) at the speed of a plain copy measured in
the same run.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import extra_memory
from torch import Tensor, nn

from earmark.pooling import AutoPool

SHAPES = [(16, 26, 10), (64, 431, 10), (8, 100_000, 50)]
MEASURABLE_BYTES = 64 << 20


class Formula(nn.Module):
    """A direct implementation of Eq. (8)."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(n_classes))

    def forward(self, p: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = self.alpha * p
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(-1), -torch.inf)
        return (torch.softmax(scores, dim=1) * p).sum(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    rows = []
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        threads = torch.get_num_threads()
        name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {threads} threads"
        bandwidth = copy_bandwidth(device)
        print(f"\n{device}: {name}, torch {torch.__version__}, copy {bandwidth / 1e9:,.0f} GB/s (read + written)")
        print(HEADER)
        for shape in SHAPES:
            for masked in (False, True):
                row = measure(device, shape, masked, bandwidth, args.rounds)
                print(line(row), flush=True)
                rows.append(row | {"on": name})
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


HEADER = (
    f"{'p':>16} {'mask':>5} {'formula':>12} {'earmark':>12} {'faster':>7} {'unchecked':>10} "
    f"{'extra memory, MB':>18} {'ratio':>6} {'floor':>11} {'above':>6}"
)


def line(row: dict[str, Any]) -> str:
    memory, ratio = "-", "-"
    if row["formula_bytes"]:
        memory = f"{row['earmark_bytes'] / 1e6:,.1f} : {row['formula_bytes'] / 1e6:,.1f}"
        ratio = f"{row['earmark_bytes'] / row['formula_bytes']:.2f}x"
    shape, mask = "x".join(map(str, row["shape"])), "yes" if row["masked"] else "no"
    faster, unchecked = row["formula"] / row["earmark"], row["formula"] / row["unchecked"]
    floor, above = "-", "-"
    if row["floor"] > 1e-4 * (1 if row["device"] == "cuda" else 10):  # below, launching is all the time there is
        floor, above = milliseconds(row["floor"]), f"{row['earmark'] / row['floor']:.1f}x"
    return (
        f"{shape:>16} {mask:>5} {milliseconds(row['formula']):>12} {milliseconds(row['earmark']):>12} {faster:6.2f}x "
        f"{unchecked:9.2f}x {memory:>18} {ratio:>6} {floor:>11} {above:>6}"
    )


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def measure(device: str, shape: tuple[int, int, int], masked: bool, bandwidth: float, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(shape, generator=generator).to(device).requires_grad_()
    mask = None
    if masked:
        lengths = torch.randint(shape[1] // 2, shape[1] + 1, (shape[0], 1), generator=generator)
        mask = (torch.arange(shape[1]) < lengths).to(device)
    unchecked = AutoPool(shape[2])
    unchecked.check_values = False
    pools = {"formula": Formula(shape[2]), "earmark": AutoPool(shape[2]), "unchecked": unchecked}
    steps = {name: step(pool.to(device), p, mask) for name, pool in pools.items()}
    check(pools, p, mask)
    times = time_in_turn(steps, device, rounds)
    memory = {name: step_memory(steps[name], device, p) for name in ("formula", "earmark")}
    floor = 3 * p.numel() * p.element_size() / bandwidth
    return {
        "device": device,
        "shape": shape,
        "masked": masked,
        "floor": floor,
        **times,
        **{f"{k}_bytes": v for k, v in memory.items()},
    }


def step(pool: nn.Module, p: Tensor, mask: Tensor | None) -> Callable[[], None]:
    direction = torch.ones(p.shape[0], p.shape[2], device=p.device)

    def run() -> None:
        p.grad = None
        pool.alpha.grad = None
        pool(p, mask).backward(direction)

    return run


def check(pools: dict[str, nn.Module], p: Tensor, mask: Tensor | None) -> None:
    """Compare values and gradients of two bags with those of the formula in float64 on the CPU."""
    few = slice(0, 2)
    x = p.detach()[few].double().cpu().requires_grad_()
    truth = Formula(p.shape[2]).double()
    P = truth(x, None if mask is None else mask[few].cpu())
    P.sum().backward()
    for name, pool in pools.items():
        y = p.detach()[few].clone().requires_grad_()
        pool.zero_grad()
        Q = pool(y, None if mask is None else mask[few])
        Q.sum().backward()
        pairs: list[tuple[Any, Any]] = [(Q, P), (y.grad, x.grad), (pool.get_parameter("alpha").grad, truth.alpha.grad)]
        for got, want in pairs:
            error = (got.detach().double().cpu() - want.detach()).norm() / want.detach().norm()
            if not error < 1e-4:
                sys.exit(f"{name} is wrong at {tuple(p.shape)}: relative error {error:.1e}")


def time_in_turn(steps: dict[str, Callable[[], None]], device: str, rounds: int) -> dict[str, float]:
    repeats = {}
    for name, run in steps.items():
        run()
        once = timed(run, 1, device)
        repeats[name] = max(1, min(2000, int(0.1 / once)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, run in steps.items():
            times[name].append(timed(run, repeats[name], device))
    return {name: statistics.median(t) for name, t in times.items()}


def timed(run: Callable[[], object], n: int, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(n):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / n


def step_memory(run: Callable[[], None], device: str, p: Tensor) -> int:
    """Peak bytes during one step above those before it; 0 where that is too small to measure."""
    p.grad = None
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    return 0 if p.numel() * p.element_size() < MEASURABLE_BYTES else extra_memory(run)


def copy_bandwidth(device: str) -> float:
    """Bytes per second, read plus written, of a copy far larger than any cache."""
    a = torch.rand(1 << 28 if device == "cuda" else 1 << 26, device=device)
    b = torch.empty_like(a)
    times = [timed(lambda: b.copy_(a), 3, device) for _ in range(7)]
    return 2 * a.numel() * a.element_size() / min(times)


if __name__ == "__main__":
    main()
