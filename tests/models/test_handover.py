"""A conversation that changes its provider at each turn: every body is one that its provider takes, with a receipt."""

import contextlib
import json

import pytest

import palaver as p
from palaver import wires
from palaver.core.errors import CapabilityError
from palaver.models.catalogue import Capabilities
from palaver.models.encoded_prompt import PromptEncoder
from palaver.models.failures import Retry
from palaver.models.fallback import Fallback
from palaver.models.http_model import Model
from palaver.models.language_model import Prompt
from palaver.models.names import model as named
from palaver.testing.rules import check_request
from tests.loopback import serve
from tests.models.speaking import TYPES, body_of, endpoint

PNG = p.Inline("iVBORw0KGgphYmM=")
IMAGE = p.Image(PNG, media_type="image/png")
TOOL = p.Tool.of("look", "Look it up.", {"type": "object", "properties": {"at": {"type": "string"}}})
SYSTEM = (p.system("Be brief."),)
ROUNDS = 2


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def answer_of(wire, turn):
    """An answer that reasons, speaks and calls, as the wire's provider would give it."""
    message = p.assistant(
        p.Reasoning(f"I think of {turn}.", wire=wire, signature="c2ln"),
        f"Answer {turn}.",
        p.tool_call("look", {"at": f"place {turn}"}, id=f"call_{turn}"),
    )
    usage = p.Usage(input=10, output=5)
    return p.Response(message.replace(finish_reason="tool_calls", usage=usage, model="m"))


@contextlib.contextmanager
def providers(*, stream):
    """One server and one model a wire, that answers once a round."""
    with contextlib.ExitStack() as stack:
        made = {}
        for place, wire in enumerate(wires.names()):
            bodies = [
                body_of(wire, answer_of(wire, turn * len(wires.names()) + place), stream=stream)
                for turn in range(ROUNDS)
            ]
            kind = TYPES.get(wire, "text/event-stream") if stream else "application/json"
            server = stack.enter_context(serve(*bodies, content_type=kind))
            made[wire] = (
                server,
                Model(name=f"loop/{wire}", id="m", endpoint=endpoint(wire, server.url), retry=Retry(attempts=1)),
            )
        yield made


@pytest.mark.anyio
@pytest.mark.law(5)
@pytest.mark.row("DAS-08")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_conversation_that_changes_its_provider_at_each_turn(stream):
    with providers(stream=stream) as made:
        sessions = {wire: each.session() for wire, (_, each) in made.items()}
        messages = []
        for turn in range(ROUNDS * len(made)):
            wire = wires.names()[turn % len(made)]
            messages.append(p.user(f"Question {turn}", IMAGE))
            async with sessions[wire].ask(
                Prompt(messages=tuple(messages), system=SYSTEM, tools=(TOOL,)), stream=stream
            ) as arriving:
                reply = await arriving.finish()
            assert f"Answer {turn}." in reply.response.message.text
            assert [call.name for call in reply.response.message.tool_calls] == ["look"]
            assert (reply.wire, reply.model) == (wire, f"loop/{wire}")
            _check_losses(reply, messages, wire)
            messages.append(reply.response.message)
            messages.extend(
                p.tool(f"Result {turn}", tool_call_id=call.id, tool_name="look")
                for call in reply.response.message.tool_calls
            )
        for wire, (server, _) in made.items():
            assert len(server.requests) == ROUNDS
            for place, (_, body) in enumerate(server.requests):
                assert check_request(wire, body) == [], wire
                turn = place * len(made) + wires.names().index(wire)
                for before in range(turn):
                    assert f"Result {before}".encode() in body


def _check_losses(reply, messages, wire):
    """Each loss is at its place: reasoning of other wires is dropped, each part once."""
    foreign = {
        (index, position)
        for index, message in enumerate(messages)
        if message.role == "assistant"
        for position, part in enumerate(message.content)
        if isinstance(part, p.Reasoning) and part.wire != wire
    }
    lost = [
        (loss.message, loss.part)
        for loss in reply.losses
        if loss.what == "reasoning" and loss.why.startswith("bound to")
    ]
    assert sorted(lost) == sorted(foreign)
    assert all(loss.message is None or loss.message < len(messages) for loss in reply.losses)


