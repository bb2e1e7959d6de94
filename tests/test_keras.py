"""earmark.keras on the torch and the jax backend of Keras.

Keras fixes its backend when it is first imported, so the checks cannot run in the process that collects them.
`test_on_backend` starts one pytest per backend on this same file, to which functions called `check_*` are the tests:
all of them in one process, with one import. By hand:

    EARMARK_KERAS_CHECKS=1 KERAS_BACKEND=jax python -m pytest tests/test_keras.py -o python_functions='check_*'
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import sys

import numpy as np
import pytest
import warm

from earmark.errors import ArgumentError, DataError, MissingExtraError

if "EARMARK_KERAS_CHECKS" in os.environ:
    import keras

    import earmark.keras
    from earmark.keras import AutoPool1D, LinearAutoPool1D, SoftMaxPool1D

# Keras 3.15 hands its variables and torch's tensors to numpy in a way that numpy 2 deprecates; that is between them.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

BAGS, FRAMES, CLASSES = 4, 7, 3
LENGTHS = (7, 3, 1, 5)
ALPHA = np.array([[-2.0, 0.5, 6.0]], dtype="float32")
CAP = float(np.log(FRAMES - 1))  # for bags of this size


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_on_backend(backend, tmp_path):
    for package in ("keras", backend):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"EARMARK_KERAS_CHECKS": "1", "KERAS_BACKEND": backend, "KERAS_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    # jax spends its time here compiling, not computing, and torch on threads for tensors of a hundred numbers.
    env |= {"XLA_FLAGS": "--xla_backend_optimization_level=0", "OMP_NUM_THREADS": "1"}
    options = ["-q", "-rs", "-Werror", "--noconftest", "-pno:cacheprovider", "-oaddopts=", "-opython_functions=check_*"]
    command = [sys.executable, "-m", "pytest", *options, "--basetemp", str(tmp_path / "checks"), __file__]
    run = warm.run(command, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout


@pytest.fixture
def fresh_import(monkeypatch):
    """Makes the next import of earmark.keras a first one, and undoes it afterwards."""
    import earmark

    monkeypatch.delitem(sys.modules, "earmark.keras", raising=False)
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.delitem(vars(earmark), "keras", raising=False)
    return lambda: importlib.import_module("earmark.keras")


def test_says_which_extra_is_missing(fresh_import, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(MissingExtraError, match=r"^earmark\.keras needs packages .* pip install 'earmark\[keras\]'$"):
        fresh_import()


def test_says_how_to_choose_a_backend_that_is_there(fresh_import, monkeypatch, tmp_path):
    (tmp_path / "keras.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="tensorflow") as caught:
        fresh_import()
    assert not isinstance(caught.value, MissingExtraError)
    assert "KERAS_BACKEND to torch" in caught.value.__notes__[0]


# What follows runs in the processes that test_on_backend starts.


@pytest.fixture
def rng():
    return np.random.default_rng(2018)


@pytest.fixture
def p(rng):
    return rng.random((BAGS, FRAMES, CLASSES)).astype("float32")


@pytest.fixture
def mask():
    return np.arange(FRAMES) < np.array(LENGTHS)[:, None]


@pytest.fixture
def theirs(monkeypatch):
    """The authors' module, with the two functions that Keras 3 moved put back where it looks for them."""
    module = pytest.importorskip("autopool.keras", reason="autopool is not installed")
    monkeypatch.setattr(keras.backend, "softmax", keras.ops.softmax, raising=False)
    monkeypatch.setattr(keras.backend, "sum", keras.ops.sum, raising=False)
    return module


def reference(p, alpha, axis=0):
    """Eq. (8) as it is written, in float64."""
    p = np.asarray(p, dtype="float64")
    e = np.exp(np.asarray(alpha, dtype="float64") * p)
    return (p * e).sum(axis) / e.sum(axis)


def reference_bags(p, mask, alpha):
    """Eq. (8) bag by bag, on what is left of each when the padding has been cut off."""
    alpha = np.broadcast_to(alpha, (1, p.shape[-1]))
    return np.stack([reference(bag[kept], alpha) for bag, kept in zip(p, mask, strict=True)])


def layer_with(alpha, **options):
    return AutoPool1D(
        **{"axis": 1, "kernel_initializer": lambda shape, dtype=None: keras.ops.cast(alpha, dtype), **options}
    )


