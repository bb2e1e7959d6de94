"""Running a detector: from sound or stored features to probabilities.

`scorer` says what can be run: anything that gives probabilities for an excerpt of sound. `torch_scorer` runs a
detector, with its network made ready by `frozen`; `onnx_scorer` an exported one without PyTorch. `recordings` runs a
scorer over recordings of any length in bounded memory, `scores` keeps what came out, `bags` runs a detector over stored
features. This door imports none of them: some need PyTorch and some must not.
"""

__all__: list[str] = []
