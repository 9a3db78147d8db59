"""Objects of the official clients: pydantic models of answers and chunks, read by what was set on them.

Stability: experimental.
"""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class ClientObject(Protocol):
    """A ``ChatCompletion``, a ``Message``, a chunk of a stream: whatever pydantic made."""

    def model_dump_json(self, *, by_alias: bool, exclude_unset: bool) -> str:
        """Write the object as JSON."""
        ...


def plain(body: T | ClientObject) -> T | str:
    """The JSON text of a client's object, with the fields that the provider sent; anything else as it is."""
    if isinstance(body, ClientObject):
        return body.model_dump_json(by_alias=True, exclude_unset=True)
    return body
