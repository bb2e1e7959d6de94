"""`earmark evaluate`"""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli import decoding
from earmark.cli.app import Force, Json, Separator, app, print_note
from earmark.cli.display import live_display
from earmark.errors import ArgumentError
from earmark.files import json_text
from earmark.ownership import other_files_note

_REFERENCE_HELP = (
    "Labels to use instead of the data's: a file or folder of any format, or authors, for the URBAN-SED reference "
    "behind the paper's Table I."
)


@app.command()
def evaluate(
    model: Annotated[
        Path, typer.Argument(metavar="RUN|MODEL|EVENTS", help="A run folder, a model file, or a file of events.")
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="As for train: a folder, a table, or NAME:PATH. With --reference, recordings need no labels; "
            "for EVENTS, a file of labels is enough.",
        ),
    ],
    split: Annotated[
        str | None,
        typer.Option(help="Split to evaluate, or all.  [default: test, or all clips if there are no splits]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for scores, events and figures.  [default: the run folder; none for EVENTS]"),
    ] = None,
    reference: Annotated[str | None, typer.Option(metavar="FILE|authors", help=_REFERENCE_HELP)] = None,
    segment: Annotated[float, typer.Option(help="Length of segments in seconds.")] = 1.0,
    threshold: decoding.Threshold = None,
    thresholds: decoding.Thresholds = None,
    low: decoding.Low = None,
    median: decoding.Median = None,
    min_duration: decoding.MinDuration = None,
    min_gap: decoding.MinGap = None,
    boxes: decoding.Boxes = None,
    separator: Separator = None,
    tune_on: Annotated[
        str | None, typer.Option(metavar="SPLIT", help="Choose per-class thresholds on this split.")
    ] = None,
    tune: Annotated[
        str,
        typer.Option(metavar="thresholds|decoder", help="Settings that --tune-on chooses: thresholds, or all of them."),
    ] = "thresholds",
    psds: Annotated[bool, typer.Option(help="Also compute PSDS; takes a few seconds per 1,000 clips.")] = False,
    durations: Annotated[
        Path | None, typer.Option(help="For EVENTS: a table of clips with columns filename and duration.")
    ] = None,
    align: Annotated[
        str,
        typer.Option(
            metavar="middle|authors", help="Position of a frame in time: the middle of its audio, or as in Table I."
        ),
    ] = "middle",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Evaluate a model, or detected events, on labelled clips.

    Scores are given by clip (static), by segment (dynamic) and by event.

    Example: earmark evaluate run recordings --split test

    Example: earmark evaluate events.csv truth.tsv --durations durations.tsv --out evaluated
    """
    from earmark import api
    from earmark.datasets import with_separator
    from earmark.detection.detector import SoundDetector
    from earmark.evaluation import EvaluationOptions
    from earmark.events import Decoder

    decoding.check_thresholds(threshold, thresholds)
    if thresholds is not None and tune_on is not None:
        raise ArgumentError("--thresholds and --tune-on cannot be combined; use one of them")
    settings = {"threshold": threshold, "low": low, "median": median, "boxes": boxes}
    settings |= {"min_duration": min_duration, "min_gap": min_gap}
    decoder: Decoder | None = None
    judged: Path | SoundDetector = model
    if thresholds is not None or any(value is not None for value in settings.values()):
        if api.is_model(model):
            judged = api.load(model, pooled=True)
            decoder = decoding.decoder_of(judged, thresholds, settings)
        else:
            decoder = Decoder().changed(**settings)
    if out is not None and not as_json and not api.is_model(out) and (note := other_files_note(out)):
        print_note(note)
    options = EvaluationOptions(segment=segment, align=align, with_psds=psds, decoder=decoder, tune=tune)
    with live_display(quiet=as_json) as display:
        evaluation = api.evaluate(
            judged,
            with_separator(data, separator),
            split=split,
            out=out,
            reference=reference,
            tune_on=tune_on,
            durations=durations,
            options=options,
            force=force,
            on_progress=display,
        )
    if as_json:
        print(json_text(evaluation.to_dict()))
        return
    print(evaluation)
    if evaluation.is_saved:
        print(f"Scores: {evaluation.folder / 'scores.json'}; events: {evaluation.folder / 'events.tsv'}")
        print(f"Figures: {evaluation.folder / 'figures'}")
