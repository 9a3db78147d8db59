r"""Hypothesis strategies: all messages, parts, tools and requests of the model, odd ones too.

Rules:

- What is generated can be written: ``decode(encode(value)) == value`` is promised for all of it.
- Text is odd: it holds lone surrogates, U+2028, NUL, controls, and characters beyond the BMP. One
  thing is left out: a lone high surrogate directly before a lone low one. JSON escapes both as
  ``\ud83d\ude00``, and that is how JSON spells the *one* character U+1F600. No reader can tell
  the two apart, so no writer can say the first.
- JSON values hold numbers as written (``5e-06``, ``2.0``, ``1e400``, 2**70), empty containers, odd
  keys. Media is small: size is a matter for benchmarks.
- ``newer=True`` adds what a newer version might write: unknown fields and unknown parts.

Needs ``hypothesis``.

Stability: experimental.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from hypothesis import strategies as st
from msgspec import UNSET, Raw

from palaver.core import events as events_, jsontext, messages, parts
from palaver.core.messages import Message
from palaver.core.request import OutputFormat, Request, Response, Settings, ToolChoice
from palaver.core.slow_path import WIRE, Extra
from palaver.core.tools import AnyTool, ProviderTool, Tool
from palaver.core.usage import Usage, UsagePass

_P = ParamSpec("_P")
_S = TypeVar("_S")

_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ODD: Final = ("", "\u2028", "\x00", "\ud83d", "\ude00x", "é\u0301", "\U0001f600", "a\r\nb", '"\\/')
_NUMBERS: Final = ("5e-06", "5E-6", "2.0", "1e400", "-0.0", "1E2", str(2**70), "0.1000", "-1")
_WIRES: Final = ("openai_chat", "anthropic_messages", "google_generate", "elsewhere")
_PROVIDER_NAMES: Final = (*_WIRES, "palaver", "")


def _built_once(build: Callable[_P, _S]) -> Callable[_P, _S]:
    """Give one strategy for the same arguments: hypothesis examines a new one for longer than it draws from it."""
    cached: Callable[..., _S] = functools.cache(build)
    return cast("Callable[_P, _S]", functools.wraps(build)(cached))


def _sayable(text: str) -> bool:
    return _PAIR.search(text) is None


@_built_once
def odd_text(max_size: int = 20) -> st.SearchStrategy[str]:
    """Any text that JSON can say, lone surrogates included."""
    everything = st.characters(codec=None)
    plain = st.text(everything, max_size=max_size).filter(_sayable)
    return st.sampled_from(_ODD) | plain


@_built_once
def numbers() -> st.SearchStrategy[str]:
    """Numbers as JSON text, in several spellings."""
    finite = st.floats(allow_nan=False, allow_infinity=False).map(repr)
    return st.sampled_from(_NUMBERS) | st.integers().map(str) | finite


@_built_once
def json_values(max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Any JSON value as Python; numbers are read from text, as a reader would."""
    leaves = st.none() | st.booleans() | numbers().map(jsontext.value) | odd_text(8)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text(6), inner, max_size=3),
        max_leaves=max_leaves,
    )


@_built_once
def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    """Any JSON object as a dict."""
    return st.dictionaries(odd_text(6), json_values(), max_size=3)


@_built_once
def json_texts() -> st.SearchStrategy[Raw]:
    """Any JSON value as kept text."""
    return json_values().map(jsontext.raw)


