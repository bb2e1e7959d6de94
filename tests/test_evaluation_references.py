"""References from anywhere: names matched, and nothing left out without a word."""

import pytest

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.evaluation import segment
from earmark.evaluation.references import fit_durations, fit_estimate, fit_reference, match_clips, read_durations
from earmark.formats import FORMATS, read_labels, write_labels

TRUTH = LabelTable([("a.wav", 0.0, 1.0, "dog"), ("b.wav", 1.0, 2.0, "cat")])


def test_names_that_agree_need_no_words():
    assert fit_reference(TRUTH, ["a.wav", "b.wav"]) == (TRUTH, ())
    table, notes = fit_reference(TRUTH, ["b.wav", "a.wav"], ["dog", "cat"])
    assert table.filenames == ("b.wav", "a.wav")  # as the clips come
    assert table.classes == ("dog", "cat")
    assert notes == ()


def test_everything_left_out_is_counted_and_named():
    table, notes = fit_reference(TRUTH, ["x/a.flac", "x/c.flac", "x/d.flac"], ["dog", "owl"])
    assert table.filenames == ("x/a.flac",)
    assert [row.label for row in table] == ["dog"]
    assert notes == (
        "1 file of the reference was matched by part of its name: a.wav with x/a.flac",
        "1 file of the reference is not among the clips and is left out: b.wav",
        "2 clips have no reference and are not evaluated: x/c.flac, x/d.flac",
        "1 class is nowhere in the reference, so all of its detections are wrong: owl",
    )
    _, notes = fit_reference(TRUTH, ["a.wav", "b.wav"], ["dog"])
    assert notes == ("1 label of the reference is unknown to the model and not evaluated: cat",)
    with pytest.raises(DataError, match=r"no file of the reference is among the clips: it names a.wav, b.wav, the cl"):
        fit_reference(TRUTH, ["z.wav"])
    with pytest.raises(DataError, match=r"^no class in common: the model has bat, owl, the labels have cat, dog$"):
        fit_reference(TRUTH, ["a.wav", "b.wav"], ["bat", "owl"])


def test_labels_take_the_spelling_of_the_model():
    table, notes = fit_reference(TRUTH, ["a.wav", "b.wav"], ["Dog", "CAT"])
    assert table.classes == ("Dog", "CAT")
    assert {row.label for row in table} == {"Dog", "CAT"}
    assert notes == ("labels that differ only in case or spaces are one class: 'cat' is 'CAT', 'dog' is 'Dog'",)
    truth, (table, notes) = fit_estimate(LabelTable([("a.wav", 0, 1, "DOG"), ("b.wav", 0, 1, "dog")]), TRUTH)
    assert truth.classes == TRUTH.classes
    assert {row.label for row in table} == {"dog"}
    assert notes == ("labels that differ only in case or spaces are one class: 'DOG' is 'dog'",)


def test_a_name_that_could_mean_two_clips_is_an_error():
    with pytest.raises(
        DataError, match=r"'a.wav' could be any of 2 recordings: x/a.wav, y/a.wav; label it by its path"
    ):
        match_clips(["a.wav"], ["x/a.wav", "y/a.wav"])


def test_clips_that_an_estimate_lacks_are_ones_in_which_nothing_was_found():
    said = LabelTable([("a.wav", 0.0, 1.0, "dog"), ("a.wav", 0.0, 1.0, "owl"), ("z.wav", 0.0, 1.0, "dog")])
    truth, (table, notes) = fit_estimate(said, TRUTH)
    assert table.filenames == truth.filenames == TRUTH.filenames
    assert table.classes == truth.classes == ("cat", "dog", "owl")
    assert len(table) == 2
    assert notes == (
        "1 file of the estimate is not among the clips and is left out: z.wav",
        "1 clip is not in the estimate, so it has no detections: b.wav",
        "1 label of the estimate is nowhere in the reference, so all of its detections are wrong: owl",
    )
    with pytest.raises(
        DataError, match=r"no file of the estimate is in the reference: it names z, the reference a.wav"
    ):
        fit_estimate(LabelTable([("z", 0, 1, "dog")]), TRUTH)


@pytest.mark.parametrize("separator", ["\t", ","])
def test_durations_are_read(separator, tmp_path):
    path = tmp_path / "durations.tsv"
    path.write_text("".join(f"{a}{separator}{b}\n" for a, b in (("filename", "duration"), ("a", 10.0), ("x/c.wav", 5))))
    assert read_durations(path) == {"a": 10.0, "x/c.wav": 5.0}
    seconds, (table, notes) = fit_durations(read_durations(path), TRUTH)
    assert seconds == {"a.wav": 10.0, "x/c.wav": 5.0}
    assert table.filenames == ("a.wav", "b.wav", "x/c.wav")
    assert notes == ("1 clip is in the durations only, so it counts as having no events: x/c.wav",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file\tseconds\na\t1\n", "expected columns filename and duration, got file, seconds"),
        ("filename\tduration\na\n", r":2: expected 2 columns, got 1"),
        ("filename\tduration\na\tlong\n", r":2: duration is not a number: 'long'"),
        ("filename\tduration\na\t-1\n", r":2: expected a file name and a duration in seconds, got a, -1"),
        ("filename\tduration\na\t1\na\t2\n", r":3: a has two durations, 1 s and 2 s"),
        ("filename\tduration\n", "expected durations, got none"),
    ],
)
def test_durations_that_cannot_be_meant_are_refused(text, message, tmp_path):
    path = tmp_path / "durations.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_durations(path)


@pytest.mark.parametrize("name", [entry.name for entry in FORMATS if entry.name not in ("raven", "dcase2017")])
def test_a_reference_of_any_format_gives_the_same_scores(name, tmp_path):
    estimate = LabelTable([("a.wav", 0.5, 1.5, "dog"), ("b.wav", 1.0, 2.0, "cat")])
    place = tmp_path / ("folder" if FORMATS.create(name).per_recording else f"truth{FORMATS.create(name).suffix}")
    write_labels(TRUTH, place, name)
    table, _ = fit_reference(read_labels(place, name), estimate.filenames)
    assert repr(segment.evaluate(table, estimate)) == repr(segment.evaluate(TRUTH, estimate))  # NaN is NaN
