"""Write UI messages (docs/spec/dialects.md#10).

Rules:

- Neighbouring answers and results are a run: one message of the assistant, with a ``step-start`` before each answer.
- A result is in the part of its call, even if it came later; one without a call is written with an artificial call.
  Ids of calls are unique in the file.
- A call that is new is a ``dynamic-tool``, as in the streams of ``palaver.serve.ui``: ``tool-NAME`` is for the tools of
  the application that reads the file, which nobody knows here, and the SDK refuses such a part for a tool that it lacks
  while the call is open. A call that a provider ran is ``tool-NAME`` all the same: version 5 loses that of a
  ``dynamic-tool``. A call that was read from UI messages keeps its type.
- Content that no model may be sent (markers, discarded texts) is a part of type ``data-palaver``, which no version
  sends.
- Data that the parts lack are carried in ``metadata``, beside ``payload``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Raw

from palaver.core import jsontext, trusted
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    Blob,
    File,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Video,
)
from palaver.core.usage import Usage
from palaver.threads.view import is_sent
from palaver.transcripts import extension_slot, packages
from palaver.transcripts.fields import as_json, inner, listed, split, string
from palaver.transcripts.format import Origin
from palaver.transcripts.packages import AnyMedia
from palaver.transcripts.restyle import restyled
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.vercel_ui import shapes
from palaver.transcripts.vercel_ui.reader import RecordReader
from palaver.transcripts.vercel_ui.shapes import DYNAMIC, NAME, OURS, TOOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.request import LossKind
    from palaver.threads.thread import Entry
    from palaver.transcripts.writer import WriteState

_STOPS: Final[dict[str, str]] = {ours: theirs for theirs, ours in reversed(shapes.FINISH.items())}
_STATEFUL: Final = frozenset(("state", "input", "rawInput", "inputEncoding", "output", "errorText", "preliminary"))
"""Keys of a call that its state decides; ``approval`` is kept as long as the state stays."""


class RecordWriter:
    """Writes UI messages."""

    def __init__(self, writing: WriteState) -> None:
        """Find the call of each result."""
        self._writing = writing
        self._reader = RecordReader(Origin(), Watch())
        self._answers: dict[tuple[str, int], Entry] = {}
        self._requested: dict[str, tuple[Entry, int]] = {}  # by the id of the result
        self._taken: set[str] = set()
        asked: dict[str, tuple[Entry, int]] = {}
        for entry in writing.entries:
            message = entry.message
            if isinstance(message, AssistantMessage):
                calls = _calls(message)
                asked.update({part.id or "": (entry, place) for place, part in calls})
                if writing.is_native(entry.id):
                    self._taken.update(part.id or "" for _, part in calls)
            elif isinstance(message, ToolMessage) and message.tool_call_id in asked:
                call, place = asked[message.tool_call_id]
                if (call.id, place) not in self._answers:
                    self._answers[call.id, place] = entry
                    self._requested[entry.id] = (call, place)

    def head(self) -> Iterator[bytes]:
        """Yield the beginning of the list."""
        yield b"["

    def tail(self, old: bytes | None) -> bytes:
        """Return the end of the list."""
        return b"]" if old is None else old

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group answers and results in runs, every other message alone."""
        run: list[Entry] = []
        for entry in entries:
            if _in_run(entry.message):
                run.append(entry)
                continue
            if run:
                yield run
                run = []
            yield (entry,)
        if run:
            yield run

    def continues(self, before: Sequence[Entry], group: Sequence[Entry]) -> bool:
        """Return whether results are those of open calls in the run before; then all of it belongs there."""
        return (
            isinstance(group[0].message, ToolMessage)
            and group[0].id in self._requested
            and self._requested[group[0].id][0].id in {entry.id for entry in before}
        )

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the UI message of a group."""
        known: Fields = jsontext.fields(old[0]) if old else {}
        role, parts = self._parts(group, known)
        if not parts:
            if not self._writing.options.carry:
                return
            parts = [_ours(group)]
        record: dict[str, Any] = {"id": string(known, "id") or group[0].id, "role": role}
        record["metadata"] = metadata = self._metadata(group, known)
        if "content" in known:
            record["content"] = "".join(part["text"] for part in parts if part["type"] == "text")
            self._writing.lose("converted", "version 4", "an edited message is written as version 5", group[0])
        record["parts"] = parts
        if self._writing.options.carry:
            written = jsontext.encode(record)
            plain = self._reader.plain(
                jsontext.fields(restyled(old[0], written, whole=self._writing.whole) if old else written)
            )
            slot = extension_slot.carried([entry.message for entry in group], plain)
            if slot is not None:
                metadata[extension_slot.SLOT] = slot
        if extension_slot.SLOT not in metadata and extension_slot.SLOT in inner(known, "metadata"):
            metadata[extension_slot.SLOT] = None
        if not metadata:
            del record["metadata"]
        yield jsontext.encode(record)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _parts(self, group: Sequence[Entry], known: Fields) -> tuple[str, list[dict[str, Any]]]:
        """Return the role and the parts of a group."""
        olds = [split(raw) for raw in listed(known, "parts")]
        if any(_in_run(entry.message) for entry in group):
            run = [part for entry in group for part in self._step(entry, group, olds)]
            bare = olds and string(olds[0], "type") != "step-start" and run[:1] == [{"type": "step-start"}]
            return "assistant", run[1:] if bare else run
        parts: list[dict[str, Any]] = []
        role = "assistant"
        for entry in group:
            match entry.message:
                case SystemMessage() | DeveloperMessage() | UserMessage() if is_sent(entry.message):
                    role = "user" if isinstance(entry.message, UserMessage) else "system"
                    if isinstance(entry.message, DeveloperMessage):
                        self._writing.lose("converted", "developer", "written as a system message", entry)
                    parts += self._blocks(entry)
                case _:
                    self._unsent(entry)
        return role, parts

    def _unsent(self, entry: Entry) -> None:
        kind: LossKind = "converted" if self._writing.options.carry else "dropped"
        self._writing.lose(kind, entry.message.role, "what no model is sent has no place among UI messages", entry)

    def _step(self, entry: Entry, group: Sequence[Entry], olds: Sequence[Fields]) -> Iterator[dict[str, Any]]:
        message = entry.message
        match message:
            case AssistantMessage() if is_sent(message):
                yield {"type": "step-start"}
                for place, part in enumerate(message.content):
                    yield from self._part(entry, place, part, group, olds)
            case ToolMessage() if is_sent(message):
                yield from self._loose(entry, message, group)
            case UserMessage() if is_sent(message):
                yield {"type": "steering-message", "id": entry.id, "parts": self._blocks(entry)}
            case _:
                self._unsent(entry)

    def _loose(self, entry: Entry, message: ToolMessage, group: Sequence[Entry]) -> Iterator[dict[str, Any]]:
        """Yield the part of a result whose call is not in its group."""
        call, place = self._requested.get(entry.id, (None, 0))
        if call is not None and self._answer(call, place, group) is entry:
            if call.id not in {each.id for each in group}:
                self._writing.lose("approximated", "tool", "a late result stands with its call", entry)
            return
        made = trusted.ToolCall(message.tool_call_id or entry.id, message.tool_name or "unknown")
        if call is None:
            self._writing.lose("approximated", "tool", "a result without a call is written with an empty call", entry)
        else:
            self._writing.lose("approximated", "tool", "a late result is written with its call again", entry)
            asked = call.message.content[place]
            made = asked if isinstance(asked, ToolCall) else made
        yield {**self._named(made.id, made.name, entry), **_input(made), **self._output(entry, message)}

    def _answer(self, call: Entry, place: int, group: Sequence[Entry]) -> Entry | None:
        """Return the result for a call: one of its group, or any when neither has a record."""
        found = self._answers.get((call.id, place))
        native = self._writing.is_native
        together = {entry.id for entry in group}
        if found is None or {found.id, call.id} <= together:
            return found
        return None if native(found.id) or native(call.id) else found

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _blocks(self, entry: Entry) -> list[dict[str, Any]]:
        return [
            block
            for place, part in enumerate(entry.message.content)
            for block in self._part(entry, place, part, (entry,), ())
        ]

    def _part(
        self, entry: Entry, place: int, part: AnyPart, group: Sequence[Entry], olds: Sequence[Fields]
    ) -> Iterator[dict[str, Any]]:
        lose = self._writing.lose
        match part:
            case Text():
                yield {"type": "text", "text": part.text, **_provider(part, "providerMetadata")}
                for number, citation in enumerate(part.citations):
                    lose("converted", "citation", "written as a source", entry, place)
                    if citation.url is not None:
                        named = {"sourceId": f"{entry.id}-{place}-{number}", "url": citation.url}
                        yield {"type": "source-url", **named, **({"title": citation.title} if citation.title else {})}
            case Refusal():
                lose("converted", "refusal", "written as text", entry, place)
                yield {"type": "text", "text": part.text}
            case Json():
                lose("converted", "json", "written as text", entry, place)
                yield {"type": "text", "text": bytes(part.value_json).decode()}
            case Reasoning():
                stored = _provider(part, "providerMetadata")
                if (part.signature or part.encrypted) and not packages.metadata_of(packages.proof_in(part)):
                    lose("dropped", "signature", f"the SDK has no package for {part.wire}", entry, place)
                yield {"type": "reasoning", "text": part.text, **stored}
            case Image() | Audio() | Video() | File():
                yield from self._file(entry, place, part)
            case ToolCall() | MalformedToolCall():
                yield self._call(entry, place, part, group, olds)
            case ServerToolResult():
                if _executed(entry.message, part) is None:
                    call = trusted.ToolCall(part.tool_call_id, part.tool_name or "unknown", provider_executed=True)
                    made = {**self._named(call.id, call.name, entry, executed=True), **_input(call), **_served(part)}
                    yield {**made, "providerExecuted": True}
            case Opaque():
                if part.wire == NAME and _is_part(part.raw_json):
                    block: dict[str, Any] = {**jsontext.fields(part.raw_json)}
                    yield block | {"type": string(jsontext.fields(part.raw_json), "type")}
                else:
                    lose("dropped", "opaque", f"only {part.wire} knows what it is", entry, place)

    def _call(
        self,
        entry: Entry,
        place: int,
        part: ToolCall | MalformedToolCall,
        group: Sequence[Entry],
        olds: Sequence[Fields],
    ) -> dict[str, Any]:
        executed = isinstance(part, ToolCall) and part.provider_executed
        made: dict[str, Any] = self._named(part.id or "", part.name or "unknown", entry, executed=executed)
        old = next((each for each in olds if string(each, "toolCallId") == part.id), None)
        if old is not None:
            made = {key: raw for key, raw in old.items() if key not in _STATEFUL and key != "approval"}
        made |= _provider(part, "callProviderMetadata")
        answer = self._answer(entry, place, group)
        served = None if isinstance(part, MalformedToolCall) else _executed(entry.message, part)
        if isinstance(part, MalformedToolCall):
            self._writing.lose(
                "converted", "malformed_tool_call", "written as a call that was not finished", entry, place
            )
            if answer is None:
                return {**made, "state": "input-streaming", "rawInput": part.raw}
            result = answer.message.text or part.reason
            return {**made, "state": "output-error", "rawInput": part.raw, "errorText": result}
        if executed:
            made["providerExecuted"] = True
        made |= _input(part)
        if served is not None:
            state: dict[str, Any] = _served(served)
        elif answer is not None:
            state = self._output(answer, cast("ToolMessage", answer.message))
        else:
            state = {"state": "input-available"}
        if old is not None:  # an unchanged state keeps its fields
            before = string(old, "state")
            if before in shapes.UNFINISHED and state["state"] == "input-available":
                state["state"] = before
            if before == "output-denied" and state["state"] == "output-error":
                state = {"state": before}
            if before == state["state"] and "approval" in old:
                state["approval"] = old["approval"]
        return made | state

    def _named(self, wanted: str, name: str, entry: Entry, *, executed: bool = False) -> dict[str, Any]:
        """Return the beginning of a call's part, with a unique id. ``executed``: a provider ran it."""
        named = wanted
        if not self._writing.is_native(entry.id):
            number = 1
            while not named or named in self._taken:
                number += 1
                named = f"{wanted or 'call'}-{number}"
            self._taken.add(named)
        if named != wanted:
            self._writing.lose("approximated", "id", "ids of calls are unique among UI messages", entry)
        kind = {"type": f"{TOOL}{name}"} if executed else {"type": DYNAMIC, "toolName": name}
        return {**kind, "toolCallId": named}

    def _output(self, entry: Entry, message: ToolMessage) -> dict[str, Any]:
        """Return the state of a call with a result."""
        content = message.content
        if message.is_error:
            if [type(part) for part in content] not in ([], [Text]):
                self._writing.lose("converted", "content", "an error is one text", entry)
            return {"state": "output-error", "errorText": "".join(map(_text, content))}
        output: Any = None
        if len(content) == 1 and isinstance(content[0], Text):
            output = content[0].text
        elif len(content) == 1 and isinstance(content[0], Json):
            output = content[0].value_json
        elif content:
            blocks = [self._result_block(entry, place, part) for place, part in enumerate(content)]
            output = {"content": [block for block in blocks if block is not None]}
        return {"state": "output-available", "output": output}

    def _result_block(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | None:
        """Return a block of a result of MCP."""
        if isinstance(part, (Image, Audio)) and isinstance(part.source, Inline):
            kind = "image" if isinstance(part, Image) else "audio"
            return {"type": kind, "data": part.source.data, "mimeType": packages.media_type_of(part)}
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        text = _text(part)
        why = "a result has no block for it"
        self._writing.lose("converted" if text else "dropped", _tag(part), why, entry, place)
        return {"type": "text", "text": text} if text else None

    def _file(self, entry: Entry, place: int, part: AnyMedia) -> Iterator[dict[str, Any]]:
        named = packages.name_of(part, NAME)
        beside: dict[str, Any] = {} if named is None else {"filename": named}
        beside |= _provider(part, "providerMetadata")
        source = part.source
        match source:
            case Inline() if (data := packages.data_url(part)) is not None:
                url = data
            case Url() if packages.is_absolute(source.url):
                url = source.url
            case FileId() if source.wire in packages.PACKAGES:
                url = source.id
                beside["providerReference"] = {packages.PACKAGES[source.wire]: source.id}
                self._writing.lose(
                    "approximated", _tag(part), "versions before 7 know no file of a provider", entry, place
                )
            case Inline() | FileId() | Blob() | Url():
                why = "it is not base64" if isinstance(source, Inline) else "it has no URL"
                self._writing.lose("dropped", _tag(part), why, entry, place)
                return
        yield {"type": "file", "mediaType": packages.media_type_of(part), "url": url, **beside}

    # -- what stands beside --------------------------------------------------------------------------------------------

    def _metadata(self, group: Sequence[Entry], known: Fields) -> dict[str, Any]:
        """Return ``metadata``: the payload, and model, usage, time and finish reason under the usual keys."""
        first = group[0].message
        payload = first.payload
        made = dict(cast("dict[str, Any]", payload)) if isinstance(payload, dict) else {}
        answers = [entry.message for entry in group if isinstance(entry.message, AssistantMessage)]
        said = _description(answers)
        if not known and first.sent_at is not None:
            said["createdAt"] = first.sent_at
        if known:  # unchanged values keep their text
            before = [each for each in self._reader.plain(known) if isinstance(each, AssistantMessage)]
            said = {key: each for key, each in said.items() if _description(before).get(key) != each}
        return {**said, **made}


def _description(answers: Sequence[AssistantMessage]) -> dict[str, Any]:
    if not answers:
        return {}
    last = answers[-1]
    raw = last.finish_reason_raw
    stop = raw if isinstance(raw, str) and raw in shapes.FINISH else _STOPS.get(last.finish_reason or "")
    used = [answer.usage for answer in answers if answer.usage is not None]
    return {
        **({} if last.model is None else {"model": last.model}),
        **({"usage": _usage(sum(used[1:], used[0]))} if used else {}),
        **({} if stop is None else {"finishReason": stop}),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """Return usage as the SDK counts it."""
    into = (usage.input, usage.cache_read, usage.cache_write)
    out = (usage.output, usage.reasoning)
    sums = [
        sum(each or 0 for each in counts) if any(each is not None for each in counts) else None
        for counts in (into, out)
    ]
    details = dict(zip(("noCacheTokens", "cacheReadTokens", "cacheWriteTokens"), into, strict=True))
    told: dict[str, Any] = {
        "inputTokens": sums[0],
        "inputTokenDetails": {key: each for key, each in details.items() if each is not None},
        "outputTokens": sums[1],
        "outputTokenDetails": {} if usage.reasoning is None else {"reasoningTokens": usage.reasoning},
        "totalTokens": usage.total,
    }
    return {key: each for key, each in told.items() if each is not None and each != {}}


def _in_run(message: Message) -> bool:
    return isinstance(message, (AssistantMessage, ToolMessage)) and is_sent(message)


def _calls(message: AssistantMessage) -> list[tuple[int, ToolCall | MalformedToolCall]]:
    return [
        (place, part) for place, part in enumerate(message.content) if isinstance(part, (ToolCall, MalformedToolCall))
    ]


def _ours(group: Sequence[Entry]) -> dict[str, Any]:
    """Return the part of a message that no model is sent."""
    told = [
        {"role": entry.message.role, "text": entry.message.text}
        if not isinstance(entry.message, (RescueMarker, FlushMarker))
        else {"role": entry.message.role, "reason": entry.message.reason}
        for entry in group
    ]
    return {"type": OURS, "data": told}


def _executed(message: Message, part: AnyPart) -> Any:
    """Return the provider's result for a call, or the call of such a result; ``None`` if it is missing."""
    named = part.id if isinstance(part, ToolCall) else part.tool_call_id if isinstance(part, ServerToolResult) else None
    wanted = ServerToolResult if isinstance(part, ToolCall) else ToolCall
    for each in message.content:
        other = (
            each.id if isinstance(each, ToolCall) else each.tool_call_id if isinstance(each, ServerToolResult) else None
        )
        if isinstance(each, wanted) and other == named:
            return each
    return None


def _served(part: ServerToolResult) -> dict[str, Any]:
    if part.is_error:
        raw = part.output_json
        return {
            "state": "output-error",
            "errorText": jsontext.text(raw) if jsontext.kind(raw) == "a string" else bytes(raw).decode(),
        }
    return {"state": "output-available", "output": part.output_json}


def _input(part: ToolCall) -> dict[str, Any]:
    return {"input": as_json(part.arguments_json.strip() or "{}")}


def _provider(part: AnyPart, key: str) -> dict[str, Any]:
    """Return the provider data of a part."""
    made = packages.provider_data(part, NAME)
    return {key: made} if made else {}


def _text(part: AnyPart) -> str:
    match part:
        case Text():
            return part.text
        case Json():
            return bytes(part.value_json).decode()
        case Image(source=Url() as source) | Audio(source=Url() as source) | File(source=Url() as source):
            return source.url
        case _:
            return ""


def _tag(part: AnyPart) -> str:
    return cast("str", type(part).__struct_config__.tag)


def _is_part(raw: Raw) -> bool:
    """Return whether the SDK accepts an opaque part."""
    fields = split(raw)
    kind = string(fields, "type") or ""
    if kind.startswith(shapes.DATA):
        return "data" in fields
    return kind in shapes.OPAQUE and all(string(fields, key) is not None for key in shapes.OPAQUE[kind])
