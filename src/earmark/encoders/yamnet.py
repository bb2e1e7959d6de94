"""`yamnet`: Google's YAMNet, trained on AudioSet, from its official TensorFlow Lite file (extra `yamnet`).

The file takes 15,600 samples at 16 kHz, 0.975 s, and has its own front end: 96 frames of 25 ms every 10 ms, 64 mel
bands from 125 to 7,500 Hz. Its classifier follows an average over time and bands of 1,024 channels, which is the
embedding. Frame k is that of the patch around its centre; patches overlap by half.
"""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.audio import Samples
from earmark.encoders import weights as weight_files
from earmark.encoders.base import ENCODERS, Card, Encoder, reason
from earmark.errors import MissingExtraError, ModelFileError

_PATCH = 15600  # samples
_TENSOR = "reduce_mean"  # last part of the name of the embedding

_SUMMARY = "Google's YAMNet, trained on AudioSet (extra yamnet)"
_NOTICE = """\
YAMNet is part of the TensorFlow Model Garden, https://github.com/tensorflow/models/tree/master/research/audioset/yamnet
Copyright 2019 The TensorFlow Authors.

Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance with the
License. You may obtain a copy of the License at

    https://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the License is distributed on an
"AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the License for the specific
language governing permissions and limitations under the License.
"""


@ENCODERS.register("yamnet", _SUMMARY)
class Yamnet(Encoder):
    """YAMNet, with the weights in their place or those of another file; an interpreter for each thread."""

    card = Card(
        name="yamnet",
        rate=16000,
        window_samples=153600,
        hop_samples=7680,
        dimension=1024,
        licence="Apache-2.0",
        source="https://storage.googleapis.com/mediapipe-assets/yamnet_audio_classifier_with_metadata.tflite"
        "?generation=1661875980774466",
        sha256="10c95ea3eb9a7bb4cb8bddf6feb023250381008177ac162ce169694d05c317de",
        size=4126810,
        summary=_SUMMARY,
        notice=_NOTICE,
    )

    def __init__(self, *, weights: str | Path | None = None) -> None:
        self._content = weight_files.read(self.card, None if weights is None else Path(weights))
        self._local = threading.local()
        self._interpreter()

    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        hop = self.card.hop_samples
        margin = (_PATCH - hop) // 2
        x = np.pad(samples, (margin, _PATCH - hop - margin), mode="reflect")
        return np.stack([self._patch(x[k : k + _PATCH]) for k in range(0, len(samples), hop)])

    def _patch(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        interpreter, index, (scale, zero) = self._interpreter()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], samples)
        interpreter.invoke()
        values = np.asarray(interpreter.get_tensor(index), np.float32).reshape(-1)
        return (values - zero) * np.float32(scale)

    def _interpreter(self) -> tuple[Any, int, tuple[float, int]]:
        """The interpreter of this thread, the index of the embedding, and its quantisation."""
        if not hasattr(self._local, "interpreter"):
            self._local.interpreter = _interpreter(self._content)
        return self._local.interpreter  # type: ignore[no-any-return]


def _interpreter(content: bytes) -> tuple[Any, int, tuple[float, int]]:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise MissingExtraError("the encoder yamnet", "yamnet") from error
    try:
        with warnings.catch_warnings():  # that keeping all tensors takes memory
            warnings.simplefilter("ignore")
            interpreter = Interpreter(model_content=content, num_threads=1, experimental_preserve_all_tensors=True)
        interpreter.allocate_tensors()
        tensors = [t for t in interpreter.get_tensor_details() if t["name"].endswith(_TENSOR)]
        return interpreter, tensors[0]["index"], tensors[0]["quantization"]
    except (ValueError, RuntimeError, LookupError) as error:
        raise ModelFileError(f"encoder 'yamnet': its weights cannot be loaded: {reason(error)}") from error