@_built_once
def provider_fields() -> st.SearchStrategy[Raw]:
    """A ``provider`` field: wire names, each with its fields."""
    table = st.dictionaries(st.sampled_from(_PROVIDER_NAMES), json_objects(), max_size=2)
    return table.map(jsontext.raw)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _unset(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(UNSET) | strategy


@_built_once
def _extras(*, newer: bool) -> st.SearchStrategy[Any]:
    if not newer:
        return st.just(UNSET)
    # No field of ours begins with an x, so none of these is known somewhere.
    names = odd_text(6).map("x-{}".format)
    table = st.dictionaries(names, json_values(4), min_size=1, max_size=2)
    return _unset(table.map(lambda fields: Extra(jsontext.raw(fields))))


def _part(*, newer: bool) -> dict[str, st.SearchStrategy[Any]]:
    return {"provider_json": _unset(provider_fields()), "extra": _extras(newer=newer)}


# -- parts -----------------------------------------------------------------------------------------


@_built_once
def media_sources(*, newer: bool = False) -> st.SearchStrategy[parts.MediaSource]:
    """Bytes, a URL, a file id or a content hash."""
    extra = _extras(newer=newer)
    inline = st.sampled_from(["", "iVBORw0KGgo=", "AAECAw", "_-8="]) | odd_text()
    return st.one_of(
        st.builds(parts.Inline, inline, extra=extra),
        st.builds(parts.Url, odd_text(), extra=extra),
        st.builds(parts.FileId, odd_text(), st.sampled_from(_WIRES), extra=extra),
        st.builds(parts.Blob, st.just("blob:" + "0" * 64), extra=extra),
    )


@_built_once
def citations(*, newer: bool = False) -> st.SearchStrategy[parts.Citation]:
    """Where a stretch of text comes from."""
    return st.builds(
        parts.Citation,
        wire=_maybe(st.sampled_from(_WIRES)),
        url=_maybe(odd_text()),
        title=_maybe(odd_text()),
        quote=_maybe(odd_text()),
        start=_maybe(st.integers()),
        end=_maybe(st.integers()),
        raw_json=_unset(json_texts()),
        extra=_extras(newer=newer),
    )


@_built_once
def texts(*, newer: bool = False) -> st.SearchStrategy[parts.Text]:
    """Text parts, with and without citations."""
    cited = st.lists(citations(newer=newer), max_size=2).map(tuple)
    return st.builds(parts.Text, odd_text(), cited, **_part(newer=newer))


@_built_once
def media(*, newer: bool = False) -> st.SearchStrategy[Any]:
    """Images, recordings, films and documents."""
    sources = media_sources(newer=newer)
    types = _maybe(st.sampled_from(["image/png", "application/pdf", ""]) | odd_text())
    plain = [st.builds(cls, sources, types, **_part(newer=newer)) for cls in (parts.Image, parts.Audio, parts.Video)]
    return st.one_of(*plain, st.builds(parts.File, sources, types, _maybe(odd_text()), **_part(newer=newer)))


@_built_once
def opaques(*, newer: bool = False) -> st.SearchStrategy[parts.Opaque]:
    """Unknown blocks; with ``newer``, those of a later version of this format too."""
    foreign = st.builds(parts.Opaque, odd_text(6), json_texts(), **_part(newer=newer))
    if not newer:
        return foreign.filter(lambda part: part.wire != WIRE)
    block = st.builds(_unknown_block, json_objects(), odd_text(6))
    ours = st.just(WIRE)
    return st.one_of(
        foreign,
        st.builds(parts.Opaque, ours, block),
        st.builds(parts.Opaque, ours, block | json_texts(), **_part(newer=newer)),
    )


def _unknown_block(fields: dict[str, Any], kind: str) -> Raw:
    return jsontext.raw({**fields, "type": f"x-{kind}"})


@_built_once
def tool_calls(*, newer: bool = False) -> st.SearchStrategy[parts.ToolCall]:
    """Calls: with JSON arguments in any spelling, empty, and free text."""
    spelled = json_objects().map(lambda fields: jsontext.encode(fields).decode())
    written = st.sampled_from(["", "{}", '{ "a" : 5e-06 }', '{"b":2.0,"a":1}', '"free text"'])
    return st.builds(
        parts.ToolCall,
        odd_text(),
        odd_text(),
        written | spelled,
        st.booleans(),
        st.booleans(),
        **_part(newer=newer),
    )


@_built_once
def user_parts(*, newer: bool = False) -> st.SearchStrategy[parts.UserPart]:
    """What a user message holds."""
    return texts(newer=newer) | media(newer=newer) | opaques(newer=newer)


@_built_once
def assistant_parts(*, newer: bool = False) -> st.SearchStrategy[parts.AssistantPart]:
    """What an assistant message holds."""
    common = _part(newer=newer)
    wire = st.sampled_from(_WIRES)
    proof = _maybe(odd_text())
    return st.one_of(
        user_parts(newer=newer),
        tool_calls(newer=newer),
        st.builds(parts.Reasoning, odd_text(), proof, proof, _maybe(wire), **common),
        st.builds(parts.Refusal, odd_text(), **common),
        st.builds(parts.MalformedToolCall, odd_text(), odd_text(), proof, _maybe(odd_text()), **common),
        st.builds(parts.ServerToolResult, odd_text(), json_texts(), wire, proof, st.booleans(), **common),
    )


@_built_once
def tool_parts(*, newer: bool = False) -> st.SearchStrategy[parts.ToolPart]:
    """What a tool message holds."""
    return user_parts(newer=newer) | st.builds(parts.Json, json_texts(), **_part(newer=newer))


# -- messages --------------------------------------------------------------------------------------


@_built_once
def usages(*, newer: bool = False) -> st.SearchStrategy[Usage]:
    """Token counters, reported or not."""
    count = _maybe(st.integers(min_value=0, max_value=2**40))
    counters = dict.fromkeys(("input", "cache_read", "cache_write", "output", "reasoning"), count)
    extra = _extras(newer=newer)
    one = st.builds(Usage, **counters, raw_json=_unset(json_texts()), extra=extra)
    one_pass = st.builds(UsagePass, kind=odd_text(), model=_maybe(odd_text()), usage=one)
    several = st.lists(one_pass, max_size=2).map(tuple)
    return st.builds(Usage, **counters, passes=several, raw_json=_unset(json_texts()), extra=extra)


def _fields(*, newer: bool) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "id": _maybe(odd_text()),
        "agent": _maybe(odd_text()),
        "mode": st.sampled_from([None, "user", "tool"]),
        "tags": st.lists(odd_text(6), max_size=2).map(tuple),
        "sent_at": _maybe(st.integers()),
        "source": _maybe(odd_text()),
        "verbatim": st.booleans(),
        "payload_json": _unset(json_texts()),
        "metadata_json": _unset(json_objects().map(jsontext.raw)),
        **_part(newer=newer),
    }


