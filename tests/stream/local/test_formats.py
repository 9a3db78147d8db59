"""What each format reads, as a table: the text of an answer, and its parts."""

import pytest

from palaver import MalformedToolCall, Reasoning, Text, ToolCall
from palaver.core.events import TextDelta
from palaver.core.tools import Tool
from palaver.stream import local
from palaver.stream.assembler import Assembler

BAR, LOW = "\uff5c", "\u2581"


def deepseek(text):
    """DeepSeek's tags, which no keyboard has, are written <{tool calls begin}>."""
    for name in ("tool calls begin", "tool calls end", "tool call begin", "tool call end", "tool sep"):
        text = text.replace(f"<{{{name}}}>", f"<{BAR}{name.replace(' ', LOW)}{BAR}>")
    return text


def call(number, name, arguments=""):
    return ToolCall(f"call_{number}", name, arguments)


def bad(raw, name=None):
    """A malformed call; the reason is free."""
    return (raw, name)


def seen(parts):
    """Parts for comparison: of a malformed call, what `bad` says."""
    for part in parts:
        if isinstance(part, MalformedToolCall):
            assert part.reason
    return [(part.raw, part.name) if isinstance(part, MalformedToolCall) else part for part in parts]


HERMES = {
    "text only": ("Hello <b>world</b>\n", [Text("Hello <b>world</b>\n")]),
    "nothing": ("", []),
    "blank": (" \n", [Text(" \n")]),
    "a call": ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [call(0, "f", '{"a": 1}')]),
    "arguments as written": (
        '<tool_call>{"arguments": {"a" :2.0,"b":5e-06 , "c":"\\u00e9é"},"name":"f"}</tool_call>',
        [call(0, "f", '{"a" :2.0,"b":5e-06 , "c":"\\u00e9é"}')],
    ),
    "two calls and text around": (
        'Well.\n<tool_call>\n{"name":"f","arguments":{}}\n</tool_call>\n<tool_call>{"name":"g"}</tool_call>\nBye',
        [Text("Well.\n"), call(0, "f", "{}"), call(1, "g"), Text("\nBye")],
    ),
    "two calls in a block": (
        '<tool_call>{"name":"f","arguments":{}}\n{"name":"g","arguments":{}}</tool_call>',
        [call(0, "f", "{}"), call(1, "g", "{}")],
    ),
    "an array": ('<tool_call>[{"name":"f"}, {"name":"g"}]</tool_call>', [call(0, "f"), call(1, "g")]),
    "parameters": ('<tool_call>{"name":"f","parameters":{"x":[1,{}]}}</tool_call>', [call(0, "f", '{"x":[1,{}]}')]),
    "arguments as a string": (
        '<tool_call>{"name":"f","arguments":"{\\"a\\": \\"é\\"}"}</tool_call>',
        [call(0, "f", '{"a": "é"}')],
    ),
    "a string that holds no object": (
        '<tool_call>{"name":"f","arguments":"hello"}</tool_call>',
        [call(0, "f", '"hello"')],
    ),
    "reasoning": (
        '<think>\nHm.\n</think>\n\nSo:<tool_call>{"name":"f"}</tool_call>',
        [Reasoning("\nHm.\n"), Text("\n\nSo:"), call(0, "f")],
    ),
    "empty reasoning": ("<think>\n\n</think>\n\nYes", [Text("\n\nYes")]),
    "blank text beside tags": ("\n<think>a</think>\n\n<tool_call>{}</tool_call>\n", [Reasoning("a"), bad("{}")]),
    "reasoning that does not end": ("<think>so </thin", [Reasoning("so </thin")]),
    "a tag in reasoning is reasoning": (
        "<think>use <tool_call> or <think></think>ok",
        [Reasoning("use <tool_call> or <think>"), Text("ok")],
    ),
    "tags in a string": (
        '<tool_call>{"name":"f","arguments":{"a":"</tool_call>\\"<tool_call>"}}</tool_call>b',
        [call(0, "f", '{"a":"</tool_call>\\"<tool_call>"}'), Text("b")],
    ),
    "a closing tag that closes nothing": ("a</think>b</tool_call>", [Text("a</think>b</tool_call>")]),
    "half a tag": ("a <tool_cal", [Text("a <tool_cal")]),
    "not this tag": ("<Tool_Call>{}</tool_call>", [Text("<Tool_Call>{}</tool_call>")]),
    "an empty block": ("<tool_call> </tool_call>x", [Text("x")]),
    "bad JSON": (
        '<tool_call>\n{"name": "f", "arguments": {"a": }}\n</tool_call>.',
        [bad('{"name": "f", "arguments": {"a": }}', "f"), Text(".")],
    ),
    "no name": ('<tool_call>{"arguments": {}}</tool_call>', [bad('{"arguments": {}}')]),
    "a name that is none": ('<tool_call>{"name": 1}{"name":""}</tool_call>', [bad('{"name": 1}'), bad('{"name":""}')]),
    "a member twice": (
        '<tool_call>{"name":"f","name":"g"}</tool_call>',
        [bad('{"name":"f","name":"g"}', "g")],
    ),
    "a comma at the end": ('<tool_call>{"name":"f",}</tool_call>', [bad('{"name":"f",}', "f")]),
    "no colon": ('<tool_call>{"name" "f"}</tool_call>', [bad('{"name" "f"}')]),
    "no comma": ('<tool_call>{"name":"f" "a":1}</tool_call>', [bad('{"name":"f" "a":1}', "f")]),
    "NaN": (
        '<tool_call>{"name":"f","arguments":{"a":NaN}}</tool_call>',
        [bad('{"name":"f","arguments":{"a":NaN}}', "f")],
    ),
    "garbage behind a call": (
        '<tool_call>{"name":"f","arguments":{}} and more</tool_call>',
        [call(0, "f", "{}"), bad("and more")],
    ),
    "nested too deeply": (
        '<tool_call>{"name":"f","arguments":' + "[" * 100_000 + "</tool_call>",
        [bad('{"name":"f","arguments":' + "[" * 100_000, "f")],
    ),
    "not an object": ("<tool_call>[1, 2]</tool_call>", [bad("[1, 2]")]),
    "whole but not closed": ('<tool_call>\n{"name":"f","arguments":{}}\n', [call(0, "f", "{}")]),
    "cut off": ('<tool_call>{"name":"f","argum', [bad('{"name":"f","argum', "f")]),
    "a closing tag forgotten": (
        '<tool_call>{"name":"f"}\n<tool_call>{"name":"g"}</tool_call>',
        [call(0, "f"), call(1, "g")],
    ),
    "long integers": (
        '<tool_call>{"name":"f","arguments":{"n":' + "9" * 5000 + "}}</tool_call>",
        [call(0, "f", '{"n":' + "9" * 5000 + "}")],
    ),
}

