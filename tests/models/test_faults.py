"""What the caller sees of each fault; the table is also a page of the documentation."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from palaver.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    DecodeError,
    OverloadedError,
    PalaverError,
    ProviderError,
    RateLimitError,
    StreamError,
    TimedOutError,
    TransportError,
)
from palaver.models import Timeouts
from tests.models.asking import HI, Waits, at
from tests.models.faults import (
    HELLO,
    STOP,
    WHOLE,
    Step,
    delta,
    endless,
    error,
    resets,
    says,
    serve,
    sse,
    stalls,
    streams,
)

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/faults.md"
HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
PING = sse({"type": "ping"}, "ping")
BEGUN = b"".join(
    sse(data, data["type"])
    for data in (
        {"type": "message_start", "message": {"id": "a1", "type": "message", "role": "assistant", "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
    )
)


@dataclass
class Fault:
    """`seen` is the error's class, or the text of the answer; `kept` the text that came before the error."""

    name: str
    steps: tuple[Step, ...]
    seen: type[PalaverError] | str
    requests: int = 1
    kept: str = ""
    waits: tuple[float, ...] | None = None
    detail: str = ""
    stream: bool = True
    wire: str = "openai_chat"

    @property
    def row(self):
        what = "the answer" if isinstance(self.seen, str) else f"`{self.seen.__name__}`"
        detail = f" ({self.detail})" if self.detail else ""
        waits = " and ".join(f"{wait:g} s" for wait in self.waits or ()) or "–"
        return [self.name, what + detail, str(self.requests), waits, "what came" if self.kept else "–"]

    def sent(self, asked):
        """Whether so many requests came as were sent; a busy server has not read all that a client gave up on."""
        given_up = self.detail == "`first_token`"
        return asked <= self.requests if given_up else asked == (self.requests if self.steps else 0)

    @property
    def timeouts(self):
        """What is waited for in vain is waited for shortly; all else has time, on a busy machine too."""
        first = 0.2 if self.detail == "`first_token`" else 10.0
        silent = "silent" in self.name or "for ever" in self.name
        return Timeouts(connect=10, write=10, first_token=first, whole=first, idle=0.2 if silent else 10.0)


