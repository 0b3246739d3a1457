"""ootbot serve: run the bot."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from bot import __version__
from bot.console.common import config_option, features, load_settings, run_work

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.processes.child import Child

HELP = """Run the bot: webhooks, callbacks, pages and the worker.

\b
Settings come from the environment (OOTBOT_<NAME>) or ootbot.toml; environment wins.
\b
  OOTBOT_APP_ID=123 OOTBOT_PRIVATE_KEY_PATH=key.pem OOTBOT_WEBHOOK_SECRET=... \\
  OOTBOT_UPSTREAM_REPO=org/project OOTBOT_ALLOWLIST=allowlist.yml ootbot serve
  ootbot serve --config /etc/ootbot.toml
\b
On SQLite and two cores or more this command starts and supervises two more processes, so that webhooks wait neither for
work nor for pages; --processes 1 keeps everything in one. With a PostgreSQL, --role web serves the endpoints and pages
and --role worker does the work, each in as many processes as needed; a worker answers /healthz, /readyz and /metrics on
its own port.

Where GitHub cannot reach this machine, --pull reads its delivery log every few seconds instead of waiting for webhooks.
"""


@click.command(help=HELP)
@config_option
@click.option(
    "--pull", is_flag=True, help="Take deliveries out of GitHub's log; the same as OOTBOT_RECEIVE=pull."
)
@click.option(
    "--role", type=click.Choice(("web", "worker", "all")), help="What this process does; same as OOTBOT_ROLE."
)
@click.option(
    "--processes",
    type=click.Choice(("auto", "1", "3")),
    help="Processes of role all: auto is 3 for SQLite on two cores or more; same as OOTBOT_PROCESSES.",
)
@click.option("--host", help="The address to listen on; same as OOTBOT_HOST.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port to listen on, 0 a free one; same as OOTBOT_PORT."
)
def serve(
    config: Path | None,
    role: str | None,
    processes: str | None,
    host: str | None,
    port: int | None,
    *,
    pull: bool,
) -> None:
    """Run the bot."""
    gc.disable()  # until `memory.settle_in`: what is read now stays, and going through it takes a fifth of the start
    chosen = load_settings(config)
    chosen = replace(chosen, role=role or chosen.role, processes=processes or chosen.processes)
    from bot import serving  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy

    chosen = replace(
        chosen,
        host=host or chosen.host,
        port=chosen.port if port is None else port,
    )
    if pull:
        chosen = replace(chosen, receive="pull")
    run_work(
        serving.serve(
            chosen,
            features=features(),
            others=_others() if _has_family(chosen) else None,
            ready=lambda address: click.echo(f"ootbot {__version__} at {address}"),
        )
    )


def _others() -> dict[str, Child] | None:
    """Fork the other processes, once there is no more to read that all of them need."""
    from bot import app  # noqa: PLC0415
    from bot.console import member  # noqa: PLC0415
    from bot.processes import child  # noqa: PLC0415

    app.read_program(features())
    try:
        return child.fork(child.NAMES, member.become)
    except OSError as error:
        click.echo(
            f"ootbot: warning: more processes cannot be started, so one does everything: {error}", err=True
        )
        return None


def _has_family(settings: Settings) -> bool:
    """Whether this process starts others: for SQLite on two cores or more, unless the settings say otherwise."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = settings.processes == "3" or (
        settings.processes == "auto" and cores > 1 and settings.database.startswith("sqlite")
    )
    return settings.role == "all" and wanted
