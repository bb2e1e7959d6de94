"""Label tables: what is said, what silence means, and that unknown is never guessed."""

import math

import numpy as np
import pytest

from earmark.annotations import Label, LabelTable, checked
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import event, segment
from earmark.formats import read_labels, write_labels

NAN = math.nan


def same(found, expected):
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    assert found.dtype == np.float32


@pytest.fixture
def table():
    """Two files with events, one with a weak label, one without anything."""
    return LabelTable(
        [
            ("a.wav", 0.5, 1.5, "dog"),
            ("a.wav", 1.0, 2.0, "dog"),
            ("a.wav", 3.0, 3.0, "cat"),
            ("b.wav", None, None, "cat"),
            ("b.wav", 1.0, 4.0, "bird", True, 0.7),
        ],
        filenames=["c.wav"],
        splits={"a.wav": "train", "b.wav": "test"},
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("", 0, 1, "dog"), "no file name"),
        (("a", 0, 1, ""), "no label"),
        (("a", 0, None, "dog"), "expected both onset and offset, got onset 0, offset None"),
        (("a", None, 1, "dog"), "expected both"),
        (("a", 2, 1, "dog"), "ends before it begins: onset 2, offset 1"),
        (("a", -0.1, 1, "dog"), "begins before the file: onset -0.1"),
        (("a", NAN, 1, "dog"), "expected finite times"),
        (("a", 0, math.inf, "dog"), "expected finite times"),
        (("a", 0, 1, "dog", None), "'dog' is marked as unknown and cannot have times"),
        (("a", 2, 1, "dog", False), "ends before it begins"),
        (("a", 0, 1, "dog", True, 1.1), r"confidence: expected a number in \[0, 1\], got 1.1"),
        (("a", 0, 1, "dog", True, NAN), "confidence: expected"),
        (("a", 0, 1, "dog", 0.9), "present: expected True, False or None, got 0.9; confidence is the sixth value"),
        (("a", 0, 1, "dog", 1), "present: expected True, False or None, got 1"),
        (("a", "0", "1", "dog"), "expected numbers as onset, offset and confidence, got '0'"),
        (("a", 0, 1, "dog", True, "0.9"), "expected numbers as onset, offset and confidence, got '0.9'"),
    ],
)
def test_rows_that_cannot_be_true(row, message):
    with pytest.raises(DataError, match=message):
        checked(Label(*row))
    with pytest.raises(DataError, match=message):
        LabelTable([row])


@pytest.mark.parametrize("row", [("a", 0, 1), ("a", 0, 1, "dog", True, 0.5, "x"), "filename", 5])
def test_rows_of_another_kind_are_refused(row):
    with pytest.raises(ArgumentError, match=r"expected rows \(filename, onset, offset, label\), got .*itertuples"):
        LabelTable([row])


def test_rows_may_be_numbers_of_numpy_and_lists():
    assert LabelTable([["a", np.int64(0), np.float32(1.5), "dog"]]) == LabelTable([("a", 0, 1.5, "dog")])


def test_a_table_is_a_sequence_of_rows(table):
    assert len(table) == 5
    assert table[0] == Label("a.wav", 0.5, 1.5, "dog")
    assert table[-2:] == tuple(table)[-2:]
    assert [row.has_times for row in table] == [True, True, True, False, True]
    assert repr(table) == "<LabelTable: 5 rows, 3 files, 3 classes>"
    assert table.filenames == ("c.wav", "a.wav", "b.wav")
    assert table.classes == ("bird", "cat", "dog")
    assert table.of("c.wav") == ()
    assert len(table.of("a.wav")) == 3


def test_tables_are_equal_in_everything_or_not_at_all(table):
    def again(**changes):
        same = {"filenames": ["c.wav"], "classes": table.classes, "complete": True, "splits": table.splits}
        return LabelTable(table, **(same | changes))

    assert again() == table
    assert again(filenames=[]) != table
    assert again(classes=["dog", "cat", "bird"]) != table
    assert again(complete=False) != table
    assert again(splits={}) != table
    assert table != list(table)
    with pytest.raises(TypeError, match="unhashable"):
        hash(table)


