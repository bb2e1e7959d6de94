"""Mixtures of training clips: the sound and the labels of both."""

import numpy as np
import pytest

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.datasets import Clip, Collection
from earmark.datasets.base import Source
from earmark.datasets.mixing import SPREAD_DB, with_mixtures

ROWS = [
    Label("a.wav", None, None, "dog"),
    Label("b.wav", 0.5, 0.8, "dog"),
    Label("b.wav", None, None, "cat", None),
    Label("c.wav", 0.1, 0.2, "cat"),
]


@pytest.fixture
def data(tmp_path):
    clips = []
    for k, name in enumerate(("a.wav", "b.wav", "c.wav")):
        audio.write(tmp_path / name, np.full(800 * (k + 1), 0.1 * (k + 1), np.float32), 8000)
        clips.append(Clip(name, (Source(tmp_path / name),)))
    labels = LabelTable(ROWS, filenames=["a.wav", "b.wav", "c.wav"], classes=["cat", "cow", "dog"])
    return Collection(tuple(clips), labels)


def parts(clip):
    """The clips that a mixture is made of, and the level of the second one."""
    words = clip.filename.split()
    assert words[:1] == ["mixture"]
    return words[3], words[5], float(words[7])


def test_the_sound_is_that_of_both(data):
    mixed = with_mixtures(data, 20)
    assert mixed.clips[:3] == data.clips
    assert len(mixed) == 23
    for clip in mixed.clips[3:]:
        first, second, level = parts(clip)
        assert first != second
        assert abs(level) <= SPREAD_DB
        one, two = (next(c for c in data.clips if c.filename == name).read(8000) for name in (first, second))
        length = max(len(one), len(two))
        one, two = (np.pad(x, (0, length - len(x))) for x in (one, two))
        np.testing.assert_allclose(clip.read(8000), one + 10 ** (level / 20) * two, atol=1e-6)


def test_mixtures_are_the_same_every_time(data):
    assert with_mixtures(data, 5).clips == with_mixtures(data, 5).clips
    assert with_mixtures(data, 5).clips == with_mixtures(data, 9).clips[:8]
    assert with_mixtures(data, 0) is data


def test_labels_are_those_of_both(data):
    """A class is in a mixture if it is in either clip, absent if in neither, and unknown if one may have it."""
    mixed = with_mixtures(data, 30)
    targets = {(0.0, 0.0): 0.0, (1.0, 0.0): 1.0, (0.0, 1.0): 1.0, (1.0, 1.0): 1.0}
    seen = set()
    for clip in mixed.clips[3:]:
        first, second, _ = parts(clip)
        known = mixed.labels.bag_targets([first, second, clip.filename])
        for one, two, both in known.T:
            due = targets.get((float(one), float(two)), 1.0 if 1 in (one, two) else np.nan)
            np.testing.assert_equal(float(both), due)
            seen.add(str(due))
    assert seen == {"0.0", "1.0", "nan"}


def test_times_are_kept_where_they_are_known(data):
    mixed = with_mixtures(data, 30)
    by_parts = {frozenset(parts(clip)[:2]): clip.filename for clip in mixed.clips[3:]}
    rows = {key: {row[1:5] for row in mixed.labels.of(name)} for key, name in by_parts.items()}
    # cat is unknown in b, and may be there at any time; dog is at a time in b, and may be at any time in a
    assert rows[frozenset({"b.wav", "c.wav"})] == {(0.5, 0.8, "dog", True), (None, None, "cat", True)}
    assert rows[frozenset({"a.wav", "b.wav"})] == {
        (None, None, "dog", None),
        (0.5, 0.8, "dog", True),
        (None, None, "cat", None),
    }
    name = by_parts[frozenset({"a.wav", "b.wav"})]
    assert mixed.labels.bag_targets([name])[0, 2] == 1
    np.testing.assert_array_equal(mixed.labels.frame_targets(name, 3, 0.4)[:, 2], [np.nan, 1, np.nan])
    assert rows[frozenset({"a.wav", "c.wav"})] == {(None, None, "dog", True), (0.1, 0.2, "cat", True)}


def test_absence_is_kept_in_a_table_that_is_not_complete(data):
    rows = [Label("a.wav", None, None, "dog"), *(Label(f"{n}.wav", None, None, "cat", False) for n in "ab")]
    labels = LabelTable(rows, filenames=["a.wav", "b.wav", "c.wav"], complete=False)
    mixed = with_mixtures(Collection(data.clips, labels), 30)
    by_parts = {frozenset(parts(clip)[:2]): clip.filename for clip in mixed.clips[3:]}
    targets = {key: mixed.labels.bag_targets([name])[0].tolist() for key, name in by_parts.items()}
    np.testing.assert_equal(targets[frozenset({"a.wav", "b.wav"})], [0.0, 1.0])  # cat, dog
    np.testing.assert_equal(targets[frozenset({"a.wav", "c.wav"})], [np.nan, 1.0])
    np.testing.assert_equal(targets[frozenset({"b.wav", "c.wav"})], [np.nan, np.nan])
