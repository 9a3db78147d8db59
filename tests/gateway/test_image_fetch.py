"""Images by URL: fetched where that is allowed, from public addresses only."""

import base64
import ipaddress
from http.server import BaseHTTPRequestHandler

import httpx
import pytest

from palaver import Request, Response, assistant, user, wires
from palaver.core.parts import Image, Inline, Text, Url
from palaver.gateway import GatewayConfig, Translation
from palaver.gateway.image_fetch import MOST_BYTES, ImageFetcher, RefusedError, is_public
from tests.gateway.running import running, targets
from tests.gateway.test_wires import path_of
from tests.gateway.translated import answers, asked
from tests.loopback import listening

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
TAKES_BYTES = wires.get("ollama_chat").capabilities
TAKES_URLS = wires.get("openai_chat").capabilities


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def images():
    """A server with an image, and with what is none."""
    asked_for = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked_for.append((self.path, self.headers["host"]))
            status, headers, body = {
                "/a.png": (200, {}, PIXEL),
                "/page": (200, {"content-type": "image/png"}, b"<html>secret</html>"),
                "/large": (200, {}, PIXEL + bytes(MOST_BYTES)),
                "/packed": (200, {"content-encoding": "gzip"}, PIXEL),
                "/moved": (302, {"location": "/a.png"}, b""),
                "/inside": (302, {"location": f"http://127.0.0.2:{self.server.server_port}/a.png"}, b""),
                "/file": (302, {"location": "file:///etc/passwd"}, b""),
                "/loop": (302, {"location": "/loop"}, b""),
                "/gone": (404, {}, b""),
            }[self.path]
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Handler) as url:
        yield url, asked_for


def only_this_machine(address):
    """Stands for a public address in these tests."""
    return address in {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")}


@pytest.mark.row("GW-20")
@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/a.png", "/moved"])
async def test_an_image_is_fetched_under_the_name_of_its_url(images, path):
    url, asked_for = images
    asked_for.clear()
    named = url.replace("127.0.0.1", "localhost")
    image = await ImageFetcher(only_this_machine).fetch(named + path)
    assert (image.source.bytes, image.media_type) == (PIXEL, "image/png")
    assert {host for _, host in asked_for} == {named.removeprefix("http://")}


REFUSED = {
    "/page": "no image",
    "/large": "more than",
    "/packed": "compressed",
    "/inside": "not a public address",
    "/file": "is not fetched",
    "/loop": "redirects",
    "/gone": "404",
}


@pytest.mark.row("GW-20")
@pytest.mark.anyio
@pytest.mark.parametrize("path", REFUSED)
async def test_what_is_no_image_or_leads_elsewhere_is_refused(images, path):
    url, _ = images
    with pytest.raises(RefusedError, match=REFUSED[path]):
        await ImageFetcher(only_this_machine).fetch(url + path)


PRIVATE = (
    "http://127.0.0.1/a.png",
    "http://localhost/a.png",
    "http://2130706433/a.png",
    "http://0x7f.1/a.png",
    "http://0.0.0.0/a.png",
    "http://10.0.0.1/a.png",
    "http://192.168.1.1/a.png",
    "http://169.254.169.254/latest/meta-data",
    "http://100.64.0.1/a.png",
    "http://224.0.0.1/a.png",
    "http://[::1]/a.png",
    "http://[::ffff:127.0.0.1]/a.png",
    "http://[fe80::1]/a.png",
    "http://[fd00::1]/a.png",
    "http://[64:ff9b::7f00:1]/a.png",
    "http://[2002:7f00:1::]/a.png",
    "file:///etc/passwd",
    "gopher://example.com/a.png",
    "http:///a.png",
    "http://user:password@example.com/a.png",
    "http://[::1",
    "http://a\nb/a.png",
)


@pytest.mark.row("GW-20")
@pytest.mark.anyio
@pytest.mark.parametrize("url", PRIVATE)
async def test_no_private_address_is_asked(url):
    with pytest.raises(RefusedError):
        await ImageFetcher().fetch(url)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses_are_public(address):
    assert is_public(ipaddress.ip_address(address))


SPECIAL = (
    *("168.63.129.16", "192.88.99.1", "192.0.0.192", "::ffff:168.63.129.16"),
    *("fec0::1", "3fff::1", "64:ff9b:1::a83f:8110", "64:ff9b::a83f:8110", "5f00::1", "100::1", "2001:20::1"),
)


@pytest.mark.parametrize("address", SPECIAL)
def test_addresses_of_special_use_are_not_public(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.row("GW-20")
@pytest.mark.anyio
async def test_the_images_of_a_request_become_bytes_only_for_wires_that_need_them(images):
    url, _ = images
    fetcher = ImageFetcher(only_this_machine)
    inline = Image.from_bytes(PIXEL)
    messages = (user("Look:", Image(Url(f"{url}/a.png")), Image(Url(f"{url}/page")), inline), user("Well?"))
    fetched, losses = await fetcher.fetch_all(messages, TAKES_BYTES)
    assert [type(each) for each in fetched[0].content] == [Text, Image, Image]
    assert all(isinstance(each.source, Inline) for each in fetched[0].content[1:])
    assert fetched[1] is messages[1]
    assert [(each.what, each.message, each.part) for each in losses] == [("image", 0, 2)]
    assert (await fetcher.fetch_all(messages, TAKES_URLS))[0] is messages


@pytest.mark.row("GW-20")
@pytest.mark.parametrize("allowed", [False, True])
def test_a_gateway_asks_no_address_of_its_own_network(provider, images, allowed):
    url, asked_for = images
    asked_for.clear()
    answers(provider, "ollama_chat", Response(assistant("I see nothing.", model="m", finish_reason="stop")))
    config = GatewayConfig(models=targets(provider.url), translation=Translation(fetch_images=allowed))
    request = Request((user("Look:", Image(Url(f"{url}/a.png"))),))
    with running(config) as address:
        path = path_of("openai_chat", "ollama_chat", stream=False)
        got = httpx.post(address + path, content=asked("openai_chat", "ollama_chat", request))
    assert got.status_code == 200
    assert int(got.headers["palaver-losses"]) > 0
    assert asked_for == []
    assert url.encode() not in provider.asked[0][2]