@pytest.mark.parametrize(
    ("row", "is_event"),
    [
        (("a.wav", 0, 1, "dog"), True),
        (("a.wav", 0, 1, "dog", True, 0.5), True),
        (("a.wav", None, None, "dog"), False),
        (("a.wav", None, None, "dog", None), False),
        (("a.wav", 0, 1, "dog", False), False),
    ],
)
def test_a_table_knows_whether_it_has_only_events(row, is_event):
    assert LabelTable([row]).has_only_events is is_event
    assert LabelTable([("b.wav", 0, 1, "cat"), row]).has_only_events is is_event
    assert LabelTable(filenames=["a.wav"]).has_only_events


def test_contradictions_and_strange_classes_are_refused():
    for times, other in (((0, 1), False), ((None, None), False), ((None, None), None)):
        with pytest.raises(DataError, match=r"a.wav: 'dog' is marked both present and absent"):
            LabelTable([("a.wav", *times, "dog"), ("a.wav", None, None, "dog", other)])
    with pytest.raises(ArgumentError, match=r"label='dgo' is not known; did you mean 'dog'\?"):
        LabelTable([("a.wav", 0, 1, "dgo")], classes=["dog", "cat"])
    with pytest.raises(ArgumentError, match="duplicate class in classes: dog, cat, dog"):
        LabelTable(classes=["dog", "cat", "dog"])


def test_a_file_that_the_table_does_not_know(table):
    for ask in (table.of, lambda name: table.select([name]), lambda name: table.bag_targets([name])):
        with pytest.raises(ArgumentError, match=r"'d.wav' is not one of the 3 files of this table"):
            ask("d.wav")


def test_silence_means_absence_in_a_complete_table(table):
    same(table.bag_targets(), [[0, 0, 0], [0, 1, 1], [1, 1, 0]])
    same(table.bag_targets(["b.wav"]), [[1, 1, 0]])
    assert table.presence("c.wav", "dog") is False


def test_silence_means_nothing_in_an_incomplete_table():
    rows = [("a", None, None, "dog"), ("a", None, None, "cat", False), ("b", None, None, "dog", None)]
    table = LabelTable(rows, complete=False)
    same(table.bag_targets(), [[0, 1], [NAN, NAN]])
    assert [table.presence("a", c) for c in ("cat", "dog")] == [False, True]
    assert [table.presence("b", c) for c in ("cat", "dog")] == [None, None]
    same(LabelTable(rows).bag_targets(), [[0, 1], [0, NAN]])


@pytest.mark.parametrize("order", [(False, None), (None, False)])
@pytest.mark.parametrize("complete", [True, False])
def test_unknown_outweighs_absent_in_whatever_order(order, complete):
    table = LabelTable([("a", None, None, "dog", present) for present in order], complete=complete)
    assert table.presence("a", "dog") is None
    same(table.bag_targets(), [[NAN]])


def test_frames(table):
    same(
        table.frame_targets("a.wav", 8, hop=0.5),  # bird, cat, dog
        [[0, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]],
    )
    same(table.frame_targets("b.wav", 2, hop=1.0), [[0, NAN, 0], [1, NAN, 0]])
    same(table.frame_targets("c.wav", 1, hop=1.0), [[0, 0, 0]])


def test_frames_of_a_class_with_and_without_times_follow_the_times():
    table = LabelTable([("a", None, None, "dog"), ("a", 1.0, 2.0, "dog")])
    same(table.frame_targets("a", 3, hop=1.0), [[0], [1], [0]])


