"""Declared data, checked in one place: settings, recipes, grids and the state files of a run.

    @record
    class Training:
        epochs: int = Field(default=150, ge=1, description="Maximum number of epochs.")

    parse(Training, {"epochs": "many"}, where="mine.toml")
    # DataError: mine.toml: epochs: expected a whole number of at least 1, got 'many'

A record is a frozen dataclass that pydantic checks. Types are strict: "3" is not a number, 1 is not true, 2.0 is not a
whole number; a whole number is a valid number, and a NumPy scalar counts as the Python one. Unknown keys, NaN and
infinity are rejected (`allow_inf_nan=True` in a field admits both). Every mistake raises an `EarmarkError` with one
line, never pydantic's `ValidationError`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache, wraps
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, dataclass_transform

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass, is_pydantic_dataclass
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import from_json

from earmark.errors import ArgumentError, DataError, EarmarkError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = [
    "Many",
    "Names",
    "Number",
    "allowed",
    "differences",
    "embedded_toml",
    "load_toml",
    "open_record",
    "parse",
    "parse_json",
    "read_json",
    "record",
]

_LARGEST = 1 << 28  # bytes of a JSON document; far above what earmark writes
_MOST_DIGITS = 20  # of a whole number in JSON, as 64 bits have; far larger ones cannot be converted to a float

T = TypeVar("T")

Many = Annotated[tuple[T, ...], Strict(False)]
"""`Many[float]`: a tuple, given as a tuple or, as files have it, a list."""

Number = float | None
"""A number in a file that earmark writes; None where it is undefined, since JSON has no NaN."""

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_OPEN = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_NAMES = {
    "integer": ("a whole number", "whole numbers"),
    "number": ("a number", "numbers"),
    "string": ("text", "texts"),
    "boolean": ("true or false", "true or false"),
    "null": ("none", "none"),
    "array": ("a list", "lists"),
    "object": ("a table", "tables"),
}
_BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or "" in names or len(set(names)) < len(names):
        raise ValueError(f"expected one or more names, each once and not empty, got {_short(list(names))}")
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"expected names of valid characters, got {_short(name)}") from None
    return names


Names = Annotated[tuple[str, ...], Strict(False), AfterValidator(_distinct)]
"""Names of classes: texts of valid characters, at least one, all different, none empty."""


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def record(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass whose fields are checked when it is created."""
    return _record(cls, _CONFIG)


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def open_record(cls: type[T]) -> type[T]:
    """A record of some keys of a table, which may have others."""
    return _record(cls, _OPEN)


def _record(cls: type[T], config: ConfigDict) -> type[T]:
    def core_schema(_: type[T], source: Any, handler: Callable[[Any], Any]) -> Any:
        schema = handler(source)
        inner = schema
        while inner["type"] != "dataclass":  # a definition or a validator around it
            inner = inner["schema"]
        inner["strict"] = False  # made from a table too; its fields stay strict
        return schema

    cls.__get_pydantic_core_schema__ = classmethod(core_schema)  # type: ignore[attr-defined]
    made: Any = dataclass(frozen=True, config=config)(cls)
    pydantic_init = made.__init__

    @wraps(pydantic_init)
    def init(self: Any, *args: Any, **options: Any) -> None:
        with _as_error(made, "", ArgumentError):
            pydantic_init(self, *map(_plain, args), **{name: _plain(value) for name, value in options.items()})

    made.__init__ = init
    return made  # type: ignore[no-any-return]


def parse(kind: type[T], value: object, *, where: str | Path = "", error: type[EarmarkError] = DataError) -> T:
    """Check plain data, as read from TOML or JSON, and convert them to a record or any type that pydantic knows.

    The message of an error begins with `where`: the file, and perhaps the line, that the value comes from.

    >>> parse(dict[str, int], {"clips": 3})
    {'clips': 3}
    >>> parse(dict[str, int], {"clips": "3"}, where="state.json")
    Traceback (most recent call last):
    earmark.errors.DataError: state.json: clips: expected a whole number, got '3'
    """
    with _as_error(kind, str(where), error):
        return cast(T, _adapter(kind).validate_python(value))  # type: ignore[arg-type]  # a type is hashable


