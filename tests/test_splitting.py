"""Splits and folds: stratified by class, grouped by recording, the same on every machine."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from earmark.annotations import LabelTable
from earmark.datasets.base import Clip, Collection, Source
from earmark.datasets.checks import check_validation, refuse_without_negatives
from earmark.datasets.splitting import FEW, draw_splits, hold_out_clips, piece_of, stratified_folds
from earmark.errors import ArgumentError, DataError
from earmark.training import Run
from earmark.training.run import useless_warnings


def table(classes_of):
    rows = [(name, None, None, label) for name, labels in classes_of.items() for label in labels]
    return LabelTable(rows, filenames=classes_of)


def drawn(classes_of, paths=None):
    paths = paths or {}
    recordings = {name: (name, paths.get(name, Path("nowhere") / name)) for name in classes_of}
    return draw_splits(table(classes_of), recordings)


def collection(classes_of, folder="nowhere"):
    return Collection(tuple(Clip(name, (Source(Path(folder) / name),)) for name in classes_of), table(classes_of))


def classes_in(classes_of, splits, split):
    return {label for name, labels in classes_of.items() if splits[name] == split for label in labels}


def field_data(n=200, seed=0):
    """Recordings of six classes, some frequent, some rare; a third is empty."""
    rng = random.Random(seed)
    names = ["crow", "dog", "frog", "owl", "rail", "siren"]
    weights = [0.3, 0.2, 0.1, 0.05, 0.03, 0.02]
    return {
        f"{rng.randrange(16**8):08x}.wav": [label for label, w in zip(names, weights, strict=True) if rng.random() < w]
        for _ in range(n)
    }


@pytest.mark.parametrize("seed", range(10))
def test_every_class_with_four_clips_is_in_every_split(seed):
    data = field_data(seed=seed)
    splits = drawn(data)
    often = [sum(label in labels for labels in data.values()) for label in table(data).classes]
    for label, n in zip(table(data).classes, often, strict=True):
        wanted = ["train", "validate", "test"][: 1 + (n >= 2) + (n >= 4)]
        for split in wanted:
            assert label in classes_in(data, splits, split), (label, n, split)
    sizes = [list(splits.values()).count(split) for split in ("train", "validate", "test")]
    assert sizes == pytest.approx([160, 20, 20], abs=8)


def test_splits_do_not_depend_on_the_order_of_names():
    data = field_data()
    names = list(data)
    random.Random(1).shuffle(names)
    assert drawn({name: data[name] for name in names}) == drawn(data)


def test_few_clips_are_all_for_training():
    data = dict(list(field_data().items())[: FEW - 1])
    assert set(drawn(data).values()) == {"train"}


@pytest.mark.parametrize(
    "piece",
    [
        "x{r}_{p:04d}.wav",
        "site {r}/{p:03d}.wav",
        "x{r}_part{p}.wav",
        "x{r}_{p}.000_{q}.000.wav",
        "2026051{r}_043000_{p}.wav",
        "x{r} ({p}).wav",
    ],
)
def test_pieces_of_a_recording_are_in_one_split(piece):
    rng = random.Random(0)
    data, recording = {}, {}
    for r in range(9):
        for p in range(10):
            name = piece.format(r=r, p=p, q=p + 1)
            data[name] = ["dog"] * (rng.random() < 0.5)
            recording[name] = r
    splits = drawn(data)
    assert set(splits.values()) == {"train", "validate", "test"}
    assert all(len({splits[name] for name in data if recording[name] == r}) == 1 for r in range(9))


@pytest.mark.parametrize("name", ["rec_{:04d}.wav", "{:04d}.wav", "20260512_0430{:02d}.WAV", "dogs/{:03d}.wav"])
def test_a_counter_over_all_recordings_is_not_taken_for_pieces(name):
    data = {name.format(i % 60): ["dog"] * (i % 2) for i in range(60)}
    splits = drawn(data)
    assert [list(splits.values()).count(split) for split in ("train", "validate", "test")] == [48, 6, 6]


def test_classes_as_names_of_folders_are_not_taken_for_recordings():
    data = {f"{label}/{i:03d}.wav": [label] for label in ("owl", "wolf") for i in range(30)}
    splits = drawn(data)
    assert classes_in(data, splits, "validate") == classes_in(data, splits, "test") == {"owl", "wolf"}


def test_many_folders_are_places_that_do_not_straddle():
    data = {f"place{f}/{'abcde'[i]}.wav": ["dog"] * (i % 2) for f in range(12) for i in range(5)}
    splits = drawn(data)
    assert all(len({splits[name] for name in data if name.startswith(f"place{f}/")}) == 1 for f in range(12))
    assert set(splits.values()) == {"train", "validate", "test"}


def test_copies_of_a_recording_are_in_one_split(tmp_path):
    data, paths = {}, {}
    for i in range(60):
        for copy in "ab":
            name = f"{i * 7919 % 1009}{copy}.wav"
            paths[name] = tmp_path / name
            paths[name].write_bytes(bytes([i, 1]) * 100)
            data[name] = ["dog"] * (i % 2)
    splits = drawn(data, paths)
    assert all(splits[name] == splits[name.replace("a.wav", "b.wav")] for name in data)
    assert set(splits.values()) == {"train", "validate", "test"}


def test_held_out_clips_have_every_class_that_is_in_two_clips():
    data = {f"{i}x.wav": ["dog"] * (i % 2) + ["owl"] * (i in (3, 8)) + ["rail"] * (i == 5) for i in range(30)}
    training, validation = hold_out_clips(collection(data))
    assert len(training) + len(validation) == 30
    assert 4 <= len(validation) <= 8
    heard = {row.label for row in validation.labels}
    assert heard == {"dog", "owl"}
    assert {row.label for row in training.labels} == {"dog", "owl", "rail"}
    (note,) = check_validation(training, validation)
    assert note.startswith("class 'rail' (in 1 training clip) is in no validation clip: validation cannot assess")


def test_one_clip_of_two_is_held_out():
    training, validation = hold_out_clips(collection({"a.wav": ["dog"], "b.wav": ["owl"]}))
    assert len(training) == len(validation) == 1
    with pytest.raises(DataError, match="at least two training clips"):
        hold_out_clips(collection({"a.wav": ["dog"]}))


def test_pieces_of_one_recording_are_divided_where_there_is_nothing_else():
    data = {f"night_{i}.0_{i + 1}.0.wav": ["dog"] * (i % 2) for i in range(50)}
    training, validation = hold_out_clips(collection(data))
    assert len(validation) == 10
    assert len(training) == 40


def test_folds_hold_each_clip_once_and_every_class_evenly():
    data = field_data(103)
    folds = stratified_folds(collection(data), 5)
    assert sorted(name for fold in folds for name in fold) == sorted(data)
    assert all(len(fold) == pytest.approx(103 / 5, abs=4) for fold in folds)
    for label in table(data).classes:
        n = np.array([sum(label in data[name] for name in fold) for fold in folds])
        assert np.ptp(n) <= 2, label


def test_folds_are_fewer_where_recordings_are():
    data = collection({f"x{r}_{p}.0_{p + 1}.0.wav": ["dog"] * r for r in (0, 1, 2) for p in range(20)})
    assert [len(fold) for fold in stratified_folds(data, 5)] == [20, 20, 20]
    with pytest.raises(ArgumentError, match="at least 2 folds"):
        stratified_folds(data, 1)
    with pytest.raises(DataError, match="at least two clips"):
        stratified_folds(collection({"a.wav": []}), 2)


def test_the_name_of_a_piece_keeps_its_folder_and_its_time():
    assert piece_of("north/SM4_20260512_043000_2.wav") == "north/SM4_20260512_043000"
    assert piece_of("0007.wav") == "0007"
    assert piece_of("rec_part2_0003.wav") == "rec"


@pytest.mark.parametrize(
    ("labels", "f1", "expected"),
    [
        (["dog"], 0.5, []),
        (
            ["dog"],
            0.0,
            ["the model is useless: F1 is 0 on the validation clips, 1 of 2 with sounds to detect; check the"],
        ),
        ([], 1.0, ["the model could not be validated: none of the 2 validation clips has any of the sounds"]),
    ],
)
def test_a_useless_model_comes_with_a_warning(labels, f1, expected):
    validation = collection({"a.wav": labels, "b.wav": []})
    run = Run(Path("run"), 3, 1, {"f1": f1}, "f1", is_finished=True)
    found = useless_warnings(run, validation)
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))
    shown = str(replace(run, warnings=tuple(found)))
    assert shown.count("Warning: ") == len(expected)


def test_clips_that_all_have_every_class_are_refused():
    same = collection({"a.wav": ["siren"], "b.wav": ["siren"]})
    with pytest.raises(
        DataError,
        match=r"every training clip has 'siren': there are no negative examples; add recordings without "
        r"it, with",
    ):
        refuse_without_negatives(same)
    both = collection({"a.wav": ["crow", "dog"], "b.wav": ["crow", "dog"]})
    with pytest.raises(DataError, match=r"every training clip has 'crow', 'dog': .* without them"):
        refuse_without_negatives(both)
    refuse_without_negatives(collection({"a.wav": ["crow", "dog"], "b.wav": ["dog"]}))
