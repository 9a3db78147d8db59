"""Streams of Gemini, written for the tests, each with its unstreamed answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from palaver import wires
from palaver.core.errors import StreamError
from palaver.core.events import (
    ArgumentsDelta,
    CitationDelta,
    DataDelta,
    Event,
    Finish,
    PartEnd,
    PartStart,
    ReasoningDelta,
    SignatureDelta,
    Start,
    TextDelta,
)
from palaver.core.request import Response

Body = dict[str, Any]
WIRE = wires.get("google_generate")
DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta, SignatureDelta, DataDelta, CitationDelta)


def body(*parts: Any, finish: str | None = None, index: int | None = 0, usage: Any = None, **around: Any) -> Body:
    """Return one event. Fields of the candidate begin with ``c_``, all others are the answer's."""
    candidate: Body = {"content": {"parts": list(parts), "role": "model"}}
    candidate |= {key[2:]: each for key, each in around.items() if key[:2] == "c_"}
    if finish is not None:
        candidate["finishReason"] = finish
    if index is not None:
        candidate["index"] = index
    found: Body = {"candidates": [candidate]}
    if usage is not None:
        found["usageMetadata"] = usage
    found |= {"modelVersion": "gemini-3-flash", "responseId": "r1"}
    return found | {key: each for key, each in around.items() if key[:2] != "c_"}


def text(said: str, **more: Any) -> Body:
    return {"text": said, **more}


def thought(said: str, **more: Any) -> Body:
    return {"text": said, "thought": True, **more}


def call(name: str, args: Any, call_id: str | None = None, **more: Any) -> Body:
    return {"functionCall": {"name": name, "args": args} | ({} if call_id is None else {"id": call_id}), **more}


def usage(prompt: int, candidates: int | None = None, **more: Any) -> Body:
    return {"promptTokenCount": prompt, **({} if candidates is None else {"candidatesTokenCount": candidates}), **more}


GROUNDING = {"webSearchQueries": ["q"], "groundingChunks": [{"web": {"uri": "https://a.example", "title": "a"}}]}

