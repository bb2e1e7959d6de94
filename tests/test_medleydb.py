"""MedleyDB: the authors' ground truth and splits to the row, mixes that sum to the mix, errors that say where."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
import yaml
from reference.datasets import write_example

from earmark import audio
from earmark.datasets.base import DATASETS
from earmark.datasets.matching import MissingDataWarning
from earmark.datasets.medleydb import (
    LEFT_OUT,
    MedleyDB,
    Stem,
    Track,
    activations_to_events,
    mixing_coefficients,
    read_activations,
    read_track,
)
from earmark.errors import ArgumentError, DataError


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("medleydb") / "example"
    write_example("medleydb", root)
    return root


@pytest.fixture
def example(written, tmp_path):
    """A copy to break."""
    return shutil.copytree(written, tmp_path / "MedleyDB")


@pytest.fixture(scope="module")
def medleydb(shared):
    return shared / "medleydb"


@pytest.fixture(scope="module")
def tracks(medleydb):
    """The 122 songs of MedleyDB 1."""
    names = json.loads((medleydb / "medley_artist_index.json").read_text())
    return [read_track(medleydb / "Metadata" / f"{name}_METADATA.yaml") for name in names]


def song(*instruments):
    stems = tuple(Stem(i, f"{i}.wav", (name,)) for i, name in enumerate(instruments, 1))
    return Track("Song", "Artist", "mix.wav", stems)


def metadata(root, name="Ada_Anthem"):
    return root / "Audio" / name / f"{name}_METADATA.yaml"


def activations(root, name="Ada_Anthem"):
    return root / "Annotations" / "Instrument_Activations" / "ACTIVATION_CONF" / f"{name}_ACTIVATION_CONF.lab"


def change_line(path, number, text):
    lines = path.read_text().splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n")


def add_authors_split(root, **mixes):
    for split in ("train", "validate", "test"):
        (root / f"index_{split}03.json").write_text(json.dumps({"id": mixes.get(split, [])}))


def test_a_mix_leaves_out_all_stems_of_an_instrument():
    mixes = song("piano", "female singer", "piano", "synthesizer").mixes()
    assert {name: [stem.number for stem in stems] for name, stems in mixes.items()} == {
        "Song---": [1, 2, 3, 4],
        "Song---female singer": [1, 3, 4],
        "Song---piano": [2, 4],
    }


def test_no_mix_is_made_of_nothing():
    assert list(song("female singer", "female singer").mixes()) == ["Song---"]


def test_the_songs_make_the_authors_531_mixes_and_one_that_they_lost(medleydb, tracks):
    ours = {name for track in tracks for name in track.mixes()}
    theirs = set()
    for split in ("train", "validate", "test"):
        theirs |= set(json.loads((medleydb / "splits" / f"index_{split}00.json").read_text())["id"])
    assert len(theirs) == 531
    assert len(ours) == 532
    assert ours - theirs == {"AmarLal_SpringDay1---"}
    assert not theirs - ours
    instruments = [{i for stem in track.stems for i in stem.instruments} for track in tracks]
    by_the_text = sum(len(own) for own in instruments if len(own) > 1)  # a song without its only instrument is silent
    assert (by_the_text, by_the_text + len(tracks)) == (702, 824)


def test_instruments_left_out_are_the_most_frequent_but_synthesizer_and_effects(tracks):
    songs = Counter(name for track in tracks for name in {i for stem in track.stems for i in stem.instruments})
    least = min(songs[name] for name in LEFT_OUT)
    more = {name for name, n in songs.items() if n > least and name not in LEFT_OUT}
    assert more == {"synthesizer", "fx/processed sound", "drum machine", "tabla"}
    assert set(MedleyDB.classes) < set(LEFT_OUT)


def test_metadata_of_medleydb_2_have_stems_of_several_instruments(medleydb):
    track = read_track(medleydb / "Metadata" / "AHa_TakeOnMe_METADATA.yaml")
    assert track.stems[1].instruments == ("male singer", "vocalists")


def test_events_are_the_authors_row_for_row(medleydb, tracks):
    """All rows of their ground truth for the 16 songs whose confidences are here, and no row more."""
    theirs = Counter()
    for line in (medleydb / "gt_all.csv").read_text().splitlines():
        name, onset, offset, label = line.split("\t")
        theirs[name, round(float(onset), 4), round(float(offset), 4), label] += 1
    ours, songs = Counter(), set()
    for track in tracks:
        path = medleydb / "Activation_Confidence" / f"{track.name}_ACTIVATION_CONF.lab"
        if path.exists():
            songs.add(track.name)
            events = MedleyDB()._events(track, {path.name: path})
            ours.update(
                (mix, *e) for mix, stems in track.mixes().items() for stem in stems for e in events[stem.number]
            )
    theirs = Counter({row: n for row, n in theirs.items() if row[0].partition("---")[0] in songs})
    assert len(songs) == 16
    assert theirs.total() == 1957
    assert (ours & theirs).total() == 1957
    assert ours.total() == 1957


def test_the_authors_splits_are_drawn_by_our_rule(medleydb):
    """A fifth of the artists for testing, and a fifth of the other mixes for validation."""
    artists = json.loads((medleydb / "medley_artist_index.json").read_text())
    for fold in range(10):
        mixes = {
            split: json.loads((medleydb / "splits" / f"index_{split}{fold:02d}.json").read_text())["id"]
            for split in ("train", "validate", "test")
        }
        by = {split: {artists[name.partition("---")[0]] for name in names} for split, names in mixes.items()}
        assert not by["test"] & (by["train"] | by["validate"])
        assert len(by["test"]) == len(set(artists.values())) / 5
        assert len(mixes["validate"]) == -(-(len(mixes["train"]) + len(mixes["validate"])) // 5)


def test_the_authors_files_side_by_side_give_the_authors_data(medleydb, tracks, tmp_path):
    """Annotations, artist index and splits as published, with 16 songs' sound: rows and splits are theirs."""
    for path in medleydb.rglob("*.*"):
        (tmp_path / path.name).symlink_to(path)
    here = [track for track in tracks if (tmp_path / f"{track.name}_ACTIVATION_CONF.lab").exists()]
    for name in (name for track in here for name in (track.mix, *(stem.filename for stem in track.stems))):
        (tmp_path / name).touch()
    coefficients = {track.name: {stem.number: 1.0 for stem in track.stems} for track in here}
    (tmp_path / "mixing_coefficients.yaml").write_text(yaml.safe_dump(coefficients))
    with pytest.warns(MissingDataWarning, match=r"106 of 122 songs \(no audio or no metadata\)"):
        collection = MedleyDB(fold=7).clips(tmp_path)
    assert len(collection) == sum(len(track.mixes()) for track in here)
    assert len(collection.labels) == 1957
    for split in collection.splits:
        theirs = set(json.loads((medleydb / "splits" / f"index_{split}07.json").read_text())["id"])
        assert {clip.filename for clip in collection.split(split).clips} <= theirs


