"""Guardrails: docs/spec/kairo.md#2.6, KAI-20, D22."""

from __future__ import annotations

import anyio
import pytest

import palaver as p
from palaver.agent import Agent, function_tool
from palaver.agent.guardrails import Guardrail, deny, modify, warn
from palaver.core.errors import MessageError
from palaver.core.usage import Usage
from palaver.models.scripted import Broken, ScriptedModel
from palaver.threads.view import DISCARDED
from palaver.turn.events import MessageAdded, TextDelta, Warned
from palaver.turn.middleware import Middleware
from tests.clocks import JUMPING


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def calling(name="add", arguments='{"a": 1, "b": 2}', id="c1"):
    return p.assistant(p.ToolCall(id=id, name=name, arguments_json=arguments))


ran = []


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    ran.append((a, b))
    return a + b


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


def agent(script, **guards):
    return Agent(ScriptedModel(script), tools=[add], middleware=[Guardrail(**guards)])


def noting(trace, name, said=None):
    def policy(value, context, *more):
        trace.append(name)
        return said(value) if callable(said) else said

    return policy


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.row("KAI-20")
@pytest.mark.anyio
async def test_the_first_deny_wins_and_the_model_is_not_asked():
    trace = []
    made = agent(
        ["never"], before_model=[noting(trace, 1), noting(trace, 2, deny("secret")), noting(trace, 3, deny("no"))]
    )
    run = await made.run("x")
    assert (run.outcome, run.reason, trace) == ("blocked", "secret", [1, 2])
    assert made.model.asked == []
    assert [m.role for m in run.messages] == ["user"]


@pytest.mark.row("KAI-20")
@pytest.mark.anyio
async def test_a_blocked_answer_is_kept_discarded_counted_and_never_sent():
    usage = Usage(input=10, output=5)
    bad = p.assistant("the password is 1234").replace(usage=usage)
    made = agent([bad, "fine"], after_model=[lambda m, _c: deny("leak") if "password" in m.text else None])
    async with made.stream("x") as running:
        shown = [event async for event in running]
    run = running.result
    assert (run.outcome, run.reason) == ("blocked", "leak")
    assert run.messages[-1].text == "the password is 1234"
    assert DISCARDED in run.messages[-1].tags
    assert run.usage == usage, "it was paid for"
    assert not [e for e in shown if isinstance(e, TextDelta)], "nobody was shown it"
    after = await made.run("again", previous=run)
    assert after.text == "fine"
    assert "password" not in repr(list(made.model.asked[-1].messages))


@pytest.mark.anyio
async def test_an_answer_that_passes_is_shown_whole_before_it_is_added():
    made = agent([p.assistant(p.Reasoning("hm"), "hello")], after_model=[lambda _m, _c: None])
    async with made.stream("x") as running:
        told = [e async for e in running if isinstance(e, TextDelta | MessageAdded)]
    assert [getattr(e, "text", None) or e.message.text for e in told] == ["x", "hello", "hello"]


@pytest.mark.row("KAI-20")
@pytest.mark.anyio
async def test_modifications_chain_at_all_four_places():
    made = agent(
        [calling(), "three"],
        before_model=[
            lambda prompt, _c: modify(prompt.replace(system=(*prompt.system, p.system("a")))),
            lambda prompt, _c: modify(prompt.replace(system=(*prompt.system, p.system("b")))),
        ],
        after_model=[
            lambda m, _c: modify(m.replace(content=["four"])) if m.text == "three" else None,
            lambda m, _c: modify(m.replace(content=[m.text + "!"])) if m.text == "four" else None,
        ],
        before_tool=[
            lambda request, _c: modify({**request.context.call.arguments, "a": 10}),
            lambda request, _c: modify({**request.context.call.arguments, "b": request.arguments["a"]}),
        ],
        after_tool=[
            lambda _out, _c, _request: modify("about"),
            lambda out, _c, _r: modify(out.content[0].text + " 20"),
        ],
    )
    run = await made.run("x")
    assert ran == [(10, 10)]
    assert [s.text for s in made.model.asked[0].system] == ["a", "b"]
    call, result, answer = run.messages[1:]
    assert (result.text, answer.text) == ("about 20", "four!")
    assert call.tool_calls[0].arguments_json == '{"a": 1, "b": 2}', "the model's call stays"
    assert result.metadata["guardrail"] == {"arguments": {"a": 10, "b": 10}}


