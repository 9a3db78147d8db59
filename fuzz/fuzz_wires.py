"""Feed mutated bytes to every decoder (laws 6 and 2). See README.md beside this file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import atheris

with atheris.instrument_imports(include=["palaver"]):
    import palaver as p
    from palaver import wires
    from palaver.core import canonical
    from palaver.testing.receipts import check_receipt

    for _name in wires.names():
        wires.get(_name)

if TYPE_CHECKING:
    from collections.abc import Callable


def _exact(value: Any) -> Any:
    """A form in which 1, 1.0 and true differ, and the order of keys does not count."""
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    return (type(value).__name__, repr(value))


def _encode(wire: str, decoded: p.Request | p.Response) -> p.Encoded:
    if isinstance(decoded, p.Request):
        return wires.get(wire).encode_request(decoded)
    return wires.get(wire).encode_response(decoded)


def _try_wire(wire: str, what: str, body: bytes) -> None:
    try:
        decoded = getattr(wires.get(wire), f"decode_{what}")(body)
    except p.PalaverError:
        return
    assert canonical.decode(canonical.encode(decoded), type(decoded)) == decoded
    written = _encode(wire, decoded)
    assert written.losses == (), written.losses
    assert _exact(json.loads(written.body)) == _exact(json.loads(body)), written.body
    for other in wires.names():
        handed = _encode(other, decoded)
        json.loads(handed.body)
        if isinstance(decoded, p.Request):
            found = check_receipt(other, decoded, handed)
            assert found == [], found


def _try_canonical(body: bytes) -> None:
    try:
        messages = canonical.decode_many(body)
    except p.PalaverError:
        return
    assert canonical.decode_many(canonical.encode_many(messages)) == messages


def _targets() -> list[Callable[[bytes], None]]:
    def on(wire: str, what: str) -> Callable[[bytes], None]:
        return lambda body: _try_wire(wire, what, body)

    return [_try_canonical, *(on(wire, what) for wire in wires.names() for what in ("request", "response"))]


TARGETS = _targets()


def test_one_input(data: bytes) -> None:
    """What libFuzzer calls: the first byte chooses the decoder, the others are its input."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


# -- seeds -----------------------------------------------------------------------------------------


def _conversation() -> tuple[p.Message, ...]:
    look = p.tool_call("look", {"q": [1, 2.5, "é"]}, id="call00001")
    return (
        p.system("Be brief."),
        p.user("What is this?", p.Image(p.Inline("iVBORw0KGgo="), "image/png")),
        p.assistant("One moment.", p.Reasoning("hm"), tool_calls=[look]),
        p.tool({"found": True}, tool_call_id=look.id),
        p.assistant("A square."),
        p.user("Thanks."),
    )


def write_seeds(folder: Path) -> None:
    """Write one valid input for each decoder."""
    folder.mkdir(parents=True, exist_ok=True)
    messages = _conversation()
    tools = (p.Tool.of("look", "Look at it.", {"type": "object", "properties": {"q": {"type": "array"}}}),)
    request = p.Request(messages=messages, model="m", tools=tools, settings=p.Settings(max_tokens=64, temperature=0.5))
    answer = p.assistant("So be it.", tool_calls=[p.tool_call("look", {"q": []}, id="call00002")])
    usage = p.Usage(input=5, cache_read=2, output=3, reasoning=1)
    response = p.Response(message=answer.replace(finish_reason="tool_calls", usage=usage, model="m"))
    bodies = [canonical.encode_many(messages)]
    for wire in wires.names():
        bodies += [_encode(wire, request).body, _encode(wire, response).body]
    for number, body in enumerate(bodies):
        (folder / f"seed-{number:02d}").write_bytes(bytes([number]) + body)


def main() -> None:
    """Write seeds, or fuzz until told to stop."""
    if sys.argv[1:2] == ["--seeds"]:
        write_seeds(Path(sys.argv[2]))
        return
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
