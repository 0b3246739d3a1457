"""Items of DynamoDB as they are written: never older than what is there, never too large, of values of JSON."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from bot.db.exports import Export, StoredItem
from bot.ingest.tables import records
from bot.sinks.driver import Batch, Outgoing, SinkForbidden
from bot.sinks.dynamodb import ITEM_MOST, DynamoDriver, as_attribute, fit_item, size_of
from bot.sinks.settings import parse_sinks
from tests.sinks.dynamo_tables import items


def driver_of(dynamo_sink):
    (sink,) = parse_sinks(json.dumps(dynamo_sink))
    return DynamoDriver(sink.options)


EXPORT = Export(name="x", table=records["workflow_job"], day="received_at")


async def write(driver, attributes, version, *, deleted=False, named="_version"):
    def make(_export, row):
        return [StoredItem(table="x", key="org/a/1", attributes=row, version=named)]

    item = Outgoing(key=(1, 1), row=attributes, deleted=deleted, version=version)
    return await driver.send(Batch(export=EXPORT, make=make, items=[item]))


async def test_what_comes_late_never_reverts_what_is_there(dynamo_sink, aws, prefix):
    driver = driver_of(dynamo_sink)
    try:
        await write(driver, {"status": "completed", "seconds": 1.5}, 20)
        await write(driver, {"status": "in_progress", "seconds": None}, 10)
        found = items(aws, f"{prefix}x")["org/a/1"]
        assert (found["status"], found["seconds"]) == ({"S": "completed"}, {"N": "1.5"})
        await write(
            driver, {"torchci_classification": {"rule": "pytest failure"}}, 5, named="_classification_version"
        )
        await write(driver, {"status": "completed", "note": None}, 30)
        found = items(aws, f"{prefix}x")["org/a/1"]
        assert found["torchci_classification"] == {"M": {"rule": {"S": "pytest failure"}}}, (
            "nothing erases it"
        )
        assert found["_version"] == {"N": "30"}
        await write(driver, {}, 25, deleted=True)
        assert "org/a/1" in items(aws, f"{prefix}x"), "an older deletion, too, comes too late"
        await write(driver, {}, 40, deleted=True)
        assert items(aws, f"{prefix}x") == {}
    finally:
        await driver.close()


async def test_an_item_that_is_too_large_lacks_what_is_largest(dynamo_sink, aws, prefix):
    driver = driver_of(dynamo_sink)
    try:
        steps = [{"name": "x" * 1000}] * 200
        row = {"id": 7, "body": "b" * 300_000, "steps": steps, "text": "ü" * 150_000, "name": "kept"}
        assert await write(driver, row, 1) == []
        found = items(aws, f"{prefix}x")["org/a/1"]
        assert found["_truncated"] == {"L": [{"S": "body"}, {"S": "steps"}]}
        assert (found["name"], len(found["text"]["S"])) == ({"S": "kept"}, 150_000)
        assert await write(driver, {"name": "kept"}, 2) == []
        assert "_truncated" not in items(aws, f"{prefix}x")["org/a/1"]
        (refused,) = await write(driver, {"blob": b"bytes"}, 3)
        assert refused.reason == "bytes is no value of JSON"
    finally:
        await driver.close()


async def test_without_credentials_the_sink_is_forbidden(dynamo_sink, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    driver = driver_of(dynamo_sink)
    try:
        with pytest.raises(SinkForbidden, match="credentials"):
            await driver.check_access()
    finally:
        await driver.close()


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (None, {"NULL": True}),
        (True, {"BOOL": True}),
        (12, {"N": "12"}),
        (0.1, {"N": "0.1"}),
        (1e-7, {"N": "0.0000001"}),
        (Decimal("1.50"), {"N": "1.50"}),
        (float("nan"), {"S": "nan"}),
        (float("inf"), {"S": "inf"}),
        (10**40 + 1, {"S": str(10**40 + 1)}),
        ("", {"S": ""}),
        ([1, "a"], {"L": [{"N": "1"}, {"S": "a"}]}),
        ({"a": {}}, {"M": {"a": {"M": {}}}}),
    ],
)
def test_values_keep_what_they_say(value, attribute):
    assert as_attribute(value) == attribute


def test_the_size_of_an_item_stays_below_the_limit():
    found = fit_item({f"column {number}": "x" * 50_000 for number in range(20)})
    assert sum(len(name) + size_of(value) for name, value in found.items()) < ITEM_MOST
    assert len(found["_truncated"]["L"]) == 12
