"""A swarm as an A2A agent: the official client against our server."""

import socket
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
)
from google.protobuf.json_format import MessageToDict, ParseDict

from palaver.agent import client_tool
from palaver.core.errors import TransportError
from palaver.core.factories import assistant, tool_call
from palaver.models.scripted import ScriptedModel
from palaver.serve.a2a import a2a_app, card_of
from palaver.serve.a2a.executor import Executor
from palaver.serve.workers import LocalDispatcher
from palaver.store.memory import MemoryStore
from palaver.swarm import Swarm, SwarmAgent, result_tool
from tests.serve.http.conftest import BlockingOperator, agents
from tests.serve.http.test_approvals import Till
from tests.swarm.served import let_others_run, served

pytestmark = pytest.mark.anyio


class Office:
    def __init__(self, live, client, url, http):
        self.live, self.client, self.url, self.http = live, client, url, http

    async def send(self, *parts, context="ann", id="m1", **more):
        """Send a message, and give everything that comes."""
        message = Message(role=Role.ROLE_USER, message_id=id, context_id=context, parts=parts, **more)
        return [each async for each in self.client.send_message(SendMessageRequest(message=message))]

    async def say(self, text, **more):
        return await self.send(Part(text=text), **more)


@asynccontextmanager
async def office(*, given=None, held=None, streaming=False, binding="JSONRPC", most=64, headers=None, **more):
    swarm = Swarm("office", given or agents(held or BlockingOperator()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    async with swarm.start(store=MemoryStore()) as live, LocalDispatcher(live, limit=most) as desk:
        app = a2a_app(desk, card_of(swarm, url), **more)
        async with served(app, at=port), httpx.AsyncClient(timeout=60, trust_env=False, headers=headers) as http:
            config = ClientConfig(
                streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding], polling=False
            )
            async with await create_client(url, config) as client:
                yield Office(live, client, url, http)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_message_is_a_task_that_is_completed(binding):
    async with office(binding=binding) as o:
        ((task),) = [each.task for each in await o.say("hi")]
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert task.context_id == "ann"
        assert [get_artifact_text(each) for each in task.artifacts] == ["you said hi"]
        assert MessageToDict(task.artifacts[0].metadata) == {"palaver.agent": "desk"}
        assert [get_message_text(each) for each in task.history] == ["hi"]
        assert [each.text for each in o.live.get("ann").messages] == ["hi", "you said hi"]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_stream_tells_the_life_of_a_task(binding):
    desk = SwarmAgent("desk", ScriptedModel([assistant("you said ", "one two ", "three")]), stream=True)
    async with office(given=[desk], streaming=True, binding=binding) as o:
        events = await o.say("hi")
        assert events[0].task.status.state == TaskState.TASK_STATE_SUBMITTED
        states = [each.status_update.status.state for each in events if each.HasField("status_update")]
        assert states == [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]
        grown = [each.artifact_update for each in events if each.HasField("artifact_update")]
        assert len(grown) == 3
        assert "".join(get_artifact_text(each.artifact) for each in grown) == "you said one two three"
        assert [each.append for each in grown] == [False] + [True] * (len(grown) - 1)
        assert [each.last_chunk for each in grown] == [False] * (len(grown) - 1) + [True]
        task = await o.client.get_task(GetTaskRequest(id=events[0].task.id))
        assert "".join(part.text for part in task.artifacts[0].parts) == "you said one two three"


async def test_an_answer_that_is_not_what_was_spoken_replaces_it():
    desk = SwarmAgent("desk", ScriptedModel(["spoken words"]), stream=True, transform=lambda text: text.upper())
    async with office(given=[desk], streaming=True) as o:
        grown = [each.artifact_update for each in await o.say("hi") if each.HasField("artifact_update")]
        assert (grown[-1].append, grown[-1].last_chunk) == (False, True)
        assert get_artifact_text(grown[-1].artifact) == "SPOKEN WORDS"


async def test_the_agent_is_the_one_that_the_turn_was_handed_to():
    async with office() as o:
        (event,) = await o.say("to sales")
        assert MessageToDict(event.task.artifacts[0].metadata) == {"palaver.agent": "sales"}


async def test_a_message_without_a_context_begins_one():
    async with office() as o:
        (event,) = await o.say("hi", context="")
        assert o.live.get(event.task.context_id) is not None


async def test_a_message_that_is_sent_twice_is_answered_once():
    async with office() as o:
        (first,) = await o.say("hi", id="same")
        (second,) = await o.say("hi", id="same")
        assert first.task.id != second.task.id
        assert get_artifact_text(second.task.artifacts[0]) == "you said hi"
        assert len(o.live.get("ann").messages) == 2


async def test_data_and_files_are_kept_with_a_receipt():
    async with office() as o:
        parts = [
            Part(text="look"),
            ParseDict({"data": {"berth": 7}}, Part()),
            Part(url="https://example.org/plan.pdf", media_type="application/pdf"),
            Part(raw=b"\x89PNG", filename="plan.png", media_type="image/png"),
        ]
        (event,) = await o.send(*parts)
        said = o.live.get("ann").messages[0]
        assert said.text.splitlines() == [
            "look",
            '{"berth":7.0}',
            "https://example.org/plan.pdf",
            "[plan.png, image/png, 4 bytes]",
        ]
        assert said.payload == {"a2a": {"parts": [MessageToDict(part) for part in parts[1:]]}}
        assert MessageToDict(event.task.artifacts[0].metadata)["palaver.losses"] == [
            "messages[0].content[1]: data part approximated (became its JSON)",
            "messages[0].content[2]: file part approximated (became its URL)",
            "messages[0].content[3]: file part dropped (a text cannot carry bytes)",
        ]


async def test_an_error_of_the_model_is_a_task_that_failed():
    model = ScriptedModel([TransportError("gone")], then=lambda _: "back")
    async with office(given=[SwarmAgent("desk", model)]) as o:
        (event,) = await o.say("hi")
        assert event.task.status.state == TaskState.TASK_STATE_FAILED
        assert get_message_text(event.task.status.message) == "gone"
        (event,) = await o.say("hi", id="m2")
        assert event.task.status.state == TaskState.TASK_STATE_COMPLETED


def data(value):
    return ParseDict({"data": value}, Part())


def pending_in(event):
    """The calls that a task says it waits for."""
    task = event.task
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, get_message_text(task.status.message)
    return MessageToDict(task.status.message.parts[-1])["data"]["pending"]


APPROVED = {"decisions": {"c1": {"decision": "approve"}}}


@pytest.mark.parametrize(
    ("parts", "state", "said", "paid"),
    [
        ([data(APPROVED)], "COMPLETED", "So: Bob <b> has 100 EUR", [100]),
        (
            [data({"decisions": {"c1": {"decision": "edit", "arguments": {"to": "Bob", "euros": 5}}}})],
            *("COMPLETED", "So: Bob has 5 EUR", [5]),
        ),
        ([data({"decisions": {"c1": {"decision": "reject", "text": "No."}}})], "COMPLETED", "Reason: No.", []),
        ([Part(text="Never mind.")], "COMPLETED", "you said Never mind.", []),
        ([data({"decisions": {"c2": {"decision": "approve"}}})], "INPUT_REQUIRED", "nothing is pending for", []),
        (
            [data({"decisions": {"c1": {"decision": "edit", "arguments": {}}}})],
            "INPUT_REQUIRED",
            "do not fit 'pay'",
            [],
        ),
        ([data({"decisions": {"c1": {"decision": "maybe"}}})], "INPUT_REQUIRED", "Invalid value 'maybe'", []),
        ([Part(text="Yes."), data(APPROVED)], "INPUT_REQUIRED", "decisions are sent alone", []),
    ],
)
async def test_a_turn_that_waits_requires_input_and_the_next_message_of_its_task_decides(parts, state, said, paid):
    till = Till()
    async with office(given=till.agents) as o:
        (event,) = await o.say("Pay Bob.")
        arguments = {"to": "Bob <b>", "euros": 100.0}
        choices = ["approve", "edit", "reject", "answer"]
        asked = {"call": "c1", "tool": "pay", "arguments": arguments, "reason": "It costs money.", "choices": choices}
        assert pending_in(event) == [asked]
        assert "pay" in get_message_text(event.task.status.message)
        (event,) = await o.send(*parts, id="m2", task_id=event.task.id)
        assert event.task.status.state == getattr(TaskState, f"TASK_STATE_{state}")
        texts = [*map(get_artifact_text, event.task.artifacts), get_message_text(event.task.status.message)]
        assert said in "".join(texts).replace("\n", "")
        assert not [each for each in event.task.artifacts if "palaver.losses" in each.metadata]
        assert till.paid == paid
        if state == "INPUT_REQUIRED":
            assert pending_in(event) == [asked]
            (event,) = await o.send(data(APPROVED), id="m3", task_id=event.task.id)
            assert (event.task.status.state, till.paid) == (TaskState.TASK_STATE_COMPLETED, [100])


async def test_a_question_to_the_user_is_answered_by_a_text_and_a_stream_tells_that_it_waits():
    ask = client_tool("ask", "Ask the user.", {"type": "object"})
    model = ScriptedModel([assistant(tool_calls=[tool_call("ask", {}, id="q1")])], then=lambda p: p.messages[-1].text)
    async with office(given=[SwarmAgent("desk", model, tools=[result_tool(ask)])], streaming=True) as o:
        events = await o.say("hi")
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        events = await o.say("In Husum.", id="m2", task_id=events[0].task.id)
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        assert [get_artifact_text(e.artifact_update.artifact) for e in events if e.HasField("artifact_update")] == [
            "In Husum."
        ]


async def test_decisions_that_come_too_late_are_a_task_that_failed():
    till = Till()
    async with office(given=till.agents) as o:
        (event,) = await o.say("Pay Bob.")
        await o.say("Never mind.", id="m2")
        (event,) = await o.send(data(APPROVED), id="m3", task_id=event.task.id)
        assert event.task.status.state == TaskState.TASK_STATE_FAILED
        assert "nothing is pending" in get_message_text(event.task.status.message)
        assert till.paid == []


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (data({"decisions": {"q1": {"decision": "answer", "text": "Yes."}}}), None),
        (data({"decisions": {"q1": {"decision": "answer", "text": "Yes."}}, "run": "m2"}), None),
        (Part(text="Yes."), ("user", "Yes.")),  # the next message of the conversation
    ],
)
async def test_a_message_of_a_task_decides_no_calls_of_another_task(part, told):
    ask = client_tool("ask", "Ask the user.", {"type": "object"})
    asked = assistant(tool_calls=[tool_call("ask", {}, id="q1")])
    model = ScriptedModel([asked, asked], then=lambda p: f"{p.messages[-1].role} {p.messages[-1].text}")
    async with office(given=[SwarmAgent("desk", model, tools=[result_tool(ask)])]) as o:
        (first,), (second,) = await o.say("hi"), await o.say("Something else.", id="m2")
        assert pending_in(first) == pending_in(second)
        (event,) = await o.send(part, id="m3", task_id=first.task.id)
        if told is None:
            assert event.task.status.state == TaskState.TASK_STATE_FAILED
            assert [each.call.id for each in o.live.get("ann").pending()] == ["q1"]
        else:
            assert get_artifact_text(event.task.artifacts[0]) == " ".join(told)


