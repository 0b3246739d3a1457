"""ootbot providers: what to enter in the forms of other CIs, and what they sent last."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import config_option, load_settings, run_work
from bot.core.json_fields import iso_time
from bot.core.text import duration, plural

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.ingest.tables import DeliveryRow
    from bot.providers.guide import Guide

SEEN = 5  # events
HELP = """Say what to enter in the forms of CircleCI and Buildkite, and what they sent last.

\b
Other CIs are named in the settings, [[providers]] in ootbot.toml: docs/providers.md.
\b
  ootbot providers
  ootbot providers --json
  ootbot providers --take-up      handle what came of projects that were mapped to no repository then
"""


@click.command(help=HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--take-up", is_flag=True, help="Handle stored events of projects that are mapped by now.")
@config_option
def providers(config: Path | None, *, as_json: bool, take_up: bool) -> None:
    """Describe the other CIs."""
    run_work(_describe(load_settings(config), as_json=as_json, take_up=take_up))


async def _describe(settings: Settings, *, as_json: bool, take_up: bool) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.providers import guide, rows, unmapped  # noqa: PLC0415 - the same

    guides = guide.make_guides(settings)
    async with make_context(settings) as context:
        await context.intake.show_arrived()
        taken = await unmapped.take_up(context) if take_up else None
        async with context.store.read() as tx:
            seen = await rows.last_seen(tx, limit=SEEN)
            last, now = await rows.last_of_each(tx), tx.now
    if as_json:
        click.echo(json.dumps(_as_json(guides, seen, taken)))
        return
    for one in guides:
        at = last.get(one.provider)
        _print_guide(one, "none yet" if at is None else f"{duration((now - at) / 1000)} ago")
    if guides and guide.is_unreachable(settings):
        click.echo("no other CI reaches these URLs: set PUBLIC_URL to the address of the bot from outside")
    if not guides:
        click.echo("no other CI is in the settings; docs/providers.md shows how to name one")
    if taken is not None:
        click.echo(f"{plural(taken, 'event')} of projects that are mapped by now: handled next")
    click.echo("last events:" if seen else "no event of another CI has come in yet")
    for row in seen:
        click.echo(f"  {iso_time(row['received_at'])}  {row['event']:<28} {row['state']:<8} {_about(row)}")


def _about(row: DeliveryRow) -> str:
    """Return what an event was about, and why nothing follows from it."""
    if row["state"] == "foreign":
        return f"{(row['repo'] or '').partition(':')[2]} is mapped to no repository: see /admin, or ootbot doctor"
    about = row["repo"] or "no repository"
    return f"{about}: {row['error'].partition(': ')[2] or row['error']}" if row["error"] else about


def _print_guide(one: Guide, last: str) -> None:
    click.echo(f"{one.provider}: {one.where}")
    for name, value in [*one.fields, ("Last event", last)]:
        click.echo(f"  {name:<10}  {value}")
    for project, repo in one.projects.items():
        click.echo(f"  {project} -> {repo}")
    click.echo("")


def _as_json(guides: list[Guide], seen: list[DeliveryRow], taken: int | None) -> dict[str, Any]:
    events = [
        {
            "event": row["event"],
            "repo": row["repo"],
            "state": row["state"],
            "received_at": iso_time(row["received_at"]),
            "error": row["error"],
        }
        for row in seen
    ]
    return {"providers": [dataclasses.asdict(one) for one in guides], "events": events, "taken_up": taken}
