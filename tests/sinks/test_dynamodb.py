"""Items of DynamoDB, as moto has it: GitHub's objects under upstream's keys, never older than what is there."""

from __future__ import annotations

import pytest

from bot.sinks.dynamodb.dynamo_client import DynamoClient
from bot.sinks.dynamodb.options import DynamoOptions
from tests.ci.collect import bucket
from tests.harness import UPSTREAM
from tests.oot.reports.reporting import reported  # noqa: F401
from tests.serving import SQLITE

pytestmark = SQLITE


@pytest.fixture(scope="module")
def server():
    with bucket.serving() as variables:
        yield variables


@pytest.fixture
def tables(request, server, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, server[name])
    options = {"create_tables": True} | getattr(request, "param", {})
    what = ["records", "oot_workflow_job", "verdicts"]
    endpoint = server["AWS_ENDPOINT_URL"]
    return {"dynamo": {"kind": "dynamodb", "region": "us-east-1", "endpoint": endpoint, "what": what} | options}
