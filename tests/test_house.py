"""The house itself: rooms import only rooms before them, public names are declared, the documents tell the truth."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import earmark

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "earmark"
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def rooms():
    """Rooms in the order of docs/architecture.md: the rows of its table."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return re.findall(r"^\| \d+ \| `(?:earmark\.)?(\w+)` \|", text, re.M)


def imports(path):
    """Modules of earmark that a file imports, also inside functions; not those for type checkers alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "earmark")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "earmark":
                yield from (f"earmark.{alias.name}" for alias in node.names)
            elif (node.module or "").startswith("earmark."):
                yield node.module


def test_the_plan_lists_every_room():
    found = {name_of(path).split(".")[1] for path in MODULES if name_of(path) != "earmark"}
    assert sorted(rooms()) == sorted(found)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_rooms_import_only_rooms_before_them(path):
    order = rooms()
    here = name_of(path)
    if here == "earmark":
        assert list(imports(path)) == []
        return
    room = here.split(".")[1]
    for target in imports(path):
        if target == "earmark.__version__":
            assert room == "cli"
            continue
        other = target.split(".")[1]
        assert other == room or order.index(other) < order.index(room), f"{here} imports {target}"


def test_files_of_a_room_import_in_the_order_its_door_says():
    import earmark.pooling

    said = re.findall(r"`(\w+)`", earmark.pooling.__doc__.split("importing only those before it:")[1])
    for path in MODULES:
        here = name_of(path)
        if here.startswith("earmark.pooling."):
            for target in imports(path):
                inner = target.split(".")[2:]
                if target == "earmark.pooling":
                    continue
                if target.startswith("earmark.pooling."):
                    assert said.index(inner[0]) < said.index(here.split(".")[2]), f"{here} imports {target}"


@pytest.mark.parametrize("path", [p for p in MODULES if name_of(p) not in ("earmark", "earmark.keras")], ids=name_of)
def test_public_names_are_declared_and_exist(path):
    module = importlib.import_module(name_of(path))
    assert module.__doc__
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for name in module.__all__:
        assert hasattr(module, name), name
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and getattr(thing, "__module__", "").startswith("earmark"):
            assert thing.__doc__, f"{name} says nothing"


def test_version_is_in_the_changelog():
    assert f"## {earmark.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_is_a_smell():
    for path in MODULES:
        assert path.read_text().count("\n") <= 500, path


def test_links_between_documents_work():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_no_typescript_of_the_workshop():
    """Nothing in the repository names a place that exists only where it was written."""
    for path in [*MODULES, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.py")]:
        assert not re.search(r"/(work|root|opt/wheels)/", path.read_text()), path
