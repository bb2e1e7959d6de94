"""Refuse files above 500 kB in a commit: python tools/check_size.py FILE ..."""

import sys
from pathlib import Path

LARGEST = 500_000
large = [name for name in sys.argv[1:] if Path(name).is_file() and Path(name).stat().st_size > LARGEST]
for name in large:
    print(f"{name}: {Path(name).stat().st_size} bytes; at most {LARGEST} belong in the repository")
sys.exit(bool(large))
