"""Writes soundscapes into a folder, on all cores:

    OUT/audio/SPLIT/NAME.flac           sound: 16 bits, mono
    OUT/annotations/SPLIT/NAME.jams     specification in Scaper's format, with the sources that were used
    OUT/labels.tsv                      labels of all clips: filename, onset, offset, label, split
    OUT/soundscapes.json                settings

The same request gives the same bytes with any number of processes. Calling it again after an interruption continues: a
clip whose two files exist is done, since files are written atomically. A folder with other content is rejected.
"""

import hashlib
import json
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from earmark import audio
from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.files import json_text, locked, make_folder, remove_drafts
from earmark.formats import TSV
from earmark.formats.text import write_text
from earmark.ownership import owned, replacing_nothing
from earmark.parallel import cores, parallel_map, worker_count
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.schema import differences, open_record, read_json, record
from earmark.synthesis.render import render
from earmark.synthesis.sampling import read_recipe, recipe_names
from earmark.synthesis.scaper import read_jams, write_jams
from earmark.synthesis.sources import Bank, open_bank
from earmark.synthesis.specification import SPLITS, Soundscape, read_events, spread
from earmark.text import counted

_SETTINGS = "soundscapes.json"


@record
class Request:
    """The contents of `soundscapes.json`: what a folder was made for."""

    rate: Annotated[int, Field(ge=1)]
    bank: str
    clips: Annotated[int, Field(ge=1)]
    plan: str


def read_request(path: Path) -> Request:
    """Read a `soundscapes.json`."""
    return read_json(Request, path)


@open_record
class _Notes:
    """What earmark adds to its JAMS files."""

    gain_db: float
    silent: Annotated[int, Field(ge=0)]


@open_record
class _Sandbox:
    earmark: _Notes


@open_record
class _Annotation:
    sandbox: _Sandbox


@open_record
class _Jams:
    annotations: Annotated[list[_Annotation], Field(min_length=1)]


@dataclass(frozen=True)
class Summary:
    """Result of `synthesise`."""

    out: Path
    clips: dict[str, int]  # by split
    events: int
    kept: int  # clips that existed already
    substituted: int  # events with another source of their class, since theirs is not in the bank or in another split
    turned_down: int  # clips that were attenuated because they exceeded full scale
    silent: int  # events whose excerpt of the source is silent
    seconds: float = field(default=0.0, compare=False)  # duration of the call

    def __str__(self) -> str:
        shares = ", ".join(f"{count} {split}" for split, count in self.clips.items())
        made = f"{counted(sum(self.clips.values()), 'clip')} ({shares}) with {counted(self.events, 'event')}"
        lines = [f"{made} in {self.out}, {self.seconds:.0f} s"]
        if self.kept:
            lines.append(f"{counted(self.kept, 'clip')}: already there, kept")
        if self.substituted:
            what = "source not in the sound bank, replaced by another of the same class and split"
            lines.append(f"{counted(self.substituted, 'event')}: {what}")
        if self.turned_down:
            lines.append(f"{counted(self.turned_down, 'clip')}: attenuated to avoid clipping")
        if self.silent:
            lines.append(f"{counted(self.silent, 'event')}: source silent in the part that is used")
        return "\n".join([*lines, f"Labels: {self.out / 'labels.tsv'}"])


