"""Encoders in TensorFlow Lite files, which embed a patch of sound at a time (extra `yamnet`, which installs LiteRT)."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from earmark.audio import Samples
from earmark.encoders import weights as weight_files
from earmark.encoders.base import Encoder
from earmark.errors import MissingExtraError, ModelFileError, reason


class PatchEncoder(Encoder):
    """Frame k is the embedding of the patch around its centre. Each thread has an interpreter."""

    patch: ClassVar[int]
    """Samples that the file takes."""
    tensor: ClassVar[str]
    """Last part of the name of the embedding."""

    def __init__(self, *, weights: str | Path | None = None) -> None:
        self._content = weight_files.read(self.card, None if weights is None else Path(weights))
        self._local = threading.local()
        self._interpreter()

    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        hop = self.card.hop_samples
        margin = (self.patch - hop) // 2
        x = np.pad(samples, (margin, self.patch - hop - margin), mode="reflect")
        return np.stack([self._of_patch(x[k : k + self.patch]) for k in range(0, len(samples), hop)])

    def _of_patch(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        interpreter, index, (scale, zero) = self._interpreter()
        details = interpreter.get_input_details()[0]
        interpreter.set_tensor(details["index"], samples.reshape(details["shape"]))
        interpreter.invoke()
        values = np.asarray(interpreter.get_tensor(index), np.float32).reshape(-1)
        return (values - zero) * np.float32(scale) if scale else values  # whole numbers have a scale

    def _interpreter(self) -> tuple[Any, int, tuple[float, int]]:
        """The interpreter of this thread, the index of the embedding, and its quantisation."""
        if not hasattr(self._local, "interpreter"):
            self._local.interpreter = self._load()
        return self._local.interpreter  # type: ignore[no-any-return]

    def _load(self) -> tuple[Any, int, tuple[float, int]]:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise MissingExtraError(f"the encoder {self.card.name}", "yamnet") from error
        try:
            with warnings.catch_warnings():  # keeping all tensors takes memory
                warnings.simplefilter("ignore")
                interpreter = Interpreter(
                    model_content=self._content, num_threads=1, experimental_preserve_all_tensors=True
                )
            interpreter.allocate_tensors()
            tensors = [t for t in interpreter.get_tensor_details() if t["name"].endswith(self.tensor)]
            return interpreter, tensors[0]["index"], tensors[0]["quantization"]
        except (ValueError, RuntimeError, LookupError) as error:
            raise ModelFileError(
                f"encoder {self.card.name!r}: its weights cannot be loaded: {reason(error)}"
            ) from error
