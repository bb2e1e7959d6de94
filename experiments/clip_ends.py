"""The difference between features of clips padded by reflection and those of clips padded with zeros: recipe `paper`.

    python experiments/clip_ends.py [FOLDER]

Prints for ten clips of noise, and for up to 200 sound files below FOLDER, how many frames differ, and by how many
decibels in the frames that do. With scaling "clip" a frame is relative to the loudest one, which is rarely at an end.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from earmark import audio
from earmark.features import FeatureConfig, LogMel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    show("white noise, 10 s", [0.1 * torch.randn(441_000, generator=generator) for _ in range(10)])
    if args.folder:
        paths = list(audio.find(args.folder))
        chosen = paths[:: max(1, len(paths) // 200)][:200]
        sounds = [torch.from_numpy(audio.read(path, rate=44100)) for path in chosen]
        show(f"{len(sounds)} files of {args.folder.name}", [x for x in sounds if len(x) >= 44100])


def show(name: str, sounds: list[torch.Tensor]) -> None:
    zeros, reflect = (LogMel(FeatureConfig(pad_mode=mode)) for mode in ("zeros", "reflect"))
    frames, first, last = [], [], []
    for x in sounds:
        difference = (reflect(x[None]) - zeros(x[None]))[0].abs()
        frames.append(int((difference > 0.01).any(0).sum()))
        first.append(difference[:, 0].numpy())
        last.append(difference[:, -1].numpy())
    print(f"{name}: {np.median(frames):g} frames differ by more than 0.01 dB (median), at most {max(frames)}")
    for place, values in (("first", np.stack(first)), ("last", np.stack(last))):
        print(
            f"  {place} frame: {values.mean():.1f} dB on average, {np.percentile(values, 95):.1f} dB at 95%, "
            f"{values.max():.1f} dB at most"
        )


if __name__ == "__main__":
    main()
