"""Sound of every kind comes in as mono float32, the same whole, in excerpts and streamed; or is refused in one line."""

import errno
import itertools
import math
import os
import re
import struct
import tempfile
import tracemalloc
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import librosa

from earmark import audio
from earmark.audio import containers, intact
from earmark.errors import ArgumentError, DataError

KINDS = [
    (".wav", 44100),
    (".aiff", 44100),
    (".flac", 22050),
    (".ogg", 44100),
    (".opus", 16000),
    (".opus", 48000),
    (".mp3", 44100),
]
kinds = pytest.mark.parametrize(("suffix", "rate"), KINDS)
librosas_own_warnings = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")


def sound(rng, samples, rate=44100):
    """A chirp that comes and goes, in noise: nothing repeats, so that a shift by one sample is seen."""
    t = np.arange(samples) / rate
    return (0.4 * np.sin(2 * np.pi * (200 * t + 40 * t**2)) + 0.02 * rng.standard_normal(samples)).astype(np.float32)


@pytest.fixture
def make(tmp_path, rng):
    """Write a file of sound, without `audio.write`: several channels, any container and coding."""

    def made(name="a.wav", seconds=2.0, rate=44100, channels=1, **options):
        path = tmp_path / name
        samples = np.stack([sound(rng, round(seconds * rate), rate) for _ in range(channels)], axis=1)
        usual = {"format": "OGG", "subtype": "OPUS"} if path.suffix == ".opus" else {}
        soundfile.write(path, samples, rate, **{**usual, **options})
        return path

    return made


@pytest.mark.parametrize(
    ("container", "subtype", "error"),
    [
        ("WAV", "PCM_U8", 2**-7),
        ("WAV", "PCM_16", 2**-15),
        ("WAV", "PCM_24", 2**-23),
        ("WAV", "PCM_32", 1e-7),
        ("WAV", "FLOAT", 1e-7),
        ("WAV", "DOUBLE", 1e-7),
        ("WAV", "ULAW", 0.02),
        ("WAV", "IMA_ADPCM", 0.2),
        ("WAVEX", "PCM_24", 2**-23),
        ("WAVEX", "FLOAT", 1e-7),
        ("RF64", "PCM_16", 2**-15),
        ("RF64", "FLOAT", 1e-7),
    ],
)
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_every_coding_of_wav_gives_the_mean_of_its_channels(tmp_path, rng, container, subtype, error, channels):
    if subtype == "IMA_ADPCM" and channels > 2:
        pytest.skip("ADPCM has two channels at most")
    samples = np.stack([sound(rng, 9000) for _ in range(channels)], axis=1)
    soundfile.write(tmp_path / "a.wav", samples, 44100, subtype, format=container)
    got = audio.read(tmp_path / "a.wav")
    assert got.dtype == np.float32
    assert got.shape[0] - 9000 in range(4100 if "ADPCM" in subtype else 1)  # ADPCM fills its last block
    np.testing.assert_allclose(got[:9000], samples.mean(axis=1), atol=error)


@kinds
def test_info_says_what_read_gives(make, suffix, rate):
    path = make("a" + suffix, seconds=1.2345, rate=rate, channels=2)
    about = audio.info(path)
    assert (about.path, about.rate, about.channels) == (path, rate, 2)
    assert about.samples == round(1.2345 * rate) == len(audio.read(path))
    assert about.duration == about.samples / rate
    assert about.format.split()[0] in ("WAV", "AIFF", "FLAC", "OGG", "MP3")
    assert about.samples_at(44100) == math.ceil(about.samples * 44100 / rate) == len(audio.read(path, rate=44100))


@librosas_own_warnings
@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000, 96000, 192000, 384000])
@pytest.mark.parametrize("wanted", [16000, 22050, 44100])
def test_reading_agrees_with_librosa(make, rate, wanted):
    path = make("a.flac" if rate < 384000 else "a.wav", seconds=1.001, rate=rate, channels=2)
    theirs, _ = librosa().load(path, sr=wanted, mono=True, res_type="soxr_hq")
    ours = audio.read(path, rate=wanted)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours[:-1], theirs[:-1], atol=1e-6)  # where soxr rounds down, librosa ends with a zero


@librosas_own_warnings
def test_reading_real_recordings_agrees_with_librosa(shared):
    paths = audio.find(shared / "urbansed" / "soundbank")[::500]
    assert paths
    for path in paths:
        theirs, _ = librosa().load(path, sr=44100, mono=True, res_type="soxr_hq")
        ours = audio.read(path, rate=44100)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        middle = audio.info(path).duration / 2
        excerpt = audio.read(path, rate=44100, onset=middle)
        np.testing.assert_allclose(excerpt, ours[len(ours) - len(excerpt) :], atol=1e-6)


