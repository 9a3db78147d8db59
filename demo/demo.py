"""Shows what Palaver does, on four conversations that were written for it: no key, no network, a second or two.

1. A rich conversation as one provider recorded it: reasoning, an image, parallel tool calls, a call that is no JSON,
   citations.
2. The same conversation for every wire, each with the receipt of what could not be carried.
3. Three more conversations, of other providers, and how much of each survives where.
4. There and back: from its own wire to another one and home again; what was said is compared.
"""

import contextlib
import json
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from palaver import Request, wires
from palaver.cli import receipt, render, source
from palaver.cli.screen import console

CONVERSATIONS = Path(__file__).parent / "conversations"
NAMES = ("harbour.openai_chat", "greenhouse.anthropic_messages", "library.google_generate", "workshop.openai_responses")


def load(name: str) -> source.Source:
    """Read a bundled conversation just as `palaver show` does."""
    return source.load(str(CONVERSATIONS / f"{name}.json"), name.partition(".")[2])


def heading(out: Console, number: int, text: str) -> None:
    out.print()
    out.print(Rule(Text(f" {number}  {text} ", "bold"), style="bright_black", align="left"))
    out.print()


def draw(out: Console, found: source.Source) -> None:
    for piece in render.conversation(found.value, found.wire):
        out.print(piece)


def convert(out: Console, found: source.Source) -> None:
    """Convert to every wire, and show each receipt."""
    for name in wires.names():
        encoded = wires.get(name).encode_request(found.value)
        count = len(encoded.losses)
        told = Text.assemble(("→ ", "yellow"), (name, "bold yellow"), (f"  {len(encoded.body):,} bytes, ", "dim"))
        told.append(f"{count} on the receipt" if count else "nothing lost", "" if count else "green")
        out.print(told)
        out.print(receipt.as_table(encoded.losses) if count else "")


def matrix(cells: dict[str, dict[str, Text]], corner: str) -> Table:
    """Draw conversations against wires."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1))
    drawn.add_column(corner)
    for name in wires.names():
        drawn.add_column(name.replace("_", "\n", 1), justify="center")
    for row, marks in cells.items():
        drawn.add_row(row, *marks.values())
    return drawn


def losses(found: source.Source, name: str) -> Text:
    count = len(wires.get(name).encode_request(found.value).losses)
    return Text(str(count), "yellow") if count else Text("✓", "green")


def said(request: Request) -> tuple[object, ...]:
    """What was said, apart from how messages are cut: the texts by speaker, the calls, and the results."""
    messages = request.messages
    texts = {role: "".join(m.text for m in messages if m.role == role) for role in ("system", "user", "assistant")}
    calls = [(call.name, call.arguments) for m in messages for call in m.tool_calls]
    results = [plain(m) for m in messages if m.role == "tool"]
    return (texts, calls, results)


def plain(message: object) -> object:
    """Give the result of a tool; JSON and its text count as the same."""
    parts = [part.value if hasattr(part, "value") else getattr(part, "text", None) for part in message.content]
    whole = parts[0] if len(parts) == 1 else parts
    if isinstance(whole, str):
        with contextlib.suppress(ValueError):
            whole = json.loads(whole)
    return whole["output"] if isinstance(whole, dict) and list(whole) == ["output"] else whole


def there_and_back(found: source.Source, name: str) -> Text:
    """Go to another wire and home; a ✓ says that every word, call and result is the same."""
    there = wires.get(name)
    home = wires.get(found.wire)
    abroad = there.encode_request(found.value)
    back = home.encode_request(there.decode_request(abroad.body))
    same = said(home.decode_request(back.body)) == said(found.value)
    return Text("✓", "green") if same else Text("changed", "yellow")


def main() -> int:
    out = console()
    found = {name: load(name) for name in NAMES}
    first, *others = NAMES
    heading(out, 1, f"A conversation as {found[first].wire} recorded it")
    draw(out, found[first])
    heading(out, 2, "The same conversation for every wire, each with its receipt")
    convert(out, found[first])
    heading(out, 3, "Three more, of other providers")
    for name in others:
        draw(out, found[name])
        out.print()
    title = "on the receipt for"
    out.print(matrix({n.partition(".")[0]: {w: losses(found[n], w) for w in wires.names()} for n in NAMES}, title))
    heading(out, 4, "There and back: is every word, call and result the same at home again?")
    title = "home by way of"
    out.print(
        matrix({n.partition(".")[0]: {w: there_and_back(found[n], w) for w in wires.names()} for n in NAMES}, title)
    )
    out.print(
        Text("What changed stands on the receipts above: a call that is no JSON is told as text elsewhere.", "dim")
    )
    out.print(Text("Try it: palaver show FILE, palaver convert FILE --to WIRE, palaver wires.", "dim"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
