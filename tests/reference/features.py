"""Log-mel features written from their formulas, slowly: numpy, float64, one frame, one band at a time.

Settings are `FeatureConfig.to_dict()`. Unlike librosa, also shifted in pitch.
"""

import math

import numpy as np


def hertz_to_mel(f, htk):
    if htk:
        return 2595 * math.log10(1 + f / 700)
    return f / (200 / 3) if f < 1000 else 15 + 27 * math.log(f / 1000) / math.log(6.4)


def mel_to_hertz(m, htk):
    if htk:
        return 700 * (10 ** (m / 2595) - 1)
    return m * 200 / 3 if m < 15 else 1000 * 6.4 ** ((m - 15) / 27)


def weight(f, low, middle, high, norm):
    """Height at f of the triangle over low, middle, high."""
    if not low < f < high:
        return 0.0
    height = (f - low) / (middle - low) if f <= middle else (high - f) / (high - middle)
    return height * (2 / (high - low) if norm == "slaney" else 1)


def filters(c, semitones=0.0):
    top = c["rate"] / 2 if c["fmax"] is None else c["fmax"]
    ends = hertz_to_mel(c["fmin"], c["htk"]), hertz_to_mel(top, c["htk"])
    corners = [mel_to_hertz(m, c["htk"]) for m in np.linspace(*ends, c["n_bands"] + 2)]
    bins = [k * c["rate"] / c["n_fft"] for k in range(c["n_fft"] // 2 + 1)]
    ratio = 2 ** (semitones / 12)
    rows = []
    for b in range(c["n_bands"]):
        own = corners[b : b + 3]
        row = [weight(ratio * f, *own, c["norm"]) for f in bins]
        if own[2] / ratio <= c["rate"] / 2:  # it keeps 1 / ratio of its sum
            scale = sum(weight(f, *own, c["norm"]) for f in bins) / ratio / sum(row)
            row = [scale * w for w in row]
        rows.append(row)
    return np.array(rows)


def hann(n):
    return np.array([0.5 - 0.5 * math.cos(2 * math.pi * i / n) for i in range(n)])


def log_mel(samples, c, semitones=0.0):
    """Features of one sound: (samples,) to (bands, frames)."""
    assert c["window"] == "hann"
    n_fft, win = c["n_fft"], c["win_samples"] or c["n_fft"]
    window = np.zeros(n_fft)
    window[(n_fft - win) // 2 :][:win] = hann(win)
    if c["center"]:
        samples = np.pad(samples, n_fft // 2, mode={"zeros": "constant", "reflect": "reflect"}[c["pad_mode"]])
    mel, columns = filters(c, semitones), []
    for begin in range(0, len(samples) - n_fft + 1, c["hop_samples"]):
        spectrum = np.fft.rfft(window * samples[begin : begin + n_fft])
        columns.append(mel @ abs(spectrum) ** c["power"])
    level = 10 * np.log10(np.maximum(np.stack(columns, axis=1), c["amin"]))
    level -= level.max() if c["scaling"] == "clip" else c["reference_db"]
    return np.maximum(level, -c["range_db"])
