"""A provider's server for thousands of streams: ``soak_provider.py SECONDS`` prints its port, and serves until its end.

The last message of a request names what is asked for: ``NAME COUNT``. The answer is the words ``NAME:0`` to
``NAME:COUNT-1`` in the form of Chat Completions; as a stream with ``SECONDS`` between two words.
"""

import asyncio
import json
import sys

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
ABOUT = {"id": "chatcmpl-1", "created": 1, "model": "model-1"}


async def answer(reader, writer, seconds):
    """Answer the requests of a connection."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            asked = json.loads(await reader.readexactly(length))
            name, _, count = asked["messages"][-1]["content"].rpartition(" ")
            words = [f"{name}:{each} " for each in range(int(count))]
            if asked.get("stream"):
                await stream(writer, words, seconds)
            else:
                choice = {"index": 0, "message": {"role": "assistant", "content": "".join(words)}}
                body = {**ABOUT, "object": "chat.completion", "choices": [{**choice, "finish_reason": "stop"}]}
                data = json.dumps({**body, "usage": USAGE}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n%b" % (len(data), data))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def stream(writer, words, seconds):
    """Send words with a pause after each."""

    def send(data):
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def event(choices, **more):
        send(
            f"data: {json.dumps({**ABOUT, 'object': 'chat.completion.chunk', 'choices': choices, **more})}\n\n".encode()
        )

    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for word in words:
        event([{"index": 0, "delta": {"content": word}, "finish_reason": None}])
        await asyncio.sleep(seconds)
        if writer.is_closing():
            raise ConnectionError
    event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    event([], usage=USAGE)
    send(b"data: [DONE]\n\n")
    send(b"")


async def main(seconds):
    """Serve until the process is killed."""
    server = await asyncio.start_server(lambda *given: answer(*given, seconds), "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
