"""HTML pages that are a single file: templates, and figures and audio as parts of the page.

Style and script are in the page; images and audio are `data:` URLs, so that a page opens from disk without a network.
Templates escape everything that is not `Markup`: class and file names may contain anything. A content security policy
allows the scripts and the styles of the templates, by their hashes, and nothing from the network. Style attributes are
allowed too, since figures and cells have them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterable
from datetime import date
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy.typing as npt
from markupsafe import Markup

from earmark import audio
from earmark.events import describe
from earmark.files import make_folder, written_whole
from earmark.tables import Table, short_number
from earmark.text import compact, counted, duration_text, first_few, listed, percent, plural, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AUDIO_RATE = 32000  # Hz, one that MP3 supports
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def fill_page(template: str, **values: Any) -> str:
    """Render a page from a template of this package; version and date are added."""
    return _environment().get_template(template).render(version=version("earmark"), date=date.today(), **values)


def fill_text(template: str, **values: Any) -> str:
    """Render a template of plain text (*.txt.j2) as one line, without escapes."""
    return " ".join(_environment().get_template(template).render(**values).split())


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("earmark.reporting"),
        autoescape=lambda name: name is None or not name.endswith(".txt.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"policy": _policy, "describe": describe}
    environment.globals |= {"counted": counted, "first_few": first_few, "listed": listed, "plural": plural}
    for function in (compact, duration_text, percent, printable, short_number):
        environment.filters[function.__name__] = function
    return environment


def _policy(*, script: str, style: str) -> str:
    """The content security policy of a page with this script and these styles."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            "style-src 'unsafe-inline'",  # style attributes; and style elements in browsers without the next directive
            f"style-src-elem '{_hash(style)}'",
            "img-src data:",
            "media-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def write_page(path: Path, text: str) -> Path:
    """Write a page or a table, whole or not at all; missing folders are created."""
    make_folder(path.parent)
    with written_whole(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace")
    return path


def write_tables(
    path: Path, tables: Iterable[Table], *, title: str = "", text: str = "", latex_intervals: bool = True
) -> list[Path]:
    """Write tables one below the other to `path`.md and `path`.tex, below an optional title and text."""
    markdown = [f"# {title}", text] if title else []
    latex = [*([f"% {' '.join(title.split())}"] if title else []), "% needs: \\usepackage{booktabs}"]
    for table in tables:
        caption = f"## {table.caption}" if title else f"**{table.caption}**"
        markdown += [caption, table.to_markdown(intervals=True), table.note]
        latex += ["", f"% {table.caption}. {table.note}".rstrip(), table.to_latex(intervals=latex_intervals)]
    return [
        write_page(path.parent / f"{path.name}.md", "\n\n".join(filter(None, markdown)) + "\n"),
        write_page(path.parent / f"{path.name}.tex", "\n".join(latex) + "\n"),
    ]


def inline_svg(figure: Figure, description: str) -> Markup:
    """A figure as an `<svg>` element of flexible width, with a description for screen readers.

    Text stays text. Identifiers within the drawing are derived from the description, which must therefore be unique on
    the page.
    """
    from earmark import plots  # here, because a page without figures does not need Matplotlib

    file = io.StringIO()
    plots.draw(figure, file, format="svg", style={"svg.hashsalt": description}, metadata=_NO_METADATA)
    head, _, body = file.getvalue().partition("<svg")[2].partition(">")
    box = re.search(r'viewBox="([^"]*)"', head)
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", body)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.S)  # would apply to the whole page, which has the same rule
    body = re.sub(r"font-family: [^;\"]*", "font-family: inherit", body)
    opening = Markup('<svg viewBox="{}" role="img" aria-label="{}">').format(box[1] if box else "", description)
    return opening + Markup(re.sub(r"\s*\n\s*", "\n", body))


def inline_png(figure: Figure) -> Markup:
    """A figure as the `data:` URL of a PNG image."""
    from earmark import plots

    file = io.BytesIO()
    plots.draw(figure, file, format="png", dpi=130)
    return _data_url("image/png", file.getvalue())


def inline_audio(samples: npt.ArrayLike, rate: int) -> Markup:
    """Mono audio as the `data:` URL of an MP3 file, which every browser plays."""
    sound = audio.resample(samples, rate, _AUDIO_RATE)
    return _data_url("audio/mpeg", audio.encode(sound, _AUDIO_RATE, "mp3"))


def _data_url(kind: str, content: bytes) -> Markup:
    return Markup("data:{};base64,{}").format(kind, base64.b64encode(content).decode())
