"""Many soundscapes, on all cores, into a folder:

    OUT/audio/SPLIT/NAME.flac           the sound: 16 bits, mono
    OUT/annotations/SPLIT/NAME.jams     the specification, as Scaper writes it, with the sources really used
    OUT/labels.tsv                      the truth of all: filename, onset, offset, label, split
    OUT/soundscapes.json                what was asked for

The same request gives the same bytes, however many processes work on it. A job that was stopped, by Ctrl-C or worse,
goes on where it was when it is called again: a clip whose two files are there is done, since they are written whole. A
folder that holds anything else is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from earmark import audio
from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text, make_folder, remove_drafts, written_whole
from earmark.formats import TSV
from earmark.synthesis.render import render
from earmark.synthesis.sampling import read_recipe, recipe_names
from earmark.synthesis.scaper import read_jams, write_jams
from earmark.synthesis.sources import Bank, open_bank
from earmark.synthesis.specification import SPLITS, Soundscape, read_events, spread
from earmark.workers import Workers, cores

__all__ = ["Summary", "plan_from", "synthesise"]

_SETTINGS = "soundscapes.json"


@dataclass(frozen=True)
class Summary:
    """What a job did."""

    out: Path
    clips: dict[str, int]
    """By split."""
    events: int
    kept: int
    """Clips that were there already."""
    substituted: int
    """Events whose source was not in the bank, or not for their split: another of their class stands in."""
    turned_down: int
    """Clips that would have gone beyond full scale."""
    silent: int
    """Events whose stretch of the source is silent."""


def plan_from(
    source: str | Path, *, bank: Bank | None = None, clips: int | None = None, seed: int = 0
) -> list[Soundscape]:
    """Soundscapes to be made.

    Parameters
    ----------
    source
        Name of a recipe; a recipe (.toml); a table of events (.csv, .csv.gz); a JAMS file of Scaper, or a folder of
        them.
    bank
        What recipes draw their sources from; None is the embedded one.
    clips
        How many, splits keeping their shares; of a table or folder the first ones of each split. None: all.
    seed
        Of whatever is drawn, here and in rendering.

    >>> [soundscape.name for soundscape in plan_from("urban-sed", clips=3)]
    ['soundscape_train_bimodal0', 'soundscape_train_uniform0', 'soundscape_validate_bimodal0']
    """
    path = Path(source)
    if path.suffix and not path.exists():
        raise DataError(f"{path}: no such file")
    if path.is_dir() or path.suffix == ".jams":
        found = sorted(path.rglob("*.jams")) if path.is_dir() else [path]
        if not found:
            raise DataError(f"{path}: no JAMS files in this folder")
        plan = [read_jams(file, seed=seed) for file in found]
    elif path.suffix in (".csv", ".gz"):
        plan = read_events(path, seed=seed)
    elif path.suffix not in ("", ".toml"):
        raise DataError(
            f"{path}: nothing to make soundscapes from; a recipe (.toml), a table of events (.csv, .csv.gz) or "
            f"Scaper's JAMS (.jams) expected, or the name of a recipe: {', '.join(recipe_names())}"
        )
    else:
        return read_recipe(source).plan(bank or open_bank(None), clips=clips, seed=seed)
    return plan if clips is None else spread(plan, clips)


def synthesise(
    plan: str | Path | Iterable[Soundscape],
    out: str | Path,
    *,
    bank: Bank | str | Path | None = None,
    clips: int | None = None,
    seed: int = 0,
    rate: int = 44100,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Make soundscapes and write them, with their truth, into a folder.

    Parameters
    ----------
    plan
        What `plan_from` takes, or soundscapes. `clips` and `seed` go with the former.
    out
        The folder: new, empty, or left by the same request.
    bank
        A sound bank, or the folder of one; None is the embedded bank.
    workers
        Processes; None is one per core. A script that asks for more than one needs the usual
        `if __name__ == "__main__":`.
    progress
        Called with the number of clips done and their total.

    Ctrl-C ends it within moments, and the KeyboardInterrupt that it raises says how many clips are done.
    """
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers={workers}: at least 1 expected")
    sounds = bank if isinstance(bank, Bank) else open_bank(None if bank is None else Path(bank))
    wanted = plan_from(plan, bank=sounds, clips=clips, seed=seed) if isinstance(plan, str | Path) else list(plan)
    resolved = [sounds.resolved(soundscape) for soundscape in wanted]
    _check_names(resolved)
    folder = _opened(
        Path(out), {"rate": rate, "bank": sounds.name, "clips": len(resolved), "plan": _print_of(resolved)}
    )
    maker = _Maker(sounds, folder, rate)
    kept = sum(map(maker.has, resolved))
    turned_down = silent = 0
    try:
        with closing(_made(resolved, maker, workers)) as made:
            for done, (down, mute) in enumerate(made, start=1):
                turned_down += down
                silent += mute
                if progress is not None:
                    progress(done, len(resolved))
    except KeyboardInterrupt:
        finished = sum(map(maker.has, resolved))
        raise KeyboardInterrupt(f"{finished} of {len(resolved)} soundscapes are done") from None
    finally:  # processes that are ended leave what they were writing, and so did those of a job that was killed
        remove_drafts(path for own in resolved for path in (folder / own.filename, folder / own.annotation))
    _write_labels(resolved, folder)
    return Summary(
        out=folder,
        clips={split: n for split in SPLITS if (n := sum(s.split == split for s in resolved))},
        events=sum(len(soundscape.events) for soundscape in resolved),
        kept=kept,
        substituted=_substituted(wanted, resolved),
        turned_down=turned_down,
        silent=silent,
    )


