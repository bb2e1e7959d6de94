"""Eq. (8) has one value however it is computed: by the formula, in blocks, by the kernels on a GPU."""

import pytest
import torch

from earmark.pooling import AutoPool, ConstrainedAutoPool, autopool, kernels

LARGE = autopool.LARGE_ELEMENTS * torch.get_num_threads()  # blocks pay from here on
SHAPES = [(2, 5, 3), (3, 1, 1), (4, 37, 10), (2, 700, 50), (1, 300, 200), (2, 5000, 3)]
ALPHAS = {
    "zero": lambda bags, classes, g: torch.zeros(classes),
    "positive": lambda bags, classes, g: 4 * torch.rand(classes, generator=g),
    "negative": lambda bags, classes, g: -4 * torch.rand(classes, generator=g),
    "mixed": lambda bags, classes, g: 4 * torch.randn(classes, generator=g),
    "huge": lambda bags, classes, g: 1e4 * torch.randn(classes, generator=g).sign(),
    "per bag": lambda bags, classes, g: 2 * torch.randn(bags, classes, generator=g),
}


def draw(shape, kind, masked, generator):
    bags, frames, classes = shape
    p = torch.rand(shape, generator=generator)
    mask = None
    if masked:
        mask = torch.rand(bags, frames, generator=generator) > 0.4
        mask[:, 0] = True
        mask[0, 1 + frames // 2 :] = False
        p = torch.where(mask.unsqueeze(-1), p, 0.0)
    return p, ALPHAS[kind](bags, classes, generator), mask, torch.randn(bags, classes, generator=generator)


def run(f, p, alpha, mask, direction):
    p, alpha = p.clone().requires_grad_(), alpha.clone().requires_grad_()
    P = f(p, alpha, mask)
    P.backward(direction)
    return P.detach(), p.grad, alpha.grad


def check(f, shape, kind, masked, generator, device="cpu"):
    p, alpha, mask, direction = draw(shape, kind, masked, generator)
    expected = run(autopool._formula, p.double(), alpha.double(), mask, direction.double())
    there = [x if x is None else x.to(device) for x in (p, alpha, mask, direction)]
    for got, want in zip(run(f, *there), expected, strict=True):
        error = float((got.cpu().double() - want).norm())
        assert error <= 1e-5 * float(want.norm()) + 1e-6


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ALPHAS)
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_equal_the_formula(shape, kind, masked, generator, monkeypatch):
    monkeypatch.setattr(autopool, "BLOCK_ELEMENTS", 500)
    check(autopool._Blocks.apply, shape, kind, masked, generator)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernels need a CUDA GPU")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ALPHAS)
@pytest.mark.parametrize("shape", [*SHAPES, (8, 20000, 50)])
def test_kernels_equal_the_formula(shape, kind, masked, generator):
    assert kernels.available()
    check(autopool._Fused.apply, shape, kind, masked, generator, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernels need a CUDA GPU")
@pytest.mark.parametrize("masked", [False, True])
def test_the_layer_on_a_gpu_equals_the_layer_on_a_cpu(masked, generator):
    p, _, mask, _ = draw((4, 3000, 7), "mixed", masked, generator)
    pool = ConstrainedAutoPool(7, alpha=2.0)
    expected = pool(p, mask)
    got = pool.cuda()(p.cuda(), None if mask is None else mask.cuda())
    torch.testing.assert_close(got.cpu(), expected, atol=5e-6, rtol=0)  # sums of thousands in another order


def test_large_bags_are_pooled_in_blocks_and_small_ones_are_not(generator):
    small, large = (
        torch.rand(1, 100, 2, generator=generator),
        torch.rand(1, LARGE, 1, generator=generator),
    )
    assert AutoPool(2)(small).grad_fn.name() == "SumBackward1"
    assert "Blocks" in AutoPool(1)(large).grad_fn.name()


@pytest.mark.parametrize("masked", [False, True])
def test_large_bags_of_every_auto_pool(masked, generator):
    """The layer gives the same on a large batch as on its bags one by one, which are small."""
    bags = -(-LARGE // 30_000)
    p = torch.rand(bags, 3000, 10, generator=generator)
    mask = torch.arange(3000) < torch.randint(1, 3001, (bags, 1), generator=generator) if masked else None
    for pool in (AutoPool(10, alpha=-3.0), ConstrainedAutoPool(10, alpha=50.0), ConstrainedAutoPool(10, phi=0.01)):
        large = pool(p, mask)
        assert "Blocks" in large.grad_fn.name()
        large.sum().backward()
        gradient = pool.alpha.grad.clone()
        pool.zero_grad()
        for bag in range(bags):
            small = pool(p[bag : bag + 1], None if mask is None else mask[bag : bag + 1])
            small.sum().backward()
            torch.testing.assert_close(large[bag], small[0], atol=5e-6, rtol=0)
        torch.testing.assert_close(pool.alpha.grad, gradient, atol=1e-4, rtol=1e-4)


def test_large_bags_that_are_not_contiguous(generator):
    p = torch.rand(2, 3, LARGE // 4, generator=generator).transpose(1, 2)
    pool = AutoPool(3, alpha=5.0)
    torch.testing.assert_close(pool(p), pool(p.double()).float(), atol=1e-6, rtol=0)


def test_blocks_have_a_second_derivative(generator):
    p = torch.rand(2, 6, 2, generator=generator, dtype=torch.float64).requires_grad_()
    alpha = torch.randn(2, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda p, alpha: autopool._Blocks.apply(p, alpha, None), (p, alpha))


def test_the_second_derivative_ignores_padding_too(generator):
    p = torch.rand(1, 5, 1, generator=generator)
    mask = torch.tensor([[True, True, True, False, False]])
    alpha = torch.tensor([2.0], requires_grad=True)
    grads = []
    for x, m in ((p.masked_fill(~mask.unsqueeze(-1), torch.nan), mask), (p[:, :3].clone(), None)):
        x.requires_grad_()
        saved = (x, alpha, m)
        grad_p, grad_alpha, _ = autopool._twice_differentiable(saved, torch.ones(1, 1))
        grads.append((grad_p[:, :3], grad_alpha, *torch.autograd.grad(grad_p.sum() + grad_alpha.sum(), alpha)))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_blocks_keep_only_p_for_the_backward_pass(generator):
    """Nothing of the size of p is saved but p itself."""
    p = torch.rand(2, LARGE // 2, 1, generator=generator).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        AutoPool(1)(p)
    large = [t for t in saved if t is not None and t.numel() >= p.numel()]
    assert [t.data_ptr() for t in large] == [p.data_ptr()]
