"""The driver of DynamoDB: rows become items, and what is older than what is there changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bot.sinks.driver import Refusal
from bot.sinks.dynamodb.dynamo_checker import DynamoChecker
from bot.sinks.dynamodb.dynamo_client import (
    AT_ONCE,
    KEY,
    DynamoClient,
    ItemRefused,
    NewerThere,
    TableMissing,
)
from bot.sinks.dynamodb.item_values import TRUNCATED, fit_item

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.stored_items import StoredItem
    from bot.sinks.driver import Batch, Outgoing
    from bot.sinks.dynamodb.options import DynamoOptions
    from bot.sinks.settings import SinkSettings


def open_dynamodb(settings: SinkSettings) -> DynamoDriver:
    """Return the driver of a sink."""
    return DynamoDriver(settings.options)


class DynamoDriver:
    """Writes rows as items."""

    def __init__(self, options: DynamoOptions) -> None:
        self._options = options
        self._client = DynamoClient(options)

    async def send(self, batch: Batch) -> Sequence[Refusal]:
        """Write a batch; returns the rows of which an item is refused."""
        refused: list[Refusal] = []
        left = iter([item for item in batch.items if item.row is not None])

        async def work() -> None:
            for item in left:
                try:
                    items: list[StoredItem] = batch.make(batch.export, item.row)
                    for one in items:
                        await self._write(one, item)
                except (ItemRefused, TypeError, ValueError) as error:
                    refused.append(Refusal(key=item.key, reason=str(error)))

        workers = [asyncio.create_task(work()) for _ in range(min(AT_ONCE, len(batch.items)))]
        try:
            await asyncio.gather(*workers)
        finally:  # the first that fails ends all
            for one in workers:
                one.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return refused

    def checker(self, batch: Batch) -> DynamoChecker:
        """Return what compares an export with its items."""
        return DynamoChecker(self._client, self._options.table_prefix, batch)

    async def check_access(self) -> None:
        """Ask for the tables."""
        await self._client.call("list_tables", Limit=1)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _write(self, one: StoredItem, item: Outgoing) -> None:
        table = self._options.table_prefix + one.table
        operation = "delete_item" if item.deleted else "update_item"
        made = delete_of(one, item.version) if item.deleted else update_of(one, item.version)
        arguments = {**made, "TableName": table, "Key": {KEY: {"S": one.key}}}
        try:
            await self._client.call(operation, **arguments)
        except NewerThere:
            return
        except TableMissing:
            if not self._options.create_tables:
                raise
            await self._client.make_table(table)
            await self._client.call(operation, **arguments)


def update_of(one: StoredItem, version: int) -> Mapping[str, Any]:
    """Return the update that gives an item its attributes, unless it has newer ones."""
    values = fit_item({name: value for name, value in one.attributes.items() if name != KEY})
    values[one.version] = {"N": str(version)}
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


def delete_of(one: StoredItem, version: int) -> Mapping[str, Any]:
    """Return the condition on which an item is deleted: that it is not newer."""
    return {
        "ConditionExpression": "attribute_not_exists(#0) OR #0 <= :0",
        "ExpressionAttributeNames": {"#0": one.version},
        "ExpressionAttributeValues": {":0": {"N": str(version)}},
    }
