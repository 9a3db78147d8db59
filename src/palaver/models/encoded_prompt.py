"""The prompt that a conversation encoded last, so that the next one encodes only what is new.

Rules (docs/spec/performance.md, "One turn's request body"):

- A prompt extends the last one when its head (system messages, tools, settings, fields of the wire) is equal and its
  messages begin with those already encoded: a constant-time check for prefixes of one growing list, else by identity.
  Any other prompt is encoded anew.
- Settings of the prompt win over the model's, field by field; fields of the prompt win over the endpoint's. Then
  ``fit`` adapts the prompt to the model.
- Cache marks go on the head, and on copies of the messages at the places of the plan. A prompt whose earlier marks
  moved is encoded anew. Wires without marks never ask the plan for places.
- Places in the receipt count from the first of ``Prompt.messages``. Losses of system messages belong to the request.

Adapt a prompt to the capabilities of a model (docs/spec/kairo.md#4.1; docs/spec/message-fields.md#R08; DAS-09):

- What the model cannot do is dropped or converted, each with one ``Loss``; ``missing="refuse"`` raises one
  ``CapabilityError`` for all of it. Unknown capabilities are assumed.
- A prompt that needs no change is returned as the same object. Messages are read only for a model without tools, or to
  refuse media.
- Messages keep their places, so that losses name the right one. The wire drops media that the model does not take; here
  they are only found when they are to be refused.
- A schema that the model cannot enforce is appended to the instructions.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from msgspec import Raw, structs

from palaver.core.errors import CapabilityError, LossError
from palaver.core.factories import system
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.pairs import result_as_user
from palaver.core.parts import AssistantPart, MalformedToolCall, Text, ToolCall
from palaver.core.request import Encoded, Loss, OutputFormat, Request, Settings
from palaver.models.catalogue import Capabilities, Missing
from palaver.models.endpoint import Endpoint
from palaver.models.language_model import Prompt
from palaver.threads.thread import ListPrefix
from palaver.wires._engine import cache_marks
from palaver.wires._engine.cache_marks import CachePlan, marks_at, no_places
from palaver.wires._engine.capabilities import MEDIA_KINDS, MediaKind
from palaver.wires._engine.media import kind_of

if TYPE_CHECKING:
    from palaver.wires._engine.encoder import RequestEncoder
    from palaver.wires._engine.wire import Wire


# -- fit -------------------------------------------------------------------------------------------


Fitted: TypeAlias = tuple[Prompt, tuple[Loss, ...]]
_SHOWN: Final = 20
"""The most losses that a refusal names."""
_ANY_JSON: Final = "Answer with one JSON object, and with nothing else: no other text, no code fence."


def fit(prompt: Prompt, capabilities: Capabilities, missing: Missing = "drop") -> Fitted:
    """Return the prompt that the model can take, and the losses.

    Returns the same object when nothing needs to change. Raises ``CapabilityError`` with ``missing="refuse"``. For a
    model without tools, costs the length of the messages.
    """
    losses: tuple[Loss, ...] = ()
    fitted = prompt
    for step in _STEPS:
        fitted, lost = step(fitted, capabilities)
        losses += lost
    if missing == "refuse":
        losses += tuple(_unseen_media(prompt.messages, frozenset(MEDIA_KINDS) - capabilities.media))
        if losses:
            raise CapabilityError(_refusal(losses))
    return fitted, losses


def _refusal(losses: Sequence[Loss]) -> str:
    shown = "; ".join(f"{loss.where}: {loss.what} ({loss.why})" for loss in losses[:_SHOWN])
    more = f"; and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
    return f"the model does not support the request: {shown}{more}"


# -- tools -----------------------------------------------------------------------------------------


def _tools(prompt: Prompt, capabilities: Capabilities) -> Fitted:
    """For a model without tools, offer none, and send earlier tool calls as text."""
    if capabilities.tools:
        return prompt, ()
    losses: list[Loss] = []
    changes: dict[str, Any] = {}
    if prompt.tools:
        losses.append(Loss("dropped", "tools", "the model has no tools"))
        changes["tools"] = ()
    settings = structs.replace(prompt.settings, tool_choice=None, parallel_tool_calls=None)
    if settings != prompt.settings:
        choice = prompt.settings.tool_choice
        if choice is not None and choice.mode == "required":
            losses.append(Loss("dropped", "tool_choice", "the model has no tools"))
        changes["settings"] = settings
    messages = [_without_tools(message, index, losses) for index, message in enumerate(prompt.messages)]
    if any(new is not old for new, old in zip(messages, prompt.messages, strict=True)):
        changes["messages"] = tuple(messages)
    return (prompt.replace(**changes) if changes else prompt), tuple(losses)


def _without_tools(message: Message, index: int, losses: list[Loss]) -> Message:
    match message:
        case ToolMessage():
            losses.append(
                Loss("converted", "tool result", "the model does not support tools; sent as user text", index)
            )
            return result_as_user(message)
        case AssistantMessage() if any(isinstance(part, ToolCall | MalformedToolCall) for part in message.content):
            content: list[AssistantPart] = []
            for position, part in enumerate(message.content):
                if isinstance(part, ToolCall | MalformedToolCall):
                    losses.append(
                        Loss(
                            "converted", "tool call", "the model does not support tools; sent as text", index, position
                        )
                    )
                    content.append(Text(_call_text(part)))
                else:
                    content.append(part)
            return message.replace(content=tuple(content))
        case _:
            return message


def _call_text(call: ToolCall | MalformedToolCall) -> str:
    arguments = call.arguments_json if isinstance(call, ToolCall) else call.raw
    return f"[Called the tool {call.name or 'unknown'} with {arguments or '{}'}]"


# -- settings --------------------------------------------------------------------------------------


def _parallel(settings: Settings, capabilities: Capabilities) -> tuple[Settings, tuple[Loss, ...]]:
    """A model without parallel calls makes one call at a time anyway."""
    asked = settings.parallel_tool_calls
    if capabilities.parallel_tools or asked is None:
        return settings, ()
    lost = (Loss("dropped", "parallel_tool_calls", "the model makes one tool call at a time"),) if asked else ()
    return structs.replace(settings, parallel_tool_calls=None), lost


def _reasoning(settings: Settings, capabilities: Capabilities) -> tuple[Settings, tuple[Loss, ...]]:
    """A model without reasoning does not reason anyway."""
    if capabilities.reasoning is not False or (settings.effort is None and settings.reasoning_tokens is None):
        return settings, ()
    asked = {"effort": settings.effort not in {None, "none"}, "reasoning_tokens": bool(settings.reasoning_tokens)}
    lost = tuple(Loss("dropped", name, "the model does not reason") for name, wanted in asked.items() if wanted)
    return structs.replace(settings, effort=None, reasoning_tokens=None), lost


def _length(settings: Settings, capabilities: Capabilities) -> tuple[Settings, tuple[Loss, ...]]:
    most, asked = capabilities.max_output, settings.max_tokens
    if most is None or asked is None or asked <= most:
        return settings, ()
    lost = Loss("approximated", "max_tokens", f"{asked} is more than the model's limit; {most} was sent")
    return structs.replace(settings, max_tokens=most), (lost,)


_SETTINGS: Final = (_parallel, _reasoning, _length)


def _settings(prompt: Prompt, capabilities: Capabilities) -> Fitted:
    settings = prompt.settings
    losses: tuple[Loss, ...] = ()
    for step in _SETTINGS:
        settings, lost = step(settings, capabilities)
        losses += lost
    return (prompt if settings is prompt.settings else prompt.replace(settings=settings)), losses


# -- the form of the answer ------------------------------------------------------------------------


def _output(prompt: Prompt, capabilities: Capabilities) -> Fitted:
    """Replace a form that the model cannot enforce by the nearest one that it can, and by instructions."""
    output = prompt.settings.output
    if output is None or output.kind == "text" or capabilities.structured in {"json_schema", output.kind}:
        return prompt, ()
    held = OutputFormat("json") if capabilities.structured == "json" else None
    settings = structs.replace(prompt.settings, output=held)
    how = "JSON mode was used, with the schema in the instructions" if held else "the instructions say it instead"
    lost = Loss("converted", "output", f"the model does not support {output.kind}; {how}")
    return prompt.replace(settings=settings, system=(*prompt.system, system(_schema_instruction(output)))), (lost,)


def _schema_instruction(output: OutputFormat) -> str:
    if isinstance(output.schema_json, Raw):
        said = f" {output.description}" if output.description else ""
        return f"{_ANY_JSON}{said} It must follow this JSON Schema:\n{bytes(output.schema_json).decode()}"
    return _ANY_JSON


_STEPS: Final[tuple[Callable[[Prompt, Capabilities], Fitted], ...]] = (_tools, _settings, _output)


# -- media -----------------------------------------------------------------------------------------


def _unseen_media(messages: Sequence[Message], kinds: frozenset[MediaKind]) -> Iterator[Loss]:
    """The media that the model cannot see, of all roles."""
    if not kinds:
        return
    for index, message in enumerate(messages):
        for position, part in enumerate(getattr(message, "content", ())):
            kind = kind_of(part)
            if kind in kinds:
                yield Loss("dropped", kind, "the model does not accept it", index, position)


# -- encoded prompt --------------------------------------------------------------------------------


@final
class PromptEncoder:
    """Encodes the prompts of one conversation with one model. ``id`` is the model's name in the body."""

    def __init__(
        self,
        wire: Wire,
        endpoint: Endpoint,
        *,
        id: str,
        settings: Settings,
        capabilities: Capabilities,
        missing: Missing = "drop",
        metadata: Collection[str] = (),
    ) -> None:
        """Start with nothing encoded."""
        self._wire = wire
        self._endpoint = endpoint
        self._id = id
        self._settings = _OPEN if settings == _OPEN else settings
        self._capabilities = capabilities
        self._missing: Missing = missing
        self._metadata = metadata
        self._encoder: RequestEncoder | None = None
        self._last: Prompt | None = None
        self._streamed = False
        self._messages: Sequence[Message] = ()
        self._marking = cache_marks.marking_of(wire.capabilities.marking, id)
        self._places: tuple[int, ...] = ()

    def encode(self, prompt: Prompt, *, stream: bool) -> Encoded:
        """The body for a prompt, and its receipt. Raises ``CapabilityError``, ``EncodeError``, ``LossError``."""
        settings = merge_settings(self._settings, prompt.settings)
        prompt = prompt if settings is prompt.settings else prompt.replace(settings=settings)
        prompt, unfit = fit(prompt, self._capabilities, self._missing)
        encoder, self._encoder = self._encoder, None  # what raises below leaves nothing half written
        messages = prompt.messages if isinstance(prompt.messages, ListPrefix) else tuple(prompt.messages)
        marked = self._marks(prompt, messages)
        before = len(self._messages)
        if encoder is not None and self._extends_last(prompt, messages, marked, stream=stream):
            new = list(messages[before:])
            for place, message in marked.items():
                if place >= before:
                    new[place - before] = message
            encoder.append(*new)
        else:
            request = self._request(prompt, marked, stream=stream)
            encoder = self._wire.request_encoder(
                request, takes=self._capabilities.media, metadata=self._metadata, model=self._id
            )
        encoded = Encoded(encoder.chunks(), (*unfit, *_shift_losses(encoder.losses, len(prompt.system))))
        self._last, self._streamed, self._messages, self._encoder = prompt, stream, messages, encoder
        self._places = tuple(marked)
        if prompt.losses == "raise" and (lost := tuple(each for each in encoded.losses if each.kind != "approximated")):
            raise LossError(self._wire.name, lost)
        return encoded

    def _marks(self, prompt: Prompt, messages: Sequence[Message]) -> dict[int, Message]:
        """The messages that carry a mark, by their places."""
        plan, row = prompt.cache, self._marking
        if plan is None or row is None:
            return {}
        places = row.places(plan, messages, tools=prompt.tools, system=bool(prompt.system))
        return dict(marks_at(messages, places, row))

    def _extends_last(
        self, prompt: Prompt, messages: Sequence[Message], marked: Mapping[int, Message], *, stream: bool
    ) -> bool:
        last = self._last
        if (
            last is None
            or stream != self._streamed
            or not (same_head(last, prompt) and self._extends_messages(messages))
        ):
            return False
        return tuple(place for place in marked if place < len(self._messages)) == self._places

    def _extends_messages(self, messages: Sequence[Message]) -> bool:
        before = self._messages
        if isinstance(messages, ListPrefix) and messages.continues(before):
            return True
        return len(messages) >= len(before) and all(map(is_, before, messages))

    def _request(self, prompt: Prompt, marked: Mapping[int, Message], *, stream: bool) -> Request:
        endpoint = self._endpoint
        if marked:
            prompt = prompt.replace(messages=[marked.get(place, each) for place, each in enumerate(prompt.messages)])
        settings = structs.replace(prompt.settings, stream=stream if endpoint.stream_field else None)
        request = prompt.replace(settings=settings).request(self._id if endpoint.names_model else None)
        fields = [endpoint.provider, *([endpoint.stream_provider] if stream else ()), prompt.provider]
        provider: dict[str, dict[str, Any]] = {}
        for each in fields:
            for wire, values in each.items():
                provider.setdefault(wire, {}).update(values)
        request = request.replace(provider=provider) if provider else request
        return request if prompt.cache is None else self._with_head(request, prompt.cache)

    def _with_head(self, request: Request, plan: CachePlan) -> Request:
        """The request with the marks of its head; those of its messages are put on already."""
        capabilities = self._wire.capabilities
        rows = () if self._marking is None else (self._marking,)
        named = structs.replace(plan, places=no_places, bridges=no_places)
        return cache_marks.marked(request, rows, capabilities.cache_key, self._wire.name, named)


