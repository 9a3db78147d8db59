"""Reading from several threads at once, from the first time on."""

import threading
import time

import msgspec

from palaver.core import codec


def test_decoders_are_built_one_after_the_other(monkeypatch):
    at_once, most = 0, 0
    build = msgspec.json.Decoder

    def slow(hint):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.01)
        at_once -= 1
        return build(hint)

    monkeypatch.setattr(codec.msgspec.json, "Decoder", slow)
    hints = [msgspec.defstruct(f"Made{n}", [("n", int)]) for n in range(8)]
    threads = [threading.Thread(target=codec.reader(hint), args=(b'{"n":1}',)) for hint in hints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
