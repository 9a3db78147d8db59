"""The model that a thread keeps in its metadata, under ``cli``: the name as it was typed, with address and wire.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from palaver.models import providers

if TYPE_CHECKING:
    from palaver.cli.stores import Address


METADATA: Final = "cli"


class ThreadModel(Struct, frozen=True, omit_defaults=True):
    """A model as ``--model``, ``--url`` and ``--wire`` name it."""

    model: str
    url: str | None = None
    wire: str | None = None


def model_id(found: Address) -> str | None:
    """Return the id by which its provider knows the model that is kept in the thread; ``None`` where none is."""
    stored = stored_in(found)
    if stored is None:
        return None
    provider, _, name = stored.model.partition("/")
    return name if name and stored.url is None and provider in providers.PROVIDERS else stored.model


def stored_in(found: Address) -> ThreadModel | None:
    """Return the model that a thread keeps; ``None`` where there is none, or none that can be read."""
    try:
        return msgspec.convert(found.info.metadata.get(METADATA), ThreadModel)
    except msgspec.ValidationError:
        return None
