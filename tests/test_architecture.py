"""The structure of the code: import order, declared names, sizes of files and functions, links between documents."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import earmark

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "earmark"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60  # from `def` to the end, without the docstring
MAX_PARAMETERS = 10  # without self and cls

# Functions above the limits. Remove a name when its function has been split; add none.
LONG_FUNCTIONS: set[str] = set()
FUNCTIONS_WITH_MANY_PARAMETERS = {
    # A scikit-learn estimator takes its hyperparameters in the constructor.
    "earmark.mil.BagClassifier.__init__",
    # GPU kernels take pointers, strides and sizes one by one.
    "earmark.pooling.kernels._backward_kernel",
    "earmark.pooling.kernels._forward_kernel",
    "earmark.pooling.kernels._merge_kernel",
}


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def packages():
    """Packages and modules in the order of docs/architecture.md: the rows of its table."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return re.findall(r"^\| \d+ \| `(?:earmark\.)?(\w+)` \|", text, re.M)


def imports(path):
    """Modules of earmark that a file imports, also inside functions, except under TYPE_CHECKING."""
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


def functions(node, prefix):
    """Functions and methods below a node, nested ones too, with their dotted names."""
    for child in ast.iter_child_nodes(node):
        name = f"{prefix}.{child.name}" if hasattr(child, "name") and hasattr(child, "body") else prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, child
        yield from functions(child, name)


def library_functions():
    """All functions but those of `cli`, whose commands declare every option as a parameter."""
    for path in MODULES:
        if name_of(path).split(".")[1:2] != ["cli"]:
            yield from functions(ast.parse(path.read_text()), name_of(path))


def line_count(function):
    """Lines from `def` to the end of the body, without the docstring."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def parameter_count(function):
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [argument.arg for argument in (given.vararg, given.kwarg) if argument]
    return len([name for name in names if name not in ("self", "cls")])


def test_the_table_lists_every_package():
    present = {name_of(path).split(".")[1] for path in MODULES if name_of(path) != "earmark"}
    assert sorted(packages()) == sorted(present)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_packages_import_only_packages_before_them(path):
    order = packages()
    module = name_of(path)
    if module == "earmark":
        assert list(imports(path)) == []
        return
    package = module.split(".")[1]
    for target in imports(path):
        if target == "earmark.__version__":
            assert package == "cli"
            continue
        other = target.split(".")[1]
        assert other == package or order.index(other) < order.index(package), f"{module} imports {target}"


@pytest.mark.parametrize("package", ["earmark.pooling", "earmark.evaluation"])
def test_modules_import_in_the_order_of_the_docstring_of_their_package(package):
    listed = importlib.import_module(package).__doc__.split("importing only those before it:")[1]
    order = re.findall(r"`(\w+)`", listed)
    for path in MODULES:
        module = name_of(path)
        if module.startswith(f"{package}."):
            for target in imports(path):
                if target.startswith(f"{package}."):
                    inner = target.split(".")[2]
                    assert order.index(inner) < order.index(module.split(".")[2]), f"{module} imports {target}"


@pytest.mark.parametrize("path", [p for p in MODULES if name_of(p) not in ("earmark", "earmark.keras")], ids=name_of)
def test_public_names_are_documented(path):
    """A package or top-level module declares what it offers in `__all__`; an inner module offers what it defines."""
    module = importlib.import_module(name_of(path))
    assert module.__doc__
    names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
    assert len(names) == len(set(names))
    for name in names:
        value = getattr(module, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            assert value.__doc__ or not value.__module__.startswith("earmark"), f"{name} has no docstring"


def test_files_are_short():
    sizes = {name_of(path): path.read_text().count("\n") for path in MODULES}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_functions_are_short():
    sizes = {name: line_count(function) for name, function in library_functions()}
    above = {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES}
    new = {name: size for name, size in above.items() if name not in LONG_FUNCTIONS}
    assert new == {}, f"above {MAX_FUNCTION_LINES} lines"
    assert sorted(LONG_FUNCTIONS - above.keys()) == [], "short enough now: remove from LONG_FUNCTIONS"


def test_functions_have_few_parameters():
    counts = {name: parameter_count(function) for name, function in library_functions()}
    above = {name: count for name, count in counts.items() if count > MAX_PARAMETERS}
    new = {name: count for name, count in above.items() if name not in FUNCTIONS_WITH_MANY_PARAMETERS}
    assert new == {}, f"above {MAX_PARAMETERS} parameters"
    obsolete = sorted(FUNCTIONS_WITH_MANY_PARAMETERS - above.keys())
    assert obsolete == [], "few enough now: remove from FUNCTIONS_WITH_MANY_PARAMETERS"


def test_version_is_in_the_changelog():
    assert f"## {earmark.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="the sdist lacks files that documents link to")
def test_links_between_documents_work():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_no_paths_of_a_development_machine():
    for path in [*MODULES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.py")]:
        assert not re.search(r"/(work|root|opt/wheels)/", path.read_text()), path
