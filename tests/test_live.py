"""Sound that arrives: raw samples and growing files to blocks, blocks to events, no later than promised."""

import csv
import io
import json
import os
import signal
import struct
import sys
import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch
import warm

from earmark import audio
from earmark.annotations import Label
from earmark.audio.pcm import ENCODINGS, LiveSound, PcmFormat, from_growing, from_pipe
from earmark.checkpoint import save_detector
from earmark.cli.live import check_options, detect_live
from earmark.detection import live
from earmark.detection.detector import load
from earmark.detection.live import latency_bound, listen
from earmark.detector import Detector
from earmark.errors import ArgumentError, DataError
from earmark.events import Decoder, interpolate
from earmark.features import FeatureConfig, LogMel
from earmark.formats import read_labels
from earmark.inference.recordings import feature_frames, score_samples
from earmark.inference.scorer import Scorer
from earmark.interrupt import Interruption
from earmark.networks import create_network
from earmark.ownership import replacing_nothing
from earmark.pooling import create_pool

SUBTYPES = {"u8": "PCM_U8", "s16": "PCM_16", "s24": "PCM_24", "s32": "PCM_32", "f32": "FLOAT", "f64": "DOUBLE"}


class Loudness(Scorer):
    """Knows one class: p is the mean magnitude of the feature frames that an output frame sees."""

    classes = ("loud",)
    rate, hop_samples, n_fft, padding, reduction = 8000, 80, 160, 80, 8
    window, fingerprint = 4.0, "loudness"

    def __init__(self, context=12):
        self.context = context
        self.calls = 0

    def score(self, samples):
        self.calls += 1
        padded = np.pad(np.abs(samples), self.padding)
        sums = np.concatenate([[0], np.cumsum(padded, dtype=np.float64)])
        first = np.arange(self.frames(len(samples))) * self.hop_samples
        frames = np.concatenate([[0], np.cumsum((sums[first + self.n_fft] - sums[first]) / self.n_fft)])
        out = np.arange((len(frames) - 1) // self.reduction) * self.reduction
        reach = self.context or 0
        low, high = np.maximum(0, out - reach), np.minimum(len(frames) - 1, out + self.reduction + reach)
        p = np.round(frames[high] - frames[low], 6) / (high - low)
        if self.context is None:  # relative to the loudest, as scaling "clip" is
            p /= max(p.max(), 1e-3)
        return p[:, None].clip(0, 1).astype(np.float32)


def bursts(rng, seconds, rate=8000):
    """Noise that comes and goes."""
    gates = np.repeat(rng.random(int(seconds * 4) + 1) < 0.5, rate // 4)[: int(seconds * rate)]
    return (gates * rng.choice([-1.0, 1.0], len(gates))).astype(np.float32)


def cut(samples, sizes):
    at = 0
    while at < len(samples):
        size = next(sizes)
        yield samples[at : at + size]
        at += size


def whole(scorer, samples, decoder):
    if scorer.context is None:
        p = np.concatenate(list(score_samples(scorer, samples)))
    else:
        p = scorer.score(np.pad(samples, (0, max(0, scorer.least_samples - len(samples)))))
    dense = interpolate(p, scorer.reduction, feature_frames(scorer, len(samples)), align="middle")
    return decoder.decode(dense, scorer.hop, scorer.classes, "live", len(samples) / scorer.rate)


def by_time(events):
    return sorted(events, key=lambda event: (event.onset, event.offset, event.label))


def raw(samples, subtype):
    """Samples (frames, channels) as bytes, by somebody else's hand."""
    file = io.BytesIO()
    soundfile.write(file, samples, 8000, format="RAW", subtype=subtype, endian="LITTLE")
    return file.getvalue()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_raw_samples_are_what_libsndfile_reads_from_a_finished_file(tmp_path, rng, encoding, channels):
    samples = rng.uniform(-1, 1, (5000, channels))
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype=SUBTYPES[encoding])
    pipe = io.BytesIO(raw(samples, SUBTYPES[encoding]))
    heard = list(from_pipe(pipe, "pipe", PcmFormat(8000, channels, encoding)).blocks(8000, 0.1))
    assert [len(block) for block in heard] == [800] * 6 + [200]
    np.testing.assert_array_equal(np.concatenate(heard), audio.read(tmp_path / "a.wav"))


@pytest.mark.parametrize("rate", [44100, 22050, 16000, 8000, 7000])
def test_resampled_live_sound_is_that_of_the_file(tmp_path, rng, rate):
    samples = rng.uniform(-1, 1, 30_011).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", samples, 16000, subtype="FLOAT")
    with (tmp_path / "a.wav").open("rb") as pipe:
        heard = np.concatenate(list(from_pipe(pipe, "pipe").blocks(rate, 0.05)))
    np.testing.assert_array_equal(heard, audio.read(tmp_path / "a.wav", rate=rate))


@pytest.mark.parametrize(("rate", "wanted"), [(48000, 44100), (8000, 44100), (192000, 16000), (250000, 44100)])
def test_resampling_keeps_no_more_to_itself_than_it_says(rate, wanted):
    machine = soxr.ResampleStream(rate, wanted, 1, dtype="float32", quality="HQ")
    delay = LiveSound("pipe", PcmFormat(rate), ()).delay(wanted)
    given = 0
    for k in range(1, 300):
        given += len(machine.resample_chunk(np.zeros(1000, np.float32)))
        assert k * 1000 / rate - given / wanted <= delay


def test_sound_at_the_rate_wanted_is_not_delayed():
    assert LiveSound("pipe", PcmFormat(8000), ()).delay(8000) == 0


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, None])
def test_a_wav_through_a_pipe_may_not_know_its_length(tmp_path, rng, size):
    samples = rng.uniform(-1, 1, 4000).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="PCM_24", format="WAVEX")
    data = bytearray((tmp_path / "a.wav").read_bytes())
    at = data.index(b"data") + 4
    if size is None:
        data += b"LIST" + struct.pack("<I", 4) + b"INFO"  # the true length, and something after it
    else:
        data[at : at + 4] = struct.pack("<I", size)
    heard = np.concatenate(list(from_pipe(io.BytesIO(data), "pipe").blocks(8000, 0.1)))
    np.testing.assert_array_equal(heard, audio.read(tmp_path / "a.wav"))


