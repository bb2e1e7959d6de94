"""Detection jobs: killed jobs continue, damaged files cost one line, and files of the user are never lost."""

import csv
import errno
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import warm
from fake_scorer import EnergyScorer, bursts
from in_process import call_here

from earmark import audio
from earmark.detection import job, spans
from earmark.detection.detector import SoundDetector
from earmark.detection.job import JobOptions
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import writing_views
from earmark.detection.spans import IsolatedExecutor, LocalExecutor, score_files
from earmark.errors import ArgumentError, DataError
from earmark.events import Decoder
from earmark.files import written_whole
from earmark.formats import FORMATS, read_labels
from earmark.ownership import sha256
from earmark.pooling import create_pool
from earmark.progress import ignore_progress

OTHER = Decoder(threshold=0.9)


def run_job(model, files, out, *, workers=None, on_progress=ignore_progress, **options):
    return job.run_job(model, files, out, JobOptions(**options), workers=workers, on_progress=on_progress)


def model(**options):
    scorer = EnergyScorer(**options)
    scorer.detector = SimpleNamespace(pool=create_pool("max", 2))
    return SoundDetector(scorer)


@pytest.fixture
def recordings(tmp_path):
    """Five recordings, of which three share a name in some way."""
    folder = tmp_path / "recordings"
    for number, name in enumerate(["a.wav", "a.flac", "night 1/a.wav", "night 1/b.wav", "night 2/c.wav"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        audio.write(folder / name, bursts(4, (1, 1.5 + number / 4)), 8000)
    return folder


def draw(path, text):
    """Write a figure or a report, as the packages that draw them do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as draft:
        draft.write_text(text)


def files_of(out, besides=("ledger.sqlite", "job.json", ".lock")):
    """Files of a job by relative path, without those that hold times or the command."""
    found = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in besides}


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def names_in(out):
    return list(read_labels(out / "events.csv").filenames)


def counts(out):
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        return ledger.counts()


def attempts(out):
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        return {entry.attempts for entry in ledger.entries()}


def interrupt_after(number):
    def interrupt(progress):
        if progress.detail.startswith(f"{number} of "):
            raise KeyboardInterrupt

    return interrupt


def die(*args, **options):
    raise SystemExit("killed")


def test_a_job_writes_what_its_folder_promises(recordings, tmp_path):
    out = tmp_path / "out"
    report = run_job(model(), [recordings], out, formats=["tsv", "raven"], command="earmark detect")
    assert (report.files, report.done, report.failed, report.kept) == (5, 5, 0, 0)
    names = ["a.flac", "a.wav", "night 1/a.wav", "night 1/b.wav", "night 2/c.wav"]
    wanted = {f"events/{name}{suffix}" for name in names for suffix in (".tsv", ".selections.txt")}
    assert set(files_of(out)) == wanted | {"events.csv"}
    merged = read_labels(out / "events.csv")
    assert (list(merged.filenames), len(merged)) == (names, report.events)
    own = read_labels(out / "events" / "night 1" / "a.wav.tsv")
    assert (tuple(own), own.classes) == (merged.of("night 1/a.wav"), ("loud", "quiet"))
    about = json.loads((out / "job.json").read_text())
    assert (about["fingerprint"], about["decoder"]) == ("energy", Decoder().to_dict())
    assert report.hours == pytest.approx(20 / 3600)
    assert json.dumps(report.to_dict())


def test_one_folder_need_not_be_in_a_list(recordings, tmp_path):
    assert run_job(model(), str(recordings), tmp_path / "out").files == 5


@pytest.mark.parametrize("format", [entry.name for entry in FORMATS])
def test_every_format_can_be_written(format, tmp_path):
    audio.write(tmp_path / "a.wav", bursts(5, (0.5, 1)), 8000)
    audio.write(tmp_path / "silent.wav", np.zeros(8000), 8000)
    scorer = EnergyScorer()
    scorer.classes = ("Bus", "Car")  # which the format of a challenge knows
    report = run_job(SoundDetector(scorer), [tmp_path], tmp_path / "out", formats=[format])
    assert report.failed == 0
    path = tmp_path / "out" / "events" / f"a.wav{FORMATS[format].cls.suffix}"
    assert len(read_labels(path, format)) == 3
    if format == "jams":
        assert json.loads(path.read_text())["file_metadata"]["duration"] == 5.0


def test_a_recording_without_events_has_a_row(tmp_path):
    audio.write(tmp_path / "a.wav", np.zeros(8000), 8000)
    run_job(model(), [tmp_path / "a.wav"], tmp_path / "out", decoder=Decoder(threshold=(0.5, 1.0), min_duration=9))
    assert table(tmp_path / "out" / "events.csv") == [
        {"filename": "a.wav", "onset": "", "offset": "", "label": "", "confidence": ""}
    ]
    assert names_in(tmp_path / "out") == ["a.wav"]


def test_what_is_done_is_not_scored_again(recordings, tmp_path):
    out, detector = tmp_path / "out", model()
    first = run_job(model(), [recordings], out)
    before = files_of(out)
    again = run_job(detector, [recordings], out)
    assert (again.done, again.kept, again.events, detector.scorer.calls) == (0, 5, first.events, 0)
    assert files_of(out) == before
    audio.write(recordings / "a.wav", bursts(3, (1, 2)), 8000)  # another file now
    assert (run_job(detector, [recordings], out).done, detector.scorer.calls > 0) == (1, True)
    (out / "events" / "a.wav.tsv").unlink()
    assert run_job(detector, [recordings], out).redecoded == 1
    assert (out / "events" / "a.wav.tsv").exists()


def test_other_formats_are_written_from_the_ledger(recordings, tmp_path):
    out, detector = tmp_path / "out", model()
    run_job(model(), [recordings], out, formats=["tsv"])
    report = run_job(detector, [recordings], out, formats=["audacity"])
    assert (report.redecoded, detector.scorer.calls) == (5, 0)
    run_job(model(), [recordings], tmp_path / "fresh", formats=["tsv", "audacity"])
    assert files_of(out) == files_of(tmp_path / "fresh")  # the old ones are still valid


def test_kept_scores_are_decoded_again(recordings, tmp_path):
    out, decoder, detector = tmp_path / "out", Decoder(threshold=0.3, min_duration=0.6), model()
    run_job(model(), [recordings], out, keep_scores=True)
    report = run_job(detector, [recordings], out, keep_scores=True, decoder=decoder)
    assert (report.redecoded, report.done, detector.scorer.calls) == (5, 0, 0)
    run_job(model(), [recordings], tmp_path / "fresh", keep_scores=True, decoder=decoder)
    assert files_of(out) == files_of(tmp_path / "fresh")
    (out / "scores" / "a.wav.npz").write_bytes(b"damaged")
    report = run_job(model(), [recordings], out, keep_scores=True)
    assert (report.redecoded, report.done, report.edited) == (4, 1, 1)
    assert run_job(model(), [recordings], tmp_path / "plain").done == 5
    assert run_job(model(), [recordings], tmp_path / "plain", decoder=decoder).done == 5  # nothing was kept


def test_replaced_events_are_mentioned(recordings, tmp_path):
    out, said = tmp_path / "out", "\n5 recordings detected earlier with other settings: events replaced"
    for decoder, n in ((None, 0), (None, 0), (OTHER, 5), (OTHER, 0)):
        report = run_job(model(), [recordings], out, decoder=decoder)
        assert report.replaced == n
        assert (said in str(report)) is bool(n)


# files of the user


def test_an_edited_file_is_kept(recordings, tmp_path):
    out, mine = tmp_path / "out", "0.0\t1.0\towl, I am sure\n"
    run_job(model(), [recordings], out, formats=["audacity"])
    path = out / "events" / "a.wav.txt"
    path.write_text(mine)
    report = run_job(model(), [recordings], out, formats=["audacity", "tsv"])
    assert (report.redecoded, report.edited, path.read_text()) == (5, 0, mine)
    for number in ("", "2"):  # with other settings, all files are written again
        decoder = Decoder(threshold=0.4 + len(number) / 10)
        report = run_job(model(), [recordings], out, formats=["audacity"], decoder=decoder)
        assert (report.done, report.edited) == (5, 1)
        assert (out / "events" / f"a.wav.edited{number}.txt").read_text() == mine
        assert "owl" not in path.read_text()
        assert not list(out.glob("events/**/*.tsv"))
        path.write_text(mine)
    (recordings / "a.wav").write_bytes(b"")  # its files are deleted, but for the edited one
    report = run_job(model(), [recordings], out, formats=["audacity"], decoder=decoder)
    assert (report.failed, report.edited, path.exists()) == (1, 1, False)
    assert (out / "events" / "a.wav.edited3.txt").read_text() == mine


@pytest.mark.parametrize("name", ["events", "presence"])
def test_an_edited_table_is_kept(name, recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings], out, presence=1.0)
    path, own = out / f"{name}.csv", (out / f"{name}.csv").read_bytes()
    for number in ("", "2"):
        path.write_text(f"filename,label\na.wav,owl {number}\n")
        report = run_job(model(), [recordings], out, presence=1.0)
        assert (report.kept, report.edited) == (5, 1)
        assert (out / f"{name}.edited{number}.csv").read_text() == f"filename,label\na.wav,owl {number}\n"
        assert path.read_bytes() == own
    audio.write(recordings / "b.wav", bursts(1), 8000)
    assert run_job(model(), [recordings], out, presence=1.0).edited == 0  # written by the job


def test_files_that_the_job_did_not_write_survive_everything(recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings], out, keep_scores=True, presence=1.0)
    shown = [out / "report.html", out / "figures" / "night 1" / "a.wav_0-4s.png", out / "figures" / "b.svg"]
    with writing_views(out, shown):
        for path in shown:
            draw(path, "of these events")
    mine = ["notes.txt", "figures/mine.png", "figures/night 1/mine.svg", "figures/night 2/x", "events/mine.tsv"]
    mine += ["events/a.wav.csv", "scores/mine.npz", ".hidden", "events/.a.wav-mine.tsv", "figures/b.png"]
    for name in mine:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    assert run_job(model(), [recordings], out, keep_scores=True).kept == 5
    assert all(path.exists() for path in shown)  # they show the events of the table
    shown[2].write_text("annotated")
    (recordings / "night 1" / "a.wav").write_bytes(b"")
    (recordings / "night 2" / "c.wav").unlink()
    for options in ({"decoder": OTHER}, {"decoder": Decoder(), "formats": ["jams"]}, {"keep_scores": True}):
        run_job(model(), [recordings], out, **options)
    assert not any(path.exists() for path in shown)
    assert (out / "figures" / "b.edited.svg").read_text() == "annotated"
    assert [name for name in mine if not (out / name).exists() or (out / name).read_text() != "mine"] == []
    report = run_job(model(), [recordings], out, formats=["csv"])  # one of them is in the way
    assert (report.edited, (out / "events" / "a.wav.edited.csv").read_text()) == (1, "mine")


def test_symbolic_links_are_not_followed(recordings, tmp_path):
    out, mine = tmp_path / "out", tmp_path / "mine"
    run_job(model(), [recordings], out)
    shown = out / "figures" / "a.png"
    with writing_views(out, [shown]):
        draw(shown, "drawn")
    shown.parent.rename(mine)
    shown.parent.symlink_to(mine)
    label = out / "events" / "a.wav.tsv"
    label.rename(mine / "a.wav.tsv")
    label.symlink_to(mine / "a.wav.tsv")
    before = (mine / "a.wav.tsv").read_bytes()
    report = run_job(model(), [recordings], out, decoder=OTHER)
    assert (report.done, report.edited) == (5, 1)
    assert (mine / "a.wav.tsv").read_bytes() == before
    assert (mine / "a.png").read_text() == "drawn"
    assert (out / "events" / "a.wav.edited.tsv").is_symlink()
    assert not label.is_symlink()


def test_a_ledger_that_is_a_link_is_refused(recordings, tmp_path):
    """SQLite would write tables into an empty file elsewhere."""
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    out.mkdir()
    theirs.touch()
    (out / "ledger.sqlite").symlink_to(theirs)
    with pytest.raises(ArgumentError, match="refusing to write through a symbolic link"):
        run_job(model(), [recordings], out)
    assert theirs.read_bytes() == b""


def test_the_ledger_knows_only_the_last_content_of_a_file(recordings, tmp_path):
    """Otherwise the ledger of a job that was interrupted would differ from that of an undisturbed one."""
    out = tmp_path / "out"
    run_job(model(), [recordings], out)
    run_job(model(), [recordings], out, decoder=OTHER)
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.hashes("events.csv") == {sha256(out / "events.csv")}


def test_views_stay_until_what_they_show_changes(recordings, tmp_path):
    (recordings / "bad.wav").touch()
    out = tmp_path / "out"
    run_job(model(), [recordings], out)
    page = out / "report.html"

    def is_gone(**options):
        with writing_views(out, [page]):
            draw(page, "a page")
        report = run_job(model(), [recordings], out, **options)
        assert report.outdated == ([] if page.exists() else ["report.html"])
        assert ("report.html showed other events and was deleted" in str(report)) is not page.exists()
        return not page.exists()

    assert not is_gone()
    assert not is_gone(formats=["jams"])
    (recordings / "bad.wav").write_bytes(b"nothing better")
    assert is_gone()  # the page gives the reason
    (recordings / "bad.wav").unlink()
    assert is_gone()
    assert is_gone(decoder=OTHER)
    assert is_gone()


@pytest.mark.parametrize("moment", ["ledger", "events.csv", "a.wav.txt"])
def test_files_of_a_killed_run_are_not_taken_for_edited(moment, recordings, tmp_path, monkeypatch):
    """Killed right after a file is replaced, or right before."""
    out, options = tmp_path / "out", {"formats": ["audacity"], "decoder": OTHER}
    run_job(model(), [recordings], out, formats=["audacity"])
    replace = os.replace
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda a, b: die() if Path(b).name == moment else replace(a, b))
        if moment == "ledger":
            patch.setattr(Ledger, "finish", die)
        with pytest.raises(SystemExit):
            run_job(model(), [recordings], out, **options)
    report = run_job(model(), [recordings], out, **options)
    assert (report.files, report.edited) == (5, 0)
    run_job(model(), [recordings], tmp_path / "fresh", **options)
    assert files_of(out) == files_of(tmp_path / "fresh")


# one decoder per table


def test_one_table_has_events_of_one_decoder(recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings / "a.wav"], out, decoder=OTHER)
    about = (out / "job.json").read_bytes()
    with pytest.raises(ArgumentError, match=r"other recordings \(1, such as a.wav\); pass these or"):
        run_job(model(), [recordings / "night 1"], out, formats=["audacity"])
    assert (out / "job.json").read_bytes() == about  # a refused call changes nothing
    assert names_in(out) == ["a.wav"]
    assert run_job(model(), [recordings], out).done == 5
    with pytest.raises(ArgumentError, match=r"for other recordings \(3, such as a\.flac\)"):
        run_job(model(), [recordings / "night 1"], out, decoder=OTHER)


@pytest.mark.parametrize("keep_scores", [False, True])
def test_interrupted_with_another_decoder_the_table_has_only_its_events(keep_scores, recordings, tmp_path):
    out = tmp_path / "out"
    wanted = {"workers": 1, "keep_scores": keep_scores}
    run_job(model(), [recordings], out, **wanted)
    first = files_of(out)
    with pytest.raises(KeyboardInterrupt):
        run_job(model(), [recordings], out, decoder=OTHER, on_progress=interrupt_after(2), **wanted)
    run_job(model(), [recordings], tmp_path / "fresh", decoder=OTHER, **wanted)
    fresh, found = read_labels(tmp_path / "fresh" / "events.csv"), read_labels(out / "events.csv")
    assert len(found.filenames) == 2
    for name in found.filenames:
        assert found.of(name) == fresh.of(name)
    assert counts(out) == {"done": 2, "pending": 3}
    report = run_job(model(), [recordings / found.filenames[0]], out, decoder=OTHER, **wanted)
    assert (report.kept, report.pending) == (1, 3)
    report = run_job(model(), [recordings], out, decoder=OTHER, **wanted)
    assert (report.kept, report.done + report.redecoded, report.pending) == (2, 3, 0)
    assert files_of(out) == files_of(tmp_path / "fresh")
    run_job(model(), [recordings], out, **wanted)
    assert files_of(out) == first


def test_killed_with_another_decoder_the_table_has_no_outdated_rows(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    with pytest.raises(SystemExit):
        run_job(model(), [recordings], tmp_path / "out", decoder=OTHER, on_progress=die)
    assert table(tmp_path / "out" / "events.csv") == []


def test_interrupted_while_scores_are_added_no_row_is_missing(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    kept = (tmp_path / "out" / "events.csv").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run_job(model(), [recordings], tmp_path / "out", keep_scores=True, workers=1, on_progress=interrupt_after(2))
    assert (tmp_path / "out" / "events.csv").read_bytes() == kept
    assert run_job(model(), [recordings], tmp_path / "out", keep_scores=True).done == 3


def test_old_scores_of_a_changed_recording_are_not_used(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out", keep_scores=True)
    audio.write(recordings / "a.wav", bursts(3, (1, 2)), 8000)

    class Interrupted(EnergyScorer):
        def score(self, samples):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(SoundDetector(Interrupted()), [recordings], tmp_path / "out", keep_scores=True)
    report = run_job(model(), [recordings], tmp_path / "out", keep_scores=True, decoder=OTHER)
    assert (report.done, report.redecoded) == (1, 4)
    run_job(model(), [recordings], tmp_path / "fresh", keep_scores=True, decoder=OTHER)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


# recordings that are no longer there


def test_a_missing_recording_is_left_out_and_comes_back_at_no_cost(recordings, tmp_path):
    out, away, path = tmp_path / "out", tmp_path / "away.wav", recordings / "night 2" / "c.wav"
    first = run_job(model(), [recordings], out)
    kept = (out / "events.csv").read_bytes()
    path.rename(away)
    report = run_job(model(), [recordings / "night 1"], out)  # which is another folder
    assert (report.missing, report.events) == (0, first.events)
    report = run_job(model(), [recordings], out)
    assert (report.files, report.kept, report.missing) == (4, 4, 1)
    assert "night 2/c.wav" not in names_in(out)
    assert (out / "events" / "night 2" / "c.wav.tsv").exists()
    assert run_job(model(), [recordings], out).missing == 0  # reported once
    assert counts(out) == {"done": 4}
    away.rename(path)
    report = run_job(model(), [recordings, path], out)
    assert (report.kept, report.events) == (5, first.events)
    assert (out / "events.csv").read_bytes() == kept
    path.rename(away)
    report = run_job(model(), [recordings / "a.wav", path], out)  # given by name
    assert (report.files, report.kept, report.missing, report.failed) == (1, 1, 1, 0)
    assert run_job(model(), [recordings], out, decoder=OTHER).done == 4


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
        assert (report.missing, report.events) == (0, first.events)
    with pytest.raises(ArgumentError, match=r"for other recordings \(5, such as a\.flac\)"):
        run_job(model(), [disk, other], tmp_path / "out", decoder=OTHER)
    with pytest.raises(DataError, match=r"/disk: no audio files found"):
        run_job(model(), [disk], tmp_path / "out")


def test_what_cannot_be_looked_at_is_not_missing(recordings, tmp_path, monkeypatch):
    first = run_job(model(), [recordings], tmp_path / "out")
    (recordings / "night 1" / "a.wav").unlink()
    lstat = os.lstat

    def closed(path, **options):
        if "night 1" in os.fspath(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return lstat(path, **options)

    monkeypatch.setattr("earmark.detection.inputs.os.lstat", closed)
    report = run_job(model(), [recordings], tmp_path / "out")
    assert (report.files, report.missing, report.events) == (4, 0, first.events)


def test_where_nothing_given_exists_no_folder_is_created(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such file or folder$"):
        run_job(model(), [tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(DataError, match=r"nowhere and 2 others: no such file or folder$"):
        run_job(model(), [tmp_path / name for name in ("nowhere", "a.wav", "b.wav")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# presence


def test_presence_is_pooled_by_the_models_operator(tmp_path):
    given = [tmp_path / "a.wav", tmp_path / "b.wav"]
    audio.write(given[0], bursts(10, (1, 2)), 8000)
    audio.write(given[1], bursts(3, (1, 2)), 8000)
    detector, out = model(), tmp_path / "out"
    run_job(detector, given, out, presence=4.0, keep_scores=True)
    rows = table(out / "presence.csv")
    assert [(r["filename"], float(r["onset"]), float(r["offset"])) for r in rows] == [
        ("a.wav", 0, 4),
        ("a.wav", 4, 8),
        ("a.wav", 8, 10),
        ("b.wav", 0, 3),
    ]
    assert [round(float(r["loud"]), 2) for r in rows] == [1, 0, 0, 1]
    calls = detector.scorer.calls
    run_job(detector, given, out, presence=float("inf"), keep_scores=True)
    assert [float(r["offset"]) for r in table(out / "presence.csv")] == [10, 3]
    assert json.loads((out / "job.json").read_text())["presence"] == "recording"
    assert detector.scorer.calls == calls
    message = r"presence: expected a number of seconds, at least the 0.040 s between frames, .*, got 0.01$"
    with pytest.raises(ArgumentError, match=message):
        run_job(detector, [tmp_path], out, presence=0.01)


def test_presence_stays_where_it_is_valid(recordings, tmp_path):
    out, plain = tmp_path / "out", SoundDetector(EnergyScorer())  # has no pool, and needs none
    assert run_job(model(), [recordings], out, presence=1.0).presence == 5
    kept = (out / "presence.csv").read_bytes()
    report = run_job(plain, [recordings], out)
    assert (report.kept, report.presence, plain.scorer.calls) == (5, 5, 0)
    report = run_job(plain, [recordings], out, decoder=OTHER)
    assert (report.done, report.presence) == (5, 5)
    assert (out / "presence.csv").read_bytes() == kept
    assert json.loads((out / "job.json").read_text())["presence"] == 1.0
    audio.write(recordings / "b.wav", bursts(1), 8000)
    audio.write(recordings / "a.wav", bursts(2), 8000)  # another one now
    report = run_job(plain, [recordings], out, decoder=OTHER)
    assert (report.done, report.presence) == (2, 4)
    assert not {"a.wav", "b.wav"} & {row["filename"] for row in table(out / "presence.csv")}
    report = run_job(model(), [recordings], out, presence=1.0, decoder=OTHER)
    assert (report.done, report.kept, report.presence) == (2, 4, 6)
    (out / "presence.csv").unlink()
    assert run_job(plain, [recordings], out, decoder=OTHER).presence is None
    assert json.loads((out / "job.json").read_text())["presence"] is None
    assert run_job(model(), [recordings], out, presence=1.0, decoder=OTHER).kept == 6
    for path in [path for path in recordings.rglob("*") if path.is_file()]:
        audio.write(path, bursts(3), 8000)
    assert run_job(plain, [recordings], out, decoder=OTHER).presence is None
    assert not (out / "presence.csv").exists()  # no row of it was valid


def test_presence_over_other_intervals_is_never_mixed(recordings, tmp_path):
    out = tmp_path / "out"
    run_job(model(), [recordings], out, presence=1.0, keep_scores=True)
    mine = out / "events" / "a.wav.tsv"
    mine.write_text("corrected")
    report = run_job(model(), [recordings / "a.wav"], out, presence=2.0)
    assert (report.redecoded, report.presence, report.edited) == (1, 1, 0)
    assert [row["offset"] for row in table(out / "presence.csv")] == ["2.0", "4.0"]
    assert mine.read_text() == "corrected"  # its events did not change
    assert run_job(model(), [recordings], out, presence=2.0).redecoded == 4


# bad input


@pytest.fixture
def matrix(tmp_path, rng):
    """What people have in their folders; by name, a part of the reason for those that are damaged."""
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
    (folder / "memo.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(60))
    (folder / "folder.wav").mkdir()
    return folder, {
        "empty.wav": "is empty: 0 bytes",
        "cut.flac": "damaged: audio is missing from",
        "lying.wav": "damaged: audio is missing from",
        "letter.wav": "contains text",
        "memo.m4a": "contains MP4",
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
        assert str(folder) not in failed[name].split("convert it")[0]  # the name is there already
    assert failed["gone.wav"] == failed["notes.xyz"] == "no such file"
    assert names_in(out) == ["deep.flac", "short.wav", "shortest.wav", "silent.wav", "stereo.mp3"]
    assert {path.name for path in (out / "scores").iterdir()} == {f"{name}.npz" for name in names_in(out)}
    audio.write(folder / "cut.flac", bursts(2), 8000)  # repaired
    (folder / "memo.m4a").unlink()  # removed
    (folder / "silent.wav").write_bytes(b"")  # damaged
    report = run_job(model(), [folder], out, keep_scores=True)
    assert (report.done, report.kept, report.failed) == (1, 4, 4)
    assert {row["filename"] for row in table(out / "failed.csv")} == {*bad, "silent.wav"} - {"cut.flac", "memo.m4a"}
    assert not (out / "events" / "silent.wav.tsv").exists()
    assert not (out / "scores" / "silent.wav.npz").exists()


def test_a_folder_that_cannot_be_read_is_a_line_and_costs_nothing_else(recordings, tmp_path, monkeypatch):
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
    assert report.first_failure == f"lost+found: {reason}"
    report = run_job(model(), [recordings / "night 1"], out)  # which is another folder
    assert (report.kept, report.failed) == (2, 0)
    assert table(out / "failed.csv") == [{"filename": "lost+found", "reason": reason}]
    closed.clear()
    report = run_job(model(), [recordings], out)
    assert (report.files, report.kept, report.failed) == (5, 5, 0)
    assert not (out / "failed.csv").exists()
    closed.add(recordings.name)  # the one that was given
    report = run_job(model(), [recordings], tmp_path / "none")
    assert (report.files, report.failed, report.first_failure) == (1, 1, f"{recordings.name}: {reason}")


def test_an_error_of_the_scorer_costs_one_file(recordings, tmp_path):
    class Broken(EnergyScorer):
        def score(self, samples):
            if samples.max() > 0 and len(samples) < 25000:
                raise RuntimeError("out\nof memory")
            return super().score(samples)

    audio.write(recordings / "b.wav", bursts(1, (0, 1)), 8000)
    report = run_job(SoundDetector(Broken()), [recordings / "b.wav", recordings / "a.wav"], tmp_path / "out", span=9e9)
    assert report.failed >= 1
    assert table(tmp_path / "out" / "failed.csv")[-1]["reason"] == "RuntimeError: out of memory"


def test_a_file_that_changes_while_it_is_read_is_not_done(tmp_path):
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


def test_strange_names_come_through(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    names = [b"a b.wav", "ünï.wav".encode(), b"new\nline.wav", b"\"quoted'.wav", b"caf\xe9.wav", b"x" * 240 + b".wav"]
    for name in names:
        audio.write(Path(os.fsdecode(os.path.join(os.fsencode(folder), name))), bursts(1, (0.2, 0.6)), 8000)
    out = tmp_path / "out"
    options = {"formats": ["tsv", "raven", "audacity", "jams", "csv", "json"], "keep_scores": True}
    report = run_job(model(), [folder], out, **options)
    assert (report.done, report.failed) == (6, 0)
    wanted = {"a b.wav", "ünï.wav", "new%0Aline.wav", "\"quoted'.wav", "caf%E9.wav", "x" * 240 + ".wav"}
    assert set(names_in(out)) == wanted
    assert len(list((out / "events").iterdir())) == 36
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert {os.fsencode(entry.path.name) for entry in ledger.entries()} == set(names)
    assert run_job(model(), [folder], out, **options).kept == 6


def test_a_folder_of_another_model_or_of_something_else_is_refused(recordings, tmp_path):
    run_job(model(), [recordings], tmp_path / "out")
    with pytest.raises(ArgumentError, match=r"contains a job of another model .*; choose another folder"):
        run_job(model(fingerprint="other"), [recordings], tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.csv").write_text("precious")
    with pytest.raises(ArgumentError, match=r"contains events\.csv, and is not the folder of a detection job"):
        run_job(model(), [recordings], tmp_path / "mine")
    with pytest.raises(DataError, match="no audio files found"):
        run_job(model(), [tmp_path / "mine"], tmp_path / "x")
    with pytest.raises(ArgumentError, match="threshold: expected values for 2 classes, got 3"):
        run_job(model(), [recordings], tmp_path / "x", decoder=Decoder(threshold=(0.1, 0.2, 0.3)))
    assert not (tmp_path / "x").exists()


# running


def test_workers_and_spans_change_nothing(recordings, tmp_path):
    audio.write(recordings / "long.flac", bursts(60, (3, 7), (30, 33.3), (59, 60)), 8000)
    seen = []
    run_job(model(), [recordings], tmp_path / "1", workers=1, keep_scores=True, on_progress=seen.append)
    run_job(model(), [recordings], tmp_path / "2", workers=3, keep_scores=True, span=5.0)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[-1].detail == "6 of 6 recordings"
    assert seen[-1].done == pytest.approx(seen[-1].total)


def test_two_processes_do_not_run_the_same_job(recordings, tmp_path):
    def nest(progress):
        with pytest.raises(ArgumentError, match=rf"out: process {os.getpid()} on .* is using this folder; wait for it"):
            run_job(model(), [recordings], tmp_path / "out")

    assert run_job(model(), [recordings], tmp_path / "out", on_progress=nest).done == 5


def test_a_full_disk_is_one_line_and_what_was_done_is_kept(recordings, tmp_path, monkeypatch):
    from earmark.formats import text

    written = []

    def full(path):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        return written_whole(path)

    monkeypatch.setattr(text, "written_whole", full)
    with pytest.raises(
        DataError,
        match=r"\.tsv: cannot be written: No space left on device; finished recordings "
        r"are kept",
    ):
        run_job(model(), [recordings], tmp_path / "out", workers=1)
    assert counts(tmp_path / "out") == {"pending": 3, "done": 2}
    assert attempts(tmp_path / "out") == {0}  # nothing crashed
    monkeypatch.undo()
    report = run_job(model(), [recordings], tmp_path / "out")
    assert (report.done, report.kept) == (3, 2)
    run_job(model(), [recordings], tmp_path / "fresh")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


def test_a_disk_that_is_really_full(recordings, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with pytest.raises(DataError, match=r"cannot be written: No space left|database or disk is full"):
            run_job(model(), [recordings], place / "out", formats=["tsv", "jams", "json", "raven"], keep_scores=True)
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_an_interrupted_job_continues(recordings, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_job(model(), [recordings], tmp_path / "out", on_progress=interrupt_after(2), workers=1)
    assert counts(tmp_path / "out") == {"pending": 3, "done": 2}
    assert attempts(tmp_path / "out") == {0}
    assert len(names_in(tmp_path / "out")) == 2
    assert run_job(model(), [recordings], tmp_path / "out").kept == 2


JOB = """
import os, signal, sys, time
from pathlib import Path
from fake_scorer import EnergyScorer
from earmark.detection.detector import SoundDetector
from earmark.detection.job import JobOptions, run_job

class Deadly(EnergyScorer):
    def score(self, samples):
        time.sleep({pause})
        while len(list(Path(sys.argv[2]).glob("events/*.tsv"))) >= {most}:
            time.sleep(0.01)
        if abs(float(samples.max()) - 0.25) < 1e-3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(samples)

print("begun", flush=True)
options = JobOptions(keep_scores=True, formats=["tsv", "jams"])
run_job(SoundDetector(Deadly()), [sys.argv[1]], sys.argv[2], options, workers=2)
"""


def start(folder, out, pause=0.0, most=1000):
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", JOB.format(pause=pause, most=most), str(folder), str(out)]
    return warm.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=warm.PIPE)


def test_a_recording_alone_in_a_process_has_the_same_bits(tmp_path, monkeypatch):
    """Also where it is resampled, which rounds differently when it starts elsewhere."""
    monkeypatch.setattr("earmark.isolation.IsolatedProcess.call", call_here)
    noise = 0.2 * np.random.default_rng(0).standard_normal(11025 * 9).astype(np.float32)
    audio.write(tmp_path / "a.wav", noise, 11025)
    scorer, found = EnergyScorer(), []
    for executor in (LocalExecutor(scorer, 1), IsolatedExecutor(scorer, scorer, 2.0)):
        score_files(
            [tmp_path / "a.wav"], scorer, executor, on_result=lambda path, result: found.append(result), span=2.0
        )
    assert len(found[0].p) > 200
    np.testing.assert_array_equal(found[0].p, found[1].p)


def test_a_killed_job_ends_as_if_nothing_had_happened(tmp_path, monkeypatch):
    # recordings that were being read are tried alone; that they are, in processes of their own, is tested below
    monkeypatch.setattr("earmark.isolation.IsolatedProcess.call", call_here)
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
    process.stdout.close()
    drafts = [".7.wav~0123abcd.tsv", "..7.wav~0123abcd~4567cdef.tsv"]  # as if it had been killed while writing
    mine = out / "events" / ".night-of_owls_.txt"
    for path in (mine, *(out / "events" / name for name in drafts)):
        path.write_text("half of")
    done = counts(out)["done"]
    assert 10 <= done < 40
    assert counts(out)["pending"] == 40 - done
    report = run_job(model(), [folder], out, keep_scores=True, formats=["tsv", "jams"])
    assert (report.kept, report.done, report.failed, report.edited) == (done, 40 - done, 0, 0)
    mine.unlink()
    run_job(model(), [folder], tmp_path / "fresh", keep_scores=True, formats=["tsv", "jams"])
    assert files_of(out) == files_of(tmp_path / "fresh")
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert [len(ledger.events(entry)) for entry in ledger.entries()] == [e.events for e in ledger.entries()]


DEADLY = """
import os, signal, time
from fake_scorer import EnergyScorer

class Deadly(EnergyScorer):
    \"\"\"Dies of one sound, hangs with another, and takes all memory with a third.\"\"\"

    def score(self, samples):
        loudest = round(float(samples.max()), 2)
        if loudest == 0.25:
            os.kill(os.getpid(), signal.SIGKILL)
        while loudest == 0.5:
            time.sleep(1)
        hoard = [bytearray(1 << 28) for _ in range(1000 if loudest == 0.75 else 0)]
        return super().score(samples)
"""


def test_a_recording_that_hangs_fails_and_costs_nothing_else(recordings, tmp_path, monkeypatch):
    """The thread cannot be killed. The job ends without it, and the next run reads the recording in a process."""
    out, released, real = tmp_path / "out", threading.Event(), spans.score_span

    def score(scorer, span, **options):
        if span.path.name == "b.wav":
            released.wait()
        return real(scorer, span, **options)

    def longest(self, span):
        return 0.1 if span.path.name == "b.wav" else math.inf

    monkeypatch.setattr(spans, "score_span", score)
    monkeypatch.setattr(LocalExecutor, "longest", longest)
    try:
        report = run_job(model(), [recordings], out, workers=1)
    finally:
        released.set()
    assert (report.done, report.failed) == (4, 1)
    assert report.first_failure == "night 1/b.wav: no result after 0 s"
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        assert {entry.name: entry.attempts for entry in ledger.entries() if entry.attempts} == {"night 1/b.wav": 1}


def test_a_recording_that_kills_the_process_is_tried_alone_and_costs_nothing_else(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for k in range(4):
        audio.write(folder / f"{k}.wav", bursts(1, (0.2, 0.7)), 8000)
    (tmp_path / "deadly.py").write_text(DEADLY)
    here = [str(tmp_path), str(Path(__file__).parent)]
    path = os.pathsep.join([*here, os.environ.get("PYTHONPATH", "")])
    run = (
        "import sys; from deadly import Deadly; from earmark.detection import spans; "
        "spans.IsolatedExecutor.SECONDS = float(sys.argv[3]); spans.IsolatedExecutor.MEMORY = 1 << 29; "
        "call = spans.IsolatedProcess.call; spans.IsolatedProcess.call = lambda self, function, item, seconds: "
        "call(self, function, item, seconds=seconds if isinstance(item, spans.Span) else 600); "  # for slow machines
        "from earmark.detection.detector import SoundDetector; from earmark.detection.job import run_job; "
        "report = run_job(SoundDetector(Deadly()), [sys.argv[1]], sys.argv[2], workers=1); "
        "print(report.done + report.kept, report.failed)"
    )

    def start(seconds=600):
        """Recordings done in the end, recordings that failed; or the signal that ended it."""
        command = [sys.executable, "-c", run, str(folder), str(out), str(seconds)]
        done = warm.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=warm.PIPE, text=True)
        return tuple(map(int, done.stdout.split())) or done.returncode

    audio.write(folder / "dies.wav", 0.25 * np.ones(4000), 8000)
    assert start() == -signal.SIGKILL
    assert start() == (4, 1)
    reason = "the process that read it died (SIGKILL)"
    assert table(out / "failed.csv") == [{"filename": "dies.wav", "reason": reason}]
    assert start() == (4, 1)  # tried again, like any failure
    audio.write(folder / "dies.wav", bursts(1), 8000)
    assert start() == (5, 0)
    for sound, seconds, why in (0.5, 1, "no result after 2 s"), (0.75, 600, "MemoryError"):
        audio.write(folder / "dies.wav", sound * np.ones(8000), 8000)
        with Ledger(out / "ledger.sqlite") as ledger:
            ledger.begin(folder / "dies.wav", (folder / "dies.wav").stat())  # as if a process had died with it
        assert start(seconds) == (4, 1)
        assert why in table(out / "failed.csv")[0]["reason"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE recordings SET name = '../../x.wav'", "name: expected a relative path, got '../../x.wav'"),
        ("UPDATE recordings SET name = '/x.wav'", "name: expected a relative path, got '/x.wav'"),
        ("UPDATE recordings SET duration = 'long'", "duration: expected a number of at least 0, or none, got 'long'"),
        ("UPDATE recordings SET path = 1.5", "path: expected "),
        ("UPDATE recordings SET attempts = -1", "attempts: expected a whole number of at least 0, got -1"),
        ("UPDATE events SET onset = 'x'", "onset: expected a number of at least 0, got 'x'"),
        ("UPDATE events SET label = x'00'", "label: expected text, got b"),
        ("UPDATE outputs SET path = '../theirs.txt'", "is not below"),
        ("UPDATE about SET value = x'00'", "expected text, got b"),
    ],
)
def test_a_ledger_made_by_somebody_else_harms_nothing(change, reason, tmp_path):
    audio.write(tmp_path / "a.wav", bursts(1, (0.2, 0.7)), 8000)
    (tmp_path / "theirs.txt").write_text("theirs")
    run_job(model(), [tmp_path / "a.wav"], tmp_path / "out")
    with sqlite3.connect(tmp_path / "out" / "ledger.sqlite") as database:
        database.execute(change)
    database.close()
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    def go_on():
        for options in ({"formats": ["csv"]}, {"decoder": OTHER}):
            run_job(model(), [tmp_path / "a.wav"], tmp_path / "out", **options)

    with pytest.raises(DataError) as error:
        go_on()
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_clock_that_is_wrong_stops_nothing(tmp_path):
    for name, year in (("a.wav", 2**34), ("b.wav", -(2**34))):  # the year 2514, and 1425
        audio.write(tmp_path / name, bursts(1, (0.2, 0.7)), 8000)
        os.utime(tmp_path / name, (year, year))
    assert run_job(model(), [tmp_path], tmp_path / "out").done == 2
    assert run_job(model(), [tmp_path], tmp_path / "out").kept == 2
