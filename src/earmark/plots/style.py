"""What all figures share: colours, sizes, how models look, and how a figure is written."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from earmark.files import make_folder, written_whole

__all__ = ["COLOURS", "COLUMN", "PAGE", "STYLE", "Look", "looks", "readable", "save"]

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
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "earmark",  # the same figure, the same bytes
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}

_OWN = {  # the paper's systems look the same in every figure
    "max": ("vermilion", "^"),
    "mean": ("sky", "s"),
    "softmax": ("purple", "D"),
    "rap": ("green", "o"),
    "cap": ("orange", "p"),
    "auto": ("blue", "X"),
    "strong": ("black", "*"),
}
_MARKERS = "o<>vPdh8s^DX"
_SIZES = {"*": 7.5, "s": 4.4, "D": 4.2, "o": 4.8}  # points, so that none looks larger than another


class Look(NamedTuple):
    """How a model is marked."""

    colour: str
    marker: str
    size: float


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A colour and a marker for each model, no two alike as long as there are no more than twelve of a kind.

    The paper's systems have their own, which they keep from figure to figure; "RAP 1e-3" is a RAP.

    >>> for name, look in looks(["auto", "RAP 1e-2", "RAP 1e-3", "my own"]).items():
    ...     print(name, look.colour, look.marker)
    auto #0072B2 X
    RAP 1e-2 #009E73 o
    RAP 1e-3 #009E73 <
    my own #E69F00 o
    """
    found: dict[str, Look] = {}
    taken: set[tuple[str, str]] = set()
    for name in names:
        plain = name.lower().replace("-", "").replace("_", "")
        own = [look for system, look in _OWN.items() if plain.startswith(system)][:1]
        fresh = [c for c in COLOURS if c not in {colour for colour, _ in taken}] or list(COLOURS)
        colours = [own[0][0]] if own else fresh
        choices = own + [(colour, marker) for marker in _MARKERS for colour in colours]
        look = next((choice for choice in choices if choice not in taken), choices[0])
        taken.add(look)
        found[name] = Look(COLOURS[look[0]], look[1], _SIZES.get(look[1], 5.4))
    return found


def readable(label: str, width: int = 20) -> str:
    """A class as it stands beside an axis: spaces for underscores, lines that are not too long, and no mathematics.

    >>> readable("children_playing"), readable("Fire engine, fire truck (siren)")
    ('children playing', 'Fire engine, fire\\ntruck (siren)')
    """
    return textwrap.fill(label.replace("_", " "), width).replace("$", r"\$")


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path`.png and `path`.svg, each whole or not at all; the folder is made if need be."""
    make_folder(path.parent)
    written = []
    for suffix in (".png", ".svg"):
        target = path.with_suffix(suffix)
        with mpl.rc_context(STYLE), written_whole(target) as draft:
            figure.savefig(draft, metadata={"Date": None} if suffix == ".svg" else None)
        written.append(target)
    return written
