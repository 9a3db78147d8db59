"""Search: an index of words and labels that is updated on demand.

Rules:

- An append adds the number of each new body to the table ``fresh``. ``catch_up`` removes them again, a portion in one
  transaction with the words of these bodies, so a body is always in one of the two tables.
- ``catch_up`` holds a lock until its portion is committed, and other searches wait for it: so a search finds all that
  was acknowledged before it began, whichever process wrote it and whichever is indexing it.
- The words of a body are a set, in one text with its labels. The index returns the bodies with all words of a query;
  whether they are adjacent is checked in the message itself.
- A label (role, agent, tool, tag) is a quotation mark, which no word contains, a letter for its kind, and a JSON string
  in ASCII; a long one is replaced by its hash, since an index cannot store long keys.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Final

from palaver.core.errors import DamageError, DecodeError
from palaver.store import message_codec, search_text
from palaver.store.postgres.database import Link, Row
from palaver.store.postgres.queries import COLUMNS, blobs, decode_row, parents
from palaver.store.records import clamp_time, is_unreadable
from palaver.store.store import Hit, Progress, Query

_PARTED: Final = "\n"
_LONG: Final = 200
_MIN_HITS: Final = 32
_MAX_HITS: Final = 1000
_PORTION: Final = 2000
_MAX_HELD: Final = 16 << 20  # bytes that are held at once, unless a single body has more

_SHARED: Final = "select pg_advisory_xact_lock_shared({lock})"
_LOCK: Final = "select pg_advisory_xact_lock({words})"
_BEHIND: Final = "select exists (select from {s}.fresh)"
_FRESH: Final = """
select f.body, octet_length(b.data) from {s}.fresh f left join {s}.bodies b on b.body = f.body order by f.body limit %s
"""
_BODIES: Final = "select body, digest, encoding, data from {s}.bodies where body = any(%s::bigint[])"
_TAKE_IN: Final = """
insert into {s}.words (body, words, proof)
select n.body, n.words, {s}.words_proof(row(n.body, n.words, null)::{s}.words)
from unnest(%s::bigint[], %s::text[]) as n (body, words)
"""
_TAKE_OUT: Final = "delete from {s}.fresh where body = any(%s::bigint[])"
_NARROWED: Final = """
    (%s::bigint is null or coalesce(e.sent_at, 0) >= %s)
    and (%s::bigint is null or coalesce(e.sent_at, 0) < %s)
    and (%s::text is null or e.thread = (select thread from {s}.threads where id = %s))
order by coalesce(e.sent_at, 0) desc, e.place desc, e.thread desc
"""
_ALL: Final = f"select e.thread, e.place from {{s}}.entries e where {_NARROWED}"  # noqa: S608 (of constants)
_INDEXED: Final = f"""
select e.thread, e.place from {{s}}.words w join {{s}}.entries e on e.body = w.body
where array_to_tsvector(string_to_array(w.words, E'\\n')) @@ %s::tsquery and {_NARROWED}
"""  # noqa: S608 (of constants)
_HITS: Final = f"""
select {COLUMNS}, t.id
from unnest(%s::bigint[], %s::bigint[]) with ordinality as n (thread, place, number)
join {{s}}.entries e on e.thread = n.thread and e.place = n.place
join {{s}}.threads t on t.thread = e.thread left join {{s}}.bodies b on b.body = e.body order by n.number
"""  # noqa: S608 (of constants)


# -- making --------------------------------------------------------------------------------------------------------


def catch_up(link: Link, progress: Progress | None = None) -> int:
    """Index new bodies; return how many."""
    done = 0
    while link.value(_BEHIND):
        with link.transaction():
            link.execute(_SHARED)  # none of the bodies is removed meanwhile
            link.execute(_LOCK)
            taken = _portion(link.rows(_FRESH, _PORTION))
            found = [(body, _index_text(*row)) for body, *row in link.rows(_BODIES, taken)]
            link.execute(_TAKE_IN, [body for body, _ in found], [text for _, text in found])
            link.execute(_TAKE_OUT, taken)
        done += len(taken)
        if progress is not None:
            progress(done, None)
    return done


def _portion(fresh: Iterable[Row]) -> list[int]:
    """Return as many bodies as may be held at once."""
    taken: list[int] = []
    held = 0
    for body, size in fresh:
        held += size or 0
        if taken and held > _MAX_HELD:
            break
        taken.append(body)
    return taken


def _index_text(digest: bytes, encoding: int, data: bytes) -> str:
    """Return the indexed text of a body; empty for an unreadable one, which ``verify`` reports."""
    try:
        message = message_codec.unpack(
            message_codec.decompress(digest, encoding, data), "", message_codec.MEDIA_EXTRACTED, None, lambda _: b""
        )
    except (DamageError, DecodeError):
        return ""
    return _PARTED.join(
        [
            *sorted(set(search_text.words(search_text.searchable_text(message)))),
            *(_label(*each) for each in search_text.labels_of(message)),
        ]
    )


def _label(kind: str, text: str) -> str:
    label = f'"{kind}{json.dumps(text)}'
    return label if len(label) <= _LONG else f'"{kind}{sha256(label.encode()).hexdigest()}'


# -- asking --------------------------------------------------------------------------------------------------------


def needs_index(query: Query) -> str:
    """Return the query for the index; empty when there are neither words nor labels."""
    wanted = (("role", query.role), ("agent", query.agent), ("tool", query.tool), ("tag", query.tag))
    labels = [_quoted(_label(kind, text)) for kind, text in wanted if text is not None]
    return " & ".join(filter(None, [search_text.tsquery(search_text.parse(query.text)), *labels]))


def _quoted(lexeme: str) -> str:
    """Return a lexeme as it is written in a ``tsquery``."""
    return "'%s'" % lexeme.replace("\\", "\\\\").replace("'", "''")  # noqa: UP031 (quotes)


def search(link: Link, query: Query) -> list[Hit]:
    """Find messages, the newest first: by the index, and by their text when words must be adjacent."""
    terms = search_text.parse(query.text)
    if query.limit <= 0:
        return []
    since, until = clamp_time(query.since), clamp_time(query.until)
    narrow = (since, since, until, until, query.thread, query.thread)
    wanted = needs_index(query)
    statement, values = (_INDEXED, (wanted, *narrow)) if wanted else (_ALL, narrow)
    hits: list[Hit] = []
    portion = min(max(query.limit, _MIN_HITS), _MAX_HITS)
    with link.transaction(), link.stream(statement, *values, at_once=portion) as found:
        while len(hits) < query.limit and (places := list(islice(found, portion))):
            hits += _hits(link, terms, places)
    return hits[: query.limit]


def _hits(link: Link, terms: search_text.Terms, places: Sequence[Row]) -> list[Hit]:
    rows = link.rows(_HITS, [place[0] for place in places], [place[1] for place in places])
    before, blob = parents(link, rows), blobs(link)
    hits: list[Hit] = []
    for *row, thread in rows:
        entry = decode_row(thread, tuple(row), before, blob)
        text = search_text.searchable_text(entry.message)
        if search_text.matches(terms, search_text.normalize(text)) and not is_unreadable(entry.message):
            hits.append(Hit(thread, entry, search_text.excerpt(terms, text)))
    return hits
