"""The contract of the pooling operators, tested as a family: an operator enters by being registered."""

import copy
import importlib.util
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.errors import ArgumentError, DataError
from earmark.pooling import POOLS, MeanPool, create_pool

_spec = importlib.util.spec_from_file_location("reference_pooling", Path(__file__).parent / "reference" / "pooling.py")
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

CLASSES, DIM = 4, 6
NAMES = [entry.name for entry in POOLS]
VARIANTS = [(name, {}) for name in NAMES] + [
    ("auto", {"alpha": [0.0, 1.0, -2.0, 30.0]}),
    ("auto", {"alpha": 1e4}),
    ("auto", {"alpha": -1e4}),
    ("cap", {"alpha": 50.0, "phi": 0.2}),
    ("cap", {"alpha": [9.0, -9.0, 9.0, 9.0], "min_duration": [0.1, 1.0, 2.0, 9.0], "frame_rate": 2.5}),
    ("cap", {"alpha": [9.0, -9.0, 9.0, -9.0], "min_active": [0.01, 0.2, 0.5, 0.9], "phi_minus": 0.02}),
    ("rap", {"penalty": 0.01, "alpha": 3.0}),
    ("power", {"exponent": [0.0, 0.5, 3.0, 20.0]}),
    ("linear-auto", {"alpha": [0.0, 1e-3, 8.0, 30.0]}),
    ("linear-auto", {"alpha": 1e4}),
    ("linear-cap", {"alpha": [0.0, 9.0, 9.0, 1.0], "min_active": [0.05, 0.001, 0.05, 0.3]}),
    ("linear-rap", {"penalty": 0.01, "alpha": 3.0}),
    ("lse", {"sharpness": [0.0, 1e-3, -4.0, 1e4], "learned": True}),
    ("gm", {"exponent": [0.0, 1.0, -2.0, 1e3], "learned": True}),
    ("noisy-and", {"slope": 3.0, "threshold": [0.0, 0.2, 0.7, 1.0]}),
    ("top-k", {"k": 1}),
    ("top-k", {"share": 0.3}),
    ("rank", {"decay": 0.0}),
    ("rank", {"decay": 1.0}),
    ("mean-max", {"mix": [0.0, 0.3, 0.7, 1.0], "learned": True}),
    ("attention", {"embedding_dim": DIM}),
    ("gated-attention", {"embedding_dim": DIM, "hidden": 5}),
    ("hierarchical", {"sizes": [3, 2]}),
]
family = pytest.mark.parametrize(("name", "options"), VARIANTS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(VARIANTS)])
each = pytest.mark.parametrize("name", NAMES)
GRAPHS = [(name, {}) for name in NAMES] + [  # for slow tests: options that change the computation, not only numbers
    ("cap", {"alpha": [9.0, -9.0, 9.0, 9.0], "min_duration": [0.1, 1.0, 2.0, 9.0], "frame_rate": 2.5}),
    ("cap", {"alpha": [9.0, -9.0, 9.0, -9.0], "min_active": [0.01, 0.2, 0.5, 0.9], "phi_minus": 0.02}),
    ("top-k", {"share": 0.3}),
    ("attention", {"embedding_dim": DIM}),
    ("hierarchical", {"sizes": [3, 2]}),
]
each_graph = pytest.mark.parametrize(("name", "options"), GRAPHS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(GRAPHS)])


def make(name, options):
    torch.manual_seed(3)
    return create_pool(name, CLASSES, **options)


def draw(generator, bags=3, frames=13, dtype=torch.float32):
    """A padded batch: p, mask (not only at the end), embedding."""
    p = torch.rand(bags, frames, CLASSES, generator=generator, dtype=dtype)
    mask = torch.rand(bags, frames, generator=generator) > 0.3
    mask[:, 1] = True
    h = torch.randn(bags, frames, DIM, generator=generator, dtype=dtype)
    return p, mask, h


