"""Options of `detect` and `evaluate` about decoding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.app import print_error
from earmark.errors import ArgumentError

if TYPE_CHECKING:
    from earmark.detection.detector import SoundDetector
    from earmark.events import Decoder

Threshold = Annotated[
    float | None, typer.Option(help="Probability at which an event begins.  [default: chosen in training, or 0.5]")
]
Thresholds = Annotated[
    Path | None, typer.Option(help="JSON file with decoder settings, such as the scores.json of evaluate.")
]
Low = Annotated[float | None, typer.Option(help="Probability below which an event ends.  [default: the threshold]")]
Boxes = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Replace probabilities by their mean between change points, detected with this window."
    ),
]
Median = Annotated[float | None, typer.Option(help="Length of a median filter, in seconds.")]
MinDuration = Annotated[float | None, typer.Option(help="Shortest event, in seconds.")]
MinGap = Annotated[float | None, typer.Option(help="Shortest gap between events, in seconds.")]


def check_thresholds(threshold: float | None, thresholds: Path | None) -> None:
    """Reject a threshold together with a file of thresholds."""
    if thresholds is not None and threshold is not None:
        raise ArgumentError("--threshold and --thresholds cannot be combined; use one of them")


def decoder_of(detector: SoundDetector, thresholds: Path | None, settings: dict[str, Any]) -> Decoder:
    """The decoder of a file, or else of the model, with the settings that are not None.

    A threshold replaces the model's decoder with all that was chosen for it; a message lists what is lost.
    """
    from earmark.events import Decoder, load_decoder

    if thresholds is not None:
        return load_decoder(thresholds, detector.classes).changed(**settings)
    if settings["threshold"] is None:
        return detector.decoder.changed(**settings)
    names = [name for name in ("median", "min_gap", "min_duration", "boxes") if settings.get(name) is None]
    stored = {name: getattr(detector.decoder, name) for name in names}
    options = [f"--{name.replace('_', '-')} {value:g}" for name, value in stored.items() if value]
    if options:
        print_error(f"--threshold replaces the other settings of the model too; to keep them, add {' '.join(options)}")
    return Decoder().changed(**settings)