def test_an_event_lasts_until_the_first_frame_below_the_threshold():
    times = np.arange(8) / 10
    assert activations_to_events(times, np.array([0.5, 0.4999, 0, 0.6, 0.7, 0.1, 0, 0])) == [(0.0, 0.1), (0.3, 0.5)]
    assert activations_to_events(times, np.zeros(8)) == []
    assert activations_to_events(times, np.ones(8)) == [(0.0, 0.7)]


def test_the_example_reads_back(written):
    collection = MedleyDB().clips(written)
    assert collection.classes == MedleyDB.classes
    assert set(collection.splits) == {"train", "validate", "test"}
    assert {row.label for row in collection.labels} == set(MedleyDB.classes)
    assert all(row.has_times for row in collection.labels)
    names = {clip.filename for clip in collection.clips}
    assert {"Ada_Anthem---", "Ada_Anthem---drum set", "Ada_Ballad---vocalists", "Ed_Fields---"} <= names
    assert "Ada_Anthem---synthesizer" not in names
    assert "Ed_Fields---female singer" not in names
    for split in collection.splits:
        assert MedleyDB().clips(written, split).clips == collection.split(split).clips
        assert MedleyDB().clips(written, split).labels == collection.split(split).labels


def test_a_mix_has_no_label_of_what_is_left_out(written):
    collection = MedleyDB().clips(written)
    for clip in collection.clips:
        song, _, instrument = clip.filename.partition("---")
        of = collection.labels.of
        assert [row._replace(filename="") for row in of(clip.filename)] == [
            row._replace(filename="") for row in of(f"{song}---") if row.label != instrument
        ]


