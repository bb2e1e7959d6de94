"""Multiple-instance learning on bags of anything, with scikit-learn's contract.

A bag is an array (n_instances, n_features) with one label. The model is the paper's with a small perceptron in place of
the sound network: each instance gets a probability p per class, a pooling operator of `earmark.pooling` reduces them to
the bag's probability P, and P is trained with binary cross-entropy, Eq. (4). The classifier predicts which bags are
positive (`predict`) and which instances make them positive (`predict_instances`). No operator suits all bags, so by
default there is a network for each of three, and their probabilities are averaged.

The defaults follow Ilse, Tomczak and Welling, "Attention-based deep multiple instance learning" (ICML 2018), with a few
numbers chosen on other folds than those that `benchmarks/mil.py` reports; it lists the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral, Real
from threading import Lock
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from earmark.errors import ArgumentError, DataError, MissingExtraError
from earmark.pooling import POOLS, create_pool
from earmark.text import as_names

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise MissingExtraError("earmark.mil", "mil") from error

__all__ = ["BagClassifier"]

Array = NDArray[np.float64]

_GENERATOR_IN_USE = Lock()
"""Dropout and initial weights use torch's global generator, so only one thread trains at a time."""


class BagClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of bags: a perceptron predicts p for each instance, a pooling operator reduces them to P.

    Works inside `clone`, `cross_val_score` and `GridSearchCV`. Every random choice comes from `random_state`, and
    torch's global generator is left unchanged. Runs on the CPU.

    Parameters
    ----------
    pool
        Name of the pooling operator: "auto", "max", "mean", "attention", ... (`earmark list pools` shows all). With
        several, a network is trained for each, and probabilities are averaged: the default takes three times as long
        as one of them.
    pool_options
        Keyword options of a single operator, such as `{"penalty": 1e-2}` for "rap".
    hidden
        Widths of the hidden layers; () makes the instance classifier a logistic regression.
    learning_rate, pool_learning_rate
        Of Adam; the second is for alpha, or whatever else the operator learns per class. It is larger because alpha has
        to change by several units in a few hundred steps.
    weight_decay
        L2 penalty on weight matrices. Not on biases, nor on alpha, which the operator "rap" penalises.
    dropout
        Share of hidden units dropped in training, in [0, 1).
    standardize
        Scale each feature to mean 0 and standard deviation 1 over the training instances.
    random_state
        Seed, numpy `RandomState` or None, as everywhere in scikit-learn.

    Attributes
    ----------
    classes_ : (n_classes,)
        The labels, sorted; after training on a matrix, its column numbers.
    networks_
        The trained networks, one for each operator; `networks_[0].pool` is the first, with what it has learned.

    Notes
    -----
    `y` determines the kind of problem. *Two classes*: one p and P, for `classes_[1]`, which should be the class that
    single instances can prove. *More classes*: a p and P for each; `predict_proba` scales the P of a bag to sum to one,
    `predict` takes the largest. *A 0/1 matrix* (n_bags, n_labels): a p and P for each label, predicted where P >= 0.5,
    Eq. (3).

    Which pool? None is best everywhere (`benchmarks/mil.py`), and a hundred bags are too few to choose one by
    cross-validation. The average of "mean" (bags full of evidence), "auto" (from the mean to the maximum) and
    "attention" was never far from the best. With "attention" alone, p is not reliable, since instances that it ignores
    are not trained. For the shortest training, choose a single operator.

    Examples
    --------
    A bag is positive when one of its instances has a large first feature.

    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(size=(rng.integers(3, 9), 4)) for _ in range(80)]
    >>> y = np.arange(80) % 2
    >>> for bag, label in zip(bags, y):
    ...     bag[0, 0] += 6 * label
    >>> model = BagClassifier(random_state=0).fit(bags[:60], y[:60])
    >>> bool(model.score(bags[60:], y[60:]) > 0.9)
    True
    >>> [int(p.argmax()) for p in model.predict_instances(bags[61::6])]
    [0, 0, 0, 0]
    """

    def __init__(
        self,
        *,
        pool: str | Sequence[str] = ("mean", "auto", "attention"),
        pool_options: Mapping[str, Any] | None = None,
        hidden: Sequence[int] = (256, 128, 64),
        epochs: int = 50,
        learning_rate: float = 1e-3,
        pool_learning_rate: float = 1e-2,
        weight_decay: float = 5e-3,
        dropout: float = 0.5,
        batch_size: int = 16,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.pool = pool
        self.pool_options = pool_options
        self.hidden = hidden
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.pool_learning_rate = pool_learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.batch_size = batch_size
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, bags: Iterable[ArrayLike], y: ArrayLike) -> BagClassifier:
        """Learn from bags, each (n_instances, n_features), and labels y, (n_bags,) or 0/1 (n_bags, n_labels)."""
        self._check_parameters()
        arrays = _check_bags(bags)
        targets = self._check_labels(np.asarray(y), len(arrays))
        self.n_features_in_ = arrays[0].shape[1]
        self.mean_ = np.zeros(self.n_features_in_)
        self.scale_ = np.ones(self.n_features_in_)
        if self.standardize:
            instances = np.concatenate(arrays)
            self.mean_, self.scale_ = instances.mean(axis=0), instances.std(axis=0)
            self.scale_[self.scale_ <= 1e-12 * np.abs(self.mean_)] = 1.0  # constant up to rounding: not informative
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with _GENERATOR_IN_USE, torch.random.fork_rng(devices=[]):
            data = [self._to_tensor(bag) for bag in arrays]
            self.networks_ = []
            for pool in self._pools():
                torch.default_generator.manual_seed(seed)  # so that each network is the same as if trained alone
                self.networks_.append(self._train(pool, data, targets))
        return self

    def predict(self, bags: Iterable[ArrayLike]) -> NDArray[Any]:
        """Label of each bag: (n_bags,) of `classes_`, or 0/1 (n_bags, n_labels) after training on a matrix."""
        probability = self.predict_proba(bags)
        if self.kind_ == "multilabel":
            return (probability >= 0.5).astype(int)
        chosen = (probability[:, 1] >= 0.5).astype(int) if self.kind_ == "binary" else probability.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, bags: Iterable[ArrayLike]) -> Array:
        """Probability of each class, (n_bags, n_classes), rows summing to one.

        After training on a matrix: of each label by itself, (n_bags, n_labels).
        """
        P = np.stack([P for P, _ in self._forward(bags)])
        if self.kind_ == "multilabel":
            return P
        if self.kind_ == "binary":
            return np.hstack([1 - P, P])
        P += np.finfo(np.float32).tiny  # all classes equally likely where every P is 0
        return np.asarray(P / P.sum(axis=1, keepdims=True))

    def predict_instances(self, bags: Iterable[ArrayLike]) -> list[Array]:
        """Probability p of each instance, one array per bag.

        With two classes (n_instances,), the probability of `classes_[1]`. Otherwise (n_instances, n_classes), each
        class by itself: an instance may show several classes, or none.
        """
        ps = [p for _, p in self._forward(bags)]
        return [p[:, 0] for p in ps] if self.kind_ == "binary" else ps

    def _forward(self, bags: Iterable[ArrayLike]) -> list[tuple[Array, Array]]:
        """P (outputs,) and p (n_instances, outputs) of each bag."""
        check_is_fitted(self, "networks_")
        data = [self._to_tensor(bag) for bag in _check_bags(bags, self.n_features_in_)]
        results: list[tuple[Array, Array]] = []
        with torch.inference_mode():
            for start in range(0, len(data), int(self.batch_size)):
                batch = data[start : start + self.batch_size]
                outputs = [network(batch) for network in self.networks_]
                P, p = (torch.stack(part).mean(dim=0) for part in zip(*outputs, strict=True))
                ps = torch.split(p.double(), [len(bag) for bag in batch])
                results += [(P_bag.numpy(), p_bag.numpy()) for P_bag, p_bag in zip(P.double(), ps, strict=True)]
        return results

    def _pools(self) -> tuple[str, ...]:
        return as_names(self.pool)

    def _train(self, pool: str, data: Sequence[Tensor], targets: Tensor) -> _BagNetwork:
        network = _BagNetwork(self, pool, targets.shape[1])
        optimizer = self._optimizer(network)
        for _ in range(self.epochs):
            for batch in torch.split(torch.randperm(len(data)), int(self.batch_size)):
                P, _ = network([data[i] for i in batch])
                # scaled to [1e-6, 1 - 1e-6], P has a finite logarithm and, unlike when clamped, always a gradient
                loss = nn.functional.binary_cross_entropy(1e-6 + (1 - 2e-6) * P, targets[batch])
                optimizer.zero_grad()
                (loss + network.pool.penalty()).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                network.pool.project()
        return network.eval()

    def _optimizer(self, network: _BagNetwork) -> torch.optim.Optimizer:
        pool = [] if network.pool.uses_embedding else list(network.pool.parameters())
        rest = [w for w in network.parameters() if all(w is not parameter for parameter in pool)]
        groups: list[dict[str, Any]] = [
            {"params": [w for w in rest if w.ndim > 1], "weight_decay": self.weight_decay},
            {"params": [w for w in rest if w.ndim <= 1]},
            {"params": pool, "lr": self.pool_learning_rate},
        ]
        return torch.optim.Adam(groups, lr=self.learning_rate, fused=True)

    def _to_tensor(self, bag: Array) -> Tensor:
        return torch.from_numpy(((bag - self.mean_) / self.scale_).astype(np.float32))

    def _check_parameters(self) -> None:
        widths = isinstance(self.hidden, Sequence) and all(map(_is_count, self.hidden))
        rate, pool_rate, decay, dropout = self.learning_rate, self.pool_learning_rate, self.weight_decay, self.dropout
        for name, is_valid, expected in (
            ("epochs", _is_count(self.epochs), "a whole number of at least 1"),
            ("batch_size", _is_count(self.batch_size), "a whole number of at least 1"),
            ("hidden", widths, "a sequence of whole numbers of at least 1"),
            ("learning_rate", _is_number(rate) and rate > 0, "a number above 0"),
            ("pool_learning_rate", _is_number(pool_rate) and pool_rate > 0, "a number above 0"),
            ("weight_decay", _is_number(decay) and decay >= 0, "a number of at least 0"),
            ("dropout", _is_number(dropout) and 0 <= dropout < 1, "a number in [0, 1)"),
        ):
            if not is_valid:
                raise ArgumentError(f"{name}: expected {expected}, got {getattr(self, name)!r}")
        if not self._pools():
            raise ArgumentError("pool: expected a pooling operator, or several, got none")
        if self.pool_options and len(self._pools()) > 1:
            raise ArgumentError(f"pool_options are those of one operator, but there are {len(self._pools())}; name one")

    def _check_labels(self, y: NDArray[Any], n_bags: int) -> Tensor:
        """Set `kind_` and `classes_`; return the targets, 0/1 (n_bags, outputs)."""
        if y.ndim not in (1, 2):
            raise ArgumentError(f"y: expected shape (n_bags,) or (n_bags, n_labels), got {y.shape}")
        if len(y) != n_bags:
            raise ArgumentError(f"y: expected one label for each of {n_bags} bags, got {len(y)}")
        if y.ndim == 2:
            if not np.isin(y, (0, 1)).all():
                raise DataError(
                    "y: expected only 0 and 1 in a matrix of labels, got other values; give classes as a vector"
                )
            self.kind_, self.classes_ = "multilabel", np.arange(y.shape[1])
            return torch.from_numpy(y.astype(np.float32))
        if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.round(y))).all():
            raise DataError("y: expected class labels, got fractions or NaN")
        try:
            self.classes_, index = np.unique(y, return_inverse=True)
        except TypeError:
            raise DataError("y: expected labels of one type, got a mixture") from None
        if len(self.classes_) < 2:
            raise DataError(f"y: expected at least two classes, got only {self.classes_.tolist()}")
        self.kind_ = "binary" if len(self.classes_) == 2 else "multiclass"
        outputs = np.array([1]) if self.kind_ == "binary" else np.arange(len(self.classes_))
        return torch.from_numpy((index[:, None] == outputs).astype(np.float32))


class _BagNetwork(nn.Module):
    """Perceptron on instances, sigmoid, pooling operator."""

    def __init__(self, model: BagClassifier, pool: str, n_outputs: int) -> None:
        super().__init__()
        widths = [model.n_features_in_, *model.hidden]
        layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Dropout(model.dropout)) for a, b in pairwise(widths)]
        self.embed = nn.Sequential(*layers)
        self.classify = nn.Linear(widths[-1], n_outputs)
        needed = {"embedding_dim": widths[-1]} if POOLS[pool].cls.uses_embedding else {}
        self.pool = create_pool(pool, n_outputs, **needed | dict(model.pool_options or {}))

    def forward(self, bags: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """P (bags, outputs), and p (instances of all bags, outputs). Only what the pool sees is padded."""
        embedding = self.embed(torch.cat(list(bags)))
        p = torch.sigmoid(self.classify(embedding))
        sizes = [len(bag) for bag in bags]
        mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
        padded = pad_sequence(list(torch.split(p, sizes)), batch_first=True)
        padded_embedding = pad_sequence(list(torch.split(embedding, sizes)), batch_first=True)
        return self.pool(padded, mask, embedding=padded_embedding), p


def _check_bags(bags: Iterable[ArrayLike], n_features: int | None = None) -> list[Array]:
    """Bags as arrays of `n_features` columns, by default as many as the first has; the first bad bag is named."""
    if not isinstance(bags, Iterable):
        raise ArgumentError(f"bags: expected a sequence of (n_instances, n_features), got {type(bags).__name__}")
    arrays: list[Array] = []
    for i, bag in enumerate(bags):
        try:
            array = np.asarray(bag, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"bag {i}: expected numbers (n_instances, n_features), got a {type(bag).__name__} of something else"
            ) from None
        if array.size == 0:
            raise DataError(f"bag {i}: expected at least one instance, got none")
        if array.ndim != 2:
            raise ArgumentError(f"bag {i}: expected shape (n_instances, n_features), got {array.shape}")
        n_features = n_features or array.shape[1]
        if array.shape[1] != n_features:
            raise DataError(f"bag {i}: expected {n_features} features per instance, got {array.shape[1]}")
        if not np.isfinite(array).all():
            raise DataError(f"bag {i}: expected finite numbers, got NaN or infinity")
        arrays.append(array)
    if not arrays:
        raise DataError("bags: expected at least one, got none")
    return arrays


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)