@pytest.mark.parametrize("is_wav", [True, False])
def test_a_file_is_followed_while_it_grows(tmp_path, rng, is_wav):
    samples = rng.integers(-30000, 30000, 8000).astype("<i2")
    head = b""
    if is_wav:
        soundfile.write(tmp_path / "whole.wav", samples, 8000)
        data = (tmp_path / "whole.wav").read_bytes()
        head = data[: data.index(b"data") + 4] + bytes(4)
    path = tmp_path / "growing"
    path.write_bytes(b"")
    stop, lock = Interruption(), threading.Event()

    def record():
        data = head + samples.tobytes()
        for k in range(0, len(data), 3001):  # also in the middle of a sample, and of the header
            with path.open("ab") as file:
                file.write(data[k : k + 3001] if k else data[:20])
                if not k:
                    file.write(data[20:3001])
        lock.wait(300)
        stop.signal = signal.SIGINT

    recorder = threading.Thread(target=record, daemon=True)
    recorder.start()
    heard = []
    for block in from_growing(path, None if is_wav else PcmFormat(8000), stop=stop).blocks(8000, 0.1):
        heard.append(block)
        if sum(map(len, heard)) == 8000:
            lock.set()
    recorder.join()
    np.testing.assert_array_equal(np.concatenate(heard), samples.astype(np.float32) / 32768)


def test_a_wav_that_was_finished_ends_where_its_samples_do(tmp_path, rng):
    samples = rng.uniform(-1, 1, 4000)
    soundfile.write(tmp_path / "a.wav", samples, 8000)
    with (tmp_path / "a.wav").open("ab") as file:
        file.write(b"LIST" + struct.pack("<I", 4) + b"INFO")
    heard = np.concatenate(list(from_growing(tmp_path / "a.wav").blocks(8000, 1.0)))
    assert len(heard) == 4000