@pytest.mark.parametrize(("rate", "wanted"), [(48000, 44100), (8000, 44100), (96000, 16000), (44056, 44100)])
def test_a_resampled_sample_is_the_sound_at_its_time(rate, wanted):
    tone = np.sin(2 * np.pi * 440 * np.arange(2 * rate) / rate)
    got = audio.resample(tone, rate, wanted)
    inside = slice(wanted // 2, -wanted // 2)  # at the ends the tone begins and stops, which no filter follows
    np.testing.assert_allclose(got[inside], np.sin(2 * np.pi * 440 * np.arange(2 * wanted) / wanted)[inside], atol=1e-4)


@pytest.mark.parametrize("kind", [np.int64, np.uint16, float])
def test_rates_may_be_any_numbers(kind, tmp_path):
    path, sound = tmp_path / "a.wav", np.sin(np.arange(8000) / 5)
    audio.write(path, sound, kind(8000))
    assert audio.info(path).rate == 8000
    at_rate = audio.read(path, rate=kind(16000))
    np.testing.assert_array_equal(np.concatenate(list(audio.stream(path, rate=kind(16000)))), at_rate)
    np.testing.assert_allclose(audio.resample(sound, kind(8000), kind(16000)), at_rate, atol=1e-4)


def test_the_number_of_samples_is_rounded_up_also_where_soxr_rounds_down():
    rates = [8000, 11025, 12000, 22050, 44100, 48000, 300000]
    for rate, wanted in itertools.permutations(rates, 2):
        half = rate // math.gcd(rate, wanted) // 2  # half a period: the number of samples may end in .5
        for samples in (1, 2, 1000, half, 3 * half, 101 * half):
            if 0 < samples < 100_000:
                assert len(audio.resample(np.ones(samples), rate, wanted)) == math.ceil(samples * wanted / rate)
    assert len(audio.resample(np.ones(0), 8000, 44100)) == 0


def test_equal_rates_change_nothing(rng):
    samples = sound(rng, 100)
    assert audio.resample(samples, 8000, 8000) is samples


@kinds
@pytest.mark.parametrize("wanted", [None, 8000, 44100, 48000])
def test_an_excerpt_is_a_slice_of_the_whole(make, rng, suffix, rate, wanted):
    path = make("a" + suffix, seconds=3.001, rate=rate, channels=2)
    whole = audio.read(path, rate=wanted)
    per_second = wanted or rate
    for onset, offset in [*np.sort(rng.uniform(0, 3, (7, 2)), axis=1), (0, 0.1), (2.9, 3), (2, 2.00001)]:
        first, last = math.floor(onset * per_second + 0.5), math.floor(offset * per_second + 0.5)
        got = audio.read(path, rate=wanted, onset=onset, offset=offset)
        assert len(got) == min(last, len(whole)) - first
        np.testing.assert_allclose(got, whole[first:last], atol=1e-6)


@pytest.mark.parametrize(("rate", "wanted"), [(11025, 48000), (384000, 44100), (500000, 44100), (44100, 8000)])
@pytest.mark.parametrize("onset", [3.3, 5.9])
def test_excerpts_keep_the_phase_at_rates_far_apart(make, rate, wanted, onset):
    path = make("a.wav", seconds=6, rate=rate)
    whole = audio.read(path, rate=wanted)
    first = math.floor(onset * wanted + 0.5)
    got = audio.read(path, rate=wanted, onset=onset, offset=onset + 0.05)
    np.testing.assert_allclose(got, whole[first : first + len(got)], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "wanted"), [(44056, 44100), (47999, 44100), (44101, 44100), (44100, 16001)])
@pytest.mark.parametrize("suffix", [".wav", ".mp3"])
def test_excerpts_and_streams_agree_where_soxr_rounds_its_clock(make, suffix, rate, wanted):
    path = make(f"a{suffix}", seconds=70, rate=rate) if suffix == ".wav" else make("a.mp3", seconds=70)
    whole = audio.read(path, rate=wanted)
    assert len(whole) == audio.info(path).samples_at(wanted)
    for onset in (0, 29.9, 30.5, 59.99, 69):
        got = audio.read(path, rate=wanted, onset=onset, offset=onset + 0.5)
        first = math.floor(onset * wanted + 0.5)
        np.testing.assert_allclose(got, whole[first : first + len(got)], atol=1e-6)
    np.testing.assert_array_equal(np.concatenate(list(audio.stream(path, rate=wanted, block=0.7))), whole)


