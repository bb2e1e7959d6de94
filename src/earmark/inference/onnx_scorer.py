"""Scores with an exported model in onnxruntime, without PyTorch (extra `onnx`).

`earmark.export` writes the file. Its metadata have two entries: "earmark", the attributes of a scorer as JSON, and
"sha256" at the end of the file, the digest of everything before it.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.errors import DataError, MissingExtraError, ModelFileError
from earmark.inference.scorer import Scorer

FORMAT = 1
"""Version of the metadata."""

# A metadata entry (field 14 of a model) with the key "sha256" and a value of 64 characters, as protobuf writes it.
# Fields may come in any order, so it can stand at the end of the file.
_SEAL = b"\x72\x4a\x0a\x06sha256\x12\x40"
_SEAL_SIZE = len(_SEAL) + 64


def sealed(model: bytes) -> bytes:
    """A serialised ONNX model with its digest at the end, which reveals damage."""
    return model + _SEAL + hashlib.sha256(model).hexdigest().encode()


class OnnxScorer(Scorer):
    """Scores with an ONNX file that `earmark export` wrote; on the CPU, with one thread for each caller."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise ModelFileError(f"{path}: {(error.strerror or str(error)).lower()}") from error
        self._session = _session(self.path, content)
        metadata = self._session.get_modelmeta().custom_metadata_map
        if "earmark" not in metadata:
            raise ModelFileError(f"{path}: an ONNX file that earmark did not export")
        try:
            self.about = about = json.loads(metadata["earmark"])
            if about["version"] > FORMAT:
                raise ModelFileError(f"{path}: exported by a newer earmark ({about['written_by']}) than this one")
            if sealed(content[:-_SEAL_SIZE]) != content:
                raise ModelFileError(f"{path}: damaged, or changed since it was exported")
            self.classes = tuple(about["classes"])
            self.rate, self.hop_samples = about["rate"], about["hop_samples"]
            self.n_fft, self.padding = about["n_fft"], about["padding"]
            self.reduction, self.context = about["reduction"], about["context"]
            self.window, self.fingerprint = about["window"], about["fingerprint"]
        except (LookupError, TypeError, json.JSONDecodeError) as error:
            raise ModelFileError(f"{path}: its metadata cannot be read: {error}") from error

    def score(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities (frames', classes) of samples (n,)."""
        if not np.isfinite(samples).all():
            raise DataError("samples hold NaN or infinity; expected finite numbers")
        x = np.ascontiguousarray(samples, np.float32)[None]
        (p,) = self._session.run(["dynamic"], {"samples": x})
        return np.asarray(p[0], np.float32)


def _session(path: Path, content: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("a model in ONNX", "onnx") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # recordings run in parallel threads
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    state = onnxruntime.capi.onnxruntime_pybind11_state
    errors = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except errors as error:
        raise ModelFileError(f"{path}: damaged, truncated, or not an ONNX file") from error