def _content(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(part, max_size=3).map(tuple)


@_built_once
def system_messages(*, newer: bool = False) -> st.SearchStrategy[messages.SystemMessage]:
    """System messages."""
    content = _content(texts(newer=newer) | opaques(newer=newer))
    return st.builds(messages.SystemMessage, content=content, **_fields(newer=newer))


@_built_once
def developer_messages(*, newer: bool = False) -> st.SearchStrategy[messages.DeveloperMessage]:
    """Developer messages."""
    content = _content(texts(newer=newer) | opaques(newer=newer))
    return st.builds(messages.DeveloperMessage, content=content, **_fields(newer=newer))


@_built_once
def user_messages(*, newer: bool = False) -> st.SearchStrategy[messages.UserMessage]:
    """User messages."""
    content = _content(user_parts(newer=newer))
    return st.builds(messages.UserMessage, content=content, **_fields(newer=newer))


_REASONS: Final = (None, "stop", "length", "tool_calls", "refusal", "pause", "error", "other")


@_built_once
def assistant_messages(*, newer: bool = False) -> st.SearchStrategy[messages.AssistantMessage]:
    """Assistant messages."""
    return st.builds(
        messages.AssistantMessage,
        content=_content(assistant_parts(newer=newer)),
        model=_maybe(odd_text()),
        usage=_maybe(usages(newer=newer)),
        finish_reason=st.sampled_from(_REASONS),
        finish_reason_raw=_unset(_maybe(odd_text())),
        response_id=_maybe(odd_text()),
        **_fields(newer=newer),
    )


@_built_once
def tool_messages(*, newer: bool = False) -> st.SearchStrategy[messages.ToolMessage]:
    """Tool messages, paired and freestanding."""
    return st.builds(
        messages.ToolMessage,
        content=_content(tool_parts(newer=newer)),
        tool_call_id=_maybe(odd_text()),
        tool_name=_maybe(odd_text()),
        is_error=st.booleans(),
        **_fields(newer=newer),
    )


@_built_once
def markers(*, newer: bool = False) -> st.SearchStrategy[messages.RescueMarker | messages.FlushMarker]:
    """Rescue and flush markers."""
    fields = _fields(newer=newer)
    return st.one_of(
        st.builds(messages.RescueMarker, reason=odd_text(), **fields),
        st.builds(messages.FlushMarker, reason=odd_text(), **fields),
    )


@_built_once
def any_messages(*, newer: bool = False) -> st.SearchStrategy[Message]:
    """Messages of every role."""
    return st.one_of(
        user_messages(newer=newer),
        assistant_messages(newer=newer),
        tool_messages(newer=newer),
        system_messages(newer=newer),
        developer_messages(newer=newer),
        markers(newer=newer),
    )


# -- requests --------------------------------------------------------------------------------------


@_built_once
def tools(*, newer: bool = False) -> st.SearchStrategy[AnyTool]:
    """Functions, free-text tools, and tools that a provider runs."""
    common = _part(newer=newer)
    return st.one_of(
        st.builds(
            Tool,
            odd_text(),
            _maybe(odd_text()),
            _unset(json_objects().map(jsontext.raw)),
            _maybe(st.booleans()),
            st.booleans(),
            **common,
        ),
        st.builds(ProviderTool, st.sampled_from(_WIRES), json_texts(), **common),
    )


@_built_once
def all_settings(*, newer: bool = False) -> st.SearchStrategy[Settings]:
    """What a caller may ask of a model."""
    extra = _extras(newer=newer)
    count = _maybe(st.integers(min_value=0))
    share = _maybe(st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 2))
    choice = st.builds(
        ToolChoice,
        st.sampled_from(["auto", "none", "required"]),
        st.lists(odd_text(), max_size=2).map(tuple),
        extra=extra,
    )
    output = st.builds(
        OutputFormat,
        st.sampled_from(["text", "json", "json_schema"]),
        _unset(json_objects().map(jsontext.raw)),
        _maybe(odd_text()),
        _maybe(odd_text()),
        _maybe(st.booleans()),
        **_part(newer=newer),
    )
    return st.builds(
        Settings,
        max_tokens=count,
        temperature=share,
        top_p=share,
        top_k=count,
        stop=_maybe(st.lists(odd_text(), max_size=2).map(tuple)),
        seed=_maybe(st.integers()),
        frequency_penalty=share,
        presence_penalty=share,
        tool_choice=_maybe(choice),
        parallel_tool_calls=_maybe(st.booleans()),
        output=_maybe(output),
        effort=_maybe(odd_text()),
        reasoning_tokens=count,
        stream=_maybe(st.booleans()),
        extra=extra,
    )


