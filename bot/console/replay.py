"""ootbot replay: rebuild the record tables from the deliveries still held, or from an archive of a sink."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bot.console.common import config_option, features, load_settings, run_work
from bot.core.clock import SystemClock
from bot.core.errors import Misconfigured, StoreUnavailable
from bot.core.json_fields import as_time
from bot.core.setting_types import duration
from bot.sinks.kinds import KINDS
from bot.sinks.objects.options import ObjectOptions, find_problem

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.ingest.applier import Applier
    from bot.ingest.archive import Selection
    from bot.ingest.tables import DeliveryRow

BATCH = 100  # deliveries in one transaction
PAUSE = 0.05  # seconds between two: a running server writes to the same database
MOST_TRIES = 10  # of a batch while the database is busy
HELP = """Rebuild the record tables from the deliveries still held.

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


def moment(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
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


@click.command(help=HELP)
@click.option("--all", "everything", is_flag=True, help="Every delivery still held.")
@click.option("--since", callback=moment, help="Only deliveries received since then; dates are UTC.")
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
    from bot.ingest.archive import Selection  # noqa: PLC0415 - the other commands start without SQLAlchemy

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


async def _replay(settings: Settings, chosen: Selection, *, dry_run: bool) -> None:
    from bot.app import make_context, make_worker  # noqa: PLC0415 - the same
    from bot.ingest import archive  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        async with context.store.read() as tx:
            numbers = await archive.count(tx, chosen)
        total = sum(numbers.values())
        if dry_run:
            for name, number in numbers.items():
                click.echo(f"{number:>10,} {name}")
            click.echo(f"{total:>10,} deliveries would be replayed")
            return
        failed = await _through(context.store, make_worker(context).applier, chosen, total)
    click.echo(f"replayed {total - failed:,} of {total:,} deliveries")
    if failed:
        sys.exit(1)


async def _replay_archive(settings: Settings, url: str) -> None:
    """Replay all that an archive holds."""
    if problem := find_problem(ObjectOptions(url=url)):
        raise Misconfigured([f"--from-objects: {problem}"])
    if not KINDS["objects"].is_installed:
        raise Misconfigured(["--from-objects needs obstore: pip install 'ootbot[s3]'"])
    from bot.app import make_context, make_worker  # noqa: PLC0415 - the same
    from bot.sinks.objects.archive_reader import ArchiveReader  # noqa: PLC0415 - the same
    from bot.sinks.objects.object_store import ObjectStorage  # noqa: PLC0415 - the same

    reader = ArchiveReader(ObjectStorage(url))
    done = failed = 0
    async with make_context(settings, features=features()) as context:
        applier = make_worker(context).applier
        async for batch in reader.batches():
            for one, error in (await _persistently(context.store, applier, batch)).items():
                failed += 1
                click.echo(f"{one}: {error}", err=True)
            done += len(batch)
            click.echo(f"{done:,} deliveries", err=True)
            await context.store.clock.sleep(PAUSE)
    for words in reader.damaged:
        click.echo(words, err=True)
    click.echo(f"replayed {done - failed:,} deliveries of {url}")
    if failed or reader.damaged:
        sys.exit(1)


async def _through(store: Store, applier: Applier, chosen: Selection, total: int) -> int:
    """Replay batch by batch, printing progress; returns how many failed."""
    from bot.ingest import archive  # noqa: PLC0415 - the same

    done = failed = last = 0
    while True:
        async with store.read() as tx:
            batch = await archive.page(tx, chosen, after=last, limit=BATCH)
        if not batch:
            return failed
        for one, error in (await _persistently(store, applier, batch)).items():
            failed += 1
            click.echo(f"{one}: {error}", err=True)
        done, last = done + len(batch), batch[-1]["id"]
        click.echo(f"{done:,} of {total:,}", err=True)
        await store.clock.sleep(PAUSE)


async def _persistently(store: Store, applier: Applier, batch: list[DeliveryRow]) -> dict[str, str]:
    for _ in range(MOST_TRIES - 1):
        try:
            return await applier.replay(batch)
        except StoreUnavailable as error:
            click.echo(f"trying again: {error}", err=True)
            await store.clock.sleep(1)
    return await applier.replay(batch)
