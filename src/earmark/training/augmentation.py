"""Augmentation of a training batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from earmark.augment import mask_bands, mask_frames, mixup
from earmark.bags import Batch
from earmark.settings import Augmentation

__all__ = ["augmented"]


def augmented(batch: Batch, settings: Augmentation, key: tuple[int, ...]) -> Batch:
    """The batch with bags mixed and masked according to the settings.

    Random numbers depend on the key alone. Variants of pitch and compression are in the store, not made here.
    """
    if not (settings.mixup or settings.band_mask or settings.frame_mask):
        return batch
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
    if settings.mixup:
        batch = mixup(batch, probability=settings.mixup, generator=generator)
    x = batch.features
    if settings.band_mask:
        x = mask_bands(x, width=settings.band_mask, mask=batch.mask, generator=generator)
    if settings.frame_mask:
        x = mask_frames(x, width=settings.frame_mask, mask=batch.mask, generator=generator)
    return replace(batch, features=x)
