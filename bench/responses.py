"""Cases: one recorded response body to a message, against the model parse of the official client.

Rules:

- Bodies are recorded traffic when there is some: a directory from ``PALAVER_CORPUS``, else
  ``../shared/corpus`` beside the repository. Without it that row is skipped by name. Bodies that we wrote
  (``bench/fixtures``) are measured in any case.
- A client's parse is what it does between the bytes of the body and the object it gives back: no
  transport, no headers, no retries. It is called in the client's own code, with the client's own types.
- Both sides read the same bodies. A body that either side refuses is left out and counted in the note,
  and so is a body whose text the two sides read differently.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import ROOT, Case, Contender, Job, Skipped

from palaver import PalaverError, wires

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parent / "fixtures"
AT_LEAST = 10


@dataclass(frozen=True)
class Client:
    """How the official client of a wire reads a body, and the text it finds in it.

    ``marks`` are fields that tell an answer from other bodies of the same provider.
    """

    wire: str
    package: str
    marks: tuple[str, ...]
    load: Callable[[], tuple[Callable[[bytes], Any], Callable[[Any], str]]]


def _openai(type_name: str, text: Callable[[Any], str]) -> tuple[Callable[[bytes], Any], Callable[[Any], str]]:
    import httpx2
    import openai
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    client = openai.OpenAI(api_key="none")
    target: type[Any] = {"ChatCompletion": ChatCompletion, "Response": Response}[type_name]
    return _stainless(client, target, httpx2), text


def _chat_text(made: Any) -> str:
    content = made.choices[0].message.content or ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")  # a vendor's variant


def _anthropic() -> tuple[Callable[[bytes], Any], Callable[[Any], str]]:
    import anthropic
    import httpx2
    from anthropic.types import Message

    client = anthropic.Anthropic(api_key="none")
    return _stainless(client, Message, httpx2), lambda made: "".join(
        block.text for block in made.content if block.type == "text"
    )


def _stainless(client: Any, target: type[Any], http: Any) -> Callable[[bytes], Any]:
    """Give what ``APIResponse.parse`` does with a JSON body in the two clients made by one generator."""
    headers = {"content-type": "application/json"}
    kept: dict[bytes, Any] = {}

    def parse(body: bytes) -> Any:
        response = kept.get(body)
        if response is None:  # the first, uncounted round
            response = kept[body] = http.Response(200, headers=headers, content=body)
        return client._process_response_data(  # noqa: SLF001
            data=response.json(), cast_to=target, response=response
        )

    return parse


def _google() -> tuple[Callable[[bytes], Any], Callable[[Any], str]]:
    import warnings

    from google.genai import models, types

    warnings.filterwarnings("ignore", module="google.genai")

    def parse(body: bytes) -> Any:
        found = models._GenerateContentResponse_from_mldev(json.loads(body), None, None)  # noqa: SLF001
        return types.GenerateContentResponse._from_response(response=found, kwargs={})  # noqa: SLF001

    def text(made: Any) -> str:
        parts = made.candidates[0].content.parts or []
        return "".join(part.text or "" for part in parts if not part.thought)

    return parse, text


CLIENTS = (
    Client(
        "openai_chat",
        "openai",
        ("choices",),
        lambda: _openai("ChatCompletion", _chat_text),
    ),
    Client("openai_responses", "openai", ("output",), lambda: _openai("Response", lambda made: made.output_text)),
    Client("anthropic_messages", "anthropic", ("content", "stop_reason"), _anthropic),
    Client("google_generate", "google-genai", ("candidates",), _google),
)


def corpus() -> Path:
    """Where recorded traffic is looked for."""
    given = os.environ.get("PALAVER_CORPUS")
    return Path(given) if given else ROOT.parent / "shared" / "corpus"


def _recorded(client: Client) -> list[bytes]:
    folder = corpus() / "wires" / client.wire
    if not folder.is_dir():
        msg = f"no recorded responses of {client.wire}"
        raise Skipped(msg)
    bodies: list[bytes] = []
    for path in sorted(folder.glob("*.json")):
        exchange = json.loads(path.read_bytes())
        body = exchange.get("response")
        if exchange.get("status") == 200 and isinstance(body, dict) and all(mark in body for mark in client.marks):
            bodies.append(json.dumps(body, ensure_ascii=False).encode())
    if not bodies:
        msg = f"no recorded responses of {client.wire}"
        raise Skipped(msg)
    return bodies


def _written(client: Client) -> list[bytes]:
    return [(FIXTURES / f"{client.wire}.json").read_bytes()]


def cases(*, quick: bool) -> list[Case]:
    """One case for each wire and kind of body."""
    made: list[Case] = []
    for client in CLIENTS:
        made.append(_case(client, "a recorded response", _recorded, 4 if quick else 20))
        made.append(_case(client, "a response we wrote", _written, 400 if quick else 2000))
    return made


def _case(client: Client, kind: str, load: Callable[[Client], list[bytes]], loops: int) -> Case:
    shared: dict[str, tuple[list[bytes], str]] = {}

    def bodies() -> tuple[list[bytes], str]:
        if not shared:
            shared["bodies"] = _comparable(client, load(client))
        return shared["bodies"]

    def ours() -> Job:
        decode = wires.get(client.wire).decode_response
        found, note = bodies()
        return _job(decode, found, loops, note)

    def theirs() -> Job:
        found, _note = bodies()
        return _job(client.load()[0], found, max(1, loops // 5), "")

    return Case(
        f"3. {client.wire}: {kind} to a message",
        "µs",
        [
            Contender("palaver decode_response", ours),
            Contender(f"{client.package} client's model parse", theirs, at_least=AT_LEAST),
        ],
    )


def _job(parse: Callable[[bytes], Any], bodies: list[bytes], loops: int, note: str) -> Job:
    def work(_state: object) -> object:
        return [[parse(body) for body in bodies] for _ in range(loops)]

    return Job(work, per=loops * len(bodies), note=note)


def _comparable(client: Client, bodies: list[bytes]) -> tuple[list[bytes], str]:
    decode = wires.get(client.wire).decode_response
    parse, text = client.load()
    kept: list[bytes] = []
    ours = theirs = differ = 0
    for body in bodies:
        try:
            mine = decode(body).message.text
        except PalaverError:
            ours += 1
            continue
        try:
            other = text(parse(body))
        except Exception:  # noqa: BLE001 (a client may raise anything)
            theirs += 1
            continue
        differ += mine != other
        kept.append(body)
    size = sum(map(len, kept)) / max(1, len(kept)) / 1e3
    notes = [f"{len(kept)} bodies of {size:.1f} KB on average" if len(kept) > 1 else f"{size:.1f} KB"]
    notes += [f"{ours} refused by palaver"] if ours else []
    notes += [f"{theirs} refused by the client"] if theirs else []
    notes += [f"{differ} texts read differently"] if differ else []
    if not kept:
        raise ValueError("; ".join(notes))
    return kept, "; ".join(notes)