def test_a_length_that_is_out_of_date_is_not_believed(tmp_path, rng):
    soundfile.write(tmp_path / "a.wav", rng.uniform(-1, 1, 4000), 8000)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", 1000)
    (tmp_path / "a.wav").write_bytes(data)
    assert sum(map(len, from_growing(tmp_path / "a.wav", idle=0).blocks(8000, 1.0))) == 4000


def test_asking_stops_a_pipe_that_waits():
    read, write = os.pipe()
    os.write(write, bytes(2000))
    stop = Interruption()
    with os.fdopen(read, "rb") as pipe:
        blocks = from_pipe(pipe, "pipe", PcmFormat(8000), stop=stop).blocks(8000, 0.1)
        assert len(next(blocks)) == 800
        stop._receive(signal.SIGINT, None)  # nothing waits just now, so nothing is torn
        assert [len(block) for block in blocks] == [200]
    os.close(write)


def test_an_interruption_that_nobody_asked_for_is_passed_on():
    class Interrupted(io.BytesIO):
        def read1(self, size=-1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(from_pipe(Interrupted(), "pipe", PcmFormat(8000)).blocks(8000, 0.1))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            b"fLaC" + bytes(100),
            "contains flac, which cannot be read while it grows; record to wav, or pipe raw samples",
        ),
        (b"OggS" + bytes(100), "contains ogg"),
        (bytes(100), r"has no wav header; for raw samples, give at least their rate \(--rate 44100\)"),
        (b"", "contains no samples: it ended before its wav header did"),
        (b"RIFF....WAVEdata" + bytes(20), "samples before their format"),
        (b"RIFF....WAVEfmt \4\0\0\0" + bytes(20), "expected a format of at least 16 bytes, got 4"),
        (b"RIFF....WAVEfmt \x10\0\0\0" + struct.pack("<HHIIHH", 2, 1, 8000, 0, 0, 4), "coding 2 with 4 bits"),
        (b"RIFF....WAVEfmt \x10\0\0\0" + struct.pack("<HHIIHH", 1, 1, 3, 0, 0, 16), "damaged: rate: expected"),
        (b"RIFF....WAVE" + b"junk\xff\xff\xff\x00" * 140_000, "no samples within 1048576 bytes"),
    ],
)
def test_what_is_no_wav_is_refused(data, told):
    with pytest.raises(DataError, match=told):
        from_pipe(io.BytesIO(data), "pipe")


def test_a_growing_flac_is_refused(tmp_path):
    audio.write(tmp_path / "a.flac", np.zeros(800), 8000)
    with pytest.raises(DataError, match=r"a\.flac: contains flac, which cannot be read while it grows"):
        from_growing(tmp_path / "a.flac")


def test_a_file_that_is_not_there_or_shrinks_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        from_growing(tmp_path / "none.wav")
    with pytest.raises(DataError, match="is not a regular file"):
        from_growing(tmp_path)
    path = tmp_path / "a.raw"
    path.write_bytes(bytes(1600))
    blocks = from_growing(path, PcmFormat(8000)).blocks(8000, 0.1)
    next(blocks)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="was shortened while it was being read"):
        next(blocks)


def test_a_wav_needs_no_format(tmp_path):
    audio.write(tmp_path / "a.wav", np.zeros(800), 8000)
    with pytest.raises(DataError, match="whose header states the format of its samples; omit rate and encoding"):
        from_growing(tmp_path / "a.wav", PcmFormat(8000))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: PcmFormat(8000, 0), "channels: expected 1 to 1024, got 0"),
        (lambda: PcmFormat(8000, 1, "s61"), "encoding='s61' is not known; did you mean 's16'"),
        (lambda: PcmFormat(8), "rate: expected an integer from 1000"),
        (lambda: next(LiveSound("pipe", PcmFormat(8000), ()).blocks(8000, 0)), "block: expected a positive number"),
        (lambda: from_growing("a.wav", idle=-1), "idle: expected a number of seconds, got -1"),
    ],
)
def test_impossible_settings_are_refused(make, told):
    with pytest.raises(ArgumentError, match=told):
        make()


