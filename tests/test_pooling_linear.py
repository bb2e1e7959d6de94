"""The adaptive linear soft-max: its limits, what it ignores, which frames it raises, and its bound."""

import math

import numpy as np
import pytest
import torch

from earmark.errors import ArgumentError
from earmark.pooling import (
    AdaptiveLinearPool,
    ConstrainedLinearPool,
    RegularizedLinearPool,
    alpha_to_sufficient_share,
    create_pool,
    sufficient_share_to_alpha,
)

FAMILY = ["linear-auto", "linear-cap", "linear-rap"]
ALPHAS = [0.0, 1e-9, 1e-3, 0.04, 0.5, 3.0, 8.0, 90.0, 1e4]


@pytest.fixture
def p(generator):
    return torch.rand(5, 26, 3, generator=generator, dtype=torch.float64)


def ratio(p, alpha):
    """The formula as it is written; alpha is neither 0 nor large."""
    w = torch.expm1(alpha * p) / alpha
    return (w * p).sum(1) / w.sum(1)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 1e-2, 0.1, 1.0, 8.0, 200.0])
def test_equals_the_formula_in_both_precisions(p, alpha):
    pool = AdaptiveLinearPool(3, alpha=alpha)
    exact = ratio(p, pool.alpha.detach().double())
    torch.testing.assert_close(AdaptiveLinearPool(3, alpha=alpha).double()(p).detach(), exact, atol=1e-12, rtol=0)
    torch.testing.assert_close(pool(p.float()).detach(), exact.float(), atol=2e-6, rtol=0)


@pytest.mark.parametrize(("alpha", "same_as"), [(0.0, "linear"), (1e4, "max")])
def test_has_linear_soft_max_and_the_maximum_as_limits(p, alpha, same_as):
    P = AdaptiveLinearPool(3, alpha=alpha)(p)
    torch.testing.assert_close(P, create_pool(same_as, 3)(p), atol=1e-3 if alpha else 1e-12, rtol=0)


def test_grows_with_alpha(p):
    P = torch.stack([AdaptiveLinearPool(3, alpha=a)(p) for a in (0.0, 1e-3, 0.05, 1.0, 8.0, 50.0)])
    assert (P.diff(dim=0) > 0).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_silence_does_not_dilute(alpha):
    """Frames at 0 have no weight, in contrast to `auto`: nothing is gained by raising them."""
    few, many = torch.zeros(1, 4, 1), torch.zeros(1, 4000, 1)
    few[0, 0] = many[0, 0] = 0.9
    pool = AdaptiveLinearPool(1, alpha=alpha)
    assert pool(few).item() == pytest.approx(0.9, abs=1e-3)
    assert pool(many).item() == pytest.approx(0.9, abs=1e-3)
    assert create_pool("auto", 1, alpha=min(alpha, 8.0))(many).item() < 0.5
    assert pool(torch.zeros(1, 40, 1)).item() == 0.0


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_for_any_alpha(alpha, dtype, generator):
    pool = AdaptiveLinearPool(1, alpha=alpha).to(dtype)
    edges = torch.tensor([0.0, 1.0, 1e-30, 1e-8, 1.0 - 1e-7, 0.5], dtype=dtype)
    bags = [edges, torch.zeros(6), torch.ones(6), torch.full((6,), 1e-20), torch.rand(6, generator=generator)]
    p = torch.stack([bag.to(dtype) for bag in bags]).unsqueeze(-1).requires_grad_()
    P = pool(p)
    P.sum().backward()
    assert ((P >= 0) & (P <= 1)).all()
    assert torch.isfinite(p.grad).all()
    assert torch.isfinite(pool.alpha.grad).all()
    assert (pool.alpha.grad >= 0).all()  # P grows with alpha


@pytest.mark.parametrize("alpha", [0.3, 1.0, 8.0, 40.0])
def test_gradients_equal_their_closed_forms(p, alpha):
    """dP/dp = w (1 + (p - P) s'), dP/dalpha = Cov_w(p, ds/dalpha), with w = exp(s) up to a factor."""
    pool = AdaptiveLinearPool(3, alpha=alpha).double()
    alpha = pool.alpha.detach()  # in float32
    P = pool(p.requires_grad_())
    grad_p, grad_alpha = torch.autograd.grad(P.sum(), (p, pool.alpha))
    p, P, w = p.detach(), P.detach().unsqueeze(1), pool.weights(p).detach()
    slope = alpha / -torch.expm1(-alpha * p)
    torch.testing.assert_close(grad_p, w * (1 + (p - P) * slope))
    by_alpha = p / -torch.expm1(-alpha * p) - 1 / alpha
    torch.testing.assert_close(grad_alpha, (w * (p - P) * by_alpha).sum((0, 1)))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0, 20.0])
