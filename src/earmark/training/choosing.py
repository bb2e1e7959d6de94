"""The recipe `auto`: which recipe and settings suit the data and the machine, and how long training will take."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from earmark import audio
from earmark.datasets import Collection
from earmark.encoders import front_end
from earmark.encoders.base import card_of
from earmark.encoders.weights import find
from earmark.errors import ArgumentError, DataError
from earmark.loss import bag_loss
from earmark.settings import Settings, load_recipe
from earmark.text import counted
from earmark.training.loop import create_detector

ENCODER = "mn04"
"""The encoder that is used if its weights are there."""

_PROBES = 1000  # recordings whose length is looked up
_LONGEST = {"head": 300.0, "best": 60.0, "small": 60.0}  # seconds of a patch
_MIXED_SECONDS = 10_000.0  # of mixtures for an encoder, which computes each of them
_MOST_MIXTURES = 1000
_HEAD_SECONDS = 500_000.0  # of embeddings that a head learns from, over all epochs: about a minute on two cores
_OVERHEAD = 1.6  # of a run over its steps and features: optimiser, batches, validation
_FEW, _FEWEST_STEPS = 1000, 16  # of fewer clips, the recipe best takes fewer steps, and self-training once


@dataclass(frozen=True)
class Choice:
    """A recipe, changes to it, and the reasons, a line each."""

    recipe: str
    changes: Mapping[str, Any]
    reasons: tuple[str, ...]


def choose(data: Collection, *, on_gpu: bool) -> Choice:
    """The recipe for the training clips on this machine."""
    training = data.split("train") if "train" in data.splits else data
    seconds = _durations(training)
    longest, mean = max(seconds, default=10.0), sum(seconds) / max(len(seconds), 1) or 10.0
    card = card_of(ENCODER)
    if card is not None and find(card[0]) is not None:
        recipe, reason = "head", f"a small network on the encoder {ENCODER}, which is installed"
    elif on_gpu:
        recipe, reason = "best", "a recurrent network and self-training, on the GPU"
    else:
        recipe, reason = "small", f"no GPU and no encoder; with few labels, try: earmark encoders get {ENCODER}"
    changes: dict[str, Any] = {}
    patch = max(1.0, min(_LONGEST[recipe], math.ceil(10 * longest) / 10))
    if recipe == "head":
        mixtures = max(1, min(_MOST_MIXTURES, round(_MIXED_SECONDS / mean)))
        epochs = round(_HEAD_SECONDS / (patch * (len(training) + mixtures)))
        changes = {"encoder": ENCODER, "mixtures": mixtures, "epochs": max(15, min(40, epochs))}
    elif recipe == "best" and len(training) < _FEW:
        changes = {"steps": max(_FEWEST_STEPS, math.ceil(128 * len(training) / _FEW)), "rounds": 1}
    changes["patch"] = patch
    whole = "as long as the longest recording" if patch >= longest else "parts of longer recordings"
    length = f"excerpts of {patch:g} s, {whole}"
    return Choice(recipe, changes, (f"recipe {recipe}: {reason}", length))


def first_fitting(changes: Mapping[str, Any]) -> Settings:
    """The first recipe that can have these changes, to refuse impossible ones before data are read."""
    refusal: ArgumentError | None = None
    for recipe in ("small", "best", "head"):
        try:
            return load_recipe(recipe).changed({"rounds": 0, **changes})
        except ArgumentError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def estimate(settings: Settings, clips: int, seconds: float, device: torch.device) -> float:
    """Seconds that features and training will take, from the time of one step on noise, without anything saved."""
    knobs = settings.training
    count = clips + settings.augment.mixtures
    steps = (knobs.steps or math.ceil(count / knobs.batch_size)) * knobs.epochs * (knobs.rounds + 1)
    config = settings.features
    frames = config.frames(round(knobs.patch * config.rate))
    detector = create_detector(settings, ("a", "b")).to(device)
    x = torch.randn(knobs.batch_size, config.n_bands, max(frames, detector.reduction), device=device)
    targets = torch.ones(knobs.batch_size, 2, device=device)

    def step() -> float:
        begin = time.perf_counter()
        bag_loss(detector(x).static, targets).backward()  # type: ignore[no-untyped-call]
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    step()
    transform = front_end(config)
    sound = torch.randn(1, round(10 * config.rate)) / 10
    with torch.inference_mode():
        transform(sound)
        begin = time.perf_counter()
        transform(sound)
        per_second = (time.perf_counter() - begin) / 10
    everything = seconds * count / max(clips, 1)
    return _OVERHEAD * (steps * step() + everything * per_second)


def choose_settings(
    data: Collection, changes: Mapping[str, Any], supervision: str, device: torch.device
) -> tuple[str, Settings, list[str]]:
    """The recipe for these data and this machine, its settings with changes, and lines for the user.

    The lines say what was chosen and why, where it is computed, and how long that will take.
    """
    choice = choose(data, on_gpu=device.type == "cuda")
    without = {"rounds": 0} if supervision in ("strong", "propagated") else {}
    settings = load_recipe(choice.recipe).changed({**choice.changes, **without, **changes})
    training = data.split("train") if "train" in data.splits else data
    probed = _durations(training)
    total = sum(probed) / max(len(probed), 1) * len(training)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else _threads()
    minutes = estimate(settings, len(training), total, device) / 60
    long = "less than a minute" if minutes < 1 else f"about {counted(round(minutes), 'minute')}"
    return choice.recipe, settings, [*choice.reasons, f"computed on {where}; expected to take {long}"]


def _threads() -> str:
    return f"the CPU, {counted(torch.get_num_threads(), 'thread')}"


def _durations(data: Collection) -> list[float]:
    """Seconds of the clips, or of some of them if there are many; those that cannot be read are left out."""
    step = max(1, len(data.clips) // _PROBES)
    found = []
    for clip in data.clips[::step]:
        try:
            found.append(max(audio.info(source.path).duration for source in clip.sources))
        except (DataError, OSError):
            continue
    return found
