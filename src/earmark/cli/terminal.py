"""Safe output: control characters in names and messages are shown as escapes, and never reach a terminal.

    with escaped_output():
        print("a\\x1b[2Jb")          # prints a\\x1b[2Jb

`print`, warnings and logging are covered by wrapping standard output and standard error. Rich writes escape sequences
of its own, so `make_console` writes to the streams behind the wrappers and escapes the text that it renders. Output to
pipes is escaped like that to terminals.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.file_proxy import FileProxy
from rich.segment import Segment

from earmark.text import visible


class _Escaped:
    """A text stream that escapes what is written to it."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream  # the name that rich uses for the stream behind a proxy

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Escape control characters in everything that is printed inside the block."""
    streams: tuple[Any, Any] = sys.stdout, sys.stderr
    for stream in streams:
        with suppress(AttributeError, ValueError):  # not every stream has an encoding
            stream.reconfigure(errors="backslashreplace")  # on Windows, pipes have one that lacks most characters
    sys.stdout, sys.stderr = (_Escaped(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


class _Console(Console):
    """Escapes control characters."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(visible(object) if isinstance(object, str) else object for object in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def make_console(*, stderr: bool = False, quiet: bool = False, **options: Any) -> Console:
    """A console without markup, since names of classes may contain brackets; `options` are those of rich."""
    stream: Any = sys.stderr if stderr else sys.stdout
    while isinstance(stream, _Escaped | FileProxy):
        stream = stream.rich_proxied_file
    options = {"file": stream, "quiet": quiet, **options}
    return _Console(**options, highlight=False, markup=False, soft_wrap=True)