QWEN = {
    "a call": (
        (
            "<tool_call>\n<function=f>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
            "</function>\n</tool_call>"
        ),
        [call(0, "f", '{"city": "Paris", "days": 3}')],
    ),
    "values": (
        (
            '<tool_call><function=f><parameter=a>{"x": [1]}</parameter><parameter=b>True</parameter>'
            "<parameter=c>true</parameter><parameter=d></parameter>"
            "<parameter=e>\n\n  é \n\n</parameter></function></tool_call>"
        ),
        [call(0, "f", '{"a": {"x": [1]}, "b": "True", "c": true, "d": "", "e": "\\n  é \\n"}')],
    ),
    "nothing is escaped": (
        '<tool_call><function=f><parameter=a>\nif a < b && c: "\\n"\n</b>\n</parameter></function></tool_call>',
        [call(0, "f", '{"a": "if a < b && c: \\"\\\\n\\"\\n</b>"}')],
    ),
    "no arguments": ("<tool_call><function=f>\n</function></tool_call>", [call(0, "f", "{}")]),
    "two calls in a block, text around": (
        "Now\n<tool_call><function=f></function>\n<function=g></function></tool_call>\nthen",
        [Text("Now\n"), call(0, "f", "{}"), call(1, "g", "{}"), Text("\nthen")],
    ),
    "the opening tag forgotten": (
        "I look.\n\n<function=Glob>\n<parameter=pattern>\n*.md\n</parameter>\n</function>\n</tool_call>",
        [Text("I look.\n\n"), call(0, "Glob", '{"pattern": "*.md"}')],
    ),
    "closing tags of parameters forgotten": (
        "<tool_call><function=f><parameter=a>\n1\n<parameter=b>\n2\n</function></tool_call>",
        [call(0, "f", '{"a": 1, "b": 2}')],
    ),
    "JSON between the tags": ('<tool_call><function=f>{"a": 1}</function></tool_call>', [call(0, "f", '{"a": 1}')]),
    "cut off": ("<tool_call><function=f><parameter=a>val", [bad("<function=f><parameter=a>val", "f")]),
    "cut off behind a parameter": (
        "<tool_call><function=f><parameter=a>val</parameter>",
        [bad("<function=f><parameter=a>val</parameter>", "f")],
    ),
    "no function": ("<tool_call>hello</tool_call>", [bad("hello")]),
    "no name": ("<tool_call><function=></function></tool_call>", [bad("<function=></function>")]),
    "garbage behind a call": (
        "<tool_call><function=f></function> hello</tool_call>",
        [call(0, "f", "{}"), bad("hello")],
    ),
    "garbage between parameters": (
        "<tool_call><function=f>x<parameter=a>1</parameter></function></tool_call>",
        [bad("<function=f>x<parameter=a>1</parameter></function>", "f")],
    ),
    "not closed": ("<tool_call><function=f></function>", [call(0, "f", "{}")]),
}

