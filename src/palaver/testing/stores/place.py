"""What checks of stores are made of: a place, and short words for what they do all the time.

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

Place: TypeAlias = Callable[[], Store]
Check: TypeAlias = Callable[[Place], None]

PICTURE: Final = bytes(range(256)) * 16
REFUSED: Final = ("", "x" * 201, "a\nb", "a\x00b", "\x7f", "\ud800")


def name_of(check: Check) -> str:
    """The name of a check, for a test report."""
    return check.__name__


@contextmanager
def raises(*kinds: type[PalaverError]) -> Generator[list[PalaverError]]:
    """The block must raise one of these errors, with a text."""
    caught: list[PalaverError] = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
    assert caught, f"no {' or '.join(kind.__name__ for kind in kinds)}"
    assert str(caught[0]), "an error without a text"


def texts(entries: Iterable[Entry]) -> list[str]:
    """What the messages of entries say."""
    return [entry.message.text for entry in entries]


def say(store: Store, thread: str, *said: str, **options: Any) -> list[str]:
    """Append user messages; give the ids of their entries."""
    return [entry.id for entry in store.append(thread, [user(text) for text in said], **options).entries]
