"""The HTTP client of a gateway: it tells every fault of a server as the one of all other models does."""

import asyncio
import gzip

import pytest

from palaver.core.errors import DecodeError, MessageError, TransportError
from palaver.gateway.client import AiohttpSender
from palaver.models import Timeouts
from palaver.models.endpoint import HttpCall
from tests.models.faults import WHOLE, says, serve
from tests.models.test_faults import FAULTS, must_be_seen

KEY = "sk-secret"


def asked(url, *chunks, **headers):
    """Send once, and return the response's status and body."""

    async def send():
        async with AiohttpSender() as http:
            call = HttpCall("POST", f"{url}/v1/m?key={KEY}", {"authorization": f"Bearer {KEY}", **headers}, chunks)
            response = await http.send(call, Timeouts())
            body, _ = await response.read(1 << 30)
            await response.aclose()
            return response.status, body

    return asyncio.run(send())


@pytest.mark.row("KAI-22", "GW-28")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.share(2)
def test_each_fault_is_told_as_httpx_tells_it(fault):
    async def check():
        async with AiohttpSender() as http:
            await must_be_seen(fault, http=http)

    asyncio.run(check())


def test_a_large_body_arrives_whole_with_its_length():
    chunks = [b"a" * 10, b"b" * 1_000_000, b"c"]
    with serve(says(WHOLE)) as server:
        asked(server.url, *chunks)
        (request,) = server.asked
    assert request.body == b"".join(chunks)
    assert request.headers["content-length"] == str(len(request.body))
    assert "transfer-encoding" not in request.headers


def test_a_redirect_is_handed_back_and_not_followed():
    with serve(says(b"elsewhere", 307, location="http://127.0.0.1:1/")) as server:
        assert asked(server.url, b"{}") == (307, b"elsewhere")
        assert len(server.asked) == 1


def test_a_body_that_is_compressed_unasked_is_refused():
    with serve(says(gzip.compress(b"{}"), content_encoding="gzip")) as server:
        with pytest.raises(DecodeError, match="compressed with gzip, which was not requested"):
            asked(server.url, b"{}")
        assert server.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("bad", ["line\r\nbreak", "\N{SNOWMAN}"])
def test_a_header_that_cannot_be_sent_is_not_shown(bad):
    with serve(says(WHOLE)) as server, pytest.raises(MessageError) as caught:
        asked(server.url, b"{}", **{"x-key": KEY + bad})
    assert KEY not in str(caught.value)


def test_errors_name_the_host_only():
    with pytest.raises(TransportError) as caught:
        asked("http://127.0.0.1:1", b"{}")
    assert "127.0.0.1:1" in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_client_that_is_not_open_says_so():
    call = HttpCall("POST", "http://127.0.0.1:1/", {}, ())
    with pytest.raises(MessageError, match="not open"):
        asyncio.run(AiohttpSender().send(call, Timeouts()))
