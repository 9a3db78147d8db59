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

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Final, final

from msgspec import structs

from palaver.core.messages import Message
from palaver.core.request import Encoded, Loss, Request, Settings
from palaver.models.capabilities import Capabilities, Missing
from palaver.models.endpoint import Endpoint
from palaver.models.fit import fit
from palaver.models.language_model import Prompt
from palaver.threads.prefix import ListPrefix
from palaver.wires._engine import cache_marks
from palaver.wires._engine.cache_marks import CachePlan, marks_at, no_places

if TYPE_CHECKING:
    from palaver.wires._engine.encoder import RequestEncoder
    from palaver.wires._engine.wire import Wire


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
        """Begin with nothing written."""
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
        """The body for a prompt, and its receipt. Raises ``CapabilityError``, ``EncodeError``."""
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
            encoder = self._wire.request_encoder(request, takes=self._capabilities.media, metadata=self._metadata)
        encoded = Encoded(encoder.chunks(), (*unfit, *_shift_losses(encoder.losses, len(prompt.system))))
        self._last, self._streamed, self._messages, self._encoder = prompt, stream, messages, encoder
        self._places = tuple(marked)
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
    """Settings in which a field that ``over`` leaves open is that of ``under``."""
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
