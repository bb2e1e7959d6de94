"""earmark.mil: scikit-learn's contract, the model on problems with a known answer, and every complaint."""

import copy
import importlib
import pickle
import sys

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

import earmark
from earmark.errors import ArgumentError, DataError, MissingExtraError
from earmark.mil import BagClassifier

QUICK = {
    "hidden": (16,),
    "epochs": 20,
    "learning_rate": 1e-2,
    "pool_learning_rate": 5e-2,
    "dropout": 0.0,
    "random_state": 0,
}
ALONE = {**QUICK, "pool": "auto"}


def make_bags(n_bags=60, n_features=5, n_kinds=1, seed=0):
    """Noise; in bag i, instance `planted[i]` is moved by 6 along feature `kind[i]` (0: not moved)."""
    rng = np.random.default_rng(seed)
    bags = [rng.normal(size=(rng.integers(2, 12), n_features)) for _ in range(n_bags)]
    kind = np.arange(n_bags) % (n_kinds + 1)
    planted = np.array([rng.integers(len(bag)) for bag in bags])
    for bag, k, i in zip(bags, kind, planted, strict=True):
        if k:
            bag[i, k - 1] += 6.0
    return bags, kind, planted


@pytest.fixture(scope="module")
def fitted():
    bags, y, _ = make_bags()
    return BagClassifier(**ALONE).fit(bags, y)


def test_learns_which_bags_and_which_instances(fitted):
    bags, y, planted = make_bags(seed=1)
    assert fitted.score(bags, y) > 0.9
    p = fitted.predict_instances(bags)
    assert [x.shape for x in p] == [(len(bag),) for bag in bags]
    found = [p[i].argmax() == planted[i] for i in np.flatnonzero(y)]
    assert np.mean(found) > 0.9
    assert all(x.min() >= 0 and x.max() <= 1 for x in p)


def test_the_defaults_learn():
    bags, y, _ = make_bags()
    assert BagClassifier(random_state=0).fit(bags[:40], y[:40]).score(bags[40:], y[40:]) > 0.8


def test_several_pools_give_the_mean_of_what_each_gives_alone():
    bags, y, _ = make_bags(n_kinds=2)
    alone = [BagClassifier(**QUICK, pool=pool).fit(bags, y == 1) for pool in ("mean", "max")]
    both = BagClassifier(**QUICK, pool=("mean", "max")).fit(bags, y == 1)
    expected = np.mean([model.predict_proba(bags) for model in alone], axis=0)
    np.testing.assert_allclose(both.predict_proba(bags), expected, atol=1e-6)
    p = [np.mean(parts, axis=0) for parts in zip(*(m.predict_instances(bags) for m in alone), strict=True)]
    np.testing.assert_allclose(np.concatenate(both.predict_instances(bags)), np.concatenate(p), atol=1e-6)
    assert [network.pool.name for network in both.networks_] == ["mean", "max"]
    with pytest.raises(ArgumentError, match="pool_options are those of one operator, but there are 2"):
        BagClassifier(**QUICK, pool=("rap", "max"), pool_options={"penalty": 1.0}).fit(bags, y)
    with pytest.raises(ArgumentError, match="pool: expected a pooling operator"):
        BagClassifier(**QUICK, pool=()).fit(bags, y)


@pytest.mark.parametrize(
    "pool", ["max", "mean", "softmax", "auto", "cap", "rap", "noisy-or", "attention", "gated-attention"]
)
def test_pools_by_name(pool):
    bags, y, _ = make_bags()
    model = BagClassifier(**QUICK, pool=pool).fit(bags, y)
    # chance is 0.5; one instance in eleven can hardly carry the mean or soft-max
    assert model.score(*make_bags(seed=1)[:2]) > (0.6 if pool in ("mean", "softmax") else 0.75)
    assert model.networks_[0].pool.name == pool


def test_pool_options_reach_the_pool():
    bags, y, _ = make_bags()
    model = BagClassifier(**QUICK, pool="rap", pool_options={"penalty": 10.0}).fit(bags, y)
    free = BagClassifier(**QUICK, pool="rap", pool_options={"penalty": 0.0}).fit(bags, y)
    assert abs(model.networks_[0].pool.alpha.item()) < abs(free.networks_[0].pool.alpha.item())


