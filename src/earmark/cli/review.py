"""`earmark review`"""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import app


@app.command()
def review(
    place: Annotated[Path, typer.Argument(metavar="FOUND|RECORDINGS", help="A detection job, or recordings to label.")],
    labels: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Labels of the recordings, to be checked.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the verdicts on recordings.  [default: NAME.review]")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port.  [default: 8377 if it is free]")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than the default needs a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="Part of the address that grants access.  [default: random]")
    ] = None,
    allow_anyone: Annotated[bool, typer.Option("--allow-anyone", help="Allow access without a token.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Review and correct events in a browser. Ctrl-C stops the server; the same command continues the review.

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
