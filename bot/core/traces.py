"""Traces: spans sent by OTLP, where the extra `otel` is installed and a collector is configured.

The trace of a request, or of a delivery and all it causes, follows from its id: no parent needs to be stored, and
none is accepted from callers. OpenTelemetry's own variables, not our settings, determine where spans go, how many,
and under which name. A process has one tracer, so it is not passed around.
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

import structlog

from bot import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span, Tracer

    Kind = Literal["internal", "server", "client"]

log = structlog.get_logger("bot.core.traces")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
NOTHING: AbstractContextManager[Span | None] = contextlib.nullcontext()
FLUSH_TIMEOUT = 2.0  # seconds for the last spans: they are a help, not a record

_cause: ContextVar[str] = ContextVar("cause")
_tracer: Tracer | None = None


def trace_of(cause: str) -> int:
    """Return the trace of a delivery's GUID or of a request's id: the first 128 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(cause.encode()).digest()[:16])


def enabled() -> bool:
    """Whether spans are sent anywhere."""
    return _tracer is not None


def span(
    name: str, *, cause: str | None = None, kind: Kind = "internal", **attributes: str | None
) -> AbstractContextManager[Span | None]:
    """Measure a block, within the current span or the trace of `cause`; does nothing without a collector.

    Attributes that are None are left out; `_` in a name stands for a dot.
    """
    return NOTHING if _tracer is None else _span(_tracer, name, cause, kind, attributes)


@contextlib.asynccontextmanager
async def exporting() -> AsyncIterator[None]:
    """Send spans during the block, if the environment names a collector; a missing extra is only a warning."""
    global _tracer  # noqa: PLW0603 - one process, one tracer
    if not any(map(os.environ.get, ENDPOINTS)) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield
        return
    try:
        provider = _provider()
    except ImportError:
        log.warning(
            "no traces are sent: pip install 'ootbot[otel]', or unset the endpoint", variables=ENDPOINTS
        )
        yield
        return
    _tracer = provider.get_tracer("ootbot", __version__)
    try:
        yield
    finally:
        _tracer = None
        flushing = threading.Thread(target=provider.shutdown, daemon=True)
        flushing.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT):
                while flushing.is_alive():  # noqa: ASYNC110 - a thread has no event for that
                    await asyncio.sleep(0.02)


@contextlib.contextmanager
def _span(
    tracer: Tracer, name: str, cause: str | None, kind: Kind, attributes: Mapping[str, str | None]
) -> Iterator[Span]:
    from opentelemetry.context import Context  # noqa: PLC0415 - an extra
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - an extra

    known = {key.replace("_", "."): value for key, value in attributes.items() if value is not None}
    named = _cause.set(cause) if cause is not None else None
    try:
        with tracer.start_as_current_span(
            name,
            context=Context() if cause is not None else None,
            kind=SpanKind[kind.upper()],
            attributes=known,
            record_exception=False,  # the log has it
        ) as current:
            yield current
    finally:
        if named is not None:
            _cause.reset(named)


def _provider() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import (  # noqa: PLC0415
        SERVICE_NAME,
        SERVICE_VERSION,
        Resource,
    )
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class Ids(RandomIdGenerator):
        """Trace ids that follow from the trace's cause."""

        def generate_trace_id(self) -> int:
            cause = _cause.get(None)
            return super().generate_trace_id() if cause is None else trace_of(cause)

    named = {SERVICE_VERSION: __version__}
    if "OTEL_SERVICE_NAME" not in os.environ:
        named[SERVICE_NAME] = "ootbot"
    provider = TracerProvider(resource=Resource.create(named), id_generator=Ids(), shutdown_on_exit=False)
    # bounded: 2048 wait, more are dropped
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
