"""The beginning of a file, and what detection reads from it.

Rules:

- A transcript format examines a ``Head`` and returns a ``Detection`` or nothing; it never raises. ``confidence``: 1.0
  for a header that names the format, 0.9 for fields that no other format has, 0.7 for a shape, 0.5 for a shape that a
  provider's request has too, and less for a fallback.
- The name and the first 64 KiB, decompressed, are examined. A longer line or document is read up to that point
  (``stream.partial``).

The features that a file of a format must have: detection compares this table before it imports a format.

A signature is a list of rules, one of which must hold. A rule is a list of features that must all be present; of
features joined by ``|``, one. ``features`` collects those of a file in one pass:

- ``key``: a key of a record. Records are the objects on the first lines, the items of the list that the document is,
  and the object that it is. ``key[]`` and ``key{}``: its value is a list, an object. ``type=x,y``, ``role=x``: its
  value in lower case is one of these. ``type=UPPER``: a type in capitals.
- ``**key``, ``**type=x``: the same at any depth, also in records.
- ``<...>``: of the bytes, or of the name. See ``_of_bytes``.

A signature is necessary, not sufficient: the format's own ``detector`` decides.

Stability: experimental.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.stream.partial_json import PartialJSON

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


# -- signatures ------------------------------------------------------------------------------------


_SIGNATURES: Final = {
    "agent_swarm_kit": ("<[]>", "role agentName mode content"),
    "kairo": ("<[]>", "role toolCalls|toolName|metadata{}"),
    "kairo_a2a": ("<[]>", "role contents[]"),
    "codebuff": (
        "<[]>",
        "sessionState|mainAgentState|messageHistory",
        "role content[]",
        "role=tool content{}",
        "role sentAt|tags|timeToLive|keepDuringTruncation|keepLastTags",
    ),
    "deepagents": ("<[]>", "role=human,ai", "role=tool,system id content[]"),
    "deepagents_log": ("role content timestamp",),
    "claude_code": ("type uuid sessionId", "type sessionId|leafUuid|messageId"),
    "codex": (
        "type=session_meta payload{}",
        "type payload timestamp",
        "id timestamp instructions",
        "<rollout> type",
    ),
    "openai_messages": (
        "messages[] **role",
        "role content|tool_calls",
        "conversations[] **from **value",
        "custom_id body|response",
        "preferred_output input",
        "instruction output|chosen",
        "chosen rejected",
        "prompt completion",
        "<[[> **role",
        "<list> <lines>",
    ),
    "pi": ("type=session id", "type id parentId timestamp"),
    "atif": ("schema_version", "steps[] **step_id"),
    "openai_agents": (
        "$schemaVersion generated_items|original_input",
        "__enc__ payload",
        "type=message role content",
        "type=reasoning summary",
        "type=function_call call_id name",
        "type=function_call_output output",
        (
            "type=custom_tool_call,custom_tool_call_output,file_search_call,web_search_call,computer_call,"
            "computer_call_output,image_generation_call,code_interpreter_call,local_shell_call,local_shell_call_output,"
            "shell_call,shell_call_output,apply_patch_call,apply_patch_call_output,mcp_list_tools,mcp_call,"
            "mcp_approval_request,mcp_approval_response,tool_search_call,tool_search_output,item_reference,"
            "compaction,compaction_summary"
        ),
    ),
    "vercel_ui": ("role|messages[] **parts|**toolInvocations", "role|messages[] **id **createdAt **content"),
    "langchain": (
        "**type=constructor **lc",
        (
            "**type=human,humanchunk,humanmessage,humanmessagechunk,ai,aichunk,aimessage,aimessagechunk,"
            "remove,removechunk,removemessage,removemessagechunk **content|**data"
        ),
        (
            "**type=system,systemchunk,systemmessage,systemmessagechunk,tool,toolchunk,toolmessage,toolmessagechunk,"
            "function,functionchunk,functionmessage,functionmessagechunk,chat,chatchunk,chatmessage,chatmessagechunk "
            "**data|**additional_kwargs|**response_metadata|**invalid_tool_calls|**usage_metadata|**tool_call_chunks"
            "|**example **content"
        ),
    ),
    "otel_genai": (
        "<gen_ai>",
        "<list> role parts[]",
        "<list> type=text,reasoning,blob content",
        "<list> type=tool_call name",
        "<list> type=tool_call_response response|result",
        "<list> type=server_tool_call server_tool_call",
        "<list> type=server_tool_call_response server_tool_call_response",
        "<list> type=file file_id",
        "<list> type=uri uri",
    ),
    "opencode": ("info{}", "<exporting>"),
    "gemini_cli": ("sessionId projectHash", "$set|$rewindTo", "type=gemini id content"),
    "qwen_code": ("uuid parentUuid **parts|systemPayload",),
    "inspect": ("<zip>", "eval{}", "<eval>"),
    "ag_ui": (
        "type=UPPER",
        "<data:>",
        "messages[] threadId",
        "role id toolCalls|encryptedValue|subagentRunId|activityType|toolCallId",
        "role=reasoning,activity id content",
    ),
    "acp": ("**sessionUpdate", "**jsonrpc **method"),
    "hf_sts": ("type=session harness id",),
    "chatgpt": ("mapping{}",),
    "claude_ai": ("chat_messages[]",),
    "aider": ("<markdown>",),
    "specstory": ("<markdown>",),
    "swe_agent": ("trajectory[] **action **observation", "history[] **role **agent"),
    "mini_swe_agent": ("trajectory_format", "info{} **mini_version|**instance_cost"),
    "openhands": (
        "**source **action **args",
        "**source **observation **content",
        "**source **kind **timestamp",
        "instance_id metadata{} **agent_class",
    ),
    "langsmith": ("**run_type **inputs",),
    "langfuse": ("**traceId **startTime", "**timestamp **sessionId", "trace{} observations[]"),
    "litellm_logs": ("**call_type **startTime",),
    "anthropic_batches": ("custom_id result{}|params{}|request{}", "requests[] **custom_id"),
    "cline": (
        "<list> role ts|modelInfo|metrics|isSummary|condenseId|condenseParent|truncationId|truncationParent",
        "<conversation_history> role",
        "messages[] agent sessionId updated_at",
    ),
    "vscode_chat": ("requests[] requesterUsername|responderUsername|initialLocation|requesterAvatarIconUri",),
    "cursor": ("role=user,assistant message{}",),
    "goose": ("working_dir", "role created content[]"),
    "amp": ("messages[] id v|created|env", "messages[] id **toolUseID"),
    "droid": ("type=session_start id cwd", "type=message message{}"),
    "copilot_cli": ("type=session.start data{}", "type data{} id timestamp"),
}


def _choices(term: str) -> frozenset[str]:
    """Return the alternative features of a term of a rule."""
    found: list[str] = []
    for each in term.split("|"):
        key, equals, words = each.partition("=")
        found += [key + equals + word for word in words.split(",")]
    return frozenset(found)


_RULES: Final = {
    name: [[_choices(term) for term in rule.split()] for rule in rules] for name, rules in _SIGNATURES.items()
}
_MOST: Final = 24


def candidates(head: Head, names: Iterable[str]) -> Iterator[str]:
    """Yield the formats among ``names`` that a file may have. A format without a signature always is one."""
    found = features(head)
    for name in names:
        rules = _RULES.get(name)
        if rules is None or any(not any(found.isdisjoint(choice) for choice in rule) for rule in rules):
            yield name


def features(head: Head) -> set[str]:
    """Return the features of a file, as the module describes them."""
    found = set(_of_bytes(head))
    document: object = head.document
    values = [*head.values, *(cast("list[object]", document)[:_MOST] if isinstance(document, list) else (document,))]
    records = [cast("dict[str, Any]", each) for each in values if isinstance(each, dict)]
    for record in records:
        found.update(_of_record(record))
    _add_nested(values, found)
    return found


def _of_record(record: dict[str, Any]) -> Iterator[str]:
    for key, value in record.items():
        yield key
        if isinstance(value, str):
            if key in {"type", "role"}:
                yield f"{key}={value.lower()}"
                if key == "type" and value and value.upper() == value:
                    yield "type=UPPER"
        elif isinstance(value, dict):
            yield key + "{}"
        elif isinstance(value, list):
            yield key + "[]"


def _add_nested(values: Collection[object], found: set[str]) -> None:
    """Add the keys and types at any depth."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(cast("list[object]", value))
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            found.update(["**" + key for key in fields])
            kind = fields.get("type")
            if isinstance(kind, str):
                found.add("**type=" + kind.lower())
            waiting.extend(fields.values())