def test_sources_of_the_full_mix_sum_to_the_mix(written):
    for clip in MedleyDB().clips(written).clips:
        if clip.filename.endswith("---"):
            name = clip.filename.removesuffix("---")
            total = sum(source.gain * audio.read(source.path) for source in clip.sources)
            mix = audio.read(written / "Audio" / name / f"{name}_MIX.wav")
            np.testing.assert_allclose(total, mix, atol=1e-3)


def test_the_example_sounds_where_its_labels_say(written):
    collection = MedleyDB().clips(written)
    (clip,) = (clip for clip in collection.clips if clip.filename == "Bo_Crossroads---acoustic guitar")
    (row,) = collection.labels.of(clip.filename)
    (source,) = clip.sources
    samples, rate = audio.read(source.path), audio.info(source.path).rate
    loud = np.flatnonzero(np.abs(samples) > 1e-3) / rate
    assert row.onset - 1e-4 < loud[0] < row.onset + 0.05
    assert row.offset - 0.1 < loud[-1] <= row.offset + 0.05


def test_coefficients_are_estimated_where_nobody_gives_them(example):
    known = yaml.safe_load((example / "mixing_coefficients.yaml").read_text())
    (example / "mixing_coefficients.yaml").unlink()
    for clip in MedleyDB().clips(example).clips:
        name, _, _ = clip.filename.partition("---")
        for source in clip.sources:
            number = int(source.path.stem[-2:])
            assert source.gain == pytest.approx(known[name][number], abs=0.01)


@pytest.fixture
def stems(tmp_path, rng):
    """Half a minute: noise, a tone, silence, and noise that no mix has."""
    rate, n = 8000, 8000 * 30
    sounds = [0.2 * rng.standard_normal(n), 0.3 * np.sin(np.arange(n)), np.zeros(n), 0.2 * rng.standard_normal(n)]
    for i, sound in enumerate(sounds):
        audio.write(tmp_path / f"{i}.wav", sound.astype(np.float32), rate)
    mix = 0.7 * sounds[0] + 0.25 * sounds[1] - 0.3 * sounds[3]
    audio.write(tmp_path / "mix.wav", mix.astype(np.float32), rate)
    return [tmp_path / f"{i}.wav" for i in range(len(sounds))]


@pytest.mark.parametrize("seconds", [60.0, 10.0])
def test_coefficients_are_least_squares_without_negative_ones(stems, seconds):
    """The fourth stem would be best at -0.3; the silent one could be anything and gets 1."""
    gains = mixing_coefficients(stems[0].parent / "mix.wav", stems, seconds=seconds)
    assert gains == pytest.approx([0.7, 0.25, 1, 0], abs=0.01)


def test_coefficients_of_silence_are_one(stems):
    assert mixing_coefficients(stems[2], [stems[2], stems[2]]) == [1.0, 1.0]