def test_frames_below_the_turning_point_are_pushed_down(alpha):
    """dP/dp changes its sign where P - p = (1 - exp(-alpha p)) / alpha; for alpha = 0, at P/2."""
    p = torch.linspace(0.01, 1, 400, dtype=torch.float64).reshape(1, -1, 1).requires_grad_()
    pool = AdaptiveLinearPool(1, alpha=alpha).double()
    P = pool(p)
    P.sum().backward()
    x, slope = p.detach().flatten(), p.grad.flatten()
    raised = P.item() - x < (-torch.expm1(-alpha * x) / alpha if alpha else x)
    assert torch.equal(slope > 0, raised)
    assert 0 < raised.sum() < len(x)


def test_a_bound_other_than_zero_is_the_least_alpha_that_makes_the_share_suffice():
    """Against a search over what the other frames hold: at the bound, the worst of it leaves P at 1/2."""
    others = torch.linspace(0, 1, 2001, dtype=torch.float64)
    for share, m in ((0.1, 10), (0.05, 20), (0.02, 50), (0.01, 100)):
        p = others.reshape(-1, 1, 1).expand(-1, m, 1).clone()
        p[:, 0] = 1.0
        alpha = float(sufficient_share_to_alpha(share))
        least = [AdaptiveLinearPool(1, alpha=a).double()(p).min().item() for a in (0.98 * alpha, alpha, 1.02 * alpha)]
        assert least[0] < 0.5 < least[2]
        assert least[1] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("share", [0.12, 0.06, 0.03, 0.011])
def test_a_sufficient_share_suffices_whatever_the_other_frames_hold(share, generator):
    alpha = float(sufficient_share_to_alpha(share)) + 1e-6
    m = 100
    p = torch.rand(500, m, 1, generator=generator, dtype=torch.float64) * torch.rand(500, 1, 1, generator=generator)
    p[:, : math.ceil(share * m)] = 1.0
    assert (AdaptiveLinearPool(1, alpha=alpha).double()(p) >= 0.5).all()


def test_share_and_alpha_are_inverse_and_take_arrays():
    share = np.array([[0.11, 0.05], [1e-3, 1e-9]])
    alpha = sufficient_share_to_alpha(share)
    np.testing.assert_allclose(alpha_to_sufficient_share(alpha), share, rtol=1e-9)
    assert (np.diff(alpha.flatten()) > 0).all()
    assert sufficient_share_to_alpha([1 / 9, 0.3, 0.99]).tolist() == [0, 0, 0]
    assert alpha_to_sufficient_share(0.0) == pytest.approx(1 / 9, rel=1e-6)
    assert alpha_to_sufficient_share(torch.tensor([1e5])).tolist() == [0]
    for a in (0.0, 1e-3, 2.0, 30.0):
        b = np.linspace(0, 0.5, 100_001)
        worst = np.max((0.5 - b) * (np.expm1(a * b) if a else b))
        one = 0.5 * (np.expm1(a) if a else 1.0)
        assert alpha_to_sufficient_share(a) == pytest.approx(worst / (worst + one), rel=1e-6)


def test_bounds_refuse_what_they_are_not_about():
    with pytest.raises(ArgumentError, match=r"alpha: expected numbers of at least 0, got \[1.0, -0.5\]"):
        alpha_to_sufficient_share([1.0, -0.5])
    for share in (0.0, 1.0, 2.0):
        with pytest.raises(ArgumentError, match="share: expected a value between 0 and 1, got"):
            sufficient_share_to_alpha(share)


@pytest.mark.parametrize("name", FAMILY)
def test_alpha_starts_at_one_and_stays_at_or_above_zero(name):
    pool = create_pool(name, 2)
    assert pool.alpha.tolist() == [1.0, 1.0]
    torch.nn.init.constant_(pool.alpha, -5.0)
    P = pool(torch.rand(2, 9, 2))
    assert torch.isfinite(P).all()  # a step of the optimiser comes before the projection
    pool.project()
    assert pool.alpha.tolist() == [0.0, 0.0]
    assert pool.alpha.requires_grad


def test_the_constrained_one_projects_and_pools_within_its_bound(p):
    pool = ConstrainedLinearPool(3, min_active=[0.01, 0.05, 0.2], alpha=99.0).double()
    bound = sufficient_share_to_alpha([0.01, 0.05, 0.2])
    before = pool(p)
    pool.project()
    np.testing.assert_allclose(pool.alpha.detach(), bound, rtol=1e-6)
    torch.testing.assert_close(pool(p), before)
    torch.testing.assert_close(before[:, 2], create_pool("linear", 1)(p[..., 2:])[:, 0])
    pool(p).sum().backward()
    assert (pool.alpha.grad > 0).all()  # or it could never leave the bound
    twin = ConstrainedLinearPool(3, min_active=[0.01, 0.05, 0.2])
    twin.load_state_dict(pool.state_dict())
    assert set(pool.state_dict()) == {"alpha"}


def test_the_regularised_one_gives_its_penalty_to_the_loss():
    pool = RegularizedLinearPool(3, penalty=1e-2, alpha=[1.0, 2.0, 3.0])
    assert pool.penalty().item() == pytest.approx(0.14)
    pool.penalty().backward()
    assert pool.alpha.grad.tolist() == pytest.approx([0.02, 0.04, 0.06])
    assert create_pool("linear-auto", 3).penalty().item() == create_pool("linear-cap", 3).penalty().item() == 0
