"""Damaged sound is refused with the time of the first gap, or read with silence in its gaps and all else in place."""

import csv
import io
import json
import math
import multiprocessing
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
import soundfile
from fake_scorer import EnergyScorer
from typer.testing import CliRunner

from earmark import audio
from earmark.audio import intact, ogg, quiet
from earmark.cli.app import app
from earmark.detection.detector import SoundDetector
from earmark.detection.job import JobOptions, run_job
from earmark.detection.spans import LocalExecutor, plan, score_files
from earmark.errors import ArgumentError, DataError

SECONDS = 30


def clicking(rate, seconds=SECONDS):
    """A click in every second, at half past, in soft noise."""
    samples = 0.01 * np.random.default_rng(1).standard_normal(seconds * rate)
    for second in range(seconds):
        first = round((second + 0.5) * rate)
        samples[first : first + rate // 500] += 0.8 * np.sin(2 * np.pi * 1000 * np.arange(rate // 500) / rate)
    return samples


def click_times(samples, rate):
    loud = np.flatnonzero(np.abs(samples) > 0.25) / rate
    return loud[np.diff(loud, prepend=-1) > 0.1]


@cache
def encoded(suffix, rate, channels, seconds=SECONDS, **options):
    """The bytes of a file of clicks."""
    usual = {"subtype": "OPUS"} if suffix == ".opus" else {}
    container = {".opus": "OGG", ".aif": "AIFF"}.get(suffix, suffix[1:].upper())
    content = io.BytesIO()
    with soundfile.SoundFile(content, "w", rate, channels, format=container, **{**usual, **options}) as file:
        sound = np.stack([clicking(rate, seconds)] * channels, axis=1)
        for k in range(0, len(sound), rate):
            file.write(sound[k : k + rate])
    return content.getvalue()


@pytest.fixture
def make(tmp_path):
    def made(name, rate=48000, channels=1, **options):
        path = tmp_path / name
        path.write_bytes(encoded(path.suffix, rate, channels, **options))
        return path

    return made


def flip(path, *places):
    """Change one byte at each place."""
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 0x55
    path.write_bytes(data)


def ogg_pages(path):
    return list(ogg._pages(path.read_bytes(), 0))


def check_kept(path, rate, intact_times, most_lost):
    """Clicks outside of gaps are where they were in the intact file, and gaps are silent."""
    about = audio.info(path, damaged="keep")
    samples = audio.read(path, damaged="keep")
    assert len(samples) == about.samples
    times = click_times(samples, rate)
    inside = [any(gap.onset - 0.1 < t < (gap.offset or math.inf) + 0.1 for gap in about.gaps) for t in intact_times]
    expected = intact_times[~np.array(inside)]
    assert len(intact_times) - most_lost <= len(expected) <= len(times)
    for time in expected:
        assert np.abs(times - time).min() < 0.003
    for onset, offset, reason in about.gaps:
        assert reason
        first, last = round(onset * rate), round((about.duration if offset is None else offset) * rate)
        assert not samples[first:last].any()
    for onset in (0.3, SECONDS / 2, about.duration - 2):
        first = round(onset * rate)
        excerpt = audio.read(path, onset=onset, offset=onset + 1.5, damaged="keep")
        np.testing.assert_allclose(excerpt, samples[first : first + len(excerpt)], atol=1e-4)
    blocks = list(audio.stream(path, block=0.7, damaged="keep"))
    np.testing.assert_array_equal(np.concatenate(blocks), samples)
    return about


def check_refused(path, onset, offset, gaps=1, within=0.05):
    """Each function refuses the file with one line that has the times of the first gap."""
    for function in (audio.info, audio.read, lambda path: list(audio.stream(path))):
        with pytest.raises(DataError) as caught:
            function(path)
        line = str(caught.value)
        match = re.fullmatch(
            re.escape(str(path))
            + r": damaged: audio is missing from ([\d.]+) s to (?:([\d.]+) s|its end)(?: \((\d+) gaps in all\))?; "
            "process the rest with --damaged keep",
            line,
        )
        assert match, line
        assert abs(float(match[1]) - onset) < within
        assert match[2] is None if offset is None else abs(float(match[2]) - offset) < within
        assert int(match[3] or 1) == gaps


@pytest.mark.parametrize("rate", [16000, 48000])
def test_five_damaged_pages_of_opus(make, rate):
    path = make("a.opus", rate)
    times = click_times(audio.read(path), rate)
    pages = ogg_pages(path)
    damaged = [pages[k] for k in (10, 12, 14, 16, 18)]  # a page has a second of sound
    flip(path, *((page.begin + page.end) // 2 for page in damaged))
    check_refused(path, 8, 9, gaps=5, within=0.1)
    about = check_kept(path, rate, times, 10)
    assert about.samples == SECONDS * rate
    assert len(about.gaps) == 5
    assert all(abs(gap.offset - gap.onset - 1) < 0.05 for gap in about.gaps)


@pytest.mark.parametrize(("name", "rate"), [("a.ogg", 44100), ("a.ogg", 16000), ("a.opus", 24000)])
def test_pages_that_are_damaged_or_missing(make, name, rate):
    path = make(name, rate)
    times = click_times(audio.read(path), rate)
    pages = ogg_pages(path)
    data = path.read_bytes()
    hurt, lost = pages[len(pages) // 3], pages[2 * len(pages) // 3]
    path.write_bytes(data[: lost.begin] + data[lost.end :])
    flip(path, hurt.begin + 40)
    about = check_kept(path, rate, times, 6)
    assert len(about.gaps) == 2
    assert about.samples == SECONDS * rate
    check_refused(path, about.gaps[0].onset, about.gaps[0].offset, gaps=2)


@pytest.mark.parametrize(("name", "rate"), [("a.ogg", 44100), ("a.opus", 48000)])
def test_a_damaged_or_missing_last_page(make, name, rate):
    path = make(name, rate)
    times = click_times(audio.read(path), rate)
    last = ogg_pages(path)[-1]
    data = path.read_bytes()
    flip(path, last.end - 5)
    about = check_kept(path, rate, times, 2)
    assert about.samples == SECONDS * rate  # the head of the page still says so
    check_refused(path, about.gaps[-1].onset, SECONDS)
    path.write_bytes(data[: last.begin])
    about = check_kept(path, rate, times, 2)
    assert about.gaps[-1].offset is None
    check_refused(path, about.duration, None)


@pytest.mark.parametrize("name", ["a.ogg", "a.opus"])
def test_damaged_headers_of_ogg_are_always_refused(make, name):
    path = make(name)
    for page in ogg_pages(path)[:2]:
        data = path.read_bytes()
        flip(path, page.begin + 40)
        for damaged in audio.DAMAGED:
            with pytest.raises(DataError, match=r"damaged: the (first ogg page is|headers of the ogg stream are) not"):
                audio.info(path, damaged=damaged)
        path.write_bytes(data)


def test_the_checksum_of_ogg():
    """As RFC 3533 defines it, bit by bit."""
    data = bytes(range(256)) * 3
    crc = 0
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    assert ogg._checksum(data) == crc


@pytest.mark.parametrize(("rate", "channels"), [(44100, 1), (44100, 2), (22050, 1), (8000, 1)])
@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_mp3_frames_that_are_damaged(make, rate, channels, mode, capfd):
    path = make("a.mp3", rate, channels, bitrate_mode=mode, compression_level=0.5)
    times = click_times(audio.read(path), rate)
    size = len(path.read_bytes())
    data = bytearray(path.read_bytes())
    data[size // 2 : size // 2 + 3000] = bytes(3000)
    path.write_bytes(data)
    about = check_kept(path, rate, times, 5)
    assert about.samples == SECONDS * rate
    assert len(about.gaps) == 1
    check_refused(path, about.gaps[0].onset, about.gaps[0].offset)
    assert capfd.readouterr().err == ""


def test_mp3_frames_that_were_cut_out_of_the_end(make):
    path = make("a.mp3", 44100, bitrate_mode="CONSTANT", compression_level=0.5)
    times = click_times(audio.read(path), 44100)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    about = check_kept(path, 44100, times, 12)
    check_refused(path, 20, 30)
    assert about.samples == SECONDS * 44100


def test_excerpts_of_an_mp3_print_nothing(make, capfd):
    path = make("a.mp3", 22050, bitrate_mode="VARIABLE", compression_level=0.7)
    whole = audio.read(path)
    for onset in np.linspace(0, 28, 30):
        first = math.floor(onset * 22050 + 0.5)
        got = audio.read(path, onset=onset, offset=onset + 0.5)
        np.testing.assert_allclose(got, whole[first : first + len(got)], atol=1e-6)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("stated", [0, 1000, 0xFFFFFFFF])
def test_an_mp3_whose_header_states_another_size_prints_nothing(make, capfd, stated):
    path = make("a.mp3", 22050)
    whole = audio.read(path)
    data = bytearray(path.read_bytes())
    at = max(data.find(b"Xing"), data.find(b"Info"))
    assert at >= 0
    assert data[at + 7] & 3 == 3  # frames and bytes are stated
    data[at + 12 : at + 16] = stated.to_bytes(4, "big")
    path.write_bytes(data)
    np.testing.assert_array_equal(audio.read(path), whole)
    assert capfd.readouterr().err == ""


needs_glibc = pytest.mark.skipif(not quiet._redirection._null, reason="the decoder cannot be silenced without glibc")


def read_with(file_class, data):
    """Read an mp3 that has zeros between its frames, as libsndfile does by itself."""
    with file_class(io.BytesIO(data)) as file:
        file.seek(3000)
        return file.read(dtype="float32")


@pytest.fixture
def noisy_mp3():
    """An mp3 about which its decoder prints notes."""
    data = bytearray(encoded(".mp3", 22050, 1, seconds=3))
    data[3000:3900] = bytes(900)
    return bytes(data)


@needs_glibc
def test_the_mp3_decoder_is_silent_and_other_messages_are_not(noisy_mp3, capfd):
    samples = read_with(soundfile.SoundFile, noisy_mp3)
    assert "Illegal Audio-MPEG-Header" in capfd.readouterr().err  # or the rest of this test means nothing
    np.testing.assert_array_equal(read_with(quiet.QuietFile, noisy_mp3), samples)
    assert capfd.readouterr().err == ""
    read_with(soundfile.SoundFile, noisy_mp3)
    assert "Illegal Audio-MPEG-Header" in capfd.readouterr().err


@needs_glibc
def test_the_mp3_decoder_is_silent_in_several_threads(noisy_mp3, capfd):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: read_with(quiet.QuietFile, noisy_mp3), range(40)))
    assert capfd.readouterr().err == ""
    read_with(soundfile.SoundFile, noisy_mp3)
    assert "Illegal Audio-MPEG-Header" in capfd.readouterr().err


@needs_glibc
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_during_decoding_has_the_usual_standard_error(noisy_mp3, capfd):
    is_silent, done = threading.Event(), threading.Event()

    def decode():
        with quiet._redirection.silent():
            is_silent.set()
            done.wait(60)

    thread = threading.Thread(target=decode)
    thread.start()
    is_silent.wait(60)
    child = multiprocessing.get_context("fork").Process(target=read_with, args=(soundfile.SoundFile, noisy_mp3))
    child.start()
    child.join(60)
    done.set()
    thread.join()
    assert child.exitcode == 0
    assert "Illegal Audio-MPEG-Header" in capfd.readouterr().err


@pytest.mark.parametrize("channels", [1, 2])
def test_flac_frames_that_are_damaged(make, channels):
    path = make("a.flac", 44100, channels)
    whole = audio.read(path)
    data = path.read_bytes()
    flip(path, len(data) // 3, len(data) // 2)
    about = check_kept(path, 44100, click_times(whole, 44100), 6)
    assert about.samples == SECONDS * 44100
    assert len(about.gaps) == 2
    samples = audio.read(path, damaged="keep")
    is_sound = samples != 0
    np.testing.assert_array_equal(samples[is_sound], whole[is_sound])
    for read in (audio.read, lambda path: list(audio.stream(path, rate=16000))):
        with pytest.raises(DataError, match=rf"audio is missing from {about.gaps[0].onset:.2f} s .*\(2 gaps in all\)"):
            read(path)


def test_a_header_that_states_months_of_sound_is_not_filled_with_silence(make):
    path = make("a.flac", 8000)
    data = bytearray(path.read_bytes())
    data[21:26] = b"\x7f\xff\xff\xff\xff"  # number of samples
    path.write_bytes(data)
    for read in (audio.info, audio.read, lambda path, damaged: list(audio.stream(path, damaged=damaged))):
        with pytest.raises(DataError, match=r"a\.flac: damaged: .* gaps of more than a day are not filled$"):
            read(path, damaged="keep")


@pytest.mark.parametrize("name", ["a.wav", "a.aiff", "a.flac"])
def test_a_truncated_file_has_silence_at_its_end(make, name):
    path = make(name, 44100)
    whole = audio.read(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    about = audio.info(path, damaged="keep")
    assert about.samples == len(whole)
    (gap,) = about.gaps
    assert gap.offset == SECONDS
    samples = audio.read(path, damaged="keep")
    last = round(gap.onset * 44100)
    assert abs(gap.onset - SECONDS / 2) < 0.5
    np.testing.assert_array_equal(samples[:last], whole[:last])
    assert not samples[last:].any()
    with pytest.raises(DataError, match=rf"audio is missing from {gap.onset:.2f} s to 30\.00 s; process"):
        audio.read(path)


@pytest.mark.parametrize("name", ["a.wav", "a.aiff", "a.flac", "a.ogg", "a.opus", "a.mp3"])
def test_an_intact_file_has_no_gaps_and_is_the_same(make, name):
    path = make(name)
    assert audio.info(path) == audio.info(path, damaged="keep")
    assert audio.info(path).gaps == ()
    np.testing.assert_array_equal(audio.read(path), audio.read(path, damaged="keep"))


def test_unknown_ways_to_treat_damage(make):
    path = make("a.wav")
    for function in (audio.info, audio.read, audio.stream):
        with pytest.raises(ArgumentError, match="damaged"):
            function(path, damaged="repair")


@pytest.mark.parametrize("name", ["a.ogg", "a.opus", "a.mp3", "a.flac"])
def test_any_damage_gives_one_line_or_sound_of_the_stated_length(make, name, rng):
    path = make(name, seconds=10)
    data = path.read_bytes()
    for _ in range(12):
        path.write_bytes(data)
        flip(path, *rng.integers(0, len(data), 4))
        try:
            about = audio.info(path, damaged="keep")
            assert len(audio.read(path, damaged="keep", rate=8000)) == about.samples_at(8000)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017


@pytest.fixture
def recordings(make, tmp_path):
    """One damaged recording and one that is intact."""
    hurt, good = make("hurt.opus"), make("good.wav", 8000)
    page = ogg_pages(hurt)[12]
    flip(hurt, page.begin + 100)
    return [hurt, good]


def test_a_job_lists_gaps(recordings, tmp_path):
    detector = SoundDetector(EnergyScorer())
    out = tmp_path / "out"
    report = run_job(detector, recordings, out)
    assert (report.failed, report.damaged) == (1, 0)
    assert "process the rest with --damaged keep" in (out / "failed.csv").read_text()
    report = run_job(detector, recordings, out, JobOptions(damaged="keep"))
    assert (report.failed, report.damaged, report.done, report.kept) == (0, 1, 1, 1)
    assert "1 recording with missing sound: " in str(report)
    with (out / "damaged.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["filename"] == "hurt.opus"
    assert float(row["onset"]) == pytest.approx(10, abs=0.1)
    assert float(row["offset"]) == pytest.approx(11, abs=0.1)
    assert row["reason"] == "damaged or missing ogg pages"
    assert not (out / "failed.csv").exists()
    assert run_job(detector, recordings, out, JobOptions(damaged="keep")).kept == 2
    assert (out / "damaged.csv").exists()
    assert run_job(detector, recordings, out).failed == 1
    assert not (out / "damaged.csv").exists()


def test_spans_of_a_damaged_recording(recordings):
    scorer = EnergyScorer()
    got = {}
    score_files(recordings, scorer, LocalExecutor(scorer, 1), on_result=got.__setitem__, damaged="keep", span=5.0)
    assert all(not isinstance(result, Exception) for result in got.values())
    assert plan(recordings[0], scorer, damaged="keep").gaps == audio.info(recordings[0], damaged="keep").gaps
    with pytest.raises(DataError, match="--damaged keep"):
        plan(recordings[0], scorer)


def test_detect_prints_gaps(recordings, monkeypatch):
    monkeypatch.setattr("earmark.detection.detector.load", lambda *a, **k: SoundDetector(EnergyScorer()))
    run = CliRunner().invoke(app, ["detect", "model", *map(str, recordings), "--damaged", "keep", "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert [gap["filename"] for gap in found["damaged"]] == ["hurt.opus"]
    assert found["failed"] == {}
    assert "hurt.opus: audio is missing from " in run.stderr
    run = CliRunner().invoke(app, ["detect", "model", *map(str, recordings), "--json"])
    assert "hurt.opus" in json.loads(run.stdout)["failed"]


def test_examination_is_cached(recordings):
    audio.info(recordings[0], damaged="keep")
    before = intact._examined.cache_info()
    audio.read(recordings[0], damaged="keep", onset=3, offset=4)
    after = intact._examined.cache_info()
    assert after.misses == before.misses
