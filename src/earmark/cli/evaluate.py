"""`earmark evaluate`"""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.app import Json, app, counted, make_console, progress_bar
from earmark.errors import ArgumentError, EarmarkError
from earmark.files import json_text

if TYPE_CHECKING:
    from earmark.annotations import LabelTable
    from earmark.detector import Detector
    from earmark.evaluation.result import Evaluation
    from earmark.evaluation.scoring import EvaluationOptions
    from earmark.events import Decoder
    from earmark.inference.scores import RecordingScores

__all__ = ["evaluate"]

_REFERENCE_HELP = (
    "Labels to judge by instead of the data's: a file or folder of any format, or the word authors, for the reference "
    "of URBAN-SED that the paper's Table I was scored against."
)


@app.command()
def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL|EVENTS", help="A run folder, a model file, or a file of events.", show_default=False
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="As for train: a folder, a table, or NAME:PATH. For EVENTS, a file of labels is enough.",
            show_default=False,
        ),
    ],
    split: Annotated[str, typer.Option(help="Which clips to judge by.")] = "test",
    out: Annotated[
        Path | None, typer.Option(help="Folder for scores, events and figures; if not given, the run.")
    ] = None,
    reference: Annotated[str | None, typer.Option(metavar="FILE|authors", help=_REFERENCE_HELP)] = None,
    segment: Annotated[float, typer.Option(help="Length of segments in seconds.")] = 1.0,
    threshold: Annotated[float, typer.Option(help="From which probability on a frame is active.")] = 0.5,
    median: Annotated[float, typer.Option(help="Length of the median filter in seconds.")] = 0.0,
    min_duration: Annotated[float, typer.Option(help="Shortest event that is kept, in seconds.")] = 0.0,
    min_gap: Annotated[float, typer.Option(help="Shortest gap that parts two events, in seconds.")] = 0.0,
    tune_on: Annotated[
        str | None, typer.Option(metavar="SPLIT", help="Choose the threshold of each class on this split.")
    ] = None,
    psds: Annotated[bool, typer.Option(help="PSDS too; takes some seconds per 1,000 clips.")] = False,
    durations: Annotated[
        Path | None, typer.Option(help="For EVENTS: a table of clips with columns filename and duration.")
    ] = None,
    align: Annotated[str, typer.Option(help="Where a frame's value stands: middle, or authors.")] = "middle",
    cache: Annotated[Path | None, typer.Option(help="Folder for features, as for train.")] = None,
    as_json: Json = False,
) -> None:
    """Judge a model, or events found elsewhere, on labelled clips: which classes are where (static), when (dynamic).

    Example: earmark evaluate run recordings --split test

    Example: earmark evaluate events.csv truth.tsv --durations durations.tsv --out judged
    """
    from earmark.evaluation.scoring import EvaluationOptions
    from earmark.events import Decoder

    about: dict[str, Any] = {"data": data, "split": split, "reference": reference or "data", "segment": segment}
    about["tune_on"] = tune_on
    decoder = Decoder(threshold=threshold, median=median, min_duration=min_duration, min_gap=min_gap)
    options = EvaluationOptions(segment, align, with_psds=psds, decoder=decoder)
    judged: _Model | _Events
    if _is_model(model) or _is_swapped(model, Path(data)):  # the latter is refused where it is opened
        if durations is not None:
            raise ArgumentError("--durations is for events; of a model's clips the sound itself says how long they are")
        judged = _Model(model, data, split, reference, cache, quiet=as_json)
        judgement = judged.judge(options, tune_on, about)
    else:
        given = {"--tune-on": tune_on, **{f"--{k.replace('_', '-')}": v for k, v in _changed(decoder).items()}}
        if used := [name for name, value in given.items() if value is not None]:
            raise ArgumentError(f"{', '.join(used)}: events are decided on already; give a model to decide otherwise")
        judged = _Events(model, data, split, reference, durations)
        judgement = judged.judge(options, about)
    folder = out or judged.home
    if folder is None:
        raise ArgumentError("say by --out in which folder to put the scores of these events")
    judgement.save(folder)
    result = judgement.to_dict()
    figures = _draw(folder, judged.name, judgement, judged.table, judged.about.get("alpha"))
    if as_json:
        print(json_text(result))
        return
    _tell(result, folder, figures)


