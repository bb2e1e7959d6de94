"""`mn04`: EfficientAT's MobileNetV3 of width 0.4, trained on AudioSet.

F. Schmid, K. Koutini and G. Widmer, "Efficient large-scale audio tagging via transformer-to-CNN knowledge
distillation", ICASSP 2023. It has 0.98 million parameters in 4 MB.
"""

from __future__ import annotations

import copy
import io
import threading
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from earmark.audio import Samples
from earmark.encoders import weights as weight_files
from earmark.encoders.base import ENCODERS, Card, Encoder
from earmark.encoders.frontend import FrontEndConfig
from earmark.encoders.mobilenet import REDUCTION, FrameEmbedder, Layout, folded, large
from earmark.errors import ModelFileError, reason

FRONT_END = FrontEndConfig(rate=32000, n_fft=1024, win_samples=800, hop_samples=320, n_bands=128, fmax=15000.0)
LAYOUT = large(FRONT_END.n_bands, width=0.4, classes=527)

_SUMMARY = "EfficientAT's MobileNetV3, trained on AudioSet"
_NOTICE = """\
mn04_as_mAP_432.pt is part of EfficientAT, https://github.com/fschmid56/EfficientAT, under this licence:

MIT License

Copyright (c) 2022 Florian Schmid

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


class MobileNetEncoder(Encoder):
    """Embeds with a `FrameEmbedder`: `embed` on the CPU, `on` anywhere."""

    version = 2
    front_end: ClassVar[FrontEndConfig]
    layout: ClassVar[Layout]

    def __init__(self, embedder: FrameEmbedder) -> None:
        self._embedder = embedder
        self._folded = folded(embedder)
        self._copies: dict[torch.device, FrameEmbedder] = {}
        self._copying = threading.Lock()

    def on(self, device: torch.device) -> FrameEmbedder:
        """The network for inference on a device, where it stays: (bags, n) to (bags, frames, dimension).

        Values are those of `embed` up to rounding.
        """
        with self._copying:
            if device not in self._copies:
                self._copies[device] = copy.deepcopy(self._folded).to(device)
            return self._copies[device]

    def module(self) -> FrameEmbedder:
        """The network with its front end, for fine-tuning or export: (bags, n) to (bags, frames, dimension).

        It is in evaluation mode; n is a multiple of `card.hop_samples`. Training it does not change `embed`.
        """
        return self._embedder

    @torch.inference_mode()
    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        writable = np.require(samples, requirements="W")  # torch warns about others
        return self._folded(torch.from_numpy(writable)[None])[0].numpy()  # type: ignore[no-any-return]


@ENCODERS.register("mn04", _SUMMARY)
class Mn04(MobileNetEncoder):
    """EfficientAT mn04, with downloaded weights or those of a given file."""

    front_end, layout = FRONT_END, LAYOUT

    card = Card(
        name="mn04",
        rate=32000,
        window_samples=327680,
        hop_samples=FRONT_END.hop_samples * REDUCTION,
        dimension=LAYOUT.dimension,
        licence="MIT",
        source="https://github.com/fschmid56/EfficientAT/releases/download/v0.0.1/mn04_as_mAP_432.pt",
        sha256="899a8c6217063f6941793102a2780b3dd788ab11fce468d9cf5f0577c453321c",
        size=4066513,
        summary=_SUMMARY,
        notice=_NOTICE,
    )

    def __init__(self, *, weights: str | Path | None = None) -> None:
        path = None if weights is None else Path(weights)
        content = weight_files.read(self.card, path)
        super().__init__(load_embedder(content, path or weight_files.path_of(self.card), FRONT_END, LAYOUT))


def load_embedder(content: bytes, path: Path, front_end: FrontEndConfig, layout: Layout) -> FrameEmbedder:
    """Load a network in evaluation mode from the state dict in a PyTorch file, without executing code in the file."""
    embedder = empty_embedder(front_end, layout)
    try:
        with warnings.catch_warnings():  # about unusual files
            warnings.simplefilter("ignore")
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        embedder.network.load_state_dict(state, strict=True)
    except Exception as error:  # torch's exceptions have no common base
        raise ModelFileError(f"{path}: not the weights of this network: {reason(error)}") from error
    for name, tensor in embedder.network.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise ModelFileError(f"{path}: {name}: expected finite numbers, got NaN or infinity")
    return embedder


def empty_embedder(front_end: FrontEndConfig, layout: Layout) -> FrameEmbedder:
    """A network in evaluation mode with random weights."""
    with torch.random.fork_rng(devices=[]):  # leave the caller's generator alone
        return FrameEmbedder(front_end, layout).eval()
