"""Reviewing events in a browser: listening, correcting, exporting, training again.

    earmark.review("found")                 a detection job
    earmark.review("recordings", labels="labels.csv")
    earmark.review("recordings")            recordings without labels

Modules in import order: `journal` (actions of reviewers), `source` (recordings and events), `intervals`, `events` (with
their verdicts), `state` (of a review), `labels` (verdicts as a label table), `clips` (verdicts as training data),
`queues` (orders of review), `sound` (excerpts as wav files), `tiles` (spectrograms), `exporting`, `again` (training
with the verdicts), `guard` (access control), `server` (the FastAPI application), `running` (start and stop it).
`static` contains the page: ES modules without a build step. This package imports none of its modules.
"""
