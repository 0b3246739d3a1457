"""The driver of DynamoDB: rows become items; an older row changes nothing.

botocore makes the calls, in threads of their own. Credentials come from the environment or the machine's role.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Context, Decimal, Inexact
from typing import TYPE_CHECKING, Any, TypedDict

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from bot.core.errors import OotbotError
from bot.sinks.driver import Difference, Refusal, SinkAway, SinkForbidden, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bot.db.exports import RowKey, StoredItem
    from bot.sinks.driver import Batch, Outgoing
    from bot.sinks.settings import DynamoOptions, SinkSettings

ITEM_MOST = 400 * 1024  # bytes, names and values together
RESERVE = 2 * 1024  # for the key, versions and the list of what was left out
NUMBER_DIGITS = 38  # of a number
TRUNCATED_FIRST = ("body", "diff_hunk", "steps")  # what is large and of least use; then the largest
TRUNCATED = "_truncated"
NUMBER_CONTEXT = Context(prec=NUMBER_DIGITS)

Attribute = dict[str, Any]
CALLS_AT_ONCE = 20  # calls in flight
PATIENCE = 10  # seconds until an answer begins
TRIES = 4
KEY = "dynamoKey"
FORBIDDEN_CODES = frozenset(
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
REFUSED_CODES = frozenset(
    {"ValidationException", "SerializationException", "ItemCollectionSizeLimitExceededException", IN_USE}
)
KEYS_AT_ONCE = 100  # of one call


class ItemRefused(OotbotError):
    """DynamoDB will never take this item."""


class NewerThere(OotbotError):
    """The item has a newer version."""


class TableMissing(Stopped):
    """There is no such table."""


class TableShape(TypedDict):
    """The parameters that create a table."""

    TableName: str
    KeySchema: list[dict[str, str]]
    AttributeDefinitions: list[dict[str, str]]
    BillingMode: str


def as_attribute(value: Any) -> Attribute:
    """Return a value in DynamoDB's notation; numbers beyond its range become texts, bytes are refused."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return {"S": value.isoformat().replace("+00:00", "Z")}
    return _of_several(value)


def fit_item(attributes: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return an item's attributes that are not null, as many as fit; `_truncated` names the others."""
    item = {name: as_attribute(value) for name, value in attributes.items() if value is not None}
    sizes = {name: len(name.encode()) + size_of(value) for name, value in item.items()}
    left = sum(sizes.values())
    truncated: list[str] = []
    candidates = [name for name in TRUNCATED_FIRST if name in sizes]
    candidates += sorted(sizes.keys() - set(candidates), key=lambda name: (-sizes[name], name))
    for name in candidates:
        if left <= ITEM_MOST - RESERVE:
            break
        left -= sizes[name]
        del item[name]
        truncated.append(name)
    if truncated:
        item[TRUNCATED] = as_attribute(truncated)
    return item


def size_of(attribute: Attribute) -> int:
    """Return an upper bound of the bytes that an attribute counts for."""
    ((kind, value),) = attribute.items()
    if kind == "S":
        return len(value.encode("utf-8", "surrogatepass"))
    if kind == "N":
        return len(value) // 2 + 3
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + size_of(inner) for name, inner in value.items())
    if kind == "L":
        return 3 + sum(1 + size_of(inner) for inner in value)
    return 1


def shape_of(table: str) -> TableShape:
    """Return the parameters that create a table with upstream's key."""
    return {
        "TableName": table,
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }


def command_for(table: str) -> str:
    """Return the command that creates a table."""
    return (
        f"aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST"
        f" --attribute-definitions AttributeName={KEY},AttributeType=S --key-schema AttributeName={KEY},KeyType=HASH"
    )


