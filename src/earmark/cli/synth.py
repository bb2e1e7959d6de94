"""`earmark synth`"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import Json, app, counted, progress_bar

__all__ = ["synth"]


@app.command()
def synth(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|EVENTS",
            help="A recipe (urban-sed, durations, a TOML file), a table of events (events.csv.gz) or Scaper's JAMS.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Folder for sound, annotations and labels.tsv.", show_default=False)],
    soundbank: Annotated[
        Path | None, typer.Option(help="Folder of sounds, LABEL/*.wav or foldN/LABEL/*.wav; the embedded one if none.")
    ] = None,
    clips: Annotated[int | None, typer.Option(min=1, help="How many; all that the source has, if not given.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Make soundscapes whose events are known to the millisecond.

    Example: earmark synth urban-sed soundscapes --clips 60
    """
    from earmark.synthesis import synthesise

    begin = time.monotonic()
    with progress_bar("soundscapes", quiet=as_json) as progress:
        done = synthesise(source, out, bank=soundbank, clips=clips, seed=seed, workers=workers, progress=progress)
    if as_json:
        print(json.dumps({**vars(done), "out": str(done.out)}))
        return
    shares = ", ".join(f"{count} {split}" for split, count in done.clips.items())
    seconds = time.monotonic() - begin
    made = counted(sum(done.clips.values()), "clip")
    print(f"{made} ({shares}) with {counted(done.events, 'event')} in {out}, {seconds:.0f} s")
    for n, noun, what in (
        (done.kept, "clip", "there already, and kept"),
        (done.substituted, "event", "source not in the sound bank, another of the same class and split stands in"),
        (done.turned_down, "clip", "beyond full scale, and turned down as a whole"),
        (done.silent, "event", "source silent where it is used"),
    ):
        if n:
            print(f"{counted(n, noun)}: {what}")
    print(f"Labels: {out / 'labels.tsv'}")
