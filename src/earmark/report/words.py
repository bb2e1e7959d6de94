"""What a page of runs says in sentences: what was trained on what, which model is best, what it is worth."""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from earmark.checkpoint import read_model_info
from earmark.errors import EarmarkError
from earmark.evaluation.comparison import Comparison
from earmark.evaluation.result import Evaluation
from earmark.pooling.bounds import alpha_to_active_share
from earmark.report.tables import DASH, short_number

__all__ = [
    "Moment",
    "Run",
    "achievement",
    "alpha_sentence",
    "commands",
    "facts",
    "heading",
    "lead",
    "listed",
    "needed",
    "percent",
    "read_run",
    "verdict",
]

_FEW = 4  # names in a heading
_USUAL = {"reference": "data", "segment": 1.0, "align": "middle", "threshold": 0.5}  # options of evaluate
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def listed(names: Iterable[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["cap"]), listed(["cap", "rap"]), listed(["cap", "rap", "auto"])
    ('cap', 'cap and rap', 'cap, rap and auto')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def percent(share: float) -> str:
    """A share as readers see it: one digit where it is small.

    >>> percent(0.142), percent(0.0421), percent(0.9), percent(0.0002), percent(float("nan"))
    ('14 %', '4.2 %', '90 %', 'below 0.1 %', '–')
    """
    if not math.isfinite(share):
        return DASH
    if 0 < share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.{1 if 0 < share < 0.0995 else 0}f} %"


class Moment(NamedTuple):
    """One frame of a model's output, the least that it can ask for: its seconds, and its share of a clip."""

    seconds: float
    share: float


@dataclass(frozen=True)
class Run:
    """What a run folder says about itself, as far as it does."""

    saved: Evaluation
    entry: str
    config: str
    """Text of its config.toml; empty where there is none."""
    about: Mapping[str, Any]
    """Of its model file; empty where there is none."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the weights came from."""
        found: Mapping[str, Any] = self.about.get("provenance", {})
        return found

    @property
    def supervision(self) -> str:
        """How it was told: "weak", which classes a clip has; "strong", when; or "mixed", when where that is known."""
        try:
            return str(tomllib.loads(self.config)["training"]["supervision"])
        except (tomllib.TOMLDecodeError, LookupError, TypeError):
            return "weak"


def read_run(saved: Evaluation, entry: str) -> Run:
    """Read what lies beside a judgement, or where its model is."""
    model = Path(str(saved.scores.get("model") or ""))
    places = [saved.folder, *([model.parent] if model.name else [])]
    about: Mapping[str, Any] = {}
    for path in (places[0] / "model.safetensors", model):
        if not about and path.is_file():
            try:
                about = read_model_info(path)
            except EarmarkError:  # a page about scores can do without
                continue
    configs = [place / "config.toml" for place in places if (place / "config.toml").is_file()]
    return Run(saved, entry, configs[0].read_text(encoding="utf-8", errors="replace") if configs else "", about)


def heading(comparison: Comparison) -> str:
    """What the page is called if nobody says."""
    names = [entry.name for entry in comparison.entries]
    who = listed(names) if len(names) <= _FEW else f"{_number(len(names)).capitalize()} models"
    return f"{who}, judged on {comparison.clips:,} clips"