PYTHONIC = {
    "one": ("[f(a=1)]", [call(0, "f", '{"a": 1}')]),
    "two": ('[f(a=1), g(b="x")]', [call(0, "f", '{"a": 1}'), call(1, "g", '{"b": "x"}')]),
    "no list": ("f()", [call(0, "f", "{}")]),
    "lines": ("f()\ng()", [call(0, "f", "{}"), call(1, "g", "{}")]),
    "deeply nested": (f"f(a={'[' * 64}{']' * 64})", [call(0, "f", f'{{"a": {"[" * 64}{"]" * 64}}}')]),
    "nested": (
        "[f(a=[1, [2, {'k': [3]}]], b={\"x\": {y: 'z'}}, c=[], d={})]",
        [call(0, "f", '{"a": [1, [2, {"k": [3]}]], "b": {"x": {"y": "z"}}, "c": [], "d": {}}')],
    ),
    "quotes and escapes": (
        "[f(a='it\\'s', b=\"say \\\"hi\\\"\", c='a\\nb\\tc\\rd', d='\\q\\\\', e=\"it's\", f='\\u00e9\\ud83d\\ude00')]",
        [
            call(
                0,
                "f",
                '{"a": "it\'s", "b": "say \\"hi\\"", "c": "a\\nb\\tc\\rd", "d": "q\\\\", "e": "it\'s", "f": "é😀"}',
            )
        ],
    ),
    "brackets in strings": ("[f(a='x) ] } <', b=\"[,\")]", [call(0, "f", '{"a": "x) ] } <", "b": "[,"}')]),
    "scalars": (
        "[f(a=True, b=false, c=None, d=null, e=, f=-2.50, g=1e400, h=bare text, i=nan)]",
        [
            call(
                0,
                "f",
                '{"a": true, "b": false, "c": null, "d": null, "e": null, "f": -2.50, "g": 1e400, '
                '"h": "bare text", "i": "nan"}',
            )
        ],
    ),
    "numbers of Python": (
        "[f(a=.5, b=5., c=+1, d=007, e=-.5e3, f=00, g=1_000, h=e5)]",
        [call(0, "f", '{"a": 0.5, "b": 5.0, "c": 1, "d": 7, "e": -0.5e3, "f": 0, "g": "1_000", "h": "e5"}')],
    ),
    "any size": (f"[f(a={2**70})]", [call(0, "f", f'{{"a": {2**70}}}')]),
    "hyphens and dots in names": (
        "[my-tool.do_it(some-key=1)]",
        [call(0, "my-tool.do_it", '{"some-key": 1}')],
    ),
    "space and commas": ("[ f ( a = 1 , ) , ]", [call(0, "f", '{"a": 1}')]),
    "unicode": ("[f(stadt='Zürich\u2028', größe=1)]", [call(0, "f", '{"stadt": "Zürich\u2028", "größe": 1}')]),
    "no bracket at the end": ("[f(a=1)", [call(0, "f", '{"a": 1}')]),
    "garbage behind a call": ("[f(a=1)] so", [call(0, "f", '{"a": 1}'), bad("so")]),
    "garbage between calls": ("[f(a=1), 7up, g()]", [call(0, "f", '{"a": 1}'), bad("7up, g()]")]),
    "the second is bad": ("[f(), g(a=[1)]", [call(0, "f", "{}"), bad("g(a=[1)]", "g")]),
}
PYTHONIC_BAD = {
    "a bracket of the wrong kind": ("f(a=[1)]", [bad("f(a=[1)]", "f")]),
    "another": ("f(a={b:1])", [bad("f(a={b:1])", "f")]),
    "no call": ("[1}]", [bad("[1}]")]),
    "an empty element": ("f(a=[,])", [bad("f(a=[,])", "f")]),
    "no key": ("f(1)", [bad("f(1)", "f")]),
    "no value to the key": ("f(a)", [bad("f(a)", "f")]),
    "a string that does not end": ("[f(a='x)]", [bad("[f(a='x)]", "f")]),
    "nested too deeply": (f"f(a={'[' * 65}{']' * 65})", [bad(f"f(a={'[' * 65}{']' * 65})", "f")]),
    "nested too deeply and cut off": ("f(a=" + "[" * 80, [bad("f(a=" + "[" * 80, "f")]),
    "prose": ("no calls here", [bad("no calls here")]),
}


def inside(opens, table, closes):
    return {name: (opens + text + closes, parts) for name, (text, parts) in table.items()}


LFM2 = {
    **inside("<|tool_call_start|>", PYTHONIC | PYTHONIC_BAD, "<|tool_call_end|>"),
    "text around": (
        "I check.<|tool_call_start|>[f()]<|tool_call_end|> Then.",
        [Text("I check."), call(0, "f", "{}"), Text(" Then.")],
    ),
    "not closed": ("<|tool_call_start|>[f(a=1)]", [call(0, "f", '{"a": 1}')]),
    "cut off": ("<|tool_call_start|>[f(a=1), g(b=", [call(0, "f", '{"a": 1}'), bad("g(b=", "g")]),
    "a call in reasoning": (
        "<think>a<|tool_call_start|>[f()]<|tool_call_end|>b</think>c",
        [Reasoning("a"), call(0, "f", "{}"), Reasoning("b"), Text("c")],
    ),
    "reasoning in a call": (
        "<|tool_call_start|>[f(a='<think>x</think>')]<|tool_call_end|>",
        [call(0, "f", '{"a": "<think>x</think>"}')],
    ),
    "case": (
        "<|TOOL_CALL_START|>[f()]<|tool_call_end|>",
        [Text("<|TOOL_CALL_START|>[f()]<|tool_call_end|>")],
    ),
}

