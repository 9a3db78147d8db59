"""Messages into Codex rollout lines that the program resumes (docs/spec/dialects.md#3, *Writer*).

Rules:

- Legacy history: ``session_meta`` first, with the leading system message as ``base_instructions``; before each prompt a
  ``turn_context`` with the model that answers it. A prompt and an answer are response items, and also events, without
  which a session is not listed. Usage is a ``token_count`` after its answer. No provider is named: a session that names
  one is resumed under no other.
- Items are those of the wire, reduced to what the program's own types read (``strict``): for one unknown word, it drops
  the whole line. Losses of the wire and the program are on the receipt. Later system messages become the developer's.
- A compaction, and any marker that hides all before it, is a ``compacted`` line with what the model sees instead.
- Text that people only were shown is an event without an item. Messages without a meaning for the program (other
  markers, discarded answers) are an item ``other``, which it reads and ignores, and which carries them.
- An edited message keeps its lines, and the events that repeat it, if there are as many of each as before.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.messages import (
    AssistantMessage,
    FlushMarker,
    Message,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import Opaque, Text, ToolCall
from palaver.core.usage import Usage
from palaver.threads.ids import is_uuid, now_ms
from palaver.threads.view import DISCARDED, PLACEHOLDER, RECORD, scope_of
from palaver.transcripts import extension_slot
from palaver.transcripts.codex.reader import RecordReader
from palaver.transcripts.codex.shapes import (
    NAME,
    UNKNOWN,
    WIRE,
    Items,
    injected,
    is_made,
    native_type,
    read_usage,
    shown,
    texts_of,
    write_usage,
)
from palaver.transcripts.codex.strict import ids_of, strict, with_calls, with_text, without_extra_fields
from palaver.transcripts.conversation import derived_id, hidden_before, session_of
from palaver.transcripts.fields import inner, iso, listed, read_time, split, string, value
from palaver.transcripts.format import Origin
from palaver.transcripts.unknown_fields import Watch
from palaver.transcripts.writer import WriteState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.core.request import Encoded
    from palaver.threads.thread import Entry

_VERSION: Final = "0.60.0"
_NO_LOSS: Final = frozenset(("model", "tool call ids"))
_ASKED: Final = trusted.UserMessage(content=(trusted.Text("."),))
"""A prompt that the wire requires before its input; it is removed again."""
_LINE: Final = ("timestamp", "ordinal")


class RecordWriter:
    """Writes the lines of one conversation."""

    def __init__(self, writing: WriteState) -> None:
        """Start a rollout, or continue one."""
        self._writing = writing
        self._wire = wires.get(WIRE)
        self._items = Items()
        self._reader = RecordReader(Origin(), Watch())
        self._session = session_of(writing.metadata)
        times = (entry.message.sent_at for entry in writing.entries)
        first = next((at for at in times if at is not None), None)
        self._at = self._session.started_at or first or now_ms()
        self._instructions: Entry | None = None
        self._calls: dict[str, tuple[int, ToolCall]] = {}  # by id, with the place of the answer
        self._places: dict[str, int] = {}
        self._models: dict[str, str] = {}
        self._model: str | None = None  # the model of the last turn
        self._totals: dict[str, Usage] = {}
        self._before: dict[str, Message] = {}
        self._look()

    def _look(self) -> None:
        """Collect data that span lines: calls with results, the model of each turn, the sum of usage."""
        total, before = trusted.Usage(), None
        for place, entry in enumerate(self._writing.entries):
            message = entry.message
            for call in message.tool_calls:
                self._calls.setdefault(call.id, (place, call))
            self._places[entry.id] = place
            if isinstance(message, AssistantMessage) and message.usage is not None:
                total = total + message.usage
                self._totals[entry.id] = total
            if before is not None:
                self._before[entry.id] = before
            before = before if RECORD in message.tags else message
        answers = [e.message for e in self._writing.entries if isinstance(e.message, AssistantMessage)]
        known = (each.model for each in reversed(answers) if each.model is not None)
        model = next(known, self._session.model or UNKNOWN)
        for entry in reversed(self._writing.entries):
            if isinstance(entry.message, AssistantMessage) and entry.message.model is not None:
                model = entry.message.model
            self._models[entry.id] = model

    # -- the frame -----------------------------------------------------------------------------------------------------

    def head(self) -> Iterator[bytes]:
        """Yield the first line of a rollout."""
        own = self._session.file_format == NAME
        named = self._session.id or self._writing.thread.id
        named = named if is_uuid(named) else derived_id(named)
        meta: dict[str, Any] = {
            "id": named,
            "session_id": named,
            "timestamp": iso(self._started()),
            "cwd": self._session.cwd or "/",
            "originator": "codex_cli_rs",
            "cli_version": self._session.program if own and self._session.program else _VERSION,
            "source": "cli",
        }
        line = {"timestamp": iso(self._started()), "type": "session_meta", "payload": meta}
        if self._instructions is not None:
            message = self._instructions.message
            line["timestamp"] = iso(self._started() if message.sent_at is None else message.sent_at)
            meta["base_instructions"] = {"text": message.text}
            self._carry(line, [message], [trusted.SystemMessage(content=(trusted.Text(message.text),))])
        yield jsontext.encode(line)

    def _started(self) -> int:
        times = (entry.message.sent_at for entry in self._writing.entries)
        return self._session.started_at or next((at for at in times if at is not None), self._at)

    def tail(self, old: bytes | None) -> None:
        """Return nothing: lines have no tail."""

    def groups(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Group a compaction with the messages in its place, which share a line; any other message alone."""
        place = 0
        while place < len(entries):
            end = place + 1
            leads = entries[place].message.is_summary and self._writing.entries[0] is entries[place]
            if _hides(entries[place].message) or leads:
                while end < len(entries) and _stands_in(entries[end].message):
                    end += 1
            yield entries[place:end]
            place = end

    def render(self, group: Sequence[Entry], old: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the lines of a message, or of a compaction."""
        olds = [jsontext.fields(each) for each in old]
        entry = group[0]
        self._at = self._at if entry.message.sent_at is None else entry.message.sent_at
        lines = list(self._lines(group, olds))
        if olds:
            lines = [_timed(line, olds, entry.message.sent_at) for line in _in_place(lines, olds)]
        elif (
            lines and self._session.file_format == NAME and self._session.format == "paginated" and self._writing.native
        ):
            self._writing.lose("approximated", "ordinal", "a paginated file goes on without numbers", entry)
        for line in lines:
            yield jsontext.encode(line)

    def _lines(self, group: Sequence[Entry], olds: Sequence[Fields]) -> Iterator[dict[str, Any]]:
        entry, message = group[0], group[0].message
        if olds and string(olds[0], "type") == "session_meta":
            meta = {"base_instructions": {"text": message.text}}
            line = self._line("session_meta", meta)
            self._carry(line, [message], [trusted.SystemMessage(content=(trusted.Text(message.text),))])
            yield line
        elif len(group) > 1 or _hides(message) or RECORD in message.tags or self._leads(entry):
            yield self._compacted([each for each in group if RECORD not in each.message.tags], olds)
        elif isinstance(message, RescueMarker | FlushMarker) or DISCARDED in message.tags:
            yield from self._unsupported(entry)
        elif PLACEHOLDER in message.tags:
            yield from self._shown(entry, olds)
        elif isinstance(message, AssistantMessage):
            yield from self._answer(entry, message, new=not olds)
        elif isinstance(message, UserMessage):
            yield from self._prompt(entry, message, olds)
        elif isinstance(message, SystemMessage) and self._begins(entry) and not olds:
            self._instructions = entry
        else:
            yield from self._other(entry, message, olds)

    def _leads(self, entry: Entry) -> bool:
        return entry.message.is_summary and self._writing.entries[0] is entry

    def _begins(self, entry: Entry) -> bool:
        """Return whether a system message is the one at the head of a new file."""
        return not self._writing.native and self._writing.entries[0] is entry

    # -- messages ------------------------------------------------------------------------------------------------------

    def _answer(self, entry: Entry, message: AssistantMessage, *, new: bool) -> Iterator[dict[str, Any]]:
        said, raws = with_calls(without_extra_fields(message), entry.id)
        encoded = self._wire.encode_response(trusted.Response(said))
        self._lose(encoded, [entry])
        made = jsontext.items(jsontext.fields(encoded.body).get("output", jsontext.raw([])))
        items = [with_text(item, raws) for each in made if (item := self._strict(each, entry)) is not None]
        if not items:
            items = [jsontext.raw({"type": "message", "role": "assistant", "content": []})]
            self._writing.lose("converted", "assistant", "written as an empty answer", entry)
        follows = isinstance(self._before.get(entry.id), AssistantMessage)
        if new and (follows or self._model != self._models[entry.id]):
            yield self._turn(entry)  # separates it from the answer before, and names its model
        lines = [self._line("response_item", item) for item in items]
        spent = None if message.usage is None or not message.usage.total else write_usage(message.usage)
        model = self._models[entry.id]
        known: dict[str, Any] = {"model": None if model == UNKNOWN else model}
        if spent is not None:
            known["usage"] = read_usage(jsontext.raw(spent))
        read = [_but(each, known) for each in self._items.read_well(items)]
        self._carry(lines[0], [message], read if new else [_with_other_lines(each, message) for each in read])
        yield from lines
        for item in filter(is_made, items):
            yield from self._told("agent_message", filter(None, texts_of(item)))
        if spent is not None:
            yield self._line("event_msg", self._count(entry, spent) if new else _recount(message.usage, spent))

    def _count(self, entry: Entry, spent: object) -> dict[str, Any]:
        info = {"total_token_usage": write_usage(self._totals[entry.id]), "last_token_usage": spent}
        return {"type": "token_count", "info": {**info, "model_context_window": None}, "rate_limits": None}

    def _told(self, kind: str, texts: Any) -> Iterator[dict[str, Any]]:
        for text in texts:
            yield self._line("event_msg", {"type": kind, "message": text})

    def _prompt(self, entry: Entry, message: UserMessage, olds: Sequence[Fields]) -> Iterator[dict[str, Any]]:
        if olds and string(inner(olds[0], "payload"), "type") == "agent_message":
            content = [_agent_part(part) for part in message.content if isinstance(part, Text | Opaque)]
            line = self._line("response_item", {"type": "agent_message", "content": content})
            self._carry(line, [message], [_with_other_lines(message, message)])
            yield line
            return
        typed = message.source is None and message.mode != "tool"
        if typed and not olds:
            yield self._turn(entry)
        item = self._item(entry, message)
        texts = texts_of(item)
        source = None if typed else injected(texts)
        plain = [structs.replace(each, source=source) for each in self._items.read_well([item])]
        line = self._line("response_item", item)
        self._carry(line, [message], [_with_other_lines(each, message) for each in plain] if olds else plain)
        yield line
        if typed:
            images = [] if olds else [each.data_uri for each in message.images if each.data_uri is not None]
            yield self._event_of_prompt("".join(texts), images)

    def _event_of_prompt(self, text: str, images: Sequence[str]) -> dict[str, Any]:
        told: dict[str, Any] = {"type": "user_message", "message": text}
        if images:
            told["images"] = images
        return self._line("event_msg", told)

    def _other(self, entry: Entry, message: Message, olds: Sequence[Fields]) -> Iterator[dict[str, Any]]:
        """Yield a result, or a developer's message."""
        was = inner(olds[0], "payload") if olds else {}
        if isinstance(message, ToolMessage) and inner(was, "output"):  # an older file
            output = {**inner(was, "output"), "content": message.text, "success": not message.is_error}
            yield self._line("response_item", {**was, "output": output})
            return
        item = self._item(entry, message)
        plain = self._items.read_well([item])
        if isinstance(message, ToolMessage):
            call = self._call(entry, message.tool_call_id)
            plain = [structs.replace(each, tool_name=None if call is None else call.name) for each in plain]
        plain = [_with_other_lines(each, message) for each in plain] if olds else plain
        line = self._line("response_item", item)
        self._carry(line, [message], plain)
        yield line

    def _shown(self, entry: Entry, olds: Sequence[Fields]) -> Iterator[dict[str, Any]]:
        """Yield a message that people were shown, and no model sees."""
        message = entry.message
        role = "user" if isinstance(message, UserMessage) else "assistant"
        if len(message.text) == 0 and not olds:
            yield from self._unsupported(entry)
            return
        kind = "user_message" if role == "user" else "agent_message"
        told = {"type": kind, "message": message.text}
        if olds:
            was = inner(olds[0], "payload")
            kind = string(was, "type") or kind
            told = {"message": message.text} if kind != "item_completed" else {}
        line = self._line("event_msg", told)
        failed = kind == "error"
        slot = self._slot([message], [shown(role, message.text, failed=failed)])
        if slot is not None or not olds:
            line[extension_slot.SLOT] = slot or True
        yield line

    def _unsupported(self, entry: Entry) -> Iterator[dict[str, Any]]:
        """Yield an item that the program ignores."""
        message = entry.message
        if not self._writing.options.carry:
            self._writing.lose("dropped", message.role, "a rollout has no such line", entry)
            return
        self._writing.lose("converted", message.role, "kept in a line that the program ignores", entry)
        line = self._line("response_item", {"type": "other"})
        self._carry(line, [message], [])
        yield line

    def _compacted(self, group: Sequence[Entry], olds: Sequence[Fields]) -> dict[str, Any]:
        kept = [each for each in group if not isinstance(each.message, FlushMarker | RescueMarker)]
        prompts = (each.message for each in kept if isinstance(each.message, UserMessage))
        summary = next((each.text for each in prompts), "")
        payload: dict[str, Any] = {"message": summary}
        was = inner(olds[0], "payload") if olds else {}
        if not olds or "replacement_history" in was:
            payload["replacement_history"] = self._among(listed(was, "replacement_history"), self._encoded(kept))
        if "replacement_history" in was:
            del payload["message"]
        line = self._line("compacted", payload)
        plain = [hidden_before(), *self._reader.in_place(split(jsontext.raw(payload)))]
        if not olds or extension_slot.SLOT in olds[0]:
            self._carry(line, [each.message for each in group], plain)
        return line

    def _among(self, olds: Sequence[Raw], items: list[Raw]) -> list[Raw]:
        """Return items together with unreadable ones, if the number of the others is unchanged."""
        read = [self._reader.reads(each) for each in olds]
        if sum(read) != len(items):
            return items
        left = iter(items)
        return [next(left) if known else old for old, known in zip(olds, read, strict=True)]

    # -- items ---------------------------------------------------------------------------------------------------------

    def _encoded(self, entries: Sequence[Entry]) -> list[Raw]:
        """Return the items of messages that belong together."""
        messages = [without_extra_fields(_developer(each.message)) for each in entries]
        encoded = self._wire.encode_request(trusted.Request(messages=(_ASKED, *messages)), join_neighbors=False)
        self._lose(encoded, [None, *entries])
        made = jsontext.items(jsontext.fields(encoded.body)["input"])[1:]
        return [item for each in made if (item := self._strict(each, *entries)) is not None]

    def _item(self, entry: Entry, message: Message) -> Raw:
        """Return the item of a message that no model made. A result gets a call to answer, which is then left out."""
        plain = without_extra_fields(_developer(message))
        if isinstance(message, SystemMessage):
            self._writing.lose("converted", "system", "written as the developer's", entry)
        # the wire joins neighbouring user messages
        before: list[Message] = [] if isinstance(plain, UserMessage) else [_ASKED]
        if isinstance(plain, ToolMessage):
            plain = plain if plain.tool_call_id else plain.replace(tool_call_id=derived_id(entry.id))
            named = plain.tool_call_id or ""
            call = self._call(entry, named)
            before.append(trusted.AssistantMessage(content=(_called(named, plain, call),)))
        encoded = self._wire.encode_request(trusted.Request(messages=(*before, plain)), join_neighbors=False)
        self._lose(encoded, [*[None] * len(before), entry])
        made = jsontext.items(jsontext.fields(encoded.body).get("input", jsontext.raw([])))
        found = self._strict(made[-1], entry) if len(made) > len(before) else None
        if found is not None:
            return found
        self._writing.lose("dropped", message.role, "the program could not read it", entry)
        if isinstance(plain, ToolMessage):
            return jsontext.raw({"type": "function_call_output", "call_id": plain.tool_call_id, "output": ""})
        return jsontext.raw({"type": "message", "role": plain.role, "content": []})

    def _call(self, entry: Entry, named: str | None) -> ToolCall | None:
        """Return the call that a result answers, if it precedes the result."""
        place, call = self._calls.get(named or "", (0, None))
        return call if place < self._places[entry.id] else None

    def _strict(self, item: Raw, *entries: Entry) -> Raw | None:
        ids = frozenset[str]().union(*(ids_of(each.message) for each in entries))
        entry = entries[0] if entries else None
        return strict(item, ids, lambda what, why: self._writing.lose("dropped", what, why, entry))

    def _lose(self, encoded: Encoded, entries: Sequence[Entry | None]) -> None:
        for loss in encoded.losses:
            place = loss.message
            entry = entries[place] if place is not None and place < len(entries) else None
            if loss.what not in _NO_LOSS and (place is None or entry is not None):
                self._writing.lose(loss.kind, loss.what, loss.why, entry, loss.part)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _turn(self, entry: Entry) -> dict[str, Any]:
        """Return the line that starts a turn; the sandbox in the terms of older and newer versions."""
        self._model = self._models[entry.id]
        return self._line(
            "turn_context",
            {
                "turn_id": derived_id(self._writing.thread.id, "turn", entry.id),
                "cwd": self._session.cwd or "/",
                "approval_policy": "on-request",
                "sandbox_policy": {"type": "read-only", "mode": "read-only"},
                "model": self._model,
                "summary": "auto",
            },
        )

    def _line(self, kind: str, payload: object) -> dict[str, Any]:
        return {"timestamp": iso(self._at), "type": kind, "payload": payload}

    def _carry(self, line: dict[str, Any], messages: Sequence[Message], plain: Sequence[Message]) -> None:
        if (slot := self._slot(messages, plain)) is not None:
            line[extension_slot.SLOT] = slot

    def _slot(self, messages: Sequence[Message], plain: Sequence[Message]) -> dict[str, Any] | None:
        if not self._writing.options.carry:
            return None
        return extension_slot.carried(messages, [structs.replace(each, sent_at=self._at) for each in plain])


def _in_place(lines: list[dict[str, Any]], olds: Sequence[Fields]) -> list[dict[str, Any]]:
    """Return new lines in the order of the old ones; unchanged when the numbers of any kind differ."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, old in enumerate(olds):
        places.setdefault(_kind(old), []).append(place)
    found: dict[int, dict[str, Any]] = {}
    for line in lines:
        split_line = {key: jsontext.raw(each) for key, each in line.items()}
        waiting = places.get(_kind(split_line))
        if not waiting:
            if _kind(split_line)[0] == "event_msg" and len(olds) < len(lines):
                continue  # the event for the screen is elsewhere, or missing
            return lines
        place = waiting.pop(0)
        old = olds[place]
        found[place] = line | {key: old[key] for key in _LINE if key in old}
        if (
            "payload" in old
            and _kind(old)[0] == "response_item"
            and _say_the_same(old["payload"], split_line["payload"])
        ):
            found[place]["payload"] = old["payload"]
        if string(old, "type") == "token_usage_record":
            usage = inner(inner(split_line, "payload"), "info").get("last_token_usage")
            found[place] |= {"type": "token_usage_record", "payload": {"usage": usage}}
        elif "payload" not in old:
            found[place] = dict(split(split_line["payload"]))
        elif _kind(old) == ("event_msg", "item"):
            found[place]["payload"] = _completed(split(old["payload"]), split(split_line["payload"]))
    if len(found) != len(olds):
        return lines
    return [found[place] for place in sorted(found)]


def _say_the_same(old: Raw, new: Raw) -> bool:
    """Return whether two items are read alike, so that an edit elsewhere changes nothing of the old one's text."""
    items = Items()
    return items.read_well([old]) == items.read_well([new])


def _timed(line: dict[str, Any], olds: Sequence[Fields], at: int | None) -> dict[str, Any]:
    """Return a line with the time of its message, if that was edited: no line of the message has it."""
    if at is None or any(read_time(value(old, "timestamp")) == at for old in olds):
        return line
    return line | {"timestamp": iso(at)}


def _recount(usage: Usage | None, spent: object) -> dict[str, Any]:
    """Return a count after an edit: the total is not its own, and unchanged values stay."""
    raw = UNSET if usage is None else usage.raw_json
    same = raw is not UNSET and jsontext.kind(raw) == "an object" and read_usage(raw) == usage
    return {"type": "token_count", "info": {"last_token_usage": raw if same else spent}}


def _kind(line: Fields) -> tuple[str, str]:
    """Return the role of a line for its message: an item, an event that repeats one, or usage."""
    kind = string(line, "type") or ""
    if "payload" not in line:
        return "response_item", ""
    said = string(inner(line, "payload"), "type") or ""
    if kind == "token_usage_record" or said == "token_count":
        return "event_msg", "count"
    return kind, "" if kind != "event_msg" else "item"


def _completed(old: Fields, new: Fields) -> Raw:
    """Return the payload of an event with a whole item, with another text."""
    if string(old, "type") != "item_completed":
        return jsontext.raw(new)
    item = inner(old, "item")
    content = [split(each) for each in listed(item, "content")]
    if "message" not in new or len([each for each in content if "text" in each]) != 1:
        return jsontext.raw(old)
    told = [each | {"text": new["message"]} if "text" in each else each for each in content]
    whole: dict[str, Any] = {**item, "content": told}
    return jsontext.raw({**old, "item": whole})


_FROM_LINES: Final = (
    "model", "usage", "response_id", "finish_reason", "finish_reason_raw", "source", "agent", "tool_name", "tags",
)  # fmt: skip
"""Fields of a message from the lines around its own: an edit of its own lines leaves them unchanged."""


def _with_other_lines(plain: Message, message: Message) -> Message:
    """Return the content of an edited line, with data of the message from other lines."""
    if type(plain) is not type(message):
        return plain
    told = {key: getattr(message, key) for key in _FROM_LINES if hasattr(message, key)}
    return structs.replace(plain, **told)


def _but(message: Message, known: dict[str, Any]) -> Message:
    return structs.replace(message, **known) if isinstance(message, AssistantMessage) else message


def _agent_part(part: Text | Opaque) -> Any:
    return {"type": "input_text", "text": part.text} if isinstance(part, Text) else part.raw_json


def _hides(message: Message) -> bool:
    """Return whether a marker hides all messages before it."""
    return isinstance(message, FlushMarker | RescueMarker) and scope_of(message) == "thread"


def _stands_in(message: Message) -> bool:
    """Return whether a message replaces compacted ones in a model's view."""
    return message.is_summary and not isinstance(message, FlushMarker | RescueMarker)


def _called(named: str, result: ToolMessage, call: ToolCall | None) -> ToolCall:
    """Return a call for a result to answer, of the type that decides how the result is written."""
    if call is None:
        return trusted.ToolCall(named, result.tool_name or "tool")
    if native_type(call) == "tool_search_call" and not call.provider_executed:
        return call
    return trusted.ToolCall(named, call.name or "tool", '""' if call.custom else "{}", custom=call.custom)


def _developer(message: Message) -> Message:
    """Return a system message as a developer's message, as a rollout has it."""
    return trusted.DeveloperMessage(content=message.content) if isinstance(message, SystemMessage) else message
