import json
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import example, given, strategies as st

from palaver.store.jsonl.lines import Ledger, Line, Scanner, write
from palaver.store.store import Damage
from palaver.testing import strategies

WRITER = "9f2c41d07ab3"


def scanned(data, *, sizes=(1 << 20,), ledger=None):
    """What a scanner makes of bytes that come in pieces of these sizes, the last of them again and again."""
    scanner, found, at, step = Scanner("f", ledger), [], 0, 0
    while at < len(data):
        size = sizes[min(step, len(sizes) - 1)]
        found.extend(scanner.feed(data[at : at + size]))
        at, step = at + size, step + 1
    found.extend(scanner.finish())
    return [each for each in found if isinstance(each, Line)], [each for each in found if isinstance(each, Damage)]


def numbered(count, writer=WRITER):
    return [write("message", writer, number, [("text", b'"%d"' % (number * 1111))]) for number in range(1, count + 1)]


def numbers(lines):
    return [line.number for line in lines]


def kinds(damage):
    return [(each.kind, each.reason) for each in damage]


@st.composite
def logs(draw):
    """Lines, some of which hold a line of the same log, as text and as JSON."""
    made = []
    for number in range(1, draw(st.integers(2, 6)) + 1):
        values = [draw(strategies.json_texts())]
        if made and draw(st.booleans()):
            inner = draw(st.sampled_from(made)).strip()
            values += [inner, json.dumps(inner.decode()).encode()]
        made.append(write("message", WRITER, number, [("a", bytes(value)) for value in values]))
    return made


@given(logs(), st.lists(st.integers(1, 60), min_size=1))
def test_sound_lines_come_back_in_any_chunks(lines, sizes):
    data = b"".join(lines)
    found, damage = scanned(data, sizes=sizes)
    assert (numbers(found), damage) == (list(range(1, len(lines) + 1)), [])
    assert [data[line.offset : line.end] + b"\n" for line in found] == lines


@pytest.mark.law(8)
@given(
    logs(),
    st.sampled_from(["cut", "zeroed", "duplicated"]),
    st.integers(0, 1 << 16),
    st.integers(1, 1 << 10) | st.integers(1, 3),
    st.lists(st.integers(1, 300), min_size=1),
)
@example(numbered(4), "cut", len(numbered(1)[0]) - 1, 1, [1 << 20])  # a line break
@example(numbered(4), "zeroed", len(numbered(1)[0]) - 1, 1, [1 << 20])
@example(numbered(4), "duplicated", len(numbered(1)[0]) - 1, 1, [1])
@example(numbered(4), "duplicated", 0, len(numbered(2)[0]) * 2, [1 << 20])  # whole lines
def test_a_damaged_range_costs_no_other_line_and_is_reported(lines, how, start, length, sizes):
    data = b"".join(lines)
    start %= len(data)
    stop = min(start + length, len(data))
    spans, at = [], 0
    for line in lines:
        spans.append((at, at + len(line) - 1))
        at += len(line)
    if how == "duplicated":
        damaged = data[:stop] + data[start:stop] + data[stop:]
        whole = [number for number, (begin, end) in enumerate(spans, 1) if not begin < stop < end]
    else:
        damaged = data[:start] + (b"" if how == "cut" else bytes(stop - start)) + data[stop:]
        whole = [number for number, (begin, end) in enumerate(spans, 1) if stop <= begin or end <= start]
    found, damage = scanned(damaged, sizes=sizes)
    assert set(whole) <= set(numbers(found))
    assert numbers(found) == sorted(set(numbers(found)))
    for line in found:
        assert damaged[line.offset : line.end] + b"\n" == lines[line.number - 1]
    at_a_line = any(damaged == b"".join(lines[:count]) for count in range(len(lines) + 1))
    assert bool(damage) != at_a_line  # only whole lines cut off the end cannot be found
    assert not damage or all(each.place.startswith("f, byte") and each.reason for each in damage)


@given(st.binary(max_size=300) | st.text('\t\n\0{}",:crc0', max_size=200).map(str.encode), st.integers(1, 50))
def test_any_bytes_are_lines_or_damage(data, size):
    found, damage = scanned(data, sizes=[size])
    assert not found
    assert bool(damage) == bool(data)
    whole, _ = scanned(numbered(1)[0] + data + b"\n" + numbered(2)[1])
    assert numbers(whole) == [1, 2]


