"""Streams of Chat Completions written by hand, each beside the same answer unstreamed."""

from __future__ import annotations

import json
from typing import Any

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m-1"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


def sse(*chunks: Any, done: bool = True) -> bytes:
    """Return the bytes of a stream; a text is a frame as it is."""
    frames = [each if isinstance(each, str) else f"data: {json.dumps(each, separators=(',', ':'))}" for each in chunks]
    return "".join(f"{frame}\n\n" for frame in [*frames, *(["data: [DONE]"] if done else [])]).encode()


def chunk(
    delta: Any = None, finish: Any = None, *, index: int = 0, beside: Any = None, **fields: Any
) -> dict[str, Any]:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish, **(beside or {})}
    return {**HEAD, "choices": [choice], **fields}


def usage(**counts: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [], "usage": counts or USAGE}


def calls(*deltas: Any, finish: Any = None) -> dict[str, Any]:
    return chunk({"tool_calls": list(deltas)}, finish)


def opened(name: str, arguments: str = "", *, index: Any = 0, call_id: Any = "c0", **more: Any) -> dict[str, Any]:
    """Return the first delta of a call; ``None`` values are left out."""
    call = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in {**call, **more}.items() if value is not None}


def more(arguments: str, *, index: Any = 0, **others: Any) -> dict[str, Any]:
    call = {"index": index, "function": {"arguments": arguments}, **others}
    return {key: value for key, value in call.items() if value is not None}


def whole(message: Any, finish: Any = "stop", *, beside: Any = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **(beside or {})}
    return {**HEAD, "object": "chat.completion", "choices": [choice], **fields}


def called(name: str, arguments: str, call_id: str = "c0", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


ROLE = chunk({"role": "assistant", "content": "", "refusal": None})
NO_TEXT = chunk({"role": "assistant", "content": None})
STOP = chunk({}, "stop")
CALLED = chunk({}, "tool_calls")
CLEAR = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
HIDDEN = {"type": "reasoning.encrypted", "index": 0, "id": "rs_1", "format": "openai-responses-v1"}
ODD = "\u2028é\U0001f600\r\n\x00"
PAGE = {
    "type": "url_citation",
    "url_citation": {"url": "https://a.test", "title": "A", "start_index": 0, "end_index": 2},
}
PAGE_2 = {"type": "url_citation", "url_citation": {"url": "https://b.test", "title": "B"}}
THINK = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}