def test_segments_of_odd_rates_join_without_a_seam():
    rate, wanted = 44056, 44100
    tone = np.sin(2 * np.pi * 440 * np.arange(62 * rate) / rate)
    got = audio.resample(tone, rate, wanted)
    inside = slice(wanted // 2, -wanted // 2)
    np.testing.assert_allclose(
        got[inside], np.sin(2 * np.pi * 440 * np.arange(62 * wanted) / wanted)[inside], atol=1e-4
    )


def test_an_opus_of_few_bits_is_the_same_after_a_jump(tmp_path, rng):
    path = tmp_path / "a.opus"
    with soundfile.SoundFile(path, "w", 16000, 1, "OPUS", format="OGG", compression_level=0.99) as file:
        file.write(sound(rng, 16000 * 10, 16000))
    whole = audio.read(path)
    for first in rng.integers(16000 * 3, 16000 * 9, 10):
        got = audio.read(path, onset=first / 16000, offset=(first + 2000) / 16000)
        np.testing.assert_allclose(got, whole[first : first + 2000], atol=1e-6)


@pytest.mark.parametrize(("rate", "seconds"), [(44100, 3.001), (44100, 30), (22050, 30), (8000, 30)])
@pytest.mark.parametrize("suffix", [".flac", ".mp3", ".ogg", ".wav"])
def test_a_jump_lands_where_it_should_also_near_the_end(tmp_path, rng, suffix, rate, seconds):
    path = tmp_path / f"a{suffix}"
    swells = np.interp(np.arange(round(seconds * rate)) / rate, np.arange(31), rng.uniform(0, 1, 31) ** 4)
    audio.write(path, swells * sound(rng, len(swells), rate), rate)  # loud and soft: frames of many and of few bits
    whole = audio.read(path)
    for back in [*rng.integers(1, 10_000, 12), *rng.integers(1, len(whole), 12)]:
        got = audio.read(path, onset=(len(whole) - back) / rate, offset=(len(whole) - back + 3000) / rate)
        np.testing.assert_allclose(got, whole[-back:][:3000], atol=1e-6)


def test_an_offset_past_the_end_means_the_end(make):
    path = make(seconds=1)
    assert len(audio.read(path, onset=0.5, offset=9)) == 22050
    assert len(audio.read(path, onset=0.5, offset=math.inf)) == 22050
    assert len(audio.read(path, rate=8000, onset=0.5)) == 4000


@pytest.mark.parametrize("onset", [1.0, 1.5, math.inf])
def test_an_onset_past_the_end_is_refused(make, onset):
    with pytest.raises(DataError, match=rf"a\.wav: cannot read from {onset} s: it ends at 1\.000 s"):
        audio.read(make(seconds=1), onset=onset)


def test_impossible_spans_rates_and_blocks_are_refused(make):
    path = make()
    for onset in (-1, math.nan):
        with pytest.raises(ArgumentError, match="onset: expected at least 0 seconds, got"):
            audio.read(path, onset=onset)
    for offset in (0.5, 0.4, math.nan):
        with pytest.raises(ArgumentError, match=r"offset: expected a time after onset, got onset 0\.5"):
            audio.read(path, onset=0.5, offset=offset)
    for rate in (0, -1, 999, 44100.5, math.nan, 10**9):
        with pytest.raises(ArgumentError, match="rate: expected an integer from 1000 to 2000000 Hz, got"):
            audio.read(path, rate=rate)
        with pytest.raises(ArgumentError, match="rate: expected an integer"):
            audio.stream(path, rate=rate)
    for block in (0, -1, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="block: expected a positive number of seconds"):
            audio.stream(path, block=block)
    with pytest.raises(ArgumentError, match=r"expected mono samples of shape \(samples,\), got \(3, 2\)"):
        audio.resample(np.zeros((3, 2)), 8000, 16000)


@pytest.mark.parametrize("dtype", ["int16", "uint8", "bool"])
def test_samples_that_are_whole_numbers_are_refused_with_how_to_scale_them(dtype, tmp_path):
    said = rf"expected floating-point samples with full scale 1, got {dtype}; divide .*: samples / 32768 for int16"
    with pytest.raises(ArgumentError, match=said):
        audio.write(tmp_path / "a.wav", np.ones(8000, dtype), 8000)
    with pytest.raises(ArgumentError, match=said):
        audio.resample(np.ones(8000, dtype), 8000, 8000)
    assert not any(tmp_path.iterdir())


def test_names_are_text_where_the_system_has_no_names_of_bytes(monkeypatch):
    path = Path("käuzchen.wav")
    assert containers.native_name(path) == os.fsencode(path)
    monkeypatch.setattr(os, "name", "nt")
    assert containers.native_name(path) == "käuzchen.wav"


@kinds
@pytest.mark.parametrize("wanted", [None, 44100, 44101])
@pytest.mark.parametrize("block", [0.01, 0.75, 100.0])
def test_a_stream_is_the_whole_in_blocks(make, suffix, rate, wanted, block):
    path = make("a" + suffix, seconds=3.21, rate=rate, channels=2)
    whole = audio.read(path, rate=wanted)
    blocks = list(audio.stream(path, rate=wanted, block=block))
    sizes = [len(b) for b in blocks]
    assert set(sizes[:-1]) <= {math.floor(block * (wanted or rate))}
    assert 0 < sizes[-1] <= block * (wanted or rate)
    np.testing.assert_allclose(np.concatenate(blocks), whole, atol=1e-6)


def test_a_stream_needs_little_memory(make):
    path = make("long.flac", seconds=300, rate=16000)
    whole = 300 * 44100 * 4
    tracemalloc.start()
    try:
        total = sum(len(block) for block in audio.stream(path, rate=44100, block=1.0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 300 * 44100
    assert peak < whole / 6


def refused(path, match):
    """Every door refuses with the same one line."""
    for door in (audio.info, audio.read, lambda p: list(audio.stream(p))):
        with pytest.raises(DataError, match=match) as caught:
            door(path)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(str(path))


def test_files_that_are_none(tmp_path):
    refused(tmp_path / "a.wav", "no such file")
    refused(tmp_path, "expected a file, got a folder")
    (tmp_path / "b.wav").touch()
    refused(tmp_path / "b.wav", "is empty: 0 bytes")
    refused(tmp_path / "b.wav" / "c.wav", "cannot be read: Not a directory")
    refused(tmp_path / ("x" * 300 + ".wav"), "cannot be read: File name too long")
    with pytest.raises(DataError, match=r"is not a valid file name: .*embedded null"):
        audio.read("a\0.wav")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.wav")
    refused(tmp_path / "a.wav", "is not a regular file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_that_may_not_be_read(make):
    path = make()
    path.chmod(0)
    refused(path, "cannot be read: Permission denied")


@pytest.mark.parametrize("suffix", [".wav", ".ogg", ".flac", ".mp3", ".opus"])
def test_files_without_samples(tmp_path, suffix):
    options = {"format": "OGG", "subtype": "OPUS"} if suffix == ".opus" else {}
    soundfile.write(tmp_path / f"a{suffix}", np.zeros(0), 48000, **options)
    refused(tmp_path / f"a{suffix}", r"no samples|without samples|truncated|0 bytes")


@pytest.mark.parametrize(
    ("content", "holds"),
    [
        (b"not a sound\n" * 50, "text"),
        (b"FORM" + bytes(60), "unknown or damaged data"),
        (bytes(4) + b"ftypM4A " + bytes(60), "MP4"),
        (b"\x1aE\xdf\xa3" + bytes(60), "Matroska or WebM"),
        (bytes(500), "unknown or damaged data"),
        (b"RIFF\x10\0\0\0AVI " + bytes(60), "unknown or damaged data"),
        (b"\xff\xfeh\0e\0l\0l\0o\0", "unknown or damaged data"),
    ],
)
@pytest.mark.parametrize("suffix", audio.SUFFIXES)
def test_what_is_no_sound_is_named(tmp_path, content, holds, suffix):
    (tmp_path / f"a{suffix}").write_bytes(content)
    refused(tmp_path / f"a{suffix}", rf"contains {holds}.*; earmark reads aiff, flac, mp3, ogg, opus and wav")


@pytest.mark.parametrize(
    ("suffix", "content", "holds"),
    [
        (".m4a", b"\0\0\0\x20ftypM4A ", r"MP4 \(AAC or ALAC\)"),
        (".mp4", b"\0\0\0\x20ftypisom", r"MP4 \(AAC or ALAC\)"),
        (".3gp", b"\0\0\0\x18ftyp3gp4", r"3GP \(AMR or AAC\)"),
        (".aac", b"\xff\xf1\x50\x80\x2e\x7f\xfc", "AAC"),
        (".aac", b"ID3\x04\0\0\0\0\0\x02..\xff\xf9\x50\x80", "AAC"),
        (".amr", b"#!AMR\n\x3c\x08", "AMR"),
        (".amr", b"#!AMR-WB\n\x04", "AMR"),
        (".caf", b"caff\0\x01\0\0desc", "CAF"),
        (".wma", bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), "WMA"),
        (".webm", b"\x1aE\xdf\xa3", "Matroska or WebM"),
    ],
)
def test_what_telephones_record_is_named_with_the_command_that_converts_it(tmp_path, suffix, content, holds):
    path = tmp_path / f"my memo{suffix}"
    path.write_bytes(content + bytes(60))
    command = re.escape(f"ffmpeg -i '{path}' -vn '{tmp_path / 'my memo.flac'}'")
    refused(path, rf"memo{suffix}: contains {holds}; earmark reads aiff, .* and wav; convert it: {command}$")
    misnamed = path.rename(tmp_path / "a.flac")
    refused(misnamed, rf"convert it: ffmpeg -i {re.escape(str(misnamed))} -vn {re.escape(str(tmp_path / 'a.wav'))}$")
    assert suffix in audio.FOREIGN


@kinds
def test_a_wrong_suffix_is_named_with_the_right_one(make, suffix, rate):
    path = make("a" + suffix, rate=rate)
    right = ".ogg" if suffix == ".opus" else suffix
    for wrong in {".wav", ".flac", ".ogg", ".mp3", ".aiff", ""} - {right}:
        other = path.rename(path.with_name("a" + wrong))
        refused(other, rf"contains {right[1:]}, which does not match its name; rename it to end in {right}$")
        other.rename(path)
    assert len(audio.read(path.rename(path.with_name("B" + suffix.upper()))))


@pytest.mark.parametrize(
    ("suffix", "rate", "options"),
    [
        *[(suffix, rate, {}) for suffix, rate in KINDS],
        (".wav", 44100, {"format": "RF64"}),
        (".wav", 44100, {"format": "WAVEX", "subtype": "FLOAT"}),
        (".wav", 44100, {"subtype": "ULAW"}),
    ],
)
def test_a_truncated_file_is_refused_wherever_it_is_cut(make, rng, suffix, rate, options):
    path = make("a" + suffix, rate=rate, channels=2, **options)
    data = path.read_bytes()
    for cut in [1, 2, 3, 11, 12, 44, 100, 1000, *rng.integers(1, len(data), 12), len(data) - 100, len(data) - 1]:
        path.write_bytes(data[:cut])
        with pytest.raises(DataError, match=r"truncated|damaged"):
            audio.read(path)
        with pytest.raises(DataError, match=r"truncated|damaged"):
            list(audio.stream(path, rate=16000, block=0.1))


def test_a_truncated_wav_says_how_much_is_missing(make):
    path = make(seconds=1)
    path.write_bytes(path.read_bytes()[:1044])
    refused(path, r"damaged: audio is missing from 0\.01 s to 1\.00 s; process the rest with --damaged keep")


def test_a_truncated_flac_says_so_even_between_two_frames(make):
    path = make("a.flac", seconds=2)
    data = path.read_bytes()
    frames = [k for k in range(len(data)) if data[k : k + 4] == b"\xff\xf8" + data[data.index(b"\xff\xf8") + 2 :][:2]]
    path.write_bytes(data[: frames[5]])
    with pytest.raises(DataError, match=r"a\.flac: damaged: audio is missing from 0\.46 s to 2\.00 s"):
        audio.read(path)


def test_chunks_after_the_samples_of_a_wav_do_not_matter(make):
    path = make(seconds=1)
    path.write_bytes(path.read_bytes() + b"LIST\xff\0\0\0INFO")
    assert len(audio.read(path)) == 44100


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_a_wav_from_a_pipe_is_as_long_as_it_is(make, size):
    path = make(seconds=1)
    data = path.read_bytes()
    path.write_bytes(data[:40] + struct.pack("<I", size) + data[44:])
    assert len(audio.read(path)) == 44100


def test_a_wav_whose_recorder_was_interrupted(make):
    path = make(seconds=1)
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(4) + data[44:])
    refused(path, "its header was never completed: states no samples, contains 88200 bytes")


def test_headers_that_lie_cost_no_memory(make):
    ten_hours = 10 * 3600 * 44100
    wav, flac = make("a.wav", seconds=0.01), make("a.flac", seconds=0.01)
    data = wav.read_bytes()
    wav.write_bytes(data[:40] + struct.pack("<I", 2 * ten_hours) + data[44:])
    data = flac.read_bytes()
    flac.write_bytes(data[:22] + struct.pack(">I", ten_hours) + data[26:])
    tracemalloc.start()
    try:
        for path in (wav, flac):
            with pytest.raises(DataError, match=r"damaged: audio is missing from 0\.01 s to 36000\.00 s"):
                audio.read(path, rate=16000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


def test_a_flac_of_unknown_length(make):
    path = make("a.flac")
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)
    refused(path, "its header does not state its length; re-encode it")


def test_a_rate_that_is_none(make):
    path = make()
    data = path.read_bytes()
    path.write_bytes(data[:24] + struct.pack("<I", 3) + data[28:])
    refused(path, "its header is damaged: it states a rate of 3 Hz")


def test_two_oggs_in_one(make):
    path = make("a.ogg")
    path.write_bytes(path.read_bytes() + make("b.ogg").read_bytes())
    refused(path, "contains several streams, of which only the first can be read")


def untagged(path):
    """Without the frame in front that counts the others."""
    data = path.read_bytes()
    path.write_bytes(data[data.index(data[:2], 4) :])
    return path


def test_an_mp3_without_a_header_is_counted(make):
    path = untagged(make("a.mp3", seconds=10, channels=2, bitrate_mode="CONSTANT", compression_level=0.5))
    about = audio.info(path)
    assert about.samples % 1152 == 0
    assert 0 <= about.samples - 441000 <= 3 * 1152
    assert len(audio.read(path)) == about.samples
    assert np.concatenate(list(audio.stream(path, rate=16000))).shape == audio.read(path, rate=16000).shape
    data = path.read_bytes()
    path.write_bytes(data + b"TAG" + bytes(125))
    assert audio.info(path).samples == about.samples
    path.write_bytes(data[:-5])
    refused(path, "damaged: audio is missing from .* s to its end")
    path.write_bytes(data + b"junk")
    refused(path, "damaged: audio is missing from .* s to its end")


@pytest.mark.parametrize("suffix", [".mp3", ".ogg", ".opus"])
def test_a_file_is_examined_once_while_it_stays_the_same(make, monkeypatch, suffix):
    path = make("a" + suffix, rate=48000, seconds=5)
    opened = []
    monkeypatch.setattr(intact.mmap, "mmap", lambda *a, **k: opened.append(path) or mmap(*a, **k))
    for _ in range(3):
        assert len(audio.read(path, onset=1)) == audio.info(path).samples - 48000
    assert len(opened) == 1
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    refused(path, "damaged: audio is missing from .* s to ")
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))
    opened.clear()
    assert audio.info(path).samples == 240000
    assert len(opened) == 1


