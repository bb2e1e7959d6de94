"""Synthetic soundscapes with exact labels.

    from earmark.synthesis import synthesise
    synthesise("urban-sed", "soundscapes", clips=200)

`synthesise` takes the name of a recipe, a recipe file (TOML), a table of events or Scaper's JAMS files, and writes
audio, annotations and a label table; `join` concatenates them to long recordings.

Files, each importing only those before it: `timbres` and `bank` (the embedded sound bank), `specification` (soundscapes
and events), `scaper` (JAMS), `sources` (sound banks), `sampling` (recipes), `render` (one soundscape), `job` (many of
them), `joining` (long recordings).
"""

from earmark.synthesis.bank import CLASSES, make_sound
from earmark.synthesis.job import Summary, plan_from, synthesise
from earmark.synthesis.joining import Joined, join
from earmark.synthesis.render import Rendered, render
from earmark.synthesis.sampling import Distribution, Recipe, parse_distribution, read_recipe, recipe_names
from earmark.synthesis.scaper import read_jams, write_jams
from earmark.synthesis.sources import Bank, FolderBank, ProceduralBank, open_bank
from earmark.synthesis.specification import Event, Soundscape, read_events

__all__ = [
    "CLASSES",
    "Bank",
    "Distribution",
    "Event",
    "FolderBank",
    "Joined",
    "ProceduralBank",
    "Recipe",
    "Rendered",
    "Soundscape",
    "Summary",
    "join",
    "make_sound",
    "open_bank",
    "parse_distribution",
    "plan_from",
    "read_events",
    "read_jams",
    "read_recipe",
    "recipe_names",
    "render",
    "synthesise",
    "write_jams",
]
