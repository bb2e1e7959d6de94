"""More training data out of the same: shifted pitch, masked bands and frames, mixtures of bags.

The paper's augmentation is pitch, by `SHIFTS`, which makes five sets out of one. On sound that is `pitch_shift`. On
features it is `LogMel.forward(samples, semitones=(0, *SHIFTS))`: five sets from one Fourier transform, some 40 times as
fast. Over 100 slices of UrbanSound8K its active cells are 0.8 to 1.0 dB from those of shifted sound; two ways of
shifting sound are 0.9 to 1.2 dB apart, and no shift at all is 4.4 to 6.2 dB off (`benchmarks/augment.py --soundbank
FOLDER`). `earmark.effects.compress` is what the authors also tried.

The others work on a batch of log-mel features, (bags, bands, frames) in decibels, on any device, and give a new one of
the same shape. They draw from a `torch.Generator`: one of the CPU draws the same for features on a CPU and on a GPU.
Masks are (bags, frames), True where there is sound. What lies behind them is neither read nor written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from earmark.effects import change_pitch_and_time
from earmark.errors import ArgumentError

__all__ = ["SHIFTS", "Mixture", "mask_bands", "mask_frames", "mixup", "pitch_shift", "union"]

SHIFTS = (-2, -1, 1, 2)
"""The paper's shifts, in semitones."""


def pitch_shift(samples: npt.NDArray[np.float32], rate: int, semitones: float) -> npt.NDArray[np.float32]:
    """Sound at another pitch, as long as before, with every onset where it was; so labels stay true.

    >>> pitch_shift(np.ones(100, np.float32), 44100, SHIFTS[0]).shape
    (100,)
    """
    return change_pitch_and_time(samples, rate, semitones=semitones)


