"""Figures of parts of a job's recordings: those that the user names, or the minutes with the most events."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.annotations import Label
from earmark.detection.ledger import Entry
from earmark.detection.outputs import JobFolder, job_recordings
from earmark.errors import ArgumentError
from earmark.inference.recordings import output_frames, score_recording
from earmark.inference.scorer import Scorer
from earmark.inference.scores import read_scores
from earmark.plots.clip import recording_figure
from earmark.plots.style import save
from earmark.text import clock_time, counted, first_few

_BUSIEST = "busiest"
_MINUTE = 60.0
_LONGEST = 3600.0  # seconds; a stretch is kept in memory
_MOST = 10  # recordings drawn for "busiest"
_TIME = r"(?:(?:[0-9]{1,9}:)?[0-9]{1,9}:)?[0-9]{1,9}(?:\.[0-9]+)?"
_SPAN = re.compile(rf"(?:(?P<name>.+)@)?(?P<onset>{_TIME})-(?P<offset>{_TIME})", re.S)


class Stretch(NamedTuple):
    """A part of a processed recording; times in seconds."""

    entry: Entry
    onset: float
    offset: float


def check_stretch(request: str) -> tuple[str | None, float, float] | None:
    """Parse a request for a figure: recording (None if not given), onset, offset; None for the busiest minutes.

    >>> check_stretch("night.flac@1:02:00-1:02:30.5"), check_stretch("90-120"), check_stretch("busiest")
    (('night.flac', 3720.0, 3750.5), (None, 90.0, 120.0), None)
    """
    if request == _BUSIEST:
        return None
    match = _SPAN.fullmatch(request)
    if match is None:
        raise ArgumentError(
            f"figure: expected {_BUSIEST}, ONSET-OFFSET or FILE@ONSET-OFFSET with times in seconds or as h:mm:ss, for "
            f"example night.flac@1:02:00-1:03:00, got {request!r}"
        )
    onset, offset = _seconds(match["onset"]), _seconds(match["offset"])
    if offset <= onset:
        raise ArgumentError(f"figure {request!r} ends before it begins")
    if offset - onset > _LONGEST:
        raise ArgumentError(f"figure {request!r}: expected at most one hour, got {clock_time(offset - onset)}")
    return match["name"], onset, offset


def check_stretches(request: Iterable[str], inputs: Sequence[Path], folder: Path) -> None:
    """Check requests before a job with these inputs runs: reject unknown recordings, and times after their end."""
    named = [(text, parsed) for text in request if (parsed := check_stretch(text)) is not None]
    recordings = job_recordings(inputs, folder) if named else {}
    if not recordings:
        return  # the job itself rejects inputs without recordings
    for text, (wanted, onset, _) in named:
        name = _find_recording(wanted, recordings)
        _check_onset(text, name, onset, audio.info(recordings[name], damaged="keep").duration)


def choose_stretches(folder: Path, request: str) -> list[Stretch]:
    """Resolve a request to stretches of the recordings of the job in a folder.

    "busiest" is the busiest minute of each of the ten recordings with the most events. In FILE@ONSET-OFFSET, FILE is
    the name of a recording or the end of it, optional if there is only one, with times in seconds or as h:mm:ss.
    """
    parsed = check_stretch(request)
    with JobFolder(folder).read_ledger() as ledger:
        entries = {entry.name: entry for entry in ledger.entries()}
        done = {name: entry for name, entry in entries.items() if entry.state == "done"}
        if parsed is None:
            eventful = sorted(done.values(), key=lambda entry: -(entry.events or 0))[:_MOST]
            return [Stretch(entry, *busiest(ledger.events(entry), entry.duration or 0.0)) for entry in eventful]
    wanted, onset, offset = parsed
    candidates = done if wanted is None else entries
    entry = entries[_find_recording(wanted, {name: candidate.path for name, candidate in candidates.items()})]
    if entry.name not in done:
        raise ArgumentError(f"figure {request!r} cannot be drawn: {entry.name}: {entry.reason or 'not processed yet'}")
    duration = entry.duration or 0.0
    _check_onset(request, entry.name, onset, duration)
    return [Stretch(entry, onset, min(offset, duration))]


def busiest(events: Sequence[Label], duration: float) -> tuple[float, float]:
    """Onset and offset of the minute in which most events begin; the first of several.

    >>> busiest([Label("a.wav", t, t + 1, "dog") for t in (5.0, 100.0, 110.0)], 600.0)
    (75.0, 135.0)
    """
    onsets = np.sort([row.onset for row in events if row.onset is not None])
    if not len(onsets) or duration <= _MINUTE:
        return 0.0, min(_MINUTE, duration)
    within = np.searchsorted(onsets, onsets + _MINUTE) - np.arange(len(onsets))
    first = int(within.argmax())
    last = onsets[first + within[first] - 1]
    # events in the middle; starts at a whole second
    begin = math.floor(min(max(0.0, (onsets[first] + last - _MINUTE) / 2), duration - _MINUTE))
    return float(begin), begin + _MINUTE


def figure_path(folder: Path, stretch: Stretch) -> Path:
    """The PNG file of a stretch in the folder of a job; the SVG file is next to it."""
    job = JobFolder(folder)
    place = job.scores(stretch.entry.name).relative_to(job.root / "scores").with_suffix("")
    onset, offset = (f"{round(time, 3):.10g}" for time in (stretch.onset, stretch.offset))
    return job.root / "figures" / f"{place}_{onset}-{offset}s.png"


def draw_stretches(folder: Path, scorer: Scorer, stretches: Sequence[Stretch]) -> list[Path]:
    """Draw stretches into the job's folder `figures`, as PNG and SVG; returns the PNG files.

    Uses the scores that the job kept, or recomputes them.
    """
    job, drawn = JobFolder(folder), []
    for stretch in stretches:
        hop = scorer.hop * scorer.reduction
        first = math.floor(stretch.onset / hop)  # the figure begins with a frame
        onset, p = first * hop, _frame_probabilities(job, scorer, stretch, first)
        with job.read_ledger() as ledger:
            events = ledger.events(stretch.entry)
        samples = audio.read(stretch.entry.path, rate=scorer.rate, onset=onset, offset=stretch.offset, damaged="keep")
        title = f"{stretch.entry.name}, {clock_time(stretch.onset)} to {clock_time(stretch.offset)}"
        figure = recording_figure(samples, scorer.rate, p, scorer.classes, events, p_hop=hop, onset=onset, title=title)
        drawn.append(save(figure, figure_path(folder, stretch))[0])
    return drawn


def _frame_probabilities(job: JobFolder, scorer: Scorer, stretch: Stretch, first: int) -> npt.NDArray[np.floating]:
    frames = output_frames(scorer, audio.info(stretch.entry.path, damaged="keep").samples_at(scorer.rate))
    first = min(first, frames - 1)
    last = max(first + 1, min(frames, math.ceil(stretch.offset / (scorer.hop * scorer.reduction))))
    kept = job.scores(stretch.entry.name)
    if stretch.entry.scores and kept.is_file() and stretch.entry.is_unchanged(stretch.entry.path.stat()):
        scores = read_scores(kept)
        if scores.fingerprint == scorer.fingerprint:
            return scores.p[first:last].astype(np.float32)
    blocks = score_recording(scorer, stretch.entry.path, first=first, last=last, damaged="keep")
    return np.concatenate(list(blocks))


def _find_recording(wanted: str | None, recordings: Mapping[str, Path]) -> str:
    """The name of the recording with this name or path, or whose name ends with it; of the only one for None."""
    if wanted is None:
        if len(recordings) != 1:
            raise ArgumentError(f"the job has {counted(len(recordings), 'recording')}; name one: FILE@ONSET-OFFSET")
        return next(iter(recordings))
    matches = [name for name, path in recordings.items() if wanted in (name, str(path))]
    matches = matches or [name for name in recordings if name.endswith("/" + wanted)]
    if not matches:
        similar = {(name if "/" in wanted else name.rpartition("/")[2]).lower(): name for name in recordings}
        nearest = get_close_matches(wanted.lower(), similar, n=1, cutoff=0.0)
        hint = f"; the most similar name is {similar[nearest[0]]}" if nearest else ""
        raise ArgumentError(f"recording {wanted!r} is not in the job{hint}")
    if len(matches) > 1:
        raise ArgumentError(f"{wanted} matches {len(matches)} recordings: {first_few(matches, 5)}")
    return matches[0]


def _check_onset(request: str, name: str, onset: float, duration: float) -> None:
    if onset >= duration:
        raise ArgumentError(f"figure {request!r} is after the end of {name}, which lasts {clock_time(duration)}")


def _seconds(text: str) -> float:
    """Seconds of a time such as 1:02:03.5 or 90."""
    return reduce(lambda total, part: 60 * total + float(part), text.split(":"), 0.0)
