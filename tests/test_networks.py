"""The networks: the paper's, layer by layer and number by number against Keras, and its recurrent relative."""

import itertools
import math
import os

import numpy as np
import pytest
import torch
from torch import nn

from earmark.errors import ArgumentError
from earmark.networks import NETWORKS, Head, create_network, reduce_mask

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras with numpy 2
NAMES = [entry.name for entry in NETWORKS if not issubclass(entry.cls, Head)]  # tests/test_heads.py has the others
each = pytest.mark.parametrize("name", NAMES)
every_reduction = pytest.mark.parametrize("reduction", [1, 2, 4, 8, 16])


def small(name, n_bands=32, **options):
    """A small network in float64 whose batch normalisation has seen things."""
    network = create_network(name, n_bands, **{"width": 0.125} | options).double()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            for values in (module.running_var, module.weight):
                nn.init.uniform_(values, 0.5, 2.0)
            nn.init.normal_(module.bias)
    return network.eval()


def paper_parameters(n_bands):
    """Learned numbers by layer, from the paper's text (IV.B): weights and bias of filters, scale and shift of norms."""

    def conv(height, width, inputs, outputs):
        return height * width * inputs * outputs + outputs

    layers, inputs = [2 * 1], 1
    for filters in (16, 32, 64, 128):
        layers += [conv(3, 3, inputs, filters), 2 * filters, conv(3, 3, filters, filters), 2 * filters]
        inputs = filters
    return [*layers, conv(n_bands // 16, 1, 128, 256), 2 * 256]


def test_parameters_layer_by_layer():
    network = create_network("cnn", 128)
    counts = [
        sum(p.numel() for p in m.parameters()) for m in network.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)
    ]
    assert counts == paper_parameters(128)
    assert sum(p.numel() for p in network.parameters()) == sum(paper_parameters(128)) == 557106


def test_ten_seconds_are_26_frames_of_256():
    assert create_network("cnn", 128).eval()(torch.zeros(2, 128, 431)).shape == (2, 26, 256)
    assert create_network("crnn", 128).eval()(torch.zeros(2, 128, 431)).shape == (2, 26, 256)


def test_layers_come_in_the_papers_order():
    network = create_network("cnn", 128)
    calls = []
    for module in network.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda m, args, out: calls.append((m, args[0], out)))
    network(torch.randn(2, 128, 32))
    kinds = [type(m).__name__ for m, _, _ in calls]
    block = ["Conv2d", "BatchNorm2d"] * 2 + ["MaxPool2d"]
    assert kinds == ["BatchNorm2d", *block * 4, "Conv2d", "BatchNorm2d"]
    convs = [m for m, _, _ in calls if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convs] == [16, 16, 32, 32, 64, 64, 128, 128, 256]
    assert [c.kernel_size for c in convs] == [(3, 3)] * 8 + [(8, 1)]
    assert [c.padding for c in convs] == [(1, 1)] * 8 + [(0, 0)]
    assert all(m.kernel_size == (2, 2) for m, _, _ in calls if isinstance(m, nn.MaxPool2d))
    for (conv, _, said), (_, heard, _) in itertools.pairwise(calls):
        if isinstance(conv, nn.Conv2d):  # the ReLU is between the convolution and the norm
            assert (said < 0).any()
            assert torch.equal(heard, said.relu())


