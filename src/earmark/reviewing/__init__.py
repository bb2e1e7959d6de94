"""Reviewing events in a browser: hear, see, correct, export, train again.

    earmark.review("found")                 a detection job
    earmark.review("recordings", labels="labels.csv")
    earmark.review("recordings")            from nothing

Modules in import order: `journal` (what reviewers did), `source` (recordings and events), `intervals`, `events` (with
their verdicts), `state` (of a review), `labels` (verdicts as a label table), `clips` (verdicts as training data),
`queues` (orders of review), `sound` (excerpts as wav files), `tiles` (spectrograms), `exporting`, `again` (training
with the verdicts), `guard` (who may send requests), `server` (the FastAPI application), `running` (start and stop it).
`static` holds the page: ES modules without a build step. This package imports none of its modules.
"""
