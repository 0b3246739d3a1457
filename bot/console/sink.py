"""ootbot sink: how copies in other stores stand; compare, fill, pause, resume, begin again, retry, DDL."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import (
    change_database,
    config_option,
    features,
    load_settings,
    read_database,
    run_work,
)
from bot.console.upkeep import parse_moment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.sinks.administration import QueueStanding
    from bot.sinks.comparison import QueueComparison
    from bot.sinks.queues import ExportQueue
    from bot.sinks.tables import RefusedRow

REFUSED = 500  # rows that are listed
DAY = 86_400  # seconds

name_argument = click.argument("name")
what_option = click.option(
    "--what", help="Only this export, such as workflow_job, or group, such as records."
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")


def choose_queues(settings: Settings, name: str, what: str | None) -> list[ExportQueue]:
    """Return the chosen exports of a sink; exits with 2 if there are none."""
    from bot.sinks.queues import export_queues  # noqa: PLC0415 - the other commands start without SQLAlchemy

    all_queues = export_queues(settings, features())
    mine = [queue for queue in all_queues if queue.sink.name == name]
    if not mine:
        raise click.UsageError(
            f"no sink is called {name!r}{_known_queues({queue.sink.name for queue in all_queues})}"
        )
    chosen = [queue for queue in mine if what in {None, queue.what, queue.export.group}]
    if not chosen:
        raise click.UsageError(f"sink {name} has no {what!r}{_known_queues({queue.what for queue in mine})}")
    return chosen


def _known_queues(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    return f"; there are {listed}" if listed else ": docs/sinks.md says how to set one up"


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
    from bot.sinks.clickhouse_tables import ddl_of  # noqa: PLC0415 - the same
    from bot.sinks.settings import ClickhouseOptions  # noqa: PLC0415 - the same

    chosen = choose_queues(load_settings(config), name, what)
    options = chosen[0].sink.options
    if not isinstance(options, ClickhouseOptions):
        raise click.UsageError(f"sink {name} has no tables to be made with statements: it is no clickhouse")
    tables = [load(queue.shape.make)(queue.export).table for queue in chosen]
    for statement in dict.fromkeys(ddl for table in tables for ddl in ddl_of(table, options)):
        click.echo(f"{statement};")


@click.group()
def sink() -> None:
    """Look at the copies in other stores, and mend them. docs/sinks.md explains sinks."""


sink.add_command(print_ddl)


@sink.command("list")
@click.option("--refused", is_flag=True, help="The rows that sinks do not take, instead.")
@json_option
@config_option
def list_sinks(config: Path | None, *, refused: bool, as_json: bool) -> None:
    """Print how each export of each sink stands.

    \b
      ootbot sink list
      ootbot sink list --refused --json
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    if refused:
        _list_refused(settings, as_json=as_json)
        return
    from bot.sinks.administration import read_standings  # noqa: PLC0415 - the same
    from bot.sinks.queues import export_queues  # noqa: PLC0415 - the other commands start without SQLAlchemy

    known = export_queues(settings, features())
    if not known:
        click.echo("no sinks: docs/sinks.md says how to set one up", err=True)
        return

    async def work(tx: Transaction) -> list[QueueStanding]:
        return await read_standings(tx, settings)

    stored = {(standing.sink.name, standing.what): standing for standing in read_database(settings, work)}
    rows = [_row(queue, stored.get((queue.sink.name, queue.what))) for queue in known]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        told = [
            row["sink"],
            row["what"],
            row["status"],
            f"{row['waiting']:,} waiting",
            f"{row['sent']:,} sent",
        ]
        behind = [f"{row['lag_seconds']} s behind"] if row["waiting"] else []
        click.echo("  ".join([*told, *behind, row["attention"]]).rstrip())


