"""The paper's operators against the paper: closed forms, limits, bounds, constraint and penalty."""

import math

import numpy as np
import pytest
import torch

from earmark.detector import Detector
from earmark.errors import ArgumentError
from earmark.features import FeatureConfig
from earmark.networks import create_network
from earmark.pooling import (
    AutoPool,
    ConstrainedAutoPool,
    MaxPool,
    RegularizedAutoPool,
    active_share_to_alpha,
    alpha_to_active_share,
    create_pool,
    max_alpha,
    min_alpha,
    softmax_bounds,
    weight_bounds,
)


@pytest.fixture
def p(generator):
    return torch.rand(5, 26, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("alpha", "same_as"), [(0.0, "mean"), (1.0, "softmax"), (1e4, "max"), (-1e4, "min")])
def test_auto_pool_has_the_fixed_operators_as_limits(p, alpha, same_as):
    P = create_pool("auto", 3, alpha=alpha)(p)
    torch.testing.assert_close(P, create_pool(same_as, 3)(p), atol=1e-3 if abs(alpha) > 1 else 1e-7, rtol=0)


def test_auto_pool_grows_with_alpha(p):
    P = torch.stack([create_pool("auto", 3, alpha=a)(p) for a in (-50.0, -1.0, 0.0, 1.0, 3.2, 50.0)])
    assert (P.diff(dim=0) > 0).all()


@pytest.mark.parametrize("alpha", [-3.0, 0.0, 1.0, 3.2189, 40.0])
def test_gradients_equal_their_closed_forms(p, alpha):
    pool = AutoPool(3, alpha=alpha).double()
    p.requires_grad_()
    P = pool(p)
    w = pool.weights(p).detach()
    direction = torch.rand_like(P)
    grad_p, grad_alpha = torch.autograd.grad((P * direction).sum(), (p, pool.alpha))
    d = p.detach() - P.detach().unsqueeze(1)
    torch.testing.assert_close(grad_p, direction.unsqueeze(1) * w * (1 + alpha * d))
    variance = (w * d**2).sum(1)
    assert (variance >= 0).all()
    torch.testing.assert_close(grad_alpha, (direction * variance).sum(0))


def test_max_gives_all_its_gradient_to_the_maximiser(p):
    p.requires_grad_()
    MaxPool(3)(p).sum().backward()
    assert torch.equal(p.grad, MaxPool(3).weights(p.detach()))
    assert (p.grad.sum(1) == 1).all()
    assert (p.grad != 0).sum() == 5 * 3


def test_max_shares_among_ties():
    p = torch.tensor([[[0.5], [0.5], [0.1]]], requires_grad=True)
    MaxPool(1)(p).backward()
    assert p.grad.flatten().tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("alpha", [-6.0, -1.0, 0.0, 1.0, 3.0, 9.0])
@pytest.mark.parametrize("m", [2, 3, 26, 500])
def test_weights_keep_their_bounds_and_reach_them(alpha, m, generator):
    low, high = weight_bounds(alpha, m)
    pool = AutoPool(1, alpha=alpha).double()
    w = pool.weights(torch.rand(20, m, 1, generator=generator, dtype=torch.float64))
    assert w.min() >= low - 1e-12
    assert w.max() <= high + 1e-12
    one = torch.zeros(1, m, 1, dtype=torch.float64)
    one[0, 0] = 1
    reached = torch.cat([pool.weights(one), pool.weights(1 - one)])
    assert reached.max().item() == pytest.approx(high, rel=1e-6)
    assert reached.min().item() == pytest.approx(low, rel=1e-6)


def test_weight_bounds_are_the_printed_equations():
    m, e = 26, math.e
    assert weight_bounds(1.0, m) == pytest.approx((1 / (1 + e * (m - 1)), e / (e + m - 1)))  # Eq. (7)
    assert weight_bounds(3.0, m) == pytest.approx((1 / (1 + e**3 * (m - 1)), e**3 / (e**3 + m - 1)))  # Eq. (9)
    assert weight_bounds(-3.0, m) == pytest.approx((e**-3 / (e**-3 + m - 1), 1 / (1 + e**-3 * (m - 1))))  # Eq. (10)
    low, high = softmax_bounds(-1.0, 2.0, 5)
    assert low == pytest.approx(math.exp(-1) / (math.exp(-1) + 4 * math.exp(2)))
    assert high == pytest.approx(math.exp(2) / (math.exp(2) + 4 * math.exp(-1)))


