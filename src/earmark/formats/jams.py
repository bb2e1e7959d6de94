"""JAMS documents: Scaper's (URBAN-SED), and open tags and segments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from earmark.annotations import Label, LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format
from earmark.formats.recordings import LOST, the_recording
from earmark.formats.rows import Rows
from earmark.formats.text import read_text, stem_of, write_text

__all__ = ["JAMS"]

_SCAPER = ("scaper", "sound_event")
_OPEN = ("tag_open", "segment_open")
_KEY = re.compile(r'"(annotations|file_metadata)"\s*:')


@FORMATS.register("jams", "JAMS document: namespaces scaper, sound_event, tag_open, segment_open; one per recording")
class JAMS(Format):
    """One document per recording, called after it.

    Events are the observations of namespaces `scaper` and `sound_event` (URBAN-SED 2 and 1), without those whose role
    is "background", and of `segment_open`. A `tag_open` over all of the file is a label without times. Other namespaces
    are left out. Written documents have events as `segment_open` and labels without times as `tag_open`; the file's
    duration, which JAMS wants and labels do not say, is the last offset.

    Parameters
    ----------
    duration
        Of the recording, for writing, where it is known.
    """

    suffix = ".jams"
    per_recording = True
    loses = f"{LOST}, the order of rows with and without times, the last digit of an offset (kept as a duration)"

    def __init__(self, *, duration: float | None = None) -> None:
        self.duration = duration

    def read(self, path: Path) -> LabelTable:
        """Labels in a document."""
        try:
            document = json.loads(read_text(path))
            annotations = list(document["annotations"])
            namespaces = [annotation["namespace"] for annotation in annotations]
            duration = (document.get("file_metadata") or {}).get("duration")
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: not a JAMS document: {error}") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not a JAMS document: no annotations with a namespace in it") from error
        if namespaces and not set(namespaces) & {*_SCAPER, *_OPEN}:
            raise DataError(
                f"{path}: holds {', '.join(sorted(set(map(str, namespaces))))}; sound events are in namespaces "
                f"{', '.join((*_SCAPER, *_OPEN))}"
            )
        rows = Rows(path)
        name = rows.mention(stem_of(path))
        for a, annotation in enumerate(annotations, 1):
            if annotation["namespace"] in (*_SCAPER, *_OPEN):
                for o, observation in enumerate(_observations(annotation.get("data"), path), 1):
                    try:
                        _add(rows, name, observation, annotation["namespace"], duration)
                    except (KeyError, TypeError, AttributeError, ValueError) as error:
                        reason = error if isinstance(error, DataError) else f"no observation: {observation!r:.80}"
                        raise DataError(f"{path}: annotation {a}, observation {o}: {reason}") from error
        return rows.table()

    def write(self, table: LabelTable, path: Path) -> None:
        """Write the document of one recording."""
        title = the_recording(table)
        duration = max((float(row.offset) for row in table if row.offset is not None), default=0.0)
        duration = max(duration, self.duration or 0.0)
        present = [row for row in table if row.present]
        groups = {
            "segment_open": [row for row in present if row.has_times],
            "tag_open": [row for row in present if not row.has_times],
        }
        annotations = [
            {
                "namespace": namespace,
                "time": 0.0,
                "duration": duration,
                "data": [_observation(row, duration) for row in group],
                "annotation_metadata": {"annotation_tools": "earmark"},
                "sandbox": {},
            }
            for namespace, group in groups.items()
            if group
        ]
        metadata = {"title": title, "duration": duration, "identifiers": {}, "jams_version": "0.3.4"}
        metadata |= {"artist": "", "release": ""}
        document = {"annotations": annotations, "file_metadata": metadata, "sandbox": {}}
        write_text(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

    def recognises(self, path: Path, head: str) -> bool:
        """The suffix, or an object with what a JAMS document has."""
        is_jams = path.name.removesuffix(".gz").endswith(self.suffix)
        return is_jams or (head.lstrip().startswith("{") and _KEY.search(head) is not None)


def _observations(data: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    """Observations, kept one by one or, as JAMS did at first, column by column."""
    if isinstance(data, Mapping):
        keys = [key for key in ("time", "duration", "value", "confidence") if isinstance(data.get(key), list)]
        if len(keys) < 3 or len({len(data[key]) for key in keys}) != 1:
            raise DataError(f"{path}: columns time, duration and value of the same length expected")
        for values in zip(*(data[key] for key in keys), strict=True):
            yield dict(zip(keys, values, strict=True))
    elif isinstance(data, list):
        yield from data
    else:
        raise DataError(f"{path}: a list of observations expected")


def _add(rows: Rows, name: str, observation: Mapping[str, Any], namespace: str, duration: object) -> None:
    value = observation["value"]
    is_scaper = namespace in _SCAPER and isinstance(value, Mapping)
    if is_scaper and value.get("role") == "background":
        return
    label = value["label"] if is_scaper else value
    if not isinstance(label, str):
        raise DataError(f"a label must be text, found {label!r}")
    onset, length = float(observation["time"]), float(observation["duration"])
    # Scaper is sure of everything, which says nothing.
    confidence = None if is_scaper else observation.get("confidence")
    is_whole = not isinstance(duration, (int, float)) or (onset <= 0 and onset + length >= duration - 1e-6)
    if namespace == "tag_open" and (is_whole or not length):
        rows.add(name, None, None, label, True, confidence)
    else:
        rows.add(name, onset, onset + length, label, True, confidence)


def _observation(row: Label, duration: float) -> dict[str, object]:
    onset, offset = float(row.onset or 0), duration if row.offset is None else float(row.offset)
    confidence = None if row.confidence is None else float(row.confidence)
    return {"time": onset, "duration": offset - onset, "value": row.label, "confidence": confidence}