SAME: dict[str, tuple[bytes, dict[str, Any]]] = {
    "text": (
        sse(ROLE, chunk({"content": "Hel"}), chunk({"content": "lo"}), STOP, usage()),
        whole({"content": "Hello", "refusal": None}, usage=USAGE),
    ),
    "odd text": (sse(ROLE, *[chunk({"content": c}) for c in ODD], STOP), whole({"content": ODD, "refusal": None})),
    "a surrogate pair in two pieces": (
        sse(NO_TEXT, chunk({"content": "\ud83d"}), chunk({"content": "\ude00"}), STOP),
        whole({"content": "\U0001f600"}),
    ),
    "an empty answer": (sse(ROLE, STOP), whole({"content": "", "refusal": None})),
    "no content": (sse(NO_TEXT, STOP), whole({"content": None})),
    "content that never comes": (sse(chunk({"role": "assistant"}), STOP), whole({})),
    "no role": (sse(chunk({"content": "a"}), STOP), whole({"content": "a"})),
    "a role in every delta, or null": (
        sse(
            chunk({"role": "assistant", "content": "a"}),
            chunk({"role": None, "content": "b"}),
            chunk({"role": ""}),
            STOP,
        ),
        whole({"content": "ab"}),
    ),
    "another role": (sse(chunk({"role": "model", "content": "a"}), STOP), whole({"role": "model", "content": "a"})),
    "empty and null deltas": (
        sse(
            ROLE,
            {**HEAD, "choices": [{"index": 0, "delta": None, "finish_reason": None}]},
            {**HEAD, "choices": [{"index": 0, "finish_reason": None}]},
            chunk({}),
            chunk({"content": ""}),
            chunk({"content": "a"}),
            chunk({"content": ""}),
            STOP,
        ),
        whole({"content": "a", "refusal": None}),
    ),
    "noise": (
        sse(
            ": OPENROUTER PROCESSING",
            "retry: 10",
            "data:",
            chunk({"content": "a"}, obfuscation="x", p="abc", usage=None),
            ": again",
            chunk({"content": "b"}, obfuscation="yy"),
            STOP,
        ),
        whole({"content": "ab"}),
    ),
    "no end mark": (sse(chunk({"content": "a"}), STOP, done=False), whole({"content": "a"})),
    "no finish": (
        sse({**HEAD, "choices": [{"index": 0, "delta": {"content": "a"}}]}),
        {
            **HEAD,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}}],
        },
    ),
    "a finish that is null to the end": (sse(chunk({"content": "a"})), whole({"content": "a"}, None)),
    "a finish that is empty": (
        sse(calls(opened("f", "{}"), finish="")),
        whole({"tool_calls": [called("f", "{}")]}, ""),
    ),
    "a finish given twice": (sse(chunk({"content": "a"}, "length"), chunk({}, "stop")), whole({"content": "a"})),
    "a finish that is repeated with null": (
        sse(chunk({"content": "a"}, "length"), chunk({}, None), chunk({}, "")),
        whole({"content": "a"}, "length"),
    ),
    "text behind the finish": (sse(chunk({"content": "a"}, "stop"), chunk({"content": "b"})), whole({"content": "ab"})),
    "an unknown finish": (sse(chunk({"content": "a"}, "tired")), whole({"content": "a"}, "tired")),
    "a refusal": (
        sse(ROLE, chunk({"refusal": "I "}), chunk({"refusal": "won't"}), STOP),
        whole({"content": "", "refusal": "I won't"}),
    ),
    "an empty refusal": (
        sse(chunk({"content": "a", "refusal": ""}), chunk({"content": "", "refusal": ""}), STOP),
        whole({"content": "a", "refusal": ""}),
    ),
    "reasoning_content": (
        sse(
            chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
            chunk({"content": None, "reasoning_content": "hm "}),
            chunk({"content": None, "reasoning_content": "ok"}),
            chunk({"content": "a", "reasoning_content": None}),
            STOP,
        ),
        whole({"content": "a", "reasoning_content": "hm ok"}),
    ),
    "reasoning": (
        sse(
            ROLE,
            chunk({"reasoning": "hm ", "channel": "analysis"}),
            chunk({"reasoning": "ok", "channel": "analysis"}),
            chunk({"content": "a"}),
            STOP,
        ),
        whole({"content": "a", "refusal": None, "reasoning": "hm ok", "channel": "analysis"}),
    ),
    "reasoning that is empty, or null": (
        sse(chunk({"content": "a", "reasoning_content": "", "reasoning": None}), STOP),
        whole({"content": "a", "reasoning_content": "", "reasoning": None}),
    ),
    "both fields of reasoning at once": (
        sse(*[chunk({"reasoning": c, "reasoning_content": c}) for c in "ab"], chunk({"content": "c"}), STOP),
        whole({"content": "c", "reasoning": "ab", "reasoning_content": "ab"}),
    ),
    "both fields of reasoning, the wrong one first": (
        sse(chunk({"reasoning": "a"}), chunk({"reasoning_content": "b"}), chunk({"content": "c"}), STOP),
        whole({"content": "c", "reasoning": "a", "reasoning_content": "b"}),
    ),
    "reasoning behind the text": (
        sse(chunk({"content": "c"}), chunk({"reasoning": "a"}), STOP),
        whole({"content": "c", "reasoning": "a"}),
    ),
    "reasoning that is no text": (
        sse(chunk({"content": "c", "reasoning": {"a": 1}}), chunk({"reasoning": {"b": 2}}), STOP),
        whole({"content": "c", "reasoning": {"a": 1, "b": 2}}),
    ),
    "reasoning details": (
        sse(
            chunk(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning": "hm ",
                    "reasoning_details": [{**CLEAR, "text": "hm "}],
                }
            ),
            chunk({"content": "", "reasoning": "ok", "reasoning_details": [{**CLEAR, "text": "ok"}]}),
            chunk({"reasoning_details": [{**CLEAR, "signature": "si"}]}),
            chunk({"reasoning_details": [{**CLEAR, "signature": "gn"}, {**HIDDEN, "data": "en"}]}),
            chunk({"reasoning_details": [{**HIDDEN, "data": "c"}]}),
            chunk({"content": "a"}),
            STOP,
        ),
        whole(
            {
                "content": "a",
                "reasoning": "hm ok",
                "reasoning_details": [{**CLEAR, "text": "hm ok", "signature": "sign"}, {**HIDDEN, "data": "enc"}],
            }
        ),
    ),
    "reasoning details that are summaries": (
        sse(
            chunk(
                {"reasoning_details": [{"type": "reasoning.summary", "summary": "a", "index": 0, "signature": None}]}
            ),
            chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": "b", "index": 0}]}),
            chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": "c", "index": 1}]}),
            STOP,
        ),
        whole(
            {
                "reasoning_details": [
                    {"type": "reasoning.summary", "summary": "ab", "index": 0, "signature": None},
                    {"type": "reasoning.summary", "summary": "c", "index": 1},
                ]
            }
        ),
    ),
    "reasoning details behind reasoning alone": (
        sse(
            chunk({"reasoning": "hm"}),
            chunk({"content": "a"}),
            chunk({"reasoning_details": [{**CLEAR, "text": "hm"}, {**HIDDEN, "data": "enc"}]}),
            STOP,
        ),
        whole(
            {
                "content": "a",
                "reasoning": "hm",
                "reasoning_details": [{**CLEAR, "text": "hm"}, {**HIDDEN, "data": "enc"}],
            }
        ),
    ),
    "reasoning details without an index": (
        sse(
            chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}),
            chunk(
                {
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "b"},
                        {"type": "reasoning.text", "text": "c"},
                    ]
                }
            ),
            chunk({"reasoning_details": [{"type": "reasoning.text", "text": "", "signature": "s"}]}),
            STOP,
        ),
        whole(
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "ab"},
                    {"type": "reasoning.text", "text": "c", "signature": "s"},
                ]
            }
        ),
    ),
    "reasoning details of one index and two ids": (
        sse(
            chunk({"reasoning_details": [{**HIDDEN, "data": "x"}]}),
            chunk({"reasoning_details": [{**HIDDEN, "id": "rs_2", "data": "y"}]}),
            STOP,
        ),
        whole({"reasoning_details": [{**HIDDEN, "data": "x"}, {**HIDDEN, "id": "rs_2", "data": "y"}]}),
    ),
    "reasoning details that are none": (
        sse(chunk({"content": "a", "reasoning_details": []}), STOP),
        whole({"content": "a", "reasoning_details": []}),
    ),
    "a list of thinking and text": (
        sse(
            ROLE,
            chunk({"content": [THINK]}),
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": " ok"}], "closed": True}]}),
            chunk({"content": [{"type": "text", "text": "a"}]}),
            chunk({"content": "b"}),
            chunk({"content": ""}),
            STOP,
        ),
        whole(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm ok"}], "closed": True},
                    {"type": "text", "text": "ab"},
                ],
                "refusal": None,
            }
        ),
    ),
    "text, then a list": (
        sse(
            chunk({"content": "a"}),
            chunk({"content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}),
            chunk({"content": [{"type": "image_url", "image_url": "https://a.test/b.png"}]}),
            chunk({"content": [{"type": "new", "x": [1]}]}),
            chunk({"content": [{"type": "refusal", "refusal": "no"}]}),
            chunk({"content": [{"type": "refusal", "refusal": "pe"}]}),
            chunk({"content": "d"}),
            STOP,
        ),
        whole(
            {
                "content": [
                    {"type": "text", "text": "ab"},
                    {"type": "text", "text": "c"},
                    {"type": "image_url", "image_url": "https://a.test/b.png"},
                    {"type": "new", "x": [1]},
                    {"type": "refusal", "refusal": "nope"},
                    {"type": "text", "text": "d"},
                ]
            }
        ),
    ),
    "a list of one text": (
        sse(chunk({"content": "a"}), chunk({"content": []}), STOP),
        whole({"content": [{"type": "text", "text": "a"}]}),
    ),
    "an empty list": (sse(chunk({"content": []}), STOP), whole({"content": []})),
    "thinking that holds a reference": (
        sse(
            chunk(
                {
                    "content": [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "ref", "ids": [1]}]}
                    ]
                }
            ),
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}]}),
            STOP,
        ),
        whole(
            {
                "content": [
                    {
                        "type": "thinking",
                        "thinking": [
                            {"type": "text", "text": "a"},
                            {"type": "ref", "ids": [1]},
                            {"type": "text", "text": "b"},
                        ],
                    }
                ]
            }
        ),
    ),
    "annotations": (
        sse(chunk({"content": "ab"}), chunk({"annotations": [PAGE]}), chunk({"annotations": [PAGE_2]}), STOP),
        whole({"content": "ab", "annotations": [PAGE, PAGE_2]}),
    ),
    "annotations that are said again": (
        sse(chunk({"content": "ab", "annotations": [PAGE]}), chunk({"annotations": [PAGE, PAGE_2]}), STOP),
        whole({"content": "ab", "annotations": [PAGE, PAGE_2]}),
    ),
    "annotations of no text": (sse(chunk({"annotations": [PAGE]}), STOP), whole({"annotations": [PAGE]})),
    "empty annotations": (
        sse(chunk({"content": "a", "annotations": []}), STOP),
        whole({"content": "a", "annotations": []}),
    ),
    "a recording": (
        sse(
            NO_TEXT,
            chunk({"audio": {"id": "audio_1", "transcript": "he"}}),
            chunk({"audio": {"id": "audio_1", "data": "AAAA"}}),
            chunk({"audio": {"data": "BBBB", "transcript": "llo"}}),
            chunk({"audio": {"expires_at": 7}}),
            STOP,
        ),
        whole(
            {
                "content": None,
                "audio": {"id": "audio_1", "data": "AAAABBBB", "transcript": "hello", "expires_at": 7},
            }
        ),
    ),
    "empty things that are none": (
        sse(
            chunk(
                {
                    "content": "a",
                    "audio": {"id": "", "data": ""},
                    "function_call": {"name": "", "arguments": ""},
                    "tool_calls": None,
                }
            ),
            STOP,
        ),
        whole(
            {
                "content": "a",
                "audio": {"id": "", "data": ""},
                "function_call": {"name": "", "arguments": ""},
                "tool_calls": None,
            }
        ),
    ),
    "no calls": (sse(chunk({"content": "a", "tool_calls": []}), STOP), whole({"content": "a", "tool_calls": []})),
    "no recording, no old call": (
        sse(chunk({"content": "a", "audio": None, "function_call": None, "annotations": None}), STOP),
        whole({"content": "a", "audio": None, "function_call": None, "annotations": None}),
    ),
    "an old call": (
        sse(
            chunk({"function_call": {"name": "f", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"a"'}}),
            chunk({"function_call": {"arguments": ": 1}"}}),
            chunk({}, "function_call"),
        ),
        whole({"function_call": {"name": "f", "arguments": '{"a": 1}'}}, "function_call"),
    ),
    "a call": (
        sse(NO_TEXT, calls(opened("f")), calls(more('{"a"')), calls(more(": 1E2 }")), CALLED),
        whole({"content": None, "tool_calls": [called("f", '{"a": 1E2 }')]}, "tool_calls"),
    ),
    "text and a call": (
        sse(ROLE, calls(opened("f", "{")), chunk({"content": "late"}), calls(more("}")), CALLED),
        whole({"content": "late", "refusal": None, "tool_calls": [called("f", "{}")]}, "tool_calls"),
    ),
    "a call that goes on without a name, under an id that is none": (
        sse(
            calls(opened("f", '{"a":')),
            calls({"index": 0, "id": "null", "function": {"name": "", "arguments": " 1"}}),
            calls({"id": "null", "function": {"name": "", "arguments": "}"}}),
            CALLED,
        ),
        whole({"tool_calls": [called("f", '{"a": 1}')]}, "tool_calls"),
    ),
    "a call without arguments": (
        sse(calls(opened("f")), CALLED),
        whole({"tool_calls": [called("f", "")]}, "tool_calls"),
    ),
    "a call whose arguments are an object": (
        sse(calls({**opened("f"), "function": {"name": "f", "arguments": {"a": 1}}}), CALLED),
        whole({"tool_calls": [{**called("f", ""), "function": {"name": "f", "arguments": {"a": 1}}}]}, "tool_calls"),
    ),
    "a call whose arguments are null": (
        sse(calls({**opened("f"), "function": {"name": "f", "arguments": None}}), CALLED),
        whole({"tool_calls": [{**called("f", ""), "function": {"name": "f", "arguments": None}}]}, "tool_calls"),
    ),
    "a call whose arguments are absent": (
        sse(calls({**opened("f"), "function": {"name": "f"}}), CALLED),
        whole({"tool_calls": [{**called("f", ""), "function": {"name": "f"}}]}, "tool_calls"),
    ),
    "a call whose arguments are no JSON": (
        sse(calls(opened("f", '{"a"')), CALLED),
        whole({"tool_calls": [called("f", '{"a"')]}, "tool_calls"),
    ),
    "a call with a field of its own": (
        sse(
            calls(opened("f", "{}", extra_content={"google": {"thought_signature": "s"}})),
            calls(more("", x_late=1)),
            CALLED,
        ),
        whole(
            {"tool_calls": [called("f", "{}", extra_content={"google": {"thought_signature": "s"}}, x_late=1)]},
            "tool_calls",
        ),
    ),
    "a custom call": (
        sse(
            calls({"index": 0, "id": "c0", "type": "custom", "custom": {"name": "sql", "input": ""}}),
            calls({"index": 0, "custom": {"input": 'select "a'}}),
            calls({"index": 0, "custom": {"input": '"\n'}}),
            CALLED,
        ),
        whole(
            {"tool_calls": [{"id": "c0", "type": "custom", "custom": {"name": "sql", "input": 'select "a"\n'}}]},
            "tool_calls",
        ),
    ),
    "two calls, interleaved": (
        sse(
            calls(opened("f"), opened("g", index=1, call_id="c1")),
            calls(more("{", index=1)),
            calls(more('{"a":')),
            calls(more("}", index=1), more("1}")),
            CALLED,
        ),
        whole({"tool_calls": [called("f", '{"a":1}'), called("g", "{}", "c1")]}, "tool_calls"),
    ),
    "two calls, the second first": (
        sse(calls(opened("g", "{}", index=1, call_id="c1")), calls(opened("f", "{}")), CALLED),
        whole({"tool_calls": [called("f", "{}"), called("g", "{}", "c1")]}, "tool_calls"),
    ),
    "index 0 for every call": (
        sse(
            calls(opened("f", '{"a":1}')),
            calls(opened("f", '{"a":', call_id="c1")),
            calls(more("2}")),
            calls(opened("g", "{}", call_id="c2")),
            CALLED,
        ),
        whole(
            {"tool_calls": [called("f", '{"a":1}'), called("f", '{"a":2}', "c1"), called("g", "{}", "c2")]},
            "tool_calls",
        ),
    ),
    "index 0 for every call, and no ids": (
        sse(
            calls(opened("f", '{"a":1}', call_id=None)),
            calls(opened("g", '{"a":2}', call_id=None)),
            calls(opened("g", '{"a":3}', call_id=None)),
            CALLED,
        ),
        whole(
            {
                "tool_calls": [
                    {"type": "function", "function": {"name": name, "arguments": text}}
                    for name, text in (("f", '{"a":1}'), ("g", '{"a":2}'), ("g", '{"a":3}'))
                ]
            },
            "tool_calls",
        ),
    ),
    "calls by id, without index": (
        sse(
            calls(opened("f", '{"a":', index=None), opened("g", "{", index=None, call_id="c1")),
            calls({"id": "c0", "function": {"arguments": "1}"}}),
            calls({"id": "c1", "function": {"arguments": "}"}}),
            CALLED,
        ),
        whole({"tool_calls": [called("f", '{"a":1}'), called("g", "{}", "c1")]}, "tool_calls"),
    ),
    "calls with neither index nor id": (
        sse(
            calls(opened("f", '{"a":', index=None, call_id=None)),
            calls(more("1}", index=None)),
            calls(opened("f", '{"a":2}', index=None, call_id=None)),
            calls(more("", index=None)),
            calls(opened("g", "{}", index=None, call_id=None)),
            CALLED,
        ),
        whole(
            {
                "tool_calls": [
                    {"type": "function", "function": {"name": name, "arguments": text}}
                    for name, text in (("f", '{"a":1}'), ("f", '{"a":2}'), ("g", "{}"))
                ]
            },
            "tool_calls",
        ),
    ),
    "calls without index and type, each whole": (
        sse(
            calls({"id": "abcdefghi", "function": {"name": "f", "arguments": "{}"}}),
            calls({"id": "abcdefghj", "function": {"name": "f", "arguments": "{}"}}, finish="tool_calls"),
        ),
        whole(
            {
                "tool_calls": [
                    {"id": "abcdefghi", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "abcdefghj", "function": {"name": "f", "arguments": "{}"}},
                ]
            },
            "tool_calls",
        ),
    ),
    "a name in pieces": (
        sse(
            calls(opened("get_")),
            calls({"index": 0, "function": {"name": "wea"}}),
            calls({"index": 0, "function": {"name": "ther", "arguments": ""}}),
            calls(more("{}")),
            CALLED,
        ),
        whole({"tool_calls": [called("get_weather", "{}")]}, "tool_calls"),
    ),
    "a name that is said again, or empty": (
        sse(
            calls(opened("f")),
            calls({"index": 0, "function": {"name": "f", "arguments": ""}}),
            calls({"index": 0, "id": "c0", "function": {"name": "f", "arguments": "{"}}),
            calls({"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": '"a":'}}),
            calls({"index": 0, "function": {"name": "f", "arguments": "1}"}}),
            calls({"index": 0, "function": {"name": "f", "arguments": ""}}),
            calls({"index": 0, "id": None, "function": {"name": None, "arguments": None}}),
            CALLED,
        ),
        whole({"tool_calls": [called("f", '{"a":1}')]}, "tool_calls"),
    ),
    "an id that comes late": (
        sse(
            calls(opened("f", "{", call_id=None)),
            calls(more('"a":1')),
            calls({"index": 0, "id": "c0"}),
            calls(more("}")),
            CALLED,
        ),
        whole({"tool_calls": [called("f", '{"a":1}')]}, "tool_calls"),
    ),
    "an id that comes late, without index": (
        sse(
            calls({"type": "function", "function": {"name": "f", "arguments": "{"}}),
            calls({"id": "c0", "function": {"arguments": "}"}}),
            CALLED,
        ),
        whole({"tool_calls": [called("f", "{}")]}, "tool_calls"),
    ),
    "an id that never comes": (
        sse(calls(opened("f", "{", call_id=None)), calls(more("}")), CALLED),
        whole({"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls"),
    ),
    "log probabilities": (
        sse(
            chunk(
                {"content": "a"}, beside={"logprobs": {"content": [{"token": "a", "logprob": -5e-06}], "refusal": None}}
            ),
            chunk(
                {"content": "b"}, beside={"logprobs": {"content": [{"token": "b", "logprob": -1.0}], "refusal": None}}
            ),
            chunk({}, "stop", beside={"logprobs": None}),
        ),
        whole(
            {"content": "ab"},
            beside={
                "logprobs": {
                    "content": [{"token": "a", "logprob": -5e-06}, {"token": "b", "logprob": -1.0}],
                    "refusal": None,
                }
            },
        ),
    ),
    "log probabilities that are null": (
        sse(chunk({"content": "a"}, beside={"logprobs": None}), chunk({"content": "b"}, "stop")),
        whole({"content": "ab"}, beside={"logprobs": None}),
    ),
    "fields of the answer": (
        sse(
            chunk(
                {"content": "a"}, provider="P", service_tier=None, system_fingerprint=None, citations=["https://a.test"]
            ),
            chunk(
                {"content": "b"}, provider="P", service_tier="default", citations=["https://a.test", "https://b.test"]
            ),
            chunk({}, "stop", beside={"native_finish_reason": "end"}, system_fingerprint="fp", created=1700000009),
            {**usage(), "time_info": {"queue_time": 0.1}, "x_new": 1},
        ),
        whole(
            {"content": "ab"},
            beside={"native_finish_reason": "end"},
            provider="P",
            service_tier="default",
            system_fingerprint="fp",
            citations=["https://a.test", "https://b.test"],
            usage=USAGE,
            time_info={"queue_time": 0.1},
            x_new=1,
        ),
    ),
    "fields of the message": (
        sse(
            chunk({"content": "a", "x_text": "on", "x_list": [1], "x_number": 1, "x_object": {"a": {"b": {"c": 1}}}}),
            chunk({"x_text": "e", "x_list": [2], "x_number": 2, "x_object": {"a": {"d": 2}}}),
            STOP,
        ),
        whole(
            {
                "content": "a",
                "x_text": "one",
                "x_list": [1, 2],
                "x_number": 2,
                "x_object": {"a": {"b": {"c": 1}, "d": 2}},
            }
        ),
    ),
    "tools that the provider ran": (
        sse(
            chunk(
                {
                    "executed_tools": [
                        {"index": 0, "type": "search", "arguments": "{}", "search_results": {"results": []}}
                    ]
                }
            ),
            chunk({"executed_tools": [{"index": 0, "type": "search", "arguments": "{}", "output": "o"}, {"index": 1}]}),
            chunk({"content": "a"}),
            STOP,
        ),
        whole(
            {
                "content": "a",
                "executed_tools": [
                    {"index": 0, "type": "search", "arguments": "{}", "search_results": {"results": []}, "output": "o"},
                    {"index": 1},
                ],
            }
        ),
    ),
    "Azure": (
        sse(
            {
                "id": "",
                "object": "",
                "created": 0,
                "model": "",
                "choices": [],
                "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}],
            },
            {**HEAD, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}]},
            {
                "id": "",
                "object": "",
                "created": 0,
                "model": "",
                "choices": [
                    {"index": 0, "finish_reason": None, "content_filter_results": {"hate": {"filtered": False}}}
                ],
            },
            STOP,
        ),
        whole(
            {"content": "a"},
            beside={"content_filter_results": {"hate": {"filtered": False}}},
            prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}],
        ),
    ),
    "usage in every chunk": (
        sse(
            chunk({"content": "a"}, usage={"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}),
            chunk({"content": "b"}, usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}),
            STOP,
            usage(),
        ),
        whole({"content": "ab"}, usage=USAGE),
    ),
    "usage whose later word says less": (
        sse(
            chunk({"content": "a"}, usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0}}),
            STOP,
            usage(completion_tokens=5, prompt_tokens_details={"cached_tokens": 4}, completion_tokens_details=None),
        ),
        whole(
            {"content": "a"},
            usage={
                **USAGE,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
                "completion_tokens_details": None,
            },
        ),
    ),
    "usage that is no object": (sse(chunk({"content": "a"}, "stop", usage=[])), whole({"content": "a"}, usage=[])),
    "a whole answer in one chunk": (
        sse({**whole({"content": "a", "tool_calls": [called("f", "{}")]}, "tool_calls"), "usage": USAGE}),
        whole({"content": "a", "tool_calls": [called("f", "{}")]}, "tool_calls", usage=USAGE),
    ),
}
"""A stream, and its whole answer."""

CHOICES = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"role": "assistant", "content": ""}, index=1),
    chunk({"content": "b"}, index=1),
    chunk({"content": "a"}),
    chunk({"tool_calls": [opened("f", "{}")]}, index=1),
    chunk({}, "stop"),
    chunk({"content": "c"}, index=1),
    chunk({}, "tool_calls", index=1),
    usage(),
)