def _is_model(path: Path) -> bool:
    """Whether a path is a run or a model; what is neither is taken for labels."""
    if path.suffix == ".onnx":
        raise ArgumentError(f"{path}: judge the model that it was exported from; they agree, as export has checked")
    if path.is_dir():
        return any((path / name).exists() for name in ("model.safetensors", "config.toml", "last.ckpt"))
    if not path.exists() or path.suffix == ".safetensors":
        return True  # and refused as such where it is opened
    with path.open("rb") as file:  # a model file begins with the length of its header, in eight bytes
        return path.suffix != ".gz" and b"\0" in file.read(8)


def _is_swapped(model: Path, data: Path) -> bool:
    """Whether a folder comes first, and a run or model where data are expected."""
    return model.is_dir() and ((data / "model.safetensors").is_file() or data.suffix == ".safetensors")


def _changed(decoder: Decoder) -> dict[str, Any]:
    """Settings that are not the default."""
    usual = type(decoder)().to_dict()
    return {name: value for name, value in decoder.to_dict().items() if value != usual[name]}


def _read_reference(reference: str | None, own: LabelTable) -> LabelTable:
    from earmark.evaluation.authors import authors_reference
    from earmark.formats import read_labels

    if reference is None:
        return own
    return authors_reference(own) if reference == "authors" else read_labels(reference)


def _seen(model: Path, data: str, split: str) -> tuple[str, ...]:
    """What is to be said if the model knows these clips from its training; nothing where nobody can tell."""
    from earmark.checkpoint import read_model_info
    from earmark.datasets import open_data
    from earmark.evaluation.cautions import seen_notes
    from earmark.training.run import data_fingerprint

    known, notes = read_model_info(model)["provenance"].get("data"), seen_notes(split)
    if not known or not notes:
        return ()
    try:
        whole = open_data(data)
    except EarmarkError:  # other splits may not be here; the one that is judged can do without them
        return ()
    return notes if data_fingerprint(whole) == known else ()


