"""Streams: exact for any chunking, mergeable in any grouping, and clear about what they cannot do."""

import pickle

import pytest
import torch

from earmark.errors import ArgumentError, DataError
from earmark.pooling import POOLS, create_pool

CLASSES, DIM = 3, 4
STREAMED = [
    *((e.name, {}) for e in POOLS if not e.cls.why_no_stream),
    ("auto", {"alpha": [-5.0, 0.0, 1e4]}),
    ("cap", {"alpha": [3.0, -3.0, 0.5], "phi": 0.3}),
    ("cap", {"alpha": [2.0, -1.0, 3.0], "min_duration": [1.0, 10.0, 0.2], "frame_rate": 2.0}),
    ("cap", {"alpha": [4.0, -2.0, 0.5], "phi_minus": 0.02}),
    ("cap", {"alpha": [2.0, -1.0, 3.0], "min_active": [0.1, 0.7, 0.02], "phi_minus": 0.01}),
    ("cap", {"alpha": [2.0, -1.0, 3.0], "min_active": [0.1, 0.7, 0.02]}),
    ("lse", {"sharpness": [0.0, -3.0, 1e4]}),
    ("gm", {"exponent": [0.0, -3.0, 1e3]}),
    ("power", {"exponent": [0.0, 0.3, 9.0]}),
    ("linear-auto", {"alpha": [0.0, 3.0, 1e4]}),
    ("linear-cap", {"alpha": 9.0, "min_active": [0.001, 0.05, 0.5]}),
    ("top-k", {"k": 40}),
    ("rank", {"decay": 0.0}),
    ("rank", {"decay": 1.0}),
    ("rank", {"decay": 0.99}),
    ("attention", {"embedding_dim": DIM}),
    ("gated-attention", {"embedding_dim": DIM}),
]
streamed = pytest.mark.parametrize(("name", "options"), STREAMED, ids=[f"{n}-{i}" for i, (n, _) in enumerate(STREAMED)])


def make(name, options):
    return create_pool(name, CLASSES, **options).eval()


def recording(frames, generator):
    return torch.rand(frames, CLASSES, generator=generator) ** 3, torch.randn(frames, DIM, generator=generator)


def feed(stream, p, h, cuts):
    for a, b in zip([0, *cuts], [*cuts, len(p)], strict=True):
        stream.update(p[a:b], embedding=h[a:b])
    return stream


@streamed
@pytest.mark.parametrize("frames", [1, 2, 5, 30, 200])
def test_streaming_equals_batch_for_any_chunking(name, options, frames, generator):
    pool = make(name, options)
    p, h = recording(frames, generator)
    P = pool(p.unsqueeze(0), embedding=h.unsqueeze(0))[0]
    random = sorted(torch.randint(0, frames + 1, (7,), generator=generator).tolist())  # some chunks are empty
    for cuts in ([], list(range(1, frames)), random):
        value = feed(pool.stream(), p, h, cuts).value()
        torch.testing.assert_close(value, P, atol=1e-6, rtol=0)
        assert not value.requires_grad


@streamed
def test_merging_is_associative(name, options, generator):
    pool = make(name, options)
    p, h = recording(50, generator)
    P = pool(p.unsqueeze(0), embedding=h.unsqueeze(0))[0]

    def parts():
        return [feed(pool.stream(), p[i : i + 10], h[i : i + 10], []) for i in range(0, 50, 10)]

    left = pool.stream()
    for s in parts():
        left.merge(s)
    a, b, c, d, e = parts()
    d.merge(e)
    c.merge(d)
    a.merge(b)
    a.merge(c)
    torch.testing.assert_close(left.value(), P, atol=1e-6, rtol=0)
    torch.testing.assert_close(a.value(), left.value(), atol=1e-7, rtol=0)
    torch.testing.assert_close(
        c.value(), pool(p[None, 20:], embedding=h[None, 20:])[0], atol=1e-6, rtol=0
    )  # still its own


@streamed
def test_several_bags_with_masks(name, options, generator):
    pool = make(name, options)
    p, h = torch.rand(4, 60, CLASSES, generator=generator), torch.randn(4, 60, DIM, generator=generator)
    mask = torch.arange(60) < torch.tensor([[60], [33], [7], [1]])
    s = pool.stream()
    for i in range(0, 60, 11):
        s.update(p[:, i : i + 11], mask[:, i : i + 11], embedding=h[:, i : i + 11])
    torch.testing.assert_close(s.value(), pool(p, mask, embedding=h), atol=1e-6, rtol=0)


