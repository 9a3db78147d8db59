"""An A2A agent in a swarm: our client against a server of the official SDK, and against ours."""

import socket
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    CancelTaskRequest,
    Message,
    Part,
    Role,
    TaskState,
)
from a2a.utils.errors import UnsupportedOperationError
from starlette.applications import Starlette
from starlette.responses import Response

from palaver.core.errors import (
    AuthenticationError,
    BusyError,
    DecodeError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    TransportError,
)
from palaver.models.scripted import ScriptedModel
from palaver.serve.a2a import a2a_agent, a2a_app, card_of
from palaver.serve.workers import LocalDispatcher
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent, Where
from tests.swarm.served import served

pytestmark = pytest.mark.anyio


class Theirs(AgentExecutor):
    """An agent of the SDK: does what a text asks for."""

    def __init__(self):
        self.heard, self.cancelled = [], anyio.Event()

    async def execute(self, context, event_queue):
        self.heard.append(context.message)
        text = context.get_user_input()
        if text == "message":
            message = Message(role=Role.ROLE_AGENT, message_id="x", context_id=context.context_id)
            message.parts.append(Part(text="a mere message"))
            await event_queue.enqueue_event(message)
            return
        if text == "unsupported":
            raise UnsupportedOperationError("not here")
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        await self._act(text, updater)

    async def _act(self, text, updater):
        say = updater.new_agent_message
        match text:
            case "wait":
                await updater.add_artifact([Part(text="well")], "a")
                await anyio.sleep_forever()
            case "ask":
                await updater.requires_input(say([Part(text="which berth?")]))
            case "half":
                await updater.add_artifact([Part(text="half of")], "a")
            case "fail":
                await updater.failed(say([Part(text="no idea")]))
            case "reject":
                await updater.reject()
            case "auth":
                await updater.update_status(TaskState.TASK_STATE_AUTH_REQUIRED, say([Part(text="log in")]))
            case "cancelled":
                await updater.cancel()
            case "data":
                parts = [Part(text="see"), new_data_part({"a": 1}), new_raw_part(b"123", "image/png", "p.png")]
                await updater.add_artifact(parts)
                await updater.complete()
            case "status":
                await updater.complete(say([Part(text="in the status")]))
            case _:
                for number, word in enumerate(["you ", "said ", text]):
                    await updater.add_artifact([Part(text=word)], "a", append=number > 0, last_chunk=number == 2)
                await updater.complete()

    async def cancel(self, context, event_queue):
        self.cancelled.set()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@asynccontextmanager
async def theirs(*, streaming=True, token=None, at=0):
    port = at or free_port()
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="theirs", description="theirs", version="1", default_input_modes=["text"], default_output_modes=["text"],
        capabilities=AgentCapabilities(streaming=streaming),
        supported_interfaces=[AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0")],
        skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
    )  # fmt: skip
    executor = Theirs()
    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])

    async def guarded(scope, receive, send):
        shown = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and token is not None and shown != f"Bearer {token}":
            await Response(status_code=401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    async with served(guarded, at=port):
        yield url, executor
        await handler.aclose()


@asynccontextmanager
async def talking(url, *, store=None, client="ann", **options):
    swarm = Swarm("office", [a2a_agent(url, name="far", operator_timeout=30, **options)])
    async with swarm.start(store=store) as live, live.session(client) as session:
        yield session


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_remote_agent_answers(streaming):
    async with theirs(streaming=streaming) as (url, _), talking(url) as session:
        assert await session.complete("hi") == "you said hi"
        assert [(each.role, each.agent, each.text) for each in session.messages] == [
            ("user", "far", "hi"), ("assistant", "far", "you said hi")
        ]  # fmt: skip


async def test_what_it_speaks_is_told_as_it_comes():
    async with (
        theirs() as (url, _),
        talking(url) as session,
        session.live.bus.subscribe(Where(type="delta")) as events,
    ):
        await session.complete("hi")
        events.close()
        assert [event.output["text"] async for event in events] == ["you ", "said ", "hi"]


async def test_a_client_keeps_its_context_after_a_restart():
    store = MemoryStore()
    async with theirs() as (url, executor):
        for _ in range(2):
            async with talking(url, store=store) as session:
                await session.complete("hi")
        async with talking(url, store=store, client="bob") as session:
            await session.complete("hi")
        first, second, third = [each.context_id for each in executor.heard]
        assert first == second != third


async def test_what_it_asks_for_goes_to_the_same_task():
    async with theirs() as (url, executor), talking(url) as session:
        assert await session.complete("ask") == "which berth?"
        assert await session.complete("seven") == "you said seven"
        assert await session.complete("eight") == "you said eight"
        tasks = [each.task_id for each in executor.heard]
        assert tasks[0] == tasks[1] != tasks[2]


async def test_a_task_that_is_not_known_there_any_more_is_forgotten():
    store, port = MemoryStore(), free_port()
    async with theirs(at=port) as (url, _), talking(url, store=store) as session:
        assert await session.complete("ask") == "which berth?"
    async with theirs(at=port) as (url, _), talking(url, store=store) as session:
        with pytest.raises(ProviderError, match="not found"):
            await session.complete("seven")
        assert await session.complete("eight") == "you said eight"


async def test_a_task_that_is_over_there_is_forgotten():
    async with theirs() as (url, executor), talking(url) as session:
        assert await session.complete("ask") == "which berth?"
        async with (
            httpx.AsyncClient(trust_env=False) as http,
            await create_client(url, ClientConfig(httpx_client=http)) as client,
        ):
            await client.cancel_task(CancelTaskRequest(id=executor.heard[0].task_id))
        with pytest.raises(ProviderError, match="terminal state"):
            await session.complete("seven")
        assert await session.complete("eight") == "you said eight"
        first, second = [each.context_id for each in executor.heard]
        assert first == second


@pytest.mark.parametrize(
    ("text", "answer"), [("message", "a mere message"), ("status", "in the status"), ("cancelled", "")]
)
async def test_answers_of_every_kind(text, answer):
    async with theirs() as (url, _), talking(url, validate=lambda _: None) as session:
        assert await session.complete(text) == answer


async def test_what_text_cannot_carry_is_on_the_receipt():
    async with theirs() as (url, _), talking(url) as session:
        async with session.live.bus.subscribe(Where(source="a2a")) as events:
            assert (await session.complete("data")).splitlines() == ["see", '{"a":1.0}', "[p.png, image/png, 3 bytes]"]
            events.close()
            (event,) = [event async for event in events]
        told = event.input["payload"]
        assert [part.get("filename") for part in told["parts"]] == [None, "p.png"]
        assert told["parts"][1]["raw"] == "MTIz"
        assert len(told["losses"]) == 2


async def test_parts_of_a_payload_go_along():
    async with theirs() as (url, executor), talking(url) as session:
        await session.complete("hi", {"a2a": {"parts": [{"raw": "MTIz", "filename": "a.bin"}]}})
        assert [part.raw for part in executor.heard[0].parts][1] == b"123"
        with pytest.raises(DecodeError, match=r"payload\.a2a\.parts\[0\]"):
            await session.complete("hi", {"a2a": {"parts": [{"nonsense": 1}]}})


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("fail", ProviderError, "no idea"),
        ("reject", ProviderError, "rejected"),
        ("auth", AuthenticationError, "log in"),
        ("unsupported", ProviderError, "not here"),
    ],
)
async def test_errors_come_back_as_ours(text, error, said):
    async with theirs() as (url, _), talking(url) as session:
        with pytest.raises(error, match=said):
            await session.complete(text)
        assert await session.complete("hi") == "you said hi"


