"""Exports of an account: one document with all conversations, each a tree of messages. The common part of such formats.

Rules:

- The document is a list of conversations; a single conversation, alone or on each line, is read too.
- Each node of a conversation is a record. A node follows the one that it names as its parent, wherever that is in the
  file; one whose parent is missing follows the last node, and is reported.
- A node that has no message of its own is kept as a record, with its bytes.
- No program reads such a file to go on with its conversations: these formats are only read.

Stability: experimental.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from msgspec import UNSET

from palaver.core.errors import PalaverError
from palaver.threads.ids import is_uuid
from palaver.threads.thread import MAIN
from palaver.transcripts import documents
from palaver.transcripts.conversation import Conversation, derived_id
from palaver.transcripts.fields import split
from palaver.transcripts.record import Record
from palaver.transcripts.record_order import ParentsFirst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from msgspec import Raw, UnsetType

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.transcripts.conversation import Session, Step
    from palaver.transcripts.format import Origin
    from palaver.transcripts.unknown_fields import Watch

_NO_LIMIT: Final = 1 << 62
"""The document is in memory already, so any number of its nodes may wait for their parent."""


class Node(NamedTuple):
    """A node of a conversation: its id and its parent's, if any, and its bytes."""

    id: str | None
    parent: str | None
    raw: Raw


class Account(ABC):
    """What a format says of its conversations."""

    name: ClassVar[str]
    key: ClassVar[str]
    """The key of the nodes of a conversation."""

    def __init__(self, watch: Watch) -> None:
        """Start before the first conversation; unexpected contents go to ``watch``."""
        self.watch = watch

    @abstractmethod
    def session(self, fields: Fields) -> Session:
        """Return the session of a conversation."""

    @abstractmethod
    def title(self, fields: Fields) -> str | None:
        """Return the title of a conversation."""

    @abstractmethod
    def nodes(self, fields: Fields) -> Sequence[Node] | None:
        """Return the nodes of a conversation, in the order of the file; ``None`` when it is no conversation."""

    @abstractmethod
    def leaf(self, fields: Fields, nodes: Sequence[Node]) -> str | None:
        """Return the id of the node at which the conversation goes on."""

    @abstractmethod
    def messages(self, node: Node, fields: Fields) -> list[Message]:
        """Return the messages of a node; an empty list for one without any."""


def account_reading(account: Callable[[Watch], Account]) -> Callable[[Origin, Watch], RecordReader]:
    """Return the reader of the exports of a format."""
    return lambda origin, watch: RecordReader(account(watch), origin)


class RecordReader:
    """Reads the conversations of one file."""

    def __init__(self, account: Account, origin: Origin) -> None:
        """Start before the first conversation."""
        self._account = account
        self._origin = origin
        self._threads: set[str] = set()
        self._at = 0

    def record(self, record: Record) -> Iterator[Step]:
        """Read the document, or a line with a conversation."""
        if record.fields is not None:
            yield from self._conversation(record.fields)
            return
        cut = documents.cut(record.raw)
        if cut.tail is None and record.raw.strip() and record.flaw is None:
            self._account.watch.note("garbage", "")
        for item in cut.items:
            if item.fields is None:
                self._account.watch.note("unread", "a conversation that is not an object")
            else:
                yield from self._conversation(item.fields)

    def end(self) -> tuple[Step, ...]:
        """Return no steps: each conversation has ended with its nodes."""
        return ()

    def _conversation(self, fields: Fields) -> Iterator[Step]:
        account = self._account
        nodes = account.nodes(fields)
        if nodes is None:
            account.watch.note("unread", f"a conversation without {account.key}")
            return
        session = account.session(fields)
        conversation = Conversation(account.name, self._thread(session.id))
        yield conversation.began()
        order = ParentsFirst(_NO_LIMIT)
        waiting: dict[int, Node] = {}
        for node in nodes:
            self._at += 1
            waiting[self._at] = node
            for ready in order.take(Record(self._at, 1, bytes(node.raw)), node.id, node.parent):
                yield from self._node(conversation, ready, waiting.pop(ready.at))
        for ready in order.rest():
            yield from self._node(conversation, ready, waiting.pop(ready.at))
        leaf = account.leaf(fields, nodes)
        heads: Mapping[str, str | None] = {MAIN: conversation.tip(leaf)} if leaf in conversation else {}
        yield conversation.ended(heads, title=account.title(fields), metadata=session.metadata())

    def _node(self, conversation: Conversation, record: Record, node: Node) -> Iterator[Step]:
        follows: str | UnsetType | None = node.parent
        if node.parent is not None and node.parent not in conversation:
            self._account.watch.note("link", "parent")
            follows = UNSET
        try:
            messages = self._account.messages(node, split(node.raw, f"a node of {self._account.key}"))
        except PalaverError as error:
            self._account.watch.note("unread", str(error))
            messages = []
        if not messages:
            yield from conversation.record(record, id=node.id, parent=follows)
            return
        ids: list[Any] = [node.id, *[None] * (len(messages) - 1)]
        yield from conversation.join(messages, [record], ids=ids, parent=follows)
        if len(messages) > 1 and node.id is not None:
            conversation.lengthen(node.id)

    def _thread(self, named: str | None) -> str:
        """Return the id of a thread: that of the file, if it is a UUID and no other conversation has it."""
        known = named or self._origin.name
        made = known if is_uuid(known) else derived_id(self._account.name, known)
        while made in self._threads:
            made = derived_id(self._account.name, made, self._at)
        self._threads.add(made)
        return made