def test_drawn_splits_share_no_artist_and_differ_by_fold(written):
    tests = []
    for fold in range(10):
        collection = DATASETS.create("medleydb", fold=fold).clips(written)
        by = {s: {c.filename.partition("_")[0] for c in collection.split(s).clips} for s in collection.splits}
        assert not by["test"] & (by["train"] | by["validate"])
        assert len(by["test"]) == 2  # a fifth of six, rounded up
        n = {split: len(collection.split(split)) for split in collection.splits}
        assert n["validate"] == -(-(n["train"] + n["validate"]) // 5)
        tests.append(frozenset(by["test"]))
    assert len(set(tests)) > 3


def test_the_authors_splits_are_used_where_they_are(example):
    add_authors_split(
        example, train=["Ada_Anthem---", "Gone_Song---"], validate=["Ada_Anthem---drum set"], test=["Bo_Crossroads---"]
    )
    collection = MedleyDB(fold=3).clips(example)
    assert {clip.filename: clip.split for clip in collection.clips} == {
        "Ada_Anthem---": "train",
        "Ada_Anthem---drum set": "validate",
        "Bo_Crossroads---": "test",
    }
    assert len(MedleyDB(fold=0).clips(example)) > 3


def test_the_artist_index_says_which_songs_and_by_whom(example):
    artists = dict.fromkeys(("Ada_Anthem", "Bo_Crossroads"), "One") | {"Cy_Drive": "Two", "Gone_Song": "Three"}
    (example / "medley_artist_index.json").write_text(json.dumps(artists))
    with pytest.warns(MissingDataWarning, match=r"skipped 1 of 4 songs \(no audio or no metadata\): Gone_Song"):
        collection = MedleyDB().clips(example)
    sides = {(clip.split == "test", artists[clip.filename.partition("---")[0]]) for clip in collection.clips}
    assert len(sides) == 2
    assert {artist for _, artist in sides} == {"One", "Two"}


def test_songs_without_sound_or_metadata_are_counted(example):
    metadata(example, "Cy_Drive").unlink()
    shutil.rmtree(example / "Audio" / "Di_Evening" / "Di_Evening_STEMS")
    with pytest.warns(MissingDataWarning, match=r"skipped 2 of 7 songs \(no audio or no metadata\): Cy_Drive, Di"):
        collection = MedleyDB().clips(example)
    assert not {clip.filename for clip in collection.clips if clip.filename.startswith(("Cy_Drive", "Di_Evening"))}


def test_annotations_may_lie_in_the_folders_of_the_repository(example):
    expected = MedleyDB().clips(example).labels
    for path in [*example.rglob("*_METADATA.yaml"), *example.rglob("*_ACTIVATION_CONF.lab")]:
        folder = example / ("Metadata" if path.suffix == ".yaml" else "Activation_Confidence")
        folder.mkdir(exist_ok=True)
        path.rename(folder / path.name)
    assert MedleyDB().clips(example).labels == expected


def test_of_two_files_with_one_name_the_nearer_counts(example):
    (example / "Metadata").mkdir()
    text = metadata(example).read_text().replace("male singer", "female singer")
    (example / "Metadata" / metadata(example).name).write_text(text)
    (row,) = (row for row in MedleyDB().clips(example).labels.of("Ada_Anthem---drum set") if "singer" in row.label)
    assert row.label == "female singer"


def test_stems_without_confidences_have_no_events(example):
    path = activations(example, "Bo_Crossroads")
    lines = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    labels = MedleyDB().clips(example).labels
    assert {row.label for row in labels.of("Bo_Crossroads---")} == {"acoustic guitar"}
    assert labels.of("Bo_Crossroads---acoustic guitar") == ()


@pytest.mark.parametrize("fold", [-1, 10, 1.5, "a"])
def test_a_fold_is_one_of_ten(fold):
    with pytest.raises(ArgumentError, match=r"fold: expected an integer from 0 to 9, got"):
        MedleyDB(fold=fold)


def test_a_split_that_is_none_is_refused(written):
    with pytest.raises(ArgumentError, match=r"split='tset' is not known; did you mean 'test'\?"):
        MedleyDB().clips(written, "tset")


def test_a_folder_without_songs_says_what_is_missing(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such folder"):
        MedleyDB().clips(tmp_path / "nowhere")
    (tmp_path / "A_B_METADATA.yaml").touch()
    with pytest.raises(DataError, match=r"no song with both SONG_METADATA\.yaml and SONG_STEM_01\.wav among 1 with"):
        MedleyDB().clips(tmp_path)


def test_a_missing_stem_is_named(example):
    (example / "Audio" / "Cy_Drive" / "Cy_Drive_STEMS" / "Cy_Drive_STEM_02.wav").unlink()
    with pytest.raises(DataError, match=r"Cy_Drive: missing 1 audio file: Cy_Drive_STEM_02\.wav"):
        MedleyDB().clips(example)


def test_missing_confidences_are_named(example):
    activations(example).unlink()
    with pytest.raises(DataError, match=r"Ada_Anthem: Ada_Anthem_ACTIVATION_CONF\.lab is missing"):
        MedleyDB().clips(example)


def test_one_artist_cannot_be_split(example):
    for path in (example / "Audio").iterdir():
        if not path.name.startswith("Ada"):
            shutil.rmtree(path)
    with pytest.raises(DataError, match=r"all songs are by 'Ada'; a split by artist needs at least two"):
        MedleyDB().clips(example)


def test_splits_of_other_songs_are_refused(example):
    add_authors_split(example, train=["Gone_Song---"])
    with pytest.raises(DataError, match=r"no mix of these songs is in train or validate or test"):
        MedleyDB(fold=3).clips(example)
    with pytest.raises(DataError, match=r"no mix of these songs is in test"):
        MedleyDB(fold=3).clips(example, "test")


def test_a_split_file_too_few_or_wrong_is_refused(example):
    add_authors_split(example, train=["Ada_Anthem---"], test=["Ada_Anthem---"])
    with pytest.raises(DataError, match=r"index_test03\.json: 'Ada_Anthem---' is also in split 'train'"):
        MedleyDB(fold=3).clips(example)
    (example / "index_test03.json").write_text('{"id": [1]}')
    with pytest.raises(DataError, match=r"index_test03\.json: id: \[0\]: expected text, got 1"):
        MedleyDB(fold=3).clips(example)
    (example / "index_test03.json").write_text('{\n"id": [}')
    with pytest.raises(DataError, match=r"index_test03\.json: not valid JSON: .* at line 2"):
        MedleyDB(fold=3).clips(example)
    (example / "index_test03.json").unlink()
    with pytest.raises(DataError, match=r"split 3 is incomplete: index_test03\.json is missing"):
        MedleyDB(fold=3).clips(example)


def test_a_wrong_artist_index_is_refused(example):
    (example / "medley_artist_index.json").write_text('["Ada"]')
    with pytest.raises(DataError, match=r"medley_artist_index\.json: expected a table, got"):
        MedleyDB().clips(example)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"expected a coefficient of each stem of Ada_Anthem, got {}; without this file they are"),
        ("Ada_Anthem: {1: 0.5}", r"expected a coefficient of each stem of Ada_Anthem, got {1: 0.5}"),
        ("Ada_Anthem: {1: -1.0}", r"Ada_Anthem\[1\]: expected a number of at least 0, got -1.0"),
        ("Ada_Anthem: {1: .nan}", r"Ada_Anthem\[1\]: expected a finite number of at least 0, got nan"),
        ("a: 1\nb: ]\nc: 1", r"mixing_coefficients\.yaml:2: not YAML"),
    ],
)
def test_wrong_coefficients_are_refused(example, text, message):
    (example / "mixing_coefficients.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        MedleyDB().clips(example)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: a\nstems: ]\nartist: b", r"METADATA\.yaml:2: not YAML"),
        ("just words", r"METADATA\.yaml: expected a mapping 'stems'"),
        ("stems: {}", r"METADATA\.yaml: expected a mapping 'stems'"),
        ("stems: {A: {}}", r"expected stems named S01, S02, \.\.\., got 'A'"),
        ("stems: {S01: {filename: a.wav}}", r"stem S01 needs 'filename' and 'instrument', got 'a\.wav' and None"),
        ("stems: {S01: 5}", r"stem S01 needs 'filename' and 'instrument', got None and None"),
        ("!!python/object/apply:os.getcwd []", r"METADATA\.yaml:1: not YAML: could not determine a constructor"),
    ],
)
def test_broken_metadata_say_where(example, text, message):
    metadata(example).write_text(text)
    with pytest.raises(DataError, match=message):
        MedleyDB().clips(example)


