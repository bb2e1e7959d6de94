"""From any recording to events with times: one file, a folder with a ledger, a live stream.

Files, each importing only those before it: `inputs` (recordings that are given), `ledger` (what is done, failed and to
do), `outputs` (how a job's folder looks), `tally` (how far a job is), `spans` (recordings cut into pieces that anything
can execute), `detector` (the Python face: `load` a model, `detect` in files or samples), `job` (any number of files),
`live` (sound that arrives).
This door imports none of them: a model in ONNX needs no PyTorch.
"""

__all__: list[str] = []