def gradients(layer, p, mask, out):
    """Gradients of sum(out * P) with respect to p and alpha."""
    if not layer.built:
        layer.build(p.shape)
    if keras.backend.backend() == "torch":
        import torch

        x = torch.tensor(p, requires_grad=True)
        loss = (layer(x, mask=torch.tensor(mask)) * torch.tensor(out)).sum()
        found = torch.autograd.grad(loss, [x, layer.kernel.value])
    else:
        import jax

        def loss(x, weights):
            return (layer.stateless_call(weights, [], x, mask=mask)[0] * out).sum()

        by_p, (by_alpha,) = jax.grad(jax.jit(loss), argnums=(0, 1))(p, [layer.kernel.value])
        found = (by_p, by_alpha)
    return [keras.ops.convert_to_numpy(g) for g in found]


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(numpy(found), expected, rtol=tolerance, atol=tolerance)


def check_backend_is_the_one_asked_for():
    assert keras.backend.backend() == os.environ["KERAS_BACKEND"]


def check_examples_in_docstrings():
    failed, attempted = doctest.testmod(earmark.keras)
    assert (failed, attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [*(((4, 7, 3), axis) for axis in (0, 1, -1, -2, -3)), *(((2, 7, 5, 3), axis) for axis in (1, 2, -2))],
)
def check_values(rng, shape, axis):
    x = rng.random(shape).astype("float32")
    assert numpy(layer_with(ALPHA, axis=axis)(x)).shape == layer_with(ALPHA, axis=axis).compute_output_shape(shape)
    close(layer_with(ALPHA, axis=axis)(x), reference(x, ALPHA, axis))
    close(SoftMaxPool1D(axis=axis)(x), reference(x, 1.0, axis))


def check_limits(p):
    close(AutoPool1D(axis=1)(p), p.mean(1))
    close(layer_with(np.full((1, 3), 1e4))(p), p.max(1))
    close(layer_with(np.full((1, 3), -1e4))(p), p.min(1))
    close(layer_with(ALPHA)(1e30 * p), 1e30 * np.stack([p.min(1)[:, 0], p.max(1)[:, 1], p.max(1)[:, 2]], axis=1))


def check_one_frame_is_itself_and_no_bags_are_none(p, mask):
    close(layer_with(ALPHA)(p[:, :1]), p[:, 0])
    assert numpy(layer_with(ALPHA)(p[:0], mask=mask[:0])).shape == (0, CLASSES)


def check_soft_max_takes_two_axes(p):
    close(SoftMaxPool1D()(p[0]), reference(p[0], 1.0))


@pytest.mark.parametrize("axis", [0, 1, -2])
def check_agrees_with_the_authors_package(theirs, p, axis):
    auto = theirs.AutoPool1D(axis=axis, kernel_initializer="ones")
    auto.build(p.shape)
    auto.set_weights([ALPHA])
    ours = AutoPool1D.from_config(auto.get_config())
    ours.build(p.shape)
    ours.set_weights(auto.get_weights())
    assert ours.kernel.shape == auto.kernel.shape == (1, CLASSES)
    assert ours.kernel.name == auto.kernel.name == "kernel"
    assert ours.get_config() == auto.get_config()
    close(ours(p), numpy(auto(p)), 1e-6)
    assert SoftMaxPool1D().get_config().keys() == theirs.SoftMaxPool1D().get_config().keys()
    close(SoftMaxPool1D(axis=axis)(p), numpy(theirs.SoftMaxPool1D(axis=axis)(p)), 1e-6)


def check_opens_files_of_the_authors_package(theirs, p, tmp_path):
    pool = theirs.AutoPool1D(axis=1, kernel_regularizer="l2")
    saved = keras.Sequential([keras.Input((None, CLASSES)), pool, theirs.SoftMaxPool1D(axis=-1)])
    pool.set_weights([ALPHA])
    saved.save(tmp_path / "model.keras")
    saved.save_weights(tmp_path / "model.weights.h5")
    named = {"AutoPool1D": AutoPool1D, "SoftMaxPool1D": SoftMaxPool1D}
    opened = keras.models.load_model(tmp_path / "model.keras", custom_objects=named)
    assert [type(layer) for layer in opened.layers] == [AutoPool1D, SoftMaxPool1D]
    close(opened(p), numpy(saved(p)), 1e-6)
    ours = keras.Sequential([keras.Input((None, CLASSES)), AutoPool1D(axis=1), SoftMaxPool1D(axis=-1)])
    ours.load_weights(tmp_path / "model.weights.h5")
    close(ours(p), numpy(saved(p)), 1e-6)


