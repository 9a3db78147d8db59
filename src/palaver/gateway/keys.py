"""Virtual keys: what clients of a gateway are known by, and how they are stored.

Rules:

- A key is ``plv-``, 32 random bytes in base 62, and a checksum of 6 characters (CRC-32), so that a typo and a key in a
  published file are recognised without a database: ``plv-[0-9A-Za-z]{49}``.
- The database holds the SHA-256 of a key and its first 8 characters. A slow hash, as for passwords, would add nothing:
  nobody can try 2**256 keys, and each request would pay for it.
- A key is found by its hash. The time of that tells at most something of the hash, from which no key can be made; the
  whole hash is then compared in constant time.
- A name belongs to one key that is not revoked. A rotated key keeps its id, and so its limits and what it used.
- Times are Unix milliseconds. Calls block.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec
from msgspec import Struct

from palaver.core.errors import ConflictError, MessageError, NotFoundError
from palaver.gateway.limits import Limit
from palaver.gateway.patterns import matches
from palaver.threads.ids import now_ms, uuid7

if TYPE_CHECKING:
    from typing import LiteralString

    from palaver.gateway.database import Database, Migrations, Row, Transaction

_PREFIX: Final = "plv-"
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM: Final = 43
_CHECK: Final = 6
_FORM: Final = re.compile(r"plv-[0-9A-Za-z]{43}[0-9A-Za-z]{6}")
_SHOWN: Final = len(_PREFIX) + 4
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE {s}.keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, team TEXT, models TEXT NOT NULL,
        limits TEXT NOT NULL, shown TEXT NOT NULL, hash BYTEA NOT NULL UNIQUE, old_hash BYTEA, old_until BIGINT,
        created BIGINT NOT NULL, expires BIGINT, revoked BIGINT, last_used BIGINT)""",
        "CREATE UNIQUE INDEX keys_name ON {s}.keys (name) WHERE revoked IS NULL",
        "CREATE INDEX keys_old_hash ON {s}.keys (old_hash)",
    ),
)
_FIELDS: Final = "id, name, team, models, limits, shown, created, expires, revoked, last_used"
_LIST: Final = "SELECT {fields} FROM {s}.keys ORDER BY created, id".replace("{fields}", _FIELDS)
_FIND: Final = """SELECT {fields}, hash FROM {s}.keys WHERE hash = ?
UNION ALL SELECT {fields}, old_hash FROM {s}.keys WHERE old_hash = ? AND old_until > ?""".replace("{fields}", _FIELDS)
_CHANGE: Final = """UPDATE {s}.keys SET {assignments} WHERE (name = ? OR id = ?) AND revoked IS NULL
RETURNING {fields}""".replace("{fields}", _FIELDS)
_LIMITS: Final = msgspec.json.Decoder(tuple[Limit, ...])
_MODELS: Final = msgspec.json.Decoder(tuple[str, ...])


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section ``[keys]`` of a configuration. Without it, no client is asked for a key."""

    required: bool = True
    """Whether each request needs a key. Otherwise a request without one is answered, too, on this machine only."""


class Caller(Struct, frozen=True):
    """Who sent a request: a key, without its secret."""

    key_id: str
    name: str
    team: str | None = None
    models: tuple[str, ...] = ()
    """Patterns of the names that the key may ask for; without any, all."""
    limits: tuple[Limit, ...] = ()

    def may_ask(self, model: str) -> bool:
        """Return whether the key may ask for a ``model`` by this name."""
        return not self.models or matches(self.models, model)


class VirtualKey(Struct, frozen=True, kw_only=True):
    """A stored key. ``shown`` is how it begins."""

    caller: Caller
    shown: str
    created: int
    expires: int | None = None
    revoked: int | None = None
    last_used: int | None = None

    def is_valid(self, now: int) -> bool:
        """Return whether the key is accepted at a time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class NewKey(NamedTuple):
    """A key that was made: its ``secret``, which nothing can show again, and what is stored."""

    secret: str
    key: VirtualKey

    def __repr__(self) -> str:
        """Show no secret."""
        return f"NewKey({self.key!r})"


def new_secret() -> str:
    """Return a new key."""
    text = _base62(secrets.randbits(256), _RANDOM)
    return f"{_PREFIX}{text}{_checksum(text)}"


def secret_hash(text: str) -> bytes | None:
    """Return the SHA-256 of a key; ``None`` for a text that is no key, or mistyped."""
    if _FORM.fullmatch(text) is None:
        return None
    body = text[len(_PREFIX) :]
    return hashlib.sha256(text.encode()).digest() if _checksum(body[:_RANDOM]) == body[_RANDOM:] else None


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECK)


