"""Rescues of invalid answers: an answer cannot be shown, it calls an unknown tool, or a tool raises.

Rules (docs/spec/agent-swarm-kit.md#3.5, #3.6, #K8, #K13):

- ``Flush`` does not ask the model again: a placeholder is shown at once. ``Recomplete`` asks once more, with an
  instruction. ``Custom`` asks your own function. An answer that passes the checks is shown, else a placeholder.
- A marker with the reason is added to the log; it hides the failed turn (``rescue_scope="turn"``), or all earlier
  messages (``"thread"``; then the model is told to start the conversation). The placeholder is logged too, with a tag,
  and is sent to no model.

Changes and checks of an answer before it is shown (docs/spec/agent-swarm-kit.md#3.4, #K19):

- ``transform`` gets the text of an answer once and returns the text that is shown and stored; ``validate`` gets that
  text, and returns ``None``, or the reason why it must not be shown.
- An agent without either checks only that an answer is not empty. ``plain_text`` and ``no_tool_syntax`` are the
  original's defaults, for models that mix tags and calls into their text; they damage code, JSON and HTML. They are
  ``without_tags`` and ``text_fault`` of ``palaver.agent.guardrails``.

Stability: experimental.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from palaver.agent.guardrails import EMPTY, text_fault, without_tags
from palaver.core.messages import AssistantMessage
from palaver.core.type_checks import check_arguments
from palaver.swarm.call import CallContext

# --- rescue -----------------------------------------------------------------------------------------------------------


PLACEHOLDERS: Final = (
    "Sorry, I missed that. Could you say it again?",
    "I did not catch that. Could you repeat it?",
    "Something went wrong on my side. Could you repeat your message?",
    "I am sorry, I lost the thread. What were you asking?",
    "Could you please rephrase that?",
)
"""The default placeholders; one of them, at random, replaces an answer."""

START: Final = "Start the conversation"
"""The message to the model behind a marker that hides the whole thread."""

RECOMPLETE: Final = (
    "Your last answer could not be used. Analyse the last tool call message, if there is one, and what was asked; "
    "then send a corrected answer."
)
"""The message of ``Recomplete`` to the model."""


class Flush(Struct, frozen=True):
    """Show a placeholder at once."""


class Recomplete(Struct, frozen=True):
    """Ask the model once more."""

    prompt: str = RECOMPLETE

    def __post_init__(self) -> None:
        """Raise ``MessageError`` for a prompt that is not a text."""
        check_arguments("Recomplete", Recomplete, {"prompt": self.prompt})


class Custom(Struct, frozen=True):
    """Ask a function for the answer; its exceptions are the error of the turn."""

    answer: Callable[[CallContext, str], str | AssistantMessage | Awaitable[str | AssistantMessage]]
    """Gets the place and the reason."""

    def __post_init__(self) -> None:
        """Raise ``MessageError`` for anything but a function."""
        check_arguments("Custom", Custom, {"answer": self.answer})


Rescue: TypeAlias = Flush | Recomplete | Custom


def placeholder(given: Sequence[str]) -> str:
    """Return one of the placeholders."""
    return random.choice(given)  # noqa: S311 (an apology is no secret)


# --- output -----------------------------------------------------------------------------------------------------------


plain_text = without_tags
no_tool_syntax = text_fault


def not_empty(text: str) -> str | None:
    """Return why ``text`` is refused when it is blank; ``None`` for any other."""
    return None if text.strip() else EMPTY
