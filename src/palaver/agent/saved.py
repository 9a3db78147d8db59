"""A run as JSON: everything that another process needs to go on behind it.

The form, version 1, is one object: ``{"palaver_run":1,"id":…,"agent":…,"thread":…,"branch":…,"start":…,"outcome":…,
"output":…,"reason":…,"error":…,"usage":…,"usage_by_model":…,"cost":…,"iterations":…,"seconds":…,"values":…,
"entries":[{"id":…,"parent":…,"message":…},…]}``.

Rules:

- ``entries`` are the conversation that the run ended with, so the size is that of its messages, each once. Other
  branches of the thread, and media that a store keeps, are not in it.
- What JSON cannot say is left out: an output or a shared value of any other kind, and what an error was beside its
  text. Errors of a provider keep status, code and request id (CBF-21).
- Keys that a newer version wrote are kept, and written again. A newer number is refused.
- Any bytes give a run or a ``DecodeError`` (law 6). Nothing named in the data is imported or run.

Source: docs/spec/codebuff.md#7, CBF-22.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from palaver.agent.limits import Outcome
from palaver.core import canonical, jsontext
from palaver.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    DecodeError,
    OverloadedError,
    PalaverError,
    ProviderError,
    RateLimitError,
)
from palaver.core.usage import Usage
from palaver.threads.thread import Entry

if TYPE_CHECKING:
    from palaver.agent.run import Run

VERSION: Final = 1
_SOURCE: Final = "run"
_NUMBER: Final = "palaver_run"


class _Error(Struct, omit_defaults=True):
    type: str
    text: str
    wire: str | None = None
    message: str = ""
    code: str | None = None
    status: int | None = None
    request_id: str | None = None


class _Head(Struct, kw_only=True):
    """What is neither message nor usage."""

    id: str
    agent: str
    thread: str
    branch: str
    start: int
    outcome: Outcome
    output: Any = None
    reason: str = ""
    error: _Error | None = None
    cost: float | None = None
    iterations: int = 0
    seconds: float = 0.0
    values: dict[str, Any] = {}


class Saved(Struct, frozen=True, kw_only=True):
    """What was saved of a run: its thread in parts, and the rest of its fields."""

    thread: str
    entries: tuple[Entry, ...]
    fields: dict[str, Any]


_HEAD: Final = _Head.__struct_fields__
_FLOATS: Final = ("cost", "seconds")
"""Read as plain numbers, also where a small one is written as ``5e-05``."""
_KNOWN: Final = frozenset((*_HEAD, _NUMBER, "entries", "usage", "usage_by_model"))
_PROVIDER: Final[Mapping[str, type[ProviderError]]] = {
    each.error_code: each
    for each in (ProviderError, AuthenticationError, RateLimitError, OverloadedError, ContextOverflowError)
}


# -- writing ---------------------------------------------------------------------------------------------------------


def dump(run: Run[Any]) -> bytes:
    """Write a run."""
    head: dict[str, Any] = {_NUMBER: VERSION}
    for name in _HEAD:
        head[name] = getattr(run, name)
    head["thread"] = run.thread.id
    head["error"] = None if run.error is None else msgspec.to_builtins(_told(run.error))
    head["values"] = {name: value for name, each in run.values.items() if (value := _json(each)) is not UNSET}
    output = _json(run.output)
    head["output"] = output
    if output is UNSET:
        del head["output"]
    head["usage"] = _usage(run.usage)
    head["usage_by_model"] = {name: _usage(each) for name, each in run.usage_by_model.items()}
    entries = [
        {"id": each.id, "parent": each.parent, "message": Raw(canonical.encode(each.message))} for each in run.path
    ]
    return jsontext.encode({**head, "entries": entries, **run.unknown})


def _usage(usage: Usage) -> Raw:
    return Raw(canonical.encode(usage))


def _json(value: Any) -> Any:
    """A value as JSON says it, ``UNSET`` when it cannot."""
    try:
        return jsontext.checked(msgspec.to_builtins(value, enc_hook=_modelled), "value")
    except (PalaverError, TypeError, ValueError, RecursionError):
        return UNSET


def _modelled(value: Any) -> Any:
    dumped: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if dumped is None:
        raise TypeError(type(value).__name__)
    return dumped(mode="json")


def _told(error: Exception) -> _Error:
    kind = error.error_code if isinstance(error, PalaverError) else type(error).__name__
    told = _Error(kind, str(error))
    if not isinstance(error, ProviderError):
        return told
    return structs.replace(
        told,
        wire=error.wire,
        message=error.message,
        code=error.code,
        status=error.status,
        request_id=error.request_id,
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def read(data: bytes | str) -> Saved:
    """Read what ``dump`` wrote. Raises ``DecodeError`` naming the place."""
    try:
        return _read(jsontext.fields(jsontext.source(data)))
    except DecodeError as error:
        error.source = _SOURCE
        raise


def _read(raw: jsontext.Fields) -> Saved:
    if bytes(raw.get(_NUMBER, jsontext.NULL)) != str(VERSION).encode():
        raise DecodeError(f"expected version {VERSION}", path=_NUMBER)
    given = {name: jsontext.value(raw[name]) for name in _HEAD if name in raw}
    given |= {name: float(given[name]) for name in _FLOATS if isinstance(given.get(name), float)}
    try:
        head = msgspec.convert(given, _Head)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from None
    fields = structs.asdict(head)
    del fields["thread"]
    by_model = jsontext.fields(raw.get("usage_by_model", jsontext.EMPTY_OBJECT))
    fields["usage"] = _read_usage(raw.get("usage", jsontext.EMPTY_OBJECT), "usage")
    fields["usage_by_model"] = {name: _read_usage(each, f"usage_by_model.{name}") for name, each in by_model.items()}
    fields["error"] = None if head.error is None else _error(head.error)
    fields["unknown"] = {name: jsontext.own(each) for name, each in raw.items() if name not in _KNOWN}
    rows = jsontext.rows(raw.get("entries", Raw(b"[]")))
    return Saved(
        thread=head.thread,
        entries=tuple([_entry(row, f"entries[{place}]") for place, row in enumerate(rows)]),
        fields=fields,
    )


def _entry(row: jsontext.Fields, where: str) -> Entry:
    try:
        parent = row.get("parent", jsontext.NULL)
        return Entry(
            jsontext.text(row["id"]),
            None if jsontext.is_null(parent) else jsontext.text(parent),
            canonical.decode(bytes(row["message"])),
        )
    except KeyError as error:
        raise DecodeError(f"{error.args[0]!r} is missing", path=where) from None
    except DecodeError as error:
        raise error.within(where) from None


def _read_usage(raw: Raw, where: str) -> Usage:
    try:
        return canonical.decode(bytes(raw), Usage)
    except DecodeError as error:
        raise error.within(where) from None


def _error(said: _Error) -> PalaverError:
    cls = _PROVIDER.get(said.type)
    if cls is None or said.wire is None:
        return PalaverError(said.text)
    return cls(said.wire, said.message, code=said.code, status=said.status, request_id=said.request_id)
