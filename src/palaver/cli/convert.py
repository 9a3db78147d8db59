"""``palaver convert``: convert a conversation for another provider or program, with a receipt.

- A session becomes a session in another transcript format (``transcript_io``), or a request with what its model would
  see next.
- A request becomes a request, a response a response, and a recorded stream the response that it assembles to. A stream
  that failed is refused, because half an answer must not look like a whole one.
- The body goes to standard output, or completely into a file. The receipt goes to standard error.
- The body is written exactly as it would be sent. It is indented on a terminal or with ``--pretty``.
- ``--losses raise`` writes nothing when there is a loss.
- What was encoded is decoded again, and the receipt has the counts of both sides. A wire that joins neighbouring
  messages loses nothing, but its counts differ, and the receipt says that.

Stability: experimental.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from msgspec import structs

from palaver import transcripts
from palaver.cli import completion, files, receipt, transcript_io
from palaver.cli.ranges import WholeNumber
from palaver.cli.source import PALAVER, Source, find_wire, form_name, load
from palaver.cli.suggestions import Choice
from palaver.cli.terminal import bad_input, echo, indent_json
from palaver.core import canonical
from palaver.core.errors import PalaverError
from palaver.core.request import Encoded, Request, Response
from palaver.threads.thread import MAIN
from palaver.transcripts.counts import Counts, Tally, counts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.transcripts.writer import History
    from palaver.wires._engine.wire import Wire

_CHOICES: Final = ("show", "json", "raise")


@click.command(name="convert")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--to",
    "target",
    required=True,
    callback=form_name,
    metavar="FORM",
    shell_complete=completion.form_names,
    help="A wire, wire:variant, a transcript format, or palaver.",
)
@click.option(
    "--from",
    "source_format",
    callback=form_name,
    metavar="WIRE",
    shell_complete=completion.form_names,
    help="The file's wire or transcript format. Default: recognised.",
)
@click.option("-m", "--model", metavar="NAME", help="The model that the request names.")
@click.option("-o", "--output", default=files.STDIO, metavar="OUT", help="Write to a file, completely or not at all.")
@click.option("--losses", type=Choice(_CHOICES), default="show", show_default=True, help="How to show the receipt.")
@click.option("--pretty", is_flag=True, help="Indent the JSON of a wire, as on a terminal.")
@transcript_io.history
@click.option("--branch", default=MAIN, show_default=True, metavar="NAME", help="The branch of a session.")
@click.option(
    "--conversation",
    "number",
    type=WholeNumber(1),
    metavar="N",
    help="Which conversation of the file to convert.",
)
def command(
    file: str,
    *,
    target: str,
    source_format: str | None,
    model: str | None,
    output: str,
    losses: Literal["show", "json", "raise"],
    pretty: bool,
    history: History | None,
    branch: str,
    number: int | None,
) -> int:
    """Convert FILE to another wire or transcript format.

    FILE is a session of an agent ("palaver formats" lists the formats), a saved request or response of a
    provider, a recorded stream, a bare list of messages, an exchange ({"request": ..., "response": ...}, or with
    "stream" or "stream_base64"), or Palaver's own form; - reads standard input. The receipt of what could not be
    carried goes to standard error. "palaver wires" lists the wires.
    """
    wire = None if target == PALAVER or target in transcripts.names() else find_wire(target)
    source = load(file, source_format)
    if source.failure is not None:
        bad_input(files.display_name(file), source.failure)
    if target in transcripts.names():
        chosen = transcript_io.chosen_transcripts(source, number, files.display_name(file))
        written = transcript_io.write_transcripts(chosen, target, output, history=history, branch=branch)
        return transcript_io.deliver(written, source, target, output, losses=losses, place=files.display_name(file))
    source = transcript_io.for_wire(source, number, branch, history, files.display_name(file))
    encoded = encode(source, wire, model)
    encoded = Encoded(encoded.chunks, (*source.unread, *encoded.losses))
    return deliver(source, encoded, target, output, losses=losses, pretty=pretty, place=files.display_name(file))


def deliver(
    source: Source,
    encoded: Encoded,
    target: str,
    output: str,
    *,
    losses: Literal["show", "json", "raise"],
    pretty: bool,
    place: str,
) -> int:
    """Write the encoded body and show its receipt. Return the exit code."""
    if losses == "raise" and encoded.losses:
        counted = tally(source, encoded, target)
        echo(f"{summary(source, target, encoded, counted)}; nothing was written", err=True)
        transcript_io.show_counts((counted,))
        receipt.show(encoded.losses)
        return 1
    indent = pretty or (output == files.STDIO and sys.stdout.isatty())
    files.write(output, _indented(encoded.body) if indent else encoded.body)
    if losses == "json":
        echo(receipt.as_json(encoded.losses), nl=False, err=True)
    else:
        for note in source.notes:
            echo(f"{place}: {note}", err=True)
        counted = tally(source, encoded, target)
        echo(summary(source, target, encoded, counted), err=True)
        transcript_io.show_counts((counted,))
        receipt.show(encoded.losses)
    return 0


def encode(source: Source, wire: Wire | None, model: str | None) -> Encoded:
    """Encode a source for a wire, or in the canonical form when ``wire`` is ``None``.

    A request names ``model``, else its own; for a wire, else the model that answered last in it.
    """
    value: Any = source.value
    if wire is not None and isinstance(value, Request) and value.model is None:
        model = model or transcript_io.answered_model(value.messages)
    if model is not None and isinstance(value, Request):
        value = structs.replace(value, model=model)  # the rest of the request is unchanged
    if wire is None:
        whole = canonical.dump_conversation(value) if isinstance(value, Request) else canonical.encode(value) + b"\n"
        return Encoded((whole,))
    if wire.variant is not None and source.wire != f"{wire.name}:{wire.variant}":
        value = value.replace()  # a body for the wire does not yet fit the variant
    return wire.encode_request(value) if isinstance(value, Request) else wire.encode_response(value)


def _indented(body: bytes) -> bytes:
    lines = body.rstrip(b"\n").split(b"\n") if body.endswith(b"\n") else [body]
    return b"".join(indent_json(line) + b"\n" for line in lines)


def tally(source: Source, encoded: Encoded, target: str) -> Tally:
    """Count the messages of a source, and those that its encoded body is decoded as."""
    given = counts_of(_messages_of(source.value))
    try:
        return Tally(given, counts_of(_messages_of(_decoded(source, encoded.body, target))))
    except PalaverError:
        return Tally(given, Counts())  # nothing of it can be read


def _decoded(source: Source, body: bytes, target: str) -> Request | Response:
    if isinstance(source.value, Request):
        return canonical.load_conversation(body) if target == PALAVER else find_wire(target).decode_request(body)
    return canonical.decode(body, Response) if target == PALAVER else find_wire(target).decode_response(body)


def _messages_of(value: Request | Response) -> Sequence[Message]:
    return value.messages if isinstance(value, Request) else (value.message, *value.alternatives)


def summary(source: Source, target: str, encoded: Encoded, counted: Tally) -> str:
    """Return one line that says what was converted into what."""
    count = len(encoded.losses)
    what = "a response" if not isinstance(source.value, Request) else _messages(len(source.value.messages))
    lost = f"{count} thing{'' if count == 1 else 's'} not carried as {'it was' if count == 1 else 'they were'}"
    if not count:
        lost = "nothing lost" if counted.equal else "the counts differ"
    return f"{source.wire} → {target}: {what}, {lost}"


def _messages(count: int) -> str:
    return "a request of 1 message" if count == 1 else f"a request of {count} messages"