@pytest.mark.parametrize(
    ("axis", "padding"), [(1, 0.0), (1, -5.0), (1, 1e30), (1, np.inf), (1, -np.inf), (1, np.nan), (-2, np.nan)]
)
def check_padding_is_invisible(p, mask, axis, padding):
    p[~mask] = padding
    close(layer_with(ALPHA, axis=axis)(p, mask=mask), reference_bags(p, mask, ALPHA))
    close(SoftMaxPool1D(axis=axis)(p, mask=mask), reference_bags(p, mask, 1.0))


@pytest.mark.parametrize("padding", [0.5, np.inf, np.nan])
def check_padding_is_invisible_in_gradients(rng, p, mask, padding):
    p[~mask] = padding
    out = rng.normal(size=(BAGS, CLASSES)).astype("float32")
    by_p, by_alpha = gradients(layer_with(ALPHA), p, mask, out)
    real = np.where(mask[..., None], p, 0.0).astype("float64")
    w = np.exp(ALPHA * real) * mask[..., None]
    w /= w.sum(1, keepdims=True)
    P = (w * real).sum(1, keepdims=True)
    close(by_p, out[:, None] * w * (1 + ALPHA * (real - P)))
    close(
        by_alpha, (out * (w * (real - P) ** 2).sum(1)).sum(0, keepdims=True)
    )  # dP/dalpha is the variance of p under w
    assert (by_p[~mask] == 0).all()


LINEAR_ALPHA = np.array([[0.0, 0.5, 30.0]], dtype="float32")


def linear_with(alpha, **options):
    kernel = {"kernel_initializer": lambda shape, dtype=None: keras.ops.cast(alpha, dtype)}
    return LinearAutoPool1D(**{"axis": 1, **kernel, **options})


@pytest.mark.parametrize("padding", [0.5, np.inf, np.nan])
def check_adaptive_linear_soft_max_is_that_of_pytorch(rng, p, mask, padding):
    """Values and gradients, with p at both ends, of which padding is no part."""
    import torch

    from earmark.pooling import AdaptiveLinearPool

    p[0, :2], p[1] = [[0.0], [1.0]], 0.0
    p[~mask] = padding
    out = rng.normal(size=(BAGS, CLASSES)).astype("float32")
    twin, x = AdaptiveLinearPool(CLASSES, alpha=LINEAR_ALPHA[0].tolist()), torch.tensor(p, requires_grad=True)
    P = twin(x, torch.tensor(mask))
    (P * torch.tensor(out)).sum().backward()
    layer = linear_with(LINEAR_ALPHA)
    close(layer(p, mask=mask), P.detach().numpy())
    by_p, by_alpha = gradients(layer, p, mask, out)
    close(by_p, x.grad.numpy(), 1e-4)
    close(by_alpha, twin.alpha.grad.numpy()[None], 1e-4)
    assert (by_p[~mask] == 0).all()


def check_adaptive_linear_soft_max_ignores_silence_and_keeps_alpha_from_becoming_negative(p):
    silent = np.concatenate([p[:, :2], np.zeros((BAGS, 500, CLASSES), "float32")], axis=1)
    close(linear_with(LINEAR_ALPHA)(silent), numpy(linear_with(LINEAR_ALPHA)(p[:, :2])), 1e-3)
    layer = LinearAutoPool1D(axis=1, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((None, CLASSES)), layer])
    model.compile(keras.optimizers.SGD(50.0), "binary_crossentropy")
    model.fit(p, np.zeros((BAGS, CLASSES)), epochs=5, verbose=0)
    assert (numpy(layer.kernel) == 0).all()


def check_adaptive_linear_soft_max_is_saved_and_loaded(p, tmp_path):
    model = keras.Sequential([keras.Input((None, CLASSES)), LinearAutoPool1D(axis=1, kernel_regularizer="l2")])
    model.layers[0].set_weights([LINEAR_ALPHA])
    model.save(tmp_path / "model.keras")
    opened = keras.models.load_model(tmp_path / "model.keras")
    assert opened.layers[0].get_config() == model.layers[0].get_config()
    assert isinstance(opened.layers[0].kernel_constraint, keras.constraints.NonNeg)
    close(opened(p), numpy(model(p)), 0)


