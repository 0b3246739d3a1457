"""ootbot tasks: what is waiting, running or given up, and have it run again."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from bot.commands import config_option, load_settings
from bot.commands.database import change, look

if TYPE_CHECKING:
    from pathlib import Path

    from bot.store import Transaction

STATES = ("waiting", "running", "done", "dead")  # those of bot.store.operations
LONGEST = 100  # characters of a reason in a line


@click.group()
def tasks() -> None:
    """Look at the queue, and have tasks run again. The same as /api/admin/tasks, where the database can be reached."""


@tasks.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only tasks in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="The newest so many."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON list on standard output.")
@config_option
def list_tasks(state: str | None, limit: int, config: Path | None, *, as_json: bool) -> None:
    """Print tasks, newest first: id, state, kind, key, attempts, and why it failed last.

    \b
      ootbot tasks list --state dead
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.store import operations  # noqa: PLC0415 - the other commands start without SQLAlchemy

    async def work(tx: Transaction) -> list[dict[str, Any]]:
        return await operations.tasks(tx, state=state, before=None, limit=limit)

    rows = look(load_settings(config), work)
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        why = " ".join((row["error"] or "").split())[:LONGEST]
        words = [str(row["id"]), row["state"], row["kind"], row["key"], f"{row['attempts']} attempts", why]
        click.echo("  ".join(words).rstrip())


@tasks.command()
@click.argument("identifier", metavar="ID", type=click.IntRange(1))
@config_option
def retry(identifier: int, config: Path | None) -> None:
    """Have the dead or waiting task with this ID run now; a running server takes it within a second."""
    from bot.store import operations  # noqa: PLC0415 - the other commands start without SQLAlchemy

    async def work(tx: Transaction) -> dict[str, Any] | None:
        return await operations.retry(tx, identifier)

    found = change(load_settings(config), work)
    if found is None or found["state"] not in {"dead", "waiting"}:
        what = "there is no such task" if found is None else f"it is {found['state']}"
        click.echo(f"ootbot: task {identifier}: {what}; `ootbot tasks list` shows them", err=True)
        sys.exit(1)
    click.echo(f"task {identifier} ({found['kind']} {found['key']}) runs again")
