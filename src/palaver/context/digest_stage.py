"""A summary without a model: messages become short entries in one message of memory.

Rules (docs/spec/codebuff.md#9.4; CBF-29):

- Everything becomes memory except preserved messages, the task (I8), the last message tagged ``INSTRUCTIONS_PROMPT``,
  and what the model has not answered: the live prompt and all behind it or, within a turn, unseen results with their
  answer (I10). Rounds go whole (I2). The memory stands at the first message that it replaces.
- Within a turn the live prompt becomes memory too, unless it is the task, and a request to continue follows the memory.
- Images of the last user message that has any stay.
- Entries are ``[USER]`` and the text, ``[ASSISTANT]`` with a line for each call, and of results the errors, exit codes,
  edits, answers to questions and reports of sub-agents (``Tools`` names these tools).
- A text over its limit keeps 80 % from its beginning and 20 % from its end. Limits are tokens of 3 characters, or of 3
  bytes where that is more.
- Budgets are 50,000 tokens for the user and 20,000 for the rest, scaled down in a small window. The newest entries come
  first; the newest of all always stays.
- An earlier memory is parsed by the lengths in its record, never by marks in its text, which a user may have written;
  its entries share the budgets. Without a new entry nothing changes (I9).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from palaver.context.labels import (
    TERMINAL,
    is_failed,
    objects,
    placeholder,
    preserved,
    record_of,
    result_text,
    rounds,
    values,
)
from palaver.context.marks import is_cold
from palaver.context.plan import SOURCE, Item, Plan, Stage
from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import Image, MalformedToolCall, Refusal, Text, ToolCall

# --- memory -----------------------------------------------------------------------------------------------------------


STAGE: Final = "prune"
CONTINUED: Final = "continue"
"""The stage in the record of the message that asks a model to continue its turn."""
USER_TOKENS: Final = 50_000
"""The most tokens for all entries of the user."""
WORK_TOKENS: Final = 20_000
"""The most tokens for all other entries."""

Kind: TypeAlias = Literal["user", "work"]

_TOKEN: Final = 3
_USER: Final = 13_000 * _TOKEN
_ANSWER: Final = 1_300 * _TOKEN
_ERROR: Final = 100
_EDIT: Final = 2_000
_CALL: Final = 200
_LINE: Final = 40
_OMITTED: Final = frozenset(("INSTRUCTIONS_PROMPT", "STEP_PROMPT", "SUBAGENT_SPAWN"))
"""Tags of messages that are added again when they are needed."""
_EMPTY: Final = frozenset(("trim", CONTINUED))
"""Stages whose messages contain nothing of those that they replace."""

_HEAD: Final = (
    "<conversation_summary>\nThis is what is left of the earlier conversation, oldest first.\n\n<historical_memory>\n"
)
_TAIL: Final = (
    "\n</historical_memory>\n</conversation_summary>\n\n"
    "The memory above is for reference. What it quotes was said before: act on it only as far as it is not done yet."
)
_BETWEEN: Final = "\n\n---\n\n"


class Tools(Struct, frozen=True, kw_only=True):
    """How the results of tools are reported. Reports of ``silent`` sub-agents, or of their tools, are left out."""

    terminal: frozenset[str] = TERMINAL
    edits: frozenset[str] = frozenset(("write_file", "edit_file", "str_replace", "apply_patch", "propose_write_file"))
    questions: frozenset[str] = frozenset(("ask_user",))
    agents: frozenset[str] = frozenset(("task", "spawn_agents", "spawn_agent_inline"))
    silent: frozenset[str] = frozenset()


class Entry(NamedTuple):
    """One entry of a memory."""

    kind: Kind
    text: str


def entries_of(message: Message, tools: Tools) -> list[Entry]:
    """Return the entries of a memory for a message."""
    match message:
        case UserMessage():
            return _of_user(message)
        case AssistantMessage():
            return _of_answer(message)
        case ToolMessage():
            return _of_result(message, tools)
        case _:
            return []


def _of_user(message: UserMessage) -> list[Entry]:
    if is_memory(message):
        return parse(message)
    record = record_of(message)
    if (record is not None and record.get("stage") in _EMPTY) or not _OMITTED.isdisjoint(message.tags):
        return []
    attached = " [image(s) were attached]" if message.images else ""
    if not message.text.strip() and not attached:
        return []
    mark = "[EARLIER SUMMARY]" if message.is_summary else "[USER]"
    return [Entry("user", f"{mark}{attached}\n{shorten(message.text, _USER)}")]


def _of_answer(message: AssistantMessage) -> list[Entry]:
    text = "".join([part.text for part in message.content if isinstance(part, Text | Refusal)])
    lines = [f"Progress note:\n{shorten(text, _ANSWER)}"] if text.strip() else []
    for part in message.content:
        if isinstance(part, ToolCall):
            lines.append(_line(f"Called {part.name}: {part.described}"))
        elif isinstance(part, MalformedToolCall):
            lines.append(_line(f"Called {part.name or 'a tool'} in a way that could not be read"))
    return [Entry("work", "[ASSISTANT]\n" + "\n".join(lines))] if lines else []


def _line(text: str) -> str:
    return shorten(" ".join(text[: 4 * _CALL].split()), _CALL).replace("\n", " ")


# -- results -----------------------------------------------------------------------------------------------------------


def _of_result(message: ToolMessage, tools: Tools) -> list[Entry]:
    name = message.tool_name or ""
    if is_failed(message):
        return [Entry("work", f"[TOOL ERROR] {name}: {shorten(result_text(message), _ERROR)}")]
    for names, kind, tell in _RESULT_ENTRIES:
        if name in names(tools):
            told = tell(message, tools)
            return [Entry(kind, told)] if told is not None else []
    return []


def _answers(message: ToolMessage, _tools: Tools) -> str | None:
    return f"[USER]\nAnswers to questions:\n{shorten(result_text(message), _USER)}"


def _exit(message: ToolMessage, _tools: Tools) -> str | None:
    codes = [each["exitCode"] for each in objects(message) if type(each.get("exitCode")) is int]
    return f"[COMMAND] {message.tool_name}: exit code {codes[0]}" if codes else None


def _edit(message: ToolMessage, _tools: Tools) -> str | None:
    return f"[EDIT RESULT] {message.tool_name}\n{shorten(result_text(message), _EDIT)}"


def _report(message: ToolMessage, tools: Tools) -> str | None:
    reports = [report for value in values(message) for report in _listed(value)]
    told = [each for each in reports if _agent(each) not in tools.silent]
    if message.tool_name in tools.silent or (reports and not told):
        return None
    text = result_text(message) if len(told) == len(reports) else jsontext.encode(told).decode()
    return f"[AGENT RESULT] {message.tool_name}\n{shorten(text, _ANSWER)}"


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, jsontext.FrozenList) else [value]


def _agent(report: Any) -> str:
    name = report.get("agentType") if isinstance(report, jsontext.FrozenDict) else None
    return name if isinstance(name, str) else ""


_RESULT_ENTRIES: Final[
    tuple[tuple[Callable[[Tools], frozenset[str]], Kind, Callable[[ToolMessage, Tools], str | None]], ...]
] = (
    (lambda tools: tools.questions, "user", _answers),
    (lambda tools: tools.terminal, "work", _exit),
    (lambda tools: tools.edits, "work", _edit),
    (lambda tools: tools.agents, "work", _report),
)


# -- what fits ---------------------------------------------------------------------------------------------------------


def shorten(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` bytes, with a line that says how much was left out."""
    size = _size(text)
    if size <= limit:
        return text
    stay = max((limit - _LINE) * len(text) // size, 0)
    while True:
        tail = stay // 5
        left_out = f"\n[... {len(text) - stay} characters left out ...]\n"
        shorter = f"{text[: stay - tail]}{left_out}{text[len(text) - tail :]}"
        if _size(shorter) <= limit or not stay:
            return shorter
        stay = stay * 9 // 10  # the ends take more bytes a character than the middle


def budgeted(oldest_first: Sequence[Entry], budgets: Mapping[Kind, int]) -> list[Entry]:
    """Return the newest entries that fit their budgets, which are in tokens; the newest of all stays."""
    left = {kind: tokens * _TOKEN for kind, tokens in budgets.items()}
    stay: list[Entry] = []
    for entry in reversed(oldest_first):
        left[entry.kind] -= _size(entry.text)
        if left[entry.kind] >= 0 or not stay:
            stay.append(entry)
        else:
            left[entry.kind] = -1
    return stay[::-1]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# -- the text ----------------------------------------------------------------------------------------------------------


def render(memory: Iterable[Entry]) -> str:
    """Return the text of a memory."""
    return f"{_HEAD}{_BETWEEN.join([entry.text for entry in memory])}{_TAIL}"


def lengths(memory: Iterable[Entry]) -> list[list[str | int]]:
    """Return what parsing the text needs: kind and length of each entry, in characters."""
    return [[entry.kind, len(entry.text)] for entry in memory]


def is_memory(message: Message) -> bool:
    """Return whether compaction wrote the message as a memory. The text alone never proves it."""
    return (record_of(message) or {}).get("stage") == STAGE


def parse(message: Message) -> list[Entry]:
    """Return the entries of a memory."""
    text = message.text
    if not (text.startswith(_HEAD) and text.endswith(_TAIL)):
        return [Entry("user", f"[EARLIER SUMMARY]\n{shorten(text, _USER)}")]
    inner = text[len(_HEAD) : len(text) - len(_TAIL)]
    found: list[Entry] = []
    start = 0
    told = (record_of(message) or {}).get("entries")
    for each in told if isinstance(told, jsontext.FrozenList) else ():
        kind, length = _length(each)
        if kind is None:
            break
        found.append(Entry(kind, inner[start : start + length]))
        start += length + len(_BETWEEN)
    whole = _BETWEEN.join([entry.text for entry in found]) == inner
    return found if whole else [Entry("user", inner)]


def _length(each: Any) -> tuple[Kind | None, int]:
    match each:
        case ["user" | "work" as kind, int(length)] if length >= 0:
            return kind, length
        case _:
            return None, 0


# --- pruning ----------------------------------------------------------------------------------------------------------


INSTRUCTIONS: Final = "INSTRUCTIONS_PROMPT"
CONTINUE: Final = (
    "<system>Continue the existing assistant turn from where it left off. The user's request and the work so far are "
    "in the memory above; do not begin anew.</system>"
)

_UNFINISHED: Final = frozenset(("length", "pause", "error"))
_MIN_BUDGET: Final = 100
_BUDGETS: Final[dict[Kind, int]] = {"user": USER_TOKENS, "work": WORK_TOKENS}


class _Turn(NamedTuple):
    """Where the messages begin that the model has not answered, and whether a turn is to be continued there."""

    begins: int
    continued: bool


def prune(plan: Plan, *, tools: Tools = Tools()) -> Plan:  # noqa: B008 (frozen)
    """Return the plan with a memory in place of the answered messages; the same plan when nothing is saved."""
    turn = _turn(plan.items)
    stays = _stays(plan, turn)
    folded = [item for place, item in enumerate(plan.items) if not stays[place]]
    if all(item.message.source == SOURCE for item in folded):
        return plan  # nothing was added since the last time
    told = [entry for item in folded for entry in entries_of(item.message, tools)]
    entries = _fitting(told, _budgets(plan, stays))
    if not entries:
        return plan
    images = _images(plan, stays)
    record = lengths(entries)
    summary = placeholder(plan, STAGE, render(entries), folded, *images, entries=record)
    items: list[Item] = []
    for place, item in enumerate(plan.items):
        if place == stays.find(0):
            items.append(summary)
        if place == turn.begins and turn.continued:
            items.append(_continue(plan))
        if stays[place]:
            items.append(item)
    if turn.continued and turn.begins == len(plan.items):
        items.append(_continue(plan))
    return plan.changed(STAGE, items, len(folded))


def _continue(plan: Plan) -> Item:
    return placeholder(plan, CONTINUED, CONTINUE, ())


# -- what stays --------------------------------------------------------------------------------------------------------


def _turn(items: Sequence[Item]) -> _Turn:
    prompt = max([place for place, item in enumerate(items) if _is_prompt(item)], default=-1)
    answer = max([place for place, item in enumerate(items) if isinstance(item.message, AssistantMessage)], default=-1)
    if answer <= prompt:
        return _Turn(max(prompt, 0), continued=False)
    behind = answer + 1
    if behind < len(items):
        unseen = isinstance(items[behind].message, ToolMessage)
        return _Turn(answer if unseen else behind, continued=True)
    last = items[answer].message
    unfinished = isinstance(last, AssistantMessage) and last.finish_reason in _UNFINISHED
    return _Turn(behind, continued=unfinished)


def _is_prompt(item: Item) -> bool:
    """Return whether the message is from a person, as far as messages show that."""
    message = item.message
    if not isinstance(message, UserMessage) or message.mode == "tool" or message.is_summary:
        return False
    return INSTRUCTIONS not in message.tags


def _stays(plan: Plan, turn: _Turn) -> bytearray:
    """Return 1 for each message that stays as it is, else 0."""
    items = plan.items
    held = preserved(plan)
    tagged = [place for place, item in enumerate(items) if INSTRUCTIONS in item.message.tags]
    stays = bytearray(len(items))
    for start, end in rounds(items):
        alone = (
            not any(held.untouchable[place] or place == held.task for place in range(start, end))
            and start not in tagged[-1:]
        )
        if not alone or start >= turn.begins:
            stays[start:end] = b"\1" * (end - start)
    return stays


def _images(plan: Plan, stays: bytearray) -> tuple[Image, ...]:
    """Return the images of the last user message that has any, if it does not stay."""
    for place in range(len(plan.items) - 1, -1, -1):
        message = plan.items[place].message
        if isinstance(message, UserMessage) and message.images:
            return () if stays[place] else message.images
    return ()


# -- what fits ---------------------------------------------------------------------------------------------------------


def _budgets(plan: Plan, stays: bytearray) -> dict[Kind, int]:
    """Return the budgets, in tokens; smaller when half of the room is less."""
    held = sum([item.tokens for place, item in enumerate(plan.items) if stays[place]])
    around = plan.fixed + round(plan.around * (sum(stays) + 1))
    room = max(int(plan.capacity / plan.scale) - around - held, 0)
    total = sum(_BUDGETS.values())
    return {kind: tokens * min(room // 2, total) // total for kind, tokens in _BUDGETS.items()}


def _fitting(told: Sequence[Entry], budgets: dict[Kind, int]) -> list[Entry]:
    """Return the entries that fit; none is longer than its budget."""
    short = [Entry(each.kind, shorten(each.text, max(budgets[each.kind] * 3, _MIN_BUDGET))) for each in told]
    return budgeted(short, budgets)


PRUNE: Final = Stage(STAGE, prune, 1.0, 999, is_cold)
"""Runs when fewer than 1,000 tokens are left, or when the prompt's cache is cold (docs/spec/codebuff.md#9.4)."""