def parse_json(kind: type[T], text: str | bytes, *, where: str | Path = "", error: type[EarmarkError] = DataError) -> T:
    """Check a JSON document and convert it, as `parse` does; depth and numbers are limited.

    >>> parse_json(dict[str, int], '{"clips": 3}')
    {'clips': 3}
    >>> parse_json(dict[str, int], "[" * 100_000, where="state.json")
    Traceback (most recent call last):
    earmark.errors.DataError: state.json: not valid JSON: recursion limit exceeded at line 1 column 202
    >>> parse_json(dict[str, int], f'{{"clips": {10**20}}}', where="state.json")
    Traceback (most recent call last):
    earmark.errors.DataError: state.json: not valid JSON: expected whole numbers of at most 20 digits
    """
    try:
        value = _from_json(text)
        _check_numbers(text, value)
    except (ValueError, RecursionError) as invalid:
        raise error(f"{where}: not valid JSON: {invalid}" if where else f"not valid JSON: {invalid}") from None
    return parse(kind, value, where=where, error=error)


def read_json(kind: type[T], path: Path, *, error: type[EarmarkError] = DataError) -> T:
    """Read a JSON file that holds one document, checked as by `parse`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise error(f"{path}: expected at most {_LARGEST >> 20} MiB of JSON, got {path.stat().st_size >> 20} MiB")
        text = path.read_bytes()
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}") from problem
    return parse_json(kind, text, where=path, error=error)


def _from_json(text: str | bytes) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as invalid:
        if "surrogate" not in str(invalid):
            raise
    return json.loads(text, parse_constant=_no_constant)  # such a character stands for a byte of a file name


def _check_numbers(text: str | bytes, value: Any) -> None:
    """Reject a document with a whole number of too many digits; most texts have no such run of digits at all."""
    digits = rf"[0-9]{{{_MOST_DIGITS + 1}}}"
    if not (re.search(digits, text) if isinstance(text, str) else re.search(digits.encode(), text)):
        return
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict | list):
            left += item.values() if isinstance(item, dict) else item
        elif isinstance(item, int) and abs(item) >= 10**_MOST_DIGITS:
            raise ValueError(f"expected whole numbers of at most {_MOST_DIGITS} digits")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    has_config = is_pydantic_dataclass(kind) or hasattr(kind, "__pydantic_config__")
    return TypeAdapter(kind) if has_config else TypeAdapter(kind, config=_CONFIG)


@cache
def _schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type; empty if it has none."""
    try:
        return _adapter(kind).json_schema()
    except PydanticInvalidForJsonSchema:
        return {}


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def _as_error(kind: Any, where: str, error: type[EarmarkError]) -> Generator[None]:
    try:
        yield
    except ValidationError as invalid:
        message = _message(kind, invalid)
        raise error(f"{where}: {message}" if where else message) from None


