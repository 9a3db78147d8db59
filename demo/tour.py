"""Shows what Palaver does, on four conversations that were written for it: no key, no network, a second or two.

1. A rich conversation as one provider recorded it: reasoning, an image, parallel tool calls, a call that is no JSON,
   citations.
2. The same conversation for every wire, each with the receipt of what could not be carried.
3. Three more conversations, of other providers, and how much of each survives where.
4. There and back: from its own wire to another one and home again; what was said is compared.
5. One answer as the stream of every wire, written event by event and read byte by byte.
6. All four in a store, each once: one is forked, all are searched, and every hash is derived again. The store is a
   temporary file.
7. An agent with tools, over HTTP: its model is a recording that a server on this machine plays. It waits for an
   approval, is gone on with from the store, and its thread is shown.
8. A long watch of the harbour: what fills the window of its model, what a compaction takes out, and its undoing.
9. A session that another agent left in a file: recognised, shown, carried on elsewhere, kept, and given back as it was.
10. A swarm of three agents that hand a client over to each other, one of them rescued: its log, and its events.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import anyio
import harbour
from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text as Line

from palaver import (
    AssistantMessage,
    Message,
    Request,
    RescueMarker,
    Response,
    Text,
    ToolMessage,
    UserMessage,
    assistant,
    tool,
    tool_call,
    transcripts,
    user,
    wires,
)
from palaver.agent import ActiveRun, Agent, Run, approve, compact, undo
from palaver.cli import context, demo_model, receipt, render, source, stores
from palaver.cli.compact import render_compaction as compacted
from palaver.cli.run_renderer import RunRenderer
from palaver.cli.terminal import console, count
from palaver.context import DEFAULT, contents
from palaver.models import LanguageModel
from palaver.models.replay import replay
from palaver.store import Query, Store, open_store
from palaver.store.import_conversations import ConversationImporter
from palaver.store.import_files import FileImporter, ImportedConversation
from palaver.stream.replay_events import replay_events
from palaver.swarm import Event
from palaver.threads import for_model, usage_once
from palaver.transcripts.conversation import Transcript
from palaver.transcripts.writer import chosen_history

SESSIONS = Path(__file__).parent / "sessions"
CONVERSATIONS = Path(__file__).parent / "conversations"
SHIPS = ("The Aurora", "The Meridian", "The Fulmar", "The Anne of Tönning", "The Kestrel", "The Nordstrand")
WINDOW = 8_000
ASKED = ("Good morning", "The Aurora needs a berth", "and a pilot for tomorrow", "Once again: a pilot, please")
RECORDING = Path(__file__).parent / "husum.recording.json"
NAMES = ("harbour.openai_chat", "greenhouse.anthropic_messages", "library.google_generate", "workshop.openai_responses")


def load(name: str) -> source.Source:
    """Read a bundled conversation just as `palaver show` does."""
    return source.load(str(CONVERSATIONS / f"{name}.json"), name.partition(".")[2])


def heading(out: Console, number: int, text: str) -> None:
    out.print()
    out.print(Rule(Line(f" {number}  {text} ", "bold"), style="bright_black", align="left"))
    out.print()


def draw(out: Console, found: source.Source) -> None:
    for piece in render.conversation(found.value, found.wire):
        out.print(piece)


def convert(out: Console, found: source.Source) -> None:
    """Convert to every wire, and show each receipt."""
    for name in wires.names():
        encoded = wires.get(name).encode_request(found.value)
        count = len(encoded.losses)
        told = Line.assemble(("→ ", "yellow"), (name, "bold yellow"), (f"  {len(encoded.body):,} bytes, ", "dim"))
        told.append(f"{count} on the receipt" if count else "nothing lost", "" if count else "green")
        out.print(told)
        out.print(receipt.as_table(encoded.losses) if count else "")


def matrix(cells: dict[str, dict[str, Line]], corner: str) -> Table:
    """Draw conversations against wires."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    drawn.add_column(corner)
    for name in wires.names():
        drawn.add_column(name.replace("_", "\n", 1), justify="center")
    for row, marks in cells.items():
        drawn.add_row(row, *marks.values())
    return drawn


def losses(found: source.Source, name: str) -> Line:
    count = len(wires.get(name).encode_request(found.value).losses)
    return Line(str(count), "yellow") if count else Line("✓", "green")