def test_proposition_1_holds_and_is_reached(generator):
    z = -1 + 3 * torch.rand(1000, 5, generator=generator, dtype=torch.float64)
    low, high = softmax_bounds(-1.0, 2.0, 5)
    soft = torch.softmax(z, 1)
    assert low <= soft.min()
    assert soft.max() <= high
    extreme = torch.tensor([2.0, -1, -1, -1, -1], dtype=torch.float64)
    assert torch.softmax(extreme, 0)[0].item() == pytest.approx(high)
    assert torch.softmax(1 - extreme, 0)[0].item() == pytest.approx(low)


def test_bounds_never_overflow_and_take_arrays():
    low, high = weight_bounds(np.array([-1e5, 0.0, 1e5]), np.array([[2], [1000]]))
    assert low.shape == high.shape == (2, 3)
    assert np.isfinite(low).all()
    np.testing.assert_allclose(high[:, 1], [1 / 2, 1 / 1000])
    np.testing.assert_allclose(high[:, 2], 1)
    assert weight_bounds(7.0, 1) == (1.0, 1.0)
    np.testing.assert_allclose(alpha_to_active_share(AutoPool(2, alpha=[0.0, 1.8]).alpha), [0.5, 0.1419], atol=1e-4)


def test_alpha_bounds_invert_the_weight_bounds():
    for m in (2, 26, 431):
        for phi in (1 / m, 0.5, 0.9, 0.999):
            assert weight_bounds(max_alpha(phi, m), m)[1] == pytest.approx(phi)
        for phi in (1 / m, 0.5 / m, 1e-6):
            assert weight_bounds(min_alpha(phi, m), m)[0] == pytest.approx(phi)
        assert max_alpha(1 / m, m) == pytest.approx(0, abs=1e-12)
        assert min_alpha(1 / m, m) == pytest.approx(0, abs=1e-12)
    assert max_alpha(0.5, 26) == pytest.approx(math.log(25))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: max_alpha(0.01, 26), r"phi: expected a value in \[1/m, 1\) for bags of m >= 2"),
        (lambda: max_alpha(1.0, 26), r"phi: expected a value in \[1/m, 1\)"),
        (lambda: min_alpha(0.5, 26), r"phi: expected a value in \(0, 1/m\]"),
        (lambda: min_alpha(0.0, 26), r"phi: expected a value in \(0, 1/m\]"),
        (lambda: weight_bounds(1.0, 0), "m: expected at least one instance, got 0"),
        (lambda: softmax_bounds(1.0, 0.0, 3), "expected low <= high, got 1.0 and 0.0"),
        (lambda: active_share_to_alpha(0.0), "share: expected a value between 0 and 1, got 0.0"),
    ],
)
def test_impossible_bounds_are_refused(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


@pytest.mark.parametrize(("k", "m"), [(1, 26), (5, 26), (13, 26), (20, 26), (3, 431)])
def test_alpha_reads_as_a_duration(k, m):
    """With k of m frames at 1 and the rest at 0, P >= 1/2 exactly when alpha >= ln(m/k - 1)."""
    p = torch.zeros(1, m, 1, dtype=torch.float64)
    p[:, :k] = 1
    turning = math.log(m / k - 1)
    assert active_share_to_alpha(k / m) == pytest.approx(turning)
    assert alpha_to_active_share(turning) == pytest.approx(k / m)
    for step, positive in ((-1e-4, False), (1e-4, True)):
        assert (AutoPool(1, alpha=turning + step).double()(p) >= 0.5).item() == positive


def test_cap_with_half_lets_one_frame_carry_the_vote_and_no_less():
    """The extremal bag, Eq. (13)."""
    p = torch.zeros(1, 26, 1, dtype=torch.float64)
    p[0, 7] = 1
    assert ConstrainedAutoPool(1, alpha=99.0).double()(p).item() == pytest.approx(0.5, abs=1e-6)
    assert ConstrainedAutoPool(1, alpha=99.0, phi=0.49).double()(p).item() < 0.5


def test_cap_bound_follows_each_bags_true_length(generator):
    p = torch.rand(3, 26, 2, generator=generator)
    mask = torch.zeros(3, 26, dtype=torch.bool)
    lengths = (26, 9, 4)
    for bag, m in enumerate(lengths):
        mask[bag, :m] = True
    w = ConstrainedAutoPool(2, alpha=99.0).weights(p, mask)
    for bag, m in enumerate(lengths):
        expected = AutoPool(2, alpha=math.log(m - 1)).weights(p[bag : bag + 1, :m])[0]
        torch.testing.assert_close(w[bag, :m], expected, atol=1e-6, rtol=0)
        assert w[bag].max() <= 0.5 + 1e-6


def test_cap_by_duration_turns_positive_at_the_duration():
    frame_rate, seconds = 2.69, [0.5, 2.0, 8.0]
    pool = ConstrainedAutoPool(3, min_duration=seconds, frame_rate=frame_rate, alpha=99.0).double()
    for m in (27, 54):
        for c, duration in enumerate(seconds):
            k = duration * frame_rate
            for active, positive in ((math.floor(k), False), (math.ceil(k), True)):
                p = torch.zeros(1, m, 3, dtype=torch.float64)
                p[0, :active] = 1
                assert (pool(p)[0, c] >= 0.5).item() == positive, (m, duration, active)


def test_cap_by_share_turns_positive_at_the_share():
    """The minimum fraction of instances of section III.E, in bags of any size."""
    shares = [0.1, 0.3, 0.8]
    pool = ConstrainedAutoPool(3, min_active=shares, alpha=99.0).double()
    for m in (10, 26, 500):
        for c, share in enumerate(shares):
            for active, positive in ((math.ceil(share * m) - 1, False), (math.floor(share * m) + 1, True)):
                p = torch.zeros(1, m, 3, dtype=torch.float64)
                p[0, :active] = 1
                assert (pool(p)[0, c] >= 0.5).item() == positive, (m, share, active)


@pytest.mark.parametrize("m", [3, 26, 99])
def test_cap_keeps_the_least_weight_of_equation_12(m):
    """In an extremal bag the largest instance keeps phi_minus, until that exceeds 1/m."""
    pool = ConstrainedAutoPool(1, bag_size=m, phi_minus=0.02, alpha=-99.0).double()
    p = torch.zeros(1, m, 1, dtype=torch.float64)
    p[0, 0] = 1
    assert pool.weights(p)[0, 0].item() == pytest.approx(min(0.02, 1 / m))
    pool.project()
    assert pool.alpha.item() == pytest.approx(min(float(min_alpha(0.02, m)), 0) if m < 50 else 0, abs=1e-12)
    mirrored = ConstrainedAutoPool(1, bag_size=m, alpha=-99.0)
    mirrored.project()
    assert mirrored.alpha.item() == pytest.approx(-math.log(m - 1))  # not in the paper, but in the authors' code


def test_cap_in_a_detector_knows_the_frame_rate():
    pool = ConstrainedAutoPool(1, min_duration=2.0)
    with pytest.raises(
        ArgumentError, match="frame_rate: expected the number of frames per second, together with min_dur"
    ):
        pool(torch.rand(1, 26, 1))
    detector = Detector(["dog"], FeatureConfig(), create_network("cnn", 128, width=0.1), pool)
    assert detector.pool.frame_rate == pytest.approx(44100 / 1024 / 16)
    detector.pool.train()(torch.rand(1, 26, 1))
    with torch.no_grad():
        pool.alpha.fill_(99.0)
    pool.project()
    assert pool.alpha.item() == pytest.approx(math.log(26 / (2 * 44100 / 1024 / 16) - 1))
    given = ConstrainedAutoPool(1, min_duration=2.0, frame_rate=5.0)
    Detector(["dog"], FeatureConfig(), create_network("cnn", 128, width=0.1), given)
    assert given.frame_rate == 5.0


@pytest.mark.parametrize("name", ["auto", "cap", "rap"])
def test_alpha_starts_at_one(name):
    assert create_pool(name, 3).alpha.tolist() == [1.0, 1.0, 1.0]


def test_cap_projects_after_the_step():
    pool = ConstrainedAutoPool(2, bag_size=26, alpha=[5.0, -5.0])
    pool.project()
    assert pool.alpha.tolist() == pytest.approx([math.log(25), -math.log(25)])
    assert pool.alpha.requires_grad


def test_cap_at_its_bound_can_come_back():
    """A projected alpha still gets a gradient, or it could never leave the bound."""
    pool = ConstrainedAutoPool(1, bag_size=26, alpha=99.0)
    pool.project()
    pool(torch.rand(4, 26, 1)).sum().backward()
    assert (pool.alpha.grad > 0).all()


def test_cap_learns_the_longest_bag_in_training():
    pool = ConstrainedAutoPool(1, alpha=99.0)
    pool.project()
    assert pool.alpha.item() == 99.0  # nothing met yet, nothing known
    pool(torch.rand(2, 12, 1), torch.arange(12) < torch.tensor([[9], [7]]))
    pool.eval()(torch.rand(2, 500, 1))
    pool.project()
    assert pool.alpha.item() == pytest.approx(math.log(8))
    twin = ConstrainedAutoPool(1)
    twin.load_state_dict(pool.state_dict())
    assert twin.longest == 9  # what was learned is kept, or a resumed run would project otherwise


def test_rap_gives_its_penalty_to_the_loss():
    pool = RegularizedAutoPool(3, penalty=1e-2, alpha=[1.0, -2.0, 3.0])
    assert pool.penalty().item() == pytest.approx(0.14)
    pool.penalty().backward()
    assert pool.alpha.grad.tolist() == pytest.approx([0.02, -0.04, 0.06])


@pytest.mark.parametrize("name", ["max", "auto", "cap", "noisy-or", "attention"])
def test_others_have_no_penalty(name):
    assert create_pool(name, 3).penalty().item() == 0


def test_hierarchical_passes_on_what_its_stages_ask_for():
    pool = create_pool("hierarchical", 2, base="rap")
    assert pool.penalty().item() == pytest.approx(2 * 2 * 1e-3)
    pool = create_pool("hierarchical", 1, base="cap")
    torch.nn.init.constant_(pool.stages[1].alpha, 99.0)
    pool(torch.rand(1, 30, 1))
    pool.project()
    assert pool.stages[1].alpha.item() == pytest.approx(math.log(5))


def test_learned_parameters_are_kept_in_their_ranges():
    for name, attribute, low, high in (("power", "exponent", 0, None), ("noisy-and", "threshold", 0, 1)):
        pool = create_pool(name, 2)
        torch.nn.init.constant_(getattr(pool, attribute), -5.0)
        pool.project()
        assert getattr(pool, attribute).min() == low
        torch.nn.init.constant_(getattr(pool, attribute), 5.0)
        pool.project()
        assert getattr(pool, attribute).max() == (5 if high is None else high)
    pool = create_pool("mean-max", 2, learned=True)
    torch.nn.init.constant_(pool.mix, 5.0)
    pool.project()
    assert pool.mix.tolist() == [1, 1]


def test_training_moves_alpha_towards_the_event_duration(generator):
    """The paper's idea in miniature: short events ask for a large alpha, long ones for a small one."""
    bags, m = 256, 20
    shares = torch.tensor([0.05, 0.9])
    y = torch.rand(bags, 2, generator=generator) > 0.5
    p = 0.1 + 0.8 * (torch.rand(bags, m, 2, generator=generator) < shares).float() * y.unsqueeze(1)
    pool = AutoPool(2)
    optimizer = torch.optim.Adam(pool.parameters(), lr=0.1)
    for _ in range(100):
        loss = torch.nn.functional.binary_cross_entropy(pool(p), y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert pool.alpha[0] > pool.alpha[1] + 1
