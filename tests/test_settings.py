"""Settings: recipes, changes, and the file a run keeps them in."""

import dataclasses
import json
import math
import tomllib

import numpy as np
import pytest
import torch

from earmark.errors import ArgumentError, DataError
from earmark.features import FeatureConfig
from earmark.networks import NETWORKS, create_network
from earmark.pooling import POOLS, create_pool
from earmark.settings import Augmentation, Settings, Training, load_recipe, recipes

each_recipe = pytest.mark.parametrize("name", recipes())


def again(settings):
    return Settings.from_dict(tomllib.loads(settings.to_toml()))


def test_recipes_are_there_and_say_what_they_are():
    assert {"paper", "quick"} <= set(recipes())
    assert all(len(summary) > 20 and not summary.startswith("#") for summary in recipes().values())


@each_recipe
def test_a_recipe_makes_a_detector(name):
    settings = load_recipe(name)
    network, pool = dict(settings.network), dict(settings.pool)
    assert create_network(network.pop("name"), settings.features.n_bands, **network).embedding > 0
    assert create_pool(pool.pop("name"), 3, **pool).n_classes == 3


@each_recipe
def test_a_recipe_comes_back_from_the_run_folder(name):
    settings = load_recipe(name)
    assert again(settings) == settings
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    assert settings.changed({}) == settings


@each_recipe
def test_every_setting_of_a_recipe_can_be_set(name):
    settings = load_recipe(name)
    for section, values in settings.to_dict().items():
        for key, value in values.items():
            text = "none" if value is None else json.dumps(value)
            assert settings.changed({f"{section}.{key}": text}) == settings
            if key != "name":
                assert settings.changed({key: text}) == settings


def test_the_papers_numbers():
    settings = load_recipe("paper")
    features = FeatureConfig(rate=44100, n_fft=2048, hop_samples=1024, n_bands=128, scaling="clip", pad_mode="reflect")
    assert settings.features == features
    assert settings.network == {"name": "cnn", "reduction": 16}
    assert settings.augment == Augmentation(semitones=(-2.0, -1.0, 1.0, 2.0))
    training = settings.training
    assert (training.batch_size, training.patch, training.steps, training.epochs) == (16, 10.0, 512, 150)
    assert (training.plateau_epochs, training.plateau_factor, training.stop_epochs) == (10, 0.1, 30)
    assert (training.monitor, training.min_share, training.bias_penalty) == ("accuracy", 0.1, 0.01)
    others = {"semitones": (-2.0, -1.0, 1.0, 2.0), "pad_mode": "reflect"}  # docs/training.md names both
    assert settings == Settings().changed({"reduction": 16, **others})


def test_what_is_left_out_has_its_default():
    assert Settings.from_dict({}) == Settings()
    partial = Settings.from_dict({"training": {"epochs": 3}, "pool": {"name": "max"}})
    assert partial == Settings(training=Training(epochs=3), pool={"name": "max"})


def test_changes_may_be_numbers_of_other_libraries_and_paths(tmp_path):
    numbers = {"epochs": np.int64(3), "learning_rate": torch.tensor(0.5), "balanced": np.bool_(True)}
    training = load_recipe("quick").changed({**numbers, "teacher": tmp_path}).training
    assert (training.epochs, training.learning_rate, training.balanced) == (3, 0.5, True)
    assert training.teacher == str(tmp_path)
    assert load_recipe("quick").changed({"balanced": "True"}).training.balanced is True


def test_changes_are_values_as_in_toml_with_quotes_or_without():
    changed = load_recipe("paper").changed(
        {
            "epochs": "3",
            "training.learning_rate": "1e-2",
            "patch": "5",
            "min_share": ".2",
            "supervision": "strong",
            "monitor": '"f1"',
            "balanced": "true",
            "semitones": "[-1, 0.5]",
            "precision": "32",
            "fmax": "8000",
            "center": "false",
        }
    )
    training = changed.training
    assert (training.epochs, training.learning_rate, training.patch, training.balanced) == (3, 0.01, 5.0, True)
    assert training.min_share == 0.2
    assert (training.supervision, training.monitor, training.precision) == ("strong", "f1", "32")
    assert isinstance(training.patch, float)
    assert changed.augment.semitones == (-1.0, 0.5)
    assert (changed.features.fmax, changed.features.center) == (8000.0, False)
    assert load_recipe("paper").training.epochs == 150