@sink.command()
@name_argument
@what_option
@click.option(
    "--since", callback=parse_moment, help="Only rows since then: a duration such as 2d, or a date (UTC)."
)
@json_option
@config_option
def check(name: str, what: str | None, since: int | None, config: Path | None, *, as_json: bool) -> None:
    """Compare counts by day and the content of one row in a hundred; exits with 1 where something differs.

    \b
      ootbot sink check archive
      ootbot sink check archive --what deliveries --since 7d --json
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.app import make_context  # noqa: PLC0415 - see above
    from bot.sinks.comparison import compare_queue  # noqa: PLC0415 - see above

    settings = load_settings(config)
    chosen = choose_queues(settings, name, what)

    async def work() -> dict[str, QueueComparison]:
        compared = {}
        async with make_context(settings, features=features()) as context:
            for queue in chosen:
                report = _progress(queue.what) if not as_json else None
                compared[queue.what] = await compare_queue(context, queue, since=since or 0, report=report)
        return compared

    compared = run_work(work())
    if as_json:
        click.echo(
            json.dumps(
                {
                    "sink": name,
                    "exports": {export_name: _compared(value) for export_name, value in compared.items()},
                }
            )
        )
    else:
        _print_compared(compared)
    if not all(export.is_same for export in compared.values()):
        sys.exit(1)


@sink.command()
@name_argument
@what_option
@click.option(
    "--since", callback=parse_moment, help="Only rows since then: a duration such as 2d, or a date (UTC)."
)
@config_option
def backfill(name: str, what: str | None, since: int | None, config: Path | None) -> None:
    """Mark what is stored as to be sent, once more where the sink has it; a running server sends it.

    \b
      ootbot sink backfill archive
      ootbot sink backfill archive --what records --since 2026-01-31
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.app import make_context  # noqa: PLC0415 - see above
    from bot.sinks import backfill, queue_rows  # noqa: PLC0415 - see above

    settings = load_settings(config)
    chosen = choose_queues(settings, name, what)

    async def work() -> int:
        total = 0
        async with make_context(settings, features=features()) as context:
            for queue in chosen:
                async with context.store.transaction() as tx:
                    await queue_rows.add_new_states(tx, [queue])
                    await queue_rows.begin_backfill(tx, queue.sink.name, queue.what, since or 0)
                total += await backfill.backfill_queue(context.store, queue, _progress(queue.what))
        return total

    click.echo(f"{run_work(work()):,} rows are to be sent to {name}")


@sink.command()
@name_argument
@what_option
@config_option
def pause(name: str, what: str | None, config: Path | None) -> None:
    """Send nothing more; what changes is marked and waits.

    \b
      ootbot sink pause archive
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.sinks import queue_rows  # noqa: PLC0415 - see above

    count = _change(name, what, config, queue_rows.pause_queue)
    click.echo(f"{name}: {count} paused; `ootbot sink resume {name}` sends what waits")


@sink.command()
@name_argument
@what_option
@config_option
def resume(name: str, what: str | None, config: Path | None) -> None:
    """Send again what waits, at once: after `pause`, or once the reason why it was stopped is mended.

    \b
      ootbot sink resume archive --what workflow_job
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.sinks import queue_rows  # noqa: PLC0415 - see above

    click.echo(f"{name}: {_change(name, what, config, queue_rows.resume_queue, wake=True)} resumed")


@sink.command()
@name_argument
@what_option
@config_option
def reset(name: str, what: str | None, config: Path | None) -> None:
    """Forget what waits, what was refused and what was sent, as if the sink were new; it is left as it is.

    \b
      ootbot sink reset archive && ootbot sink backfill archive
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.sinks import (  # noqa: PLC0415
        changes,
        queue_rows,
    )

    async def forget(tx: Transaction, sink: str, what: str) -> None:
        await changes.remove_changes(tx, sink, what)
        await queue_rows.remove_refused(tx, sink, what)
        await queue_rows.remove_state(tx, sink, what)

    count = _change(name, what, config, forget)
    click.echo(f"{name}: {count} reset; `ootbot sink backfill {name}` has all sent that is stored")


@sink.command()
@name_argument
@what_option
@click.option("--key", help="The key of one row, as `ootbot sink list --refused` prints it.")
@click.option("--all", "everything", is_flag=True, help="Every row that was refused, instead of one.")
@config_option
def retry(name: str, what: str | None, key: str | None, config: Path | None, *, everything: bool) -> None:
    """Send rows again that were refused.

    \b
      ootbot sink retry archive --key '[1,42]'
      ootbot sink retry archive --all
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.sinks import (  # noqa: PLC0415
        changes,
        queue_rows,
    )
    from bot.sinks.changes import SEND_TASK  # noqa: PLC0415 - see above

    if (key is None) is not everything:
        raise click.UsageError("give one of --key and --all")
    settings = load_settings(config)
    wanted = {queue.what: queue for queue in choose_queues(settings, name, what)}

    async def work(tx: Transaction) -> int:
        refused = await queue_rows.list_refused(tx, sink=name, key=key, limit=1_000_000)
        mine = [row for row in refused if row["what"] in wanted]
        await changes.note_changes(tx, [(name, row["what"], row["key"]) for row in mine])
        for row in mine:
            tx.enqueue(SEND_TASK, wanted[row["what"]].task_key)
        return len(mine)

    count = change_database(settings, work)
    if not count:
        click.echo(f"ootbot: no such row was refused by {name}: see `ootbot sink list --refused`", err=True)
        sys.exit(1)
    click.echo(f"{name}: {count:,} sent again")