TWICE = (1.0, 2.0)
FAULTS = [
    Fault("nobody listens", (), TransportError, 3, waits=TWICE),
    Fault("reset before the headers", (resets,), TransportError, 3, waits=TWICE),
    Fault("reset once, then answered", (resets, streams(*HELLO)), "Hello", 2, waits=(1.0,)),
    Fault("no headers in time", (stalls,), TimedOutError, 3, waits=TWICE, detail="`first_token`"),
    Fault(
        "no headers in time, not streamed",
        (stalls,),
        TimedOutError,
        3,
        waits=TWICE,
        stream=False,
        detail="`first_token`",
    ),
    Fault(
        "headers, and no first token", (streams(end="stall"),), TimedOutError, 3, waits=TWICE, detail="`first_token`"
    ),
    Fault(
        "comments that keep alive, and no token",
        (endless(b": alive\n\n", every=0.03),),
        TimedOutError,
        3,
        waits=TWICE,
        detail="`first_token`",
    ),
    Fault(
        "pings, and no token",
        (endless(PING, every=0.03),),
        TimedOutError,
        3,
        waits=TWICE,
        wire="anthropic_messages",
        detail="`first_token`",
    ),
    Fault("reset within the first event", (streams(delta("Hel")[:20], end="reset"),), TransportError, 3, waits=TWICE),
    Fault(
        "reset after a token",
        (streams(delta("Hel"), end="reset"),),
        StreamError,
        kept="Hel",
        detail="`torn`, from `TransportError`",
    ),
    Fault(
        "closed within a chunk, after a token",
        (streams(delta("Hel"), end="cut"),),
        StreamError,
        kept="Hel",
        detail="`torn`, from `TransportError`",
    ),
    Fault(
        "silent after a token",
        (streams(delta("Hel"), end="stall"),),
        StreamError,
        kept="Hel",
        detail="`torn`, from `TimedOutError`",
    ),
    Fault(
        "comments for ever after a token",
        (endless(delta("Hel"), b": alive\n\n", every=0.03),),
        StreamError,
        kept="Hel",
        detail="`torn`, from `TimedOutError`",
    ),
    Fault(
        "pings for ever after a token",
        (endless(BEGUN, PING, every=0.03),),
        StreamError,
        kept="Hel",
        wire="anthropic_messages",
        detail="`torn`, from `TimedOutError`",
    ),
    Fault(
        "ended without an end mark, after a token", (streams(delta("Hel")),), StreamError, kept="Hel", detail="`torn`"
    ),
    Fault("ended before a token", (streams(), streams(*HELLO)), "Hello", 2, waits=(1.0,)),
    Fault("always ended before a token", (streams(),), StreamError, 3, waits=TWICE, detail="`torn`"),
    Fault("no end mark behind a finish reason", (streams(delta("Hello"), STOP),), "Hello"),
    Fault("reset behind a finish reason", (streams(delta("Hello"), STOP, end="reset"),), "Hello"),
    Fault("silent behind a finish reason", (streams(delta("Hello"), STOP, end="stall"),), "Hello"),
    Fault("connection left open behind the end mark", (streams(*HELLO, end="stall"),), "Hello"),
    Fault(
        "a frame that is no JSON, before a token", (streams(sse("{oops")), streams(*HELLO)), "Hello", 2, waits=(1.0,)
    ),
    Fault(
        "a frame that is no JSON, after a token",
        (streams(delta("Hel"), sse("{oops")),),
        StreamError,
        kept="Hel",
        detail="`corrupt`",
    ),
    Fault("429 without Retry-After", (says(error("slow down"), 429),), RateLimitError, 3, waits=TWICE),
    Fault(
        "429, `Retry-After: 5`",
        (says(error("slow down"), 429, retry_after="5"), streams(*HELLO)),
        "Hello",
        2,
        waits=(5.0,),
    ),
    Fault(
        "429, `Retry-After: 400`",
        (says(error("slow down"), 429, retry_after="400"), streams(*HELLO)),
        "Hello",
        2,
        waits=(300.0,),
    ),
    Fault(
        "429, `Retry-After` as a date 20 s ahead",
        (says(error("slow down"), 429, retry_after="Thu, 09 Oct 2025 08:53:40 GMT"), streams(*HELLO)),
        "Hello",
        2,
        waits=(20.0,),
    ),
    Fault(
        "429 for want of credit",
        (says(error("You exceeded your current quota", code="insufficient_quota"), 429),),
        ProviderError,
    ),
    Fault("500, then answered", (says(error("oops"), 500), streams(*HELLO)), "Hello", 2, waits=(1.0,)),
    Fault("503, then answered", (says(b"", 503), says(WHOLE)), "Hello", 2, waits=(1.0,), stream=False),
    Fault("529, always", (says(OVERLOADED, 529),), OverloadedError, 3, waits=TWICE, wire="anthropic_messages"),
    Fault("502, a page of HTML", (says(HTML, 502, content_type="text/html"),), OverloadedError, 3, waits=TWICE),
    Fault("408", (says(error("too slow"), 408),), ProviderError, 3, waits=TWICE),
    Fault("400", (says(error("no such field"), 400),), ProviderError),
    Fault(
        "400, more than the model can read",
        (says(error("too long", code="context_length_exceeded"), 400),),
        ContextOverflowError,
    ),
    Fault("401", (says(error("Incorrect API key provided"), 401),), AuthenticationError),
    Fault("403", (says(error("not yours"), 403),), AuthenticationError),
    Fault("404", (says(error("no such model"), 404),), ProviderError),
    Fault("413", (says(b"<html>", 413, content_type="text/html"),), ContextOverflowError),
    Fault("an error of a megabyte", (says(b"x" * 1_000_000, 400, content_type="text/plain"),), ProviderError),
    Fault(
        "an error inside a 200",
        (says(error("Overloaded", type="overloaded_error")),),
        OverloadedError,
        3,
        waits=TWICE,
        stream=False,
    ),
    Fault(
        "an error inside a 200 where a stream was asked for",
        (says(error("oops", type="server_error")), streams(*HELLO)),
        "Hello",
        2,
        waits=(1.0,),
    ),
    Fault(
        "an error as the first event",
        (streams(sse(OVERLOADED, "error")),),
        OverloadedError,
        3,
        waits=TWICE,
        wire="anthropic_messages",
    ),
    Fault(
        "an error after a token",
        (streams(delta("Hel"), sse(error("oops", type="server_error"))),),
        StreamError,
        kept="Hel",
        detail="`provider`",
    ),
    Fault(
        "a token and an error in one piece",
        (streams(delta("Hel") + sse(error("oops", type="server_error"))),),
        StreamError,
        kept="Hel",
        detail="`provider`",
    ),
    Fault(
        "a prompt that is too long, after a token",
        (streams(delta("Hel"), sse(error("too long", code="context_length_exceeded"))),),
        StreamError,
        kept="Hel",
        detail="`provider`, from `ContextOverflowError`",
    ),
    Fault("401, reset within its body", (says(b"", 401, content_length="9"),), AuthenticationError),
    Fault("200, no JSON", (says(b"{oops"),), DecodeError, stream=False),
    Fault("200, no JSON, where a stream was asked for", (says(b"{oops"),), DecodeError),
    Fault("200, a text where a stream was asked for", (says(b"hello there", content_type="text/plain"),), DecodeError),
    Fault("a redirect", (says(b"", 307, location="https://elsewhere.example/v1?key=sk-1"),), ProviderError),
    Fault("200, a page of HTML", (says(HTML, content_type="text/html"),), DecodeError),
    Fault("200, a page of HTML, not streamed", (says(HTML, content_type="text/html"),), DecodeError, stream=False),
    Fault("a whole answer where a stream was asked for", (says(WHOLE),), "Hello"),
    Fault("a stream called `text/plain`", (streams(*HELLO, content_type="text/plain"),), "Hello"),
    Fault("a stream called `application/json`", (streams(*HELLO, content_type="application/json"),), "Hello"),
]


