"""What holds for every format: any cut is the same, nothing is lost, every input ends."""

import inspect
import itertools
import re
import sys
import threading

import pytest
from hypothesis import given, settings, strategies as st

from palaver import MalformedToolCall, MessageError, Reasoning, Text, ToolCall, UnknownNameError
from palaver.core import jsontext
from palaver.core.events import ArgumentsDelta, PartEnd, PartStart, ReasoningDelta, TextDelta
from palaver.stream import local
from palaver.stream.assembler import Assembler
from tests.generated import examples

BAR, LOW = "\uff5c", "\u2581"
SEP = f"<{BAR}tool{LOW}sep{BAR}>"
JSON_CALLS = ['{"name":"f","arguments":{"a":[1,"é"]}}', '{"name": "f", "parameters": {}}', '"id":"x1",', '"z":1,']
PYTHON_CALLS = ["f(a=1)", "[f(a='x', b=[1,{k: None}])", ", g-h()]", "f(a=007, b=.5", "'", '"', "\\u00e9", "[1)", "("]
THINK = ["<think>", "</think>"]
FRAGMENTS = {
    "hermes": ["<tool_call>", "</tool_call>", *THINK, *JSON_CALLS, '"</tool_call>"', '"<tool_call>'],
    "codebuff": [
        "<codebuff_tool_call>\n",
        "\n</codebuff_tool_call>",
        *THINK,
        '{"cb_tool_name":"f","a":1}',
        '{\n  "cb_tool_name": "f",\n  "a": "</codebuff_tool_call>",\n  ',
        '"cb_easp": true\n}',
        '"</codebuff_tool_call>\\"',
        *JSON_CALLS,
    ],
    "qwen3_coder": [
        "<tool_call>",
        "</tool_call>",
        "<function=f>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
        "<tool_call><function=g><parameter=x>\n[1]\n</parameter></function></tool_call>",
        *THINK,
    ],
    "lfm2": ["<|tool_call_start|>", "<|tool_call_end|>", *THINK, *PYTHON_CALLS],
    "gemma3": ["```tool_code", "```", "\n", "print(f(a=1))", *PYTHON_CALLS],
    "gemma4": [
        "<|tool_call>",
        "<tool_call|>",
        "<|channel>thought",
        "<channel|>",
        "call:f{",
        'a:<|"|>x<|"|>',
        '<|"|>',
        'q:no<|"|>',
        ',b:[1,<|"|>y<|"|>]',
        "c:{d:true}",
        "}",
        "<|tool_call>call:g{n:1}<tool_call|>",
    ],
    "llama_json": ["<|python_tag|>", "<|eom_id|>", ";", '{"name":"f","parameters":{"a":1}}', *JSON_CALLS],
    "llama_pythonic": ["<|python_start|>", "<|python_end|>", "[", ",", "]", *PYTHON_CALLS],
    "mistral": [
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "[THINK]",
        "[/THINK]",
        "f",
        '{"a":1}',
        '{"a": "x ',
        "\\u12",
        *JSON_CALLS,
    ],
    "deepseek_v3": [
        *(f"<{BAR}{each.replace(' ', LOW)}{BAR}>" for each in ("tool calls begin", "tool calls end")),
        *(f"<{BAR}{each.replace(' ', LOW)}{BAR}>" for each in ("tool call begin", "tool call end", "tool sep")),
        "function",
        "f\n```json\n",
        '{"a":1}',
        "\n```",
        *THINK,
    ],
    "harmony": [
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
        "<|constrain|>",
        "assistant",
        "analysis",
        "final",
        "commentary to=functions.f",
        " to=python",
        '{"a":1}',
        '{"a": "x ',
        "x" * 1020,
    ],
    "text": THINK,
}
FRAGMENTS["qwen3_5"] = FRAGMENTS["qwen3_coder"]
FRAGMENTS["deepseek_v31"] = FRAGMENTS["deepseek_v3"]
NAMES = local.names()
HARD = settings(max_examples=examples(300))


def answers(name):
    """Answers made of what the format is made of, pieces of it, and anything."""
    whole = st.sampled_from(FRAGMENTS[name])
    piece = st.tuples(whole, st.integers(0, 12), st.integers(0, 12)).map(lambda cut: cut[0][cut[1] : cut[1] + cut[2]])
    odd = st.text(st.sampled_from("ab \"'\\{}[]()<>|/=:,;.0\n\t\u00a0é😀\ud83d"), max_size=5)
    return st.lists(st.one_of(whole, whole, piece, odd), max_size=16).map("".join)


