"""What the log of a gateway costs: bytes on the disk, and time, for a session that an agent sends whole each turn.

    python bench/gateway_log.py SESSION.jsonl FORMAT [WIRE]

SESSION is a transcript, FORMAT its format (``palaver formats``), and WIRE that of client and model. Each answer of the
session is one exchange. Printed are the bytes that went over the line, those that were new, those on the disk, and the
mean time of what the request waits for and of what the writer does.
"""

import sys
import tempfile
import time
from pathlib import Path

from palaver import Request, Response, system, transcripts, wires
from palaver.core.messages import AssistantMessage
from palaver.gateway.apis import APIS
from palaver.gateway.client_api import ClientApi
from palaver.gateway.log import logged
from palaver.gateway.log.options import LogOptions
from palaver.gateway.log.redaction import Redaction
from palaver.gateway.log.sink import Sink
from palaver.gateway.log.spool import Spool
from palaver.gateway.record import Attempt, ClientRequest, Record
from palaver.stream.replay_events import replay_events

INSTRUCTIONS = system("You are a coding agent. " * 800)


def record_of(api: ClientApi, body: bytes, answer: bytes) -> Record:
    pieces = [answer[start : start + 200] for start in range(0, len(answer), 200)]
    record = Record(request=ClientRequest(api=api, model="m", stream=True, body=body))
    record.outcome, record.status, record.model, record.wire = "answered", 200, "openai/m", api.wire
    record.sent, record.received, record.returned, record.seconds = body, pieces, [*pieces], 1.0
    record.attempts = [Attempt("openai/m", api.wire)]
    return record


def main(file: str, form: str, wire: str = "anthropic_messages") -> None:
    codec, api = wires.get(wire), next(each for each in APIS if each.wire == wire)
    thread = transcripts.get(form).read(Path(file).read_bytes())[0].thread
    messages = [each.message for each in thread.path("main") if each.message.role in {"user", "assistant", "tool"}]
    sent = new = count = last = 0
    waited = written = 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sink = Sink(LogOptions(store=str(place / "store.db")), str(place / "gateway.db"))
        spool, redaction = Spool(place / "spool", max_bytes=1 << 40), Redaction([])
        for index, message in enumerate(messages):
            if not isinstance(message, AssistantMessage) or not message.content:
                continue
            body = codec.encode_request(Request(messages=(INSTRUCTIONS, *messages[:index]), model="m")).body
            encoder = codec.stream_encoder()
            answer = b"".join(map(encoder.feed, replay_events(Response(message)))) + encoder.finish()
            record = record_of(api, body, answer)
            start = time.perf_counter()
            data = logged.encode(logged.logged(record, redaction, "bodies"))
            spool.append(data)
            waited += time.perf_counter() - start
            start = time.perf_counter()
            sink.write(data)
            written += time.perf_counter() - start
            sent, count = sent + len(body) + len(answer), count + 1
            for each in messages[last:index]:
                new += len(codec.encode_request(Request(messages=(each,), model="m")).body)
            new, last = new + len(answer), index
        sink.close()
        spool.close()
        disk = sum(each.stat().st_size for each in place.glob("*.db*"))
    print(f"{count} exchanges: {sent / 1e6:.1f} MB sent, {new / 1e6:.2f} MB new, {disk / 1e6:.2f} MB on the disk")
    print(f"each: {waited / count * 1e6:.0f} µs in the request, {written / count * 1e3:.1f} ms in the writer")


if __name__ == "__main__":
    main(*sys.argv[1:])