@pytest.mark.anyio
@pytest.mark.row("KAI-22")
@pytest.mark.row("KAI-24")
@pytest.mark.row("D10")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.share(2)
async def test_what_the_caller_sees(fault, anyio_backend):
    await must_be_seen(fault)


async def must_be_seen(fault, **more):
    """Ask a server with a fault; ``more`` are fields of the model."""
    waits, given, notices, seen = Waits(), "", [], None
    with serve(*fault.steps) as server:
        answer = (
            at(server.url, waits, wire=fault.wire, timeouts=fault.timeouts, **more)
            .session()
            .ask(HI, stream=fault.stream, on_notice=notices.append)
        )
        try:
            async with answer:
                async for event in answer:
                    given += getattr(event, "text", "")
                reply = await answer.finish()
        except PalaverError as error:
            seen = error
        asked = len(server.asked)
    if isinstance(fault.seen, str):
        assert seen is None
        assert (given, reply.response.message.text, reply.attempts) == (fault.seen, fault.seen, fault.requests)
    else:
        assert type(seen) is fault.seen
        assert given == fault.kept
        assert len(str(seen)) < 400
    assert fault.sent(asked)
    assert tuple(waits) == (fault.waits or ())
    assert [(notice.kind, notice.attempt, notice.wait) for notice in notices] == [
        ("retry", number, wait) for number, wait in enumerate(waits, 1)
    ]
    if fault.kept:
        assert seen.response.message.text == fault.kept
        assert seen.response.finish_reason == "error"
        assert answer.so_far == seen.response
    if fault.detail:
        phase = getattr(seen, "phase", None) or getattr(seen, "kind", None)
        cause = f", from `{type(seen.__cause__).__name__}`" if seen.__cause__ is not None and fault.kept else ""
        assert f"`{phase}`{cause}" == fault.detail


def test_the_page_says_what_happens():
    table = PAGE.read_text("utf-8").partition("| fault |")[2].partition("\n\n")[0]
    told = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    assert told == [fault.row for fault in FAULTS]
