"""HTML reports and tables: of evaluated runs, of experiment grids, and of detection jobs.

    write_report(["run-a", "run-b"], "report.html")     `earmark report`
    write_grid_report(grid, rows, out)                  `earmark reproduce`
    write_job_report(folder)                            `earmark detect --report`

Files, each importing only those before it:

- `pages`: templates, and figures and audio as parts of a single HTML file
- `tables`: systems against scores, F1 by class, alpha read as a duration
- `results`: what a report needs from saved evaluations
- `figures`: figures of a run report
- `mistakes`: the largest errors of a detector, with image and audio
- `runs`: the report of evaluated runs
- `grid_tables`, `grid`: tables and the report of an experiment grid
- `activity`: events counted by class, by hour and along recordings
- `job`: the report of a detection job
- `stretches`: figures of excerpts from a job's recordings

Python computes the values; page structure and text are in `templates`.
"""

__all__: list[str] = []
