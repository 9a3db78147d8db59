"""Classification of provider errors into the error classes of Palaver.

Rules:

- The provider's error code decides first (``insufficient_quota`` beside 429 is no rate limit), then the status. Prose
  is searched last, on whole words, when code and status say no more than "bad request" (D23). Codes of all providers
  share one table; no code tests a provider's name.
- A prompt beyond the window is ``ContextOverflowError``, by code, by 413 or by prose. ``cut_by_window`` detects an
  answer that the end of the window cut off.
- An account without credit is a plain ``ProviderError`` with its code, and is not retried.
- ``body`` holds up to ``BODY`` bytes; the text of the error is short. Secrets are removed from both.

Source: https://platform.openai.com/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors,
https://ai.google.dev/gemini-api/docs/troubleshooting,
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, https://docs.cohere.com/reference/errors;
golden ``error_text_classification``.

Retry policy as data, and the waits that providers ask for in headers:

- ``attempts`` is one budget for one call of a model, the first request included. Nothing else retries (D24).
- An error says whether a retry may help (``retryable``): 408, 409, 429, every 5xx, a timeout, a broken connection, a
  stream that failed before its first content. Nothing is retried after that.
- A wait that the provider names is respected, up to ``longest``. Otherwise it grows by ``factor`` from ``first`` to
  ``cap``, and ``jitter`` varies it by that share.
- ``retry_after`` reads, in this order: ``retry-after-ms``; ``retry-after`` in seconds or as a date; the latest reset of
  an exhausted limit; ``x-ratelimit-reset-after``.
- ``Clock`` supplies time and chance; tests pass their own.

Source: KAI-22; RFC 9110 10.2.3; https://platform.openai.com/docs/guides/rate-limits,
https://docs.anthropic.com/en/api/rate-limits, https://console.groq.com/docs/rate-limits.

Stability: experimental.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, cast

import anyio
import msgspec
from msgspec import Struct, structs

from palaver.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    MessageError,
    OverloadedError,
    PalaverError,
    ProviderError,
    RateLimitError,
    excerpt,
)
from palaver.core.messages import AssistantMessage
from palaver.core.type_checks import check_arguments
from palaver.models.redaction import shown_url

# -- retry -----------------------------------------------------------------------------------------


# --- retry ------------------------------------------------------------------------------------------------------------


class Retry(Struct, frozen=True, kw_only=True):
    """A policy. Waits are in seconds; ``jitter`` is a share of the wait. ``attempts=1`` asks once.

    Raises ``MessageError`` for numbers that make no sense.
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 0.25
    longest: float = 300.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        check_arguments("Retry", Retry, structs.asdict(self))
        if self.attempts < 1 or min(self.first, self.factor, self.cap, self.longest) < 0 or not 0 <= self.jitter <= 1:
            raise MessageError(f"no retry policy: {self}")

    def wait(self, attempt: int, error: PalaverError, chance: float) -> float | None:
        """Return the seconds to wait after the ``attempt``-th request failed, or ``None`` to give up.

        ``chance`` is a number from 0 up to 1.
        """
        if attempt >= self.attempts or not error.retryable:
            return None
        if isinstance(error, ProviderError) and error.retry_after is not None:
            return min(error.retry_after, self.longest)
        try:
            grown = self.first * self.factor ** (attempt - 1)
        except OverflowError:
            grown = self.cap
        return min(grown, self.cap) * (1 + self.jitter * (2 * chance - 1))