formats = st.sampled_from(NAMES)
texts = formats.flatmap(lambda name: st.tuples(st.just(name), answers(name)))


def events(name, pieces, **options):
    parser = local.get(name, **options)
    found = [event for piece in pieces for event in parser.feed(piece)]
    return found + parser.finish()


def assembled(found):
    assembler = Assembler()
    assembler.extend(found)
    return assembler.content()


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def content(part):
    """Everything a part says."""
    match part:
        case Text(text) | Reasoning(text):
            return text
        case ToolCall(id, name, arguments):
            arguments = jsontext.value(arguments) if part.custom else arguments
            return f"{id} {name} {arguments} {part.provider}"
        case MalformedToolCall(raw, _, name, id):
            return f"{id} {name} {raw}"


def test_every_format_has_its_fragments():
    assert set(FRAGMENTS) == set(NAMES)


@pytest.mark.row("DAS-17")
@pytest.mark.law(3)
@HARD
@given(texts, st.lists(st.integers(0, 400), max_size=12), st.booleans())
def test_any_cut_gives_the_same_parts(format_and_text, places, prefilled):
    name, text = format_and_text
    whole = assembled(events(name, [text], start_in_think=prefilled))
    assert assembled(events(name, cut(text, places), start_in_think=prefilled)) == whole
    assert assembled(events(name, text, start_in_think=prefilled)) == whole
    assert local.read(name, text, start_in_think=prefilled) == whole


@pytest.mark.row("DAS-17")
@given(
    answers("hermes"), st.sampled_from([("<<", ">>"), ("ab", "ba"), ("<t", "</tool")]), st.lists(st.integers(0, 200))
)
def test_any_cut_gives_the_same_parts_with_other_tags(text, tags, places):
    text = text.replace("<think>", tags[0]).replace("</think>", tags[1])
    for name in ("lfm2", "qwen3_5", "gemma4", "text"):
        if name == "qwen3_5" and tags[0] == "<t":
            continue
        whole = assembled(events(name, [text], reasoning=tags))
        assert assembled(events(name, cut(text, places), reasoning=tags)) == whole
        assert assembled(events(name, text, reasoning=tags)) == whole


@given(texts)
def test_events_are_in_order(format_and_text):
    name, text = format_and_text
    is_open = {}
    for event in events(name, text):
        match event:
            case PartStart(index, part):
                assert index == len(is_open)
                assert not any(is_open.values())
                is_open[index] = part
            case PartEnd(index):
                assert is_open[index] is not None
                is_open[index] = None
            case TextDelta(index, piece):
                assert is_open[index] == Text("")
                assert piece
            case ReasoningDelta(index, piece):
                assert is_open[index] == Reasoning()
                assert piece
            case ArgumentsDelta(index, piece):
                assert isinstance(is_open[index], ToolCall)
                assert piece
            case _:
                pytest.fail(f"{event}")
    assert not any(is_open.values())


@given(texts)
def test_parts_are_what_they_should_be(format_and_text):
    name, text = format_and_text
    ids = []
    for part in local.read(name, text):
        match part:
            case ToolCall():
                assert part.name
                assert not part.arguments_json or jsontext.is_json(part.arguments_json)
                ids.append(part.id)
            case MalformedToolCall():
                assert part.reason
                assert part.raw == part.raw.strip()
                assert part.raw or part.name
            case Reasoning():
                assert part.text.strip()
                assert part.wire is None
            case Text():
                assert part.text.strip() or part.text == text
            case _:
                pytest.fail(f"{part}")
    made = [int(each[5:]) for each in ids if re.fullmatch(r"call_\d+", each)]
    assert made == sorted(set(made))


MARK = "Q{}Z"


@pytest.mark.row("DAS-16")
@pytest.mark.row("DAS-19")
@HARD
@given(texts, st.lists(st.integers(0, 400), min_size=1, max_size=5), st.booleans())
def test_nothing_is_lost(format_and_text, places, prefilled):
    """Words strewn anywhere into an answer, into tags and names and numbers too, come out in its parts."""
    name, text = format_and_text
    pieces = cut(text, places)
    marked = pieces[0] + "".join(MARK.format(number) + piece for number, piece in enumerate(pieces[1:]))
    said = "\0".join(map(content, local.read(name, marked, start_in_think=prefilled)))
    for number in range(len(places)):
        assert MARK.format(number) in said


