"""What ``run`` and ``chat`` are asked for: the options that both have, and how they are typed again to go on.

Rules:

- Nothing that runs an agent is imported here: the help of every command reads this module.

Which model is meant, and what to say where none can be asked.

The tools that ``--tools`` names.

Rules:

- ``files`` are the built-in tools for the folder that one is in. ``mcp:URL`` and ``mcp:COMMAND …`` are the tools of an
  MCP server; one that fails is an error, for whoever names it wants it.
- ``FILE.py:name,…`` are functions and ``AgentTool`` values of a Python file, which is run. Without names they are what
  its ``TOOLS`` lists, else its ``AgentTool`` values and the public functions that it defines, in their order.

The tools ``files``: read, list and write files of one folder.

Rules:

- A path means a place in the folder; what lies outside, also by way of a link, does not exist for the tools. Links are
  resolved before that is judged.
- Only plain files are read and written, text of at most a million bytes; a file is written whole or not at all.
- Reading is a read. Writing is a write: whoever runs the agent decides whether it is asked for.

Stability: experimental.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import reduce
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeVar

import anyio
import click

from palaver.agent import mcp
from palaver.agent.functions import function_tool
from palaver.cli import files, stores, swarm_file
from palaver.cli.demo_model import NAME, demo_model, demo_tools
from palaver.cli.terminal import bad_input, echo
from palaver.core.errors import ToolError
from palaver.models import names, providers
from palaver.models.capabilities import Capabilities
from palaver.models.catalogue import capabilities_of, catalogue
from palaver.models.credentials import first_set
from palaver.turn.tool import AgentTool

if TYPE_CHECKING:
    from types import ModuleType

    from palaver.models.http_model import Model


# --- agent options ----------------------------------------------------------------------------------------------------


Mode = Literal["ask", "allow", "deny"]
_F = TypeVar("_F", bound="Callable[..., Any]")


class Asked(NamedTuple):
    """The options that both commands have."""

    model: str | None = None
    tools: tuple[str, ...] = ()
    thread: str | None = None
    location: str | None = None
    system: str = ""
    approve: Mode = "ask"
    steps: int | None = None
    images: tuple[str, ...] = ()
    no_compaction: bool = False

    def again(self, command: str, thread: str, *more: str) -> str:
        """What to type to go on with a thread in the same way. It names the store without its password."""
        words = ["palaver", command, "--thread", thread]
        words += [] if self.model is None else ["--model", self.model]
        words += [word for each in self.tools for word in ("--tools", each)]
        words += [] if self.location is None else ["--store", stores.shown(self.location)]
        words += [] if self.approve == "ask" else ["--approve", self.approve]
        words += ["--no-compaction"] if self.no_compaction else []
        return shlex.join([*words, *more])


_OPTIONS: Final = (
    click.option("--model", metavar="M", help="provider/id, or demo; else PALAVER_MODEL."),
    click.option(
        "--tools",
        multiple=True,
        metavar="TOOLS",
        help="FILE.py, FILE.py:name,…, mcp:URL, “mcp:COMMAND …”, or files; may be repeated.",
    ),
    click.option("--thread", metavar="T", help="Go on with a thread, or begin one of that name."),
    stores.option,
    click.option("--system", default="", metavar="TEXT", help="What the model is told first."),
    click.option(
        "--approve",
        type=click.Choice(("ask", "allow", "deny")),
        default="ask",
        show_default=True,
        help="What becomes of calls that do more than read.",
    ),
    click.option("--max-steps", "steps", type=click.IntRange(min=1), metavar="N", help="How often the model is asked."),
    click.option(
        "--image", "images", multiple=True, metavar="FILE", type=click.Path(), help="Show it an image; may be repeated."
    ),
    click.option("--no-compaction", is_flag=True, help="Leave a conversation that fills the window as it is."),
)


def options(command: _F) -> _F:
    """Give a command the options; it gets them by the names of the fields of ``Asked``."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def asked(given: dict[str, Any]) -> Asked:
    """Take them out of what click gives."""
    return Asked(**{name: given[name] for name in Asked._fields})


# -- decisions that are typed beforehand -----------------------------------------------------------------------------


class Typed(NamedTuple):
    """A decision as it was typed: ``CALL=approve``, ``CALL=reject:no``, ``CALL=answer:…``, ``CALL=edit:{…}``."""

    call: str
    kind: Literal["approve", "edit", "reject", "answer"]
    text: str


