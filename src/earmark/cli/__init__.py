"""The command line: words for people, `--json` for programs, one line and exit code 2 for what cannot be done.

A file per command, each making one call into the rooms before this one; `app` holds what they share.
"""

from __future__ import annotations

from earmark.cli import compare, demo, detect, evaluate, export, listing, report, reproduce, synth, train, tune
from earmark.cli.app import app, main

__all__ = [
    "app",
    "compare",
    "demo",
    "detect",
    "evaluate",
    "export",
    "listing",
    "main",
    "report",
    "reproduce",
    "synth",
    "train",
    "tune",
]

_ORDER = ("synth", "train", "evaluate", "compare", "report", "detect", "tune", "reproduce", "export", "list", "demo")
app.registered_commands.sort(key=lambda own: _ORDER.index(own.name or getattr(own.callback, "__name__", "")))  # of work
