"""ootbot backup: copy the database, and blobs, while the bot runs."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings, run_work

if TYPE_CHECKING:
    from bot.core.settings import Settings

HELP = """Copy the database to a new FILE while the bot runs.

\b
SQLite: a database file, put back by copying it to DATA_DIR/ootbot.db. PostgreSQL: an archive of pg_dump, put back
with pg_restore. The copy is checked before it gets its name; a file that is there is never replaced.
With --blobs, logs and other large files are copied as well, after the database; those that are in the FOLDER already
are not copied again, and nothing is deleted there. docs/operations.md says how to restore.
\b
  ootbot backup /backup/ootbot-$(date +%F).db
  ootbot backup /backup/ootbot-$(date +%F).db --blobs /backup/blobs
"""


@click.command(help=HELP)
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


async def _backup(settings: Settings, file: Path, blobs: Path | None) -> None:
    from bot.ci.collect import blobs as places  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.ci.collect import copy_blobs  # noqa: PLC0415
    from bot.ci.collect.settings import is_remote  # noqa: PLC0415
    from bot.core.errors import GiveUp  # noqa: PLC0415
    from bot.db import backup as copy  # noqa: PLC0415
    from bot.ingest import spool_backup  # noqa: PLC0415

    source = places.blobs_place(settings)
    if blobs is not None and is_remote(source):
        raise GiveUp(f"blobs lie in {source}: copy the bucket by its own means")
    spooled = await asyncio.to_thread(
        spool_backup.read_spool, settings.database
    )  # before: rows may move meanwhile
    complete = partial(spool_backup.add_to_copy, spooled)
    await asyncio.to_thread(copy.make, settings.database, file, complete=complete)
    size = (await asyncio.to_thread(file.stat)).st_size
    click.echo(f"{file}: {size / 1024 / 1024:.1f} MiB, checked")
    if blobs is not None:  # after the database: what its rows name is there
        done = await asyncio.to_thread(copy_blobs.copy_blobs, Path(source), blobs)
        click.echo(
            f"{blobs}: {done.files:,} files, {done.bytes / 1024 / 1024:.1f} MiB; {done.there:,} were there already"
        )
