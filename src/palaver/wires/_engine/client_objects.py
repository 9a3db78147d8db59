"""Objects of the official clients: pydantic models of answers and chunks, read by what was set on them.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable


@runtime_checkable
class ClientObject(Protocol):
    """A ``ChatCompletion``, a ``Message``, a chunk of a stream: whatever pydantic made."""

    def model_dump_json(self, *, by_alias: bool, exclude_unset: bool) -> str:
        """Write the object as JSON."""
        ...


_COMMON: Final[frozenset[type]] = frozenset({bytes, str, dict, bytearray, memoryview})


def plain(body: Any) -> Any:
    """The JSON text of a client's object, with the fields that the provider sent; anything else as it is."""
    # To ask for a protocol takes longer than to read a short answer.
    if body.__class__ not in _COMMON and isinstance(body, ClientObject):
        return body.model_dump_json(by_alias=True, exclude_unset=True)
    return body