@pytest.mark.parametrize(
    ("number", "line", "message"),
    [
        (1, "S01,S02", r"\.lab:1: expected columns time,S01,S02,\.\.\., got 'S01,S02'"),
        (1, "time,piano", r"\.lab:1: expected columns time,S01,S02,\.\.\., got 'time,piano'"),
        (4, "0.0929,0.1", r"\.lab:4: expected 5 columns, got 2: '0\.0929,0\.1'"),
        (4, "0.0929,0,0,x,0", r"\.lab:4: expected numbers, got '0\.0929,0,0,x,0'"),
        (4, "0.0929,0,0,0,1.5", r"\.lab:4: confidences: expected numbers in \[0, 1\], got '0\.0929,0,0,0,1\.5'"),
        (4, "0.0929,0,0,0,nan", r"\.lab:4: confidences: expected numbers in"),
        (4, "0.0100,0,0,0,0", r"\.lab:4: times must increase, got '0\.0100,0,0,0,0'"),
    ],
)
def test_broken_confidences_say_where(example, number, line, message):
    change_line(activations(example), number, line)
    with pytest.raises(DataError, match=message):
        read_activations(activations(example))


def test_confidences_without_frames_are_refused(tmp_path):
    path = tmp_path / "a_ACTIVATION_CONF.lab"
    for text, message in (("", r":1: expected columns"), ("time,S01\n\n", r": no frames after the header")):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_activations(path)
    path.write_bytes(b"time,\xff\n")
    with pytest.raises(DataError, match=r"expected text in UTF-8"):
        read_activations(path)
