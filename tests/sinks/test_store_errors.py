"""What errors of ClickHouse and DynamoDB mean for a sink: wait, wait for people, stop, or refuse a row."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from bot.db.exports import Export, StoredItem
from bot.ingest.tables import records
from bot.sinks.clickhouse import ClickhouseClient, as_sink_error
from bot.sinks.driver import Batch, BatchRefused, Outgoing, SinkAway, SinkForbidden, Stopped
from bot.sinks.dynamodb import DynamoDriver
from bot.sinks.settings import ClickhouseServer, DynamoOptions

AROUND = "Received ClickHouse exception, code: {}, server response: Code: {}. DB::Exception: {} (for url https://ci@h)"


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (516, "ci: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)", SinkForbidden),
        (497, "ci: Not enough privileges. (ACCESS_DENIED)", SinkForbidden),
        (60, "Table default.push does not exist. (UNKNOWN_TABLE)", Stopped),
        (16, "No such column backfill in table default.workflow_job. (NO_SUCH_COLUMN_IN_TABLE)", Stopped),
        (53, "Type mismatch in IN or VALUES section. (TYPE_MISMATCH)", BatchRefused),
        (241, "Memory limit (total) exceeded. (MEMORY_LIMIT_EXCEEDED)", SinkAway),
        (252, "Too many parts (300). (TOO_MANY_PARTS)", SinkAway),
    ],
)
def test_an_answer_of_clickhouse(code, words, kind):
    found = as_sink_error(DatabaseError(AROUND.format(code, code, words), code=code))
    assert type(found) is kind
    assert str(found).endswith(words)
    assert "ci@h" not in str(found)


def test_no_answer_of_clickhouse_at_all():
    assert type(as_sink_error(OperationalError("Network Error: Server disconnected"))) is SinkAway


async def test_a_server_that_is_not_there_is_away():
    client = ClickhouseClient(
        ClickhouseServer(host="127.0.0.1", port=1, secure=False, username="ci", password="secret")
    )
    with pytest.raises(SinkAway) as found:
        await client.read("SELECT 1")
    assert "secret" not in str(found.value)


@pytest.fixture
async def throttled(monkeypatch):
    """A DynamoDB that takes one request in three; yields the driver and what it was asked."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    asked = []

    async def handle(request):
        asked.append(await request.json())
        if len(asked) % 3:
            kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
            return web.Response(status=400, text=json.dumps({"__type": kind, "message": "slower"}))
        return web.Response(text="{}", content_type="application/x-amz-json-1.0")

    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    driver = DynamoDriver(DynamoOptions(region="us-east-1", endpoint=address))
    yield driver, asked
    await driver.close()
    await runner.cleanup()


@pytest.mark.nightly
async def test_throttling_is_waited_for(throttled):
    driver, asked = throttled
    export = Export(name="x", table=records["workflow_job"], day="received_at")

    def make(_export, row):
        return [StoredItem(table="x", key=row["key"], attributes={})]

    items = [Outgoing(key=(one,), row={"key": f"org/a/{one}"}, version=1) for one in range(2)]
    assert await driver.send(Batch(export=export, make=make, items=items)) == []
    assert {one["Key"]["dynamoKey"]["S"] for one in asked} == {"org/a/0", "org/a/1"}
    assert len(asked) > len(items)
