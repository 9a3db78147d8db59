"""Sub-agents: a tool by which an agent gives tasks to others.

Rules (docs/spec/deepagents-swift.md#8.4, DAS-25, DAS-27; docs/spec/codebuff.md#4.5, CBF-30):

- A sub-agent sees its task and nothing else: one user message in a thread of its own. Where the parent's thread is
  stored, so is the child's, with the parent's thread, run and call in its metadata.
- A sub-agent has no sub-agents. It shares ``deps`` with its parent, and has ``values`` of its own.
- The parent's gate holds for its children: what middleware and policy of the parent deny is denied, what they ask is
  asked, and the parent's ``decide`` decides. Where nobody decides, the call fails and says what was asked.
- The result is the text of the child's last answer. No answer, a failure, and an agent that is not known or not
  permitted are error results, each of that call alone.
- What a child used counts in its parent's run and against its parent's limits, also when it failed or was cancelled.
- Children run at the same time, with the reads of an answer; with ``effect="write"`` one after the other. After a
  crash no child is run again without being asked.
- Events of a child come as ``SubagentEvent``, from its ``RunStarted`` to its ``RunFinished``, both between
  ``ToolStarted`` and ``ToolFinished`` of the call. Cancelling the parent cancels its children.

Ids of agents, ``publisher/name@version``, and which agents a reference means (docs/spec/codebuff.md#4.5, CBF-30):

- Publisher and version may be missing. In a reference, what is missing may be anything; in the id of an agent it is
  nothing. So ``coder`` means ``acme/coder@1.2``, and ``acme/coder`` does not mean ``coder``.
- Where a reference means several agents, it means the first.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from palaver.agent.driver import RunOptions
from palaver.core.errors import MessageError, ToolError, excerpt
from palaver.core.parts import Text, ToolCall
from palaver.core.tools import Tool
from palaver.core.type_checks import check_arguments
from palaver.store.store import to_thread
from palaver.turn.events import AgentEvent, SubagentEvent, Watch
from palaver.turn.middleware import Middleware, RunContext
from palaver.turn.tool import (
    AgentTool,
    Effect,
    InvalidArgumentsError,
    Output,
    Rule,
    ToolContext,
    check_names,
    read_arguments,
)
from palaver.turn.tool_output import error_output

if TYPE_CHECKING:
    from palaver.agent.agent import Agent
    from palaver.store.store import Store
    from palaver.turn.journal import AnyThread
    from palaver.turn.run import Run


# --- agent ids --------------------------------------------------------------------------------------------------------


class AgentId(Struct, frozen=True):
    """The parts of an id; ``None`` for what is missing."""

    name: str
    publisher: str | None = None
    version: str | None = None

    def means(self, agent: AgentId) -> bool:
        """Whether this reference means an agent."""
        return (
            self.name == agent.name
            and self.publisher in (None, agent.publisher)
            and self.version in (None, agent.version)
        )


def agent_id(text: str) -> AgentId:
    """Read an id. A slash or an at sign with nothing beside it is as if it were not there."""
    publisher, _, rest = text.strip().rpartition("/")
    name, _, version = rest.partition("@")
    return AgentId(name, publisher or None, version or None)


def meant(reference: str, agents: Iterable[str]) -> str | None:
    """The first of some ids that a reference means; ``None`` where it means none of them."""
    wanted = agent_id(reference)
    return next((each for each in agents if wanted.means(agent_id(each))), None)


# --- subagents --------------------------------------------------------------------------------------------------------


TASK: Final = "task"
_ANSWERED: Final = ("completed", "length", "max_iterations", "no_progress")
"""Outcomes of runs whose last answer is a result: whole, cut, or asked for when they had to end."""
_DESCRIPTION: Final = (
    "Give a task to another agent, which works on it alone and reports back. It sees nothing of this conversation: "
    "say everything that it must know. To have several tasks done at the same time, call this several times at once."
)


class _Task(Struct, frozen=True):
    description: str
    agent: str


class Gate(Middleware):
    """Holds a sub-agent to what its parent's middleware and policy say."""

    def __init__(self, judge: Callable[[ToolCall, AgentTool], Any]) -> None:
        """Take the parent's judgement."""
        self._judge = judge

    async def rule(self, call: ToolCall, tool: AgentTool, context: RunContext) -> Rule | None:  # noqa: ARG002 (a hook)
        """What the parent says of the child's call."""
        said: Rule = await self._judge(call, tool)
        return said


