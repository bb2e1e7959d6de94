"""`earmark detect`"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli import decoding
from earmark.cli.app import Json, app, parse_seconds, print_error, print_note
from earmark.cli.display import live_display
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text
from earmark.progress import ignore_note
from earmark.text import counted, printable

if TYPE_CHECKING:
    from datetime import datetime

    from earmark.annotations import Label
    from earmark.detection.detector import SoundDetector
    from earmark.detection.spans import Executor
    from earmark.events import Decoder

_HORIZONS = {"minute": 60.0, "hour": 3600.0, "recording": math.inf}


@app.command()
def detect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, run folder or ONNX file.")],
    audio: Annotated[list[Path], typer.Argument(metavar="AUDIO|FOLDER", help="Recordings and folders.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the job, new or to be continued; without --out, events are printed.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Formats of the files per recording, separated by commas.  [default: tsv]")
    ] = None,
    threshold: decoding.Threshold = None,
    thresholds: decoding.Thresholds = None,
    low: decoding.Low = None,
    median: decoding.Median = None,
    min_duration: decoding.MinDuration = None,
    min_gap: decoding.MinGap = None,
    boxes: decoding.Boxes = None,
    keep_scores: Annotated[
        bool,
        typer.Option(
            "--keep-scores", help="Store frame probabilities, to change thresholds later without scoring again."
        ),
    ] = False,
    safe_csv: Annotated[
        bool,
        typer.Option(
            "--safe-csv/--no-safe-csv", help="Escape names in CSV files that a spreadsheet would run as formulas."
        ),
    ] = True,
    presence: Annotated[
        str | None,
        typer.Option(
            metavar="minute|hour|recording|SECONDS", help="Also write the probability of each class per interval."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Number of threads.  [default: one per core]")] = None,
    damaged: Annotated[
        str,
        typer.Option(metavar="refuse|keep", help="Recordings with missing audio: mark as failed, or process the rest."),
    ] = "refuse",
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE@ONSET-OFFSET|busiest",
            help="Also draw this part of a recording, or the minutes with the most events; repeatable.",
        ),
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also write report.html, a report about the job.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: ray://HOST:PORT, HOST:PORT, auto or local."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Print events as they end, from a growing file, or from a pipe (-).")
    ] = False,
    rate: Annotated[
        int | None, typer.Option(help="Live: sample rate of raw samples, in Hz; not needed for wav.")
    ] = None,
    channels: Annotated[int | None, typer.Option(help="Live: channels of raw samples.  [default: 1]")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Live: encoding of raw samples: u8, s16, s24, s32 or f32.  [default: s16]")
    ] = None,
    block: Annotated[
        float | None, typer.Option(help="Live: seconds of audio processed at a time.  [default: 0.5]")
    ] = None,
    idle: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Live: stop when the file has not grown for this long.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Detect events in recordings of any length. To continue an interrupted job (--out), run the same command again.

    Example: earmark detect run recordings --out found --format tsv,raven

    Example: arecord -t raw -f S16_LE -r 44100 | earmark detect run - --live --rate 44100
    """
    from earmark.cli.live import check_options, detect_live

    for_live: dict[str, Any] = {"rate": rate, "channels": channels, "encoding": encoding, "block": block, "idle": idle}
    for_jobs: dict[str, Any] = {"--keep-scores": keep_scores, "--presence": presence, "--figure": figure}
    for_jobs |= {"--report": report, "--cluster": cluster}
    others = {**for_jobs, "--workers": workers, "--damaged": damaged != "refuse"}
    check_options(live, audio, for_live, others)
    for option, value in {"--format": format, **for_jobs}.items():
        if value and out is None:
            raise ArgumentError(f"{option} needs a folder to write to: add --out")
    decoding.check_thresholds(threshold, thresholds)
    formats = [name.strip() for name in (format or "tsv").split(",") if name.strip()]
    horizon = None if presence is None else parse_seconds("--presence", presence, _HORIZONS)
    settings = {"threshold": threshold, "low": low, "median": median, "boxes": boxes}
    settings |= {"min_duration": min_duration, "min_gap": min_gap}
    if figure and out is not None:
        from earmark.reporting.stretches import check_stretches

        check_stretches(figure, audio, out)
    from earmark.detection.detector import load

    detector = load(model)
    if detector.path is not None and detector.path.suffix != ".onnx":
        from earmark.training.memory import unfinished_note

        if note := unfinished_note(detector.path.parent):
            print_error(f"{model}: {note}")
    decoder = decoding.decoder_of(detector, thresholds, settings)
    if live:
        for_live |= {"formats": formats, "safe_csv": safe_csv}
        detect_live(detector, str(audio[0]), decoder, out=out, as_json=as_json, **for_live)
        return
    if out is None:
        _print_events(detector, audio, decoder, workers, damaged, as_json)
        return
    from earmark.detection.job import JobOptions, run_job
    from earmark.detection.spans import SPAN

    options = JobOptions(
        formats=formats,
        decoder=decoder,
        keep_scores=keep_scores,
        safe_csv=safe_csv,
        presence=horizon,
        span=3600.0 if cluster else SPAN,  # fewer, larger pieces travel better
        damaged=damaged,
        command=shlex.join(["earmark", *sys.argv[1:]]),
    )
    with _explaining(out), _executor(cluster, model, workers) as executor, live_display(quiet=as_json) as display:
        result = run_job(
            detector,
            audio,
            out,
            options,
            workers=workers,
            executor=executor,
            on_progress=display,
            on_note=ignore_note if as_json else print_note,
        )
    written: list[Path] = []
    if figure or report:
        from earmark.reporting.job import write_views

        written = write_views(out, detector.scorer, figure or [], report=report)
        result.outdated = [name for name in result.outdated if not (out / name).exists()]
    if as_json:
        print(json_text({**result.to_dict(), "shown": [str(path) for path in written]}))
    else:
        print(result, *written, sep="\n")
    if result.failed and result.failed == result.files:
        is_one = result.files == 1
        what = "the recording could not be read" if is_one else f"none of {result.files} recordings could be read"
        example = f"{': ' if is_one else '; for example, '}{result.first_failure}" if result.first_failure else ""
        print_error(what + example)
    if not result.is_complete:
        raise typer.Exit(1)