def test_batch_normalisation_has_keras_numbers():
    norms = [m for m in create_network("cnn", 128).modules() if isinstance(m, nn.BatchNorm2d)]
    assert {(m.eps, m.momentum) for m in norms} == {(1e-3, 0.01)}
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)
    quick = create_network("cnn", 128, norm_momentum=0.1)
    assert {m.momentum for m in quick.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_weights_are_he_normal_cut_at_two_deviations():
    for name in NAMES:
        for module in create_network(name, 128).modules():
            if isinstance(module, nn.Conv2d):
                he = math.sqrt(2 / module.weight[0].numel())
                weight, n = module.weight.detach(), module.weight.numel()
                assert module.bias is None or (module.bias == 0).all()
                assert weight.abs().max() <= 2 * he / 0.8796
                assert abs(float(weight.std()) / he - 1) < 4 / math.sqrt(2 * n)
                assert abs(float(weight.mean())) < 4 * he / math.sqrt(n)


def build_in_keras(keras, n_bands):
    """The paper's network as its authors would write it; (bags, bands, frames, 1) -> (bags, frames', 256)."""
    layers = keras.layers
    x = inputs = layers.Input((n_bands, None, 1))
    x = layers.BatchNormalization()(x)
    for filters in (16, 32, 64, 128):
        for _ in range(2):
            x = layers.Conv2D(filters, (3, 3), padding="same", activation="relu", kernel_initializer="he_normal")(x)
            x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D((2, 2), padding="valid")(x)
    squeeze = layers.Conv2D(256, (n_bands // 16, 1), padding="valid", activation="relu", kernel_initializer="he_normal")
    x = layers.BatchNormalization()(squeeze(x))
    return keras.Model(inputs, keras.ops.squeeze(x, 1)), squeeze


@pytest.fixture(scope="module")
def keras_says():
    """The same network built in Keras with the same weights: its output, the weights it drew, and their number."""
    os.environ.setdefault("KERAS_BACKEND", "torch")  # fixed when Keras is imported, as in other tests of this process
    keras = pytest.importorskip("keras")
    torch.manual_seed(0)
    network = small("cnn", 64, width=1.0).float()
    weights = []
    for m in network.modules():
        if isinstance(m, nn.Conv2d):
            weights += [m.weight.permute(2, 3, 1, 0), m.bias]
        elif isinstance(m, nn.BatchNorm2d):
            weights += [m.weight, m.bias, m.running_mean, m.running_var]
    x = 20 * torch.randn(3, 64, 75) - 40
    model, squeeze = build_in_keras(keras, 64)
    drawn = squeeze.get_weights()[0]
    model.set_weights([weight.detach().numpy() for weight in weights])
    trained = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    return network, x, {"y": model.predict(x[..., None].numpy(), verbose=0), "drawn": drawn, "trained": trained}


def test_keras_gives_the_same_numbers(keras_says):
    network, x, said = keras_says
    with torch.no_grad():
        ours = network(x).numpy()
    assert ours.shape == said["y"].shape == (3, 4, 256)
    np.testing.assert_allclose(ours, said["y"], atol=1e-5 * np.abs(ours).max(), rtol=0)


def test_keras_has_as_many_parameters(keras_says):
    network, _, said = keras_says
    assert sum(p.numel() for p in network.parameters()) == said["trained"] == sum(paper_parameters(64))


def test_keras_draws_from_the_same_distribution(keras_says):
    _, _, said = keras_says
    network = create_network("cnn", 64)
    ours, theirs = network.squeeze.weight.detach().numpy().ravel(), said["drawn"].ravel()
    assert ours.size == theirs.size == 4 * 128 * 256
    shares = np.linspace(0.02, 0.98, 25)
    # not the ends: Keras' torch backend draws a little beyond its cut, 24 of 5,242,880 numbers when counted
    np.testing.assert_allclose(np.quantile(ours, shares), np.quantile(theirs, shares), atol=0.03 * theirs.std())


@each
@every_reduction
def test_length_and_resolution(name, reduction):
    network = small(name, reduction=reduction)
    for frames in (reduction, reduction + 1, 16, 31, 32, 50):
        assert network(torch.zeros(1, 32, frames).double()).shape == (1, frames // reduction, network.embedding)


@each
@every_reduction
def test_a_padded_bag_is_the_same_as_alone(name, reduction, generator):
    network = small(name, reduction=reduction)
    lengths = [77, 61, 48, 16]
    x = torch.randn(4, 32, 77, generator=generator).double()
    mask = torch.arange(77) < torch.tensor(lengths)[:, None]
    junk = torch.where(mask[:, None], x, torch.nan)
    together = network(junk, mask)
    for bag, length in enumerate(lengths):
        alone = network(x[bag : bag + 1, :, :length])[0]
        torch.testing.assert_close(together[bag, : len(alone)], alone, atol=1e-11, rtol=0)
        assert reduce_mask(mask, reduction)[bag].sum() == len(alone)


@each
def test_integer_masks_are_masks(name, generator):
    network = small(name)
    x, mask = torch.randn(2, 32, 40, generator=generator).double(), torch.arange(40) < torch.tensor([[40], [20]])
    assert torch.equal(network(x, mask), network(x, mask.int()))


@each
def test_a_bag_too_short_for_one_frame_is_still_heard_beside_longer_ones(name, generator):
    network = small(name)
    x, mask = torch.randn(2, 32, 40, generator=generator).double(), torch.arange(40) < torch.tensor([[40], [5]])
    y = network(x, mask)
    other, louder = x.clone(), x.clone()
    other[1, :, 5:] = 99.0
    louder[1, :, 3] += 5.0
    assert torch.equal(network(other, mask), y)
    assert not torch.allclose(network(louder, mask)[1, 0], y[1, 0])


@each
def test_gradients_reach_every_parameter_and_the_input(name, generator):
    network = create_network(name, 32, width=0.25).train()
    x = torch.randn(2, 32, 64, generator=generator).requires_grad_()
    mask = torch.arange(64) < torch.tensor([[64], [40]])
    y = network(x, mask)
    (y * torch.randn(y.shape, generator=generator)).sum().backward()
    for parameter in [x, *network.parameters()]:
        assert torch.isfinite(parameter.grad).all()
        assert (parameter.grad != 0).any()


def test_the_recurrent_layers_are_pytorchs_own(generator):
    """Three bidirectional layers as torch.nn.GRU has them, with packed sequences for padding."""
    network = small("crnn", hidden=7)
    oracle = nn.GRU(network.cnn.embedding, 7, 3, batch_first=True, bidirectional=True).double()
    for layer, (forth, back) in enumerate(zip(network.forth, network.back, strict=True)):
        for part, suffix in ((forth, ""), (back, "_reverse")):
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(oracle, f"{kind}_l{layer}{suffix}").data.copy_(getattr(part, f"{kind}_l0"))
    x, mask = torch.randn(3, 32, 96, generator=generator).double(), torch.arange(96) < torch.tensor([[96], [50], [16]])
    torch.testing.assert_close(network(x), oracle(network.cnn(x))[0])
    lengths = torch.tensor([6, 3, 1])
    packed = nn.utils.rnn.pack_padded_sequence(network.cnn(x, mask), lengths, batch_first=True)
    expected, _ = nn.utils.rnn.pad_packed_sequence(oracle(packed)[0], batch_first=True)
    real = reduce_mask(mask, 16)
    torch.testing.assert_close(network(x, mask)[real], expected[real])


def test_the_recurrent_one_is_the_authors():
    network = create_network("crnn", 128)
    assert [g.hidden_size for g in [*network.forth, *network.back]] == [128] * 6
    assert sum(p.numel() for p in network.cnn.parameters()) == sum(paper_parameters(128))
    inner = 2 * 3 * (256 * 128 + 128 * 128 + 2 * 128)  # two directions, three gates, two biases as in cuDNN
    assert sum(p.numel() for p in network.parameters()) == sum(paper_parameters(128)) + 3 * inner


def test_masks_are_reduced_to_whole_frames():
    for length in range(1, 41):
        for reduction in (1, 2, 4, 8, 16):
            whole = reduce_mask((torch.arange(40) < length)[None], reduction)
            assert whole.shape == (1, 40 // reduction)
            assert whole.sum() == max(1, length // reduction)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert reduce_mask(nothing, 4).shape == (2, 0)
    assert not reduce_mask(nothing, 2).any()


def test_width_is_a_factor():
    assert create_network("cnn", 64, width=0.5).embedding == 128
    assert create_network("cnn", 64, width=1e-3).embedding == 1


@each
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": 3}, "reduction: expected 1, 2, 4, 8 or 16, got 3"),
        ({"reduction": 16.0}, "reduction: expected 1, 2, 4, 8 or 16, got 16.0"),
        ({"n_bands": 15}, "n_bands: expected at least 16, .* got 15"),
        ({"width": 0}, "width: expected a number above 0 and at most 64, got 0"),
        ({"width": "half"}, "width: expected a number above 0 and at most 64, got 'half'"),
        ({"width": math.inf}, "width: expected a number above 0 and at most 64, got inf"),
        ({"norm_momentum": 0.0}, "norm_momentum: expected a number above 0 and at most 1, got 0.0"),
        ({"norm_momentum": True}, "norm_momentum: expected a number above 0 and at most 1, got True"),
        ({"reductoin": 4}, "option='reductoin' is not known; did you mean 'reduction'"),
    ],
)
def test_impossible_options_are_refused(name, options, message):
    with pytest.raises(ArgumentError, match=message):
        create_network(name, **{"n_bands": 32} | options)


@pytest.mark.parametrize("options", [{"hidden": 0}, {"layers": 0}, {"layers": 1.5}, {"hidden": "many"}])
def test_impossible_layers_are_refused(options):
    with pytest.raises(ArgumentError, match=r"(hidden|layers): expected a whole number from 1 to (4096|64), got"):
        create_network("crnn", 32, **options)


def test_an_unknown_network_is_refused():
    with pytest.raises(ArgumentError, match="network='cnnn' is not known; did you mean 'cnn'"):
        create_network("cnnn", 32)


@each
def test_impossible_input_is_refused(name):
    network = small(name)
    for shape in ((1, 64, 40), (32, 40), (1, 1, 32, 40)):
        with pytest.raises(ArgumentError, match=r"features: expected \(bags, 32, frames\), got"):
            network(torch.zeros(shape).double())
    least = network.reduction
    message = f"features: expected at least {least} frames, for one output frame, got {least - 1}"
    with pytest.raises(ArgumentError, match=message):
        network(torch.zeros(1, 32, least - 1).double())
    with pytest.raises(ArgumentError, match=r"mask: expected \(bags, frames\) = \(2, 40\), got \(2, 1\)"):
        network(torch.zeros(2, 32, 40).double(), torch.ones(2, 1, dtype=torch.bool))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["crnn", "vgg-gru"])
def test_recurrent_networks_compile_under_autocast(name):
    network = create_network(name, 16, hidden=8, width=0.1).cuda()
    step = torch.compile(lambda x: network(x).float().square().mean(), dynamic=False)
    with torch.autocast("cuda", torch.bfloat16):
        cost = step(torch.randn(2, 16, 64, device="cuda"))
    cost.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
