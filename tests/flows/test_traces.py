"""Does a collector of traces see all that one delivery caused, under one id that people can find?"""

from __future__ import annotations

import gzip
import hashlib
import sys

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bot.core import traces
from tests.harness import UPSTREAM
from tests.serving import SQLITE


@pytest.fixture
async def collected(monkeypatch):
    """Spans as they reach a collector, by name."""
    found = []

    async def take(request):
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {one.key: one.value.string_value for one in resource.resource.attributes}[
                "service.name"
            ]
            found.extend((service, span) for scope in resource.scope_spans for span in scope.spans)
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield found
    await runner.cleanup()


def trace_of(identity):
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


@SQLITE
async def test_one_trace_holds_a_delivery_and_all_it_caused(bot, github, collected):
    async with traces.exporting():
        await github.open_pull(UPSTREAM)
        await bot.settle()
        guid = next(one.guid for one in github.deliveries if one.event == "pull_request")
    mine = [span for _, span in collected if span.trace_id.hex() == trace_of(guid)]
    names = [span.name for span in mine]
    assert {"webhooks", "handle pull_request", "task relay", "task dispatch"} <= set(names)
    assert {service for service, _ in collected} == {"ootbot"}
    dispatch = next(span for span in mine if span.name == "task dispatch")
    calls = [span for span in mine if span.parent_span_id == dispatch.span_id]
    said = {one.key: one.value.string_value or one.value.int_value for one in calls[-1].attributes}
    assert said["http.request.method"] == "POST"
    assert said["url.full"].endswith("/dispatches")
    assert said["http.response.status_code"] == 204


@SQLITE
async def test_the_id_of_an_answer_leads_to_its_trace(bot, collected):
    async with traces.exporting():
        async with bot.http.get(f"{bot.url}/oot") as answer:
            identity = answer.headers["X-Request-Id"]
        async with bot.http.get(f"{bot.url}/healthz"):
            pass
    spans = {span.trace_id.hex(): span for _, span in collected}
    assert spans[trace_of(identity)].name == "page"
    assert len(spans) == 2


@SQLITE
async def test_without_a_collector_nothing_is_sent(bot, collected, monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with traces.exporting():
        assert (await bot.get("/oot"))[0] == 200
    assert collected == []


@SQLITE
async def test_a_missing_extra_is_said_and_keeps_nobody_from_work(bot, collected, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    async with traces.exporting():
        assert (await bot.get("/oot"))[0] == 200
    assert "pip install 'ootbot[otel]'" in "".join(capsys.readouterr())
    assert collected == []
