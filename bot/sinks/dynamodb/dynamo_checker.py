"""Compares what is stored here with the items of tables."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bot.sinks.driver import Difference
from bot.sinks.dynamodb.dynamo_client import KEY
from bot.sinks.dynamodb.item_values import fit_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.core.stored_items import StoredItem
    from bot.db.exports import Key
    from bot.sinks.driver import Batch, Outgoing
    from bot.sinks.dynamodb.dynamo_client import DynamoClient

KEYS_AT_ONCE = 100  # of one call


class DynamoChecker:
    """Compares one export."""

    def __init__(self, client: DynamoClient, prefix: str, batch: Batch) -> None:
        self._client = client
        self._prefix = prefix
        self._export, self._make = batch.export, batch.make

    async def missing(self, items: Sequence[Outgoing]) -> set[Key]:
        """Return which rows lack an item, or the attributes that they give it."""
        wanted = [(item.key, one) for item in items if item.row is not None for one in self._items(item)]
        keys: defaultdict[str, set[str]] = defaultdict(set)
        for _, one in wanted:
            keys[one.table].add(one.key)
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for table, some in keys.items():
            names = {one.version for _, one in wanted if one.table == table}
            found |= await self._read(table, sorted(some), names)
        return {key for key, one in wanted if one.version not in found.get((one.table, one.key), {})}

    async def differing(self, items: Sequence[Outgoing]) -> list[Difference]:
        """Compare the attributes of a few."""
        found = []
        for item in items:
            for one in self._items(item):
                table = self._prefix + one.table
                answer = await self._client.call(
                    "get_item", TableName=table, Key={KEY: {"S": one.key}}, ConsistentRead=True
                )
                stored = answer.get("Item")
                if stored is None:
                    found.append(Difference(key=item.key, words=f"{table} has no {one.key}"))
                    continue
                names = [
                    name for name, value in fit_item(one.attributes).items() if stored.get(name) != value
                ]
                if names:
                    words = f"{table} has another {', '.join(names)} of {one.key}"
                    found.append(Difference(key=item.key, words=words))
        return found

    def _items(self, item: Outgoing) -> list[StoredItem]:
        made: list[StoredItem] = self._make(self._export, item.row)
        return made

    async def _read(
        self, table: str, keys: Sequence[str], versions: Iterable[str]
    ) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return the versions of items, by table and key."""
        names = {f"#{place}": name for place, name in enumerate([KEY, *sorted(versions)])}
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
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
                for one in answer["Responses"].get(self._prefix + table, []):
                    found[table, one[KEY]["S"]] = one
                left = answer.get("UnprocessedKeys", {})
        return found