def test_an_mp3_of_variable_bit_rate_without_a_header(tmp_path, rng):
    path = tmp_path / "a.mp3"
    with soundfile.SoundFile(path, "w", 44100, 1, bitrate_mode="VARIABLE", compression_level=0.5) as file:
        file.write(np.linspace(1, 0, 441000) * sound(rng, 441000))
    whole = audio.read(path)
    assert len(whole) == 441000
    got = audio.read(untagged(path))
    assert len(got) % 1152 == 0
    np.testing.assert_allclose(got[1105:][:441000], whole, atol=1e-6)  # with the delay of encoder and decoder


def test_an_mp3_with_tags_in_front(make):
    path = make("a.mp3")
    whole = audio.read(path)
    path.write_bytes(b"ID3\x04\0\0\0\0\x01\0" + bytes(128 + 50) + path.read_bytes())
    np.testing.assert_allclose(audio.read(path), whole, atol=1e-6)


def test_an_mp3_whose_header_counts_itself(make):
    path = make("a.mp3", seconds=1)
    data = bytearray(path.read_bytes())
    at = max(data.find(b"Xing"), data.find(b"Info")) + 8
    data[at : at + 4] = struct.pack(">I", struct.unpack_from(">I", data, at)[0] + 1)
    path.write_bytes(data)
    assert len(audio.read(path)) == audio.info(path).samples == 44100 + 1152


