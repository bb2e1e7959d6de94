"""Options of `detect` and `evaluate` about decoding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.errors import ArgumentError

if TYPE_CHECKING:
    from earmark.detection.detector import SoundDetector
    from earmark.events import Decoder

Threshold = Annotated[
    float | None,
    typer.Option(
        help="Probability at which an event begins, for all classes.  [default: the model's for each class, or 0.5]"
    ),
]
Thresholds = Annotated[
    Path | None,
    typer.Option(
        help="JSON file with decoder settings to use instead of the model's, such as the scores.json of evaluate."
    ),
]
Low = Annotated[
    float | None,
    typer.Option(help="Probability below which an event ends.  [default: the model's, or the threshold]"),
]
Boxes = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Replace probabilities by their mean between change points, detected with this window.  "
        "[default: the model's, or none]",
    ),
]
Median = Annotated[
    float | None, typer.Option(help="Length of a median filter, in seconds.  [default: the model's, or 0]")
]
MinDuration = Annotated[float | None, typer.Option(help="Shortest event, in seconds.  [default: the model's, or 0]")]
MinGap = Annotated[
    float | None, typer.Option(help="Shortest gap between events, in seconds.  [default: the model's, or 0]")
]


def check_thresholds(threshold: float | None, thresholds: Path | None) -> None:
    """Reject a threshold together with a file of thresholds."""
    if thresholds is not None and threshold is not None:
        raise ArgumentError("--threshold and --thresholds cannot be combined; use one of them")


def decoder_of(detector: SoundDetector, thresholds: Path | None, settings: dict[str, Any]) -> Decoder:
    """The decoder of a file, or else of the model, with the settings that are not None."""
    from earmark.events import load_decoder

    decoder = detector.decoder if thresholds is None else load_decoder(thresholds, detector.classes)
    return decoder.changed(**settings)
