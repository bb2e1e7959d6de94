"""Augmentation of training features: filters, masked bands and frames, and mixtures of bags.

All functions take log-mel features (bags, bands, frames) in decibels, on any device, and return new ones of the same
shape. Random numbers come from a `torch.Generator`; those of a CPU generator do not depend on the features' device.
Masks are (bags, frames), True for sound. Padding is neither read nor written.

The paper's augmentations are variants in the feature store (`earmark.bags.build_store`): pitch, computed on features,
and dynamic-range compression, computed on sound. On 100 slices of UrbanSound8K, features shifted by up to two semitones
differ by 0.8 to 1.0 dB from those of shifted sound; two ways of shifting sound differ by 0.9 to 1.2 dB, and no shift by
4.4 to 6.2 dB (`benchmarks/augment.py --soundbank FOLDER`).
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from earmark.bags import Batch
from earmark.errors import ArgumentError

__all__ = ["filter_bands", "mask_bands", "mask_frames", "mixup", "union"]


def filter_bands(
    x: Tensor,
    *,
    gain_db: float = 6.0,
    points: int = 6,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Filter every bag as another microphone or room would: gains that vary smoothly over the bands.

    They are drawn at `points` positions over the bands, from -`gain_db` to `gain_db`, and interpolated linearly.

    >>> x = torch.zeros(1, 5, 2)
    >>> filter_bands(x, points=2, generator=torch.Generator().manual_seed(1))[0, :, 0]
    tensor([ 3.0916,  1.6566,  0.2217, -1.2133, -2.6483])
    """
    if not gain_db >= 0:
        raise ArgumentError(f"gain_db: expected 0 or more, got {gain_db}")
    if points < 2:
        raise ArgumentError(f"points: expected 2 or more, got {points}")
    mask = _checked(x, mask)
    gains = (2 * _uniform((len(x), 1, points), generator, x) - 1) * gain_db
    curve = F.interpolate(gains, x.shape[1], mode="linear", align_corners=True)[:, 0]
    return torch.where(mask.unsqueeze(1), x + curve.unsqueeze(2), x)


