"""The configuration of a gateway: a TOML file, read into data.

    [listen]
    port = 4000

    [models]                          # what clients ask for, and what is asked instead, in order
    "fast" = "groq/llama-3.3-70b-versatile"
    "claude-*" = ["anthropic/claude-*", "openai/gpt-5.5"]
    "own" = { model = "local/qwen3", url = "http://127.0.0.1:8000/v1", wire = "openai_chat:vllm" }
    "shared" = [                      # three quarters and a quarter of the sessions, and a last resort
        { model = "anthropic/claude-sonnet-5", weight = 3 },
        { model = "bedrock-anthropic/claude-sonnet-5", weight = 1, timeout = { first_token = 20 }, retries = 1 },
        "openai/gpt-5.5",
    ]

Rules:

- A name on the left is exact, or a pattern in which ``*`` stands for any text. An exact name wins, then the pattern
  with the most letters. ``*`` on the right stands for what the ``*`` on the left matched.
- A name that no line knows is taken as it is when it has a provider (``openai/gpt-…``). Without one, the provider whose
  API the client speaks is meant. ``only_listed`` refuses both.
- A list is the order in which models are asked. Neighbours with a ``weight`` and the same ``order`` share one place:
  one of them is chosen by weight, the same one for every request of a session, and the others follow it.
- ``retries`` of one model are made before another one is asked: 2 where the model stands alone, else 0.

Stability: experimental.
"""

from __future__ import annotations

import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from palaver.core.errors import DecodeError, MessageError
from palaver.gateway.config_errors import explained
from palaver.gateway.keys import KeySettings
from palaver.gateway.limits import LimitRule
from palaver.gateway.log.options import LogOptions
from palaver.gateway.record import MAX_ANSWER
from palaver.gateway.stored_responses import ResponseOptions
from palaver.gateway.translation import Translation


class Listen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how the gateway listens. Times are seconds.

    ``hosts`` are the names that it has, where keys are required; without any, all.
    """

    host: str = "127.0.0.1"
    port: int = 4000
    hosts: tuple[str, ...] = ()
    max_body: Annotated[int, Meta(ge=1)] = 64 * 1024 * 1024
    """The most bytes of a request."""
    max_answer: Annotated[int, Meta(ge=1)] = MAX_ANSWER
    """The most bytes of a model's answer, which is in memory until its end; a longer one is broken off."""
    body_seconds: Annotated[float, Meta(gt=0)] = 60.0
    """How long the body of a request may take to arrive."""
    max_concurrent: Annotated[int, Meta(ge=1)] | None = None
    """The most exchanges at the same time; a request beyond gets 503."""
    keep_alive: Annotated[float, Meta(ge=0)] = 15.0
    """After how long without data a stream gets an event that says nothing. 0: never."""
    grace: Annotated[float, Meta(ge=0)] = 30.0
    """How long answers in progress may take after SIGTERM."""


class Breaker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a model that fails is skipped, as long as another one may answer.

    After ``failures`` in a row it is asked last for ``rest`` seconds, or for as long as its provider asks. Then one
    request tries it.
    """

    failures: Annotated[int, Meta(ge=1)] = 1
    rest: Annotated[float, Meta(ge=0)] = 60.0


_Seconds: TypeAlias = Annotated[float, Meta(gt=0)]


class TargetTimeout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a model may take, in seconds. The fields, and what is not given, are those of ``Timeouts``."""

    connect: _Seconds | None = None
    first_token: _Seconds | None = None
    idle: _Seconds | None = None
    whole: _Seconds | None = None


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model to ask. The fields are those of ``palaver.model``; ``key`` names the variable that holds the key.

    ``text_calls`` names the format in which the model writes calls and reasoning as text, where its server does not
    read them (``"text"``: only ``<think>``).
    """

    model: str
    wire: str | None = None
    url: str | None = None
    key: str | None = None
    text_calls: str | None = None
    weight: Annotated[float, Meta(gt=0)] | None = None
    order: int = 0
    timeout: TargetTimeout = TargetTimeout()
    retries: Annotated[int, Meta(ge=0)] | None = None


class Telemetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tells of the exchanges, without what was said in them."""

    access_log: Literal["text", "json", "none"] = "text"
    """A line for each exchange, in the log ``palaver.gateway.access``; ``palaver gateway`` writes it to stderr."""
    metrics: bool = True
    """Whether ``/metrics`` has metrics for Prometheus."""
    spans: bool = False
    """Whether there is an OpenTelemetry span for each exchange (extra ``otel``)."""


class GatewayConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration. Every field has a default."""

    listen: Listen = Listen()
    models: dict[str, str | Target | list[str | Target]] = {}
    only_listed: bool = False
    database: str | None = None
    """The path of an SQLite file, or ``postgresql://…``. Without it, ``gateway.db`` in the user's data folder."""
    translation: Translation = Translation()
    keys: KeySettings | None = None
    limits: tuple[LimitRule, ...] = ()
    unknown_price: Literal["refuse", "zero"] = "refuse"
    """What an exchange costs whose model has no known price, where a limit of cost applies."""
    breaker: Breaker = Breaker()
    telemetry: Telemetry = Telemetry()
    log: LogOptions | None = None
    """How exchanges are logged. Without it, they are not."""
    responses: ResponseOptions | None = None
    """Which responses of the Responses API are stored for models of other wires. Without it, none."""


def read_config(file: str | Path) -> GatewayConfig:
    """Read the configuration in ``file``. Raises ``DecodeError`` that names the file and the place."""
    path, found = Path(file), dict[str, Any]()
    with naming(path):
        try:
            found = tomllib.loads(path.read_text("utf-8"))
            return msgspec.convert(found, GatewayConfig)
        except OSError as error:
            raise DecodeError((error.strerror or str(error)).lower()) from None
        except msgspec.ValidationError as error:
            place, reason = explained(error, found, GatewayConfig)
            raise DecodeError(reason, path=place) from None
        except (ValueError, RecursionError) as error:  # of TOML, of UTF-8
            raise DecodeError(str(error)) from None


@contextmanager
def naming(file: Path | None) -> Generator[None]:
    """Name the file in an error of its content."""
    try:
        yield
    except DecodeError as error:
        if file is not None and not error.source:
            error.source = str(file)
        raise
    except MessageError as error:
        raise (error if file is None else DecodeError(str(error), source=str(file))) from None
