"""Sound that several clips share is read once, kept while it is needed, and read again if its file changes."""

from dataclasses import replace

import numpy as np
import pytest

from earmark import audio
from earmark.bags.sources import SharedSources
from earmark.datasets import Clip, Source

RATE = 1000


@pytest.fixture
def sources(tmp_path):
    rng = np.random.default_rng(5)
    made = []
    for name in "abc":
        audio.write(tmp_path / f"{name}.wav", 0.1 * rng.standard_normal(2 * RATE).astype(np.float32), 2 * RATE)
        made.append(Source(tmp_path / f"{name}.wav"))
    return made


@pytest.fixture
def reads(monkeypatch):
    """Names of the files that are read."""
    names, read = [], Source.read
    monkeypatch.setattr(Source, "read", lambda self, rate: names.append(self.path.stem) or read(self, rate))
    return names


def mixtures(sources):
    a, b, c = sources
    louder = replace(b, gain=2.0)
    return [Clip("a", (a,)), Clip("b", (b,)), Clip("ab", (a, louder)), Clip("bc", (b, c)), Clip("ca", (c, a))]


def all_read(clips, seconds, stamps=lambda source: source.path):
    shared = SharedSources(clips, RATE, seconds)
    return [shared.read(clip, [stamps(source) for source in clip.sources]) for clip in clips]


@pytest.mark.parametrize(("seconds", "times"), [(0, 8), (1, 6), (3, 3)])
def test_sound_is_that_of_the_files_and_read_once_if_there_is_room(sources, reads, seconds, times):
    clips = mixtures(sources)
    expected = [clip.read(RATE) for clip in clips]
    reads.clear()
    for ours, theirs in zip(all_read(clips, seconds), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(reads) == times


def test_a_file_that_changed_is_read_again(sources, reads):
    stamps = iter(range(99))
    all_read(mixtures(sources), 99, lambda source: next(stamps))
    assert len(reads) == 8


def test_nothing_is_kept_that_no_clip_needs_again_and_changes_by_readers_do_not_matter(sources):
    clips = [Clip("first", (sources[0],)), Clip("again", (sources[0],))]
    shared = SharedSources(clips, RATE, 99)
    first = shared.read(clips[0], ["same"])
    first *= 0
    assert shared._kept
    assert shared.read(clips[1], ["same"]).any()
    assert not shared._kept
    assert shared._room == 99 * RATE
