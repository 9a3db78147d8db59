"""What is given to an agent and to its runs, and is easily mistaken for another thing.

Rules:

- It is said in one sentence, when the agent is made or the run begins: what stands where, and what should.
- Only what a type checker would refuse is looked at; what an argument means is judged by whoever reads it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from palaver.agent.middleware import Middleware
from palaver.agent.run import Run
from palaver.agent.tool import AgentTool
from palaver.core.errors import MessageError, excerpt
from palaver.core.tools import ProviderTool
from palaver.store.stored import StoredThread
from palaver.threads.thread import Thread


def check_kinds(model: object, tools: object, middleware: object) -> None:
    """Say of what is easily given for another thing what it should be. Raises ``MessageError``."""
    if isinstance(model, str):
        raise MessageError(f"model: {excerpt(repr(model))} is a name; palaver.models.model(…) makes a model of it")
    for name, given, kind in (("tools", tools, "tools or functions"), ("middleware", middleware, "Middleware")):
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise MessageError(f"{name}: {excerpt(repr(given))} is no list of {kind}")
    for index, tool in enumerate(cast("Sequence[object]", tools)):
        if not isinstance(tool, AgentTool | ProviderTool) and not callable(tool):
            raise MessageError(f"tools[{index}]: {excerpt(repr(tool))} is neither a tool nor a function")
    for index, each in enumerate(cast("Sequence[object]", middleware)):
        if not isinstance(each, Middleware):
            raise MessageError(f"middleware[{index}]: {excerpt(repr(each))} is no Middleware")


def check_places(thread: object, previous: object) -> None:
    """Raise ``MessageError`` for a thread or a run that is none."""
    if thread is not None and not isinstance(thread, Thread | StoredThread):
        kind = type(thread).__name__
        raise MessageError(f"thread: {kind} is neither a Thread nor a StoredThread; store.open(id) gives one")
    if previous is not None and not isinstance(previous, Run):
        raise MessageError(f"previous: {type(previous).__name__} is no Run")
