"""Pretrained encoders: audio to frame embeddings, (n,) to (frames, dimension), at a fixed hop.

    encoder = load("mn04")
    x = encoder(samples, rate)          # one row every encoder.hop seconds

Frame k stands for the samples from k * hop_samples up to, but excluding, (k + 1) * hop_samples. Every encoder has a
`Card`: rate, window, hop, dimension, licence, and where its weights come from. Weights are not part of earmark;
`earmark.encoders.weights` finds and downloads them.

`mn04`, `yamnet` and `birdnet` are built in. `onnx:CARD.toml`, `hear:PACKAGE` and `python:MODULE:NAME` are third-party
encoders; the last two import code, as `imports_code` reports. `files:FOLDER` reads embeddings that were computed
elsewhere. `docs/encoders.md` describes them all.
"""

from earmark.encoders.base import ENCODERS, Card, Embeddings, Encoder, imports_code, load
from earmark.encoders.birdnet import BirdNet
from earmark.encoders.callable import CallableEncoder
from earmark.encoders.features import EncoderFeatures, provide
from earmark.encoders.hear import HearEncoder
from earmark.encoders.mn04 import Mn04, MobileNetEncoder
from earmark.encoders.onnx_file import OnnxEncoder
from earmark.encoders.stored import FileEncoder
from earmark.encoders.tiny import TinyEncoder as TinyEncoder  # registered, for tests; not public
from earmark.encoders.yamnet import Yamnet

__all__ = [
    "ENCODERS",
    "BirdNet",
    "CallableEncoder",
    "Card",
    "Embeddings",
    "Encoder",
    "EncoderFeatures",
    "FileEncoder",
    "HearEncoder",
    "Mn04",
    "MobileNetEncoder",
    "OnnxEncoder",
    "Yamnet",
    "imports_code",
    "load",
    "provide",
]
