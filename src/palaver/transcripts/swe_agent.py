"""Trajectories of SWE-agent (``.traj``), those of version 1 and the ones before it.

Read: ``history``, the messages that the model saw, of the chat wire; ``thought``, ``action``, ``message_type``,
``is_demo`` and ``tags`` are kept beside them under ``provider["swe_agent"]``. ``agent`` is the agent of a message.
Before version 1, commands are in the text of an answer, and what they print is a user's message; nothing is made of
that. ``trajectory`` says the same again, for each step; it, ``info`` and ``replay_config`` keep their place. A file
without a ``history`` has its steps as messages: the response, and the observation as the user's.

Written: a ``history`` with an empty ``trajectory``, which the program takes as a demonstration.

Not represented: usage and model of each answer, times, ids, branches, markers, refusals as such.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from msgspec import structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage
from palaver.transcripts import documents
from palaver.transcripts.chat_list import ChatForm, chat_reading, chat_rendering
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import either, inner, kind_of, listed, string
from palaver.transcripts.format import TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from palaver.core.jsontext import Fields

NAME: Final = "swe_agent"

_OWN: Final = ("message_type", "thought", "action", "is_demo")
_STEP: Final = ("action", "observation")


def detect(head: Head) -> Detection | None:
    """Return steps with an action and an observation, or a history whose messages say whose and what they are."""
    fields = head.fields
    step, message = (_first(fields.get(key)) for key in ("trajectory", "history"))
    if all(key in step for key in _STEP):
        return Detection(0.95)
    spoken = "role" in message and "agent" in message and any(key in message for key in _OWN)
    return Detection(0.9) if spoken else None


def _first(value: object) -> Mapping[str, Any]:
    first: object = cast("list[object]", value)[0] if isinstance(value, list) and value else None
    return cast("dict[str, Any]", first) if isinstance(first, dict) else {}


def _config(fields: Fields) -> Fields:
    """Return the configuration of a run: an object, or its text."""
    raw = fields.get("replay_config")
    if raw is None or jsontext.kind(raw) != "a string":
        return inner(fields, "replay_config")
    return documents.fields_of(jsontext.text(raw).encode("utf-8", "replace"))


class HistoryForm(ChatForm):
    """A message of a history, or a step."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    keys: ClassVar[frozenset[str]] = ChatForm.keys | {"agent", "tool_call_ids"}
    others: ClassVar[frozenset[str]] = frozenset((*_OWN, "tags", "cache_control"))
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (("history",), ("trajectory",))
    before: ClassVar[bytes] = b'{"environment":"main","trajectory":[],"history":['
    after: ClassVar[bytes] = b'],"info":{}}'

    def session(self, fields: Fields) -> Session:
        """Return the session of a trajectory."""
        agent = inner(_config(fields), "agent")
        info = inner(fields, "info")
        more: dict[str, Any] = {key: jsontext.value(info[key]) for key in ("exit_status", "model_stats") if key in info}
        return Session(
            file_format=NAME,
            program=string(info, "swe_agent_version"),
            model=string(inner(agent, "model"), "name"),
            more=more,
        )

    def plain(self, fields: Fields) -> list[Message]:
        """Return the message of a record, or the two of a step."""
        if "role" in fields or not all(key in fields for key in _STEP):
            return super().plain(fields)
        said = string(fields, "response") or string(fields, "thought") or string(fields, "action") or ""
        answer = trusted.AssistantMessage(content=(trusted.Text(said),))
        return [answer, trusted.UserMessage(content=(trusted.Text(string(fields, "observation") or ""),))]

    def fitted(self, fields: Fields) -> dict[str, Raw]:
        """Return a message as the wire has it: a result names one call."""
        found = super().fitted(fields)
        called = listed(fields, "tool_call_ids")
        if len(called) > 1:
            self.watch.note("link", "a result of several calls")
        named = next((each for each in called if either(each, "tool_call_ids", "a string") != "null"), None)
        if named is not None and string(fields, "role") == "tool":
            found["tool_call_id"] = named
        return {key: raw for key, raw in found.items() if key != "tool_calls" or kind_of(fields, key) != "null"}

    def beside(self, message: Message, fields: Fields) -> Message:
        """Return a message with its agent."""
        agent = string(fields, "agent")
        return message if agent is None else structs.replace(message, agent=agent)

    def written(self, message: Message, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record with its agent and its kind."""
        record = {"role": record.pop("role"), "content": record.pop("content", None) or "", "agent": "main", **record}
        if message.agent is not None:
            record["agent"] = message.agent
        if isinstance(message, ToolMessage):
            record["tool_call_ids"] = [record.pop("tool_call_id", "")]
        kinds: dict[type, str] = {AssistantMessage: "action", SystemMessage: "system_prompt"}
        return {**record, "message_type": kinds.get(type(message), "observation")}


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="SWE-agent trajectories",
    fidelity="bytes",
    layout="document",
    detector=detect,
    record_reader=chat_reading(HistoryForm),
    record_writer=chat_rendering(HistoryForm),
    extension=".traj",
    keeps=("agents", "calls and results", "signed reasoning", "thoughts, actions and marks of demonstrations"),
    loses=("usage and model of each answer", "times and ids", "branches", "markers"),
)
