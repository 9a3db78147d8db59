"""Who may ask a front, and from where."""

import json

import pytest
from starlette.requests import HTTPConnection
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from palaver.core.errors import SwarmError
from palaver.serve.http.access import Access, check_json, is_loopback
from palaver.serve.http.errors import Refused

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-101")]

PATH = "/v1/clients/ann/messages"
TOKENS = {"ann": "ann's", "bob": "bob's"}


def asked(server=("127.0.0.1", 8000), **headers):
    """A request with these headers; a name's underscore is a hyphen."""
    sent = {"host": "localhost:8000", **headers}
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in sent.items()]
    return HTTPConnection({"type": "http", "headers": raw, "server": server})


def refused(access, *where, **headers):
    with pytest.raises(Refused) as error:
        access.check_origin(asked(*where, **headers))
    return error.value.status, error.value.code


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:8000", "localhost."])
def test_loopback_names_are_answered(host):
    Access().check_origin(asked(host=host))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "", "localhost.evil.example", "x@localhost", "localhost:80:80", "a b"]
)
def test_another_host_is_refused_without_a_token(host):
    assert refused(Access(), host=host) == (421, "host")


def test_a_host_that_is_named_is_answered_and_no_other():
    access = Access(hosts=["Boats.example"], token="s3cret")
    access.check_origin(asked(host="boats.example:443"))
    access.check_origin(asked(host="localhost"))
    assert refused(access, host="other.example") == (421, "host")


def test_any_host_is_answered_with_a_token():
    Access(token="s3cret").check_origin(asked(host="boats.example"))


@pytest.mark.parametrize("address", ["192.168.1.4", "10.0.0.1", "2001:db8::1", "::ffff:192.168.1.4"])
def test_an_address_that_others_reach_is_not_answered_without_a_token(address):
    assert refused(Access(), (address, 80)) == (403, "forbidden")
    Access(token="s3cret").check_origin(asked((address, 80)))
    Access(hosts=["boats.example"]).check_origin(asked((address, 80)))  # somebody in front asks who it is


@pytest.mark.parametrize("server", [None, ("127.0.0.7", 80), ("::1", 80), ("::ffff:127.0.0.1", 80), ("/run/x", None)])
def test_an_address_of_this_machine_is_answered(server):
    Access().check_origin(asked(server))


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9000", "http://localhost"])
@pytest.mark.parametrize("token", [None, "s3cret"])
def test_a_foreign_origin_is_refused(origin, token):
    assert refused(Access(token=token), origin=origin) == (403, "origin")


def test_the_servers_own_origin_and_those_that_are_allowed_are_answered():
    access = Access(origins=["https://app.example"])
    for origin in ("http://localhost:8000", "https://localhost:8000", "https://app.example"):
        access.check_origin(asked(origin=origin))
    assert refused(access, origin="https://app.example.evil") == (403, "origin")


@pytest.mark.parametrize(("site", "answered"), [("cross-site", 0), ("same-site", 0), ("same-origin", 1), ("none", 1)])
def test_a_foreign_page_is_refused_also_without_an_origin(site, answered):
    if answered:
        Access().check_origin(asked(sec_fetch_site=site))
    else:
        assert refused(Access(), sec_fetch_site=site) == (403, "origin")


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/a2a+json"])
def test_json_is_taken(kind):
    check_json(asked(content_type=kind))


@pytest.mark.parametrize(
    "headers", [{}, {"content_type": "text/plain"}, {"content_type": "text/plain;application/json"}]
)
def test_another_type_is_refused(headers):
    with pytest.raises(Refused, match="Content-Type must be application/json"):
        check_json(asked(**headers))


@pytest.mark.parametrize(
    "wrong",
    [{"token": ""}, {"token": " "}, {"token": 3}, {"tokens": {"ann": ""}}, {"origins": ["app.example"]},
     {"origins": ["https://app.example/"]}, {"origins": ["*"]}, {"origins": "https://app.example"}, {"hosts": "x"}],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_where_it_is_given(wrong):
    with pytest.raises(SwarmError):
        Access(**wrong)


def test_what_is_no_address_is_an_error():
    with pytest.raises(ValueError, match="localhost"):
        is_loopback("localhost")


# -- over a real server -----------------------------------------------------------------------------------------------


async def test_a_foreign_page_can_neither_drive_nor_read(office):
    async with office() as o:
        simple = {"origin": "http://evil.example", "content-type": "text/plain"}
        for headers in ({"content-type": "text/plain"}, {}, simple, {"host": "evil.example"}):
            answer = await o.http.post(PATH, content=b'{"text": "hi"}', headers=headers)
            assert answer.status_code in {403, 415, 421}
            assert set(answer.json()["error"]) == {"code", "message"}
        for path in (PATH, "/v1/clients/ann/events"):
            assert (await o.http.get(path, headers={"host": "evil.example"})).status_code == 421
        assert (await o.http.delete("/v1/clients/ann/turn", headers={"origin": "null"})).status_code == 403
        assert (await o.http.get("/health", headers={"host": "evil.example"})).status_code == 200
        assert o.live.get("ann") is None


@pytest.mark.parametrize(("host", "origin"), [("localhost", "http://evil.example"), ("evil.example", None)])
async def test_a_websocket_of_a_foreign_page_is_refused(office, host, origin):
    async with office() as o:
        port = int(o.url.rpartition(":")[2])
        named = f"ws://{host}:{port}/v1/clients/ann"
        with pytest.raises(InvalidStatus) as error:
            async with connect(named, host="127.0.0.1", port=port, origin=origin, proxy=None):
                pass
        assert json.loads(error.value.response.body)["error"]["code"] == ("host" if origin is None else "origin")


async def test_a_page_of_an_allowed_origin_is_answered_and_may_read_the_answer(office):
    origin = {"origin": "https://app.example"}
    async with office(origins=["https://app.example"], headers=origin) as o:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        assert (await o.http.options(PATH, headers=asked)).status_code == 200
        answer = await o.post("ann", "hi")
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")


async def test_a_token_reads_its_own_client_alone(office):
    async with office(tokens=TOKENS, headers={"authorization": "Bearer ann's"}) as o:
        assert (await o.post("ann", "hi")).status_code == 200
        for client in ("bob", "carl"):
            for path in ("messages", "events"):
                assert (await o.http.get(f"/v1/clients/{client}/{path}")).status_code == 401
            assert (await o.http.delete(f"/v1/clients/{client}/turn")).status_code == 401
            with pytest.raises(InvalidStatus, match="401"):
                async with connect(o.ws(client), proxy=None, additional_headers={"authorization": "Bearer ann's"}):
                    pass
        assert (await o.http.get(PATH, headers={"authorization": ""})).status_code == 401


async def test_the_token_of_all_reads_every_client_beside_those_of_clients(office):
    async with office(token="all", tokens=TOKENS, headers={"authorization": "Bearer all"}) as o:
        assert [(await o.post(client, "hi")).status_code for client in ("ann", "bob", "carl")] == [200] * 3


async def test_a_front_of_no_tokens_answers_nobody(office):
    async with office(tokens={}) as o:
        assert (await o.post("ann", "hi")).status_code == 401
