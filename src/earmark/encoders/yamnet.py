"""`yamnet`: Google's YAMNet, trained on AudioSet, from its official TensorFlow Lite file (extra `yamnet`).

The file takes 15,600 samples at 16 kHz, 0.975 s, and has its own front end: 96 frames of 25 ms every 10 ms, 64 mel
bands from 125 to 7,500 Hz. Its classifier follows an average over time and bands of 1,024 channels, which is the
embedding. Frame k is that of the patch around its centre; patches overlap by half.
"""

from __future__ import annotations

from earmark.encoders.base import ENCODERS, Card
from earmark.encoders.litert import PatchEncoder

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
class Yamnet(PatchEncoder):
    """YAMNet, with downloaded weights or those of a given file."""

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
    patch = 15600
    tensor = "reduce_mean"
