"""Chats of VS Code with Copilot: ``chatSessions/<id>.json``, and an exported ``chat.json``.

Read: a request of the list is a prompt, and all that answered it. With ``result.metadata.toolCallRounds``, each round
is an answer with its thinking, its text and its calls, and ``toolCallResults`` has the results; without rounds, the
answer is what the person saw: texts of ``response``, and calls by the names of their tools. A request that was
cancelled may have no answer. Parts that only show progress are not read. Attachments, edits and votes stay in the
record. Logs of changes (``chatSessions/<id>.jsonl`` of newer versions) are not read.

Written: a file that nobody edited is the same file. An edited request gets its texts, rounds and results anew, and
keeps its other keys; what was shown becomes one text.

Not represented: system and developer messages and markers (carried beside the next request), media, proofs of
reasoning, counters of answers but the last.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.core.parts import Reasoning, Text, ToolCall, settled
from palaver.threads.ids import now_ms
from palaver.transcripts.conversation import derived_id, session_of
from palaver.transcripts.detection import Detection
from palaver.transcripts.fields import as_object, either, inner, integer, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import Form, Receipt, document_reading, list_rendering

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.threads.thread import Entry
    from palaver.transcripts.conversation import Session
    from palaver.transcripts.detection import Head
    from palaver.transcripts.format import Origin
    from palaver.transcripts.writer import WriteState

NAME: Final = "vscode_chat"
_HEADER: Final = frozenset(("requesterUsername", "responderUsername", "initialLocation", "requesterAvatarIconUri"))
_SAID: Final = (UserMessage, AssistantMessage, ToolMessage)


def detect(head: Head) -> Detection | None:
    """Return a document with requests, and what the editor keeps of both sides."""
    fields = head.fields
    if not isinstance(fields.get("requests"), list) or not _HEADER & fields.keys():
        return None
    version = fields.get("version")
    return Detection(0.95, None if version is None else str(version))


class RequestForm(Form):
    """A request with its answers."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = NAME
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (("requests",),)
    _at = 0

    def open(self, document: Fields, origin: Origin, session: Session) -> Session:  # noqa: ARG002 (it needs no file)
        """Look at the fields of the chat."""
        self.title = string(document, "customTitle")
        version = value(document, "version")
        return structs.replace(
            session,
            id=string(document, "sessionId"),
            format=None if version is None else str(version),
            started_at=read_time(value(document, "creationDate")),
        )

    def id_of(self, fields: Fields) -> str | None:
        """Return the id of a request: that of its prompt."""
        return string(fields, "requestId")

    def holds(self, message: Message) -> bool:
        """Return whether a request has such messages."""
        return isinstance(message, _SAID)

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Begin a request with each prompt; what has no place goes with the next one."""
        group: list[Entry] = []
        for place, entry in enumerate(entries):
            held = any(self.holds(each.message) for each in group)
            opens = isinstance(entry.message, UserMessage) or not self.holds(entry.message)
            if held and opens and any(self.holds(each.message) for each in entries[place:]):
                yield group
                group = []
            group.append(entry)
        if group:
            yield group

    # -- reading ---------------------------------------------------------------------------------------------------

    def plain(self, fields: Fields) -> list[Message]:
        """Return the messages of a request."""
        if "message" not in fields:
            self.watch.note("unread", "a request without a message", self.line)
            return []
        at, model = read_time(value(fields, "timestamp")), string(fields, "modelId")
        prompt = inner(fields, "message")
        text = string(prompt, "text")
        found: list[Message] = [trusted.UserMessage(content=(trusted.Text(text),) if text else (), sent_at=at)]
        metadata = inner(inner(fields, "result"), "metadata")
        rounds = listed(metadata, "toolCallRounds")
        answers = [*self._rounds(rounds, inner(metadata, "toolCallResults"))] if rounds else self._shown(fields)
        last = max((place for place, each in enumerate(answers) if isinstance(each, AssistantMessage)), default=-1)
        for place, each in enumerate(answers):
            made = structs.replace(each, model=model) if isinstance(each, AssistantMessage) else each
            given, out = integer(metadata, "promptTokens"), integer(metadata, "outputTokens")
            if place == last and isinstance(made, AssistantMessage) and (given is not None or out is not None):
                made = structs.replace(made, usage=trusted.Usage(input=given, output=out))
            found.append(made)
        return found

    def _rounds(self, rounds: Sequence[Raw], results: Fields) -> Iterator[Message]:
        for raw in rounds:
            fields = split(raw)
            parts: list[Any] = []
            thought = inner(fields, "thinking")
            if said := _joined(thought, "text"):
                parts.append(trusted.Reasoning(said))
            if said := string(fields, "response") or "":
                parts.append(trusted.Text(said))
            calls = [call for each in listed(fields, "toolCalls") if (call := _call(split(each))) is not None]
            if parts or calls:
                yield trusted.AssistantMessage(content=(*parts, *calls))
            for call in calls:
                if call.id in results:
                    content = tuple([trusted.Text(text) for text in _result(results[call.id or ""])])
                    yield trusted.ToolMessage(content=content, tool_call_id=call.id, tool_name=call.name)

    def _shown(self, fields: Fields) -> list[Message]:
        """Return the answer that the person saw."""
        parts: list[Any] = []
        text = ""
        for raw in listed(fields, "response"):
            part = split(raw)
            kind = string(part, "kind")
            if kind is None or kind == "markdownContent":
                text += string(part if kind is None else inner(part, "content"), "value") or ""
            elif kind == "inlineReference":
                text += string(part, "name") or ""
            elif kind == "thinking" and (thought := _joined(part, "value")):
                parts.append(trusted.Reasoning(thought))
            elif kind == "toolInvocationSerialized" and (call := _shown_call(part)) is not None:
                parts += [*([trusted.Text(text)] if text else []), call]
                text = ""
        if text:
            parts.append(trusted.Text(text))
        return [trusted.AssistantMessage(content=tuple(parts))] if parts else []

    # -- writing ---------------------------------------------------------------------------------------------------

    def start(self, writing: WriteState) -> None:
        """Lay edited requests over the old ones, whose other keys stay."""
        writing.whole = False
        times = (entry.message.sent_at for entry in writing.entries)
        started = session_of(writing.metadata).started_at
        self._at = self._begun = started or next((at for at in times if at is not None), None) or now_ms()

    def head(self, writing: WriteState) -> bytes:
        """Return the fields of a chat before its requests."""
        session = session_of(writing.metadata)
        title = writing.take_title()
        fields: dict[str, Any] = {
            "version": 3,
            "requesterUsername": "",
            "responderUsername": "GitHub Copilot",
            "initialLocation": "panel",
            "sessionId": session.id or derived_id(NAME, writing.thread.id),
            "creationDate": self._begun,
            "lastMessageDate": self._begun,
            "isImported": True,
            **({} if title is None else {"customTitle": title}),
        }
        return jsontext.encode(fields)[:-1] + b',"requests":['

    def tail(self) -> bytes:
        """Return the end of a chat."""
        return b"]}"

    def write_record(self, entries: Sequence[Entry], receipt: Receipt) -> dict[str, Any] | None:
        """Return the request of a group."""
        own = [(place, entry) for place, entry in enumerate(entries) if self.holds(entry.message)]
        if not own:
            return None
        prompt, shown, usage = "", "", None
        models = {entry.message.model for _, entry in own if isinstance(entry.message, AssistantMessage)}
        rounds: list[dict[str, Any]] = []
        results: dict[str, Any] = {}
        for place, entry in own:
            message = entry.message
            self._at = self._at if message.sent_at is None else message.sent_at
            said, thought, calls = _parts(message, receipt, place)
            match message:
                case AssistantMessage():
                    shown, usage = shown + said, message.usage
                    made = {"response": said, "toolCalls": calls, "toolInputRetry": 0, "id": derived_id(NAME, entry.id)}
                    rounds.append(made if not thought else {**made, "thinking": {"id": "", "text": thought}})
                case ToolMessage():
                    results[message.tool_call_id or ""] = {"content": [{"$mid": 21, "value": said}]}
                case _:
                    prompt += said
        first = own[0][1].message
        at = self._at if first.sent_at is None else first.sent_at
        metadata: dict[str, Any] = {"toolCallRounds": rounds, "toolCallResults": results}
        if usage is not None:
            metadata["promptTokens"] = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
            metadata["outputTokens"] = (usage.output or 0) + (usage.reasoning or 0)
        return {
            "requestId": own[0][1].id,
            "message": {"text": prompt, "parts": []},
            "variableData": {"variables": []},
            "response": [{"value": shown}] if shown else [],
            "result": {"metadata": metadata if rounds else {}},
            "timestamp": at,
            **_model_of(models),
        }


def _model_of(models: Collection[str | None]) -> dict[str, str | None]:
    """Return the field for the model of a request; answers of several models have none."""
    if models == {None} or not models:
        return {}
    return {"modelId": next(iter(models)) if len(models) == 1 else None}


def _parts(message: Message, receipt: Receipt, place: int) -> tuple[str, str, list[dict[str, Any]]]:
    """Return the text of a message, its reasoning and its calls."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for index, part in enumerate(message.content):
        match part:
            case Text():
                texts.append(part.text)
            case Reasoning():
                thoughts.append(part.text)
            case ToolCall() if not part.provider_executed:
                calls.append({"name": part.name, "arguments": part.arguments_json, "id": part.id})
            case _:
                if (text := receipt.text_for(part, index, place)) is not None:
                    texts.append(text)
    return "".join(texts), "\n\n".join([each for each in thoughts if each]), calls