def test_frames_of_unknown_classes_are_unknown():
    table = LabelTable([("a", 0.0, 1.0, "dog"), ("a", None, None, "cat", False)], classes=["dog", "cat", "bird"])
    same(table.frame_targets("a", 2, hop=1.0), [[1, 0, 0], [0, 0, 0]])
    incomplete = LabelTable(table, classes=table.classes, complete=False)
    same(incomplete.frame_targets("a", 2, hop=1.0), [[1, 0, NAN], [0, 0, NAN]])


def test_events_past_the_last_frame_do_no_harm():
    table = LabelTable([("a", 0.5, 99.0, "dog"), ("a", 50.0, 60.0, "cat")])
    same(table.frame_targets("a", 2, hop=1.0), [[0, 1], [0, 1]])


def test_select_keeps_order_classes_and_splits(table):
    part = table.select(["b.wav", "c.wav", "b.wav"])
    assert part.filenames == ("b.wav", "c.wav")
    assert len(part) == 2
    assert part.classes == table.classes
    assert part.splits == {"b.wav": "test"}


def test_splits_of_other_files_are_left_out():
    assert LabelTable(filenames=["a"], splits={"a": "train", "b": "test"}).splits == {"a": "train"}


def test_renamed(table):
    new = table.renamed({"a.wav": "x/a.wav"})
    assert new.filenames == ("c.wav", "x/a.wav", "b.wav")
    assert new.splits == {"x/a.wav": "train", "b.wav": "test"}
    assert len(new.of("x/a.wav")) == 3
    with pytest.raises(ArgumentError, match=r"two files would have the name 'b.wav'"):
        table.renamed({"a.wav": "b.wav"})


def test_with_classes(table):
    more = table.replace(classes=["dog", "cat", "bird", "bat"])
    same(more.bag_targets(["a.wav"]), [[1, 1, 0, 0]])
    with pytest.raises(ArgumentError, match="label='bird' is not known"):
        table.replace(classes=["dog", "cat"])


def test_a_table_prints_as_text_and_html_and_converts():
    table = LabelTable(
        [("a.wav", 0.5, 12.25, "dog", True, 0.5), ("<b>.wav", None, None, "cat & co")], filenames=["c.wav"]
    )
    assert str(table).splitlines() == [
        "filename onset offset label    confidence",
        "a.wav    0.500 12.250 dog           0.500",
        "<b>.wav               cat & co",
        "2 rows, 3 files",
    ]
    html = table._repr_html_()
    assert "&lt;b&gt;.wav" in html
    assert "cat &amp; co" in html
    assert "<b>.wav" not in html
    assert "2 rows, 3 files" in html
    many = LabelTable([(f"{i}.wav", 0, 1, "dog") for i in range(50)])
    assert len(str(many).splitlines()) == 22
    assert str(many).endswith("50 rows, 50 files")
    assert str(LabelTable()).endswith("0 rows, 0 files")
    assert table.to_dict()["rows"][0] == {
        "filename": "a.wav",
        "onset": 0.5,
        "offset": 12.25,
        "label": "dog",
        "present": True,
        "confidence": 0.5,
    }
    assert table.to_dict()["classes"] == ["cat & co", "dog"]


def test_a_table_becomes_a_data_frame():
    pytest.importorskip("pandas")
    frame = LabelTable([("a.wav", 0.5, 2.0, "dog", True, 0.5), ("b.wav", None, None, "cat")]).to_pandas()
    assert list(frame.columns) == ["filename", "onset", "offset", "label", "confidence"]
    assert frame["onset"].tolist()[0] == 0.5
    assert frame["onset"].isna().tolist() == [False, True]
    absent = LabelTable([("a.wav", None, None, "dog", False)]).to_pandas()
    assert absent["present"].tolist() == [False]
    assert list(LabelTable().to_pandas().columns) == ["filename", "onset", "offset", "label", "confidence"]


PARTLY = [
    ("a", 1.0, 2.0, "dog"),
    ("a", 2.0, 3.0, "dog", False),
    ("a", None, None, "dog", None),
    ("a", 0.0, 1.5, "cat", False),
]