def _row(queue: ExportQueue, standing: QueueStanding | None) -> dict[str, Any]:
    key = {"sink": queue.sink.name, "what": queue.what, "address": queue.sink.address}
    if standing is None:
        return key | {
            "status": "new",
            "waiting": 0,
            "lag_seconds": 0,
            "sent": 0,
            "refused": 0,
            "attention": "",
        }
    return key | {
        "status": standing.status,
        "waiting": standing.waiting,
        "lag_seconds": standing.lag,
        "sent": standing.state["sent"],
        "refused": standing.refused,
        "attention": standing.words,
    }


def _list_refused(settings: Settings, *, as_json: bool) -> None:
    from bot.sinks import queue_rows  # noqa: PLC0415 - see above

    async def work(tx: Transaction) -> list[RefusedRow]:
        return await queue_rows.list_refused(tx, limit=REFUSED)

    rows = read_database(settings, work)
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        click.echo("no row was refused", err=True)
    for row in rows:
        click.echo(f"{row['sink']}  {row['what']}  {row['key']}  {row['error']}")


def _compared(compared: QueueComparison) -> dict[str, Any]:
    days = [
        {"day": _date(day), "rows": rows, "missing": compared.missing[day]}
        for day, rows in sorted(compared.expected.items())
    ]
    listed = [{"key": key, "reason": words} for key, words in compared.differences]
    return {
        "same": compared.is_same,
        "rows": compared.expected.total(),
        "missing": compared.missing.total(),
        "waiting": compared.waiting,
        "compared": compared.sampled,
        "days": days,
        "differences": listed,
    }


def _print_compared(by_export: dict[str, QueueComparison]) -> None:
    for what, compared in by_export.items():
        total, missing = compared.expected.total(), compared.missing.total()
        waiting = f", {compared.waiting:,} of them wait" if compared.waiting else ""
        click.echo(f"{what}: {total:,} rows, {missing:,} missing{waiting}; {compared.sampled:,} compared")
        for day, count in sorted(compared.missing.items()):
            click.echo(f"  {_date(day)}: {count:,} of {compared.expected[day]:,} missing")
        for key, words in compared.differences:
            click.echo(f"  {key}: {words}")


def _date(day: int) -> str:
    from datetime import (  # noqa: PLC0415
        UTC,
        datetime,
    )

    return f"{datetime.fromtimestamp(day * DAY, UTC):%Y-%m-%d}"


def _change(
    name: str,
    what: str | None,
    config: Path | None,
    act: Callable[[Transaction, str, str], Awaitable[None]],
    *,
    wake: bool = False,
) -> int:
    """Change the queues of a sink's exports; returns how many."""
    from bot.sinks import queue_rows  # noqa: PLC0415 - see above
    from bot.sinks.changes import SEND_TASK  # noqa: PLC0415 - see above

    settings = load_settings(config)
    chosen = choose_queues(settings, name, what)

    async def work(tx: Transaction) -> int:
        await queue_rows.add_new_states(tx, chosen)
        for queue in chosen:
            await act(tx, queue.sink.name, queue.what)
            if wake:
                tx.enqueue(SEND_TASK, queue.task_key)
        return len(chosen)

    return change_database(settings, work)


def _progress(what: str) -> Callable[[int], None]:
    return lambda count: click.echo(f"{what}: {count:,} rows", err=True)