def _call(fields: Fields) -> Any:
    named, name = string(fields, "id"), string(fields, "name")
    if named is None or name is None:
        return None
    return settled(trusted.ToolCall(named, name, string(fields, "arguments") or "{}"))


def _shown_call(fields: Fields) -> ToolCall | None:
    """Return a call as it was shown: its tool, and what it was given if that is there."""
    named, name = string(fields, "toolCallId"), string(fields, "toolId")
    if named is None or name is None:
        return None
    given = inner(fields, "toolSpecificData").get("rawInput", jsontext.EMPTY_OBJECT)
    return trusted.ToolCall(named, name, bytes(given).decode() if jsontext.kind(given) == "an object" else "{}")


def _joined(fields: Fields, key: str) -> str:
    """Return a text, which may be in pieces."""
    if either(fields.get(key), key, "a string", "an array") == "a string":
        return string(fields, key) or ""
    return "".join([string({key: each}, key) or "" for each in listed(fields, key)]) if key in fields else ""


def _result(raw: Raw) -> Iterator[str]:
    """Yield the texts of a result; a part that is no text as JSON."""
    for each in listed(as_object(raw), "content"):
        fields = split(each)
        found = fields.get("value", jsontext.NULL)
        if jsontext.kind(found) == "a string":
            yield jsontext.text(found)
        elif found != jsontext.NULL:
            yield bytes(found).decode()


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="VS Code chats with Copilot",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(RequestForm),
    record_writer=list_rendering(RequestForm),
    layout="document",
    extension=".json",
    keeps=(
        "prompts and answers",
        "rounds of calls with their results",
        "thinking as text",
        "models",
        "times of prompts",
    ),
    loses=(
        "system prompts, markers (kept beside)",
        "media, attachments",
        "proof of reasoning",
        "usage of each answer",
        "tool errors",
        "branches",
    ),
)
