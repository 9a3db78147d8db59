"""What the model of one agent sees (docs/spec/agent-swarm-kit.md#2.5, with the deviations; traces of section 10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.core.errors import StoreError
from palaver.threads import DISCARDED, PLACEHOLDER, AgentView, Thread, for_agent
from tests.threads.logs import AGENTS, KEEPS, logs, path_of


def _blank(message: p.Message) -> bool:
    return not message.content or (message.role != "tool" and set(message.content) == {p.Text("")})


def _theirs(message: p.Message) -> bool:
    return message.role == "tool" or bool(message.tool_calls or message.malformed_tool_calls)


def _calls(message: p.Message) -> set[str]:
    return {call.id for call in message.tool_calls if not call.provider_executed}


def oracle(log: tuple[p.Message, ...], agent: str, keep: int | None) -> list[p.Message]:
    """The context by the letter of 2.5, written down without thought of cost."""
    hidden: set[int] = set()
    for at, marker in enumerate(log):
        if isinstance(marker, (p.RescueMarker, p.FlushMarker)):
            scope = marker.scope or {"rescue": "turn", "flush": "thread"}[marker.role]
            users = [i for i in range(at) if log[i].role == "user" and log[i].mode != "tool"]
            start = max(users, default=0) if scope == "turn" else 0
            hidden.update([at] if scope == "agent" and marker.agent != agent else range(start, at + 1))
    unsent = {DISCARDED, PLACEHOLDER}
    seen = [log[i] for i in range(len(log)) if i not in hidden and not unsent & set(log[i].tags) and not _blank(log[i])]
    system = [each for each in seen if each.role == "system" and each.agent == agent]
    common = [each for each in seen if each.role != "system" and (each.agent == agent or not _theirs(each))]
    window = common[max(len(common) - keep, 0) :] if keep is not None else common
    asked = [each for each in log if each.role == "user" and each.mode != "tool"][-1:]
    if keep != 0 and not any(each is asked[0] for each in window for _ in asked):
        window = [*(each for each in common if any(each is one for one in asked)), *window]
    answered = {each.tool_call_id for each in window if isinstance(each, p.ToolMessage)}
    malformed = {call.id for each in window for call in each.malformed_tool_calls}
    requested = ({id_ for each in window for id_ in _calls(each)} | malformed) & answered
    context: list[p.Message] = []
    for each in window:
        if isinstance(each, p.ToolMessage):
            context += [each] if each.tool_call_id in requested else []
        elif _calls(each) <= requested:
            context.append(each)
        else:
            lost = _calls(each) - requested
            rest = [
                x for x in each.content if not (isinstance(x, p.ToolCall) and x.id in lost and not x.provider_executed)
            ]
            kinds = {type(x) for x in rest if x != p.Text("")}
            context += [each.replace(content=rest)] if kinds - {p.Reasoning} else []
    return system + context


@pytest.mark.row("ASK-03")
@given(log=logs(), keep=st.sampled_from(KEEPS), agent=st.sampled_from(AGENTS))
def test_the_context_is_that_of_the_oracle(log: Any, keep: Any, agent: str):
    path = path_of(*log)
    assert list(for_agent(path, agent, keep=keep)) == oracle([e.message for e in path], agent, keep)


@pytest.mark.row("ASK-03")
@given(log=logs(), keep=st.sampled_from(KEEPS))
def test_the_extra_filter_takes_away_what_it_refuses_and_nothing_when_it_fails(log: Any, keep: Any):
    def where(message: p.Message) -> bool:
        if "1" in message.text:
            raise LookupError
        return "2" not in message.text

    path = path_of(*log)
    admitted = tuple(m for m in [e.message for e in path] if m.role in {"system", "rescue", "flush"} or _kept(where, m))
    # a refused message of the user still begins its turn
    began = [m if m in admitted or m.role != "user" else m.replace(content=()) for m in [e.message for e in path]]
    left = tuple(m for m in began if m in admitted or m.role == "user")
    assert list(for_agent(path, "a", keep=keep, where=where)) == oracle(left, "a", keep)


def _kept(where: Any, message: p.Message) -> bool:
    try:
        return where(message)
    except LookupError:
        return True


# -- the traces ----------------------------------------------------------------------------------------------------

PROMPT = "You are A."


def _said(messages: Any) -> list[str]:
    """Messages as the traces write them."""
    out: list[str] = []
    for each in messages:
        if isinstance(each, p.ToolMessage):
            out.append(f"(re:{each.tool_call_id})")
        elif each.tool_calls:
            out.append(f"{each.text}[{','.join(call.name for call in each.tool_calls)}]")
        else:
            out.append(each.text)
    return out


def _requests(*names: str, agent: str = "A", text: tuple[str, ...] = ()) -> p.AssistantMessage:
    return p.assistant(*text, tool_calls=[p.tool_call(name, id=name) for name in names], agent=agent, mode="tool")


def _result(name: str, agent: str = "A") -> p.ToolMessage:
    return p.tool("done", tool_call_id=name, tool_name=name, agent=agent, mode="tool")


def _typed(text: str, agent: str = "A") -> p.UserMessage:
    return p.user(text, agent=agent, mode="user")


def _context(*log: p.Message, agent: str = "A", keep: int | None = 15, prompt: str = PROMPT) -> list[str]:
    return _said(for_agent(path_of(*log), agent, keep=keep, prompt=prompt))


@pytest.mark.row("ASK-04")
def test_s1_a_rescue_hides_the_failed_turn_or_with_scope_thread_everything():
    before = (_typed("zero"), p.assistant("ok", agent="A"))
    failed = (_typed("one"), p.assistant("", agent="A", mode="tool"))
    assert _context(*before, *failed, p.rescue("Empty output", agent="A"), _typed("two")) == [
        PROMPT,
        "zero",
        "ok",
        "two",
    ]
    start = p.user("Start the conversation", agent="A", mode="tool")
    rescue = p.rescue("Empty output", scope="thread", agent="A", mode="tool")
    path = path_of(*before, *failed, rescue, start, _typed("two"))
    assert _said(for_agent(path, "A", prompt=PROMPT)) == [PROMPT, "Start the conversation", "two"]
    assert len(path) == 7, "the log keeps all"


@pytest.mark.row("ASK-04")
def test_a_failed_turn_ends_where_its_marker_stands():
    """What the turn made itself goes with it: tool continuations, retries, a second marker."""
    log = (
        p.system("standing", agent="A"),
        _typed("one"),
        p.assistant("first", agent="A"),
        _typed("two"),
        p.system("of the turn", agent="A"),
        _requests("f"),
        _result("f"),
        p.user("go on", agent="A", mode="tool"),
        p.rescue("bad", agent="A"),
        p.assistant("second try", agent="A"),
        p.rescue("bad again", agent="A"),
        p.assistant("after", agent="A"),
    )
    assert _context(*log) == [PROMPT, "standing", "one", "first", "after"]


@pytest.mark.row("ASK-04")
def test_a_turn_hidden_later_opens_the_window_to_older_messages():
    view, thread = AgentView("a", keep=2), Thread()
    thread.append(*[p.user(str(number)) for number in range(6)])
    assert _said(view(thread.path())) == ["4", "5"]
    thread.append(p.rescue(), p.assistant("x"))
    assert _said(view(thread.path())) == ["4", "x"]


@pytest.mark.row("ASK-04")
@pytest.mark.parametrize(("scope", "to_a", "to_b"), [("thread", [], []), ("agent", [], ["old"]), ("turn", [], [])])
@pytest.mark.parametrize("make", [p.flush, p.rescue])
def test_the_scope_of_a_marker_says_from_whom_it_hides(make: Any, scope: Any, to_a: Any, to_b: Any):
    log = (_typed("old"), make(scope=scope, agent="A"))
    assert _context(*log, agent="A", prompt="") == to_a
    assert _context(*log, agent="B", prompt="") == to_b


@pytest.mark.row("ASK-06")
def test_s2_a_request_keeps_the_calls_that_were_answered():
    assert _context(_requests("f1", "f2"), _result("f2"), _typed("q")) == [PROMPT, "[f2]", "(re:f2)", "q"]


@pytest.mark.row("ASK-06")
def test_s3_a_window_that_cuts_a_pair_holds_neither_half():
    log = (_requests("f"), _result("f"), _typed("q"))
    assert _context(*log, keep=2) == [PROMPT, "q"]
    assert _context(*log, keep=3) == [PROMPT, "[f]", "(re:f)", "q"]


@pytest.mark.row("ASK-06")
def test_a_message_keeps_its_text_when_it_loses_its_calls():
    answer = p.assistant("no calls", tool_calls=[], agent="A")
    asked = _requests("f", text=("let me look",))
    log = (_typed("1"), answer, _typed("2"), asked, _typed("3"), p.assistant("third", agent="A"))
    assert _context(*log) == [PROMPT, "1", "no calls", "2", "let me look", "3", "third"]
    mixed = (_typed("1"), p.assistant(reasoning="I need f", tool_calls=[p.tool_call("f", id="f")], agent="A"))
    assert _context(*mixed) == [PROMPT, "1"], "reasoning alone is no text"


@pytest.mark.row("ASK-04")
@pytest.mark.row("ASK-02")
def test_s5_agents_see_each_others_words_and_not_each_others_tools():
    log = [
        p.system("system", agent="A"),
        _requests("f"),
        _result("f"),
        p.developer("developer", agent="A"),
        _typed("m1"),
    ]
    assert _context(*log) == [PROMPT, "system", "[f]", "(re:f)", "developer", "m1"]
    log += [p.assistant("ans-A", agent="A"), _typed("m2", agent="B")]
    assert _context(*log, agent="B", prompt="PB") == ["PB", "developer", "m1", "ans-A", "m2"]
    log += [p.flush(agent="B"), _typed("m3")]
    assert _context(*log) == [PROMPT, "m3"]


@pytest.mark.row("ASK-06")
def test_a_call_that_could_not_be_read_belongs_to_its_agent_with_its_result_or_without():
    broken = p.assistant("text", p.MalformedToolCall("<f", "no end tag", "f", "f"), agent="A")
    log = (_typed("q"), broken, _result("f"))
    assert _context(*log) == [PROMPT, "q", "text", "(re:f)"]
    assert _context(*log[:-1]) == [PROMPT, "q", "text"]
    assert _context(*log, agent="B", prompt="PB") == ["PB", "q"]


@pytest.mark.row("ASK-02")
def test_clients_have_threads_of_their_own():
    clients = {name: Thread() for name in map(str, range(20))}
    for turn in range(3):
        for name, thread in clients.items():
            thread.append(p.user(f"{name}.{turn}", agent="A"))
    for name, thread in clients.items():
        assert _said(for_agent(thread.path(), "B")) == [f"{name}.{turn}" for turn in range(3)]


@pytest.mark.row("ASK-03")
def test_s18_the_default_window():
    view, thread, sizes = AgentView("A", prompt=PROMPT), Thread(), []
    for turn in range(10):
        thread.append(_typed(f"q{turn}"))
        sizes.append(len(view(thread.path())) - 1)
        thread.append(p.assistant(f"a{turn}", agent="A"))
    assert sizes == [1, 3, 5, 7, 9, 11, 13, 15, 15, 15]


@pytest.mark.row("ASK-05")
def test_the_order_of_what_stands_before_the_dialogue():
    instructions = ("global", "static", "", "dynamic", "flags")
    thread = Thread()
    thread.append(_typed("0"), p.system("own", agent="A"), p.system("B's", agent="B"), p.system("", agent="A"))
    thread.append(*[_typed(str(number)) for number in range(1, 30)])
    view = AgentView("A", keep=1, prompt="prompt", instructions=instructions)
    context = view(thread.path())
    assert _said(context) == ["prompt", "global", "static", "dynamic", "flags", "own", "29"]
    assert [(each.role, each.mode, each.agent) for each in context[:5]] == [("system", "tool", "A")] * 5
    view.instruct("prompt", ["other"])
    assert _said(view(thread.path())) == ["prompt", "other", "own", "29"]


@pytest.mark.row("ASK-03")
def test_what_says_nothing_is_left_out_and_what_shows_something_is_not():
    image = p.Image(p.Url("https://example.com/a.png"), "image/png")
    log = (
        p.user(payload={"a": 1}),
        p.user(""),
        p.user(image),
        p.assistant(tool_calls=[]),
        p.system(agent="A", payload=1),
    )
    assert [each.images for each in for_agent(path_of(*log), "A")] == [(image,)]


@pytest.mark.row("ASK-06")
def test_a_result_of_empty_text_is_an_answer():
    context = for_agent(path_of(_requests("f"), p.tool("", tool_call_id="f", agent="A")), "A")
    assert _said(context) == ["[f]", "(re:f)"]


def test_a_window_cannot_be_negative():
    with pytest.raises(StoreError, match="keep: -1 is not"):
        AgentView("a", keep=-1)


@pytest.mark.finding("F-43")
@pytest.mark.parametrize("keep", [1, 2, 3, 15])
def test_the_message_of_the_turn_stays_however_many_tools_it_calls(keep: int):
    pairs = [each for n in range(20) for each in (_requests(f"f{n}"), _result(f"f{n}"))]
    log = (_typed("old"), p.assistant("answer", agent="A"), _typed("question"), *pairs)
    context = _context(*log, keep=keep)
    assert context[:2] == [PROMPT, "question"]
    assert len(context) == 2 + keep // 2 * 2
    assert _context(*log, keep=0) == [PROMPT]


@pytest.mark.finding("F-43")
def test_the_message_of_a_turn_that_a_program_began_stays():
    pairs = [each for n in range(20) for each in (_requests(f"f{n}"), _result(f"f{n}"))]
    pushed = p.user("pushed", agent="A", mode="tool")
    path = path_of(_typed("old"), p.assistant("answer", agent="A"), pushed, *pairs)
    view = AgentView("A", keep=4)
    assert _said(view(path, since=2)) == ["pushed", "[f18]", "(re:f18)", "[f19]", "(re:f19)"]
    assert _said(view(path)) == ["old", "[f18]", "(re:f18)", "[f19]", "(re:f19)"]
    hidden = path_of(*[e.message for e in path], p.flush(agent="A"), _requests("g"), _result("g"))
    assert _said(view(hidden, since=2)) == ["[g]", "(re:g)"]
