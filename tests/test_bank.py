"""The embedded sound bank: what every class promises, and that classes differ while no two draws of one are alike."""

import numpy as np
import pytest
from scipy import signal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from earmark.errors import ArgumentError
from earmark.synthesis.bank import CLASSES, make_sound
from earmark.synthesis.timbres import Canvas, band, blend, gain, peaks, ring, tilt

every_class = pytest.mark.parametrize("label", CLASSES)


def draw(label, seed, **options):
    return make_sound(label, np.random.default_rng([seed, CLASSES.index(label)]), **options)


def describe(sound, rate):
    """What a spectrogram of 16 bands shows at a glance: levels (loudness removed), spread, restlessness; in dB."""
    hertz, _, power = signal.spectrogram(sound, rate, nperseg=1024, noverlap=512)
    which = np.digitize(hertz, np.geomspace(60.0, 7500.0, 17))
    levels = 10 * np.log10(np.array([power[which == k].mean(0) for k in range(1, 17)]) + 1e-12)
    return np.concatenate([levels.mean(1) - levels.mean(), levels.std(1), np.abs(np.diff(levels)).mean(1)])


def longest_silence(sound, rate):
    """Seconds during which 10-ms frames stay below -50 dBFS."""
    step = round(0.01 * rate)
    frames = sound[: len(sound) // step * step].reshape(-1, step)
    quiet = np.sqrt((frames**2).mean(1)) < gain(-50.0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], quiet, [0]])))
    return 0.01 * max(edges[1::2] - edges[::2], default=0)


def test_the_classes_are_those_of_urban_sed():
    assert list(CLASSES) == sorted(CLASSES)
    assert len(set(CLASSES)) == 10
    assert {"siren", "gun_shot", "children_playing"} < set(CLASSES)


@every_class
def test_a_sound_is_float32_finite_and_peaks_at_minus_3_dbfs(label):
    for seed in range(4):
        sound = draw(label, seed, rate=22050)
        assert sound.dtype == np.float32
        assert sound.ndim == 1
        assert np.isfinite(sound).all()
        assert np.abs(sound).max() == pytest.approx(gain(-3.0), rel=1e-5)


@every_class
@pytest.mark.parametrize(("rate", "duration"), [(8000, 1.0), (16000, 2.3456), (44100, 0.5), (48000, 1.25)])
def test_duration_is_kept_at_any_rate(label, rate, duration):
    sound = draw(label, 1, rate=rate, duration=duration)
    assert sound.shape == (round(duration * rate),)
    assert np.abs(sound).max() == pytest.approx(gain(-3.0), rel=1e-5)


@every_class
def test_very_short_sounds_can_be_had(label):
    for samples in (1, 2, 100, 900):
        sound = draw(label, 2, rate=8000, duration=samples / 8000)
        assert sound.shape == (samples,)
        assert np.isfinite(sound).all()
        assert np.abs(sound).max() > 0


@every_class
def test_the_generator_decides_everything(label):
    first, again, other = draw(label, 3, rate=8000), draw(label, 3, rate=8000), draw(label, 4, rate=8000)
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or not np.allclose(first, other)


@every_class
def test_one_generator_gives_one_sound_after_another(label, rng):
    first, second = (make_sound(label, rng, rate=8000, duration=0.5) for _ in range(2))
    assert not np.allclose(first, second)


def test_natural_durations_differ_by_class():
    lengths = {label: [len(draw(label, seed, rate=4000)) / 4000 for seed in range(8)] for label in CLASSES}
    assert all(0.25 < length < 10.1 for several in lengths.values() for length in several)
    assert max(lengths["gun_shot"]) <= 1.0 < min(lengths["siren"])
    assert max(lengths["dog_bark"]) <= 2.0 < min(lengths["air_conditioner"])
    assert all(len(set(several)) > 1 for several in lengths.values())


@every_class
def test_it_sounds_throughout(label):
    for seed in range(8):
        sound = draw(label, seed, rate=8000, duration=5.0)
        assert longest_silence(sound, 8000) <= 0.35


@every_class
def test_there_is_no_dc(label):
    for seed in range(4):
        assert abs(draw(label, seed, rate=16000, duration=2.0).mean()) < 0.002


@every_class
def test_a_low_rate_does_not_fold_the_spectrum(label):
    """Where aliasing would heap up what lies above half the rate, the top of the band stays below the rest."""
    for seed in range(4):
        sound = draw(label, seed, rate=8000, duration=2.0)
        hertz, power = signal.welch(sound, 8000, nperseg=512)
        assert power[hertz > 3700].mean() < power[hertz <= 3700].mean()


