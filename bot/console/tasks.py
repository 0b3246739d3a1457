"""ootbot tasks: list tasks, run them again, dismiss them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings
from bot.console.database import change_database, read_database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tables import TaskRow

STATES = ("waiting", "running", "done", "dead")  # those of bot.queue.queue_admin
LONGEST = 100  # characters of a reason in a line


@click.group()
def tasks() -> None:
    """Look at the queue, and have tasks run again. The same as /api/admin/tasks, where the database can be reached."""


@tasks.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only tasks in this state.")
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
    from bot.queue import queue_admin  # noqa: PLC0415 - the other commands start without SQLAlchemy

    async def work(tx: Transaction) -> list[TaskRow]:
        return await queue_admin.tasks(tx, state=state, before=None, limit=limit)

    rows = read_database(load_settings(config), work)
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        click.echo(f"no task is {state}" if state else "no tasks", err=True)
    for row in rows:
        why = " ".join((row["error"] or "").split())[:LONGEST]
        words = [str(row["id"]), row["state"], row["kind"], row["key"], f"{row['attempts']} attempts", why]
        click.echo("  ".join(words).rstrip())


def chosen(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose one task by ID, or all dead ones."""
    one = click.argument("identifier", metavar="[ID]", type=click.IntRange(1), required=False)
    everyone = click.option("--all-dead", is_flag=True, help="Every task that was given up, instead of one.")
    return one(everyone(config_option(command)))


@tasks.command()
@chosen
def retry(identifier: int | None, config: Path | None, *, all_dead: bool) -> None:
    """Have the dead or waiting task with this ID run now; a running server takes it within a second.

    \b
      ootbot tasks retry 17
      ootbot tasks retry --all-dead
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.queue import queue_admin  # noqa: PLC0415 - the other commands start without SQLAlchemy

    each = _Change(act=queue_admin.retry, states=queue_admin.RETRYABLE, outcome="runs again")
    each.do(identifier, load_settings(config), all_dead=all_dead)


@tasks.command()
@chosen
def dismiss(identifier: int | None, config: Path | None, *, all_dead: bool) -> None:
    """Count the dead task with this ID as done: it cannot be, or need not be any more.

    \b
      ootbot tasks dismiss 17
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.queue import queue_admin  # noqa: PLC0415 - the other commands start without SQLAlchemy

    each = _Change(act=queue_admin.dismiss, states=("dead",), outcome="is dismissed")
    each.do(identifier, load_settings(config), all_dead=all_dead)


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change of tasks: the states it applies to, and its outcome in words."""

    act: Callable[[Transaction, int], Awaitable[TaskRow | None]]
    states: tuple[str, ...]
    outcome: str

    def do(self, identifier: int | None, settings: Settings, *, all_dead: bool) -> None:
        """Do it to one task or to all dead ones; exits with 1 where it cannot be done."""
        from bot.queue import queue_admin  # noqa: PLC0415 - see above

        if (identifier is None) is not all_dead:
            raise click.UsageError("give one of ID and --all-dead")

        async def work(tx: Transaction) -> dict[int, TaskRow | None]:
            these = [identifier] if identifier is not None else await queue_admin.dead(tx)
            return {one: await self.act(tx, one) for one in these}

        found = change_database(settings, work)
        if not found:
            click.echo("no task is dead")
        done = [self._say(one, row) for one, row in found.items()]
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
