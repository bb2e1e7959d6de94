"""`earmark detect`"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.app import Json, app, counted
from earmark.cli.display import live_display
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text

if TYPE_CHECKING:
    from earmark.annotations import Label
    from earmark.detection.detector import SoundDetector
    from earmark.detection.job import JobReport
    from earmark.detection.spans import Executor
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
    changed: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    if thresholds is not None and threshold is not None:
        raise ArgumentError("--threshold and --thresholds do not go together; give one of them")
    if figure and out is not None:
        from earmark.reporting.stretches import check_stretches

        check_stretches(figure, audio, out)
    from earmark.detection.detector import load
    from earmark.events import Decoder, load_decoder

    detector = load(model)
    decoder = Decoder() if thresholds is None else load_decoder(thresholds, detector.classes)
    decoder = replace(decoder, **changed)
    if live:
        detect_live(detector, str(audio[0]), decoder, out=out, formats=formats, as_json=as_json, **for_live)
        return
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
    with _explaining(out), _executor(cluster, model, workers) as executor, live_display(quiet=as_json) as display:
        found = run_job(detector, audio, out, options, workers=workers, executor=executor, on_progress=display)
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
        from earmark.reporting.stretches import choose_stretches, draw_stretches, figure_path

        stretches = [stretch for wanted in figures for stretch in choose_stretches(out, wanted)]
        paths = [figure_path(out, stretch).with_suffix(end) for stretch in stretches for end in (".png", ".svg")]
        with writing_views(out, paths):
            shown += draw_stretches(out, detector.scorer, stretches)
    if report:
        from earmark.reporting.job import write_job_report

        with writing_views(out, [out / "report.html"]):
            shown.append(write_job_report(out, figures=list(shown)))
    return shown


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
    from earmark.detection.spans import LocalExecutor, score_files
    from earmark.events import decode_scores
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

    score_files(names, detector.scorer, LocalExecutor(detector.scorer, workers), on_result=handle)
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


def _executor(cluster: str | None, model: Path, workers: int | None) -> AbstractContextManager[Executor | None]:
    """What runs a job's spans; None for threads of this process."""
    if cluster is None:
        return nullcontext()
    from earmark.cluster import RayExecutor

    return RayExecutor(cluster, model, workers=workers)


@contextmanager
def _explaining(out: Path) -> Iterator[None]:
    """Add to an interruption how many recordings are left and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        left = _left(out)
        todo = f"{left} still to do; " if left else ""
        raise KeyboardInterrupt(f"{todo}results so far are in {out}; run the same command again to continue") from None


def _left(out: Path) -> str | None:
    """How many recordings a job has not done yet, in words; None if there are none."""
    from earmark.detection.ledger import Ledger
    from earmark.detection.outputs import JobFolder

    if not JobFolder(out).ledger.exists():
        return None
    with Ledger(JobFolder(out).ledger, read_only=True) as ledger:
        left = ledger.counts()["pending"]
    return counted(left, "recording") if left else None