@pytest.mark.anyio
async def test_a_chain_hands_a_conversation_over_when_nobody_listens():
    with providers(stream=True) as made:
        server, there = made["anthropic_messages"]
        gone = named("openai/gpt", url="http://127.0.0.1:9", key="k", retry=Retry(attempts=1))
        notices = []
        chain = Fallback([gone, there])
        async with chain.session().ask(Prompt(messages=(p.user("Hi"),)), on_notice=notices.append) as arriving:
            text = "".join([event.text async for event in arriving if type(event).__name__ == "TextDelta"])
            reply = await arriving.finish()
        assert text == "Answer 2."
        assert (reply.model, reply.attempts) == (there.name, 2)
        assert [(notice.kind, notice.model) for notice in notices] == [("fallback", "openai/gpt")]
        assert "127.0.0.1:9" in str(notices[0].error)
        assert check_request("anthropic_messages", server.requests[0][1]) == []


@pytest.mark.anyio
async def test_a_missing_key_is_an_error_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with serve() as server:
        asked = named("anthropic/claude", url=server.url)
        with pytest.raises(p.PalaverError, match=r"^anthropic: no API key: set ANTHROPIC_API_KEY, or pass key=$"):
            await _asked(asked)
        assert server.requests == []


@pytest.mark.anyio
async def test_what_the_model_cannot_see_is_refused_before_anything_is_sent_or_left_out_with_a_loss():
    blind = Capabilities(media=frozenset(), tools=False)
    body = body_of("openai_chat", answer_of("openai_chat", 0), stream=True)
    with serve(body) as server:
        prompt = Prompt(messages=(p.user("Look.", IMAGE),), tools=(TOOL,))
        strict = named("lab/llama", url=server.url, capabilities=blind, missing="refuse")
        with pytest.raises(CapabilityError, match=r"tools.*messages\[0\]\.content\[1\]: image"):
            await _asked(strict, prompt)
        assert server.requests == []
        reply = await _asked(named("lab/llama", url=server.url, capabilities=blind), prompt)
        assert [(loss.what, loss.message, loss.part) for loss in reply.losses] == [
            ("tools", None, None),
            ("image", 0, 1),
        ]
        sent = json.loads(server.requests[0][1])
        assert sent["stream_options"] == {"include_usage": True}
        assert "tools" not in sent
        assert "image" not in json.dumps(sent)


async def _asked(model, prompt=Prompt(messages=(p.user("Hi"),))):  # noqa: B008 (frozen)
    async with model.session().ask(prompt) as arriving:
        return await arriving.finish()


@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.row("DAS-09")
@pytest.mark.row("MSG-11")
def test_without_vision_images_of_all_roles_are_left_out_and_with_it_the_body_is_the_first_again(wire):
    messages = (
        p.user("Look.", IMAGE),
        p.assistant(p.tool_call("look", {"at": "x"}, id="call_1")),
        p.tool("Seen.", IMAGE, tool_call_id="call_1", tool_name="look"),
        p.user("And?"),
    )
    prompt = Prompt(messages=messages, tools=(TOOL,))

    def encoded(media):
        place = endpoint(wire, "http://x")
        capabilities = Capabilities(media=frozenset(media))
        made = PromptEncoder(
            wires.get(wire), place, id="m", settings=p.Settings(), capabilities=capabilities, missing="drop"
        )
        return made.encode(prompt, stream=False)

    seen, blind, again = encoded({"image"}), encoded(()), encoded({"image"})
    assert json.dumps("iVBORw0KGgphYmM=").strip('"').encode() not in blind.body
    assert check_request(wire, blind.body) == []
    assert [(loss.message, loss.part) for loss in blind.losses if loss.what == "image"] == [(0, 1), (2, 1)]
    assert again.body == seen.body
    assert prompt.messages is messages