GEMMA3 = {
    **inside("```tool_code\n", PYTHONIC, "\n```"),
    "printed": ("Let me.\n```tool_code\nprint(f(a=1))\n```\n", [Text("Let me.\n"), call(0, "f", '{"a": 1}')]),
    "another fence": ("```python\nf()\n```", [Text("```python\nf()\n```")]),
    "code": ("```tool_code\nx = 1\n```", [bad("x = 1")]),
    "not closed": ("```tool_code\nf()", [call(0, "f", "{}")]),
    "two": ("```tool_code\nf()```\n```tool_code\ng()```", [call(0, "f", "{}"), call(1, "g", "{}")]),
}

MARK = '<|"|>'
GEMMA4 = {
    "a call": (
        '<|tool_call>call:f{city:<|"|>Paris<|"|>,days:3,ok:true,no:null}<tool_call|>',
        [call(0, "f", '{"city": "Paris", "days": 3, "ok": true, "no": null}')],
    ),
    "two in a block and one more": (
        "<|tool_call>call:f{}call:g{}<tool_call|>\n<|tool_call>call:h{}<tool_call|>",
        [call(0, "f", "{}"), call(1, "g", "{}"), call(2, "h", "{}")],
    ),
    "nested": (
        '<|tool_call>call:f{a:[<|"|>x<|"|>,<|"|>y, z<|"|>,[1]],o:{k:{l:<|"|>}<|"|>}}}<tool_call|>',
        [call(0, "f", '{"a": ["x", "y, z", [1]], "o": {"k": {"l": "}"}}}')],
    ),
    "quotation marks inside": (
        '<|tool_call>call:f{code:<|"|>sql(<|"|><|"|><|"|>SELECT 1<|"|><|"|><|"|>)<|"|>,n:1}<tool_call|>',
        [call(0, "f", '{"code": "sql(\\"\\"\\"SELECT 1\\"\\"\\")", "n": 1}')],
    ),
    "ordinary quotes": (
        '<|tool_call>call:f{a:["x",\'y\'],"b":{\'c\': "d"},<|"|>e<|"|>:1}<tool_call|>',
        [call(0, "f", '{"a": ["x", "y"], "b": {"c": "d"}, "e": 1}')],
    ),
    "the opening mark forgotten": (
        '<|tool_call>call:f{q:weather in Tokyo<|"|>,p:Paris, France<|"|>,limit:5}<tool_call|>',
        [call(0, "f", '{"q": "weather in Tokyo", "p": "Paris, France", "limit": 5}')],
    ),
    "reasoning": (
        "<|channel>thought\nHm.<channel|>Yes<|tool_call>call:f{}<tool_call|>",
        [Reasoning("\nHm."), Text("Yes"), call(0, "f", "{}")],
    ),
    "a string that does not end": (
        '<|tool_call>call:f{a:<|"|>x}<tool_call|>!',
        [bad('call:f{a:<|"|>x}', "f"), Text("!")],
    ),
    "an array that does not": ("<|tool_call>call:f{a:[1}<tool_call|>", [bad("call:f{a:[1}", "f")]),
    "no call": ("<|tool_call>f{}<tool_call|>", [bad("f{}")]),
    "garbage behind a call": ("<|tool_call>call:f{} x<tool_call|>", [call(0, "f", "{}"), bad("x")]),
    "not closed": ("<|tool_call>call:f{a:1}", [call(0, "f", '{"a": 1}')]),
    "cut off": ("<|tool_call>call:f{a:", [bad("call:f{a:", "f")]),
    "names": ("<|tool_call>call:my-tool.x{a-b:1}<tool_call|>", [call(0, "my-tool.x", '{"a-b": 1}')]),
    "too deep": ("<|tool_call>call:f{a:" + "[" * 80, [bad("call:f{a:" + "[" * 80, "f")]),
}

LLAMA_JSON = {
    "a call": ('{"name": "f", "parameters": {"a": 1}}', [call(0, "f", '{"a": 1}')]),
    "space around": ('\n {"name": "f", "parameters": {}}\n', [call(0, "f", "{}")]),
    "two": (
        '{"name": "f", "parameters": {}}; {"type": "function", "name": "g", "arguments": {"x": "}"}}',
        [call(0, "f", "{}"), call(1, "g", '{"x": "}"}')],
    ),
    "text behind": ('{"name": "f", "parameters": {}} So.', [call(0, "f", "{}"), Text(" So.")]),
    "a semicolon behind": ('{"name": "f", "parameters": {}};', [call(0, "f", "{}"), Text(";")]),
    "two semicolons": ('{"name": "f", "parameters": {}};;{}', [call(0, "f", "{}"), Text(";;{}")]),
    "an answer in JSON": ('{"city": "Paris"}', [Text('{"city": "Paris"}')]),
    "a name is not enough": ('{"name": "Ann"} is', [Text('{"name": "Ann"} is')]),
    "not JSON": ("{hello}, world", [Text("{hello}, world")]),
    "cut off": ('{"name": "f", "param', [Text('{"name": "f", "param')]),
    "not at the beginning": ('Call {"name": "f", "parameters": {}}', [Text('Call {"name": "f", "parameters": {}}')]),
    "tagged": ('<|python_tag|>{"name": "f", "parameters": {}}<|eom_id|>', [call(0, "f", "{}")]),
    "a built-in tool": (
        'Ok<|python_tag|>brave_search.call(query="x y")',
        [Text("Ok"), call(0, "brave_search", '{"query": "x y"}')],
    ),
    "code": ("<|python_tag|>print(1)", [bad("print(1)", "print")]),
    "tagged and bad": ('<|python_tag|>{"name": "f"', [bad('{"name": "f"', "f")]),
}

