"""A grid of runs: data set, system, network, seed and fold; and the paper's grids.

`grid` reads what is to be run, `cells` runs one cell, `schedule` runs them all and goes on where it was cut, `results`
gathers what came out.
"""

from earmark.experiment.grid import Cell, Grid, Judging, grids, load_grid
from earmark.experiment.results import Row, gather, write_results
from earmark.experiment.schedule import run_grid

__all__ = ["Cell", "Grid", "Judging", "Row", "gather", "grids", "load_grid", "run_grid", "write_results"]