@pytest.mark.parametrize("named", [{}, {"run": "m1"}, {"run": "m9"}])
async def test_the_context_of_a_message_is_that_of_its_task(named):
    till = Till()
    async with office(given=till.agents) as o:
        (event,) = await o.say("Pay Bob.")
        (event,) = await o.send(data(APPROVED | named), id="m2", context="", task_id=event.task.id)
        if named == {"run": "m9"}:
            pending_in(event)
            assert "the calls of this task belong to the turn 'm1'" in get_message_text(event.task.status.message)
        else:
            assert (event.task.status.state, till.paid) == (TaskState.TASK_STATE_COMPLETED, [100])


async def test_a_foreign_error_is_not_shown_to_the_client(caplog):
    def broken(prompt):
        raise ZeroDivisionError("a secret")

    async with office(given=[SwarmAgent("desk", ScriptedModel([], then=broken))], streaming=True) as o:
        last = (await o.say("hi"))[-1].status_update
        assert last.status.state == TaskState.TASK_STATE_FAILED
        assert "secret" not in str(last)
        assert MessageToDict(last.metadata) == {"palaver.error_code": "internal", "palaver.retryable": False}
        assert "a secret" in caplog.text


async def test_too_much_is_a_task_that_was_rejected():
    held = BlockingOperator()
    async with office(held=held, most=1) as o, anyio.create_task_group() as tasks:
        tasks.start_soon(o.say, "to person")
        await held.asked.wait()
        (event,) = await o.say("more", id="m2")
        assert event.task.status.state == TaskState.TASK_STATE_REJECTED
        assert get_message_text(event.task.status.message) == "the queue of the client 'ann' is full (limit: 1)"
        held.let.set()


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"context": "shared"}, InvalidParamsError),
        ({"context": "a b"}, InvalidParamsError),
        ({"task_id": "unknown"}, TaskNotFoundError),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_what_cannot_be_a_message_is_an_error_of_a2a(more, error, streaming):
    async with office(streaming=streaming) as o:
        with pytest.raises(error):
            await o.say("hi", **more)


