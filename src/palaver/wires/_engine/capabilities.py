"""The capabilities of wires as data: one row a wire, one changed row a variant.

- ``WireCapabilities`` has the answers of the tables in docs/spec/wires.md#1.4 and #9. ``fit`` reads it, and no code
  compares the name of a wire.
- A medium without a row in ``media`` cannot be sent. ``result_media`` is the same for tool results, ``answer_media``
  for answers of the assistant.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from palaver.wires._engine.cache_marks import Marking

MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
MEDIA_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video", "file")


class MediaRule(Struct, frozen=True):
    """Where a medium may come from, and of which types (``None``: any).

    ``needs_type`` says that the wire refuses a medium whose type is not known (``"inline"``: only its bytes); bytes
    of an unknown type are also refused where ``types`` names those it takes. ``refuses`` are beginnings of types it
    never takes, from anywhere.
    ``schemes`` are those that a URL may have.
    """

    sources: frozenset[Literal["inline", "url", "file_id"]]
    types: frozenset[str] | None = None
    needs_type: bool | Literal["inline"] = False
    refuses: tuple[str, ...] = ()
    schemes: frozenset[str] = frozenset({"http", "https"})


class IdRule(Struct, frozen=True):
    """Which tool call ids a wire takes: a pattern that must match whole, and how a new one is spelled.

    ``unique`` says that an id may stand for one call only in the whole request; elsewhere one turn is enough.
    """

    pattern: re.Pattern[str]
    prefix: str = "call_"
    digits: int = 24
    unique: bool = False


class MetadataRule(Struct, frozen=True, kw_only=True):
    """The field of a request for keys and values of the caller, and what the provider takes there; whole patterns.

    ``needs`` names a field of the body that must be ``true`` beside it.
    """

    field: str
    key: re.Pattern[str]
    value: re.Pattern[str]
    most: int
    needs: str | None = None


class WireCapabilities(Struct, frozen=True, kw_only=True):
    """The capabilities of one wire. The defaults are those of a wire without limits."""

    ranges: dict[str, tuple[float, float]] = {}
    """Least and most of numeric settings, by the neutral name; what lies beyond is sent as the nearer end."""
    stops: int | None = None
    """How many stop sequences are taken; the first ones are sent. ``None``: no bound is known."""
    names_model: bool = True
    """The body must name the model."""
    later_system: bool = True
    """A system message may stand behind other messages."""
    head_fields: bool = False
    """Where leading system messages stand in the head, fields of theirs stand beside their text."""
    developer: bool = True
    """There is a developer role."""
    blank_text: bool = True
    """Text parts may be empty or blank."""
    silent_answers: bool = True
    """An assistant message may hold nothing but empty text."""
    blank_proofs: frozenset[str] | None = None
    """Notes of the wire's own that keep a blank text, since they carry a proof (``None``: any field or note does)."""
    blank_result: bool = False
    """A tool result may be one blank text, even where text parts may not."""
    media: dict[MediaKind, MediaRule] = {}
    result_media: dict[MediaKind, MediaRule] = {}
    answer_media: dict[MediaKind, MediaRule] = {}
    proofs: frozenset[Literal["signature", "encrypted"]] = frozenset({"signature", "encrypted"})
    """What the wire's own reasoning can carry to prove where it comes from."""
    usage_passes: bool = False
    """The usage of an answer can name further passes, each with counters of its own."""
    needs_usage: bool = False
    """An answer must have a usage; zeros are sent for one that was not reported."""
    needed_counters: tuple[tuple[str, ...], ...] = ()
    """The numbers that a usage must have, each by the counters that it sums; 0 is sent where none was reported."""
    lenient_base64: bool = False
    """Inline media may use the URL-safe alphabet and leave out padding."""
    error_flag: bool = True
    """A tool result can be marked as an error; else its text gets a prefix."""
    custom_calls: bool = True
    """Free-text calls exist; else they become ``{"input": text}``."""
    own_blocks: frozenset[Literal["opaque block", "server tool result"]] = frozenset(
        {"opaque block", "server tool result"}
    )
    """Blocks of the wire's own that messages can hold, by the word that a loss has for them."""
    part_fields: bool = True
    """Parts are objects, which can hold fields of the wire's own."""
    object_arguments: bool = False
    """Arguments are sent as a JSON object; else as text, which must still be JSON."""
    refusal: bool = True
    """There is a refusal part; else it becomes text."""
    interleaving: bool = True
    """Text may stand behind a tool call in one assistant message; else all text comes first."""
    call_id: IdRule = IdRule(re.compile(r"(?s).+"))
    tool_name: re.Pattern[str] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    answers_run: bool = False
    """The results of adjoining assistant messages stand behind the last of them, not behind each."""
    first_user: bool = False
    """The first message must be the user's."""
    last_user: bool = False
    """The last message must be the user's or a tool's."""
    blank_end: bool = True
    """A last assistant message may end in white space."""
    declares_called: bool = False
    """The head must declare the tools that the messages call."""
    empty: bool = False
    """A request without messages is taken."""
    elsewhere: frozenset[str] = frozenset()
    """Fields of a request, in ``provider[wire]``, under which it needs no messages."""
    continues: frozenset[str] = frozenset()
    """Fields that name a conversation which the provider keeps; results may answer calls that are in there."""
    answer_fields: frozenset[str] | None = None
    """Fields beside the neutral ones which every vendor of the wire takes on assistant messages; see ``vendors``."""
    request_fields: frozenset[str] | None = None
    """Fields of a request beside the neutral ones which may come from another vendor of the wire; see ``vendors``."""
    says: frozenset[str] = frozenset()
    """Fields of the wire that give an answer without content a meaning; any other such answer is left out."""
    choices: bool = False
    """A response may hold several answers; else the alternatives are not sent."""
    has_time: bool = False
    """An answer has the time when it was made."""
    marking: tuple[Marking, ...] = ()
    """The forms of cache marks: the first row that fits the model. Empty where the provider needs none."""
    cache_key: str | None = None
    """The field of a request that names its cache."""
    metadata: MetadataRule | None = None
    """The field for metadata of the messages; ``None`` where there is none."""
