"""Shared by all figures: colours, sizes, markers of models, rows of classes, legends, and `save`."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earmark.errors import unknown_name
from earmark.files import make_folder, written_whole

COLUMN, PAGE = 3.5, 7.2  # inches: widths of one column and of both

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

_FIXED = {  # the paper's systems look the same in every figure
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
    chosen: dict[str, Look] = {}
    taken: set[tuple[str, str]] = set()
    for name in names:
        plain = name.lower().replace("-", "").replace("_", "")
        fixed = [look for system, look in _FIXED.items() if plain.startswith(system)][:1]
        unused = [c for c in COLOURS if c not in {colour for colour, _ in taken}] or list(COLOURS)
        colours = [fixed[0][0]] if fixed else unused
        choices = fixed + [(colour, marker) for marker in _MARKERS for colour in colours]
        look = next((choice for choice in choices if choice not in taken), choices[0])
        taken.add(look)
        chosen[name] = Look(COLOURS[look[0]], look[1], _SIZES.get(look[1], 5.4))
    return chosen


def readable(label: str, width: int = 20) -> str:
    """A class name for an axis: spaces for underscores, wrapped, with dollar signs escaped.

    >>> readable("children_playing"), readable("Fire engine, fire truck (siren)")
    ('children playing', 'Fire engine, fire\\ntruck (siren)')
    """
    return textwrap.fill(label.replace("_", " "), width).replace("$", r"\$")


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names, of models or classes, that are not known."""
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
    """A legend above the axes, in lines of similar length with at most `most` entries."""
    columns = math.ceil(entries / math.ceil(entries / most))
    figure.legend(loc="outside upper center", ncols=columns, handlelength=1.5, handletextpad=0.4, columnspacing=1.2)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path`.png and `path`.svg atomically; missing folders are created."""
    make_folder(path.parent)
    written = []
    for suffix in (".png", ".svg"):
        target = path.with_suffix(suffix)
        with mpl.rc_context(STYLE), written_whole(target) as draft:
            figure.savefig(draft, metadata={"Date": None} if suffix == ".svg" else None)
        written.append(target)
    return written