# -- tools -------------------------------------------------------------------------------------------------------------


NOT_ALLOWED = "The add call was not allowed: not today"
HAS_RUN = "The add call has run, and may have taken effect. Its result was withheld: not today"


@pytest.mark.row("KAI-20")
@pytest.mark.finding("F-11")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("place", "text", "code"),
    [("before_tool", NOT_ALLOWED, "denied_by_guardrail"), ("after_tool", HAS_RUN, "withheld_by_guardrail")],
)
async def test_a_denied_tool_is_an_error_result_that_says_whether_it_ran(place, text, code):
    run = await agent([calling(), "ok"], **{place: [lambda *_seen: deny("not today")]}).run("x")
    result = run.messages[2]
    assert (run.outcome, result.is_error, result.text) == ("completed", True, text)
    assert result.metadata["error_code"] == code
    assert bool(ran) is (place == "after_tool")


@pytest.mark.finding("F-11")
@pytest.mark.anyio
async def test_a_result_that_is_denied_behind_a_denied_call_does_not_claim_that_the_tool_ran():
    outer = Guardrail(after_tool=[lambda *_seen: deny("not today")])
    inner = Guardrail(before_tool=[lambda *_seen: deny("never")])
    run = await Agent(ScriptedModel([calling(), "ok"]), tools=[add], middleware=[outer, inner]).run("x")
    assert (run.messages[2].text, ran) == (NOT_ALLOWED, [])


@pytest.mark.finding("F-11")
@pytest.mark.anyio
async def test_a_result_that_is_denied_behind_a_failed_tool_says_that_it_was_started():
    @function_tool
    def fail() -> None:
        """Fail."""
        raise RuntimeError("token=abc")

    guard = Guardrail(after_tool=[lambda *_seen: deny("it holds a token")])
    made = Agent(ScriptedModel([calling("fail", "{}"), "ok"]), tools=[fail], middleware=[guard])
    text = (await made.run("x")).messages[2].text
    assert text.startswith("The fail call was started and failed, and may have taken effect.")
    assert "abc" not in text


class PendingApprovals(Middleware):
    """Waits for ever before the tool, or behind it."""

    def __init__(self, before):
        self.before = before

    async def wrap_tool_call(self, request, context, call):
        if self.before:
            await anyio.sleep_forever()
        output = await call(request)
        await anyio.sleep_forever()
        return output


@pytest.mark.finding("F-11")
@JUMPING
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("before", "text"),
    [
        (True, "add was not run: it was not started within 30 seconds."),
        (False, "add has run, but its result was not ready after 30 seconds. It may have taken effect."),
    ],
)
async def test_a_call_whose_middleware_takes_too_long_says_whether_the_tool_ran(before, text):
    @function_tool(timeout=30)
    async def add(a: int, b: int) -> int:
        """Add."""
        ran.append((a, b))
        return a + b

    run = await Agent(ScriptedModel([calling(), "ok"]), tools=[add], middleware=[PendingApprovals(before)]).run("x")
    assert (run.messages[2].text, bool(ran)) == (text, not before)


@pytest.mark.anyio
async def test_arguments_that_a_policy_makes_are_checked():
    run = await agent([calling(), "ok"], before_tool=[lambda _r, _c: modify({"a": "many", "b": 1})]).run("x")
    assert run.messages[2].is_error
    assert ran == []


@pytest.mark.anyio
async def test_what_a_tool_raises_is_looked_at_too():
    @function_tool
    def add(a: int, b: int) -> int:
        """Fail."""
        raise RuntimeError("token=abc")

    guard = Guardrail(after_tool=[lambda out, _c, _r: modify("it failed") if "token" in out.content[0].text else None])
    run = await Agent(ScriptedModel([calling(), "ok"]), tools=[add], middleware=[guard]).run("x")
    assert (run.messages[2].text, run.messages[2].is_error) == ("it failed", True)


