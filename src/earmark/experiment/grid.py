"""What is to be run: a grid of cells, read from a TOML file.

    title = "My comparison"
    data = "recordings"          # as for `earmark train`; a data set's name alone waits for its folder. Or a table of
                                 # several, by names of your own: { city = "recordings/city", forest = "..." }
    recipe = "paper"
    seeds = 3                    # 0, 1, 2; or a list
    folds = 0                    # of a data set that has several splits, as MedleyDB; 0 if it has one
    networks = ["cnn"]
    settings = { steps = 256 }   # changes to the recipe for all systems; may be left out

    [systems]                    # a name, and what it changes in the recipe
    max = { pool = "max" }
    "RAP 1e-3" = { pool = "rap", penalty = 1e-3 }

    [judgements.clean]           # how each is judged; may be left out
    reference = "data"           # or "authors": the contaminated one behind the paper's Table I
    align = "middle"             # or "authors"
    segment = 1.0                # seconds
    split = "test"               # or "validate", to choose by: test data are for the end

    [published]                  # somebody's numbers to stand beside; may be left out
    table = "Table I"
    judgement = "clean"          # the one to compare with
    static_judgement = "clean"   # the one for static scores; may be left out if it is the same
    static_rule = "pooled"       # or "maximum"
    [published.scores]           # static F1, P, R (macro), dynamic F1, P, R, error rate (micro)
    max = [0.742, 0.774, 0.717, 0.463, 0.774, 0.330, 0.695]

Every combination of data set, system, network, fold and seed is a cell: one run, in one folder.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.inference.scores import ALIGNMENTS
from earmark.settings import Settings, load_recipe

__all__ = ["REFERENCES", "Cell", "Grid", "Judging", "Published", "grids", "load_grid"]

SPLITS = ("test", "validate")
REFERENCES = {
    "data": "the data set's own labels",
    "authors": "the labels of URBAN-SED as the paper's authors collected them, with events of other clips mixed in",
}


@dataclass(frozen=True)
class Judging:
    """How a run is judged."""

    reference: str = "data"
    align: str = "middle"
    segment: float = 1.0
    split: str = "test"
    """Which clips: "test", or "validate": those by which training decided."""

    def __post_init__(self) -> None:
        if self.reference not in REFERENCES:
            raise unknown_name("reference", self.reference, REFERENCES)
        if self.align not in ALIGNMENTS:
            raise unknown_name("align", self.align, ALIGNMENTS)
        if not self.segment > 0:
            raise ArgumentError(f"segment must be a positive number of seconds, got {self.segment}")
        if self.split not in SPLITS:
            raise unknown_name("split", self.split, SPLITS)


@dataclass(frozen=True)
class Published:
    """Numbers of a paper, to stand beside ours."""

    table: str
    judgement: str
    static_judgement: str
    static_rule: str
    scores: Mapping[str, Sequence[float]]
    """By system: static F1, precision, recall (macro), dynamic F1, precision, recall, error rate (micro)."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    system: str
    network: str
    fold: int | None
    seed: int
    settings: Settings
    data: str = ""
    """Where its data are, as `earmark train` would be told."""
    dataset: str = ""
    """What the grid calls them; nothing where there is one data set."""

    @property
    def is_weak(self) -> bool:
        """Whether it learns without knowing when; others show what could be reached."""
        return self.settings.training.supervision == "weak"

    @property
    def name(self) -> str:
        """Its folder."""
        parts = [
            self.dataset,
            self.system,
            self.network,
            None if self.fold is None else f"fold{self.fold}",
            f"seed{self.seed}",
        ]
        return "-".join(re.sub(r"[^\w.]+", "-", part) for part in parts if part)


