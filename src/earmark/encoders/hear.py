"""`hear:PACKAGE`: any installed package that follows the HEAR 2021 interface.

Such a package has `load_model(path)`, which returns a model with `sample_rate` and `timestamp_embedding_size`, and
`get_timestamp_embeddings(audio, model)`, which maps (bags, n) to embeddings (bags, t, dimension) with their times in
milliseconds (bags, t). Frames of a fixed hop take the embedding with the nearest time.

The package is imported, so this encoder is created only when a user names it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import math
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from earmark.audio import Samples
from earmark.encoders.base import ENCODERS, Card, Encoder
from earmark.errors import ArgumentError, DataError, EarmarkError, reason
from earmark.timing import time_to_sample

_FUNCTIONS = ("load_model", "get_timestamp_embeddings")


@ENCODERS.register("hear", "any installed package with the HEAR 2021 interface")
class HearEncoder(Encoder):
    """Embeds with a HEAR package on the CPU, one excerpt at a time.

    `hop` and `window` are in seconds; the hop is by default the package's own. `weights` is the file for `load_model`.
    """

    target = "PACKAGE"
    imports_code = True

    def __init__(
        self, package: str, *, hop: float | None = None, window: float = 10.0, weights: str | Path | None = None
    ) -> None:
        self._package = package
        self._module = import_named(package, _FUNCTIONS)
        self._lock = threading.Lock()
        digest = ""
        if weights is not None:
            if not Path(weights).is_file():
                raise ArgumentError(f"{weights}: no such file")
            digest = hashlib.sha256(Path(weights).read_bytes()).hexdigest()
        self._model = self._call("load_model", *([] if weights is None else [str(weights)]))
        rate = self._attribute("sample_rate")
        dimension = self._attribute("timestamp_embedding_size")
        for name, seconds in (("window", window), ("hop", hop)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise ArgumentError(f"{name}: expected a positive number of seconds, got {seconds}")
        samples = time_to_sample(window, rate)
        hop_samples = self._default_hop(rate, samples) if hop is None else time_to_sample(hop, rate)
        self.card = Card(
            name=f"hear:{package}",
            rate=rate,
            window_samples=samples,
            hop_samples=hop_samples,
            dimension=dimension,
            licence="that of the package",
            sha256=digest,
            summary=f"HEAR package {package}",
        )

    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        embeddings, times = self._embeddings(samples)
        centres = (np.arange(self.card.frames(len(samples)), dtype=np.float64) + 0.5) * self.card.hop
        return embeddings[nearest(times, centres)]

    def _embeddings(self, samples: Samples) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.float64]]:
        """Embeddings (t, dimension) of an excerpt, and their times in seconds (t,)."""
        with torch.no_grad():
            audio = torch.from_numpy(np.require(samples, requirements="W"))[None]
            result = self._call("get_timestamp_embeddings", audio, self._model)
        try:
            embeddings, times = (np.asarray(torch.as_tensor(part).cpu()) for part in result)
        except (TypeError, ValueError, RuntimeError):
            kind = type(result).__name__
            raise DataError(f"{self._package}: expected embeddings and timestamps, got {kind}") from None
        if embeddings.ndim != 3 or times.shape != embeddings.shape[:2] or len(times) != 1 or not times.size:
            raise DataError(
                f"{self._package}: expected embeddings (1, t, dimension) and timestamps (1, t), got shapes "
                f"{embeddings.shape} and {times.shape}"
            )
        times = times[0].astype(np.float64) / 1000
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise DataError(f"{self._package}: expected timestamps that increase")
        return embeddings[0], times

    def _default_hop(self, rate: int, samples: int) -> int:
        """The median distance of the package's timestamps, in samples."""
        times = self._embeddings(np.zeros(samples, np.float32))[1]
        if len(times) < 2:
            raise ArgumentError(f"{self._package}: has one embedding per {samples} samples; state a hop")
        return max(1, time_to_sample(float(np.median(np.diff(times))), rate))

    def _attribute(self, name: str) -> int:
        value = getattr(self._model, name, None)
        if not isinstance(value, int) or value < 1:
            raise DataError(f"{self._package}: expected a model with {name} of at least 1, got {value!r}")
        return value

    def _call(self, name: str, *args: Any) -> Any:
        """Call a function of the package, by one thread at a time."""
        try:
            with self._lock:
                return getattr(self._module, name)(*args)
        except EarmarkError:
            raise
        except Exception as error:  # the package may raise anything
            raise DataError(f"{self._package}: {name} failed: {reason(error)}") from error

    def _identity(self) -> dict[str, object]:
        return {**super()._identity(), "package": package_version(self._package)}


def import_named(name: str, wanted: tuple[str, ...]) -> ModuleType:
    """Import a module that the user named, and check that it has these attributes."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise ArgumentError(f"{name}: cannot be imported: {reason(error)}") from error
    except Exception as error:  # the module may raise anything
        raise ArgumentError(f"{name}: failed while it was imported: {reason(error)}") from error
    for attribute in wanted:
        if not hasattr(module, attribute):
            raise ArgumentError(f"{name}: expected a module with {attribute}")
    return module


def package_version(module: str) -> str:
    """The version of the package that an imported module belongs to; empty if unknown."""
    top = module.partition(".")[0]
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:  # the distribution may be named differently from its module
        return str(getattr(sys.modules.get(top), "__version__", ""))


def nearest(times: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Index of the time nearest to each wanted one; the earlier of two that are equally near.

    >>> nearest(np.array([0.0, 1.0, 2.0]), np.array([-1.0, 0.4, 0.5, 0.6, 9.0])).tolist()
    [0, 0, 0, 1, 2]
    """
    return np.searchsorted((times[:-1] + times[1:]) / 2, wanted, side="left")