@pytest.mark.parametrize(
    ("value", "said"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (1e10, "1000000")]
)
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_are_no_sound(tmp_path, rng, value, said, channels):
    samples = np.stack([sound(rng, 400_000)] * channels, axis=1)
    samples[330_750:, channels - 1] = value
    soundfile.write(tmp_path / "a.wav", samples, 44100, "FLOAT")
    with pytest.raises(DataError, match=rf"a\.wav: sample 330750 \(at 7\.500 s\) is {said}.*, full scale is 1"):
        audio.read(tmp_path / "a.wav", rate=16000)
    assert len(audio.read(tmp_path / "a.wav", offset=7)) == 7 * 44100
    good = list(itertools.islice(audio.stream(tmp_path / "a.wav", block=1.0), 2))
    assert len(good) == 2


@pytest.mark.parametrize(
    ("suffix", "rate", "options"),
    [
        *[(suffix, rate, {}) for suffix, rate in KINDS],
        (".wav", 44100, {"format": "RF64", "subtype": "FLOAT"}),
        (".wav", 44100, {"subtype": "IMA_ADPCM"}),
    ],
)
def test_damage_gives_sound_or_one_line(make, rng, suffix, rate, options):
    path = make("a" + suffix, seconds=0.5, rate=rate, channels=2, **options)
    data = np.frombuffer(path.read_bytes(), np.uint8)
    for trial in range(30):
        mutant = data.copy()
        places = rng.integers(0, 200 if trial % 2 else len(data), rng.integers(1, 10))
        mutant[places] = rng.integers(0, 256, len(places))
        path.write_bytes(mutant.tobytes())
        try:
            got = audio.read(path, rate=16000)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert got.dtype == np.float32
            assert np.isfinite(got).all()
            assert len(got) == audio.info(path).samples_at(16000)


