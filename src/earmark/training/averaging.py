"""Weights averaged over the last epochs of a run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from earmark.detector import Detector
from earmark.settings import Training

_NEWEST = 0.15  # weight of the newest epoch in the average


class Average:
    """An exponential moving average of a detector's weights, over the epochs that the settings name."""

    def __init__(self, detector: Detector, options: Training) -> None:
        self._detector = detector
        self._first = round((1 - options.average) * options.epochs) if options.average else options.epochs
        self.weights: dict[str, Tensor] = {}

    def update(self, epoch: int) -> None:
        """Include the weights at the end of an epoch, counted from 0, if it is late enough."""
        if epoch < self._first:
            return
        for name, tensor in self._floats():
            if name in self.weights:
                self.weights[name].lerp_(tensor, _NEWEST)
            else:
                self.weights[name] = tensor.clone()

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Continue with saved weights."""
        self.weights = {name: weights[name].to(tensor.device) for name, tensor in self._floats() if weights}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the detector has the averaged weights, if there are any; its memory stays where it is."""
        if not self.weights:
            yield
            return
        weights = {name: tensor.clone() for name, tensor in self._floats()}
        self._copy(self.weights)
        try:
            yield
        finally:
            self._copy(weights)

    @torch.no_grad()
    def _copy(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self._floats():
            tensor.copy_(weights[name])

    def _floats(self) -> Iterator[tuple[str, Tensor]]:
        state = self._detector.state_dict()
        return ((name, tensor.detach()) for name, tensor in state.items() if tensor.is_floating_point())
