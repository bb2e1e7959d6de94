"""Live input: raw samples and wav from a pipe, and growing files."""

from io import BytesIO
from pathlib import Path
from random import Random

from fuzz import kit
from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged

_RATES = (8000, 16000, 44100, 1000, 2_000_000, 0, -1, 999, 2**40)
_ENCODINGS = ("u8", "s16", "s24", "s32", "f32", "f64", "mp3")


@reader
def make(rng: Random) -> Case:
    """Sound that arrives in pieces, and is listened to."""
    write_wav = rng.random() < 0.6
    if write_wav:
        content, note = _wav(rng)
        options: tuple[int, int, str] | None = None
    else:
        size = rng.choice((0, 1, 7, 16000, 64001))
        content, note = rng.randbytes(size) if rng.random() < 0.6 else bytes(size), f"{size} bytes"
        options = rng.choice(_RATES[:3] * 3 + _RATES), rng.choice((1, 1, 2, 8, 0, 255, 70000)), rng.choice(_ENCODINGS)
    is_pipe = rng.random() < 0.6
    path = write("live.wav" if write_wav else "live.raw", content)
    block = rng.choice((0.5, 0.5, 0.01, 5.0, 0.0, 1e-9, 1e9))
    command = ["detect", str(kit.part("run") / "run"), "-" if is_pipe else path.name, "--live", "--block", str(block)]
    command += [] if is_pipe else ["--idle", "0.1"]
    if options:
        rate, channels, encoding = map(str, options)
        command += ["--rate", rate, "--channels", channels, "--encoding", encoding]
    about = f"{'pipe' if is_pipe else 'growing file'}, {options or 'wav'}, blocks of {block} s: {note}"
    stdin = path.name if is_pipe else None
    return Case(about, lambda: listen_to(path, options, block, is_pipe), command=command, stdin=stdin)


def listen_to(path: Path, options: tuple[int, int, str] | None, block: float, is_pipe: bool) -> None:
    """Detect in sound as it arrives."""
    from earmark import load
    from earmark.audio.pcm import PcmFormat, from_growing, from_pipe
    from earmark.detection.live import listen
    from earmark.events import Decoder

    scorer = load(kit.part("run") / "run").scorer
    format = PcmFormat(*options) if options else None
    pipe = BytesIO(path.read_bytes())
    sound = from_pipe(pipe, "a pipe", format) if is_pipe else from_growing(path, format, idle=0.0)
    for event in listen(scorer, sound.blocks(scorer.rate, block), Decoder(threshold=0.4), name="live"):
        assert 0 <= event.onset <= event.offset, f"{event.onset} to {event.offset}"


def _wav(rng: Random) -> tuple[bytes, str]:
    subtype = rng.choice(("PCM_16", "PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"))
    return damaged(rng, kit.audio_bytes("wav", rng.choice((0.01, 1.0)), rng.choice((8000, 44100)), subtype))