def said(request: Request) -> dict[str, object]:
    """What was said, apart from how it is cut into messages: the words by speaker, the calls, the results."""
    messages = request.messages
    words = {role: "".join(m.text for m in messages if m.role == role) for role in ("system", "user", "assistant")}
    calls = [(call.name, call.arguments) for m in messages for call in m.tool_calls]
    return {"words": words, "calls": calls, "results": [plain(m) for m in messages if m.role == "tool"]}


def plain(message: ToolMessage) -> object:
    """Give the result of a tool. A wire that takes objects only says `{"output": text}`; JSON may be text elsewhere."""
    value: object = "".join(part.text if isinstance(part, Text) else json.dumps(part.value) for part in message.content)
    for _ in range(2):
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = json.loads(value)
        if isinstance(value, dict) and value.keys() <= {"output", "error"}:
            (value,) = value.values()
    return value


def there_and_back(found: source.Source, name: str) -> Line:
    """Go to another wire and home, and name what is not the same."""
    there, home = wires.get(name), wires.get(found.wire)
    abroad = there.encode_request(found.value)
    back = home.encode_request(there.decode_request(abroad.body))
    before, after = said(found.value), said(home.decode_request(back.body))
    changed = [what for what in before if before[what] != after[what]]
    return Line("\n".join(changed), "yellow") if changed else Line("✓", "green")


def streams(found: source.Source) -> Table:
    """Write an answer with a call as each wire's stream, and read that a byte at a time."""
    said = next(m for m in found.value.messages if isinstance(m, AssistantMessage) and m.tool_calls and m.text)
    answer = Response(said.replace(finish_reason="tool_calls", model="any-model"))
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column, justify in (("wire", "left"), ("bytes", "right"), ("events", "right"), ("read back", "left")):
        drawn.add_column(column, justify=justify)
    for name in wires.names():
        encoder, decoder = wires.get(name).stream_encoder(), wires.get(name).stream_decoder()
        data = b"".join([*map(encoder.feed, replay_events(answer)), encoder.finish()])
        events = sum(len(decoder.feed(data[at : at + 1])) for at in range(len(data))) + len(decoder.close())
        message = decoder.finish().message
        same = message.text == said.text and [c.arguments for c in message.tool_calls] == [
            c.arguments for c in said.tool_calls
        ]
        mark = Line("the same text, the same calls", "green") if same else Line("not the same", "yellow")
        drawn.add_row(name, f"{len(data):,}", str(events), mark)
    return drawn


def command(out: Console, *words: str) -> None:
    """Show what one would type to get the same."""
    out.print(Line.assemble(("$ palaver ", "dim"), (" ".join(words), "bold")))


def keep(out: Console, store: Store, found: dict[str, source.Source], place: str) -> dict[str, str]:
    """Take the conversations in, twice; give the threads by the names of their files."""
    threads: dict[str, str] = {}
    out.print(Line(f"The store is {place}, a file that is removed in the end.", "dim"))
    for _ in range(2):
        command(out, "import demo/conversations --into", Path(place).name)
        for name, each in found.items():
            title = name.partition(".")[0]
            taken = ConversationImporter(store).add(each.value.messages, source=name, title=title)
            threads[name] = taken.thread
            told = Line(f"  {title}: {taken.known + taken.new} messages, ").append(f"{taken.new} new", "green")
            out.print(told.append(f", thread {stores.short(taken.thread)}"), no_wrap=True, overflow="ellipsis")
    out.print()
    return threads


def fork(out: Console, store: Store, thread: str) -> None:
    """Ask something else in the middle of a conversation, and draw the tree."""
    main = store.open(thread)
    asked = next(entry for entry in main.path() if entry.message.role == "user")
    command(out, "fork", f"{stores.short(thread)}@{stores.short(asked.id)}", "by-train")
    train = main.fork("by-train", at=asked.id)
    train.append(assistant("There is a night train as far as Niebüll."), user("Then we take the train."))
    command(out, "show", stores.short(thread), "--branches")
    for line in render.branches(store.load(thread)):
        out.print(line, no_wrap=True, overflow="ellipsis")
    out.print()


def look(out: Console, store: Store, words: str) -> None:
    """Search all threads and branches."""
    command(out, "search", words)
    for hit in store.search(Query(text=words)):
        title = store.info(hit.thread).title or ""
        head = Line(f"  {stores.short(hit.thread)}@{stores.short(hit.entry.id)}", "bold")
        head.append(f"  {title}, {hit.entry.message.role}: ", "dim").append(" ".join(hit.excerpt.split()))
        out.print(head, no_wrap=True, overflow="ellipsis")
    out.print()


