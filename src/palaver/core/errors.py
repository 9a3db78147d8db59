"""Every error that Palaver raises on purpose, as one tree.

::

    PalaverError
    ├── MessageError      a value was built wrongly                  (the caller's fault)
    │   └── ArgumentsError  the arguments of a tool call are no object (the model's fault)
    ├── DecodeError       bytes do not follow their format           (the data's fault)
    ├── EncodeError       a value cannot be written as asked         (the caller's fault)
    │   └── LossError       ``losses="raise"`` and something was lost
    ├── ProviderError     the provider answered with an error        (the provider's word)
    │   ├── AuthenticationError    the key is missing, wrong, or may not do this (the caller's fault)
    │   ├── RateLimitError         too much was asked in too short a time       (passes)
    │   ├── OverloadedError        the provider cannot answer now: 5xx, 529     (passes)
    │   └── ContextOverflowError   more was sent than the model can read        (the caller's fault)
    ├── TransportError    no answer: refused, reset, or nothing in time (the network's fault)
    │   └── TimedOutError   connecting, the first token, or the next one took too long
    ├── CapabilityError   the model cannot see or do what was asked  (the caller's fault)
    ├── ToolError         a tool could not do what it was called for (the model gets its text)
    ├── RunError          a run did not complete; holds the run      (see its outcome)
    ├── SummaryError      a summary is empty, or saves nothing       (the model's fault; nothing was changed)
    ├── SwarmError        a swarm cannot do what was asked           (the caller's fault)
    │   ├── TurnError       a turn ended without an answer         (the tool's fault, or its deadline's)
    │   ├── NavigationError  the conversation cannot go to an agent (the caller's fault)
    │   ├── ClosedError     the session is over                      (the caller's fault)
    │   └── BusyError       the queue is full                        (passes)
    ├── StreamError       a stream ended badly; holds what came      (the network's, or the provider's)
    ├── StoreError        a thread or store cannot do what was asked (the caller's fault)
    │   ├── NotFoundError   no thread, branch, entry or blob by that name
    │   ├── ConflictError   another writer came first; nothing was written
    │   ├── DamageError     what is stored is not what was written  (the disk's)
    │   └── UnavailableError  the disk is full, the server is gone   (the machine's)
    ├── MissingPackageError  a package of an extra is not installed   (also an ``ImportError``)
    └── UnknownNameError  no wire, variant or format has that name    (the caller's fault)

An error says where: ``DecodeError`` carries the wire (or format) and the path of the offending
value. Excerpts of data in error texts are short, so that no message text leaks through a log.

Stability: stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.core.request import Loss, Response

FailureKind: TypeAlias = Literal["torn", "corrupt", "provider"]

_EXCERPT = 80


def excerpt(text: str, limit: int = _EXCERPT) -> str:
    """Shorten ``text`` to ``limit`` characters, so that errors and reprs stay small."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


Category: TypeAlias = Literal["message", "format", "model", "tool", "run", "context", "store", "swarm", "usage"]