STREAMS: dict[str, list[Body]] = {
    "text": [
        body(text("Hel"), usage=usage(5)),
        body(text("lo \u2028 “wörld” 👋"), usage=usage(5, 3, thoughtsTokenCount=7)),
        body(text("."), finish="STOP", usage=usage(4, 4, serviceTier="standard")),
    ],
    "text then an empty one": [body(text("a")), body(text("b")), body(text(""), finish="STOP", usage=usage(1, 2))],
    "text, then its signature": [
        body(text("a")),
        body(text("b")),
        body(text("", thoughtSignature="c2ln"), finish="STOP"),
    ],
    "signed neighbours": [body(text("a", thoughtSignature="QQ==")), body(text("b"), text("c")), body(finish="STOP")],
    "thoughts": [
        body(thought("I ")),
        body(thought("think"), text("So")),
        body(text(" it is")),
        body(thought("signed", thoughtSignature="c2ln")),
        body(thought(""), finish="STOP"),
    ],
    "a thought that is none": [body({"text": "a", "thought": False}), body(text("b")), body(finish="STOP")],
    "calls": [
        body(text("I call.")),
        body(call("f", {"a": [1.0, 5e-06]}, thoughtSignature="c2ln"), call("f", {})),
        body(call("g", {"b": "ü"}, "id1"), {"functionCall": {"name": "h"}}),
        body(text(""), finish="STOP"),
    ],
    "a call behind the finish": [body(text("a"), finish="STOP"), body(call("f", {}))],
    "text behind the finish": [
        body(text("a"), finish="MAX_TOKENS", usage=usage(1)),
        body(text("b"), usage=usage(1, 2)),
    ],
    "a finish in every event": [body(text("a"), finish="STOP"), body(text("b"), finish="STOP")],
    "unexpected call": [body(call("f", {}), finish="UNEXPECTED_TOOL_CALL", c_finishMessage="no such tool")],
    "nothing in it": [body(finish="STOP", usage=usage(3))],
    "no content": [{"candidates": [{"finishReason": "STOP"}], "modelVersion": "m"}],
    "content without parts": [
        {"candidates": [{"content": {}}]},
        {
            "candidates": [
                {"content": {"role": "model"}, "finishReason": "SAFETY", "safetyRatings": [{"blocked": True}]}
            ]
        },
    ],
    "one part, not in a list": [
        {"candidates": [{"content": {"role": "model", "parts": text("a")}, "finishReason": "STOP"}]}
    ],
    "a blocked prompt": [
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage(9), "modelVersion": "m"}
    ],
    "a blocked prompt, no candidates": [{"promptFeedback": {"blockReason": "OTHER"}, "candidates": []}],
    "late fields": [
        body(
            text("a"),
            c_urlContextMetadata={"urlMetadata": []},
            c_safetyRatings=[{"category": "HARM_CATEGORY_HARASSMENT"}],
            usage=usage(55),
        ),
        body(
            text("b"),
            c_safetyRatings=[{"category": "HARM_CATEGORY_HATE_SPEECH"}],
            createTime="2026-01-01T00:00:00Z",
            usage=usage(55, 4),
        ),
        body(
            text("c"), c_groundingMetadata=GROUNDING, usage=usage(257, 8, toolUsePromptTokenCount=3), unknown={"x": 1}
        ),
        body(text(""), finish="STOP", c_groundingMetadata={}, c_avgLogprobs=-0.5, usage={"trafficType": "ON_DEMAND"}),
    ],
    "usage that says less and less": [
        body(text("a"), usage=usage(5, 1, thoughtsTokenCount=3)),
        body(text("b"), usage=usage(5, 2)),
        body(text("c"), usage={"candidatesTokenCount": 3}),
        body(text("d"), usage={"candidatesTokenCount": 4, "promptTokenCount": None, "cachedContentTokenCount": None}),
        body(text("e"), finish="STOP"),
    ],
    "two candidates": [
        {
            "candidates": [
                {"content": {"parts": [text("a")]}, "index": 0},
                {"content": {"parts": [text("x")]}, "index": 1},
            ],
            "responseId": "r1",
        },
        body(text("y"), index=1),
        body(text("b"), index=0, finish="STOP"),
        body(call("f", {}), text("z", thoughtSignature="c2ln"), index=1, finish="STOP", usage=usage(2, 4)),
    ],
    "candidates without index": [
        {"candidates": [{"content": {"parts": [text("a")]}}, {"content": {"parts": [call("f", {})]}}]},
        {"candidates": [{"finishReason": "STOP"}, {"finishReason": "STOP"}]},
    ],
    "snake case": [
        {
            "candidates": [{"content": {"parts": [{"function_call": {"name": "f", "args": {}}}], "role": "model"}}],
            "usage_metadata": {"prompt_token_count": 4},
            "model_version": "m",
            "response_id": "r",
        },
        {
            "candidates": [{"finish_reason": "STOP"}],
            "usage_metadata": {"candidates_token_count": 2},
        },
    ],
    "code that Google ran": [
        body({"executableCode": {"language": "PYTHON", "code": "1+1"}}),
        body({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}),
        body({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1", "args": {"q": 1}}, "thoughtSignature": "QQ=="}),
        body({"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1", "response": {"r": 1}}}),
        body(text("Two."), finish="STOP"),
    ],
    "media and blocks nobody knows": [
        body({"inlineData": {"mimeType": "image/png", "data": "aGk="}}, {"hologram": {"z": 3}}),
        body(text("a", partMetadata={"k": 1}), {"text": None}, finish="SOMETHING_NEW"),
    ],
    "odd fields": [
        {"candidates": None, "usageMetadata": None, "responseId": "r9"},
        {"candidates": [{"content": None, "index": None, "finishReason": None}], "usageMetadata": usage(1)},
        {"candidates": [{"content": {"role": "assistant", "parts": None, "more": 1}}], "usageMetadata": None},
        {"candidates": [{"content": {"parts": [text("a")]}, "finishReason": "STOP"}], "modelVersion": None},
    ],
}


# -- bytes, and back -------------------------------------------------------------------------------


