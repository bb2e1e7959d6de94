"""Scores with an exported model in onnxruntime, without PyTorch (extra `onnx`).

`earmark.export` writes the file. Its metadata have two entries: "earmark", the attributes of a scorer as JSON, and
"sha256" at the end of the file, the digest of everything before it.
"""

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from earmark.errors import DataError, ModelFileError, reason
from earmark.inference.scorer import Scorer
from earmark.inference.scores import MOST_REDUCTION
from earmark.onnx_session import open_session
from earmark.schema import Names, open_record, parse, parse_json

FORMAT = 1
"""Version of the metadata."""

# A metadata entry (field 14 of a model) with the key "sha256" and a value of 64 characters, as protobuf writes it.
# Fields may come in any order, so it can stand at the end of the file.
_SEAL = b"\x72\x4a\x0a\x06sha256\x12\x40"
_SEAL_SIZE = len(_SEAL) + 64


def sealed(model: bytes) -> bytes:
    """A serialised ONNX model with its digest at the end, which reveals damage."""
    return model + _SEAL + hashlib.sha256(model).hexdigest().encode()


@open_record
class _Version:
    version: int
    written_by: str


@open_record
class _Pool:
    name: str


@open_record
class _About:
    """The attributes of a scorer, in the metadata."""

    version: int
    written_by: str
    classes: Names
    rate: Annotated[int, Field(ge=1, le=10_000_000)]
    hop_samples: Annotated[int, Field(ge=1, le=1 << 20)]
    n_fft: Annotated[int, Field(ge=2, le=1 << 20)]
    padding: Annotated[int, Field(ge=0, le=1 << 20)]
    reduction: Annotated[int, Field(ge=1, le=MOST_REDUCTION)]
    context: Annotated[int, Field(ge=0, le=1 << 20)] | None
    window: Annotated[float, Field(gt=0, le=86400)]
    fingerprint: str
    pool: _Pool
    network: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None
    overlap: Annotated[float, Field(ge=0, lt=1)] = Scorer.overlap  # files of 0.1.0 lack it


class OnnxScorer(Scorer):
    """Scores with an ONNX file that `earmark export` wrote; on the CPU, with one thread for each caller."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.source = Path(path), str(path)
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise ModelFileError(f"{path}: {(error.strerror or str(error)).lower()}") from error
        if content[-_SEAL_SIZE:-64] != _SEAL:
            raise ModelFileError(f"{path}: truncated, or not an ONNX file that earmark exported")
        if sealed(content[:-_SEAL_SIZE]) != content:
            raise ModelFileError(f"{path}: damaged, or changed since it was exported")
        self._session = open_session(self.path, content, purpose="a model in ONNX")
        metadata = self._session.get_modelmeta().custom_metadata_map
        if "earmark" not in metadata:
            raise ModelFileError(f"{path}: an ONNX file that earmark did not export")
        self.about = parse_json(dict[str, Any], metadata["earmark"], where=self.path, error=ModelFileError)
        header = parse(_Version, self.about, where=self.path, error=ModelFileError)
        if header.version > FORMAT:
            raise ModelFileError(f"{path}: exported by a newer earmark ({header.written_by}) than this one")
        about = parse(_About, self.about, where=self.path, error=ModelFileError)
        self.classes = about.classes
        self.rate = about.rate
        self.hop_samples = about.hop_samples
        self.n_fft = about.n_fft
        self.padding = about.padding
        self.reduction = about.reduction
        self.context = about.context
        self.window = about.window
        self.overlap = about.overlap
        self.fingerprint = about.fingerprint
        self._check_graph()

    def _check_graph(self) -> None:
        inputs = {value.name: value.shape for value in self._session.get_inputs()}
        outputs = {value.name: value.shape for value in self._session.get_outputs()}
        if list(inputs) != ["samples"] or len(outputs.get("dynamic", ())) != 3:
            raise ModelFileError(f"{self.path}: expected an input 'samples' and an output 'dynamic' of three axes")
        if outputs["dynamic"][2] != len(self.classes):
            raise ModelFileError(
                f"{self.path}: expected {len(self.classes)} classes in the output, got {outputs['dynamic'][2]}"
            )

    def score(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities (frames', classes) of samples (n,)."""
        if not np.isfinite(samples).all():
            raise DataError("samples hold NaN or infinity; expected finite numbers")
        x = np.ascontiguousarray(samples, np.float32)[None]
        try:
            (p,) = self._session.run(["dynamic"], {"samples": x})
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise ModelFileError(f"{self.path}: cannot be run: {reason(error)}") from error
        expected = (1, self.frames(len(samples)) // self.reduction, len(self.classes))
        if p.shape != expected:
            raise ModelFileError(f"{self.path}: expected an output of shape {expected}, got {p.shape}")
        return np.asarray(p[0], np.float32)
