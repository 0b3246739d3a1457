"""ootbot sink: how copies in other stores stand; compare, fill, pause, resume, begin again, retry."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from bot.console.chosen_lanes import choose_lanes
from bot.console.common import config_option, features, load_settings, run_work
from bot.console.database import change_database, read_database
from bot.console.replay import moment
from bot.console.sink_ddl import print_ddl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.sinks.compare import Compared
    from bot.sinks.lanes import Lane
    from bot.sinks.standing import Standing
    from bot.sinks.tables import RefusedRow

REFUSED = 500  # rows that are listed
DAY = 86_400  # seconds

name_argument = click.argument("name")
what_option = click.option(
    "--what", help="Only this export, such as workflow_job, or group, such as records."
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")


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
    from bot.sinks.lanes import lanes  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.sinks.standing import read_standings  # noqa: PLC0415 - the same

    found = lanes(settings, features())
    if not found:
        click.echo("no sinks: docs/sinks.md says how to set one up", err=True)
        return

    async def work(tx: Transaction) -> list[Standing]:
        return await read_standings(tx, settings)

    stored = {(one.sink.name, one.what): one for one in read_database(settings, work)}
    rows = [_row(lane, stored.get((lane.sink.name, lane.what))) for lane in found]
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


def _row(lane: Lane, found: Standing | None) -> dict[str, Any]:
    key = {"sink": lane.sink.name, "what": lane.what, "address": lane.sink.address}
    if found is None:
        return key | {
            "status": "new",
            "waiting": 0,
            "lag_seconds": 0,
            "sent": 0,
            "refused": 0,
            "attention": "",
        }
    return key | {
        "status": found.status,
        "waiting": found.waiting,
        "lag_seconds": found.lag,
        "sent": found.state["sent"],
        "refused": found.refused,
        "attention": found.words,
    }


def _list_refused(settings: Settings, *, as_json: bool) -> None:
    from bot.sinks.store import refused_rows  # noqa: PLC0415 - see above

    async def work(tx: Transaction) -> list[RefusedRow]:
        return await refused_rows.list_refused(tx, limit=REFUSED)

    rows = read_database(settings, work)
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        click.echo("no row was refused", err=True)
    for row in rows:
        click.echo(f"{row['sink']}  {row['what']}  {row['key']}  {row['error']}")


@sink.command()
@name_argument
@what_option
@click.option(
    "--since", callback=moment, help="Only rows since then: a duration such as 2d, or a date (UTC)."
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
    from bot.sinks.compare import compare_lane  # noqa: PLC0415 - see above

    settings = load_settings(config)
    chosen = choose_lanes(settings, name, what)

    async def work() -> dict[str, Compared]:
        found = {}
        async with make_context(settings, features=features()) as context:
            for lane in chosen:
                report = _progress(lane.what) if not as_json else None
                found[lane.what] = await compare_lane(context, lane, since=since or 0, report=report)
        return found

    found = run_work(work())
    if as_json:
        click.echo(
            json.dumps({"sink": name, "exports": {one: _compared(value) for one, value in found.items()}})
        )
    else:
        _print_compared(found)
    if not all(one.is_same for one in found.values()):
        sys.exit(1)


def _compared(found: Compared) -> dict[str, Any]:
    days = [
        {"day": _date(day), "rows": rows, "missing": found.missing[day]}
        for day, rows in sorted(found.expected.items())
    ]
    listed = [{"key": key, "reason": words} for key, words in found.differences]
    return {
        "same": found.is_same,
        "rows": found.expected.total(),
        "missing": found.missing.total(),
        "waiting": found.waiting,
        "compared": found.sampled,
        "days": days,
        "differences": listed,
    }


def _print_compared(found: dict[str, Compared]) -> None:
    for what, one in found.items():
        total, missing = one.expected.total(), one.missing.total()
        waiting = f", {one.waiting:,} of them wait" if one.waiting else ""
        click.echo(f"{what}: {total:,} rows, {missing:,} missing{waiting}; {one.sampled:,} compared")
        for day, count in sorted(one.missing.items()):
            click.echo(f"  {_date(day)}: {count:,} of {one.expected[day]:,} missing")
        for key, words in one.differences:
            click.echo(f"  {key}: {words}")


def _date(day: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415 - see above

    return f"{datetime.fromtimestamp(day * DAY, UTC):%Y-%m-%d}"


@sink.command()
@name_argument
@what_option
@click.option(
    "--since", callback=moment, help="Only rows since then: a duration such as 2d, or a date (UTC)."
)
@config_option
def backfill(name: str, what: str | None, since: int | None, config: Path | None) -> None:
    """Mark what is stored as to be sent, once more where the sink has it; a running server sends it.

    \b
      ootbot sink backfill archive
      ootbot sink backfill archive --what records --since 2026-01-31
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.app import make_context  # noqa: PLC0415 - see above
    from bot.sinks import fill_marks  # noqa: PLC0415 - see above
    from bot.sinks.store import states  # noqa: PLC0415 - see above

    settings = load_settings(config)
    chosen = choose_lanes(settings, name, what)

    async def work() -> int:
        total = 0
        async with make_context(settings, features=features()) as context:
            for lane in chosen:
                async with context.store.transaction() as tx:
                    await states.add_new(tx, [lane])
                    await states.begin_filling(tx, lane.sink.name, lane.what, since or 0)
                total += await fill_marks.fill_lane(context.store, lane, _progress(lane.what))
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
    from bot.sinks.store import states  # noqa: PLC0415 - see above

    count = _change(name, what, config, states.pause)
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
    from bot.sinks.store import states  # noqa: PLC0415 - see above

    click.echo(f"{name}: {_change(name, what, config, states.resume, wake=True)} resumed")


