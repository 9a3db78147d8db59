"""The options that ``run`` and ``chat`` share: the model, the tools, and how to continue a thread.

- This module imports nothing that runs an agent: the help of every command reads it.
- ``--tools files`` gives tools for the working folder. A path outside it, also through a link, does not exist for them.
  They read and write plain text files of at most a million bytes. Writing needs approval, reading does not.
- ``--tools mcp:URL`` or ``"mcp:COMMAND …"`` gives the tools of an MCP server. A server that fails is an error.
- ``--tools FILE.py:NAME,…`` gives functions and ``AgentTool`` values of a Python file, which is executed. Without names
  it gives the file's ``TOOLS``, else its ``AgentTool`` values and public functions in their order.

Stability: experimental.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import reduce
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeVar, cast

import anyio
import click

from palaver.agent import mcp
from palaver.agent.functions import function_tool
from palaver.cli import completion, files, key_store, stores, swarm_file
from palaver.cli.demo_model import NAME, demo_model, demo_tools
from palaver.cli.ranges import Utf8, WholeNumber
from palaver.cli.suggestions import Choice, meant
from palaver.cli.terminal import bad_input, echo
from palaver.core import jsontext
from palaver.core.errors import DecodeError, MessageError, ToolError, UnknownNameError, excerpt, near
from palaver.core.request import Settings
from palaver.models import names, providers
from palaver.models.catalogue import Capabilities, capabilities_of, catalogue
from palaver.models.redaction import shown_url
from palaver.turn.tool import AgentTool

if TYPE_CHECKING:
    from types import ModuleType

    from palaver.models.http_model import Model


Mode = Literal["ask", "allow", "deny"]
_F = TypeVar("_F", bound="Callable[..., Any]")


class AgentOptions(NamedTuple):
    """The values of the shared options."""

    model: str | None = None
    tools: tuple[str, ...] = ()
    thread: str | None = None
    location: str | None = None
    system: str = ""
    approve: Mode = "ask"
    steps: int | None = None
    attachments: tuple[str, ...] = ()
    no_compaction: bool = False
    last: bool = False
    settings: Settings = Settings()
    url: str | None = None
    wire: str | None = None
    output: Mapping[str, Any] | None = None
    window: int | None = None

    @property
    def stored(self) -> bool:
        """Whether the conversation lasts longer than the command."""
        return stores.is_lasting(self.location)

    def again(self, command: str, thread: str, *more: str) -> str:
        """Return the command that continues a thread with the same options. It shows the store without its password."""
        words = ["palaver", command, "--thread", thread]
        words += [] if self.model is None else ["--model", self.model]
        words += [] if self.url is None else ["--url", shown_url(self.url)]
        words += [] if self.wire is None else ["--wire", self.wire]
        words += [word for each in self.tools for word in ("--tools", each)]
        words += [] if self.location is None else ["--store", stores.display_name(self.location)]
        words += [] if self.approve == "ask" else ["--approve", self.approve]
        words += [] if self.window is None else ["--window", str(self.window)]
        words += ["--no-compaction"] if self.no_compaction else []
        return shlex.join([*words, *more])

    def show(self, thread: str) -> str:
        """Return the command that shows the last message of a thread completely."""
        words = ["palaver", "show", thread, "--last", "1", "--full"]
        words += [] if self.location is None else ["--store", stores.display_name(self.location)]
        return shlex.join(words)


def _parse_settings(_context: click.Context, _option: click.Parameter, pairs: Sequence[tuple[str, str]]) -> Settings:
    """Read ``-o KEY VALUE``. Raises ``click.BadParameter``."""
    given: dict[str, Any] = {}
    for name, text in pairs:
        if name not in SETTINGS:
            raise click.BadParameter(str(UnknownNameError.among(f"no setting {name!r}", SETTINGS, name)))
        value = _setting(name, text)
        if name == "stop":
            given.setdefault(name, []).extend([value] if isinstance(value, str) else value)
        else:
            given[name] = value
    typed = dict(pairs)
    for name, value in given.items():
        try:
            Settings(**{name: value})
        except MessageError as error:
            expected, got, _ = str(error).removeprefix("Settings: ").partition(", got ")
            shown = f"{expected.removesuffix(' or None')}, got {excerpt(typed[name])!r}" if got else expected
            raise click.BadParameter(shown) from None
    tokens = given.get("max_tokens")
    if tokens is not None and tokens < 1:
        raise click.BadParameter(f"max_tokens: {tokens} is not at least 1")
    return Settings(**given)


def _setting(name: str, text: str) -> Any:
    """Return the value of a setting that a user typed: JSON where the setting takes such JSON, or else the text."""
    try:
        value: Any = jsontext.value(text.encode())
    except (DecodeError, MessageError):
        return text
    if name in _TEXTS and not isinstance(value, _TEXTS[name]):
        return text
    if name == "stop":
        texts: list[Any] = [value] if isinstance(value, str) else value
        if others := [each for each in texts if not isinstance(each, str)]:
            raise click.BadParameter(f"{name}: expected texts in the list, got {excerpt(repr(others[0]))}")
        return texts
    return value


_TEXTS: Final[Mapping[str, type | tuple[type, ...]]] = {"stop": (str, list), "effort": str}
"""What JSON stands for in the settings that are text: anything else, such as ``1``, is the text itself."""
SETTINGS: Final = tuple(
    [name for name in Settings.__struct_fields__ if name not in {"extra", "output", "tool_choice", "stream"}]
)
_OPTIONS: Final = (
    click.option(
        "-m",
        "--model",
        type=Utf8(),
        metavar="M",
        shell_complete=completion.models,
        help="provider/id, or demo. Default: the thread's last one, else PALAVER_MODEL.",
    ),
    click.option("-s", "--system", default="", metavar="TEXT", help="The system prompt."),
    click.option(
        "-o",
        "--option",
        "settings",
        type=(str, Utf8()),
        multiple=True,
        metavar="KEY VALUE",
        callback=_parse_settings,
        shell_complete=completion.settings,
        help=f"A setting of the model: {', '.join(SETTINGS)}; may be repeated.",
    ),
    click.option("-c", "--continue", "last", is_flag=True, help="Continue the thread that changed last."),
    click.option(
        "-t",
        "--thread",
        metavar="T",
        shell_complete=completion.threads,
        help="Continue a thread, or start one of that name.",
    ),
    click.option(
        "--tools",
        multiple=True,
        metavar="TOOLS",
        help="FILE.py, FILE.py:name,…, mcp:URL, “mcp:COMMAND …”, or files; may be repeated.",
    ),
    click.option(
        "-a",
        "--attachment",
        "attachments",
        multiple=True,
        metavar="FILE",
        type=click.Path(),
        help="Add an image, a recording or a document, a file or a URL, to the prompt; may be repeated.",
    ),
    click.option(
        "--url",
        type=Utf8(),
        metavar="URL",
        help="The address of any compatible server, such as http://127.0.0.1:8000/v1.",
    ),
    click.option(
        "--wire",
        metavar="WIRE",
        shell_complete=completion.wire_names,
        help="The wire that is spoken there. Default: the provider's.",
    ),
    stores.option,
    click.option("-n", "--no-store", "unstored", is_flag=True, help="Keep nothing of the conversation."),
    click.option(
        "--approve",
        type=Choice(("ask", "allow", "deny")),
        default="ask",
        show_default=True,
        help="What to do with calls that do more than read.",
    ),
    click.option("--max-steps", "steps", type=WholeNumber(1), metavar="N", help="Ask the model at most N times."),
    click.option("--window", type=WholeNumber(1), metavar="TOKENS", help="The model's window, when it is not known."),
    click.option("--no-compaction", is_flag=True, help="Do not compact a conversation that fills the window."),
)


def options(command: _F) -> _F:
    """Add the options to a command, which gets them under the field names of ``AgentOptions``."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def parse(values: dict[str, Any]) -> AgentOptions:
    """Read the options from the arguments that click passes. Raises ``click.UsageError`` for a contradiction."""
    made = AgentOptions(**{name: values[name] for name in AgentOptions._fields if name in values})
    if made.last and made.thread is not None:
        raise click.UsageError("--continue and --thread exclude each other")
    if not values.get("unstored"):
        return made
    if made.last or made.thread is not None or made.location is not None:
        raise click.UsageError("--no-store excludes --continue, --thread and --store")
    return made._replace(location=stores.MEMORY)


