"""earmark learns when sounds happen from labels that only say that they happen.

`earmark.pooling` holds the pooling operators; `earmark.mil` a classifier for bags of anything; `earmark.keras` the
authors' Keras layers, honouring masks. `earmark.load` opens a model and detects with it: see `earmark.detection`.
`docs/architecture.md` shows the whole house.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earmark.detection.detector import load

__all__ = ["__version__", "load"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`load`, or a room, when it is first asked for: importing earmark imports nothing."""
    if name == "load":
        return importlib.import_module("earmark.detection.detector").load
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"earmark.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"earmark.{name}":
                raise
    raise AttributeError(f"module 'earmark' has no attribute {name!r}")
