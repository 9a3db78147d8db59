"""Every error that Palaver raises on purpose, as one tree.

::

    PalaverError
    ├── MessageError      a value was built wrongly                  (the caller's fault)
    │   └── ArgumentsError  the arguments of a tool call are no object (the model's fault)
    ├── DecodeError       bytes do not follow their format           (the data's fault)
    ├── EncodeError       a value cannot be written as asked         (the caller's fault)
    │   └── LossError       ``losses="raise"`` and something was lost
    ├── ProviderError     the provider answered with an error        (the provider's word)
    ├── StreamError       a stream ended badly; holds what came      (the network's, or the provider's)
    ├── StoreError        a thread or store cannot do what was asked (the caller's fault)
    │   ├── NotFoundError   no thread, branch, entry or blob by that name
    │   ├── ConflictError   somebody else wrote first; nothing was written
    │   ├── DamageError     what is stored is not what was written  (the disk's)
    │   └── UnavailableError  the disk is full, the server is gone   (the machine's)
    └── UnknownNameError  no wire, accent or format has that name    (the caller's fault)

An error says where: ``DecodeError`` carries the wire (or format) and the path of the offending
value. Excerpts of data in error texts are short, so that no message text leaks through a log.

Stability: stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self, TypeAlias

if TYPE_CHECKING:
    from palaver.core.request import Loss, Response

FailureKind: TypeAlias = Literal["torn", "corrupt", "provider"]

_EXCERPT = 80


def excerpt(text: str, limit: int = _EXCERPT) -> str:
    """Shorten ``text`` to ``limit`` characters, so that errors and reprs stay small."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class PalaverError(Exception):
    """Base of every error that Palaver raises on purpose."""


class MessageError(PalaverError):
    """A message or part was built from values that it cannot hold."""


class ArgumentsError(MessageError):
    """The arguments of a tool call are not a JSON object. The text itself is kept on the call."""


class DecodeError(PalaverError):
    """Input that does not follow its format.

    ``path`` names the place, ``source`` the wire or format.
    """

    def __init__(self, reason: str, *, path: str = "", source: str = "") -> None:
        """Keep the parts of the error; ``path`` is written like ``messages[3].content[0].text``."""
        super().__init__(reason)
        self.reason = excerpt(reason, 300)
        self.path = path
        self.source = source

    def within(self, step: str) -> Self:
        """Put ``step`` in front of the path, and give the same error back for re-raising."""
        glue = "" if not self.path or self.path.startswith("[") else "."
        self.path = f"{step}{glue}{self.path}"
        return self

    def __str__(self) -> str:
        """``openai_chat: messages[3].content: expected a string``."""
        return ": ".join(piece for piece in (self.source, self.path, self.reason) if piece)


class EncodeError(PalaverError):
    """A value that cannot be written in the form asked for."""


class LossError(EncodeError):
    """Something could not be carried, and the caller asked for that to be an error."""

    def __init__(self, wire: str, losses: tuple[Loss, ...]) -> None:
        """Keep the receipt; the text names the first losses."""
        shown = "; ".join(str(loss) for loss in losses[:3])
        more = f"; and {len(losses) - 3} more" if len(losses) > 3 else ""  # noqa: PLR2004 (the three shown)
        super().__init__(f"{wire}: {len(losses)} not carried: {shown}{more}")
        self.wire = wire
        self.losses = losses


class ProviderError(PalaverError):
    """The body is the provider's own error, not an answer. ``body`` is that error, verbatim."""

    def __init__(self, wire: str, message: str, *, code: str | None = None, body: bytes = b"") -> None:
        """Keep the provider's words; ``code`` is its error type or code where it gave one."""
        super().__init__(f"{wire}: the provider answered with an error: {excerpt(message, 200)}")
        self.wire = wire
        self.message = message
        self.code = code
        self.body = body


class StreamError(PalaverError):
    """A stream that ended badly. ``response`` is the answer so far; its finish reason is ``error``.

    ``kind`` is ``torn`` (it broke off), ``corrupt`` (bytes that do not follow their format) or ``provider`` (the
    provider sent an error, whose ``code`` and ``body`` are its own).
    """

    def __init__(
        self,
        wire: str,
        reason: str,
        *,
        kind: FailureKind,
        response: Response,
        code: str | None = None,
        body: bytes = b"",
    ) -> None:
        """Keep what is known of the failure, and the answer so far."""
        super().__init__(": ".join(piece for piece in (wire, f"{_STREAM[kind]}: {excerpt(reason, 200)}") if piece))
        self.wire = wire
        self.reason = reason
        self.kind: FailureKind = kind
        self.response = response
        self.code = code
        self.body = body


_STREAM: dict[FailureKind, str] = {
    "torn": "the stream broke off",
    "corrupt": "the stream is corrupt",
    "provider": "the provider ended the stream with an error",
}


class StoreError(PalaverError):
    """A thread or store cannot do what was asked; the text names thread and place. Nothing was written."""


class NotFoundError(StoreError):
    """No thread, branch, entry or blob goes by that name."""


class ConflictError(StoreError):
    """What the caller expected is not so: somebody else wrote first, or the name is taken. Nothing was written.

    ``found`` is the head that was found where another was expected; ``None`` for an empty branch.
    """

    def __init__(self, reason: str, *, found: str | None = None) -> None:
        """Keep the head that was found."""
        super().__init__(reason)
        self.found = found


class DamageError(StoreError):
    """What is stored is not what was written: a hash does not agree, or a file is torn. The text names the place."""


class UnavailableError(StoreError):
    """The machine cannot do it now: the disk is full, a lock is held too long, the server is gone."""


class UnknownNameError(PalaverError):
    """No wire, accent or format goes by that name; the text lists those that exist."""
