"""Fine-tuning: an encoder and a head as one network, whose weights are trained together.

Features are then the log-mel frames of the encoder's front end (`EncoderFeatures.train_encoder`), and the model file
has the encoder's weights. Statistics of batch normalisation stay those of pretraining.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from earmark.encoders import EncoderFeatures, MobileNetEncoder
from earmark.encoders.base import windows
from earmark.encoders.features import Features, encoder_of, trainable_encoder
from earmark.encoders.frontend import from_decibels
from earmark.encoders.mobilenet import REDUCTION, MobileNet, embed_frames
from earmark.errors import ArgumentError
from earmark.networks import Head, Network, check_features, create_network, reduce_mask

__all__ = ["TunedEncoder", "network_for"]


class TunedEncoder(Network):
    """An encoder's network and a head: log-mel frames in decibels to the head's embedding.

    Excerpts longer than the encoder's window are embedded in overlapping windows, as in detection. Each bag is embedded
    without its padding, so that it does not depend on it.
    """

    def __init__(self, features: EncoderFeatures, head: Network) -> None:
        super().__init__(features.n_bands, REDUCTION)
        if not isinstance(head, Head):
            raise ArgumentError(f"network: expected a head for an encoder (linear, mlp or gru), got {head.name!r}")
        self.encoder = MobileNet(trainable_encoder(features.encoder).layout)
        del self.encoder.classifier  # of AudioSet's classes
        self.window = features.window_samples // (features.hop_samples * REDUCTION)  # in output frames
        self.head = head
        self.embedding = head.embedding

    def load_pretrained(self, encoder: MobileNetEncoder) -> None:
        """Take the weights of an encoder."""
        weights = encoder.module().network.state_dict()
        self.encoder.load_state_dict({name: weights[name] for name in self.encoder.state_dict()})

    def train(self, mode: bool = True) -> "TunedEncoder":
        """As `nn.Module.train`, but batch normalisation in the encoder keeps its statistics."""
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // reduction, embedding)"""
        check_features(x, mask, self.n_bands, self.reduction)
        if mask is None:
            return self.head(self._embed(x).transpose(1, 2))  # type: ignore[no-any-return]
        reduced = reduce_mask(mask, self.reduction)
        lengths = reduced.sum(1)
        parts = torch.zeros(())
        for length in sorted(set(lengths.tolist())):
            bags = lengths == length
            embedded = self._embed(x[bags, :, : max(1, length) * self.reduction])
            if not parts.ndim:
                parts = embedded.new_zeros(len(x), reduced.shape[1], embedded.shape[2])
            parts[bags, : embedded.shape[1]] = embedded
        return self.head(parts.transpose(1, 2), reduced)  # type: ignore[no-any-return]

    def _embed(self, x: Tensor) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // reduction, dimension)"""
        n = self.reduction
        x = from_decibels(x[:, :, : x.shape[2] // n * n])
        if torch.compiler.is_compiling():  # an exported model takes a window at most
            return embed_frames(self.encoder, x)
        parts = [
            embed_frames(self.encoder, x[:, :, start * n : (start + self.window) * n])[:, first - start : stop - start]
            for start, first, stop in windows(x.shape[2] // n, self.window)
        ]
        return torch.cat(parts, 1)


def network_for(features: Features, settings: Mapping[str, Any], *, pretrained: bool = False) -> Network:
    """The network of settings (its name and options) for features; with the encoder, if that is trained too.

    `pretrained` loads the encoder's weights; otherwise they are arbitrary.
    """
    options = dict(settings)
    name = options.pop("name")
    if not (isinstance(features, EncoderFeatures) and features.train_encoder):
        return create_network(name, features.n_bands, **options)
    layout = trainable_encoder(features.encoder).layout
    tuned = TunedEncoder(features, create_network(name, layout.dimension, **options))
    if pretrained:
        encoder = encoder_of(features)
        assert isinstance(encoder, MobileNetEncoder)
        tuned.load_pretrained(encoder)
    return tuned