def _of_bytes(head: Head) -> Iterator[str]:
    """Yield features that keys do not show."""
    data = head.data
    if data.startswith(b"PK"):
        yield "<zip>"
        return
    start = data.lstrip()
    if data.strip() == b"[]":
        yield "<[]>"
    if data.strip(b"\xef\xbb\xbf ,\t\r\n").startswith(b"["):
        yield "<list>"
    document: object = head.document
    if document is None:  # several lines, or not JSON
        yield "<lines>"
    elif isinstance(document, list) and document and isinstance(document[0], list):
        yield "<[[>"
    if b'"gen_ai.' in data:
        yield "<gen_ai>"
    if b'"eval"' in data:  # also when the document contains NaN, and is not JSON
        yield "<eval>"
    if start.startswith((b"# ", b"#### ", b"> ", b"<!-- ")):
        yield "<markdown>"
    if start.startswith(b"Exporting session"):
        yield "<exporting>"
    if data.startswith(b"data:") or b"\ndata:" in data:  # an event stream
        yield "<data:>"
    if head.name.endswith(("api_conversation_history.json", "claude_messages.json")):
        yield "<conversation_history>"
    if "rollout-" in head.name:
        yield "<rollout>"


# -- detection -------------------------------------------------------------------------------------


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZE: Final = 1 << 16
MARGIN: Final = 0.05
_LINES: Final = 24
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_NOTHING: Final[Mapping[str, Any]] = {}


