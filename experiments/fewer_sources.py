"""URBAN-SED whose training soundscapes are made from fewer recordings.

    python experiments/fewer_sources.py EVENTS SOUNDBANK SOUNDSCAPES OUT --share 0.5

Of the recordings that training soundscapes use, a share of each class is kept, with all slices of a recording, since
these sound alike. The training soundscapes of EVENTS are synthesised from them: events, times and labels are the same,
the sound differs. Soundscapes for validation and test are links to those of SOUNDSCAPES.
`experiments/sources.toml` trains on the result.
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
    arguments = parser.parse_args()
    bank = thinned(
        arguments.soundbank.resolve(),
        arguments.out.with_name(arguments.out.name + "-bank"),
        arguments.share,
        arguments.seed,
    )
    plan = [soundscape for soundscape in plan_from(arguments.events) if soundscape.split == "train"]
    made = synthesise(plan, arguments.out, bank=bank, workers=arguments.workers)
    for kind in ("audio", "annotations"):
        for split in ("validate", "test"):
            link = arguments.out / kind / split
            if link.is_dir() and not link.is_symlink():
                link.rmdir()  # synthesise leaves it empty
            if not link.exists():
                link.symlink_to((arguments.soundscapes / kind / split).resolve())
    print(
        f"{arguments.out}: {made.clips['train']} soundscapes to train on, {made.substituted} events with another source"
    )


def thinned(soundbank: Path, out: Path, share: float, seed: int) -> Path:
    """A bank of links with a share of the recordings of each class in the split `train`."""
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
    n_kept, n_all = (sum(map(len, by_class.values())) for by_class in (kept, recordings(whole)))
    print(f"{out}: {n_kept} of {n_all} recordings to train on")
    return out


def recordings(bank: FolderBank, share: float = 1.0, seed: int = 0, split: str = "train") -> dict[str, set[str]]:
    """A share of the recordings that soundscapes of a split draw from, by class."""
    rng = np.random.default_rng(seed)
    chosen = {}
    for label in bank.classes:
        order = rng.permutation(sorted({recording(name) for name in bank.sources(label, split)}))
        chosen[label] = set(order[: max(1, round(share * len(order)))].tolist())
    return chosen


def recording(name: str) -> str:
    """The recording that a slice of UrbanSound8K was cut from: its name is RECORDING-CLASS-OCCURRENCE-SLICE."""
    return Path(name).stem.split("-")[0]


if __name__ == "__main__":
    main()
