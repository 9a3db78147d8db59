"""A real MCP server for the tests, by the official SDK: over stdio, or over streamable HTTP on a port of loopback.

    python mcp_server.py [--http PORT] [--prefix NAME] [--log FILE]

`--log` names a file that gets a line for each event here that a client cannot see.
"""

import argparse
import base64
import os
from pathlib import Path
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import Field

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
server = MCPServer("palaver-tests", log_level="ERROR")
options = argparse.Namespace(log=None, http=None)


def log(line: str) -> None:
    if options.log:
        with Path(options.log).open("a") as file:
            file.write(line + "\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    """Say it again."""
    log(f"echo {text}")
    return text


@server.tool(name="Add-Numbers", annotations=ToolAnnotations(idempotent_hint=True))
def add(a: int, b: int = 1) -> dict[str, int]:
    return {"sum": a + b}


@server.tool(name="add.numbers")
def add_again(a: int) -> int:
    """Its name is like that of another."""
    return a + 1


@server.tool()
def nothing() -> None:
    """Take nothing, give nothing."""


@server.tool()
def match(text: Annotated[str, Field(pattern="^(a+)+$")]) -> Annotated[str, Field(pattern="^(a+)+$")]:
    """Say it again, if it is of the letter a."""
    return text


@server.tool(structured_output=False)
def media() -> CallToolResult:
    return CallToolResult(
        content=[
            TextContent(text="grüß dich 👋"),
            ImageContent(data=PNG, mime_type="image/png"),
            AudioContent(data="SUQz", mime_type="audio/mpeg"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="inside", mime_type="text/plain")),
            EmbeddedResource(
                resource=BlobResourceContents(uri="file:///b.pdf", blob="JVBERi0=", mime_type="application/pdf")
            ),
            ResourceLink(name="notes", uri="file:///notes.md"),
        ]
    )


@server.tool()
def fails(text: str) -> str:
    raise ValueError(text)


@server.tool()
async def hangs(ctx: Context) -> str:
    log("hangs began")
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        log("hangs cancelled")
        raise
    return "at last"


@server.tool()
async def slow(ctx: Context) -> str:
    for step in (1, 2):
        await ctx.report_progress(step, 2, f"step {step}")
    return "done"


@server.tool()
def dies() -> str:
    log("dies")
    os._exit(3)


@server.tool()
async def grows(ctx: Context) -> str:
    """Bring a new tool, and say that the list has changed."""
    server.add_tool(nothing, name="grown")
    await ctx.notify_tools_changed()
    return "grown"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    parser.add_argument("--log")
    parser.parse_args(namespace=options)
    log("started")
    if options.http:
        server.settings.log_level = "CRITICAL"
        server.run("streamable-http", port=options.http)
    else:
        server.run()


if __name__ == "__main__":
    main()