def mask_bands(
    x: Tensor,
    *,
    width: int = 16,
    count: int = 2,
    mask: Tensor | None = None,
    value: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Hide `count` stripes of neighbouring bands in every bag, each of 0 to `width` bands: SpecAugment's other half.

    Parameters
    ----------
    x : (bags, bands, frames)
    mask : (bags, frames), bool
    value
        What to fill with; by default each bag's own minimum, which is silence.

    Examples
    --------
    >>> x = torch.linspace(-80, 0, 24).view(1, 6, 4)
    >>> hidden = mask_bands(x, width=3, count=1, generator=torch.Generator().manual_seed(1))
    >>> (hidden == -80).all(2).tolist()
    [[False, True, True, True, False, False]]
    """
    mask = _checked(x, mask)
    most = torch.full((len(x),), x.shape[1], device=x.device)
    hidden = _stripes(torch.arange(x.shape[1], device=x.device).expand(len(x), -1), most, width, 1.0, count, generator)
    return _filled(x, hidden.unsqueeze(2) & mask.unsqueeze(1), mask, value)


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
    """Hide `count` spans of neighbouring frames in every bag, each of 0 to `width` frames: SpecAugment's time masks.

    Targets stay as they are: with weak labels the class is still somewhere in the bag, unless a short event was hidden
    whole. So keep spans shorter than the events.

    Parameters
    ----------
    x : (bags, bands, frames)
    share
        No span is longer than this share of its bag's own frames.
    mask, value
        As in `mask_bands`.
    """
    if not 0 <= share <= 1:
        raise ArgumentError(f"share must be in [0, 1], found {share}")
    mask = _checked(x, mask)
    rank = mask.cumsum(1) - 1  # spans are laid over the frames that have sound
    hidden = _stripes(rank, mask.sum(1), width, share, count, generator)
    return _filled(x, (hidden & mask).unsqueeze(1), mask, value)


class Mixture(NamedTuple):
    """Mixed bags.

    Attributes
    ----------
    features : (bags, bands, frames)
    mask : (bags, frames), bool; None where no bag was padded
    targets : (bags, classes)
    frame_targets : (bags, frames, classes), or None
    """

    features: Tensor
    mask: Tensor | None
    targets: Tensor
    frame_targets: Tensor | None


def mixup(
    x: Tensor,
    targets: Tensor,
    frame_targets: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    probability: float = 0.5,
    spread_db: float = 6.0,
    generator: torch.Generator | None = None,
) -> Mixture:
    """Let some bags sound together with another bag of the batch.

    Powers are added, not decibels: sounds that meet in a microphone add their energies, and a mean of decibels would be
    a sound that nobody hears, half as loud in dB wherever only one of the two sounds. Then the whole is lowered until
    its loudest value is the bag's own again, so that features keep their range, and cut at the lowest value of the two.

    Targets become the `union` of both, not a weighted mean: both sounds are there, at comparable levels. A bag that was
    longer than its partner goes on alone; a shorter one becomes as long, which is why a mask comes back.

    Parameters
    ----------
    x : (bags, bands, frames), dB
    targets : (bags, classes), 1, 0 or NaN for unknown
    frame_targets : (bags, frames, classes), the same
    mask : (bags, frames), bool
    probability
        Of a bag to be mixed. A bag alone in its batch has nobody to be mixed with.
    spread_db
        The partner's level is changed by something between minus this and this.

    Examples
    --------
    >>> x, targets = torch.tensor([[[0.0, -80.0]], [[-80.0, 0.0]]]), torch.tensor([[1.0, 0.0], [0.0, torch.nan]])
    >>> mixed = mixup(x, targets, probability=1, spread_db=0, generator=torch.Generator().manual_seed(1))
    >>> mixed.features.round(), mixed.targets
    (tensor([[[0., 0.]], [[0., 0.]]]), tensor([[1., nan], [1., nan]]))
    """
    if not 0 <= probability <= 1:
        raise ArgumentError(f"probability must be in [0, 1], found {probability}")
    if not spread_db >= 0:
        raise ArgumentError(f"spread_db must be 0 or more, found {spread_db}")
    for name, found, shape in (("targets", targets, x.shape[:1]), ("frame_targets", frame_targets, x.shape[::2])):
        if found is not None and found.shape[:-1] != shape:
            raise ArgumentError(f"{name} must be {(*shape, 'classes')} for these features, found {tuple(found.shape)}")
    sound = _checked(x, mask)
    order = _uniform((len(x),), generator, x).argsort()
    partner = torch.empty_like(order).scatter(0, order, order.roll(1))  # the next in a random circle: never oneself
    level = (2 * _uniform((len(x), 1, 1), generator, x) - 1) * spread_db
    chosen = _uniform((len(x),), generator, x) < probability

    mixed = _add_powers(x, x[partner] + level, sound, sound[partner])
    lowest = _lowest(x, sound)
    mixed = torch.maximum(mixed, torch.minimum(lowest, lowest[partner]))
    both = sound | (sound[partner] & chosen.unsqueeze(1))
    out = torch.where(chosen.view(-1, 1, 1) & both.unsqueeze(1), mixed, x)
    targets = torch.where(chosen.unsqueeze(1), union(targets, targets[partner]), targets)
    if frame_targets is not None:
        heard = torch.where(sound.unsqueeze(2), frame_targets, 0)  # nothing is known to sound where nothing sounds
        frame_targets = torch.where(chosen.view(-1, 1, 1), union(heard, heard[partner]), frame_targets)
    return Mixture(out, None if mask is None else both, targets, frame_targets)


def union(a: Tensor, b: Tensor) -> Tensor:
    """Targets of two things together: present if in either, absent if in neither, else unknown (NaN).

    >>> nan = torch.nan
    >>> union(torch.tensor([1.0, 1.0, 0.0, 0.0, nan]), torch.tensor([0.0, nan, 0.0, nan, nan]))
    tensor([1., 1., 0., nan, nan])
    """
    known = torch.maximum(a.nan_to_num(0.0), b.nan_to_num(0.0))
    return torch.where((known < 1) & (a.isnan() | b.isnan()), torch.nan, known)


def _add_powers(a: Tensor, b: Tensor, in_a: Tensor, in_b: Tensor) -> Tensor:
    """Decibels of two sounds together, lowered until the maximum is that of a."""
    a = torch.where(in_a.unsqueeze(1), a, -torch.inf)
    b = torch.where(in_b.unsqueeze(1), b, -torch.inf)
    top = a.amax((1, 2), keepdim=True)
    peak = torch.maximum(top, b.amax((1, 2), keepdim=True))  # powers relative to it can neither overflow nor all vanish
    total = 10 * torch.log10(10 ** ((a - peak) / 10) + 10 ** ((b - peak) / 10))
    return total - total.amax((1, 2), keepdim=True) + top


def _stripes(
    position: Tensor, most: Tensor, width: int, share: float, count: int, generator: torch.Generator | None
) -> Tensor:
    """Where `count` random stripes lie: (bags, positions), of 0 to `width` neighbouring positions out of `most`."""
    if width < 0 or count < 0:
        raise ArgumentError(f"width and count must be 0 or more, found width {width}, count {count}")
    u = _uniform((2, len(position), count), generator, position)
    longest = (most * share).floor().clamp(max=width).unsqueeze(1)
    length = (u[0] * (longest + 1)).floor().minimum(longest)  # the product may round up
    first = (u[1] * (most.unsqueeze(1) - length + 1)).floor()
    place = position.unsqueeze(1)
    return ((place >= first.unsqueeze(2)) & (place < (first + length).unsqueeze(2))).any(1)


def _filled(x: Tensor, hidden: Tensor, mask: Tensor, value: float | None) -> Tensor:
    if value is not None:
        return x.masked_fill(hidden, value)
    return torch.where(hidden, _lowest(x, mask), x)


def _lowest(x: Tensor, mask: Tensor) -> Tensor:
    """Lowest value of each bag's sound: (bags, 1, 1)."""
    return torch.where(mask.unsqueeze(1), x, torch.inf).amin((1, 2), keepdim=True)


def _uniform(shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor) -> Tensor:
    """Numbers in [0, 1), drawn where the generator is, for use where `like` is."""
    source = generator.device if generator is not None else like.device
    return torch.rand(shape, generator=generator, device=source).to(like.device)


def _checked(x: Tensor, mask: Tensor | None) -> Tensor:
    """The mask, made if need be, if it fits the features."""
    if x.dim() != 3:
        raise ArgumentError(f"features must be (bags, bands, frames), found shape {tuple(x.shape)}")
    if mask is None:
        return torch.ones(x.shape[::2], dtype=torch.bool, device=x.device)
    if mask.shape != x.shape[::2] or mask.dtype != torch.bool:
        raise ArgumentError(
            f"mask must be bool of shape {tuple(x.shape[::2])}, found {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask
