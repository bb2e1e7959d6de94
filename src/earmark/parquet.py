"""Two columns of a Parquet file, a number and a list of numbers in each row, as arrays.

`read_lists` is to be called in an isolated process (`earmark.isolation.IsolatedProcess`): pyarrow ends the process for
some damaged files, and a few bytes can stand for any amount of memory. It imports nothing else of earmark but errors,
so that such a process starts quickly.
"""

import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from earmark.errors import DataError

__all__ = ["Lists", "read_lists"]

_ROWS = 1024  # read at once
_BUFFER = 1 << 20  # bytes of the file; without it, whole columns are read at once


class Lists(NamedTuple):
    """The content of a file."""

    numbers: npt.NDArray[np.float64]  # (rows,)
    lists: npt.NDArray[np.float32]  # (rows, numbers in a list)
    about: dict[str, str]  # metadata of the file


def read_lists(path: str, number: str, numbers: str, *, largest: int) -> Lists:
    """Read a column of numbers and a column of lists of numbers, all of one length.

    `largest` limits the bytes of both columns, with 8 for each number. Unexpected columns raise a DataError without the
    name of the file; a damaged file raises an exception of pyarrow.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # others reserve a gigabyte, which counts as used
    from pyarrow.parquet import ParquetFile

    columns: list[npt.NDArray[np.float64]] = [np.zeros(0)]
    lists: list[npt.NDArray[np.float32]] = []
    lengths: set[int] = set()
    with ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
        _check_columns(file, number, numbers, largest)
        about = {_text(key): _text(value) for key, value in (file.schema_arrow.metadata or {}).items()}
        for batch in file.iter_batches(_ROWS, columns=[number, numbers], use_threads=False):
            columns.append(np.asarray(batch[number].to_numpy(zero_copy_only=False), np.float64))
            lists.append(_rows(batch[numbers], numbers, lengths))
    return Lists(np.concatenate(columns), np.concatenate(lists or [np.zeros((0, 0), np.float32)]), about)


def _rows(column: Any, name: str, lengths: set[int]) -> npt.NDArray[np.float32]:
    """Lists of a batch as an array; `lengths` are those of the lists so far."""
    from pyarrow import compute

    lengths.update(compute.list_value_length(column).unique().drop_null().to_pylist())
    if column.null_count or len(lengths) > 1:
        raise DataError(f"{name}: expected lists of one length, got {sorted(lengths)[:3]}")
    values = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1 if len(column) else 0)
    with np.errstate(over="ignore"):  # of numbers beyond float32, which become infinite
        return np.array(values, np.float32)  # a copy, since the batch takes more memory


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _check_columns(file: Any, number: str, numbers: str, largest: int) -> None:
    """Reject columns that are not numbers, or too many: many equal numbers take only a few bytes of the file."""
    from pyarrow import types

    schema, about = file.schema_arrow, file.metadata
    kinds = {}
    for name in (number, numbers):
        if name not in schema.names:
            raise DataError(f"column {name!r} is missing")
        kinds[name] = schema.field(name).type
    inner = getattr(kinds[numbers], "value_type", None)
    if not _is_number(kinds[number]) or not types.is_nested(kinds[numbers]) or not _is_number(inner):
        raise DataError(f"expected numbers as {number} and lists of numbers as {numbers}, got {kinds}")
    columns = [about.row_group(i).column(j) for i in range(about.num_row_groups) for j in range(about.num_columns)]
    size = 8 * sum(c.num_values for c in columns if c.path_in_schema.partition(".")[0] in kinds)
    if size > largest:
        raise DataError(f"expected at most {largest >> 20} MiB of numbers, got {size >> 20} MiB")


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return kind is not None and (types.is_floating(kind) or types.is_integer(kind))
