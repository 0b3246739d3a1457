"""DynamoDB as moto has it, and Amazon's own client to look at what is there."""

from __future__ import annotations

import secrets

import botocore.session
import pytest

from tests.evidence.collect import bucket


@pytest.fixture(scope="module")
def dynamo():
    with bucket.serving() as variables:
        yield variables


@pytest.fixture
def prefix():
    return f"ci{secrets.token_hex(3)}-"


@pytest.fixture
def dynamo_sink(request, dynamo, prefix, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, dynamo[name])
    table = {
        "kind": "dynamodb", "region": "us-east-1", "endpoint": dynamo["AWS_ENDPOINT_URL"], "table_prefix": prefix,
        "what": ["records", "oot_workflow_job"], "create_tables": True, "batch_seconds": 1,
    }  # fmt: skip
    return {"dynamo": table | getattr(request, "param", {})}


@pytest.fixture
def aws(dynamo_sink):
    """Amazon's own client."""
    endpoint = dynamo_sink["dynamo"]["endpoint"]
    client = botocore.session.get_session().create_client(
        "dynamodb", region_name="us-east-1", endpoint_url=endpoint
    )
    yield client
    client.close()


def items(aws, table):
    found = aws.scan(TableName=table)["Items"]
    return {item["dynamoKey"]["S"]: item for item in found}