@dataclass(frozen=True)
class _Maker:
    """Makes one clip; sent once to each process."""

    bank: Bank
    out: Path
    rate: int

    def has(self, soundscape: Soundscape) -> bool:
        """Whether a clip is there already."""
        return (self.out / soundscape.filename).exists() and (self.out / soundscape.annotation).exists()

    def make(self, soundscape: Soundscape) -> tuple[int, int]:
        """Write annotation and sound, unless they are there; whether turned down, and how many silent events."""
        sound, notes = self.out / soundscape.filename, self.out / soundscape.annotation
        if self.has(soundscape):
            found = json.loads(notes.read_text(encoding="utf-8"))["annotations"][0]["sandbox"]["earmark"]
            return int(found["gain_db"] < 0), int(found["silent"])
        made = render(soundscape, self.bank, self.rate)
        true = replace(soundscape, ref_db=soundscape.ref_db + made.gain_db)
        write_jams(true, notes, notes={"bank": self.bank.name, "gain_db": made.gain_db, "silent": made.silent})
        audio.write(sound, made.samples, self.rate, subtype="PCM_16")
        return int(made.gain_db < 0), made.silent


_maker: _Maker | None = None


def _begin(maker: _Maker) -> None:
    global _maker
    _maker = maker


def _make(soundscape: Soundscape) -> tuple[int, int]:
    assert _maker is not None
    return _maker.make(soundscape)


def _made(plan: list[Soundscape], maker: _Maker, workers: int | None) -> Generator[tuple[int, int], None, None]:
    """Results as they come."""
    if workers is None:
        workers = min(cores(), -(-len(plan) // 8))  # a process takes as long to start as 8 clips
    if workers == 1:
        yield from map(maker.make, plan)
        return
    waiting, running = iter(plan), set[Future[tuple[int, int]]]()
    with Workers(workers, _begin, (maker,)) as pool:
        while True:
            running |= {pool.submit(_make, own) for own in islice(waiting, 2 * workers - len(running))}
            if not running:
                break
            done = pool.wait(running)
            running -= done
            for future in done:
                yield future.result()


def _opened(folder: Path, settings: dict[str, Any]) -> Path:
    """The folder, if it may be written to."""
    make_folder(folder)
    record = folder / _SETTINGS
    if record.exists():
        try:
            before = json.loads(record.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{record}: cannot be read: {error}") from error
        changed = [
            f"{key} {before.get(key)!r}, now {value!r}" for key, value in settings.items() if before.get(key) != value
        ]
        if changed:
            raise ArgumentError(f"{folder} holds other soundscapes ({'; '.join(changed)}); choose another folder")
    elif any(folder.iterdir()):
        raise ArgumentError(f"{folder} holds other things; choose a new or an empty folder")
    else:
        with written_whole(record) as draft:
            draft.write_text(json_text(settings, indent=1) + "\n", encoding="utf-8")
    for split in SPLITS:
        make_folder(folder / "audio" / split)
        make_folder(folder / "annotations" / split)
    return folder


def _print_of(plan: list[Soundscape]) -> str:
    joined = "".join(soundscape.fingerprint() for soundscape in plan)
    return hashlib.blake2b(joined.encode(), digest_size=8).hexdigest()


def _check_names(plan: list[Soundscape]) -> None:
    if not plan:
        raise ArgumentError("no soundscapes to make")
    seen: set[str] = set()
    for soundscape in plan:
        if soundscape.filename in seen:
            raise DataError(f"two soundscapes of split {soundscape.split} are called {soundscape.name}")
        seen.add(soundscape.filename)


def _substituted(wanted: list[Soundscape], resolved: list[Soundscape]) -> int:
    pairs = ((a, b) for x, y in zip(wanted, resolved, strict=True) for a, b in zip(x.events, y.events, strict=True))
    return sum(bool(a.source_file) and Path(a.source_file).stem != Path(b.source_file).stem for a, b in pairs)


def _write_labels(plan: list[Soundscape], folder: Path) -> None:
    table = LabelTable(
        [row for soundscape in plan for row in soundscape.labels()],
        filenames=[soundscape.filename for soundscape in plan],
        splits={soundscape.filename: soundscape.split for soundscape in plan},
    )
    TSV().write(table, folder / "labels.tsv")
