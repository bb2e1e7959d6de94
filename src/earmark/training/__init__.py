"""Training: a detector learns from bags.

Files, each importing only those before it: `schedule` (when to learn slower, when to stop), `memory` (what a run
remembers, and where), `augmentation` (what is done to a batch), `board` (TensorBoard), `steps` (one step, fast),
`validation` (how good it is), `watch` (how long it takes), `loop` (all of them, safely), `run` (from data to model).
"""

from __future__ import annotations

from earmark.training.loop import Result, create_detector, train
from earmark.training.memory import check_folder
from earmark.training.schedule import Schedule
from earmark.training.validation import validate
from earmark.training.watch import TrainingProgress

__all__ = ["Result", "Schedule", "TrainingProgress", "check_folder", "create_detector", "train", "validate"]
