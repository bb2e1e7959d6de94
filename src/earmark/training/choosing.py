"""The recipe `auto`: which recipe and settings suit the data and the machine, and how long training will take."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from earmark.datasets import Collection
from earmark.datasets.splitting import FEW
from earmark.encoders import Encoder, provide
from earmark.encoders.base import card_of
from earmark.encoders.features import Features, front_end, stored_encoder, trains_encoder
from earmark.encoders.weights import find
from earmark.errors import ArgumentError, DataError, GpuMemoryError
from earmark.features import FeatureConfig
from earmark.loss import bag_loss
from earmark.parallel import cores
from earmark.settings import Settings, load_recipe
from earmark.text import counted
from earmark.training.loop import create_detector
from earmark.training.run import fold_count, smaller_batches, torch_threads, training_threads

ENCODER = "mn04"
"""The encoder that is used if its weights are there."""

_PROBES = 1000  # recordings whose length is looked up
_LONGEST = {"head": 300.0, "best": 60.0, "small": 60.0}  # the recipes, and seconds of their longest patches
_HEAD_PASSES = 5  # passes of a head over the clips, at least
# With few clips, linear soft-max spreads events out; so does a start at 0.5, where the background of clips with a sound
# is pushed up with it. With few classes, it is also with many clips: other classes tell less what the background is.
_LOW_PRIOR, _FEW_CLASSES = {"prior": 0.1}, 3
_FEW_CLIPS = {**_LOW_PRIOR, "learning_rate": 1e-3, "steps": 6}
_FEW_POOL = {"pool": "linear-cap", "pool.min_active": 0.05, "pool.alpha": 2.0}
_SMALL_PASSES, _SMALL_CLIPS = 100, 20_000  # recipe small, few clips: at most 100 passes, and 20,000 clips in all
_GAIN = 0.6  # n threads are n ** 0.6 times as fast as one; with 2, steps of the recipes are 1.4 to 2 times as fast
_OVERHEAD = 1.6  # factor for the rest of a run: optimiser, batches, validation
_FOLDS = 3  # each trains on two thirds of the clips, so they take twice as long as training on all of them
_TRIES = 4  # of a step, of which the first is slow
_TUNED = {"encoder": ENCODER, "train_encoder": True}
_MANY = 3000  # clips from which a GPU trains the encoder too, rather than a head; measured with 6,000
_FEW, _FEWEST_STEPS = 1000, 16  # with fewer clips, the recipe best has fewer steps, and one round of self-training


def fitting_recipes(changes: Mapping[str, Any]) -> list[str]:
    """Recipes that can have these changes, so that impossible ones are rejected before data are read."""
    fitting, refusal = [], ArgumentError("")
    for recipe in _LONGEST if _named_encoder(changes) is None else ("head",):
        try:
            load_recipe(recipe).changed({"rounds": 0, **changes})
            fitting.append(recipe)
        except ArgumentError as error:
            refusal = error
    if not fitting:
        raise refusal
    return fitting


@dataclass(frozen=True)
class Choice:
    """A recipe, its settings, and lines for the user: what was chosen and why, where, and how long it will take."""

    recipe: str
    settings: Settings
    reasons: tuple[str, ...]


def encoder_changes(encoder: str | Encoder | None) -> dict[str, Any]:
    """The settings of an encoder; one that does not read sound cannot learn from mixtures."""
    if encoder is None:
        return {}
    provided = provide(encoder)
    changes = {"encoder": encoder if isinstance(encoder, str) else encoder.card.name}
    return changes if provided.reads_sound else {**changes, "mixtures": 0}


def _named_encoder(changes: Mapping[str, Any]) -> str | None:
    """The encoder that the user asks for."""
    name: str | None = changes.get("encoder", changes.get("features.encoder"))
    return name


def choose(data: Collection, changes: Mapping[str, Any], device: torch.device) -> Choice:
    """The recipe and settings for the training clips on this machine, with changes by the user."""
    training = data.split("train") if "train" in data.splits else data
    seconds = _durations(training)
    recipe, why = _recipe(fitting_recipes(changes), _named_encoder(changes), on_gpu=device.type == "cuda")
    if recipe == "head" and device.type == "cuda" and len(training) >= _MANY and _can_be_tuned(changes):
        recipe, changes = "best", {**_TUNED, **changes}
        why = f"a recurrent network and the encoder {ENCODER}, both trained, and self-training, on the GPU"
    settings = load_recipe(recipe).changed({"rounds": 0, **changes})
    rounds = 0 if settings.training.supervision in ("strong", "propagated") else load_recipe(recipe).training.rounds
    longest = _LONGEST["best" if trains_encoder(settings.features) else recipe]
    suited = _suited(recipe, len(training), seconds, rounds, longest)
    if "validate" not in data.splits and len(training) < FEW:
        suited["folds"] = _FOLDS
    if recipe == "head" and len(data.classes) <= _FEW_CLASSES:
        suited |= _LOW_PRIOR
    if isinstance(settings.features, FeatureConfig):
        suited["scaling"] = "fixed"  # the same sound has the same features in a recording of any length
    if any(name.split(".")[0] == "pool" for name in changes):  # its options need not fit another pool
        suited = {name: value for name, value in suited.items() if name not in _FEW_POOL}
    settings = load_recipe(recipe).changed({**suited, **changes})
    patch = settings.training.patch
    whole = "as long as the longest recording" if patch >= max(seconds, default=0.0) else "parts of longer recordings"
    total = sum(seconds) / max(len(seconds), 1) * len(training)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else _threads()
    lines = [f"recipe {recipe}: {why}", f"excerpts of {patch:g} s, {whole}"]
    most = settings.training.batch_size
    trained = settings.changed({"folds": fold_count(data, settings)})
    while (minutes := _minutes(trained, len(training), total, device)) is None:
        trained, settings = (_with_smaller_batches(each, changes) for each in (trained, settings))
    if (size := settings.training.batch_size) < most:
        lines.append(f"batches of {size} instead of {most} excerpts, since the GPU has too little memory for more")
    lines.append(f"computed on {where}; expected to take {rough_duration(minutes)}")
    return Choice(recipe, settings, tuple(lines))


def _recipe(fitting: Sequence[str], encoder: str | None, *, on_gpu: bool) -> tuple[str, str]:
    """The best recipe for this machine that can have the user's settings, and why."""
    if encoder is not None:
        return "head", f"a small network on the encoder {encoder}"
    card = card_of(ENCODER)
    if "head" in fitting and card is not None and find(card[0]) is not None:
        return "head", f"a small network on the encoder {ENCODER}, which is installed"
    if "best" in fitting and on_gpu:
        return "best", "a recurrent network and self-training, on the GPU"
    if "small" in fitting:
        return "small", f"no GPU and no encoder; with few labels, try: earmark encoders get {ENCODER}"
    return fitting[0], "the only recipe with the given settings"


