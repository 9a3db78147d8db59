"""A stream in which parts begin with what they hold: no word of it is lost on any wire."""

import pytest

from palaver import assistant, wires
from palaver.core.events import ArgumentsDelta, Finish, PartEnd, PartStart, Start, TextDelta
from palaver.core.parts import Text, ToolCall
from palaver.core.request import Response

CALL = ToolCall("call00001", "weather", '{"city":')


@pytest.mark.law(4)
@pytest.mark.parametrize("name", wires.names())
def test_what_a_part_begins_with_is_written(name):
    events = [
        Start(Response(assistant(model="m"))),
        PartStart(0, Text("Let me ")),
        TextDelta(0, "look."),
        PartEnd(0),
        PartStart(1, CALL),
        ArgumentsDelta(1, '"Husum"}'),
        PartEnd(1),
        PartStart(2, ToolCall("call00002", "weather", '{"city":"Kiel"}')),
        PartEnd(2),
        Finish("tool_calls"),
    ]
    encoder = wires.get(name).stream_encoder()
    data = b"".join(map(encoder.feed, events)) + encoder.finish()
    decoder = wires.get(name).stream_decoder()
    decoder.feed(data)
    message = decoder.finish().message
    assert message.text == "Let me look."
    assert [each.arguments for each in message.tool_calls] == [{"city": "Husum"}, {"city": "Kiel"}]
