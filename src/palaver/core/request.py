"""A request, a response, and the receipt for what could not be carried.

Rules:

- A request is messages, tools and settings. What only one wire understands stands in
  ``provider[wire]``.
- ``origin`` names the wire whose ``decode_request`` made this request. ``replace`` forgets it: an edited request is
  repaired when it is sent (docs/spec/wires.md#9).
- ``original`` is the body that was decoded, and stays with an edited request: what was not edited is written as it was.
  It keeps the spelling of a value, not its meaning: two values that differ only in it are equal.
- A ``Loss`` describes one thing that was not carried: the outcome, the place, and the reason.

Stability: stable.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, Unpack, final

from msgspec import UNSET, Raw, Struct, UnsetType, field, json, structs

from palaver.core import jsontext, type_checks
from palaver.core.errors import MessageError, excerpt
from palaver.core.messages import AssistantMessage, FinishReason, Message
from palaver.core.prompt_input import as_messages
from palaver.core.tools import AnyTool
from palaver.core.type_checks import Checked
from palaver.core.value import Record, Value, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.core.changes import OutputFormatChanges, RequestChanges, ResponseChanges, SettingsChanges
    from palaver.core.parts import ToolCall
    from palaver.core.usage import Usage


def _one_of(place: str, word: object, words: tuple[str, ...]) -> None:
    if word not in words:
        raise MessageError(f"{place}: expected one of {', '.join(words)}, got {excerpt(str(word))}")


@final
class ToolChoice(Record, frozen=True, metaclass=Checked):
    """Whether the model may, must or must not call.

    ``names`` narrows it: ``required`` with one name forces that tool.
    """

    mode: Literal["auto", "none", "required"]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a word that no wire could express."""
        _one_of("ToolChoice: mode", self.mode, ("auto", "none", "required"))