def _message(kind: Any, invalid: ValidationError) -> str:
    """One line about the first mistake; unknown keys come first, since a misspelt key is also a missing one."""
    mistakes = invalid.errors(include_url=False)
    mistake = next((m for m in mistakes if m["type"] in _UNKNOWN), mistakes[0])
    path, got = mistake["loc"], _short(mistake["input"])
    root = _schema(kind)
    if mistake["type"] in _UNKNOWN:
        known = _at(root, path[:-1]).get("properties", {})
        return _located(path[:-1], str(unknown_name("key", path[-1], known)))
    if path and path[-1] == "[key]":
        known = _at(root, path[:-2]).get("propertyNames", {}).get("enum", ["any text"])
        return _located(path[:-2], str(unknown_name("key", path[-2], known)))
    if mistake["type"] == "value_error":
        return _located(path, str(mistake["ctx"]["error"]))
    expected = _expected(_at(root, path), root)
    if not expected:
        return _located(path, f"{mistake['msg']}, got {got}")
    if mistake["type"] in _MISSING:
        return _located(path, f"expected {expected}, got nothing")
    if mistake["type"] == "finite_number":
        expected = expected.replace("a number", "a finite number")
    message = f"expected {expected}, got {got}"
    if mistake["type"] == "literal_error" and isinstance(mistake["input"], str):
        choices = [value for value in _at(root, path).get("enum", []) if isinstance(value, str)]
        message += "".join(f"; did you mean {close!r}?" for close in get_close_matches(mistake["input"], choices, n=1))
    return _located(path, message)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _located(path: tuple[int | str, ...], message: str) -> str:
    """A message with the path to the value in front; tags of unions, in angle brackets, are left out.

    >>> _located(("events", "time", 0), "expected a number")
    'events.time[0]: expected a number'
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step and not step.startswith("<"):
            text += f".{repr(step)[1:-1]}"
    return f"{text.lstrip('.')}: {message}" if text else message


def _at(root: Mapping[str, Any], path: tuple[int | str, ...]) -> dict[str, Any]:
    """The part of a JSON schema that describes the value at a path; empty if there is none."""
    node = _resolved(root, root)
    for step in path:
        options = [_resolved(option, root) for option in node.get("anyOf", [node])]
        node = next((option for option in options if option.get("type") != "null"), {})
        if "oneOf" in node:  # a union, whose tag is <NAME> of a record
            tagged = [_resolved(option, root) for option in node["oneOf"]]
            node = next((option for option in tagged if step == f"<{option.get('title')}>"), {})
            continue
        if isinstance(step, int):
            child = node.get("items") or node.get("additionalProperties")  # a list, or a table by number
        else:
            child = node.get("properties", {}).get(step) or node.get("additionalProperties")
        node = _resolved(child, root) if isinstance(child, dict) else {}
    return node


def _resolved(node: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return dict(root["$defs"][node["$ref"].rsplit("/", 1)[1]])
    return dict(node)


def _expected(node: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """A description of the values that a JSON schema allows.

    >>> _expected({"type": "integer", "minimum": 1}, {})
    'a whole number of at least 1'
    >>> _expected({"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "null"}]}, {})
    'a number above 0 and at most 1, or none'
    """
    if "oneOf" in node:  # records of several kinds
        return _expected(_resolved(node["oneOf"][0], root), root)
    if "anyOf" in node:
        return ", or ".join(_expected(_resolved(option, root), root) for option in node["anyOf"])
    if "enum" in node or "const" in node:
        values = ["none" if value is None else str(value) for value in node.get("enum", [node.get("const")])]
        return " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
    if "type" not in node:
        return ""
    text = _NAMES[node["type"]][0]
    text += _expected_length(node, _resolved(node.get("items", {}), root))
    if "examples" in node:
        text += f" such as {json.dumps(node['examples'][0])}"
    if "minimum" in node and "maximum" in node:
        return f"{text} from {node['minimum']} to {node['maximum']}"
    bounds = [phrase.format(node[key]) for key, phrase in _BOUNDS.items() if key in node]
    return " ".join([text, " and ".join(bounds)]).strip()


def _expected_length(node: Mapping[str, Any], items: Mapping[str, Any]) -> str:
    """What a JSON schema requires of the length of a text, list or table, and of the items of a list."""
    length = node.get("minItems", 0) or node.get("minLength", 0) or node.get("minProperties", 0)
    if items.get("type") in _NAMES:
        plural = _NAMES[items["type"]][1]
        if length and length == node.get("maxItems"):
            return f" of {length} {plural}"
        return f" of one or more {plural}" if length == 1 else f" of {plural}"
    if "maxLength" in node:
        return f" of {length} to {node['maxLength']} characters"
    return " that is not empty" if length else ""


def allowed(kind: type) -> dict[str, str]:
    """By field of a record, a description of its values."""
    root = _schema(kind)
    return {name: _expected(_at(root, (name,)), root) for name in _resolved(root, root).get("properties", {})}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Values that differ between two sets of settings, by dotted name: (before, now); None where there is none.

    >>> differences({"pool": {"name": "rap", "penalty": 0.001}, "seed": 1}, {"pool": {"name": "rap"}, "seed": 2})
    {'pool.penalty': (0.001, None), 'seed': (1, 2)}
    """
    changed: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changed |= {f"{key}.{name}": pair for name, pair in differences(old, new).items()}
        elif _listed(old) != _listed(new):
            changed[key] = (old, new)
    return changed


def _listed(value: object) -> object:
    """Tuples as lists, as files have them."""
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def embedded_toml(folder: str) -> dict[str, str]:
    """Texts of the TOML files in a folder of this package, by name.

    >>> sorted(embedded_toml("recipes"))
    ['best', 'head', 'paper', 'quick', 'small']
    """
    files = (file for file in resources.files("earmark").joinpath(folder).iterdir() if file.name.endswith(".toml"))
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in sorted(files, key=str)}


def load_toml(kind: str, source: str | Path, folder: str) -> dict[str, Any]:
    """The contents of a TOML file, or of one in a folder of this package; `kind` names it in messages: "recipe"."""
    if Path(source).suffix != ".toml":
        embedded = embedded_toml(folder)
        if str(source) not in embedded:
            raise unknown_name(kind, str(source), [*embedded, "or a file that ends in .toml"])
        return tomllib.loads(embedded[str(source)])
    try:
        return tomllib.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{source}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also of numbers with thousands of digits
        raise DataError(f"{source}: not TOML: {error}") from error