def _minutes(settings: Settings, clips: int, seconds: float, device: torch.device) -> float | None:
    """The estimate in minutes; None if the GPU does not have enough memory for a step."""
    try:
        return estimate(settings, clips, seconds, device) / 60
    except torch.cuda.OutOfMemoryError:
        return None


def _with_smaller_batches(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with batches of half the size, and twice as many, unless the user has chosen these numbers."""
    size, chosen = settings.training.batch_size, {name.removeprefix("training.") for name in changes}
    if size == 1 or "batch_size" in chosen:
        raise GpuMemoryError(f"the GPU does not have enough free memory; {smaller_batches(settings)}")
    steps = {} if "steps" in chosen else {"steps": 2 * settings.training.steps}
    return settings.changed({"batch_size": size // 2, **steps})


def _can_be_tuned(changes: Mapping[str, Any]) -> bool:
    """Whether the recipe `best` can train the encoder with these changes, which name no encoder or network."""
    recipe = load_recipe("best")
    try:
        changed = recipe.changed({"rounds": 0, **_TUNED, **changes})
    except ArgumentError:
        return False
    return _named_encoder(changes) is None and changed.network["name"] == recipe.network["name"]


def _suited(recipe: str, clips: int, seconds: Sequence[float], rounds: int, longest: float) -> dict[str, Any]:
    """Settings of a recipe that suit the number of clips and their lengths; patches are at most `longest`."""
    patch = max(1.0, min(longest, math.ceil(10 * max(seconds, default=10.0)) / 10))
    suited: dict[str, Any] = {"patch": patch, "rounds": rounds}
    if recipe == "head":
        options = load_recipe(recipe).training
        if clips < FEW:
            return {**suited, **_FEW_CLIPS, **_FEW_POOL}
        passes = math.ceil(_HEAD_PASSES * math.ceil(clips / options.batch_size) / options.epochs)
        return {**suited, "steps": max(options.steps, passes)}
    if recipe == "best" and clips < _FEW:
        steps = max(_FEWEST_STEPS, math.ceil(load_recipe(recipe).training.steps * clips / _FEW))
        return {**suited, "steps": steps, "rounds": min(1, rounds)}
    if recipe == "small":
        passes = min(_SMALL_PASSES, _SMALL_CLIPS // max(clips, 1))
        return {**suited, "epochs": max(passes, load_recipe(recipe).training.epochs)}
    return suited


def estimate(settings: Settings, clips: int, seconds: float, device: torch.device) -> float:
    """Seconds that features and training will take, from the times of a few steps on noise, without anything saved.

    On a CPU, the processor time of one thread is measured, since other processes may be using the processor now;
    several threads would also count the time that they wait for each other. The time of several threads follows from
    it, as a rough estimate. Of several tries the fastest counts. Cross-validation with k folds and training on all
    clips take as long as k runs on all.
    """
    options = settings.training
    count = clips + settings.augment.mixtures
    networks = max(1, options.rounds + (options.teacher is None))  # a teacher counts as the first
    per_epoch = options.steps or math.ceil(count / options.batch_size)
    steps = per_epoch * options.epochs * networks * max(1, options.folds)
    gain: float = 1.0 if device.type == "cuda" else training_threads(settings) ** _GAIN
    everything = seconds * count / max(clips, 1)
    with torch_threads(1):
        per_step = _seconds_of_step(settings, device) / gain
        per_second = _seconds_of_features(settings.features) / cores()
    return _OVERHEAD * (steps * per_step + everything * per_second)


def rough_duration(minutes: float) -> str:
    """A duration to about a tenth, as estimates are no better than that.

    >>> [rough_duration(minutes) for minutes in (0.4, 1.2, 17.0, 163.0, 3000.0)]
    ['less than a minute', 'about 1 minute', 'about 15 minutes', 'about 3 hours', 'about 50 hours']
    """
    if minutes < 1:
        return "less than a minute"
    if round(minutes) < 10:
        return f"about {counted(round(minutes), 'minute')}"
    if minutes < 90:
        return f"about {5 * round(minutes / 5)} minutes"
    return f"about {round(minutes / 60)} hours"


def _seconds_of_step(settings: Settings, device: torch.device) -> float:
    """Seconds of one training step."""
    config, size = settings.features, settings.training.batch_size
    on_gpu = device.type == "cuda"
    bags = 1 if trains_encoder(config) and not on_gpu else size  # a step may take a minute
    detector = create_detector(settings, ("a", "b")).to(device)
    frames = max(config.frames(round(settings.training.patch * config.rate)), detector.reduction)
    x, targets = torch.randn(bags, config.n_bands, frames, device=device), torch.ones(bags, 2, device=device)
    clock = time.perf_counter if on_gpu else time.thread_time

    def step() -> float:
        begin = clock()
        bag_loss(detector(x).static, targets).backward()  # type: ignore[no-untyped-call]
        if on_gpu:
            torch.cuda.synchronize()
        return clock() - begin

    return min(step() for _ in range(_TRIES)) * size / bags


def _seconds_of_features(config: Features) -> float:
    """Seconds in which one thread computes the features of one second of sound; 0 if they are read from files."""
    if stored_encoder(config) is not None:
        return 0.0
    transform = front_end(config)
    sound = torch.randn(1, round(10 * config.rate)) / 10

    def ten_seconds() -> float:
        begin = time.process_time()  # also of threads that PyTorch did not start, as an ONNX file has
        transform(sound)
        return time.process_time() - begin

    with torch.inference_mode():
        return min(ten_seconds() for _ in range(_TRIES)) / 10


def _threads() -> str:
    return f"the CPU, {counted(torch.get_num_threads(), 'thread')}"


def _durations(data: Collection) -> list[float]:
    """Seconds of the clips, or of some of them if there are many; those that cannot be read are left out."""
    step = max(1, len(data.clips) // _PROBES)
    found = []
    for clip in data.clips[::step]:
        try:
            found.append(max(source.duration for source in clip.sources))
        except (DataError, OSError):
            continue
    return found
