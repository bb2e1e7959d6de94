"""`earmark detect`"""

from __future__ import annotations

import json
import math
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from earmark.cli.app import Json, app, counted, make_console
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text

if TYPE_CHECKING:
    from earmark.annotations import Label
    from earmark.detection.detector import SoundDetector
    from earmark.detection.spans import Executor
    from earmark.detection.tally import JobReport, Progress
    from earmark.events import Decoder

__all__ = ["detect"]

_HORIZONS = {"minute": 60.0, "hour": 3600.0, "recording": math.inf}


@app.command()
def detect(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model file, run folder or ONNX file.", show_default=False)
    ],
    audio: Annotated[
        list[Path], typer.Argument(metavar="AUDIO|FOLDER ...", help="Recordings and folders.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the job, new or to be continued; without, events are printed.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Of files per recording; several with commas between.  [default: tsv]")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="An event begins at this probability (0.5).")] = None,
    thresholds: Annotated[
        Path | None, typer.Option(help="JSON with a decoder, for example tuned: scores.json of evaluate.")
    ] = None,
    median: Annotated[float | None, typer.Option(help="Length of a median filter, in seconds.")] = None,
    min_duration: Annotated[float | None, typer.Option(help="Shortest event, in seconds.")] = None,
    min_gap: Annotated[float | None, typer.Option(help="Shortest gap between events, in seconds.")] = None,
    keep_scores: Annotated[bool, typer.Option("--keep-scores", help="Keep them, to change thresholds later.")] = False,
    presence: Annotated[
        str | None, typer.Option(help="Also a probability per class and minute, hour, recording, or SECONDS.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads; one per core if not given.")] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again recordings during which the process died twice.")
    ] = False,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STRETCH",
            help="Also draw a stretch of a recording, FILE@ONSET-OFFSET, or the busiest minutes: busiest.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also write a page about the job: report.html.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: ray://HOST:PORT, HOST:PORT, auto or local."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Print events as they end, from a growing file or, as -, from a pipe.")
    ] = False,
    rate: Annotated[int | None, typer.Option(help="Live: of raw samples, in Hz; a wav says its own.")] = None,
    channels: Annotated[int | None, typer.Option(help="Live: of raw samples (1).")] = None,
    encoding: Annotated[str | None, typer.Option(help="Live: of raw samples: u8, s16, s24, s32, f32 (s16).")] = None,
    block: Annotated[float | None, typer.Option(help="Live: seconds looked at at once (0.5).")] = None,
    idle: Annotated[float | None, typer.Option(help="Live: end when a file has not grown for SECONDS.")] = None,
    as_json: Json = False,
) -> None:
    """Find events in recordings of any length. A job with --out that was stopped is continued by the same command.

    Example: earmark detect run/model.safetensors recordings --out found --format tsv,raven

    Example: arecord -t raw -f S16_LE -r 44100 | earmark detect run/model.safetensors - --live --rate 44100
    """
    from earmark.cli.live import check_options, detect_live

    for_live: dict[str, Any] = {"rate": rate, "channels": channels, "encoding": encoding, "block": block, "idle": idle}
    for_jobs = {
        "keep_scores": keep_scores,
        "presence": presence,
        "figure": figure,
        "report": report,
        "cluster": cluster,
    }
    check_options(live, audio, for_live, {**for_jobs, "workers": workers, "retry": retry})
    formats = [name.strip() for name in (format or "tsv").split(",") if name.strip()]
    if out is None:
        wants_folder = {"format": format, **for_jobs}
        for name, value in ((f"--{name.replace('_', '-')}", value) for name, value in wants_folder.items()):
            if value:
                raise ArgumentError(f"{name} needs a folder to write to: give --out too")
    horizon = None if presence is None else _horizon(presence)
    changes = {"threshold": threshold, "median": median, "min_duration": min_duration, "min_gap": min_gap}
    decoder, own = _decoder(thresholds, {name: value for name, value in changes.items() if value is not None})
    if live:
        if own is not None:
            decoder = _matched(decoder, own, _classes_of(model), thresholds)
        detect_live(model, str(audio[0]), decoder, out=out, formats=formats, as_json=as_json, **for_live)
        return

    if figure and out is not None:
        from earmark.report.stretches import check_stretches

        check_stretches(figure, audio, out)

    from earmark.detection.detector import load

    detector = load(model)
    if own is not None:
        decoder = _matched(decoder, own, detector.classes, thresholds)
    if out is None:
        _print_events(detector, audio, decoder, workers, as_json)
        return

    from earmark.detection.job import JobOptions, run_job
    from earmark.detection.spans import SPAN

    options = JobOptions(
        formats=formats,
        decoder=decoder,
        keep_scores=keep_scores,
        presence=horizon,
        span=3600.0 if cluster else SPAN,  # fewer, larger pieces travel better
        retry=retry,
        command=shlex.join(["earmark", *sys.argv[1:]]),
    )
    with _interruptible(out), _executor(cluster, model, workers) as executor, _bar(quiet=as_json) as on_progress:
        found = run_job(detector, audio, out, options, workers=workers, executor=executor, on_progress=on_progress)
    shown = _show(out, detector, figure or [], report)
    if as_json:
        print(json_text({**found.to_dict(), "shown": [str(path) for path in shown]}))
    else:
        _tell(found, out)
        for path in shown:
            print(path)
    if found.failed and found.failed == found.files:
        example = f", such as {found.first_failure}" if found.first_failure else ""
        raise DataError(f"none of {found.files} recordings could be read{example}; {out / 'failed.csv'} says why")