def check_bag_without_a_real_frame_is_zero(p, mask):
    mask[1] = False
    p[~mask] = np.nan
    P = numpy(layer_with(ALPHA)(p, mask=mask))
    assert (P[1] == 0).all()
    close(P[[0, 2, 3]], reference_bags(p[[0, 2, 3]], mask[[0, 2, 3]], ALPHA))
    by_p, by_alpha = gradients(layer_with(ALPHA), p, mask, np.ones_like(P))
    assert np.isfinite(by_alpha).all()
    assert (by_p[~mask] == 0).all()


@pytest.mark.parametrize("kind", ["int32", "float32"])
def check_mask_may_be_numbers(p, mask, kind):
    close(layer_with(ALPHA)(p, mask=mask.astype(kind)), reference_bags(p, mask, ALPHA))


def check_nan_in_a_real_frame_is_not_hidden(p, mask):
    p[0, 0, 0] = np.nan
    P = numpy(layer_with(ALPHA)(p, mask=mask))
    assert np.isnan(P[0, 0])
    assert np.isfinite(P.ravel()[1:]).all()


def check_masking_layer_upstream(rng, p, mask):
    p[~mask] = 0.0
    x = keras.Input((None, CLASSES))
    frames = keras.layers.Dense(CLASSES, "sigmoid", bias_initializer="ones")  # makes 0.73 of the zeros of the padding
    pool = layer_with(ALPHA)
    P = pool(frames(keras.layers.Masking()(x)))
    assert getattr(P, "_keras_mask", None) is None
    model = keras.Model(x, P)
    expected = reference_bags(numpy(frames(p)), mask, ALPHA)
    close(model(p), expected)
    close(model.predict(p, verbose=0), expected)
    assert getattr(model(p), "_keras_mask", None) is None
    assert pool.compute_mask(p, mask) is None


def check_explicit_mask_in_a_functional_model(p, mask):
    p[~mask] = np.nan
    x, real = keras.Input((None, CLASSES)), keras.Input((None,), dtype="bool")
    for P in (layer_with(ALPHA)(x, mask=real), layer_with(ALPHA)(x, real)):
        close(keras.Model([x, real], P).predict([p, mask], verbose=0), reference_bags(p, mask, ALPHA))


def check_mask_of_an_input_with_four_axes(rng, mask):
    x = rng.random((BAGS, FRAMES, 5, CLASSES)).astype("float32")
    x[~mask] = np.nan
    over_time, over_x = layer_with(ALPHA), layer_with(ALPHA, axis=2)
    by_column = np.stack([reference_bags(x[:, :, j], mask, ALPHA) for j in range(5)], axis=1)
    close(over_time(x, mask=mask), by_column)
    assert over_time.compute_mask(x, mask) is None

    by_frame = np.where(mask[..., None], reference(x, ALPHA, 2), 0.0)
    close(over_x(x, mask=mask), by_frame)
    assert (over_x.compute_mask(x, mask) == mask).all()
    came = keras.layers.Masking()(np.where(np.isnan(x), 0.0, x).astype("float32"))  # the mask travels with the frames
    close(SoftMaxPool1D(axis=1)(over_x(came)), reference_bags(by_frame, mask, 1.0))

    real = mask[..., None] & (rng.random((BAGS, FRAMES, 5)) < 0.7)
    x[~real] = np.inf
    found = numpy(over_x(x, mask=real))
    for b, t in np.ndindex(BAGS, FRAMES):
        close(found[b, t], reference(x[b, t, real[b, t]], ALPHA) if real[b, t].any() else np.zeros(CLASSES))
    np.testing.assert_array_equal(numpy(over_x.compute_mask(x, real)), real.any(2))
    np.testing.assert_array_equal(numpy(over_time.compute_mask(x, real)), real.any(1))


@pytest.mark.parametrize("policy", ["float16", "bfloat16", "mixed_float16"])
def check_half_precision(p, mask, policy):
    exact = 2**-7 if policy == "bfloat16" else 2**-10
    p[~mask] = np.nan
    auto, soft = layer_with(ALPHA, dtype=policy), SoftMaxPool1D(axis=1, dtype=policy)
    for P, alpha in ((auto(p, mask=mask), ALPHA), (soft(p, mask=mask), 1.0)):
        assert keras.backend.standardize_dtype(P.dtype) == policy.removeprefix("mixed_")
        close(keras.ops.cast(P, "float32"), reference_bags(p, mask, alpha), exact)
    long = np.tile(p[0], (20000, 1))[None]  # the sum of its weights is beyond the largest number of float16
    for P, alpha in ((auto(long), ALPHA), (soft(long), 1.0)):
        close(keras.ops.cast(P, "float32"), reference(long, alpha, 1), exact)
    loud = auto(np.where(mask[..., None], np.full_like(p, 6e4), np.nan), mask=mask)
    close(keras.ops.cast(loud, "float32") / 6e4, np.ones((BAGS, CLASSES)), exact)
    by_p, by_alpha = gradients(auto, p, mask, np.ones((BAGS, CLASSES), "float32"))
    assert np.isfinite(by_p).all()
    assert np.isfinite(by_alpha.astype("float32")).all()