_LIMITS: Final = (
    *((f"x-ratelimit-reset-{what}", f"x-ratelimit-remaining-{what}") for what in ("requests", "tokens")),
    *(
        (f"anthropic-ratelimit-{what}-reset", f"anthropic-ratelimit-{what}-remaining")
        for what in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
)
"""Headers that say when a limit is reset, each with the one that says what remains of it."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_MAX_TEXT: Final = 64
"""The most characters of a text that can be a wait; longer text is not searched."""
_MIN_TIMESTAMP: Final = 1e9
"""A number of seconds beyond this is a time of day; one that is a thousand times as large is in milliseconds."""


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds after which the provider accepts another request; ``None`` when it does not say.

    Names of ``headers`` are in lower case; ``now`` is the time of day, in seconds since 1970.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    told = parse_wait(headers.get("retry-after", ""), now)
    if told is not None:
        return told
    resets = [parse_wait(headers.get(reset, ""), now) for reset, left in _LIMITS if _number(headers.get(left, "")) == 0]
    known = [each for each in resets if each is not None]
    return max(known) if known else parse_wait(headers.get("x-ratelimit-reset-after", ""), now)


def parse_wait(text: str, now: float) -> float | None:
    """Read ``5``, ``0.5``, ``6m0s``, ``20ms``, a time of day as a number, an HTTP date, or an RFC 3339 date.

    A time in the past is 0.
    """
    if len(text) > _MAX_TEXT:
        return None
    text = text.strip()
    number = _number(text)
    if number is not None:
        moment = number / 1000 if number > _MIN_TIMESTAMP * 1000 else number
        return max(0.0, moment - now) if moment > _MIN_TIMESTAMP else moment
    spans = _SPAN.findall(text)
    if spans and "".join(amount + unit for amount, unit in spans) == text:
        return sum(float(amount) * _UNITS[unit] for amount, unit in spans)
    found = _date(text)
    return None if found is None else max(0.0, found - now)


def _number(text: str) -> float | None:
    if len(text) > _MAX_TEXT or not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _date(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 (it loads the whole of `email`)

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


# --- clock ------------------------------------------------------------------------------------------------------------


class Clock(Struct, frozen=True, kw_only=True):
    """``now`` measures (seconds since some moment), ``date`` is the time of day (seconds since 1970).

    ``sleep`` waits (seconds), ``chance`` gives a number from 0 up to 1.
    """

    now: Callable[[], float] = time.monotonic
    date: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    chance: Callable[[], float] = random.random


# -- failures --------------------------------------------------------------------------------------


Kind: TypeAlias = Literal["overflow", "output", "rate", "overload", "auth", "quota", "again", "unknown"]
"""``output``: more output was requested than the model can return. ``again``: a plain error that is retryable."""

BODY: Final = 65_536
"""The most bytes of an error body that are read and kept."""

_CLASSES: Final[dict[Kind, type[ProviderError]]] = {
    "overflow": ContextOverflowError,
    "rate": RateLimitError,
    "overload": OverloadedError,
    "auth": AuthenticationError,
}
_STATUS: Final[dict[int, Kind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "again",
    409: "again",
    413: "overflow",
    429: "rate",
}
_WORDS: Final[dict[Kind, tuple[str, ...]]] = {
    "overflow": (
        "context_length_exceeded",  # OpenAI, Azure, Groq, DeepSeek
        "context_window_exceeded",
        "exceed_context_size_error",  # llama.cpp
        "request_too_large",  # Anthropic, with 413
        "model_max_prompt_tokens_exceeded",
        "model_context_window_exceeded",  # Anthropic, Bedrock: the reason for which an answer ends
    ),
    "quota": (
        "insufficient_quota",  # OpenAI, with 429
        "billing_error",  # Anthropic, with 402
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
    ),
    "auth": (
        "authentication_error",
        "permission_error",
        "permission_denied",
        "invalid_api_key",
        "api_key_invalid",  # Gemini, as a reason beside 400
        "unauthenticated",
        "accessdeniedexception",
        "unrecognizedclientexception",
        "invalidsignatureexception",
        "expiredtokenexception",
    ),
    "rate": (
        "rate_limit_error",
        "rate_limit_exceeded",
        "resource_exhausted",
        "throttlingexception",
        "toomanyrequestsexception",
        "servicequotaexceededexception",
    ),
    "overload": (
        "overloaded_error",
        "api_error",
        "server_error",
        "internal_error",
        "internal_server_error",
        "internalservererror",
        "service_unavailable",
        "service_unavailable_error",
        "timeout_error",
        "unavailable",
        "internal",
        "deadline_exceeded",
        "internalserverexception",
        "serviceunavailableexception",
        "modelnotreadyexception",
        "modeltimeoutexception",
        "modelstreamerrorexception",
    ),
}
"""The names of errors at providers (``type``, ``code``, ``status``, the header of AWS), in lower case."""
_BY_WORD: Final[dict[str, Kind]] = {word: kind for kind, words in _WORDS.items() for word in words}
_PRECEDENCE: Final[tuple[Kind, ...]] = ("overflow", "quota", "auth", "rate", "overload")
"""Which of several words counts: Groq and OpenAI say ``type: tokens`` and ``code: …`` in one error."""

_PROSE: Final[dict[Kind, tuple[str, ...]]] = {
    "overflow": (
        r"prompt is too long",  # Anthropic, also through Bedrock
        r"context[ _]length[ _]exceeded",
        r"maximum (?:context|prompt|input) length",  # OpenAI, vLLM, DeepSeek, OpenRouter, xAI
        r"too many tokens",  # Cohere
        r"context (?:window|length|size|limit)\b.{0,40}\bexceed(?:s|ed)?",
        r"exceed(?:s|ed)? (?:the |its )?(?:model'?s? )?(?:maximum |available )?context(?: (?:window|length|size))?",
        r"input (?:is|was) too long",  # Bedrock
        r"input token count.{0,40}exceeds",  # Gemini
        r"input length.{0,60}exceed(?:s|ed)?",  # Ollama, Bedrock
        r"exceed(?:s|ed)? the maximum number of (?:input )?tokens",
        r"too many total text bytes",  # Bedrock
        r"reduce the length of (?:the|your) (?:messages|prompt|input)",  # Groq
        r"(?:larger|greater) than the context(?: length| window)?",  # LM Studio
        r"exceeded model token limit",  # Moonshot
        r"too large for model with \d+ maximum context length",  # Mistral
        r"prompt token count of \d+ exceeds the limit",  # Copilot
        r"request too large for",  # Groq, OpenAI: more than the limit of a minute
    ),
    "output": (r"max_tokens", r"maximum output"),
    "quota": (
        r"insufficient[ _](?:quota|balance|credits|funds)",
        r"credit balance is too low",  # Anthropic
        r"exceeded your current quota",
        r"requires more credits",  # OpenRouter
        r"billing",
    ),
    "rate": (r"rate[ _-]?limit(?:s|ed|ing)?(?:_error|_exceeded)?", r"HTTP 429", r"too many requests"),
    "overload": (
        r"HTTP 5\d\d",
        r"server[ _]error",
        r"overloaded(?:_error)?",
        r"internal error",
        r"bad gateway",
        r"service unavailable",
        r"gateway time-?out",
        r"at capacity",
    ),
    "auth": (
        r"40[13] (?:unauthorized|forbidden)",
        r"HTTP 40[13]",
        r"unauthorized",
        r"(?:invalid|incorrect)[ _]api[ _]key",
        r"authentication failed",
        r"permission denied",
    ),
}
"""Phrases of error texts, in the order of the search; a match stands between word boundaries."""
_PATTERNS: Final[dict[Kind, re.Pattern[str]]] = {
    kind: re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE | re.DOTALL)
    for kind, words in _PROSE.items()
}
_OVERFLOW_PROSE: Final = re.compile(
    r"\b(?:request too large for|context size has been exceeded|input length exceeds the context length)\b",
    re.IGNORECASE,
)
"""Phrases for a prompt that is too long, with a retryable status: Groq, OpenAI (413, 429), llama.cpp (500)."""
_RETRY_PROSE: Final = re.compile(
    r"(?:retry[ -]after:?|(?:try again|retry|reset(?:s)?) (?:in|after)) (\d+(?:\.\d+)?) ?(ms|m|s|h)?", re.IGNORECASE
)
_UNKNOWN_WAIT: Final = 5.0
"""Seconds to wait for a rate limit that only prose mentions, without a number."""

_NOTHING: Final = 1
"""Tokens of an answer for which there was no room: some providers count the one that they could not say."""

REQUEST_IDS: Final = ("request-id", "x-request-id", "x-amzn-requestid", "apim-request-id", "x-ms-request-id", "cf-ray")
"""Headers that name a request, for the provider's support; the first that is there counts."""


def failure(wire: str, status: int, headers: Mapping[str, str], body: bytes, *, now: float = 0.0) -> ProviderError:
    """Return the error for an answer with an error status. Names of ``headers`` are in lower case.

    ``now`` is the time of day in seconds since 1970.
    """
    body = body[:BODY]
    told = _error_details(body)
    aws = headers.get("x-amzn-errortype", "").partition(":")[0]
    words = [*([aws] if aws else ()), *told.words]
    kind = classify(status, words, told.text)
    wait = retry_after(headers, now)
    text = told.text or _moved(status, headers) or _plain(headers.get("content-type", ""), body)
    found = _CLASSES.get(kind, ProviderError)(
        wire,
        text,
        code=_code(words),
        body=body,
        status=status,
        retry_after=told.wait if wait is None else wait,
        request_id=request_id(headers) or told.request_id,
    )
    if kind in ("again", "output", "quota"):
        found.retryable = kind == "again"
    asked = {"true": True, "false": False}.get(headers.get("x-should-retry", ""))
    if asked is not None:
        found.retryable = asked
    return found


def inner_failure(error: ProviderError, headers: Mapping[str, str] | None = None) -> ProviderError:
    """Return an error that a wire read inside a 200, whole or in a stream, as one of the right class."""
    headers = headers or {}
    told = _error_details(error.body)
    words = [*([error.code] if error.code else ()), *told.words]
    status = next((int(word) for word in words if re.fullmatch(r"[45]\d\d", word)), None)
    kind = classify(status, words, error.message)
    wait = prose(error.message)[1] if kind == "rate" else None
    found = _CLASSES.get(kind, ProviderError)(
        error.wire,
        error.message,
        code=error.code,
        body=error.body[:BODY],
        status=error.status,
        retry_after=told.wait if told.wait is not None else wait,
        request_id=request_id(headers) or told.request_id,
    )
    found.retryable = found.retryable or kind == "again"
    return found


def classify(status: int | None, words: Collection[str], text: str) -> Kind:
    """Return the kind of a failure. ``words`` are the provider's names for it, ``text`` its prose."""
    named = {_BY_WORD[word.lower()] for word in words if word.lower() in _BY_WORD}
    for kind in _PRECEDENCE:
        if kind in named and not (kind == "overload" and status in _STATUS):
            return _refine(status, kind, text)
    if status is not None and status in _STATUS:
        return _refine(status, _STATUS[status], text)
    if status is not None and status >= 500:  # noqa: PLR2004 (server errors)
        return _refine(status, "overload", text)
    return _kind(text)


def _refine(status: int | None, kind: Kind, text: str) -> Kind:
    """Tell what never passes from what does: more than a limit allows at all, where the word is for its passing."""
    passes = kind in ("rate", "overload")
    return "overflow" if passes and (status == 413 or _OVERFLOW_PROSE.search(text)) else kind  # noqa: PLR2004 (a status)


def cut_by_window(answer: AssistantMessage) -> bool:
    """Whether an answer ended because the window was full, before it was as long as it might be.

    Where the provider's word for its end says so, or where nothing but a word of usage came: no token was left.
    """
    if answer.finish_reason != "length":
        return False
    raw = answer.finish_reason_raw
    if isinstance(raw, str) and classify(None, (raw,), "") == "overflow":
        return True
    usage = answer.usage
    return usage is not None and not answer.content and (usage.output or 0) + (usage.reasoning or 0) <= _NOTHING


def prose(text: str) -> tuple[Kind, float | None]:
    """Return the prose of an error and the seconds to wait that it names; 5 for a rate limit without a number."""
    kind = _kind(text)
    if kind != "rate":
        return kind, None
    named = _RETRY_PROSE.search(text)
    return kind, parse_wait(named[1] + (named[2] or ""), 0.0) if named else _UNKNOWN_WAIT


def _kind(text: str) -> Kind:
    for kind, words in _PATTERNS.items():
        if words.search(text):
            return kind
    return "unknown"


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's name for the request."""
    return next((headers[name] for name in REQUEST_IDS if headers.get(name)), None)


class _ErrorDetails(msgspec.Struct):
    """What an error body says: prose, the provider's words for the error, and seconds to wait."""

    text: str = ""
    words: list[str] = []
    wait: float | None = None
    request_id: str | None = None


_NAMES: Final = ("type", "code", "status", "__type", "reason")
_TEXTS: Final = ("message", "detail", "error", "msg", "raw")


def _error_details(body: bytes) -> _ErrorDetails:
    try:
        value: Any = msgspec.json.decode(body.decode("utf-8", "replace"))  # a proxy may write another encoding
    except (msgspec.DecodeError, RecursionError):
        return _ErrorDetails()
    said = _ErrorDetails()
    for table in _tables(value):
        said.words += [str(table[name]) for name in _NAMES if isinstance(table.get(name), str | int)]
        said.text = said.text or next((table[name] for name in _TEXTS if _is_text(table.get(name))), "")
        if isinstance(table.get("retryDelay"), str):  # Gemini
            said.wait = parse_wait(table["retryDelay"], 0.0)
        if isinstance(table.get("request_id"), str):
            said.request_id = table["request_id"]
    said.words = [word.rpartition("#")[2] for word in said.words if word != "error"]
    if not said.text and isinstance(value, str):
        said.text = value
    return said


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of an error body, outer ones first; not deep, and not many."""
    waiting: list[Any] = [value]
    for _ in range(32):
        if not waiting:
            return
        match waiting.pop(0):
            case {**found}:
                table = cast("dict[str, Any]", found)
                yield table
                waiting += [each for each in table.values() if isinstance(each, dict | list)]
            case [*items]:
                waiting += items
            case _:
                pass


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _code(words: list[str]) -> str | None:
    """Return the most specific word: a known one, else the first that is not a number."""
    known = [word for word in words if word.lower() in _BY_WORD]
    return next(iter(known), None) or next((word for word in words if not word.isdigit()), None)


def _moved(status: int, headers: Mapping[str, str]) -> str:
    """The text for a redirect, which would take the key and the prompt to another place."""
    place = headers.get("location")
    if place is None or not 300 <= status < 400:  # noqa: PLR2004 (redirects)
        return ""
    return f"the address has moved to {shown_url(place)}; redirects are not followed"


def _plain(media_type: str, body: bytes) -> str:
    """A short text for a body that is no JSON."""
    if not body.strip():
        return "no body"
    if "html" in media_type or body.lstrip()[:1] == b"<":
        return "an HTML page"
    return excerpt(" ".join(body[:400].decode("utf-8", "replace").split()))
