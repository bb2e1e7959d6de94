"""The application: what every command shares."""

import atexit
import math
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from earmark import __version__
from earmark.cli.terminal import escaped_output
from earmark.errors import ArgumentError, EarmarkError
from earmark.interrupt import exit_code, raising_signals
from earmark.ownership import replacing_nothing


class _Commands(TyperGroup):
    """Prints a line when a command is interrupted; typer would only set an exit code."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _reported_interruption():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _reported_interruption():
            return super().invoke(ctx)


@contextmanager
def _reported_interruption() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        print_error("; ".join(filter(None, ("interrupted", str(stop)))))
        raise typer.Exit(exit_code()) from None


app = typer.Typer(
    name="earmark",
    cls=_Commands,
    help="Learn when sounds happen from labels that only say that they happen.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
(_UsageError,) = typer.BadParameter.__bases__  # typer does not export it
# packages whose warnings are about the user's files
_READERS = tuple(Path(__file__).parents[1] / package for package in ("formats", "datasets"))
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also replace files that earmark did not write or that were edited.")
]
Separator = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="Character between several labels in one cell, such as ';', or none if a cell has one label.",
    ),
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe; repeatable.")
]


def main() -> None:
    """Run the command line; expected errors are one line on standard error and exit code 2."""
    with escaped_output():
        code = _run()
    sys.exit(code)


def _run() -> int:
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not look like a crash
    code: Any = 2
    try:
        with raising_signals(), replacing_nothing():
            _refuse_empty(sys.argv[1:])
            code = app(sys.argv[1:] or ["--help"], prog_name="earmark", standalone_mode=False)
    except EarmarkError as error:
        print_error(str(error))
    except _UsageError as error:  # type: ignore[misc]
        hint = _device_hint(getattr(error, "option_name", "")) or _model_hint(error) or _number_hint(error)
        print_error(hint or error.format_message() + _quotes_hint(error.format_message()))
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted")
        code = exit_code()
    except BrokenPipeError:  # `earmark list pools | head`
        sys.stderr.close()
        code = 0
    except MemoryError as error:
        print_error(": ".join(filter(None, ("not enough memory", str(error)))))
    except OSError as error:  # a full disk, a folder that may not be written to
        print_error(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    return code if isinstance(code, int) else 0


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Reject an empty argument, such as a variable of the shell without a value; as a path it would be this folder."""
    for before, argument in pairwise(["earmark", *arguments]):
        option, equals, value = argument.partition("=")
        if not argument or (option.startswith("--") and equals and not value):
            where = option or before
            raise ArgumentError(f"expected a value after {where}, got an empty text")


def _device_hint(option: str) -> str:
    """The message for options by which other programs choose a GPU or the CPU; empty for others."""
    if option.lstrip("-").lower() not in ("accelerator", "cpu", "cuda", "device", "gpu", "gpus"):
        return ""
    return (
        f"No such option: {option}; a GPU is used if PyTorch finds one; to use the CPU instead, set "
        "CUDA_VISIBLE_DEVICES= in the environment; train --devices N uses several"
    )


def _model_hint(error: Any) -> str:
    """The message for `earmark detect RECORDING`; empty for other errors."""
    is_missing = getattr(getattr(error, "param", None), "name", "") == "audio" and error.ctx is not None
    if not is_missing or error.ctx.info_name != "detect":
        return ""
    return "detect: expected MODEL AUDIO, got one path; if there is no model yet: earmark train RECORDINGS --out MODEL"


def _number_hint(error: Any) -> str:
    """The message for an option that is a number and has another value; empty for other errors."""
    if not hasattr(error.__cause__, "errors"):  # of pydantic, with which typer parses values
        return ""
    mistake = error.__cause__.errors()[0]
    minimum = mistake.get("ctx", {}).get("ge")
    expected = {
        "float_parsing": "a number",
        "int_parsing": "a whole number",
        "greater_than_equal": f"at least {minimum}",
    }.get(mistake["type"])
    return f"{error.param.opts[0]}: expected {expected}, got {mistake['input']!r}" if expected else ""


def _quotes_hint(message: str) -> str:
    """Advice after a message about more arguments than expected, which often come from a path with spaces."""
    return "; put a path with spaces in quotes" if message.startswith("Got unexpected extra argument") else ""


def parse_seconds(option: str, text: str, names: Mapping[str, float | None]) -> float | None:
    """The value of an option that is a number of seconds, or a name for one."""
    if text in names:
        return names[text]
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ArgumentError(f"{option}: expected {', '.join(names)} or a number of seconds, got {text!r}")
    return seconds


def is_first_process() -> bool:
    """Whether this is the first process on its machine of those that train together: the one that prints."""
    return all(os.environ.get(name, "0") == "0" for name in ("LOCAL_RANK", "SLURM_LOCALID"))


def print_error(message: str) -> None:
    """Print one line on standard error."""
    if is_first_process():
        print("earmark: " + " ".join(message.split()), file=sys.stderr)


def print_note(note: str) -> None:
    """Print a note about the user's files."""
    print(f"Note: {note}", flush=True)


def _show_warning(
    default: Callable[..., None], message: Warning | str, category: type[Warning], filename: str, *rest: Any
) -> None:
    """Print warnings about labels and sound in one line, each once; others as Python does."""
    if issubclass(category, UserWarning) and Path(filename).parent in _READERS:
        _print_once(str(message))
    else:
        default(message, category, filename, *rest)


_print_once = cache(print_error)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"earmark {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn when sounds happen from labels that only say that they happen."""
