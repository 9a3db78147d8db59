"""Trajectories of mini-SWE-agent (``.traj.json``), versions 1 and 2 (``trajectory_format``).

Read: ``messages`` of the chat wire; ``extra.response`` has the model, the usage and the id of an answer, and
``extra.timestamp`` its time. Of the Responses wire, an answer is its whole response, and a result a
``function_call_output``. The last record, ``exit``, is no message. In version 1, commands are in the text of an answer,
and what they print is a user's message.

Written: a document of version 1.1, which the program's inspector shows.

Not represented: ids, branches, markers, refusals as such.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from msgspec import structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.transcripts.chat_list import WIRE, ChatForm, chat_reading, chat_rendering
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import check_summary, inner, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import stored

if TYPE_CHECKING:
    from palaver.core.jsontext import Fields

NAME: Final = "mini_swe_agent"
RESPONSES: Final = "openai_responses"

_PREFIX: Final = "mini-swe-agent-"
_STATS: Final = frozenset(("instance_cost", "api_calls"))


def detect(head: Head) -> Detection | None:
    """Return the name of the format, which stands at the end, or the program's statistics."""
    version = head.fields.get("trajectory_format")
    if isinstance(version, str) and version.startswith(_PREFIX):
        return Detection(1.0, version.removeprefix(_PREFIX))
    info = head.fields.get("info")
    found = cast("dict[str, Any]", info) if isinstance(info, dict) else {}
    stats = found.get("model_stats")
    counted = isinstance(stats, dict) and cast("dict[str, Any]", stats).keys() >= _STATS
    return Detection(0.95) if "mini_version" in found or (counted and "trajectory" not in head.fields) else None


class MiniForm(ChatForm):
    """A message of a trajectory."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    others: ClassVar[frozenset[str]] = frozenset(("extra", "function_call", "provider_specific_fields", "annotations"))
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (("messages",),)
    before: ClassVar[bytes] = b'{"info":{"model_stats":{"instance_cost":0.0,"api_calls":0}},"messages":['
    after: ClassVar[bytes] = b'],"trajectory_format":"mini-swe-agent-1.1"}'

    def session(self, fields: Fields) -> Session:
        """Return the session of a trajectory."""
        info = inner(fields, "info")
        config = inner(info, "config")
        version = string(fields, "trajectory_format")
        more: dict[str, Any] = {key: jsontext.value(info[key]) for key in ("exit_status", "model_stats") if key in info}
        return Session(
            file_format=NAME,
            id=string(fields, "instance_id"),
            format=None if version is None else version.removeprefix(_PREFIX),
            program=string(info, "mini_version"),
            model=string(inner(config, "model"), "model_name"),
            cwd=string(inner(config, "environment"), "cwd"),
            more=more,
        )

    def plain(self, fields: Fields) -> list[Message]:
        """Return the message of a record."""
        if string(fields, "role") == "exit":
            return []
        if string(fields, "type") == "function_call_output":
            item = {key: raw for key, raw in fields.items() if key in {"type", "call_id", "output"}}
            found = wires.get(RESPONSES).decode_request(jsontext.encode({"input": [item]})).messages
            return [self._dated(self._named(each), fields) for each in found]
        if string(fields, "object") == "response":
            for raw in listed(fields, "output"):
                check_summary(split(raw))
            answer = wires.get(RESPONSES).decode_response(jsontext.encode(fields)).message
            self.tools.update((call.id, call.name) for call in answer.tool_calls)
            return [self._dated(answer, fields)]
        return super().plain(fields)

    def beside(self, message: Message, fields: Fields) -> Message:
        """Return a message with its time; an answer also with the data of its response."""
        if isinstance(message, AssistantMessage):
            message = _answered(message, inner(inner(fields, "extra"), "response"))
        return self._dated(message, fields)

    def _named(self, message: Message) -> Message:
        if not isinstance(message, ToolMessage):
            return message
        return structs.replace(message, tool_name=self.tools.get(message.tool_call_id or ""))

    def _dated(self, message: Message, fields: Fields) -> Message:
        at = read_time(value(inner(fields, "extra"), "timestamp"))
        return message if at is None else structs.replace(message, sent_at=at)

    def written(self, message: Message, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record with its time, and the data of its answer."""
        extra: dict[str, Any] = {**inner(stored(message, NAME), "extra")}
        if message.sent_at is not None and read_time(value(extra, "timestamp")) != message.sent_at:
            extra["timestamp"] = message.sent_at / 1000
        if isinstance(message, AssistantMessage) and "response" not in extra and (message.model or message.usage):
            bare = trusted.Response(message.replace(content=[trusted.Text("")], provider={}))
            extra["response"] = jsontext.own(jsontext.raw(jsontext.fields(wires.get(WIRE).encode_response(bare).body)))
        return {**record, "extra": extra} if extra else record


def _answered(message: AssistantMessage, response: Fields) -> AssistantMessage:
    """Return an answer with the data of its response, if that can be read."""
    if "choices" not in response:
        return message
    try:
        answer = wires.get(WIRE).decode_response(jsontext.encode(response)).message
    except PalaverError:
        return message
    return structs.replace(
        message,
        model=answer.model,
        usage=answer.usage,
        response_id=answer.response_id,
        finish_reason=answer.finish_reason,
        finish_reason_raw=answer.finish_reason_raw,
    )


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="mini-SWE-agent trajectories",
    fidelity="bytes",
    layout="document",
    detector=detect,
    record_reader=chat_reading(MiniForm),
    record_writer=chat_rendering(MiniForm),
    extension=".traj.json",
    keeps=("calls and results", "usage and model of each answer", "times", "signed reasoning", "outputs of commands"),
    loses=("ids", "branches", "markers"),
)