@sink.command()
@name_argument
@what_option
@config_option
def reset(name: str, what: str | None, config: Path | None) -> None:
    """Forget what waits, what was refused and what was sent, as if the sink were new; it is left as it is.

    \b
      ootbot sink reset archive && ootbot sink backfill archive
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.sinks.store import marks, refused_rows, states  # noqa: PLC0415 - see above

    async def forget(tx: Transaction, sink: str, what: str) -> None:
        await marks.remove_lane(tx, sink, what)
        await refused_rows.remove_lane(tx, sink, what)
        await states.remove(tx, sink, what)

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
    from bot.sinks.marking import SEND  # noqa: PLC0415 - see above
    from bot.sinks.store import marks, refused_rows  # noqa: PLC0415 - see above

    if (key is None) is not everything:
        raise click.UsageError("give one of --key and --all")
    settings = load_settings(config)
    wanted = {lane.what: lane for lane in choose_lanes(settings, name, what)}

    async def work(tx: Transaction) -> int:
        found = await refused_rows.list_refused(tx, sink=name, key=key, limit=1_000_000)
        mine = [row for row in found if row["what"] in wanted]
        await marks.raise_marks(tx, [(name, row["what"], row["key"]) for row in mine])
        for row in mine:
            tx.enqueue(SEND, wanted[row["what"]].task_key)
        return len(mine)

    count = change_database(settings, work)
    if not count:
        click.echo(f"ootbot: no such row was refused by {name}: see `ootbot sink list --refused`", err=True)
        sys.exit(1)
    click.echo(f"{name}: {count:,} sent again")


def _change(
    name: str,
    what: str | None,
    config: Path | None,
    act: Callable[[Transaction, str, str], Awaitable[None]],
    *,
    wake: bool = False,
) -> int:
    """Do something to the exports of a sink; returns to how many."""
    from bot.sinks.marking import SEND  # noqa: PLC0415 - see above
    from bot.sinks.store import states  # noqa: PLC0415 - see above

    settings = load_settings(config)
    chosen = choose_lanes(settings, name, what)

    async def work(tx: Transaction) -> int:
        await states.add_new(tx, chosen)
        for lane in chosen:
            await act(tx, lane.sink.name, lane.what)
            if wake:
                tx.enqueue(SEND, lane.task_key)
        return len(chosen)

    return change_database(settings, work)


def _progress(what: str) -> Callable[[int], None]:
    return lambda count: click.echo(f"{what}: {count:,} rows", err=True)
