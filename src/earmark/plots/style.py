"""Shared by all figures: colours, sizes, fonts, markers of models, rows of classes, legends, and `save`."""

import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from earmark.errors import unknown_name
from earmark.files import make_folder, written_whole
from earmark.text import printable

COLUMN, PAGE = 3.5, 7.2  # inches: widths of one column and of both
SCORE_RANGE = (-0.01, 1.01)  # of axes of F1: always whole, and dots at 0 and 1 are not cut

COLOURS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "grey": "#6B6B6B",
    "black": "#000000",
}
_FONTS = {  # for scripts that the default font lacks: those of Linux, macOS and Windows, used where they are installed
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR"),
    *("WenQuanYi Micro Hei", "Droid Sans Fallback", "IPAexGothic", "NanumGothic"),
    *("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil"),
    *("Noto Sans Thai", "Noto Sans Symbols", "Noto Sans Symbols 2", "Noto Emoji", "Symbola", "Unifont"),
    *("Hiragino Sans GB", "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS", "Geeza Pro"),
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI", "Segoe UI", "Segoe UI Emoji", "Segoe UI Symbol"),
}
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "figure.dpi": 160,
    "font.family": ["sans-serif", *sorted(_FONTS.intersection(fontManager.get_font_names()))],
    "font.size": 9,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",  # text stays text, for search and screen readers
    "svg.hashsalt": "earmark",  # reproducible files
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}

_PAPER = {  # colours and markers of the paper's systems, the same in every figure
    "max": ("vermilion", "^"),
    "mean": ("sky", "s"),
    "softmax": ("purple", "D"),
    "rap": ("green", "o"),
    "cap": ("orange", "p"),
    "auto": ("blue", "X"),
    "strong": ("black", "*"),
}
_MARKERS = "o<>vPdh8s^DX"
_SIZES = {"*": 7.5, "s": 4.4, "D": 4.2, "o": 4.8}  # in points, for equal visual weight


class Look(NamedTuple):
    """Colour and marker of a model."""

    colour: str
    marker: str
    size: float


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A colour and a marker for each model, distinct for up to twelve variants of one system.

    The paper's systems have the same in every figure; "RAP 1e-3" is a variant of RAP.

    >>> for name, look in looks(["auto", "RAP 1e-2", "RAP 1e-3", "other"]).items():
    ...     print(name, look.colour, look.marker)
    auto #0072B2 X
    RAP 1e-2 #009E73 o
    RAP 1e-3 #009E73 <
    other #E69F00 o
    """
    names = list(names)
    of_paper = {name: pair for name in names if (pair := _paper_pair(name)) is not None}
    chosen: dict[str, Look] = {}
    taken: set[tuple[str, str]] = set()
    for name in names:
        if name in of_paper:
            colour, marker = of_paper[name]
            pairs = [(colour, marker), *((colour, other) for other in _MARKERS)]
        else:
            used = {colour for colour, _ in (*of_paper.values(), *taken)}
            colours = [colour for colour in COLOURS if colour not in used] or list(COLOURS)
            pairs = [(colour, marker) for marker in _MARKERS for colour in colours]
        colour, marker = next((pair for pair in pairs if pair not in taken), pairs[0])
        taken.add((colour, marker))
        chosen[name] = Look(COLOURS[colour], marker, _SIZES.get(marker, 5.4))
    return chosen


def _paper_pair(name: str) -> tuple[str, str] | None:
    """Colour and marker of a system of the paper, or of its variant; None for others."""
    plain = name.lower().replace("-", "").replace("_", "")
    return next((pair for system, pair in _PAPER.items() if plain.startswith(system)), None)


def readable(label: str, width: int = 20) -> str:
    """A class name for an axis: spaces for underscores, wrapped, with dollar signs and control characters escaped.

    >>> readable("children_playing"), readable("Fire engine, fire truck (siren)")
    ('children playing', 'Fire engine, fire\\ntruck (siren)')
    """
    return textwrap.fill(printable(label.replace("_", " ")), width).replace("$", r"\$")


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Reject names, of models or classes, that are not known."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)


def name_rows(axes: Axes, classes: Sequence[str], width: int = 20, **text: Any) -> None:
    """Name the rows of axes that have one per class, the first at the bottom."""
    axes.set_yticks(range(len(classes)), [readable(label, width) for label in classes], **text)
    axes.set_ylim(-0.5, len(classes) - 0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def legend_above(figure: Figure, entries: int, most: int = 3) -> None:
    """A legend above the axes, in lines of similar length with at most `most` entries, or as many as fit."""
    labels = [label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]]
    widest = max((len(line) for label in labels for line in label.splitlines()), default=0)
    fitting = int(figure.get_figwidth() / (0.056 * widest + 0.35))  # inches, of a character and of a mark
    columns = math.ceil(entries / math.ceil(entries / max(1, min(most, fitting))))
    figure.legend(loc="outside upper center", ncols=columns, handlelength=1.5, handletextpad=0.4, columnspacing=1.2)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path`.png and `path`.svg atomically; `path` may end in either. Missing folders are created."""
    make_folder(path.parent)
    name = path.stem if path.suffix in (".png", ".svg") else path.name  # which may have other dots: "alpha_0.1"
    written = []
    for suffix in (".png", ".svg"):
        target = path.with_name(name + suffix)
        with written_whole(target) as draft:
            draw(figure, draft, format=suffix[1:], metadata={"Date": None} if suffix == ".svg" else None)
        written.append(target)
    return written


