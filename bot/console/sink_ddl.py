"""ootbot sink ddl: the statements that make the tables of a sink in ClickHouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bot.console.chosen_lanes import choose_lanes
from bot.console.common import config_option, load_settings

if TYPE_CHECKING:
    from pathlib import Path


@click.command("ddl")
@click.argument("name")
@click.option("--what", help="Only of this export, such as workflow_job, or group, such as records.")
@config_option
def print_ddl(name: str, what: str | None, config: Path | None) -> None:
    """Print the statements that make the tables of a sink of kind clickhouse.

    With `manage_schema` the bot runs them itself. Tables under upstream's names have the columns that are written.

    \b
      ootbot sink ddl ch
      ootbot sink ddl ch --what workflow_job | clickhouse client --multiquery
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.core.feature import load  # noqa: PLC0415 - the other commands start without it
    from bot.sinks.clickhouse.options import ClickhouseOptions  # noqa: PLC0415 - the same
    from bot.sinks.clickhouse.table_schema import ddl_of  # noqa: PLC0415 - the same

    chosen = choose_lanes(load_settings(config), name, what)
    options = chosen[0].sink.options
    if not isinstance(options, ClickhouseOptions):
        raise click.UsageError(f"sink {name} has no tables to be made with statements: it is no clickhouse")
    tables = [load(lane.shape.make)(lane.export).table for lane in chosen]
    for statement in dict.fromkeys(one for table in tables for one in ddl_of(table, options)):
        click.echo(f"{statement};")
