"""Soundscapes as JAMS files, the way Scaper writes them and its users read them.

Read are both releases of URBAN-SED: 1.0 (namespace `sound_event`) and 2.0 (namespace `scaper`). Written is the
namespace `scaper`. What only earmark knows (the seed, the sources that stand in for missing ones) goes into the
annotation's sandbox under `earmark`, where others do not look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from earmark.errors import DataError
from earmark.files import json_text, written_whole
from earmark.synthesis.specification import SPLITS, Event, Soundscape

__all__ = ["read_jams", "write_jams"]

_NAMESPACES = ("scaper", "sound_event")
_FIELDS = (
    "label",
    "source_file",
    "source_time",
    "event_time",
    "event_duration",
    "snr",
    "pitch_shift",
    "time_stretch",
    "role",
)


def read_jams(path: Path, *, seed: int = 0) -> Soundscape:
    """The soundscape that a JAMS file of Scaper describes.

    Its name is the file's; its split that of a folder train, validate or test above the file, else train. The seed is
    the one recorded, if earmark wrote the file.
    """
    try:
        root = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JAMS: {error}") from error
    try:
        found = [a for a in root["annotations"] if a["namespace"] in _NAMESPACES and "scaper" in a["sandbox"]]
        if not found:
            raise DataError(f"no annotation by Scaper (namespace {' or '.join(_NAMESPACES)})")
        return _soundscape_of(found[0], path, seed)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not as Scaper writes JAMS: {type(error).__name__} {error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _soundscape_of(annotation: Mapping[str, Any], path: Path, seed: int) -> Soundscape:
    settings = annotation["sandbox"]["scaper"]
    observed = [Event(**{field: o["value"][field] for field in _FIELDS}) for o in annotation["data"]]
    backgrounds = [event for event in observed if event.role == "background"]
    if len(backgrounds) > 1:
        raise DataError(f"one background expected, found {len(backgrounds)}")
    folders = [part for part in path.parts[:-1] if part in SPLITS]
    return Soundscape(
        name=path.stem,
        events=tuple(event for event in observed if event.role == "foreground"),
        split=folders[-1] if folders else "train",
        duration=settings["duration"],
        ref_db=settings["ref_db"],
        fade_in=settings["fade_in_len"],
        fade_out=settings["fade_out_len"],
        reverb=settings.get("reverb"),
        background=backgrounds[0] if backgrounds else None,
        seed=annotation["sandbox"].get("earmark", {}).get("seed", seed),
    )


def write_jams(soundscape: Soundscape, path: Path, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write a soundscape as Scaper would.

    Parameters
    ----------
    notes
        What else to record in the sandbox `earmark`.
    """
    background = [] if soundscape.background is None else [soundscape.background]
    observed = [*background, *sorted(soundscape.events, key=lambda event: event.event_time)]
    annotation = {
        "namespace": "scaper",
        "time": 0,
        "duration": soundscape.duration,
        "annotation_metadata": {"annotation_tools": "earmark", "curator": {"name": "", "email": ""}, "annotator": {}},
        "data": [_observation_of(event, soundscape.duration) for event in observed],
        "sandbox": {"scaper": _settings_of(soundscape), "earmark": {"seed": soundscape.seed, **(notes or {})}},
    }
    root = {
        "annotations": [annotation],
        "file_metadata": {"title": soundscape.name, "duration": soundscape.duration, "jams_version": "0.3.4"},
        "sandbox": {},
    }
    with written_whole(path) as draft:
        draft.write_text(json_text(root, indent=1) + "\n", encoding="utf-8")


def _observation_of(event: Event, limit: float) -> dict[str, Any]:
    onset, offset = event.span(limit)
    value = {field: getattr(event, field) for field in _FIELDS}
    return {"time": onset, "duration": round(offset - onset, 6), "value": value, "confidence": 1.0}


def _settings_of(soundscape: Soundscape) -> dict[str, Any]:
    return {
        "duration": soundscape.duration,
        "ref_db": soundscape.ref_db,
        "n_channels": 1,
        "fade_in_len": soundscape.fade_in,
        "fade_out_len": soundscape.fade_out,
        "reverb": soundscape.reverb,
        "n_events": len(soundscape.events),
        "fg_labels": sorted({event.label for event in soundscape.events}),
        "bg_labels": [] if soundscape.background is None else [soundscape.background.label],
        "fg_path": "",
        "bg_path": "",
        "protected_labels": [],
        "allow_repeated_label": True,
        "allow_repeated_source": True,
    }
