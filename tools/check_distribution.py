"""List what is in the sdist and the wheel, and refuse what does not belong: python tools/check_distribution.py dist"""

import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

LARGEST = 3_000_000  # bytes of each file, compressed
FOREIGN = (".wav", ".flac", ".mp3", ".npz", ".safetensors", ".ckpt", ".pt", ".onnx")
FOLDERS = ("results", "figures", "site", "demo")


def contents(path: Path) -> dict[str, int]:
    """Size of each file by its path."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {member.filename: member.file_size for member in wheel.infolist()}
    with tarfile.open(path) as sdist:
        return {member.name.partition("/")[2]: member.size for member in sdist.getmembers() if member.isfile()}


def main(folder: Path) -> int:
    """Print a summary of each file; 1 if something does not belong there."""
    problems = []
    files = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    for path in files:
        sizes = contents(path)
        by_folder: Counter[str] = Counter()
        for name, size in sizes.items():
            parts = PurePosixPath(name).parts
            by_folder[parts[0] if len(parts) > 1 else "."] += size
            if name.endswith(FOREIGN) or set(parts) & set(FOLDERS):
                problems.append(f"{path.name}: {name} does not belong there")
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {len(sizes)} files")
        for part, size in by_folder.most_common():
            print(f"  {size / 1e6:6.2f} MB  {part}")
        if path.stat().st_size > LARGEST:
            problems.append(f"{path.name}: expected at most {LARGEST / 1e6:g} MB")
    print("\n".join(problems))
    return bool(problems) or len(files) < 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