def _print_events(
    detector: SoundDetector, inputs: list[Path], decoder: Decoder, workers: int | None, damaged: str, as_json: bool
) -> None:
    from earmark.audio import describe_gaps
    from earmark.audio.containers import plain_name
    from earmark.detection.several import detect_several

    result = detect_several(detector, inputs, decoder, workers=workers, damaged=damaged)
    if as_json:
        rows = [_json_row(event, result.began) for event in result.events]
        missing = [{"filename": result.names[path], **gap._asdict()} for path, gap in result.all_gaps()]
        reasons = {result.names[path]: why for path, why in result.failed.items()}
        print(json_text({"events": rows, "failed": reasons, "damaged": missing}))
    elif result.done:
        _print_table(result.events, result.began, with_names=len(result.names) > 1)
    for path in result.done:
        if gaps := result.gaps.get(path):
            print(f"earmark: {plain_name(path)}: {describe_gaps(gaps)}", file=sys.stderr)
    errors = [f"{plain_name(path)}: {why}" for path, why in result.failed.items()]
    if len(result.names) == 1 and errors:
        raise DataError(errors[0])
    for line in errors:
        print_error(line)
    if not result.done:
        raise DataError(f"none of {len(result.names)} recordings could be read")
    if errors:
        raise typer.Exit(1)


def _json_row(event: Label, began: dict[str, datetime]) -> dict[str, Any]:
    from earmark.annotations import clock_cells

    row = {key: getattr(event, key) for key in ("filename", "onset", "offset", "label", "confidence")}
    date, time_of_day = clock_cells(began.get(event.filename), event.onset)
    return {**row, "date": date, "time_of_day": time_of_day} if date else row


def _print_table(events: list[Label], began: dict[str, datetime], *, with_names: bool) -> None:
    from earmark.annotations import clock_cells

    labels = {event.label: printable(event.label) for event in events}
    width = max(map(len, labels.values()), default=5)
    heading = f"{'onset':>10}{'offset':>11}  {'label':<{width}}  confidence" + "  filename" * with_names
    print(heading + "  date and time of day" * bool(began))
    longest = max((len(printable(event.filename)) for event in events), default=0)
    for event in events:
        line = f"{event.onset:10.3f}{event.offset:11.3f}  {labels[event.label]:<{width}}  {event.confidence:10.3f}"
        clock = " ".join(clock_cells(began.get(event.filename), event.onset))
        name = f"  {printable(event.filename):<{longest if clock else 0}}" * with_names
        print((line + name + f"  {clock}" * bool(began)).rstrip())


def _executor(cluster: str | None, model: Path, workers: int | None) -> AbstractContextManager[Executor | None]:
    """What runs a job's spans; None for threads of this process."""
    if cluster is None:
        return nullcontext()
    from earmark.cluster import RayExecutor

    return RayExecutor(cluster, model, workers=workers)


@contextmanager
def _explaining(out: Path) -> Iterator[None]:
    """Add to an interruption how many recordings are left and how to continue."""
    from earmark.detection.outputs import JobFolder

    try:
        yield
    except KeyboardInterrupt:
        left, job = 0, JobFolder(out)
        if job.ledger.exists():
            with job.read_ledger() as ledger:
                left = ledger.counts()["pending"]
        state = f"{counted(left, 'recording')} still to do; " if left else ""
        raise KeyboardInterrupt(f"{state}results so far are in {out}; run the same command again to continue") from None
