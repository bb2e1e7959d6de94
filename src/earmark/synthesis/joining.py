"""Soundscapes joined end to end to long recordings, with their truth:

    OUT/recordings/SPLIT.flac    the sound: 16 bits, mono; sample for sample that of the clips
    OUT/recordings/SPLIT.tsv     the truth: filename, onset, offset, label

One clip is in memory at a time. Events that touch where two clips meet stay two rows.
"""

from __future__ import annotations

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
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.synthesis.specification import draw

__all__ = ["Joined", "join"]

_LONGEST = (1 << 36) - 1  # samples that a FLAC file can count


@dataclass(frozen=True)
class Joined:
    """A long recording and where its clips lie in it."""

    path: Path
    labels: Path
    rate: int
    clips: tuple[str, ...]
    """As labels.tsv calls them, in order; one may come many times."""
    starts: tuple[int, ...]
    """The sample with which each begins, and where the last one ends."""
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
    on_progress: OnProgress | None = None,
) -> Joined:
    """Join the soundscapes of a split to one recording; sound and truth are each written whole or not at all.

    Parameters
    ----------
    folder
        What `synthesise` has made.
    duration
        Seconds that the recording lasts at least: the clips come again and again, each round in another order, until
        they fill it; the last one is not cut. None: every clip once, in the order of labels.tsv.
    seed
        Of these orders.
    out
        The recording, ending in .flac; by default recordings/SPLIT.flac in the folder. The truth goes beside it.
    """
    folder = Path(folder)
    table = TSV().read(folder / "labels.tsv")
    own = [name for name in table.filenames if table.splits.get(name) == split]
    if not own:
        raise unknown_name("split", split, sorted(set(table.splits.values())))
    path = folder / "recordings" / f"{split}.flac" if out is None else Path(out)
    if path.suffix != ".flac":
        raise ArgumentError(f"{path}: recordings are written as .flac")
    rate = audio.info(folder / own[0]).rate
    lengths = {name: audio.info(folder / name).samples_at(rate) for name in own}
    clips = _ordered(lengths, rate, duration, draw(seed, "join", split))
    starts = (0, *np.cumsum([lengths[name] for name in clips]).tolist())
    labels = path.with_suffix(".tsv")
    make_folder(path.parent)
    with written_whole(path) as draft:
        try:
            _write_sound(draft, [folder / name for name in clips], rate, on_progress or ignore_progress)
        except soundfile.SoundFileError as error:
            raise ArgumentError(f"{path}: cannot be written, is the disk full? {error}") from error
        labels.unlink(missing_ok=True)  # of an earlier recording: it must never stand beside this one
    rows = [
        row._replace(filename=path.name, onset=_later(row.onset, start / rate), offset=_later(row.offset, start / rate))
        for name, start in zip(clips, starts[:-1], strict=True)
        for row in table.of(name)
        if row.onset is not None and row.offset is not None
    ]
    TSV().write(LabelTable(rows, filenames=[path.name]), labels)
    return Joined(path, labels, rate, tuple(clips), starts, len(rows))


def _later(time: float, shift: float) -> float:
    return round(time + shift, 6)  # a sum's last digits are noise, and could reach into a segment where nothing is


def _ordered(lengths: dict[str, int], rate: int, duration: float | None, rng: np.random.Generator) -> list[str]:
    """Clips in the order in which they are joined."""
    once = sum(lengths.values())
    if duration is not None and not 0 < duration < math.inf:
        raise ArgumentError(f"duration must be a positive number of seconds, found {duration}")
    wanted = once if duration is None else math.ceil(round(duration * rate, 3))
    if wanted > _LONGEST:
        raise ArgumentError(f"{wanted} samples wanted, a FLAC file has at most {_LONGEST}: {_LONGEST // rate} s here")
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
            # as integers: libsndfile would multiply floats by 32,767, having divided them by 32,768
            file.write(np.clip(np.rint(sound * 32768), -32768, 32767).astype(np.int16))
            on_progress(Progress("recording", done, len(clips), "clips"))
