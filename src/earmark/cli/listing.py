"""`earmark list`"""

from __future__ import annotations

from typing import Annotated

import typer

from earmark.cli.app import Json, app
from earmark.errors import unknown_name
from earmark.files import json_text

__all__ = ["list_"]


def _pools() -> list[dict[str, object]]:
    from earmark.pooling import POOLS

    return [
        {
            "name": entry.name,
            "summary": entry.summary,
            "class": entry.cls.__name__,
            "options": entry.options(),
            "weights": not entry.cls.why_no_weights,
            "stream": not entry.cls.why_no_stream,
        }
        for entry in POOLS
    ]


def _datasets() -> list[dict[str, object]]:
    from earmark.datasets import DATASETS

    return [
        {
            "name": entry.name,
            "summary": entry.summary,
            "classes": entry.cls.classes,
            "splits": entry.cls.splits,
            "licence": entry.cls.licence,
            "citation": entry.cls.citation,
            "layout": entry.cls.layout,
            "options": entry.options(),
        }
        for entry in DATASETS
    ]


def _formats() -> list[dict[str, object]]:
    from earmark.formats import FORMATS

    return [
        {
            "name": entry.name,
            "summary": entry.summary,
            "suffix": entry.cls.suffix,
            "per_recording": entry.cls.per_recording,
            "loses": entry.cls.loses,
        }
        for entry in FORMATS
    ]


def _recipes() -> list[dict[str, object]]:
    from earmark.settings import recipes
    from earmark.synthesis import recipe_names

    return [
        {"name": name, "summary": f"{command}: {summary}", "command": command}
        for command, known in (("train", recipes()), ("synth", recipe_names()))
        for name, summary in known.items()
    ]


_FAMILIES = {"pools": _pools, "datasets": _datasets, "formats": _formats, "recipes": _recipes}


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="|".join(_FAMILIES), help="What to list.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List what there is to choose from.

    Example: earmark list pools
    """
    if what not in _FAMILIES:
        raise unknown_name("list", what, _FAMILIES)
    entries = _FAMILIES[what]()
    if as_json:
        print(json_text({what: entries}))
        return
    for entry in entries:
        print(f"{entry['name']:16} {entry['summary']}")