def mask_bands(
    x: Tensor,
    *,
    width: int = 16,
    count: int = 2,
    mask: Tensor | None = None,
    value: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Mask `count` stripes of adjacent bands in every bag, each of 0 to `width` bands (SpecAugment).

    They are filled with `value`, by default the minimum of each bag, which is silence.

    >>> x = torch.linspace(-80, 0, 24).view(1, 6, 4)
    >>> hidden = mask_bands(x, width=3, count=1, generator=torch.Generator().manual_seed(1))
    >>> (hidden == -80).all(2).tolist()
    [[False, True, True, True, False, False]]
    """
    mask = _checked(x, mask)
    every_band = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    hidden = _stripes(every_band, width, 1.0, count, generator)
    return torch.where(hidden.unsqueeze(2) & mask.unsqueeze(1), _lowest(x, mask) if value is None else value, x)


def mask_frames(
    x: Tensor,
    *,
    width: int = 32,
    count: int = 2,
    share: float = 0.2,
    mask: Tensor | None = None,
    value: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Mask `count` spans of adjacent frames in every bag, each of 0 to `width` frames (SpecAugment).

    No span is longer than `share` of the frames of its bag. Targets do not change: with weak labels the class is still
    somewhere in the bag, unless a short event is masked completely. So keep spans shorter than the events.
    """
    if not 0 <= share <= 1:
        raise ArgumentError(f"share: expected a number in [0, 1], got {share}")
    mask = _checked(x, mask)
    hidden = _stripes(mask, width, share, count, generator)
    return torch.where((hidden & mask).unsqueeze(1), _lowest(x, mask) if value is None else value, x)


def mixup(
    batch: Batch, *, probability: float = 0.5, spread_db: float = 6.0, generator: torch.Generator | None = None
) -> Batch:
    """Mix bags with another bag of the batch, each with this probability; a bag alone in its batch with itself.

    Powers are added, not decibels: sounds that reach a microphone add their energies. The mixture is then scaled until
    its maximum is that of the bag, so that features keep their range, and clipped at the lower minimum of the two.

    Targets become the `union` of both, not a weighted mean: both sounds are present, at comparable levels. A bag longer
    than its partner continues alone; a shorter one becomes as long, so the mask changes. The partner's level changes
    by a random amount between -`spread_db` and `spread_db`.

    >>> x, targets = torch.tensor([[[0.0, -80.0]], [[-80.0, 0.0]]]), torch.tensor([[1.0, 0.0], [0.0, torch.nan]])
    >>> batch = Batch(x, None, targets, None, ("a.wav", "b.wav"))
    >>> mixed = mixup(batch, probability=1, spread_db=0, generator=torch.Generator().manual_seed(1))
    >>> mixed.features.round(), mixed.targets
    (tensor([[[0., 0.]], [[0., 0.]]]), tensor([[1., nan], [1., nan]]))
    """
    if not 0 <= probability <= 1:
        raise ArgumentError(f"probability: expected a number in [0, 1], got {probability}")
    if not spread_db >= 0:
        raise ArgumentError(f"spread_db: expected 0 or more, got {spread_db}")
    x, targets, frame_targets = batch.features, batch.targets, batch.frame_targets
    sound = _checked(x, batch.mask)
    order = _uniform((len(x),), generator, x).argsort()
    partner = torch.empty_like(order).scatter(0, order, order.roll(1))  # the next in a random circle: never itself
    level = (2 * _uniform((len(x), 1, 1), generator, x) - 1) * spread_db
    chosen = _uniform((len(x),), generator, x) < probability

    mixed = _add_powers(x, x[partner] + level, sound, sound[partner])
    lowest = _lowest(x, sound)
    mixed = torch.maximum(mixed, torch.minimum(lowest, lowest[partner]))
    both = sound | (sound[partner] & chosen.unsqueeze(1))
    features = torch.where(chosen.view(-1, 1, 1) & both.unsqueeze(1), mixed, x)
    targets = torch.where(chosen.unsqueeze(1), union(targets, targets[partner]), targets)
    if frame_targets is not None:
        known = torch.where(sound.unsqueeze(2), frame_targets, 0)  # padding has no classes
        frame_targets = torch.where(chosen.view(-1, 1, 1), union(known, known[partner]), frame_targets)
    mask = None if batch.mask is None else both
    return replace(batch, features=features, mask=mask, targets=targets, frame_targets=frame_targets)


def union(a: Tensor, b: Tensor) -> Tensor:
    """Targets of two mixed bags: present if in either, absent if in neither, else unknown (NaN).

    >>> nan = torch.nan
    >>> union(torch.tensor([1.0, 1.0, 0.0, 0.0, nan]), torch.tensor([0.0, nan, 0.0, nan, nan]))
    tensor([1., 1., 0., nan, nan])
    """
    known = torch.maximum(a.nan_to_num(0.0), b.nan_to_num(0.0))
    return torch.where((known < 1) & (a.isnan() | b.isnan()), torch.nan, known)


def _add_powers(a: Tensor, b: Tensor, in_a: Tensor, in_b: Tensor) -> Tensor:
    """Decibels of the sum of two sounds, scaled to the maximum of a."""
    a = torch.where(in_a.unsqueeze(1), a, -torch.inf)
    b = torch.where(in_b.unsqueeze(1), b, -torch.inf)
    top = a.amax((1, 2), keepdim=True)
    peak = torch.maximum(top, b.amax((1, 2), keepdim=True))  # relative powers neither overflow nor all vanish
    total = 10 * torch.log10(10 ** ((a - peak) / 10) + 10 ** ((b - peak) / 10))
    return total - total.amax((1, 2), keepdim=True) + top


def _stripes(mask: Tensor, width: int, share: float, count: int, generator: torch.Generator | None) -> Tensor:
    """Positions in `count` random stripes: (bags, positions); each covers 0 to `width` positions with sound."""
    if width < 0 or count < 0:
        raise ArgumentError(f"width and count: expected 0 or more, got width {width}, count {count}")
    u = _uniform((2, len(mask), count), generator, mask)
    most = mask.sum(1)
    longest = (most * share).floor().clamp(max=width).unsqueeze(1)
    length = (u[0] * (longest + 1)).floor().minimum(longest)  # the product may round up
    first = (u[1] * (most.unsqueeze(1) - length + 1)).floor()
    place = (mask.cumsum(1) - 1).unsqueeze(1)  # stripes cover only frames with sound
    return ((place >= first.unsqueeze(2)) & (place < (first + length).unsqueeze(2))).any(1)


def _lowest(x: Tensor, mask: Tensor) -> Tensor:
    """Minimum of each bag without padding: (bags, 1, 1)."""
    return torch.where(mask.unsqueeze(1), x, torch.inf).amin((1, 2), keepdim=True)


def _uniform(shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor) -> Tensor:
    """Numbers in [0, 1), drawn on the generator's device, for use on that of `like`."""
    source = generator.device if generator is not None else like.device
    return torch.rand(shape, generator=generator, device=source).to(like.device)


def _checked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask, all True by default, if it fits the features."""
    if x.dim() != 3:
        raise ArgumentError(f"features: expected (bags, bands, frames), got shape {tuple(x.shape)}")
    if mask is None:
        return torch.ones(x.shape[::2], dtype=torch.bool, device=x.device)
    if mask.shape != x.shape[::2] or mask.dtype != torch.bool:
        raise ArgumentError(
            f"mask: expected bool of shape {tuple(x.shape[::2])}, got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask
