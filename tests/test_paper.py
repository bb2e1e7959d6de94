"""docs/paper.md is true both ways: what it names exists, and what cites the paper is named in it."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ITEMS = [
    *(f"Eq. ({n})" for n in range(1, 14)),
    "Proposition 1",
    "section III.F",
    "section III.G",
    *("max", "mean", "soft-max", "auto-pool", "CAP", "RAP", "strong"),
    *(f"Fig. {n}" for n in range(1, 13)),
    *("Table I", "Table II", "Table III"),
    *(f"section II.{item}" for item in ("C: propagated labels", "D: attention", "D: log-sum-exp")),
    *(f"section III.{item}" for item in ("D: minimum", "E: minimum fraction", "E: minimum duration")),
    *(f"section IV.A: {item}" for item in ("URBAN-SED", "soundscapes", "DCASE 2017", "MedleyDB")),
    *("section IV.A: leave-one-out mixes", "section IV.A: splits"),
    *(f"section IV.B: {item}" for item in ("blocks", "full-height filters", "output layer", "any length")),
    *(f"section IV.C: {item}" for item in ("pitch shifts", "features", "frame rate", "optimiser", "sampling")),
    *(f"section IV.C: {item}" for item in ("10% rule", "schedule", "start of alpha", "Keras layer")),
    *(f"section IV.C: {item}" for item in ("dynamic predictions", "static rule")),
    *("section IV: static scores", "section IV: dynamic scores"),
    *("section V.A: reference", "section V.C: Friedman test", "section V.C: bootstrap"),
    *("section VI: choosing lambda", "section VI: other domains"),
]
PACKAGE = ROOT / "src" / "earmark"
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.stem not in ("__main__", "keras")  # the latter wants a backend; its rows are read from its text
]


def rows():
    found = {}
    for line in (ROOT / "docs" / "paper.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if line.startswith("|") and cells[0] not in ("paper", "---"):
            assert len(cells) == 5, f"{cells[0]}: expected a meaning, objects, tests, and what differs"
            assert cells[0] not in found, f"{cells[0]} has two rows"
            assert cells[4] == "no" or cells[4].endswith("."), f"{cells[0]}: what differs?"
            found[cells[0]] = (re.findall(r"`([^`]+)`", cells[2]), re.findall(r"`([^`]+)`", cells[3]))
    return found


def resolve(dotted):
    if dotted.startswith("earmark.keras."):
        assert re.search(rf"^class {dotted.split('.')[-1]}\b", (ROOT / "src/earmark/keras.py").read_text(), re.M)
        return None
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            thing = getattr(thing, name)
        return thing
    raise AssertionError(dotted)


def citations(text):
    """Equations, figures, tables and the proposition that a text cites; "Eqs. (11) to (13)" cites three."""
    for group in re.findall(r"Eqs?\. (\(\d+\)(?:(?:,| and| to) \(\d+\))*)", text):
        numbers = [int(n) for n in re.findall(r"\d+", group)]
        yield from (f"Eq. ({n})" for n in (range(numbers[0], numbers[-1] + 1) if " to " in group else numbers))
    yield from (f"Fig. {n}" for n in re.findall(r"Fig\. (\d+)", text))
    yield from (f"Table {n}" for n in re.findall(r"Table (III|II|I)\b", text))
    yield from ("Proposition 1" for _ in re.findall("Proposition 1", text))
    yield from (f"section {section}" for section in re.findall(r"\b((?:I{1,3}|IV|VI?)\.[A-G])\b", text))


def is_part(key, item):
    """Whether a row is about what is cited: "section IV.B: blocks" is about section IV.B."""
    return key == item or key.startswith(f"{item}:")


def own_objects(module):
    """Public classes and functions where they are defined, each with what it says: a class with its methods."""
    for name, thing in vars(module).items():
        if name.startswith("_"):
            continue
        if getattr(thing, "__module__", "") == module.__name__ and (inspect.isclass(thing) or inspect.isroutine(thing)):
            methods = filter(inspect.isfunction, vars(thing).values()) if inspect.isclass(thing) else ()
            yield thing, "\n".join(map(prose, (thing, *methods)))


def prose(thing):
    """What a docstring says, without its examples."""
    parts = doctest.DocTestParser().parse(inspect.cleandoc(thing.__doc__ or ""))
    return "".join(part for part in parts if isinstance(part, str))


def test_every_part_of_the_paper_has_a_row():
    assert sorted(rows()) == sorted(ITEMS)


@pytest.mark.parametrize("item", ITEMS)
def test_what_a_row_names_exists(item):
    objects, tests = rows()[item]
    assert objects
    assert tests
    for dotted in objects:
        resolve(dotted)
    for test in tests:
        file, name = test.split("::")
        assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(), re.M), test


@pytest.mark.parametrize("name", MODULES)
def test_what_cites_the_paper_is_in_its_row(name):
    table = rows()
    for thing, text in own_objects(importlib.import_module(name)):
        for item in citations(text):
            named = [resolve(d) for key, (objects, _) in table.items() if is_part(key, item) for d in objects]
            assert thing in named, f"{name}.{thing.__qualname__} cites {item}, whose row does not name it"


def test_a_row_for_an_equation_names_something_that_cites_it():
    for item, (objects, _) in rows().items():
        if objects and item.startswith(("Eq.", "Prop")):
            texts = [t.__doc__ or "" for t in map(resolve, objects) if t is not None]
            modules = [inspect.getmodule(t).__doc__ or "" for t in map(resolve, objects) if t is not None]
            assert item in {c for text in texts + modules for c in citations(text)}, item
