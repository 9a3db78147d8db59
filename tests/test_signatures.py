"""`inspect.signature`, `help` and `typing.get_type_hints` work for what is public: all names are found at run time."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

LOCK = Path(__file__).parents[1] / "docs" / "reference" / "api.lock"
CYCLES = frozenset({"palaver.swarm.Session"})
"""Classes whose bases annotate attributes with types that are made of them; their signatures are found all the same."""


def _names() -> list[str]:
    return sorted(
        {line.split()[1].partition("(")[0] for line in LOCK.read_text().splitlines() if not line.startswith("#")}
    )


def _found(name: str) -> tuple[Any, Any]:
    """The object of a name, and what it is an attribute of; ``None`` for a field that only instances have."""
    steps = name.split(".")
    for length in range(len(steps), 0, -1):
        try:
            value: Any = import_module(".".join(steps[:length]))
        except ImportError:
            continue
        owner = None
        for step in steps[length:]:
            owner, value = value, inspect.getattr_static(value, step, None)
        return value, owner
    raise AssertionError(name)


def _callables() -> Iterator[tuple[str, Any, bool]]:
    """Public classes and functions with their names, and whether each stands in a module."""
    for name in _names():
        value, owner = _found(name)
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        if isinstance(value, (type, FunctionType)):
            yield name, value, inspect.ismodule(owner)


def _failures(asked: Iterator[tuple[str, Any]], question: Any) -> list[str]:
    failed = []
    for name, value in asked:
        try:
            question(value)
        except Exception as error:  # noqa: BLE001 (whatever it is, a reader of the signature gets it)
            failed.append(f"{name}: {error}")
    return failed


def test_every_public_class_and_function_has_a_signature() -> None:
    def plain(value: Any) -> bool:
        """Whether a class takes what ``Exception`` takes, whose signature Python does not know."""
        return (
            isinstance(value, type)
            and issubclass(value, Exception)
            and value.__init__ in {Exception.__init__, UserWarning.__init__}
        )

    asked = [(name, value) for name, value, _ in _callables() if not plain(value)]
    assert len(asked) > 500
    assert not _failures(iter(asked), inspect.signature)


def test_the_annotations_of_every_public_class_and_function_are_found() -> None:
    """Methods may name types of other layers, which are imported for checkers only."""
    asked = [(name, value) for name, value, in_module in _callables() if in_module and name not in CYCLES]
    assert len(asked) > 200
    assert not _failures(iter(asked), typing.get_type_hints)