def check_mixed_precision_keeps_alpha_whole(p):
    p[:, 0] = 0.0
    steep = layer_with(
        np.full((1, CLASSES), 1e5), dtype="mixed_float16"
    )  # infinite in float16, and infinity times 0 is NaN
    close(keras.ops.cast(steep(p), "float32"), p.max(1), 2**-10)


def trained(p, mask, labels, epochs=3, **options):
    """alpha before and after a short training of nothing else."""
    x, real = keras.Input((None, CLASSES)), keras.Input((None,), dtype="bool")
    pool = AutoPool1D(axis=1, kernel_initializer="ones", **options)
    model = keras.Model([x, real], pool(x, mask=real))
    model.compile(keras.optimizers.SGD(5.0), "binary_crossentropy")
    model.fit([p, mask], labels, batch_size=2, epochs=epochs, shuffle=False, verbose=0)
    return numpy(pool.kernel)


def check_training_moves_alpha_and_never_sees_padding(p, mask):
    labels = np.tile([[1.0, 0.0, 1.0]], (BAGS, 1)).astype("float32")
    padded = np.concatenate([np.where(mask[..., None], p, np.nan), np.full_like(p, np.inf)], axis=1)
    alpha = trained(padded, np.concatenate([mask, np.zeros_like(mask)], axis=1), labels)
    assert (
        np.sign(alpha - 1) == [[1, -1, 1]]
    ).all()  # towards the maximum where the sound is, towards the minimum where it is not
    assert (abs(alpha - 1) > 0.05).all()
    close(alpha, trained(np.where(mask[..., None], p, 0.25), mask, labels))


def check_cap(p, mask):
    labels = np.tile([[1.0, 0.0, 0.0]], (BAGS, 1)).astype("float32")
    free = trained(p, mask, labels, epochs=20)
    assert free[0, 0] > CAP
    assert free[0, 1] < 0
    capped = trained(p, mask, labels, epochs=20, kernel_constraint=keras.constraints.max_norm(CAP, axis=0))
    close(capped[0, 0], CAP)
    assert (abs(capped) <= CAP + 1e-5).all()
    positive = trained(p, mask, labels, epochs=20, kernel_constraint=keras.constraints.non_neg())
    assert positive[0, 1] == 0
    close(positive[0, 0], free[0, 0])


def check_rap(p, mask):
    layer = layer_with(ALPHA, kernel_regularizer=keras.regularizers.l2(1e-4))
    layer(p)
    close(sum(numpy(loss) for loss in layer.losses), 1e-4 * (ALPHA**2).sum(), 1e-8)
    labels = np.tile([[1.0, 0.0, 1.0]], (BAGS, 1)).astype("float32")
    plain, held = (
        trained(p, mask, labels, kernel_regularizer=penalty) for penalty in (None, keras.regularizers.l2(1e-2))
    )
    assert (abs(held) < abs(plain)).all()


@pytest.mark.parametrize("ending", ["keras", "weights.h5", "json"])
def check_save_and_load(p, mask, tmp_path, ending):
    p[~mask] = 0.0
    options = {
        "kernel_constraint": keras.constraints.max_norm(CAP, axis=0),
        "kernel_regularizer": keras.regularizers.l2(1e-3),
    }

    def create():
        pool = AutoPool1D(axis=-2, kernel_initializer="ones", name="pool", **options)
        return keras.Sequential([keras.Input((None, CLASSES)), keras.layers.Masking(), pool, SoftMaxPool1D(axis=-1)])

    model = create()
    model.layers[1].set_weights([ALPHA])
    if ending == "keras":
        model.save(tmp_path / "model.keras")
        opened = keras.models.load_model(tmp_path / "model.keras")
    elif ending == "weights.h5":
        model.save_weights(tmp_path / "model.weights.h5")
        opened = create()
        opened.load_weights(tmp_path / "model.weights.h5")
    else:
        opened = keras.models.model_from_json(model.to_json())
        opened.set_weights(model.get_weights())
    assert [type(layer) for layer in opened.layers] == [keras.layers.Masking, AutoPool1D, SoftMaxPool1D]
    assert opened.layers[1].get_config() == model.layers[1].get_config()
    assert (opened.layers[1].kernel_constraint.max_value, opened.layers[1].kernel_regularizer.l2) == (CAP, 1e-3)
    close(opened(p), numpy(model(p)), 0)
    assert keras.saving.get_registered_name(AutoPool1D) == "earmark>AutoPool1D"
    assert keras.saving.get_registered_name(SoftMaxPool1D) == "earmark>SoftMaxPool1D"


