"""Grids: every combination of data set, system, network, fold and seed, read from a TOML file.

    title = "My comparison"
    data = "recordings"          # as for `earmark train`; the name of a data set alone waits for its folder. Or a table
                                 # of several, by names of your choice: { city = "recordings/city", forest = "..." }
    recipe = "paper"
    seeds = 3                    # 0, 1, 2; or a list
    folds = 0                    # for a data set with several splits, such as MedleyDB; 0 if it has one
    networks = ["cnn"]
    settings = { steps = 256 }   # changes to the recipe for all systems; optional
    example = "max"              # the system whose output for one clip is drawn; by default the best

    [systems]                    # a name, and its changes to the recipe
    max = { pool = "max" }
    "RAP 1e-3" = { pool = "rap", penalty = 1e-3 }

    [evaluations.clean]           # one way to evaluate every run; optional
    reference = "data"           # or "authors": the contaminated one behind the paper's Table I
    align = "middle"             # or "authors"
    segment = 1.0                # seconds
    split = "test"               # or "validate", to select systems by: test data are for the final result
    with_psds = false            # true: PSDS too
    round = 0                    # the network of this round of self-training; by default the last

    [published]                  # published numbers to compare with; optional
    table = "Table I"
    evaluation = "clean"          # the one to compare with
    static_evaluation = "clean"   # the one for static scores; by default the same
    static_rule = "pooled"       # or "maximum"
    [published.scores]           # static F1, P, R (macro), dynamic F1, P, R, error rate (micro)
    max = [0.742, 0.774, 0.717, 0.463, 0.774, 0.330, 0.695]
    [published.class_f1]         # dynamic F1 by class, where known; optional
    max = { siren = 0.524 }

Each combination is a cell: one run, in one folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.schema import Many, load_toml, parse, record
from earmark.settings import WITHOUT_TIMES, Settings, load_recipe
from earmark.text import as_names

REFERENCES = {
    "data": "the data set's own labels",
    "authors": "the labels of URBAN-SED as the paper's authors collected them, with events of other clips mixed in",
}
_FOLDER = "experiment/grids"
_MOST = 1000  # seeds or folds of a grid


@record
class EvaluationSpec:
    """One way to evaluate a run: a table `evaluations.NAME` of a grid's file."""

    reference: Literal["data", "authors"] = Field(default="data", description="A key of `REFERENCES`.")
    align: Literal["middle", "authors"] = Field(default="middle", description="Where in time frames are placed.")
    segment: float = Field(default=1.0, gt=0, description="Length of a segment, in seconds.")
    split: Literal["test", "validate"] = Field(default="test", description="The clips to score.")
    with_psds: bool = Field(default=False, description="Whether to compute PSDS.")
    round: int | None = Field(
        default=None, ge=0, description="The round of self-training whose network is scored; by default the last."
    )

    def network_of(self, folder: Path) -> Path:
        """The run folder to score, within that of a cell; a cell with fewer rounds has its last one scored."""
        earlier = folder / f"round-{self.round}"
        return earlier if self.round is not None and earlier.is_dir() else folder


Scores = Annotated[Many[float], Field(min_length=7, max_length=7)]


@record
class Published:
    """Numbers from a paper, for comparison."""

    table: str = Field(description="What the paper calls the table.")
    evaluation: str = Field(description="The evaluation to compare dynamic scores with.")
    static_rule: Literal["maximum", "pooled"] = Field(description="The rule behind the paper's static scores.")
    scores: dict[str, Scores] = Field(description="By system: three static scores, four dynamic ones, as above.")
    static_evaluation: str = Field(default="", description="The evaluation for static scores; empty is the same one.")
    class_f1: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="Dynamic F1 by system and class, where known."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "static_evaluation", self.static_evaluation or self.evaluation)


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    system: str
    network: str
    fold: int | None
    seed: int
    settings: Settings
    data: str = ""
    """Where its data are, as for `earmark train`."""
    dataset: str = ""
    """The grid's name for the data; empty if the grid has one data set."""

    @property
    def is_weak(self) -> bool:
        """Whether it is trained without event times; the others are upper bounds."""
        return self.settings.training.supervision in WITHOUT_TIMES

    @property
    def name(self) -> str:
        """The name of its folder."""
        fold = "" if self.fold is None else f"fold{self.fold}"
        parts = [self.dataset, self.system, self.network, fold, f"seed{self.seed}"]
        return "-".join(re.sub(r"[^\w.]+", "-", part) for part in parts if part)


def _by_name(data: object) -> object:
    return {"": data} if isinstance(data, str) else data


def _seed_list(seeds: object) -> object:
    if type(seeds) is int and 0 < seeds <= _MOST:
        return tuple(range(seeds))
    if isinstance(seeds, list | tuple) and seeds and len({str(seed) for seed in seeds}) == len(seeds):
        return seeds
    raise ArgumentError(f"expected a number of seeds up to {_MOST}, or a list of different ones, got {seeds!r:.80}")


Data = Annotated[dict[str, Annotated[str, Field(min_length=1)]], Field(min_length=1), BeforeValidator(_by_name)]
Seeds = Annotated[Many[Annotated[int, Field(ge=0)]], BeforeValidator(_seed_list)]
Systems = Annotated[dict[str, dict[str, Any]], Field(min_length=1)]


