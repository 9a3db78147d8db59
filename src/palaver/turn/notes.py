"""The fixed texts that the loop writes into a thread, each with its tag, and messages that wait for results.

Rules:

- A note is a user message with ``mode="tool"`` and ``source="agent"``, framed as ``<system>…</system>`` so that a model
  can tell it from the user's text. Every wire carries user text, so every note reaches every model.
- ``TAGS`` has the tag of each note, as docs/spec/codebuff.md#1.4 names them. Later steps recognise a note by its tag.
- Text that a user types while the agent works belongs to the user: ``steering`` sets ``mode="user"`` and no source.
  A text is framed once, also when it is framed again (CBF-26).
- A call that did not run has one of the ``NOT_RUN_…`` texts as its result. If it is unknown whether a call ran, the
  result is ``MAY_HAVE_RUN``, or ``MAY_HAVE_RUN_BEFORE`` where the call is refused now.
- Excerpts of what a model wrote are cut at 200 characters (DAS-19).
- Nothing may stand between a call and its result. Messages that arrive while calls wait for a decision are stored in a
  record, which no view shows and no wire sends. The next run puts them behind the results. The last record behind a
  message with calls has all of them.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from palaver.core import canonical
from palaver.core.factories import user
from palaver.core.messages import Message, SystemMessage, UserMessage
from palaver.core.parts import MalformedToolCall
from palaver.threads.view import EXPIRES_AGENT_STEP, RECORD

# --- notes ------------------------------------------------------------------------------------------------------------


SOURCE: Final = "agent"

USER_PROMPT: Final = "USER_PROMPT"
STEP_PROMPT: Final = "STEP_PROMPT"
TOOL_CALL_ERROR: Final = "TOOL_CALL_ERROR"
STREAM_INTERRUPTED: Final = "STREAM_INTERRUPTED"
OUTPUT_LIMIT: Final = "OUTPUT_LIMIT"
PROVIDER_ERROR: Final = "PROVIDER_ERROR"
OUTPUT_ERROR: Final = "OUTPUT_ERROR"
INTERRUPTED: Final = "INTERRUPTED"
STEP_LIMIT: Final = "STEP_LIMIT"
WARNING: Final = "WARNING"

TAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "interrupted": (INTERRUPTED,),
    "malformed": (TOOL_CALL_ERROR,),
    "invalid_call": (TOOL_CALL_ERROR,),
    "go_on": (OUTPUT_LIMIT,),
    "stream_broke": (STREAM_INTERRUPTED,),
    "provider_failed": (PROVIDER_ERROR,),
    "wrong_output": (OUTPUT_ERROR,),
    "missing_output": (OUTPUT_ERROR,),
    "step_limit": (STEP_LIMIT,),
    "step_prompt": (STEP_PROMPT, EXPIRES_AGENT_STEP),
    "warning": (WARNING,),
}

# -- results of calls that were not run --------------------------------------------------------------------------------

NOT_RUN_INTERRUPTED: Final = "Not run: the turn was interrupted before this call began."
NOT_RUN_CANCELLED: Final = "Not run: the run was cancelled before this call began."
NOT_RUN_LIMIT: Final = "Not run: the run reached its limit before this call began."
NOT_RUN_SKIPPED: Final = "Not run: another call of the same turn ended it."
NOT_RUN_UNATTENDED: Final = "Not run: this call needs an approval, and nobody can give one here."
NOT_RUN_UNDECIDED: Final = "Not run: there was no decision about this call before the conversation continued."
MAY_HAVE_RUN: Final = (
    "No result: the run broke off while this call was running. It may have taken effect; check before calling it again."
)
MAY_HAVE_RUN_BEFORE: Final = (
    "An earlier run broke off while this call was running: it may have taken effect before it was refused."
)

# -- instructions, which join the system prompt ------------------------------------------------------------------------

final_answer_instruction: Final = (
    "Tool calling is now disabled. Give the final answer in plain text, from what the conversation above holds. "
    "Say what is missing, if something is."
)

_STEERING_HEAD: Final = "<user_message_sent_while_working>\n"
_STEERING_TAIL: Final = (
    "\n</user_message_sent_while_working>\n\n"
    "The user sent this while you were working. Take it into account, and go on with the task."
)
_EXCERPT: Final = 200


def _note(kind: str, text: str) -> UserMessage:
    return user(f"<system>{text}</system>", mode="tool", source=SOURCE, tags=TAGS[kind])


def _sentence(text: str) -> str:
    stripped = text.strip()
    return stripped if stripped.endswith((".", "!", "?", "…")) else f"{stripped}."


def _cut(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


# -- notes -------------------------------------------------------------------------------------------------------------


def interrupted(reason: str | None = None) -> UserMessage:
    """The note that the turn was interrupted; ``reason`` replaces the sentence that the user did it.

    Source: docs/spec/codebuff.md#6.
    """
    what = reason or "User interrupted the response."
    return _note("interrupted", f"{_sentence(what)} The assistant's previous work has been preserved.")


def malformed(parts: Iterable[MalformedToolCall]) -> UserMessage:
    """The note about unreadable calls: each with its reason and at most 200 characters of its text (DAS-19)."""
    blocks = "\n".join(f"- {_cut(part.reason)}: {_cut(part.raw)}" for part in parts)
    return _note(
        "malformed",
        f"Error during tool call: what follows could not be read as a tool call and was not run.\n{blocks}\n"
        "Write the call again, with the name of a tool and a JSON object of arguments.",
    )


def invalid_call(text: str) -> UserMessage:
    """The note about a refused call that is not in the thread (policy ``note``, CBF-18)."""
    return _note(
        "invalid_call",
        f"Error during tool call: {_sentence(text)} Please check the tool name and arguments and try again.",
    )


def go_on() -> UserMessage:
    """The note to continue: the answer reached the output limit, or the thread ends with an unfinished answer."""
    return _note("go_on", "Continue from where you left off.")


def stream_broke(reason: str, *, seen: bool = True) -> UserMessage:
    """The note that the stream broke off. ``seen`` says that the model sees the incomplete answer."""
    further = "What arrived is above. Continue from where it stops." if seen else "Answer again from the beginning."
    return _note("stream_broke", f"The response was interrupted: {_sentence(reason)} {further}")


def provider_failed(reason: str) -> UserMessage:
    """The note that the provider failed in the middle of an answer."""
    return _note("provider_failed", f"The provider failed: {_sentence(reason)} Continue from where you left off.")


def wrong_output(error: str) -> UserMessage:
    """The note that the answer does not fit the schema; ``error`` names the path (ASK-27)."""
    return _note(
        "wrong_output",
        f"Your answer does not fit the schema: {_sentence(error)} Answer again, with one JSON value that fits.",
    )


def missing_output(tool: str = "set_output") -> UserMessage:
    """The note that the turn ended without a call of the output ``tool`` (docs/spec/codebuff.md#4.1); sent once."""
    return _note("missing_output", f'You must use the "{tool}" tool to give your result before you end.')


def step_limit(steps: int) -> UserMessage:
    """The note that the run reached its step limit (CBF-25)."""
    return _note(
        "step_limit",
        f"The assistant has given quite a few responses in a row ({steps}) and was stopped. "
        "The user may ask it to continue.",
    )


def step_prompt(text: str) -> UserMessage:
    """A prompt that is sent at each step and expires with the step."""
    return _note("step_prompt", text)


def warning(text: str) -> UserMessage:
    """A warning, for example about a loop. It never keeps a tool from running (KAI-14)."""
    return _note("warning", f"Warning: {text}")


# -- what a user says --------------------------------------------------------------------------------------------------


def steering(text: str) -> UserMessage:
    """Text that the user sent while the agent was working. A framed text is not framed again (CBF-26)."""
    framed = text.startswith(_STEERING_HEAD) and text.endswith(_STEERING_TAIL)
    return user(
        text if framed else f"{_STEERING_HEAD}{text}{_STEERING_TAIL}",
        mode="user",
        tags=(USER_PROMPT,),
    )


# --- holding ----------------------------------------------------------------------------------------------------------


DEFERRED: Final = "held"
"""The ``source`` of a record of messages that wait for results."""


def deferred_record(messages: Sequence[Message]) -> SystemMessage:
    """Return a record that stores messages until the results are there."""
    encoded = [canonical.encode(each).decode() for each in messages]
    return SystemMessage(source=DEFERRED, tags=(RECORD,), mode="tool").replace(payload={"messages": encoded})


def deferred_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages of the last such record among messages."""
    for message in reversed(messages):
        if message.source == DEFERRED and RECORD in message.tags:
            return tuple([canonical.decode(each.encode()) for each in message.payload["messages"]])
    return ()
