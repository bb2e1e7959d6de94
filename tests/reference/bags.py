"""What the label of a patch is, said as slowly and plainly as possible."""

import numpy as np


def patch_targets(frames, min_share):
    """Targets (classes,) of a patch shorter than its clip, from the targets of its frames (frames, classes)."""
    targets = []
    for column in frames.T:
        active = sum(1 for value in column if value == 1)
        unknown = any(np.isnan(value) for value in column)
        if active > 0 and active >= min_share * len(column):
            targets.append(1.0)
        else:
            targets.append(np.nan if unknown else 0.0)
    return np.array(targets, np.float32)
