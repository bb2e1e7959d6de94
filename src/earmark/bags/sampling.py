"""Batches of bags, drawn from a feature store.

What step `s` of epoch `e` draws depends on the seed, `e` and `s` alone: not on what was drawn before, nor on the number
of processes. So a resumed run goes on exactly where it was cut, and several processes share out what one would draw.

Targets are 1 (present), 0 (absent) and NaN (unknown). Frame targets stand on the grid of the features.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from queue import Queue
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from earmark.annotations import LabelTable
from earmark.bags.store import FeatureStore
from earmark.errors import ArgumentError, DataError

__all__ = ["SLACK", "Bags", "Batch"]

_UNKNOWN = -1  # in the int8 table of frame targets, where there is no NaN
Plan = npt.NDArray[np.int64]
"""What to draw: (3, bags), the clip, its variant, and the frame to begin with."""

SLACK = 1.01
"""A clip up to so many times as long as a patch is not called longer: what is heard in it is heard in the patch."""

_RESIDENT_SHARE = 0.5  # of the free memory of a GPU that features may take


@dataclass(frozen=True)
class Batch:
    """Some bags.

    Attributes
    ----------
    features : (bags, bands, frames), float32
    mask : (bags, frames), bool, True where there is sound; None where no bag is padded
    targets : (bags, classes)
    frame_targets : (bags, frames, classes); None where they were not asked for
    filenames : of the clips
    """

    features: Tensor
    mask: Tensor | None
    targets: Tensor
    frame_targets: Tensor | None
    filenames: tuple[str, ...]

    def filled_up(self, least: int, silence: float) -> Batch:
        """The same, in which clips of fewer frames than `least` are followed by silence that counts as sound.

        Detection pads a clip that is too short for one output frame with silence, and its network hears that; behind a
        mask it would not, and would say something else. What the last windows still have of the sound behind its last
        frame is not among the features, so that the result is that of detection up to this little.
        """
        x, mask, truth = self.features, self.mask, self.frame_targets
        missing = least - x.shape[-1]
        if missing > 0:
            x, mask = F.pad(x, (0, missing), value=silence), None
            if truth is not None:  # the last frame holds, as where other clips are padded
                truth = torch.cat([truth, truth[:, -1:].expand(-1, missing, -1)], 1)
        elif mask is not None:
            mask = mask | (torch.arange(mask.shape[1], device=mask.device) < least)
        return replace(self, features=x, mask=mask, frame_targets=truth)


class Bags:
    """Clips with features and labels, ready to be drawn in batches.

    Parameters
    ----------
    store
        Features. Clips that it skipped are left out here too.
    labels
        Labels of the clips; files without features are left out.
    filenames
        Which clips, by default all that have both features and labels.
    device
        Where batches go. On a GPU the features themselves move there if they take no more than half of the memory that
        is free; otherwise a thread reads them from the disk ahead of time.
    resident
        True or False to decide that by hand.

    Attributes
    ----------
    is_resident
        Whether the features are in the device's memory.
    """

    def __init__(
        self,
        store: FeatureStore,
        labels: LabelTable,
        filenames: Iterable[str] | None = None,
        *,
        device: torch.device | str = "cpu",
        resident: bool | None = None,
    ) -> None:
        listed = set(labels.filenames)
        wanted = labels.filenames if filenames is None else tuple(filenames)  # not the store's order, which is chance
        self.filenames = tuple(name for name in wanted if name in store and name in listed)
        if not self.filenames:
            why = next((f"; {store.skipped[name]}" for name in wanted if name in store.skipped), "")
            raise DataError(f"none of {len(wanted)} clips has both features in {store.path} and labels{why}")
        self.classes = labels.classes
        self.config = store.config
        self.device = torch.device(device)
        self._entries = [store.entry(name) for name in self.filenames]
        self._variants = store.variants
        if resident is None:
            resident = self.device.type == "cuda" and store.rows.nbytes < _RESIDENT_SHARE * _free_memory(self.device)
        self.is_resident = resident
        self._rows: Any = store.rows
        self._lengths = np.array([entry.frames for entry in self._entries])
        self._longest = int(self._lengths.max())
        if resident:
            own = np.concatenate([store[name] for name in self.filenames], axis=1)
            self._rows = torch.from_numpy(own).to(self.device)
        self._frames = torch.from_numpy(self._lengths).to(self.device)
        self._targets = torch.from_numpy(labels.bag_targets(self.filenames)).to(self.device)
        self._starts = self._frames.cumsum(0) - self._frames
        self._activity = _activity(labels, self.filenames, self._lengths, store.config.hop).to(self.device)

    def __len__(self) -> int:
        return len(self.filenames)

    @property
    def durations(self) -> dict[str, float]:
        """Seconds, by file name."""
        pairs = zip(self.filenames, self._entries, strict=True)
        return {name: entry.samples / self.config.rate for name, entry in pairs}

    @property
    def targets(self) -> Tensor:
        """Targets of whole clips: (clips, classes)."""
        return self._targets

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
        the classes active in at least `min_share` of it. Where a class is somewhere in a longer clip and nobody knows
        when, the patch's target is unknown. Clips that are longer by a hundredth or less keep their own targets.

        Parameters
        ----------
        patch
            Length in seconds.
        balanced
            Whether every class is drawn equally often, and then a clip that has it. Otherwise clips pass by in shuffled
            order, all of them before any comes again; pitch variants count as clips of their own.
        with_frames
            Whether targets of frames are wanted.
        part
            (k, n): the k-th of n equal shares of every batch, for n processes. `batch_size` is that of all together.
        """
        k, n = part
        if batch_size % n:
            raise ArgumentError(f"batch_size {batch_size} cannot be shared equally by {n} processes")
        length = self.config.frames(round(patch * self.config.rate))
        share = slice(k * batch_size // n, (k + 1) * batch_size // n)

        lengths = self._lengths

        def plan(step: int) -> Plan:
            rng = np.random.default_rng((seed, epoch, step))
            items = (
                self._balanced_items(rng, batch_size)
                if balanced
                else self._shuffled_items(seed, (epoch * steps + step) * batch_size, batch_size)
            )
            clips, variants = items % len(self), items // len(self)
            offsets = rng.integers(0, np.maximum(lengths[clips] - length, 0), endpoint=True)
            return np.stack([clips, variants, offsets])[:, share]

        needs_mask = bool((lengths < length).any())
        return self._ahead(
            self._batch(plan(step), length, needs_mask, min_share, with_frames) for step in range(first, steps)
        )

    def whole(self, batch_size: int, *, part: tuple[int, int] = (0, 1)) -> Iterator[Batch]:
        """Every clip once, whole and as it is. Clips of like length go together."""
        every = np.argsort(self._lengths, kind="stable")
        return self._in_turn(self._whole(every, batch_size)[part[0] :: part[1]], min_share=0.0)

    def pieces(
        self, batch_size: int, *, patch: float, min_share: float = 0.1, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """Everything once, for validation: clips longer than a patch in patches end to end, as `draw` would cut them.

        The last patch of a clip ends with it, and overlaps the one before. A longer clip stays whole if it has a class
        and nobody knows when: its patches would say nothing about it.
        """
        length, lengths = self.config.frames(round(patch * self.config.rate)), self._lengths
        to_cut = (lengths > SLACK * length) & ~self._has_lost_times()
        cut = [
            (clip, 0, offset)
            for clip in np.flatnonzero(to_cut)
            for offset in (*range(0, lengths[clip] - length, length), lengths[clip] - length)
        ]
        stay = np.array([clip for clip in np.argsort(lengths, kind="stable") if not to_cut[clip]], np.int64)
        groups = [np.array(cut[i : i + batch_size], np.int64).T for i in range(0, len(cut), batch_size)]
        plans = self._whole(stay, batch_size) + [(group, length) for group in groups]
        return self._in_turn(plans[part[0] :: part[1]], min_share)

    def _whole(self, clips: npt.NDArray[np.int64], batch_size: int) -> list[tuple[Plan, int]]:
        """Plans for whole clips, and the frames of the longest in each."""
        groups = [clips[i : i + batch_size] for i in range(0, len(clips), batch_size)]
        zeros = [np.zeros_like(group) for group in groups]
        return [(np.stack([g, z, z]), int(self._lengths[g].max())) for g, z in zip(groups, zeros, strict=True)]

    def _in_turn(self, plans: list[tuple[Plan, int]], min_share: float) -> Iterator[Batch]:
        def batch(plan: Plan, length: int) -> Batch:
            needs_mask = bool((self._lengths[plan[0]] - plan[2] < length).any())
            return self._batch(plan, length, needs_mask, min_share, with_frames=True)

        return self._ahead(batch(plan, length) for plan, length in plans)

    def _has_lost_times(self) -> npt.NDArray[np.bool_]:
        """Whether a clip has a class, and nobody knows when: (clips,)."""
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
            order = self._order(seed, int(turn), size)
            items[here] = order[numbers[here] % size]
        return items

    def _order(self, seed: int, turn: int, size: int) -> npt.NDArray[np.int64]:
        key = (seed, turn, size)
        if getattr(self, "_order_key", None) != key:
            self._order_key = key
            self._order_now = np.random.default_rng((seed, turn, 0x5EED)).permutation(size)
        return self._order_now

    def _balanced_items(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        targets = self._targets.cpu().numpy()
        heard = [clips for c in range(len(self.classes)) if len(clips := np.flatnonzero(targets[:, c] == 1))]
        if not heard:
            raise DataError("no clip is labelled with any class, so classes cannot be drawn equally often")
        clips = np.array([rng.choice(heard[c]) for c in rng.integers(0, len(heard), count)])
        return clips + len(self) * rng.integers(0, self._variants, count)

    def _batch(self, plan: Plan, length: int, needs_mask: bool, min_share: float, with_frames: bool) -> Batch:
        clips, variants, offsets = torch.from_numpy(plan).to(self.device, non_blocking=True)  # one transfer
        frames = (self._frames[clips] - offsets).clamp(max=length)
        steps = torch.arange(length, device=self.device)
        mask = steps < frames[:, None]
        inside = torch.minimum(steps, frames[:, None] - 1) + offsets[:, None]
        rows = inside + self._starts[clips, None]
        x = self._rows[variants[:, None], rows] if isinstance(self._rows, Tensor) else self._from_disk(plan, length)
        x = x.transpose(1, 2).float()
        targets, frame_targets = self._targets[clips], None
        if with_frames or self._longest > length:
            activity = self._activity[rows]
            cut = (self._frames[clips] > SLACK * length)[:, None]
            targets = torch.where(cut, _patch_targets(activity, mask, min_share), targets)
            if with_frames:
                frame_targets = activity.float().masked_fill(activity == _UNKNOWN, torch.nan)
        return Batch(
            features=x.masked_fill(~mask[:, None], -self.config.range_db) if needs_mask else x,
            mask=mask if needs_mask else None,
            targets=targets,
            frame_targets=frame_targets,
            filenames=tuple(self.filenames[c] for c in plan[0]),
        )

    def _from_disk(self, plan: Plan, length: int) -> Tensor:
        """Features of patches: (bags, length, bands); what lies beyond a clip's end is left as it comes."""
        on_gpu = self.device.type == "cuda"
        kind = torch.float16 if self._rows.dtype == np.float16 else torch.float32
        buffer = torch.zeros((plan.shape[1], length, self.config.n_bands), dtype=kind, pin_memory=on_gpu)
        for patch, (clip, variant, offset) in zip(buffer.numpy(), plan.T, strict=True):
            entry = self._entries[clip]
            start, n = entry.start + variant * entry.frames + offset, min(entry.frames - offset, length)
            patch[:n] = self._rows[start : start + n]
        return buffer.to(self.device, non_blocking=True)

    def _ahead(self, batches: Iterator[Batch], depth: int = 4) -> Iterator[Batch]:
        """The same batches; on a GPU with features on disk, prepared ahead of time by a thread."""
        if self.is_resident or self.device.type != "cuda":
            return batches
        return _prepared(batches, depth)


def _prepared(batches: Iterator[Batch], depth: int) -> Iterator[Batch]:
    queue: Queue[Batch | BaseException | None] = Queue(depth)
    stop = threading.Event()

    def work() -> None:
        try:
            for batch in batches:
                queue.put(batch)
                if stop.is_set():
                    return
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        while not queue.empty():
            queue.get_nowait()


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


def _free_memory(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)
