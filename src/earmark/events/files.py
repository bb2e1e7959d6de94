"""Decoders read from JSON files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from earmark.errors import ArgumentError
from earmark.events.decoder import Decoder
from earmark.text import first_few


def load_decoder(path: Path, classes: Sequence[str]) -> Decoder:
    """Read the decoder from a JSON file such as `scores.json`, for a model with these classes.

    The file holds a decoder's settings, by themselves or under "decoder". If it also names "classes", settings per
    class are matched by name.
    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ArgumentError(f"{path}: expected JSON: {error}") from error
    names = None
    if isinstance(settings, dict) and "decoder" in settings:
        names, settings = settings.get("classes"), settings["decoder"]
    if not isinstance(settings, dict):
        raise ArgumentError(f"{path}: expected an object with a decoder's settings, by itself or under 'decoder'")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ArgumentError(f"{path}: classes: expected a list of names, got {names!r}")
    decoder = Decoder.from_dict(settings)
    return decoder if names is None else _match(decoder, names, classes, path)


def _match(decoder: Decoder, names: list[str], classes: Sequence[str], path: Path) -> Decoder:
    """The decoder with settings per class in the order of a model's classes instead of the file's."""
    per_class: dict[str, Any] = {name: values for name, values in decoder.to_dict().items() if isinstance(values, list)}
    for name, values in per_class.items():
        if len(values) != len(names):
            raise ArgumentError(f"{path}: {name}: expected {len(names)} values, one per class, got {len(values)}")
    missing = [label for label in classes if label not in names]
    if per_class and missing:
        raise ArgumentError(
            f"{path}: no thresholds for {first_few(missing)}; tune them with this model: earmark evaluate --tune-on"
        )
    ordered: dict[str, Any] = {
        name: tuple(values[names.index(c)] for c in classes) for name, values in per_class.items()
    }
    return replace(decoder, **ordered)
