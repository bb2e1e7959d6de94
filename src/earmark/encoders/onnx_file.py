"""`onnx:CARD.toml`: any ONNX file that maps samples to frame embeddings, described by a card next to it.

    name = "my-encoder"
    file = "my-encoder.onnx"      # next to the card
    rate = 16000                  # samples per second
    window_samples = 160000       # the longest excerpt that it takes
    hop_samples = 1600            # samples per frame
    dimension = 512
    licence = "MIT"

The graph has one input of float32 samples, (n,) or (bags, n), and an output of float32 embeddings, (frames, dimension)
or (bags, frames, dimension); `output` in the card names it if there are several. Frameworks round differently: of
n // hop_samples + 1 frames the last is dropped, and of n // hop_samples - 1 frames the last is repeated.

It needs the extra `onnx`. Graphs cannot execute code, but may take any amount of memory: use only files that you trust.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from earmark.audio import Samples
from earmark.encoders.base import ENCODERS, Card, Encoder, fitted
from earmark.errors import DataError, ModelFileError, reason
from earmark.onnx_session import open_session
from earmark.schema import parse, record

_LARGEST_CARD = 1 << 16  # bytes
_LARGEST_MODEL = 1 << 31  # bytes; a limit of the format


@record
class _FileCard:
    """The TOML file. `earmark.encoders.Card` describes the fields, and checks their values."""

    name: str
    file: str
    rate: int
    window_samples: int
    hop_samples: int
    dimension: int
    licence: str
    sha256: str = ""
    summary: str = ""
    output: str | None = Field(default=None, min_length=1)


@ENCODERS.register("onnx", "any ONNX file with a card in TOML (extra onnx)")
class OnnxEncoder(Encoder):
    """Embeds with onnxruntime on the CPU, with one thread for each caller."""

    target = "CARD.toml"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        about = _read_card(self.path)
        self._name = about.name
        file = self.path.with_name(about.file)
        content = _read(file, _LARGEST_MODEL)
        digest = hashlib.sha256(content).hexdigest()
        if about.sha256 not in ("", digest):
            raise ModelFileError(f"{file}: expected the SHA-256 {about.sha256} of {self.path}, got {digest}")
        names = ("rate", "window_samples", "hop_samples", "dimension", "licence", "summary")
        fields = {name: getattr(about, name) for name in names}
        fields |= {"name": f"onnx:{path}", "sha256": digest, "size": len(content)}
        self.card = parse(Card, fields, where=self.path, error=DataError)
        self._session = open_session(file, content, purpose="an encoder in ONNX")
        self._input, self._has_bags = self._find_input(file)
        self._output = self._find_output(file, about.output)

    def _identity(self) -> dict[str, object]:
        return {**super()._identity(), "name": f"onnx:{self._name}"}  # independent of where the card is

    def _find_input(self, file: Path) -> tuple[str, bool]:
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) not in (1, 2):
            actual = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs) or "none"
            raise ModelFileError(f"{file}: expected one input of samples, (n,) or (bags, n) float32, got {actual}")
        return inputs[0].name, len(inputs[0].shape) == 2

    def _find_output(self, file: Path, name: str | None) -> str:
        outputs = [output.name for output in self._session.get_outputs()]
        names = ", ".join(outputs) or "none"
        if name is None and len(outputs) > 1:
            raise ModelFileError(f"{file}: has several outputs; state one of them in the card: {names}")
        if name is None and not outputs:
            raise ModelFileError(f"{file}: expected an output of embeddings, got none")
        name = outputs[0] if name is None else name
        if name not in outputs:
            raise ModelFileError(f"{file}: expected an output {name!r}, got {names}")
        return name

    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        x = samples[None] if self._has_bags else samples
        try:
            (embeddings,) = self._session.run([self._output], {self._input: x})
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise ModelFileError(f"{self.path}: cannot be run: {reason(error)}") from error
        embeddings = np.asarray(embeddings)
        if embeddings.ndim == 3 and len(embeddings) == 1:
            embeddings = embeddings[0]
        return fitted(embeddings, self.card, len(samples))


def _read_card(path: Path) -> _FileCard:
    content = _read(path, _LARGEST_CARD)
    try:
        about = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not TOML: {reason(error)}") from None
    card = parse(_FileCard, about, where=path)
    if Path(card.file).name != card.file or card.file in ("", ".", "..") or not card.file.isprintable():
        raise DataError(f"{path}: file: expected the name of a file next to the card, got {card.file!r}")
    return card


def _read(path: Path, most: int) -> bytes:
    try:
        if path.stat().st_size > most:
            raise ModelFileError(f"{path}: expected at most {most:,} bytes, got {path.stat().st_size:,}")
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from error