class _Model:
    """A model, and the clips it is judged on."""

    def __init__(
        self, model: Path, data: str, split: str, reference: str | None, cache: Path | None, *, quiet: bool
    ) -> None:
        import torch

        from earmark.checkpoint import load_detector, model_file
        from earmark.datasets import open_data
        from earmark.evaluation.references import fit_reference

        path = model_file(model, "MODEL DATA")
        self.home: Path | None = path.parent
        self.detector: Detector = load_detector(path)
        self.name = self.detector.pool.name
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.data, self.split, self.cache, self.quiet = data, split, cache, quiet
        self.collection = open_data(data, split)
        names = [clip.filename for clip in self.collection.clips]
        found = _read_reference(reference, self.collection.labels)
        self.table, notes = fit_reference(found, names, self.detector.classes)
        config = path.parent / "config.toml"
        self.about: dict[str, Any] = {
            "model": str(path),
            "config": tomllib.loads(config.read_text(encoding="utf-8")) if config.is_file() else None,
            "alpha": self.detector.alpha,
            "notes": [*_seen(path, data, split), *notes],
        }

    def judge(self, options: EvaluationOptions, tune_on: str | None, about: dict[str, Any]) -> Evaluation:
        from earmark.datasets.matching import first_few
        from earmark.evaluation.scoring import evaluate_scores

        if tune_on is not None:
            options = replace(options, decoder=self._tuned(options, tune_on))
        clips, skipped = self._score(self.split, self.table)
        if skipped:
            one = len(skipped) == 1
            what = "1 clip could not be read and is" if one else f"{len(skipped)} clips could not be read and are"
            self.about["notes"].append(f"{what} left out: {first_few(f'{k} ({why})' for k, why in skipped.items())}")
        self.about |= {"skipped": skipped, "align": options.align}
        self.about["threshold"] = options.decoder.to_dict()["threshold"]
        with make_console(stderr=True, quiet=self.quiet).status("judging ..."):
            return evaluate_scores(clips, self.table, options, about={**about, **self.about})

    def _tuned(self, options: EvaluationOptions, split: str) -> Decoder:
        from earmark.datasets import open_data
        from earmark.evaluation.references import fit_reference
        from earmark.evaluation.thresholds import tune_thresholds

        if split in ("test", self.split):
            what = "the test split" if split == "test" else "the clips that are judged"
            raise ArgumentError(f"--tune-on {split}: thresholds tuned on {what} would flatter the model; use validate")
        collection = open_data(self.data, split)
        names = [clip.filename for clip in collection.clips]
        table, _ = fit_reference(collection.labels, names, self.detector.classes)
        clips, _ = self._score(split, table)
        with make_console(stderr=True, quiet=self.quiet).status("tuning thresholds ..."):
            return tune_thresholds(clips, table, options, tuned_on=f"{self.data}, {split}")

    def _score(self, split: str, table: LabelTable) -> tuple[list[RecordingScores], dict[str, str]]:
        """Probabilities of the clips that a table speaks of, and why some have none."""
        from earmark.bags import Bags, build_store
        from earmark.cli.train import default_cache
        from earmark.datasets import open_data
        from earmark.inference.bags import score_bags

        collection = self.collection if split == self.split else open_data(self.data, split)
        features = self.detector.features
        store_folder = (self.cache or default_cache(self.data)) / f"{split}-{features.fingerprint()}"
        with progress_bar("features", quiet=self.quiet) as progress:
            store = build_store(store_folder, collection.clips, features, progress=progress)
        bags = Bags(store, table, device=self.device)
        with progress_bar("probabilities", quiet=self.quiet) as progress:
            clips = []
            for clip in score_bags(self.detector.to(self.device), bags):
                clips.append(clip.as_scores(self.detector))
                progress(len(clips), len(bags))
        wanted = set(table.filenames)
        return clips, {name: why for name, why in store.skipped.items() if name in wanted}


class _Events:
    """Events found elsewhere, and the reference they are judged by."""

    home: Path | None = None

    def __init__(self, events: Path, data: str, split: str, reference: str | None, durations: Path | None) -> None:
        from earmark.evaluation.references import fit_durations, fit_estimate, fit_reference, read_durations
        from earmark.formats import read_labels

        own = _labels_of(data, split)
        notes: tuple[str, ...] = ()
        self.table = own
        if reference is not None:
            self.table, notes = fit_reference(_read_reference(reference, own), own.filenames)
        self.durations = None
        if durations is not None:
            self.durations, (self.table, more) = fit_durations(read_durations(durations), self.table)
            notes += more
        self.table, (self.estimate, more) = fit_estimate(read_labels(events), self.table)
        self.name = events.stem
        self.about: dict[str, Any] = {"model": None, "events": str(events), "notes": [*notes, *more]}

    def judge(self, options: EvaluationOptions, about: dict[str, Any]) -> Evaluation:
        from earmark.evaluation.scoring import evaluate_events

        about = {**about, **self.about}
        return evaluate_events(self.estimate, self.table, options, durations=self.durations, about=about)


def _labels_of(data: str, split: str) -> LabelTable:
    """Labels of a data set, or of a file or folder of labels; of one split, where they have splits."""
    from earmark import audio
    from earmark.datasets import open_data
    from earmark.formats import read_labels

    path = Path(data)
    if not path.is_file() and not (path.is_dir() and not any(audio.find(path))):
        return open_data(data, split).labels
    table = read_labels(path)
    if not table.splits:
        return table
    own = [name for name in table.filenames if table.splits.get(name) == split]
    if not own:
        raise ArgumentError(
            f"{data}: no clips of split {split!r}; it has {', '.join(sorted(set(table.splits.values())))}"
        )
    return table.select(own)


