"""The demonstration: what the operators do, and what alpha learns, on data made here.

Bags of 50 frames (ten seconds, say) are drawn with known truth. Six kinds of event differ in one thing, how long they
last; a label says only that an event is somewhere in the bag. A linear classifier of frames is trained through each
operator, and judged on the frames of unseen bags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from earmark import plots
from earmark.files import make_folder
from earmark.pooling import AutoPool, alpha_to_active_share, create_pool, max_alpha

__all__ = ["DURATIONS", "OPERATORS", "Lesson", "run"]

SECONDS, FRAMES, FEATURES = 10.0, 50, 24
DURATIONS = {"gun shot": 0.4, "dog bark": 1.0, "car horn": 2.0, "siren": 4.0, "engine": 7.0, "rain": 9.6}
"""Seconds that an event of each class lasts."""
OPERATORS: Mapping[str, Mapping[str, object]] = {
    "mean": {},
    "max": {},
    "auto": {},
    "cap": {"bag_size": FRAMES},
    "rap": {"penalty": 1e-3},
}


@dataclass(frozen=True)
class Lesson:
    """What one operator learned."""

    pool: str
    frame_f1: list[float]
    """(classes,): F1 over frames of unseen bags, at 0.5."""
    alpha: list[float] | None
    """(classes,), where the operator has one."""


@dataclass(frozen=True)
class Bags:
    x: Tensor  # (bags, frames, features)
    active: Tensor  # (bags, frames, classes), bool: the truth, for judging only
    y: Tensor  # (bags, classes), 0 or 1: all that training sees


def run(out: Path, tell: Callable[[str], None] = lambda line: None) -> tuple[list[Lesson], list[Path]]:
    """Train each operator, draw the figures into `out`; `tell` is called with a line before each step."""
    make_folder(out)
    tell("drawing how operators share responsibility (Fig. 1) and what bounds it (Fig. 2)")
    files = plots.save(plots.responsibilities(), out / "responsibilities")
    files += plots.save(plots.weight_bounds_by_size(), out / "weight_bounds")
    generator = torch.Generator().manual_seed(0)
    signatures = torch.randn(len(DURATIONS), FEATURES, generator=generator)
    train, test = _draw_bags(600, signatures, generator), _draw_bags(400, signatures, generator)
    lessons = []
    for name, options in OPERATORS.items():
        tell(f"training with pool {name!r} on {len(train.y)} weakly labelled bags")
        lessons.append(_learn(name, options, train, test))
    shares = [seconds / SECONDS for seconds in DURATIONS.values()]
    learned = {lesson.pool: lesson.alpha for lesson in lessons if lesson.alpha is not None}
    bound = float(max_alpha(0.5, FRAMES))
    files += plots.save(plots.alpha_against_share(list(DURATIONS), shares, learned, bound), out / "learned_alpha")
    return lessons, files


def needed_seconds(alpha: float) -> float:
    """alpha read as a duration: how long an event must be active before the bag turns positive."""
    return SECONDS * float(alpha_to_active_share(alpha))


def _draw_bags(n: int, signatures: Tensor, generator: torch.Generator) -> Bags:
    classes = len(DURATIONS)
    y = (torch.rand(n, classes, generator=generator) < 0.4).float()
    lengths = torch.tensor([round(FRAMES * s / SECONDS) for s in DURATIONS.values()])
    onsets = (torch.rand(n, classes, generator=generator) * (FRAMES - lengths + 1)).floor()
    t = torch.arange(FRAMES).reshape(1, -1, 1)
    active = (t >= onsets.unsqueeze(1)) & (t < (onsets + lengths).unsqueeze(1)) & (y.unsqueeze(1) > 0)
    level = 0.5 + torch.rand(n, 1, classes, generator=generator)
    x = (active * level) @ signatures + torch.randn(n, FRAMES, FEATURES, generator=generator)
    return Bags(x, active, y)


def _learn(name: str, options: Mapping[str, object], train: Bags, test: Bags) -> Lesson:
    classes = len(DURATIONS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = nn.Sequential(nn.Linear(FEATURES, classes), nn.Sigmoid())
        pool = create_pool(name, classes, **options)
        groups: list[dict[str, Any]] = [
            {"params": [*network.parameters()]},
            {"params": [*pool.parameters()], "lr": 0.1},
        ]
        optimizer = torch.optim.Adam(groups, lr=0.03)
        for _ in range(30):
            for batch in torch.randperm(len(train.y)).reshape(-1, 50):
                P = pool(network(train.x[batch]))
                loss = F.binary_cross_entropy(P.clamp(1e-6, 1 - 1e-6), train.y[batch]) + pool.penalty()
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                pool.project()
    with torch.no_grad():
        found = network(test.x) >= 0.5
    hits = (found & test.active).sum((0, 1))
    f1 = 2 * hits / (found.sum((0, 1)) + test.active.sum((0, 1))).clamp_min(1)
    return Lesson(name, f1.tolist(), pool.alpha.tolist() if isinstance(pool, AutoPool) else None)