def test_changes_may_be_python_values():
    changed = Settings().changed(
        {"epochs": 3, "patch": 5, "balanced": True, "semitones": (-1, 0.5), "fmax": None, "pool": "cap", "phi": 0.3}
    )
    assert (changed.training.epochs, changed.training.patch, changed.training.balanced) == (3, 5.0, True)
    assert (changed.augment.semitones, changed.pool) == ((-1.0, 0.5), {"name": "cap", "phi": 0.3})
    with pytest.raises(ArgumentError, match=r"training.epochs: expected a whole number of at least 1, got \[3\]"):
        Settings().changed({"epochs": [3]})


def test_values_are_checked_in_python_too():
    assert Training(epochs=np.int64(3), patch=np.float32(2)) == Training(epochs=3, patch=2.0)
    assert dataclasses.replace(Training(), epochs=7).epochs == 7
    with pytest.raises(ArgumentError, match=r"^epochs: expected a whole number of at least 1, got -1$"):
        Training(epochs=-1)
    with pytest.raises(ArgumentError, match=r"^key='epoch' is not known; did you mean 'epochs'?"):
        Training(epoch=3)
    with pytest.raises(ArgumentError, match=r"^training: expected a table, got 3$"):
        Settings(training=3)
    with pytest.raises(ArgumentError, match=r"^pool='mox' is not known; did you mean 'max'?"):
        Settings(pool={"name": "mox"})


def test_none_is_a_value():
    settings = Settings().changed({"fmax": "8000", "norm": "none"})
    assert settings.features.norm is None
    assert again(settings) == settings
    assert again(settings.changed({"fmax": "none"})).features == FeatureConfig(norm=None)
    assert Settings().changed({"pool": "cap", "pool.bag_size": "none"}).pool == {"name": "cap", "bag_size": None}


def test_the_kind_is_set_before_its_options_in_whatever_order_they_come():
    base = Settings(pool={"name": "rap", "penalty": 0.5})
    for key in ("pool", "pool.name"):
        for changes in ({key: "cap", "phi": "0.3"}, {"phi": "0.3", key: "cap"}, {"pool.phi": "0.3", key: "cap"}):
            assert base.changed(changes).pool == {"name": "cap", "phi": 0.3}


def test_the_same_kind_keeps_its_options_and_another_pool_has_its_own():
    base = Settings(pool={"name": "rap", "penalty": 0.5, "alpha": 2.0})
    assert base.changed({"pool": "rap"}) == base.changed({"pool": '"rap"'}) == base
    assert base.changed({"pool": "auto"}).pool == {"name": "auto"}


def test_another_network_keeps_the_options_that_networks_share():
    quick = load_recipe("quick")
    assert quick.changed({"network": "crnn"}).network == quick.network | {"name": "crnn"}
    back = quick.changed({"network": "crnn", "hidden": "8"}).changed({"network": "cnn"})
    assert back.network == quick.network


