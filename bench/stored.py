"""Cases: messages as they are stored, in each library's own form.

Rules:

- The unit of work is one stored conversation; a run reads or writes all of them and keeps what it made.
- ``orjson`` reads and writes the same JSON values as palaver, as one array for each conversation, the form
  that is fastest for it.
- langchain has no reader of JSON text for lists of messages: text is parsed first, by the standard library
  as its own file history does, and in a row of its own by orjson.
- Messages that are encoded are made anew for each round, so that nothing kept with them helps.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import conversations
from measure import Case, Contender, Job

from palaver.core import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import palaver


class Corpus:
    """The conversations of a run, and their canonical JSON, made on first use."""

    def __init__(self, count: int, shape: conversations.Shape) -> None:
        self.count = count
        self.shape = shape

    @cached_property
    def conversations(self) -> list[list[palaver.Message]]:
        """The messages."""
        return conversations.generate(self.count, shape=self.shape)

    @cached_property
    def canonical(self) -> list[bytes]:
        """Their canonical JSON, one message a line."""
        return [canonical.encode_many(messages) for messages in self.conversations]

    @cached_property
    def arrays(self) -> list[bytes]:
        """The same, one JSON array a conversation."""
        return [b"[" + b",".join(data.splitlines()) + b"]" for data in self.canonical]

    @property
    def megabytes(self) -> float:
        """The size of the canonical JSON."""
        return sum(map(len, self.canonical)) / 1e6

    def with_unknown_field(self, every: int) -> list[bytes]:
        """The canonical JSON with a field of a newer version in every so many messages."""
        number = 0
        made: list[bytes] = []
        for data in self.canonical:
            lines = data.splitlines()
            for index, line in enumerate(lines):
                number += 1
                if number % every == 0:
                    lines[index] = line[:-1] + b',"mood":{"calm":0.75}}'
            made.append(b"\n".join(lines) + b"\n")
        return made


def cases(corpus: Corpus) -> list[Case]:
    """Reading and writing stored messages."""
    return [
        Case(f"1. Decode {corpus.count:,} stored conversations", "ms", _decoders(corpus)),
        Case("   the same, collector off", "ms", _decoders_without_collector(corpus)),
        Case(f"2. Encode {corpus.count:,} conversations", "ms", _encoders(corpus)),
    ]


def _each(work: Callable[[Any], object], items: Sequence[object]) -> Job:
    return Job(lambda _state: [work(item) for item in items])


# -- decode ----------------------------------------------------------------------------------------


def _decoders(corpus: Corpus) -> list[Contender]:
    def unknown() -> Job:
        return _each(canonical.decode_many, corpus.with_unknown_field(1000))

    def pydantic_ai() -> Job:
        from pydantic_ai.messages import ModelMessagesTypeAdapter as Adapter

        stored = [Adapter.dump_json(conversations.to_pydantic_ai(each)) for each in corpus.conversations]
        return _each(Adapter.validate_json, stored)

    def stored_langchain() -> list[str]:
        from langchain_core.messages import messages_to_dict

        made = (messages_to_dict(conversations.to_langchain(each)) for each in corpus.conversations)
        return [json.dumps(each, ensure_ascii=False) for each in made]

    def langchain() -> Job:
        from langchain_core.messages import messages_from_dict

        return _each(lambda text: messages_from_dict(json.loads(text)), stored_langchain())

    def langchain_orjson() -> Job:
        import orjson
        from langchain_core.messages import messages_from_dict

        return _each(lambda text: messages_from_dict(orjson.loads(text)), stored_langchain())

    def langchain_loads() -> Job:
        import warnings

        from langchain_core.load import dumps, loads

        stored = [dumps(conversations.to_langchain(each)) for each in corpus.conversations]
        warnings.filterwarnings("ignore", message=".*(beta|allowed_objects)")
        return _each(loads, stored)

    return [
        Contender("palaver canonical.decode_many, typed", lambda: _palaver(corpus)),
        Contender("orjson.loads, plain dicts", lambda: _orjson(corpus), at_least=1),
        Contender("pydantic-ai validate_json", pydantic_ai, at_least=10),
        Contender("langchain-core messages_from_dict(json.loads)", langchain, at_least=9),
        Contender("langchain-core messages_from_dict(orjson.loads)", langchain_orjson),
        Contender("langchain-core load.loads", langchain_loads),
        Contender("palaver, unknown field in 1 message of 1,000", unknown),
    ]


def _palaver(corpus: Corpus) -> Job:
    decoded = canonical.decode_many(corpus.canonical[0])
    if not isinstance(decoded, (list, tuple)) or list(decoded) != corpus.conversations[0]:
        msg = "decode_many does not give the messages that were encoded"
        raise ValueError(msg)
    return _each(canonical.decode_many, corpus.canonical)


def _orjson(corpus: Corpus) -> Job:
    import orjson

    return _each(orjson.loads, corpus.arrays)


def _decoders_without_collector(corpus: Corpus) -> list[Contender]:
    return [
        Contender("palaver canonical.decode_many, typed", lambda: _palaver(corpus), collector=False),
        Contender("orjson.loads, plain dicts", lambda: _orjson(corpus), collector=False),
    ]


# -- encode ----------------------------------------------------------------------------------------


def _encoders(corpus: Corpus) -> list[Contender]:
    def palaver_() -> Job:
        return Job(
            lambda items: [canonical.encode_many(item) for item in items],
            lambda: [canonical.decode_many(data) for data in corpus.canonical],
        )

    def orjson_() -> Job:
        import orjson

        return Job(
            lambda items: [orjson.dumps(item) for item in items],
            lambda: [orjson.loads(data) for data in corpus.arrays],
        )

    def pydantic_ai() -> Job:
        from pydantic_ai.messages import ModelMessagesTypeAdapter as Adapter

        items = [conversations.to_pydantic_ai(each) for each in corpus.conversations]
        return _each(Adapter.dump_json, items)

    def langchain() -> Job:
        from langchain_core.messages import messages_to_dict

        items = [conversations.to_langchain(each) for each in corpus.conversations]
        return _each(lambda item: json.dumps(messages_to_dict(item)), items)

    return [
        Contender("palaver canonical.encode_many", palaver_),
        Contender("orjson.dumps of plain dicts", orjson_, at_least=1),
        Contender("pydantic-ai dump_json", pydantic_ai, at_least=15),
        Contender("langchain-core json.dumps(messages_to_dict)", langchain),
    ]