def test_the_pool_is_projected_after_each_step():
    bags, y, _ = make_bags()
    model = BagClassifier(**QUICK, pool="cap", pool_options={"bag_size": 4, "alpha": 50.0}).fit(bags, y)
    assert model.networks_[0].pool.alpha.item() <= np.log(3) + 1e-6


def test_weight_decay_leaves_alpha_alone():
    bags, y, _ = make_bags()
    single = [bag[:1] for bag in bags]  # one instance is its own mean: the loss does not pull at alpha either
    model = BagClassifier(**ALONE, weight_decay=1.0).fit(single, y)
    assert model.networks_[0].pool.alpha.item() == pytest.approx(1, abs=1e-3)
    assert model.networks_[0].classify.weight.abs().max() < 0.05


@pytest.mark.parametrize(
    "labels", [[0, 1], [-1, 1], [False, True], [2.0, 7.0], ["no", "yes"], np.array(["a", "b"], dtype=object)]
)
def test_two_classes_of_any_type(labels):
    bags, kind, _ = make_bags()
    y = np.asarray(labels)[kind]
    model = BagClassifier(**ALONE).fit(bags, y.tolist())
    assert model.classes_.tolist() == list(labels)
    assert set(model.predict(bags).tolist()) == set(labels)
    assert model.score(bags, y) > 0.9
    probability = model.predict_proba(bags)
    assert probability.shape == (60, 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)


def test_more_classes():
    bags, kind, planted = make_bags(n_bags=90, n_kinds=2)
    y = np.array(["nothing", "cat", "dog"])[kind]
    model = BagClassifier(**{**ALONE, "epochs": 30}).fit(bags, y)
    assert model.classes_.tolist() == ["cat", "dog", "nothing"]
    assert model.score(bags, y) > 0.9
    probability = model.predict_proba(bags)
    assert probability.shape == (90, 3)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[probability.argmax(axis=1)], model.predict(bags))
    p = model.predict_instances(bags)
    assert p[0].shape == (len(bags[0]), 3)
    assert np.mean([p[i][:, 0].argmax() == planted[i] for i in np.flatnonzero(y == "cat")]) > 0.9


def test_a_matrix_of_labels():
    bags, kind, _ = make_bags(n_bags=90, n_kinds=2)
    bags[0] = np.vstack([bags[1][np.newaxis, 0] * 0 + [6, 6, 0, 0, 0], bags[0]])  # both, on one instance
    y = np.column_stack([kind == 1, kind == 2])
    y[0] = True
    model = BagClassifier(**{**ALONE, "epochs": 30}).fit(bags, y)
    predicted = model.predict(bags)
    assert predicted.shape == (90, 2)
    assert np.isin(predicted, (0, 1)).all()
    np.testing.assert_array_equal(predicted, model.predict_proba(bags) >= 0.5)
    assert model.score(bags, y) > 0.9
    assert model.classes_.tolist() == [0, 1]
    assert model.predict_instances(bags[:1])[0].shape == (len(bags[0]), 2)
    assert BagClassifier(**ALONE).fit(bags, y[:, :1]).predict(bags).shape == (90, 1)