class TypedDecision(NamedTuple):
    """A decision of ``--decide``: ``CALL=approve``, ``CALL=reject:no``, ``CALL=answer:…``, ``CALL=edit:{…}``."""

    call: str
    kind: Literal["approve", "edit", "reject", "answer"]
    text: str


_KINDS: Final[dict[str, Literal["approve", "edit", "reject", "answer"]]] = {
    "approve": "approve",
    "edit": "edit",
    "reject": "reject",
    "answer": "answer",
}


def parse_decisions(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> tuple[TypedDecision, ...]:
    """Parse decisions: the callback of ``--decide``."""
    return tuple([_parse_decision(each) for each in values])


def decide_option(about: str) -> Callable[[_F], _F]:
    """Return a decorator that adds ``--decide`` to a command, which gets ``typed``. ``about`` is its help."""
    return click.option(
        "--decide", "typed", multiple=True, metavar="CALL=DECISION", callback=parse_decisions, help=about
    )


def _parse_decision(text: str) -> TypedDecision:
    call, equals, rest = text.partition("=")
    kind, _, argument = rest.partition(":")
    if not (call and equals) or kind not in _KINDS:
        raise click.BadParameter(f"{text!r} is not CALL={'|'.join(_KINDS)}, with :TEXT after the last three")
    return TypedDecision(call, _KINDS[kind], argument)


_MAX_KEYS: Final = 6
_USAGE: Final = 2


def choose_model(name: str | None, *, demo: bool = True, url: str | None = None, wire: str | None = None) -> Model:
    """Return the model of a name, or of ``PALAVER_MODEL``. ``demo``: suggest the demo model when a key is missing.

    With ``url`` the whole name is that of a model of the server there; ``wire`` is what it speaks, and its key that of
    ``PALAVER_API_KEY`` or of ``palaver keys set server``. Other stored keys are used where the environment has none.
    Raises ``UnknownNameError``. Without a model or its key, print what to do and end the command.
    """
    name = name or os.environ.get(names.DEFAULT, "").strip()
    if is_demo(name):
        return demo_model()
    if not name and url is not None:
        _exit_with_hint("no model is given", iter([f"palaver models --url {shown_url(url)} lists those of the server"]))
    if not name:
        _exit_with_hint("no model is given", _model_hints())
    if url is not None:
        return names.model(f"{key_store.SERVER}/{name}", url=url, wire=wire, key=key_store.server_key())
    provider = name.partition("/")[0]
    if "/" not in name and near(name, [NAME]) is not None:
        raise UnknownNameError(f"{name!r} is not a model name; did you mean {NAME}?")
    found = names.model(name, wire=wire, key=key_store.provider_key(provider))
    missing = key_store.missing_key(provider)
    if missing is not None:
        hints = [f"or store it: palaver keys set {provider}", *(_demo_hint() if demo else ())]
        _exit_with_hint(missing, iter(hints))
    return found


def model_info(name: str) -> tuple[str, Capabilities]:
    """Return a model's full name, with its provider if known, and its capabilities. The model is not asked.

    ``name`` may also be the bare id that an answer names.
    """
    if is_demo(name):
        return demo_model().name, demo_model().capabilities
    provider, slash, _ = name.partition("/")
    if slash and provider in providers.PROVIDERS:
        return name, capabilities_of(name)
    found = catalogue().find_answered(name)
    if found is None:
        return name, Capabilities()
    return f"{found[0]}/{name}", found[1].capabilities


def is_demo(name: str) -> bool:
    """Return whether a name is that of the demo model."""
    return name.partition("/")[0] == NAME


def _exit_with_hint(what: str, lines: Iterator[str]) -> None:
    echo(f"palaver: {what}", err=True)
    for line in lines:
        echo(f"  {line}", err=True)
    raise click.exceptions.Exit(_USAGE)


def _model_hints() -> Iterator[str]:
    """Yield lines that say what to set."""
    ready = names.available()
    here = anyio.run(names.local_servers)
    for name in (*ready, *here):
        why = "answers on this machine" if name in here else "has a key"
        yield f"{name} {why}: --model {name}/…, or set {names.DEFAULT}={name}/…"
    if not ready and not here:
        keys = [row.keys[0] for row in providers.PROVIDERS.values() if row.needs_key and row.keys]
        some = ", ".join(list(dict.fromkeys(keys))[:_MAX_KEYS])
        yield f"no key is set ({some}, …), and no server such as Ollama answers on this machine"
        yield "set a key and name a model: --model anthropic/claude-…, openai/gpt-…, ollama/…"
    yield from _demo_hint()


def _demo_hint() -> Iterator[str]:
    yield f"without a key: --model {NAME} runs a script with tools and an approval"


_MAX_BYTES: Final = 1_000_000
_MAX_LISTED: Final = 500


def file_tools(folder: Path | None = None) -> tuple[AgentTool, ...]:
    """Return ``read_file``, ``list_files`` and ``write_file`` for a folder. Default: the working folder."""
    root = (folder or Path.cwd()).resolve()

    def read_file(path: Annotated[str, "The path, relative to the working folder."]) -> str:
        """Read a text file."""
        target = _inside(root, path)
        if not target.is_file():
            raise ToolError(f"{path}: no such file")
        try:
            if target.stat().st_size > _MAX_BYTES:
                raise ToolError(f"{path}: larger than {_MAX_BYTES:,} bytes")
            return target.read_bytes().decode()
        except UnicodeDecodeError:
            raise ToolError(f"{path}: not text") from None
        except OSError as error:
            raise _tool_error(path, error) from None

    def list_files(path: Annotated[str, "The path, relative to the working folder."] = ".") -> str:
        """List the files and folders in a folder; folders end in a slash."""
        target = _inside(root, path)
        if not target.is_dir():
            raise ToolError(f"{path}: no such folder")
        try:
            names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in target.iterdir())
        except OSError as error:
            raise _tool_error(path, error) from None
        more = [f"… and {len(names) - _MAX_LISTED:,} more"] if len(names) > _MAX_LISTED else []
        return "\n".join(names[:_MAX_LISTED] + more) or "(empty)"

    def write_file(
        path: Annotated[str, "The path, relative to the working folder."],
        content: Annotated[str, "The whole content of the file."],
    ) -> str:
        """Write a text file and replace its content. Its folder must exist."""
        target = _inside(root, path)
        if target.exists() and not target.is_file():
            raise ToolError(f"{path}: not a file")
        try:
            data = content.encode()
            files.write(str(target), data)
        except UnicodeEncodeError:
            raise ToolError(f"{path}: the content has a lone surrogate") from None
        except OSError as error:
            raise _tool_error(path, error) from None
        return f"{path}: {len(data):,} bytes written"

    return (
        function_tool(read_file, effect="read"),
        function_tool(list_files, effect="read"),
        function_tool(write_file, repeatable=True),
    )


