"""The main functions of earmark; each is also an attribute of the package root.

    import earmark
    run = earmark.train("recordings", out="run", recipe="quick")
    print(earmark.evaluate(run, "recordings"))
    events = earmark.load(run).detect("night.flac")
    earmark.compare([run, "other-run"])
    earmark.report([run], "report.html")

Each command of the command line calls the function of the same name. Results print as short tables, render in
notebooks, and convert with `to_dict()` and `to_pandas()`.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.annotations import LabelTable
from earmark.audio import AnyPath
from earmark.bags import default_cache
from earmark.checkpoint import model_file
from earmark.datasets import Collection, open_data
from earmark.detection.detector import SoundDetector, load
from earmark.errors import ArgumentError
from earmark.evaluation.comparison import Comparison, compare_runs
from earmark.evaluation.evaluating import evaluate_event_file, evaluate_model
from earmark.evaluation.result import FILES, Evaluation
from earmark.evaluation.scoring import EvaluationOptions
from earmark.files import as_paths, locked, make_folder, path_text, remove_drafts
from earmark.ownership import other_files_note, owned
from earmark.progress import OnNote, OnProgress, ignore_note, ignore_progress
from earmark.settings import Settings

if TYPE_CHECKING:
    from earmark.encoders import Encoder
    from earmark.reviewing.running import Address, ReviewServer
    from earmark.synthesis import Summary
    from earmark.training import Run

__all__ = ["Compute", "compare", "evaluate", "load", "report", "review", "synth", "train"]


@dataclass(frozen=True)
class Compute:
    """Where a training run computes and stores its features.

    `devices` are GPUs, or processes on a CPU: by default one, or as many as torchrun or SLURM started on `nodes`
    machines. `cache` is a folder for features, shared by runs on the same data; by default in the user's cache.
    `command` is the command that the model file records.
    """

    devices: int | None = None
    nodes: int = 1
    cache: AnyPath | None = None
    command: str = ""


def train(
    data: AnyPath | Collection | Sequence[AnyPath],
    out: AnyPath,
    *,
    recipe: AnyPath | None = None,
    pool: str | None = None,
    encoder: str | Encoder | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    compute: Compute | None = None,
    on_progress: OnProgress = ignore_progress,
    on_note: OnNote = ignore_note,
) -> Run:
    """Train a detector from labelled clips.

    Ctrl-C stops training after the current step; KeyboardInterrupt is raised once the state has been saved.

    Parameters
    ----------
    data
        A folder of recordings with labels, a label table next to them, "NAME:PATH" of a known data set, or clips opened
        with `earmark.datasets.open_data`. A list is one of these followed by tables with more labels, such as the
        verdicts.csv of a review; their times are also used (`supervision` is then "mixed").
        `earmark.datasets.with_separator(data, ";")` are data with several labels in a cell (`--separator`).
    recipe
        Name of a recipe (`earmark list recipes`) or a TOML file. The default is "auto", which chooses one to suit the
        data and the machine ("head" if an encoder is named), or the recipe of a resumed run. The folder of another run
        means its recipe, starting from its weights.
    encoder
        Pretrained encoder (`earmark encoders`), or its name, whose embeddings are used instead of log-mel features. A
        name that runs Python code, such as "hear:PACKAGE", is trusted.
    pool
        Pooling operator (`earmark list pools`), or "strong" or "propagated" to train on frames.
    settings
        Changes to the recipe by name: {"epochs": 20, "pool.penalty": 1e-3}.
    resume
        Whether to continue the run in `out`, if there is one.
    on_note
        Called with each note about the data before training starts; the run also contains them.
    """
    from earmark.settings import load_recipe, pool_changes
    from earmark.training import check_folder
    from earmark.training.choosing import choose, encoder_changes, fitting_recipes
    from earmark.training.loop import TrainingInterrupted
    from earmark.training.run import make_fabric, run

    folder, compute = Path(path_text(out, "out")), compute or Compute()
    is_resumed = check_folder(folder, resume=resume)  # before computing features
    if not is_resumed and (note := other_files_note(folder)):
        on_note(note)
    if recipe is None and is_resumed:
        recipe = folder / "config.toml"
    elif recipe is None:
        recipe = "auto"
    has_tables = isinstance(data, Sequence) and not isinstance(data, str) and len(data) > 1
    mixed = {"training.supervision": "mixed"} if has_tables else {}
    recipe, start = _recipe_and_start(recipe)
    changes = {**encoder_changes(encoder), **pool_changes(pool), **mixed, **start, **(settings or {})}
    is_auto = recipe == "auto"
    base = fitting_recipes(changes)[0] if is_auto else os.fspath(recipe)
    chosen = load_recipe(base).changed({"rounds": 0, **changes} if is_auto else changes)
    collection, source = _training_data(data, on_note)
    fabric = make_fabric(chosen, devices=compute.devices, nodes=compute.nodes)
    if is_auto:
        choice = choose(collection, changes, fabric.device)
        recipe, chosen = choice.recipe, choice.settings
        for line in choice.reasons:
            on_note(line)
    if recipe == "paper" and fabric.device.type == "cpu":
        on_note("no GPU found: the recipe paper is designed for one; the recipe quick takes minutes on a CPU")
    result = run(
        collection,
        chosen,
        folder,
        cache=Path(compute.cache) if compute.cache else default_cache(source or str(folder)),
        fabric=fabric,
        resume=resume,
        provenance={"data_source": source, "recipe": str(recipe), "command": compute.command},
        on_progress=on_progress,
        on_note=on_note,
    )
    if fabric.is_global_zero:
        result = _completed(result, folder, collection, chosen, on_progress)
    if not result.is_finished:
        raise TrainingInterrupted(f"training is not finished; resume=True continues the run in {folder}", result)
    return result


def _completed(run: Run, out: Path, data: Collection, settings: Settings, on_progress: OnProgress) -> Run:
    """A run with its figure and, if it is finished, with the thresholds that were chosen for its model."""
    from earmark.evaluation.decoders import store_decoder
    from earmark.plots import learning_curves, save

    with owned(out):
        if run.is_finished and settings.training.choose_thresholds:
            run = replace(run, thresholds=store_decoder(out, data, settings, on_progress))
        if run.path == out:  # and not an interrupted round or fold, which has no figure when it is finished
            save(learning_curves(run.path / "log.jsonl", data.classes), run.path / "figures" / "learning")
    return run


def _training_data(data: AnyPath | Collection | Sequence[AnyPath], on_note: OnNote) -> tuple[Collection, str]:
    """The clips to train on, with the labels of further tables, and the data set that they come from."""
    if isinstance(data, Collection):
        return data, ""
    if isinstance(data, str | LabelTable) or not isinstance(data, Sequence):
        source = path_text(data, "data")
        return open_data(source), source
    from earmark.reviewing.clips import with_labels

    if not data:
        raise ArgumentError("data: expected a folder of recordings, then tables with more labels, got an empty list")
    source, *tables = (path_text(path, "data") for path in data)
    collection = open_data(source)
    for table in tables:
        collection, notes = with_labels(collection, Path(table))
        for note in notes:
            on_note(note)
    return collection, source


def _recipe_and_start(recipe: AnyPath) -> tuple[AnyPath, dict[str, Any]]:
    """The recipe and, if it is a run, settings to continue from it.

    The configuration of a run contains the number of steps of an epoch. If that was one pass over the clips, it is
    computed anew for the present clips. The learning rate is lower than in the first training, since a higher one
    undoes some of it.
    """
    from earmark.checkpoint import read_model_info
    from earmark.settings import load_recipe, recipes

    place = Path(path_text(recipe, "recipe"))
    is_name = os.fspath(recipe) in ("auto", *recipes())  # also where a folder has that name
    if is_name or (not place.is_dir() and place.suffix != ".safetensors"):
        return recipe, {}
    model = model_file(place)
    config = model.with_name("config.toml")
    if not config.is_file():
        raise ArgumentError(f"{model}: no config.toml next to it, so its settings are unknown; pass a run folder")
    settings = load_recipe(config)
    options = settings.training
    clips = read_model_info(model)["provenance"].get("training_clips", 0)
    one_pass = math.ceil((clips + settings.augment.mixtures) / options.batch_size)
    rate = options.learning_rate * (0.3 if options.start is None else 1.0)  # once; a continued run has it already
    changes = {"start": os.fspath(model.absolute()), "learning_rate": rate}
    changes["steps"] = 0 if options.steps == one_pass else options.steps
    return config, {f"training.{name}": value for name, value in changes.items()}


def evaluate(
    model: AnyPath | SoundDetector,
    data: AnyPath,
    *,
    split: str | None = None,
    out: AnyPath | None = None,
    reference: AnyPath | None = None,
    tune_on: str | None = None,
    durations: AnyPath | None = None,
    options: EvaluationOptions | None = None,
    force: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Evaluation:
    """Evaluate a model, or events from another program, on labelled clips.

    Events are detected exactly as by `SoundDetector.detect`. Scores, events and figures are written to `out`.

    Parameters
    ----------
    model
        A run, a model file, a detector, or a file of events in any label format.
    data
        A path or "NAME:PATH" as for `train`. With `reference`, a folder needs no labels. For events, a file of labels
        is enough.
    split
        The split to evaluate, or "all". The default is "test", or all clips if the data have no splits and the model
        was not trained on them.
    out
        By default the run folder; for events and ONNX models nothing is written by default.
    reference
        Labels to use instead of the data's: a file or folder of any format, or "authors" for the URBAN-SED reference
        of the paper's authors.
    tune_on
        Split on which to choose per-class thresholds.
    durations
        For events: a table of clips with columns `filename` and `duration`.
    options
        Segment length, decoder, alignment, PSDS, and what to tune.
    force
        Whether to replace files in `out` that earmark did not write, or that were edited since.
    """
    options = options or EvaluationOptions()
    if options.tune == "decoder" and tune_on is None:
        raise ArgumentError("expected a split to tune the decoder on (--tune-on), got none")
    if options.tune == "decoder" and options.decoder is not None:
        raise ArgumentError(
            "tuning the decoder (--tune decoder) chooses all of its settings, so none can be given; to keep some, tune "
            "thresholds"
        )
    source = path_text(data, "data")
    reference = None if reference is None else path_text(reference, "reference")
    folder = None if out is None else Path(path_text(out, "out"))
    if not isinstance(model, SoundDetector):
        model = Path(path_text(model, "model"))
    score: Callable[[], tuple[Evaluation, LabelTable]]
    if isinstance(model, SoundDetector) or is_model(model) or _is_swapped(model, Path(data)):
        if durations is not None:
            raise ArgumentError("durations apply only to events; a model reads those of its clips")
        if not isinstance(model, SoundDetector):
            model = load(model_file(model, "MODEL DATA"), pooled=True)
        name = model.pool_name
        if folder is None and model.path is not None and model.path.suffix != ".onnx":
            folder = model.path.parent
        score = partial(evaluate_model, model, source, split, reference, tune_on, options, on_progress)
    else:
        if tune_on is not None or options.decoder is not None:
            raise ArgumentError("thresholds do not apply to events from another program; evaluate a model instead")
        name = model.stem
        score = partial(evaluate_event_file, model, source, split, reference, durations, options)
    return score()[0] if folder is None else _saved(score, folder, name, force)


def _saved(score: Callable[[], tuple[Evaluation, LabelTable]], folder: Path, name: str, force: bool) -> Evaluation:
    """Evaluate and save the result with its figures; files that must not be replaced are an error before that."""
    from earmark import plots

    figures = [folder / "figures" / f"{stem}{end}" for stem in plots.EVALUATION_FIGURES for end in (".png", ".svg")]
    files = [*(folder / file for file in FILES), *figures]
    # a lock other than the run's, so that a model can be evaluated while its training continues
    with locked(make_folder(folder), name=".evaluation.lock"), owned(folder, files=files, force=force):
        remove_drafts(files)  # of a process that was killed
        evaluation, table = score()
        evaluation.save(folder)
        for stem, figure in plots.evaluation_figures(evaluation, table, name).items():
            plots.save(figure, folder / "figures" / stem)
    return replace(evaluation, _folder=folder)


def compare(
    runs: AnyPath | Iterable[AnyPath], *, out: AnyPath | None = None, level: float = 0.95, force: bool = False
) -> Comparison:
    """Compare evaluations on the same clips, given as results of `evaluate` or the folders that it wrote to.

    Runs that differ only in their seed count as one system. `level` is the confidence level of intervals and tests.
    With `out`, the comparison is also written there, as comparison.json, table.md and table.tex; `force` replaces files
    with these names that earmark did not write.
    """
    comparison = compare_runs(as_paths(runs), level=level)
    if out is not None:
        comparison.save(Path(path_text(out, "out")), force=force)
    return comparison


def report(
    runs: AnyPath | Iterable[AnyPath],
    out: AnyPath,
    *,
    data: AnyPath | None = None,
    title: str | None = None,
    force: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Path:
    """Write an HTML report about evaluated runs: tables, figures, and errors to listen to; returns its path.

    Tables are also written next to it as Markdown and LaTeX. `data` is the location of the clips, if they have moved
    since the evaluation. `force` also replaces files that earmark did not write, or that were edited since.
    """
    from earmark.reporting.runs import write_report

    data = None if data is None else path_text(data, "data")
    page = Path(path_text(out, "out"))
    return write_report(as_paths(runs), page, data=data, title=title, force=force, on_progress=on_progress)[0]


def review(
    found: AnyPath,
    *,
    labels: AnyPath | None = None,
    out: AnyPath | None = None,
    address: Address | None = None,
    browser: bool = True,
    block: bool = True,
) -> ReviewServer:
    """Review and correct events in a browser; needs the extra `review`.

    `found` is the folder of a detection job, or recordings: a folder or a file, with a label table `labels` to be
    checked. Verdicts on recordings are written to `out`, by default NAME.review next to them; those on a job to its
    folder. `address` says where to listen and who may connect, by default only this machine
    (`earmark.reviewing.running.Address`). With `block`, the function returns when the review is stopped with Ctrl-C.
    Otherwise, the returned server has its address in `url`, and runs until its `stop()` is called or the process ends.
    """
    from earmark.reviewing.running import start_review

    server = start_review(found, labels=labels, out=out, address=address, browser=browser)
    if block:
        print(f"Review: {server.url}", flush=True)
        try:
            server.wait()
        except KeyboardInterrupt:
            server.stop()
    return server


def synth(
    source: AnyPath,
    out: AnyPath,
    *,
    soundbank: AnyPath | None = None,
    clips: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Summary:
    """Synthesise soundscapes with exact annotations and labels.tsv; see `earmark.synthesis`.

    The source is a recipe ("urban-sed", "durations", a TOML file), a table of events, or Scaper's JAMS. `soundbank` is
    a folder of sounds, LABEL/*.wav or foldN/LABEL/*.wav; by default the built-in one. `clips` is their number; by
    default as many as the source defines.
    """
    from earmark.synthesis import synthesise

    return synthesise(
        path_text(source, "source"),
        Path(path_text(out, "out")),
        bank=None if soundbank is None else Path(path_text(soundbank, "soundbank")),
        clips=clips,
        seed=operator.index(seed),
        workers=workers,
        on_progress=on_progress,
    )


def is_model(path: Path) -> bool:
    """Whether a path is a run or a model file; anything else is read as labels."""
    if path.is_dir():
        return any((path / name).exists() for name in ("model.safetensors", "config.toml", "last.ckpt"))
    if not path.exists() or path.suffix in (".safetensors", ".onnx"):
        return True  # a missing file is reported where it is opened
    with path.open("rb") as file:  # a model file starts with the length of its header, in eight bytes: four are 0
        return path.suffix != ".gz" and file.read(8)[4:] == bytes(4)


def _is_swapped(model: Path, data: Path) -> bool:
    """Whether a folder of data comes first, and a run or model second."""
    return model.is_dir() and ((data / "model.safetensors").is_file() or data.suffix == ".safetensors")
