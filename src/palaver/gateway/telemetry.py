"""What tells of exchanges: metrics, a line in the access log, a span. None has bodies, keys or error texts.

Rules:

- Values that clients choose are bounded: a metric has the name or the pattern of the configuration (``other`` where it
  lists none), and a line of the log has quoted text of limited length.
- Tokens and cost are those of the answer, priced by the catalogue (``palaver.models.cost``).

Stability: experimental.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from msgspec import json
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from palaver.core.errors import MissingPackageError, excerpt
from palaver.gateway.component import Component
from palaver.gateway.record import sound
from palaver.models.catalogue import cost, prices_of
from palaver.turn.genai_attributes import error_type, model_attributes, span_name, usage_attributes

if TYPE_CHECKING:
    from palaver.core.usage import Usage
    from palaver.gateway.config import Telemetry
    from palaver.gateway.live import LiveGateway
    from palaver.gateway.record import Record

_Format: TypeAlias = "Callable[[dict[str, Any]], str]"
_ACCESS: Final = logging.getLogger("palaver.gateway.access")
_KINDS: Final = ("input", "cache_read", "cache_write", "output", "reasoning")
_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
_OTHER: Final = "other"
_PLAIN: Final = re.compile("[!#-<>-~]*")
"""Text that needs no quotes: printable ASCII without spaces, quotes and ``=``."""
_LONGEST: Final = 200


def telemetry_components(settings: Telemetry) -> list[Component]:
    """Return the components that the settings ask for. Raises ``MissingPackageError`` for spans without the extra."""
    made = list[Component]()
    if settings.metrics:
        made.append(Metrics())
    if settings.access_log != "none":
        made.append(AccessLog(settings.access_log))
    if settings.spans:
        made.append(Spans())
    return made


def usage_of(record: Record) -> Usage | None:
    """Return the counters of an answer; ``None`` where there are none."""
    response = record.response()
    return None if response is None else sound(response.message.usage)


def cost_of(record: Record) -> float | None:
    """Return what an answer cost, in USD; ``None`` where that is not known."""
    return None if record.model is None else cost(usage_of(record), prices_of(record.model))


def target_of(label: str | None, model: str | None) -> str:
    """Return what a metric calls a model: as the configuration does, else by its provider."""
    if label is not None or model is None:
        return label or ""
    return f"{model.partition('/')[0]}/*"


# -- metrics -----------------------------------------------------------------------------------------------------------


@final
class Metrics(Component):
    """Counts exchanges, for Prometheus."""

    settings = "metrics"

    def __init__(self) -> None:
        """Begin at 0."""
        self._registry = CollectorRegistry()
        self._requests = self._count("requests", "Exchanges", "api", "model", "target", "outcome")
        self._attempts = self._count("attempts", "Models that were asked", "target", "outcome")
        self._retries = self._count("retries", "Requests that were sent to a model again", "target")
        self._tokens = self._count("tokens", "Tokens", "model", "target", "kind")
        self._cost = self._count("cost_usd", "What answers cost, in USD", "model", "target")
        self._losses = self._count("losses", "What another wire could not say", "api", "target", "kind")
        self._seconds = self._times("request_seconds", "From a request to the end of its answer")
        self._first = self._times("first_token_seconds", "From a request to the first bytes of a streamed answer")
        self._active = self._gauge("exchanges_in_progress", "Exchanges in progress")
        self._open = self._gauge("target_open", "Whether a model rests after failures", "target")

    def _count(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"palaver_gateway_{name}", text, labels, registry=self._registry)

    def _times(self, name: str, text: str) -> Histogram:
        labels = ("api", "model")
        return Histogram(f"palaver_gateway_{name}", text, labels, registry=self._registry, buckets=_SECONDS)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"palaver_gateway_{name}", text, labels, registry=self._registry)

    async def ended(self, record: Record) -> None:
        """Count an exchange."""
        api, model = record.request.api.wire, record.route or _OTHER
        target = target_of(record.target, record.model)
        self._requests.labels(api, model, target, record.outcome).inc()
        self._seconds.labels(api, model).observe(record.seconds or 0.0)
        if record.first_seconds is not None:
            self._first.labels(api, model).observe(record.first_seconds)
        for each in record.attempts:
            asked = target_of(each.target, each.model)
            self._attempts.labels(asked, "answered" if each.error is None else each.error.error_code).inc()
            if each.retries:
                self._retries.labels(asked).inc(each.retries)
        for loss in record.losses:
            self._losses.labels(api, target, loss.kind).inc()
        if (usage := usage_of(record)) is not None:
            for kind in _KINDS:
                if count := getattr(usage, kind):
                    self._tokens.labels(model, target, kind).inc(count)
        if price := cost_of(record):
            self._cost.labels(model, target).inc(price)

    def render(self, live: LiveGateway) -> bytes:
        """Return all metrics, as text."""
        self._active.set(live.active)
        self._open.clear()
        for each in live.targets:
            if each.label is not None:
                gauge = self._open.labels(each.label)
                if each.state == "open":
                    gauge.set(1)
        return generate_latest(self._registry)


# -- access log --------------------------------------------------------------------------------------------------------


@final
class AccessLog(Component):
    """Writes a line for each exchange, with the level ``INFO``."""

    def __init__(self, form: str) -> None:
        """Choose the format: ``text`` or ``json``."""
        self.settings = form
        self._format = _FORMATS[form]

    async def ended(self, record: Record) -> None:
        """Write the line."""
        if _ACCESS.isEnabledFor(logging.INFO):
            _ACCESS.info("%s", self._format(access_fields(record)))


def access_fields(record: Record) -> dict[str, Any]:
    """Return what a line says, without what is not known."""
    error, usage = record.error, usage_of(record)
    fields: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.at / 1000)),
        "exchange": record.id,
        "status": record.status,
        "outcome": record.outcome,
        "api": record.request.api.wire,
        "stream": record.request.stream,
        "asked": excerpt(record.request.model, _LONGEST),
        "model": None if record.model is None else excerpt(record.model, _LONGEST),
        "attempts": len(record.attempts),
        "retries": sum(each.retries for each in record.attempts) or None,
        "seconds": _rounded(record.seconds),
        "first_token": _rounded(record.first_seconds),
        "losses": len(record.losses) or None,
        "error": None if error is None else error_type(error),
        "cost_usd": cost_of(record),
    }
    if usage is not None:
        fields |= {f"{kind}_tokens": getattr(usage, kind) for kind in _KINDS}
    return {name: value for name, value in fields.items() if value is not None}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _json(fields: dict[str, Any]) -> str:
    return json.encode(fields).decode()


def _text(fields: dict[str, Any]) -> str:
    return " ".join([f"{name}={_value(value)}" for name, value in fields.items()])


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.encode(value).decode()
    return text if _PLAIN.fullmatch(text) else ascii(text)


_FORMATS: Final[dict[str, _Format]] = {"text": _text, "json": _json}


# -- spans -------------------------------------------------------------------------------------------------------------


@final
class Spans(Component):
    """Records an OpenTelemetry span for each exchange, a child of the span that the client names (``traceparent``)."""

    settings = "spans"

    def __init__(self, tracer: Any = None) -> None:
        """Use a tracer, by default that of the global provider. Raises ``MissingPackageError``."""
        try:
            from opentelemetry import trace  # noqa: PLC0415 (an extra)
            from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415
        except ImportError as error:
            raise MissingPackageError.of("spans need opentelemetry-api", "otel", error) from None
        self._trace = trace
        self._propagator = tracecontext.TraceContextTextMapPropagator()
        self._tracer = tracer if tracer is not None else trace.get_tracer("palaver.gateway")

    async def ended(self, record: Record) -> None:
        """Record the span, from the beginning of the exchange to now."""
        begun = record.at * 1_000_000
        name = record.model or excerpt(record.request.model, _LONGEST)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "palaver.exchange.id": record.id,
            "palaver.api": record.request.api.wire,
            "palaver.outcome": record.outcome,
            "palaver.attempts": len(record.attempts),
            "palaver.losses": len(record.losses),
            "http.response.status_code": record.status,
            **model_attributes(name),
            **usage_attributes(usage_of(record)),
        }
        if record.first_seconds is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = record.first_seconds
        response = record.response()
        if response is not None and response.message.finish_reason is not None:
            attributes["gen_ai.response.finish_reasons"] = [response.message.finish_reason]
        parent = self._propagator.extract(dict(record.request.headers))
        kind = self._trace.SpanKind.SERVER
        span = self._tracer.start_span(span_name("chat", name), parent, kind, attributes, start_time=begun)
        if record.error is not None:
            span.set_attribute("error.type", error_type(record.error))
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end(begun + round((record.seconds or 0.0) * 1e9))