def lead(comparison: Comparison, runs: Sequence[Run]) -> str:
    """What was trained on what, and judged on what."""
    scores = runs[0].saved.scores
    is_one = len(scores["classes"]) == 1
    classes = f"{_number(len(scores['classes']))} kind{'' if is_one else 's'} of sound"
    trained = sorted({run.provenance["training_clips"] for run in runs if "training_clips" in run.provenance})
    models = f"{_number(len(comparison.entries))} model{'s' if len(comparison.entries) > 1 else ''}"
    times = f" ({_number(len(runs))} trainings)" if len(runs) > len(comparison.entries) else ""
    be = "were" if len(comparison.entries) > 1 else "was"
    judged = f"{comparison.clips:,} clips" + (f" of split {scores['split']}" if scores.get("split") else "")
    if not trained:
        return f"{models}{times} {be} judged on {judged}, for {classes}.".capitalize()
    source = " and ".join(dict.fromkeys(_data_name(run.provenance.get("data_source", "")) for run in runs))
    told = {run.entry: run.supervision for run in runs}
    strong = [name for name, supervision in told.items() if supervision != "weak"]
    if len(strong) == len(told):
        taught = f"told when {'' if is_one else 'each of '}{classes} is heard"
    else:
        which = f"whether {classes} is" if is_one else f"which of {classes} are"
        taught = f"told {which} somewhere in a clip, but not when"
    extra = (
        f" Only {listed(strong)} {'was' if len(strong) == 1 else 'were'} told when."
        if 0 < len(strong) < len(told)
        else ""
    )
    clips = " or ".join(f"{count:,}" for count in trained)
    text = f"{models}{times} {be} trained on {clips} clips of {source}, {taught}, and judged on {judged}.{extra}"
    return text[0].upper() + text[1:]


def verdict(comparison: Comparison) -> str:
    """Which model is best, as far as the data say."""
    others = [entry.name for entry in comparison.entries if entry.name != comparison.best]
    if not others:
        return f"There is one model here, {comparison.best}, so there is nothing to compare it with."
    if len(comparison.tied) == len(others):
        who = listed(entry.name for entry in comparison.entries)
        return f"The data do not say which is best: {who} cannot be told apart."
    if comparison.tied:
        return f"{listed([comparison.best, *comparison.tied])} are best; the data do not tell them apart."
    rest = "the other" if len(others) == 1 else "all others"
    return f"{comparison.best} is best: better than {rest} by more than chance."


def achievement(comparison: Comparison) -> str:
    """What the model with the highest score is worth."""
    own = comparison.values[comparison.best]
    part, _, _ = comparison.statistic.rpartition(".")
    f1, precision, recall = (own[f"{part}.{name}"] for name in ("f1", "precision", "recall"))
    where = "Second by second" if comparison.segment == 1 else f"In segments of {comparison.segment:g} s"
    where = where if part == "dynamic" else "Clip by clip"
    return (
        f"{where}, {comparison.best} finds {percent(recall.value)} of what is there, and {percent(precision.value)} of "
        f"what it reports is right (F1 {short_number(f1.value)}, {percent(comparison.level)} interval "
        f"{short_number(f1.low)} to {short_number(f1.high)})."
    )


def needed(alpha: float, moment: Moment | None = None) -> str:
    """How much of a clip alpha asks for: a share of it, or where that is less than one frame, the frame.

    >>> needed(1.8, Moment(0.37, 0.037)), needed(9.0, Moment(0.37, 0.037)), needed(9.0, Moment(0.023, 0.0023))
    ('14 %', '0.4 s', '0.02 s')
    """
    share = float(alpha_to_active_share(alpha))
    if moment is None or share > moment.share:
        return percent(share)
    return f"{moment.seconds:.{1 if moment.seconds >= 0.1 else 2}f} s"


def alpha_sentence(
    label: str, alpha: float, heard: tuple[float, float] | None = None, moment: Moment | None = None
) -> str:
    """Alpha read as a duration, beside the measured one.

    >>> alpha_sentence("siren", 1.8, (2.2, 0.22))
    'siren: alpha 1.8, needs about 14 % of the clip; it is heard for 22 % of a clip that has it'
    >>> alpha_sentence("siren", 9.0, moment=Moment(0.37, 0.037))
    'siren: alpha 9.0, needs a single moment of 0.4 s'
    """
    least = needed(alpha, moment)
    some = f"about {least} of the clip" if least.endswith("%") else f"a single moment of {least}"
    text = f"{label}: alpha {alpha:.1f}, needs {some}"
    return text if heard is None else f"{text}; it is heard for {percent(heard[1])} of a clip that has it"