async def test_a_message_of_nothing_that_can_be_said():
    async with office() as o:
        with pytest.raises(ContentTypeNotSupportedError):
            await o.send(Part())


async def test_cancel_cancels_the_turn():
    held = BlockingOperator()
    async with office(held=held, streaming=True) as o, anyio.create_task_group() as tasks:
        seen = []

        async def ask():
            seen.extend(await o.say("to person"))

        tasks.start_soon(ask)
        await held.asked.wait()
        (task,) = (await o.client.list_tasks(ListTasksRequest())).tasks
        cancelled = await o.client.cancel_task(CancelTaskRequest(id=task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotCancelableError):
            await o.client.cancel_task(CancelTaskRequest(id=task.id))
    assert seen[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED


async def test_cancelling_a_task_that_waits_leaves_the_one_before_alone(monkeypatch):
    held, entered, real = BlockingOperator(), anyio.Event(), Executor.cancel

    async def cancel(self, *args):
        entered.set()
        await real(self, *args)

    monkeypatch.setattr(Executor, "cancel", cancel)
    async with office(held=held) as o, anyio.create_task_group() as tasks:
        seen = {}

        async def ask(id, text):
            (event,) = await o.say(text, id=id)
            seen[id] = event.task.status.state

        tasks.start_soon(ask, "m1", "to person")
        await held.asked.wait()
        tasks.start_soon(ask, "m2", "more")
        with anyio.fail_after(60):
            while len(found := (await o.client.list_tasks(ListTasksRequest())).tasks) < 2:
                pass
        (waiting,) = [each for each in found if get_message_text(each.history[0]) == "more"]
        tasks.start_soon(o.client.cancel_task, CancelTaskRequest(id=waiting.id))
        await entered.wait()
        await let_others_run()
        held.let.set()
    assert seen == {"m1": TaskState.TASK_STATE_COMPLETED, "m2": TaskState.TASK_STATE_CANCELED}


async def test_only_the_last_tasks_are_remembered():
    async with office(tasks=2) as o:
        made = [(await o.say(str(number), id=f"m{number}"))[0].task.id for number in range(4)]
        with pytest.raises(TaskNotFoundError):
            await o.client.get_task(GetTaskRequest(id=made[0]))
        assert (await o.client.get_task(GetTaskRequest(id=made[3]))).id == made[3]


async def test_the_card_names_agents_as_skills():
    async with office() as o, httpx.AsyncClient(trust_env=False) as http:
        card = (await http.get(f"{o.url}/.well-known/agent-card.json")).json()
        assert card["name"] == "office"
        assert [each["id"] for each in card["skills"]] == ["desk", "sales", "person"]
        assert card["capabilities"]["streaming"] is True