def test_a_class_can_be_known_in_intervals_only():
    table = LabelTable(PARTLY, complete=False)
    same(table.frame_targets("a", 4, hop=1.0), [[0, NAN], [0, 1], [NAN, 0], [NAN, NAN]])
    same(table.bag_targets(), [[NAN, 1]])
    assert (table.presence("a", "dog"), table.presence("a", "cat")) == (True, None)


def test_without_a_row_of_unknown_presence_a_class_is_absent_outside_of_its_events():
    table = LabelTable(PARTLY[:2], complete=False)
    same(table.frame_targets("a", 4, hop=1.0), [[0], [1], [0], [0]])


def test_where_intervals_overlap_presence_wins():
    for rows in (PARTLY[:1], [*PARTLY[:1], ("a", 0, 4, "dog", False)]):
        same(LabelTable(rows[::-1]).frame_targets("a", 3, hop=1.0), [[0], [1], [0]])


def test_segments_count_where_a_class_is_known():
    reference = LabelTable([*PARTLY, ("a", 0.0, 1.0, "owl")], complete=True)
    estimate = [("a", 0.0, 4.0, "dog"), ("a", 0.0, 1.0, "owl")]
    counts = segment.counts(reference, estimate, durations={"a": 4.0})
    dog = counts.classes.index("dog")  # present from 1 to 2 s, absent from 2 to 3 s, unknown elsewhere
    assert [int(part[0, dog]) for part in (counts.tp, counts.fp, counts.fn, counts.tn)] == [1, 1, 0, 0]
    assert event.counts(reference, estimate).fp.sum() == 0  # events leave such a class out


@pytest.mark.parametrize("seed", range(20))
def test_segments_of_partly_known_classes_against_frame_targets(seed):
    rng = np.random.default_rng(seed)
    rows, estimate = [], []
    for name in ("a", "b"):
        for label in ("cat", "dog"):
            edges = np.sort(rng.choice(np.arange(0, 81), 6, replace=False)) / 8  # on a grid of 1/8 s, over 10 s
            rows += [(name, *edges[:2], label), (name, *edges[2:4], label, False), (name, None, None, label, None)]
            estimate += [(name, *np.sort(rng.choice(81, 2, replace=False)) / 8, label)]
    reference = LabelTable(rows, complete=False)
    found = LabelTable(estimate, classes=reference.classes, filenames=reference.filenames)
    counts = segment.counts(reference, found, durations={"a": 10.0, "b": 10.0})
    for f, name in enumerate(counts.filenames):
        true, guess = (table.frame_targets(name, 80, 1 / 8).reshape(10, 8, 2) for table in (reference, found))
        active, known = (true == 1).any(1), (true == 1).any(1) | ~np.isnan(true).any(1)
        detected = (guess == 1).any(1)
        for part, expected in (
            (counts.tp, active & detected),
            (counts.fp, known & ~active & detected),
            (counts.fn, active & ~detected),
            (counts.tn, known & ~active & ~detected),
        ):
            np.testing.assert_array_equal(part[f], expected.sum(0))


@pytest.mark.parametrize("format", ["csv", "tsv", "json"])
def test_intervals_of_absence_survive_a_file(format, tmp_path):
    table = LabelTable(PARTLY, complete=False)
    write_labels(table, tmp_path / "labels", format)
    assert read_labels(tmp_path / "labels", format) == table


def test_editors_get_events_only(tmp_path):
    write_labels(LabelTable(PARTLY[:2]), tmp_path / "labels", "audacity")
    assert [row.onset for row in read_labels(tmp_path / "labels", "audacity")] == [1.0]


def test_a_printed_table_says_that_it_is_cut():
    short, long = (LabelTable([("a.wav", i, i + 1, "owl") for i in range(n)]) for n in (20, 55))
    assert str(short).endswith("\n20 rows, 1 file")
    assert str(long).endswith("\nthe first 20 of 55 rows, 1 file")
