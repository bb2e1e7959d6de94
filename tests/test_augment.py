"""earmark.augment: masks and mixtures, on every device there is."""

import numpy as np
import pytest
import torch

from earmark.augment import mask_bands, mask_frames, mixup, union
from earmark.bags import Batch
from earmark.errors import ArgumentError

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
nan = torch.nan


@pytest.fixture
def x(generator):
    return -80 + 80 * torch.rand(12, 40, 60, generator=generator)


@pytest.fixture
def mask():
    """Bags of 5 to 60 frames."""
    return torch.arange(60) < torch.linspace(5, 60, 12).long().unsqueeze(1)


def batch(x, targets, frame_targets=None, mask=None):
    return Batch(x, mask, targets, frame_targets, tuple(map(str, range(len(x)))))


def runs(hidden):
    """Lengths of runs of True in a row."""
    edges = np.flatnonzero(np.diff(np.r_[0, hidden.int().tolist(), 0]))
    return (edges[1::2] - edges[::2]).tolist()


def test_bands_are_hidden_whole_and_in_stripes(x, generator):
    widths = set()
    for _ in range(20):
        y = mask_bands(x, width=5, count=1, generator=generator)
        changed = y != x
        hidden = (y == x.amin((1, 2), keepdim=True)).all(2)
        assert changed.any(2).logical_and(~hidden).sum() == 0
        for row in hidden:
            assert len(runs(row)) <= 1
            widths.update(runs(row) or [0])
    assert widths == {0, 1, 2, 3, 4, 5}


def test_frames_are_hidden_whole_and_in_spans(x, generator):
    widths = set()
    for _ in range(20):
        y = mask_frames(x, width=5, count=1, generator=generator)
        hidden = (y == x.amin((1, 2), keepdim=True)).all(1)
        assert (y != x).any(1).logical_and(~hidden).sum() == 0
        for row in hidden:
            assert len(runs(row)) <= 1
            widths.update(runs(row) or [0])
    assert widths == {0, 1, 2, 3, 4, 5}


def test_every_place_is_hidden_sooner_or_later(x, generator):
    seen_bands, seen_frames = torch.zeros(40, dtype=torch.bool), torch.zeros(60, dtype=torch.bool)
    for _ in range(50):
        seen_bands |= (mask_bands(x, width=4, generator=generator, value=9.0) == 9).all(2).any(0)
        seen_frames |= (mask_frames(x, width=4, generator=generator, value=9.0) == 9).all(1).any(0)
    assert seen_bands.all()
    assert seen_frames.all()


def test_several_stripes_are_several(x, generator):
    counts = [len(runs(row)) for row in (mask_bands(x, width=3, count=4, value=9.0, generator=generator) == 9).all(2)]
    assert 1 < max(counts) <= 4
    assert torch.equal(mask_frames(x, count=0, generator=generator), x)
    assert torch.equal(mask_bands(x, width=0, generator=generator), x)


def test_no_span_is_longer_than_its_share(x, mask, generator):
    lengths = mask.sum(1)
    for _ in range(20):
        y = mask_frames(x, width=50, count=1, share=0.3, mask=mask, value=9.0, generator=generator)
        assert ((y == 9).all(1).sum(1) <= 0.3 * lengths).all()


@pytest.mark.parametrize("hide", [mask_bands, mask_frames])
def test_padding_is_neither_read_nor_written(hide, x, mask, generator):
    poisoned = torch.where(mask.unsqueeze(1), x, nan)
    y = hide(poisoned, width=20, count=3, mask=mask, generator=torch.Generator().manual_seed(3))
    clean = hide(x, width=20, count=3, mask=mask, generator=torch.Generator().manual_seed(3))
    assert y[~mask.unsqueeze(1).expand_as(y)].isnan().all()
    assert torch.equal(y[mask.unsqueeze(1).expand_as(y)], clean[mask.unsqueeze(1).expand_as(y)])
    assert not torch.equal(clean, x)


def test_masks_with_holes_hide_neighbouring_sound(x, generator):
    holes = torch.ones(12, 60, dtype=torch.bool)
    holes[:, 10:50] = False
    y = mask_frames(x, width=10, count=1, share=1.0, mask=holes, value=9.0, generator=generator)
    assert torch.equal(y[:, :, 10:50], x[:, :, 10:50])
    for row in (y == 9).all(1)[:, [*range(10), *range(50, 60)]]:
        assert len(runs(row)) <= 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("draw", [mask_bands, mask_frames, lambda x, **k: mixup(batch(x, x[:, :3, 0]), **k).features])
