"""Labels as people write them: cleaned with a note, or refused with one line."""

import zipfile

import numpy as np
import pytest

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.datasets import Clip, Collection, open_data, with_separator
from earmark.datasets.cleaning import clean_labels, match_spellings, refuse_joined, separator_of
from earmark.errors import ArgumentError, DataError, MissingExtraError
from earmark.formats import read_labels


def weak(**labels):
    rows = [(f"{name}.wav", None, None, label) for name, found in labels.items() for label in found]
    return LabelTable(rows, filenames=[f"{name}.wav" for name in labels])


def collection(table):
    return Collection(tuple(Clip(name, ()) for name in table.filenames), table)


def by_file(table):
    return {name: {row.label for row in table.of(name)} for name in table.filenames}


@pytest.mark.parametrize(
    "cell", ["crow;dog", "crow; Dog", "crow|dog", "crow, dog", "crow + dog", "crow/dog", "crow & dog"]
)
def test_a_cell_of_known_labels_is_divided(cell):
    table, notes = clean_labels(weak(a=[cell], b=["crow"], c=["dog"], d=["dog"]))
    assert by_file(table)["a.wav"] == {"crow", "dog"}
    assert notes[0] == f"1 cell with several labels was divided: {cell!r}"


def test_times_and_splits_of_a_divided_cell_stay():
    rows = [("a.wav", 1, 2, "crow;dog"), ("b.wav", 0, 1, "crow"), ("c.wav", 0, 1, "dog")]
    table, _ = clean_labels(LabelTable(rows, splits={"a.wav": "test"}))
    assert [row[:4] for row in table.of("a.wav")] == [("a.wav", 1, 2, "crow"), ("a.wav", 1, 2, "dog")]
    assert table.splits == {"a.wav": "test"}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            ["crow;dog"],
            "class 'crow;dog' may be several labels in one cell, although 'crow' occurs nowhere else; for sev",
        ),
        (["crow", "crow;dog"], "'crow;dog' may be several labels in one cell, although 'dog' occurs nowhere else"),
        (["crow", "crow,owl"], "'crow,owl' may be several labels"),
    ],
)
def test_a_cell_of_unknown_labels_stops_training_unless_told(labels, message):
    table, notes = clean_labels(weak(a=labels, b=["rain"]))
    assert notes == ()
    with pytest.raises(DataError, match=message.replace(".", r"\.")):
        refuse_joined(collection(table))
    joined = max(labels, key=len)
    divided, notes = clean_labels(table, ";" if ";" in joined else ",")
    refuse_joined(collection(divided))
    assert joined not in divided.classes
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("labels", "unknown", "similar"),
    [
        (["frog", "bittern", "fogr;bittern"], "fogr", "frog"),
        (["fogr", "bittern", "frog;bittern"], "frog", "fogr"),
        (["bittern", "fogr;bittern", "frog;bittern"], "fogr", "frog"),
    ],
)
def test_a_misspelt_class_in_a_cell_is_named(labels, unknown, similar):
    with pytest.raises(
        DataError, match=rf"although '{unknown}' occurs nowhere else \(a similar name is '{similar}'\);"
    ):
        refuse_joined(collection(clean_labels(weak(a=labels))[0]))


def test_python_users_learn_how_to_state_the_separator(recordings):
    (recordings / "labels.csv").write_text("filename,label\na.wav,crow;dog\nb.wav,crow\nc.wav,none\n")
    with pytest.raises(DataError, match=r"in Python, pass earmark.datasets.with_separator\(data, ';'\) as the data"):
        refuse_joined(open_data(recordings))
    assert open_data(with_separator(recordings, ";")).classes == ("crow", "dog")  # a path, or a text


def test_names_with_commas_are_names():
    table, notes = clean_labels(weak(a=["Fire engine, fire truck"], b=["dog"]))
    refuse_joined(collection(table))
    assert notes == ()
    assert clean_labels(weak(a=["crow;dog"], b=["crow"], c=["dog"]), "")[0].classes == ("crow", "crow;dog", "dog")


