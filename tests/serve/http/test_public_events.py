"""What clients see of events: nothing that the front hides elsewhere."""

import json

import anyio
import pytest
from websockets.asyncio.client import connect

from palaver.core.factories import assistant, tool_call
from palaver.models.scripted import ScriptedModel
from palaver.serve.http import errors
from palaver.serve.workers.dispatcher import WorkerFailedError
from palaver.swarm import Call, Event, Policy, Swarm, SwarmAgent, tool
from palaver.swarm.events import delta_input, for_client, is_public

pytestmark = [pytest.mark.anyio, pytest.mark.finding("S-08")]

SECRET = "sk-4711"


def crash(prompt):
    raise RuntimeError(f"the model's key is {SECRET}")


def look_up() -> str:
    """Look a secret up."""
    return SECRET


def break_down() -> str:
    """Break down."""
    raise ValueError(SECRET)


@tool
async def stumble(call: Call) -> None:
    """Stumble."""
    raise ValueError(SECRET)


def calls(name):
    def answer(prompt):
        if prompt.messages[-1].role == "user":
            return assistant(tool_calls=[tool_call(name, {"of": SECRET}, id="c1")])
        return "done"

    return ScriptedModel([], then=answer)


def says_it(**options):
    return SwarmAgent("a", ScriptedModel([], then=lambda _: f"it is {SECRET}"), stream=True, **options)


AGENTS = {
    "model that raises": lambda: SwarmAgent("a", ScriptedModel([], then=crash)),
    "model that raises, behind a placeholder": lambda: SwarmAgent(
        "a", ScriptedModel([], then=crash), on_model_error="placeholder"
    ),
    "transform": lambda: says_it(transform=lambda text: text.replace(SECRET, "****")),
    "map": lambda: says_it(map=lambda _: assistant("****")),
    "validate": lambda: says_it(validate=lambda text: "a leak" if SECRET in text else None),
    "result": lambda: SwarmAgent("a", calls("look_up"), tools=[look_up]),
    "tool that raises": lambda: SwarmAgent("a", calls("break_down"), tools=[break_down]),
    "tool that raises and speaks": lambda: SwarmAgent("a", calls("stumble"), tools=[stumble]),
}


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("door", ["events", "posted", "socket"])
async def test_no_door_shows_what_a_client_may_not_see(office, name, door):
    async with office(given=[AGENTS[name]()]) as o, o.live.bus.subscribe() as all_events:
        seen = await DOORS[door](o)
        assert "commit-execution-end" in seen
        assert SECRET not in seen
        kept = ""
        with anyio.fail_after(60):
            async for event in all_events:
                kept += repr(event)
                if event.type == "commit-execution-end" and event.agent is None:
                    break
        assert SECRET in kept  # operators see everything


async def by_events(o):
    await o.post("ann", "hi")
    seen = ""
    with anyio.fail_after(60):
        async with o.http.stream("GET", "/v1/clients/ann/events?since=0") as stream:
            async for line in stream.aiter_lines():
                seen += line
                if "commit-execution-end" in line and '"agent":null' in line:
                    break
    return seen


async def by_post(o):
    headers = {"accept": "text/event-stream"}
    answer = await o.http.post("/v1/clients/ann/messages", json={"text": "hi"}, headers=headers)
    return answer.text


async def by_socket(o):
    frames = []
    async with connect(o.ws("ann"), proxy=None) as socket:
        await socket.send(json.dumps({"text": "hi"}))
        with anyio.fail_after(60):
            while not (any(map(_ends, frames)) and any("event" not in frame for frame in frames)):
                frames.append(json.loads(await socket.recv()))
    return json.dumps(frames)


def _ends(frame):
    event = frame.get("event", {})
    return event.get("type") == "commit-execution-end" and event["agent"] is None


DOORS = {"events": by_events, "posted": by_post, "socket": by_socket}


def test_a_delta_under_a_policy_of_output_is_not_shown():
    agent = says_it()
    event = Event(source="agent", type="delta", client="ann", output={"text": SECRET})
    assert delta_input(Swarm("s", [agent]), agent) == {}
    watched = Swarm("s", [agent], policies=[Policy("quiet", validate_output=lambda *_: False)])
    marked = Event(source="agent", type="delta", client="ann", input=delta_input(watched, agent), output=event.output)
    assert is_public(event)
    assert not is_public(marked)


@pytest.mark.parametrize("source", ["agent", "execution", "session", "swarm"])
def test_an_event_of_a_type_that_is_not_listed_shows_no_values(source):
    event = Event(source=source, type="new", client="ann", input={"a": SECRET}, output={"b": SECRET})
    assert SECRET not in repr(for_client(event))


def test_an_event_of_the_application_is_shown_as_it_is():
    event = Event(source="ticker", type="ticker", client="ann", input={"payload": 1})
    assert is_public(event)
    assert for_client(event) is event


def test_a_worker_that_failed_for_no_reason_of_ours_is_not_quoted():
    assert SECRET not in json.dumps(errors.refusal(WorkerFailedError(f"RuntimeError: {SECRET}")).body)