def test_the_same_seed_draws_the_same_everywhere(draw, device, x):
    first = draw(x, generator=torch.Generator().manual_seed(1))
    again = draw(x.to(device), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(first, again.cpu())
    assert not torch.equal(first, draw(x, generator=torch.Generator().manual_seed(2)))
    before = x.clone()
    own = draw(x.to(device), generator=torch.Generator(device).manual_seed(1))
    assert own.shape == x.shape
    assert torch.equal(x, before)


def test_union_knows_what_it_cannot_know():
    a = torch.tensor([1, 1, 1, 0, 0, nan])
    b = torch.tensor([1, 0, nan, 0, nan, nan])
    expected = torch.tensor([1, 1, 1, 0, nan, nan])
    torch.testing.assert_close(union(a, b), expected, equal_nan=True)
    torch.testing.assert_close(union(b, a), expected, equal_nan=True)


def two_bags():
    """A sound in the first half of one bag, and one in the second half of the other."""
    x = torch.full((2, 3, 4), -80.0)
    x[0, :, :2], x[1, :, 2:] = 0.0, -10.0
    return x, torch.tensor([[1.0, 0.0, nan], [0.0, 1.0, 0.0]])


def swap(x, targets, frame_targets=None, mask=None, **options):
    """Two bags, each mixed with the other."""
    return mixup(batch(x, targets, frame_targets, mask), probability=1.0, **options)


def test_powers_add():
    x, targets = two_bags()
    mixed = swap(x, targets, spread_db=0.0)
    assert mixed.mask is None
    assert mixed.frame_targets is None
    torch.testing.assert_close(mixed.features[0], torch.tensor([0.0, 0, -10, -10]).expand(3, -1), atol=1e-3, rtol=0)
    torch.testing.assert_close(mixed.features[1], torch.tensor([-10.0, -10, -20, -20]).expand(3, -1), atol=1e-3, rtol=0)
    torch.testing.assert_close(mixed.targets, torch.tensor([[1, 1, nan], [1, 1, nan]]), equal_nan=True)
    twice = swap(x[:1].expand(2, -1, -1), targets, spread_db=0.0)  # the same sound twice: 3 dB up, and down again
    torch.testing.assert_close(twice.features, x[:1].expand(2, -1, -1))


def test_levels_spread():
    x, targets = two_bags()
    relative = set()
    for seed in range(200):
        mixed = mixup(batch(x, targets), probability=1.0, spread_db=6.0, generator=torch.Generator().manual_seed(seed))
        relative.add(round((mixed.features[0, 0, 2] - mixed.features[0, 0, 0] + 10).item()))
    assert min(relative) >= -6
    assert max(relative) <= 6
    assert len(relative) > 8


def test_mixtures_keep_their_range(x, generator):
    x = x - x.amax((1, 2), keepdim=True)
    x = x.clamp_min(-80)
    mixed = mixup(batch(x, torch.zeros(12, 2)), probability=1.0, spread_db=20.0, generator=generator).features
    torch.testing.assert_close(mixed.amax((1, 2)), torch.zeros(12))
    assert mixed.min() >= x.min()
    assert mixed.shape == x.shape


def test_only_some_bags_are_mixed(x, generator):
    targets = torch.eye(12)
    mixed = mixup(batch(x, targets), probability=0.5, generator=generator)
    same = (mixed.features == x).all(2).all(1)
    assert 0 < same.sum() < 12
    assert torch.equal(mixed.targets[same], targets[same])
    assert (mixed.targets[~same].sum(1) == 2).all()
    assert torch.equal(mixup(batch(x, targets), probability=0.0, generator=generator).features, x)
    alone = mixup(batch(x[:1], targets[:1]), probability=1.0, generator=generator)
    torch.testing.assert_close(alone.features, x[:1])
    assert torch.equal(alone.targets, targets[:1])


def test_frames_behind_the_end_are_the_partners_alone():
    x, targets = two_bags()
    x[0, :, 2:] = nan
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    frame_targets = torch.tensor([[[1.0], [nan], [nan], [nan]], [[0.0], [0.0], [1.0], [nan]]])
    mixed = swap(x, targets, frame_targets, mask=mask, spread_db=0.0)
    assert mixed.mask.all()
    assert mixed.features.isfinite().all()
    torch.testing.assert_close(mixed.features[0, 0], torch.tensor([0.0, 0, -10, -10]), atol=1e-3, rtol=0)
    expected = torch.tensor([1, nan, 1, nan]).view(1, 4, 1).expand(2, -1, -1)
    torch.testing.assert_close(mixed.frame_targets, expected, equal_nan=True)


def test_what_is_padding_in_both_stays_so(x, mask, generator):
    mask[:, 55:] = False
    poisoned = torch.where(mask.unsqueeze(1), x, nan)
    mixed = mixup(batch(poisoned, torch.zeros(12, 1), mask=mask), probability=1.0, generator=generator)
    assert not mixed.mask[:, 55:].any()
    assert (mixed.mask | ~mask).all()
    assert torch.equal(mixed.features.isfinite().all(1), mixed.mask)


def test_bad_calls_are_refused(x):
    with pytest.raises(ArgumentError, match=r"features: expected \(bags, bands, frames\), got shape \(40, 60\)"):
        mask_bands(x[0])
    with pytest.raises(
        ArgumentError, match=r"mask: expected bool of shape \(12, 60\), got torch.float32 of shape \(12, 60\)"
    ):
        mask_frames(x, mask=torch.ones(12, 60))
    with pytest.raises(
        ArgumentError, match=r"mask: expected bool of shape \(12, 60\), got torch.bool of shape \(60,\)"
    ):
        mask_frames(x, mask=torch.ones(60, dtype=torch.bool))
    with pytest.raises(ArgumentError, match="width and count: expected 0 or more, got width -1, count 2"):
        mask_bands(x, width=-1)
    with pytest.raises(ArgumentError, match=r"share: expected a number in \[0, 1\], got 2"):
        mask_frames(x, share=2)
    with pytest.raises(ArgumentError, match=r"probability: expected a number in \[0, 1\], got 2"):
        mixup(batch(x, torch.zeros(12, 3)), probability=2)
    with pytest.raises(ArgumentError, match="spread_db: expected 0 or more, got -1"):
        mixup(batch(x, torch.zeros(12, 3)), spread_db=-1)