# -- failures ----------------------------------------------------------------------------------------------------------


def raising(*seen):
    raise KeyError("policy")


async def raising_later(*seen):
    raise KeyError("policy")


@pytest.mark.row("KAI-20")
@pytest.mark.anyio
@pytest.mark.parametrize("policy", [raising, raising_later, lambda *_seen: True])
@pytest.mark.parametrize("place", ["before_model", "after_model", "before_tool", "after_tool"])
async def test_a_policy_that_raises_denies(place, policy):
    script = [calling(), "ok"] if "tool" in place else ["ok"]
    run = await agent(script, **{place: [policy]}).run("x")
    if "tool" in place:
        assert run.messages[2].is_error
        assert "a policy failed" in run.messages[2].text
    else:
        assert run.outcome == "blocked"


@pytest.mark.row("KAI-20")
@pytest.mark.anyio
async def test_a_policy_that_raises_can_be_set_to_allow():
    made = agent(["ok"], before_model=[raising], after_model=[lambda _m, _c: warn("short")], on_error="allow")
    async with made.stream("x") as running:
        told = [e.text async for e in running if isinstance(e, Warned)]
    assert running.result.outcome == "completed"
    assert told == ["Guardrail: a policy failed: KeyError: 'policy'", "Guardrail: short"]


def test_a_place_has_bounded_policies():
    with pytest.raises(MessageError, match="65 policies"):
        Guardrail(before_model=[raising] * 65)


@pytest.mark.anyio
async def test_without_policies_nothing_changes():
    run = await agent([calling(), "3"]).run("x")
    assert run.text == "3"
    assert ran == [(1, 2)]


# -- what modify may give, and what is withheld where a guardrail cannot be applied ------------------------------------

KEY = "the key is sk-123"


def redacted(message, _context):
    return modify(message.text.replace("sk-123", "***")) if "sk-" in message.text else None


@pytest.mark.finding("S-06")
@pytest.mark.anyio
async def test_an_answer_is_modified_by_a_text_that_stands_for_its_texts():
    said = p.assistant(p.Text("the key "), p.Reasoning("hm"), p.Text("is sk-123"), p.ToolCall("c1", "add", "{}"))
    made = agent([said, KEY, "bye"], after_model=redacted)
    run = await made.run("x")
    first = run.messages[1]
    assert [type(part) for part in first.content] == [p.Text, p.Reasoning, p.ToolCall]
    assert (first.text, run.text, run.outcome) == ("the key is ***", "the key is ***", "completed")
    await made.run("again", previous=run)
    assert "sk-123" not in repr([prompt.messages for prompt in made.model.asked])


@pytest.mark.finding("S-06")
@pytest.mark.anyio
@pytest.mark.parametrize("on_error", ["deny", "allow"])
@pytest.mark.parametrize("value", [None, 5, ["x"], {"a": 1}, p.user("x"), p.Image.from_url("https://x.example/y.png")])
async def test_an_answer_is_withheld_whose_modification_is_no_answer(value, on_error):
    made = agent([KEY, "bye"], after_model=[lambda _m, _c: modify(value)], on_error=on_error)
    run = await made.run("x")
    assert (run.outcome, run.text, run.answer, run.output, list(run.last_turn)) == ("blocked", "", None, "", [])
    assert type(value).__name__ in run.reason
    assert run.messages[-1].tags == (DISCARDED,)
    await made.run("again", previous=run)
    assert "sk-123" not in repr(made.model.asked[-1].messages)


class Breaks(Middleware):
    """Raises around the call of the model, behind the guardrail or before it."""

    def __init__(self, error):
        self.error = error

    async def wrap_model_call(self, prompt, context, call):
        await call(prompt)
        raise self.error


