"""The fixed texts that the loop writes into a thread, each with its tag.

Rules:

- A note is a user message with ``mode="tool"`` and ``source="agent"``, framed as ``<system>…</system>`` so that a model
  can tell it from the user's text. Every wire carries user text, so every note reaches every model.
- ``TAGS`` has the tag of each note, as docs/spec/codebuff.md#1.4 names them. Later steps recognise a note by its tag.
- Text that a user types while the agent works belongs to the user: ``steering`` gives ``mode="user"`` and no source.
  A text is framed once, also when it is framed again (CBF-26).
- A call that did not run says so in its result, by one of the ``NOT_RUN_…`` texts; a call of which nobody knows says
  ``MAY_HAVE_RUN``, or ``MAY_HAVE_RUN_BEFORE`` where it is refused now. None of them claims more than is known.
- Excerpts of what a model wrote are cut at 200 characters (DAS-19).

What was said while calls wait for a decision, kept until it can join the conversation:

- Nothing may stand between a call and its result. So what a user or middleware says while a run stops there is kept in
  a record, which no view shows and no wire sends; who goes on puts it behind the results.
- The last record behind a calling message holds all of it.

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
NOT_RUN_UNDECIDED: Final = "Not run: nobody decided about this call before something else was said."
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
    """The turn was stopped from outside; ``reason`` replaces the sentence that a user did it.

    Source: docs/spec/codebuff.md#6.
    """
    what = reason or "User interrupted the response."
    return _note("interrupted", f"{_sentence(what)} The assistant's previous work has been preserved.")


def malformed(parts: Iterable[MalformedToolCall]) -> UserMessage:
    """Calls that could not be read: each with its reason and at most 200 characters of its text (DAS-19)."""
    blocks = "\n".join(f"- {_cut(part.reason)}: {_cut(part.raw)}" for part in parts)
    return _note(
        "malformed",
        f"Error during tool call: what follows could not be read as a tool call and was not run.\n{blocks}\n"
        "Write the call again, with the name of a tool and a JSON object of arguments.",
    )


def invalid_call(text: str) -> UserMessage:
    """A call that was refused and left no trace in the thread (policy ``note``, CBF-18)."""
    return _note(
        "invalid_call",
        f"Error during tool call: {_sentence(text)} Please check the tool name and arguments and try again.",
    )


def go_on() -> UserMessage:
    """The answer ended at the limit of its length, or the thread ends on an assistant that was not done."""
    return _note("go_on", "Continue from where you left off.")


def stream_broke(reason: str, *, seen: bool = True) -> UserMessage:
    """The stream of the answer broke off; what came of it is in the thread, and the model sees it (``seen``)."""
    further = "What arrived is above. Continue from where it stops." if seen else "Answer again from the beginning."
    return _note("stream_broke", f"The response was interrupted: {_sentence(reason)} {further}")


def provider_failed(reason: str) -> UserMessage:
    """The provider gave up in the middle of an answer."""
    return _note("provider_failed", f"The provider failed: {_sentence(reason)} Continue from where you left off.")


def wrong_output(error: str) -> UserMessage:
    """The answer does not fit the schema that was asked for; ``error`` names the path (ASK-27)."""
    return _note(
        "wrong_output",
        f"Your answer does not fit the schema: {_sentence(error)} Answer again, with one JSON value that fits.",
    )


def missing_output(tool: str = "set_output") -> UserMessage:
    """The turn ended without the output that must be given through ``tool`` (docs/spec/codebuff.md#4.1); said once."""
    return _note("missing_output", f'You must use the "{tool}" tool to give your result before you end.')


def step_limit(steps: int) -> UserMessage:
    """The run took as many steps as it may (CBF-25)."""
    return _note(
        "step_limit",
        f"The assistant has given quite a few responses in a row ({steps}) and was stopped. "
        "The user may ask it to continue.",
    )


def step_prompt(text: str) -> UserMessage:
    """What is said to the model at each step anew; it expires with the step."""
    return _note("step_prompt", text)


def warning(text: str) -> UserMessage:
    """A warning, about a loop say. It never keeps a tool from running (KAI-14)."""
    return _note("warning", f"Warning: {text}")


# -- what a user says --------------------------------------------------------------------------------------------------


def steering(text: str) -> UserMessage:
    """What the user sent while the agent was working. A framed text is taken as it is (CBF-26)."""
    framed = text.startswith(_STEERING_HEAD) and text.endswith(_STEERING_TAIL)
    return user(
        text if framed else f"{_STEERING_HEAD}{text}{_STEERING_TAIL}",
        mode="user",
        tags=(USER_PROMPT,),
    )


# --- holding ----------------------------------------------------------------------------------------------------------


HELD: Final = "held"
"""The ``source`` of such a record."""


def held_record(messages: Sequence[Message]) -> SystemMessage:
    """Keep messages for later."""
    said = [canonical.encode(each).decode() for each in messages]
    return SystemMessage(source=HELD, tags=(RECORD,), mode="tool").replace(payload={"messages": said})


def held(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What the last such record among messages holds."""
    for message in reversed(messages):
        if message.source == HELD and RECORD in message.tags:
            return tuple([canonical.decode(each.encode()) for each in message.payload["messages"]])
    return ()
