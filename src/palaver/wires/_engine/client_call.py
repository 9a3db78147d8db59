"""The call of an official client that sends a request body. Each wire has its row in ``client_call``.

Rules:

- The fields of a body are the keyword arguments of the call. A field that the call has no argument for goes where the
  client takes further fields (``extra_body``); where it takes none, it stays an argument, and the client refuses it.
- What the choice of the method says (``stream``, for some clients) is left out.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct


def words(text: str) -> frozenset[str]:
    """The words of a text, for tables of names."""
    return frozenset(text.split())


def _as_it_is(_name: str, value: Any) -> Any:
    return value


class ClientCall(Struct, frozen=True, kw_only=True):
    """One call of a client.

    ``arguments`` are those that are fields of the body. ``extra`` is the path to where the others go. ``config`` names
    the argument that holds all but ``arguments``, and ``config_fields`` what it takes; ``flattened`` is the field of
    the body whose fields stand in it as such. ``model`` is what the model is called where the body does not name it.
    ``unsaid`` are fields that the method says. ``convert`` gives the value of an argument, from its name and what the
    body has.
    """

    arguments: frozenset[str]
    extra: tuple[str, ...] = ()
    config: str | None = None
    config_fields: frozenset[str] = frozenset()
    flattened: str | None = None
    model: str = "model"
    unsaid: frozenset[str] = frozenset()
    convert: Callable[[str, Any], Any] = _as_it_is


def call_arguments(call: ClientCall, fields: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """The keyword arguments of the call that sends these fields. ``model`` is the request's."""
    made: dict[str, Any] = {}
    if model is not None and call.model in call.arguments:
        made[call.model] = model
    for name, value in fields.items():
        if name in call.unsaid:
            continue
        if name in call.arguments:
            made[name] = call.convert(name, value)
        elif call.config is None:
            _put(made, call.extra, name, value)
        else:
            inner = cast("dict[str, Any]", value) if name == call.flattened else {name: value}
            for key, each in inner.items():
                _put(made, (call.config,) if key in call.config_fields else call.extra, key, each)
    return made


def _put(made: dict[str, Any], path: tuple[str, ...], name: str, value: Any) -> None:
    for step in path:
        made = made.setdefault(step, {})
    made[name] = value
