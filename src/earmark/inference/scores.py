"""Frame scores kept on disk, so that thresholds can change without running again; and pooled to any horizon."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.files import json_text, written_whole
from earmark.inference.interpolation import interpolate

if TYPE_CHECKING:
    from earmark.pooling import Pool

__all__ = ["ALIGNMENTS", "RecordingScores", "read_scores", "repool", "write_scores"]

ALIGNMENTS = {
    "middle": "a frame's value stands in the middle of what the frame saw",
    "authors": "as in the paper's code: at its beginning, frames spread evenly over the clip",
}
_VERSION = 1
_CHUNK = 1 << 16  # frames pooled at once


@dataclass(frozen=True)
class RecordingScores:
    """Frame probabilities of a recording or clip, with what is needed to place them in time.

    Attributes
    ----------
    p : (frames', classes), float32
    feature_hop
        Seconds between feature frames.
    reduction
        Feature frames per output frame.
    frames
        Feature frames of the recording.
    duration
        In seconds.
    pooled : (classes,), the model's own pooling operator over all frames; None where nobody asked for it
    fingerprint
        Of the model; see `Scorer`.
    """

    filename: str
    classes: tuple[str, ...]
    p: npt.NDArray[np.float32]
    feature_hop: float
    reduction: int
    frames: int
    duration: float
    pooled: npt.NDArray[np.float32] | None = None
    fingerprint: str = ""

    @property
    def hop(self) -> float:
        """Seconds between output frames."""
        return self.feature_hop * self.reduction

    def dense(self, align: str = "middle") -> npt.NDArray[np.floating[Any]]:
        """Probabilities at the rate of the features, (frames, classes), linearly interpolated.

        Parameters
        ----------
        align
            One of `ALIGNMENTS`.
        """
        if align not in ALIGNMENTS:
            raise unknown_name("align", align, ALIGNMENTS)
        if align == "authors":
            return interpolate(self.p, self.frames / len(self.p), self.frames, align="start")
        return interpolate(self.p, self.reduction, self.frames, align="middle")


_ABOUT = ("filename", "feature_hop", "reduction", "frames", "duration", "fingerprint")


def write_scores(path: str | Path, scores: RecordingScores) -> None:
    """Write scores to an .npz file, whole or not at all."""
    about = {name: getattr(scores, name) for name in _ABOUT} | {"version": _VERSION, "classes": list(scores.classes)}
    with written_whole(Path(path)) as draft, draft.open("wb") as file:
        np.savez_compressed(file, about=json_text(about), p=np.asarray(scores.p, np.float32))


def read_scores(path: str | Path) -> RecordingScores:
    """Read what `write_scores` wrote; anything else is refused with the reason."""
    try:
        with open(path, "rb") as bytes_, np.load(bytes_, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            p = file["p"]
        if about["version"] > _VERSION:
            raise DataError(f"{path}: scores written by a newer earmark; run the detection again")
        scores = RecordingScores(classes=tuple(about["classes"]), p=p, **{name: about[name] for name in _ABOUT})
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: damaged, cut short, or no file of scores at all: {error}") from error
    if p.dtype != np.float32 or p.ndim != 2 or p.shape[1] != len(scores.classes):
        raise DataError(f"{path}: damaged: probabilities are {p.dtype} of shape {p.shape}")
    return scores


def repool(
    scores: RecordingScores, pool: Pool, horizon: float | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """Probabilities that a class is somewhere in each minute, hour, or whole recording.

    Exact, in little memory, by the operator's stream; an operator that needs all frames at once says so.

    Parameters
    ----------
    pool
        Any operator for as many classes: the detector's own, or another.
    horizon
        Seconds that are pooled together; None for the whole recording. A frame belongs to the stretch that its middle
        falls into; where that lies behind the end, to the last.

    Returns
    -------
    (n, 2), onset and offset of each stretch in seconds, and P : (n, classes)
    """
    import torch

    if horizon is not None and not (math.isfinite(horizon) and horizon >= scores.hop):
        raise ArgumentError(f"horizon must be at least the {scores.hop:.3f} s between frames, found {horizon} s")
    middles = (np.arange(len(scores.p)) + 0.5) * scores.hop
    place = np.zeros(len(middles), np.int64)
    if horizon is not None:
        last = max(0, math.ceil(scores.duration / horizon - 1e-9) - 1)  # 2.1 s are 3 of 0.7 s, though 2.1 / 0.7 > 3
        place = np.minimum((middles // horizon).astype(np.int64), last)
    bounds = np.searchsorted(place, np.arange(place[-1] + 2))
    longest = int(np.diff(bounds).max())
    at_once = max(1, _CHUNK // longest)
    pooled = []
    for k in range(0, len(bounds) - 1, at_once):
        index = bounds[k : k + at_once + 1, None] + np.arange(longest)  # one row too many, for its first number
        mask = torch.from_numpy(index[:-1] < index[1:, :1])
        stream = pool.stream()
        for j in range(0, longest, _CHUNK):
            rows = np.minimum(index[:-1, j : j + _CHUNK], len(scores.p) - 1)
            stream.update(torch.from_numpy(scores.p[rows]), mask[:, j : j + _CHUNK])
        pooled.append(stream.value().numpy())
    ends = np.arange(len(bounds)) * (scores.duration if horizon is None else horizon)
    intervals = np.minimum(np.stack([ends[:-1], ends[1:]], axis=1), scores.duration)
    return intervals, np.concatenate(pooled)
