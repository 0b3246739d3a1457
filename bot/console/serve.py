"""ootbot serve: run the bot."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from bot import __version__
from bot.console.common import config_option, features, load_settings, run

if TYPE_CHECKING:
    from pathlib import Path

HELP = """Run the bot: webhooks, callbacks, pages and the worker, in one process, or in several on one PostgreSQL.

\b
Settings come from the environment (OOTBOT_<NAME>) or ootbot.toml; environment wins.
\b
  OOTBOT_APP_ID=123 OOTBOT_PRIVATE_KEY_PATH=key.pem OOTBOT_WEBHOOK_SECRET=... \\
  OOTBOT_UPSTREAM_REPO=org/project OOTBOT_ALLOWLIST=allowlist.yml ootbot serve
  ootbot serve --config /etc/ootbot.toml
\b
With a PostgreSQL, --role web serves the doors and pages and --role worker does the work, each in as many processes as
needed; a worker answers /healthz, /readyz and /metrics on its own port.

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
@click.option("--host", help="The address to listen on; same as OOTBOT_HOST.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port to listen on, 0 a free one; same as OOTBOT_PORT."
)
def serve(config: Path | None, role: str | None, host: str | None, port: int | None, *, pull: bool) -> None:
    """Run the bot."""
    chosen = load_settings(config)
    gc.disable()  # until `memory.settle_in`: what is read now stays, and going through it takes a fifth of the start
    from bot import app  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy

    chosen = replace(
        chosen,
        role=role or chosen.role,
        host=host or chosen.host,
        port=chosen.port if port is None else port,
    )
    if pull:
        chosen = replace(chosen, receive="pull")
    run(
        app.serve(
            chosen,
            features=features(),
            ready=lambda address: click.echo(f"ootbot {__version__} at {address}"),
        )
    )
