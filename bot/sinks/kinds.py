"""The kinds of sinks: their options, their drivers, and the packages that these need."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.sinks.clickhouse import options as clickhouse
from bot.sinks.dynamodb import options as dynamodb
from bot.sinks.objects import options as objects

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of sink. Settings go to other processes: its functions are found by their names there."""

    options: type[Any]  # a struct
    layout: Callable[[Any], str]  # by its options: which of an export's shapes it writes
    find_problem: Callable[[Any], str]  # what is wrong with its options, in words; empty: nothing
    shown_as: Callable[[Any], str]  # its address for pages and logs; options hold no credentials
    driver: str  # a `bot.sinks.driver.OpenDriver`
    package: str  # what its driver imports,
    extra: str  # and the extra it comes with

    @property
    def is_installed(self) -> bool:
        """Whether the packages of its driver are there."""
        return importlib.util.find_spec(self.package) is not None


KINDS = {
    "objects": Kind(
        options=objects.ObjectOptions,
        layout=objects.object_layout,
        find_problem=objects.find_problem,
        shown_as=objects.object_address,
        driver="bot.sinks.objects.object_driver:open_objects",
        package="obstore",
        extra="s3",
    ),
    "clickhouse": Kind(
        options=clickhouse.ClickhouseOptions,
        layout=clickhouse.clickhouse_layout,
        find_problem=clickhouse.find_problem,
        shown_as=clickhouse.clickhouse_address,
        driver="bot.sinks.clickhouse.clickhouse_driver:open_clickhouse",
        package="clickhouse_connect",
        extra="clickhouse",
    ),
    "dynamodb": Kind(
        options=dynamodb.DynamoOptions,
        layout=dynamodb.dynamo_layout,
        find_problem=dynamodb.find_problem,
        shown_as=dynamodb.dynamo_address,
        driver="bot.sinks.dynamodb.dynamo_driver:open_dynamodb",
        package="botocore",
        extra="dynamodb",
    ),
}
