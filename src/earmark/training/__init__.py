"""Training a detector on bags.

Files, each importing only those before it: `validation` (scores between epochs), `memory` (state of a run and its
files), `steps` (one optimiser step), `watch` (speed and progress), `loop` (the training loop), `run` (from data to
model).
"""

from earmark.training.loop import Run, create_detector, train
from earmark.training.memory import Schedule, check_folder
from earmark.training.validation import validate
from earmark.training.watch import TrainingProgress

__all__ = ["Run", "Schedule", "TrainingProgress", "check_folder", "create_detector", "train", "validate"]