@pytest.mark.parametrize("entry", [*POOLS, *NETWORKS], ids=lambda entry: entry.name)
def test_options_of_every_kind_are_settings(entry):
    section = "pool" if entry in list(POOLS) else "network"
    for option in entry.options():
        changed = Settings().changed({section: entry.name, f"{section}.{option}": "1"})
        assert getattr(changed, section)[option] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": "3"}, "setting='epoch' is not known; did you mean 'epochs'?"),
        ({"training.epoch": "3"}, "setting='training.epoch' is not known; did you mean 'training.epochs'?"),
        ({"trainig.epochs": "3"}, "setting='trainig.epochs' is not known; did you mean 'training.epochs'?"),
        ({"features.epochs": "3"}, "setting='features.epochs' is not known"),
        ({"xyzzy": "3"}, r"setting='xyzzy' is not known\. Choose from: rate, "),
        ({"name": "cap"}, "setting 'name' is ambiguous: expected network.name or pool.name"),
        ({"pool": "atuo"}, "pool='atuo' is not known; did you mean 'auto'?"),
        ({"pool": "[1]"}, r"pool='\[1\]' is not known"),
        ({"network": "cnnn"}, "network='cnnn' is not known; did you mean 'cnn'?"),
        ({"pool": "max", "penalty": "3"}, "setting='penalty' is not known"),
        ({"pool": "none"}, "pool='none' is not known"),
        ({"epochs": "3.5"}, "^training.epochs: expected a whole number of at least 1, got 3.5$"),
        ({"epochs": "true"}, "training.epochs: expected a whole number of at least 1, got True"),
        ({"epochs": "many"}, "training.epochs: expected a whole number of at least 1, got 'many'"),
        ({"epochs": "none"}, "training.epochs: expected a whole number of at least 1, got None"),
        ({"epochs": "0"}, "training.epochs: expected a whole number of at least 1, got 0"),
        ({"learning_rate": "fast"}, "training.learning_rate: expected a number above 0, got 'fast'"),
        ({"learning_rate": "true"}, "training.learning_rate: expected a number above 0, got True"),
        ({"learning_rate": "nan"}, "training.learning_rate: expected a finite number above 0, got nan"),
        ({"learning_rate": "inf"}, "training.learning_rate: expected a finite number above 0, got inf"),
        ({"balanced": "1"}, "training.balanced: expected true or false, got 1"),
        ({"monitor": "true"}, "training.monitor: expected accuracy, f1, loss or last, got True"),
        ({"monitor": "f2"}, "training.monitor: expected accuracy, f1, loss or last, got 'f2'$"),
        ({"supervision": "week"}, "expected weak, propagated, strong or mixed, got 'week'; did you mean 'weak'?"),
        ({"precision": "16"}, "training.precision: expected auto, 32 or bf16, got '16'"),
        ({"compile": "maybe"}, "training.compile: expected auto, yes or no, got 'maybe'$"),
        ({"semitones": "2"}, "augment.semitones: expected a list of numbers, got 2"),
        ({"semitones": "[true]"}, r"augment.semitones\[0\]: expected a number, got True"),
        ({"plateau_factor": "0"}, "training.plateau_factor: expected a number above 0 and at most 1, got 0"),
        ({"plateau_factor": "2"}, "training.plateau_factor: expected a number above 0 and at most 1, got 2"),
        ({"min_share": "-0.1"}, "training.min_share: expected a number from 0 to 1, got -0.1"),
        ({"bias_penalty": "-1"}, "training.bias_penalty: expected a number of at least 0, got -1"),
        ({"save_minutes": "nan"}, "training.save_minutes: expected a number of at least 0, got nan"),
        ({"seed": "-1"}, "training.seed: expected a whole number of at least 0, got -1"),
        ({"n_fft": "big"}, "features.n_fft: expected a whole number from 2 to 1048576, got 'big'"),
        ({"scaling": "clips"}, "features.scaling: expected clip or fixed, got 'clips'; did you mean 'clip'?"),
        ({"fmax": "99999"}, r"features: expected fmax of at most 22050 Hz \(half the rate\), got 99999"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_impossible_changes_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        load_recipe("paper").changed(changes)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"trainig": {}}, "^key='trainig' is not known; did you mean 'training'?"),
        ({"training": 3}, "training: expected a table, got 3"),
        ({"training": {"epoch": 3}}, "training: key='epoch' is not known; did you mean 'epochs'?"),
        ({"features": {"bands": 64}}, "features: key='bands' is not known; did you mean 'n_bands'?"),
        ({"pool": {"name": "rap", "penalt": 1}}, "pool 'rap': option='penalt' is not known; did you mean 'penalty'?"),
        ({"pool": {"name": "max", "k": 1}}, r"pool 'max': option='k' is not known\. Choose from: \(none\)"),
        ({"pool": {"name": 3}}, "pool.name: expected text, got 3"),
        ({"network": {"widht": 1}}, "network 'cnn': option='widht' is not known; did you mean 'width'?"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(sections, message):
    with pytest.raises(ArgumentError, match=message):
        Settings.from_dict(sections)


def test_a_recipe_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('# Für alle Fälle\n[training]\nepochs = 3\n[pool]\nname = "max"\n', encoding="utf-8")
    assert load_recipe(path) == load_recipe(str(path)) == Settings(training=Training(epochs=3), pool={"name": "max"})


def test_files_that_are_no_recipes(tmp_path):
    path = tmp_path / "mine.toml"
    with pytest.raises(DataError, match=r"mine\.toml: No such file or directory"):
        load_recipe(path)
    path.write_text("[training\nepochs = 3")
    with pytest.raises(DataError, match=r"mine\.toml: not TOML: .*line 1"):
        load_recipe(path)
    path.write_bytes(b"\x80\x02\xff")
    with pytest.raises(DataError, match=r"mine\.toml: not TOML: .*can't decode"):
        load_recipe(path)
    path.write_text("[training]\nepoch = 3")
    with pytest.raises(ArgumentError, match=r"mine\.toml: training: key='epoch' is not known; did you mean 'epochs'"):
        load_recipe(path)
    path.write_text("epochs = 3")
    with pytest.raises(ArgumentError, match=r"mine\.toml: key='epochs' is not known"):
        load_recipe(path)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(DataError, match=r"folder\.toml: Is a directory"):
        load_recipe(tmp_path / "folder.toml")


def test_an_unknown_recipe():
    with pytest.raises(ArgumentError, match=r"recipe='papper' is not known; did you mean 'paper'\? .* ends in \.toml"):
        load_recipe("papper")


def draw_value(rng, kind, name):
    """A value that the setting can have."""
    words = {
        "supervision": ("weak", "propagated", "strong", "mixed"),
        "pitch_shift": ("filters", "sound"),
        "monitor": ("accuracy", "f1", "loss", "last"),
        "precision": ("auto", "32", "bf16"),
        "compile": ("auto", "yes", "no"),
        "schedule": ("plateau", "one-cycle"),
    }
    if name in words:
        return str(rng.choice(words[name]))
    if name in ("teacher", "start"):
        return (None, "run", "a b.safetensors")[rng.integers(3)]
    if name == "folds":
        return int(rng.choice([0, 2, 100]))
    if name == "prior":
        return float(rng.choice([rng.uniform(0.01, 0.99), 1e-7, 1 / 3]))
    if name == "compression":
        return ("speech", "film light")[: rng.integers(3)]
    if kind is bool:
        return bool(rng.integers(2))
    if kind is int:
        return int(rng.integers(1, 10**6))
    if kind is float:
        return float(rng.choice([rng.random(), 1e-7, 1.0, 1 / 3]))
    return tuple(float(v) for v in rng.normal(size=rng.integers(4)))


def test_whatever_is_set_comes_back_from_the_run_folder(rng):
    kinds = {"int": int, "float": float, "bool": bool, "str": str}
    for _ in range(100):
        built = {
            cls: cls(**{f.name: draw_value(rng, kinds.get(f.type), f.name) for f in dataclasses.fields(cls)})
            for cls in (Training, Augmentation)
        }
        if built[Training].supervision in ("strong", "propagated"):
            built[Training] = dataclasses.replace(built[Training], rounds=0)
        pool = {"name": "auto", "alpha": rng.normal(size=3).tolist()}
        settings = Settings(training=built[Training], augment=built[Augmentation], pool=pool)
        assert again(settings) == settings


def test_numbers_are_written_exactly(rng):
    for value in [*np.exp(rng.uniform(-80, 80, 200)).tolist(), 5e-324, 1.7e308, 0.1]:
        assert again(Settings(pool={"name": "auto", "alpha": value})).pool["alpha"] == value
    never = Settings(training=Training(save_minutes=math.inf))
    assert again(never) == never
    odd = Settings(pool={"name": "auto", "alpha": 'quote " \\ \n tab \t umlaut ü 😀'})
    assert again(odd) == odd


@pytest.mark.parametrize("change", [{"network.norm_momentum": "1979-05-27"}, {"pool.alpha": "[1, 07:32:00]"}])
def test_dates_are_not_options(change):
    with pytest.raises(ArgumentError, match="expected a number, text or a list of them, got "):
        load_recipe("quick").changed({"pool": "auto", **change})
