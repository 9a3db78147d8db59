"""The conversation at a place of a thread, with the tools, settings and model that it was imported with.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import structs

from palaver.cli.failure import bad_input
from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, NotFoundError
from palaver.core.parts import Blob, Media
from palaver.core.request import Request

if TYPE_CHECKING:
    from palaver.cli.stores import Address
    from palaver.core.messages import Message
    from palaver.store.store import Store


REQUEST: Final = "request"
"""The key of a thread's metadata that holds the request without its messages."""


def kept_request(store: Store, found: Address) -> Request:
    """The conversation at a place, with what it was imported with, and the bytes of its media."""
    messages = tuple([whole_media(store, entry.message) for entry in store.path(found.info.id, found.of)])
    return bare_request(found).replace(messages=messages)


def bare_request(found: Address) -> Request:
    """What a thread was imported with: a request without messages. Raises ``click.ClickException``."""
    kept = found.info.metadata.get(REQUEST)
    if isinstance(kept, Mapping) and "palaver" in kept:
        try:
            return canonical.load_conversation(jsontext.encode(cast("Mapping[str, Any]", kept)))
        except DecodeError as error:
            bad_input(str(found), f"the metadata {REQUEST!r} of the thread: {error}")
    return Request()


def whole_media(store: Store, message: Message) -> Message:
    """Put the bytes of blobs into a message, as far as the store has them."""
    if not any(isinstance(part, Media) and isinstance(part.source, Blob) for part in message.content):
        return message
    return structs.replace(message, content=tuple([_whole_part(store, part) for part in message.content]))


def _whole_part(store: Store, part: Any) -> Any:
    if not (isinstance(part, Media) and isinstance(part.source, Blob)):
        return part
    try:
        data = store.get_blob(part.source)
    except NotFoundError:  # it refers to nothing in this store; the receipt of a wire says that it is dropped
        return part
    return part.replace(source=type(part).from_bytes(data).source)