def reference_pool(pool, name, p, h):
    """P (classes,) of one bag without padding, by the slow formulas."""
    x = p.double().numpy()
    state = {k: v.detach().double().numpy() for k, v in pool.state_dict().items()}
    if name in reference.STRUCTURED:
        look = x if getattr(pool, "embedding_dim", None) is None else h.double().numpy()
        return reference.STRUCTURED[name](x, look, {**state, "sizes": getattr(pool, "sizes", None)})
    settings = {k: getattr(pool, k, None) for k in ("phi", "phi_minus", "slope", "k", "share", "decay")}
    least = pool._least_frames(torch.tensor(float(len(x)))) if name == "cap" else None
    return np.array(
        [
            reference.REFERENCES[name](
                list(x[:, c]),
                {**settings, "least": None if least is None else float(least[c])}
                | ({"min_active": pool.shares[c]} if name == "linear-cap" else {})
                | {k: float(v[c]) for k, v in state.items() if v.shape == (CLASSES,)},
            )
            for c in range(CLASSES)
        ]
    )


def test_at_least_twenty_operators_each_with_a_reference():
    assert len(list(POOLS)) >= 20
    assert set(NAMES) == set(reference.REFERENCES) | set(reference.STRUCTURED)


@each
def test_says_what_it_is(name):
    entry = POOLS[name]
    doc = entry.cls.__doc__
    assert entry.summary
    assert re.search(r"P = |Eq\. \(8\)", doc), "formula"
    assert re.search(r"Eq\. \(\d+\)|section I|(19|20)\d\d\)", doc), "citation"
    assert re.search(r"Limits:|Not a mean:", doc), "limits"


@family
def test_agrees_with_the_formula(name, options, generator):
    pool = make(name, options)
    p, mask, h = draw(generator)
    P = pool(p, mask, embedding=h).detach().double().numpy()
    for bag in range(len(p)):
        expected = reference_pool(pool, name, p[bag, mask[bag]], h[bag, mask[bag]])
        np.testing.assert_allclose(P[bag], expected, atol=2e-6, err_msg=f"bag {bag}")


