"""Time to read a recording as in detection, by its length: it must grow in proportion.

    python benchmarks/linear.py [--hours 0.5 1 2 4] [--rate 44100] [--folder DIR]

Writes noise of each length as wav at 44,100, 44,056, 48,000 and 22,050 Hz and as opus, cuts it into spans
(`earmark.detection.spans.plan`) and streams each span at the rate of the detector, as `score_recording` does. Prints
seconds of processor time, and the exponent of time against length: 1 is linear, 2 quadratic. Also prints the seconds of
examining and of decoding intact ogg, opus and mp3 files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from earmark import audio
from earmark.audio import intact
from earmark.detection.spans import plan
from earmark.inference.recordings import score_recording
from earmark.inference.scorer import Scorer

KINDS = {"44100": ".wav", "44056": ".wav", "48000": ".wav", "22050": ".wav", "opus": ".opus"}


class Listener(Scorer):
    """A scorer that only receives the sound."""

    classes = ("sound",)
    hop_samples, n_fft, padding, reduction, context = 1024, 2048, 1024, 4, 4
    window, block, fingerprint = 10.0, 60.0, "listener"

    def __init__(self, rate: int) -> None:
        self.rate = rate

    def score(self, samples: audio.Samples) -> np.ndarray:
        """Zeros."""
        return np.zeros((self.frames(len(samples)) // self.reduction, 1), np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, nargs="+", default=[0.5, 1, 2, 4])
    parser.add_argument("--rate", type=int, default=44100, help="of the detector, in Hz")
    parser.add_argument("--folder", type=Path, help="where to write the recordings")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        print(f"{'':8}" + "".join(f"{hours:>9g} h" for hours in arguments.hours) + "   exponent")
        for name, suffix in KINDS.items():
            times = [measure(Path(place), name, suffix, hours, arguments.rate) for hours in arguments.hours]
            exponent = np.polyfit(np.log(arguments.hours), np.log(times), 1)[0] if len(times) > 1 else np.nan
            print(f"{name:8}" + "".join(f"{seconds:>9.2f} s" for seconds in times) + f"   {exponent:.2f}")
        for suffix in (".ogg", ".opus", ".mp3"):
            examined, decoded = cost_of_examining(write_noise(Path(place, f"a{suffix}"), 48000, arguments.hours[0]))
            print(f"{suffix[1:]:8}examined in {examined:.3f} s, decoded in {decoded:.3f} s: {examined / decoded:.1%}")


def measure(folder: Path, name: str, suffix: str, hours: float, rate: int) -> float:
    """Seconds to read all spans of a recording."""
    path = write_noise(folder / f"a{suffix}", int(name) if name.isdigit() else 48000, hours)
    start = time.process_time()
    scorer = Listener(rate)
    for span in plan(path, scorer).spans:
        for _ in score_recording(scorer, path, first=span.first, last=span.last):
            pass
    seconds = time.process_time() - start
    path.unlink()
    return seconds


def write_noise(path: Path, rate: int, hours: float) -> Path:
    """Write a file of repeated ten seconds of noise."""
    noise = 0.1 * np.random.default_rng(0).standard_normal(10 * rate)
    container, subtype = {".opus": ("OGG", "OPUS"), ".ogg": ("OGG", "VORBIS")}.get(path.suffix, (path.suffix[1:], None))
    with soundfile.SoundFile(path, "w", rate, 1, subtype, format=container.upper()) as file:
        for _ in range(round(hours * 360)):
            file.write(noise)
    return path


def cost_of_examining(path: Path) -> tuple[float, float]:
    """Seconds to examine a file, and to decode it with libsndfile alone."""
    start = time.process_time()
    intact.examine(path, with_flac=False)
    examined = time.process_time()
    with soundfile.SoundFile(path) as file:
        while len(file.read(1 << 18, dtype="float32")):
            pass
    return examined - start, time.process_time() - examined


if __name__ == "__main__":
    main()