@dataclass(frozen=True)
class Grid:
    """What is to be run.

    Examples
    --------
    >>> grid = load_grid("urban-sed")
    >>> list(grid.systems)
    ['max', 'mean', 'soft-max', 'RAP 1e-2', 'RAP 1e-3', 'RAP 1e-4', 'CAP', 'auto', 'strong']
    >>> len(grid.cells), grid.cells[0].name
    (27, 'max-cnn-seed0')
    """

    title: str
    data: Mapping[str, str]
    """Where the data are, by name; one data set alone has the name ""."""
    systems: Mapping[str, Mapping[str, Any]]
    recipe: str = "paper"
    seeds: Sequence[int] = (0,)
    folds: int = 0
    networks: Sequence[str] = ("cnn",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What all systems change in the recipe."""
    judgements: Mapping[str, Judging] = field(default_factory=lambda: {"clean": Judging()})
    published: Published | None = None
    notes: Sequence[str] = ()
    """What differs from the paper, a line each."""

    @property
    def cells(self) -> list[Cell]:
        """All runs: first every system with the first seed, so that a grid cut short compares like with like."""
        base = load_recipe(self.recipe)
        return [
            Cell(
                system,
                network,
                fold,
                seed,
                _settings(base, system, {**self.settings, **changes}, network, seed),
                source,
                dataset,
            )
            for seed in self.seeds
            for dataset, source in self.data.items()
            for fold in (range(self.folds) if self.folds else [None])
            for network in self.networks
            for system, changes in self.systems.items()
        ]

    @property
    def source(self) -> str:
        """Where the data are, for a grid of one data set."""
        if len(self.data) > 1:
            raise ArgumentError(f"this grid has {len(self.data)} data sets: {', '.join(self.data)}")
        return next(iter(self.data.values()))

    def on(self, dataset: str) -> Grid:
        """The part of the grid on one of its data sets."""
        return replace(self, data={dataset: self.data[dataset]})

    def selected(
        self,
        *,
        data: str | None = None,
        systems: Sequence[str] | None = None,
        seeds: int | None = None,
        folds: int | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> Grid:
        """A part of the grid, on other data, or with knobs of all systems set otherwise.

        Systems are called by name; the name of a pool is all systems that learn through it from weak labels.

        >>> list(load_grid("urban-sed").selected(systems=["max", "rap"]).systems)
        ['max', 'RAP 1e-2', 'RAP 1e-3', 'RAP 1e-4']
        """
        chosen = dict(self.systems)
        if systems is not None:
            chosen = {name: chosen[name] for asked in systems for name in self._called(asked)}
        if changes:
            chosen = {name: {**own, **changes} for name, own in chosen.items()}
        if folds is not None and not 1 <= folds <= self.folds:
            raise ArgumentError(f"folds must be from 1 to {self.folds}, got {folds}" if self.folds else "no folds here")
        return replace(
            self,
            data=self.data if data is None else self._moved(data),
            systems=chosen,
            seeds=tuple(range(seeds)) if seeds is not None else self.seeds,
            folds=self.folds if folds is None else folds,
        )

    def _moved(self, source: str) -> dict[str, str]:
        if len(self.data) > 1:
            raise ArgumentError(f"this grid names its {len(self.data)} data sets itself: {', '.join(self.data)}")
        return dict.fromkeys(self.data, source)

    def _called(self, asked: str) -> list[str]:
        if asked in self.systems:
            return [asked]
        pools: dict[str, list[str]] = {}
        for name, own in self.systems.items():
            if own.get("supervision", "weak") == "weak" and "pool" in own:
                pools.setdefault(str(own["pool"]), []).append(name)
        if asked not in pools:
            raise unknown_name("system", asked, dict.fromkeys([*self.systems, *pools]))
        return pools[asked]


def grids() -> dict[str, str]:
    """The paper's grids, by name, with their titles."""
    return {name: load_grid(name).title for name in sorted(_embedded())}


def load_grid(grid: str | Path) -> Grid:
    """A grid of the paper by name, or from a TOML file."""
    path = Path(grid)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from error
    elif str(grid) in _embedded():
        text = _embedded()[str(grid)]
    else:
        raise unknown_name("grid", str(grid), [*_embedded(), "or a file that ends in .toml"])
    try:
        return _grid(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not TOML: {error}") from error
    except (ArgumentError, DataError) as error:
        raise ArgumentError(f"{path}: {error}") from error


def _embedded() -> dict[str, str]:
    folder = resources.files("earmark") / "experiment" / "grids"
    return {Path(e.name).stem: e.read_text(encoding="utf-8") for e in folder.iterdir() if e.name.endswith(".toml")}


def _grid(said: dict[str, Any]) -> Grid:
    if isinstance(said.get("data"), str) and said["data"]:
        said["data"] = {"": said["data"]}
    kinds = {"title": str, "data": dict, "recipe": str, "folds": int, "networks": list, "systems": dict, "notes": list}
    kinds |= {"judgements": dict, "published": dict, "settings": dict}
    for key, value in said.items():
        if key != "seeds" and key not in kinds:
            raise unknown_name("key", key, [*kinds, "seeds"])
        if key != "seeds" and type(value) is not kinds[key]:
            raise ArgumentError(f"{key} must be a {kinds[key].__name__}, got {value!r}")
    for key in ("title", "data", "systems"):
        if not said.get(key):
            raise ArgumentError(f"{key} is missing")
    for name, source in said["data"].items():
        if not (isinstance(source, str) and source):
            raise ArgumentError(f"data {name!r} must be a folder or NAME:PATH, got {source!r}")
    for name, changes in said["systems"].items():
        if not isinstance(changes, dict):
            raise ArgumentError(f"system {name!r} must be a table of changes, got {changes!r}")
    judgements = {name: _judging(name, own) for name, own in said.pop("judgements", {"clean": {}}).items()}
    published = _published(said.pop("published"), judgements) if "published" in said else None
    seeds = _seeds(said.pop("seeds", 1))
    grid = Grid(**said, seeds=seeds, judgements=judgements, published=published)
    names = [cell.name for cell in grid.cells]  # builds all settings, so that mistakes show now
    if len(set(names)) < len(names):
        raise ArgumentError("two cells would have the same folder; give their systems names that differ more")
    return grid


def _judging(name: str, own: Any) -> Judging:
    known = ("reference", "align", "segment", "split")
    if not isinstance(own, dict):
        raise ArgumentError(f"judgement {name!r} must be a table, got {own!r}")
    for key in own:
        if key not in known:
            raise unknown_name(f"judgement {name!r}: key", key, known)
    return Judging(**own)


def _published(own: dict[str, Any], judgements: Mapping[str, Judging]) -> Published:
    if sorted(own.keys() - {"static_judgement"}) != ["judgement", "scores", "static_rule", "table"]:
        raise ArgumentError(f"published needs judgement, scores, static_rule and table, got {', '.join(sorted(own))}")
    own.setdefault("static_judgement", own["judgement"])
    for key in ("judgement", "static_judgement"):
        if own[key] not in judgements:
            raise unknown_name(f"published.{key}", str(own[key]), judgements)
    if own["static_rule"] not in ("maximum", "pooled"):
        raise unknown_name("published.static_rule", str(own["static_rule"]), ("maximum", "pooled"))
    for system, row in own["scores"].items():
        if not (isinstance(row, list) and len(row) == 7 and all(type(value) in (int, float) for value in row)):
            raise ArgumentError(f"published.scores: seven numbers are needed for {system!r}, got {row!r}")
    return Published(**own)


def _seeds(said: Any) -> tuple[int, ...]:
    if type(said) is int and said > 0:
        return tuple(range(said))
    if isinstance(said, list) and said and all(type(s) is int and s >= 0 for s in said) and len(set(said)) == len(said):
        return tuple(said)
    raise ArgumentError(f"seeds must be a number of seeds or a list of different ones, got {said!r}")


def _settings(base: Settings, system: str, changes: Mapping[str, Any], network: str, seed: int) -> Settings:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in changes.items()}
    try:
        return base.changed({"network": network, **texts, "seed": str(seed)})
    except ArgumentError as error:
        raise ArgumentError(f"system {system!r}: {error}") from error