@family
def test_padding_is_invisible_in_values_and_gradients(name, options, generator):
    pool = make(name, options)
    p, mask, h = draw(generator)
    junk = torch.where(mask.unsqueeze(-1), p, torch.nan).requires_grad_()
    look = torch.where(mask.unsqueeze(-1), h, torch.inf).requires_grad_()
    P = pool(junk, mask, embedding=look)
    direction = torch.rand(P.shape, generator=generator)
    (P * direction).sum().backward()
    assert torch.isfinite(P).all()
    assert (junk.grad[~mask] == 0).all()
    assert look.grad is None or (look.grad[~mask] == 0).all()
    with_padding = [x.grad.clone() for x in pool.parameters() if x.grad is not None]
    pool.zero_grad()
    for bag in range(len(p)):
        alone = p[bag : bag + 1, mask[bag]].clone().requires_grad_()
        P_alone = pool(alone, embedding=h[bag : bag + 1, mask[bag]])
        (P_alone * direction[bag]).sum().backward()
        torch.testing.assert_close(P[bag], P_alone[0], atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(junk.grad[bag, mask[bag]], alone.grad[0], atol=2e-5, rtol=1e-4)
    for a, b in zip(with_padding, (x.grad for x in pool.parameters() if x.grad is not None), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


@family
def test_integer_masks_are_masks(name, options, generator):
    pool = make(name, options)
    p, mask, h = draw(generator)
    assert torch.equal(pool(p, mask, embedding=h), pool(p, mask.int(), embedding=h))


@family
def test_frame_order(name, options, generator):
    pool = make(name, options)
    p, mask, h = draw(generator, frames=31)
    order = torch.randperm(31, generator=generator)
    P, shuffled = pool(p, mask, embedding=h), pool(p[:, order], mask[:, order], embedding=h[:, order])
    assert torch.allclose(P, shuffled, atol=1e-6) != pool.is_ordered


@family
def test_a_mean_stays_within_its_frames(name, options, generator):
    pool = make(name, options)
    p, mask, h = draw(generator, bags=20)
    P = pool(p, mask, embedding=h)
    low = p.masked_fill(~mask.unsqueeze(-1), 2.0).amin(1)
    high = p.masked_fill(~mask.unsqueeze(-1), -1.0).amax(1)
    if pool.is_mean:
        assert ((low - 1e-6 <= P) & (high + 1e-6 >= P)).all()
    elif name in ("noisy-or", "isr"):
        assert ((high - 1e-6 <= P) & (P <= 1)).all()
    else:
        assert ((P >= 0) & (P <= 1)).all()


@family
def test_one_frame_and_a_constant_bag_are_themselves(name, options, generator):
    pool = make(name, options)
    p = torch.rand(5, 1, CLASSES, generator=generator)
    h = torch.randn(5, 7, DIM, generator=generator)
    one, constant = pool(p, embedding=h[:, :1]), pool(p.expand(-1, 7, -1), embedding=h)
    if pool.is_mean or name in ("noisy-or", "isr"):
        torch.testing.assert_close(one, p[:, 0], atol=1e-6, rtol=0)
    if pool.is_mean:
        torch.testing.assert_close(constant, p[:, 0], atol=1e-6, rtol=1e-5)
    else:
        assert ((constant >= 0) & (constant <= 1)).all()
        for edge in (0.0, 1.0):  # what holds instead, for all three
            at_edge = pool(torch.full((1, 7, CLASSES), edge))
            torch.testing.assert_close(at_edge, torch.full_like(at_edge, edge), atol=1e-6, rtol=0)


@family
def test_weights_explain_the_result(name, options, generator):
    pool = make(name, options)
    p, mask, h = draw(generator)
    if pool.why_no_weights:
        with pytest.raises(ArgumentError, match=f"pool '{name}' has no weights: "):
            pool.weights(p, mask, embedding=h)
        return
    w = pool.weights(p, mask, embedding=h)
    assert w.shape == p.shape
    assert (w >= 0).all()
    assert (w[~mask] == 0).all()
    torch.testing.assert_close(w.sum(1), torch.ones(3, CLASSES), atol=1e-6, rtol=0)
    torch.testing.assert_close((w * p).sum(1), pool(p, mask, embedding=h), atol=1e-6, rtol=0)


@family
def test_gradients_are_finite_at_0_and_1(name, options, generator):
    pool = make(name, options)
    zeros, ones = torch.zeros(1, 5, CLASSES), torch.ones(1, 5, CLASSES)
    mixed = torch.rand(1, 5, CLASSES, generator=generator).round()
    for p in (zeros, ones, mixed, torch.cat([zeros, ones], 1)):
        p = p.clone().requires_grad_()
        P = pool(p, embedding=torch.randn(1, p.shape[1], DIM, generator=generator))
        P.sum().backward()
        assert torch.isfinite(P).all()
        assert torch.isfinite(p.grad).all()
        assert all(torch.isfinite(x.grad).all() for x in pool.parameters() if x.grad is not None)


@family
def test_gradcheck(name, options, generator):
    pool = make(name, options).double().eval()
    p, mask, h = draw(generator, bags=2, frames=6, dtype=torch.float64)
    p = (0.05 + 0.9 * p).requires_grad_()
    h.requires_grad_()
    parameters = list(pool.parameters())
    extreme = any(x.abs().max() > 1e3 for x in parameters)  # 1e4: a step of 1e-6 is no longer small
    inputs = (p, h) if extreme else (p, h, *parameters)
    step = 1e-9 if extreme else 1e-6

    def f(p, h, *_):
        return pool(p, mask, embedding=h)

    assert torch.autograd.gradcheck(f, inputs, eps=step, atol=1e-4 if extreme else 1e-5, rtol=1e-2 if extreme else 1e-3)


@family
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(name, options, dtype, generator):
    """Computed in float32 and rounded once: within half a unit in the last place of the result."""
    pool = make(name, options)
    p, mask, h = draw(generator)
    p, h = p.to(dtype), h.to(dtype)
    P = pool(p.requires_grad_(), mask, embedding=h)
    P.sum().backward()
    exact = pool(p.detach().float(), mask, embedding=h.float())
    assert P.dtype == p.grad.dtype == dtype
    assert torch.isfinite(p.grad).all()
    assert ((P.float() - exact).abs() <= torch.finfo(dtype).eps / 2 * exact + 1e-7).all()


@each
def test_a_half_module_works(name, generator):
    pool = create_pool(name, CLASSES).half()
    p, mask, h = draw(generator)
    P = pool(p.half(), mask, embedding=h.half())
    assert P.dtype == torch.float16
    torch.testing.assert_close(P.float(), create_pool_like(pool, name)(p.half().float(), mask), atol=2e-3, rtol=0)


def create_pool_like(pool, name):
    twin = create_pool(name, CLASSES)
    twin.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in pool.state_dict().items()})
    return twin


