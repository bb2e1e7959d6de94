"""Arrays in .npz files, read with limits: a damaged or malicious file costs little memory and is a one-line error.

    read_arrays(path, {"filenames": ("U", ("clips",)), "p": ("f4", ("frames", 3))})

Each array has a type, "U" for text or numbers as NumPy abbreviates them ("u1 u2 u4": any of these), and a shape. A
dimension is a number, or a name that stands for the same number in all arrays of the file.
"""

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from earmark.errors import DataError, reason
from earmark.files import written_whole

__all__ = ["Shapes", "read_arrays", "write_arrays"]

Shapes = Mapping[str, tuple[str, tuple[str | int, ...]]]
"""Types and shapes of arrays, by name."""

_LARGEST, _RATIO = 1 << 30, 100  # bytes of all arrays; a larger file may be compressed by this factor
_LONGEST_HEADER = 10_000  # characters; NumPy's own limit


def write_arrays(path: Path, arrays: Mapping[str, npt.ArrayLike], *, smaller: bool = False) -> None:
    """Write an .npz file, compressed, atomically; `smaller` compresses slowly (bzip2), for a file that is kept."""
    method = zipfile.ZIP_BZIP2 if smaller else zipfile.ZIP_DEFLATED
    format_: Any = np.lib.format  # not typed
    with written_whole(path) as draft, zipfile.ZipFile(draft, "w", method) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                format_.write_array(member, np.asanyarray(values), allow_pickle=False)


def read_arrays(path: Path, shapes: Shapes, *, optional: Shapes | None = None) -> dict[str, npt.NDArray[Any]]:
    """Read arrays of an .npz file, and those of `optional` that it has, which cannot be written to. Others are ignored.

    Memory is allocated only for arrays whose size is as stated in `shapes`, in their header and in the file's list of
    contents, and which are at most 1 GiB together or 100 times the size of the file.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    sizes: dict[str, int] = {}
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            total = sum(info.file_size for info in members.values())
            limit = max(_LARGEST, _RATIO * path.stat().st_size)
            if total > limit:
                raise DataError(f"expected at most {limit >> 20} MiB of arrays, got {total >> 20} MiB")
            for name, (types, shape) in {**shapes, **(optional or {})}.items():
                if name in members:
                    with archive.open(members[name]) as member:
                        arrays[name] = _read(member, members[name].file_size, name, types, shape, sizes)
                elif name in shapes:
                    raise DataError(f"{name} is missing")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except (OSError, ValueError, SyntaxError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged, truncated, or not an .npz file: {reason(error)}") from error
    except (RuntimeError, NotImplementedError, RecursionError, MemoryError) as error:  # encrypted, or unusual
        raise DataError(f"{path}: not an .npz file that earmark wrote: {reason(error)}") from error
    return arrays


def _read(
    member: IO[bytes], size: int, name: str, types: str, shape: tuple[str | int, ...], sizes: dict[str, int]
) -> npt.NDArray[Any]:
    """One array of the file, of `size` bytes with its header; `sizes` are those of named dimensions so far."""
    format_: Any = np.lib.format  # not typed
    version = format_.read_magic(member)
    read_header = format_.read_array_header_1_0 if version == (1, 0) else format_.read_array_header_2_0
    actual, is_fortran, dtype = read_header(member, max_header_size=_LONGEST_HEADER)
    is_text = dtype.kind == "U" and types == "U"
    if not is_text and dtype.str[1:] not in types.split():
        raise DataError(f"{name}: expected {'text' if types == 'U' else f'numbers ({types})'}, got {dtype}")
    expected = tuple(sizes.get(axis, axis) if isinstance(axis, str) else axis for axis in shape)
    if len(actual) != len(expected) or not all(
        isinstance(e, str) or e == n for e, n in zip(expected, actual, strict=True)
    ):
        raise DataError(f"{name}: expected shape ({', '.join(map(str, expected))}), got {actual}")
    n_bytes = math.prod(actual) * dtype.itemsize
    if n_bytes != size - member.tell():
        raise DataError(f"{name}: expected {n_bytes} bytes for shape {actual}, got {size - member.tell()}")
    sizes.update({axis: n for axis, n in zip(shape, actual, strict=True) if isinstance(axis, str)})
    content = member.read()  # also verifies the CRC of the member
    if len(content) != n_bytes:
        raise DataError(f"{name}: expected {n_bytes} bytes, got {len(content)}")
    flat = np.frombuffer(content, dtype) if n_bytes else np.empty(math.prod(actual), dtype)
    return flat.reshape(actual, order="F" if is_fortran else "C")
