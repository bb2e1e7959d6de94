"""Grids of runs over data sets, systems, networks, seeds and folds, among them the paper's.

`grid` declares and loads a grid, `cells` trains and evaluates one cell, `schedule` runs all cells and resumes after an
interruption, `results` collects the scores.
"""

from earmark.experiment.grid import Cell, EvaluationSpec, Grid, load_grid
from earmark.experiment.results import Row, gather, write_results
from earmark.experiment.schedule import run_grid

__all__ = ["Cell", "EvaluationSpec", "Grid", "Row", "gather", "load_grid", "run_grid", "write_results"]