def test_damage_is_reported_by_kind_place_and_reason():
    one, two, three, four, five = numbered(5)
    size = len(one)
    assert kinds(scanned(one + two[:-9])[1]) == [
        ("torn", "its checksum does not match; the last line has no line break")
    ]
    assert scanned(one + two[:-9])[1][0].place == f"f, bytes {size} to {2 * size - 9}"
    assert kinds(scanned(one + two[:-1])[1]) == [("torn", "the last line has no line break")]
    assert kinds(scanned(one + bytes(40))[1]) == [("torn", "it contains zeros; the last line has no line break")]
    assert kinds(scanned(one + three)[1]) == [("missing", f"line 2 of writer {WRITER} is missing")]
    assert kinds(scanned(one + two + two + three)[1]) == [("altered", "a copy of earlier lines")]
    assert kinds(scanned(one[:-1] + two)[1]) == [("altered", "a line break is missing")]
    assert kinds(scanned(one + three + four + two + five)[1])[-1] == ("altered", "line 2 is out of order")
    _, damage = scanned(one + two[:20] + four[30:] + five)
    assert kinds(damage) == [
        ("altered", f"its checksum does not match; lines 2 to 4 of writer {WRITER} are missing"),
    ]


def test_lines_of_several_writers_are_counted_apart_and_over_several_files():
    here, there = numbered(3), numbered(3, "0a0a0a0a0a0a")
    mixed = here[0] + there[0] + there[1] + here[1] + here[2] + there[2]
    ledger = Ledger()
    found, damage = scanned(mixed, ledger=ledger)
    assert (numbers(found), damage) == ([1, 1, 2, 2, 3, 3], [])
    found, damage = scanned(b"".join(here), ledger=ledger)
    assert (found, kinds(damage)) == ([], [("altered", "a copy of earlier lines")])


def test_kinds_and_versions_that_nobody_knows_are_lines():
    newer = b'\t{"log":2,"type":"message","writer":"w","line":1,"x":[]'
    found, damage = scanned(newer + b',"crc":"%08x"}\n' % crc32(newer) + write("mark", "w", 2, []))
    assert ([line.kind for line in found], damage) == (["message of version 2", "mark"], [])


@pytest.mark.parametrize("frame", ['"log":"1"', '"line":0', '"line":"1"', '"writer":1', '"type":null', '"else":1'])
def test_a_line_of_another_form_is_damage(frame):
    good = {"log": "1", "type": '"m"', "writer": '"w"', "line": "1"}
    name, _, value = frame.partition(":")
    good[name.strip('"')] = value
    if name == '"else"':
        del good["log"]
    body = ("\t{" + ",".join(f'"{key}":{text}' for key, text in good.items())).encode()
    found, damage = scanned(body + b',"crc":"%08x"}\n' % crc32(body))
    assert (found, kinds(damage)) == ([], [("altered", "its checksum does not match")])


def test_a_line_stays_on_one_line_and_holds_one_tab():
    line = write("m", "w", 1, [("a", b'{"x"\t:\n"\\t\\n"}'), ("b", '"\u2028\u0085"'.encode())])
    assert (line.count(b"\n"), line.count(b"\t")) == (1, 1)
    assert json.loads(line)["a"] == {"x": "\t\n"}


def test_a_scanner_holds_nothing_that_cannot_become_a_line():
    scanner = Scanner("f")
    for data in (bytes(1 << 16), b"x" * (1 << 16), b"\t{" + b"\0" * (1 << 16), numbered(1)[0][:-1] + b"\t"):
        for _ in range(3):
            list(scanner.feed(data))
            assert len(scanner._states) <= 1


def test_the_form_is_documented_as_it_is():
    page = (Path(__file__).resolve().parents[3] / "docs/reference/log.md").read_text("utf-8")
    example_line = next(line for line in page.splitlines() if line.startswith('{"log":1'))
    body, _, check = ("\t" + example_line).encode().rpartition(b',"crc":"')
    assert check == b'%08x"}' % crc32(body)


@given(st.lists(st.integers(1, 12), max_size=20))
def test_a_ledger_knows_each_number_once(numbers):
    ledger, seen = Ledger(), set[int]()
    for number in numbers:
        found = ledger.see("w", number)
        newest = max(seen, default=0)
        if number in seen:
            assert found == "copy"
        elif number < newest:
            assert found == "late"
        else:
            assert found == ("next" if number == newest + 1 else range(newest + 1, number))
        seen.add(number)


@pytest.mark.law(6)
def test_a_line_of_many_ends_is_read_once(monkeypatch):
    """Each end of a hostile line may have a check that agrees."""
    line, check = b"\t{", crc32(b"\t{")
    for _ in range(1000):
        end = b',"crc":"%08x"}' % check
        line, check = line + end, crc32(end, check)
    tried = []
    monkeypatch.setattr("palaver.store.jsonl.lines._read", lambda piece, *_: tried.append(len(piece)))
    scanner = Scanner("f")
    found = [*scanner.feed(line + b"x\n"), *scanner.finish()]
    assert kinds(found) == [("altered", "its checksum does not match")]
    assert len(tried) == 1
