"""From sound to frame probabilities.

`scorer` is the interface; `torch_scorer` (with `frozen` networks) and `onnx_scorer` implement it. `recordings` scores
recordings of any length in bounded memory, `scores` stores the result, and `interpolation` resamples it to the rate of
the features. This package imports none of its modules, since ONNX models must work without PyTorch.
"""
