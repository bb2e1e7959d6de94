"""URBAN-SED whose training soundscapes are made from fewer recordings.

    python experiments/fewer_sources.py EVENTS SOUNDBANK SOUNDSCAPES OUT --share 0.5

Of the recordings that training soundscapes draw from, a share of each class is kept; all slices of a recording go
together, since they sound alike. The training soundscapes of EVENTS are made again with what is left: same events, same
times, same labels, other sound. Soundscapes to validate and to test are those of SOUNDSCAPES, by links, so that only
the training sound differs. `experiments/sources.toml` trains on it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from earmark.synthesis import plan_from, synthesise
from earmark.synthesis.sources import FolderBank


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("events", "soundbank", "soundscapes", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int)
    told = parser.parse_args()
    bank = thinned(told.soundbank.resolve(), told.out.with_name(told.out.name + "-bank"), told.share, told.seed)
    plan = [soundscape for soundscape in plan_from(told.events) if soundscape.split == "train"]
    made = synthesise(plan, told.out, bank=bank, workers=told.workers)
    for kind in ("audio", "annotations"):
        for split in ("validate", "test"):
            link = told.out / kind / split
            if link.is_dir() and not link.is_symlink():
                link.rmdir()  # synthesise leaves it empty
            if not link.exists():
                link.symlink_to((told.soundscapes / kind / split).resolve())
    print(f"{told.out}: {made.clips['train']} soundscapes to train on, {made.substituted} events with another source")


def thinned(soundbank: Path, out: Path, share: float, seed: int) -> Path:
    """A bank of links in which a share of the recordings is left to the split `train`, class by class."""
    whole = FolderBank(soundbank)
    kept = recordings(whole, share, seed)
    for label in whole.classes:
        names = [name for name in whole.sources(label, "train") if recording(name) in kept[label]]
        names += [name for split in ("validate", "test") for name in whole.sources(label, split)]
        for name in names:
            link = out / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(soundbank / name)
    counts = [sum(map(len, own.values())) for own in (kept, recordings(whole))]
    print(f"{out}: {counts[0]} of {counts[1]} recordings to train on")
    return out


def recordings(bank: FolderBank, share: float = 1.0, seed: int = 0, split: str = "train") -> dict[str, set[str]]:
    """A share of the recordings that soundscapes of a split draw from, by class."""
    rng, found = np.random.default_rng(seed), {}
    for label in bank.classes:
        order = rng.permutation(sorted({recording(name) for name in bank.sources(label, split)}))
        found[label] = set(order[: max(1, round(share * len(order)))].tolist())
    return found


def recording(name: str) -> str:
    """The recording that a slice of UrbanSound8K was cut from: its name is RECORDING-CLASS-OCCURRENCE-SLICE."""
    return Path(name).stem.split("-")[0]


if __name__ == "__main__":
    main()
