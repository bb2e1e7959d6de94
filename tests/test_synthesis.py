"""Soundscapes: distributions, specifications, sound banks, rendering, and jobs that can be stopped."""

import csv
import gzip
import hashlib
import json
import math
import subprocess
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyloudnorm
import pytest
import soundfile
from scipy import signal, stats

from earmark import audio
from earmark.datasets import open_data
from earmark.errors import ArgumentError, DataError
from earmark.formats import TSV
from earmark.progress import Progress
from earmark.synthesis import (
    CLASSES,
    Event,
    FolderBank,
    ProceduralBank,
    Soundscape,
    join,
    parse_distribution,
    plan_from,
    read_events,
    read_jams,
    read_recipe,
    recipe_names,
    render,
    synthesise,
    write_jams,
)
from earmark.synthesis.render import make_noise
from earmark.synthesis.sources import split_folds
from earmark.synthesis.specification import SPLITS, noise, shares, spread

RATE = 8000
RECIPE = """
duration = 2.0
[splits]
train = 3
validate = 1
test = 1
[events]
count = ["choose", [1, 2]]
time = ["uniform", 0, 2]
duration = ["uniform", 0.3, 0.6]
snr = ["uniform", 10, 20]
pitch_shift = ["uniform", -2, 2]
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return path


def make_bank(root, names, seconds=1.0, rate=RATE):
    """Tones, each of its own pitch."""
    for k, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        time = np.arange(round(seconds * rate)) / rate
        soundfile.write(root / name, 0.3 * np.sin(2 * np.pi * (300 + 50 * k) * time), rate)
    return root


def tone(label="tone", source="tone/a.wav", **changes):
    return Event(label, source, **{"event_time": 0.5, "event_duration": 0.8, "snr": 20.0, **changes})


@pytest.mark.parametrize(
    ("written", "reference"),
    [
        (["uniform", 0.5, 4], stats.uniform(0.5, 3.5)),
        (["normal", 1, 2], stats.norm(1, 2)),
        (["truncnorm", 3, 2, 0, 10], stats.truncnorm(-1.5, 3.5, 3, 2)),
    ],
)
def test_distributions_are_what_they_are_called(written, reference, rng):
    drawn = [parse_distribution(written).sample(rng) for _ in range(2000)]
    assert stats.kstest(drawn, reference.cdf).pvalue > 1e-3


def test_constants_and_choices(rng):
    assert parse_distribution(["const", 3]).sample(rng) == 3
    assert parse_distribution(2.5).sample(rng) == 2.5
    assert {parse_distribution(["choose", [1, 5]]).sample(rng) for _ in range(50)} == {1, 5}
    assert parse_distribution(["truncnorm", 0, 1, 20, 21]).sample(rng) == pytest.approx(20.5, abs=0.5)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("uniform", r"expected a list such as \[\"uniform\", 0.5, 4\] or a number, got 'uniform'"),
        ([], "or a number, got"),
        (True, "or a number, got True"),
        (math.nan, "or a number, got nan"),
        (["unifrom", 1, 2], "distribution='unifrom' is not known; did you mean 'uniform'"),
        (["uniform", 1], r"uniform: expected 2 parameters \(low, high\), got 1"),
        (["uniform", 2, 1], "uniform: expected low <= high, got 2 and 1"),
        (["uniform", "a", 1], r"uniform: expected finite numbers, got \['a', 1\]"),
        (["const", math.nan], r"const: expected finite numbers, got \[nan\]"),
        (["choose", []], "choose: expected finite numbers, got"),
        (["choose", 3], r"choose: expected finite numbers, got \[3\]"),
        (["normal", 0, 0], "normal: expected a deviation above 0, got 0"),
        (["truncnorm", 0, 1, 2, 2], "truncnorm: expected low < high, got 2 and 2"),
    ],
)
def test_a_bad_distribution_says_what_is_wrong(written, message):
    with pytest.raises(ValueError, match=message):
        parse_distribution(written)


def test_the_truth_is_cut_off_at_the_end():
    soundscape = Soundscape("a", (tone(event_time=9.5, time_stretch=1.5), tone(event_time=1.0)))
    assert [tuple(row)[1:4] for row in soundscape.labels()] == [(1.0, 1.8, "tone"), (9.5, 10.0, "tone")]
    assert soundscape.labels()[0].filename == "audio/train/a.flac"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tone(snr=math.nan), "snr: expected a finite number, got nan"),
        (lambda: tone(event_time=-1.0), "event_time: expected a number of at least 0, got -1.0"),
        (lambda: tone(event_duration=0.0), "event_duration: expected a number above 0, got 0.0"),
        (lambda: tone(time_stretch=0.0), "time_stretch: expected a number above 0, or none, got 0.0"),
        (lambda: Soundscape("../a", ()), "expected a name that a file can have, got '../a'"),
        (lambda: Soundscape("a", (), split="dev"), "split: expected train, validate or test, got 'dev'"),
        (lambda: Soundscape("a", (), duration=0.0), "duration: expected a number above 0, got 0.0"),
        (lambda: Soundscape("a", (), reverb=2.0), "reverb: expected a number from 0 to 1, or none, got 2.0"),
        (lambda: Soundscape("a", (tone(event_time=11.0),)), "tone: expected an onset before 10.0 s, got 11.0"),
        (lambda: Soundscape("a\nb", ()), r"expected a name that a file can have, got 'a\\nb'"),
        (lambda: Soundscape("a", (), duration=1e9), "a: expected a duration from 0.001 to 86400 s, got 1000000000.0"),
        (lambda: Soundscape("a", (tone(snr=1e4),)), "a: tone: expected a level within 200 LUFS, got 9950"),
        (lambda: Soundscape("a", (tone(event_duration=1e6),)), "a: tone: expected at most 86400 s of a source"),
    ],
)
def test_an_impossible_specification_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_a_table_of_events_is_read(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(
        "split,clip,label,src,time,snr,edur,pitch,stretch\n"
        "test,a,siren,x.wav,1.5,10,2,-1,1.2\ntrain,b,dog,,0,6,1,,\ntest,a,dog,y.wav,3,7,1,,\n"
    )
    a, b = read_events(path, seed=3)
    assert a == Soundscape(
        "a",
        (
            Event("siren", "x.wav", 1.5, 2.0, 10.0, pitch_shift=-1.0, time_stretch=1.2),
            Event("dog", "y.wav", 3.0, 1.0, 7.0),
        ),
        "test",
        background=noise("brownian", 10.0),
        seed=3,
    )
    assert (b.name, b.split, b.events[0].source_file, b.events[0].pitch_shift) == ("b", "train", "", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("split,clip\n", r"events.csv:1: expected columns split, .* edur, got split, clip"),
        ("split,clip,label,src,time,snr,edur\n", "events.csv: expected at least one event, got none"),
        ("split,clip,label,src,time,snr,edur\ntest,a,dog,x,zero,1,1\n", "events.csv:2: could not convert"),
        ("split,clip,label,src,time,snr,edur\ntest,a,dog,x,1\n", "events.csv:2: "),
        ("split,clip,label,src,time,snr,edur\ntest,a,dog,x,1,1,-1\n", "events.csv:2: event_duration: expected"),
        ("split,clip,label,src,time,snr,edur\ndev,a,dog,x,1,1,1\n", "events.csv: a: split: expected train"),
    ],
)
def test_a_bad_table_names_file_and_line(tmp_path, text, message):
    path = tmp_path / "events.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_events(path)


def test_a_damaged_table_is_one_clear_line(tmp_path):
    path = tmp_path / "events.csv.gz"
    path.write_bytes(gzip.compress(b"split,clip\n" * 1000)[:30])
    with pytest.raises(DataError, match="cannot be read: "):
        read_events(path)
    with pytest.raises(DataError, match="cannot be read: "):
        read_events(tmp_path / "none.csv")


@pytest.mark.parametrize("name", ["none.csv", "none.csv.gz", "none.toml", "none.jams", "none.tsv"])
def test_a_source_that_is_not_there_is_no_such_file(tmp_path, name):
    with pytest.raises(DataError, match=rf"{name}: no such file$"):
        plan_from(tmp_path / name)


def test_a_file_that_is_no_source_says_what_would_be_one(tmp_path):
    (tmp_path / "labels.tsv").write_text("filename\tlabel\n")
    with pytest.raises(DataError, match=r"labels.tsv: expected a recipe \(.toml\), .* recipe: durations, urban-sed$"):
        plan_from(tmp_path / "labels.tsv")


def test_jams_survive_a_round_trip_and_satisfy_the_jams_package(tmp_path):
    jams = pytest.importorskip("jams")
    event = tone(pitch_shift=1.5, time_stretch=0.9, source_time=0.1)
    before = Soundscape("a", (event,), "test", 5.0, -40.0, reverb=0.1, background=noise("pink", 5.0), seed=9)
    (tmp_path / "test").mkdir()
    write_jams(before, tmp_path / "test" / "a.jams", notes={"bank": "mine"})
    assert read_jams(tmp_path / "test" / "a.jams") == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package's own, about pandas
        loaded = jams.load(str(tmp_path / "test" / "a.jams"), validate=True, strict=True)
    (annotation,) = loaded.annotations.search(namespace="scaper")
    assert annotation.sandbox.scaper["ref_db"] == -40.0
    observed = [o for o in annotation.data if o.value["role"] == "foreground"]
    assert [(o.time, o.time + o.duration) for o in observed] == [pytest.approx((0.5, 0.5 + 0.72))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a.jams: not a JAMS document"),
        ("[]", "a.jams: not a JAMS document: no annotations"),
        ('{"annotations": []}', "a.jams: no annotation by Scaper"),
        (
            '{"annotations": [{"namespace": "scaper", "sandbox": {"scaper": {}}, "data": []}]}',
            "a.jams: not a JAMS file of Scaper: KeyError 'duration'",
        ),
    ],
)
def test_bad_jams_are_one_clear_line(tmp_path, text, message):
    (tmp_path / "a.jams").write_text(text)
    with pytest.raises(DataError, match=message):
        read_jams(tmp_path / "a.jams")


def test_two_backgrounds_are_refused(tmp_path):
    path = tmp_path / "a.jams"
    write_jams(Soundscape("a", (), background=noise("pink", 10.0)), path)
    root = json.loads(path.read_text())
    root["annotations"][0]["data"] *= 2
    path.write_text(json.dumps(root))
    with pytest.raises(DataError, match="expected one background, got 2"):
        read_jams(path)


def test_clips_are_spread_over_splits():
    plan = [Soundscape(f"{split}{i}", (), split) for split in SPLITS for i in range({"train": 6}.get(split, 2))]
    assert [s.name for s in spread(plan, 5)] == ["train0", "train1", "train2", "validate0", "test0"]
    assert shares({"train": 6000, "validate": 2000, "test": 2000}, 200) == {"train": 120, "validate": 40, "test": 40}
    with pytest.raises(DataError, match="clips: expected at most 10, got 11"):
        spread(plan, 11)
    with pytest.raises(DataError, match="clips: expected at least 1, got 0"):
        spread(plan, 0)


@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_embedded_recipes_have_a_summary_and_keep_their_promises(name):
    recipe = read_recipe(name)
    assert recipe.summary
    plan = recipe.plan(ProceduralBank(), clips=60)
    assert {split: sum(s.split == split for s in plan) for split in SPLITS} == {"train": 36, "validate": 12, "test": 12}
    assert len({s.name for s in plan}) == 60
    for soundscape in plan:
        for event in soundscape.events:
            assert event.event_time >= 0
            assert event.event_time + event.duration <= soundscape.duration + 1e-9
    sources = {split: {e.source_file for s in plan if s.split == split for e in s.events} for split in SPLITS}
    assert not sources["train"] & sources["test"]
    assert recipe.plan(ProceduralBank(), clips=60) == plan
    assert recipe.plan(ProceduralBank(), clips=60, seed=1) != plan


def test_urban_sed_is_drawn_as_published():
    plan = plan_from("urban-sed", clips=300)
    events = [event for soundscape in plan for event in soundscape.events]
    assert {len(soundscape.events) for soundscape in plan} == set(range(1, 10))
    assert {event.label for event in events} == set(CLASSES)
    assert stats.kstest([e.event_duration for e in events], stats.uniform(0.5, 3.5).cdf).pvalue > 1e-3
    assert stats.kstest([e.snr for e in events], stats.uniform(6, 24).cdf).pvalue > 1e-3
    assert {s.name.split("_")[2].rstrip("0123456789") for s in plan} == {"bimodal", "uniform", "unimodal"}
    assert (plan[0].ref_db, plan[0].reverb, plan[0].fade_in, plan[0].background.source_file) == (
        -50.0,
        0.1,
        0.01,
        "brownian",
    )


def test_durations_differ_by_class():
    events = [event for soundscape in plan_from("durations", clips=200) for event in soundscape.events]
    mean = {label: np.mean([e.duration for e in events if e.label == label]) for label in CLASSES}
    assert mean["gun_shot"] < 0.5
    assert mean["engine_idling"] > 6


def test_an_event_is_shortened_to_its_source_or_the_source_repeated(tmp_path, recipe):
    bank = FolderBank(make_bank(tmp_path / "bank", [f"{s}/tone/{s}.wav" for s in SPLITS], seconds=0.2))
    assert {e.event_duration for s in plan_from(recipe, bank=bank) for e in s.events} == {0.2}
    recipe.write_text('too_short = "repeat"\n' + RECIPE)
    assert all(e.event_duration > 0.29 for s in plan_from(recipe, bank=bank) for e in s.events)


def test_no_source_twice_while_there_are_others(tmp_path, recipe):
    bank = FolderBank(make_bank(tmp_path / "bank", [f"{s}/tone/{s}{k}.wav" for s in SPLITS for k in range(4)]))
    recipe.write_text(RECIPE.replace("[1, 2]", "[4]"))
    for soundscape in plan_from(recipe, bank=bank):
        assert len({event.source_file for event in soundscape.events}) == 4
    recipe.write_text(RECIPE.replace("[1, 2]", "[5]"))
    assert all(len(soundscape.events) == 5 for soundscape in plan_from(recipe, bank=bank))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("duration = 2.0", "durration = 2.0", "small.toml: key='durration' is not known; did you mean 'duration'"),
        ("duration = 2.0", 'duration = "2"', "small.toml: duration: expected a number above 0, got '2'"),
        ("duration = 2.0", "duration = 0", "duration: expected a number above 0, got 0"),
        ("duration = 2.0", "duration = ", "small.toml: not TOML"),
        ("duration = 2.0", 'too_short = "cut"', "too_short: expected shorten or repeat, got 'cut'"),
        ("train = 3", "dev = 3", "splits: key='dev' is not known. Choose from: train, validate, test"),
        ("snr =", "sn =", "events: key='sn' is not known; did you mean 'snr'"),
        ("snr =", "pitch_shift = 0 #", r'events.snr: expected a list such as \["uniform", 0.5, 4\], got nothing'),
        ('["uniform", 0, 2]', "{}", "events.time: expected a table that is not empty, got {}"),
        (
            'duration = ["uniform", 0.3, 0.6]\nsnr = ["uniform", 10, 20]',
            "snr = 0\n[events.duration]\nsiren = 1",
            "small.toml: events.duration: expected one for each class, got none for dog_bark",
        ),
        ('["uniform", 0, 2]', "{a = 5}", r'events.time.a: expected a list .*such as \[\["uniform", 0, 10\]\], got 5'),
        ('["uniform", 0, 2]', "{a = []}", r"events.time.a: expected a list .* got \[\]"),
        (
            "train = 3\nvalidate = 1\ntest = 1",
            "train = 0\ntest = 0",
            "small.toml: splits: expected at least one soundscape, got none",
        ),
        ('["uniform", 10, 20]', '["uniform", 20, 10]', "small.toml: events.snr: uniform: expected low <= high"),
        ("[events]", "[event]", "key='event' is not known; did you mean 'events'"),
    ],
)
def test_a_bad_recipe_says_what_is_wrong(recipe, old, new, message):
    text = 'classes = ["siren", "dog_bark"]' + RECIPE.replace('\npitch_shift = ["uniform", -2, 2]', "")
    recipe.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        read_recipe(recipe)


def test_a_recipe_may_say_nought(recipe):
    text = RECIPE.replace('["uniform", 0, 2]', "0").replace('["uniform", 10, 20]', "0")
    recipe.write_text(text)
    events = [event for soundscape in plan_from(recipe, clips=5) for event in soundscape.events]
    assert {(event.event_time, event.snr) for event in events} == {(0, 0)}
    recipe.write_text(text.replace('["choose", [1, 2]]', "0"))
    assert [soundscape.events for soundscape in plan_from(recipe, clips=5)] == [()] * 5


def test_an_event_that_fills_its_soundscape_begins_with_it(recipe):
    text = RECIPE.replace('["uniform", 0.3, 0.6]', "20").replace("duration = 2.0", "duration = 10.0")
    recipe.write_text(f'too_short = "repeat"\n{text}time_stretch = ["uniform", 0.8, 1.2]\n')
    events = [event for soundscape in plan_from(recipe, clips=300) for event in soundscape.events]
    assert {event.span(10.0) for event in events} == {(0, 10)}


def test_recipes_that_lack_something(tmp_path):
    with pytest.raises(ArgumentError, match="recipe='urban_sed' is not known; did you mean 'urban-sed'"):
        read_recipe("urban_sed")
    with pytest.raises(DataError, match=r"none.toml: No such file or directory$"):
        read_recipe(tmp_path / "none.toml")
    (tmp_path / "a.toml").write_text("duration = 1\n")
    with pytest.raises(DataError, match=r"a.toml: splits: expected a table, got nothing"):
        read_recipe(tmp_path / "a.toml")
    bank = FolderBank(make_bank(tmp_path / "bank", ["tone/a.wav"]))
    with pytest.raises(
        DataError, match="recipe durations: expected a duration for a class of the bank, got none for any of: tone"
    ):
        plan_from("durations", bank=bank)


def test_folds_go_to_their_published_splits_and_missing_ones_are_made_up():
    assert split_folds([1, 7, 9]) == {"train": (1,), "validate": (7,), "test": (9,)}
    assert split_folds([1, 2, 3, 4, 5]) == {"train": (1, 2, 3), "validate": (5,), "test": (4,)}
    assert split_folds([8, 9, 10, 12]) == {"train": (12,), "validate": (8,), "test": (9, 10)}


def test_layouts_of_banks(tmp_path):
    folds = FolderBank(make_bank(tmp_path / "a", [f"fold{k}/dog/{k}.wav" for k in (1, 2, 3, 10)]))
    assert folds.sources("dog", "train") == ["fold1/dog/1.wav", "fold2/dog/2.wav"]
    assert folds.sources("dog", "validate") == ["fold3/dog/3.wav"]
    published = FolderBank(make_bank(tmp_path / "b", [f"audio/fold{k}/{k}-3-0-0.wav" for k in (1, 7, 9)]))
    assert published.sources("dog_bark", "test") == ["audio/fold9/9-3-0-0.wav"]
    split = FolderBank(make_bank(tmp_path / "c", ["train/dog/a.wav", "test/dog/b.wav"]))
    assert split.sources("dog", "test") == ["test/dog/b.wav"]
    plain = FolderBank(make_bank(tmp_path / "d", [f"dog/{k}.wav" for k in range(10)]))
    assert [len(plain.sources("dog", split)) for split in SPLITS] == [6, 2, 2]
    with pytest.raises(DataError, match="no sound of class 'dog' for split 'validate', 2 in other splits"):
        split.sources("dog", "validate")


def test_banks_that_are_none(tmp_path):
    with pytest.raises(ArgumentError, match="none: no such folder"):
        FolderBank(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no audio files in this folder"):
        FolderBank(tmp_path / "empty")
    with pytest.raises(DataError, match="expected sounds in folders named after their classes"):
        FolderBank(make_bank(tmp_path / "flat", ["a.wav"]))
    with pytest.raises(DataError, match="the embedded bank has no class 'owl'"):
        synthesise([Soundscape("a", (tone("owl"),))], tmp_path / "out")


def test_a_missing_source_is_replaced_by_one_of_its_class_and_split(tmp_path):
    root = make_bank(tmp_path / "bank", [f"{s}/dog/{s}{k}.wav" for s in SPLITS for k in range(5)], seconds=0.5)
    make_bank(root, ["test/dog/long.wav"], seconds=2.0)
    make_bank(root, ["test/cat/test1.wav"])
    bank = FolderBank(root)

    def found(source, split, duration=0.4, name="clip"):
        event = tone("dog", source, event_duration=duration)
        return bank.resolved(Soundscape(name, (event,), split)).events[0].source_file

    assert found("/somebodys/disk/test1.wav", "test") == "test/dog/test1.wav"
    assert found("test/cat/test1.wav", "test") == "test/dog/test1.wav"
    others = {found("test1.wav", "train", name=f"clip{k}") for k in range(40)}
    assert others == {f"train/dog/train{k}.wav" for k in range(5)}
    assert found("gone.wav", "test", 1.9) == "test/dog/long.wav"
    assert found("gone.wav", "test", 3.0) == "test/dog/long.wav"
    assert found("gone.wav", "train") == found("gone.wav", "train")


def test_long_sources_are_read_in_excerpts(tmp_path):
    root = make_bank(tmp_path / "bank", ["train/dog/a.wav"], seconds=31.0)
    event = tone("dog", "train/dog/a.wav", source_time=30.5, event_duration=1.0)
    samples, rate = FolderBank(root).read(event, 44100)
    assert (len(samples), rate) == (RATE // 2, RATE)


def test_an_event_is_an_excerpt_of_its_source(tmp_path):
    bank = FolderBank(make_bank(tmp_path / "bank", ["train/dog/3.wav"]))
    event = tone("dog", "train/dog/3.wav", source_time=0.1, event_duration=0.7)
    heard, _ = bank.read(event, RATE)
    np.testing.assert_array_equal(heard, soundfile.read(bank.root / event.source_file, dtype="float32")[0][800:6400])


@pytest.fixture
def tones(tmp_path):
    return FolderBank(make_bank(tmp_path / "tones", ["train/tone/a.wav"], seconds=3.0, rate=44100))


def test_levels_are_those_of_the_specification(tones):
    meter = pyloudnorm.Meter(44100)
    event = tone(source="train/tone/a.wav", event_time=2.0, event_duration=3.0, snr=20.0)
    quiet = Soundscape("a", (), background=noise("brownian", 10.0), duration=10.0)
    assert meter.integrated_loudness(render(quiet, tones).samples.astype(float)) == pytest.approx(-50, abs=0.05)
    only = Soundscape("a", (event,), duration=10.0)
    sound = render(only, tones).samples
    assert meter.integrated_loudness(sound[88200 : 5 * 44100].astype(float)) == pytest.approx(-30, abs=0.05)
    both = replace(only, background=quiet.background)
    np.testing.assert_allclose(render(both, tones).samples, sound + render(quiet, tones).samples, atol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"pitch_shift": 2.0}, {"time_stretch": 1.2}, {"source_time": 0.5}])
def test_an_event_sounds_from_its_onset_to_its_offset_and_nowhere_else(tones, changes):
    event = tone(source="train/tone/a.wav", event_time=1.2345, event_duration=1.1, **changes)
    sound = render(Soundscape("a", (event,), duration=4.0), tones).samples
    onset, offset = (round(time * 44100) for time in event.span(4.0))
    assert not sound[:onset].any()
    assert not sound[offset:].any()
    heard = np.abs(sound[onset:offset])
    full = heard.max()
    assert heard[441:1000].max() > 0.5 * full
    assert heard[-1000:-441].max() > 0.5 * full


def test_pitch_goes_where_it_is_sent(tones):
    event = tone(source="train/tone/a.wav", event_time=0.0, event_duration=2.5, pitch_shift=12.0)
    sound = render(Soundscape("a", (event,), duration=2.5), tones).samples
    frequencies, power = signal.periodogram(sound, 44100)
    assert frequencies[power.argmax()] == pytest.approx(600, rel=0.01)


def test_a_short_source_is_repeated_until_the_event_ends(tmp_path):
    bank = FolderBank(make_bank(tmp_path / "bank", ["train/tone/a.wav"], seconds=0.3))
    event = tone(source="train/tone/a.wav", event_time=0.0, event_duration=2.0)
    sound = render(Soundscape("a", (event,), duration=2.0, fade_in=0.0, fade_out=0.0), bank, RATE).samples
    level = np.sqrt(np.convolve(sound**2, np.ones(200) / 200, "valid"))
    assert level.min() > 0.5 * level.max()


def test_sources_of_another_rate(tmp_path):
    bank = FolderBank(make_bank(tmp_path / "bank", ["train/tone/a.wav"], seconds=2.0, rate=48000))
    event = tone(source="train/tone/a.wav", event_time=0.0, event_duration=2.0)
    sound = render(Soundscape("a", (event,), duration=2.0), bank, RATE).samples
    frequencies, power = signal.periodogram(sound, RATE)
    assert frequencies[power.argmax()] == pytest.approx(300, abs=1)


def test_a_sum_beyond_full_scale_is_turned_down_and_said_to_be(tones, tmp_path):
    loud = Soundscape("a", (tone(source="train/tone/a.wav", snr=60.0),), duration=2.0, background=noise("white", 2.0))
    made = render(loud, tones)
    assert np.abs(made.samples).max() == pytest.approx(1.0, abs=1e-4)
    assert made.gain_db < -5
    summary = synthesise([loud], tmp_path / "out", bank=tones, workers=1)
    assert summary.turned_down == 1
    assert read_jams(tmp_path / "out/annotations/train/a.jams").ref_db == pytest.approx(-50 + made.gain_db)


def test_silence_stays_silent_and_is_counted(tmp_path):
    root = tmp_path / "bank"
    (root / "train/tone").mkdir(parents=True)
    soundfile.write(root / "train/tone/a.wav", np.zeros(RATE), RATE)
    made = render(Soundscape("a", (tone(source="train/tone/a.wav"),), duration=2.0), FolderBank(root), RATE)
    assert made.silent == 1
    assert not made.samples.any()


def test_an_event_that_begins_after_its_source_ends(tones):
    event = tone(source="train/tone/a.wav", source_time=5.0)
    with pytest.raises(DataError, match=r"train/tone/a.wav: ends before source_time, 5.0 s"):
        render(Soundscape("a", (event,)), tones)


@pytest.mark.parametrize(("colour", "slope"), [("white", 0.0), ("pink", -3.0), ("brownian", -6.0)])
def test_noise_falls_as_its_colour_says(colour, slope, rng):
    frequencies, power = signal.welch(make_noise(colour, 441000, rng), 44100, nperseg=8192)
    used = (frequencies > 100) & (frequencies < 5000)
    fitted = np.polyfit(np.log2(frequencies[used]), 10 * np.log10(power[used]), 1)[0]
    assert fitted == pytest.approx(slope, abs=0.2)


def test_brownian_noise_at_the_reference_level_is_as_strong_as_urban_seds(tones):
    made = render(Soundscape("a", (), background=noise("brownian", 10.0)), tones)
    assert 20 * np.log10(made.samples.std()) == pytest.approx(-43, abs=1)


def test_a_recorded_background_is_repeated_and_levelled(tmp_path, tones):
    make_bank(tmp_path, ["park.wav"], seconds=1.5)
    background = Event("park", str(tmp_path / "park.wav"), 0.0, 4.0, 0.0, role="background")
    made = render(Soundscape("a", (), duration=4.0, background=background), tones, RATE)
    level = np.sqrt(np.convolve(made.samples**2, np.ones(400) / 400, "valid"))
    assert level.min() > 0.5 * level.max()
    missing = replace(background, source_file="gone.wav")
    with pytest.raises(
        DataError, match=r"gone.wav: no such background; expected an audio file or one of brownian, pink"
    ):
        render(Soundscape("a", (), background=missing), tones, RATE)


def test_reverberation_is_what_sox_makes_of_it(tones):
    event = tone(source="train/tone/a.wav", event_time=0.0, event_duration=1.0, snr=40.0)
    dry = Soundscape("a", (event,), duration=2.0)
    tail = render(replace(dry, reverb=0.1), tones).samples - render(dry, tones).samples
    energy = tail**2
    assert energy[round(1.4 * 44100) :].sum() < 1e-6 * energy.sum()
    hiss = Soundscape("a", (), duration=2.0, background=noise("white", 2.0))
    dry, wet = (render(replace(hiss, reverb=amount), tones).samples for amount in (None, 0.1))
    assert 10 * np.log10(np.sum((wet - dry) ** 2) / np.sum(dry**2)) == pytest.approx(-26, abs=1)


HIDDEN = (".lock", ".earmark.jsonl")


def prints(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in HIDDEN
    }


@pytest.mark.parametrize("fails", [True, False])
def test_drafts_of_a_job_that_was_killed_are_gone_however_the_next_one_ends(tmp_path, recipe, fails):
    out = tmp_path / "out"
    synthesise(recipe, out, rate=RATE, workers=1)
    sound = next(out.glob("audio/train/*.flac"))
    draft, mine = (sound.with_name(name) for name in (f".{sound.stem}~a1b2c3d4.flac", ".my-settings.flac"))
    for path in (draft, mine):
        path.write_text("")

    def fail(progress):
        if fails and progress.done:
            raise DataError("broken")

    with pytest.raises(DataError, match="broken") if fails else nullcontext():
        synthesise(recipe, out, rate=RATE, workers=1, on_progress=fail)
    assert [path for path in out.rglob(".*") if path.name not in HIDDEN] == [mine]


def test_the_same_request_gives_the_same_bytes_with_any_number_of_workers(tmp_path, recipe):
    one = synthesise(recipe, tmp_path / "one", rate=RATE, workers=1)
    two = synthesise(recipe, tmp_path / "two", rate=RATE, workers=2)
    assert one.clips == two.clips == {"train": 3, "validate": 1, "test": 1}
    assert prints(tmp_path / "one") == prints(tmp_path / "two")
    assert len(prints(tmp_path / "one")) == 5 + 5 + 2
    synthesise(recipe, tmp_path / "other", rate=RATE, workers=1, seed=1)
    assert prints(tmp_path / "one") != prints(tmp_path / "other")


def test_labels_say_what_the_annotations_say(tmp_path, recipe):
    summary = synthesise(recipe, tmp_path / "out", rate=RATE, workers=1)
    table = TSV().read(tmp_path / "out" / "labels.tsv")
    assert summary.events == len(table)
    assert table.splits["audio/test/soundscape_test_0.flac"] == "test"
    for name in table.filenames:
        samples, rate = soundfile.read(tmp_path / "out" / name)
        assert (len(samples), rate) == (2 * RATE, RATE)
        soundscape = read_jams(tmp_path / "out" / name.replace("audio", "annotations").replace(".flac", ".jams"))
        assert [tuple(row)[1:4] for row in table.of(name)] == [tuple(row)[1:4] for row in soundscape.labels()]


def test_what_earmark_wrote_can_be_made_again_from_its_annotations(tmp_path, recipe):
    synthesise(recipe, tmp_path / "one", rate=RATE, workers=1)
    again = synthesise(tmp_path / "one" / "annotations", tmp_path / "two", rate=RATE, workers=1)
    assert again.substituted == 0
    for path in (tmp_path / "one").rglob("*.flac"):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()


def test_a_stopped_job_goes_on(tmp_path, recipe):
    whole = tmp_path / "whole"
    synthesise(recipe, whole, rate=RATE, workers=1)

    class StopError(Exception):
        pass

    def stop(progress):
        assert progress.total == 5
        if progress.done == 2:
            raise StopError

    with pytest.raises(StopError):
        synthesise(recipe, tmp_path / "part", rate=RATE, workers=1, on_progress=stop)
    assert not (tmp_path / "part" / "labels.tsv").exists()
    seen = []
    summary = synthesise(recipe, tmp_path / "part", rate=RATE, workers=1, on_progress=seen.append)
    assert summary.kept == 2
    assert seen[-1] == Progress("soundscapes", 5, 5, "clips")
    assert prints(tmp_path / "part") == prints(whole)


def test_a_folder_with_anything_else_in_it_is_refused(tmp_path, recipe):
    out = tmp_path / "out"
    synthesise(recipe, out, rate=RATE, workers=1)
    with pytest.raises(
        ArgumentError,
        match=r"out contains other soundscapes \(plan '\w+', now '\w+'\); choose "
        r"another",
    ):
        synthesise(recipe, out, rate=RATE, workers=1, seed=1)
    with pytest.raises(ArgumentError, match="rate 8000, now 16000"):
        synthesise(recipe, out, rate=16000, workers=1)
    with pytest.raises(ArgumentError, match="contains other files; choose a new or an empty folder"):
        synthesise(recipe, tmp_path, rate=RATE)
    (out / "soundscapes.json").write_text("{")
    with pytest.raises(DataError, match=r"soundscapes.json: not valid JSON"):
        synthesise(recipe, out, rate=RATE)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_source_stops_the_job_with_its_name_and_loses_nothing(tmp_path, workers):
    root = make_bank(tmp_path / "bank", ["train/tone/good.wav"])
    (root / "train/tone/bad.wav").write_bytes(b"RIFF, but no more")
    plan = [Soundscape(name, (tone(source=f"train/tone/{name}.wav"),), duration=2.0) for name in ("good", "bad")]
    with pytest.raises(DataError, match=r"bad\.wav"):
        synthesise(plan, tmp_path / "out", bank=root, rate=RATE, workers=workers)
    make_bank(root, ["train/tone/bad.wav"])
    assert synthesise(plan, tmp_path / "out", bank=root, rate=RATE, workers=1).clips == {"train": 2}


def test_calls_that_mean_nothing(tmp_path):
    with pytest.raises(ArgumentError, match="workers: expected at least 1, got 0"):
        synthesise("urban-sed", tmp_path / "out", workers=0)
    with pytest.raises(ArgumentError, match="no soundscapes to make"):
        synthesise([], tmp_path / "out")
    with pytest.raises(DataError, match="two soundscapes of split train have the name a"):
        synthesise([Soundscape("a", ()), Soundscape("a", ())], tmp_path / "out")
    with pytest.raises(DataError, match="no JAMS files in this folder"):
        plan_from(tmp_path)


@pytest.fixture
def made(tmp_path, recipe):
    synthesise(recipe, tmp_path / "made", rate=RATE, workers=1)
    return tmp_path / "made"


def shifted(made, joined):
    """The truth of a recording, from that of its clips."""
    table = TSV().read(made / "labels.tsv")
    return [
        (joined.path.name, round(start / RATE + row.onset, 6), round(start / RATE + row.offset, 6), row.label)
        for name, start in zip(joined.clips, joined.starts[:-1], strict=True)
        for row in table.of(name)
    ]


def test_clips_are_joined_sample_for_sample_and_their_truth_is_shifted(made):
    joined = join(made, "train")
    assert joined.path == made / "recordings" / "train.flac"
    assert joined.clips == tuple(f"audio/train/soundscape_train_{k}.flac" for k in range(3))
    assert (joined.starts, joined.rate, joined.duration) == ((0, 16000, 32000, 48000), RATE, 6.0)
    clips = [soundfile.read(made / name, dtype="int16")[0] for name in joined.clips]
    np.testing.assert_array_equal(soundfile.read(joined.path, dtype="int16")[0], np.concatenate(clips))
    assert audio.info(joined.path).format == "FLAC PCM_16"
    rows = [tuple(row)[:4] for row in TSV().read(joined.labels)]
    assert rows == shifted(made, joined)
    assert joined.events == len(rows) > 2


def test_events_that_touch_at_a_joint_stay_two(tmp_path, tones):
    ends = Soundscape("a", (tone(source="train/tone/a.wav", event_time=1.5, event_duration=0.5),), duration=2.0)
    begins = Soundscape("b", (tone(source="train/tone/a.wav", event_time=0.0),), duration=2.0)
    silent = Soundscape("c", (), duration=0.5)
    synthesise([ends, silent, replace(ends, name="d"), begins], tmp_path / "made", bank=tones, workers=1)
    joined = join(tmp_path / "made", "train")
    assert [(row.onset, row.offset) for row in TSV().read(joined.labels)] == [(1.5, 2.0), (4.0, 4.5), (4.5, 5.3)]


def test_clips_come_again_in_other_orders_until_the_recording_is_long_enough(made):
    told = []
    joined = join(made, "train", duration=16.5, seed=1, on_progress=told.append)
    assert (len(joined.clips), joined.duration) == (9, 18.0)
    assert told[-1] == Progress("recording", 9, 9, "clips")
    rounds = [joined.clips[k : k + 3] for k in (0, 3, 6)]
    assert all(len(set(own)) == 3 for own in rounds)
    assert len(set(rounds)) > 1
    last = soundfile.read(made / joined.clips[-1], dtype="int16")[0]
    np.testing.assert_array_equal(soundfile.read(joined.path, dtype="int16", start=-2 * RATE)[0], last)
    assert [tuple(row)[:4] for row in TSV().read(joined.labels)] == shifted(made, joined)
    again, other = (join(made, "train", duration=16.5, seed=k, out=made.parent / f"{k}.flac") for k in (1, 2))
    assert again.clips == joined.clips != other.clips
    assert again.path.read_bytes() == joined.path.read_bytes()
    assert TSV().read(made.parent / "2.tsv").filenames == ("2.flac",)


def test_recordings_are_no_clips_of_the_data_set_and_do_not_stop_a_job(made, recipe):
    join(made, "test")
    assert len(open_data(made).clips) == len(open_data(f"soundscapes:{made}").clips) == 5
    assert synthesise(recipe, made, rate=RATE, workers=1).kept == 5


def test_recordings_that_cannot_be(made, monkeypatch):
    with pytest.raises(ArgumentError, match="split='tset' is not known; did you mean 'test'"):
        join(made, "tset")
    with pytest.raises(ArgumentError, match="duration: expected a positive number of seconds, got 0"):
        join(made, "test", duration=0)
    with pytest.raises(ArgumentError, match=r"expected at most 68719476735 samples in a FLAC file .*, got 80000000000"):
        join(made, "test", duration=1e7)
    with pytest.raises(ArgumentError, match=r"day.wav: expected the suffix .flac"):
        join(made, "test", out=made / "day.wav")
    before = join(made, "test")

    def fail(*_):
        raise soundfile.LibsndfileError(2)

    monkeypatch.setattr(soundfile.SoundFile, "write", fail)
    sound, truth = before.path.read_bytes(), before.labels.read_bytes()
    with pytest.raises(ArgumentError, match=r"test.flac: cannot be written, is the disk full\?"):
        join(made, "test", duration=100)
    assert (before.path.read_bytes(), before.labels.read_bytes()) == (sound, truth)


def test_the_command_joins_what_it_made(tmp_path, recipe, capsys):
    from earmark.cli import app

    words = ["synth", str(recipe), str(tmp_path / "out"), "--workers", "1", "--clips", "5"]
    app([*words, "--join", "once"], standalone_mode=False)
    folder = tmp_path / "out" / "recordings"
    assert f"\nRecording: {folder / 'test.flac'}, " in capsys.readouterr().out
    app([*words, "--join", "5", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)["recordings"]
    assert found == [str(folder / f"{split}.flac") for split in SPLITS]
    assert [soundfile.info(path).duration for path in found] == [6.0, 6.0, 6.0]
    with pytest.raises(ArgumentError, match="--join: expected once, hour, day or a number of seconds, got 'week'"):
        app([*words, "--join", "week"], standalone_mode=False)


def test_processes_that_render_do_not_load_torch():
    code = "import sys, earmark.synthesis; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_original_annotation_is_read_to_the_microsecond(shared):
    found = sorted((shared / "urbansed").glob("original*/annotations/*/*.jams"))
    assert len(found) >= 25
    for path in found:
        rows = [line.split("\t") for line in path.with_suffix(".txt").read_text().splitlines()]
        published = sorted((float(onset), float(offset), label) for onset, offset, label in rows)
        soundscape = read_jams(path)
        assert soundscape.split == path.parent.name
        assert (soundscape.reverb, soundscape.ref_db, soundscape.background.source_file[-12:]) == (
            0.1,
            -50,
            "brownian.wav",
        )
        truth = [tuple(row)[1:4] for row in soundscape.labels()]
        assert [row[2] for row in truth] == [row[2] for row in published]
        np.testing.assert_allclose([r[:2] for r in truth], [r[:2] for r in published], atol=2e-6)


def test_the_table_of_events_holds_the_published_truth_to_the_millisecond(shared):
    path = shared / "urbansed" / "events.csv.gz"
    plan = {soundscape.name: soundscape for soundscape in plan_from(path)}
    assert len(plan) == 10_000
    truth = {name: [tuple(row)[1:4] for row in soundscape.labels()] for name, soundscape in plan.items()}
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    assert sum(map(len, truth.values())) == len(rows) == 49_831
    for row in rows:
        onset, offset = float(row["time"]), float(row["time"]) + float(row["dur"])
        assert any(
            abs(onset - a) < 1e-3 and abs(offset - b) < 1e-3 and row["label"] == c for a, b, c in truth[row["clip"]]
        )
    for original in (shared / "urbansed" / "original" / "annotations").glob("*/*.jams"):
        mine = [r[:2] for r in truth[original.stem]]
        np.testing.assert_allclose(mine, [tuple(r)[1:3] for r in read_jams(original).labels()], atol=1e-3)


def test_real_soundscapes_use_real_sources_and_never_cross_splits(shared, tmp_path):
    root = shared / "urbansed"
    bank = FolderBank(root / "soundbank")
    plan = [bank.resolved(soundscape) for soundscape in plan_from(root / "events.csv.gz", clips=300)]
    folds = {
        split: {e.source_file.split("/")[0] for s in plan if s.split == split for e in s.events} for split in SPLITS
    }
    assert folds == {"train": {"fold1", "fold2"}, "validate": {"fold3"}, "test": {"fold10"}}
    for soundscape in plan:
        for event in soundscape.events:
            assert event.source_file.split("/")[1] == event.label
    summary = synthesise(root / "events.csv.gz", tmp_path / "out", bank=bank, clips=5, workers=1)
    assert summary.clips == {"train": 3, "validate": 1, "test": 1}
    for path in Path(tmp_path / "out").rglob("*.flac"):
        assert soundfile.info(path).frames == 441_000
