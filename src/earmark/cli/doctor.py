"""`earmark doctor`"""

from typing import Any

import typer

from earmark import __version__
from earmark.cli.app import Json, app
from earmark.files import json_text
from earmark.text import counted


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check the installation and print what a bug report needs.

    Prints versions, devices, audio libraries, encoders and folders. The exit code is 1 if there are problems.

    Example: earmark doctor
    """
    from earmark.doctor import examine

    facts = {"earmark": __version__, **examine()}
    if as_json:
        print(json_text(facts))
    else:
        _print(facts)
    if facts["problems"]:
        raise typer.Exit(1)


def _print(facts: dict[str, Any]) -> None:
    python, system, audio = facts["python"], facts["system"], facts["audio"]
    _row("earmark", facts["earmark"])
    _row("Python", f"{python['version']} ({python['implementation']}), {python['executable']}")
    _row("system", f"{system['platform']}, {counted(system['cores'] or 1, 'core')}")
    for device in facts["devices"]:
        if "threads" in device:
            _row("device", f"{device['name']}, {counted(device['threads'], 'thread')}")
        else:
            _row("device", f"{device['name']}, {device['model']}, {device['bytes'] / 1e9:.0f} GB")
    _row("audio", f"libsndfile {audio['libsndfile']}, soxr {audio['soxr']}")
    for encoder in facts["encoders"]:
        _row("encoder", f"{encoder['name']}, {'installed' if encoder['present'] else 'not installed'}")
    for place in facts["places"]:
        access = "" if place["writable"] else "not writable, "
        _row(place["name"], f"{place['path']}, {access}{place['free'] / 1e9:.0f} GB free")
    for group, packages in facts["packages"].items():
        _row(group, ", ".join(f"{name} {version or '-'}" for name, version in packages.items()))
    for name, value in facts["environment"].items():
        _row("environment", f"{name}={value}")
    for problem in facts["problems"]:
        _row("PROBLEM", problem)
    if not facts["problems"]:
        print("No problems found")


def _row(name: str, value: str) -> None:
    print(f"{name:12} {value}")