def test_tones_leave_out_harmonics_that_would_alias(rng):
    canvas = Canvas(rng, 8000, 8000)
    sweep = canvas.tone(canvas.through((0.0, 300.0), (1.0, 1700.0)), tilt(0.0))
    hertz, _, power = signal.spectrogram(sweep, 8000, window="blackman", nperseg=1024)
    assert power[hertz > 3650].max() < 1e-6 * power.max()
    assert not canvas.tone(3900.0, tilt(0.0)).any()


def test_classes_can_be_told_apart():
    """By the nearest class mean, in units of the spread within classes, learned from 12 draws of each."""

    def drawn(seeds):
        return np.array(
            [describe(draw(label, seed, rate=16000, duration=2.0), 16000) for label in CLASSES for seed in seeds]
        )

    nearest_mean = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    nearest_mean.fit(drawn(range(100, 112)), np.repeat(CLASSES, 12))
    assert nearest_mean.score(drawn(range(200, 210)), np.repeat(CLASSES, 10)) > 0.7


def test_no_class_is_known_by_its_loudness():
    levels = {
        label: [20 * np.log10(draw(label, k, rate=8000, duration=2.0).std()) for k in range(10)] for label in CLASSES
    }
    for label in CLASSES:
        others = [level for other in CLASSES if other != label for level in levels[other]]
        assert min(levels[label]) < max(others)
        assert max(levels[label]) > min(others)


@every_class
def test_no_two_draws_of_a_class_are_alike(label):
    drawn = [describe(draw(label, k, rate=16000, duration=2.0), 16000) for k in range(6)]
    apart = [np.abs(a - b).mean() for k, a in enumerate(drawn) for b in drawn[:k]]
    assert min(apart) > 0.8  # dB, over all bands


def test_strikes_ring_at_their_frequency_and_fade_in_their_time(rng):
    canvas = Canvas(rng, 8000, 8000)
    sound = ring(canvas.strikes([0.0]), 8000, [500.0, 9000.0], [0.5, 0.5])
    assert np.argmax(np.abs(np.fft.rfft(sound))) == pytest.approx(500, abs=2)
    loud, late = np.abs(sound[:160]).max(), np.abs(sound[4000:4160]).max()
    assert 20 * np.log10(late / loud) == pytest.approx(-60, abs=1)


def test_strikes_after_the_end_are_left_out(rng):
    strikes = Canvas(rng, 1000, 100).strikes([0.01, 0.0999, 0.2], [1.0, 2.0, 3.0])
    assert strikes.shape == (100,)
    assert np.flatnonzero(strikes).tolist() == [10, 99]


def test_noise_has_its_colour(rng):
    canvas = Canvas(rng, 16000, 160000)
    hertz, power = signal.welch(canvas.noise(tilt(-6.0)), 16000, nperseg=2048)
    octave = [10 * np.log10(power[(hertz > f * 0.9) & (hertz < f * 1.1)].mean()) for f in (500.0, 1000.0, 4000.0)]
    assert octave[0] - octave[1] == pytest.approx(6.0, abs=1.0)
    assert octave[1] - octave[2] == pytest.approx(12.0, abs=1.0)


def test_colours_are_gains_by_frequency():
    hertz = np.array([100.0, 1000.0, 10000.0])
    assert list(20 * np.log10(tilt(-6.0)(hertz)[1:])) == pytest.approx([0.0, -19.93], abs=0.01)
    assert np.argmax(band(500.0, 2000.0)(hertz)) == 1
    assert np.argmax(peaks([10000.0], [100.0])(hertz)) == 2


def test_a_blend_has_the_levels_asked_for_and_takes_silence(rng):
    loud, silent = rng.normal(size=1000), np.zeros(1000)
    assert blend((loud, -20.0), (silent, 0.0)).std() == pytest.approx(0.1, rel=0.01)
    assert not blend((silent, 0.0)).any()


def test_a_class_that_is_not_there(rng):
    with pytest.raises(
        ArgumentError, match=r"label='dog_brak' is not known; did you mean 'dog_bark'\? Choose from: air_"
    ):
        make_sound("dog_brak", rng)


@pytest.mark.parametrize("duration", [0.0, -1.0, float("nan"), float("inf"), 1e-9])
def test_a_duration_that_cannot_be(rng, duration):
    with pytest.raises(ArgumentError, match=r"duration: expected at least one sample, got"):
        make_sound("siren", rng, duration=duration)


def test_a_rate_that_is_too_low(rng):
    with pytest.raises(ArgumentError, match=r"rate: expected at least 4000 Hz, got 100"):
        make_sound("siren", rng, rate=100)
