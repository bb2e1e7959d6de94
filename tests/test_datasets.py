"""Data sets: every registered one keeps the contract; each layout is read as it is published."""

import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from reference.datasets import write_example

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.datasets import DATASETS, Clip, Collection, MissingDataWarning, open_data
from earmark.datasets.checks import check_labels
from earmark.datasets.dcase2017 import DCASE2017
from earmark.datasets.examples import write_example as write_folder
from earmark.datasets.matching import match_names, name_to_key
from earmark.datasets.splitting import draw_splits
from earmark.datasets.urbansed import UrbanSED, read_annotations
from earmark.errors import ArgumentError, DataError
from earmark.formats import FORMATS
from earmark.synthesis import synthesise
from earmark.text import first_few

RAVEN = "Selection\tBegin Time (s)\tEnd Time (s)\tSpecies\n1\t0.5\t1.5\towl\n"

NAMES = [entry.name for entry in DATASETS]


@pytest.fixture(scope="session")
def examples(tmp_path_factory):
    """The example of every data set, written once, by name; for reading only."""
    root = tmp_path_factory.mktemp("examples")
    for entry in DATASETS:
        write_example(entry.name, root / entry.name)
    return root


@pytest.fixture
def dataset(request):
    return DATASETS.create(request.param)


def put(folder, *names):
    """Files that are there and hold nothing: enough for what only looks at names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# the contract, for every data set


@pytest.mark.parametrize("dataset", NAMES, indirect=True)
def test_an_example_is_read_back_whole(dataset, examples):
    data = dataset.clips(examples / dataset.name)
    assert set(data.splits) == set(dataset.splits)
    assert set(data.labels.filenames) == {clip.filename for clip in data.clips}
    if dataset.classes:
        assert data.classes == dataset.classes
    assert any(row.present for row in data.labels)
    for clip in data.clips:
        for source in clip.sources:
            assert source.path.is_file()
            assert 1 <= audio.info(source.path).duration <= 10
        sound = clip.read(16000)
        assert sound.dtype == np.float32
        assert np.abs(sound).max() > 0
        for row in data.labels.of(clip.filename):
            assert row.offset is None or row.offset <= len(sound) / 16000 + 0.1


@pytest.mark.parametrize("dataset", NAMES, indirect=True)
def test_a_split_is_the_same_alone_and_out_of_the_whole(dataset, examples):
    whole = dataset.clips(examples / dataset.name)
    for split in dataset.splits:
        part = dataset.clips(examples / dataset.name, split)
        assert part.splits == (split,)
        assert part.clips == whole.split(split).clips
        assert list(part.labels) == list(whole.split(split).labels)
        assert part.classes == whole.classes


@pytest.mark.parametrize("dataset", NAMES, indirect=True)
def test_an_unknown_split_is_refused_with_the_nearest(dataset, examples):
    with pytest.raises(ArgumentError, match=r"split='tets' is not known; did you mean 'test'\?"):
        dataset.clips(examples / dataset.name, "tets")


def test_an_example_is_not_mixed_with_other_files(tmp_path):
    put(tmp_path, "mine.txt")
    with pytest.raises(ArgumentError, match="is not empty; an example data set needs a new folder"):
        write_folder(tmp_path)


@pytest.mark.parametrize("dataset", NAMES, indirect=True)
def test_what_people_must_know_is_said(dataset):
    assert dataset.licence
    assert dataset.citation
    assert "|--" in dataset.layout
    assert all(len(line) <= 120 for line in dataset.layout.splitlines())
    assert DATASETS[dataset.name].summary


@pytest.mark.parametrize("dataset", NAMES, indirect=True)
def test_a_folder_that_is_not_there_is_named(dataset, tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        dataset.clips(tmp_path / "nowhere")


@pytest.mark.parametrize("dataset", NAMES, indirect=True)
def test_an_empty_folder_is_refused(dataset, tmp_path):
    with pytest.raises(DataError, match=str(tmp_path)):
        dataset.clips(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_opens_by_name(name, examples):
    assert open_data(f"{name}:{examples / name}").clips == DATASETS.create(name).clips(examples / name).clips


# which data set a word means


def test_plain_paths_are_folders_or_what_synth_made(examples):
    made = open_data(examples / "soundscapes", "test")
    assert [clip.filename for clip in made.clips] == ["audio/test/test0000.flac", "audio/test/test0001.flac"]
    mine = open_data(str(examples / "folder"))
    assert mine.clips == open_data(examples / "folder" / "labels.tsv").clips
    assert mine.clips[0].filename == "south/night00.flac"


def test_unknown_data_sets_are_refused_with_the_nearest():
    with pytest.raises(ArgumentError, match=r"data set='urban-sde' is not known; did you mean 'urban-sed'\?"):
        open_data("urban-sde:data")
    with pytest.raises(ArgumentError, match=r"'urban-sed:': no path after the colon; expected NAME:PATH"):
        open_data("urban-sed:")


def test_options_go_behind_the_name(examples):
    root = examples / "medleydb"
    third = open_data(f"medleydb,fold=3:{root}")
    assert third.clips == DATASETS.create("medleydb", fold=3).clips(root).clips != open_data(f"medleydb:{root}").clips
    with pytest.raises(ArgumentError, match=r"medleydb,3:x': expected OPTION=VALUE after the comma, got '3'"):
        open_data("medleydb,3:x")
    with pytest.raises(ArgumentError, match=r"data set 'medleydb': option='flod' is not known; did you mean 'fold'\?"):
        open_data("medleydb,flod=3:x")
    with pytest.raises(ArgumentError, match="fold: expected an integer from 0 to 9, got 'third'"):
        open_data("medleydb,fold=third:x")


@pytest.mark.parametrize("path", ["C:\\sounds", "c:/sounds", "my/8:30", "~nobody-is-called-so/x"])
def test_paths_with_a_colon_are_paths(path):
    with pytest.raises(DataError, match="no such file or folder"):
        open_data(path)


def test_what_exists_is_a_path_whatever_it_is_called(tmp_path, monkeypatch):
    put(tmp_path, "night:1/owl/a.wav", "night:1/wolf/b.wav", "night:1/wolf/c.wav")
    monkeypatch.chdir(tmp_path)
    assert len(open_data("night:1")) == 3


# names of labels and of recordings


def matched(names, recordings, tmp_path):
    found = match_names(names, [tmp_path / recording for recording in recordings], tmp_path)
    return {name: path.relative_to(tmp_path).as_posix() for name, path in found.items()}


@pytest.mark.parametrize(
    ("name", "recordings", "expected"),
    [
        ("a.wav", ["a.wav", "sub/a.wav"], "a.wav"),
        ("./sub\\a.wav", ["a.wav", "sub/a.wav"], "sub/a.wav"),
        ("a.wav", ["deep/down/a.wav"], "deep/down/a.wav"),
        ("/mnt/card/train/a.wav", ["audio/train/a.wav", "audio/test/a.wav"], "audio/train/a.wav"),
        ("a", ["sub/a.flac"], "sub/a.flac"),
        ("a.mp3", ["sub/a.flac"], "sub/a.flac"),
        ("train/a.mp3", ["train/a.flac", "test/a.flac"], "train/a.flac"),
        ("x_30.000_40.000", ["x_30.000_40.000.wav", "x_30.000_40.wav"], "x_30.000_40.000.wav"),
        (unicodedata.normalize("NFC", "Käuzchen.wav"), [unicodedata.normalize("NFD", "Käuzchen.wav")], None),
        ("b.wav", ["a.wav"], "nothing"),
    ],
)
def test_a_name_means_the_recording_nearest_to_it(name, recordings, expected, tmp_path):
    found = matched([name], recordings, tmp_path)
    assert found == ({} if expected == "nothing" else {name: expected or recordings[0]})


def test_what_is_taken_by_its_own_name_is_not_taken_by_another(tmp_path):
    assert matched(["a.wav", "old/a.wav", "a.mp3"], ["a.wav"], tmp_path) == {"a.wav": "a.wav"}


def test_a_name_for_two_recordings_and_two_names_for_one_are_refused(tmp_path):
    with pytest.raises(
        DataError, match=r"'a.wav' could be any of 2 recordings: x/a.wav, y/a.wav; label it by its path"
    ):
        matched(["a.wav"], ["x/a.wav", "y/a.wav"], tmp_path)
    with pytest.raises(DataError, match=r"'p/a.wav' and 'q/a.wav' both match .*x/a.wav; use one name"):
        matched(["p/a.wav", "q/a.wav"], ["x/a.wav"], tmp_path)


@pytest.mark.parametrize(
    ("names", "recordings", "expected"),
    [
        (["AUFNAHME 02.FLAC"], ["aufnahme 02.flac"], ["aufnahme 02.flac"]),
        (["D:\\KÄUZE\\A.WAV"], ["käuze/a.flac", "eulen/a.flac"], ["käuze/a.flac"]),
        (["Nord/a.wav"], ["nord/a.wav", "sued/a.wav"], ["nord/a.wav"]),
        (["A.wav"], ["a.wav", "x/A.wav"], ["x/A.wav"]),  # an exact end comes before
        (["a.wav", "A.wav"], ["a.wav"], ["a.wav", None]),
        (["nord/a.wav", "NORD/a.wav"], ["nord/a.wav", "sued/a.wav"], ["nord/a.wav", None]),
        (["NIGHT.wav"], ["Night.wav", "night.wav"], [None]),
        (["NIGHT.wav", "Night.wav", "b.wav"], ["night.wav", "b.wav"], [None, None, "b.wav"]),
    ],
)
def test_small_and_capital_letters_are_the_same_where_that_leaves_no_doubt(names, recordings, expected, tmp_path):
    wanted = {name: path for name, path in zip(names, expected, strict=True) if path}
    assert matched(names, recordings, tmp_path) == wanted


def test_names_without_partner_do_not_make_others_ambiguous(tmp_path):
    names = ["x/a.wav", "y/a.wav", "z/a.wav"]
    assert matched(names, ["x/a.wav", "y/a.wav"], tmp_path) == {"x/a.wav": "x/a.wav", "y/a.wav": "y/a.wav"}


def test_messages_are_cut_short():
    assert first_few(["a"]) == "a"
    assert first_few("abcd", 2) == "a, b, ..."
    assert name_to_key("./a//b.wav") == "a/b.wav"


# anybody's folder


def folder(root, split=None):
    return DATASETS.create("folder").clips(root, split)


def test_some_clips_of_a_collection(examples):
    data = open_data(f"urban-sed:{examples / 'urban-sed'}")
    names = [clip.filename for clip in data.clips][1::-1]
    assert [clip.filename for clip in data.select(names).clips] == names
    assert repr(data).startswith(f"<Collection: {len(data)} clips (")
    with pytest.raises(ArgumentError, match=r"expected names of these \d+ clips, got no.wav"):
        data.select([*names, "no.wav"])


def test_sub_folders_are_classes(tmp_path):
    put(tmp_path, "train/wolf/a.wav", "train/owl/2024/b.flac", "val/owl/c.wav", "eval/wolf/d.mp3")
    data = folder(tmp_path)
    assert data.classes == ("owl", "wolf")
    assert {clip.filename: clip.split for clip in data.clips} == {
        "eval/wolf/d.mp3": "test",
        "train/owl/2024/b.flac": "train",
        "train/wolf/a.wav": "train",
        "val/owl/c.wav": "validate",
    }
    assert data.labels.presence("train/owl/2024/b.flac", "owl")
    assert data.labels.presence("train/owl/2024/b.flac", "wolf") is False
    assert data.labels.splits["val/owl/c.wav"] == "validate"


def test_recordings_outside_the_classes_are_reported(tmp_path):
    put(tmp_path, "wolf/a.wav", "owl/b.wav", "owl/c.wav", "d.wav")
    with pytest.warns(MissingDataWarning, match=r"skipped 1 of 4 recordings \(no labels\): d.wav$"):
        data = folder(tmp_path)
    assert {clip.filename for clip in data.clips} == {"wolf/a.wav", "owl/b.wav", "owl/c.wav"}


@pytest.mark.parametrize("name", ["labels.xls", "North/Tags.XLS", "what I heard.ods", "labels.numbers"])
def test_a_spreadsheet_instead_of_labels_is_refused(tmp_path, name):
    put(tmp_path, "North/a.wav", "South/b.wav")
    write(tmp_path / ".labels.xlsx", "hidden")
    write(tmp_path / "~$labels.xlsx", "open in Excel")
    write(tmp_path / "South" / "weather.xlsx", "rain")
    assert folder(tmp_path).origin == "the names of folders"
    write(tmp_path / name, "PK")
    with pytest.raises(DataError, match=rf"{name}: spreadsheets of this kind cannot be read; save it as .xlsx or CSV"):
        folder(tmp_path)
    with pytest.raises(DataError, match=r"spreadsheets of this kind cannot be read; save it as .xlsx or CSV$"):
        folder(tmp_path / name)
    write(tmp_path / "labels.csv", "filename,label\na.wav,owl\nb.wav,wolf\n")
    assert folder(tmp_path).origin == "labels.csv"


def test_a_spreadsheet_beside_label_files_is_not_in_the_way(tmp_path):
    put(tmp_path, "a.wav")
    write(tmp_path / "a.txt", "0\t1\towl\n")
    write(tmp_path / "weather.xlsx", "PK")
    assert folder(tmp_path).origin == "a file for each recording"


@pytest.mark.parametrize("recording", ["a.wav", "audio/a.wav"])
def test_recordings_without_any_labels_are_refused(tmp_path, recording):
    put(tmp_path, recording)
    with pytest.raises(DataError, match=r"audio files but no labels: expected a table \(labels.csv with columns"):
        folder(tmp_path)


def test_recordings_that_must_be_converted_are_named_as_what_they_are(tmp_path):
    put(tmp_path, "owl/a.wav", "wolf/b.wav")
    write(tmp_path / "wolf" / "c d.m4a", "")
    expected = (
        r"1 recording \(c d.m4a\) must be converted, since earmark does not read m4a: ffmpeg -i 'c d.m4a' 'c d.flac'"
    )
    with pytest.warns(MissingDataWarning, match=expected):
        assert len(folder(tmp_path)) == 2
    write(tmp_path / "labels.csv", "filename,label\na.wav,owl\nb.wav,wolf\nc d.m4a,wolf\n")
    with pytest.warns(MissingDataWarning) as found:  # and not that there is no such recording
        folder(tmp_path)
    assert len(found) == 1
    for path in (tmp_path / "owl" / "a.wav", tmp_path / "wolf" / "b.wav"):
        path.unlink()
    with pytest.raises(DataError, match=f"no audio files here or below; {expected}"):
        folder(tmp_path)


def test_a_folder_without_sound_is_refused(tmp_path):
    write(tmp_path / "labels.tsv", "a.wav\towl\n")
    with pytest.raises(DataError, match=r"no audio files here or below; expected .*\.flac"):
        folder(tmp_path)


@pytest.mark.parametrize("name", ["labels.tsv", "Tags.csv", "annotations.txt", "anything.csv"])
def test_a_table_is_found_by_its_name_or_by_being_the_only_one(tmp_path, name):
    put(tmp_path, "x/a.wav", "x/b.wav", "x/c.wav")
    gap = "," if name.endswith("csv") else "\t"
    rows = [("filename", "label"), ("a.wav", "owl"), ("b.wav", "wolf"), ("c.wav", "owl")]
    write(tmp_path / name, "".join(gap.join(row) + "\n" for row in rows))
    write(tmp_path / "README.txt", "recorded in May\n")
    data = folder(tmp_path)
    assert list(data.labels.of("b.wav")) == [Label("b.wav", None, None, "wolf")]
    assert data.clips == folder(tmp_path / name).clips
    assert data.clips[0].sources[0].path == tmp_path / "x" / "a.wav"


def test_two_tables_are_refused_but_one_can_be_named(tmp_path):
    put(tmp_path, "a.wav")
    for name in ("labels.tsv", "labels.csv"):
        write(tmp_path / name, "filename,label\na.wav,owl\n".replace(",", "\t" if name.endswith("tsv") else ","))
    with pytest.raises(DataError, match=r"2 label tables: labels.csv, labels.tsv; pass one of them instead"):
        folder(tmp_path)
    assert len(folder(tmp_path / "labels.csv")) == 1


def test_labels_and_recordings_without_partner_are_counted_and_named(tmp_path):
    put(tmp_path, "a.wav", "b.wav", "x.wav")
    write(tmp_path / "labels.tsv", "a.wav\towl\nb.wav\twolf\nc.wav\towl\nd.wav\tlynx\n")
    with pytest.warns(MissingDataWarning) as caught:
        data = folder(tmp_path)
    assert [str(warning.message).split(": ", 1)[1] for warning in caught] == [
        "skipped 2 of 4 labelled files (no recording): c.wav, d.wav",
        "skipped 1 of 3 recordings (no labels): x.wav",
    ]
    assert [clip.filename for clip in data.clips] == ["a.wav", "b.wav"]
    assert data.classes == ("lynx", "owl", "wolf")


def test_a_table_about_other_recordings_is_refused(tmp_path):
    put(tmp_path, "x.wav")
    write(tmp_path / "labels.tsv", "a.wav\towl\nb.wav\twolf\n")
    with pytest.raises(DataError, match=r"none of the 2 labelled files is below .*: a.wav, b.wav; the 1 recordings"):
        folder(tmp_path)


def test_label_files_beside_recordings(tmp_path):
    put(tmp_path, "s1/a.wav", "s2/a.wav", "s2/b.wav", "s2/c.wav")
    write(tmp_path / "s1/a.txt", "0.5\t1.5\towl\n")
    write(tmp_path / "s2/a.txt", "2\t3\twolf\n")
    write(tmp_path / "s2/b.txt", "")
    with pytest.warns(MissingDataWarning, match=r"skipped 1 of 4 recordings \(no labels\): s2/c.wav"):
        data = folder(tmp_path)
    assert list(data.labels) == [Label("s1/a.wav", 0.5, 1.5, "owl"), Label("s2/a.wav", 2.0, 3.0, "wolf")]
    assert [clip.filename for clip in data.clips] == ["s1/a.wav", "s2/a.wav", "s2/b.wav"]


def test_label_files_whose_recording_is_gone_are_reported(tmp_path):
    put(tmp_path, "a.wav", ".trash/b.txt")
    write(tmp_path / "a.txt", "0.5\t1.5\towl\n")
    write(tmp_path / "deep/gone.txt", "0.5\t1.5\twolf\n")
    write(tmp_path / "deep/notes.txt", "windy\n")
    put(tmp_path, "deep/empty.txt")
    with pytest.warns(MissingDataWarning, match=r"skipped 1 of 2 labelled files \(no recording\): deep/gone$"):
        data = folder(tmp_path)
    assert [clip.filename for clip in data.clips] == ["a.wav"]


def test_label_files_need_not_be_beside_their_recordings(tmp_path):
    put(tmp_path, "audio/night 1/a.WAV", "audio/night 2/a.WAV")
    write(tmp_path / "raven/night 1/a.Table.1.selections.txt", RAVEN)
    write(tmp_path / "raven/night 2/a.Table.1.selections.txt", RAVEN.replace("owl", "wolf"))
    data = folder(tmp_path)
    assert [(row.filename, row.label) for row in data.labels] == [
        ("audio/night 1/a.WAV", "owl"),
        ("audio/night 2/a.WAV", "wolf"),
    ]


def test_a_table_in_a_sub_folder_is_not_passed_over(tmp_path):
    put(tmp_path, "owl/a.wav", "wolf/b.wav")
    write(tmp_path / "wolf/labels.tsv", "b.wav\tlynx\n")
    with pytest.raises(
        DataError, match=r"wolf/labels.tsv: a label table in a subfolder; pass it instead of the folder"
    ):
        folder(tmp_path)


def test_a_table_without_labels_is_refused(tmp_path):
    put(tmp_path, "a.wav")
    write(tmp_path / "labels.tsv", "filename\tlabel\na.wav\t\n")
    with pytest.raises(DataError, match=r"labels.tsv: lists 1 files but no labels"):
        folder(tmp_path)


def test_the_current_folder_is_a_folder(tmp_path, monkeypatch):
    put(tmp_path, "owl/a.wav", "owl/b.wav", "wolf/c.wav")
    monkeypatch.chdir(tmp_path)
    data = open_data(".")
    assert [clip.filename for clip in data.clips] == ["owl/a.wav", "owl/b.wav", "wolf/c.wav"]


def test_two_label_files_for_one_recording_are_refused(tmp_path):
    put(tmp_path, "a.wav")
    write(tmp_path / "a.txt", "0.5\t1.5\towl\n")
    FORMATS.create("jams").write(LabelTable([("a.wav", 0.5, 1.5, "owl")]), tmp_path / "a.jams")
    with pytest.raises(DataError, match=r"a.jams and .*a.txt both label a; keep one of them"):
        folder(tmp_path)


def test_splits_from_the_column(tmp_path):
    put(tmp_path, "train/a.wav", "train/b.wav")
    write(tmp_path / "labels.csv", "filename,label,split\na.wav,owl,training\nb.wav,wolf,Eval\n")
    data = folder(tmp_path)
    assert data.labels.splits == {"a.wav": "train", "b.wav": "test"}
    assert [clip.split for clip in data.clips] == ["train", "test"]
    assert [clip.filename for clip in folder(tmp_path, "test").clips] == ["b.wav"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("split.csv", "filename,split\na.wav,dev\nx/b,test\n"), ("splits.tsv", "a.wav\tvalidation\n\nx/b.wav\ttest\n")],
)
def test_splits_from_a_file(tmp_path, name, text):
    put(tmp_path, "x/a.wav", "x/b.wav")
    write(tmp_path / "labels.tsv", "a.wav\towl\nb.wav\twolf\n")
    write(tmp_path / name, text)
    assert [clip.split for clip in folder(tmp_path).clips] == ["validate", "test"]


def test_splits_that_mean_nothing_are_refused(tmp_path):
    put(tmp_path, "test/a.wav", "more/b.wav")
    write(tmp_path / "labels.tsv", "a.wav\towl\nb.wav\twolf\n")
    with pytest.raises(DataError, match=r"expected a split for all 2 recordings, 1 without: b.wav"):
        folder(tmp_path)
    write(tmp_path / "split.csv", "a.wav,test\nb.wav,fold3\n")
    with pytest.raises(DataError, match=r"split.csv:2: unknown split 'fold3'; use train, validate or test"):
        folder(tmp_path)
    write(tmp_path / "split.csv", "a.wav,test\nb.wav,train\n")
    write(tmp_path / "splits.tsv", "a.wav\ttest\nb.wav\ttrain\n")
    with pytest.raises(DataError, match=r"2 files of splits: split.csv, splits.tsv; keep one of them"):
        folder(tmp_path)
    (tmp_path / "splits.tsv").unlink()
    write(tmp_path / "split.csv", "a.wav,test\nb.wav,3,test\n")
    with pytest.raises(DataError, match=r"split.csv:2: expected 2 columns \(filename, split\), got 3"):
        folder(tmp_path)


def test_without_splits_they_are_drawn(tmp_path):
    put(tmp_path, *(f"{kind}/{i}.wav" for kind in ("owl", "wolf") for i in range(20)))
    data = folder(tmp_path)
    assert not data.has_own_splits
    assert set(data.splits) == {"train", "validate", "test"}
    assert all({row.label for row in data.split(split).labels} == {"owl", "wolf"} for split in data.splits)


def test_drawn_splits_do_not_depend_on_how_a_table_spells_names(tmp_path):
    names = [f"hügel/{i}é.wav" for i in range(40)]
    put(tmp_path, *(unicodedata.normalize("NFD", name) for name in names))
    results = []
    for spelled in ("{0}.wav", "./hügel/{0}.wav", "hu\u0308gel/{0}.wav", "hügel\\{0}.wav", "C:/old/{0}.mp3"):
        lines = [f"{spelled.format(name[6:-4])},owl\n" for name in names]
        write(tmp_path / "labels.csv", "filename,label\n" + "".join(lines))
        data = folder(tmp_path)
        results.append({Path(clip.filename).stem: clip.split for clip in data.clips})
    assert all(result == results[0] for result in results)
    assert set(results[0].values()) == {"train", "validate", "test"}


def test_names_that_are_no_text_have_a_split_too():
    names = [f"owl{i}\udcff.wav" for i in range(40)]
    table = LabelTable([(name, None, None, "owl") for name in names])
    assert set(draw_splits(table, {name: (name, Path(name)) for name in names}).values()) > {"train"}


def test_what_nobody_knows_stays_unknown(tmp_path):
    put(tmp_path, "a.wav", "b.wav")
    write(tmp_path / "labels.csv", "filename,label,present\na.wav,owl,1\nb.wav,owl,?\n")
    data = folder(tmp_path)
    assert data.labels.presence("b.wav", "owl") is None


# checks of labels


def labelled(*rows):
    labels = LabelTable(rows)
    return Collection(tuple(Clip(name, ()) for name in labels.filenames), labels)


def test_class_names_that_may_be_mistakes_are_noted():
    odd = ["beep", "Beep", "Fire engine, fire truck", "Background_noise", "N/A"]
    assert check_labels(labelled(*(("a.wav", None, None, name) for name in odd))) == [
        "classes differ only in case or spaces: 'Beep', 'beep'; use one name if they are one",
        "class names 'Background_noise', 'N/A' found; to mark a clip as empty, leave its label blank",
    ]
    assert check_labels(labelled(("a.wav", None, None, "none"))) == [
        "class name 'none' found; to mark a clip as empty, leave its label blank"
    ]


# what synth made


def soundscapes(examples, tmp_path):
    """A copy of the example to spoil."""
    return shutil.copytree(examples / "soundscapes", tmp_path / "made")


def test_a_soundscape_without_events_is_known_to_have_none(examples):
    data = DATASETS.create("soundscapes").clips(examples / "soundscapes", "test")
    assert data.labels.of("audio/test/test0001.flac") == ()
    assert data.labels.complete


def test_soundscapes_that_the_table_does_not_list_are_an_error(examples, tmp_path):
    root = soundscapes(examples, tmp_path)
    put(root, "audio/test/new.flac")
    with pytest.raises(DataError, match=r"labels.tsv: no row for 1 of 11 soundscapes in audio: audio/test/new.flac"):
        DATASETS.create("soundscapes").clips(root)


def test_soundscapes_that_vanished_are_an_error(examples, tmp_path):
    root = soundscapes(examples, tmp_path)
    (root / "audio/train/train0002.flac").unlink()
    with pytest.raises(DataError, match=r"labels.tsv: missing 1 of 10 files: audio/train/train0002.flac"):
        DATASETS.create("soundscapes").clips(root)
    (root / "labels.tsv").unlink()
    with pytest.raises(DataError, match=r"labels.tsv: no such file; `earmark synth` writes it last: run it again"):
        DATASETS.create("soundscapes").clips(root)


def test_what_synth_makes_is_read_by_its_table_and_by_its_specifications(tmp_path):
    synthesise("urban-sed", tmp_path / "made", clips=5, seed=1, rate=16000, workers=1)
    by_table, by_jams = open_data(tmp_path / "made"), open_data(f"urban-sed:{tmp_path / 'made'}")
    assert len(by_table) == 5
    assert {clip.filename for clip in by_table.clips} == {clip.filename for clip in by_jams.clips}
    for clip in by_table.clips:
        ours, theirs = (sorted(data.labels.of(clip.filename)) for data in (by_table, by_jams))
        assert [row.label for row in ours] == [row.label for row in theirs]
        assert [row.onset for row in ours] == pytest.approx([row.onset for row in theirs])
        assert [row.offset for row in ours] == pytest.approx([row.offset for row in theirs])


# URBAN-SED


def urban_sed(root, split="train", names=("a", "b")):
    put(root, *(f"audio/{split}/{name}.wav" for name in names))
    for name in names:
        write(root / "annotations" / split / f"{name}.txt", "0.5\t1.5\tsiren\n")
    return root


def test_urban_sed_has_clips_named_by_path_and_strong_labels(examples):
    data = open_data(f"urban-sed:{examples / 'urban-sed'}")
    assert [len(data.split(split)) for split in UrbanSED.splits] == [5, 2, 2]
    assert all(row.has_times for row in data.labels)
    assert data.clips[0].filename == "audio/train/soundscape_train_uniform0.wav"


def test_urban_sed_may_be_there_in_part_and_as_flac(tmp_path):
    urban_sed(tmp_path, "test")
    (tmp_path / "audio/test/a.wav").rename(tmp_path / "audio/test/a.flac")
    data = UrbanSED().clips(tmp_path)
    assert data.splits == ("test",)
    assert data.clips[0].filename == "audio/test/a.flac"
    with pytest.raises(DataError, match=r"audio/train: no such folder; URBAN-SED has its audio there"):
        UrbanSED().clips(tmp_path, "train")


def test_urban_sed_wants_sound_and_annotation_in_pairs(tmp_path):
    urban_sed(tmp_path)
    (tmp_path / "annotations/train/a.txt").unlink()
    with pytest.raises(DataError, match=r"1 audio files of train without annotation in annotations/train: a$"):
        UrbanSED().clips(tmp_path)
    urban_sed(tmp_path)
    (tmp_path / "audio/train/b.wav").unlink()
    with pytest.raises(DataError, match=r"1 annotations of train without audio in audio/train: b$"):
        UrbanSED().clips(tmp_path)
    put(tmp_path, "audio/train/b.wav", "audio/train/b.flac")
    with pytest.raises(DataError, match=r"b.flac and .*b.wav have the same name; keep one of them"):
        UrbanSED().clips(tmp_path)


def test_urban_sed_without_annotations_or_with_unknown_labels_is_refused(tmp_path):
    put(tmp_path, "audio/train/a.wav")
    with pytest.raises(DataError, match=r"annotations/train: no such folder; URBAN-SED has its annotations there"):
        UrbanSED().clips(tmp_path)
    write(tmp_path / "annotations/train/a.txt", "0\t1\tsirene\n")
    with pytest.raises(DataError, match=r"a.txt: label='sirene' is not known; did you mean 'siren'\?"):
        UrbanSED().clips(tmp_path)
    with pytest.raises(DataError, match=r"no audio files in audio/train, audio/validate or audio/test"):
        UrbanSED().clips(tmp_path / "audio")


def test_urban_sed_s_two_kinds_of_annotation_agree(shared):
    for release in ("original", "original_v2"):
        for split in ("train", "validate", "test"):
            folder = shared / "urbansed" / release / "annotations" / split
            for path in sorted(folder.glob("*.txt")):
                text = FORMATS.create("audacity").read(path)
                jams = FORMATS.create("jams").read(path.with_suffix(".jams"))
                assert len(text) == len(jams) > 0
                for a, b in zip(sorted(text), sorted(jams), strict=True):
                    assert a.label == b.label
                    assert (a.onset, a.offset) == pytest.approx((b.onset, b.offset), abs=1e-6)


def test_urban_sed_s_own_annotations_are_read(shared):
    for split in UrbanSED.splits:
        found = read_annotations(shared / "urbansed" / "original", split)
        assert len(found) == 8
        assert all(1 <= len(rows) <= 9 for rows in found.values())
    data = open_data(f"urban-sed:{shared / 'urbansed' / 'original_v2'}")
    assert len(data) == 1
    assert len(data.labels) == 6


# DCASE 2017


def test_dcase_drops_times_that_say_nothing(examples):
    data = DCASE2017().clips(examples / "dcase2017")
    assert not any(row.has_times for row in data.split("train").labels)
    assert all(row.has_times for row in data.split("test").labels)
    assert [row.has_times for row in data.split("validate").labels].count(False) == 1
    assert data.clips[0].sources[0].path.name == f"Y{data.clips[0].filename}"


def dcase(root, rows, sounds):
    for kind, own in rows.items():
        write(root / f"groundtruth_{kind}_set.csv", "".join("\t".join(row) + "\n" for row in own))
    put(root, *sounds)
    return root


def test_dcase_reports_clips_whose_videos_vanished(tmp_path):
    names = [f"{i:011d}_0.000_10.000.wav" for i in range(6)]
    rows = {
        "weak_label_training": [(name, "0.000", "10.000", "Air horn, truck horn") for name in names[:4]],
        "strong_label_testing": [(names[4], "0.5", "2.25", "Car")],
        "strong_label_evaluation": [(names[5], "0", "0", "Bus")],
    }
    root = dcase(
        tmp_path, rows, [f"any/Y{names[0]}", f"where/{names[1]}", *(f"Y{name}" for name in names[4:]), "else.wav"]
    )
    with pytest.warns(MissingDataWarning) as caught:
        data = DCASE2017().clips(root)
    assert [str(warning.message).split(": ", 1)[1] for warning in caught] == [
        f"skipped 2 of 4 clips of train (no audio file): {names[2]}, {names[3]}",
        "skipped 1 audio file (in no label file): else",
    ]
    assert [(clip.filename, clip.split) for clip in data.clips] == [
        (names[0], "train"),
        (names[1], "train"),
        (names[4], "validate"),
        (names[5], "test"),
    ]
    assert list(data.labels) == [
        Label(names[0], None, None, "Air horn, truck horn"),
        Label(names[1], None, None, "Air horn, truck horn"),
        Label(names[4], 0.5, 2.25, "Car"),
        Label(names[5], None, None, "Bus"),
    ]
    assert data.labels.splits[names[4]] == "validate"


def test_dcase_without_sound_or_labels_is_refused(tmp_path):
    rows = {"weak_label_training": [("00000000000_0.000_10.000.wav", "0.000", "10.000", "Car")]}
    dcase(tmp_path, rows, [])
    with (
        pytest.warns(MissingDataWarning, match="1 of 1 clips of train"),
        pytest.raises(DataError, match=r"no audio file of any labelled clip; expected YID_START_END.wav"),
    ):
        DCASE2017().clips(tmp_path, "train")
    with pytest.raises(DataError, match=r"no label file groundtruth_strong_label_testing_set.csv here or below"):
        DCASE2017().clips(tmp_path, "validate")


def test_dcase_s_own_label_files_have_the_paper_s_numbers(shared, monkeypatch):
    root = shared / "dcase2017_task4"
    names = {line.split("\t")[0] for path in root.glob("ground*") for line in path.read_text().splitlines()}
    sounds = {f"Y{name.removesuffix('.wav')}": root / f"Y{name}" for name in names}
    monkeypatch.setattr("earmark.datasets.dcase2017.sounds_by_stem", lambda folder: sounds)
    data = DCASE2017().clips(root)
    for split, clips, rows, without_times in (
        ("train", 51172, 56131, 56131),
        ("validate", 488, 688, 36),
        ("test", 1103, 1706, 150),
    ):
        part = data.split(split)
        assert (len(part), len(part.labels)) == (clips, rows)
        assert sum(not row.has_times for row in part.labels) == without_times
        assert {row.label for row in part.labels} == set(DCASE2017.classes)
        assert all(row.offset is None or 0 < row.offset <= 10 for row in part.labels)
