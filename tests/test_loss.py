"""Losses, against PyTorch's own where it has them and slow loops where it has not."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from earmark.detector import Output
from earmark.errors import ArgumentError
from earmark.loss import bag_loss, detector_loss, frame_loss, reduce_targets

NAN = math.nan


def draw_targets(shape, generator, unknown=0.3):
    targets = torch.randint(0, 2, shape, generator=generator).float()
    return targets.masked_fill(torch.rand(shape, generator=generator) < unknown, NAN)


def output_of(logits, mask=None):
    """An output whose bags are means of their frames, so that losses can be worked out by hand."""
    dynamic = logits.sigmoid()
    real = torch.ones(logits.shape[:2], dtype=torch.bool) if mask is None else mask
    static = torch.where(real[..., None], dynamic, 0.0).sum(1) / real.sum(1, keepdim=True)
    return Output(dynamic, static, logits, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bags_cost_binary_cross_entropy(dtype, generator):
    P = torch.rand(20, 5, generator=generator).to(dtype)
    targets = draw_targets(P.shape, generator, unknown=0).to(dtype)
    torch.testing.assert_close(bag_loss(P, targets), F.binary_cross_entropy(P, targets))


def test_soft_targets_are_possible(generator):
    P, targets = torch.rand(2, 20, 5, generator=generator)
    torch.testing.assert_close(bag_loss(P, targets), F.binary_cross_entropy(P, targets))


def test_frames_cost_binary_cross_entropy(generator):
    logits = 5 * torch.randn(4, 9, 3, generator=generator)
    targets = draw_targets(logits.shape, generator, unknown=0)
    torch.testing.assert_close(frame_loss(logits, targets), F.binary_cross_entropy_with_logits(logits, targets))


def test_the_average_is_over_known_targets(generator):
    P, targets = torch.rand(20, 5, generator=generator), draw_targets((20, 5), generator)
    known = ~targets.isnan()
    torch.testing.assert_close(bag_loss(P, targets), F.binary_cross_entropy(P[known], targets[known]))
    logits, targets = torch.randn(4, 9, 3, generator=generator), draw_targets((4, 9, 3), generator)
    mask = torch.arange(9) < torch.tensor([[9], [5], [1], [7]])
    known = ~targets.isnan() & mask[..., None]
    expected = F.binary_cross_entropy_with_logits(logits[known], targets[known])
    torch.testing.assert_close(frame_loss(logits, targets, mask), expected)


def test_what_is_unknown_is_in_no_gradient_even_if_it_is_nan(generator):
    P, targets = torch.rand(20, 5, generator=generator), draw_targets((20, 5), generator)
    known = ~targets.isnan()
    P = torch.where(known, P, NAN).requires_grad_()
    loss = bag_loss(P, targets)
    loss.backward()
    assert torch.isfinite(loss)
    assert (P.grad[known] != 0).all()
    assert (P.grad[~known] == 0).all()

    targets = draw_targets((4, 9, 3), generator)
    mask = torch.arange(9) < torch.tensor([[9], [5], [1], [7]])
    known = ~targets.isnan() & mask[..., None]
    logits = torch.where(known, torch.randn(4, 9, 3, generator=generator), NAN).requires_grad_()
    loss = frame_loss(logits, targets, mask)
    loss.backward()
    assert torch.isfinite(loss)
    assert (logits.grad[known] != 0).all()
    assert (logits.grad[~known] == 0).all()


@pytest.mark.parametrize("supervision", ["weak", "propagated", "strong", "mixed"])
def test_a_batch_of_which_nothing_is_known_costs_and_teaches_nothing(supervision, generator):
    logits = torch.randn(2, 4, 3, generator=generator).requires_grad_()
    unknown = torch.full((2, 8, 3), NAN)
    loss = detector_loss(output_of(logits), unknown[:, 0], unknown, supervision=supervision, reduction=2)
    loss.backward()
    assert loss == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("P", [0.0, 1.0, 1e-30, 1 - 6e-8])
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_certain_bags_cost_a_finite_amount_with_a_finite_gradient_that_lives(P, target):
    p = torch.tensor([[P]], requires_grad=True)
    loss = bag_loss(p, torch.tensor([[target]]))
    loss.backward()
    is_wrong = (P > 0.5) != (target > 0.5)
    assert 0 <= loss.item() < 17
    assert (loss.item() > 15) == is_wrong
    assert 1 <= p.grad.abs() < 1e7
    assert (p.grad > 0) == (target == 0)


def test_gradients_are_those_of_finite_differences(generator):
    P = (0.05 + 0.9 * torch.rand(4, 3, generator=generator).double()).requires_grad_()
    targets = draw_targets((4, 3), generator).double()
    assert torch.autograd.gradcheck(lambda P: bag_loss(P, targets), (P,))
    logits = torch.randn(2, 4, 3, generator=generator).double().requires_grad_()
    frames, mask = draw_targets((2, 8, 3), generator).double(), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    assert torch.autograd.gradcheck(lambda x: frame_loss(x, reduce_targets(frames, 2), mask), (logits,))
    assert torch.autograd.gradcheck(
        lambda x: detector_loss(output_of(x, mask), targets[:2], frames, supervision="mixed", reduction=2), (logits,)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype, generator):
    P, targets = torch.rand(20, 5, generator=generator).to(dtype), draw_targets((20, 5), generator)
    loss = bag_loss(P, targets)
    assert loss.dtype == torch.float32
    assert loss == bag_loss(P.float(), targets)


def test_targets_of_any_dtype(generator):
    P, targets = torch.rand(20, 5, generator=generator), draw_targets((20, 5), generator, unknown=0)
    expected = bag_loss(P, targets)
    for dtype in (torch.bool, torch.int64, torch.float64):
        loss = bag_loss(P, targets.to(dtype))
        assert loss.dtype == torch.float32
        assert loss == expected


@pytest.mark.parametrize("reduction", [1, 2, 3, 4, 16])
def test_targets_of_output_frames(reduction, generator):
    targets = draw_targets((3, 35, 4), generator, unknown=0.2)
    targets[0] = targets[0].nan_to_num()
    targets[1, :, 0] = 0.0
    expected = np.zeros((3, 35 // reduction, 4))
    for bag in range(3):
        for frame in range(35 // reduction):
            for c in range(4):
                inside = targets[bag, frame * reduction : (frame + 1) * reduction, c].tolist()
                if 1 in inside:
                    expected[bag, frame, c] = 1
                elif any(math.isnan(t) for t in inside):
                    expected[bag, frame, c] = NAN
    np.testing.assert_array_equal(reduce_targets(targets, reduction).numpy(), expected)


def test_too_few_frames_for_one_have_no_targets():
    assert reduce_targets(torch.zeros(2, 3, 4), 16).shape == (2, 0, 4)


# Four frames of one class, two feature frames each; how the frames are known, what the bag says, and which of the
# frames and whether the bag then cost anything.
MIXED = [
    ("strong clip", [0, 0, 1, 0, 0, 0, 0, 0], 1, [1, 1, 1, 1], False),
    ("strong clip without the class", [0] * 8, 0, [1, 1, 1, 1], False),
    ("weak clip", [NAN] * 8, 1, [0, 0, 0, 0], True),
    ("weak clip without the class, known to be absent throughout", [0] * 8, 0, [1, 1, 1, 1], False),
    ("weak clip, absence known of the bag alone", [NAN] * 8, 0, [0, 0, 0, 0], True),
    ("nobody knows", [NAN] * 8, NAN, [0, 0, 0, 0], False),
    ("half known", [0, 0, 1, 1, NAN, NAN, NAN, NAN], 1, [1, 1, 0, 0], False),
    ("half known, present in the other half", [0, 0, 0, 0, NAN, NAN, NAN, NAN], 1, [1, 1, 0, 0], True),
    ("half known, bag unknown", [0, 0, 0, 0, NAN, NAN, NAN, NAN], NAN, [1, 1, 0, 0], False),
    ("present decides where half a frame is unknown", [1, NAN, 0, 0, 0, 0, 0, 0], 1, [1, 1, 1, 1], False),
]


@pytest.mark.parametrize(("case", "frames", "bag", "frames_count", "bag_counts"), MIXED, ids=[m[0] for m in MIXED])
def test_mixed_supervision(case, frames, bag, frames_count, bag_counts, generator):
    logits = torch.randn(1, 4, 1, generator=generator).requires_grad_()
    frame_targets = torch.tensor(frames, dtype=torch.float32).reshape(1, 8, 1)
    output = output_of(logits)
    loss = detector_loss(output, torch.tensor([[float(bag)]]), frame_targets, supervision="mixed", reduction=2)
    expected = torch.zeros(())
    counted = torch.tensor(frames_count).bool()
    if counted.any():
        present = torch.tensor([float(1 in frames[i : i + 2]) for i in range(0, 8, 2)])
        expected = F.binary_cross_entropy_with_logits(logits[0, counted, 0], present[counted])
    if bag_counts:
        expected = expected + F.binary_cross_entropy(output.static, torch.tensor([[float(bag)]]))
    torch.testing.assert_close(loss, expected)


def test_mixed_supervision_asks_each_clip_and_class_for_what_it_knows(generator):
    """Clip 0 is strong, clip 1 weak, clip 2 strong for class 0 only; class 1 of clip 2 is unknown altogether."""
    logits = torch.randn(3, 5, 2, generator=generator)
    frames = torch.full((3, 5, 2), NAN)
    frames[0] = torch.randint(0, 2, (5, 2), generator=generator).float()
    frames[2, :, 0] = 1.0
    bags = torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, NAN]])
    output = output_of(logits)
    loss = detector_loss(output, bags, frames, supervision="mixed")
    by_frames = [
        F.binary_cross_entropy_with_logits(logits[bag, :, c], frames[bag, :, c]) for bag, c in ((0, 0), (0, 1), (2, 0))
    ]
    by_bags = F.binary_cross_entropy(output.static[1], bags[1], reduction="none")
    torch.testing.assert_close(loss, torch.stack([*by_frames, *by_bags]).mean())


def test_a_weak_clip_weighs_the_same_under_mixed_supervision_whether_it_has_the_class_or_not():
    """At probabilities of a half, each clip pulls equally hard, up or down."""
    logits = torch.zeros(4, 5, 1, requires_grad=True)
    frames = torch.full((4, 5, 1), NAN)
    frames[1:] = 0.0  # of a clip without the class, all frames are known
    output = output_of(logits)
    detector_loss(output, torch.tensor([[1.0], [0.0], [0.0], [0.0]]), frames, supervision="mixed").backward()
    present, *absent = logits.grad.sum((1, 2)).tolist()
    assert absent == pytest.approx(3 * [-present])


def test_padding_asks_no_bag(generator):
    """Frames that are unknown only behind the mask are known."""
    logits = torch.randn(1, 4, 1, generator=generator)
    frames = torch.tensor([0.0, 1.0, NAN, NAN]).reshape(1, 4, 1)
    output = output_of(logits, torch.tensor([[True, True, False, False]]))
    loss = detector_loss(output, torch.ones(1, 1), frames, supervision="mixed")
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits[:, :2], frames[:, :2]))


def test_weak_looks_at_bags_and_strong_at_frames(generator):
    logits, frames = torch.randn(2, 4, 3, generator=generator), draw_targets((2, 8, 3), generator)
    bags, output = draw_targets((2, 3), generator), output_of(logits)
    assert detector_loss(output, bags) == bag_loss(output.static, bags)
    strong = detector_loss(output, bags, frames, supervision="strong", reduction=2)
    assert strong == frame_loss(logits, reduce_targets(frames, 2))


def test_propagated_labels_are_those_of_the_bag_at_every_frame(generator):
    logits, bags = torch.randn(2, 4, 3, generator=generator), torch.tensor([[1.0, 0.0, NAN], [0.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, True, False], [True] * 4])
    loss = detector_loss(output_of(logits, mask), bags, supervision="propagated")
    cost = F.binary_cross_entropy_with_logits(logits, bags.nan_to_num()[:, None].expand(-1, 4, -1), reduction="none")
    known = (mask[..., None] & ~bags.isnan()[:, None]).expand_as(cost)
    assert loss == pytest.approx(cost[known].mean().item())


def test_impossible_calls_are_refused(generator):
    output, bags = output_of(torch.randn(2, 4, 3, generator=generator)), torch.zeros(2, 3)
    with pytest.raises(
        ArgumentError,
        match=r"supervision='week' is not known; did you mean 'weak'\? Choose from: weak, propagated, strong, mixed",
    ):
        detector_loss(output, bags, supervision="week")
    for supervision in ("strong", "mixed"):
        with pytest.raises(
            ArgumentError, match=f"frame_targets: expected a tensor for supervision='{supervision}', got None"
        ):
            detector_loss(output, bags, supervision=supervision)
    with pytest.raises(ArgumentError, match=r"targets: expected the shape of P, \(2, 3\), got \(3,\)"):
        bag_loss(output.static, torch.zeros(3))
    with pytest.raises(ArgumentError, match=r"targets: expected the shape of logits, \(2, 4, 3\), got \(2, 8, 3\)"):
        frame_loss(output.logits, torch.zeros(2, 8, 3))
