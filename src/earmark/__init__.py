"""earmark learns when sounds happen from labels that only say that they happen.

    import earmark
    run = earmark.train("recordings", out="run", recipe="quick")
    print(earmark.evaluate(run, "recordings"))
    events = earmark.load(run).detect("night.flac")

`earmark.api` documents the functions of this module. `earmark.pooling` has the pooling operators, `earmark.mil` a
classifier for bags of any kind, `earmark.keras` the authors' Keras layers with masks. `docs/architecture.md` lists all
modules.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earmark.api import compare, evaluate, load, report, review, synth, train

__all__ = ["__version__", "compare", "evaluate", "load", "report", "review", "synth", "train"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A function of `earmark.api` or a module, imported on first use: importing earmark imports nothing else."""
    if name == "load":  # without PyTorch, for ONNX models
        return importlib.import_module("earmark.detection.detector").load
    if name in __all__:
        return getattr(importlib.import_module("earmark.api"), name)
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"earmark.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"earmark.{name}":
                raise
    raise AttributeError(f"module 'earmark' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion offers: functions and modules, imported or not."""
    return sorted({*__all__, *(module.name for module in pkgutil.iter_modules(__path__))})