def test_spellings_become_the_most_frequent_one():
    table, notes = clean_labels(weak(a=["Dog"], b=["dog", "DOG"], c=["dog"], d=["wood  pigeon"], e=["Wood pigeon"]))
    assert table.classes == ("Wood pigeon", "dog")
    assert by_file(table)["b.wav"] == {"dog"}
    assert len(table.of("b.wav")) == 1
    (note,) = notes
    assert note.startswith("labels that differ only in case or spaces are one class: 'DOG' is 'dog', 'Dog' is 'dog'")


def test_a_rare_class_that_is_almost_a_frequent_one_is_pointed_out():
    often = {name: ["siren"] for name in "abc"}
    table, (note,) = clean_labels(weak(**often, d=["sirn"]))
    assert table.classes == ("siren", "sirn")
    expected = "class 'sirn' (1 recording) is spelled almost like 'siren' (3)"
    assert note == f"{expected}: if it is a typing error, correct the labels"
    for other in ("siren 2", "owl", "serin"):  # more than a letter apart
        assert clean_labels(weak(**often, d=[other]))[1] == ()
    assert clean_labels(weak(**often, d=["sirn"], e=["sirn"]))[1] == ()  # not rare, compared with three


def test_labels_get_the_spelling_of_the_classes_only_if_it_is_clear():
    table, notes = match_spellings(weak(a=["dog", "Owl"], b=["wood  pigeon"]), ["Dog", "owl", "OWL", "wood pigeon"])
    assert table.classes == ("Dog", "Owl", "wood pigeon")  # Owl may be either
    assert len(notes) == 1
    table, notes = match_spellings(weak(a=["dog", "Dog"]), ["Dog", "dog"])
    assert (table.classes, notes) == (("Dog", "dog"), ())


def test_present_wins_over_absent_where_spellings_are_united():
    rows = [("a.wav", None, None, "dog"), ("a.wav", None, None, "Dog", False), ("b.wav", None, None, "dog")]
    table, _ = clean_labels(LabelTable(rows))
    assert table.presence("a.wav", "dog") is True


def test_what_is_known_in_part_stays_so_where_other_labels_are_renamed():
    rows = [
        ("a.wav", 0.0, 1.0, "dog"),
        ("a.wav", 2.0, 3.0, "dog", False),
        ("a.wav", None, None, "dog", None),
        ("b.wav", None, None, "crow"),
        ("c.wav", None, None, "Crow"),
    ]
    table, notes = clean_labels(LabelTable(rows, complete=False))
    assert len(notes) == 1
    dog = table.frame_targets("a.wav", 4, 1.0)[:, table.classes.index("dog")]
    np.testing.assert_array_equal(dog, [1, np.nan, 0, np.nan])


@pytest.mark.parametrize("nothing", ["none", "None", "NOCALL", "n/a", "nothing", "-", "no_call"])
def test_a_label_that_means_nothing_is_a_recording_without_sounds(nothing):
    table, notes = clean_labels(weak(a=[nothing], b=["dog"], c=["owl"]))
    assert table.classes == ("dog", "owl")
    assert by_file(table)["a.wav"] == set()
    assert nothing in notes[-1]
    assert "its recording counts as empty" in notes[-1]


def test_nothing_means_absent_where_labels_are_unknown():
    rows = [("a.wav", None, None, "none"), ("b.wav", None, None, "dog")]
    table, _ = clean_labels(LabelTable(rows, complete=False))
    assert table.presence("a.wav", "dog") is False
    rows = [("a.wav", 5.0, 6.0, "none"), ("a.wav", 1.0, 2.0, "owl"), ("b.wav", None, None, "dog")]
    table, _ = clean_labels(LabelTable(rows, complete=False))  # a correction in a review, for example
    assert [row for row in table.of("a.wav") if row.label == "dog"] == [Label("a.wav", 5.0, 6.0, "dog", False)]
    with pytest.raises(DataError, match="nothing to learn"):
        clean_labels(weak(a=["none"]))


def test_separators_have_names():
    assert separator_of("Semicolon") == separator_of(" ; ") == ";"
    assert separator_of("none") == ""
    assert with_separator("folder,separator=pipe:x", ",") == "folder,separator=comma:x"
    assert with_separator("x", None) == "x"
    with pytest.raises(ArgumentError, match=r"separator: expected one of semicolon, .* got 'and'"):
        with_separator("x", "and")
    with pytest.raises(ArgumentError, match="has its own format"):
        with_separator("urban-sed:x", ";")


