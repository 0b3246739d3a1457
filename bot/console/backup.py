"""ootbot backup: copy the database while the bot runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings, run

if TYPE_CHECKING:
    from bot.core.settings import Settings

HELP = """Copy the database to a new FILE while the bot runs.

\b
SQLite: a database file, put back by copying it to DATA_DIR/ootbot.db. PostgreSQL: an archive of pg_dump, put back
with pg_restore. The copy is checked before it gets its name; a file that is there is never replaced.
docs/operations.md says how to restore.
\b
  ootbot backup /backup/ootbot-$(date +%F).db
"""


@click.command(help=HELP)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
def backup(file: Path, config: Path | None) -> None:
    """Copy the database."""
    run(_backup(load_settings(config), file))


async def _backup(settings: Settings, file: Path) -> None:
    from bot.db import backup as copy  # noqa: PLC0415 - the other commands start without SQLAlchemy

    await asyncio.to_thread(copy.make, settings.database, file)
    size = (await asyncio.to_thread(file.stat)).st_size
    click.echo(f"{file}: {size / 1024 / 1024:.1f} MiB, checked")
