"""Many recordings: a job with a ledger, which loses nothing to damaged files, kills and full disks."""

import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fake_scorer import EnergyScorer, bursts

from earmark import audio
from earmark.detection.detector import SoundDetector
from earmark.detection.job import run_job
from earmark.detection.ledger import DIED_TWICE, Ledger
from earmark.errors import ArgumentError, DataError
from earmark.events import Decoder
from earmark.files import written_whole
from earmark.formats import FORMATS, read_labels
from earmark.pooling import create_pool


def model(**options):
    return SoundDetector(EnergyScorer(**options))


@pytest.fixture
def recordings(tmp_path):
    """Five recordings, of which three share a name in some way."""
    folder = tmp_path / "recordings"
    for number, name in enumerate(["a.wav", "a.flac", "night 1/a.wav", "night 1/b.wav", "night 2/c.wav"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        audio.write(folder / name, bursts(4, (1, 1.5 + number / 4)), 8000)
    return folder


def files_of(out, besides=("ledger.sqlite", "job.json", ".lock")):
    """What a job has left, by place; without what tells the time or the command."""
    found = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in besides}


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_job_leaves_what_its_folder_promises(recordings, tmp_path):
    out = tmp_path / "out"
    report = run_job(model(), [recordings], out, formats=["tsv", "raven"], command="earmark detect")
    assert (report.files, report.done, report.failed, report.kept) == (5, 5, 0, 0)
    names = ["a.flac", "a.wav", "night 1/a.wav", "night 1/b.wav", "night 2/c.wav"]
    wanted = {f"events/{name}{suffix}" for name in names for suffix in (".tsv", ".selections.txt")}
    assert set(files_of(out)) == wanted | {"events.csv"}
    merged = read_labels(out / "events.csv")
    assert list(merged.filenames) == names
    assert len(merged) == report.events
    own = read_labels(out / "events" / "night 1" / "a.wav.tsv")
    assert tuple(own) == merged.of("night 1/a.wav")
    assert own.classes == ("loud", "quiet")
    about = json.loads((out / "job.json").read_text())
    assert about["fingerprint"] == "energy"
    assert about["decoder"] == Decoder().to_dict()
    assert report.hours == pytest.approx(20 / 3600)
    assert json.dumps(report.to_dict())


@pytest.mark.parametrize("format", [entry.name for entry in FORMATS])
def test_every_format_can_be_asked_for(format, tmp_path):
    audio.write(tmp_path / "a.wav", bursts(2, (0.5, 1)), 8000)
    audio.write(tmp_path / "silent.wav", np.zeros(8000), 8000)
    scorer = EnergyScorer()
    scorer.classes = ("Bus", "Car")  # which the format of a challenge knows
    report = run_job(SoundDetector(scorer), [tmp_path], tmp_path / "out", formats=[format])
    assert report.failed == 0
    found = read_labels(tmp_path / "out" / "events" / f"a.wav{FORMATS[format].cls.suffix}", format)
    assert len(found) == 3


def test_jams_know_how_long_the_recording_is(tmp_path):
    audio.write(tmp_path / "a.wav", bursts(5, (1, 2)), 8000)
    run_job(model(), [tmp_path / "a.wav"], tmp_path / "out", formats=["jams"], decoder=Decoder(threshold=(0.5, 1.0)))
    document = json.loads((tmp_path / "out" / "events" / "a.wav.jams").read_text())
    assert document["file_metadata"]["duration"] == 5.0


def test_a_recording_without_events_is_still_said_to_be_heard(tmp_path):
    audio.write(tmp_path / "a.wav", np.zeros(8000), 8000)
    run_job(model(), [tmp_path / "a.wav"], tmp_path / "out", decoder=Decoder(threshold=(0.5, 1.0), min_duration=9))
    assert table(tmp_path / "out" / "events.csv") == [
        {"filename": "a.wav", "onset": "", "offset": "", "label": "", "confidence": ""}
    ]
    assert read_labels(tmp_path / "out" / "events.csv").filenames == ("a.wav",)


def test_what_is_done_is_not_run_again(recordings, tmp_path):
    out = tmp_path / "out"
    first = run_job(model(), [recordings], out)
    before = files_of(out)
    detector = model()
    again = run_job(detector, [recordings], out)
    assert (again.done, again.kept, again.events) == (0, 5, first.events)
    assert detector.scorer.calls == 0
    assert files_of(out) == before
    audio.write(recordings / "a.wav", bursts(3, (1, 2)), 8000)  # another file now
    assert (run_job(detector, [recordings], out).done, detector.scorer.calls > 0) == (1, True)
    (out / "events" / "a.wav.tsv").unlink()
    assert run_job(detector, [recordings], out).redecided == 1
    assert (out / "events" / "a.wav.tsv").exists()


def test_recordings_that_were_moved_are_not_run_again(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    kept = (tmp_path / "out" / "events.csv").read_bytes()
    moved = recordings.rename(tmp_path / "elsewhere")
    report = run_job(model(), [moved], tmp_path / "out")
    assert (report.done, report.kept) == (0, 5)
    assert (tmp_path / "out" / "events.csv").read_bytes() == kept


def test_folders_whose_names_collide_may_be_moved_together(tmp_path):
    for number, folder in enumerate(("a", "b")):
        (tmp_path / "survey" / folder).mkdir(parents=True)
        audio.write(tmp_path / "survey" / folder / "x.wav", bursts(4, (1, 1.5 + number)), 8000)
    run_job(model(), [tmp_path / "survey" / name for name in "ab"], tmp_path / "out")
    kept = (tmp_path / "out" / "events.csv").read_bytes()
    moved = (tmp_path / "survey").rename(tmp_path / "elsewhere")
    report = run_job(model(), [moved / "a", moved / "b"], tmp_path / "out")
    assert (report.done, report.kept) == (0, 2)
    assert (tmp_path / "out" / "events.csv").read_bytes() == kept


def test_recordings_of_two_recorders_are_not_mistaken_for_each_other(tmp_path):
    """They have the same name, size and time; the first card is put away."""
    for number, folder in enumerate(("card 1", "card 2")):
        (tmp_path / folder).mkdir()
        audio.write(tmp_path / folder / "x.wav", bursts(4, (1, 1.5 + number)), 8000)
        os.utime(tmp_path / folder / "x.wav", (10**9, 10**9))
    one, two = tmp_path / "card 1", tmp_path / "card 2"
    run_job(model(), [one], tmp_path / "out")
    one.rename(tmp_path / "away")
    report = run_job(model(), [two], tmp_path / "out")
    assert (report.done, report.kept) == (1, 0)
    run_job(model(), [two], tmp_path / "fresh")
    times = {
        (out, row["filename"], row["onset"], row["offset"])
        for out in ("out", "fresh")
        for row in table(tmp_path / out / "events.csv")
    }
    first, second, fresh = (
        {own[2:] for own in times if own[:2] == key}
        for key in (("out", "x.wav"), ("out", "card 2/x.wav"), ("fresh", "x.wav"))
    )
    assert second == fresh != first
    two.rename(tmp_path / "card 3")
    assert run_job(model(), [tmp_path / "card 3"], tmp_path / "out").kept == 1


def test_an_unreadable_recording_does_not_take_the_page_away_each_time(recordings, tmp_path):
    (recordings / "bad.wav").touch()
    out = tmp_path / "out"
    run_job(model(), [recordings], out)
    (out / "report.html").write_text("a page")
    assert run_job(model(), [recordings], out).failed == 1
    assert (out / "report.html").exists()
    (recordings / "bad.wav").write_bytes(b"nothing better")
    run_job(model(), [recordings], out)
    assert not (out / "report.html").exists()  # it said why


def test_a_recording_given_by_name_that_is_away_keeps_what_was_found(recordings, tmp_path):
    given, out = [recordings / "a.wav", recordings / "a.flac"], tmp_path / "out"
    run_job(model(), given, out, keep_scores=True)
    before = files_of(out)
    given[0].rename(tmp_path / "away.wav")
    report = run_job(model(), given, out, keep_scores=True)
    assert (report.kept, report.gone, report.failed) == (1, 1, 0)
    assert {row["filename"] for row in table(out / "events.csv")} == {"a.flac"}
    (tmp_path / "away.wav").rename(given[0])
    assert run_job(model(), given, out, keep_scores=True).kept == 2
    assert files_of(out) == before


@pytest.mark.parametrize("place", ["out", "recordings/out"])
def test_recordings_that_were_copied_with_their_job_are_not_counted_twice(place, recordings, tmp_path):
    project = tmp_path / os.fsdecode(b"caf\xe9")
    project.mkdir()
    recordings = recordings.rename(project / "recordings")
    first = run_job(model(), [recordings], project / place)
    copy = Path(shutil.copytree(project, tmp_path / "copy"))
    kept = (copy / place / "events.csv").read_bytes()
    report = run_job(model(), [copy / "recordings" / "night 1"], copy / place)  # all of it, even so
    assert (report.done, report.kept, report.events) == (0, 2, first.events)
    report = run_job(model(), [copy / "recordings"], copy / place)
    assert (report.done, report.kept, report.events) == (0, 5, first.events)
    assert (copy / place / "events.csv").read_bytes() == kept
    with Ledger(copy / place / "ledger.sqlite", read_only=True) as ledger:
        assert {entry.path.is_relative_to(copy) for entry in ledger.entries()} == {True}
    audio.write(copy / "recordings" / "a.wav", bursts(3, (1, 2)), 8000)  # changed in the copy: one row all the same
    assert (run_job(model(), [copy / "recordings"], copy / place).done, report.events) == (1, first.events)
    assert run_job(model(), [recordings], project / place).kept == 5  # where it was copied from, all is as it was


def test_a_job_that_was_moved_alone_still_knows_its_recordings(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    (tmp_path / "b" / "recordings").mkdir(parents=True)
    audio.write(tmp_path / "b" / "recordings" / "a.wav", bursts(1), 8000)  # another one, in the same place beside it
    out = (tmp_path / "out").rename(tmp_path / "b" / "out")
    report = run_job(model(), [recordings], out)
    assert (report.files, report.kept) == (5, 5)
    assert len(read_labels(out / "events.csv").filenames) == 5


def test_a_recording_that_failed_and_is_gone_is_forgotten(recordings, tmp_path):
    (recordings / "memo.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(60))
    report = run_job(model(), [recordings], tmp_path / "out")
    assert (report.files, report.done, report.failed) == (6, 5, 1)
    assert report.trouble.startswith("memo.m4a: holds MP4")
    (failed,) = table(tmp_path / "out" / "failed.csv")
    assert failed["filename"] == "memo.m4a"
    run_job(model(), [recordings / "night 1"], tmp_path / "out")
    assert table(tmp_path / "out" / "failed.csv") == [failed]  # not asked for, and still there
    audio.write(recordings / "memo.flac", bursts(1), 8000)
    (recordings / "memo.m4a").unlink()
    report = run_job(model(), [recordings], tmp_path / "out")
    assert (report.done, report.kept, report.failed, report.trouble) == (1, 5, 0, None)
    assert not (tmp_path / "out" / "failed.csv").exists()


def test_other_formats_are_written_from_the_ledger(recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings], out, formats=["tsv"])
    detector = model()
    report = run_job(detector, [recordings], out, formats=["audacity"])
    assert (report.redecided, detector.scorer.calls) == (5, 0)
    run_job(model(), [recordings], tmp_path / "fresh", formats=["tsv", "audacity"])
    assert files_of(out) == files_of(tmp_path / "fresh")  # those of before are as true as they were


def test_what_somebody_has_corrected_is_not_lost(recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings], out, formats=["audacity"])
    (out / "report.html").write_text("a page")
    mine = out / "events" / "a.wav.txt"
    mine.write_text("0.0\t1.0\towl, I am sure\n")
    report = run_job(model(), [recordings], out, formats=["audacity", "tsv"])
    assert (report.redecided, report.edited, mine.read_text()) == (5, 0, "0.0\t1.0\towl, I am sure\n")
    assert (out / "report.html").exists()  # events are what they were
    for number in ("", "2"):  # decided otherwise: all is written anew
        report = run_job(
            model(), [recordings], out, formats=["audacity"], decoder=Decoder(threshold=0.4 + len(number) / 10)
        )
        assert (report.done, report.edited) == (5, 1)
        assert (out / "events" / f"a.wav.edited{number}.txt").read_text() == "0.0\t1.0\towl, I am sure\n"
        assert "owl" not in mine.read_text()
        assert not (out / "report.html").exists()
        assert not list(out.glob("events/**/*.tsv"))
        mine.write_text("0.0\t1.0\towl, I am sure\n")


def test_what_a_run_that_died_has_written_is_nobodys_correction(recordings, tmp_path, monkeypatch):
    """Files come before the ledger: killed between them, the next run finds its own."""
    out, other = tmp_path / "out", Decoder(threshold=0.4)
    run_job(model(), [recordings], out, formats=["audacity"])

    def die(*args, **options):
        raise SystemExit("killed")

    with monkeypatch.context() as patch:
        patch.setattr("earmark.detection.ledger.Ledger.finish", die)
        with pytest.raises(SystemExit):
            run_job(model(), [recordings], out, formats=["audacity"], decoder=other)
    report = run_job(model(), [recordings], out, formats=["audacity"], decoder=other)
    assert (report.done, report.edited) == (5, 0)
    assert not list(out.glob("events/**/*.edited*"))


def test_kept_scores_are_decided_on_anew_without_running(recordings, tmp_path):
    out, decoder = tmp_path / "out", Decoder(threshold=0.3, min_duration=0.6)
    run_job(model(), [recordings], out, keep_scores=True)
    detector = model()
    report = run_job(detector, [recordings], out, keep_scores=True, decoder=decoder)
    assert (report.redecided, report.done, detector.scorer.calls) == (5, 0, 0)
    run_job(model(), [recordings], tmp_path / "fresh", keep_scores=True, decoder=decoder)
    assert files_of(out) == files_of(tmp_path / "fresh")


def test_one_table_is_decided_in_one_way(recordings, tmp_path):
    run_job(model(), [recordings / "a.wav"], tmp_path / "out", decoder=Decoder(threshold=0.9))
    about = (tmp_path / "out" / "job.json").read_bytes()
    message = (
        r"holds 1 other recording, such as a.wav, decided with other settings; name it too, or choose another folder"
    )
    with pytest.raises(ArgumentError, match=message):
        run_job(model(), [recordings / "night 1"], tmp_path / "out", formats=["audacity"])
    assert (tmp_path / "out" / "job.json").read_bytes() == about  # what is refused changes nothing
    assert list(read_labels(tmp_path / "out" / "events.csv").filenames) == ["a.wav"]
    assert run_job(model(), [recordings], tmp_path / "out").done == 5
    message = r"holds 3 other recordings, such as .*; name them too, or"
    with pytest.raises(ArgumentError, match=message):
        run_job(model(), [recordings / "night 1"], tmp_path / "out", decoder=Decoder(threshold=0.9))


def interrupt_after(number):
    def interrupt(progress):
        if progress.settled == number:
            raise KeyboardInterrupt

    return interrupt


@pytest.mark.parametrize("keep_scores", [False, True])
def test_interrupted_with_other_settings_the_table_holds_what_was_decided_with_them_alone(
    keep_scores, recordings, tmp_path
):
    out, other = tmp_path / "out", Decoder(threshold=0.9)
    wanted = {"workers": 1, "keep_scores": keep_scores}
    run_job(model(), [recordings], out, **wanted)
    first = files_of(out)
    with pytest.raises(KeyboardInterrupt):
        run_job(model(), [recordings], out, decoder=other, hook=interrupt_after(2), **wanted)
    run_job(model(), [recordings], tmp_path / "fresh", decoder=other, **wanted)
    fresh, found = read_labels(tmp_path / "fresh" / "events.csv"), read_labels(out / "events.csv")
    assert len(found.filenames) == 2
    for name in found.filenames:
        assert found.of(name) == fresh.of(name)
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        counts = ledger.counts()
        assert (counts["done"], counts["pending"] + counts["running"]) == (2, 3)
    report = run_job(model(), [recordings / found.filenames[0]], out, decoder=other, **wanted)
    assert (report.kept, report.waiting) == (1, 3)
    assert len(read_labels(out / "events.csv").filenames) == 2
    shutil.copytree(out, tmp_path / "back")
    report = run_job(model(), [recordings], out, decoder=other, **wanted)
    assert (report.kept, report.done + report.redecided, report.waiting) == (2, 3, 0)
    assert files_of(out) == files_of(tmp_path / "fresh")
    report = run_job(
        model(), [recordings], tmp_path / "back", **wanted
    )  # as it was: only what was touched is done again
    assert report.kept >= 2
    assert files_of(tmp_path / "back") == first


def test_killed_with_other_settings_the_table_is_not_out_of_date(recordings, tmp_path):
    def die(progress):
        raise SystemExit("killed")

    run_job(model(), [recordings], tmp_path / "out")
    with pytest.raises(SystemExit):
        run_job(model(), [recordings], tmp_path / "out", decoder=Decoder(threshold=0.9), hook=die)
    assert table(tmp_path / "out" / "events.csv") == []


def test_interrupted_while_more_is_written_no_row_is_missing(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    kept = (tmp_path / "out" / "events.csv").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run_job(model(), [recordings], tmp_path / "out", keep_scores=True, workers=1, hook=interrupt_after(2))
    assert (tmp_path / "out" / "events.csv").read_bytes() == kept
    assert run_job(model(), [recordings], tmp_path / "out", keep_scores=True).done == 3


def test_a_recording_that_changed_and_was_not_heard_to_the_end_is_run_again(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out", keep_scores=True)
    audio.write(recordings / "a.wav", bursts(3, (1, 2)), 8000)

    class Interrupted(EnergyScorer):
        def score(self, samples):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(SoundDetector(Interrupted()), [recordings], tmp_path / "out", keep_scores=True)
    report = run_job(model(), [recordings], tmp_path / "out", keep_scores=True, decoder=Decoder(threshold=0.4))
    assert (report.done, report.redecided) == (1, 4)
    run_job(model(), [recordings], tmp_path / "fresh", keep_scores=True, decoder=Decoder(threshold=0.4))
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


@pytest.mark.parametrize("name", ["events", "presence"])
def test_a_table_that_somebody_has_corrected_is_not_lost(name, recordings, tmp_path):
    detector, out = model(), tmp_path / "out"
    detector.pool = create_pool("max", 2)
    run_job(detector, [recordings], out, presence=1.0)
    mine, own = out / f"{name}.csv", (out / f"{name}.csv").read_bytes()
    for number in ("", "2"):
        mine.write_text(f"filename,label\na.wav,owl {number}\n")
        report = run_job(detector, [recordings], out, presence=1.0)
        assert (report.kept, report.edited) == (5, 1)
        assert (out / f"{name}.edited{number}.csv").read_text() == f"filename,label\na.wav,owl {number}\n"
        assert mine.read_bytes() == own
    audio.write(recordings / "b.wav", bursts(1), 8000)
    assert run_job(detector, [recordings], out, presence=1.0).edited == 0  # the job's own


def test_a_table_that_was_written_right_before_a_death_is_nobodys_correction(recordings, tmp_path, monkeypatch):
    run_job(model(), [recordings], tmp_path / "out")
    audio.write(recordings / "b.wav", bursts(1), 8000)

    def die(source, target):
        if Path(target).name == "events.csv":
            raise SystemExit("killed")
        replace(source, target)

    replace = os.replace
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(SystemExit):
            run_job(model(), [recordings], tmp_path / "out")
    assert run_job(model(), [recordings], tmp_path / "out").edited == 0
    assert not list((tmp_path / "out").glob("*.edited*"))


def test_a_file_where_events_are_to_be_written_is_not_lost(recordings, tmp_path):
    mine = tmp_path / "out" / "events" / "a.wav.txt"
    run_job(model(), [recordings], tmp_path / "out")
    mine.write_text("somebody's")
    assert run_job(model(), [recordings], tmp_path / "out", formats=["tsv", "audacity"]).edited == 1
    assert mine.with_name("a.wav.edited.txt").read_text() == "somebody's"
    assert "loud" in mine.read_text()


def test_a_recording_that_is_gone_is_left_out_and_comes_back_at_no_cost(recordings, tmp_path):
    out, away = tmp_path / "out", tmp_path / "away.wav"
    first = run_job(model(), [recordings], out)
    kept = (out / "events.csv").read_bytes()
    (recordings / "night 2" / "c.wav").rename(away)
    report = run_job(model(), [recordings / "night 1"], out)  # which says nothing about the other
    assert (report.gone, report.events) == (0, first.events)
    report = run_job(model(), [recordings], out)
    assert (report.files, report.kept, report.gone) == (4, 4, 1)
    assert "night 2/c.wav" not in read_labels(out / "events.csv").filenames
    assert (out / "events" / "night 2" / "c.wav.tsv").exists()
    assert run_job(model(), [recordings], out).gone == 0  # said once
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.counts() == {"pending": 0, "running": 0, "done": 4, "failed": 0}
    away.rename(recordings / "night 2" / "c.wav")
    report = run_job(model(), [recordings], out)
    assert (report.kept, report.events) == (5, first.events)
    assert (out / "events.csv").read_bytes() == kept


def test_a_recording_that_is_gone_does_not_stand_in_the_way_of_other_settings(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    (recordings / "night 2" / "c.wav").rename(tmp_path / "away.wav")
    wanted = {"decoder": Decoder(threshold=0.9)}
    message = r"1 other recording, such as night 2/c.wav, decided with other settings; .*c\.wav is not there: give its "
    with pytest.raises(ArgumentError, match=message + "folder too, mount its disk, or choose another folder"):
        run_job(model(), [path for path in recordings.rglob("*") if path.is_file()], tmp_path / "out", **wanted)
    report = run_job(model(), [recordings], tmp_path / "out", **wanted)
    assert (report.done, report.gone) == (4, 1)
    (tmp_path / "away.wav").rename(recordings / "night 2" / "c.wav")
    mine = tmp_path / "out" / "events" / "night 2" / "c.wav.tsv"
    mine.write_text("somebody's")
    report = run_job(model(), [recordings], tmp_path / "out", **wanted)
    assert (report.done, report.kept, report.edited) == (1, 4, 1)
    run_job(model(), [recordings], tmp_path / "fresh", **wanted)
    assert (tmp_path / "out" / "events.csv").read_bytes() == (tmp_path / "fresh" / "events.csv").read_bytes()


def test_recordings_on_a_disk_that_is_not_mounted_are_kept(recordings, tmp_path):
    disk = recordings.rename(tmp_path / "disk")
    other = tmp_path / "other"
    other.mkdir()
    audio.write(other / "x.wav", bursts(1), 8000)
    first = run_job(model(), [disk, other], tmp_path / "out")
    disk.rename(tmp_path / "ejected")
    disk.mkdir()
    for given in ([disk, other], [disk, disk / "gone.wav", other]):
        report = run_job(model(), given, tmp_path / "out")
        assert (report.gone, report.events) == (0, first.events)
    with pytest.raises(
        ArgumentError, match=r"holds 5 other recordings, such as a\.flac, .*a\.flac is not there: give its"
    ):
        run_job(model(), [disk, other], tmp_path / "out", decoder=Decoder(threshold=0.9))
    with pytest.raises(DataError, match="there are no files of sound in what was given"):
        run_job(model(), [disk], tmp_path / "out")


def test_what_cannot_be_looked_at_is_not_gone(recordings, tmp_path, monkeypatch):
    first = run_job(model(), [recordings], tmp_path / "out")
    (recordings / "night 1" / "a.wav").unlink()
    lstat = os.lstat

    def closed(path, **options):
        if "night 1" in os.fspath(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return lstat(path, **options)

    monkeypatch.setattr("earmark.detection.inputs.os.lstat", closed)
    report = run_job(model(), [recordings], tmp_path / "out")
    assert (report.files, report.gone, report.events) == (4, 0, first.events)


def test_where_nothing_given_is_there_no_folder_is_made(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: there is no such file or folder$"):
        run_job(model(), [tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(DataError, match=r"nowhere: there is no such file or folder, nor are the 2 others$"):
        run_job(model(), [tmp_path / name for name in ("nowhere", "a.wav", "b.wav")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_views_of_other_events_are_taken_away(recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings], out)
    (out / "figures" / "night 1").mkdir(parents=True)
    for name in ("report.html", "figures/a.png", "figures/night 1/a.wav_0-4s.png", "figures/night 1/a.wav_0-4s.svg"):
        (out / name).write_text("of these events")
    run_job(model(), [recordings], out)
    assert (out / "report.html").exists()
    run_job(model(), [recordings], out, decoder=Decoder(threshold=0.9))
    assert not (out / "report.html").exists()
    assert not list((out / "figures").iterdir())


def test_without_kept_scores_another_decoder_runs_again(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    assert run_job(model(), [recordings], tmp_path / "out", decoder=Decoder(threshold=0.4)).done == 5
    assert run_job(model(), [recordings], tmp_path / "out", decoder=Decoder(threshold=0.4), keep_scores=True).done == 5
    kept = tmp_path / "out" / "scores" / "a.wav.npz"
    kept.write_bytes(b"damaged")
    report = run_job(model(), [recordings], tmp_path / "out", keep_scores=True)
    assert (report.redecided, report.done) == (4, 1)
    assert kept.stat().st_size > 100


def test_presence_is_pooled_by_the_models_operator(tmp_path):
    audio.write(tmp_path / "a.wav", bursts(10, (1, 2)), 8000)
    audio.write(tmp_path / "b.wav", bursts(3, (1, 2)), 8000)
    detector = model()
    detector.pool = create_pool("max", 2)
    out = tmp_path / "out"
    run_job(detector, [tmp_path / "a.wav", tmp_path / "b.wav"], out, presence=4.0, keep_scores=True)
    rows = table(out / "presence.csv")
    assert [(r["filename"], float(r["onset"]), float(r["offset"])) for r in rows] == [
        ("a.wav", 0, 4),
        ("a.wav", 4, 8),
        ("a.wav", 8, 10),
        ("b.wav", 0, 3),
    ]
    assert [round(float(r["loud"]), 2) for r in rows] == [1, 0, 0, 1]
    calls = detector.scorer.calls
    run_job(detector, [tmp_path / "a.wav", tmp_path / "b.wav"], out, presence=float("inf"), keep_scores=True)
    assert [float(r["offset"]) for r in table(out / "presence.csv")] == [10, 3]
    assert json.loads((out / "job.json").read_text())["presence"] == "recording"
    assert detector.scorer.calls == calls
    with pytest.raises(ArgumentError, match=r"presence must be at least the 0.040 s between frames, found 0.01 s"):
        run_job(detector, [tmp_path], out, presence=0.01)


def test_what_is_no_longer_asked_for_costs_nothing_and_stays(recordings, tmp_path):
    detector, out = model(), tmp_path / "out"
    detector.pool = create_pool("max", 2)
    assert run_job(detector, [recordings], out, presence=1.0).presence == 5
    kept, calls = (out / "presence.csv").read_bytes(), detector.scorer.calls
    (out / "report.html").write_text("a page")
    plain = model()  # has no pool, and needs none
    report = run_job(plain, [recordings], out)
    assert (report.kept, report.presence, plain.scorer.calls) == (5, 5, 0)
    assert (out / "presence.csv").read_bytes() == kept
    assert (out / "report.html").exists()
    assert json.loads((out / "job.json").read_text())["presence"] == 1.0
    report = run_job(model(), [recordings], out, decoder=Decoder(threshold=0.9))  # probabilities are what they were
    assert (report.done, report.presence) == (5, 5)
    assert (out / "presence.csv").read_bytes() == kept
    audio.write(recordings / "b.wav", bursts(1), 8000)
    audio.write(recordings / "a.wav", bursts(2), 8000)  # another one now
    wanted = {"decoder": Decoder(threshold=0.9)}
    report = run_job(model(), [recordings], out, **wanted)
    assert (report.done, report.presence) == (2, 4)
    assert {row["filename"] for row in table(out / "presence.csv")} == {
        "a.flac",
        "night 1/a.wav",
        "night 1/b.wav",
        "night 2/c.wav",
    }
    report = run_job(detector, [recordings], out, presence=1.0, **wanted)
    assert (report.done, report.kept, report.presence) == (2, 4, 6)
    assert detector.scorer.calls > calls
    (out / "presence.csv").unlink()
    assert run_job(model(), [recordings], out, **wanted).presence is None
    assert not (out / "presence.csv").exists()
    assert json.loads((out / "job.json").read_text())["presence"] is None
    assert run_job(detector, [recordings], out, presence=1.0, **wanted).kept == 6


def test_a_table_of_presence_of_which_nothing_is_true_is_taken_away(tmp_path):
    detector, path, out = model(), tmp_path / "a.wav", tmp_path / "out"
    detector.pool = create_pool("max", 2)
    audio.write(path, bursts(2), 8000)
    run_job(detector, [path], out, presence=1.0)
    audio.write(path, bursts(3), 8000)
    assert run_job(model(), [path], out).presence is None
    assert not (out / "presence.csv").exists()


def test_presence_over_other_stretches_is_never_mixed(recordings, tmp_path):
    detector, out = model(), tmp_path / "out"
    detector.pool = create_pool("max", 2)
    run_job(detector, [recordings], out, presence=1.0, keep_scores=True)
    (out / "report.html").write_text("a page")
    mine = out / "events" / "a.wav.tsv"
    mine.write_text("corrected")
    report = run_job(detector, [recordings / "a.wav"], out, presence=2.0)
    assert (report.redecided, report.presence, report.edited) == (1, 1, 0)
    assert [row["offset"] for row in table(out / "presence.csv")] == ["2.0", "4.0"]
    assert mine.read_text() == "corrected"  # events are what they were
    assert (out / "report.html").exists()
    assert run_job(detector, [recordings], out, presence=2.0).redecided == 4


@pytest.fixture
def matrix(tmp_path, rng):
    """What people have in their folders; by name, with a part of what is said about it (None: it is fine)."""
    folder = tmp_path / "matrix"
    folder.mkdir()
    noise = rng.normal(size=96000) * 0.1
    soundfile.write(folder / "stereo.mp3", np.stack([noise, noise], 1)[:16000], 8000)
    audio.write(folder / "silent.wav", np.zeros(44100), 44100)
    audio.write(folder / "short.wav", noise[:3200], 16000)
    audio.write(folder / "shortest.wav", noise[:1], 8000)
    audio.write(folder / "deep.flac", noise, 96000, subtype="PCM_24")
    (folder / "empty.wav").touch()
    audio.write(folder / "cut.flac", noise, 8000)
    os.truncate(folder / "cut.flac", (folder / "cut.flac").stat().st_size // 2)
    audio.write(folder / "lying.wav", noise, 8000)
    data = bytearray((folder / "lying.wav").read_bytes())
    data[40:44] = (10**8).to_bytes(4, "little")
    (folder / "lying.wav").write_bytes(data)
    (folder / "letter.wav").write_text("Dear sir, this is no sound. " * 9)
    (folder / "folder.wav").mkdir()
    return folder, {
        "empty.wav": "is empty: 0 bytes",
        "cut.flac": "truncated",
        "lying.wav": "truncated: expected 100000000 bytes of samples",
        "letter.wav": "holds text",
    }


def test_bad_input_is_a_line_each_and_costs_nothing_else(matrix, tmp_path):
    folder, bad = matrix
    out = tmp_path / "out"
    report = run_job(model(), [folder, folder / "gone.wav", folder / "notes.xyz"], out, keep_scores=True)
    assert (report.done, report.failed) == (5, len(bad) + 2)
    failed = {row["filename"]: row["reason"] for row in table(out / "failed.csv")}
    assert failed.keys() == {*bad, "gone.wav", "notes.xyz"}
    for name, reason in bad.items():
        assert reason in failed[name]
        assert str(folder) not in failed[name]  # the name is there already
    assert failed["gone.wav"] == failed["notes.xyz"] == "there is no such file"
    merged = read_labels(out / "events.csv")
    assert merged.filenames == ("deep.flac", "short.wav", "shortest.wav", "silent.wav", "stereo.mp3")
    assert {path.name for path in (out / "scores").iterdir()} == {f"{name}.npz" for name in merged.filenames}
    audio.write(folder / "cut.flac", bursts(2), 8000)  # mended
    (folder / "silent.wav").write_bytes(b"")  # and broken
    report = run_job(model(), [folder], out, keep_scores=True)
    assert (report.done, report.kept, report.failed) == (1, 4, 4)
    assert not (out / "events" / "silent.wav.tsv").exists()
    assert not (out / "scores" / "silent.wav.npz").exists()


def test_a_folder_that_cannot_be_looked_into_is_a_line_and_costs_nothing_else(recordings, tmp_path, monkeypatch):
    def scan(place):
        if Path(os.fsdecode(place)).name in closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(place))  # which root never meets
        return scandir(place)

    (recordings / "lost+found").mkdir()
    closed, scandir, out = {"lost+found"}, os.scandir, tmp_path / "out"
    monkeypatch.setattr(os, "scandir", scan)
    report = run_job(model(), [recordings], out)
    assert (report.files, report.done, report.failed) == (6, 5, 1)
    reason = "cannot be listed: Permission denied"
    assert report.trouble == f"lost+found: {reason}"
    assert table(out / "failed.csv") == [{"filename": "lost+found", "reason": reason}]
    report = run_job(model(), [recordings / "night 1"], out)  # which says nothing about the other
    assert (report.kept, report.failed) == (2, 0)
    assert table(out / "failed.csv") == [{"filename": "lost+found", "reason": reason}]
    closed.clear()
    report = run_job(model(), [recordings], out)
    assert (report.files, report.kept, report.failed) == (5, 5, 0)
    assert not (out / "failed.csv").exists()
    closed.add(recordings.name)  # the one that was given
    report = run_job(model(), [recordings], tmp_path / "none")
    assert (report.files, report.failed, report.trouble) == (1, 1, f"{recordings.name}: {reason}")


def test_what_breaks_in_the_scorer_names_the_file_only(recordings, tmp_path):
    class Broken(EnergyScorer):
        def score(self, samples):
            if samples.max() > 0 and len(samples) < 25000:
                raise RuntimeError("out\nof memory")
            return super().score(samples)

    audio.write(recordings / "b.wav", bursts(1, (0, 1)), 8000)
    report = run_job(SoundDetector(Broken()), [recordings / "b.wav", recordings / "a.wav"], tmp_path / "out", span=9e9)
    assert report.failed >= 1
    assert table(tmp_path / "out" / "failed.csv")[-1]["reason"] == "RuntimeError: out of memory"


def test_strange_names_come_through(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    names = [b"a b.wav", "ünï.wav".encode(), b"new\nline.wav", b"\"quoted'.wav", b"caf\xe9.wav", b"x" * 240 + b".wav"]
    for name in names:
        audio.write(Path(os.fsdecode(os.path.join(os.fsencode(folder), name))), bursts(1, (0.2, 0.6)), 8000)
    out = tmp_path / "out"
    report = run_job(model(), [folder], out, formats=["tsv", "raven", "audacity", "jams", "csv", "json"])
    assert (report.done, report.failed) == (6, 0)
    wanted = {"a b.wav", "ünï.wav", "new%0Aline.wav", "\"quoted'.wav", "caf%E9.wav", "x" * 240 + ".wav"}
    assert set(read_labels(out / "events.csv").filenames) == wanted
    assert len(list((out / "events").iterdir())) == 36
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert {os.fsencode(entry.path.name) for entry in ledger.entries()} == set(names)
    assert run_job(model(), [folder], out, formats=["tsv", "raven", "audacity", "jams", "csv", "json"]).kept == 6


def test_workers_and_spans_change_nothing(recordings, tmp_path):
    audio.write(recordings / "long.flac", bursts(60, (3, 7), (30, 33.3), (59, 60)), 8000)
    run_job(model(), [recordings], tmp_path / "1", workers=1, keep_scores=True)
    run_job(model(), [recordings], tmp_path / "2", workers=3, keep_scores=True, span=5.0)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")


def test_progress_is_told_in_hours(recordings, tmp_path):
    seen = []
    run_job(model(), [recordings], tmp_path / "out", hook=seen.append, workers=1)
    assert [p.hours for p in seen] == sorted(p.hours for p in seen)
    assert seen[-1].settled == seen[-1].files == 5
    assert seen[-1].hours == pytest.approx(seen[-1].total_hours)
    assert all(p.total_hours >= p.hours for p in seen)


def test_a_folder_of_another_model_or_of_something_else_is_refused(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    with pytest.raises(ArgumentError, match=r"holds a job of another model .*; choose another folder"):
        run_job(model(fingerprint="other"), [recordings], tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.csv").write_text("precious")
    with pytest.raises(ArgumentError, match=r"holds events\.csv, and is no folder of a detection job"):
        run_job(model(), [recordings], tmp_path / "mine")
    with pytest.raises(DataError, match="there are no files of sound"):
        run_job(model(), [tmp_path / "mine"], tmp_path / "x")
    with pytest.raises(ArgumentError, match="threshold is given for 3 classes, but there are 2"):
        run_job(model(), [recordings], tmp_path / "x", decoder=Decoder(threshold=(0.1, 0.2, 0.3)))
    assert not (tmp_path / "x").exists()


def test_two_processes_do_not_run_the_same_job(recordings, tmp_path):
    pytest.importorskip("fcntl")

    def nest(progress):
        with pytest.raises(ArgumentError, match="another process is running this job"):
            run_job(model(), [recordings], tmp_path / "out")

    assert run_job(model(), [recordings], tmp_path / "out", hook=nest).done == 5


def test_a_full_disk_is_one_line_and_what_was_done_is_kept(recordings, tmp_path, monkeypatch):
    from earmark.formats import text

    written = []

    def full(path):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        return written_whole(path)

    monkeypatch.setattr(text, "written_whole", full)
    with pytest.raises(DataError, match="out: cannot be written to: No space left on device; what is done is kept"):
        run_job(model(), [recordings], tmp_path / "out", workers=1)
    with Ledger(tmp_path / "out" / "ledger.sqlite") as ledger:
        assert ledger.counts() == {"pending": 3, "running": 0, "done": 2, "failed": 0}
    monkeypatch.undo()
    report = run_job(model(), [recordings], tmp_path / "out")
    assert (report.done, report.kept) == (3, 2)
    run_job(model(), [recordings], tmp_path / "fresh")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


def test_a_disk_that_is_really_full(recordings, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with pytest.raises(DataError, match=r"cannot be written to: No space left|database or disk is full"):
            run_job(model(), [recordings], place / "out", formats=["tsv", "jams", "json", "raven"], keep_scores=True)
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_ctrl_c_ends_in_good_order_and_the_next_run_goes_on(recordings, tmp_path):
    def interrupt(progress):
        if progress.settled == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(model(), [recordings], tmp_path / "out", hook=interrupt, workers=1)
    with Ledger(tmp_path / "out" / "ledger.sqlite") as ledger:
        assert ledger.counts() == {"pending": 3, "running": 0, "done": 2, "failed": 0}
        assert ledger.recover() == []
    assert len(read_labels(tmp_path / "out" / "events.csv").filenames) == 2
    assert run_job(model(), [recordings], tmp_path / "out").kept == 2


def test_a_file_that_changes_while_it_is_read_is_not_called_done(tmp_path):
    path = tmp_path / "a.wav"
    audio.write(path, bursts(2), 8000)

    class Slow(EnergyScorer):
        def score(self, samples):
            os.utime(path, (1, 1))
            return super().score(samples)

    run_job(SoundDetector(Slow()), [path], tmp_path / "out")
    assert table(tmp_path / "out" / "failed.csv")[0]["reason"].startswith("changed while it was read")
    assert run_job(model(), [path], tmp_path / "out").done == 1
    assert not (tmp_path / "out" / "failed.csv").exists()


JOB = """
import os, signal, sys, time
from pathlib import Path
from fake_scorer import EnergyScorer
from earmark.detection.detector import SoundDetector
from earmark.detection.job import run_job

class Deadly(EnergyScorer):
    def score(self, samples):
        time.sleep({pause})
        while len(list(Path(sys.argv[2]).glob("events/*.tsv"))) >= {most}:
            time.sleep(0.01)
        if abs(float(samples.max()) - 0.25) < 1e-3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(samples)

print("begun", flush=True)
run_job(SoundDetector(Deadly()), [sys.argv[1]], sys.argv[2], workers=2, keep_scores=True, formats=["tsv", "jams"])
"""


def start(folder, out, pause=0.0, most=1000):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", JOB.format(pause=pause, most=most), str(folder), str(out)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def test_killed_in_the_middle_a_job_ends_as_if_nothing_had_been(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(40):
        audio.write(folder / f"{k}.wav", bursts(1 + k / 20, (0.3, 0.5 + k / 40)), 8000)
    out = tmp_path / "out"
    process = start(folder, out, pause=0.02, most=30)  # then it waits, however late the kill comes
    process.stdout.readline()
    while process.poll() is None and len(list(out.glob("events/*.tsv"))) < 15:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (out / "events" / ".7.wav-abcdefg_.tsv").write_text("half of")  # as if it had been killed while writing
    mine = out / "events" / ".night-of_owls_.txt"
    mine.write_text("somebody's")
    process.stdout.close()
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        counts = ledger.counts()
        assert 10 <= counts["done"] < 40
        assert counts["done"] + counts["pending"] + counts["running"] == 40
    report = run_job(model(), [folder], out, keep_scores=True, formats=["tsv", "jams"])
    assert (report.kept, report.done, report.failed) == (counts["done"], 40 - counts["done"], 0)
    assert mine.read_text() == "somebody's"
    mine.unlink()
    run_job(model(), [folder], tmp_path / "fresh", keep_scores=True, formats=["tsv", "jams"])
    assert files_of(out) == files_of(tmp_path / "fresh")
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.counts()["done"] == 40
        assert [len(ledger.events(entry.path)) for entry in ledger.entries()] == [e.events for e in ledger.entries()]


def test_a_file_that_kills_the_process_twice_is_failed_and_blocks_nothing(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(6):
        audio.write(folder / f"{k}.wav", bursts(1, (0.2, 0.7)), 8000)
    audio.write(folder / "3.wav", 0.25 * np.ones(4000), 8000)
    out = tmp_path / "out"
    codes = []
    for _ in range(3):
        process = start(folder, out)
        codes.append(process.wait())
        process.stdout.close()
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert table(out / "failed.csv") == [{"filename": "3.wav", "reason": DIED_TWICE}]
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.counts() == {"pending": 0, "running": 0, "done": 5, "failed": 1}
    detector, wanted = model(), {"keep_scores": True, "formats": ["tsv", "jams"]}
    assert (run_job(detector, [folder], out, **wanted).failed, detector.scorer.calls) == (1, 0)
    assert run_job(detector, [folder], out, retry=True, **wanted).done == 1


def test_a_recording_that_failed_at_its_second_death_has_no_files_but_corrected_ones(recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings], out, formats=["tsv", "audacity"])
    path, mine = recordings / "a.wav", out / "events" / "a.wav.txt"
    mine.write_text("0.0\t1.0\towl\n")
    with Ledger(out / "ledger.sqlite") as ledger:
        for _ in range(2):  # and died
            ledger.recover()
            ledger.begin(path, path.stat())
    report = run_job(model(), [recordings], out, formats=["tsv", "audacity"])
    assert (report.failed, report.kept, report.edited) == (1, 4, 1)
    assert {name for name in files_of(out) if "events/a.wav" in name} == {"events/a.wav.edited.txt"}
    assert "a.wav" not in read_labels(out / "events.csv").filenames
    assert run_job(model(), [recordings], out, formats=["tsv", "audacity"], retry=True).done == 1