def _draw(
    folder: Path, name: str, judgement: Evaluation, reference: LabelTable, alpha: list[float] | None
) -> list[Path]:
    """Figures of what there is to draw."""
    from earmark import plots
    from earmark.evaluation.scoring import segment_curve
    from earmark.evaluation.statistics import bootstrap, ratio

    counts = judgement.static_counts if judgement.dynamic_counts is None else judgement.dynamic_counts
    interval = bootstrap(counts, ratio("f1", "per_class", judgement.scores["convention"]))
    f1 = {
        label: float(value)
        for label, value in zip(counts.classes, interval.value, strict=True)
        if not math.isnan(value)
    }
    bars = dict(zip(counts.classes, zip(interval.low.tolist(), interval.high.tolist(), strict=True), strict=True))
    made = {}
    if f1:
        what = "clips" if judgement.dynamic_counts is None else "segments"
        own = {label: bars[label] for label in f1}
        words = f"F1 of {what}; lines: 95 % intervals"
        made["f1_by_class"] = plots.f1_by_class({name: f1}, {name: own}, label=words)
    if alpha is not None:
        made["learned_alpha"] = plots.learned_alpha({name: dict(zip(counts.classes, alpha, strict=True))})
    if judgement.dynamic is not None and judgement.scores["grid"] is not None:
        threshold = judgement.scores["decoder"]["threshold"]
        curve = segment_curve(judgement, reference)
        if curve.n_ref:
            mark = threshold if isinstance(threshold, float) else 0.5
            made["precision_recall"] = plots.precision_recall({name: curve}, mark)
    return [plots.save(figure, folder / "figures" / stem)[0] for stem, figure in made.items()]


def _tell(result: dict[str, Any], folder: Path, figures: list[Path]) -> None:
    console = make_console()
    console.print(f"{counted(result['clips'], 'clip')} of split {result['split']}")
    for note in result["notes"]:
        console.print(f"Note: {note}")
    table = Table(box=None, pad_edge=False)
    table.add_column("\nclass", no_wrap=True)
    for heading in ("clips\nF1", "\nP", "\nR", f"{result['segment']:g}-s segments\nF1", "\nP", "\nR", "error\nrate"):
        table.add_column(heading, justify="right", no_wrap=True)
    static, dynamic = result["static"]["maximum"], result["dynamic"]
    rows = [(label, static["per_class"][label], dynamic and dynamic["per_class"][label]) for label in result["classes"]]
    rows.append(("average (macro)", static["macro"], dynamic and dynamic["macro"]))
    rows.append(("all together (micro)", static["overall"], dynamic and dynamic["overall"]))
    for label, clip, frames in rows:
        cells = [_short(clip[k]) for k in ("f1", "precision", "recall")]
        cells += [_short(frames[k]) for k in ("f1", "precision", "recall", "error_rate")] if frames else ["-"] * 4
        table.add_row(label, *cells)
    console.print(table)
    if result["event"] is not None:
        _tell_events(console, result)
    low, high = result["intervals"].get("dynamic.f1", (math.nan, math.nan))
    if math.isfinite(low):
        console.print(f"Segment F1, 95 % interval over clips: {low:.3f} to {high:.3f}")
    if (result["decoder"] or {}).get("tuned_on"):
        console.print(f"Thresholds tuned on {result['decoder']['tuned_on']}")
    console.print(f"Scores: {folder / 'scores.json'}; events found: {folder / 'events.tsv'}")
    if figures:
        console.print(f"Figures: {', '.join(str(path) for path in figures)}")


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _tell_events(console: Console, result: dict[str, Any]) -> None:
    whole, macro = result["event"]["overall"], result["event"]["macro"]
    console.print(
        f"Events within 0.2 s or a fifth of their length: F1 {_short(whole['f1'])} (macro {_short(macro['f1'])}), "
        f"error rate {_short(whole['error_rate'])}",
    )
    if result["psds"] is not None:
        first, second = (_short(result["psds"][name]) for name in ("psds1", "psds2"))
        console.print(f"PSDS: {first} (first setting), {second} (second)")
