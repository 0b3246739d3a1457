"""ootbot redeliver: ask GitHub again for deliveries that never came in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings, run_work
from bot.core.setting_types import duration

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings

HELP = """Ask GitHub for the deliveries its log holds and this bot never stored.

\b
The running bot does so every ten minutes by itself; this is for looking, or for going back further.
\b
  ootbot redeliver --dry-run
  ootbot redeliver --since 3d
"""


def span(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Read a duration such as `3d` into seconds, or fail with how to write one."""
    try:
        return duration(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(help=HELP)
@click.option("--since", callback=span, help="How far back to look; default: to where the last sweep began.")
@click.option("--dry-run", is_flag=True, help="Only list what is missing.")
@config_option
def redeliver(since: int | None, config: Path | None, *, dry_run: bool) -> None:
    """Sweep the delivery log."""
    run_work(_sweep(load_settings(config), since, dry_run=dry_run))


async def _sweep(settings: Settings, since: int | None, *, dry_run: bool) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.ingest import delivery_log  # noqa: PLC0415 - the same
    from bot.ingest import redeliver as task  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        start = None if since is None else context.clock.now() - since * 1000
        for app in delivery_log.apps(context):
            if dry_run:
                missing = await task.preview(context, app, since=start)
                for entry in missing:
                    click.echo(f"{entry['guid']} {entry['event']}")
                click.echo(f"App {app.app_id}: {len(missing)} deliveries are missing", err=True)
            else:
                on_count = partial(_print_count, app.app_id, settings.writes_per_min)
                done = await task.sweep(context, app, since=start, on_count=on_count)
                click.echo(
                    f"App {app.app_id}: {done.missing} were missing, {done.requested} asked for", err=True
                )


def _print_count(app_id: int, per_minute: int, count: int) -> None:
    if count:
        click.echo(f"App {app_id}: asking for {count}, {per_minute} a minute", err=True)