def check(out: Console, store: Store) -> None:
    command(out, "verify")
    sound = store.verify()
    told = f"  {sound.threads} threads, {sound.entries} messages, {sound.blobs} blobs, {sound.size:,} bytes: "
    out.print(Line(told).append("nothing is wrong" if sound.ok else "damaged", "green" if sound.ok else "red"))


# -- an agent ------------------------------------------------------------------------------------------------------


def sailor(model: LanguageModel) -> Agent:
    """Make an agent that may read, and must ask before it reserves a berth."""
    return Agent(model, name="sailor", tools=demo_model.demo_tools(), policy={"reserve_berth": "ask"})


async def told(renderer: RunRenderer, run: ActiveRun) -> Run:
    """Tell what happens, as it happens."""
    async with run as events:
        async for event in events:
            renderer.show(event)
    renderer.finish(run.result, stores.short(run.result.thread.id))
    return run.result


async def sail(out: Console, store: Store) -> str:
    """Run an agent until it waits for an approval, and go on from what the store has; give the thread."""
    renderer = RunRenderer(out, out)
    async with replay(RECORDING) as model:
        out.print(Line.assemble(("$ palaver run ", "dim"), (f'"{demo_model.PROMPT}"', "bold")), soft_wrap=True)
        thread = store.create(title=demo_model.PROMPT).id
        run = await told(renderer, sailor(model).stream(demo_model.PROMPT, thread=store.open(thread)))
        (request,) = run.pending
        out.print()
        out.print(Line("The process could end here: what waits is in the thread. Another one decides, and goes on:"))
        command(out, "run", "--thread", stores.short(thread), "--decide", f"{request.call.id}=approve")
        decisions = {request.call.id: approve()}
        await told(renderer, sailor(model).stream(thread=store.open(thread), decisions=decisions))
    return thread


def agent(out: Console, store: Store) -> None:
    thread = anyio.run(sail, out, store)
    out.print()
    command(out, "show", stores.short(thread))
    for piece in render.messages([entry.message for entry in store.path(thread)], render.View()):
        out.print(piece)


# -- a full window -------------------------------------------------------------------------------------------------


def watch() -> list[Message]:
    """Make a conversation that has read the harbour's log forty times, and remembers one order word for word."""
    said: list[Message] = [
        user("Watch the harbour until noon, and tell me of every ship."),
        user("Never let the Aurora leave before the pilot is on board.", verbatim=True),
    ]
    for hour in range(40):
        read = tool_call("read_log", {"page": hour}, id=f"page-{hour}")
        ships = " ".join(f"{ship} made fast at berth {(hour + at) % 9 + 1}." for at, ship in enumerate(SHIPS))
        said += [assistant(tool_calls=[read]), tool(f"Page {hour}. {ships}", tool_call_id=read.id)]
    return [*said, assistant("All is quiet, and the Aurora waits."), user("Has anything changed?")]


async def fit(out: Console, store: Store) -> None:
    """Show what fills a window, compact the conversation, and take that back."""
    thread = store.open(store.create(title="a long watch").id)
    thread.append(*watch())
    name = stores.short(thread.id)

    def fills() -> None:
        command(out, "context", name, "--window", f"{WINDOW}")
        path = thread.path()
        for piece in context.render_contents(contents(path, for_model(path), window=WINDOW, stages=DEFAULT), out):
            out.print(piece)

    fills()
    command(out, "compact", name, "--window", f"{WINDOW}", "--no-model")
    for piece in compacted(await compact(thread, window=WINDOW, summaries=False), name):
        out.print(piece)
    out.print()
    fills()
    command(out, "compact", name, "--undo")
    await undo(thread)
    out.print(f"  {len(thread.path())} messages again: nothing was lost")