BEGINNINGS = [
    b"",
    b"RIFF\xff\0\0\0WAVEfmt ",
    b"RF64\xff\xff\xff\xffWAVEds64",
    b"fLaC",
    b"OggS\0\2",
    b"ID3\4\0\0",
    b"\xff\xfb\x90\x44",
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(audio.SUFFIXES), st.sampled_from(BEGINNINGS), st.binary(max_size=600))
def test_any_bytes_give_sound_or_one_line(suffix, beginning, rest):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        path.write_bytes(beginning + rest)
        try:
            audio.read(path)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "name", ["a b.wav", "Übung é.wav", "-rf.wav", "a\nb.wav", "a'\"*?.wav", "x" * 240 + ".wav", "犬.wav"]
)
def test_any_name_will_do(tmp_path, rng, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    audio.write(name, sound(rng, 1000), 8000)
    assert os.listdir() == [name]
    assert len(audio.read(name)) == len(audio.read(Path(name))) == audio.info(tmp_path / name).samples == 1000
    Path(name).write_text("text")
    with pytest.raises(DataError, match="contains text") as caught:
        audio.read(name)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="names are text here")
def test_a_name_that_is_not_text(tmp_path, rng):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.wav"))
    try:
        audio.write(path, sound(rng, 1000), 8000)
    except ArgumentError:
        pytest.skip("this file system wants names to be text")
    assert len(audio.read(path)) == 1000


