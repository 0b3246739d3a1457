"""The options of sinks of kind `dynamodb`."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

REGION = re.compile("[a-z]{2}(-[a-z]+)+-[0-9]")
PREFIX = re.compile("[a-zA-Z0-9_.-]{0,100}")


class DynamoOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the tables are."""

    region: str
    endpoint: str = ""  # of others than Amazon
    table_prefix: str = "torchci-"
    create_tables: bool = False  # those that are missing, billed by request


def dynamo_layout(_options: DynamoOptions) -> str:
    """Return the layout that exports have shapes for."""
    return "dynamodb"


def dynamo_address(options: DynamoOptions) -> str:
    """Return where the items go."""
    return f"{options.endpoint or f'dynamodb.{options.region}'}/{options.table_prefix}*"


def find_problem(options: DynamoOptions) -> str:
    """Return what is wrong with these options, empty where nothing is."""
    if not REGION.fullmatch(options.region):
        return "region is no name such as us-east-1"
    if not PREFIX.fullmatch(options.table_prefix):
        return "table_prefix has other characters than letters, digits, _, - and ."
    try:
        parts = urlsplit(options.endpoint)
    except ValueError:
        return "endpoint is no address such as http://localhost:8000"
    if options.endpoint and (parts.scheme not in {"http", "https"} or not parts.hostname):
        return "endpoint is no address such as http://localhost:8000"
    if parts.username or parts.password or parts.query:
        return "endpoint must not hold credentials: the environment has them, under the names of Amazon's own tools"
    return ""
