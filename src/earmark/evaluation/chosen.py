"""Choosing the clips of a data set to evaluate a model on, with notes on clips left out or used in training."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from earmark.checkpoint import read_model_info
from earmark.datasets import Collection, is_published, open_data, path_of, separator_in, with_separator
from earmark.errors import EarmarkError, unknown_name
from earmark.evaluation.references import seen_notes
from earmark.text import counted, listed, plural


@dataclass(frozen=True)
class TrainingData:
    """The training data that a model file names: its source, and the fingerprint of its names and labels."""

    source: str = ""
    fingerprint: str = ""

    def is_source(self, data: str) -> bool:
        """Whether the path is the one that was trained on."""
        if not self.source:
            return False
        if is_published(data) or is_published(self.source):
            return self.source == data
        return path_of(self.source).resolve() == path_of(data).resolve()

    def as_trained(self, data: str) -> str:
        """The data, with the separator that training was given if they are the same and have none.

        Otherwise the labels would be other ones, and with them the splits.
        """
        if is_published(data) or not self.is_source(data) or separator_in(data) is not None:
            return data
        return with_separator(data, separator_in(self.source))

    def matches(self, data: Collection) -> bool:
        """Whether names, splits and labels are those that were trained on."""
        from earmark.training.run import data_fingerprint

        return bool(self.fingerprint) and data_fingerprint(data) == self.fingerprint

    def notes(self, data: str, split: str) -> tuple[str, ...]:
        """A note if the model was trained or chosen on the clips of a split."""
        notes = seen_notes(split)
        if not notes or not self.fingerprint:
            return ()
        try:
            return notes if self.matches(open_data(data)) else ()
        except EarmarkError:  # other splits may be missing, which does not matter here
            return ()


def training_data(model: Path | None) -> TrainingData:
    """The training data that a model file names; empty for ONNX files and models without a file."""
    if model is None or model.suffix == ".onnx":
        return TrainingData()
    about = read_model_info(model)["provenance"]
    return TrainingData(str(about.get("data_source") or ""), str(about.get("data") or ""))


def choose_clips(
    data: str, split: str | None, trained_on: TrainingData, *, needs_labels: bool = True
) -> tuple[Collection, str, tuple[str, ...]]:
    """The clips to evaluate, the name of their split, and notes on those that are left out.

    By default these are the test clips; or all clips, if the data have no splits and the model was not trained on them.
    Data may be without labels if they are not needed, because the reference comes from elsewhere.
    """
    if split == "all" or is_published(data):
        split = split or "test"
        return open_data(data, split, needs_labels=needs_labels), split, ()
    whole = open_data(data, needs_labels=needs_labels)
    notes: tuple[str, ...] = ()
    if split is None and not whole.has_own_splits:
        is_same = trained_on.matches(whole)
        is_known = is_same or trained_on.is_source(data)
        if not is_known or "test" not in whole.splits:
            return whole, "all", ()
        if not is_same:
            what = "recordings or labels have changed since training, so the random splits have changed too"
            notes = (f"{what}: some of these clips may have been trained on",)
    split = split or "test"
    if split not in whole.splits:
        raise unknown_name("split", split, (*whole.splits, "all"))
    others = [clip.split for clip in whole.clips if clip.split != split]
    return whole.split(split), split, (*notes, *left_out_notes(others))


def left_out_notes(splits: Iterable[str]) -> tuple[str, ...]:
    """A note on clips that are not evaluated, by their splits.

    >>> left_out_notes(["train", "train", "validate"])
    ('3 clips are left out: 2 of split train and 1 of split validate; --split all evaluates all',)
    """
    counts = Counter(splits)
    if not counts:
        return ()
    n = counts.total()
    parts = listed(f"{count} of split {split}" for split, count in counts.items())
    return (f"{counted(n, 'clip')} {plural(n, 'is', 'are')} left out: {parts}; --split all evaluates all",)
