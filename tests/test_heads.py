"""Heads: small networks on the embeddings of an encoder."""

import pytest
import torch
from torch import nn

from earmark.errors import ArgumentError
from earmark.networks import NETWORKS, FrameNorm, Head, create_network

NAMES = [entry.name for entry in NETWORKS if issubclass(entry.cls, Head)]
each = pytest.mark.parametrize("name", NAMES)


def small(name):
    """A head in float64 whose normalisation has seen things."""
    head = create_network(name, 24).double()
    nn.init.normal_(head.norm.mean)
    nn.init.uniform_(head.norm.var, 0.5, 2.0)
    return head.eval()


def test_there_are_three():
    assert NAMES == ["linear", "mlp", "gru"]


@each
def test_every_frame_has_an_embedding(name):
    head = small(name)
    for frames in (1, 2, 63):
        assert head(torch.zeros(3, 24, frames).double()).shape == (3, frames, head.embedding)
    assert head.reduction == 1


@each
def test_padding_is_invisible(name, generator):
    head = small(name)
    x = torch.randn(3, 24, 20, generator=generator).double()
    lengths = torch.tensor([20, 7, 1])
    mask = torch.arange(20) < lengths[:, None]
    x = torch.where(mask[:, None], x, torch.nan)
    y = head(x, mask)
    for bag, n in enumerate(lengths):
        alone = head(x[bag : bag + 1, :, :n])
        torch.testing.assert_close(y[bag, :n], alone[0], atol=1e-12, rtol=0)


@each
def test_context_is_true(name, generator):
    """If a head declares a context of 0, a frame depends on itself alone."""
    head = small(name)
    x = torch.randn(1, 24, 12, generator=generator).double()
    other = x.clone()
    other[:, :, 6] += 1
    changed = (head(x) != head(other)).any(-1)[0]
    assert changed.tolist() == [k == 6 for k in range(12)] if head.context == 0 else changed.all()


def test_frames_are_normalised_as_batch_normalisation_does(generator):
    x = 3 * torch.randn(4, 6, 10, generator=generator) + 1
    ours, theirs = FrameNorm(6), nn.BatchNorm1d(6, eps=1e-3, affine=False)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    torch.testing.assert_close(ours.var, theirs.running_var, rtol=0.03, atol=0)  # that one is the unbiased estimate
    torch.testing.assert_close(ours.eval()(x), (x - ours.mean[:, None]) / (ours.var[:, None] + 1e-3).sqrt())


def test_padding_has_no_part_in_the_statistics(generator):
    x = torch.randn(2, 6, 10, generator=generator)
    mask = torch.arange(10) < torch.tensor([[10], [4]])
    ours, other = FrameNorm(6), FrameNorm(6)
    y = ours(torch.where(mask[:, None], x, torch.nan), mask)
    real = torch.cat([x[0], x[1, :, :4]], 1)[None]
    torch.testing.assert_close(torch.cat([y[0], y[1, :, :4]], 1)[None], other(real))
    torch.testing.assert_close(ours.var, other.var)
    assert (y[1, :, 4:] == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden: expected a whole number from 1 to 4096, got 0"),
        ({"layers": 65}, "layers: expected a whole number from 1 to 64, got 65"),
        ({"dropout": 1.0}, "dropout: expected a number from 0 to below 1, got 1.0"),
        ({"dropout": True}, "dropout: expected a number"),
        ({"width": 2}, "option='width' is not known"),
    ],
)
@pytest.mark.parametrize("name", ["mlp", "gru"])
def test_impossible_options_are_refused(name, options, message):
    with pytest.raises(ArgumentError, match=message):
        create_network(name, 24, **options)
