"""Write the JSON schemas of files that other programs read to docs/reference/schemas.

    python tools/write_schemas.py

They follow from the records with which earmark checks these files. A test fails if they are out of date.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from earmark.encoders.onnx_file import _FileCard as FileCard
from earmark.evaluation.saved import _File as ScoresFile
from earmark.formats.json_lines import _Line as LabelLine
from earmark.reviewing.journal import KINDS
from earmark.reviewing.journal import _Head as JournalHead
from earmark.training.memory import LogLine

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "schemas"
RECORDS: dict[str, tuple[str, type]] = {
    "scores": ("scores.json of a run, and the output of evaluate --json", ScoresFile),
    "log-line": ("A line of log.jsonl: the numbers of an epoch", LogLine),
    "label-line": ("A line of labels in the format json", LabelLine),
    "encoder-card": ("The card of an ONNX encoder, a file in TOML", FileCard),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Schemas by name of their file, without suffix."""
    made = {name: _schema(title, kind) for name, (title, kind) in RECORDS.items()}
    return made | {"verdict-line": _journal()}


def _schema(title: str, kind: type) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}


def _journal() -> dict[str, Any]:
    """A line of the journal has the fields of every action, and those of its own kind."""
    title = "A line of verdicts.jsonl: an action of a reviewer"
    head = _schema(title, JournalHead)
    kinds: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for name, kind in KINDS.items():
        own = TypeAdapter(kind).json_schema()
        definitions |= own.pop("$defs", {})
        properties = {**head["properties"], "action": {"const": name}, **own["properties"]}
        kinds.append({**own, "properties": properties, "required": [*head["required"], *own.get("required", [])]})
    return {"$schema": head["$schema"], "title": title, "oneOf": kinds, "$defs": definitions}


def text(schema: dict[str, Any]) -> str:
    """As it is stored."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / f"{name}.json").write_text(text(schema), encoding="utf-8")