def _show(out: Path, detector: SoundDetector, figures: list[str], report: bool) -> list[Path]:
    """Draw what was asked for, and write the page; the pictures, and the page."""
    from earmark.detection.outputs import writing_views

    shown: list[Path] = []
    if figures:
        from earmark.report.stretches import choose_stretches, draw_stretches, figure_path

        stretches = [stretch for wanted in figures for stretch in choose_stretches(out, wanted)]
        paths = [figure_path(out, stretch).with_suffix(end) for stretch in stretches for end in (".png", ".svg")]
        with writing_views(out, paths):
            shown += draw_stretches(out, detector.scorer, stretches)
    if report:
        from earmark.report.job import write_job_report

        with writing_views(out, [out / "report.html"]):
            shown.append(write_job_report(out, figures=list(shown)))
    return shown


def _decoder(path: Path | None, changes: dict[str, Any]) -> tuple[Decoder, list[str] | None]:
    """What was asked for, and the classes that settings per class are for, where the file says so."""
    from earmark.events import Decoder

    if path is None:
        return Decoder(**changes), None
    if "threshold" in changes:
        raise ArgumentError("--threshold and --thresholds do not go together; give one of them")
    try:
        settings = json.loads(path.read_text())
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ArgumentError(f"{path}: not JSON: {error}") from error
    own = None
    if isinstance(settings, dict) and "decoder" in settings:
        own, settings = settings.get("classes"), settings["decoder"]
    if not isinstance(settings, dict):
        raise ArgumentError(f"{path}: an object with a decoder's settings expected, under 'decoder' or by itself")
    if own is not None and not (isinstance(own, list) and all(isinstance(label, str) for label in own)):
        raise ArgumentError(f"{path}: 'classes' must be a list of names, found {own!r}")
    return replace(Decoder.from_dict(settings), **changes), own


def _matched(decoder: Decoder, own: list[str], classes: Sequence[str], path: Path | None) -> Decoder:
    """The decoder for a model's classes: settings per class go by name, whatever the order of the file's own."""
    from earmark.datasets.matching import first_few

    settings = {name: value for name, value in decoder.to_dict().items() if isinstance(value, list)}
    for name, values in settings.items():
        if len(values) != len(own):
            raise ArgumentError(f"{path}: {name} is given for {len(values)} classes, but 'classes' names {len(own)}")
    missing = [label for label in classes if label not in own] if settings else []
    if missing:
        raise ArgumentError(
            f"{path}: thresholds for other classes than the model's: none for {first_few(missing)}; tune them "
            "with this model: earmark evaluate --tune-on"
        )
    ordered: dict[str, Any] = {name: tuple(v[own.index(c)] for c in classes) for name, v in settings.items()}
    return replace(decoder, **ordered)


def _classes_of(model: Path) -> Sequence[str]:
    from earmark.detection.detector import load

    return load(model).classes


def _horizon(text: str) -> float:
    try:
        seconds = _HORIZONS.get(text) or float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ArgumentError(f"--presence {text!r}: minute, hour, recording or a number of seconds expected")
    return seconds


