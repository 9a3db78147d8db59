"""Writing of trajectories: steps by the rules of Harbor's models, which forbid every unknown key.

Stability: experimental.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, assert_never

from msgspec import UNSET, Raw, Struct, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import EncodeError, MessageError
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Message,
    RescueMarker,
    ToolMessage,
)
from palaver.core.parts import (
    AnyPart,
    Audio,
    File,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Media,
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
from palaver.transcripts import documents, extension_slot, original_bytes
from palaver.transcripts.atif import shapes
from palaver.transcripts.atif.reader import Steps, usage_of
from palaver.transcripts.atif.shapes import NAME, PREFIX
from palaver.transcripts.conversation import session_of
from palaver.transcripts.documents import fields_of
from palaver.transcripts.fields import HALVES, as_json, inner, integer, iso, listed, split, string, value, whole
from palaver.transcripts.omissions import frame_of, frames
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import with_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.request import LossKind
    from palaver.threads.thread import Entry
    from palaver.transcripts.writer import WriteState

_OURS: Final = frozenset(
    (
        *("step_id", "timestamp", "source", "message", "observation", shapes.COPIED),
        *("model_name", "reasoning_content", "tool_calls", "metrics", "extra"),
        *("tool_call_id", "function_name", "arguments", "source_call_id", "content", shapes.REFS),
    )
)
"""Keys of steps, calls and results that are written from messages; the others stay as an old step has them."""
_EXTRAS: Final = frozenset((extension_slot.SLOT, shapes.RAW_ARGUMENTS, *shapes.FAILED, shapes.TIMESTAMP))
_NAMES: Final = {"tool_calls": "tool_call_id", "results": "source_call_id"}
_SOURCES: Final = {"user": "user", "assistant": "agent"}
_SUMS: Final = {
    "total_prompt_tokens": "prompt_tokens",
    "total_completion_tokens": "completion_tokens",
    "total_cached_tokens": "cached_tokens",
    "total_cost_usd": "cost_usd",
}


class Embedded(Struct, frozen=True):
    """The trajectory of a sub-agent, written; ``place`` is that of the one it replaces."""

    body: bytes
    place: int | None = None


class RecordWriter:
    """Writes the steps of one conversation."""

    def __init__(
        self,
        writing: WriteState,
        embedded: Sequence[Embedded] = (),
        dropped: Sequence[str] = (),
        named: str | None = None,
    ) -> None:
        """Start without steps. ``dropped`` are branches that are left out, ``named`` the id of the trajectory."""
        self._writing = writing
        writing.whole = True
        self._session = session_of(writing.metadata)
        self._embedded = embedded
        self._named = named
        head, tail = frame_of(writing.entries, NAME)
        self._document = head + (tail or b"")
        self._head = b"" if tail is None else head
        self._root = fields_of(self._document)
        agent = inner(self._root, "agent")
        self._model = string(agent, "model_name") if writing.native else self._session.model
        self._steps = Steps(self._model, Watch())
        said = string(self._root, "schema_version")
        self._version: shapes.Version | None = shapes.version_of(said) if said is not None else shapes.USUAL
        self._native = sum(
            1 for entry in writing.entries if original_bytes.leads(entry.message, NAME) and not frames(entry, NAME)
        )
        self._next = self._native + 1
        self._totals: dict[str, Any] = {}
        self._changed = False
        for branch in dropped:
            writing.lose("dropped", f"branch {branch}", "a trajectory is one line of steps; each branch is a file")

    # -- the document --------------------------------------------------------------------------------------------------

    def head(self) -> Iterator[bytes]:
        """Yield everything before the steps. A trajectory has at least one step."""
        session = self._session
        agent: dict[str, Any] = {"name": session.agent or "palaver", "version": session.program or "unknown"}
        if session.model is not None:
            agent["model_name"] = session.model
        if session.cwd is not None:
            agent["extra"] = {"cwd": session.cwd}
        version = self._version or shapes.USUAL
        root: dict[str, Any] = {"schema_version": f"{PREFIX}{version[0]}.{version[1]}"}
        root["session_id"] = session.id or self._writing.thread.id
        if named := self._named or session.more.get("trajectory_id"):
            root["trajectory_id"] = named
        first = jsontext.encode(self._empty()) if self._next == 1 else b""
        yield whole(jsontext.encode({**root, "agent": agent}))[:-1] + b',"steps":[' + first

    def _empty(self) -> dict[str, Any]:
        """Return an empty step, for a trajectory without any."""
        self._next += 1
        step: dict[str, Any] = {"step_id": 1, "source": "system", "message": ""}
        plain = self._steps.plain(jsontext.fields(jsontext.encode(step))) or []
        self._writing.lose("approximated", "steps", "a trajectory has one step at least; an empty one was written")
        return {**step, "extra": {extension_slot.SLOT: extension_slot.carried([], plain)}}

    def tail(self, old: bytes | None) -> bytes | None:
        """Return everything after the steps, with sums that match the steps."""
        if old is not None:
            return self._revised(old) if self._changed or self._embedded else old
        if self._writing.native:
            return None
        root: dict[str, Any] = {key: each for key, each in self._session.more.items() if key == "notes"}
        root["final_metrics"] = {
            **{total: self._totals[key] for total, key in _SUMS.items() if key in self._totals},
            "total_steps": self._next - 1,
        }
        if self._embedded:
            root["subagent_trajectories"] = [Raw(each.body) for each in self._embedded]
        return b"]," + whole(jsontext.encode(root))[1:]

    def _revised(self, old: bytes) -> bytes:
        body = documents.replaced(self._document, self._sums(len(self._head)))
        for each in self._embedded:
            if each.place is not None:
                body = documents.replaced(body, {("subagent_trajectories", each.place): each.body})
        added = [each.body for each in self._embedded if each.place is None]
        if added:
            body = documents.extended(body, "subagent_trajectories", added)
        return body[len(self._head) :] if body.startswith(self._head) else old

    def revised_head(self) -> bytes | None:
        """Return the head, if it has sums that must match the steps; ``None`` when it stays."""
        if not self._writing.native or not self._changed:
            return None
        size = len(self._document) - len(self._head)
        body = documents.replaced(self._document, self._sums(0))
        head = body[: len(body) - size]
        return head if head != self._head and body.endswith(self._document[len(self._head) :]) else None

    def _sums(self, since: int) -> dict[tuple[str | int, ...], bytes]:
        """Return the sums that changed, if the document has them after a place."""
        stored = inner(self._root, "final_metrics")
        sums: dict[tuple[str | int, ...], bytes] = {}
        for total, key in _SUMS.items():
            more, before = self._totals.get(key), value(stored, total)
            if more and isinstance(before, (int, float)) and not isinstance(before, bool):
                sums["final_metrics", total] = jsontext.encode(before + more)
        steps = integer(stored, "total_steps")
        if steps is not None and self._next - 1 != self._native:
            sums["final_metrics", "total_steps"] = jsontext.encode(steps + self._next - 1 - self._native)
        found = documents.span(self._document, "final_metrics")
        behind = found is not None and found[0] >= len(self._head)
        return sums if behind is (since > 0) else {}

    # -- the steps -----------------------------------------------------------------------------------------------------

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group an answer with the results of its calls; any other message alone."""
        return with_results(entries, _answered, repeated=True)

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the step of a group."""
        if self._writing.native:
            self._check()
        before: Fields = fields_of(old[0]) if old else {}
        if old and not before:
            return
        self._changed = True
        step = self._step(group, before)
        if step is None:
            return
        if self._writing.options.carry:
            self._carry(group, step, new=not before)
        elif self._carried(group, step, new=not before) is not None:
            self._lose(group[0].message.role, "fields that ATIF has no place for", group[0])
        if before:
            step = _laid_over(step, before)
        self._count(step, before)
        text = jsontext.encode(step)
        if not before and (made := whole(text)) != text:
            self._writing.lose("approximated", "text", HALVES, group[0])
            text = made
        yield text

    def _check(self) -> None:
        if self._version is None or self._version > shapes.NEWEST:
            said = string(self._root, "schema_version")
            raise EncodeError(f"{NAME}: a trajectory of version {said!r} is read, but only written as it was")
        if not self._head:
            raise EncodeError(f"{NAME}: this document has no list of steps that could be edited")

    def _count(self, step: Mapping[str, Any], before: Fields) -> None:
        """Update the sums, without messages repeated from an earlier trajectory."""
        for sign, fields in ((1, jsontext.fields(jsontext.encode(step))), (-1, before)):
            metrics = {} if value(fields, shapes.COPIED) is True else inner(fields, "metrics")
            for key in _SUMS.values():
                number = value(metrics, key)
                if isinstance(number, (int, float)) and not isinstance(number, bool):
                    self._totals[key] = self._totals.get(key, 0) + sign * number

    def _carry(self, group: Sequence[Entry], step: dict[str, Any], *, new: bool) -> None:
        slot = self._carried(group, step, new=new)
        if slot is not None:
            step["extra"] = {**step.get("extra", {}), extension_slot.SLOT: slot}

    def _carried(self, group: Sequence[Entry], step: Mapping[str, Any], *, new: bool) -> dict[str, Any] | None:
        """Return what the step lacks. Media that was written beside is carried as its path."""
        text = jsontext.encode(step)
        plain = self._steps.plain(jsontext.fields(whole(text) if new else text)) or []
        messages = [self._beside(entry.message) for entry in group]
        return extension_slot.carried(messages, plain)

    def _step(self, group: Sequence[Entry], old: Fields) -> dict[str, Any] | None:
        entry, message = group[0], group[0].message
        results = group[1:]
        if isinstance(message, ToolMessage):  # a result without a call
            results = group
        number = value(old, "step_id") if old else self._next
        step: dict[str, Any] = {"step_id": number}
        if message.sent_at is not None:
            step["timestamp"] = old["timestamp"] if "timestamp" in old else iso(message.sent_at)
        step["source"] = _SOURCES.get(message.role, "system")
        if isinstance(message, (FlushMarker, RescueMarker)):
            self._lose("marker", "ATIF has none", entry)
            if not self._writing.options.carry:
                return None
        if isinstance(message, DeveloperMessage):
            self._lose("developer", "written as a step of the system", entry)
        step["message"] = "" if isinstance(message, ToolMessage) else self._content(entry)
        if isinstance(message, AssistantMessage):
            step |= self._answer(entry, message, old)
        found = [self._served(*each) for each in self._own_results(entry)]
        if found := [*found, *(self._result(each, group) for each in results)]:
            step["observation"] = {"results": found}
        if message.metadata.get(shapes.COPIED) is True or self._is_repeated(entry):
            step[shapes.COPIED] = True
        if not old:
            self._next += 1
        return step

    def _own_results(self, entry: Entry) -> Iterator[tuple[Entry, int, ServerToolResult]]:
        for place, part in enumerate(entry.message.content):
            if isinstance(part, ServerToolResult):
                yield entry, place, part

    def _is_repeated(self, entry: Entry) -> bool:
        """Return whether a message was repeated by a compaction."""
        if entry.parent is None or not entry.message.is_summary:
            return False
        before = self._writing.thread.entry(entry.parent).message
        return before.is_summary and not isinstance(before, FlushMarker)

    def _answer(self, entry: Entry, message: AssistantMessage, old: Fields) -> dict[str, Any]:
        said: dict[str, Any] = {}
        if message.model is not None and (message.model != self._model or "model_name" in old):
            said["model_name"] = message.model
        thoughts = [part for part in message.content if isinstance(part, Reasoning)]
        if thoughts:
            said["reasoning_content"] = message.reasoning or ""
        if len(thoughts) > 1:
            self._lose("reasoning", "a step has one text of reasoning; joined", entry)
        for place, part in enumerate(message.content):
            if isinstance(part, Reasoning) and (part.signature is not None or part.encrypted is not None):
                self._lose("reasoning", "ATIF has no field for its proof", entry, place)
        if not _is_ordered(message):
            self._lose("order", "a step is reasoning, then text, then calls", entry)
        if calls := [
            self._call(entry, place, part)
            for place, part in enumerate(message.content)
            if isinstance(part, (ToolCall, MalformedToolCall))
        ]:
            said["tool_calls"] = calls
        if message.usage is not None:
            said["metrics"] = old["metrics"] if message.usage == usage_of(old) else _metrics(message.usage)
        return said

    def _call(self, entry: Entry, place: int, part: ToolCall | MalformedToolCall) -> dict[str, Any]:
        call: dict[str, Any] = {"tool_call_id": part.id or f"call_{place}", "function_name": part.name or "unknown"}
        if isinstance(part, ToolCall):
            text = part.arguments_json.strip() or "{}"
            if not part.custom and jsontext.is_json(text) and jsontext.kind(as_json(text)) == "an object":
                return {**call, "arguments": as_json(text)}
            if part.custom and jsontext.is_json(text):
                self._lose("custom tool call", "its text is the argument 'input'", entry, place)
                return {**call, "arguments": {"input": as_json(text)}}
        else:
            text = part.raw
        self._lose("malformed_tool_call", "arguments are an object; the text is in extra.raw_arguments", entry, place)
        extra = {"extra": {shapes.RAW_ARGUMENTS: text}} if self._allows(shapes.EXTRA_SINCE) else {}
        return {**call, "arguments": {}, **extra}

    def _served(self, entry: Entry, place: int, part: ServerToolResult) -> dict[str, Any]:
        self._lose("server_tool_result", "written as the result of a call", entry, place)
        known = {"source_call_id": part.tool_call_id} if part.tool_call_id in _calls(entry.message) else {}
        return {**known, "content": bytes(part.output_json).decode()}

    def _result(self, entry: Entry, group: Sequence[Entry]) -> dict[str, Any]:
        message = entry.message
        result: dict[str, Any] = {}
        call = message.tool_call_id if isinstance(message, ToolMessage) else None
        if call is not None and call in _calls(group[0].message):
            result["source_call_id"] = call
        elif call is not None:
            self._lose("tool result", "its call is in no step; written without a call", entry)
        if message.content:
            result["content"] = self._content(entry)
        if refs := message.metadata.get(shapes.REFS):
            result[shapes.REFS] = refs
        extra: dict[str, Any] = {}
        if isinstance(message, ToolMessage) and message.is_error:
            self._lose("tool error", "ATIF has no field for it; kept in extra", entry)
            extra[shapes.IS_ERROR] = True
        if message.sent_at is not None and message.sent_at != group[0].message.sent_at:
            extra[shapes.TIMESTAMP] = iso(message.sent_at)
        return {**result, "extra": extra} if extra and self._allows(shapes.EXTRA_SINCE) else result

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _content(self, entry: Entry) -> Any:
        made = [part for place, each in enumerate(entry.message.content) if (part := self._part(entry, place, each))]
        if not made:
            return ""
        if len(made) == 1 and "text" in made[0]:
            return made[0]["text"]
        if self._allows(shapes.PARTS_SINCE):
            return made
        self._lose("order", "content parts came with version 1.6; joined", entry)
        return "\n\n".join(part["text"] for part in made)

    def _part(self, entry: Entry, place: int, part: AnyPart) -> dict[str, Any] | None:
        match part:
            case Text():
                if part.citations:
                    self._lose("citations", "ATIF has none", entry, place)
                return {"type": "text", "text": part.text}
            case Refusal():
                self._lose("refusal", "written as text", entry, place, "converted")
                return {"type": "text", "text": part.text}
            case Json():
                self._lose("json", "written as text", entry, place, "converted")
                return {"type": "text", "text": bytes(part.value_json).decode()}
            case Image() | Audio() | Video() | File():
                return self._media(entry, place, part)
            case Opaque():
                raw = split(part.raw_json)
                if part.wire == NAME and string(raw, "type") in {"text", "image", "audio"}:
                    return {key: raw[key] for key in raw if key in shapes.KEYS["part"]}
                self._lose("opaque", "ATIF has no block for it", entry, place)
                return None
            case Reasoning() | ToolCall() | MalformedToolCall() | ServerToolResult():
                return None
            case _:
                assert_never(part)

    def _media(self, entry: Entry, place: int, part: Image | Audio | Video | File) -> dict[str, Any] | None:
        kind = type(part).__name__.lower()
        path = self._path(part)
        if isinstance(part.source, Inline) and path is not None:
            self._lose(kind, "media stands in files of its own; written beside", entry, place, "converted")
        known = shapes.NAMED.get(kind, {})
        since = shapes.AUDIO_SINCE if isinstance(part, Audio) else shapes.PARTS_SINCE
        named = shapes.media_type(part.media_type)
        if path is None or not known or named not in {None, *known} or not self._allows(since):
            self._lose(kind, "no content part of ATIF can name it", entry, place)
            return None
        if named is None:
            named = next(iter(known))
            self._writing.lose("approximated", kind, f"of unknown type; named {named}", entry, place)
        return {"type": kind, "source": {"media_type": named, "path": path}}

    def _path(self, part: Media) -> str | None:
        """Return the path of media; inline bytes are written beside the trajectory, under their hash."""
        if isinstance(part.source, Url):
            return part.source.url
        if not isinstance(part.source, Inline) or not part.source.valid:
            return None
        try:
            data = part.source.bytes
        except MessageError:
            return None
        named = shapes.media_type(part.media_type) or ""
        ending = shapes.IMAGES.get(named) or shapes.AUDIO.get(named) or "bin"
        folder = "images" if isinstance(part, Image) else "media"
        path = f"{folder}/{sha256(data).hexdigest()[:16]}.{ending}"
        self._writing.beside[path] = data
        return path

    def _beside(self, message: Message) -> Message:
        """Return a message with the path in place of its inline media."""
        content = [self._pointing(part) for part in message.content]
        return message if content == list(message.content) else structs.replace(message, content=tuple(content))

    def _pointing(self, part: AnyPart) -> AnyPart:
        if not isinstance(part, Media) or not isinstance(part.source, Inline) or (path := self._path(part)) is None:
            return part
        return structs.replace(part, source=trusted.Url(path))

    def _allows(self, since: shapes.Version) -> bool:
        """Return whether the version has a feature; a new file gets the version that has it."""
        if self._version is None or since <= self._version:
            return True
        if not self._writing.native:
            self._version = since
        return not self._writing.native

    def _lose(self, what: str, why: str, entry: Entry, part: int | None = None, kind: LossKind | None = None) -> None:
        carried: LossKind = "converted" if self._writing.options.carry else "dropped"
        self._writing.lose(kind or carried, what, why, entry, part)


def _answered(message: Message) -> set[str | None]:
    """Return the calls with results in the step of a message; those that name no call are in it too."""
    return {None, *_calls(message)} if isinstance(message, AssistantMessage) else set()


def _calls(message: Message) -> set[str]:
    return {
        part.id or f"call_{place}"
        for place, part in enumerate(message.content)
        if isinstance(part, (ToolCall, MalformedToolCall))
    }


def _is_ordered(message: AssistantMessage) -> bool:
    def rank(part: AnyPart) -> int:
        return 0 if isinstance(part, Reasoning) else 2 if isinstance(part, (ToolCall, MalformedToolCall)) else 1

    ranks = [rank(part) for part in message.content if not isinstance(part, ServerToolResult)]
    return ranks == sorted(ranks)


def _metrics(usage: Usage) -> dict[str, Any]:
    """Return counters as ATIF has them: prompt tokens include the cache, completion tokens the reasoning."""
    prompt = [each for each in (usage.input, usage.cache_read, usage.cache_write) if each is not None]
    completion = [each for each in (usage.output, usage.reasoning) if each is not None]
    metrics: dict[str, Any] = {}
    if prompt:
        metrics["prompt_tokens"] = sum(prompt)
    if completion:
        metrics["completion_tokens"] = sum(completion)
    if usage.cache_read is not None:
        metrics["cached_tokens"] = usage.cache_read
    cost = None if usage.raw_json is UNSET else value(split(usage.raw_json), "cost_usd")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool):
        metrics["cost_usd"] = cost
    extra = {shapes.CACHE_WRITE[0]: usage.cache_write, shapes.REASONING[0]: usage.reasoning}
    if extra := {key: each for key, each in extra.items() if each is not None}:
        metrics["extra"] = extra
    return metrics


def _laid_over(new: dict[str, Any], old: Fields) -> dict[str, Any]:
    """Add the fields of an old step, call or result that messages lack."""
    extra: dict[str, Any] = {key: raw for key, raw in inner(old, "extra").items() if key not in _EXTRAS}
    extra |= new.get("extra", {})
    left = {key: raw for key, raw in old.items() if key not in _OURS or jsontext.is_null(raw)}
    said: dict[str, Any] = left | new | ({"extra": extra} if extra else {})
    if "observation" in new:
        before = listed(inner(old, "observation"), "results")
        said["observation"] = {"results": _paired(new["observation"]["results"], before, _NAMES["results"])}
    if "tool_calls" in new:
        said["tool_calls"] = _paired(new["tool_calls"], listed(old, "tool_calls"), _NAMES["tool_calls"])
    return said


def _paired(news: list[dict[str, Any]], olds: Sequence[Raw], key: str) -> list[dict[str, Any]]:
    named = {string(fields, key): fields for fields in map(split, olds)}
    return [_laid_over(each, named[each.get(key)]) if each.get(key) in named else each for each in news]
