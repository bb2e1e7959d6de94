"""Blocks of time: what the bootstrap resamples where a few long recordings are evaluated.

With one recording, or a handful, resampling recordings says little about how much scores would vary. Blocks of time
are resampled instead. They are much longer than events, so that neighbouring blocks are nearly independent.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import count, takewhile

from earmark.annotations import Label, LabelTable
from earmark.counts import Counts
from earmark.evaluation import segment

FEW_CLIPS = 10
"""With fewer clips, blocks are resampled."""

_BLOCKS = 40  # in all, unless they would be shorter than `_SHORTEST`
_SHORTEST = 10.0  # seconds


def block_length(durations: Mapping[str, float], segment: float) -> float | None:
    """Length of a block in seconds, a multiple of the segment; None if there are many clips, or too few blocks."""
    total = sum(durations.values())
    length = segment * math.ceil(max(total / _BLOCKS, _SHORTEST) / segment)
    return length if len(durations) < FEW_CLIPS and total / length >= FEW_CLIPS else None


def block_counts(
    reference: LabelTable, estimate: LabelTable, *, segment_length: float, block: float, durations: Mapping[str, float]
) -> Counts:
    """Counts of segments, block by block; their sums are those of the clips, since blocks are whole segments."""
    names = {
        f"{name}@{k}": min(block, seconds - k * block)
        for name, seconds in durations.items()
        for k in range(math.ceil(seconds / block))
    }
    cut = [
        table.replace(rows=list(_cut(table, block, names)), filenames=names, splits={})
        for table in (reference, estimate)
    ]
    return segment.counts(*cut, segment=segment_length, durations=names)


def _cut(table: LabelTable, block: float, names: Mapping[str, float]) -> Iterator[Label]:
    """Rows of blocks; what is known of a class in a clip is known of it in every block of the clip."""
    unknown = {(row.filename, row.label) for row in table if row.present is None}
    # a class with events is absent outside them, also in blocks without events
    timed = {(row.filename, row.label) for row in table if row.is_event} - unknown
    active: set[tuple[str, str]] = set()  # blocks and classes with events
    for row in table:
        if row.onset is None or row.offset is None:
            if (row.filename, row.label) not in timed:
                yield from (row._replace(filename=name) for name in _blocks_of(row.filename, names))
            continue
        first, last = int(row.onset // block), int(row.offset // block)
        for k in range(first, last + 1):
            name = f"{row.filename}@{k}"
            onset, offset = max(row.onset - k * block, 0.0), min(row.offset - k * block, block)
            if name in names and (offset > onset or first == last):
                yield row._replace(filename=name, onset=onset, offset=offset)
                if row.is_event:
                    active.add((name, row.label))
    for filename, label in () if table.complete else sorted(timed):
        silent = (name for name in _blocks_of(filename, names) if (name, label) not in active)
        yield from (Label(name, None, None, label, False) for name in silent)


def _blocks_of(filename: str, names: Mapping[str, float]) -> Iterator[str]:
    """Names of the blocks of a clip."""
    return takewhile(names.__contains__, (f"{filename}@{k}" for k in count()))
