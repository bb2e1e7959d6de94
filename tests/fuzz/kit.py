"""Valid files for generators to damage: made once for a run of the fuzzer, and copied into the folders of cases.

They are the same for the same machine and packages, so that a number always stands for the same input.
"""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

ROOT = Path()  # set by the harness
RATE = 8000
SETTINGS: dict[str, Any] = {
    "features.rate": RATE,
    "n_fft": 512,
    "hop_samples": 256,
    "n_bands": 32,
    "scaling": "fixed",
    "width": 0.1,
    "epochs": 2,
    "steps": 2,
    "batch_size": 4,
    "patch": 1.0,
}
KINDS = {"wav": "PCM_16", "flac": "PCM_16", "ogg": "VORBIS", "opus": "OPUS", "mp3": "MPEG_LAYER_III", "aiff": "PCM_16"}
_TIME = 1_700_000_000  # modification time of recordings

_BUILDERS: dict[str, Callable[[Path], None]] = {}


def _builds(build: Callable[[Path], None]) -> Callable[[Path], None]:
    _BUILDERS[build.__name__.strip("_")] = build
    return build


def part(name: str) -> Path:
    """A folder of the kit, which is read only."""
    folder = ROOT / name
    if folder.exists():
        return folder
    with FileLock(ROOT.with_name(f"{name}.lock")):
        if not folder.exists():
            draft = ROOT.with_name(f"{name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            before = Path.cwd()
            draft.mkdir(parents=True)
            os.chdir(draft)
            _BUILDERS[name](draft)
            os.chdir(before)
            ROOT.mkdir(exist_ok=True)
            draft.rename(folder)
    return folder


def copy(name: str, to: str | None = None) -> Path:
    """A copy of a folder of the kit in the current folder."""
    target = Path(to or name)
    shutil.copytree(part(name), target)
    return target


def adopt(path: Path) -> None:
    """Enter a file in the manifest of its folder, as if earmark had written it."""
    line = {"file": path.name, "sha256": [sha256(path.read_bytes()).hexdigest()]}
    with path.with_name(".earmark.jsonl").open("a") as manifest:
        manifest.write(json.dumps(line) + "\n")


@cache
def sound(seconds: float = 1.0, rate: int = RATE) -> Any:
    """A tone in noise: (samples,)."""
    rng = np.random.default_rng(1)
    t = np.arange(round(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * 500 * t) * (t % 1 > 0.4) + 0.01 * rng.normal(size=len(t))).astype(np.float32)


@cache
def audio_bytes(kind: str, seconds: float = 1.0, rate: int = RATE, subtype: str | None = None) -> bytes:
    """A file of a kind: a key of `KINDS`."""
    import soundfile

    file = BytesIO()
    container = {"opus": "OGG", "aiff": "AIFF"}.get(kind, kind.upper())
    with closing(soundfile.SoundFile(file, "w", rate, 1, subtype or KINDS[kind], format=container)) as writer:
        writer.write(sound(seconds, rate))
    content = file.getvalue()
    return resealed(content, serial=7) if container == "OGG" else content


def resealed(content: bytes, *, serial: int | None = None) -> bytes:
    """An ogg file with right checksums in all pages that can be found, and another serial number."""
    data, at = bytearray(content), 0
    while (at := data.find(b"OggS", at)) >= 0 and at + 27 <= len(data):
        segments = data[at + 26]
        size = 27 + segments + sum(data[at + 27 : at + 27 + segments])
        if serial is not None:
            data[at + 14 : at + 18] = serial.to_bytes(4, "little")
        data[at + 22 : at + 26] = bytes(4)
        data[at + 22 : at + 26] = _crc(bytes(data[at : at + size])).to_bytes(4, "little")
        at += size
    return bytes(data)


def _crc(page: bytes) -> int:
    value = 0
    for byte in page:
        value = (value << 8) & 0xFFFFFFFF ^ _crc_table()[value >> 24 ^ byte]
    return value


@cache
def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)
        table.append(value & 0xFFFFFFFF)
    return table


@_builds
def _recordings(folder: Path) -> None:
    """Twelve clips of a second, with labels."""
    rng = np.random.default_rng(7)
    rows = ["filename\tonset\toffset\tlabel\tsplit"]
    for i in range(12):
        name, split = f"{i:02}.wav", ("train", "train", "validate", "test")[i % 4]
        samples = 0.001 * rng.normal(size=RATE)
        rows.append(f"{name}\t\t\t\t{split}")
        for k, (label, pitch) in enumerate((("hum", 300), ("click", 2500))):
            if i >> k & 1 or (i >> 2) == k:
                t = np.arange(RATE // 4, RATE // 2)
                samples[t] += 0.3 * np.sin(2 * np.pi * pitch * t / RATE)
                rows.append(f"{name}\t0.25\t0.5\t{label}\t{split}")
        _write_wav(folder / name, samples)
    (folder / "labels.tsv").write_text("\n".join(rows) + "\n")


def _write_wav(path: Path, samples: Any) -> None:
    from earmark import audio

    audio.write(path, samples.astype(np.float32), RATE)
    os.utime(path, (_TIME, _TIME))


@_builds
def _run(folder: Path) -> None:
    """A training run of two short epochs, with its features."""
    from earmark import api

    data = part("recordings")
    api.train(data, "run", recipe="quick", settings=SETTINGS, compute=api.Compute(cache="cache"))
    shutil.rmtree("run/figures")
    log = Path("run/log.jsonl")
    lines = [{**json.loads(line), "clips_per_second": 1.0} for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    adopt(log)


@_builds
def _evaluation(folder: Path) -> None:
    """An evaluation of the run."""
    from earmark import api

    api.evaluate(part("run") / "run", part("recordings"), out="evaluation")
    shutil.rmtree("evaluation/figures")


@_builds
def _job(folder: Path) -> None:
    """A detection job over four recordings, with kept scores."""
    from earmark.detection.job import JobOptions, run_job

    files = [part("recordings") / f"{i:02}.wav" for i in range(4)]
    run_job(part("run") / "run", files, "out", JobOptions(keep_scores=True), workers=1)


@_builds
def _onnx(folder: Path) -> None:
    """The model of the run, exported."""
    from earmark.export import export_model

    export_model(part("run") / "run", Path("model.onnx"))
