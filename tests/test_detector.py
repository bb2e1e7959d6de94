"""The detector: a network and a pooling operator, joined."""

import math

import pytest
import torch
from torch import nn

from earmark.detector import Detector, Output
from earmark.errors import ArgumentError, DataError
from earmark.features import FeatureConfig
from earmark.loss import bag_loss
from earmark.networks import NETWORKS, create_network
from earmark.pooling import POOLS, create_pool

POOL_NAMES = [entry.name for entry in POOLS]
each_pool = pytest.mark.parametrize("pool", POOL_NAMES)
CLASSES = ("dog", "cat", "rain")
# Votes that are certain say nothing about how to change the mind: (1 - p) to the power of 26 is 0 in float32.
OVERWHELMED = {"noisy-or", "isr"}


class Encoder(nn.Module):
    """A user's own: keeps the contract and knows nothing of masks."""

    embedding, reduction = 5, 2

    def __init__(self):
        super().__init__()
        self.look = nn.Linear(32, 5)

    def forward(self, x):
        return self.look(x[..., : x.shape[2] // 2 * 2].unflatten(2, (-1, 2)).mean(3).transpose(1, 2))


class MaskedEncoder(Encoder):
    def forward(self, x, extra=None, mask=None):
        self.seen = extra, mask
        return super().forward(x)


def make(pool="rap", network=None, **options):
    if network is None:
        network = create_network("cnn", 32, width=0.125)
    return Detector(CLASSES, FeatureConfig(n_bands=32), network, create_pool(pool, len(CLASSES), **options))


def batch(generator, frames=120, lengths=(120, 70, 33)):
    return torch.randn(3, 32, frames, generator=generator), torch.arange(frames) < torch.tensor(lengths)[:, None]


@each_pool
@pytest.mark.parametrize("padded", [False, True])
def test_every_pool_detects_and_learns(pool, padded, generator):
    detector = make(pool).train()
    x, mask = batch(generator)
    output = detector(x, mask if padded else None)
    assert isinstance(output, Output)
    assert output.dynamic.shape == output.logits.shape == (3, 7, 3)
    assert output.static.shape == (3, 3)
    assert (output.mask is None) != padded
    torch.testing.assert_close(output.dynamic, output.logits.sigmoid(), atol=1e-6, rtol=0)
    torch.testing.assert_close(output.static, detector.pool(output.dynamic, output.mask), atol=1e-6, rtol=0)
    bag_loss(output.static, torch.eye(3)).backward()
    for name, parameter in detector.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    assert (detector.head.weight.grad != 0).any()
    assert (next(detector.network.parameters()).grad != 0).any()


@each_pool
@pytest.mark.parametrize("network", [entry.name for entry in NETWORKS])
def test_a_padded_bag_gets_the_probabilities_it_gets_alone(pool, network, generator):
    options = {"width": 0.125} if "width" in NETWORKS[network].options() else {}
    detector = make(pool, create_network(network, 32, **options)).double().eval()
    x, mask = batch(generator)
    together = detector(x.double().masked_fill(~mask[:, None], torch.nan), mask)
    for bag, length in enumerate(mask.sum(1)):
        alone = detector(x[bag : bag + 1, :, :length].double())
        torch.testing.assert_close(together.static[bag], alone.static[0], atol=1e-10, rtol=0)
        real = together.dynamic[bag, together.mask[bag]]
        torch.testing.assert_close(real, alone.dynamic[0], atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("pool", "sign"), [(p, s) for p in POOL_NAMES for s in (1.0, -1.0) if s < 0 or p not in OVERWHELMED]
)
def test_saturated_and_wrong_is_finite_and_can_be_unlearned(pool, sign, generator):
    detector = make(pool)
    with torch.no_grad():
        detector.head.weight *= 0.01
        detector.head.bias.fill_(100.0 * sign)
    output = detector(batch(generator)[0])
    assert (output.logits.abs() > 50).all()
    assert ((output.dynamic > 0) & (output.dynamic < 1)).all()
    loss = bag_loss(output.static, torch.full((3, 3), float(sign < 0)))
    loss.backward()
    assert 5 < loss.item() < 20
    assert (detector.head.bias.grad * sign > 1e-3).all()
    assert torch.isfinite(detector.head.bias.grad).all()


def test_however_large_a_logit_it_means_what_it_says():
    detector = make("max").eval()
    nn.init.zeros_(detector.head.weight)
    for size in (30.0, 1e9, 1e30):
        with torch.no_grad():
            detector.head.bias.copy_(torch.tensor([size, -size, 0.0]))
        static = detector(torch.zeros(1, 32, 16)).static[0]
        torch.testing.assert_close(static, torch.tensor([1.0, 0.0, 0.5]), atol=1e-6, rtol=0)


def test_the_output_layer_is_keras_dense():
    network = create_network("cnn", 128)
    detector = Detector([str(i) for i in range(100)], FeatureConfig(), network, create_pool("max", 100))
    limit = math.sqrt(6 / (256 + 100))
    weight = detector.head.weight.detach()
    assert weight.shape == (100, 256)
    assert (detector.head.bias == 0).all()
    assert 0.99 * limit < weight.abs().max() <= limit
    assert abs(float(weight.std()) - limit / math.sqrt(3)) < 0.01 * limit


def test_ten_seconds_of_the_papers_features():
    detector = Detector(CLASSES, FeatureConfig(), create_network("cnn", 128), create_pool("cap", 3))
    frames = detector.features.frames(441000)
    assert detector(torch.zeros(1, 128, frames)).dynamic.shape == (1, 26, 3)
    assert detector.reduction == 16
    hop = detector.features.hop * detector.reduction
    assert hop == pytest.approx(16 * 1024 / 44100)
    assert 1 / hop == pytest.approx(2.69, abs=0.005)


def test_attention_looks_at_the_embedding(generator):
    detector = make("attention", embedding_dim=32)
    assert detector.network.embedding == 32
    x, mask = batch(generator)
    output = detector(x, mask)
    output.static.sum().backward()
    assert (detector.pool.look.weight.grad != 0).any()


@each_pool
def test_a_users_encoder_needs_no_mask(pool, generator):
    detector = make(pool, Encoder())
    x, mask = batch(generator)
    assert detector(x).dynamic.shape == (3, 60, 3)
    output = detector(x, mask)
    assert output.mask.sum(1).tolist() == [60, 35, 16]
    alone = detector(x[1:2, :, :70])
    torch.testing.assert_close(output.static[1], alone.static[0], atol=1e-5, rtol=0)
    output.static.sum().backward()
    assert (detector.network.look.weight.grad != 0).any()


def test_a_users_encoder_gets_the_mask_if_it_asks_for_it(generator):
    detector = make("max", MaskedEncoder())
    x, mask = batch(generator)
    detector(x, mask)
    assert detector.network.seen == (None, mask)
    detector(x)
    assert detector.network.seen == (None, None)


@pytest.mark.parametrize("encoder", [Encoder, MaskedEncoder])
def test_a_compiled_encoder_is_asked_itself(encoder, generator):
    x, mask = batch(generator)
    detector = make("max", torch.compile(encoder(), backend="eager"))
    assert detector(x, mask).mask.sum(1).tolist() == [60, 35, 16]
    assert getattr(detector.network, "seen", (None, mask))[1] is mask


def test_an_encoder_that_breaks_the_contract_is_told_so(generator):
    class Nameless(nn.Module):
        reduction = 2

    class Longer(Encoder):
        reduction = 4

    class Wider(Encoder):
        embedding = 6

    with pytest.raises(ArgumentError, match="network: expected an attribute 'embedding', a whole number"):
        make(network=Nameless())
    for wrong, due in ((Longer, r"\(3, 30, 5\)"), (Wider, r"\(3, 60, 6\)")):
        with pytest.raises(ArgumentError, match=rf"network: expected an output .* = {due}, got \(3, 60, 5\)"):
            make(network=wrong())(batch(generator)[0])


def test_parts_that_do_not_fit_are_refused():
    network = create_network("cnn", 32, width=0.125)
    with pytest.raises(ArgumentError, match="pool: expected one for 3 classes, got one for 2"):
        Detector(CLASSES, FeatureConfig(n_bands=32), network, create_pool("max", 2))
    for classes in ([], ["dog", "cat", "dog"]):
        with pytest.raises(ArgumentError, match="classes: expected one or more names, each once, got"):
            Detector(classes, FeatureConfig(n_bands=32), network, create_pool("max", 3))


def test_an_empty_bag_is_refused(generator):
    x, mask = batch(generator, lengths=(120, 0, 33))
    with pytest.raises(DataError, match="bag 1 is empty"):
        make()(x, mask)


@pytest.mark.parametrize("pool", ["rap", "attention", "lse"])
def test_mixed_precision_keeps_probabilities_exact(pool, generator):
    detector = make(pool).eval()
    x, mask = batch(generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = detector(x, mask)
    assert {t.dtype for t in (rough.dynamic, rough.static, rough.logits)} == {torch.float32}
    exact = detector(x, mask)
    assert not torch.equal(rough.logits, exact.logits)
    torch.testing.assert_close(rough.static, exact.static, atol=0.05, rtol=0)
    torch.testing.assert_close(rough.static, detector.pool(rough.dynamic, rough.mask), atol=1e-6, rtol=0)


def test_gradients_are_those_of_finite_differences(generator):
    detector = make("rap", create_network("cnn", 16, width=0.05, reduction=4)).double().eval()
    x = torch.randn(2, 16, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(8) < torch.tensor([[8], [5]])
    assert torch.autograd.gradcheck(lambda x: detector(x, mask)[:3], (x,), atol=1e-6)
