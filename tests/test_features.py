"""Log-mel features: librosa's numbers, the same in any batch and any blocks, and pitch shifts that shift."""

import copy
import importlib.util
import pickle
import warnings
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import scipy
import torch
from oracles import librosa

from earmark.errors import ArgumentError, DataError
from earmark.features import FeatureConfig, LogMel, mel_matrix
from earmark.features.config import Window

spec = importlib.util.spec_from_file_location("reference_features", Path(__file__).parent / "reference" / "features.py")
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)

CONFIGS = {
    "paper": {},
    "htk": {"htk": True, "norm": None},
    "short window": {"rate": 16000, "n_fft": 1024, "win_samples": 400, "hop_samples": 160, "n_bands": 64},
    "band limits": {"rate": 22050, "n_fft": 1024, "hop_samples": 512, "n_bands": 40, "fmin": 50.0, "fmax": 8000.0},
    "not centred": {"rate": 8000, "n_fft": 512, "hop_samples": 100, "n_bands": 20, "center": False, "range_db": 50.0},
    "magnitude": {"power": 1.0, "window": "hamming", "n_bands": 33},
    "reflected": {"pad_mode": "reflect"},
    "reflected, odd": {"rate": 11025, "n_fft": 501, "hop_samples": 3, "n_bands": 15, "pad_mode": "reflect"},
    "odd": {"rate": 11025, "n_fft": 501, "win_samples": 321, "hop_samples": 77, "n_bands": 15},
    "hop beyond window": {"rate": 8000, "n_fft": 256, "hop_samples": 700, "n_bands": 12},
    "one band": {"rate": 8000, "n_fft": 256, "hop_samples": 128, "n_bands": 1},
    "loud amin": {"rate": 8000, "n_fft": 256, "hop_samples": 128, "n_bands": 10, "amin": 1e-3},
}
every_config = pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
SMALL = {"rate": 8000, "n_fft": 256, "hop_samples": 128, "n_bands": 20}


def sound(n, rng, rate=8000):
    """Noise whose level changes over 60 dB, and a tone."""
    time = np.arange(n) / rate
    level = 10 ** (-1.5 + 1.5 * np.sin(2 * np.pi * 1.3 * time))
    return (0.1 * level * rng.standard_normal(n) + 0.2 * np.sin(2 * np.pi * 441 * time)).astype(np.float32)


def by_librosa(y, config, ref=np.max):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sounds shorter than a frame
        energies = librosa().feature.melspectrogram(
            y=y,
            sr=config.rate,
            n_fft=config.n_fft,
            hop_length=config.hop_samples,
            win_length=config.win_samples,
            window=config.window,
            center=config.center,
            pad_mode="constant" if config.pad_mode == "zeros" else "reflect",
            power=config.power,
            n_mels=config.n_bands,
            fmin=config.fmin,
            fmax=config.fmax,
            htk=config.htk,
            norm=config.norm,
        )
    return librosa().power_to_db(energies, ref=ref, amin=config.amin, top_db=config.range_db)


def tone(frequency, rate=44100, seconds=1.0):
    return torch.sin(2 * torch.pi * frequency * torch.arange(int(rate * seconds), dtype=torch.float64) / rate)


@every_config
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_librosas(options, dtype, rng):
    config = FeatureConfig(**options)
    y = sound(30_000, rng).astype(dtype)
    x = LogMel(config)(torch.from_numpy(y)[None])
    assert x.shape == (1, config.n_bands, config.frames(len(y)))
    assert x.dtype == torch.from_numpy(y).dtype
    # 80 dB below the maximum, float32's rounding in either package is some thousandths of a decibel
    np.testing.assert_allclose(x[0], by_librosa(y, config), atol=5e-3 if dtype == np.float32 else 1e-3, rtol=0)


@every_config
def test_fixed_features_are_librosas_with_a_fixed_reference(options, rng):
    config = FeatureConfig(**options, scaling="fixed")
    y = sound(30_000, rng)
    expected = by_librosa(y, FeatureConfig(**{**options, "range_db": 1e3}), ref=10 ** (config.reference_db / 10))
    x = LogMel(config)(torch.from_numpy(y)[None])[0]
    np.testing.assert_allclose(x, np.maximum(expected, -config.range_db), atol=5e-3, rtol=0)