def test_a_bag_does_not_see_the_others(fitted):
    bags, _, _ = make_bags(seed=2)
    together = fitted.predict_proba(bags)
    alone = np.vstack([fitted.predict_proba([bag]) for bag in bags])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    backwards = fitted.predict_instances(bags[::-1])[::-1]
    for one, other in zip(fitted.predict_instances(bags), backwards, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_order_of_instances_does_not_matter(fitted):
    bags, _, _ = make_bags(seed=2)
    np.testing.assert_allclose(fitted.predict_proba(bags), fitted.predict_proba([bag[::-1] for bag in bags]), atol=1e-6)


def test_forms_of_bags():
    bags = [bag[:2] for bag in make_bags()[0]]
    y = make_bags()[1]
    expected = BagClassifier(**ALONE).fit(bags, y).predict_proba(bags)
    for form in (np.array(bags), tuple(bags), [bag.tolist() for bag in bags], [torch.from_numpy(bag) for bag in bags]):
        np.testing.assert_array_equal(BagClassifier(**ALONE).fit(form, y).predict_proba(form), expected)


def test_the_scale_of_a_feature_does_not_matter():
    bags, y, _ = make_bags()
    scale, offset = np.array([1e-6, 1, 1e6, 1, 1]), np.array([0, 1e6, 0, 0, 5])
    moved = [bag * scale + offset for bag in bags]
    moved = [
        np.column_stack([bag, np.full(len(bag), 0.1)]) for bag in moved
    ]  # a constant column, whose deviation is not 0
    assert BagClassifier(**ALONE).fit(moved, y).score(moved, y) > 0.9
    raw = BagClassifier(**ALONE, standardize=False).fit(bags, y)
    np.testing.assert_array_equal(raw.mean_, 0)
    assert raw.score(bags, y) > 0.9


def test_logistic_regression_without_hidden_layers():
    bags, y, _ = make_bags()
    model = BagClassifier(**{**ALONE, "hidden": (), "epochs": 60}).fit(bags, y)
    assert model.score(bags, y) > 0.9
    assert sum(w.numel() for w in model.networks_[0].parameters()) == 5 + 1 + 1  # weights, bias, alpha
    attentive = BagClassifier(**{**QUICK, "hidden": ()}, pool="attention").fit(bags, y)
    assert attentive.predict_proba(bags).shape == (60, 2)


def test_saturated_probabilities_do_not_break_training():
    bags, y, _ = make_bags()
    wild = [bag * 1e4 for bag in bags]
    model = BagClassifier(**ALONE, standardize=False).fit(wild, y)
    assert np.isfinite(model.predict_proba(wild)).all()
    assert all(torch.isfinite(w).all() for w in model.networks_[0].parameters())


def test_scikit_learn_contract():
    model = BagClassifier(**QUICK, pool="rap", pool_options={"penalty": 1e-2})
    assert is_classifier(model)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(epochs=3).epochs == 3
    assert "pool='rap'" in repr(model)
    bags, y, _ = make_bags()
    assert model.fit(bags, y) is model
    assert model.n_features_in_ == 5
    assert not hasattr(clone(model), "networks_")


def test_cross_validation_and_grid_search():
    bags, y, _ = make_bags()
    assert cross_val_score(BagClassifier(**ALONE), bags, y, cv=3).mean() > 0.9
    assert cross_val_score(BagClassifier(**ALONE), bags, y, cv=3, scoring="roc_auc").mean() > 0.9
    search = GridSearchCV(BagClassifier(**ALONE), {"pool": ["max", "auto"], "hidden": [(4,), (16,)]}, cv=2)
    assert search.fit(bags, y).best_score_ > 0.8
    matrix = np.column_stack([y, 1 - y])
    assert cross_val_score(BagClassifier(**ALONE), bags, matrix, cv=3).shape == (3,)


def test_in_two_threads():
    """Both draw from torch's one global generator; neither may see the other's numbers."""
    bags, y, _ = make_bags()
    model = BagClassifier(**{**ALONE, "dropout": 0.5})
    alone = cross_val_score(model, bags, y, cv=4, scoring="neg_log_loss")
    with parallel_config("threading", n_jobs=2):
        np.testing.assert_array_equal(cross_val_score(model, bags, y, cv=4, scoring="neg_log_loss"), alone)


def test_deterministic_and_leaves_torch_alone():
    bags, y, _ = make_bags()
    options = {**ALONE, "dropout": 0.5, "epochs": 2}
    state = torch.get_rng_state()
    one, other = (BagClassifier(**options).fit(bags, y).predict_proba(bags) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(one, other)
    seeded = BagClassifier(**{**options, "random_state": 1}).fit(bags, y).predict_proba(bags)
    assert not np.array_equal(one, seeded)
    generator = np.random.RandomState(0)
    drawn = [BagClassifier(**{**options, "random_state": generator}).fit(bags, y).predict_proba(bags) for _ in range(2)]
    assert not np.array_equal(*drawn)


def test_pickle_and_deepcopy(fitted):
    bags, _, _ = make_bags(seed=3)
    for twin in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(twin.predict_proba(bags), fitted.predict_proba(bags))


BAGS = [np.zeros((2, 3)), np.ones((4, 3))]


@pytest.mark.parametrize(
    ("bags", "y", "error", "message"),
    [
        ([BAGS[0], np.zeros((0, 3))], [0, 1], DataError, r"^bag 1: expected at least one instance, got none$"),
        ([BAGS[0], []], [0, 1], DataError, r"^bag 1: expected at least one"),
        ([], [], DataError, r"^bags: expected at least one, got none$"),
        (7, [0, 1], ArgumentError, r"^bags: expected a sequence of \(n_instances, n_features\), got int$"),
        ([BAGS[0], np.zeros((2, 4))], [0, 1], DataError, r"^bag 1: expected 3 features per instance, got 4$"),
        (
            [BAGS[0], np.full((1, 3), np.nan)],
            [0, 1],
            DataError,
            r"^bag 1: expected finite numbers, got NaN or infinity$",
        ),
        ([np.full((1, 3), np.inf), BAGS[0]], [0, 1], DataError, r"^bag 0: expected finite numbers"),
        (
            [BAGS[0], [["x", "y", "z"]]],
            [0, 1],
            DataError,
            r"^bag 1: expected numbers .*, got a list of something else$",
        ),
        ([BAGS[0], [[1, 2, 3], [1, 2]]], [0, 1], DataError, r"^bag 1: expected numbers"),
        (np.zeros((2, 3)), [0, 1], ArgumentError, r"^bag 0: expected shape \(n_instances, n_features\), got \(3,\)$"),
        (BAGS, [0, 1, 1], ArgumentError, r"^y: expected one label for each of 2 bags, got 3$"),
        (BAGS, 1, ArgumentError, r"^y: expected shape \(n_bags,\) or \(n_bags, n_labels\), got \(\)$"),
        (BAGS, ["a", "a"], DataError, r"^y: expected at least two classes, got only \['a'\]$"),
        (BAGS, [0.0, np.nan], DataError, r"^y: expected class labels, got fractions or NaN$"),
        (BAGS, [0.3, 0.7], DataError, r"^y: expected class labels"),
        (BAGS, np.array([1, "a"], dtype=object), DataError, r"^y: expected labels of one type, got a mixture$"),
        (BAGS, [[0, 2], [1, 0]], DataError, r"^y: expected only 0 and 1 in a matrix of labels"),
    ],
)
def test_bad_data(bags, y, error, message):
    with pytest.raises(error, match=message):
        BagClassifier(**ALONE).fit(bags, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, r"^epochs: expected a whole number of at least 1, got 0$"),
        ({"batch_size": 2.5}, r"^batch_size: expected a whole number of at least 1, got 2\.5"),
        ({"batch_size": True}, r"^batch_size: expected a whole number of at least 1, got True"),
        ({"hidden": (8, 0)}, r"^hidden: expected a sequence of whole numbers of at least 1, got \(8, 0\)$"),
        ({"hidden": 8}, r"^hidden: expected a sequence of whole numbers"),
        ({"learning_rate": 0}, r"^learning_rate: expected a number above 0, got 0$"),
        ({"learning_rate": "fast"}, r"^learning_rate: expected a number above 0, got 'fast'$"),
        ({"pool_learning_rate": -1.0}, r"^pool_learning_rate: expected a number above 0, got -1\.0$"),
        ({"weight_decay": -1}, r"^weight_decay: expected a number of at least 0, got -1$"),
        ({"dropout": 1}, r"^dropout: expected a number in \[0, 1\), got 1$"),
        ({"pool": "atuo"}, r"^pool='atuo' is not known; did you mean 'auto'\?"),
        ({"pool": "rap", "pool_options": {"penalti": 1}}, r"'penalti' is not known; did you mean 'penalty'\?"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ArgumentError, match=message):
        BagClassifier(**{**ALONE, **options}).fit(BAGS, [0, 1])


def test_prediction_complains(fitted):
    for method in ("predict", "predict_proba", "predict_instances"):
        with pytest.raises(NotFittedError):
            getattr(BagClassifier(), method)(BAGS)
        with pytest.raises(DataError, match=r"^bag 0: expected 5 features per instance, got 3$"):
            getattr(fitted, method)(BAGS)


def test_without_scikit_learn(monkeypatch):
    for name in ("sklearn", "sklearn.base"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "earmark.mil")
    monkeypatch.delitem(vars(earmark), "mil", raising=False)
    with pytest.raises(MissingExtraError, match=r"^earmark\.mil needs packages .* pip install 'earmark\[mil\]'$"):
        importlib.import_module("earmark.mil")


def test_musk1(shared):
    table = np.loadtxt(shared / "mil" / "musk1.csv", delimiter=",")
    ids, first = np.unique(table[:, 1], return_index=True)
    bags = [table[table[:, 1] == i, 2:] for i in ids]
    y = table[first, 0].astype(int)
    model = BagClassifier(hidden=(64,), epochs=20, random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    assert cross_val_score(model, bags, y, cv=folds).mean() > 0.75  # chance is 0.51; one deviation is 0.035