@pytest.mark.parametrize(
    ("axis", "shape", "expected"),
    [
        (0, (4, 7, 3), (7, 3)),
        (1, (None, None, 3), (None, 3)),
        (-2, (None, 7, 3), (None, 3)),
        (2, (None, None, 5, 3), (None, None, 3)),
    ],
)
def check_output_shape(axis, shape, expected):
    for kind in (AutoPool1D, SoftMaxPool1D):
        assert kind(axis=axis).compute_output_shape(shape) == expected
        assert kind(axis=axis)(keras.KerasTensor(shape)).shape == expected


def check_old_input_dim(p):
    with pytest.warns(UserWarning, match="Do not pass an `input_shape`/`input_dim`"):
        layer = AutoPool1D(axis=1, input_dim=CLASSES)
    model = keras.Sequential([layer])
    assert model.input_shape == (None, None, CLASSES)
    close(model(p), p.mean(1))
    with pytest.warns(UserWarning, match="Do not pass an `input_shape`/`input_dim`"):
        layer = AutoPool1D(axis=1, input_shape=(FRAMES, CLASSES))
    assert keras.Sequential([layer]).input_shape == (None, FRAMES, CLASSES)


@pytest.mark.parametrize("kind", ["auto", "softmax"])
def check_errors(p, mask, kind):
    create = {"auto": AutoPool1D, "softmax": SoftMaxPool1D}[kind]
    with pytest.raises(ArgumentError, match=r"axis: expected an integer, got 'time'; .* use axis=1"):
        create(axis="time")
    with pytest.raises(ArgumentError, match=r"axis: expected an axis of an input of shape \(4, 7, 3\), got 3"):
        create(axis=3)(p)
    with pytest.raises(ArgumentError, match=r"axis: expected an axis of an input of shape \(4, 7, 3\), got -4"):
        create(axis=-4).compute_output_shape((4, 7, 3))
    with pytest.raises(DataError, match=r"expected at least one frame along axis 1, got shape \(4, 0, 3\)"):
        create(axis=1)(p[:, :0])
    for wrong in (mask[:, :5], mask[:, 0], mask[..., None], np.repeat(mask[..., None], CLASSES, axis=2)):
        with pytest.raises(ArgumentError, match=r"mask: expected \(4, 7\) for an input of shape \(4, 7, 3\)"):
            create(axis=1)(p, mask=wrong)
    for axis in (0, -3):
        with pytest.raises(ArgumentError, match=rf"Pool1D\(axis={axis}\) pools over the batch, .* use axis=1"):
            create(axis=axis)(p, mask=mask)


@pytest.mark.parametrize("kind", ["auto", "softmax"])
def check_mask_is_refused_while_the_model_is_put_together(kind):
    create = {"auto": AutoPool1D, "softmax": SoftMaxPool1D}[kind]
    x, real = keras.Input((FRAMES, CLASSES)), keras.Input((FRAMES,), dtype="bool")
    with pytest.raises(ArgumentError, match=r"pools over the batch, got shape \(None, 7\)"):
        create()(keras.layers.Masking()(x))
    with pytest.raises(ArgumentError, match=r"pools over the batch, got shape \(None, 7\)"):
        create()(x, real)


def check_errors_of_the_kernel(p):
    with pytest.raises(
        ArgumentError, match=r"expected a known number of classes on the last axis, got shape \(None, 7, None\)"
    ):
        AutoPool1D(axis=1)(keras.KerasTensor((None, 7, None)))
    with pytest.raises(ValueError, match="expected min_ndim=3, found ndim=2"):
        AutoPool1D(axis=0)(p[0])
    layer = AutoPool1D(axis=1)
    layer(p)
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 3"):
        layer(p[..., :2])