@given(texts)
def test_text_outside_of_blocks_is_verbatim(format_and_text):
    name, text = format_and_text
    for part in local.read(name, text):
        if isinstance(part, (Text, Reasoning)):
            assert part.text in text or name == "harmony"


@pytest.mark.row("DAS-17")
@given(texts.filter(lambda each: not each[0].startswith("llama") and each[0] != "harmony"))
def test_text_is_not_delayed_by_more_than_a_tag(format_and_text):
    """Outside of blocks, what was fed and not said yet is space, or shorter than a tag."""
    name, text = format_and_text
    parser = local.get(name, start_in_think=False)
    fed, said = "", ""
    for char in text:
        fed += char
        for event in parser.feed(char):
            if isinstance(event, PartEnd):
                return  # a tag came
            said += event.text if isinstance(event, TextDelta) else ""
        rest = fed.lstrip() if not said.strip() else fed[len(said) :]
        if any(each.opens in fed for each in local.FORMATS[name].blocks) or "<think>" in fed or "[THINK]" in fed:
            return
        if any(mark in fed for mark in local.FORMATS[name].marks) or "<|channel>thought" in fed:
            return
        assert len(rest) < 24


@given(formats, st.text(max_size=200))
def test_any_text_is_read(name, text):
    assert assembled(events(name, text)) == local.read(name, text)


def test_arguments_behind_a_head_arrive_as_they_are_written():
    parser = local.get("mistral")
    parser.feed("[TOOL_CALLS]write[ARGS]")
    assembler = Assembler()
    found = parser.feed(' {"text": "Hel')
    assert [event.text for event in found] == ['{"text": "Hel']
    parser = local.get("mistral")
    assembler.extend(parser.feed('[TOOL_CALLS]write[ARGS] {"text": "Hel'))
    (call,) = assembler.calls
    assert (call.id, call.name, call.arguments_so_far) == ("call_0", "write", {"text": "Hel"})


@pytest.mark.law(3)
def test_a_number_that_turns_out_to_be_none_is_no_whole_argument():
    """Cut behind a digit, the beginning is JSON; the damage is found later, and lies before the cut."""
    head = "<|channel|>to=f<|message|>"
    found = assembled(events("harmony", [head + "2.x"]))
    assert [part.raw for part in found] == ["2.x"]
    assert assembled(events("harmony", [head + "2", ".x"])) == found


def test_ids_can_be_made_by_the_caller():
    text = '[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[CALL_ID]mine[ARGS]{}[TOOL_CALLS][{"name":"h"}]'
    parts = local.read("mistral", text, id_of="turn7-{}".format)
    assert [part.id for part in parts] == ["turn7-0", "mine", "turn7-2"]


def test_unknown_names_are_refused():
    with pytest.raises(UnknownNameError, match="hermes"):
        local.get("herms")
    with pytest.raises(UnknownNameError, match="bracket"):
        local.get("hermes", reasoning="thinking")


@pytest.mark.parametrize("tags", [("", "</a>"), ("<a>", "<a>x"), ("<tool_call>x", "</a>"), ("<a>", "")])
def test_ambiguous_tags_are_refused_at_once(tags):
    with pytest.raises(MessageError):
        local.get("hermes", reasoning=tags)


@pytest.mark.law(6)
def test_a_caller_deep_on_the_stack_gets_no_other_error():
    nested = "[" * 60 + "]" * 60
    cases = {
        "lfm2": f"<|tool_call_start|>f(a={nested})",
        "gemma4": f"<|tool_call>call:f{{a:{nested}}}",
        "hermes": f'<tool_call>{{"name":"f","arguments":{{"a":{nested}}}}}',
    }

    def below(levels, work):
        return below(levels - 1, work) if levels else work()

    for name, text in cases.items():
        assert isinstance(local.read(name, text)[0], ToolCall)
        levels = sys.getrecursionlimit() - len(inspect.stack(0)) - 120
        (part,) = below(levels, lambda name=name, text=text: local.read(name, text))
        assert (part.name, name) == ("f", name)
        assert isinstance(part, ToolCall) or part.reason == "nested too deeply"