@pytest.mark.parametrize("context", [12, 0, None])
@pytest.mark.parametrize("seconds", [20.0, 4.03, 1.0, 0.3, 0.01])
def test_events_are_those_of_the_whole_however_the_sound_comes(rng, context, seconds):
    scorer, decoder = Loudness(context), Decoder(threshold=0.6, low=0.4, median=0.1, min_gap=0.1, min_duration=0.05)
    samples = bursts(rng, seconds)
    expected = whole(scorer, samples, decoder)
    assert expected or seconds < 1
    for sizes in (lambda: 1, lambda: 800, lambda: int(rng.integers(1, 5000)), lambda: 10**6):
        if sizes() == 1 and seconds > 1:
            continue
        heard = listen(scorer, cut(samples, iter(sizes, None)), decoder, name="live")
        assert by_time(heard) == expected


@pytest.mark.parametrize("context", [12, None])
@pytest.mark.parametrize("block", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("decoder", [Decoder(), Decoder(median=0.2, min_gap=0.3, threshold=0.4)])
def test_events_are_given_out_no_later_than_promised(rng, context, block, decoder):
    scorer = Loudness(context)
    samples = bursts(rng, 30)
    bound = latency_bound(scorer, decoder, block=block)
    arrived = 0

    def arriving():
        nonlocal arrived
        for piece in cut(samples, iter(lambda: round(block * 8000), None)):
            arrived += len(piece)
            yield piece

    late = [arrived / 8000 - event.offset for event in listen(scorer, arriving(), decoder, name="live")]
    assert len(late) > 3
    assert max(late) <= sum(bound.values())
    assert max(late) > 0.5 * (sum(bound.values()) - block)  # the promise is worth something


def test_the_promise_holds_for_resampled_sound_too(rng):
    scorer, decoder, block = Loudness(), Decoder(), 0.1
    data = (np.repeat(bursts(rng, 20), 2) * 30000).astype("<i2").tobytes()
    arrived = 0

    def arriving():
        nonlocal arrived
        for k in range(0, len(data), 640):
            arrived += 320
            yield data[k : k + 640]

    sound = LiveSound("pipe", PcmFormat(16000), arriving())
    bound = latency_bound(scorer, decoder, block=block, resampling=sound.delay(8000))
    late = [arrived / 16000 - event.offset for event in listen(scorer, sound.blocks(8000, block), decoder, name="pipe")]
    assert len(late) > 3
    assert max(late) <= sum(bound.values())


def test_silence_and_no_sound_at_all_have_no_events():
    assert list(listen(Loudness(), [], Decoder(), name="live")) == []
    assert list(listen(Loudness(), [np.zeros(9000, np.float32)], Decoder(), name="live")) == []


def test_memory_does_not_grow_with_the_sound(rng):
    scorer, decoder, piece = Loudness(), Decoder(), bursts(rng, 10)

    def sound(blocks):
        for _ in range(blocks):
            yield piece.copy()

    def peak(blocks):
        tracemalloc.start()
        count = sum(1 for _ in listen(scorer, sound(blocks), decoder, name="live"))
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return count, top

    few, low = peak(3)
    many, high = peak(150)
    assert many > 30 * few
    assert high < 1.1 * low


@pytest.mark.parametrize(
    ("bytes_of", "told"),
    [
        (
            lambda x: x.astype("<f4").tobytes() + b"abc",
            "pipe: ends in the middle of a sample: expected 4 bytes for .*, got 3",
        ),
        (
            lambda x: np.concatenate([x, [np.nan], x]).astype("<f4").tobytes(),
            r"pipe: sample 80000 \(at 10\.000 s\) is nan",
        ),
    ],
)
def test_damaged_sound_is_refused_after_the_events_before_the_damage(rng, bytes_of, told):
    samples = bursts(rng, 10)
    sound = from_pipe(io.BytesIO(bytes_of(samples)), "pipe", PcmFormat(8000, encoding="f32"))
    heard = []
    events = listen(Loudness(), sound.blocks(8000, 0.5), Decoder(), name="live")
    with pytest.raises(DataError, match=told):
        heard.extend(events)
    assert by_time(heard) == whole(Loudness(), samples, Decoder())


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Half a minute at 16 kHz, in two channels."""
    rng = np.random.default_rng(4)
    path = tmp_path_factory.mktemp("sound") / "night watch.wav"
    loud = np.repeat(rng.uniform(0, 1, 60), 8000)[:, None]
    soundfile.write(path, loud * rng.uniform(-1, 1, (480_000, 2)), 16000)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory, recording):
    """An untrained detector that changes its mind often in this recording."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        features = FeatureConfig(rate=8000, n_fft=512, hop_samples=256, n_bands=32, scaling="fixed")
        detector = Detector(["dog", "cat"], features, create_network("cnn", 32), create_pool("max", 2)).eval()
        logits = detector(LogMel(features)(torch.from_numpy(audio.read(recording, rate=8000))[None])).logits
        detector.head.weight /= logits.std((0, 1))[:, None]
        detector.head.bias.copy_(-logits.mean((0, 1)) / logits.std((0, 1)))
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_detector(path, detector, network={"name": "cnn"}, pool={"name": "max"})
    return path


def rounded(events):
    return sorted((round(e.onset, 3), round(e.offset, 3), e.label, round(e.confidence, 3)) for e in events)


def test_a_growing_file_gives_the_events_of_the_finished_one(tmp_path, capsys, model, recording):
    decoder = Decoder(min_gap=0.2)
    formats = {"tsv": "events.tsv", "audacity": "events.txt", "raven": "events.selections.txt", "jams": "events.jams"}
    detect_live(load(model), str(recording), decoder, idle=0.1, out=tmp_path / "out", formats=formats)
    lines = capsys.readouterr().out.splitlines()
    found = sorted((float(a), float(b), label, float(c)) for a, b, label, c in (line.split("\t") for line in lines))
    assert found == rounded(load(model).detect(recording, decoder=decoder))
    assert len(found) > 10
    assert set(os.listdir(tmp_path / "out")) == {*formats.values(), "events.csv"}
    for format, name in {**formats, "csv": "events.csv"}.items():
        assert len(read_labels(tmp_path / "out" / name, format)) == len(found)
    as_it_came = [row[1:] for row in csv.reader((tmp_path / "out" / "events.csv").read_text().splitlines())]
    assert as_it_came[0] == ["onset", "offset", "label", "confidence"]
    assert [label for _, _, label, _ in as_it_came[1:]] == [line.split("\t")[2] for line in lines]
    with pytest.raises(ArgumentError, match=r"out contains events\.csv already; choose another folder"):
        detect_live(load(model), str(recording), decoder, idle=0.1, out=tmp_path / "out", formats=["tsv"])
    detect_live(load(model), str(recording), decoder, idle=0.1, out=tmp_path / "csv", formats=["csv"])
    written = read_labels(tmp_path / "csv" / "events.csv")
    assert len(written) == len(found)


def test_whatever_ends_it_the_events_until_then_are_in_the_folder(tmp_path, monkeypatch, model, recording):
    def torn(*args, name):
        yield Label(name, 0.25, 1.5, "dog", True, 0.75)
        raise MemoryError

    monkeypatch.setattr(live, "listen", torn)
    with pytest.raises(MemoryError):
        detect_live(load(model), str(recording), Decoder(), idle=0.1, out=tmp_path / "out", formats=["tsv"])
    assert os.listdir(tmp_path / "out") == ["events.csv"]
    (event,) = read_labels(tmp_path / "out" / "events.csv")
    assert (event.onset, event.offset, event.label, event.confidence) == (0.25, 1.5, "dog", 0.75)


def test_csv_is_the_table_that_grows(tmp_path, monkeypatch, model, recording):
    """An event that ends first may begin last, so that the table is not in order of onsets."""

    def heard(*args, name):
        yield Label(name, 2.0, 3.0, "dog", True, 0.75)
        yield Label(name, 0.0, 10.0, "cat", True, 0.75)

    monkeypatch.setattr(live, "listen", heard)
    with replacing_nothing():  # as on the command line
        detect_live(load(model), str(recording), Decoder(), idle=0.1, out=tmp_path, formats=["csv", "tsv"])
    assert sorted(os.listdir(tmp_path)) == ["events.csv", "events.tsv"]
    assert [row.label for row in read_labels(tmp_path / "events.csv")] == ["dog", "cat"]
    assert [row.label for row in read_labels(tmp_path / "events.tsv")] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("formats", "told"),
    [
        (["tvs"], "format='tvs' is not known; did you mean 'tsv'"),
        (["csv", "dcase2017"], "both write .csv"),
        (["dcase2017"], "both write .csv"),
    ],
)
def test_formats_are_looked_at_before_anything_is_heard(tmp_path, model, formats, told):
    with pytest.raises(ArgumentError, match=told):
        detect_live(load(model), str(tmp_path / "none.wav"), Decoder(), out=tmp_path / "out", formats=formats)
    assert os.listdir(tmp_path) == []


