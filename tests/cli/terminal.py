"""A command at a terminal of its own, with input and output as for a user."""

import codecs
import contextlib
import os
import pty
import re
import select
import time

_PATIENCE = 60.0  # for a busy machine; a normal run never waits as long
_HEARD = 10.0
_ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]")


class Terminal:
    """``raw`` is the output; ``text`` is the same without colours and cursor movements."""

    def __init__(self, server, *args, cwd, env=None):
        self._here, there = pty.openpty()
        env = {
            **{name: text for name, text in os.environ.items() if name not in {"EDITOR", "VISUAL", "NO_COLOR"}},
            "TERM": "xterm-256color",
            "COLUMNS": "100",
            **(env or {}),
        }
        self.process = server.start(*map(str, args), cwd=cwd, env=env, streams=[there] * 3, terminal=True)
        os.close(there)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may come in pieces
        self._seen = 0

    @property
    def text(self):
        return _ANSI.sub("", self.raw).replace("\r\n", "\n")

    def _more(self, seconds):
        if not select.select([self._here], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._here, 65536)
        except OSError:  # the writers are closed
            return False
        self.raw += self._decoder.decode(data)
        return bool(data)

    def expect(self, words):
        """Wait until words appear behind those of the last call."""
        end = time.monotonic() + _PATIENCE
        while (found := self.text.find(words, self._seen)) < 0:
            if time.monotonic() > end or (not self._more(0.1) and self.process.poll() is not None):
                raise AssertionError(f"{words!r} never came:\n{self.text[self._seen :]}")
        self._seen = found + len(words)
        return self

    def type(self, text):
        os.write(self._here, text.encode())
        return self

    def line(self, text):
        return self.type(f"{text}\n")

    def interrupt(self):
        """Press Ctrl-C, and again without an effect: readline loses a signal while it starts to listen."""
        for _ in range(4):
            time.sleep(0.2)
            before = self.text.replace("^C", "")
            self.type("\x03")
            end = time.monotonic() + _HEARD
            while time.monotonic() < end:
                self._more(0.05)
                if self.text.replace("^C", "") != before or self.process.poll() is not None:
                    return self
        return self

    def end(self):
        """Wait for the end, and return the exit code."""
        end = time.monotonic() + _PATIENCE
        while self._more(0.05) or self.process.poll() is None:
            assert time.monotonic() < end, self.text
        return self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self._here)