_KINDS: Final[dict[str, Literal["approve", "edit", "reject", "answer"]]] = {
    "approve": "approve",
    "edit": "edit",
    "reject": "reject",
    "answer": "answer",
}


def decisions(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> tuple[Typed, ...]:
    """Take decisions apart: a callback of an option."""
    return tuple([_decision(each) for each in given])


def _decision(text: str) -> Typed:
    call, equals, rest = text.partition("=")
    kind, _, said = rest.partition(":")
    if not (call and equals) or kind not in _KINDS:
        raise click.BadParameter(f"{text!r} is not CALL={'|'.join(_KINDS)}, with :TEXT behind the last three")
    return Typed(call, _KINDS[kind], said)


# --- choosing ---------------------------------------------------------------------------------------------------------


_SHOWN: Final = 6
_USAGE: Final = 2


def chosen(name: str | None, *, demo: bool = True) -> Model:
    """The model of a name, or of ``PALAVER_MODEL``. ``demo`` says that the script would do as well.

    Raises ``UnknownNameError``. Where no model is named, or no key is set for it, it says what to do, and ends the
    command.
    """
    name = name or os.environ.get(names.DEFAULT, "").strip()
    if is_demo(name):
        return demo_model()
    if not name:
        _give_up("no model is named", _what_there_is())
    provider = name.partition("/")[0]
    found = names.model(name)
    row = providers.PROVIDERS.get(provider)
    if row is not None and row.needs_key and row.keys and first_set(row.keys) is None:
        _give_up(f"{provider}: no key: set {' or '.join(row.keys)}", _without() if demo else iter(()))
    return found


def sizes(name: str) -> tuple[str, Capabilities]:
    """What is known of a model, which is not asked: its name, with the provider where one is known, and what it can.

    ``name`` may also be the bare id that an answer names.
    """
    if is_demo(name):
        return demo_model().name, demo_model().capabilities
    provider, slash, _ = name.partition("/")
    if slash and provider in providers.PROVIDERS:
        return name, capabilities_of(name)
    card = max(
        (each for each in catalogue().cards if name.startswith(each.prefix)),
        key=lambda each: len(each.prefix),
        default=None,
    )
    if card is None:
        return name, Capabilities()
    return f"{card.providers[0]}/{name}", card.capabilities


def is_demo(name: str) -> bool:
    """Whether a name is that of the script, which needs no provider."""
    return name.partition("/")[0] == NAME


def _give_up(what: str, lines: Iterator[str]) -> None:
    echo(f"palaver: {what}", err=True)
    for line in lines:
        echo(f"  {line}", err=True)
    raise click.exceptions.Exit(_USAGE)


def _what_there_is() -> Iterator[str]:
    """What to set."""
    ready = names.available()
    here = anyio.run(names.answering)
    for name in (*ready, *here):
        why = "answers on this machine" if name in here else "has its key set"
        yield f"{name} {why}: --model {name}/…, or set {names.DEFAULT}={name}/…"
    if not ready and not here:
        keys = [row.keys[0] for row in providers.PROVIDERS.values() if row.needs_key and row.keys]
        some = ", ".join(list(dict.fromkeys(keys))[:_SHOWN])
        yield f"no key is set ({some}, …), and no server such as Ollama answers on this machine"
        yield "set a key and name a model: --model anthropic/claude-…, openai/gpt-…, ollama/…"
    yield from _without()


def _without() -> Iterator[str]:
    yield f"without a key: --model {NAME} plays a script, with tools and an approval"


# --- builtin tools ----------------------------------------------------------------------------------------------------


_LARGEST: Final = 1_000_000
_LISTED: Final = 500


def file_tools(folder: Path | None = None) -> tuple[AgentTool, ...]:
    """``read_file``, ``list_files`` and ``write_file`` for a folder, the one that one is in by default."""
    root = (folder or Path.cwd()).resolve()

    def read_file(path: Annotated[str, "The file, seen from the working folder."]) -> str:
        """Read a text file."""
        place = _inside(root, path)
        if not place.is_file():
            raise ToolError(f"{path}: no such file")
        try:
            if place.stat().st_size > _LARGEST:
                raise ToolError(f"{path}: larger than {_LARGEST:,} bytes")
            return place.read_bytes().decode()
        except UnicodeDecodeError:
            raise ToolError(f"{path}: not text") from None
        except OSError as error:
            raise _refused(path, error) from None

    def list_files(path: Annotated[str, "The folder, seen from the working folder."] = ".") -> str:
        """List the files and folders in a folder; folders end in a slash."""
        place = _inside(root, path)
        if not place.is_dir():
            raise ToolError(f"{path}: no such folder")
        try:
            names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in place.iterdir())
        except OSError as error:
            raise _refused(path, error) from None
        more = [f"… and {len(names) - _LISTED:,} more"] if len(names) > _LISTED else []
        return "\n".join(names[:_LISTED] + more) or "(empty)"

    def write_file(
        path: Annotated[str, "The file, seen from the working folder."],
        content: Annotated[str, "All that the file is to hold."],
    ) -> str:
        """Write a text file, in place of what it held before. Its folder must exist."""
        place = _inside(root, path)
        if place.exists() and not place.is_file():
            raise ToolError(f"{path}: not a file")
        try:
            data = content.encode()
            files.write(str(place), data)
        except UnicodeEncodeError:
            raise ToolError(f"{path}: the content holds half a character") from None
        except OSError as error:
            raise _refused(path, error) from None
        return f"{path}: {len(data):,} bytes written"

    return (
        function_tool(read_file, effect="read"),
        function_tool(list_files, effect="read"),
        function_tool(write_file, repeatable=True),
    )


