"""Aider's chat history: ``.aider.chat.history.md``.

Source: docs/spec/dialects.md#19.1.

Read: each start of the program is a conversation. Lines with ``####`` are the user's, and an empty line ends what they
said; lines with ``>`` are what the program printed, and are records: no model sees them. All else is an answer, with
its edits as text. The lines of users and of the program end in two spaces, so a quotation or a heading in an answer is
told from them; where an editor has removed such spaces, each of these lines is taken for the user's or the program's.
Text before the first line of a user is the program's too, and so is one line of it that has several. What the program
prints names the model, and the tokens of the answer before, rounded to thousands.

Not represented: times of messages, ids, files in the chat, tool calls (there are none). The file is only read.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import structs

from palaver.core import jsontext, trusted
from palaver.core.parts import AssistantPart
from palaver.transcripts.conversation import Conversation, Session, derived_id, record_message
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import read_time
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.text_lines import TextLines, line_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.messages import AssistantMessage
    from palaver.core.usage import Usage
    from palaver.transcripts.conversation import Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.record import Record
    from palaver.transcripts.unknown_fields import Watch

_Kind: TypeAlias = Literal["start", "user", "console", "answer", ""]

NAME: Final = "aider"

_START: Final = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_USER: Final = "#### "
_CONSOLE: Final = "> "
_BREAK: Final = "  "
"""The end of each line of a user, and of the program."""
_BLANK: Final = "<blank>"
"""What is written for an empty input."""
_MODEL: Final = re.compile(r"(?:Main model|Models?): ([^\s,]+)")
_PROGRAM: Final = re.compile(r"Aider v(\S+)")
_TOKENS: Final = re.compile(
    r"Tokens: (?P<sent>[\d.,]+[kM]?) sent(?:, (?P<write>[\d.,]+[kM]?) cache write)?"
    r"(?:, (?P<hit>[\d.,]+[kM]?) cache hit)?, (?P<received>[\d.,]+[kM]?) received"
)
_FACTORS: Final = {"k": 1_000, "M": 1_000_000}
_THOUGHT: Final = re.compile(
    r"\s*(?:-{3,}\s*)?► \*\*THINKING\*\*\n(?P<thought>.*?)\n(?:-{3,}\s*)?► \*\*ANSWER\*\*\n(?P<answer>.*)", re.DOTALL
)


def detect(head: Head) -> Detection | None:
    """Detect the line of a start of the program, or a file of its name with lines of users."""
    text = head.data.decode("utf-8", "replace")
    if re.search(rf"^{_START.pattern}$", text, re.MULTILINE) and text.lstrip().startswith("# aider chat started"):
        return Detection(1.0)
    named = head.name.endswith(".aider.chat.history.md")
    return Detection(0.7) if named and re.search(r"^(?:####|>) ", text, re.MULTILINE) else None


class RecordReader(TextLines):
    """Reads one history."""

    def __init__(self, origin: Origin, watch: Watch) -> None:  # noqa: ARG002 (any text is a history)
        """Start before the first line."""
        self._origin = origin
        self._conversation: Conversation | None = None
        self._session = Session(file_format=NAME)
        self._starts: dict[str, int] = {}
        self._kind: _Kind = ""
        self._lines: list[str] = []
        self._records: list[Record] = []
        self._blank: list[Record] = []
        self._spaced = False  # whether lines of the program end in two spaces
        self._open = False  # whether a line of the program goes on
        self._asked = False  # whether the user has said something in this session
        self._answer: tuple[AssistantMessage, Sequence[Record]] | None = None

    def record(self, record: Record) -> Iterator[Step]:
        """Read the next line."""
        line = line_of(record)
        if (start := _START.fullmatch(line)) is not None:
            yield from self._ended()
            yield from self._began(start[1])
            self._take("start", line, record)
            return
        if not line.strip():
            self._blank.append(record)
            return
        kind = self._kind_of(line)
        if kind != self._kind or (kind == "user" and self._blank):
            yield from self._flush()
        self._open = kind == "console" and self._spaced and not line.endswith(_BREAK)
        self._asked = self._asked or kind == "user"
        self._take(kind, line, record)

    def end(self) -> Iterator[Step]:
        """End the last conversation."""
        yield from self._ended()

    def _kind_of(self, line: str) -> _Kind:
        marked: _Kind = "user" if line.startswith(_USER) else "console" if line.startswith(_CONSOLE) else ""
        if marked and line.endswith(_BREAK):
            self._spaced = True
            return marked
        if not self._asked:
            return marked or "console"
        if self._open:
            return "console"
        if not self._spaced:
            return marked or "answer"
        return "console" if marked == "console" and self._kind == "console" else "answer"

    def _take(self, kind: _Kind, line: str, record: Record) -> None:
        self._lines += ["" for _ in self._blank]
        self._records += self._blank
        self._blank = []
        self._kind = kind
        self._lines.append(line)
        self._records.append(record)

    # -- conversations ---------------------------------------------------------------------------------------------

    def _began(self, start: str) -> Iterator[Step]:
        number = self._starts[start] = self._starts.get(start, 0) + 1
        self._session = Session(file_format=NAME, started_at=read_time(start))
        self._conversation = Conversation(NAME, derived_id(NAME, self._origin.name, start, number))
        self._asked = self._open = False
        yield self._conversation.began()

    def _ended(self) -> Iterator[Step]:
        if self._kind:
            self._records += self._blank
            self._lines += ["" for _ in self._blank]
            self._blank = []
            yield from self._flush()
        yield from self._answered(None)
        if self._conversation is not None:
            yield self._conversation.ended(metadata=self._session.metadata())
            self._conversation = None

    def _flush(self) -> Iterator[Step]:
        """Add what the lines so far are."""
        kind, lines, records = self._kind, self._lines, self._records
        self._kind, self._lines, self._records = "", [], []
        if not kind:
            return
        if self._conversation is None:
            yield from self._began("")
        conversation = self._conversation
        if conversation is None:
            return
        if kind == "answer":
            yield from self._answered(None)
            self._answer = (self._message(text_of(lines)), records)
        elif kind == "user":
            yield from self._answered(None)
            said = [line.removeprefix(_USER).removesuffix(_BREAK) for line in lines if line]
            text = "" if said == [_BLANK] else text_of(said)
            yield from conversation.join([trusted.UserMessage(content=(trusted.Text(text),))], records)
        else:
            printed = text_of(lines)
            yield from self._answered(_usage(printed))
            self._learn(printed)
            yield from conversation.join([record_message()], records)

    def _answered(self, usage: Usage | None) -> Iterator[Step]:
        """Add the last answer, with the tokens that the program printed behind it."""
        answer, self._answer = self._answer, None
        if answer is not None and self._conversation is not None:
            message, records = answer
            yield from self._conversation.join([structs.replace(message, usage=usage)], records)

    def _learn(self, printed: str) -> None:
        model, program = _MODEL.search(printed), _PROGRAM.search(printed)
        if model is not None:
            self._session = structs.replace(self._session, model=model[1])
        if program is not None:
            self._session = structs.replace(self._session, program=program[1])

    def _message(self, text: str) -> AssistantMessage:
        found = _THOUGHT.fullmatch(text)
        parts: list[AssistantPart] = [trusted.Text(text)]
        if found is not None:
            parts = [trusted.Reasoning(text_of([found["thought"]])), trusted.Text(text_of([found["answer"]]))]
        return trusted.AssistantMessage(content=tuple(parts), model=self._session.model)


def _usage(printed: str) -> Usage | None:
    """Return the tokens of an answer, as the program rounds them; what was read from a cache is part of those sent."""
    found = _TOKENS.search(printed)
    if found is None:
        return None
    sent, hit = _number(found["sent"]) or 0, _number(found["hit"])
    return trusted.Usage(
        input=max(0, sent - (hit or 0)),
        cache_read=hit,
        cache_write=_number(found["write"]),
        output=_number(found["received"]),
        raw_json=jsontext.raw(found[0]),
    )


def _number(text: str | None) -> int | None:
    """Return a number of tokens: ``"2.6k"`` is 2600."""
    if text is None:
        return None
    try:
        return round(float(text.rstrip("kM").replace(",", "")) * _FACTORS.get(text[-1], 1))
    except ValueError:
        return None


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Aider chat histories",
    fidelity="read",
    detector=detect,
    record_reader=RecordReader,
    record_writer=None,
    many=True,
    extension=".md",
    keeps=("sessions", "the model of each answer", "tokens of each answer (rounded)", "edits (as text)"),
    loses=("only read", "times of messages", "what the program printed (as records)", "reasoning that it removed"),
)
