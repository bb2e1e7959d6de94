"""Concatenate soundscapes to long recordings with labels:

    OUT/recordings/SPLIT.flac    audio: 16 bits, mono; the same samples as the clips
    OUT/recordings/SPLIT.tsv     labels: filename, onset, offset, label

One clip is in memory at a time. Events that touch at the border of two clips stay two rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from earmark import audio
from earmark.annotations import LabelTable
from earmark.audio.containers import native_name
from earmark.errors import ArgumentError, unknown_name
from earmark.files import make_folder, written_whole
from earmark.formats import TSV
from earmark.ownership import owned
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.synthesis.specification import draw

_LONGEST = (1 << 36) - 1  # samples in a FLAC file at most


@dataclass(frozen=True)
class Joined:
    """A long recording and the positions of its clips."""

    path: Path
    labels: Path
    rate: int
    clips: tuple[str, ...]  # names in labels.tsv, in order; one may occur many times
    starts: tuple[int, ...]  # first sample of each clip, and the end of the last one
    events: int

    @property
    def duration(self) -> float:
        """In seconds."""
        return self.starts[-1] / self.rate


def join(
    folder: str | Path,
    split: str,
    *,
    duration: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Joined:
    """Concatenate the soundscapes of a split in an output folder of `synthesise`; both files are written atomically.

    Parameters
    ----------
    duration
        Minimum duration in seconds: clips are repeated, in a new order each time, until they fill it; the last one is
        not cut. None: every clip once, in the order of labels.tsv.
    out
        The recording, ending in .flac; by default recordings/SPLIT.flac in the folder. Labels are written next to it.
    """
    folder = Path(folder)
    table = TSV().read(folder / "labels.tsv")
    names = [name for name in table.filenames if table.splits.get(name) == split]
    if not names:
        raise unknown_name("split", split, sorted(set(table.splits.values())))
    path = folder / "recordings" / f"{split}.flac" if out is None else Path(out)
    if path.suffix != ".flac":
        raise ArgumentError(f"{path}: expected the suffix .flac")
    rate = audio.info(folder / names[0]).rate
    lengths = {name: audio.info(folder / name).samples_at(rate) for name in names}
    clips = _ordered(lengths, rate, duration, draw(seed, "join", split))
    starts = (0, *np.cumsum([lengths[name] for name in clips]).tolist())
    labels = path.with_suffix(".tsv")
    make_folder(path.parent)
    rows = []
    for name, start in zip(clips, starts[:-1], strict=True):
        for row in table.of(name):
            if row.span is not None:
                # without rounding, an event could last into the next segment by a rounding error
                onset, offset = (round(time + start / rate, 6) for time in row.span)
                rows.append(row._replace(filename=path.name, onset=onset, offset=offset))
    with owned(path.parent, files=[path, labels]) as owner:
        with written_whole(path) as draft:
            try:
                _write_sound(draft, [folder / name for name in clips], rate, on_progress)
            except soundfile.SoundFileError as error:
                raise ArgumentError(f"{path}: cannot be written, is the disk full? {error}") from error
            owner.remove(labels)  # of an earlier recording, which must not be mistaken for those of this one
        TSV().write(LabelTable(rows, filenames=[path.name]), labels)
    return Joined(path, labels, rate, tuple(clips), starts, len(rows))


def _ordered(lengths: dict[str, int], rate: int, duration: float | None, rng: np.random.Generator) -> list[str]:
    """Clips in the order of concatenation."""
    if duration is not None and not 0 < duration < math.inf:
        raise ArgumentError(f"duration: expected a positive number of seconds, got {duration}")
    wanted = sum(lengths.values()) if duration is None else math.ceil(round(duration * rate, 3))
    if wanted > _LONGEST:
        raise ArgumentError(f"expected at most {_LONGEST} samples in a FLAC file ({_LONGEST // rate} s), got {wanted}")
    if duration is None:
        return list(lengths)
    names, order = list(lengths), []
    while wanted > 0:
        for k in rng.permutation(len(names)):
            if wanted > 0:
                order.append(names[k])
                wanted -= lengths[names[k]]
    return order


def _write_sound(path: Path, clips: Sequence[Path], rate: int, on_progress: OnProgress) -> None:
    with soundfile.SoundFile(native_name(path), "w", rate, 1, "PCM_16", format="FLAC") as file:
        for done, clip in enumerate(clips, start=1):
            sound = audio.read(clip, rate=rate)
            # integers, because libsndfile reads with a factor of 1 / 32,768 and writes with 32,767
            file.write(np.clip(np.rint(sound * 32768), -32768, 32767).astype(np.int16))
            on_progress(Progress("recording", done, len(clips), "clips"))