LLAMA_PYTHONIC = {
    **{name: case for name, case in PYTHONIC.items() if case[0].startswith("[") and name != "space and commas"},
    "tagged": ("<|python_start|>[f(a=1)]<|python_end|>", [call(0, "f", '{"a": 1}')]),
    "tagged and bad": ("<|python_start|>[f(a=[1)]<|python_end|>", [bad("[f(a=[1)]", "f")]),
    "a comma first": ("[, f()]", [Text("[, f()]")]),
    "an odd space and a comma": ("[\u00a0, f()] f()", [Text("[\u00a0, f()] f()")]),
    "a footnote": ("[1] The source", [Text("[1] The source")]),
    "a list of words": ("[see the notes] yes", [Text("[see the notes] yes")]),
    "nothing that can be read": ("[see (the notes)] yes", [Text("[see (the notes)] yes")]),
    "not at the beginning": ("Call [f()]", [Text("Call [f()]")]),
    "the first is not one": ("[f(a=[1)]", [Text("[f(a=[1)]")]),
}

MISTRAL = {
    "old": (
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}, "id": "abcdefghi"}]',
        [call(0, "f", '{"a": 1}'), ToolCall("abcdefghi", "g", "{}")],
    ),
    "new": ('[TOOL_CALLS]f[ARGS]{"a": 1}', [call(0, "f", '{"a": 1}')]),
    "two, one with an id, text before": (
        'Right.[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": [1, "]"]}[TOOL_CALLS]g[ARGS]{}\n',
        [Text("Right."), ToolCall("abcdefghi", "f", '{"a": [1, "]"]}'), call(1, "g", "{}")],
    ),
    "without a mark": (
        '[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g {"b": {}}',
        [call(0, "f", '{"a": 1}'), call(1, "g", '{"b": {}}')],
    ),
    "without a mark, bad": (
        '[TOOL_CALLS]f{"a": 1} x[TOOL_CALLS]g{',
        [call(0, "f", '{"a": 1}'), bad("x"), bad("g{", "g")],
    ),
    "no arguments": ("[TOOL_CALLS]f[ARGS]", [call(0, "f", "")]),
    "reasoning": ("[THINK]hm[/THINK]So[TOOL_CALLS]f[ARGS]{}", [Reasoning("hm"), Text("So"), call(0, "f", "{}")]),
    "text behind the arguments": ('[TOOL_CALLS]f[ARGS]{"a":1} and', [call(0, "f", '{"a":1}'), bad("and")]),
    "bad arguments": ("[TOOL_CALLS]f[ARGS]{a: 1}[TOOL_CALLS]g[ARGS]{}", [bad("{a: 1}", "f"), call(1, "g", "{}")]),
    "cut off": ('[TOOL_CALLS]f[ARGS]{"a": "x ', [bad('{"a": "x', "f")]),
    "bad escape": ('[TOOL_CALLS]f[ARGS]{"a": "\\u12zz"}', [bad('{"a": "\\u12zz"}', "f")]),
    "no name": ("[TOOL_CALLS][ARGS]{}", [bad("[ARGS]{}")]),
    "the mark in a string": (
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "[ARGS]"}}]',
        [call(0, "f", '{"a": "[ARGS]"}')],
    ),
    "empty": ("[TOOL_CALLS]", []),
}

DEEPSEEK_V3 = {
    "a call": (
        (
            'Ok<{tool calls begin}><{tool call begin}>function<{tool sep}>f\n```json\n{"a": 1}\n```<{tool call end}>'
            "<{tool calls end}>"
        ),
        [Text("Ok"), call(0, "f", '{"a": 1}')],
    ),
    "two": (
        (
            "<{tool calls begin}><{tool call begin}>function<{tool sep}>f\n```json\n{}\n```<{tool call end}>\n"
            "<{tool call begin}>function<{tool sep}>g\n```json\n{}\n```<{tool call end}><{tool calls end}>\nDone"
        ),
        [call(0, "f", "{}"), call(1, "g", "{}"), Text("\nDone")],
    ),
    "no fence": ('<{tool call begin}>function<{tool sep}>f\n{"a":1}<{tool call end}>', [call(0, "f", '{"a":1}')]),
    "no kind": ("<{tool call begin}>f\n```json\n{}\n```<{tool call end}>", [call(0, "f", "{}")]),
    "bad arguments": (
        "<{tool call begin}>function<{tool sep}>f\n```json\n{a}\n```<{tool call end}>",
        [bad("function<{tool sep}>f\n```json\n{a}\n```", "f")],
    ),
    "another fence": (
        "<{tool call begin}>function<{tool sep}>f\n```python\n{}\n```<{tool call end}>",
        [bad("function<{tool sep}>f\n```python\n{}\n```", "f")],
    ),
    "no name": ("<{tool call begin}>function<{tool sep}><{tool call end}>", [bad("function<{tool sep}>")]),
    "empty": ("<{tool calls begin}><{tool call begin}><{tool call end}><{tool calls end}>", []),
    "not closed": ("<{tool call begin}>function<{tool sep}>f\n```json\n{}\n```", [call(0, "f", "{}")]),
    "cut off": (
        '<{tool call begin}>function<{tool sep}>f\n```json\n{"a',
        [bad('function<{tool sep}>f\n```json\n{"a', "f")],
    ),
    "reasoning": ("<think>a</think>b", [Reasoning("a"), Text("b")]),
}