def draw(
    figure: Figure, file: Path | IO[Any], *, format: str, style: dict[Any, Any] | None = None, **options: Any
) -> None:
    """Draw a figure in the style of this package; `options` are those of `savefig`.

    In a PNG, characters that no installed font has are escaped. In an SVG they stay: its viewer may have a font.
    """
    with mpl.rc_context({**STYLE, **(style or {})}), warnings.catch_warnings(), ExitStack() as stack:
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        if format == "png":
            stack.enter_context(_escaped(figure))
        _fix_layout(figure)
        figure.savefig(file, format=format, **options)


def _fix_layout(figure: Figure) -> None:
    """Lay out once, to a millionth of the figure: the solver's last digits vary, and SVG identifiers hash them."""
    engine = figure.get_layout_engine()
    if not isinstance(engine, ConstrainedLayoutEngine) or not figure.axes:
        return
    engine.execute(figure)
    with mpl.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)  # "none" would leave a placeholder, for which `savefig` draws twice
    for axes in figure.axes:
        axes.set_position(np.round(axes.get_position(original=False).bounds, 6).tolist())


@contextmanager
def _escaped(figure: Figure) -> Iterator[None]:
    """Escape characters of a figure that cannot be drawn, within this block."""
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    formatters = [(axis, axis.get_major_formatter()) for axis in axes if _has_missing(axis)]
    texts = [(text, text.get_text()) for text in figure.findobj(Text) if isinstance(text, Text)]
    for axis, formatter in formatters:
        axis.set_major_formatter(FuncFormatter(lambda x, at, formatter=formatter: drawable(formatter(x, at))))
    for text, content in texts:
        text.set_text(drawable(content))
    try:
        yield
    finally:
        for axis, formatter in formatters:
            axis.set_major_formatter(formatter)
        for text, content in texts:
            text.set_text(content)


def _has_missing(axis: Axis) -> bool:
    labels = (label.get_text() for label in axis.get_majorticklabels())
    return any(drawable(label) != label for label in labels)


def drawable(text: str) -> str:
    """Text with escapes for characters that no installed font has.

    >>> drawable("owl \ue000")
    'owl \\\\ue000'
    """
    return "".join(char if _has_glyph(char) else char.encode("unicode_escape").decode() for char in text)


@cache
def _has_glyph(char: str) -> bool:
    paths = {findfont(FontProperties(family=[family])) for family in STYLE["font.family"]}
    return char.isspace() or any(get_font(path).get_char_index(ord(char)) for path in paths)