@pytest.mark.parametrize("suffix", audio.SUFFIXES)
def test_what_is_written_is_read_back(tmp_path, rng, suffix):
    samples = sound(rng, 500_000, 48000)
    path = tmp_path / f"a{suffix}"
    assert audio.write(path, samples, 48000) is None
    assert audio.find(tmp_path) == [path]
    got = audio.read(path)
    assert got.shape == samples.shape
    loss = np.sqrt(np.mean((got - samples) ** 2) / np.mean(samples**2))
    assert loss < (1e-4 if suffix in (".flac", ".wav") else 0.2)


@pytest.mark.parametrize("suffix", [".flac", ".wav", ".mp3"])
def test_the_same_samples_give_the_same_bytes(tmp_path, rng, suffix):
    samples = sound(rng, 50_000)
    for name in ("a", "b"):
        audio.write(tmp_path / (name + suffix), samples, 44100)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", [".flac", ".wav"])
def test_writing_what_was_read_changes_nothing(tmp_path, rng, suffix):
    audio.write(tmp_path / f"a{suffix}", 2.4 * sound(rng, 50_000), 44100)
    audio.write(tmp_path / f"b{suffix}", audio.read(tmp_path / f"a{suffix}"), 44100)
    np.testing.assert_array_equal(audio.read(tmp_path / f"b{suffix}"), audio.read(tmp_path / f"a{suffix}"))


