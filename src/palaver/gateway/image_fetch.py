"""Images by URL for models whose wire takes bytes only: fetched by the gateway, where the configuration allows it.

Rules:

- A name is resolved, each of its addresses is judged, and the connection goes to the address that was judged: another
  answer of the name server a moment later changes nothing. Each redirect is judged anew.
- An address is public, or it is not asked: none that is private, loopback, link-local, reserved or multicast, also not
  inside an IPv6 address that stands for an IPv4 one, and none of ``_SPECIAL``, which not every Python knows. No proxy
  of the environment is used.
- A body is read up to ``MOST_BYTES``, not decompressed, and must begin as an image of a known type does.
- What could not be fetched is left out, with a loss that says why.

Stability: experimental.
"""

from __future__ import annotations

import binascii
import ipaddress
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import urljoin, urlsplit

import anyio

from palaver.core import media_types
from palaver.core.errors import PalaverError, excerpt
from palaver.core.parts import Image, Inline, Url
from palaver.core.request import Loss

if TYPE_CHECKING:
    import httpx

    from palaver.core.messages import Message
    from palaver.core.parts import AnyPart
    from palaver.wires._engine.capabilities import WireCapabilities

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_BYTES: Final = 10 * 1024 * 1024
MOST_IMAGES: Final = 20
"""Of one request."""
_REMEMBERED: Final = 32 * 1024 * 1024
"""Bytes of images that are kept, since each request of a conversation names them again."""
_REDIRECTS: Final = 3
_SECONDS: Final = 10
_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_SPECIAL: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
            "192.0.0.0/24",  # the others: https://www.iana.org/assignments/iana-ipv4-special-registry
            "192.88.99.0/24",
            "64:ff9b:1::/48",  # https://www.iana.org/assignments/iana-ipv6-special-registry
            "100::/64",
            "2001::/23",
            "3fff::/20",
            "5f00::/16",
            "fec0::/10",  # https://datatracker.ietf.org/doc/html/rfc3879
        ),
    )
)


class RefusedError(PalaverError):
    """An image that is not fetched, and why."""


