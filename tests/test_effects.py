"""earmark.effects: signals with known answers, slow references, and other people's measurements."""

import subprocess
import sys

import numpy as np
import pytest

from earmark import audio
from earmark.effects import PRESETS, Compressor, change_pitch_and_time, compress, fade, loudness
from earmark.errors import ArgumentError, DataError

RATE = 44100
CHANGES = [(2, 1.0), (-3, 1.0), (0, 0.8), (0, 1.2), (3, 0.8), (-3, 1.2), (3, 1.2), (2.37, 1.1)]


def tone(frequency, seconds, rate=RATE, level=0.3):
    return (level * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def peak_frequency(x, rate=RATE):
    spectrum = np.log(np.abs(np.fft.rfft(x * np.hanning(len(x)), 1 << 19)) + 1e-12)
    k = int(spectrum.argmax())
    a, b, c = spectrum[k - 1 : k + 2]
    return (k + (a - c) / (a - 2 * b + c) / 2) * rate / (1 << 19)


def centre(x):
    """When the energy of a sound is, on average, in samples."""
    energy = x.astype(np.float64) ** 2
    return (energy * np.arange(len(x))).sum() / energy.sum()


def rms_db(x):
    return 10 * np.log10(np.mean(x.astype(np.float64) ** 2) + 1e-30)


@pytest.mark.parametrize(("semitones", "stretch"), CHANGES)
@pytest.mark.parametrize("frequency", [60, 220, 1000, 7000])
def test_tones_come_out_at_the_pitch_and_level_wanted(frequency, semitones, stretch):
    x = tone(frequency, 2.0)
    y = change_pitch_and_time(x, RATE, semitones=semitones, stretch=stretch)
    assert len(y) == round(len(x) * stretch)
    assert y.dtype == np.float32
    middle = y[len(y) // 5 : -len(y) // 5]
    assert abs(1200 * np.log2(peak_frequency(middle) / frequency) - 100 * semitones) < 2
    assert abs(rms_db(middle) - rms_db(x)) < 0.5
    for edge in (y[:882], y[-882:]):
        assert abs(rms_db(edge) - rms_db(x)) < 2


@pytest.mark.parametrize(("semitones", "stretch"), CHANGES)
def test_onsets_come_out_when_they_should(semitones, stretch):
    for onset in (0, 500, 5000, 22050, 40000):
        click = np.zeros(RATE, np.float32)
        click[onset] = 1
        y = change_pitch_and_time(click, RATE, semitones=semitones, stretch=stretch)
        assert abs(centre(y) - onset * stretch) < 0.003 * RATE
    burst = np.zeros(RATE, np.float32)
    burst[10000:30000] = tone(1000, 20000 / RATE)
    y = change_pitch_and_time(burst, RATE, semitones=semitones, stretch=stretch)
    assert abs(centre(y) - 20000 * stretch) < 0.001 * RATE
    smooth = np.sqrt(np.convolve(y.astype(np.float64) ** 2, np.ones(441) / 441, "same"))
    loud = np.flatnonzero(smooth > 0.3 / np.sqrt(2) / 2)
    assert abs(loud[0] - 10000 * stretch) < 0.02 * RATE
    assert abs(loud[-1] - 30000 * stretch) < 0.02 * RATE


@pytest.mark.parametrize("rate", [8000, 22050, RATE])
@pytest.mark.parametrize("length", [2, 10, 100, 441, 2000])
def test_short_sounds_do_not_vanish(length, rate, rng):
    x = rng.standard_normal(length).astype(np.float32)
    for semitones, stretch in CHANGES:
        y = change_pitch_and_time(x, rate, semitones=semitones, stretch=stretch)
        assert len(y) == round(length * stretch)
        assert abs(rms_db(y) - rms_db(x)) < 6


def test_no_change_is_none_and_silence_stays_silent(rng):
    x = rng.standard_normal(1000).astype(np.float32)
    y = change_pitch_and_time(x, RATE)
    assert np.array_equal(x, y)
    assert y is not x
    silence = np.zeros(5000, np.float32)
    assert np.array_equal(change_pitch_and_time(silence, RATE, semitones=2, stretch=1.1), np.zeros(5500, np.float32))
    assert change_pitch_and_time(np.zeros(0, np.float32), RATE, stretch=1.1).shape == (0,)


def test_every_process_changes_pitch_to_the_same_bytes(rng):
    code = """
import hashlib, numpy as np
from earmark.effects import change_pitch_and_time
x = np.random.default_rng(5).standard_normal(20000).astype(np.float32)
y = [change_pitch_and_time(x, 22050, semitones=s, stretch=t).tobytes() for s, t in ((2, 1.1), (12, 2), (0, 0.8))]
print(hashlib.sha256(b"".join(y)).hexdigest())
"""
    here = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert len(here) == 65
    assert here == there


def test_impossible_changes_are_refused():
    x = np.ones(10, np.float32)
    with pytest.raises(ArgumentError, match=r"semitones: expected a number in \[-12, 12\], got 13"):
        change_pitch_and_time(x, RATE, semitones=13)
    with pytest.raises(ArgumentError, match=r"stretch: expected a number in \[0.5, 2\], got 0"):
        change_pitch_and_time(x, RATE, stretch=0)
    with pytest.raises(ArgumentError, match=r"semitones: expected a number in .* got nan"):
        change_pitch_and_time(x, RATE, semitones=np.nan)


@pytest.mark.parametrize("effect", [change_pitch_and_time, loudness, fade, lambda x, r: compress(x, r, "radio")])
def test_every_effect_wants_finite_mono_and_leaves_it_alone(effect, rng):
    with pytest.raises(ArgumentError, match=r"expected mono samples of shape \(samples,\), got \(5, 2\)"):
        effect(np.zeros((5, 2), np.float32), RATE)
    with pytest.raises(ArgumentError, match="rate: expected a positive number, got 0"):
        effect(np.zeros(5, np.float32), 0)
    with pytest.raises(DataError, match="sample 3 is NaN or infinite"):
        effect(np.array([0, 0, 1, np.nan, 0], np.float32), RATE)
    x = rng.standard_normal(3000).astype(np.float32)
    kept = x.copy()
    effect(x, RATE)
    assert np.array_equal(x, kept)


def test_the_standards_own_tone_has_the_standards_loudness():
    for rate, tolerance in ((48000, 0.001), (44100, 0.005), (96000, 0.02), (16000, 0.1)):  # the shelf bends a little
        assert loudness(tone(997, 5, rate, level=1.0), rate) == pytest.approx(-3.01, abs=tolerance), rate


def test_gates_leave_out_what_is_far_below():
    """As in EBU Tech 3341, cases 3 and 4, for one channel: -36, -23 and -36 dB, and a -72 dB frame around them."""
    quiet, loud, silent = (tone(1000, s, 48000, 10 ** (db / 20)) for s, db in ((10, -36), (60, -23), (10, -72)))
    expected = loudness(loud, 48000)
    assert expected == pytest.approx(-23 - 3.01, abs=0.01)
    assert loudness(np.concatenate([quiet, loud, quiet]), 48000) == pytest.approx(expected, abs=0.1)
    framed = np.concatenate([silent, quiet, loud, quiet, silent])
    assert loudness(framed, 48000) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000, 96000])
