"""Ask a model of another wire: the request in its wire, and its answer in the client's.

Rules:

- Both ways go through the neutral message. What could not be carried stands on the receipt, ``Record.losses``.
- On its way out a request gets the reasoning of earlier answers as its own wire wrote it (``conversation``), names of
  tools that the wire takes (``client_calls``), and what the wire wants beside it (``Additions``).
- A stream is written as it comes. What goes wrong in its middle is written in it, as the client's wire says it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from msgspec import Raw, Struct, json, structs

from palaver import wires
from palaver.context.marks import BridgeMarks, CachePlan, stable_marks
from palaver.core.errors import CapabilityError, PalaverError
from palaver.core.jsontext import NULL
from palaver.gateway.apis import API_OF
from palaver.gateway.client_answer import ClientAnswer
from palaver.gateway.client_api import stream_failure
from palaver.gateway.client_calls import ClientCalls, spelled_names, with_names
from palaver.gateway.client_response import ClientResponse, once
from palaver.gateway.conversations import Conversation, Conversations
from palaver.gateway.image_fetch import ImageFetcher
from palaver.gateway.old_fields import CHAT, has_functions, in_fields_of
from palaver.gateway.proof_envelope import holds_envelope
from palaver.gateway.reasoning_memory import ReasoningMemory, keys_of, worth_keeping
from palaver.gateway.restored_reasoning import opened, remembered
from palaver.gateway.server_tools import refuse_server_tools, substituted
from palaver.gateway.stored_content import refuse_stored_content
from palaver.models.language_model import Prompt
from palaver.threads.ids import now_ms
from palaver.wires._engine.json_fields import word
from palaver.wires._engine.thinking import OFF

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from palaver.core.messages import Message
    from palaver.core.request import Loss, Request, Response, Settings
    from palaver.gateway.client_api import Additions, ClientApi
    from palaver.gateway.record import ClientRequest, Record
    from palaver.models import Model
    from palaver.models.language_model import Answer
    from palaver.wires._engine.wire import Wire

_FIELD_OF: Final = "a field of "
"""How the reason begins with which a wire leaves a field of another one out."""
_PROBABILITIES: Final = b"ogprobs"
"""In every name of a field that asks for the probabilities of tokens."""
_UNASKED: Final = frozenset({"logprobs", "avgLogprobs"})
"""Fields that say something only to a client that asks for it."""


_FIELDS: Final = json.Decoder(dict[str, Raw])


class Translation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests are translated: the section ``[translation]``."""

    server_tools: Literal["drop", "refuse", "substitute"] = "drop"
    """What becomes of tools that another provider runs itself, and of a request with one.

    ``substitute``: the model's own tool of the same kind stands in for one.
    """
    fetch_images: bool = False
    """Whether the gateway fetches images by URL for wires that take bytes only."""
    cache: Literal["carry", "set"] = "carry"
    """Cache marks of the client are carried. ``set``: for clients whose wire has none, the gateway sets them."""
    reasoning_memory: int = 64 * 1024 * 1024
    """How many bytes of reasoning are kept for clients whose wire has no field for proofs."""