@final
class OutputFormat(Value, frozen=True, tag_field="type", tag="output_format", metaclass=Checked):
    """The form of the answer: ``text``, any ``json`` object, or ``json_schema`` with its schema, made by ``of``."""

    kind: Literal["text", "json", "json_schema"]
    schema_json: Raw | UnsetType = field(default=UNSET, name="schema")
    name: str | None = None
    description: str | None = None
    strict: bool | None = None

    @classmethod
    def of(
        cls,
        schema: dict[str, Any],
        *,
        name: str | None = None,
        description: str | None = None,
        strict: bool | None = None,
        provider: dict[str, Any] | None = None,
    ) -> Self:
        """Ask for JSON that fits ``schema``, a JSON Schema.

        ``name`` and ``description`` tell the model what the JSON is; a wire that needs a name supplies one.
        ``strict`` asks the provider to enforce the schema; ``None`` leaves that to the wire. ``provider`` holds fields
        by wire. Raises ``MessageError`` for what JSON cannot express.
        """
        given: object = schema
        if isinstance(given, type):
            raise MessageError(f"schema: expected a JSON Schema, got a type; Agent(output={given.__name__}) takes one")
        made = cls("json_schema", jsontext.checked(schema, "schema"), name, description, strict)
        return made if provider is None else made.replace(provider=provider)

    def replace(self, **changes: Unpack[OutputFormatChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    def __post_init__(self) -> None:
        """Refuse a word that no wire could express."""
        _one_of("OutputFormat: kind", self.kind, ("text", "json", "json_schema"))

    @property
    def schema(self) -> Any:
        """The JSON Schema, parsed and frozen; ``None`` when there is none."""
        return None if self.schema_json is UNSET else jsontext.view(self.schema_json)


@final
class Settings(Record, frozen=True, kw_only=True, metaclass=Checked):
    """What a caller may ask of a model, on any wire. ``None`` leaves it to the provider.

    ``max_tokens`` bounds generated tokens; ``effort`` is the provider's word for how hard to
    reason, ``reasoning_tokens`` a budget in tokens: 0 is off, -1 as much as the model finds right. A wire that
    cannot express one uses the other (``palaver.wires._engine.thinking``).
    """

    max_tokens: int | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    frequency_penalty: int | float | None = None
    presence_penalty: int | float | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    output: OutputFormat | None = None
    effort: str | None = None
    reasoning_tokens: int | None = None
    stream: bool | None = None

    def replace(self, **changes: Unpack[SettingsChanges]) -> Self:
        """Return a copy with some settings changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    def __replace__(self, **changes: object) -> Self:
        """Return a copy with some settings changed: what ``copy.replace`` calls."""
        for name in changes:
            if name not in self.__struct_fields__:
                raise MessageError(f"Settings has no field {name!r}")
        made = {name: type_checks.checked(type(self), name, new) for name, new in changes.items()}
        return structs.replace(self, **made)

    def __post_init__(self) -> None:
        """Refuse infinities and NaN, which JSON cannot express."""
        for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty"):
            number = getattr(self, name)
            if isinstance(number, float) and not isfinite(number):
                raise MessageError(f"{name}: {number} is not a JSON number")


@final
class Original(Record, frozen=True, metaclass=Checked):
    """The body that a request or a response was decoded from, and the wire that read it (``wire:variant``)."""

    wire: str
    body_json: Raw

    @property
    def body(self) -> Any:
        """The body, parsed and frozen."""
        return jsontext.view(self.body_json)


@final
class Request(Value, frozen=True, tag_field="type", tag="request", metaclass=Checked):
    """What a model is asked: messages, tools and settings."""

    messages: tuple[Message, ...] = ()
    model: str | None = None
    tools: tuple[AnyTool, ...] = ()
    settings: Settings = Settings()
    origin: str | None = None
    original: Original | None = None

    def replace(self, **changes: Unpack[RequestChanges]) -> Self:
        """Return a copy edited by ``changes``, which has no ``origin`` any more. Raises ``MessageError``."""
        return self.__replace__(**changes)

    def __replace__(self, **changes: object) -> Self:
        """Return a copy edited by ``changes``, which has no ``origin`` any more."""
        return super().__replace__(**{"origin": None, **changes})

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show it in a notebook."""
        from palaver.core import notebook  # noqa: PLC0415 (it renders what this module defines)

        return notebook.bundle(self, notebook.request_html(self))

    def append(self, *messages: Message | str) -> Self:
        """Return a copy with ``messages`` at the end; a text is a user message. Raises ``MessageError``."""
        return self.replace(messages=(*self.messages, *as_messages(messages)))


@final
class Response(Value, frozen=True, tag_field="type", tag="response", metaclass=Checked):
    """What a model answered. ``alternatives`` are further choices, where several were asked for."""

    message: AssistantMessage
    alternatives: tuple[AssistantMessage, ...] = ()
    origin: str | None = None
    original: Original | None = None

    @property
    def text(self) -> str:
        """The text of the answer, without reasoning."""
        return self.message.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the answer, in order."""
        return self.message.tool_calls

    @property
    def usage(self) -> Usage | None:
        """What the answer cost."""
        return self.message.usage

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended, in the neutral word."""
        return self.message.finish_reason

    @property
    def model(self) -> str | None:
        """The model that answered."""
        return self.message.model

    @property
    def id(self) -> str | None:
        """The provider's id of the answer."""
        return self.message.response_id

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show it in a notebook."""
        from palaver.core import notebook  # noqa: PLC0415 (it renders what this module defines)

        return notebook.bundle(self, notebook.response_html(self))

    def replace(self, **changes: Unpack[ResponseChanges]) -> Self:
        """Return a copy edited by ``changes``, which has no ``origin`` any more. Raises ``MessageError``."""
        return self.__replace__(**changes)

    def __replace__(self, **changes: object) -> Self:
        """Return a copy edited by ``changes``, which has no ``origin`` any more."""
        return super().__replace__(**{"origin": None, **changes})


LossKind: TypeAlias = Literal["dropped", "converted", "approximated"]


@final
class Loss(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that a target could not express: ``kind`` is the outcome, ``why`` the reason.

    ``message`` and ``part`` are positions in the request (``None``: the request itself); ``what``
    names the part type or field. Of an answer ``whole`` is ``response``, and ``message`` counts its choices.
    """

    kind: LossKind
    what: str
    why: str
    message: int | None = None
    part: int | None = None
    whole: Literal["request", "response"] = "request"

    @property
    def where(self) -> str:
        """The place, as a path: ``messages[3].content[0]``; without a message, ``request`` or ``response``."""
        if self.message is None:
            return self.whole
        return f"messages[{self.message}]" + ("" if self.part is None else f".content[{self.part}]")

    def __str__(self) -> str:
        """``messages[3].content[0]: reasoning dropped (bound to another wire)``."""
        return f"{self.where}: {self.what} {self.kind} ({self.why})"

    def __repr__(self) -> str:
        """Show what was set, shortened."""
        return short_repr(self)


@final
class Encoded:
    """An encoded body: the chunks to hand to a socket, and the receipt."""

    __slots__ = ("_body", "_chunks", "losses")

    def __init__(self, chunks: Iterable[bytes], losses: tuple[Loss, ...] = ()) -> None:
        """Keep the ``chunks`` of the body, in order, and the ``losses``; ``body`` joins the chunks on first use."""
        self._chunks = tuple(chunks)
        self._body: bytes | None = None
        self.losses = losses

    @property
    def chunks(self) -> tuple[bytes, ...]:
        """The body in pieces, in order."""
        return self._chunks

    @property
    def body(self) -> bytes:
        """The body as one ``bytes``."""
        if self._body is None:
            self._body = b"".join(self._chunks)
        return self._body

    @property
    def fields(self) -> dict[str, Any]:
        """The body as a dictionary: the arguments of the call of an official client, ``create(**encoded.fields)``."""
        parsed: dict[str, Any] = json.decode(self.body)
        return parsed

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show it in a notebook."""
        from palaver.core import notebook  # noqa: PLC0415 (it renders what this module defines)

        return notebook.bundle(self, notebook.receipt_html(self))

    def __repr__(self) -> str:
        """Show the size, not the text."""
        return f"Encoded({sum(map(len, self._chunks))} bytes, {len(self.losses)} losses)"