def facts(comparison: Comparison, runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Names and values of what a reader may want to look up."""
    scores = runs[0].saved.scores
    found = [("Data", str(scores.get("data") or "not recorded"))]
    if scores.get("reference", "data") != "data":
        found.append(("Reference", str(scores["reference"])))
    about = runs[0].provenance
    told = [
        f"{about[key]:,} {use}"
        for key, use in (("training_clips", "to train"), ("validation_clips", "to decide when to stop"))
        if key in about
    ]
    found.append(("Clips", ", ".join([*told, f"{comparison.clips:,} to judge ({scores.get('split') or 'all'})"])))
    found.append(("Classes", ", ".join(scores["classes"])))
    seeds: dict[str, list[str]] = {}
    for run in runs:
        seeds.setdefault(run.entry, []).append(str(run.provenance.get("seed", "")))
    found.append(("Models", "; ".join(f"{name}{_seeds(own)}" for name, own in seeds.items())))
    decoders = dict.fromkeys(_decoder(run.saved.scores.get("decoder")) for run in runs)
    found.append(("Decisions", "; ".join(decoders)))
    versions = about.get("versions", {})
    if versions:
        found.append(("Versions", ", ".join(f"{name} {number}" for name, number in versions.items())))
    return found


def commands(runs: Sequence[Run], out: Path) -> list[str]:
    """What to type to get the same again."""
    folders = [str(run.saved.folder) for run in runs]
    lines = [str(run.provenance["command"]) for run in runs if "command" in run.provenance]
    lines += [_evaluate_command(run.saved) for run in runs if run.saved.scores.get("model")]
    if len(runs) > 1:
        lines.append(shlex.join(["earmark", "compare", *folders]))
    return [*lines, shlex.join(["earmark", "report", *folders, "--out", str(out)])]


def _evaluate_command(saved: Evaluation) -> str:
    scores, model = saved.scores, Path(saved.scores["model"])
    options = {name: scores.get(name) for name in ("split", "reference", "segment", "align")}
    options |= {**(scores.get("decoder") or {}), "tuned_on": None, "tune_on": scores.get("tune_on")}
    if options["tune_on"]:
        del options["threshold"]  # of each class: they were found
    words = ["earmark", "evaluate", str(saved.folder if model.parent == saved.folder else model), str(scores["data"])]
    for name, value in options.items():
        if value and value != _USUAL.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--psds"] if scores.get("psds") else []
    return shlex.join(words if model.parent == saved.folder else [*words, "--out", str(saved.folder)])


def _number(n: int) -> str:
    return _WORDS[n] if n < len(_WORDS) else f"{n:,}"


def _data_name(source: str) -> str:
    name, colon, _ = source.partition(":")
    name = name if colon and len(name) > 1 else Path(source).name
    return f"“{name}”" if name else "a data set"


def _seeds(seeds: Sequence[str]) -> str:
    known = [seed for seed in seeds if seed]
    return f" (seed{'s' if len(known) > 1 else ''} {', '.join(known)})" if known else ""


def _decoder(decoder: Mapping[str, Any] | None) -> str:
    if not decoder:
        return "made elsewhere"
    threshold = decoder.get("threshold")
    tuned = f"tuned on {decoder['tuned_on']}" if decoder.get("tuned_on") else ""
    said = ["thresholds per class" if isinstance(threshold, list) else f"threshold {threshold}", tuned]
    for key, what in (
        ("low", "kept down to {}"),
        ("median", "median of {} s"),
        ("min_duration", "at least {} s long"),
        ("min_gap", "gaps of at least {} s"),
    ):
        value = decoder.get(key)
        if value:
            said.append(what.format("one value per class" if isinstance(value, list) else f"{value:g}"))
    return ", ".join(filter(None, said))
