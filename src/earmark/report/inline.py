"""Parts of a page that is one file: templates filled in, figures and sound written into it.

Pages open from disk, without a network: style and script are in the page, pictures and sound are `data:` addresses.
Templates escape everything that is not `Markup`, so that a class may be called anything.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

import jinja2
import numpy.typing as npt
from markupsafe import Markup

from earmark import audio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["fill_template", "inline_audio", "inline_png", "inline_svg"]

_AUDIO_RATE = 32000  # Hz: one that MP3 has
_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def fill_template(name: str, **values: Any) -> Markup:
    """The template of this room called `name`, filled in.

    >>> print(fill_template("figure.html", drawing="<b>", caption="Fig. 1", is_wide=False).split("</figure>")[0])
    <figure>
    <div class="drawing">&lt;b&gt;</div>
    <figcaption>Fig. 1</figcaption>
    """
    return Markup(_environment().get_template(name).render(**values))


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("earmark.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def inline_svg(figure: Figure, description: str) -> Markup:
    """A figure as an `<svg>` element that takes the width it is given; `description` is for those who cannot see it.

    Text stays text. What the drawing refers to within itself has names made from the description: two figures of a
    page must differ in it.
    """
    file = io.StringIO()
    _draw(figure, file, {"svg.hashsalt": description}, format="svg", metadata=_METADATA)
    head, _, body = file.getvalue().partition("<svg")[2].partition(">")
    box = re.search(r'viewBox="([^"]*)"', head)
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", body)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.S)  # would be the whole page's; the page has the same rule
    body = re.sub(r"font-family: [^;\"]*", "font-family: inherit", body)
    opening = Markup('<svg viewBox="{}" role="img" aria-label="{}">').format(box[1] if box else "", description)
    return opening + Markup(re.sub(r"\s*\n\s*", "\n", body))


def inline_png(figure: Figure, *, dpi: int = 130) -> Markup:
    """A figure as the address of a PNG picture."""
    file = io.BytesIO()
    _draw(figure, file, {}, format="png", dpi=dpi)
    return _address("image/png", file.getvalue())


def inline_audio(samples: npt.ArrayLike, rate: int) -> Markup:
    """Mono sound as the address of an MP3 file, which every browser plays."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sound.mp3"
        audio.write(path, audio.resample(samples, rate, _AUDIO_RATE), _AUDIO_RATE)
        return _address("audio/mpeg", path.read_bytes())


def _draw(figure: Figure, file: IO[Any], style: dict[Any, Any], **options: Any) -> None:
    import matplotlib as mpl  # here, because a page without figures needs neither

    from earmark.plots import STYLE

    with mpl.rc_context({**STYLE, **style}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a browser has more fonts
        figure.savefig(file, **options)


def _address(kind: str, content: bytes) -> Markup:
    return Markup("data:{};base64,{}").format(kind, base64.b64encode(content).decode())
