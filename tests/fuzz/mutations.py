"""Damage to bytes, to JSON and to lines of text."""

import copy
import json
from random import Random
from typing import Any

_DEEP, _LONG = "@deep@", "@digits@"  # stand for what json.dumps cannot write
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 2**31, 2**40, 2**63, 2**64, -(2**63), 10**400),
    *(0.5, -0.5, 1e-320, 1e300, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
    *("", " ", "x", "0", "nan", "x" * 5000, "\ud800", "\x1b[31mred", "a\nb", "\x00", "../../up", "/etc/passwd", "=1+1"),
    *([], {}, [[]], [None], {"": None}, [0] * 5000, _DEEP, _LONG),
)


def damaged(rng: Random, content: bytes, *, most: int = 3) -> tuple[bytes, str]:
    """Bytes after one to `most` changes, and what they were."""
    notes = []
    for _ in range(rng.randint(1, most)):
        change = rng.choice(_CHANGES)
        content = change(rng, content)
        notes.append(change.__name__.strip("_").replace("_", " "))
    return content, ", ".join(notes)


def _flip(rng: Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if data else 0):
        data[_place(rng, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _truncate(rng: Random, content: bytes) -> bytes:
    return content[: _place(rng, len(content))] if content else content


def _remove_block(rng: Random, content: bytes) -> bytes:
    first, last = _span(rng, content)
    return content[:first] + content[last:]


def _zero_block(rng: Random, content: bytes) -> bytes:
    first, last = _span(rng, content)
    return content[:first] + bytes(last - first) + content[last:]


def _repeat_block(rng: Random, content: bytes) -> bytes:
    first, last = _span(rng, content)
    return content[:last] + content[first:last] * rng.choice((1, 2, 50)) + content[last:]


def _swap_blocks(rng: Random, content: bytes) -> bytes:
    a, b, c, d = sorted(_place(rng, len(content) + 1) for _ in range(4))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _insert_bytes(rng: Random, content: bytes) -> bytes:
    at = _place(rng, len(content) + 1)
    return content[:at] + rng.randbytes(rng.choice((1, 2, 7, 64, 5000))) + content[at:]


def _extreme_number(rng: Random, content: bytes) -> bytes:
    """A field of one to eight bytes at an extreme."""
    size = rng.choice((1, 2, 4, 8))
    number = rng.choice((0, 1, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1))
    at = _place(rng, len(content) + 1)
    return content[:at] + number.to_bytes(size, rng.choice(("little", "big"))) + content[at + size :]


def _empty(rng: Random, content: bytes) -> bytes:
    return b""


def _twice(rng: Random, content: bytes) -> bytes:
    return content + content


_CHANGES = (
    *(_flip, _flip, _truncate, _remove_block, _zero_block, _repeat_block, _swap_blocks, _insert_bytes),
    *(_extreme_number, _extreme_number, _extreme_number, _empty, _twice),
)


def _place(rng: Random, size: int) -> int:
    """A place in a file; half of them in the first 128 bytes, where headers are."""
    return rng.randrange(min(size, rng.choice((128, size)))) if size else 0


def _span(rng: Random, content: bytes) -> tuple[int, int]:
    first = _place(rng, len(content) + 1)
    return first, min(len(content), first + rng.choice((1, 4, 64, 1024)))


def hostile(rng: Random) -> Any:
    """A value that a file should not hold where it is put."""
    return copy.deepcopy(rng.choice(_VALUES))


def damaged_json(rng: Random, value: Any, *, most: int = 2) -> tuple[str, str]:
    """The text of a JSON value in which some parts were replaced, removed or added, and which."""
    notes, value = [], copy.deepcopy(value)
    for _ in range(rng.randint(1, most)):
        value, note = _changed_part(rng, value)
        notes.append(note)
    return json_text(value), ", ".join(notes)


def json_text(value: Any) -> str:
    """JSON, also with NaN, lone surrogates, and the stand-ins for depth and length."""
    text = json.dumps(value)
    return text.replace(f'"{_DEEP}"', "[" * 100_000 + "]" * 100_000).replace(f'"{_LONG}"', "9" * 5000)


def _changed_part(rng: Random, value: Any) -> tuple[Any, str]:
    path: list[Any] = []
    holder, part = None, value
    while isinstance(part, dict | list) and part and (rng.random() < 0.8 or not path):
        key = rng.choice(sorted(part, key=str)) if isinstance(part, dict) else rng.randrange(len(part))
        holder, part = part, part[key]
        path.append(key)
    where = ".".join(map(str, path))
    if holder is None:
        return hostile(rng), "all of it"
    action = rng.random()
    if action < 0.15:
        del holder[path[-1]]
        return value, f"without {where}"
    new = hostile(rng)
    if action < 0.25 and isinstance(part, dict | list):
        part.update({"surprise": new}) if isinstance(part, dict) else part.append(new)
        return value, f"{where} with {new!r:.40}"
    holder[path[-1]] = new
    return value, f"{where} = {new!r:.40}"


_TEXTS = (
    *("nan", "inf", "-1", "0", "1e308", "1" * 400, "true", '""', '"x"', "[]", "{}", "[[1]]", '["const"]', "1979-05-27"),
    *("-0.0", '"\\u001b[31m"', '"../.."', '"a\\nb"', "[" * 5000, "0x", "'", "{a = 1}", "2", "99999999", "1e-9"),
)


def damaged_toml(rng: Random, text: str) -> tuple[bytes, str]:
    """A TOML file with other values, missing, repeated or foreign lines, or damaged bytes."""
    if rng.random() < 0.2:
        return damaged(rng, text.encode())
    lines = text.splitlines()
    at = rng.choice([i for i, line in enumerate(lines) if "=" in line or line.startswith("[")])
    key, equals, _ = lines[at].partition("=")
    action = rng.random()
    if action < 0.7 and equals:
        value = rng.choice(_TEXTS)
        lines[at], note = f"{key}= {value}", f"{key.strip()} = {value:.40}"
    elif action < 0.8:
        note = f"without {lines.pop(at).strip()}"
    elif action < 0.9:
        lines.insert(at, lines[at])
        note = f"{lines[at].strip()} twice"
    else:
        lines.insert(at + 1, f"surprise = {rng.choice(_TEXTS)}")
        note = "an unknown key"
    return "\n".join(lines).encode(), note