@record
class Grid:
    """Runs to train and evaluate.

    Examples
    --------
    >>> grid = load_grid("urban-sed")
    >>> list(grid.systems)
    ['max', 'mean', 'soft-max', 'RAP 1e-2', 'RAP 1e-3', 'RAP 1e-4', 'CAP', 'auto', 'strong']
    >>> len(grid.cells), grid.cells[0].name
    (27, 'max-cnn-seed0')
    """

    title: str = Field(min_length=1, description="Heading of the report.")
    data: Data = Field(description='Where the data are, by name; a single data set has the name "".')
    systems: Systems = Field(description="Changes to the recipe, by system.")
    recipe: str = Field(default="paper", description="The recipe that all systems start from.")
    seeds: Seeds = Field(default=(0,), description="Every system is trained once with each.")
    folds: int = Field(default=0, ge=0, le=_MOST, description="Splits of the data set to use; 0 if it has only one.")
    networks: Many[str] = Field(default=("cnn",), min_length=1, description="Every system is trained with each.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Changes to the recipe for all systems.")
    evaluations: dict[str, EvaluationSpec] = Field(
        default_factory=lambda: {"clean": EvaluationSpec()}, description="Ways to evaluate every run."
    )
    published: Published | None = Field(default=None, description="Numbers to compare with.")
    notes: Many[str] = Field(default=(), description="Differences from the paper, a line each.")
    example: str = Field(default="", description="System whose output for one clip is drawn; empty: the best.")

    def __post_init__(self) -> None:
        for key in ("evaluation", "static_evaluation") if self.published else ():
            name = getattr(self.published, key)
            if name not in self.evaluations:
                raise unknown_name(f"published.{key}", name, self.evaluations)

    @property
    def cells(self) -> list[Cell]:
        """All runs, seed by seed, so that an unfinished grid still compares all systems."""
        base = load_recipe(self.recipe)
        folds = range(self.folds) if self.folds else [None]
        cells = []
        for seed, dataset, fold, network, system in product(self.seeds, self.data, folds, self.networks, self.systems):
            changes = {"network": network, **self.settings, **self.systems[system], "seed": seed}
            try:
                settings = base.changed(changes)
            except ArgumentError as error:
                raise ArgumentError(f"system {system!r}: {error}") from error
            cells.append(Cell(system, network, fold, seed, settings, self.data[dataset], dataset))
        return cells

    @property
    def source(self) -> str:
        """Where the data are, for a grid of one data set."""
        if len(self.data) > 1:
            raise ArgumentError(f"expected a grid of one data set, got {len(self.data)}: {', '.join(self.data)}")
        return next(iter(self.data.values()))

    def on(self, dataset: str) -> Grid:
        """The part of the grid that uses one of its data sets."""
        return replace(self, data={dataset: self.data[dataset]})

    def selected(
        self,
        *,
        data: str | None = None,
        systems: Sequence[str] | None = None,
        seeds: int | None = None,
        folds: int | None = None,
        changes: Mapping[str, object] | None = None,
    ) -> Grid:
        """A part of the grid, on other data, or with changed settings of all systems.

        Systems are selected by name; the name of a pool selects all systems that use it with weak labels.

        >>> list(load_grid("urban-sed").selected(systems=["max", "rap"]).systems)
        ['max', 'RAP 1e-2', 'RAP 1e-3', 'RAP 1e-4']
        """
        names = (
            list(self.systems)
            if systems is None
            else [name for key in as_names(systems) for name in self._matching(key)]
        )
        if folds is not None and not 1 <= folds <= self.folds:
            expected = f"from 1 to {self.folds}" if self.folds else "none, since this grid has no folds"
            raise ArgumentError(f"folds: expected {expected}, got {folds}")
        if data is not None and len(self.data) > 1:
            raise ArgumentError(f"data: expected none, since this grid names its data sets: {', '.join(self.data)}")
        return replace(
            self,
            data=self.data if data is None else dict.fromkeys(self.data, data),
            systems={name: {**self.systems[name], **(changes or {})} for name in names},
            seeds=self.seeds if seeds is None else tuple(range(seeds)),
            folds=self.folds if folds is None else folds,
        )

    def _matching(self, key: str) -> list[str]:
        """The systems that a key selects."""
        weak = {name: changes for name, changes in self.systems.items() if changes.get("supervision", "weak") == "weak"}
        pools = {name: str(changes["pool"]) for name, changes in weak.items() if "pool" in changes}
        matching = [key] if key in self.systems else [name for name, pool in pools.items() if pool == key]
        if not matching:
            raise unknown_name("system", key, dict.fromkeys([*self.systems, *pools.values()]))
        return matching


def load_grid(grid: str | Path) -> Grid:
    """Load one of the paper's grids by name, or a grid from a TOML file."""
    loaded = parse(Grid, load_toml("grid", grid, _FOLDER), where=grid, error=ArgumentError)
    if loaded.example and loaded.example not in loaded.systems:
        raise unknown_name(f"{grid}: example", loaded.example, loaded.systems)
    try:
        names = [cell.name for cell in loaded.cells]  # builds all settings, so that mistakes show now
    except (ArgumentError, DataError) as error:
        raise ArgumentError(f"{grid}: {error}") from error
    if len(set(names)) < len(names):
        raise ArgumentError(f"{grid}: two systems would share a folder; give them names that differ more")
    return loaded
