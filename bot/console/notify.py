"""ootbot notify: the receivers of notices, a test notice, and sending again what was given up."""

from __future__ import annotations

import json
import sys
import uuid
from typing import TYPE_CHECKING

import click

from bot.console.common import change_database, config_option, load_settings, read_database, run_work
from bot.core.text import plural

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.notify.administration import ReceiverState
    from bot.notify.receivers import Receiver
    from bot.notify.sending import Attempt

NO_RECEIVERS = "the settings have no [[notify]]; docs/notify.md shows one"
_STATES = {"sent": "sent", "waiting": "waiting", "dead": "given up"}


@click.group()
def notify() -> None:
    """Look at the receivers of notices, and try them."""


@notify.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on standard output.")
@config_option
def list_receivers(config: Path | None, *, as_json: bool) -> None:
    """Print every receiver: name, format, host, notices sent, waiting and given up, and why the last one failed.

    \b
      ootbot notify list
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.notify.administration import read_states  # noqa: PLC0415 - the other commands start without SQLAlchemy

    settings = load_settings(config)

    async def work(tx: Transaction) -> list[ReceiverState]:
        return await read_states(tx, settings)

    states = read_database(settings, work)
    if as_json:
        click.echo(json.dumps([_as_json(standing) for standing in states]))
        return
    if not states:
        click.echo(NO_RECEIVERS, err=True)
    for standing in states:
        counts = ", ".join(f"{standing.counts.get(state, 0)} {word}" for state, word in _STATES.items())
        words = [
            standing.receiver.name,
            standing.receiver.format,
            standing.receiver.host,
            counts,
            standing.error[:100],
        ]
        click.echo("  ".join(words).rstrip())


@notify.command("test")
@click.argument("name")
@config_option
def send_test(name: str, config: Path | None) -> None:
    """Send the receiver NAME a test notice now, whatever its filters and quiet hours are.

    Exit code 0: it was taken; 1: it was not, and the line says why.

    \b
      ootbot notify test ci-team
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    receiver = _chosen(settings, name)
    attempt = run_work(_post_test(settings, receiver))
    if attempt.error:
        click.echo(f"ootbot: {name}: {attempt.error}", err=True)
        sys.exit(1)
    click.echo(f"{name} took the test notice")


@notify.command()
@click.argument("name", required=False, default="")
@config_option
def retry(name: str, config: Path | None) -> None:
    """Have notices sent that were given up: all, or those of the receiver NAME. A running server sends them.

    \b
      ootbot notify retry
      ootbot notify retry ci-team
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.notify.administration import retry_dead  # noqa: PLC0415 - see above

    settings = load_settings(config)
    if name:
        _chosen(settings, name)

    async def work(tx: Transaction) -> dict[str, int]:
        return await retry_dead(tx, settings, name)

    retried = change_database(settings, work)
    for receiver, number in retried.items():
        click.echo(f"{receiver}: {plural(number, 'notice')} will be sent again")
    if not retried:
        click.echo("no notice was given up")


def _chosen(settings: Settings, name: str) -> Receiver:
    """Return a receiver of the settings; exits with 2 where there is none of that name."""
    from bot.notify.receivers import NotifySettings  # noqa: PLC0415 - see above

    receivers = settings.of(NotifySettings).notify
    receiver = next((known_receiver for known_receiver in receivers if known_receiver.name == name), None)
    if receiver is None:
        known = ", ".join(known_receiver.name for known_receiver in receivers)
        click.echo(
            f"ootbot: there is no receiver {name}; {f'known are {known}' if known else NO_RECEIVERS}",
            err=True,
        )
        sys.exit(2)
    return receiver


async def _post_test(settings: Settings, receiver: Receiver) -> Attempt:
    """Send a notice of the event `test`, without the database."""
    from bot.core.clock import SystemClock  # noqa: PLC0415 - see above
    from bot.notify.sending import (  # noqa: PLC0415
        Webhooks,
        post_notice,
    )

    now = SystemClock().now()
    webhooks = Webhooks(own_port=settings.port, proxy=settings.proxy)
    try:
        return await post_notice(
            webhooks,
            receiver,
            {
                "event": "test",
                "at": now,
                "began_at": None,
                "heading": "A test notice of ootbot",
                "lines": ["Notices to this receiver arrive."],
                "repo": "",
                "branch": "",
                "backend": "",
                "oncalls": [],
                "path": "",
                "id": str(uuid.uuid4()),
                "audience": receiver.audience,
            },
            url=settings.url,
            now=now,
        )
    finally:
        await webhooks.close()


def _as_json(standing: ReceiverState) -> dict[str, object]:
    receiver = standing.receiver
    return {
        "name": receiver.name,
        "format": receiver.format,
        "host": receiver.host,
        "events": list(receiver.events),
        "private": receiver.private,
        "sent": standing.counts.get("sent", 0),
        "waiting": standing.counts.get("waiting", 0),
        "dead": standing.counts.get("dead", 0),
        "last_sent_at": standing.last_sent_at,
        "error": standing.error or None,
    }
