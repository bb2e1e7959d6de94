"""Grids of runs over data sets, systems, networks, seeds and folds, among them the paper's.

`grid` declares and loads a grid, `cells` trains and evaluates its cells and resumes after an interruption, `results`
collects the scores, and `kept` is the file that keeps evaluated runs.
"""

from earmark.experiment.cells import run_grid
from earmark.experiment.grid import Cell, EvaluationSpec, Grid, load_grid
from earmark.experiment.results import Row, gather, keep_runs, write_results

__all__ = ["Cell", "EvaluationSpec", "Grid", "Row", "gather", "keep_runs", "load_grid", "run_grid", "write_results"]
