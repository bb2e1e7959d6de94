"""Small data sets in the published layouts, with sounds made here: a fixture for every data set."""

import numpy as np
import yaml

from earmark import audio
from earmark.annotations import LabelTable
from earmark.datasets import DCASE2017, UrbanSED, examples
from earmark.datasets.dcase2017 import _LABELS
from earmark.datasets.examples import draw_scene, write_scene
from earmark.files import make_folder
from earmark.formats import FORMATS


def write_example(name, root):
    """Write the example of a data set, by its name, into a folder."""
    writers = {
        "dcase2017": write_dcase2017,
        "medleydb": write_medleydb,
        "soundscapes": write_soundscapes,
        "urban-sed": write_urban_sed,
    }
    if name == "folder":
        examples.write_example(root)
    else:
        writers[name](root, np.random.default_rng(0))


def write_dcase2017(root, rng):
    """Nine clips of 4 s under invented names, one of them with a class whose times nobody found."""
    letters = np.asarray(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
    for split, n in (("train", 5), ("validate", 2), ("test", 2)):
        lines = []
        for i in range(n):
            name = f"{''.join(rng.choice(letters, 11))}_30.000_34.000.wav"
            rows = draw_scene(name, DCASE2017.classes, rng, duration=4.0)
            write_scene(root / f"{split}_segments" / f"Y{name}", rows, DCASE2017.classes, rng, duration=4.0, rate=22050)
            for k, row in enumerate(rows):
                nowhere = split == "validate" and i == k == 0
                times = "30.000\t34.000" if split == "train" else "0\t0" if nowhere else f"{row.onset}\t{row.offset}"
                lines.append(f"{name}\t{times}\t{row.label}\n")
        folder = root / "groundtruth_release"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _LABELS[split]).write_text("".join(lines), encoding="utf-8")


def write_urban_sed(root, rng):
    """Nine soundscapes of 4 s: train has both kinds of annotation, validate only TXT, test only JAMS."""
    kinds = {"train": ("audacity", "jams"), "validate": ("audacity",), "test": ("jams",)}
    for split, n in (("train", 5), ("validate", 2), ("test", 2)):
        folder = root / "annotations" / split
        for i in range(n):
            name = f"soundscape_{split}_uniform{i}"
            rows = draw_scene(name, UrbanSED.classes, rng, duration=4.0)
            write_scene(root / "audio" / split / f"{name}.wav", rows, UrbanSED.classes, rng, duration=4.0, rate=22050)
            for kind in kinds[split]:
                suffix = ".txt" if kind == "audacity" else ".jams"
                FORMATS.create(kind).write(LabelTable(rows), folder / (name + suffix))


def write_soundscapes(root, rng):
    """Ten soundscapes of 4 s, the last one without events."""
    classes = ("dog_bark", "siren", "jackhammer")
    rows = []
    splits = {}
    for split, n in (("train", 6), ("validate", 2), ("test", 2)):
        for i in range(n):
            name = f"audio/{split}/{split}{i:04d}.flac"
            own = draw_scene(name, classes, rng, duration=4.0, events=0 if (split, i) == ("test", 1) else 2)
            write_scene(root / name, own, classes, rng, duration=4.0, rate=22050)
            FORMATS.create("jams").write(
                LabelTable(own, filenames=[name]),
                root / "annotations" / split / f"{split}{i:04d}.jams",
            )
            splits[name] = split
            rows += own
    FORMATS.create("tsv").write(LabelTable(rows, filenames=splits, splits=splits), root / "labels.tsv")


_RATE, _HOP_SAMPLES = 22050, 1024  # a frame lasts as long as MedleyDB's, 2048 samples at 44.1 kHz
_SONGS = {
    "Ada_Anthem": ("drum set", "electric bass", "male singer", "synthesizer"),
    "Ada_Ballad": ("piano", "female singer", "vocalists"),
    "Bo_Crossroads": ("acoustic guitar", "male singer"),
    "Cy_Drive": ("distorted electric guitar", "distorted electric guitar", "drum set", "electric bass"),
    "Di_Evening": ("clean electric guitar", "piano", "double bass"),
    "Ed_Fields": ("female singer", "female singer"),
    "Flo_Groove": ("drum set", "acoustic guitar", "clean electric guitar", "female singer"),
}
_TONES = sorted({instrument for song in _SONGS.values() for instrument in song} - {"drum set"})


def _write_song(root, name, instruments, rng):
    """Write all files of a song and tell its mixing coefficients."""
    folder = make_folder(root / "Audio" / name / f"{name}_STEMS").parent
    annotations = make_folder(root / "Annotations" / "Instrument_Activations" / "ACTIVATION_CONF")
    frames = int(rng.integers(90, 150))
    mix = np.zeros(frames * _HOP_SAMPLES)
    coefficients, stems, columns = {}, {}, [np.arange(frames) * _HOP_SAMPLES / _RATE]
    for number, instrument in enumerate(instruments, start=1):
        key, file = f"S{number:02d}", f"{name}_STEM_{number:02d}.wav"
        active = np.zeros(frames, dtype=bool)
        active[rng.integers(0, frames // 4) : rng.integers(frames // 2, frames + 1)] = True
        sound = 0.25 * _play(instrument, frames * _HOP_SAMPLES, rng) * np.repeat(active, _HOP_SAMPLES)
        coefficients[number] = round(float(rng.uniform(0.4, 1.0)), 3)
        mix += coefficients[number] * sound
        columns.append(np.where(active, 0.97, 0.03))
        stems[key] = {"filename": file, "instrument": instrument, "component": "", "raw": {}}
        audio.write(folder / f"{name}_STEMS" / file, sound.astype(np.float32), _RATE)
    audio.write(folder / f"{name}_MIX.wav", mix.astype(np.float32), _RATE)
    band, _, title = name.partition("_")
    metadata = {"artist": band, "title": title, "has_bleed": "no", "excerpt": "yes", "stems": stems}
    metadata |= {"mix_filename": f"{name}_MIX.wav", "stem_dir": f"{name}_STEMS"}
    (folder / f"{name}_METADATA.yaml").write_text(yaml.safe_dump(metadata), encoding="utf-8")
    confidences, header = annotations / f"{name}_ACTIVATION_CONF.lab", "time," + ",".join(stems)
    np.savetxt(confidences, np.stack(columns, axis=1), "%.4f", ",", header=header, comments="")
    return coefficients


def _play(instrument, samples, rng):
    """Notes of a quarter of a second in [-1, 1], of a register and a timbre for each instrument; drums are noise."""
    time = np.arange(samples) / _RATE
    since = time % 0.25
    if instrument not in _TONES:
        return np.asarray(rng.uniform(-1, 1, samples) * np.exp(-20 * since))
    rank = _TONES.index(instrument)
    pitch = 55 * 2 ** (rank / 3 + rng.integers(0, 12, 4 * samples // _RATE + 1) / 12)
    phase = 2 * np.pi * pitch[(4 * time).astype(int)] * since
    tone = sum(np.sin(k * phase) / k for k in range(1, rank + 2)) * np.exp(-since * (rank % 4))
    return np.asarray(tone / np.abs(tone).max())


def write_medleydb(root, rng):
    """Write seven songs of six bands: tones and noise, with metadata, confidences and mixing coefficients."""
    coefficients = {song: _write_song(root, song, instruments, rng) for song, instruments in _SONGS.items()}
    (root / "mixing_coefficients.yaml").write_text(yaml.safe_dump(coefficients), encoding="utf-8")