@_built_once
def requests(*, newer: bool = False) -> st.SearchStrategy[Request]:
    """Requests with a few messages and tools."""
    return st.builds(
        Request,
        messages=st.lists(any_messages(newer=newer), max_size=3).map(tuple),
        model=_maybe(odd_text()),
        tools=st.lists(tools(newer=newer), max_size=2).map(tuple),
        settings=all_settings(newer=newer),
        origin=_maybe(st.sampled_from(_WIRES)),
        **_part(newer=newer),
    )


@_built_once
def responses(*, newer: bool = False) -> st.SearchStrategy[Response]:
    """Responses, with and without alternatives."""
    answer = assistant_messages(newer=newer)
    return st.builds(
        Response,
        message=answer,
        alternatives=st.lists(answer, max_size=1).map(tuple),
        origin=_maybe(st.sampled_from(_WIRES)),
        **_part(newer=newer),
    )


# -- events of a stream ----------------------------------------------------------------------------


def _heads() -> st.SearchStrategy[Response]:
    """An answer of which no part is known."""
    bare = assistant_messages().map(lambda message: message.replace(content=(), usage=None))
    return st.builds(Response, bare, st.lists(bare, max_size=1).map(tuple), st.none() | st.just("openai_chat"))


def _beginnings() -> st.SearchStrategy[parts.AssistantPart]:
    """Parts as they begin, most of them empty."""
    return st.one_of(
        st.just(parts.Text("")),
        st.just(parts.Refusal("")),
        st.builds(parts.Reasoning, wire=st.none() | st.just("anthropic_messages")),
        st.builds(parts.ToolCall, odd_text(8), st.sampled_from(["find", ""]), st.just("")),
        assistant_parts(),
    )


@_built_once
def events(kind: type[events_.Event] | None = None) -> st.SearchStrategy[events_.Event]:
    """One event of a stream, of one kind or of any. Numbers are small, so that events meet."""
    index = st.integers(-1, 3)
    piece = st.one_of(odd_text(6), st.sampled_from(["", "{", '"a":1', "}", "\ud83d", "\ude00"]))
    deltas: dict[type, st.SearchStrategy[Any]] = {
        each: st.builds(each, index, piece)
        for each in (
            events_.TextDelta,
            events_.ReasoningDelta,
            events_.ArgumentsDelta,
            events_.SignatureDelta,
            events_.DataDelta,
        )
    }
    table: dict[type, st.SearchStrategy[Any]] = {
        events_.Start: st.builds(events_.Start, _heads()),
        events_.Update: st.builds(events_.Update, _heads()),
        events_.PartStart: st.builds(
            events_.PartStart,
            index,
            _beginnings(),
            st.integers(0, 2),
            st.sampled_from([(), (0,), (1,), (0, 1)]),
        ),
        **deltas,
        events_.CitationDelta: st.builds(events_.CitationDelta, index, citations()),
        events_.PartEnd: st.builds(events_.PartEnd, index, st.none() | assistant_parts()),
        events_.UsageUpdate: st.builds(events_.UsageUpdate, usages()),
        events_.Finish: st.builds(
            events_.Finish, st.sampled_from(["stop", "tool_calls", "length"]), _unset(odd_text(4)), st.integers(0, 1)
        ),
        events_.Failed: st.builds(
            events_.Failed,
            st.sampled_from(["torn", "corrupt", "provider"]),
            odd_text(8),
            _maybe(odd_text(4)),
            _unset(json_texts()),
        ),
        events_.ProviderEvent: st.builds(
            events_.ProviderEvent, st.sampled_from(["openai_chat", "other"]), odd_text(6), json_texts()
        ),
    }
    return st.one_of(*table.values()) if kind is None else table[kind]