# -- hostile input ---------------------------------------------------------------------------------

every_size = pytest.mark.parametrize("size", [250_000, pytest.param(1_000_000, marks=pytest.mark.long)])
UNITS = [
    "<",
    "[",
    "{",
    '{"a":',
    '"',
    "'",
    "0",
    " ",
    "\\",
    "f(",
    "f(a=[",
    "[1)",
    ",",
    ";",
    '{"name":"f","arguments":{}}',
    '{"name":"f","arguments":"',
    "f(a=1)",
    "call:f{a:1}",
    'a:<|"|>x<|"|>,',
    "<function=f></function>",
    "<parameter=a>x",
]
BEFORE = {
    "hermes": "<tool_call>",
    "qwen3_coder": "<tool_call><function=f><parameter=a>",
    "lfm2": "<|tool_call_start|>f(a=",
    "gemma4": "<|tool_call>call:f{a:",
    "mistral": "[TOOL_CALLS]f[ARGS]",
    "llama_json": '{"name":',
    "llama_pythonic": "[f(a=",
    "deepseek_v3": f"<{BAR}tool{LOW}call{LOW}begin{BAR}>",
    "deepseek_v31": f"<{BAR}tool{LOW}call{LOW}begin{BAR}>f{SEP}",
    "harmony": "<|channel|>final to=f<|message|>",
}


def within(seconds, work):
    """Run, and fail instead of hanging."""
    done = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert done, f"not done after {seconds} seconds"
    return done[0]


def hostile(name, size):
    yield from (unit * (size // 10 // len(unit)) for unit in (*UNITS, *FRAGMENTS[name]))
    for unit in (*UNITS, *FRAGMENTS[name]):
        yield BEFORE.get(name, "") + unit * (size // 10 // len(unit))


@pytest.mark.row("DAS-16")
@pytest.mark.law(6)
@every_size
@pytest.mark.parametrize("name", NAMES)
def test_hostile_answers_end(name, size):
    def work():
        for text in hostile(name, size):
            local.read(name, text)
        return True

    within(60, work)


@pytest.mark.row("DAS-16")
@pytest.mark.law(6)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", lambda size: "<tool_call>" * (size // 11)),
        ("hermes", lambda size: "<tool_call>" + "[" * size),
        ("hermes", lambda size: "<tool_call>" + '{"a":' * (size // 5)),
        ("lfm2", lambda size: "<|tool_call_start|>" + "f(a=[" * (size // 5)),
        ("lfm2", lambda size: "<|tool_call_start|>f(a='" + "\\" * size),
        ("lfm2", lambda size: "<|tool_call_start|>f(a=" + "0" * size + "x)"),
        ("llama_json", lambda size: '{"name":"f","parameters":{}}' * (size // 28)),
        ("llama_pythonic", lambda size: "[f(" + "[1)" * (size // 3)),
        ("gemma4", lambda size: '<|tool_call>call:f{a:<|"|>' + 'x<|"|>,' * (size // 7)),
        ("qwen3_coder", lambda size: "<tool_call><function=f>" + "<parameter=a>" * (size // 13)),
        ("mistral", lambda size: '[TOOL_CALLS]f[ARGS]{"a":"' + "\\u12" * (size // 4)),
        ("mistral", lambda size: "[TOOL_CALLS] " + "[ARGS]" * (size // 6)),
        ("deepseek_v31", lambda size: "<" * size),
        ("harmony", lambda size: "<|channel|>" * (size // 11)),
        ("harmony", lambda size: "<|channel|>to=f<|message|>{" * (size // 27)),
        ("text", lambda size: "<think>" * (size // 7)),
    ],
)
@every_size
def test_a_long_hostile_answer_ends(name, text, size):
    within(30, lambda: local.read(name, text(size)))


def steps(name, text):
    """Lines of Python that run while a text is read: time that does not depend on the machine."""
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        if "palaver" not in frame.f_code.co_filename:
            return None
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        local.read(name, text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.row("DAS-16")
@pytest.mark.parametrize("name", NAMES)
def test_steps_grow_with_the_length(name):
    for unit in (*FRAGMENTS[name], "<", "[", "f(a=[", '{"a":', "'"):
        for before in ("", BEFORE.get(name, "")):
            few = steps(name, before + unit * 40)
            many = steps(name, before + unit * 160)
            assert many < 5 * few + 2000, (unit, before)