@streamed
def test_travels_between_processes(name, options, generator):
    pool = make(name, options)
    p, h = recording(20, generator)
    s = feed(pool.stream(), p, h, [])
    twin = pickle.loads(pickle.dumps(s))
    twin.merge(s)
    assert torch.isfinite(twin.value()).all()


@streamed
def test_memory_is_constant(name, options, generator):
    pool = make(name, options)
    s = pool.stream()
    sizes = set()
    for _ in range(5):
        p, h = recording(2000, generator)
        s.update(p, embedding=h)
        sizes.add(sum(x.numel() for x in s._state.values()))
    assert len(sizes) == 1


def test_a_million_small_additions_do_not_drift():
    pool = create_pool("auto", 1, alpha=3.0)
    p = torch.rand(100_000, 1)
    s = pool.stream()
    for chunk in p.split(10):
        s.update(chunk)
    assert s.value().item() == pytest.approx(pool(p.double().unsqueeze(0)).item(), abs=1e-7)


def test_training_on_does_not_disturb_a_stream():
    pool = create_pool("auto", 1, alpha=0.0)
    s = pool.stream()
    s.update(torch.tensor([[0.0]]))
    torch.nn.init.constant_(pool.alpha, 50.0)
    s.update(torch.tensor([[1.0]]))
    assert s.value().item() == 0.5


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("hierarchical", {}, "its segments are counted from the start of the recording"),
        ("top-k", {"share": 0.1}, "it keeps a share of all frames, which grows with the recording; give k instead"),
        ("rank", {"decay": 0.999999}, "spreads the weight over millions of frames"),
    ],
)
def test_the_others_say_why_not(name, options, why):
    with pytest.raises(ArgumentError, match=f"pool '{name}' cannot be streamed: .*{why}"):
        create_pool(name, CLASSES, **options).stream()


def test_cap_far_outside_its_bounds_cannot_be_streamed():
    with pytest.raises(
        ArgumentError, match=r"alpha is too far out of its bounds to be streamed .* give bag_size, and call project\(\)"
    ):
        create_pool("cap", 1, alpha=99.0).stream()


def test_mistakes_are_named():
    pool = create_pool("mean", CLASSES)
    s = pool.stream()
    with pytest.raises(DataError, match=r"expected at least one frame before value\(\), got none"):
        s.value()
    s.update(torch.rand(2, 5, CLASSES), torch.tensor([[True] * 5, [False] * 5]))
    with pytest.raises(DataError, match="bag 1: expected at least one frame, got none"):
        s.value()
    with pytest.raises(ArgumentError, match=r"p: expected 3 axes, as in the first chunk, got shape \(5, 3\)"):
        s.update(torch.rand(5, CLASSES))
    with pytest.raises(ArgumentError, match="p: expected 2 bags, as in the first chunk, got 4"):
        s.update(torch.rand(4, 5, CLASSES))
    with pytest.raises(ArgumentError, match=r"p: expected \(bags, frames, classes\) with classes = 3, got \(2, 5, 9\)"):
        s.update(torch.rand(2, 5, 9))
    with pytest.raises(DataError, match=r"p: expected probabilities in \[0, 1\]"):
        s.update(torch.full((2, 5, CLASSES), 2.0))
    with pytest.raises(DataError, match="p has NaN"):
        s.update(torch.full((2, 5, CLASSES), torch.nan))
    other = pool.stream()
    other.update(torch.rand(5, CLASSES))
    with pytest.raises(ArgumentError, match="same number of bags"):
        s.merge(other)


def test_only_streams_of_one_pool_merge():
    with pytest.raises(ArgumentError, match="expected a stream of the same pool"):
        create_pool("mean", 1).stream().merge(create_pool("max", 1).stream())
    with pytest.raises(ArgumentError, match="the same pool with the same parameters"):
        create_pool("auto", 1, alpha=1.0).stream().merge(create_pool("auto", 1, alpha=2.0).stream())


def test_an_empty_stream_merges_both_ways():
    pool = create_pool("max", 1)
    full, empty = pool.stream(), pool.stream()
    full.update(torch.tensor([[0.25]]))
    full.merge(empty)
    empty.merge(full)
    assert full.value().item() == empty.value().item() == 0.25
