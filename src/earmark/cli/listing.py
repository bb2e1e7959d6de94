"""`earmark list`"""

from typing import Annotated, Any

import typer

from earmark.cli.app import Json, app
from earmark.errors import unknown_name
from earmark.files import json_text
from earmark.registry import Entry


def _described(entry: Entry[Any], *attributes: str) -> dict[str, Any]:
    """Name and summary of a registered class, with some of its attributes."""
    return {"name": entry.name, "summary": entry.summary, **{name: getattr(entry.cls, name) for name in attributes}}


def _pools() -> list[dict[str, Any]]:
    from earmark.pooling import POOLS

    return [
        {
            **_described(entry),
            "class": entry.cls.__name__,
            "options": entry.options(),
            "weights": not entry.cls.why_no_weights,
            "stream": not entry.cls.why_no_stream,
        }
        for entry in POOLS
    ]


def _datasets() -> list[dict[str, Any]]:
    from earmark.datasets import DATASETS

    attributes = ("classes", "splits", "licence", "citation", "layout")
    return [{**_described(entry, *attributes), "options": entry.options()} for entry in DATASETS]


def _formats() -> list[dict[str, Any]]:
    from earmark.formats import FORMATS

    return [_described(entry, "suffix", "per_recording", "loses") for entry in FORMATS]


def _networks() -> list[dict[str, Any]]:
    from earmark.networks import NETWORKS

    return [{**_described(entry), "options": entry.options()} for entry in NETWORKS]


def _settings() -> list[dict[str, Any]]:
    from earmark.settings import descriptions

    return descriptions()


def _recipes() -> list[dict[str, Any]]:
    from earmark.settings import recipes
    from earmark.synthesis import recipe_names

    return [
        {"name": name, "summary": f"{command}: {summary}", "command": command}
        for command, known in (("train", recipes()), ("synth", recipe_names()))
        for name, summary in known.items()
    ]


def _encoders() -> list[dict[str, Any]]:
    from earmark.cli.encoders import rows

    return rows()


_FAMILIES = {
    "pools": _pools,
    "networks": _networks,
    "datasets": _datasets,
    "formats": _formats,
    "recipes": _recipes,
    "settings": _settings,
    "encoders": _encoders,
}


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="|".join(_FAMILIES), help="What to list.")],
    as_json: Json = False,
) -> None:
    """List operators, recipes, settings, data sets or other choices.

    Example: earmark list pools
    """
    if what not in _FAMILIES:
        raise unknown_name("list", what, _FAMILIES)
    entries = _FAMILIES[what]()
    if as_json:
        print(json_text({what: entries}))
        return
    width = max(16, *(len(entry["name"]) for entry in entries))
    for entry in entries:
        default = f" [{entry['default']}]" if "default" in entry else ""
        print(f"{entry['name']:{width}} {entry['summary']}{default}")
