"""Tables of DynamoDB through botocore, and what its errors mean for a sink.

Calls are made in threads of their own. Credentials are those of the environment or the machine's role.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypedDict

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)

from bot.core.errors import OotbotError
from bot.sinks.driver import SinkAway, SinkForbidden, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bot.sinks.dynamodb.options import DynamoOptions

AT_ONCE = 20  # calls in flight
PATIENCE = 10  # seconds until an answer begins
TRIES = 4
KEY = "dynamoKey"
FORBIDDEN = frozenset(
    {
        "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
        "MissingAuthenticationTokenException", "IncompleteSignatureException", "InvalidClientTokenId",
    }
)  # fmt: skip
MISSING, NEWER, IN_USE = (
    "ResourceNotFoundException",
    "ConditionalCheckFailedException",
    "ResourceInUseException",
)
REFUSED = frozenset(
    {"ValidationException", "SerializationException", "ItemCollectionSizeLimitExceededException", IN_USE}
)


class ItemRefused(OotbotError):
    """DynamoDB does not take this item, whenever it is tried."""


class NewerThere(OotbotError):
    """The item has a newer version."""


class TableMissing(Stopped):
    """There is no such table."""


class TableShape(TypedDict):
    """What makes a table."""

    TableName: str
    KeySchema: list[dict[str, str]]
    AttributeDefinitions: list[dict[str, str]]
    BillingMode: str


def shape_of(table: str) -> TableShape:
    """Return what makes a table with upstream's key."""
    return {
        "TableName": table,
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }


def command_for(table: str) -> str:
    """Return the command that makes a table."""
    return (
        f"aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST"
        f" --attribute-definitions AttributeName={KEY},AttributeType=S --key-schema AttributeName={KEY},KeyType=HASH"
    )


class DynamoClient:
    """The tables of a region."""

    def __init__(self, options: DynamoOptions) -> None:
        self._options = options
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="dynamodb")
        self._opened: Any = None
        self._opening = asyncio.Lock()

    async def call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """Call an operation by botocore's name."""
        async with self._opening:
            if self._opened is None:
                self._opened = await self._in_thread(self._open)
        method: Callable[..., Mapping[str, Any]] = getattr(self._opened, operation)

        def made() -> Mapping[str, Any]:
            try:
                return method(**arguments)
            except ClientError as error:
                raise _as_ours(error, arguments.get("TableName", "")) from None
            except (NoCredentialsError, PartialCredentialsError) as error:
                raise SinkForbidden(str(error)) from None
            except (BotoCoreError, OSError) as error:
                raise SinkAway(f"no answer: {type(error).__name__}") from None

        answer: Mapping[str, Any] = await self._in_thread(made)
        return answer

    async def make_table(self, table: str) -> None:
        """Make a table, and wait until it can be used."""
        try:
            await self.call("create_table", **shape_of(table))
        except ItemRefused as error:
            if IN_USE not in str(error):
                raise Stopped(str(error)) from None
        for _ in range(30):
            found = await self.call("describe_table", TableName=table)
            if found["Table"]["TableStatus"] == "ACTIVE":
                return
            await asyncio.sleep(1)
        raise SinkAway(f"{table} is being made")

    async def close(self) -> None:
        """Close the connections."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await self._in_thread(opened.close)
        self._threads.shutdown(wait=False)

    def _open(self) -> Any:
        return botocore.session.get_session().create_client(
            "dynamodb",
            region_name=self._options.region,
            endpoint_url=self._options.endpoint or None,
            config=Config(
                connect_timeout=PATIENCE,
                read_timeout=PATIENCE,
                max_pool_connections=AT_ONCE,
                retries={"mode": "adaptive", "total_max_attempts": TRIES},
                parameter_validation=False,  # a third of the time; what is sent is made by `item_values`
            ),
        )

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _as_ours(error: ClientError, table: str) -> Exception:
    found = error.response.get("Error", {})
    code, message = str(found.get("Code", "")), str(found.get("Message", ""))
    words = f"{code}: {message}".rstrip(": ")
    if code == NEWER:
        return NewerThere(words)
    if code == MISSING:
        return TableMissing(f"there is no table {table}: make it with `{command_for(table)}`")
    if code in FORBIDDEN:
        return SinkForbidden(words)
    return ItemRefused(words) if code in REFUSED else SinkAway(words)
