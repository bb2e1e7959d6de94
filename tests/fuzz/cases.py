"""What a case is, and the registry of readers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random

MODULES = (
    "audio",
    "labels",
    "models",
    "runs",
    "evaluations",
    "stores",
    "jobs",
    "reviews",
    "settings",
    "live",
    "encoders",
    "known",
)


@dataclass(frozen=True)
class Case:
    """Files in the current folder, and how they are read.

    The call must return, or raise an EarmarkError. What holds for everything that is accepted, it asserts.
    """

    about: str  # what was done to which file
    call: Callable[[], object]
    writes: Sequence[str] = ()  # folders, relative to the current one, in which files may be written
    keeps: Sequence[str] = ()  # files in these that must stay as they are
    command: Sequence[str] | None = None  # arguments of a command line that reads the same files
    stdin: str | None = None  # file that the command reads as its standard input


READERS: dict[str, Callable[[Random], Case]] = {}


def reader(make: Callable[[Random], Case]) -> Callable[[Random], Case]:
    """Register a generator of cases under the name of its module."""
    READERS[make.__module__.rpartition(".")[2]] = make
    return make


def load_readers() -> None:
    """Fill the registry."""
    for name in MODULES:
        import_module(f"fuzz.{name}")


def make_case(name: str) -> Case:
    """The case of a name such as "audio:123"; its files are written into the current folder, which is empty."""
    kind, _, number = name.partition(":")
    if kind == "planted":  # by the tests of the harness
        return _planted(bytes.fromhex(number).decode())
    return READERS[kind](Random(name) if kind != "known" else _Numbered(int(number)))


class _Numbered(Random):
    """For `known`, whose inputs are counted, not drawn."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _planted(code: str) -> Case:
    from earmark.errors import DataError

    write("mine.txt", "mine")
    return Case(code, lambda: exec(code, {"DataError": DataError}))


def write(name: str, content: bytes | str) -> Path:
    """Write a file in the current folder."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    return path