@family
def test_state_round_trip(name, options, generator):
    pool = make(name, options)
    for x in pool.parameters():
        torch.nn.init.uniform_(x, 0.1, 0.9)
    file = io.BytesIO()
    torch.save(pool.state_dict(), file)
    file.seek(0)
    torch.manual_seed(99)
    twin = create_pool(name, CLASSES, **options)
    twin.load_state_dict(torch.load(file, weights_only=True))
    p, mask, h = draw(generator)
    assert torch.equal(pool(p, mask, embedding=h), twin(p, mask, embedding=h))


@family
def test_classes_are_on_the_axes_that_it_names(name, options):
    """Otherwise weights of one class are loaded as those of another."""
    options = {key: value[0] if len(np.shape(value)) and key != "sizes" else value for key, value in options.items()}
    one, other = (create_pool(name, n_classes, **options).state_dict() for n_classes in (CLASSES, CLASSES + 1))
    axes_of = create_pool(name, CLASSES, **options).class_axes
    for key, tensor in one.items():
        differing = [axis for axis, n in enumerate(tensor.shape) if n != other[key].shape[axis]]
        assert differing == [axis for axis in axes_of(key) if axis < tensor.dim()]


@pytest.mark.slow
@each_graph
def test_compiles(name, options, generator):
    """With a mask; `test_exports_with_any_length` traces the graph without one too."""
    torch._dynamo.reset()
    pool = make(name, options)
    compiled = torch.compile(pool, backend="aot_eager", fullgraph=True)
    p, mask, h = draw(generator)
    a, b = (x.clone().requires_grad_() for x in (p, p))
    P, Q = pool(a, mask, embedding=h), compiled(b, mask, embedding=h)
    torch.testing.assert_close(P, Q, atol=1e-6, rtol=1e-5)
    P.sum().backward()
    Q.sum().backward()
    torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile's own backend needs a C++ compiler")
