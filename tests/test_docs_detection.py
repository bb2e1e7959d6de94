"""Every command of docs/detection.md does what it says there, with a model that finds loud sounds."""

import doctest
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_scorer import EnergyScorer, bursts
from test_readme import BLOCK, commands

from earmark import audio
from earmark.cli import main
from earmark.detection.detector import SoundDetector
from earmark.pooling import create_pool

PAGE = (Path(__file__).parents[1] / "docs" / "detection.md").read_text()


class StandIn(EnergyScorer):
    """The louder, the likelier a bittern; a frog is never heard."""

    classes = ("bittern", "frog")

    def score(self, samples):
        return super().score(samples) * np.float32([1, 0])


def load(path, **options):
    assert str(path) == "run"
    detector = SoundDetector(StandIn())
    detector.pool = create_pool("max", 2)
    return detector


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with recordings, one of them damaged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("earmark.detection.detector.load", load)
    Path("recordings/plot 2").mkdir(parents=True)
    Path("recordings/broken.wav").write_bytes(b"RIFF")
    audio.write("night.wav", bursts(70, (2, 3), (65, 65.5)), 8000)
    audio.write("recordings/20260514_221500.wav", bursts(70, (2, 3), (65, 65.5)), 8000)
    audio.write("recordings/plot 2/20260514_231500.flac", bursts(20, (4, 6)), 8000)


def test_the_page_about_detection_works_from_top_to_bottom(place, monkeypatch, capfd):
    kinds = []
    for _, kind, block in BLOCK.findall(PAGE):
        kinds.append(kind)
        if kind == "console":
            for words, shown in commands(block):
                monkeypatch.setattr(sys, "argv", words)
                with pytest.raises(SystemExit) as ended:
                    main()
                out, err = capfd.readouterr()
                assert ended.value.code == (" failed: " in shown), err
                assert doctest.OutputChecker().check_output(shown, err + out, doctest.ELLIPSIS), err + out
        elif kind == "python":
            examples = doctest.DocTestParser().get_doctest(block, {}, "docs/detection.md", None, None)
            assert doctest.DocTestRunner().run(examples).failed == 0
    assert kinds.count("console") == 7
    assert kinds.count("python") == 1


def test_the_folder_of_a_job_is_as_the_page_shows_it(place, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["earmark", "detect", "run", "recordings", "--out", "found", "--keep-scores"])
    with pytest.raises(SystemExit):
        main()
    listing = next(block for _, kind, block in BLOCK.findall(PAGE) if kind == "text")
    for line in listing.splitlines():
        pattern = line.split("  ")[0].replace("NAME", "**/*")
        assert list(Path("found").glob(pattern)), pattern