@pytest.mark.parametrize("streaming", [True, False])
async def test_half_an_answer_is_none(streaming):
    async with theirs(streaming=streaming) as (url, _), talking(url) as session:
        with pytest.raises(TransportError, match="is incomplete"):
            await session.complete("half")
        assert await session.complete("hi") == "you said hi"


async def test_nobody_there():
    async with talking(f"http://127.0.0.1:{free_port()}") as session:
        with pytest.raises(TransportError, match="agent card"):
            await session.complete("hi")


async def test_a_token_is_shown_and_missed():
    async with theirs(token="s3cret") as (url, _):
        async with talking(url, token="s3cret") as session:
            assert await session.complete("hi") == "you said hi"
        async with talking(url) as session:
            with pytest.raises(AuthenticationError, match="401"):
                await session.complete("hi")


async def test_a_client_that_is_given_is_left_as_it_was():
    async with theirs(token="s") as (url, _), httpx.AsyncClient(trust_env=False) as http:
        async with talking(url, token="s", http=http) as session:
            assert await session.complete("hi") == "you said hi"
        assert "authorization" not in http.headers
        assert not http.is_closed


async def test_a_turn_that_ends_early_cancels_the_task_there():
    async with theirs() as (url, executor), talking(url) as session:
        with anyio.fail_after(60):
            async with session.live.bus.subscribe(Where(type="delta")) as deltas, anyio.create_task_group() as tasks:
                tasks.start_soon(session.complete, "wait")
                await anext(aiter(deltas))
                tasks.cancel_scope.cancel()
            await executor.cancelled.wait()


# -- both ends are ours ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def ours(*answers, then=None):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    swarm = Swarm("far", [SwarmAgent("desk", ScriptedModel(list(answers), then=then or (lambda _: "hello")))])
    async with (
        swarm.start(store=MemoryStore()) as live,
        LocalDispatcher(live) as desk,
        served(a2a_app(desk, card_of(swarm, url)), at=port),
    ):
        yield url, live


async def test_a_swarm_in_a_swarm():
    async with ours() as (url, live), talking(url) as session:
        assert await session.complete("hi") == "hello"
        assert await session.complete("again") == "hello"
        (client,) = live.clients
        assert [each.text for each in live.get(client).messages] == ["hi", "hello", "again", "hello"]


@pytest.mark.parametrize(
    ("theirs", "ours_"),
    [
        (BusyError("full"), OverloadedError),
        (RateLimitError("wire", "slowly"), RateLimitError),
        (OverloadedError("wire", "later"), OverloadedError),
        (TransportError("gone"), ProviderError),
    ],
)
async def test_errors_go_there_and_back(theirs, ours_):
    async with ours(theirs) as (url, _), talking(url) as session:
        with pytest.raises(ours_) as raised:
            await session.complete("hi")
        assert raised.value.code == theirs.error_code
        assert str(theirs) in str(raised.value)
        assert raised.value.retryable == ours_.retryable
