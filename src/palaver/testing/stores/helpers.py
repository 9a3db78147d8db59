"""Types and helpers for the checks of stores.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from palaver.core.errors import PalaverError
from palaver.core.factories import user
from palaver.store.store import Store
from palaver.threads.thread import Entry

OpenHandle: TypeAlias = Callable[[], Store]
Check: TypeAlias = Callable[[OpenHandle], None]

PICTURE: Final = bytes(range(256)) * 16
REFUSED: Final = ("", "x" * 201, "a\nb", "a\x00b", "\x7f", "\ud800")


def name_of(check: Check) -> str:
    """Return the name of a check, for a test report."""
    return check.__name__


@contextmanager
def raises(*kinds: type[PalaverError]) -> Generator[list[PalaverError]]:
    """Check that the block raises one of these errors, with a text."""
    caught: list[PalaverError] = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
    assert caught, f"no {' or '.join(kind.__name__ for kind in kinds)}"
    assert str(caught[0]), "an error without a text"


def texts(entries: Iterable[Entry]) -> list[str]:
    """Return the texts of the messages of entries."""
    return [entry.message.text for entry in entries]


def append_texts(store: Store, thread: str, *contents: str, **options: Any) -> list[str]:
    """Append user messages. Return the ids of their entries."""
    return [entry.id for entry in store.append(thread, [user(text) for text in contents], **options).entries]