def test_features_of_real_sounds_are_librosas(shared):
    import soundfile

    paths = sorted((shared / "urbansed" / "soundbank").rglob("*.ogg"))[::300]
    assert paths
    for path in paths:
        y, rate = soundfile.read(path, dtype="float32")
        config = FeatureConfig(rate=rate)
        x = LogMel(config)(torch.from_numpy(y)[None])[0]
        np.testing.assert_allclose(x, by_librosa(y, config), atol=0.01, rtol=0)


@every_config
def test_mel_matrix_is_librosas(options):
    c = FeatureConfig(**options)
    expected = librosa().filters.mel(
        sr=c.rate, n_fft=c.n_fft, n_mels=c.n_bands, fmin=c.fmin, fmax=c.fmax, htk=c.htk, norm=c.norm
    )
    np.testing.assert_allclose(mel_matrix(c), expected, atol=1e-7 * expected.max(), rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"scaling": "fixed"}, {"center": False, "win_samples": 200}, {"htk": True}, {"pad_mode": "reflect"}],
    ids=str,
)
@pytest.mark.parametrize("semitones", [0.0, 3.0, -5.5])
def test_features_follow_the_formulas(options, semitones, rng):
    config = FeatureConfig(**SMALL, **options)
    y = sound(3000, rng)
    x = LogMel(config)(torch.from_numpy(y)[None], semitones=[semitones])[0, 0]
    np.testing.assert_allclose(x, reference.log_mel(y, config.to_dict(), semitones), atol=1e-3, rtol=0)


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 128 * 108 - 1, 128 * 108, 128 * 108 + 128])
@pytest.mark.parametrize("pad_mode", ["zeros", "reflect"])
def test_short_and_round_lengths(n, pad_mode, rng):
    y = sound(n, rng)
    config = FeatureConfig(**SMALL, pad_mode=pad_mode)
    x = LogMel(config)(torch.from_numpy(y)[None])[0]
    np.testing.assert_allclose(x, reference.log_mel(y, config.to_dict()), atol=1e-3, rtol=0)
    if pad_mode == "zeros":  # librosa refuses to reflect a sound shorter than its padding
        np.testing.assert_allclose(x, by_librosa(y, config), atol=1e-3, rtol=0)


def test_padding_changes_the_first_and_the_last_frame_only(rng):
    y = torch.from_numpy(sound(441_000, rng, 44100))[None]
    zeros, reflect = (LogMel(FeatureConfig(pad_mode=mode, scaling="fixed"))(y)[0] for mode in ("zeros", "reflect"))
    differ = (zeros != reflect).any(dim=0).nonzero().flatten().tolist()
    assert differ == [0, 430]


@pytest.mark.parametrize(("scaling", "value"), [("clip", 0.0), ("fixed", -80.0)])
def test_silence_is_finite_and_so_are_its_gradients(scaling, value):
    samples = torch.zeros(2, 1000, requires_grad=True)
    x = LogMel(FeatureConfig(**SMALL, scaling=scaling))(samples)
    assert (x == value).all()
    x.sum().backward()
    assert (samples.grad == 0).all()


def test_silence_is_what_librosa_makes_of_it():
    assert by_librosa(np.zeros(1000, np.float32), FeatureConfig(**SMALL)) == pytest.approx(0, abs=1e-4)  # dB


@pytest.mark.parametrize("options", [{}, {"scaling": "fixed"}, {"power": 1.0}])
def test_gradients_are_right(options, rng):
    logmel = LogMel(FeatureConfig(rate=8000, n_fft=32, hop_samples=16, n_bands=4, **options))
    y = torch.from_numpy(rng.standard_normal((2, 90))).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: logmel(y, semitones=[0.0, -1.0]), (y,))


