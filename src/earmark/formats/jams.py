"""JAMS documents: Scaper's (URBAN-SED), and open tags and segments.

`load_document` and `save_document` are the only places that parse and write JAMS; `earmark.synthesis.scaper` uses them
for specifications of soundscapes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.files import json_text
from earmark.formats.base import FORMATS, LOST_PER_RECORDING, Format, Rows, only_recording
from earmark.formats.text import check_class, has_suffix, largest_table, too_large, write_text

SCAPER = ("scaper", "sound_event")
"""Namespaces of Scaper's annotations: those of URBAN-SED 2.0 and 1.0."""

_JSON_SHARE = 8  # of the largest table that a document may have: JSON takes more memory than a table
_OPEN = ("tag_open", "segment_open")
_KEY = re.compile(r'"(annotations|file_metadata)"\s*:')

Annotation = Mapping[str, Any]


def load_document(text: str) -> tuple[list[Annotation], float | None]:
    """Annotations of a JAMS document, each with a namespace, and the duration it states, if that is a number."""
    most = largest_table() // _JSON_SHARE
    if len(text) > most:
        raise too_large(f"{most / 2**20:g} MiB of JSON")
    try:
        document = from_json(text)
        annotations = list(document["annotations"])
        if not all(isinstance(annotation["namespace"], str) for annotation in annotations):
            raise TypeError
        duration = (document.get("file_metadata") or {}).get("duration")
        return annotations, float(duration) if isinstance(duration, int | float) else None
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError("not a JAMS document: no annotations with a namespace") from error
    except (ValueError, OverflowError) as error:
        raise DataError(f"not a JAMS document: {error}") from error


def observations(annotation: Annotation) -> list[Mapping[str, Any]]:
    """Observations of an annotation, stored one by one or, as in early JAMS, by column."""
    data = annotation.get("data")
    if isinstance(data, list):
        return data
    if not isinstance(data, Mapping):
        raise DataError("expected a list of observations")
    keys = [key for key in ("time", "duration", "value", "confidence") if isinstance(data.get(key), list)]
    if len(keys) < 3 or len({len(data[key]) for key in keys}) != 1:
        raise DataError("expected columns time, duration and value of the same length")
    return [dict(zip(keys, values, strict=True)) for values in zip(*(data[key] for key in keys), strict=True)]


def save_document(path: Path, title: str, duration: float, annotations: Sequence[Annotation]) -> None:
    """Write a JAMS document; annotations need a namespace and data, and may have metadata and a sandbox."""
    metadata = {"title": title, "duration": duration, "identifiers": {}, "jams_version": "0.3.4"}
    document = {
        "annotations": [
            {
                "namespace": annotation["namespace"],
                "time": 0.0,
                "duration": duration,
                "data": annotation["data"],
                "annotation_metadata": {"annotation_tools": "earmark", **annotation.get("annotation_metadata", {})},
                "sandbox": annotation.get("sandbox", {}),
            }
            for annotation in annotations
        ],
        "file_metadata": {**metadata, "artist": "", "release": ""},
        "sandbox": {},
    }
    write_text(path, json_text(document, indent=1, ensure_ascii=False) + "\n")


@FORMATS.register(
    "jams", "JAMS document: namespaces scaper, sound_event, tag_open, segment_open; a file for each recording"
)
class JAMS(Format):
    """One document per recording, named after it.

    Events are the observations in namespaces `scaper` and `sound_event` (URBAN-SED 2 and 1), except those with role
    "background", and in `segment_open`. A `tag_open` that covers the whole file is a label without times. Other
    namespaces are ignored. Events are written as `segment_open`, labels without times as `tag_open`; the duration of
    the file, which JAMS requires and labels lack, is the last offset, or `duration` if that is longer.
    """

    suffix = ".jams"
    per_recording = True
    loses = (
        f"{LOST_PER_RECORDING}, the order of rows with and without times, the last digit of an offset (kept as a "
        "duration)"
    )

    def __init__(self, *, duration: float | None = None) -> None:
        self.duration = duration

    def _read(self, text: str, rows: Rows) -> None:
        annotations, duration = load_document(text)
        namespaces = {annotation["namespace"] for annotation in annotations}
        if namespaces and not namespaces & {*SCAPER, *_OPEN}:
            raise DataError(
                f"expected a namespace with sound events ({', '.join((*SCAPER, *_OPEN))}), "
                f"got {', '.join(sorted(namespaces))}"
            )
        name = rows.add_file(rows.recording)
        for a, annotation in enumerate(annotations, 1):
            if annotation["namespace"] not in (*SCAPER, *_OPEN):
                continue
            for o, entry in enumerate(observations(annotation), 1):
                try:
                    _add(rows, name, entry, annotation["namespace"], duration)
                except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
                    reason = error if isinstance(error, DataError) else f"not an observation: {entry!r:.80}"
                    raise DataError(f"annotation {a}, observation {o}: {reason}") from error

    def write(self, table: LabelTable, path: Path) -> None:
        title = only_recording(table)
        offsets = [float(row.offset) for row in table if row.offset is not None]
        duration = max(*offsets, self.duration or 0.0, 0.0)
        groups: dict[str, list[dict[str, Any]]] = {"segment_open": [], "tag_open": []}
        for row in table:
            if row.present:
                label = check_class(row.label, self.name)
                onset = float(row.onset or 0)
                offset = duration if row.offset is None else float(row.offset)
                confidence = None if row.confidence is None else float(row.confidence)
                observation = {"time": onset, "duration": offset - onset, "value": label, "confidence": confidence}
                groups["segment_open" if row.has_times else "tag_open"].append(observation)
        annotations = [{"namespace": namespace, "data": data} for namespace, data in groups.items() if data]
        save_document(path, title, duration, annotations)

    def recognises(self, path: Path, head: str) -> bool:
        return has_suffix(path, self.suffix) or (head.lstrip().startswith("{") and _KEY.search(head) is not None)


def _add(rows: Rows, name: str, observation: Mapping[str, Any], namespace: str, duration: float | None) -> None:
    value = observation["value"]
    is_scaper = namespace in SCAPER and isinstance(value, Mapping)
    if is_scaper and value.get("role") == "background":
        return
    label = value["label"] if is_scaper else value
    if not isinstance(label, str):
        raise DataError(f"expected text as label, got {label!r}")
    onset, length = float(observation["time"]), float(observation["duration"])
    # Scaper writes 1 for every event, which carries no information.
    confidence = None if is_scaper else observation.get("confidence")
    covers_file = duration is None or (onset <= 0 and onset + length >= duration - 1e-6)
    if namespace == "tag_open" and (covers_file or not length):
        rows.add(name, None, None, label, True, confidence)
    else:
        rows.add(name, onset, onset + length, label, True, confidence)