DEEPSEEK_V31 = {
    "two": (
        (
            'Ok<{tool calls begin}><{tool call begin}>f<{tool sep}>{"a": 1}<{tool call end}>'
            "<{tool call begin}>g<{tool sep}>{}<{tool call end}><{tool calls end}>"
        ),
        [Text("Ok"), call(0, "f", '{"a": 1}'), call(1, "g", "{}")],
    ),
    "text behind the arguments": (
        "<{tool call begin}>f<{tool sep}>{} x<{tool call end}>y",
        [call(0, "f", "{}"), bad("x"), Text("y")],
    ),
    "space around the arguments": ("<{tool call begin}> f <{tool sep}>\n{}\n<{tool call end}>", [call(0, "f", "{}")]),
    "bad arguments": ("<{tool call begin}>f<{tool sep}>nope<{tool call end}>", [bad("nope", "f")]),
    "cut off": ('<{tool call begin}>f<{tool sep}>{"a', [bad('{"a', "f")]),
    "no separator": ("<{tool call begin}>f<{tool call end}>", [bad("f")]),
    "no name": ("<{tool call begin}><{tool sep}>{}<{tool call end}>", [bad("<{tool sep}>{}")]),
    "empty": ("<{tool call begin}><{tool call end}>", []),
    "the end of a call forgotten": ("<{tool call begin}>f<{tool sep}>{}<{tool calls end}>", [call(0, "f", "{}")]),
}

TO = "<|start|>assistant<|channel|>commentary to=functions."
HARMONY = {
    "an answer": (
        "<|channel|>analysis<|message|>2+2.<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>",
        [Reasoning("2+2."), Text("4")],
    ),
    "a call": (
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
            '<|constrain|>json<|message|>{"a":1}<|call|>'
        ),
        [Reasoning("Hm."), call(0, "f", '{"a":1}')],
    ),
    "a preamble and two calls": (
        (
            f"<|channel|>commentary<|message|>Plan<|end|>{TO}f <|constrain|>json<|message|>{{}}<|call|>"
            f"{TO}g<|constrain|>json<|message|>{{}}<|call|>"
        ),
        [Text("Plan"), call(0, "f", "{}"), call(1, "g", "{}")],
    ),
    "the recipient in the role": (
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        [call(0, "f", "{}")],
    ),
    "another namespace": (
        '<|channel|>analysis to=browser.search code<|message|>{"q":"x"}<|call|>',
        [call(0, "browser.search", '{"q":"x"}')],
    ),
    "code for python": (
        '<|channel|>analysis to=python code<|message|>print("ü")\n<|call|>',
        [ToolCall("call_0", "python", '"print(\\"ü\\")\\n"', custom=True)],
    ),
    "final json": ("<|channel|>final json<|message|>{}<|return|>", [Text("{}")]),
    "no message": ("Just text", [Text("Just text")]),
    "text behind a message": ("<|channel|>analysis<|message|>a<|end|>{}", [Reasoning("a"), Text("{}")]),
    "the end of a message forgotten": (
        "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b",
        [Reasoning("a"), Text("b")],
    ),
    "an unknown header": (
        "<|channel|>commentary 2?<|message|>a<|end|>",
        [Text("commentary 2?"), Text("a")],
    ),
    "the answer of a tool": (
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>{}<|end|>",
        [Text("functions.f to=assistant<|channel|>commentary"), Text("{}")],
    ),
    "a header cut off": ("<|channel|>analy", [Text("<|channel|>analy")]),
    "a header without a message": (
        "<|channel|>hello<|end|><|channel|>final<|message|>x",
        [Text("<|channel|>hello"), Text("x")],
    ),
    "a header as long as may be": (
        "<|channel|>" + "x" * 1023 + "<|message|>a<|end|>b",
        [Text("x" * 1023), Text("a"), Text("b")],
    ),
    "a header longer than that": (
        "<|channel|>" + "x" * 1024 + "<|message|>a<|end|>b",
        [Text("<|channel|>" + "x" * 1024 + "<|message|>a"), Text("b")],
    ),
    "a header with a tag in it that is longer": (
        "<|channel|>" + "x" * 1020 + "<|constrain|>" + "<|channel|>final<|message|>a",
        [Text("<|channel|>" + "x" * 1020 + "<|constrain|>"), Text("a")],
    ),
    "no header at all": ("<|channel|>" + "x" * 2000, [Text("<|channel|>" + "x" * 2000)]),
    "bad arguments": (f"{TO}f<|message|>{{a<|call|>", [bad("{a", "f")]),
    "cut off": (f'{TO}f<|message|>{{"a": ', [bad('{"a":', "f")]),
    "empty": ("<|channel|>final<|message|><|return|>", []),
}