def _inside(root: Path, path: str) -> Path:
    try:
        target = (root / path).resolve()
    except (OSError, RuntimeError, ValueError):  # a cycle of links, or an invalid name
        raise ToolError(f"{path!r}: no such place") from None
    if not target.is_relative_to(root):
        raise ToolError(f"{path}: outside of the working folder")
    return target


def _tool_error(path: str, error: OSError) -> ToolError:
    return ToolError(f"{path}: {(error.strerror or type(error).__name__).lower()}")


_MCP: Final = "mcp:"
_BUILT_IN: Final[dict[str, Callable[[], tuple[AgentTool, ...]]]] = {"files": file_tools, "demo": demo_tools}


@asynccontextmanager
async def toolset(named: Sequence[str]) -> AsyncGenerator[tuple[AgentTool, ...]]:
    """Yield the tools, with their MCP servers running. Raises ``click.ClickException``."""
    tools = [tool for name in named if not name.startswith(_MCP) for tool in _local_tools(name)]
    servers = _mcp_servers([name.removeprefix(_MCP) for name in named if name.startswith(_MCP)])
    if not servers:
        yield tuple(tools)
        return
    async with mcp.mcp_tools(servers) as theirs:
        failed = [status for status in theirs.statuses.values() if status.state == "failed"]
        if not failed:
            yield (*tools, *theirs)
    if failed:
        bad_input(f"mcp server {failed[0].server}", failed[0].error)


