"""Who may ask an A2A agent."""

import httpx
import pytest
from a2a.types import GetTaskRequest
from a2a.utils.errors import TaskNotFoundError

from palaver.core.errors import SwarmError
from palaver.serve.http import Limits
from tests.serve.a2a.test_server import office

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-101")]

CARD = "/.well-known/agent-card.json"
CALL = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'
TOKENS = {"ann": "ann's", "bob": "bob's"}


def shown(token):
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json", "origin": "http://evil.example"}, 403),
        ({"content-type": "application/json", "host": "evil.example"}, 421),
        ({"content-type": "application/json"}, 200),
    ],
)
@pytest.mark.parametrize("path", ["/", "/rest/message:send"])
async def test_a_foreign_page_can_neither_drive_nor_read(headers, status, path):
    async with office() as o, httpx.AsyncClient(base_url=o.url, trust_env=False) as http:
        answer = await http.post(path, content=CALL, headers=headers)
        assert answer.status_code == (400 if status == 200 and path != "/" else status)
        assert (await http.get("/rest/tasks", headers={"host": "evil.example"})).status_code == 421
        assert (await http.get(CARD)).status_code == 200


async def test_a_body_that_is_too_long_is_refused():
    async with office(limits=Limits(body=100)) as o, httpx.AsyncClient(base_url=o.url, trust_env=False) as http:
        answer = await http.post("/", content=b" " * 101, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_the_card_says_that_a_token_is_asked_for():
    async with office(token="s3cret", headers=shown("s3cret")) as o:
        async with httpx.AsyncClient(base_url=o.url, trust_env=False) as http:
            card = (await http.get(CARD)).json()
            assert card["securitySchemes"] == {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
            answer = await http.post("/", content=CALL, headers={"content-type": "application/json"})
            assert answer.status_code == 401
        assert await o.say("hi")


async def test_a_user_has_contexts_and_tasks_of_their_own():
    async with office(tokens=TOKENS, headers=shown("ann's")) as o:
        (event,) = await o.say("hi", context="c")
        assert event.task.context_id == "c"
        assert [each.text for each in o.live.get("ann:c").messages] == ["hi", "you said hi"]
        assert o.live.get("c") is None
        assert (await o.client.get_task(GetTaskRequest(id=event.task.id))).id == event.task.id
        o.http.headers.update(shown("bob's"))
        with pytest.raises(TaskNotFoundError):
            await o.client.get_task(GetTaskRequest(id=event.task.id))
        await o.say("hi", context="c")
        assert len(o.live.get("ann:c").messages) == 2


@pytest.mark.parametrize("name", ["a:b", "", "a b"])
async def test_a_user_that_could_be_taken_for_another_is_refused(name):
    with pytest.raises(SwarmError, match="the name of an A2A user"):
        async with office(tokens={name: "x"}):
            pass