@pytest.mark.parametrize(("semitones", "tolerance"), [(-12, 1.7), (-2, 0.6), (-1, 0.6), (0.5, 0.6), (2, 0.6), (7, 1.7)])
@pytest.mark.parametrize("frequency", [250.0, 300.0, 1000.0, 1010.0, 3000.0, 5000.0])
def test_a_shifted_tone_looks_like_the_tone_it_becomes(frequency, semitones, tolerance):
    """At the peak, and in the bands within 3 dB of it: farther down is the skirt of the window, which stays."""
    logmel = LogMel(FeatureConfig(scaling="fixed"))
    frames = slice(4, -4)  # away from the ends
    shifted = logmel(tone(frequency)[None], semitones=[semitones])[0, 0, :, frames].mean(1)
    truth = logmel(tone(frequency * 2 ** (semitones / 12))[None])[0, :, frames].mean(1)
    assert abs(shifted.argmax() - truth.argmax()) <= 1  # two bands may share the peak
    assert abs(shifted.max() - truth.max()) < tolerance
    assert (shifted - truth)[truth > truth.max() - 3].abs().max() < 1.5 * tolerance


@pytest.mark.parametrize("semitones", [-7.0, -2.0, 2.0, 7.0])
def test_shifted_noise_keeps_its_energy(semitones, rng):
    """It is spread over r times the bandwidth at 1 / r of the density."""
    y = torch.from_numpy(rng.standard_normal((1, 20 * 44100)))
    logmel = LogMel(FeatureConfig(scaling="fixed"))
    plain, shifted = (10 ** (logmel(y, semitones=[0.0, semitones])[0, :, :80] / 10)).mean(-1)
    np.testing.assert_allclose(10 * torch.log10(shifted / plain), -10 * semitones / 12 * np.log10(2), atol=0.5)


def test_several_shifts_are_the_single_ones_and_none_is_no_shift(rng):
    logmel = LogMel(FeatureConfig(**SMALL))
    y = torch.from_numpy(sound(8000, rng)).reshape(2, -1)
    several = logmel(y, semitones=[-2, 0, 1.5])
    assert several.shape == (2, 3, 20, 32)
    assert torch.equal(several[:, 1], logmel(y))
    assert torch.equal(several[:, 2], logmel(y, semitones=[1.5])[:, 0])


def test_bands_that_a_shift_fills_from_beyond_half_the_rate_hold_the_floor(rng):
    logmel = LogMel(FeatureConfig(**SMALL))
    down = logmel(torch.from_numpy(sound(8000, rng))[None], semitones=[-12])[0, 0]
    corners = librosa().mel_frequencies(22, fmin=0, fmax=4000)
    assert (down[corners[:-2] >= 2000] == -80).all()
    assert (down[corners[2:] <= 2000].amax(1) > -80).all()


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["clip", "fixed"])
@pytest.mark.parametrize("padding", [{}, {"center": False}, {"pad_mode": "reflect"}], ids=str)
def test_exported_it_computes_the_same_for_any_batch_and_length(scaling, padding, rng):
    logmel = LogMel(FeatureConfig(**SMALL, scaling=scaling, **padding)).eval()
    y = torch.from_numpy(sound(30_000, rng)).reshape(3, -1)
    n, bags = torch.export.Dim("n", min=512, max=1 << 24), torch.export.Dim("bags", min=1, max=1 << 10)
    program = torch.export.export(logmel, (y,), dynamic_shapes=({0: bags, 1: n},))
    for batch in (y, y[:2, :4567].contiguous()):
        torch.testing.assert_close(program.module()(batch), logmel(batch), atol=1e-4, rtol=0)


