"""Registries of interchangeable classes, by name: pooling operators, networks, formats, data sets.

A decorator registers a class in the file that defines it; then the command line lists it, `create` builds it by name,
and the contract tests of its family cover it.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from earmark.errors import unknown_name

__all__ = ["Entry", "Registry"]

T = TypeVar("T")
C = TypeVar("C")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered class."""

    name: str
    cls: type[T]
    summary: str
    is_listed: bool = True  # in lists and messages

    def options(self) -> list[str]:
        """Names of the keyword options of its constructor."""
        return [k for k, v in inspect.signature(self.cls).parameters.items() if v.kind is v.KEYWORD_ONLY]


class Registry(Generic[T]):
    """Classes of one family, by name, in order of registration; `kind` names a member in messages: "pool"."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[T]] = {}

    def register(self, name: str, summary: str, *, is_listed: bool = True) -> Callable[[type[C]], type[C]]:
        """Class decorator that registers the class under `name` and sets its attribute `name`."""

        def add(cls: Any) -> Any:
            if name in self._entries and not _is_redefined(self._entries[name].cls, cls):
                raise RuntimeError(f"{self.kind} {name!r} is registered twice: {self._entries[name].cls}, {cls}")
            cls.name = name
            self._entries[name] = Entry(name, cls, summary, is_listed)
            return cls

        return add

    def __getitem__(self, name: str) -> Entry[T]:
        if name not in self._entries:
            raise unknown_name(self.kind, name, [entry.name for entry in self if entry.is_listed])
        return self._entries[name]

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def check_options(self, name: str, options: Iterable[str]) -> None:
        """Reject an unknown name, or an option that the class does not take, with the nearest known one."""
        known = self[name].options()
        for option in options:
            if option not in known:
                raise unknown_name(f"{self.kind} {name!r}: option", option, known or ["(none)"])

    def create(self, name: str, *args: Any, **options: Any) -> T:
        """Create the class called `name`; unknown options are rejected with the nearest known one."""
        self.check_options(name, options)
        return self[name].cls(*args, **options)


def _is_redefined(old: type, new: type) -> bool:
    """Whether a class is the same one defined again, as in a notebook cell that runs twice."""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)
