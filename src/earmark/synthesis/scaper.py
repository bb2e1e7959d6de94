"""Soundscapes as JAMS files, as Scaper writes them.

Both releases of URBAN-SED can be read: 1.0 (namespace `sound_event`) and 2.0 (namespace `scaper`). Files are written in
the namespace `scaper`. What only earmark records (the seed, substituted sources) is in the annotation's sandbox under
`earmark`, which other programs ignore.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from earmark.errors import DataError
from earmark.formats.jams import SCAPER, load_document, observations, save_document
from earmark.formats.text import read_text
from earmark.schema import parse
from earmark.synthesis.specification import SPLITS, Event, Soundscape

_SOURCE = ("label", "source_file", "source_time")
_FIELDS = (*_SOURCE, "event_time", "event_duration", "snr", "pitch_shift", "time_stretch", "role")


def read_jams(path: Path, *, seed: int = 0) -> Soundscape:
    """Read the soundscape that a JAMS file of Scaper specifies.

    Its name is that of the file; its split is that of a folder train, validate or test above the file, else train. The
    seed is the recorded one if earmark wrote the file.
    """
    text = read_text(path)
    try:
        annotations, _ = load_document(text)
        specified = [a for a in annotations if a["namespace"] in SCAPER and "scaper" in a["sandbox"]]
        if not specified:
            raise DataError(f"no annotation by Scaper (namespace {' or '.join(SCAPER)})")
        return _soundscape_of(specified[0], path, seed)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a JAMS file of Scaper: {type(error).__name__} {error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _soundscape_of(annotation: Mapping[str, Any], path: Path, seed: int) -> Soundscape:
    settings = annotation["sandbox"]["scaper"]
    described = [observation["value"] for observation in observations(annotation)]
    events = [parse(Event, {field: value[field] for field in _FIELDS}, where=value["label"]) for value in described]
    backgrounds = [event for event in events if event.role == "background"]
    if len(backgrounds) > 1:
        raise DataError(f"expected one background, got {len(backgrounds)}")
    folders = [part for part in path.parts[:-1] if part in SPLITS]
    fields: dict[str, Any] = {
        "name": path.stem,
        "events": tuple(event for event in events if event.role == "foreground"),
        "split": folders[-1] if folders else "train",
        "duration": settings["duration"],
        "ref_db": settings["ref_db"],
        "fade_in": settings["fade_in_len"],
        "fade_out": settings["fade_out_len"],
        "reverb": settings.get("reverb"),
        "background": backgrounds[0] if backgrounds else None,
        "seed": annotation["sandbox"].get("earmark", {}).get("seed", seed),
    }
    return parse(Soundscape, fields)


def write_jams(soundscape: Soundscape, path: Path, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write a soundscape as Scaper does; `notes` are added to the sandbox `earmark`."""
    background = [] if soundscape.background is None else [soundscape.background]
    events = [*background, *sorted(soundscape.events, key=lambda event: event.event_time)]
    settings = {
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
    annotation = {
        "namespace": "scaper",
        "annotation_metadata": {"curator": {"name": "", "email": ""}, "annotator": {}},
        "data": [_observation_of(event, soundscape.duration) for event in events],
        "sandbox": {"scaper": settings, "earmark": {"seed": soundscape.seed, **(notes or {})}},
    }
    save_document(path, soundscape.name, soundscape.duration, [annotation])


def _observation_of(event: Event, limit: float) -> dict[str, Any]:
    onset, offset = event.span(limit)
    value = {field: getattr(event, field) for field in _FIELDS}
    return {"time": onset, "duration": round(offset - onset, 6), "value": value, "confidence": 1.0}