def test_compiles_to_machine_code(generator, tmp_path, monkeypatch):
    """In a cache of its own: PyTorch would reuse code made for other vector instructions, and fail to compile it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    pool = make("auto", {"alpha": 2.0})
    p, mask, _ = draw(generator)
    torch.testing.assert_close(torch.compile(pool)(p, mask), pool(p, mask), atol=1e-6, rtol=0)


@pytest.mark.slow
@each_graph
def test_exports_with_any_length(name, options, generator):
    pool = make(name, options).eval()
    p, mask, h = draw(generator, bags=4, frames=20)
    shortest = 16 if pool.is_ordered else 2  # more than one segment, or the graph would not have the second stage
    frames, bags = torch.export.Dim("frames", min=shortest, max=4096), torch.export.Dim("bags", min=2, max=512)
    shapes = {0: bags, 1: frames}
    more, more_mask, more_h = draw(generator, bags=3, frames=33)
    for given, later in (((p,), (more,)), ((p, mask), (more, more_mask))):
        dynamic = (
            {"p": shapes, "mask": shapes, "embedding": shapes}
            if len(given) == 2
            else {"p": shapes, "embedding": shapes}
        )
        program = torch.export.export(pool, given, {"embedding": h}, dynamic_shapes=dynamic)
        P, expected = program.module()(*later, embedding=more_h), pool(*later, embedding=more_h)
        torch.testing.assert_close(P, expected, atol=1e-6, rtol=1e-5)


@family
def test_vmaps(name, options, generator):
    pool = make(name, options)
    p, mask, h = (torch.stack(x) for x in zip(*(draw(generator) for _ in range(3)), strict=True))
    P = torch.vmap(lambda p, mask, h: pool(p, mask, embedding=h))(p, mask, h)
    expected = torch.stack([pool(a, b, embedding=c) for a, b, c in zip(p, mask, h, strict=True)])
    torch.testing.assert_close(P, expected, atol=1e-6, rtol=1e-5)


@family
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_same_on_a_gpu(name, options, generator):
    pool = make(name, options)
    p, mask, h = draw(generator)
    here, there = (x.clone().requires_grad_() for x in (p, p.cuda()))
    twin = copy.deepcopy(pool).cuda()
    P, Q = pool(here, mask, embedding=h), twin(there, mask.cuda(), embedding=h.cuda())
    torch.testing.assert_close(P, Q.cpu(), atol=1e-6, rtol=1e-5)
    P.sum().backward()
    Q.sum().backward()
    torch.testing.assert_close(here.grad, there.grad.cpu(), atol=1e-4, rtol=1e-4)
    with pytest.raises(DataError, match="p has NaN"):
        twin(there.detach() * torch.nan, embedding=h.cuda())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_values_are_looked_at_now_and_then_and_never_while_capturing():
    pool = create_pool("auto", 1).cuda()
    good, bad = torch.rand(2, 5, 1, device="cuda"), torch.full((2, 5, 1), torch.nan, device="cuda")
    for _ in range(50):
        pool(good)
    assert all(pool(bad).isnan().all() for _ in range(49))
    with pytest.raises(DataError, match="p has NaN"):
        pool(bad)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        P = pool(good)
    good.fill_(0.25)
    graph.replay()
    assert P.flatten().tolist() == pytest.approx([0.25, 0.25])


@each
def test_refuses_bad_input_in_one_line(name, generator):
    pool = create_pool(name, CLASSES)
    p, mask, _ = draw(generator)
    wrong = [
        ((p.numpy(),), ArgumentError, "p and mask: expected torch tensors, got ndarray and NoneType"),
        ((p, mask.tolist()), ArgumentError, "p and mask: expected torch tensors, got Tensor and list"),
        ((p[0],), ArgumentError, r"p: expected \(bags, frames, classes\) with classes = 4, got \(13, 4\)"),
        ((p[..., :3],), ArgumentError, r"classes = 4, got \(3, 13, 3\)"),
        ((p.long(),), ArgumentError, "p: expected a floating-point tensor, got torch.int64"),
        ((p, mask[:, :5]), ArgumentError, r"mask: expected \(bags, frames\) = \(3, 13\), got \(3, 5\)"),
        (
            (p, mask.float()),
            ArgumentError,
            r"mask: expected bool \(True = real frame\) or 0/1 integers, got torch.float32",
        ),
        ((p[:, :0],), DataError, "bags are empty: p has no frames"),
        ((p, mask & (torch.arange(3) != 1).unsqueeze(1)), DataError, r"bag 1 is empty: its mask has no True \(1 of 3"),
        ((p.masked_fill(mask.unsqueeze(-1), torch.nan), mask), DataError, "p has NaN among its real frames"),
        ((p * 1.5,), DataError, r"p: expected probabilities in \[0, 1\], got values from .* are these logits"),
        ((p - 0.5, mask), DataError, r"p: expected probabilities in \[0, 1\]"),
    ]
    for args, error, message in wrong:
        with pytest.raises(error, match=message) as caught:
            pool(*args)
        assert "\n" not in str(caught.value)
    with pytest.raises(
        ArgumentError, match=r"embedding: expected \(bags, frames, dim\) with \(3, 13\) first, got \(3, 5, 2\)"
    ):
        pool(p, mask, embedding=torch.zeros(3, 5, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_beyond_0_and_1_is_no_mistake(dtype):
    """The mean of models that are all certain may be slightly above 1."""
    above = torch.full((2, 5, 3), 1 + torch.finfo(dtype).eps, dtype=dtype)
    mask = torch.tensor([5, 2])[:, None] > torch.arange(5)
    for name in ("noisy-or", "mean", "auto"):
        pool = create_pool(name, 3)
        torch.testing.assert_close(pool(above), pool(torch.ones_like(above)))
        hidden = above.masked_fill(~mask[..., None], 7.0)
        torch.testing.assert_close(pool(hidden, mask), pool(torch.ones_like(above), mask))
        torch.testing.assert_close(pool(above - 1 - torch.finfo(dtype).eps), pool(torch.zeros_like(above)))


def test_values_can_go_unchecked():
    pool = create_pool("mean", 1)
    pool.check_values = False
    assert pool(torch.full((1, 2, 1), 3.0)).item() == 3.0


@each
def test_an_empty_batch_is_fine(name):
    assert create_pool(name, CLASSES)(torch.zeros(0, 5, CLASSES)).shape == (0, CLASSES)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("atuo", {}, "pool='atuo' is not known; did you mean 'auto'? Choose from: max, min, mean, softmax, auto, cap"),
        ("zzz", {}, "pool='zzz' is not known. Choose from: max"),
        ("auto", {"aplha": 1.0}, "pool 'auto': option='aplha' is not known; did you mean 'alpha'?"),
        ("max", {"alpha": 1.0}, "pool 'max': option='alpha' is not known. Choose from: (none)"),
        ("auto", {"alpha": [1.0, 2.0]}, "alpha: expected one number or one per class (4), got shape (2,)"),
        ("auto", {"alpha": float("inf")}, "alpha: expected finite numbers, got"),
        ("rap", {"penalty": -1.0}, "penalty: expected a number of at least 0, got -1.0"),
        ("cap", {"phi": 1.0}, "phi: expected the greatest weight of one frame, between 0 and 1, got 1.0"),
        ("cap", {"bag_size": 0}, "bag_size: expected a whole number of at least 1, got 0"),
        ("cap", {"phi_minus": 0.0}, "phi_minus: expected the least weight of the largest frame, between 0 and 1, got"),
        ("cap", {"frame_rate": 1.0}, "frame_rate: expected a positive number, together with min_duration, got 1.0"),
        (
            "cap",
            {"min_duration": 1.0, "frame_rate": 0.0},
            "frame_rate: expected a positive number, together with min_dur",
        ),
        ("cap", {"min_duration": -1.0, "frame_rate": 1.0}, "min_duration: expected positive numbers, got [-1.0"),
        ("cap", {"min_active": 1.0}, "min_active: expected numbers between 0 and 1, got [1.0"),
        ("cap", {"min_active": 0.5, "min_duration": 1.0}, "min_active and min_duration: expected one of them, got"),
        ("linear-auto", {"alpha": [0.0, 1.0, -1.0, 2.0]}, "alpha: expected numbers of at least 0, got [0.0, 1.0, -1.0"),
        ("linear-cap", {"min_active": 0.0}, "min_active: expected numbers between 0 and 1, got [0.0"),
        ("linear-rap", {"penalty": -1.0}, "penalty: expected a number of at least 0, got -1.0"),
        ("noisy-and", {"slope": 0.0}, "slope: expected a positive, finite number, got 0.0"),
        ("top-k", {"k": 0}, "k: expected a whole number of at least 1, got 0"),
        ("top-k", {"share": 2.0}, "share: expected a value in (0, 1], got 2.0"),
        ("top-k", {"k": 1, "share": 0.5}, "expected k or share, got both"),
        ("rank", {"decay": 1.5}, "decay: expected a value in [0, 1], got 1.5"),
        ("mean-max", {"mix": 2.0}, "mix: expected a value in [0, 1], got"),
        ("attention", {"embedding_dim": 0}, "embedding_dim: expected a whole number of at least 1, got 0"),
        ("gated-attention", {"hidden": 0}, "hidden: expected a whole number of at least 1, got 0"),
        ("hierarchical", {"sizes": []}, "sizes: expected a sequence of 1 to 32 segment sizes, got []"),
        ("hierarchical", {"sizes": 5}, "sizes: expected a sequence of 1 to 32 segment sizes, got 5"),
        ("auto", {"alpha": "1"}, "alpha: expected one number or one per class (4), got '1'"),
        ("cap", {"phi": [0.5]}, "phi: expected the greatest weight of one frame, between 0 and 1, got [0.5]"),
        ("AUTO", {}, "pool='AUTO' is not known; did you mean 'auto'?"),
        ("hierarchical", {"sizes": [0]}, "sizes: expected a whole number of at least 1, got 0"),
        (
            "hierarchical",
            {"base": "noisy-or"},
            "base: expected a weighted mean of the frames' probabilities alone, got 'noisy-or'",
        ),
    ],
)
def test_refuses_bad_settings_in_one_line(name, options, message):
    with pytest.raises(ArgumentError) as caught:
        create_pool(name, CLASSES, **options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n_classes", [0, -1, 2.0, None])
def test_refuses_a_wrong_number_of_classes(n_classes):
    with pytest.raises(ArgumentError, match="n_classes: expected a whole number of at least 1"):
        create_pool("max", n_classes)


def test_numpy_numbers_are_numbers():
    assert create_pool("top-k", np.int64(4), k=np.int32(2)).n_classes == 4
    assert create_pool("rap", 2, penalty=np.float32(0.5)).penalty().item() == 1.0


def test_rank_keeps_its_digits_on_long_bags(generator):
    p = torch.rand(1, 20_000, 1, generator=generator)
    pool = create_pool("rank", 1, decay=0.999)
    assert pool(p).item() == pytest.approx(pool(p.double()).item(), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("share", "frames", "k"), [(0.008, 375, 3), (0.07, 100, 7), (0.3, 10, 3), (0.417, 4753, 1983)])
def test_a_share_of_frames_is_rounded_up_once(share, frames, k, dtype):
    p = torch.zeros(2, frames, 1, dtype=dtype)
    p[0, :k] = 1.0
    p[1, : k - 1] = 1.0
    expected = torch.tensor([[1.0], [(k - 1) / k]], dtype=dtype)
    torch.testing.assert_close(create_pool("top-k", 1, share=share)(p), expected)


def test_attention_asks_for_its_embedding(generator):
    p, mask, h = draw(generator)
    pool = create_pool("attention", CLASSES, embedding_dim=DIM)
    with pytest.raises(ArgumentError, match=r"embedding: expected \(bags, frames, 6\) for pool 'attention', got none"):
        pool(p, mask)
    with pytest.raises(ArgumentError, match=r"embedding: expected \(bags, frames, 6\) .* got \(3, 13, 2\)"):
        pool(p, mask, embedding=h[..., :2])


def test_a_name_is_registered_once():
    with pytest.raises(RuntimeError, match="pool 'max' is registered twice"):
        POOLS.register("max", "again")(object)


def test_a_class_may_be_defined_again(monkeypatch):
    monkeypatch.setattr(POOLS, "_entries", dict(POOLS._entries))

    def define():
        @POOLS.register("own", "as in a notebook cell that runs twice")
        class OwnPool(MeanPool):
            pass

        return OwnPool

    first, second = define(), define()
    assert first is not second
    assert type(create_pool("own", 2)) is second


def test_works_under_autocast(generator):
    p, mask, h = draw(generator)
    pool = create_pool("gated-attention", CLASSES, embedding_dim=DIM)
    with torch.autocast("cpu", torch.bfloat16):
        P = pool(p, mask, embedding=h)
    torch.testing.assert_close(P, pool(p, mask, embedding=h), atol=1e-2, rtol=0)


def test_import_of_the_layer_alone_is_light():
    """Someone who wants one layer should not pay for plotting or a command line."""
    heavy = ("matplotlib", "typer", "sklearn", "keras")
    code = f"import sys, earmark.pooling; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