def is_public(address: Address) -> bool:
    """Whether anybody may be asked at an address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address.sixtofour is not None or address.teredo is not None:
            return False
    if any(address in each for each in _SPECIAL):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


class ImageFetcher:
    """Fetches images. ``allows`` judges an address."""

    def __init__(self, allows: Callable[[Address], bool] = is_public) -> None:
        """Start without a connection."""
        self._allows = allows
        self._known: OrderedDict[str, Image] = OrderedDict()

    async def fetch_all(
        self, messages: tuple[Message, ...], capabilities: WireCapabilities
    ) -> tuple[tuple[Message, ...], tuple[Loss, ...]]:
        """Return the messages with the bytes of images that a wire does not take by URL, and the losses."""
        rule = capabilities.media.get("image")
        if rule is None or "url" in rule.sources:
            return messages, ()
        wanted = [part.source.url for each in messages for part in _content(each) if _is_linked(part)]
        if not wanted:
            return messages, ()
        found: dict[str, Image | str] = dict.fromkeys(wanted[MOST_IMAGES:], f"more than {MOST_IMAGES} images by URL")

        async def fetch(url: str) -> None:
            try:
                found[url] = await self.fetch(url)
            except RefusedError as error:
                found[url] = str(error)

        async with anyio.create_task_group() as tasks:
            for url in dict.fromkeys(wanted[:MOST_IMAGES]):
                tasks.start_soon(fetch, url)
        losses: list[Loss] = []
        fetched = tuple([_with_images(each, index, found, losses) for index, each in enumerate(messages)])
        return (messages if all(map(is_, fetched, messages)) else fetched), tuple(losses)

    async def fetch(self, url: str) -> Image:
        """Return the image at a URL. Raises ``RefusedError``."""
        known = self._known.get(url)
        if known is not None:
            self._known.move_to_end(url)
            return known
        with anyio.move_on_after(_SECONDS):
            image = await self._fetch(url)
            self._remember(url, image)
            return image
        raise RefusedError(f"no image within {_SECONDS} s")

    def _remember(self, url: str, image: Image) -> None:
        self._known[url] = image
        while sum(cast("Inline", each.source).size for each in self._known.values()) > _REMEMBERED:
            self._known.popitem(last=False)

    async def _fetch(self, url: str) -> Image:
        import httpx  # noqa: PLC0415 (costs 50 ms, and is needed here only)

        try:
            async with httpx.AsyncClient(trust_env=False, verify=_verified(), timeout=_SECONDS) as client:
                for _ in range(_REDIRECTS + 1):
                    request = await self._request(client, url)
                    response = await client.send(request, stream=True)
                    try:
                        if response.has_redirect_location:
                            url = urljoin(url, response.headers["location"])
                            continue
                        return await _image(response)
                    finally:
                        await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise RefusedError(f"could not be fetched: {excerpt(str(error), 80)}") from None
        raise RefusedError(f"more than {_REDIRECTS} redirects")

    async def _request(self, client: httpx.AsyncClient, url: str) -> httpx.Request:
        """Return the request to the address that was judged, under the name that the URL has."""
        found = urlsplit(url)
        if found.scheme.lower() not in {"http", "https"} or not found.hostname:
            raise RefusedError(f"a URL of {found.scheme[:20]!r} is not fetched")
        if found.username is not None or found.password is not None:
            raise RefusedError("a URL with a password is not fetched")
        port = found.port or (443 if found.scheme.lower() == "https" else 80)
        address = await self._address(found.hostname, port)
        host = f"[{address}]" if isinstance(address, ipaddress.IPv6Address) else str(address)
        there = found._replace(netloc=f"{host}:{port}", fragment="").geturl()
        headers = {"host": found.netloc, "accept": "image/*", "accept-encoding": "identity"}
        return client.build_request("GET", there, headers=headers, extensions={"sni_hostname": found.hostname})

    async def _address(self, name: str, port: int) -> Address:
        """Resolve a name, and judge all its addresses."""
        try:
            found = await anyio.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except OSError:
            raise RefusedError(f"there is no host {excerpt(name, 80)!r}") from None
        addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
        if not addresses or not all(map(self._allows, addresses)):
            raise RefusedError(f"{excerpt(name, 80)!r} is not a public address")
        return addresses[0]


@cache
def _verified() -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 (as above)

    return httpx.create_ssl_context(trust_env=False)


async def _image(response: httpx.Response) -> Image:
    if response.status_code != 200:  # noqa: PLR2004 (success)
        raise RefusedError(f"the server answered {response.status_code}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError("its body is compressed")
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > MOST_BYTES:
            raise RefusedError(f"it has more than {MOST_BYTES:,} bytes")
    media_type = media_types.of_bytes(bytes(data[:64]))
    if media_type not in _TYPES:
        raise RefusedError("it is no image of a known type")
    return Image(Inline(binascii.b2a_base64(data, newline=False).decode()), media_type)


def _content(message: Message) -> tuple[Any, ...]:
    return getattr(message, "content", ())


def _is_linked(part: AnyPart) -> bool:
    return isinstance(part, Image) and isinstance(part.source, Url) and part.source.url[:5].lower() != "data:"


def _with_images(message: Message, index: int, found: dict[str, Image | str], losses: list[Loss]) -> Message:
    parts = _content(message)
    if not any(map(_is_linked, parts)):
        return message
    content: list[AnyPart] = []
    for position, part in enumerate(parts):
        image = found[part.source.url] if _is_linked(part) else None
        if isinstance(image, str):
            losses.append(Loss("dropped", "image", image, index, position))
        elif image is None:
            content.append(part)
        else:
            content.append(part.replace(source=image.source, media_type=image.media_type))
    return cast("Message", cast("Any", message).replace(content=tuple(content)))
