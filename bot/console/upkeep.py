"""ootbot tasks, backup, redeliver and replay: look after what the bot has stored and what it missed."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.console.common import (
    change_database,
    config_option,
    features,
    load_settings,
    read_database,
    run_work,
)
from bot.core.clock import SystemClock
from bot.core.errors import Misconfigured, StoreUnavailable
from bot.core.json_fields import as_time
from bot.core.setting_types import duration
from bot.sinks.settings import SINK_KINDS, ObjectOptions, find_object_problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Applier
    from bot.ingest.retention import Selection
    from bot.ingest.tables import DeliveryRow
    from bot.queue.tasks import TaskRow

TASK_STATES = ("waiting", "running", "done", "dead")  # those of bot.ops.tasks
LONGEST_REASON = 100  # characters of a reason in a line
BACKUP_HELP = """Copy the database to a new FILE while the bot runs.

\b
SQLite: a database file, put back by copying it to DATA_DIR/ootbot.db. PostgreSQL: an archive of pg_dump, put back
with pg_restore. The copy is checked before it gets its name; a file that is there is never replaced.
With --blobs, logs and other large files are copied as well, after the database; those that are in the FOLDER already
are not copied again, and nothing is deleted there. docs/operations.md says how to restore.
\b
  ootbot backup /backup/ootbot-$(date +%F).db
  ootbot backup /backup/ootbot-$(date +%F).db --blobs /backup/blobs
"""
REDELIVER_HELP = """Ask GitHub for the deliveries its log holds and this bot never stored.

\b
The running bot does so every ten minutes by itself; this is for looking, or for going back further.
\b
  ootbot redeliver --dry-run
  ootbot redeliver --since 3d
"""
REPLAY_BATCH = 100  # deliveries in one transaction
REPLAY_PAUSE = 0.05  # seconds between two: a running server writes to the same database
MOST_TRIES = 10  # of a batch while the database is busy
REPLAY_HELP = """Rebuild the record tables from the deliveries still held.

\b
Nothing is sent to GitHub, no row is deleted, results and dispatches are left alone; what was parked and can be read
now counts as handled. It may run beside the server, and again: a second run changes nothing.
\b
  ootbot replay --all
  ootbot replay --since 2d --event workflow_job
  ootbot replay --since 2026-01-31 --repo example-org/project --dry-run
\b
From the archive that a sink of layout raw wrote, into an empty database or one that has some of it:
\b
  ootbot replay --from-objects s3://ci-raw/ootbot
"""


@click.group()
def tasks() -> None:
    """Look at the queue, and have tasks run again. The same as /api/admin/tasks, where the database can be reached."""


@tasks.command("list")
@click.option("--state", type=click.Choice(TASK_STATES), help="Only tasks in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many, newest first."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON list on standard output.")
@config_option
def list_tasks(state: str | None, limit: int, config: Path | None, *, as_json: bool) -> None:
    """Print tasks, newest first: id, state, kind, key, attempts, and why it failed last.

    \b
      ootbot tasks list --state dead
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.ops import tasks as admin_tasks  # noqa: PLC0415 - the other commands start without SQLAlchemy

    async def work(tx: Transaction) -> list[TaskRow]:
        return await admin_tasks.list_tasks(tx, state=state, before=None, limit=limit)

    rows = read_database(load_settings(config), work)
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        click.echo(f"no task is {state}" if state else "no tasks", err=True)
    for row in rows:
        why = " ".join((row["error"] or "").split())[:LONGEST_REASON]
        words = [str(row["id"]), row["state"], row["kind"], row["key"], f"{row['attempts']} attempts", why]
        click.echo("  ".join(words).rstrip())


