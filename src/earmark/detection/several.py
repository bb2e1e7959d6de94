"""Detection in several files without a job folder; files that cannot be read do not affect the others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from earmark.annotations import Label
from earmark.audio import AnyPath, Gap, check_damaged
from earmark.detection.detector import SoundDetector, recording_starts
from earmark.detection.inputs import choose_names, find_recordings, reason_of
from earmark.detection.spans import LocalExecutor, score_files
from earmark.errors import DataError
from earmark.events import Decoder, decode_scores
from earmark.inference.scores import RecordingScores
from earmark.text import first_few


@dataclass
class Detections:
    """Events of several recordings, and the reasons why others could not be read."""

    names: dict[Path, str]  # of all recordings, unique
    began: dict[str, datetime]  # start times, by name, where known
    done: dict[Path, list[Label]] = field(default_factory=dict)  # events of the recordings that could be read
    failed: dict[Path, str] = field(default_factory=dict)  # why the others could not
    gaps: dict[Path, tuple[Gap, ...]] = field(default_factory=dict)  # missing sound

    @property
    def events(self) -> list[Label]:
        """Events of all recordings, in their order."""
        return [event for path in self.names for event in self.done.get(path, ())]

    def all_gaps(self) -> Iterator[tuple[Path, Gap]]:
        """Missing sound of all recordings."""
        for path, gaps in self.gaps.items():
            for gap in gaps:
                yield path, gap


def detect_several(
    detector: SoundDetector,
    inputs: Iterable[AnyPath],
    decoder: Decoder,
    *,
    workers: int | None = None,
    damaged: str = "refuse",
) -> Detections:
    """Detect events in files and folders, with threads of this process."""
    check_damaged(damaged)
    given = [Path(path) for path in inputs]
    names = dict(choose_names(find_recordings(given), {}))
    if not names:
        raise DataError(f"{first_few(map(str, given))}: no audio files found")
    result = Detections(names, recording_starts(names))

    def handle(path: Path, scores: RecordingScores | Exception) -> None:
        if isinstance(scores, Exception):
            result.failed[path] = reason_of(scores, path)
        else:
            result.done[path] = decode_scores(scores, decoder, names[path])

    executor = LocalExecutor(detector.scorer, workers)
    score_files(names, detector.scorer, executor, on_result=handle, on_gaps=result.gaps.__setitem__, damaged=damaged)
    return result
