"""Adapt a prompt to the capabilities of a model.

Rules (docs/spec/kairo.md#4.1; docs/spec/message-fields.md#R08; DAS-09):

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

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Raw, structs

from palaver.core.errors import CapabilityError
from palaver.core.factories import system
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.pairs import result_as_user
from palaver.core.parts import AssistantPart, MalformedToolCall, Text, ToolCall
from palaver.core.request import Loss, OutputFormat, Settings
from palaver.models.capabilities import Capabilities, Missing
from palaver.models.language_model import Prompt
from palaver.wires._engine.capabilities import MEDIA_KINDS, MediaKind
from palaver.wires._engine.media import kind_of

Fitted: TypeAlias = tuple[Prompt, tuple[Loss, ...]]
_SHOWN: Final = 20
"""As many losses are named in a refusal."""
_ANY_JSON: Final = "Answer with one JSON object, and with nothing else: no other text, no code fence."


def fit(prompt: Prompt, capabilities: Capabilities, missing: Missing = "drop") -> Fitted:
    """The prompt as the model can be asked, and what was lost. Raises ``CapabilityError`` with ``missing="refuse"``.

    Gives the same object where nothing needs to change. Without tools, costs the length of the messages.
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
    return f"the model cannot do what is asked: {shown}{more}"


# -- tools -----------------------------------------------------------------------------------------


def _tools(prompt: Prompt, capabilities: Capabilities) -> Fitted:
    """Without tools, none is offered, and those that were called before are sent as text."""
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
            losses.append(Loss("converted", "tool result", "the model has no tools; sent as user text", index))
            return result_as_user(message)
        case AssistantMessage() if any(isinstance(part, ToolCall | MalformedToolCall) for part in message.content):
            content: list[AssistantPart] = []
            for position, part in enumerate(message.content):
                if isinstance(part, ToolCall | MalformedToolCall):
                    losses.append(
                        Loss("converted", "tool call", "the model has no tools; sent as text", index, position)
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
    """One call at a time is what it does anyway."""
    asked = settings.parallel_tool_calls
    if capabilities.parallel_tools or asked is None:
        return settings, ()
    lost = (Loss("dropped", "parallel_tool_calls", "the model calls one tool at a time"),) if asked else ()
    return structs.replace(settings, parallel_tool_calls=None), lost


def _reasoning(settings: Settings, capabilities: Capabilities) -> tuple[Settings, tuple[Loss, ...]]:
    """Not to reason is what it does anyway."""
    if capabilities.reasoning is not False or (settings.effort is None and settings.reasoning_tokens is None):
        return settings, ()
    asked = {"effort": settings.effort not in {None, "none"}, "reasoning_tokens": bool(settings.reasoning_tokens)}
    lost = tuple(Loss("dropped", name, "the model does not reason") for name, wanted in asked.items() if wanted)
    return structs.replace(settings, effort=None, reasoning_tokens=None), lost


def _length(settings: Settings, capabilities: Capabilities) -> tuple[Settings, tuple[Loss, ...]]:
    most, asked = capabilities.max_output, settings.max_tokens
    if most is None or asked is None or asked <= most:
        return settings, ()
    lost = Loss("approximated", "max_tokens", f"{asked} is more than the model gives; {most} was sent")
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
    """A form that the model cannot be held to becomes the nearest that it can, and words."""
    output = prompt.settings.output
    if output is None or output.kind == "text" or capabilities.structured in {"json_schema", output.kind}:
        return prompt, ()
    held = OutputFormat("json") if capabilities.structured == "json" else None
    settings = structs.replace(prompt.settings, output=held)
    how = "any JSON, and the instructions say the schema" if held else "the instructions say it instead"
    lost = Loss("converted", "output", f"the model cannot be held to {output.kind}; {how}")
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
                yield Loss("dropped", kind, "the model cannot see it", index, position)