def test_what_exceeds_full_scale_is_clipped(tmp_path):
    loud = np.array([0.5, 1.5, -3.0, 1.0], np.float32)
    audio.write(tmp_path / "a.flac", loud, 8000)
    np.testing.assert_allclose(audio.read(tmp_path / "a.flac"), [0.5, 1, -1, 1], atol=1e-4)
    audio.write(tmp_path / "a.wav", loud, 8000, subtype="FLOAT")
    np.testing.assert_array_equal(audio.read(tmp_path / "a.wav"), loud)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(ArgumentError, match=r"a\.xyz: expected one of the suffixes \.aif, \.aiff, \.flac"):
        audio.write(tmp_path / "a.xyz", [0.0], 8000)
    with pytest.raises(ArgumentError, match=r"\.wav files cannot have subtype='PCM_7'\. Choose from: PCM_16"):
        audio.write(tmp_path / "a.wav", [0.0], 8000, subtype="PCM_7")
    with pytest.raises(ArgumentError, match=r"a\.opus: cannot be written at 44100 Hz: .*Opus only supports"):
        audio.write(tmp_path / "a.opus", [0.0], 44100)
    with pytest.raises(ArgumentError, match="rate: expected an integer"):
        audio.write(tmp_path / "a.wav", [0.0], 0)
    with pytest.raises(ArgumentError, match="expected mono samples of shape"):
        audio.write(tmp_path / "a.wav", np.zeros((2, 2)), 8000)
    with pytest.raises(DataError, match=r"a\.wav: no samples to write"):
        audio.write(tmp_path / "a.wav", [], 8000)
    with pytest.raises(DataError, match=r"a\.wav: sample 1 \(at 0\.000 s\) is nan"):
        audio.write(tmp_path / "a.wav", [0.0, math.nan], 8000)
    with pytest.raises(ArgumentError, match=r"a\.wav: cannot be written: No such file or directory"):
        audio.write(tmp_path / "nowhere" / "a.wav", [0.0], 8000)
    assert os.listdir(tmp_path) == []


def test_sound_is_found_in_folders_in_order(tmp_path):
    names = ["b.wav", "a/z.FLAC", "a/b/c.Mp3", "a.ogg", "c.opus"]
    for name in [*names, "notes.txt", ".hidden.wav", ".git/a.wav", "a/._z.flac", "wav"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.wav").mkdir()
    found = audio.find(str(tmp_path))
    assert found == sorted(tmp_path / name for name in names)
    assert audio.find(tmp_path / "folder.wav") == []
    (tmp_path / "memo.M4A").touch()
    assert audio.find(tmp_path) == found
    assert set(audio.find(tmp_path, suffixes=audio.FOREIGN)) == {tmp_path / "memo.M4A"}


def test_a_hidden_folder_named_outright_is_searched(tmp_path):
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "a.wav").touch()
    assert audio.find(tmp_path / ".cache") == [tmp_path / ".cache" / "a.wav"]


def test_folders_that_are_none(tmp_path):
    with pytest.raises(DataError, match="x: there is no such folder"):
        audio.find(tmp_path / "x")
    (tmp_path / "a.wav").touch()
    with pytest.raises(DataError, match=r"a\.wav: expected a folder, got a file"):
        audio.find(tmp_path / "a.wav")


def test_a_folder_that_may_not_be_looked_into(tmp_path, monkeypatch):
    def scan(place):
        if Path(place).name == "a":
            raise PermissionError(errno.EACCES, "Permission denied", str(place))  # which root never meets
        return scandir(place)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.wav").touch()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(DataError, match="a: cannot be listed: Permission denied"):
        audio.find(tmp_path)
    closed = []
    assert audio.find(tmp_path, unreadable=closed.append) == [tmp_path / "b" / "c.wav"]
    assert closed == [tmp_path / "a"]
    refused(tmp_path / "a", "cannot be listed: Permission denied")
    refused(tmp_path / "b", "expected a file, got a folder")


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".opus", ".mp3"])
def test_many_pieces_are_the_same_as_excerpts(suffix, tmp_path, rng):
    rate = 48000
    path = tmp_path / f"a{suffix}"
    audio.write(path, 0.1 * rng.normal(size=3 * rate), rate)
    starts = [0, 0, 777, rate, 2 * rate, 3 * rate - 100]
    pieces = audio.read_pieces(path, starts, 1000)
    for start, piece in zip(starts, pieces, strict=True):
        whole = audio.read(path, onset=start / rate, offset=(start + 1000) / rate)
        np.testing.assert_array_equal(piece[: len(whole)], whole)
        assert not piece[len(whole) :].any()
    for wrong in ([5, 1], [-1]):
        with pytest.raises(ArgumentError, match="in increasing order"):
            audio.read_pieces(path, wrong, 10)