def dumped(found: Any) -> bytes:
    """Return JSON in the style of bodies that are given parsed, so that arguments have the same text."""
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def event(found: Any) -> bytes:
    return b"data: " + dumped(found) + b"\r\n\r\n"


def sse(bodies: Iterable[Any]) -> bytes:
    return b"".join(map(event, bodies))


def array(bodies: Iterable[Any]) -> bytes:
    return b"[" + b"\r\n,\r\n".join(map(dumped, bodies)) + b"\r\n]"


def decoded(*chunks: bytes) -> tuple[list[Event], Response | StreamError]:
    decoder = WIRE.stream_decoder()
    events: list[Event] = []
    for chunk in chunks:
        events += decoder.feed(chunk)
    events += decoder.close()
    assert decoder.close() == []
    try:
        return events, decoder.finish()
    except StreamError as error:
        return events, error


def response(*chunks: bytes) -> Response:
    found = decoded(*chunks)[1]
    assert isinstance(found, Response), found
    return found


def error(*chunks: bytes) -> StreamError:
    found = decoded(*chunks)[1]
    assert isinstance(found, StreamError), found
    return found


def follow_the_rules(events: list[Event]) -> None:
    """Check the rules for the events of every stream that did not fail."""
    assert isinstance(events[0], Start)
    assert sum(isinstance(each, Start) for each in events) == 1
    begun: set[int] = set()
    ended: set[int] = set()
    choices: set[int] = set()
    for place, each in enumerate(events):
        match each:
            case PartStart(index=index, choice=choice):
                assert index == len(begun)
                begun.add(index)
                choices.add(choice)
            case PartEnd(index=index):
                assert index in begun - ended
                ended.add(index)
            case Finish():
                assert begun == ended
                assert {type(later) for later in events[place:]} == {Finish}
            case _ if isinstance(each, DELTAS):
                assert each.index in begun - ended
                assert isinstance(each, CitationDelta) or each.text
            case _:
                pass
    finished = [each.choice for each in events if isinstance(each, Finish)]
    assert len(finished) == len(set(finished))
    assert set(finished) >= (choices or {0})


# -- the same answer, not streamed -----------------------------------------------------------------


def joined(bodies: Iterable[Body]) -> Body:
    """Join the events of an answer by hand, by the rules of the module."""
    whole: Body = {}
    candidates: dict[int, Body] | None = None
    for found in bodies:
        around = dict(found)
        listed = around.pop("candidates", None)
        for name in ("usageMetadata", "usage_metadata"):
            if isinstance(around.get(name), dict):
                before = whole.get(name) or {}
                new = around.pop(name).items()
                whole[name] = before | {key: each for key, each in new if each is not None or key not in before}
        _learn(whole, around)
        if listed is None:
            continue
        candidates = {} if candidates is None else candidates
        for position, candidate in enumerate(listed):
            index = candidate.get("index")
            _join(candidates.setdefault(position if index is None else index, {}), dict(candidate))
    if candidates is not None:
        whole["candidates"] = [candidates[index] for index in sorted(candidates)]
    return whole


def _learn(held: Body, new: Body) -> None:
    held.update({key: each for key, each in new.items() if key not in held or each not in (None, {}, [])})


def _join(held: Body, new: Body) -> None:
    content = new.pop("content", None)
    _learn(held, new)
    if content is None:
        held.setdefault("content", None) if "content" in new else None
        return
    content = dict(content)
    parts = content.pop("parts", None)
    known = held.get("content") or {}
    held["content"] = known
    if isinstance(parts, dict):
        known["parts"] = parts
    elif parts is not None:
        gathered = known.setdefault("parts", [])
        for part in parts:
            append(gathered, part)
    _learn(known, content)


def append(parts: list[Body], part: Body) -> None:
    plain = set(part) <= {"text", "thought"} and isinstance(part.get("text"), str) and part.get("thought", True) is True
    if plain and not part["text"]:
        return
    before = parts[-1] if parts else {}
    if plain and set(before) == set(part) and "text" in before and before.get("thought") == part.get("thought"):
        parts[-1] = {**before, "text": before["text"] + part["text"]}
    else:
        parts.append(part)
