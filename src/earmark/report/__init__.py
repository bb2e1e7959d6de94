"""Pages and tables to read: of runs, and of detection jobs.

Files, each importing only those before it: `inline` (templates, figures and sound as parts of one HTML file), `tables`
(results in Markdown, LaTeX, HTML and on a terminal), `words` (what a page of runs says in sentences), `results`
(classes, and alpha read as a duration), `figures`, `mistakes` (where a detector is wrong and sure of it), `runs` (the
page of runs); and beside them `activity` (what was heard when, counted), `job` (the page of a detection job) and
`stretches` (parts of recordings that are worth a figure).
"""

__all__: list[str] = []
