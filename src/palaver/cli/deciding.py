"""Asks at the terminal what becomes of calls that wait for a decision.

Rules:

- What would run is shown whole, or as far as it says, and harmless: nobody approves what they cannot see.
- A decision is a letter or a word; behind ``reject`` and ``answer`` may stand a text. ``edit`` opens the arguments in
  ``$VISUAL`` or ``$EDITOR``, else in the line; they are checked by the tool, and asked for again when they do not fit.
- The end of input (Ctrl-D) leaves it pending, with all that follow. Ctrl-C goes through.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import click
from msgspec import structs
from rich.text import Text as Line

from palaver.agent.approvals import ApprovalRequest, Decision
from palaver.agent.permission import DecisionKind
from palaver.cli.agent_options import Typed
from palaver.cli.harmless import in_line, safe
from palaver.core import jsontext
from palaver.core.errors import MessageError, PalaverError

if TYPE_CHECKING:
    from palaver.agent.agent import Agent
    from palaver.cli.telling import Teller
    from palaver.core.parts import ToolCall

_LINES: Final = 20
_LINE: Final = 2_000
_WORDS: Final[Mapping[str, DecisionKind]] = {
    "a": "approve",
    "approve": "approve",
    "y": "approve",
    "yes": "approve",
    "e": "edit",
    "edit": "edit",
    "r": "reject",
    "reject": "reject",
    "n": "reject",
    "no": "reject",
    "t": "answer",
    "answer": "answer",
}
_PROMPTS: Final[Mapping[DecisionKind, str]] = {
    "approve": "[a]pprove",
    "edit": "[e]dit",
    "reject": "[r]eject [reason]",
    "answer": "answer instead: [t] text",
}


def ask(requests: Iterable[ApprovalRequest], agent: Agent, teller: Teller) -> dict[str, Decision]:
    """Ask for each. Gives what was decided; raises ``KeyboardInterrupt``."""
    decided: dict[str, Decision] = {}
    for request in requests:
        decision = _asked(request, agent, teller)
        if decision is None:
            break
        decided[request.call.id] = decision
    return decided


def _asked(request: ApprovalRequest, agent: Agent, teller: Teller) -> Decision | None:
    _shown(request, teller, _LINES)
    choices = ", ".join([*(_PROMPTS[kind] for kind in request.choices), "[v]iew all"])
    while True:
        try:
            teller.line(choices, "dim")
            word, _, text = input("? ").strip().partition(" ")
        except EOFError:
            teller.line("left pending", "dim")
            return None
        if word == "v":
            _shown(request, teller, None)
            continue
        kind = _WORDS.get(word.lower().rstrip(":"))
        if kind not in request.choices:
            continue
        if kind != "edit":
            return Decision(kind=kind, text=text.strip())
        edited = _edited(request, agent, teller)
        if edited is not None:
            return edited


def _shown(request: ApprovalRequest, teller: Teller, most: int | None) -> None:
    head = Line.assemble(("? ", "bold magenta"), (in_line(request.tool), "bold magenta"), " wants to run")
    if request.reason:
        head.append(f": {in_line(request.reason)}", "")
    teller.line(head)
    lines = safe(_told(request.call)).split("\n")
    for line in lines[:most]:
        shown = line if most is None or len(line) <= _LINE else f"{line[:_LINE]}…"
        teller.aside.print(Line(f"    {shown}"), soft_wrap=True)
    if most is not None and len(lines) > most:
        teller.line(f"    … {len(lines) - most:,} more lines", "yellow")


def _told(call: ToolCall) -> str:
    """The arguments, a line for each, text with its own line breaks."""
    try:
        given: Mapping[str, Any] = call.arguments
    except PalaverError:
        return call.arguments_json
    return "\n".join(
        f"{key}: {value if isinstance(value, str) else jsontext.encode(value).decode()}" for key, value in given.items()
    )


# -- editing -----------------------------------------------------------------------------------------------------------


def _edited(request: ApprovalRequest, agent: Agent, teller: Teller) -> Decision | None:
    text = request.call.arguments_json
    while True:
        try:
            text = _changed(text)
            if not text.strip():
                return None
            return _checked(request, text, agent)
        except EOFError:
            return None
        except (PalaverError, click.ClickException) as error:
            teller.line(in_line(str(error)), "red")


def _changed(text: str) -> str:
    if os.environ.get("VISUAL") or os.environ.get("EDITOR"):
        edited = click.edit(jsontext.pretty(jsontext.value(text)).decode(), extension=".json")
        return "" if edited is None else edited
    return _prefilled(text)


def _prefilled(text: str) -> str:
    """A line of input that begins with a text."""
    set_hook: Callable[..., None]
    try:
        import readline
    except ImportError:  # without it, the line begins empty
        return input("arguments (JSON): ")
    set_hook = readline.set_startup_hook
    set_hook(lambda: readline.insert_text(text))
    try:
        return input("arguments (JSON): ")
    finally:
        set_hook()


def _checked(request: ApprovalRequest, text: str, agent: Agent) -> Decision:
    arguments = _object(text)
    tool = agent.toolbox.find(request.tool)
    if tool is not None:
        tool.check(structs.replace(request.call, arguments_json=text))
    return Decision(kind="edit", arguments=arguments)


def typed(given: Iterable[Typed]) -> dict[str, Decision]:
    """Decisions that were typed as options. Raises ``click.UsageError`` for arguments that are no JSON."""
    decided: dict[str, Decision] = {}
    for call, kind, text in given:
        if kind != "edit":
            decided[call] = Decision(kind=kind, text=text)
            continue
        try:
            decided[call] = Decision(kind=kind, arguments=_object(text))
        except PalaverError as error:
            raise click.UsageError(f"--decide {call}=edit: {error}") from None
    return decided


def _object(text: str) -> dict[str, Any]:
    value = jsontext.value(text)
    if not isinstance(value, dict):
        raise MessageError("arguments are an object of JSON")
    return cast("dict[str, Any]", value)
