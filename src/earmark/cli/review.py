"""`earmark review`"""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import app


@app.command()
def review(
    place: Annotated[Path, typer.Argument(metavar="FOUND|RECORDINGS", help="A detection job, or recordings to label.")],
    labels: Annotated[Path | None, typer.Option(metavar="TABLE", help="Labels of the recordings, to check.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the verdicts on recordings; NAME.review if not given.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 8377 if it is free and none is given.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; another than this needs a token.")] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="Part of the address that grants access; random if not given.")
    ] = None,
    allow_anyone: Annotated[
        bool, typer.Option("--allow-anyone", help="Let everyone in who can reach the server.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Hear, see and correct events in a browser. Ctrl-C ends the review; the same command continues it.

    Example: earmark review found

    Example: earmark review recordings --labels labels.csv
    """
    from earmark.reviewing.running import Address, start_review

    address = Address(host, port, token, allow_anyone)
    with start_review(place, labels=labels, out=out, address=address, browser=not no_browser) as server:
        print(f"Review of {place}: {server.url}", flush=True)
        print("Press Ctrl-C to stop.", flush=True)
        try:
            server.wait()
        except KeyboardInterrupt:
            print(f"Verdicts: {server.review.source.folder / 'verdicts.jsonl'}, as labels: verdicts.csv")