@pytest.mark.parametrize("pad_mode", ["zeros", "reflect"])
def test_all_bags_together_give_what_one_after_the_other_gives(pad_mode, rng):
    """The way of GPUs and compilers, on a CPU."""
    logmel = LogMel(FeatureConfig(**SMALL, pad_mode=pad_mode))
    y = torch.from_numpy(sound(30_000, rng)).reshape(3, -1)
    together = logmel._together(y, logmel._tables(y.dtype, [0.0, 2.0])).transpose(-1, -2)
    torch.testing.assert_close(together, logmel(y, semitones=[0.0, 2.0]), atol=1e-4, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("scaling", ["clip", "fixed"])
def test_a_gpu_computes_the_same(scaling, rng):
    logmel = LogMel(FeatureConfig(scaling=scaling))
    y = torch.from_numpy(sound(2_000_000, rng)).reshape(10, -1)
    on_gpu = copy.deepcopy(logmel).cuda()(y.cuda(), semitones=[0, 2]).cpu()
    torch.testing.assert_close(on_gpu, logmel(y, semitones=[0, 2]), atol=1e-3, rtol=0)


def test_half_precision_is_computed_in_single(rng):
    logmel = LogMel(FeatureConfig(**SMALL))
    y = torch.from_numpy(sound(4000, rng))[None]
    expected = logmel(y)
    assert torch.equal(copy.deepcopy(logmel).half()(y), expected)
    assert torch.equal(copy.deepcopy(logmel).to("meta").to_empty(device="cpu")(y), expected)
    assert torch.equal(logmel(y.half()), logmel(y.half().float()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(logmel(y), expected)


def test_it_holds_no_state_and_travels():
    logmel = LogMel(FeatureConfig(**SMALL))
    assert not logmel.state_dict()
    assert not list(logmel.parameters())
    y = torch.ones(1, 1000)
    assert torch.equal(pickle.loads(pickle.dumps(logmel))(y), logmel(y))


BAD_CALLS = [
    (torch.zeros(5), {}, ArgumentError, r"samples: expected \(bags, samples\), got shape \(5,\)"),
    (torch.zeros(1, 5, dtype=torch.int16), {}, ArgumentError, r"floating-point numbers.*got torch.int16"),
    (torch.zeros(1, 0), {}, DataError, "without samples"),
    (torch.full((1, 500), torch.inf), {}, DataError, "NaN, infinity"),
    (torch.zeros(1, 500), {"semitones": []}, ArgumentError, r"expected one or more finite numbers, got \[\]"),
    (torch.zeros(1, 500), {"semitones": [np.nan]}, ArgumentError, r"semitones: expected .* got \[nan\]"),
    (torch.zeros(1, 500), {"semitones": [48]}, ArgumentError, "shifted by 48 semitones, .* of 20 bands lie between"),
]


@pytest.mark.parametrize(("samples", "options", "kind", "message"), BAD_CALLS)
def test_calls_that_mean_nothing_are_refused(samples, options, kind, message):
    with pytest.raises(kind, match=message):
        LogMel(FeatureConfig(**SMALL))(samples, **options)


def test_without_centring_a_sound_must_fill_a_frame():
    config = FeatureConfig(**SMALL, center=False)
    assert config.frames(256) == 1
    with pytest.raises(DataError, match=r"255 samples is shorter than one frame of n_fft 256; .*center=True"):
        LogMel(config)(torch.zeros(1, 255))


BAD_SETTINGS = [
    ({"rate": 0}, "^rate: expected a whole number from 1 to 10000000, got 0$"),
    ({"hop_samples": 10.5}, "hop_samples: expected a whole number from 1 to 1048576, got 10.5"),
    ({"n_bands": True}, "n_bands: expected a whole number from 1 to 8192, got True"),
    ({"n_fft": 1}, "n_fft: expected a whole number from 2 to 1048576, got 1"),
    ({"win_samples": 0}, "win_samples: expected a whole number of at least 1, or none, got 0"),
    ({"win_samples": 4096}, r"expected win_samples of at most n_fft \(2048\), got 4096"),
    ({"window": "han"}, "window: expected hann, .* or boxcar, got 'han'; did you mean 'hann'"),
    ({"scaling": "clipp"}, "scaling: expected clip or fixed, got 'clipp'; did you mean 'clip'"),
    ({"norm": "l2"}, "norm: expected slaney or none, got 'l2'"),
    ({"center": "yes"}, "center: expected true or false, got 'yes'"),
    ({"fmin": "low"}, "fmin: expected a number of at least 0, got 'low'"),
    ({"range_db": np.inf}, "range_db: expected a finite number above 0 and at most 1000, got inf"),
    ({"range_db": 0}, "range_db: expected a number above 0 and at most 1000, got 0"),
    ({"range_db": 1e308}, "range_db: expected a number above 0 and at most 1000, got 1e"),
    ({"amin": 1e-300}, "amin: expected a number from 1e-37 to 1000000, got 1e-300"),
    ({"reference_db": -1e308}, "reference_db: expected a number from -1000 to 1000, got -1e"),
    ({"amin": -1}, "amin: expected a number from 1e-37 to 1000000, got -1"),
    ({"fmax": 30_000}, r"expected fmax of at most 22050 Hz \(half the rate\), got 30000"),
    ({"fmin": 500, "fmax": 400}, r"expected fmin below fmax \(400 Hz\), got 500"),
    ({"fmin": -1}, "fmin: expected a number of at least 0, got -1"),
    ({"n_bands": 512}, r"\d+ of 512 bands lie between two bins .* choose n_fft 4096 or n_bands \d+"),
    ({"fmin": 100, "fmax": 100.01, "n_bands": 1}, "1 of 1 bands lie .* choose fmin and fmax farther apart"),
]


@pytest.mark.parametrize(("options", "message"), BAD_SETTINGS)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        FeatureConfig(**options)


def test_what_is_advised_against_empty_bands_works():
    with pytest.raises(ArgumentError) as error:
        FeatureConfig(n_bands=512)
    FeatureConfig(n_bands=512, n_fft=4096)
    fewer = int(str(error.value).split()[-1])
    FeatureConfig(n_bands=fewer)
    with pytest.raises(ArgumentError, match="lie between"):
        FeatureConfig(n_bands=fewer + 1)


def test_settings_travel_as_plain_values():
    config = FeatureConfig(rate=np.int64(16000), n_fft=512, n_bands=32, range_db=np.float32(60), fmax=8000)
    assert FeatureConfig.from_dict(config.to_dict()) == config
    assert {type(value) for value in config.to_dict().values()} <= {int, float, str, bool, type(None)}
    assert FeatureConfig.from_dict({}) == FeatureConfig()
    with pytest.raises(ArgumentError, match="key='hop' is not known"):
        FeatureConfig.from_dict({"hop": 512})


def test_the_fingerprint_tells_features_apart_and_stays():
    assert FeatureConfig().fingerprint() == "c6e8a6b26ec39788"  # features kept on disk are found by it
    same = [{"fmax": 22050}, {"win_samples": 2048}, {"range_db": 80}, {"reference_db": 3}, {"pad_mode": "zeros"}]
    assert {FeatureConfig(**options).fingerprint() for options in same} == {FeatureConfig().fingerprint()}
    other = [
        {"scaling": "fixed"},
        {"scaling": "fixed", "reference_db": 3},
        {"n_bands": 64},
        {"rate": 22050},
        {"htk": True},
        {"pad_mode": "reflect"},
    ]
    other += [{"norm": None}, {"center": False}, {"hop_samples": 512}, {"power": 1}, {"window": "hamming"}]
    assert len({FeatureConfig(**options).fingerprint() for options in [{}, *other]}) == len(other) + 1


def test_hops_and_frames():
    config = FeatureConfig()
    assert config.hop == 1024 / 44100
    assert config.frames(441000) == 431
    assert config.frames(1) == 1
    with pytest.raises(DataError, match="without samples"):
        config.frames(0)


@pytest.mark.parametrize("name", get_args(Window))
@pytest.mark.parametrize("length", [1, 2, 321, 400, 2048])
def test_windows_are_those_of_scipy(name, length):
    log_mel = LogMel(FeatureConfig(rate=8000, n_fft=2048, win_samples=length, window=name, n_bands=10))
    left = (2048 - length) // 2
    expected = scipy.signal.get_window(name, length).astype(np.float32)
    np.testing.assert_array_equal(log_mel.window.numpy()[left : left + length], expected)