# The suite of Codebuff's first parser (docs/spec/codebuff.md#10), and the faults that it has a test for.
CODEBUFF = {
    "text only": ("Just text", [Text("Just text")]),
    "nothing": ("", []),
    "a call": (
        '<codebuff_tool_call>\n{\n  "cb_tool_name": "f",\n  "a": 1,\n  "cb_easp": true\n}\n</codebuff_tool_call>',
        [call(0, "f", '{"a": 1}')],
    ),
    "the name last, no line breaks": (
        '<codebuff_tool_call>{"a":"x","cb_tool_name":"f"}</codebuff_tool_call>',
        [call(0, "f", '{"a": "x"}')],
    ),
    "no arguments": ('<codebuff_tool_call>{"cb_tool_name":"f"}</codebuff_tool_call>', [call(0, "f", "{}")]),
    "arguments as written": (
        (
            '<codebuff_tool_call>{"cb_tool_name":"f","a":{"b" :[2.0, 5e-06],"c":"\\u00e9é"},'
            '"d":null}</codebuff_tool_call>'
        ),
        [call(0, "f", '{"a": {"b" :[2.0, 5e-06],"c":"\\u00e9é"}, "d": null}')],
    ),
    "two calls and text around": (
        (
            'First.\n<codebuff_tool_call>\n{"cb_tool_name":"f"}\n</codebuff_tool_call>Then\n'
            '<codebuff_tool_call>\n{"cb_tool_name":"g"}\n</codebuff_tool_call>\nLast'
        ),
        [Text("First.\n"), call(0, "f", "{}"), Text("Then\n"), call(1, "g", "{}"), Text("\nLast")],
    ),
    "cut by the stop sequence": (
        'So:<codebuff_tool_call>\n{\n  "cb_tool_name": "f",\n  "a": "x",\n  ',
        [Text("So:"), call(0, "f", '{"a": "x"}')],
    ),
    "cut behind the suffix": (
        '<codebuff_tool_call>\n{\n  "cb_tool_name": "f",\n  "cb_easp": true\n}\n',
        [call(0, "f", "{}")],
    ),
    "cut in a string": (
        '<codebuff_tool_call>\n{"cb_tool_name": "f", "a": "x,',
        [bad('{"cb_tool_name": "f", "a": "x,', "f")],
    ),
    "cut in an argument": (
        '<codebuff_tool_call>\n{"cb_tool_name": "f", "a": 1',
        [bad('{"cb_tool_name": "f", "a": 1', "f")],
    ),
    "cut at once": ("<codebuff_tool_call>\n", []),
    "half a tag": ("a <codebuff_tool_ca", [Text("a <codebuff_tool_ca")]),
    "a closing tag in a string": (
        (
            '<codebuff_tool_call>\n{"cb_tool_name":"write","text":"a\\n</codebuff_tool_call>\\"</codebuff_tool_call>"}\n'
            "</codebuff_tool_call>ok"
        ),
        [call(0, "write", '{"text": "a\\n</codebuff_tool_call>\\"</codebuff_tool_call>"}'), Text("ok")],
    ),
    "an opening tag in a string": (
        '<codebuff_tool_call>{"cb_tool_name":"write","text":"<codebuff_tool_call>\\\\"}</codebuff_tool_call>ok',
        [call(0, "write", '{"text": "<codebuff_tool_call>\\\\"}'), Text("ok")],
    ),
    "bad JSON": (
        '<codebuff_tool_call>\n{"cb_tool_name": "f", "a": }\n</codebuff_tool_call>.',
        [bad('{"cb_tool_name": "f", "a": }', "f"), Text(".")],
    ),
    "a string that does not end": (
        (
            '<codebuff_tool_call>\n{"cb_tool_name": "f", "a": "x}\n</codebuff_tool_call>and'
            '<codebuff_tool_call>{"cb_tool_name":"g"}</codebuff_tool_call>'
        ),
        [bad('{"cb_tool_name": "f", "a": "x}', "f"), Text("and"), call(0, "g", "{}")],
    ),
    "no name": ('<codebuff_tool_call>{"a": 1}</codebuff_tool_call>', [bad('{"a": 1}')]),
    "a name that is none": (
        '<codebuff_tool_call>{"cb_tool_name": 7}</codebuff_tool_call>',
        [bad('{"cb_tool_name": 7}')],
    ),
    "text behind the object": (
        '<codebuff_tool_call>{"cb_tool_name":"f"} x</codebuff_tool_call>',
        [bad('{"cb_tool_name":"f"} x', "f")],
    ),
    "reasoning": (
        '<think>Hm.</think><codebuff_tool_call>{"cb_tool_name":"f"}</codebuff_tool_call>',
        [Reasoning("Hm."), call(0, "f", "{}")],
    ),
}

