"""Detection in files, folders and live streams.

Modules in import order: `ledger` (state of a job), `inputs` (recordings and their names), `outputs` (files of a job),
`spans` (parallel scoring), `detector` (`load` a model, `detect`), `several` (files without a job), `job` (any number of
files, with a ledger), `live` (streams). This package imports none of its modules, since ONNX models must not need
PyTorch.
"""
