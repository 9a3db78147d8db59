"""What is given to an agent and to its runs, and is easily mistaken for another thing.

Rules:

- It is said in one sentence, when the agent is made or the run begins: what stands where, and what should.
- Only what a type checker would refuse is looked at; what an argument means is judged by whoever reads it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final, cast

import anyio

from palaver.agent.approvals import checked_mapping
from palaver.agent.limits import Limits
from palaver.agent.middleware import Middleware
from palaver.agent.run import Run
from palaver.agent.tool import AgentTool
from palaver.core.errors import MessageError, excerpt
from palaver.core.messages import DeveloperMessage, SystemMessage
from palaver.core.request import Settings
from palaver.core.tools import ProviderTool
from palaver.store.stored import StoredThread
from palaver.threads.thread import Thread


def check_kinds(model: object, tools: object, middleware: object) -> None:
    """Say of what is easily given for another thing what it should be. Raises ``MessageError``."""
    if isinstance(model, str):
        raise MessageError(f"model: {excerpt(repr(model))} is a name; palaver.models.model(…) makes a model of it")
    if not callable(getattr(model, "session", None)):
        raise MessageError(f"model: {excerpt(repr(model))} is no model; palaver.models.model(…) makes one")
    for name, given, kind in (("tools", tools, "tools or functions"), ("middleware", middleware, "Middleware")):
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise MessageError(f"{name}: {excerpt(repr(given))} is no list of {kind}")
    for index, tool in enumerate(cast("Sequence[object]", tools)):
        if not isinstance(tool, AgentTool | ProviderTool) and not callable(tool):
            raise MessageError(f"tools[{index}]: {excerpt(repr(tool))} is neither a tool nor a function")
    for index, each in enumerate(cast("Sequence[object]", middleware)):
        if not isinstance(each, Middleware):
            raise MessageError(f"middleware[{index}]: {excerpt(repr(each))} is no Middleware")


def check_log(log: object) -> None:
    """Raise ``MessageError`` for a log that takes no messages."""
    if log is not None and not callable(getattr(log, "append", None)):
        raise MessageError(f"log: {excerpt(repr(log))} has no method append(message, context)")


def check_places(thread: object, previous: object) -> None:
    """Raise ``MessageError`` for a thread or a run that is none."""
    if thread is not None and not isinstance(thread, Thread | StoredThread):
        kind = type(thread).__name__
        raise MessageError(f"thread: {kind} is neither a Thread nor a StoredThread; store.open(id) gives one")
    if previous is not None and not isinstance(previous, Run):
        raise MessageError(f"previous: {type(previous).__name__} is no Run")


_FIELDS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "name": (str, "a text"),
    "limits": (Limits, "Limits(…)"),
    "settings": (Settings, "Settings(…)"),
    "provider": ((Mapping, NoneType), "a mapping by the name of a wire"),
    "result_limit": ((int, NoneType), "a whole number of characters, or None"),
    "invalid_calls": (str, "'answer' or 'note'"),
    "stream": (bool, "True or False"),
    "eager": (bool, "True or False"),
    "branch": (str, "the name of a branch"),
    "values": ((dict, NoneType), "a dictionary"),
}
"""The kinds of simple fields, and how each is called."""
_FUNCTIONS: Final = ("decide", "prices", "on_event")


def check_fields(fields: Mapping[str, object]) -> None:
    """Raise ``MessageError``, naming the field, for what an agent or a run cannot be made with."""
    for name, value in fields.items():
        if name in _FIELDS:
            kind: Any
            kind, shown = _FIELDS[name]
            if not isinstance(value, kind) or (isinstance(value, bool) and name == "result_limit"):
                raise MessageError(f"{name}: {excerpt(repr(value))} is not {shown}")
        elif name in _FUNCTIONS and value is not None and not callable(value):
            raise MessageError(f"{name}: {excerpt(repr(value))} is no function")
    words = fields.get("invalid_calls", "answer")
    if words not in ("answer", "note"):
        raise MessageError(f"invalid_calls: {excerpt(repr(words))} is not 'answer' or 'note'")
    limit = fields.get("result_limit")
    if isinstance(limit, int) and limit < 1:
        raise MessageError(f"result_limit: {limit}: a result has at least one character; None is without a limit")
    said = fields.get("instructions", "")
    if not isinstance(said, str | SystemMessage | DeveloperMessage) and not callable(said):
        raise MessageError(f"instructions: {excerpt(repr(said))} is not a text, a system message or a function")
    for name in ("polling", "observers"):
        given = fields.get(name, ())
        if not isinstance(given, Sequence):
            raise MessageError(f"{name}: {excerpt(repr(given))} is no list")
    for index, each in enumerate(cast("Sequence[object]", fields.get("observers", ()))):
        if not callable(each):
            raise MessageError(f"observers[{index}]: {excerpt(repr(each))} is no function")


def check_run(*, decisions: object, **fields: object) -> None:
    """Raise ``MessageError``, naming the field, for what a run cannot begin with."""
    check_fields(fields)
    if decisions is not None:
        checked_mapping(decisions, "decisions")


def check_no_loop() -> None:
    """Raise ``RuntimeError`` where an event loop runs in this thread already."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return
    raise RuntimeError(
        "run_sync cannot be called where an event loop runs already, as in a notebook or an async function: "
        "write “await agent.run(…)”"
    )
