"""Fine-tuning: an encoder and another network as one, whose weights are trained together.

Features are then the log-mel frames of the encoder's front end (`EncoderFeatures.train_encoder`), and the model file
has the encoder's weights. Batch normalisation keeps the statistics of pretraining, so it is folded into the
convolutions before training: on a CPU, a step then takes about a third of the time.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable imports the compiler

from earmark.encoders import EncoderFeatures, MobileNetEncoder
from earmark.encoders.base import windows
from earmark.encoders.features import Features, encoder_of, trainable_encoder, trains_encoder
from earmark.encoders.frontend import from_decibels
from earmark.encoders.mobilenet import REDUCTION, MobileNet, embed_frames, folded
from earmark.errors import ArgumentError
from earmark.networks import MLP, NETWORKS, VGGGRU, Head, Network, check_features, create_network, reduce_mask

__all__ = ["FusedEncoder", "TunedEncoder", "network_for"]

_BESIDE = 128  # numbers per frame that the recurrent layer gets from the encoder


class TunedEncoder(Network):
    """An encoder's network and a head: log-mel frames in decibels to the head's embedding.

    Excerpts longer than the encoder's window are embedded in overlapping windows, as in detection. Each bag is embedded
    without its padding, so that it does not depend on it.
    """

    def __init__(self, features: EncoderFeatures, head: Network, *, reduction: int = REDUCTION) -> None:
        super().__init__(features.n_bands, reduction)
        encoder = MobileNet(trainable_encoder(features.encoder).layout)
        del encoder.classifier, encoder.features[-1]  # of AudioSet's classes
        self.encoder = folded(encoder).requires_grad_(True)
        self.window = features.window_samples // (features.hop_samples * REDUCTION)  # in columns
        self.head = head
        self.embedding = head.embedding

    def load_pretrained(self, encoder: MobileNetEncoder) -> None:
        """Copy the weights of an encoder."""
        weights = folded(encoder.module().network).state_dict()
        self.encoder.load_state_dict({name: weights[name] for name in self.encoder.state_dict()})

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // reduction, embedding)"""
        check_features(x, mask, self.n_bands, self.reduction)
        return self.head(*self._embedded(x, mask))  # type: ignore[no-any-return]

    @_disable_dynamo  # it has many small kernels, which take long to compile
    def _embedded(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Embeddings (bags, dimension, columns) of log-mel frames, one for every 16, and their mask."""
        if mask is None:
            return self._embed(x).transpose(1, 2), None
        reduced = reduce_mask(mask, REDUCTION)
        lengths = reduced.sum(1)
        result: Tensor | None = None
        for length in sorted(set(lengths.tolist())):
            bags = lengths == length
            embedded = self._embed(x[bags, :, : max(1, length) * REDUCTION])
            if result is None:
                result = embedded.new_zeros(len(x), reduced.shape[1], embedded.shape[2])
            result[bags, : embedded.shape[1]] = embedded
        assert result is not None  # there is at least one bag
        return result.transpose(1, 2), reduced

    def _embed(self, x: Tensor) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // 16, dimension)"""
        n = REDUCTION
        x = from_decibels(x[:, :, : x.shape[2] // n * n])
        if torch.compiler.is_compiling():  # an exported model takes a window at most
            return embed_frames(self.encoder, x)
        parts = [
            embed_frames(self.encoder, x[:, :, start * n : (start + self.window) * n])[:, first - start : stop - start]
            for start, first, stop in windows(x.shape[2] // n, self.window)
        ]
        return torch.cat(parts, 1)


class FusedEncoder(TunedEncoder):
    """An encoder's network and convolutions on the same frames, and a recurrent layer over both.

    The convolutions are those of `VGGGRU`, on the means of two adjacent frames: they locate sounds in time, while the
    encoder identifies them. Its embeddings pass a layer of hidden units, and are repeated for the finer output frames.
    """

    def __init__(self, features: EncoderFeatures, options: Mapping[str, Any]) -> None:
        dimension = trainable_encoder(features.encoder).layout.dimension
        network = VGGGRU(features.n_bands, _BESIDE, **options)
        if 2 * network.reduction > REDUCTION:
            raise ArgumentError(f"reduction: expected 1, 2, 4 or 8 with an encoder, got {network.reduction}")
        super().__init__(features, network, reduction=2 * network.reduction)
        self.beside = MLP(dimension, hidden=_BESIDE, dropout=network.dropout.p)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(bags, bands, frames) -> (bags, frames // reduction, embedding)"""
        check_features(x, mask, self.n_bands, self.reduction)
        filled, whole = _filled_up(x, mask)
        beside = self.beside(*self._embedded(filled, whole))
        repeated = beside[:, :, None].expand(-1, -1, REDUCTION // self.reduction, -1).flatten(1, 2)
        halved = F.avg_pool1d(filled[:, :, : x.shape[2]], 2)
        halved_mask = None if mask is None else reduce_mask(mask, 2)
        return self.head(halved, halved_mask, repeated[:, : x.shape[2] // self.reduction])  # type: ignore[no-any-return]


def _filled_up(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Frames (bags, bands, frames) up to a multiple of 16, the last one of each bag repeated, and their mask."""
    frames = x.shape[2]
    after = torch.arange((frames + REDUCTION - 1) // REDUCTION * REDUCTION, device=x.device)
    if mask is None:
        return x[:, :, after.clamp_max(frames - 1)], None
    lengths = (mask != 0).sum(1, keepdim=True)
    index = torch.minimum(after, (lengths - 1).clamp_min(0))
    whole = after < (lengths + REDUCTION - 1) // REDUCTION * REDUCTION
    return x.gather(2, index[:, None].expand(-1, x.shape[1], -1)), whole


def network_for(features: Features, settings: Mapping[str, Any], *, pretrained: bool = False) -> Network:
    """Create a network from its name and options, including the encoder if that is trained too.

    `pretrained` loads the encoder's weights; otherwise they are random.
    """
    options = dict(settings)
    name = options.pop("name")
    if not trains_encoder(features):
        return create_network(name, features.n_bands, **options)
    kind = NETWORKS[name].cls
    if kind is VGGGRU:
        tuned: TunedEncoder = FusedEncoder(features, options)
    elif issubclass(kind, Head):
        layout = trainable_encoder(features.encoder).layout
        tuned = TunedEncoder(features, create_network(name, layout.dimension, **options))
    else:
        raise ArgumentError(f"network: expected linear, mlp, gru or vgg-gru with an encoder, got {name!r}")
    if pretrained:
        encoder = encoder_of(features)
        assert isinstance(encoder, MobileNetEncoder)
        tuned.load_pretrained(encoder)
    return tuned
