"""Frame probabilities of a recording: stored, interpolated, and pooled over intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from earmark.arrays import read_arrays, write_arrays
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.files import json_text
from earmark.inference.interpolation import interpolate, probabilities
from earmark.schema import Names, open_record, parse, parse_json, record

if TYPE_CHECKING:
    from earmark.pooling import Pool

ALIGNMENTS = {
    "middle": "values stand at the centres of output frames",
    "authors": "values stand at the start of output frames, spread evenly over the clip, as in the paper's code",
}
_VERSION = 1
_CHUNK = 1 << 16  # frames pooled at once


@dataclass(frozen=True)
class RecordingScores:
    """Frame probabilities of a recording or clip, and their times."""

    filename: str
    classes: tuple[str, ...]
    p: npt.NDArray[np.float32]  # (frames', classes)
    feature_hop: float  # seconds between feature frames
    reduction: int  # feature frames per output frame
    frames: int  # feature frames of the recording
    duration: float  # in seconds
    pooled: npt.NDArray[np.float32] | None = None  # (classes,), by the model's operator; None if not requested
    fingerprint: str = ""  # of the model; see `Scorer`

    @property
    def hop(self) -> float:
        """Seconds between output frames."""
        return self.feature_hop * self.reduction

    def dense(self, align: str = "middle") -> npt.NDArray[np.floating[Any]]:
        """Probabilities at the rate of the features, (frames, classes), linearly interpolated; see `ALIGNMENTS`."""
        if align not in ALIGNMENTS:
            raise unknown_name("align", align, ALIGNMENTS)
        if align == "authors":
            return interpolate(self.p, self.frames / len(self.p), self.frames, align="start")
        return interpolate(self.p, self.reduction, self.frames, align="middle")


MOST_REDUCTION = 1 << 12
"""The most feature frames per output frame that files may state."""
_Reduction = Annotated[int, Field(ge=1, le=MOST_REDUCTION)]


@record
class _About:
    """Metadata in a file of scores."""

    version: int
    filename: str
    classes: Names
    feature_hop: Annotated[float, Field(gt=0)]
    reduction: _Reduction
    frames: Annotated[int, Field(ge=1)]
    duration: Annotated[float, Field(ge=0)]
    fingerprint: str


@open_record
class _Version:
    version: int


def write_scores(path: str | Path, scores: RecordingScores) -> None:
    """Write scores to an .npz file, atomically."""
    names = ("filename", "feature_hop", "reduction", "frames", "duration", "fingerprint")
    about = {name: getattr(scores, name) for name in names} | {"version": _VERSION, "classes": list(scores.classes)}
    write_arrays(Path(path), {"about": np.array(json_text(about)), "p": np.asarray(scores.p, np.float32)})


def read_scores(path: str | Path) -> RecordingScores:
    """Read a file that `write_scores` wrote."""
    path = Path(path)
    text = str(read_arrays(path, {"about": ("U", ())})["about"])
    values = parse_json(dict[str, Any], text, where=path)
    if parse(_Version, values, where=path).version > _VERSION:
        raise DataError(f"{path}: written by a newer earmark; run the detection again")
    about = vars(parse(_About, values, where=path))
    del about["version"]
    p = read_arrays(path, {"p": ("f4", ("frames", len(about["classes"])))})["p"]
    scores = RecordingScores(**about, p=p)
    check_scores(path, scores)
    return scores


def check_scores(path: Path, scores: RecordingScores) -> None:
    """Reject scores from a file that are not probabilities or do not match the length of their recording."""
    name, frames = scores.filename, scores.frames
    seconds = frames * scores.feature_hop
    if len(scores.p) != frames // scores.reduction:
        raise DataError(f"{path}: {name!r}: expected {frames // scores.reduction} frames, got {len(scores.p)}")
    if not 0 <= scores.duration <= 2 * seconds + 3600:  # frames may end before the recording, but not long before
        raise DataError(f"{path}: {name!r}: expected a duration of about {seconds:g} s, got {scores.duration:g} s")
    try:
        probabilities(scores.p)
    except DataError as error:
        raise DataError(f"{path}: {name!r}: {error}") from None


def repool(
    scores: RecordingScores, pool: Pool, horizon: float | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """Probabilities that a class occurs in each minute, hour, or whole recording; exact, in bounded memory.

    `pool` is the model's operator, or any other for as many classes that can be streamed. `horizon` is the length of an
    interval in seconds, None for the whole recording. A frame belongs to the interval that contains its centre, or to
    the last. Returns onset and offset of each interval in seconds, (n, 2), and P : (n, classes). Results that are not
    finite raise a DataError.
    """
    import torch

    if horizon is not None and not (math.isfinite(horizon) and horizon >= scores.hop):
        raise ArgumentError(f"horizon: expected at least the {scores.hop:.3f} s between frames, got {horizon} s")
    centres = (np.arange(len(scores.p)) + 0.5) * scores.hop
    interval = np.zeros(len(centres), np.int64)
    if horizon is not None:
        last = max(0, math.ceil(scores.duration / horizon - 1e-9) - 1)  # 2.1 s are 3 intervals of 0.7 s: 2.1 / 0.7 > 3
        interval = np.minimum((centres // horizon).astype(np.int64), last)
    bounds = np.searchsorted(interval, np.arange(interval[-1] + 2))  # first frame of each interval, and the end
    longest = int(np.diff(bounds).max())
    at_once = max(1, _CHUNK // longest)
    pooled = []
    for k in range(0, len(bounds) - 1, at_once):
        # Rows are intervals, all as long as the longest; the mask ends each where the next row begins. The last row
        # only marks the end of the one before it.
        index = bounds[k : k + at_once + 1, None] + np.arange(longest)
        mask = torch.from_numpy(index[:-1] < index[1:, :1])
        stream = pool.stream()
        for j in range(0, longest, _CHUNK):
            rows = np.minimum(index[:-1, j : j + _CHUNK], len(scores.p) - 1)
            stream.update(torch.from_numpy(scores.p[rows]), mask[:, j : j + _CHUNK])
        pooled.append(stream.value().numpy())
    ends = np.arange(len(bounds)) * (scores.duration if horizon is None else horizon)
    intervals = np.minimum(np.stack([ends[:-1], ends[1:]], axis=1), scores.duration)
    P = np.concatenate(pooled)
    if not np.isfinite(P).all():
        raise DataError(f"{scores.filename}: pool {pool.name!r} gives NaN or infinity; expected probabilities")
    return intervals, P