def _base62(number: int, length: int) -> str:
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


@final
class GatewayKeys:
    """The keys in a database."""

    def __init__(self, database: Database) -> None:
        """Use a ``database``, and make the table where it is not there. Raises ``StoreError``."""
        self._database = database
        database.migrate("keys", _MIGRATIONS)

    def create(
        self,
        name: str,
        *,
        team: str | None = None,
        models: Sequence[str] = (),
        limits: Sequence[Limit] = (),
        expires: int | None = None,
    ) -> NewKey:
        """Make a key with a ``name``, perhaps of a ``team``, with ``limits`` of its own.

        ``models`` are patterns of the names that it may ask for; without any, all. ``expires`` is a time in Unix
        milliseconds. Raises ``MessageError`` for a name that is none, ``ConflictError`` for one that is taken, and
        ``StoreError``.
        """
        for each in (name, *([] if team is None else [team])):
            _check_name(each)
        secret = new_secret()
        caller = Caller(uuid7(), name, team, tuple(models), tuple(limits))
        key = VirtualKey(caller=caller, shown=secret[:_SHOWN], created=now_ms(), expires=expires)
        made = self._database.run(
            lambda it: it.rows(
                "INSERT INTO {s}.keys (id, name, team, models, limits, shown, hash, created, expires)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
                caller.key_id,
                name,
                team,
                msgspec.json.encode(caller.models).decode(),
                msgspec.json.encode(caller.limits).decode(),
                key.shown,
                secret_hash(secret),
                key.created,
                expires,
            )
        )
        if not made:
            raise ConflictError(f"there is a key {name!r} already")
        return NewKey(secret, key)

    def list(self) -> tuple[VirtualKey, ...]:
        """Return all keys, the oldest first."""
        found = self._database.run(lambda it: it.rows(_LIST))
        return tuple(map(_key, found))

    def revoke(self, name: str) -> VirtualKey:
        """Revoke the key with this ``name`` or id, at once in this database. Raises ``NotFoundError``."""
        return self._change(name, "revoked = ?", now_ms())

    def rotate(self, name: str, *, keep: int = 0) -> NewKey:
        """Give the key with this ``name`` or id a new secret; the old one is accepted for ``keep`` milliseconds more.

        Raises ``NotFoundError``.
        """
        secret = new_secret()
        key = self._change(
            name,
            "old_hash = hash, old_until = ?, hash = ?, shown = ?",
            now_ms() + keep,
            secret_hash(secret),
            secret[:_SHOWN],
        )
        return NewKey(secret, key)

    def find(self, hash: bytes) -> VirtualKey | None:
        """Return the key with a ``hash``, also one that is revoked or expired; ``None`` where there is none."""
        found = self._database.run(lambda it: it.rows(_FIND, hash, hash, now_ms()))
        return next((_key(row) for row in found if hmac.compare_digest(bytes(row[-1]), hash)), None)

    def note_used(self, used: Mapping[str, int]) -> None:
        """Store when keys were last ``used``: Unix milliseconds by their ids."""

        def work(transaction: Transaction) -> None:
            for key_id, at in sorted(used.items()):
                transaction.rows(
                    "UPDATE {s}.keys SET last_used = ? WHERE id = ? AND (last_used IS NULL OR last_used < ?)",
                    at,
                    key_id,
                    at,
                )

        self._database.run(work)

    def _change(self, name: str, assignments: LiteralString, *values: object) -> VirtualKey:
        statement = _CHANGE.replace("{assignments}", assignments)
        found = self._database.run(lambda it: it.rows(statement, *values, name, name))
        if not found:
            raise NotFoundError(f"there is no key {name!r}")
        return _key(found[0])


def _key(row: Row) -> VirtualKey:
    key_id, name, team, models, limits, shown, created, expires, revoked, last_used = row[:10]
    return VirtualKey(
        caller=Caller(key_id, name, team, _MODELS.decode(models), _LIMITS.decode(limits)),
        shown=shown,
        created=created,
        expires=expires,
        revoked=revoked,
        last_used=last_used,
    )


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise MessageError(f"a name has up to 64 letters, digits and . _ @ -, and begins with one; not {name[:80]!r}")


def allowed(caller: Caller | None, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a caller may ask for."""
    return tuple([each for each in names if caller is None or caller.may_ask(each)])
