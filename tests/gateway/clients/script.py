"""What the model of a program answers."""

from palaver import Response, Usage, assistant, wires
from palaver.core.messages import ToolMessage
from palaver.core.parts import Text
from palaver.stream.replay_events import replay_events
from palaver.testing import rules
from tests.gateway.test_wires import STREAM_TYPES

PROMPT = "Is the harbour calm?"
DONE = "The harbour is calm."
SMALL = Usage(input=1000, output=20)


def answered(*content, calls=(), finish="stop", usage=SMALL):
    return Response(assistant(*content, *calls, model="model-1", usage=usage, finish_reason=finish))


COUNTED = b'{"input_tokens":7,"inputTokens":7}'


def is_count(wire, body):
    """Whether a request asks for the number of its tokens only."""
    if wire == "bedrock_converse":
        return body.startswith(b'{"input":{"converse":')
    return wire == "anthropic_messages" and b'"max_tokens"' not in body


class Script:
    """Answers as a model would: calls first, if there are any, and text when their results came.

    ``thought`` stands before each answer. The first of ``failures`` answers the first request, and so on.
    """

    def __init__(self, wire, first=(), failures=(), *, thought=None, text=DONE):
        self.wire, self.first, self.failures, self.requests = wires.get(wire), first, list(failures), []
        self.thought, self.text = () if thought is None else (thought,), text

    def __call__(self, body):
        if is_count(self.wire.name, body):
            return 200, {"content-type": "application/json"}, COUNTED
        request = self.wire.decode_request(body)
        self.requests.append((request, body))
        if self.failures:
            return self.failures.pop(0)
        results = [each for each in request.messages if isinstance(each, ToolMessage)]
        offered = {getattr(each, "name", None) for each in request.tools}
        calls = [each for each in self.first if each.name in offered]
        if calls and not results:
            answer = answered(*self.thought, calls=calls, finish="tool_calls")
        else:
            answer = answered(*self.thought, Text(self.text))
        return self.written(answer, request, body)

    def streams(self, request):
        """Whether a request asks for a stream."""
        return request.settings.stream is not False and (
            request.settings.stream or self.wire.name in {"google_generate", "bedrock_converse"}
        )

    def written(self, answer, request, body):
        stream = self.streams(request)
        if not stream:
            return 200, {"content-type": "application/json"}, self.wire.encode_response(answer).body
        encoder = self.wire.stream_encoder()
        data = b"".join([encoder.feed(each) for each in replay_events(answer)]) + encoder.finish()
        return 200, {"content-type": STREAM_TYPES[self.wire.name]}, data

    def check(self):
        for _, body in self.requests:
            assert rules.check_request(self.wire.name, body) == []
        assert any(PROMPT.encode() in body for _, body in self.requests)
