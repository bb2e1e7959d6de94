"""`earmark synth`"""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import Json, app, parse_seconds
from earmark.cli.display import live_display
from earmark.files import json_text
from earmark.text import counted

_LENGTHS = {"once": None, "hour": 3600.0, "day": 86400.0}  # None: every clip once


@app.command()
def synth(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|EVENTS",
            help="A recipe (urban-sed, durations, a TOML file), a table of events (events.csv.gz) or Scaper's JAMS.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for audio, annotations and labels.tsv.")],
    soundbank: Annotated[
        Path | None,
        typer.Option(help="Folder of sounds, LABEL/*.wav or foldN/LABEL/*.wav.  [default: the built-in sounds]"),
    ] = None,
    clips: Annotated[
        int | None, typer.Option(min=1, help="Number of clips.  [default: as many as the source defines]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same files.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes.  [default: one per core]")] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="once|hour|day|SECONDS",
            help="Also write one recording per split: its clips joined once, or repeated to this length.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Synthesise soundscapes with exact labels.

    Example: earmark synth urban-sed soundscapes --clips 60
    """
    from earmark.synthesis import join as join_clips
    from earmark.synthesis import synthesise

    length = None if join is None else parse_seconds("--join", join, _LENGTHS)
    try:
        with live_display(quiet=as_json) as display:
            done = synthesise(source, out, bank=soundbank, clips=clips, seed=seed, workers=workers, on_progress=display)
            recordings = [
                join_clips(out, split, duration=length, seed=seed, on_progress=display)
                for split in (() if join is None else done.clips)
            ]
    except KeyboardInterrupt as stop:
        state = f"{stop}; " if str(stop) else ""
        raise KeyboardInterrupt(f"{state}run the same command again to continue") from None
    if as_json:
        print(json_text({**vars(done), "out": str(done.out), "recordings": [str(r.path) for r in recordings]}))
        return
    print(done)
    for recording in recordings:
        print(f"Recording: {recording.path}, {counted(recording.events, 'event')} in {recording.duration:.0f} s")
