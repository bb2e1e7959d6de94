"""`earmark detect --live`: events printed while the sound arrives."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.errors import ArgumentError
from earmark.files import json_text
from earmark.interrupt import Interruption, interruptible
from earmark.text import printable

if TYPE_CHECKING:
    from earmark.annotations import Label
    from earmark.audio.pcm import LiveSound
    from earmark.detection.detector import SoundDetector
    from earmark.events import Decoder


def check_options(live: bool, audio: list[Path], for_live: dict[str, Any], for_jobs: dict[str, Any]) -> None:
    """Reject options of jobs with --live, and options of --live without it."""
    for option, value in for_jobs.items():
        if live and value not in (None, False):
            raise ArgumentError(f"{option} cannot be combined with --live")
    for name, value in for_live.items():
        if not live and value is not None:
            raise ArgumentError(f"--{name} requires --live")
    if live and len(audio) != 1:
        raise ArgumentError(f"--live: expected one input, a growing file or - for a pipe, got {len(audio)}")
    if not live and Path("-") in audio:
        raise ArgumentError("- is standard input, which only --live reads")


def detect_live(
    detector: SoundDetector,
    source: str,
    decoder: Decoder,
    *,
    rate: int | None = None,
    channels: int | None = None,
    encoding: str | None = None,
    block: float | None = None,
    idle: float | None = None,
    out: Path | None = None,
    formats: Iterable[str] = (),
    safe_csv: bool = True,
    as_json: bool = False,
) -> None:
    """Print events of standard input (`-`) or of a growing file as they end, one per line.

    The longest delay is printed on standard error first. An interruption ends the sound; events until then are printed.
    With a folder `out`, events are also appended to events.csv, and at the end written in each other format, as
    `events` with the format's suffix.
    """
    from earmark.annotations import LabelTable
    from earmark.detection.inputs import table_name
    from earmark.detection.live import latency_bound, listen
    from earmark.detection.outputs import check_formats, growing_table
    from earmark.files import make_folder
    from earmark.formats import FORMATS

    names = () if out is None else check_formats(("csv", *formats))
    folder = None if out is None else make_folder(out)
    scorer = detector.scorer
    block = 0.5 if block is None else block
    kept: list[Label] = []
    with interruptible() as interruption, ExitStack() as files:
        sound = _open(source, rate, channels, encoding, idle, interruption)
        name = table_name(sound.name)
        add = None if folder is None else files.enter_context(growing_table(folder / "events.csv", safe=safe_csv))
        bound = latency_bound(scorer, decoder, block=block, resampling=sound.delay(scorer.rate))
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in bound.items() if seconds)
        what = f"{sound.format.rate} Hz, {sound.format.channels} x {sound.format.encoding}"
        print(
            f"earmark: listening to {sound.name} ({what}); "
            f"events are printed at most {sum(bound.values()):.2f} s of sound after they end ({spent})",
            file=sys.stderr,
            flush=True,
        )
        for event in listen(scorer, sound.blocks(scorer.rate, block), decoder, name=name):
            if add is not None:
                add(event)
                kept.append(event)
            print(_line(event, as_json), flush=True)
    if folder is not None:
        table = LabelTable(sorted(kept, key=lambda event: event[1:]), filenames=[name], classes=scorer.classes)
        for format in names[1:]:  # events.csv has the events already
            chosen = FORMATS.create(format)
            chosen.write(table, folder / f"events{chosen.suffix}")


def _line(event: Label, as_json: bool) -> str:
    onset, offset, confidence = (round(float(x or 0), 3) for x in (event.onset, event.offset, event.confidence))
    if as_json:
        return json_text({"onset": onset, "offset": offset, "label": event.label, "confidence": confidence})
    return f"{onset:.3f}\t{offset:.3f}\t{printable(event.label)}\t{confidence:.3f}"


def _open(
    source: str, rate: int | None, channels: int | None, encoding: str | None, idle: float | None, stop: Interruption
) -> LiveSound:
    """Open a source; its header states the format unless `rate` is given, which means raw samples."""
    from earmark.audio.pcm import PcmFormat, from_growing, from_pipe

    format = None
    if rate is not None:
        format = PcmFormat(rate, 1 if channels is None else channels, encoding or "s16")
    elif channels is not None or encoding is not None:
        raise ArgumentError("raw samples need their rate: add --rate, for example --rate 44100")
    if source != "-":
        return from_growing(source, format, idle=idle, stop=stop)
    if idle is not None:
        raise ArgumentError("--idle is for growing files; a pipe ends by itself")
    if sys.stdin.isatty():
        raise ArgumentError("standard input is a terminal; pipe audio into it, as in: arecord -t wav | earmark ...")
    return from_pipe(sys.stdin.buffer, "standard input", format, stop=stop)
