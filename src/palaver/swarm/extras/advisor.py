"""Advisors: one question, one answer, without a conversation (docs/spec/agent-swarm-kit.md#5.2, #6).

- ``chat`` sends messages to a model and returns the text of its answer.
- An ``Advisor`` is a function of a message, plain or async, or a model with instructions. A function may take any
  value as the message; a model gets text as it is and any other value as JSON.
- ``ask`` raises what the model or the function raises. Observers change nothing.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, TypedDict, Unpack

from palaver.core import jsontext
from palaver.core.errors import SwarmError
from palaver.core.factories import system, user
from palaver.core.messages import Message
from palaver.core.request import Request
from palaver.models.language_model import LanguageModel, complete
from palaver.swarm.call import called, watched
from palaver.swarm.state import named


async def chat(model: LanguageModel, messages: Iterable[Message]) -> str:
    """Ask a model once. Return the text of its answer. Raises what the model raises."""
    return (await complete(model, Request(tuple(messages)))).response.message.text


class AdvisorChanges(TypedDict, total=False):
    """What ``Advisor.replace`` changes: the fields of ``Advisor``."""

    name: str
    answer: Callable[[Any], Awaitable[str] | str] | None
    model: LanguageModel | None
    instructions: str
    on_chat: Callable[[Any], Any] | None
    on_result: Callable[[Any, str], Any] | None


@dataclass(frozen=True, eq=False, slots=True)
class Advisor:
    """A source of answers. ``advisor.replace(instructions="Be brief.")`` returns an edited copy.

    ``name`` is that of the advisor. ``answer`` is a function of the message. Without one ``model`` answers, with
    ``instructions`` as system prompt.
    Observers: ``on_chat`` (message) and ``on_result`` (message, answer).
    """

    name: str
    answer: Callable[[Any], Awaitable[str] | str] | None = None
    _: KW_ONLY
    model: LanguageModel | None = None
    instructions: str = ""
    on_chat: Callable[[Any], Any] | None = None
    on_result: Callable[[Any, str], Any] | None = None

    def __post_init__(self) -> None:
        """Raise ``SwarmError`` without a name, for a wrong type, and unless there is one source of answers."""
        named("advisor", self)
        if (self.answer is None) == (self.model is None):
            raise SwarmError(f"the advisor {self.name!r} needs a function or a model")

    def replace(self, **changes: Unpack[AdvisorChanges]) -> Advisor:
        """Return a copy edited by ``changes``."""
        return replace(self, **changes)


async def ask(advisor: Advisor, message: Any) -> str:
    """Ask ``advisor``, and return its answer to ``message``: for a model, a text or a JSON value.

    Raises what the advisor raises, and ``EncodeError`` when the message cannot be encoded for a model.
    """
    await watched("on_chat", advisor.on_chat, message)
    result = await _answer(advisor, message)
    await watched("on_result", advisor.on_result, message, result)
    return result


async def _answer(advisor: Advisor, message: Any) -> str:
    if advisor.model is None:
        return str(await called(advisor.answer, message)) if advisor.answer is not None else ""
    text = message if isinstance(message, str) else jsontext.encode(message).decode()
    prompt = (system(advisor.instructions),) if advisor.instructions else ()
    return await chat(advisor.model, (*prompt, user(text)))