@pytest.fixture
def recordings(tmp_path):
    for name in "abc":
        audio.write(tmp_path / f"{name}.wav", [0.0] * 800, 8000)
    return tmp_path


def write_workbook(path, *sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for i, rows in enumerate(sheets):
        sheet = book.create_sheet(f"s{i}")
        for row in rows:
            sheet.append(row)
    book.save(path)


def test_notes_and_separators_reach_the_clips(recordings):
    (recordings / "labels.csv").write_text("filename,label\na.wav,crow;dog\nb.wav, crow \nc.wav,none\n")
    assert open_data(recordings).classes == ("crow", "crow;dog")
    data = open_data(with_separator(str(recordings), ";"))
    assert data.classes == ("crow", "dog")
    assert len(data.notes) == 2


@pytest.mark.parametrize("separator", ["none", ","])
def test_a_stated_separator_allows_names_with_other_separators(recordings, separator):
    (recordings / "labels.csv").write_text("filename,label\na.wav,crow;dog\nb.wav,owl\nc.wav,owl\n")
    with pytest.raises(DataError, match="'crow;dog' may be several labels in one cell"):
        refuse_joined(open_data(recordings))
    data = open_data(with_separator(str(recordings), separator), "train")
    refuse_joined(data)
    assert data.classes == ("crow;dog", "owl")


def test_a_workbook_is_read_like_a_table(recordings):
    rows = [
        ["Filename", "Start", "End", "Label", "note"],
        ["a.wav", 0, 0.05, "crow", None],
        ["b.wav", None, None, "dog"],
        ["c.wav"],
    ]
    write_workbook(recordings / "labels.xlsx", [], rows)
    data = open_data(recordings / "labels.xlsx")
    assert [row[:4] for row in data.labels] == [("a.wav", 0.0, 0.05, "crow"), ("b.wav", None, None, "dog")]
    write_workbook(
        recordings / "labels.xlsx", [["file", "crow", "dog"], ["a.wav", 1, 0], ["b.wav", 0.0, True], ["c.wav", 0, 0]]
    )
    assert open_data(recordings).labels.bag_targets(["a.wav", "b.wav"]).tolist() == [[1, 0], [0, 1]]
    write_workbook(recordings / "labels.xlsx", [["filename", "onset", "offset", "label"], [], ["a.wav", 2, 1, "crow"]])
    with pytest.raises(DataError, match=r"labels.xlsx:3: event ends before it begins"):
        open_data(recordings)


def test_a_workbook_that_is_no_label_table_is_not_passed_over(recordings):
    for folder in ("north", "south"):
        (recordings / folder).mkdir()
        audio.write(recordings / folder / "x.wav", [0.0] * 800, 8000)
    write_workbook(recordings / "weather.xlsx", [["day", "rain"], [1, 2]])
    with pytest.raises(DataError, match=r"weather.xlsx: not a known label format.*; if it contains no labels, move it"):
        open_data(recordings)


def test_damaged_and_huge_workbooks_are_refused_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "labels.xlsx"
    path.write_bytes(b"PK")
    with pytest.raises(DataError, match="not an Excel workbook, or damaged; save it again, or as CSV"):
        read_labels(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * (1 << 20))
    monkeypatch.setenv("EARMARK_LARGEST_TABLE", "64K")
    with pytest.raises(DataError, match=r"expected at most 0\.0625 MiB in a workbook"):
        read_labels(path)
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'earmark\[excel\]'"):
        read_labels(path)


def test_wide_tables_may_have_tabs(tmp_path):
    (tmp_path / "labels.tsv").write_text("filename\tcrow\tdog\na.wav\t1\t0\nb.wav\t\t1\n")
    table = read_labels(tmp_path / "labels.tsv")
    assert table.classes == ("crow", "dog")
    assert table.presence("a.wav", "crow") is True
    assert table.presence("b.wav", "crow") is None
    (tmp_path / "labels.tsv").write_text("filename\tlabl\na.wav\tdog\n")
    with pytest.raises(DataError, match="unknown column 'labl'"):
        read_labels(tmp_path / "labels.tsv")