def _print_events(
    detector: SoundDetector, inputs: list[Path], decoder: Decoder, workers: int | None, as_json: bool
) -> None:
    from earmark.audio.containers import plain_name
    from earmark.detection.inputs import choose_names, find_recordings, reason_of
    from earmark.detection.spans import LocalExecutor, decode_scores, score_files
    from earmark.inference.scores import RecordingScores

    names = dict(choose_names(find_recordings(inputs), {}))
    if not names:
        raise DataError("there are no audio files in what was given")
    events: dict[Path, list[Label]] = {}
    failed: dict[Path, str] = {}

    def handle(path: Path, result: RecordingScores | Exception) -> None:
        if isinstance(result, Exception):
            failed[path] = reason_of(result, path)
        else:
            events[path] = decode_scores(result, decoder, names[path])

    score_files(names, detector.scorer, LocalExecutor(detector.scorer, workers), handle=handle)
    found = [event for path in names for event in events.get(path, ())]
    if as_json:
        rows = [{k: getattr(e, k) for k in ("filename", "onset", "offset", "label", "confidence")} for e in found]
        print(json_text({"events": rows, "failed": {names[path]: why for path, why in failed.items()}}))
    elif events:
        _print_table(found, with_names=len(names) > 1)
    told = [f"{plain_name(path)}: {why}" for path, why in failed.items()]
    if len(names) > 1:
        for line in told:
            print(f"earmark: {line}", file=sys.stderr)
    if not events:
        raise DataError(f"none of {len(names)} recordings could be read" if len(names) > 1 else told[0])


def _print_table(events: list[Label], *, with_names: bool) -> None:
    width = max((len(event.label) for event in events), default=5)
    print(f"{'onset':>10}{'offset':>11}  {'label':<{width}}  confidence" + "  filename" * with_names)
    for event in events:
        line = f"{event.onset:10.3f}{event.offset:11.3f}  {event.label:<{width}}  {event.confidence:10.3f}"
        print(line + f"  {event.filename}" * with_names)


def _tell(found: JobReport, out: Path) -> None:
    done = found.done + found.redecoded + found.kept
    before = f", {found.kept} of them before" if found.kept else ""
    again = f", {found.redecoded} from kept results" if found.redecoded else ""
    print(f"{done} of {found.files} recordings done{before}{again}; {found.events} events in {out / 'events.csv'}")
    if found.hours and found.seconds:
        speed = 3600 * found.hours / found.seconds
        print(f"{found.hours:.2f} hours of sound in {found.seconds:.1f} s: {speed:.0f} times real time")
    if found.presence is not None:
        print(f"probabilities of {counted(found.presence, 'recording')} in {out / 'presence.csv'}")
    if found.failed:
        print(f"{found.failed} failed: {out / 'failed.csv'} says which and why")
    if found.missing:
        print(f"{counted(found.missing, 'recording')} no longer there: left out of events.csv, files in events stay")
    if found.pending:
        print(f"{counted(found.pending, 'recording')} of earlier runs still to do: not in events.csv until then")
    if found.edited:
        print(f"{counted(found.edited, 'file')} edited or added by hand: kept with .edited in the name")


@contextmanager
def _executor(cluster: str | None, model: Path, workers: int | None) -> Iterator[Executor | None]:
    """What runs a job's spans, if not threads of this process."""
    if cluster is None:
        yield None
        return
    from earmark.cluster import RayExecutor

    with RayExecutor(cluster, model, workers=workers) as executor:
        yield executor


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """Ctrl-C, and a polite kill, end the job in good order and say how to go on."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        left = _left(out)
        print(
            f"earmark: interrupted{f', {left} still to do' if left else ''}; what is done is in {out}, and the same "
            "command continues with the rest",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _left(out: Path) -> str | None:
    """How many recordings a job has not done yet, in words; None if there are none."""
    from earmark.detection.ledger import Ledger
    from earmark.detection.outputs import JobFolder

    if not JobFolder(out).ledger.exists():
        return None
    with Ledger(JobFolder(out).ledger, read_only=True) as ledger:
        left = ledger.counts()["pending"]
    return counted(left, "recording") if left else None


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar in hours of sound, on standard error; silent off a terminal."""
    console = make_console(stderr=True, quiet=quiet)
    columns = (
        TextColumn("{task.fields[files]}"),
        BarColumn(),
        TextColumn("{task.fields[hours]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, files="looking", hours="")

        def move(progress: Progress) -> None:
            told: dict[str, Any] = {
                "files": f"{progress.settled} of {progress.files} recordings",
                "hours": f"{progress.hours:.2f} of {progress.total_hours:.2f} h",
            }
            bar.update(task, completed=progress.hours, total=progress.total_hours or None, **told)

        yield move