def choose_tasks(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose one task by ID, or all dead ones."""
    identifier_argument = click.argument("identifier", metavar="[ID]", type=click.IntRange(1), required=False)
    everyone = click.option("--all-dead", is_flag=True, help="Every task that was given up, instead of one.")
    return identifier_argument(everyone(config_option(command)))


@tasks.command()
@choose_tasks
def retry(identifier: int | None, config: Path | None, *, all_dead: bool) -> None:
    """Have the dead or waiting task with this ID run now; a running server takes it within a second.

    \b
      ootbot tasks retry 17
      ootbot tasks retry --all-dead
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.ops import tasks as admin_tasks  # noqa: PLC0415 - the other commands start without SQLAlchemy

    each = _TaskChange(act=admin_tasks.retry_tasks, states=admin_tasks.RETRYABLE, outcome="runs again")
    each.do(identifier, load_settings(config), all_dead=all_dead)


@tasks.command()
@choose_tasks
def dismiss(identifier: int | None, config: Path | None, *, all_dead: bool) -> None:
    """Count the dead task with this ID as done: it cannot be, or need not be any more.

    \b
      ootbot tasks dismiss 17
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.ops import tasks as admin_tasks  # noqa: PLC0415 - the other commands start without SQLAlchemy

    each = _TaskChange(act=admin_tasks.dismiss_tasks, states=("dead",), outcome="is dismissed")
    each.do(identifier, load_settings(config), all_dead=all_dead)


@click.command(help=BACKUP_HELP)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--blobs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Copy the folder of logs and other large files, too.",
)
@config_option
def backup(file: Path, blobs: Path | None, config: Path | None) -> None:
    """Copy the database, and the blobs if asked to."""
    run_work(_backup(load_settings(config), file, blobs))


def parse_span(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Read a duration such as `3d` into seconds, or fail with how to write one."""
    try:
        return duration(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(help=REDELIVER_HELP)
@click.option(
    "--since", callback=parse_span, help="How far back to look; default: to where the last sweep began."
)
@click.option("--dry-run", is_flag=True, help="Only list what is missing.")
@config_option
def redeliver(since: int | None, config: Path | None, *, dry_run: bool) -> None:
    """Sweep the delivery log."""
    run_work(_sweep(load_settings(config), since, dry_run=dry_run))


def parse_moment(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Read a duration back from now, or a date and time in ISO 8601, into epoch milliseconds."""
    if not value:
        return None
    at = as_time(value)
    if at is not None:
        return at
    try:
        return SystemClock().now() - round(duration(value) * 1000)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither a duration such as 2d nor a date such as 2026-01-31"
        ) from None


@click.command(help=REPLAY_HELP)
@click.option("--all", "everything", is_flag=True, help="Every delivery still held.")
@click.option("--since", callback=parse_moment, help="Only deliveries received since then; dates are UTC.")
@click.option("--event", help="Only this event, such as workflow_job.")
@click.option("--repo", help="Only this repository, owner/name.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option(
    "--from-objects", "archive", metavar="URL", help="The archive of a sink, instead of our database."
)
@config_option
def replay(
    since: int | None,
    event: str | None,
    repo: str | None,
    archive: str | None,
    config: Path | None,
    *,
    everything: bool,
    dry_run: bool,
) -> None:
    """Replay deliveries."""
    from bot.ingest.retention import Selection  # noqa: PLC0415 - the other commands start without SQLAlchemy

    if archive is not None:
        if everything or dry_run or any((since, event, repo)):
            raise click.UsageError("--from-objects stands alone: all of an archive is replayed")
        run_work(_replay_archive(load_settings(config), archive))
        return
    if everything == any((since, event, repo)):
        raise click.UsageError(
            "say which deliveries: --since, --event and --repo narrow the choice, or --all"
        )
    chosen = Selection(since=since, event=event, repo=repo)
    run_work(_replay(load_settings(config), chosen, dry_run=dry_run))


@dataclass(frozen=True, kw_only=True)
class _TaskChange:
    """A change of tasks: the states it applies to, and its outcome in words."""

    act: Callable[[Transaction, int], Awaitable[TaskRow | None]]
    states: tuple[str, ...]
    outcome: str

    def do(self, identifier: int | None, settings: Settings, *, all_dead: bool) -> None:
        """Change one task or all dead ones; exits with 1 where that is impossible."""
        from bot.ops import tasks as admin_tasks  # noqa: PLC0415 - see above

        if (identifier is None) is not all_dead:
            raise click.UsageError("give one of ID and --all-dead")

        async def work(tx: Transaction) -> dict[int, TaskRow | None]:
            these = [identifier] if identifier is not None else await admin_tasks.dead(tx)
            return {task_id: await self.act(tx, task_id) for task_id in these}

        changed = change_database(settings, work)
        if not changed:
            click.echo("no task is dead")
        done = [self._say(task_id, row) for task_id, row in changed.items()]
        if not all(done):
            sys.exit(1)

    def _say(self, identifier: int, row: TaskRow | None) -> bool:
        """Say what became of a task, which was `row` before; returns whether it could be done."""
        if row is None or row["state"] not in self.states:
            what = "there is no such task" if row is None else f"it is {row['state']}"
            click.echo(f"ootbot: task {identifier}: {what}; `ootbot tasks list` shows them", err=True)
            return False
        click.echo(f"task {identifier} ({row['kind']} {row['key']}) {self.outcome}")
        return True


async def _backup(settings: Settings, file: Path, blobs: Path | None) -> None:
    from bot.core.errors import GiveUp  # noqa: PLC0415
    from bot.db.backup import make_backup  # noqa: PLC0415
    from bot.evidence.collect.blobs import blobs_place, copy_blobs  # noqa: PLC0415 - the others start without SQLAlchemy
    from bot.ingest import intake  # noqa: PLC0415
    from bot.jobs.settings import is_remote  # noqa: PLC0415

    source = blobs_place(settings)
    if blobs is not None and is_remote(source):
        raise GiveUp(f"blobs lie in {source}: copy the bucket by its own means")
    spooled = await asyncio.to_thread(intake.read_spool, settings.database)  # before: rows may move meanwhile
    complete = partial(intake.add_to_copy, spooled)
    await asyncio.to_thread(make_backup, settings.database, file, complete=complete)
    size = (await asyncio.to_thread(file.stat)).st_size
    click.echo(f"{file}: {size / 1024 / 1024:.1f} MiB, checked")
    if blobs is not None:  # after the database: what its rows name is there
        done = await asyncio.to_thread(copy_blobs, Path(source), blobs)
        click.echo(
            f"{blobs}: {done.files:,} files, {done.bytes / 1024 / 1024:.1f} MiB; {done.there:,} were there already"
        )


async def _sweep(settings: Settings, since: int | None, *, dry_run: bool) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.ingest.redeliver import logged_apps, preview_sweep, sweep_log  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        start = None if since is None else context.clock.now() - since * 1000
        for app in logged_apps(context):
            if dry_run:
                missing = await preview_sweep(context, app, since=start)
                for entry in missing:
                    click.echo(f"{entry['guid']} {entry['event']}")
                click.echo(f"App {app.app_id}: {len(missing)} deliveries are missing", err=True)
            else:
                on_count = partial(_print_count, app.app_id, settings.writes_per_min)
                done = await sweep_log(context, app, since=start, on_count=on_count)
                click.echo(
                    f"App {app.app_id}: {done.missing} were missing, {done.requested} asked for", err=True
                )


def _print_count(app_id: int, per_minute: int, count: int) -> None:
    if count:
        click.echo(f"App {app_id}: asking for {count}, {per_minute} a minute", err=True)


async def _replay(settings: Settings, chosen: Selection, *, dry_run: bool) -> None:
    from bot.app import (  # noqa: PLC0415
        make_context,
        make_worker,
    )
    from bot.ingest import retention  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        async with context.store.read() as tx:
            numbers = await retention.count_replayed(tx, chosen)
        total = sum(numbers.values())
        if dry_run:
            for name, number in numbers.items():
                click.echo(f"{number:>10,} {name}")
            click.echo(f"{total:>10,} deliveries would be replayed")
            return
        failed = await _replay_batches(context.store, make_worker(context).applier, chosen, total)
    click.echo(f"replayed {total - failed:,} of {total:,} deliveries")
    if failed:
        sys.exit(1)


async def _replay_archive(settings: Settings, url: str) -> None:
    """Replay all that an archive holds."""
    if problem := find_object_problem(ObjectOptions(url=url)):
        raise Misconfigured([f"--from-objects: {problem}"])
    if not SINK_KINDS["objects"].is_installed:
        raise Misconfigured(["--from-objects needs obstore: pip install 'ootbot[s3]'"])
    from bot.app import (  # noqa: PLC0415
        make_context,
        make_worker,
    )
    from bot.sinks.archive_reader import ArchiveReader  # noqa: PLC0415 - the same
    from bot.sinks.objects import ObjectStorage  # noqa: PLC0415 - the same

    reader = ArchiveReader(ObjectStorage(url))
    done = failed = 0
    async with make_context(settings, features=features()) as context:
        applier = make_worker(context).applier
        async for batch in reader.batches():
            for guid, error in (await _replay_until_stored(context.store, applier, batch)).items():
                failed += 1
                click.echo(f"{guid}: {error}", err=True)
            done += len(batch)
            click.echo(f"{done:,} deliveries", err=True)
            await context.store.clock.sleep(REPLAY_PAUSE)
    for words in reader.damaged:
        click.echo(words, err=True)
    click.echo(f"replayed {done - failed:,} deliveries of {url}")
    if failed or reader.damaged:
        sys.exit(1)


async def _replay_batches(store: Store, applier: Applier, chosen: Selection, total: int) -> int:
    """Replay batch by batch, printing progress; returns how many failed."""
    from bot.ingest import retention  # noqa: PLC0415 - the same

    done = failed = last = 0
    while True:
        async with store.read() as tx:
            batch = await retention.read_replay_page(tx, chosen, after=last, limit=REPLAY_BATCH)
        if not batch:
            return failed
        for guid, error in (await _replay_until_stored(store, applier, batch)).items():
            failed += 1
            click.echo(f"{guid}: {error}", err=True)
        done, last = done + len(batch), batch[-1]["id"]
        click.echo(f"{done:,} of {total:,}", err=True)
        await store.clock.sleep(REPLAY_PAUSE)


async def _replay_until_stored(store: Store, applier: Applier, batch: list[DeliveryRow]) -> dict[str, str]:
    for _ in range(MOST_TRIES - 1):
        try:
            return await applier.replay(batch)
        except StoreUnavailable as error:
            click.echo(f"trying again: {error}", err=True)
            await store.clock.sleep(1)
    return await applier.replay(batch)