def test_standard_input_is_heard_until_it_is_interrupted(model, recording):
    command = [sys.executable, "-m", "earmark.cli", "detect", str(model), "-", "--live", "--json", "--rate", "16000"]
    pipes = {"stdin": warm.PIPE, "stdout": warm.PIPE, "stderr": warm.PIPE}
    with warm.Popen([*command, "--channels", "2"], **pipes) as listener:
        limit = threading.Timer(300, listener.kill)  # only so that nothing waits for ever
        limit.start()
        assert b"listening to standard input (16000 Hz, 2 x s16); events are printed" in listener.stderr.readline()
        samples, _ = soundfile.read(recording, dtype="int16")
        listener.stdin.write(samples.astype("<i2").tobytes())
        listener.stdin.flush()  # and stays open
        expected = [event for event in rounded(load(model).detect(recording)) if event[1] < 23]
        lines = [listener.stdout.readline() for _ in expected]
        listener.send_signal(signal.SIGINT)
        rest, told = listener.communicate()
        limit.cancel()
    found = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    found = sorted((row["onset"], row["offset"], row["label"], row["confidence"]) for row in found)
    assert (listener.returncode, told) == (0, b"")
    assert [event for event in found if event[1] < 20] == [event for event in expected if event[1] < 20]
    assert len(expected) > 5


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("-", {"encoding": "f32"}, "raw samples need their rate: add --rate"),
        ("-", {"idle": 1.0}, "--idle is for growing files; a pipe ends by itself"),
        ("-", {}, "standard input is a terminal; pipe audio into it"),
    ],
)
def test_what_cannot_be_listened_to_is_refused(monkeypatch, model, source, options, told):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(ArgumentError, match=told):
        detect_live(load(model), source, Decoder(), **options)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((False, [Path("a.wav")], {"rate": 8000}, {}), "--rate requires --live"),
        ((True, [Path("a.wav")], {}, {"--keep-scores": True}), "--keep-scores cannot be combined with --live"),
        ((True, [Path("a.wav"), Path("b.wav")], {}, {}), "--live: expected one input, .* got 2"),
        ((False, [Path("-")], {}, {"--workers": 2}), "- is standard input, which only --live reads"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(given, told):
    with pytest.raises(ArgumentError, match=told):
        check_options(*given)


@pytest.mark.parametrize("encoding", ["f32", "f64"])
def test_garbage_is_one_error_and_no_warning(encoding, rng):
    data = rng.bytes(80_000)
    sound = from_pipe(io.BytesIO(data), "standard input", PcmFormat(8000, encoding=encoding))
    with warnings.catch_warnings(action="error"), pytest.raises(DataError, match="standard input: sample"):
        list(sound.blocks(8000, 0.5))