class Subagents(Middleware):
    """Offers the tool ``task``. Made by ``subagents``."""

    def __init__(
        self, agents: Sequence[Agent], *, about: Mapping[str, str], name: str, effect: Effect, timeout: float | None
    ) -> None:
        """Keep the agents. The parameters are those of ``subagents``, which raises the same errors."""
        self._agents = {each.name: _childless(each, name) for each in agents}
        if not agents or len(self._agents) != len(agents):
            raise MessageError("subagents: at least one agent is needed, each with a different name")
        check_names("about", about, self._agents, "agent")
        self._tool = AgentTool(
            definition=_definition(name, tuple(self._agents), about),
            run=self._run,
            check=self._check,
            effect=effect,
            once=True,
            timeout=timeout,
            scope="subagents",
        )

    @property
    def names(self) -> Collection[str]:
        """The tools of the agents: the gate speaks of them too."""
        return {name for agent in self._agents.values() for name in agent.toolbox.names}

    @property
    def tools(self) -> Sequence[AgentTool]:
        """The tool ``task``."""
        return (self._tool,)

    def _check(self, call: ToolCall) -> _Task:
        given = read_arguments(call)
        only = next(iter(self._agents)) if len(self._agents) == 1 else None
        description, wanted = given.get("description"), given.get("agent", only)
        if not isinstance(description, str) or not description.strip():
            raise InvalidArgumentsError("description: expected the task as a string")
        name = meant(wanted, self._agents) if isinstance(wanted, str) else None
        if name is None:
            available = ", ".join(self._agents)
            raise InvalidArgumentsError(f"agent: {excerpt(repr(wanted))} is not one of the agents: {available}")
        return _Task(description, name)

    async def _run(self, task: _Task, context: ToolContext) -> Output:
        parent: RunContext | None = context.host
        if parent is None or parent.judge is None:
            raise ToolError(f"{self._tool.name}: can only be called in a run")
        agent = self._agents[task.agent]
        log = parent.log if agent.log is None else agent.log
        child = agent.replace(middleware=(Gate(parent.judge), *agent.chain.all), log=log)
        watch = None if parent.watch is None else _Forwarded(parent.watch, context)
        thread = None if parent.store is None else await to_thread(_kept, parent.store, context, task.agent)
        options = RunOptions(thread=thread, deps=context.deps, decide=parent.decide)
        driver = child.driver(task.description, options, watch)
        try:
            run = await driver.drive()
        finally:
            ended = driver.result
            if ended is not None:
                parent.spend(ended.usage_by_model, ended.cost)
        return _reported(run)


class _Forwarded(Watch):
    """Shows the events of a child to who watches its parent."""

    def __init__(self, parent: Watch, context: ToolContext) -> None:
        super().__init__()
        self._parent, self._context = parent, context

    def put(self, event: AgentEvent) -> None:
        context = self._context
        self._parent.put(SubagentEvent(agent=context.agent, run=context.run, call=context.call, event=event))

    async def room(self) -> None:
        await self._parent.room()


def subagents(
    agents: Sequence[Agent],
    *,
    about: Mapping[str, str] | None = None,
    name: str = TASK,
    effect: Effect = "read",
    timeout: float | None = None,
) -> Subagents:
    """Make middleware with a tool that gives tasks to ``agents``, by their names.

    ``about`` says what each is good for, ``name`` is that of the tool. ``effect`` says how calls stand among others:
    ``read`` lets children run at the same time, ``write`` one after the other. ``timeout`` is in seconds. Raises
    ``MessageError`` for no agents, two of one name, and one that has a tool of that name.
    """
    check_arguments("subagents", subagents, locals())
    return Subagents(agents, about=about or {}, name=name, effect=effect, timeout=timeout)


def _childless(agent: Agent, name: str) -> Agent:
    """An agent without sub-agents of its own."""
    agent = agent.replace(middleware=[each for each in agent.chain.all if not isinstance(each, Subagents)])
    if name in agent.toolbox:
        raise MessageError(f"subagents: {agent.name!r} has a tool {name!r}, which a subagent cannot have")
    return agent


def _definition(name: str, agents: tuple[str, ...], about: Mapping[str, str]) -> Tool:
    known = "\n".join(f"- {each}: {about[each]}" for each in agents if each in about)
    schema = {
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "The task, with all that is needed to do it."},
            "agent": {"type": "string", "enum": list(agents), "description": "Who is to do it."},
        },
        "required": ["description", "agent"],
        "additionalProperties": False,
    }
    return Tool.of(name, f"{_DESCRIPTION}\nAgents:\n{known}" if known else _DESCRIPTION, schema)


def _kept(store: Store, context: ToolContext, agent: str) -> AnyThread:
    """Begin the thread of a child in its parent's store."""
    parent = {"thread": context.thread, "run": context.run, "call": context.call.id, "agent": agent}
    return store.open(store.create(metadata={"parent": parent}).id)


def _reported(run: Run) -> Output:
    metadata = {"subagent": {"agent": run.agent, "thread": run.thread.id, "run": run.id, "outcome": run.outcome}}
    text = run.text.strip()
    if run.outcome in _ANSWERED and text:
        return Output(content=(Text(text),), metadata=metadata)
    output = error_output(f"The agent {run.agent} {_why(run)}")
    return structs.replace(output, metadata={**output.metadata, **metadata})


def _why(run: Run) -> str:
    if run.outcome == "waiting":
        asked = "; ".join(f"{each.tool}({excerpt(each.call.arguments_json)})" for each in run.pending)
        return f"needs approval, but nobody can decide: {asked}"
    if run.outcome in _ANSWERED:
        return "returned no answer."
    return f"did not finish ({run.outcome}){f': {excerpt(run.reason, 200)}' if run.reason else '.'}"