class Translator:
    """Asks models of other wires than the client's. One for a gateway."""

    def __init__(self, config: Translation) -> None:
        """Start with an empty memory."""
        self._config = config
        self._memory = ReasoningMemory(config.reasoning_memory)
        self._images = ImageFetcher()
        self._conversations = Conversations()

    def forget_conversations(self) -> None:
        """Remember no conversation: their models are replaced. Reasoning is remembered still."""
        self._conversations = Conversations()

    async def ask(self, model: Model, record: Record, stack: AsyncExitStack) -> ClientResponse:
        """Send the client's request to a model; ``stack`` closes the connection. Raises ``PalaverError``."""
        api, stream = record.request.api, record.request.stream
        wire = wires.get(model.endpoint.wire)
        conversation = self._conversations.take(model, api.wire, record.request.body, _scope(record))
        conversation.record = record
        stack.callback(self._conversations.give_back, model, api.wire, conversation, _scope(record))
        restored = self._restored(conversation, record)
        _refuse_own_only(restored, api, model)
        refuse_stored_content(restored, api.wire, record.request.body, model.name)
        functions = api.wire == CHAT and has_functions(restored)
        restored = in_fields_of(restored, api.wire, wire.name.partition(":")[0])
        request, losses = await self._fitted(restored, wire, model)
        spelled = spelled_names(request, wire.capabilities.tool_name)
        request = with_names(request, spelled)
        request = request.replace(messages=conversation.fitted(restored.messages, request.messages, spelled))
        prompt = self._prompt(request, record, model)
        answer = await stack.enter_async_context(
            conversation.session.ask(prompt, stream=stream, on_notice=record.note_retry)
        )
        calls = ClientCalls(
            spelled,
            model_wire=wire.name,
            ids=wires.get(api.wire).capabilities.call_id.pattern,
            notes={f"@{CHAT}": {"field": word("function_call")}} if functions else {},
        )
        client = ClientAnswer(
            wire=api.wire,
            form=api.reasoning,
            model_wire=wire.name,
            model_form=API_OF[wire.name].reasoning,
            calls=calls,
            single=request.settings.parallel_tool_calls is False,
            answer_id=None if api.answer_id is None else f"{api.answer_id}{record.id.replace('-', '')}",
            time=now_ms(),
            usage=not stream or _tells_usage(restored, api),
            echo=_echo_of(record.request),
        )
        if stream:
            headers = {"content-type": api.stream_type}
            return ClientResponse(
                status=200, headers=headers, body=self._streamed(answer, client, losses, record, conversation.messages)
            )
        reply = await answer.finish()
        record.answer = reply.response
        encoded = wires.get(api.wire).encode_response(client.response(reply.response))
        record.losses = (*losses, *reply.losses, *client.losses, *_missed(encoded.losses, record))
        self._remember(reply.response, client.calls, record, conversation.messages)
        return ClientResponse(status=200, headers={"content-type": "application/json"}, body=once(encoded.body))

    async def _fitted(self, request: Request, wire: Wire, model: Model) -> tuple[Request, tuple[Loss, ...]]:
        """Return a request with what only the gateway can give a model, and the losses."""
        if self._config.server_tools == "refuse":
            refuse_server_tools(request, wire.name, model.name)
        losses: tuple[Loss, ...] = ()
        if self._config.server_tools == "substitute":
            request, losses = substituted(request, wire.name.partition(":")[0])
        if not self._config.fetch_images:
            return request, losses
        messages, missing = await self._images.fetch_all(request.messages, wire.capabilities)
        return (request if messages is request.messages else request.replace(messages=messages)), (*losses, *missing)

    def _prompt(self, request: Request, record: Record, model: Model) -> Prompt:
        prompt = _with_additions(request, API_OF[model.endpoint.wire.partition(":")[0]].additions, model)
        if self._config.cache == "carry" or wires.get(record.request.api.wire).capabilities.marking:
            return prompt
        return prompt.replace(cache=CachePlan(places=stable_marks, bridges=BridgeMarks()))

    def _restored(self, conversation: Conversation, record: Record) -> Request:
        """Return the client's request with the reasoning of earlier answers."""
        api = record.request.api
        request = conversation.request(record.request.body)
        messages = request.messages
        if holds_envelope(record.request.body):
            messages = conversation.opened(messages, opened(messages, api.wire, api.reasoning))
        messages = remembered(messages, api.wire, self._memory, _scope(record), conversation.restored)
        return request if messages is request.messages else request.replace(messages=messages)

    def _remember(self, response: Response, calls: ClientCalls, record: Record, messages: Sequence[Message]) -> None:
        """Keep the reasoning of an answer: not every client sends it back."""
        if record.wire is None:
            return
        wire = record.wire.partition(":")[0]
        parts = worth_keeping(response.message.content, wire, API_OF[wire].reasoning.call_field)
        if not parts:
            return
        parts = tuple([calls.of_part(each) for each in parts])
        content = tuple([calls.of_part(each) for each in response.message.content])
        *_, key = keys_of((*messages, response.message.replace(content=content)), _scope(record))
        if key is not None:
            self._memory.remember(key, parts)

    async def _streamed(
        self,
        answer: Answer,
        client: ClientAnswer,
        losses: tuple[Loss, ...],
        record: Record,
        messages: Sequence[Message],
    ) -> AsyncGenerator[bytes]:
        """Yield an answer in the client's wire."""
        encoder = wires.get(record.request.api.wire).stream_encoder()
        try:
            async for event in answer:
                for each in client.feed(event):
                    if data := encoder.feed(each):
                        yield data
        except PalaverError as error:
            record.error = error
            yield encoder.feed(stream_failure(error, record.request.api))
        finally:
            record.answer = answer.so_far
        if record.error is None:
            reply = await answer.finish()
            end = encoder.finish()
            record.losses = (*losses, *reply.losses, *client.losses, *_missed(encoder.losses, record))
            self._remember(reply.response, client.calls, record, messages)
        else:
            end = encoder.finish()
        yield end