def plan_from(
    source: str | Path, *, bank: Bank | None = None, clips: int | None = None, seed: int = 0
) -> list[Soundscape]:
    """Specifications of soundscapes, from a recipe, which uses the sounds of a bank, or from a file.

    Parameters
    ----------
    source
        Name of a recipe; a recipe (.toml); a table of events (.csv, .csv.gz); a JAMS file of Scaper, or a folder of
        them.
    clips
        Number of clips, in proportion to the splits; the first ones of each split for a table or folder.

    >>> [soundscape.name for soundscape in plan_from("urban-sed", clips=3)]
    ['soundscape_train_bimodal0', 'soundscape_train_uniform0', 'soundscape_validate_bimodal0']
    """
    path = Path(source)
    if path.suffix and not path.exists():
        raise DataError(f"{path}: no such file")
    if path.is_dir() or path.suffix == ".jams":
        files = sorted(path.rglob("*.jams")) if path.is_dir() else [path]
        if not files:
            raise DataError(f"{path}: no JAMS files in this folder")
        plan = [read_jams(file, seed=seed) for file in files]
    elif path.suffix in (".csv", ".gz"):
        plan = read_events(path, seed=seed)
    elif path.suffix not in ("", ".toml"):
        raise DataError(
            f"{path}: expected a recipe (.toml), a table of events (.csv, .csv.gz), Scaper's JAMS (.jams) or the name "
            f"of a recipe: {', '.join(recipe_names())}"
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
    on_progress: OnProgress = ignore_progress,
) -> Summary:
    """Make soundscapes and write them, with their labels, into a folder: new, empty, or left by the same request.

    Parameters
    ----------
    plan
        A source that `plan_from` accepts, with `clips` and `seed`; or soundscapes.
    bank
        A sound bank or its folder; the embedded bank by default.
    workers
        Processes, by default one per core. A script with more than one needs the usual `if __name__ == "__main__":`.

    An interruption raises KeyboardInterrupt within moments; its message says how many clips are done.
    """
    started = time.monotonic()
    n_workers = None if workers is None else worker_count(workers)
    if not isinstance(bank, Bank):
        bank = open_bank(None if bank is None else Path(bank))
    wanted = plan_from(plan, bank=bank, clips=clips, seed=seed) if isinstance(plan, str | Path) else list(plan)
    resolved = [bank.resolved(soundscape) for soundscape in wanted]
    settings = {"rate": rate, "bank": bank.name, "clips": len(resolved), "plan": _fingerprint(resolved)}
    folder = make_folder(Path(out))
    with locked(folder):
        with owned(folder, files=[folder / "labels.tsv"]):
            _prepare(folder, settings)
        maker = _Maker(bank, folder, rate)
        kept = sum(map(maker.has, resolved))
        turned_down = silent = 0
        on_progress(Progress("soundscapes", 0, len(resolved), "clips"))
        try:
            with closing(_made(resolved, maker, n_workers)) as results:
                for done, (down, mute) in enumerate(results, start=1):
                    turned_down += down
                    silent += mute
                    on_progress(Progress("soundscapes", done, len(resolved), "clips"))
        except KeyboardInterrupt:
            finished = sum(map(maker.has, resolved))
            raise KeyboardInterrupt(f"{finished} of {len(resolved)} soundscapes are done") from None
        finally:  # killed workers leave temporary files, of this job or an earlier one
            remove_drafts(folder / name for clip in resolved for name in (clip.filename, clip.annotation))
        splits = {soundscape.filename: soundscape.split for soundscape in resolved}
        rows = [row for soundscape in resolved for row in soundscape.labels()]
        with owned(folder):
            TSV().write(LabelTable(rows, filenames=splits, splits=splits), folder / "labels.tsv")
    return Summary(
        out=folder,
        clips={split: n for split in SPLITS if (n := sum(s.split == split for s in resolved))},
        events=sum(len(soundscape.events) for soundscape in resolved),
        kept=kept,
        substituted=_substituted(wanted, resolved),
        turned_down=turned_down,
        silent=silent,
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Maker:
    """Makes clips; sent once to each worker process."""

    bank: Bank
    out: Path
    rate: int

    def has(self, soundscape: Soundscape) -> bool:
        """Whether a clip exists."""
        return (self.out / soundscape.filename).exists() and (self.out / soundscape.annotation).exists()

    def make(self, soundscape: Soundscape) -> tuple[int, int]:
        """Write annotation and sound unless they exist; returns (1 if attenuated, number of silent events)."""
        sound = self.out / soundscape.filename
        notes = self.out / soundscape.annotation
        if self.has(soundscape):
            about = read_json(_Jams, notes).annotations[0].sandbox.earmark
            return int(about.gain_db < 0), about.silent
        made = render(soundscape, self.bank, self.rate)
        true = replace(soundscape, ref_db=soundscape.ref_db + made.gain_db)
        with replacing_nothing():  # if a killed process left one of the two, it is written with the same content
            write_jams(true, notes, notes={"bank": self.bank.name, "gain_db": made.gain_db, "silent": made.silent})
            audio.write(sound, made.samples, self.rate, subtype="PCM_16")
        return int(made.gain_db < 0), made.silent


def _made(plan: list[Soundscape], maker: _Maker, workers: int | None) -> Generator[tuple[int, int], None, None]:
    """What `_Maker.make` returns for each clip, in order of completion."""
    if workers is None:
        workers = min(cores(), -(-len(plan) // 8))  # starting a process takes as long as making 8 clips
    if workers == 1:
        yield from map(maker.make, plan)
        return
    with closing(parallel_map(maker.make, plan, workers=workers, processes=True)) as results:
        for _, result in results:
            if isinstance(result, Exception):
                raise result
            yield result


def _prepare(folder: Path, settings: dict[str, Any]) -> None:
    """Prepare a new folder, or check that it belongs to the same request."""
    path = folder / _SETTINGS
    if path.exists():
        changed = differences(vars(read_request(path)), settings)
        if changed:
            listed = "; ".join(f"{name} {old!r}, now {new!r}" for name, (old, new) in changed.items())
            raise ArgumentError(f"{folder} contains other soundscapes ({listed}); choose another folder")
    elif any(not file.name.startswith(".") for file in folder.iterdir()):
        raise ArgumentError(f"{folder} contains other files; choose a new or an empty folder")
    else:
        write_text(path, json_text(settings, indent=1) + "\n")
    for split in SPLITS:
        make_folder(folder / "audio" / split)
        make_folder(folder / "annotations" / split)


def _fingerprint(plan: list[Soundscape]) -> str:
    """A digest of the plan, whose soundscapes must have different names."""
    if not plan:
        raise ArgumentError("no soundscapes to make")
    whole = hashlib.blake2b(digest_size=8)
    seen: set[str] = set()
    for soundscape in plan:
        if soundscape.filename in seen:
            raise DataError(f"two soundscapes of split {soundscape.split} have the name {soundscape.name}")
        seen.add(soundscape.filename)
        written = json.dumps(asdict(soundscape), sort_keys=True)
        whole.update(hashlib.blake2b(written.encode(), digest_size=8).hexdigest().encode())
    return whole.hexdigest()


def _substituted(wanted: list[Soundscape], resolved: list[Soundscape]) -> int:
    """Number of events whose source was replaced by another."""
    before = [Path(event.source_file).stem for soundscape in wanted for event in soundscape.events]
    after = [Path(event.source_file).stem for soundscape in resolved for event in soundscape.events]
    return sum(old not in ("", new) for old, new in zip(before, after, strict=True))