@pytest.mark.finding("S-06")
@pytest.mark.anyio
@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("no"), MessageError("no")])
async def test_an_answer_that_a_guardrail_never_passed_is_kept_discarded(error, outside):
    guard = Guardrail(after_model=lambda _m, _c: None)
    middleware = [Breaks(error), guard] if outside else [guard, Breaks(error)]
    made = Agent(ScriptedModel([p.assistant(KEY, p.ToolCall("c1", "add", "{}")), "b"]), middleware=middleware)
    run = await made.run("x")
    assert (run.outcome, run.text) == ("failed", "")
    await Agent(made.model).run("again", thread=run.thread)
    sent = made.model.asked[-1].messages
    assert (sent[0].text, sent[-1].text) == ("x", "again")
    assert KEY not in repr(sent)
    assert not [each for each in run.thread.path() if each.message.role == "tool"], (
        "nothing answers a call that nobody is sent"
    )


@pytest.mark.finding("S-06")
@pytest.mark.anyio
async def test_a_stream_that_breaks_off_before_a_guardrail_saw_it_is_not_sent_back():
    made = agent([Broken(p.assistant(KEY)), "fine"], after_model=redacted)
    run = await made.run("x")
    assert (run.outcome, run.text) == ("completed", "fine")
    assert [m.text for m in run.messages if DISCARDED in m.tags] == [KEY]
    assert "sk-123" not in repr(made.model.asked[-1].messages)
    assert "Answer again" in made.model.asked[-1].messages[-1].text


@pytest.mark.finding("S-06")
@pytest.mark.anyio
async def test_an_answer_that_is_cancelled_before_a_guardrail_passed_it_is_kept_discarded():
    entered = anyio.Event()

    async def stuck(_message, _context):
        entered.set()
        await anyio.sleep_forever()

    made = agent([KEY, "fine"], after_model=stuck)
    async with made.stream("x") as running:
        await entered.wait()
        running.cancel()
        await running.wait()
    assert (running.result.outcome, running.result.text) == ("cancelled", "")
    await Agent(made.model).run("again", thread=running.result.thread)
    assert "sk-123" not in repr(made.model.asked[-1].messages)


@pytest.mark.finding("S-06")
@pytest.mark.anyio
@pytest.mark.parametrize("value", ["text", 5, None, p.user("x")])
async def test_a_prompt_is_not_sent_whose_modification_is_no_prompt(value):
    made = agent(["never"], before_model=lambda _p, _c: modify(value))
    run = await made.run("x")
    assert (run.outcome, made.model.asked) == ("blocked", [])
    assert "takes a Prompt" in run.reason


@pytest.mark.finding("S-06")
@pytest.mark.anyio
@pytest.mark.parametrize("value", ["text", 5, None, [("a", 1)]])
async def test_a_call_is_not_run_whose_modification_is_no_mapping(value):
    run = await agent([calling(), "ok"], before_tool=lambda _r, _c: modify(value)).run("x")
    assert (run.messages[2].is_error, ran) == (True, [])
    assert "as a mapping" in run.messages[2].text
    assert run.messages[2].metadata["error_code"] == "denied_by_guardrail"


@pytest.mark.finding("S-06")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("about", p.Text("about")),
        (5, p.Json.of(5)),
        (None, p.Text("(no output)")),
        (p.tool("about", tool_call_id="c1"), p.Text("about")),
    ],
)
async def test_a_result_is_modified_by_whatever_a_tool_may_give_back(value, part):
    made = agent([calling(), "ok"], after_tool=lambda _o, _c, _r: modify(value))
    await made.run("x")
    assert made.model.asked[-1].messages[-1].content == (part,)


@pytest.mark.finding("S-06")
@pytest.mark.anyio
@pytest.mark.parametrize("value", [object(), p.assistant("x"), float("nan")])
async def test_a_result_is_withheld_whose_modification_is_no_result(value):
    run = await agent([calling(), "ok"], after_tool=lambda _o, _c, _r: modify(value)).run("x")
    assert run.messages[2].is_error
    assert run.messages[2].metadata["error_code"] == "withheld_by_guardrail"


@pytest.mark.finding("S-06")
@pytest.mark.parametrize("given", ["deny", 5, [5], None])
def test_what_is_no_policy_is_refused_by_name(given):
    with pytest.raises(MessageError, match=r"Guardrail: before_tool: .* is not a function"):
        Guardrail(before_tool=given)
