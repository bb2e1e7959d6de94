"""HTML reports and tables: of evaluated runs, of experiment grids, and of detection jobs.

    write_report(["run-a", "run-b"], "report.html")     `earmark report`
    write_grid_report(grid, rows, out)                  `earmark reproduce`
    write_job_report(folder)                            `earmark detect --report`

Python computes the values; page structure and text are in `templates`.
"""