def session(out: Console, store: Store) -> None:
    """Read a session of another agent, write it for a second one, keep it, and give it back."""
    place = SESSIONS / "tides.jsonl"
    data = place.read_bytes()
    (detected,) = transcripts.detect(data, place.name)
    file_format = transcripts.get(detected.file_format)
    (transcript,), drift = file_format.read_with_unknown(data)
    command(out, "show demo/sessions/tides.jsonl")
    thread = transcript.thread
    tokens = usage_once(entry.message for entry in thread.entries).total
    branched = ", ".join(thread.branches)
    out.print(Line(f"  {file_format.title}: {transcript.title}; {tokens:,} tokens; branches {branched}", "bold"))
    messages = [entry.message for entry in chosen_history(thread.path(), "all")]
    for drawn in render.messages(messages, render.View()):
        out.print(drawn)
    for each in drift:
        out.print(Line(f"  {each}: kept", "yellow"))
    out.print()
    for target in ("codex", "pi", "openai_messages"):
        written = transcripts.get(target).write(transcript)
        command(out, f"convert demo/sessions/tides.jsonl --to {target}")
        size = count(len(written.body), "byte")
        lost = f"{count(len(written.losses), 'thing')} on the receipt" if written.losses else "nothing lost"
        out.print(Line(f"  {size}, {lost}"))
    command(out, "import demo/sessions; palaver export e8d31 --as claude_code")
    reader = file_format.reader()
    taken = [
        each
        for each in FileImporter(store).add([*reader.feed(data), *reader.finish()])
        if isinstance(each, ImportedConversation)
    ]
    kept = store.load(taken[0].thread)
    back = file_format.write(Transcript(kept, metadata=store.info(kept.id).metadata)).body
    out.print(Line("  the same file, byte for byte" if back == data else "  failed: another file", "green"))


# -- a swarm -------------------------------------------------------------------------------------------------------


async def swarm(out: Console, store: Store) -> None:
    """Let a client talk with the harbour office, and show what joined the log, and what the bus told."""
    told: list[Event] = []
    command(out, "swarm demo/harbour.py --client anna --events")
    async with harbour.swarm.start(store=store) as live, live.session("anna") as session:
        listener = await live.bus.listen(told.append)
        for text in ASKED:
            seen = len(session.messages)
            await session.complete(text)
            for message in session.messages[seen:]:
                out.print(line(message))
            await live.bus.flush()
            await listener.idle()
            events = [f"{each.source} {each.type}" for each in told if not each.type.startswith("get-")]
            out.print(Line(f"  {len(told)} events: " + " · ".join(events), "dim"))
            out.print()
            told.clear()
    async with harbour.swarm.start(store=store) as live, live.session("anna") as session:
        out.print(f"  Opened again: {session.agent} are still in charge, after {len(session.messages)} messages")


def line(message: Message) -> Line:
    """One line of the office's log."""
    who, text = message.agent, getattr(message, "text", "")
    match message:
        case UserMessage():
            who = "anna" if message.mode == "user" else "(the swarm)"
        case AssistantMessage() if message.tool_calls:
            text = "calls " + ", ".join(call.name for call in message.tool_calls)
        case ToolMessage():
            text = f"{message.tool_name}: {text}"
        case RescueMarker():
            text = f"rescue: {message.reason}"
    tags = "".join(f"  [{tag}]" for tag in message.tags or ())
    style = "yellow" if tags or isinstance(message, RescueMarker) else "bold" if who == "anna" else ""
    return Line(f"  {who}: {text}{tags}", style)


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
    told = (
        "What is not the same stands on the receipts: elsewhere, a call that is no JSON and a refusal are plain words."
    )
    out.print(Line(told, "dim"))
    heading(out, 5, "One answer as every wire's stream, read byte by byte")
    out.print(streams(found[NAMES[1]]))
    with tempfile.TemporaryDirectory(prefix="palaver-demo-") as folder:
        place = str(Path(folder) / "palaver.db")
        with open_store(place) as store:
            heading(out, 6, "Kept in a store: each once, forked, searched, verified")
            threads = keep(out, store, found, place)
            fork(out, store, threads[NAMES[0]])
            look(out, store, "train*")
            check(out, store)
            heading(out, 7, "An agent with tools, over HTTP, and an approval")
            agent(out, store)
            heading(out, 8, "A full window: what fills it, what is taken out, and back")
            anyio.run(fit, out, store)
            heading(out, 9, "A session that another agent left: carried on elsewhere, kept, and given back")
            session(out, store)
            heading(out, 10, "A swarm: three agents, one client, and every event")
            anyio.run(swarm, out, store)
    out.print()
    out.print(
        Line(
            "Try it: palaver chat --model demo, palaver show FILE, palaver context FILE, palaver convert FILE "
            "--to WIRE, palaver formats, palaver swarm demo/harbour.py.",
            "dim",
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
