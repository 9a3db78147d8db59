"""Shows what Palaver does in a minute of reading, without a key or a network; `--full` plays the long tour."""

import json
import sys
import tempfile
from pathlib import Path

from palaver import AssistantMessage, Json, Message, open_store, transcripts, wires
from palaver.agent import Agent, approve
from palaver.cli import demo_model

FOLDER = Path(__file__).parent


def heading(text: str) -> None:
    print(f"\n── {text} {'─' * (76 - len(text))}\n")


def show(message: Message) -> None:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    words = [message.text, *(f"[calls {call.name}]" for call in calls)]
    words += [json.dumps(part.value) for part in message.content if isinstance(part, Json)]
    text = " ".join(" ".join(words).split())
    print(f"  {message.role:<10} {text[:64]}{'…' if len(text) > 64 else ''}")


def convert() -> None:
    heading("1  A conversation of one provider, for every other")
    recorded = json.loads((FOLDER / "conversations" / "harbour.openai_chat.json").read_bytes())
    request = wires.get("openai_chat").decode_request(recorded["request"])
    for message in request.messages[:4]:
        show(message)
    print(f"  …          {len(request.messages) - 4} more messages\n")
    for name in wires.names():
        encoded = wires.get(name).encode_request(request)
        first = f"; the first: {encoded.losses[0]}"[:70] if encoded.losses else ""
        print(f"  {name:<19} {len(encoded.body):>6,} bytes, {len(encoded.losses) or 'nothing'} lost{first}")


def carry_on() -> None:
    heading("2  A session of Claude Code becomes one of Codex")
    data = (FOLDER / "sessions" / "tides.jsonl").read_bytes()
    (session,) = transcripts.get("claude_code").read(data)
    codex = transcripts.get("codex").write(session)
    print(f"  Claude Code {len(data):,} bytes → Codex {len(codex.body):,} bytes; on the receipt: {len(codex.losses)}")
    print(
        f"  written as Claude Code again, the same bytes: {transcripts.get('claude_code').write(session).body == data}"
    )


def run_and_keep(location: str) -> None:
    heading("3  An agent waits for an approval, and goes on from the store")
    model = demo_model.demo_model()
    agent = Agent(model, tools=demo_model.demo_tools(), policy={"reserve_berth": "ask"})
    with open_store(location) as store:
        run = agent.sync.run(demo_model.PROMPT, thread=store.open("husum"))
        print(f"  {run.outcome}: {', '.join(f'{each.tool} {each.call.arguments_json}' for each in run.pending)}\n")
    with open_store(location) as store:  # this could be another process, days later
        thread = store.open("husum")
        agent.sync.run(thread=thread, decisions={each.call.id: approve() for each in run.pending})
        for message in thread.path().messages:
            show(message)
        hits = store.search("berth")
        print(f"\n  searched for “berth”: {len(hits)} messages; every hash is right: {store.verify().ok}")


def main() -> None:
    if "--full" in sys.argv[1:]:
        import tour  # noqa: PLC0415 (the long one, only when it is asked for)

        sys.exit(tour.main())
    convert()
    carry_on()
    with tempfile.TemporaryDirectory(prefix="palaver-demo-") as folder:
        run_and_keep(str(Path(folder) / "demo.db"))
    heading("Next")
    print("  palaver chat -m demo                   chat with this agent, without a key")
    print("  palaver run -m openai/… 'Hello'        ask a model (palaver keys set openai)")
    print("  palaver show FILE, convert FILE --to … any provider's body, any agent's session")
    print("  make demo ARGS=--full                  the long tour: streams, compaction, swarms")


if __name__ == "__main__":
    main()
