"""Encoders: damaged cards and ONNX files, PyTorch files of weights, and files of embeddings."""

import io
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np

from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged, damaged_toml

CARD = """name = "scale"
file = "scale.onnx"
rate = 8000
window_samples = 8000
hop_samples = 800
dimension = 800
licence = "MIT"
summary = "a frame is its samples"
"""


@reader
def make(rng: Random) -> Case:
    """An encoder that is created and embeds some frames."""
    if rng.random() < 0.4:
        return _embeddings(rng)
    if not find_spec("onnxruntime") or rng.random() < 0.5:
        return _weights(rng)
    card, model, note = CARD.encode(), onnx_model(), ""
    if rng.random() < 0.7:
        card, note = damaged_toml(rng, CARD)
    else:
        model, note = damaged(rng, model)
    return onnx_case(card, model, note)


def onnx_case(card: bytes, model: bytes, note: str) -> Case:
    """An encoder in ONNX and its card."""
    write("card.toml", card)
    write("scale.onnx", model)

    def call() -> None:
        from earmark.encoders import load

        encoder = load("onnx:card.toml")
        n = min(3 * encoder.card.hop_samples, encoder.card.window_samples)
        found = encoder.embed(np.zeros(n, np.float32))
        assert found.shape == (encoder.card.frames(n), encoder.card.dimension), "frames that the card does not state"

    return Case(f"an encoder in ONNX: {note}", call)


def _embeddings(rng: Random) -> Case:
    suffix = rng.choice([".npz", ".parquet"] if find_spec("pyarrow") else [".npz"])
    return embeddings_case(suffix, *damaged(rng, stored(suffix)))


def embeddings_case(suffix: str, content: bytes, note: str) -> Case:
    """Embeddings in a file that is read as those of a recording."""
    write(f"a{suffix}", content)

    def call() -> None:
        from earmark.encoders import load

        encoder = load("files:.")
        found = encoder.embeddings_of(Path("a.wav"), 20 * encoder.card.hop_samples)
        assert found.shape == (20, encoder.card.dimension), "frames that the recording does not have"

    return Case(f"embeddings in a{suffix}: {note}", call)


@cache
def stored(suffix: str) -> bytes:
    """A valid file of embeddings."""
    x, times, buffer = np.ones((20, 3), np.float32), np.arange(20) / 10, io.BytesIO()
    if suffix == ".npz":
        np.savez_compressed(buffer, times=times, embeddings=x, encoder="fuzz")
    else:
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"time": times, "embedding": list(x)}), buffer)
    return buffer.getvalue()


def _weights(rng: Random) -> Case:
    content, note = damaged(rng, _state())
    write("weights.pt", content)

    def call() -> None:
        from earmark.encoders.mn04 import load_embedder
        from earmark.encoders.tiny import FRONT_END, LAYOUT

        load_embedder(Path("weights.pt").read_bytes(), Path("weights.pt"), FRONT_END, LAYOUT)

    return Case(f"weights of an encoder: {note}", call)


@cache
def _state() -> bytes:
    import torch

    from earmark.encoders.tiny import TinyEncoder

    buffer = io.BytesIO()
    torch.save(TinyEncoder().module().network.state_dict(), buffer)
    return buffer.getvalue()


@cache
def onnx_model(*, outputs: bool = True) -> bytes:
    """An encoder whose frames are its samples; without outputs, it is not one."""
    from onnx import TensorProto, helper

    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [-1, 800])
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["samples", "shape"], ["frames"])],
        "scale",
        [helper.make_tensor_value_info("samples", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("frames", TensorProto.FLOAT, ["frames", 800])] if outputs else [],
        [shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())
