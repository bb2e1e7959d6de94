"""An exported detector run over sound by onnxruntime, without PyTorch (extra `onnx`).

`earmark.export` writes the file. Its metadata have two entries: "earmark", a line of JSON with all that a scorer must
know, and "sha256", which ends the file and is the digest of all that comes before. Nothing in the file is executed but
the operators of ONNX.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.errors import DataError, MissingExtraError, ModelFileError
from earmark.inference.scorer import Scorer

__all__ = ["FORMAT", "OnnxScorer", "sealed"]

FORMAT = 1
"""Of the metadata. A file that says more than this is from a newer earmark."""

# An entry of a model's metadata (field 14) with the key "sha256" and a value of 64 characters, as protobuf writes it.
# Fields may come in any order, and so the digest can stand at the end, where it is easily cut off.
_SEAL = b"\x72\x4a\x0a\x06sha256\x12\x40"
_SEAL_SIZE = len(_SEAL) + 64


def sealed(model: bytes) -> bytes:
    """A serialised ONNX model with its digest at the end: a wrong bit or a missing end is then noticed."""
    return model + _SEAL + hashlib.sha256(model).hexdigest().encode()


class OnnxScorer(Scorer):
    """Scores with an ONNX file that `earmark export` wrote; on the CPU, with one thread for each caller.

    Parameters
    ----------
    path
        The file. Classes, rate and features are in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        content = _content(self.path)
        self._session = _session(self.path, content)
        said = self._session.get_modelmeta().custom_metadata_map
        if "earmark" not in said:
            raise ModelFileError(f"{path}: an ONNX file that earmark did not export")
        try:
            about: dict[str, Any] = json.loads(said["earmark"])
            if about["version"] > FORMAT:
                raise ModelFileError(f"{path}: exported by a newer earmark ({about['written_by']}) than this one")
            if sealed(content[:-_SEAL_SIZE]) != content:
                raise ModelFileError(f"{path}: damaged, or changed since it was exported")
            self._take(about)
        except (LookupError, TypeError, json.JSONDecodeError) as error:
            raise ModelFileError(f"{path}: what it says about itself cannot be understood: {error}") from error

    def _take(self, about: dict[str, Any]) -> None:
        self.classes = tuple(about["classes"])
        self.rate, self.hop_samples = about["rate"], about["hop_samples"]
        self.n_fft, self.padding = about["n_fft"], about["padding"]
        self.reduction, self.context = about["reduction"], about["context"]
        self.window, self.fingerprint = about["window"], about["fingerprint"]
        self.about = about

    def score(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities (frames', classes) of samples (n,)."""
        if not np.isfinite(samples).all():
            raise DataError("samples hold NaN or infinity; features need finite sound")
        x = np.ascontiguousarray(samples, np.float32)[None]
        (p,) = self._session.run(["dynamic"], {"samples": x})
        return np.asarray(p[0], np.float32)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _session(path: Path, content: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("a model in ONNX", "onnx") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # recordings run beside each other, in threads
    options.log_severity_level = 4  # what goes wrong is raised; it need not be printed too
    state = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NotImplemented,
    ) as error:
        raise ModelFileError(f"{path}: damaged, cut short, or not an ONNX file at all") from error