class Detection(Struct, frozen=True):
    """A possible format of a file: the module describes ``confidence``. ``version`` is that in the file, if any."""

    confidence: float
    version: str | None = None


class Detected(Struct, frozen=True):
    """A transcript format that a file may have."""

    file_format: str
    version: str | None
    confidence: float


class Head:
    """The beginning of a file: its ``name``, if any, and ``data``, its first bytes, decompressed."""

    def __init__(self, data: bytes, name: str = "") -> None:
        """Set the first bytes of a file; more than ``SIZE`` of them are ignored."""
        self.name = name
        packed = data[:SIZE]
        raw = _unpacked(packed) if packed.startswith(_ZSTD) else packed
        self.data = raw.removeprefix(b"\xef\xbb\xbf")
        self.whole = len(data) < SIZE and not packed.startswith(_ZSTD)

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """The values on the first lines, as far as they go; ``None`` for a line that is not JSON."""
        pieces = self.data.split(b"\n")[:_LINES]
        return tuple([_value(piece) for piece in pieces if piece.strip()])

    @cached_property
    def lines(self) -> tuple[Mapping[str, Any], ...]:
        """The objects on the first lines; the last one may be incomplete. Other values are skipped."""
        return tuple([cast("dict[str, Any]", each) for each in self.values if isinstance(each, dict)])

    @cached_property
    def first(self) -> Mapping[str, Any]:
        """The object on the first line that has one; empty when there is none."""
        return self.lines[0] if self.lines else _NOTHING

    @cached_property
    def document(self) -> Any:
        """The whole as one value, as far as it goes; ``None`` when it is several lines of JSON, or not JSON."""
        text = self.data.strip(b" \t\r\n")
        if b"\n" not in text and text:
            return self.values[0] if self.values else _value(text)
        return _value(self.data)

    @cached_property
    def items(self) -> tuple[Mapping[str, Any], ...]:
        """The objects of a document that is a list; empty for any other."""
        document: object = self.document
        listed = cast("list[object]", document)[:_LINES] if isinstance(document, list) else ()
        return tuple([found for each in cast("list[object]", listed) if (found := _object(each))])

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The fields of a document that is an object; empty for any other."""
        return _object(self.document)


def word(fields: Mapping[str, Any], key: str) -> str:
    """Return the text under a key, to compare with the known ones; empty for a value of any other type."""
    found = fields.get(key)
    return found if isinstance(found, str) else ""


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else _NOTHING


def _value(data: bytes) -> Any:
    """Return a value, as far as it goes; ``None`` for a text that is not JSON."""
    try:
        return jsontext.value(data)
    except (PalaverError, UnicodeDecodeError, RecursionError):
        reading = PartialJSON()
        reading.feed(data.decode("utf-8", "replace"))
        return None if reading.error is not None else reading.value


def _unpacked(data: bytes) -> bytes:
    try:
        return zstd.ZstdDecompressor().decompress(data, max_length=SIZE)
    except (zstd.ZstdError, EOFError):
        return b""
