"""Options of which a command takes one, such as ``--json`` and ``--csv``: two of them are wrong usage.

click gives options that share a parameter no error: the last one would count, in silence.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeAlias

import click

_Decorator: TypeAlias = "Callable[[Callable[..., Any]], Callable[..., Any]]"


def flags(parameter: str, choices: Mapping[str, tuple[tuple[str, ...], str]]) -> _Decorator:
    """Return a decorator that adds flags to a command, which gets the value of one as ``parameter``, or ``None``.

    ``choices`` are the values, each with the spellings of its flag and its help.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def checked(*args: Any, **values: Any) -> Any:
            chosen = [value for value in choices if values.pop(f"{parameter}_{value}")]
            if len(chosen) > 1:
                raise click.UsageError(f"{' and '.join(choices[each][0][-1] for each in chosen)} exclude each other")
            return command(*args, **values, **{parameter: chosen[0] if chosen else None})

        made: Callable[..., Any] = checked
        for value, (spellings, about) in reversed([*choices.items()]):
            made = click.option(*spellings, f"{parameter}_{value}", is_flag=True, help=about)(made)
        return made

    return decorate