def _mcp_servers(named: Iterable[str]) -> dict[str, mcp.McpServer]:
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
                raise click.UsageError("mcp: needs a URL or a command")
            name, server = Path(words[0]).stem, mcp.stdio(*words)
        number = 1
        while (free := name if number == 1 else f"{name}_{number}") in servers:
            number += 1
        servers[free] = server
    return servers


def _local_tools(name: str) -> tuple[AgentTool, ...]:
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    file, colon, names = name, "", ""
    if not name.endswith(".py"):
        file, colon, names = name.rpartition(":")
    if not file.endswith(".py"):
        known = ", ".join(_BUILT_IN)
        cause = f"--tools {name}: neither FILE.py, FILE.py:name,…, mcp:…, nor one of {known}"
        raise click.UsageError(f"{cause}{meant(name, _BUILT_IN)}")
    module = swarm_file.load_python(file, "tools")
    tools = [_named_tool(file, module, each) for each in names.split(",")] if colon else _all_tools(file, module)
    if not tools:
        bad_input(file, "there are no tools in it")
    try:
        return tuple([each if isinstance(each, AgentTool) else function_tool(each) for each in tools])
    except MessageError as error:
        bad_input(file, error)


def _named_tool(file: str, module: ModuleType, name: str) -> Any:
    found = getattr(module, name.strip(), None)
    if not (isinstance(found, AgentTool) or callable(found)):
        known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        bad_input(file, f"there is no tool {name.strip()!r} in it{meant(name.strip(), known)}")
    return found


def _all_tools(file: str, module: ModuleType) -> list[Any]:
    listed = getattr(module, "TOOLS", None)
    if listed is not None:
        kind = type(cast("object", listed))
        if not issubclass(kind, Iterable) or issubclass(kind, str | bytes | Mapping):
            bad_input(file, f"TOOLS: expected a list of tools or functions, got {kind.__name__}")
        for position, each in enumerate(items := list(cast("Iterable[object]", listed))):
            if not (isinstance(each, AgentTool) or callable(each)):
                bad_input(file, f"TOOLS[{position}]: {excerpt(repr(each))} is neither a tool nor a function")
        return items
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [
        value
        for value in values
        if isinstance(value, AgentTool) or (isfunction(value) and value.__module__ == module.__name__)
    ]