class PalaverError(Exception):
    """Base of every error that Palaver raises on purpose.

    ``error_code`` is a stable word for the class, ``category`` the part of Palaver that raises it, and ``retryable``
    says whether the same call may succeed later. ``failures`` are those of the models of a ``Fallback``, in order:
    ``a/one: TransportError: refused``; this error is the last of them, and its text is that of all.
    """

    error_code: ClassVar[str] = "error"
    category: ClassVar[Category] = "usage"
    retryable: bool = False
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the text, or that of all ``failures``."""
        if len(self.failures) > 1:
            return f"{len(self.failures)} models failed: {'; '.join(self.failures)}"
        return self.failures[0] if self.failures else self._text()

    def __repr__(self) -> str:
        """Show the class and the text, or that of all ``failures``."""
        return f"{type(self).__name__}({str(self)!r})" if self.failures else super().__repr__()

    def _text(self) -> str:
        """Return the text of this error alone."""
        return super().__str__()


class MessageError(PalaverError):
    """A message or part was built from values that it cannot hold."""

    error_code = "message"
    category = "message"


class ArgumentsError(MessageError):
    """The arguments of a tool call are not a JSON object. The call keeps the text."""

    error_code = "arguments"
    category = "message"


class DecodeError(PalaverError):
    """Input that does not follow its format.

    ``path`` names the place, ``source`` the wire or format.
    """

    error_code = "decode"
    category = "format"

    def __init__(self, reason: str, *, path: str = "", source: str = "") -> None:
        """Keep the parts of the error.

        ``reason`` says what is wrong; the attribute keeps its first 300 characters. ``path`` is written like
        ``messages[3].content[0].text``.
        """
        super().__init__(reason)
        self.reason = excerpt(reason, 300)
        self.path = path
        self.source = source

    def within(self, step: str) -> Self:
        """Put ``step`` in front of the path, and give the same error back for re-raising."""
        glue = "" if not self.path or self.path.startswith("[") else "."
        self.path = f"{step}{glue}{self.path}"
        return self

    def _text(self) -> str:
        """``openai_chat: messages[3].content: expected a string``."""
        return ": ".join(piece for piece in (self.source, self.path, self.reason) if piece)


class EncodeError(PalaverError):
    """A value that cannot be written in the form asked for."""

    error_code = "encode"
    category = "format"


class LossError(EncodeError):
    """Something could not be carried, and the caller asked for that to be an error."""

    error_code = "loss"
    category = "format"

    def __init__(self, wire: str, losses: tuple[Loss, ...]) -> None:
        """Keep the receipt. ``wire`` names the target wire or format; the text names the first three ``losses``."""
        shown = "; ".join(str(loss) for loss in losses[:3])
        more = f"; and {len(losses) - 3} more" if len(losses) > 3 else ""  # noqa: PLR2004 (the three shown)
        super().__init__(f"{wire}: {len(losses)} not carried: {shown}{more}")
        self.wire = wire
        self.losses = losses


class LossWarning(UserWarning):
    """Something could not be carried, and the caller did not choose ``losses``."""


class ProviderError(PalaverError):
    """The body is the provider's own error, not an answer. ``body`` is that error, verbatim."""

    error_code = "provider"
    category = "model"

    def __init__(
        self,
        wire: str,
        message: str,
        *,
        code: str | None = None,
        body: bytes = b"",
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        """Keep what the provider sent.

        ``wire`` names the wire, or the provider when no request was sent; the text begins with it. ``message`` is the
        provider's message, of which the text shows 200 characters. ``code`` is its error type or code, if any.
        ``status`` is the HTTP status, ``retry_after`` the seconds after which the provider accepts another request,
        and ``request_id`` the provider's id of the request, which its support asks for.
        """
        what = "the provider answered with an error" if status is None else f"the provider answered {status}"
        super().__init__(f"{wire}: {what}: {excerpt(message, 200)}")
        self.wire = wire
        self.message = message
        self.code = code
        self.body = body
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id


class AuthenticationError(ProviderError):
    """The key is missing, wrong, or may not do this (401, 403)."""

    error_code = "authentication"

    @classmethod
    def no_key(cls, provider: str, variables: Sequence[str]) -> Self:
        """Make the error for a missing key.

        ``provider`` begins the text, unless it is empty. ``variables`` are the environment variables that may hold the
        key; the text names them.
        """
        what = " or ".join(variables)
        return cls.unasked(provider, f"no API key: set {what}, or pass key=" if what else "no API key: pass key=")

    @classmethod
    def unasked(cls, provider: str, reason: str) -> Self:
        """Make the error for credentials that could not be made; no request was sent.

        ``provider`` begins the text, unless it is empty, and ``reason`` is the rest of it.
        """
        made = cls(provider, reason)
        made.args = (f"{provider}: {reason}" if provider else reason,)
        return made


class RateLimitError(ProviderError):
    """Too much was asked in too short a time (429); ``retry_after`` says when to ask again, where it is known."""

    error_code = "rate_limit"
    retryable = True


class OverloadedError(ProviderError):
    """The provider cannot answer now (5xx, 529). The same request may be answered later."""

    error_code = "overloaded"
    retryable = True


class ContextOverflowError(ProviderError):
    """More was sent than the model can read, or than is left for its answer."""

    error_code = "context_overflow"


class TransportError(PalaverError):
    """No answer came: the connection was refused, reset, or closed. The text names the endpoint, never a key."""

    error_code = "transport"
    category = "model"
    retryable = True


class TimedOutError(TransportError):
    """Something took too long: ``phase`` is ``connect``, ``write``, ``first_token`` or ``idle``."""

    error_code = "timed_out"

    def __init__(self, reason: str, *, phase: Literal["connect", "write", "first_token", "idle"]) -> None:
        """Keep the phase. ``reason`` is the text of the error."""
        super().__init__(reason)
        self.phase = phase


class CapabilityError(PalaverError):
    """The model cannot see or do what was asked of it, and the caller wanted that to be an error."""

    error_code = "capability"
    category = "model"


class ToolError(PalaverError):
    """A tool could not do what it was called for. Raised by tools; the model gets its text."""

    error_code = "tool"
    category = "tool"


class RunError(PalaverError):
    """A run of an agent did not complete. ``run`` is the run: its outcome, its thread, its usage."""

    error_code = "run"
    category = "run"

    def __init__(self, reason: str, run: object) -> None:
        """Keep the ``run``. ``reason`` is the text of the error."""
        super().__init__(reason)
        self.run = run


class SummaryError(PalaverError):
    """A model returned an unusable summary: it is empty, or no shorter than the messages it replaces."""

    error_code = "summary"
    category = "context"


class SwarmError(PalaverError):
    """A swarm cannot do what was asked: an unknown agent, a reserved name, or a tool that is not listed."""

    error_code = "swarm"
    category = "swarm"


class TurnError(SwarmError):
    """A turn ended without an answer. ``tool`` names the tool that caused it, if any."""

    error_code = "turn"

    def __init__(self, reason: str, *, tool: str | None = None) -> None:
        """Keep the name of the ``tool``. ``reason`` is the text of the error."""
        super().__init__(reason)
        self.tool = tool


class NavigationError(SwarmError):
    """The conversation cannot go to that agent: the swarm lacks it, or it was active already since the last message."""

    error_code = "navigation"


class ClosedError(SwarmError):
    """The session, the bus or the worker is closed."""

    error_code = "closed"


class BusyError(SwarmError):
    """The queue is full; the same call may succeed later."""

    error_code = "busy"
    retryable = True


class StreamError(PalaverError):
    """A stream that ended badly. ``response`` is the answer so far; its finish reason is ``error``.

    ``kind`` is ``torn`` (it broke off), ``corrupt`` (bytes that do not follow their format) or ``provider`` (the
    provider sent an error, whose ``code`` and ``body`` are its own).
    """

    error_code = "stream"
    category = "model"

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
        """Keep what is known of the failure, and the answer so far.

        ``wire`` names the wire; the text begins with it, unless it is empty. ``reason`` says what happened; the text
        shows its first 200 characters.
        """
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

    error_code = "store"
    category = "store"


class NotFoundError(StoreError):
    """No thread, branch, entry or blob has that name."""

    error_code = "not_found"
    category = "store"


class ConflictError(StoreError):
    """The state is not what the caller expected: another writer came first, or the name is taken. Nothing was written.

    ``found`` is the head that was found where another was expected; ``None`` for an empty branch.
    """

    error_code = "conflict"
    category = "store"

    def __init__(self, reason: str, *, found: str | None = None) -> None:
        """Keep the head that was found. ``reason`` is the text of the error."""
        super().__init__(reason)
        self.found = found


class DamageError(StoreError):
    """The stored data differ from what was written: a hash does not match, or a file is cut off. The text names it."""

    error_code = "damage"
    category = "store"


class UnavailableError(StoreError):
    """The machine cannot do it now: the disk is full, a lock is held too long, the server is gone."""

    error_code = "unavailable"
    category = "store"
    retryable = True


class MissingPackageError(PalaverError, ImportError):
    """A package of an optional extra is not installed, or is too old. The text says what to install."""

    error_code = "missing_package"
    category = "usage"

    @classmethod
    def of(cls, what: str, extra: str, error: ImportError) -> Self:
        """Make the error from the ``ImportError`` of a package of the extra; ``what`` is what needs it."""
        return cls(f"{what}: {install(extra)} ({error})", name=error.name)


def install(extra: str) -> str:
    """Return the commands that install an extra."""
    return f"pip install 'palaver[{extra}]', or pip install -e '.[{extra}]' in a clone"


def near(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of ``names``, by the whole name or by its beginning; ``None`` when none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 (only when something is wrong)

    whole = {each: each for each in names}
    begun = {each[: len(name)]: each for each in reversed(whole)}
    # "nope" and "openai" have a ratio of 0.6, click's and difflib's default; "grok" and "groq" one of 0.75.
    close = get_close_matches(name, whole, n=1, cutoff=0.7) or get_close_matches(name, begun, n=1, cutoff=0.8)
    return {**begun, **whole}[close[0]] if close else None


class UnknownNameError(PalaverError):
    """No wire, variant or format has that name; the text lists those that exist."""

    error_code = "unknown_name"
    category = "usage"

    @classmethod
    def among(cls, what: str, names: Iterable[str], name: str, *, aliases: Iterable[str] = ()) -> Self:
        """Make the error for an unknown name; the text suggests a similar name and lists those that exist.

        ``what`` begins the text, ``names`` are the known names, and ``name`` is the one that was given. One of
        ``aliases`` may be suggested too; they are not listed.
        """
        known = list(names)
        close = near(name, [*known, *aliases])
        hint = "there are" if close is None else f"did you mean {close}? There are"
        return cls(f"{what}; {hint} {', '.join(known) or 'none'}")