def test_loudness_is_pyloudnorms(rate, rng):
    pyloudnorm = pytest.importorskip("pyloudnorm")
    for seconds in (1, 3):
        levels = np.repeat(10 ** rng.uniform(-3, -0.5, 5 * seconds), rate // 5)
        x = (rng.standard_normal(len(levels)) * levels).astype(np.float32)
        wide = x.astype(np.float64)
        exact = pyloudnorm.Meter(rate, filter_class="DeMan").integrated_loudness(wide)
        assert loudness(x, rate) == pytest.approx(exact, abs=0.01)
        # its default filters are round numbers near the standard's
        assert loudness(x, rate) == pytest.approx(pyloudnorm.Meter(rate).integrated_loudness(wide), abs=0.3)


def test_filters_at_48_khz_are_those_of_the_standard():
    from earmark.effects import _k_weighting

    shelf = [1.53512485958697, -2.69169618940638, 1.19839281085285, 1, -1.69065929318241, 0.73248077421585]
    high_pass = [1, -2, 1, 1, -1.99004745483398, 0.99007225036621]
    np.testing.assert_allclose(_k_weighting(48000), [shelf, high_pass], atol=1e-9)


def test_short_sounds_are_repeated_until_loudness_can_be_measured(rng):
    x = rng.standard_normal(3000).astype(np.float32)
    assert loudness(x, RATE) == loudness(np.tile(x, 8), RATE)  # 8 * 3000 is the first multiple above 0.5 s
    assert loudness(np.ones(1, np.float32), RATE) == loudness(np.ones(RATE // 2, np.float32), RATE)
    assert loudness(2 * x, RATE) == pytest.approx(loudness(x, RATE) + 6.0206, abs=1e-3)


def test_silence_has_no_loudness():
    assert loudness(np.zeros(RATE, np.float32), RATE) == -np.inf
    assert loudness(np.zeros(0, np.float32), RATE) == -np.inf
    assert loudness(tone(1000, 1, level=1e-4), RATE) == -np.inf  # below the gate at -70


def test_fades_are_quarter_sines():
    y = fade(np.ones(100, np.float32), 1000, 0.02, 0.03)
    np.testing.assert_allclose(y[:20], np.sin(np.pi / 2 * np.arange(20) / 20), atol=1e-6)
    np.testing.assert_array_equal(y[20:70], 1)
    np.testing.assert_allclose(y[70:], np.sin(np.pi / 2 * np.arange(30, 0, -1) / 30), atol=1e-6)


def test_fades_may_be_absent_or_longer_than_the_sound():
    x = np.ones(10, np.float32)
    assert np.array_equal(fade(x, 1000, 0, 0), x)
    assert fade(np.zeros(0, np.float32), 1000).shape == (0,)
    for seconds in (0.01, 5, np.inf):
        np.testing.assert_allclose(fade(x, 1000, seconds, 0), np.sin(np.pi / 2 * np.arange(10) / 10), atol=1e-6)
    with pytest.raises(ArgumentError, match="fade_out: expected 0 or more seconds, got -1"):
        fade(x, 1000, 0, -1)


def compand(x, rate, c):
    """sox's compand, sample by sample, as its manual and the docstring of `compress` tell it."""
    rise, fall = (1 - np.exp(-1 / (rate * seconds)) for seconds in (c.attack, c.decay))
    v, gains = 1.0, []
    places, levels = np.array(c.points).T
    for sample in np.abs(x.astype(np.float64)):
        v += (rise if sample > v else fall) * (sample - v)
        gains.append(np.interp(20 * np.log10(v), places, levels - places) + c.gain)
    ahead = int(c.lookahead * rate)
    return np.array([s * 10 ** (gains[min(n + ahead, len(x) - 1)] / 20) for n, s in enumerate(x)])


@pytest.mark.parametrize("name", PRESETS)
def test_compression_is_the_slow_loop(name, rng):
    rate = 2000
    levels = np.repeat(10 ** rng.uniform(-5, 0, 20), 1000)
    noise = rng.standard_normal(20000) * levels
    steps = np.sign(np.sin(np.arange(20000) / 50)) * levels  # many ties: |x| is constant
    for x in (noise, steps, np.sin(np.arange(20000) / 3) * levels):
        x = x.astype(np.float32)
        np.testing.assert_allclose(compress(x, rate, name), compand(x, rate, PRESETS[name]), rtol=1e-5, atol=1e-9)


def test_compression_is_the_slow_loop_on_long_and_short_sounds(rng):
    own = Compressor(((-80, -60), (-40, -30), (0, -10)), 0.001, 0.002, gain=3.0, lookahead=0.01)
    for length in (1, 5, 79, 81, 40000):
        x = rng.standard_normal(length).astype(np.float32)
        np.testing.assert_allclose(compress(x, 8000, own), compand(x, 8000, own), rtol=1e-5, atol=1e-9)
    assert compress(np.zeros(0, np.float32), 8000, own).shape == (0,)
    assert not compress(np.zeros(500, np.float32), 8000, own).any()


def test_a_steady_level_comes_out_where_the_transfer_function_says():
    for name, level, expected in (("radio", -60, -25), ("film standard", -50, -44), ("music standard", -60, -48)):
        x = np.full(20 * 8000, 10 ** (level / 20), np.float32)
        y = compress(x, 8000, name)
        assert 20 * np.log10(y[-1]) == pytest.approx(expected, abs=0.1), name


def test_presets_compress_real_sounds(shared):
    path = sorted((shared / "urbansed" / "soundbank").rglob("*.ogg"))[0]
    rate = audio.info(path).rate
    x = audio.read(path)
    for name in PRESETS:
        y = compress(x, rate, name)
        assert y.shape == x.shape
        assert np.isfinite(y).all()


def test_bad_compressors_are_refused():
    with pytest.raises(ArgumentError, match="preset='raido' is not known; did you mean 'radio'"):
        compress(np.ones(5, np.float32), RATE, "raido")
    with pytest.raises(ArgumentError, match=r"expected 0 < attack <= decay, got attack 1.0, decay 0.1"):
        compress(np.ones(5, np.float32), RATE, Compressor(((-90, -90), (0, 0)), 1.0, 0.1))