def _inside(root: Path, path: str) -> Path:
    try:
        place = (root / path).resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, a name that cannot be
        raise ToolError(f"{path!r}: no such place") from None
    if not place.is_relative_to(root):
        raise ToolError(f"{path}: outside of the working folder")
    return place


def _refused(path: str, error: OSError) -> ToolError:
    return ToolError(f"{path}: {(error.strerror or type(error).__name__).lower()}")


# --- toolsets ---------------------------------------------------------------------------------------------------------


_MCP: Final = "mcp:"
_BUILT_IN: Final[dict[str, Callable[[], tuple[AgentTool, ...]]]] = {"files": file_tools, "demo": demo_tools}


@asynccontextmanager
async def toolset(named: Sequence[str]) -> AsyncGenerator[tuple[AgentTool, ...]]:
    """The tools, in order, with their servers running. Raises ``click.ClickException`` naming what is wrong."""
    tools = [tool for name in named if not name.startswith(_MCP) for tool in _local(name)]
    servers = _servers([name.removeprefix(_MCP) for name in named if name.startswith(_MCP)])
    if not servers:
        yield tuple(tools)
        return
    async with mcp.mcp_tools(servers) as theirs:
        failed = [status for status in theirs.statuses.values() if status.state == "failed"]
        if not failed:
            yield (*tools, *theirs)
    if failed:
        bad_input(f"mcp server {failed[0].server}", failed[0].error)


def _servers(named: Iterable[str]) -> dict[str, mcp.McpServer]:
    servers: dict[str, mcp.McpServer] = {}
    for text in named:
        if text.startswith(("http://", "https://")):
            name, server = text.partition("//")[2].partition("/")[0].partition(":")[0], mcp.http(text)
        else:
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise click.UsageError(f"mcp:{text}: {error}") from None
            if not words:
                raise click.UsageError("mcp: names an address, or a command")
            name, server = Path(words[0]).stem, mcp.stdio(*words)
        number = 1
        while (free := name if number == 1 else f"{name}_{number}") in servers:
            number += 1
        servers[free] = server
    return servers


def _local(name: str) -> tuple[AgentTool, ...]:
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    file, colon, names = name, "", ""
    if not name.endswith(".py"):
        file, colon, names = name.rpartition(":")
    if not file.endswith(".py"):
        known = ", ".join(_BUILT_IN)
        raise click.UsageError(f"--tools {name}: neither FILE.py, FILE.py:name,…, mcp:…, nor one of {known}")
    module = swarm_file.load_python(file, "tools")
    chosen = [_attribute(file, module, each) for each in names.split(",")] if colon else _all(module)
    if not chosen:
        bad_input(file, "holds no tools")
    return tuple([each if isinstance(each, AgentTool) else function_tool(each) for each in chosen])


def _attribute(file: str, module: ModuleType, name: str) -> Any:
    found = getattr(module, name.strip(), None)
    if not (isinstance(found, AgentTool) or callable(found)):
        bad_input(file, f"holds no tool {name.strip()!r}")
    return found


def _all(module: ModuleType) -> list[Any]:
    listed = getattr(module, "TOOLS", None)
    if listed is not None:
        return list(listed)
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [
        value
        for value in values
        if isinstance(value, AgentTool) or (isfunction(value) and value.__module__ == module.__name__)
    ]
