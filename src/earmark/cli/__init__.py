"""The command line: a module per command, each calling one function of the library and printing its result.

With `--json`, commands print one JSON object. Errors are one line on standard error and exit code 2.
"""

from importlib import import_module

from earmark.cli.app import app, main

__all__ = ["app", "main"]

# in the order of --help
_COMMANDS = "synth train evaluate compare report detect review tune reproduce export listing encoders demo doctor"
for _name in _COMMANDS.split():
    import_module(f"earmark.cli.{_name}")
