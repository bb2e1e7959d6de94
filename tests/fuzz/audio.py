"""Audio files: damaged containers, wrong suffixes, several streams, extreme headers."""

from random import Random

import numpy as np

from fuzz import kit
from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged

_RATES = (None, None, 8000, 16000, 22050, 44056)
_HEADERS = {  # fields of headers: kind, place, bytes, byte order
    "wav": ((4, 4), (16, 4), (20, 2), (22, 2), (24, 4), (28, 4), (32, 2), (34, 2), (40, 4)),
    "aiff": ((4, 4), (16, 4), (20, 2), (22, 4), (26, 2), (28, 2), (30, 8), (42, 4), (46, 4)),
    "flac": ((4, 4), (8, 2), (10, 2), (12, 3), (15, 3), (18, 3), (21, 5), (26, 8)),
    "ogg": ((5, 1), (6, 8), (18, 4), (26, 1), (39, 1), (40, 4), (56, 1)),
    "opus": ((5, 1), (6, 8), (18, 4), (37, 1), (38, 2), (40, 4), (44, 2), (46, 1)),
    "mp3": ((0, 2), (2, 1), (3, 1), (36, 4), (40, 4), (44, 4), (48, 4)),
}


@reader
def make(rng: Random) -> Case:
    """A damaged file, read whole, in part and as a stream."""
    kind = rng.choice(sorted(kit.KINDS))
    content, note = _CONTENTS[rng.randrange(len(_CONTENTS))](rng, kind)
    suffix = rng.choice(sorted(kit.KINDS)) if rng.random() < 0.1 else kind
    path = write(f"sound.{suffix}", content)
    rate, onset = rng.choice(_RATES), rng.choice((0.0, 0.0, 0.3, 0.999))
    command = ["detect", str(kit.part("run") / "run"), path.name, "--json"]
    return Case(f"{kind} as .{suffix}: {note}", lambda: check(path.name, rate, onset), command=command)


def check(path: str, rate: int | None, onset: float) -> None:
    """Read a file; what is accepted must be consistent."""
    from earmark import audio

    check_kept(path)
    about = audio.info(path)
    whole = audio.read(path, rate=rate)
    assert np.isfinite(whole).all(), "samples that are not finite"
    assert len(whole) == about.samples_at(rate or about.rate), "another length than the header's"
    blocks = np.concatenate(list(audio.stream(path, rate=rate, block=0.1)))
    assert np.array_equal(blocks, whole), "a stream with other samples"
    if onset < about.duration:
        excerpt = audio.read(path, rate=rate, onset=onset)
        same, loudest = whole[len(whole) - len(excerpt) :], max(1.0, float(np.abs(whole).max()))
        assert np.allclose(excerpt, same, rtol=0, atol=1e-6 * loudest), "an excerpt with other samples"


def check_kept(path: str) -> None:
    """Read what is intact, with silence in the gaps, a block at a time."""
    from earmark import audio
    from earmark.errors import DataError

    try:
        about = audio.info(path, damaged="keep")
        samples = sum(len(block) for block in audio.stream(path, block=60.0, damaged="keep"))
    except DataError:
        return
    assert samples == about.samples, "another length than the header's"


def _damaged_bytes(rng: Random, kind: str) -> tuple[bytes, str]:
    content, note = damaged(rng, _valid(rng, kind))
    if kind in ("ogg", "opus") and rng.random() < 0.5:
        return kit.resealed(content), f"{note}, with right checksums"
    return content, note


def _extreme_header(rng: Random, kind: str) -> tuple[bytes, str]:
    content = bytearray(kit.audio_bytes(kind))
    notes = []
    for at, size in rng.sample(_HEADERS[kind], rng.choice((1, 1, 2))):
        number = rng.choice((0, 1, 2, 3, 255, 1 << 8 * size - 1, (1 << 8 * size) - 1, (1 << 8 * size - 1) - 1, 65535))
        number %= 1 << 8 * size
        content[at : at + size] = number.to_bytes(size, "little" if kind in ("wav", "ogg", "opus") else "big")
        notes.append(f"{number} at byte {at}")
    return (kit.resealed(bytes(content)) if kind in ("ogg", "opus") else bytes(content)), ", ".join(notes)


def _several_streams(rng: Random, kind: str) -> tuple[bytes, str]:
    other = rng.choice(sorted(kit.KINDS))
    second = kit.audio_bytes(other, 0.5)
    if other in ("ogg", "opus") and rng.random() < 0.5:
        second = kit.resealed(second, serial=8)
    return kit.audio_bytes(kind) + second, f"followed by {other}"


def _strange_start(rng: Random, kind: str) -> tuple[bytes, str]:
    start = rng.choice((b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f", b"RIFF\xff\xff\xff\xffWAVE", b"fLaC", b"OggS", b"\xff\xfb"))
    content = rng.randbytes(rng.choice((0, 10, 3000))) + kit.audio_bytes(kind)[rng.randrange(100) :]
    return start + content, f"after {start!r}"


def _foreign(rng: Random, kind: str) -> tuple[bytes, str]:
    return rng.choice(((b"", "empty"), (bytes(5000), "zeros"), (rng.randbytes(5000), "noise"), (b"{}\n", "text")))


def _odd_samples(rng: Random, kind: str) -> tuple[bytes, str]:
    samples = np.full(800, rng.choice((np.nan, np.inf, 1e30, 1e-42, 2.0)), "<f4")
    valid = bytearray(kit.audio_bytes("wav", subtype="FLOAT"))
    valid[-3200:] = samples.tobytes()
    return bytes(valid), f"wav with samples of {samples[0]}"


_CONTENTS = (_damaged_bytes,) * 6 + (_extreme_header,) * 4 + (_several_streams, _strange_start, _foreign, _odd_samples)


def _valid(rng: Random, kind: str) -> bytes:
    seconds = rng.choice((0.01, 1.0, 1.0, 3.0))
    rate = rng.choice((8000, 48000)) if kind == "opus" else rng.choice((8000, 22050, 44100))
    return kit.audio_bytes(kind, seconds, rate)