def _missed(losses: tuple[Loss, ...], record: Record) -> tuple[Loss, ...]:
    """Return the losses of an answer without the fields that its client does not miss."""
    unmissed = API_OF[(record.wire or "").partition(":")[0]].unmissed
    if _PROBABILITIES not in record.request.body:
        unmissed |= _UNASKED
    return tuple(
        [each for each in losses if not (each.why.startswith(_FIELD_OF) and each.what.partition(".")[0] in unmissed)]
    )


def _refuse_own_only(request: Request, api: ClientApi, model: Model) -> None:
    """Raise ``CapabilityError`` for what no model of another wire does."""
    fields = request.provider.get(api.wire, {})
    names = [each for each in api.own_only if fields.get(each) is True]
    if names:
        raise CapabilityError(f"{model.name} does not do what the field {names[0]!r} asks for")


def _echo_of(request: ClientRequest) -> dict[str, Raw]:
    """Return the fields of a request that the client's wire repeats in an answer."""
    names = request.api.echoes
    fields = _FIELDS.decode(request.body) if names else {}
    return {each: fields[each] for each in names if fields.get(each, NULL) != NULL}


def _tells_usage(request: Request, api: ClientApi) -> bool:
    """Return whether the client of a stream gets usage."""
    if api.usage_field is None:
        return True
    found: object = request.provider.get(api.wire, {})
    for name in api.usage_field.split("."):
        found = cast("dict[str, object]", found).get(name) if isinstance(found, Mapping) else None
    return found is True


def _scope(record: Record) -> str:
    """Return whose conversation it is."""
    return "" if record.caller is None else record.caller.key_id


def replayable(record: Record) -> tuple[bytes, tuple[Loss, ...]]:
    """Return the client's body for a model of the client's own wire, without reasoning that another wire made.

    Also returns the losses. Raises ``DecodeError``.
    """
    api, request = record.request.api, record.request.decoded
    messages = opened(request.messages, api.wire, api.reasoning)
    if messages is request.messages:
        return record.request.body, ()
    encoded = wires.get(api.wire).encode_request(request.replace(messages=messages))
    return encoded.body, encoded.losses


# -- requests --------------------------------------------------------------------------------------


def _with_additions(request: Request, additions: Additions, model: Model) -> Prompt:
    """Return what a model of another wire is asked."""
    settings = request.settings
    if additions.max_tokens and settings.max_tokens is None and model.capabilities.max_output is not None:
        settings = structs.replace(settings, max_tokens=model.capabilities.max_output)
    fields: dict[str, dict[str, Any]] = {wire: dict(values) for wire, values in request.provider.items()}
    reasons, thinks = model.capabilities.reasoning, _asks_for_thinking(settings)
    chosen = [additions.always]
    if reasons or (thinks and reasons is None):
        chosen.append(additions.reasons)
    if thinks and reasons is not False:
        chosen.append(additions.thinking)
    for each in chosen:
        for wire, values in each.items():
            fields[wire] = _merged(fields.get(wire, {}), values)
    return Prompt(messages=request.messages, tools=request.tools, settings=settings, provider=fields)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    return {**under, **over}


def _asks_for_thinking(settings: Settings) -> bool:
    effort, budget = settings.effort, settings.reasoning_tokens
    return budget != OFF and effort != "none" and (effort is not None or budget is not None)