TABLES = {
    "codebuff": CODEBUFF,
    "hermes": HERMES,
    "qwen3_coder": QWEN,
    "lfm2": LFM2,
    "gemma3": GEMMA3,
    "gemma4": GEMMA4,
    "llama_json": LLAMA_JSON,
    "llama_pythonic": LLAMA_PYTHONIC,
    "mistral": MISTRAL,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "harmony": HARMONY,
    "text": {"reasoning": ("<think>a</think>b<tool_call>", [Reasoning("a"), Text("b<tool_call>")])},
}
ROWS = {
    "codebuff": ["CBF-16"],
    "lfm2": ["DAS-16"],
    "qwen3_coder": ["DAS-18"],
    "gemma3": ["DAS-18"],
    "gemma4": ["DAS-18"],
}
CASES = [
    pytest.param(
        kind,
        deepseek(text),
        [(deepseek(part[0]), part[1]) if isinstance(part, tuple) else part for part in parts],
        id=f"{kind}: {name}",
        marks=[pytest.mark.row(row) for row in [*ROWS.get(kind, []), "DAS-19"]],
    )
    for kind, table in TABLES.items()
    for name, (text, parts) in table.items()
]


@pytest.mark.parametrize(("format", "text", "parts"), CASES)
def test_a_format_reads(format, text, parts):
    assert seen(local.read(format, text)) == parts


@pytest.mark.row("DAS-17")
@pytest.mark.parametrize(("format", "text", "parts"), CASES)
def test_a_format_reads_single_characters(format, text, parts):
    parser = local.get(format)
    assembler = Assembler()
    for char in text:
        assembler.extend(parser.feed(char))
    assembler.extend(parser.finish())
    assert seen(assembler.content()) == parts


@pytest.mark.row("CBF-16")
@pytest.mark.parametrize(("format", "text", "parts"), [case for case in CASES if case.values[0] == "codebuff"])
def test_calls_in_text_are_read_at_every_split_point(format, text, parts):
    """Nothing internal is given out on the way: no piece of a tag, no key of Codebuff's own."""
    for at in range(len(text) + 1):
        parser = local.get(format)
        events = [*parser.feed(text[:at]), *parser.feed(text[at:]), *parser.finish()]
        assembler = Assembler()
        assembler.extend(events)
        assert seen(assembler.content()) == parts
        if not any(isinstance(part, tuple) for part in parts):  # a malformed call shows what it was
            said = "".join(each.text for each in events if isinstance(each, TextDelta))
            assert said == "".join(part.text for part in parts if isinstance(part, Text))
            assert "cb_easp" not in str(events)


def test_every_format_has_its_table():
    assert {*TABLES, "qwen3_5"} == set(local.names())


def test_qwen_values_have_the_types_of_the_tool():
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "maybe": {"type": ["string", "null"]},
            "number": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "flag": {"type": "boolean"},
            "items": {"type": "array"},
            "any": {},
        },
    }

    def read(key, value):
        text = f"<tool_call><function=f><parameter={key}>{value}</parameter></function></tool_call>"
        return local.read("qwen3_coder", text, tools=[Tool.of("g"), Tool.of("f", None, schema)])[0].arguments[key]

    assert read("text", "5") == "5"
    assert read("text", "null") == "null"
    assert read("maybe", "5") == "5"
    assert read("maybe", "None") is None
    assert read("number", "5") == 5
    assert read("number", "five") == "five"
    assert read("flag", "True") is True
    assert read("items", '["a"]') == ["a"]
    assert read("any", "5") == 5
    assert read("other", "5") == 5


@pytest.mark.row("DAS-18")
def test_qwen_3_5_starts_inside_reasoning():
    assert local.read("qwen3_5", "hm\n</think>\n\nYes") == (Reasoning("hm\n"), Text("\n\nYes"))
    assert local.read("qwen3_5", "never closed") == (Reasoning("never closed"),)


@pytest.mark.row("DAS-17")
def test_the_opening_tag_may_be_written_though_the_prompt_has_it():
    for text in ("<think>a</think>b", "\n<think>a</think>b"):
        assert local.read("hermes", text, start_in_think=True) == (Reasoning("a"), Text("b"))
    assert local.read("hermes", "a<think>b</think>", start_in_think=True) == (Reasoning("a<think>b"),)


@pytest.mark.row("DAS-17")
@pytest.mark.parametrize("format", ["lfm2", "qwen3_coder", "gemma4"])
def test_reasoning_may_have_other_tags(format):
    text = "<<a>>b"
    assert local.read(format, text, reasoning=("<<", ">>")) == (Reasoning("a"), Text("b"))
    assert local.read(format, text, reasoning="none") == (Text(text),)
    assert local.read(format, "a>>b", reasoning=("<<", ">>"), start_in_think=True) == (Reasoning("a"), Text("b"))
    assert local.read(format, "[THINK]a[/THINK]b", reasoning="bracket") == (Reasoning("a"), Text("b"))


def test_members_that_say_nothing_neutral_are_kept():
    text = '<tool_call>{"name":"f","arguments":{},"parameters":[1],"id":7,"type":"function","why":"so"}</tool_call>'
    (part,) = local.read("hermes", text)
    assert part.provider == {"local": {"parameters": [1], "id": 7, "why": "so"}}
    (part,) = local.read("hermes", '<tool_call>{"name":"f","x":"\ud800"}</tool_call>')
    assert part.provider == {"local": {"x": "\ud800"}}