class DynamoClient:
    """The tables of a region."""

    def __init__(self, options: DynamoOptions) -> None:
        self._options = options
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="dynamodb")
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
                raise _as_sink_error(error, arguments.get("TableName", "")) from None
            except (NoCredentialsError, PartialCredentialsError) as error:
                raise SinkForbidden(str(error)) from None
            except (BotoCoreError, OSError) as error:
                raise SinkAway(f"no answer: {type(error).__name__}") from None

        answer: Mapping[str, Any] = await self._in_thread(made)
        return answer

    async def make_table(self, table: str) -> None:
        """Create a table, and wait until it can be used."""
        try:
            await self.call("create_table", **shape_of(table))
        except ItemRefused as error:
            if IN_USE not in str(error):
                raise Stopped(str(error)) from None
        for _ in range(30):
            described = await self.call("describe_table", TableName=table)
            if described["Table"]["TableStatus"] == "ACTIVE":
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
                max_pool_connections=CALLS_AT_ONCE,
                retries={"mode": "adaptive", "total_max_attempts": TRIES},
                parameter_validation=False,  # a third of the time; what is sent is made by `item_values`
            ),
        )

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class DynamoChecker:
    """Compares one export."""

    def __init__(self, client: DynamoClient, prefix: str, batch: Batch) -> None:
        self._client = client
        self._prefix = prefix
        self._export, self._make = batch.export, batch.make

    async def missing(self, items: Sequence[Outgoing]) -> set[RowKey]:
        """Return the rows whose item, or whose attributes of it, are missing."""
        wanted = [
            (item.key, stored) for item in items if item.row is not None for stored in self._items(item)
        ]
        keys: defaultdict[str, set[str]] = defaultdict(set)
        for _, stored in wanted:
            keys[stored.table].add(stored.key)
        there: dict[tuple[str, str], Mapping[str, Any]] = {}
        for table, some in keys.items():
            names = {stored.version for _, stored in wanted if stored.table == table}
            there |= await self._read(table, sorted(some), names)
        return {
            key for key, stored in wanted if stored.version not in there.get((stored.table, stored.key), {})
        }

    async def differing(self, items: Sequence[Outgoing]) -> list[Difference]:
        """Compare the attributes of a few."""
        differences = []
        for item in items:
            for expected in self._items(item):
                table = self._prefix + expected.table
                answer = await self._client.call(
                    "get_item", TableName=table, Key={KEY: {"S": expected.key}}, ConsistentRead=True
                )
                stored = answer.get("Item")
                if stored is None:
                    differences.append(Difference(key=item.key, words=f"{table} has no {expected.key}"))
                    continue
                names = [
                    name for name, value in fit_item(expected.attributes).items() if stored.get(name) != value
                ]
                if names:
                    words = f"{table} has another {', '.join(names)} of {expected.key}"
                    differences.append(Difference(key=item.key, words=words))
        return differences

    def _items(self, item: Outgoing) -> list[StoredItem]:
        made: list[StoredItem] = self._make(self._export, item.row)
        return made

    async def _read(
        self, table: str, keys: Sequence[str], versions: Iterable[str]
    ) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return the versions of items, by table and key."""
        names = {f"#{place}": name for place, name in enumerate([KEY, *sorted(versions)])}
        items: dict[tuple[str, str], Mapping[str, Any]] = {}
        for start in range(0, len(keys), KEYS_AT_ONCE):
            left: Mapping[str, Any] = {
                self._prefix + table: {
                    "Keys": [{KEY: {"S": key}} for key in keys[start : start + KEYS_AT_ONCE]],
                    "ProjectionExpression": ", ".join(names),
                    "ExpressionAttributeNames": names,
                    "ConsistentRead": True,
                }
            }
            while left:
                answer = await self._client.call("batch_get_item", RequestItems=left)
                for item in answer["Responses"].get(self._prefix + table, []):
                    items[table, item[KEY]["S"]] = item
                left = answer.get("UnprocessedKeys", {})
        return items


def open_dynamodb(settings: SinkSettings) -> DynamoDriver:
    """Return the driver of a sink."""
    return DynamoDriver(settings.options)


class DynamoDriver:
    """Writes rows as items."""

    def __init__(self, options: DynamoOptions) -> None:
        self._options = options
        self._client = DynamoClient(options)

    async def send(self, batch: Batch) -> Sequence[Refusal]:
        """Write a batch; returns the rows with a refused item."""
        refused: list[Refusal] = []
        left = iter([item for item in batch.items if item.row is not None])

        async def work() -> None:
            for item in left:
                try:
                    items: list[StoredItem] = batch.make(batch.export, item.row)
                    for stored in items:
                        await self._write(stored, item)
                except (ItemRefused, TypeError, ValueError) as error:
                    refused.append(Refusal(key=item.key, reason=str(error)))

        workers = [asyncio.create_task(work()) for _ in range(min(CALLS_AT_ONCE, len(batch.items)))]
        try:
            await asyncio.gather(*workers)
        finally:  # the first that fails ends all
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return refused

    def checker(self, batch: Batch) -> DynamoChecker:
        """Return what compares an export with its items."""
        return DynamoChecker(self._client, self._options.table_prefix, batch)

    async def check_access(self) -> None:
        """List the tables."""
        await self._client.call("list_tables", Limit=1)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _write(self, stored: StoredItem, item: Outgoing) -> None:
        table = self._options.table_prefix + stored.table
        operation = "delete_item" if item.deleted else "update_item"
        made = delete_of(stored, item.version) if item.deleted else update_of(stored, item.version)
        arguments = {**made, "TableName": table, "Key": {KEY: {"S": stored.key}}}
        try:
            await self._client.call(operation, **arguments)
        except NewerThere:
            return
        except TableMissing:
            if not self._options.create_tables:
                raise
            await self._client.make_table(table)
            await self._client.call(operation, **arguments)


def update_of(stored: StoredItem, version: int) -> Mapping[str, Any]:
    """Return the update that gives an item its attributes, unless it has newer ones."""
    values = fit_item({name: value for name, value in stored.attributes.items() if name != KEY})
    values[stored.version] = {"N": str(version)}
    names = {f"#{place}": name for place, name in enumerate(values)}
    changes = [f"#{place} = :{place}" for place in range(len(values))]
    place = len(values) - 1
    update = f"SET {', '.join(changes)}"
    if TRUNCATED not in values:
        update += " REMOVE #t"
        names["#t"] = TRUNCATED
    return {
        "UpdateExpression": update,
        "ConditionExpression": f"attribute_not_exists(#{place}) OR #{place} <= :{place}",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {f":{place}": value for place, value in enumerate(values.values())},
    }


def delete_of(stored: StoredItem, version: int) -> Mapping[str, Any]:
    """Return the condition for deleting an item: that it is not newer."""
    return {
        "ConditionExpression": "attribute_not_exists(#0) OR #0 <= :0",
        "ExpressionAttributeNames": {"#0": stored.version},
        "ExpressionAttributeValues": {":0": {"N": str(version)}},
    }


def _of_several(value: Any) -> Attribute:
    if isinstance(value, dict):
        return {"M": {str(name): as_attribute(inner) for name, inner in value.items()}}
    if isinstance(value, list | tuple):
        return {"L": [as_attribute(inner) for inner in value]}
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def _number(value: float | Decimal) -> Attribute:
    if isinstance(value, float) and not math.isfinite(value):
        return {"S": str(value)}
    number = NUMBER_CONTEXT.create_decimal(str(value))
    if NUMBER_CONTEXT.flags[Inexact]:
        NUMBER_CONTEXT.clear_flags()
        return {"S": str(value)}
    return {"N": format(number, "f") if abs(number.adjusted()) < NUMBER_DIGITS else str(number)}


def _as_sink_error(error: ClientError, table: str) -> Exception:
    problem = error.response.get("Error", {})
    code, message = str(problem.get("Code", "")), str(problem.get("Message", ""))
    words = f"{code}: {message}".rstrip(": ")
    if code == NEWER:
        return NewerThere(words)
    if code == MISSING:
        return TableMissing(f"there is no table {table}: make it with `{command_for(table)}`")
    if code in FORBIDDEN_CODES:
        return SinkForbidden(words)
    return ItemRefused(words) if code in REFUSED_CODES else SinkAway(words)