_OPEN: Final = Settings()


def same_head(last: Prompt, prompt: Prompt) -> bool:
    """Whether two prompts differ in their messages only."""
    pairs: tuple[tuple[object, object], ...] = (
        (last.system, prompt.system),
        (last.tools, prompt.tools),
        (last.settings, prompt.settings),
        (last.provider, prompt.provider),
        (_head_marks(last.cache), _head_marks(prompt.cache)),
    )
    return all(one is other or one == other for one, other in pairs)


def _head_marks(plan: CachePlan | None) -> tuple[bool, bool, str | None] | None:
    return None if plan is None else (plan.head, plan.automatic, plan.key)


def merge_settings(under: Settings, over: Settings) -> Settings:
    """Return the settings ``over``, with the fields that it leaves open from ``under``."""
    if under is _OPEN or under == _OPEN:
        return over
    set_there = {name: getattr(over, name) for name in over.__struct_fields__}
    return structs.replace(under, **{name: each for name, each in set_there.items() if each != getattr(_OPEN, name)})


def _shift_losses(losses: tuple[Loss, ...], system: int) -> tuple[Loss, ...]:
    """Count places from the first message behind the system messages."""
    if not system or not losses:
        return losses
    return tuple(
        loss
        if loss.message is None
        else structs.replace(loss, message=loss.message - system)
        if loss.message >= system
        else structs.replace(loss, message=None, part=None)
        for loss in losses
    )
