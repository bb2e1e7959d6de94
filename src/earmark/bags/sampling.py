"""Batches of bags, drawn from a feature store.

What step `s` of epoch `e` draws depends only on the seed, `e` and `s`. So a resumed run draws the same batches as an
uninterrupted one, and several processes divide the batches that one would draw.

Targets are 1 (present), 0 (absent) and NaN (unknown). There is a frame target per feature frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from earmark.annotations import LabelTable
from earmark.bags.store import FeatureStore
from earmark.errors import ArgumentError, DataError

_UNKNOWN = -1  # in the int8 table of frame targets, where there is no NaN
Plan = npt.NDArray[np.int64]
"""What to draw: (3, bags), the clip, its variant, and the frame to begin with."""

SLACK = 1.01
"""A clip up to this many times as long as a patch counts as one patch, with the targets of the clip."""

_RESIDENT_SHARE = 0.5  # of the free memory of a GPU that features may take
_AHEAD = 4  # batches prepared ahead of time


@dataclass(frozen=True)
class Batch:
    """Some bags."""

    features: Tensor  # (bags, bands, frames), float32
    mask: Tensor | None  # (bags, frames), True where there is sound; None if no bag is padded
    targets: Tensor  # (bags, classes)
    frame_targets: Tensor | None  # (bags, frames, classes); None if not requested
    filenames: tuple[str, ...]

    def filled_up(self, least: int, silence: float) -> Batch:
        """The same batch, with clips of fewer frames than `least` padded by unmasked silence, as in detection."""
        x, mask, truth = self.features, self.mask, self.frame_targets
        missing = least - x.shape[-1]
        if missing > 0:
            x, mask = F.pad(x, (0, missing), value=silence), None
            if truth is not None:  # repeat the last frame, as for other padded clips
                truth = torch.cat([truth, truth[:, -1:].expand(-1, missing, -1)], 1)
        elif mask is not None:
            mask = mask | (torch.arange(mask.shape[1], device=mask.device) < least)
        return replace(self, features=x, mask=mask, frame_targets=truth)


class Bags:
    """Clips with features and labels, ready to be drawn in batches.

    Clips of the labels without features in the store are left out. Batches are on `device`. Features are copied to a
    GPU if they fit into half of its free memory; otherwise a thread reads them from disk ahead of time. `resident`
    overrides that decision.
    """

    def __init__(
        self,
        store: FeatureStore,
        labels: LabelTable,
        *,
        device: torch.device | str = "cpu",
        resident: bool | None = None,
    ) -> None:
        wanted = labels.filenames  # not in the store's order, which depends on threads
        self.filenames = tuple(name for name in wanted if name in store)
        if not self.filenames:
            why = next((f"; {store.skipped[name]}" for name in wanted if name in store.skipped), "")
            raise DataError(f"none of {len(wanted)} clips has both features in {store.path} and labels{why}")
        self.classes = labels.classes
        self.config = store.config
        self.device = torch.device(device)
        self._entries = [store.entry(name) for name in self.filenames]
        self._variants = store.variants
        if resident is None:
            on_gpu = self.device.type == "cuda"
            resident = on_gpu and store.nbytes < _RESIDENT_SHARE * torch.cuda.mem_get_info(self.device)[0]
        self.is_resident = resident
        self._store = store
        self._rows: Tensor | None = None  # (variants, frames of all clips, bands)
        self._lengths = np.array([entry.frames for entry in self._entries])
        self._longest = int(self._lengths.max())
        if resident:
            rows = np.empty((store.variants, int(self._lengths.sum()), store.config.n_bands), store.dtype)
            ends = self._lengths.cumsum()
            for name, n, end in zip(self.filenames, self._lengths, ends, strict=True):
                rows[:, end - n : end] = store[name]
            self._rows = torch.from_numpy(rows).to(self.device)
        self._frames = torch.from_numpy(self._lengths).to(self.device)
        self._targets = torch.from_numpy(labels.bag_targets(self.filenames)).to(self.device)
        self._starts = self._frames.cumsum(0) - self._frames
        self._activity = _activity(labels, self.filenames, self._lengths, store.config.hop).to(self.device)
        self._taught: Tensor | None = None

    def __len__(self) -> int:
        return len(self.filenames)

    @property
    def durations(self) -> dict[str, float]:
        """Seconds, by file name."""
        pairs = zip(self.filenames, self._entries, strict=True)
        return {name: entry.samples / self.config.rate for name, entry in pairs}

    @property
    def frames(self) -> dict[str, int]:
        """Feature frames, by file name."""
        return dict(zip(self.filenames, self._lengths.tolist(), strict=True))

    def teach(self, targets: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Replace the frame targets of all clips: (frames, classes) by file name, as probabilities."""
        taught = np.concatenate([targets[name] for name in self.filenames]).astype(np.float16)
        self._taught = torch.from_numpy(taught).to(self.device)

    @property
    def is_taught(self) -> bool:
        """Whether frame targets were replaced by `teach`."""
        return self._taught is not None

    def draw(
        self,
        steps: int,
        batch_size: int,
        *,
        patch: float,
        seed: int,
        epoch: int = 0,
        first: int = 0,
        balanced: bool = False,
        min_share: float = 0.1,
        with_frames: bool = True,
        part: tuple[int, int] = (0, 1),
    ) -> Iterator[Batch]:
        """Random patches for training: steps `first` to `steps` of an epoch.

        A clip shorter than the patch is padded and masked. A longer one is cut at random, and the patch is positive for
        the classes active in at least `min_share` of it; its target is unknown for a class that the clip has without
        times. Clips that are longer by a hundredth or less keep their own targets.

        Parameters
        ----------
        patch
            Length in seconds.
        balanced
            Whether to draw a class, each equally often, and then a clip that has it. Otherwise clips are drawn in
            shuffled passes over all of them; variants count as clips.
        part
            (k, n): the k-th of n equal shares of every batch, for n processes; `batch_size` is the whole batch.
        """
        k, n = part
        if batch_size % n:
            raise ArgumentError(f"batch_size {batch_size} cannot be shared equally by {n} processes")
        length, lengths = self._patch_frames(patch), self._lengths
        share = slice(k * batch_size // n, (k + 1) * batch_size // n)

        def plan(step: int) -> Plan:
            rng = np.random.default_rng((seed, epoch, step))
            if balanced:
                items = self._balanced_items(rng, batch_size)
            else:
                items = self._shuffled_items(seed, (epoch * steps + step) * batch_size, batch_size)
            clips, variants = items % len(self), items // len(self)
            offsets = rng.integers(0, np.maximum(lengths[clips] - length, 0), endpoint=True)
            return np.stack([clips, variants, offsets])[:, share]

        needs_mask = bool((lengths < length).any())
        return self._ahead(
            self._batch(plan(step), length, needs_mask, min_share, with_frames) for step in range(first, steps)
        )

    def pieces(
        self, batch_size: int, *, patch: float, min_share: float = 0.1, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """Everything once, for validation: clips longer than a patch in consecutive patches, with targets as in `draw`.

        The last patch of a clip ends with it, and overlaps the one before. A longer clip stays whole if it has a class
        without times, since that class would be unknown in its patches. Clips of similar length share a batch.
        """
        length, lengths = self._patch_frames(patch), self._lengths
        to_cut = (lengths > SLACK * length) & ~self._lacks_times()
        cut = [
            (clip, 0, offset)
            for clip in np.flatnonzero(to_cut)
            for offset in (*range(0, lengths[clip] - length, length), lengths[clip] - length)
        ]
        whole = [(clip, 0, 0) for clip in np.argsort(lengths, kind="stable") if not to_cut[clip]]
        plans = [*_plans(whole, batch_size), *_plans(cut, batch_size)]

        def batch(plan: Plan) -> Batch:
            clips, _, offsets = plan
            longest = length if to_cut[clips[0]] else int(lengths[clips].max())
            needs_mask = bool((lengths[clips] - offsets < longest).any())
            return self._batch(plan, longest, needs_mask, min_share, with_frames=True)

        return self._ahead(batch(plan) for plan in plans[part[0] :: part[1]])

    def windows(
        self, batch_size: int, *, patch: float, multiple: int, leave_out: Container[str] = ()
    ) -> Iterator[tuple[Batch, Plan]]:
        """Every variant of every clip, and which clip, variant and first frame each bag of a batch is.

        Clips whose names are in `leave_out` are left out. Clips longer than a patch are cut into patches that overlap
        by half; they begin at multiples of `multiple`.
        """
        length, lengths = self._patch_frames(patch), self._lengths
        hop = max(multiple, length // 2 // multiple * multiple)
        short: list[tuple[int, int, int]] = []
        long: list[tuple[int, int, int]] = []
        for clip in np.argsort(lengths, kind="stable"):
            if self.filenames[clip] in leave_out:
                continue
            for variant in range(self._variants):
                if lengths[clip] > SLACK * length:
                    long += [(clip, variant, offset) for offset in range(0, lengths[clip] - length + hop, hop)]
                else:
                    short.append((clip, variant, 0))
        for items, most in ((short, self._longest), (long, length)):
            for plan in _plans(items, batch_size):
                left = lengths[plan[0]] - plan[2]
                longest = min(int(left.max()), most)
                yield self._batch(plan, longest, bool((left < longest).any()), 0.0, with_frames=False), plan

    def _patch_frames(self, patch: float) -> int:
        """Feature frames of a patch of this many seconds."""
        return self.config.frames(round(patch * self.config.rate))

    def _lacks_times(self) -> npt.NDArray[np.bool_]:
        """Whether a clip has a class without times: (clips,)."""
        unknown = (self._activity == _UNKNOWN).cpu().numpy()
        somewhere = np.logical_or.reduceat(unknown, self._starts.cpu().numpy(), axis=0)
        return np.asarray((somewhere & (self._targets == 1).cpu().numpy()).any(1))

    def _shuffled_items(self, seed: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Items number `first` and following of an endless sequence of shuffled passes."""
        size = len(self) * self._variants
        numbers = np.arange(first, first + count)
        items = np.empty(count, np.int64)
        for turn in np.unique(numbers // size):
            here = numbers // size == turn
            items[here] = _permutation(seed, int(turn), size)[numbers[here] % size]
        return items

    def _balanced_items(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        targets = self._targets.cpu().numpy()
        positive = [np.flatnonzero(column == 1) for column in targets.T]  # clips of each class
        positive = [clips for clips in positive if len(clips)]
        if not positive:
            raise DataError("no clip is labelled with any class, so classes cannot be drawn equally often")
        clips = np.array([rng.choice(positive[c]) for c in rng.integers(0, len(positive), count)])
        return clips + len(self) * rng.integers(0, self._variants, count)

    def _batch(self, plan: Plan, length: int, needs_mask: bool, min_share: float, with_frames: bool) -> Batch:
        clips, variants, offsets = torch.from_numpy(plan).to(self.device, non_blocking=True)  # one transfer
        frames = (self._frames[clips] - offsets).clamp(max=length)
        steps = torch.arange(length, device=self.device)
        mask = steps < frames[:, None]
        inside = torch.minimum(steps, frames[:, None] - 1) + offsets[:, None]
        rows = inside + self._starts[clips, None]
        x = self._from_disk(plan, length) if self._rows is None else self._rows[variants[:, None], rows]
        x = x.transpose(1, 2).float()
        targets, frame_targets = self._targets[clips], None
        if with_frames or self._longest > length:
            activity = self._activity[rows]
            cut = (self._frames[clips] > SLACK * length)[:, None]
            targets = torch.where(cut, _patch_targets(activity, mask, min_share), targets)
            if with_frames and self._taught is not None:
                frame_targets = self._taught[rows].float()
            elif with_frames:
                frame_targets = activity.float().masked_fill(activity == _UNKNOWN, torch.nan)
        return Batch(
            features=x.masked_fill_(~mask[:, None], self.config.silence) if needs_mask else x,  # x is a copy
            mask=mask if needs_mask else None,
            targets=targets,
            frame_targets=frame_targets,
            filenames=tuple(self.filenames[c] for c in plan[0]),
        )

    def _from_disk(self, plan: Plan, length: int) -> Tensor:
        """Features of patches: (bags, length, bands); values beyond the end of a clip are arbitrary."""
        on_gpu = self.device.type == "cuda"
        kind = torch.float16 if self._store.dtype == np.float16 else torch.float32
        buffer = torch.zeros((plan.shape[1], length, self.config.n_bands), dtype=kind, pin_memory=on_gpu)
        for patch, (clip, variant, offset) in zip(buffer.numpy(), plan.T, strict=True):
            n = min(self._entries[clip].frames - offset, length)
            self._store.read_frames(self.filenames[clip], int(variant), int(offset), patch[:n])
        return buffer.to(self.device, non_blocking=True)

    def _ahead(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; on a GPU with features on disk, prepared ahead of time by a thread."""
        if self.is_resident or self.device.type != "cuda":
            yield from batches
            return
        with ThreadPoolExecutor(1) as pool:
            ahead = deque(pool.submit(next, batches, None) for _ in range(_AHEAD))
            while (batch := ahead.popleft().result()) is not None:
                ahead.append(pool.submit(next, batches, None))
                yield batch


def _plans(items: list[tuple[int, int, int]], batch_size: int) -> Iterator[Plan]:
    """Bags (clip, variant, offset) as the plans of consecutive batches."""
    for i in range(0, len(items), batch_size):
        yield np.array(items[i : i + batch_size], np.int64).T


@lru_cache(maxsize=8)
def _permutation(seed: int, turn: int, size: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng((seed, turn, 0x5EED)).permutation(size)


def _activity(labels: LabelTable, filenames: Iterable[str], lengths: Iterable[int], hop: float) -> Tensor:
    """Frame targets of all clips, one after another, as int8: (frames, classes)."""
    parts = [labels.frame_targets(name, int(n), hop) for name, n in zip(filenames, lengths, strict=True)]
    return torch.from_numpy(np.concatenate([np.where(np.isnan(p), _UNKNOWN, p).astype(np.int8) for p in parts]))


def _patch_targets(activity: Tensor, mask: Tensor, min_share: float) -> Tensor:
    """Targets of patches from their frames: (bags, classes)."""
    inside = mask[..., None]
    active = ((activity == 1) & inside).sum(1)
    unknown = ((activity == _UNKNOWN) & inside).any(1)
    present = active >= (min_share * mask.sum(1, keepdim=True)).clamp(min=1)
    return present.float().masked_fill(unknown & ~present, torch.nan)
