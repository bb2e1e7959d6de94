"""What is in the folder of a training run."""

import json
from pathlib import Path
from typing import Any


def log_of(run: Path) -> list[dict[str, Any]]:
    """The epochs of a run, without what depends on how fast the machine is."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "clips_per_second"} for line in lines]
