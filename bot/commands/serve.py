"""ootbot serve: run the bot."""

from __future__ import annotations

from pathlib import Path

import click

from bot import __version__
from bot.commands import load_settings, run

HELP = """Run the bot: webhooks, callbacks, pages and the worker, in one process.

\b
Settings come from the environment (OOTBOT_<NAME>) or ootbot.toml; environment wins.
\b
  OOTBOT_APP_ID=123 OOTBOT_PRIVATE_KEY_PATH=key.pem OOTBOT_WEBHOOK_SECRET=... \\
  OOTBOT_UPSTREAM_REPO=org/project OOTBOT_ALLOWLIST=allowlist.yml ootbot serve
  ootbot serve --config /etc/ootbot.toml
"""


@click.command(help=HELP)
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file; default: ootbot.toml if there.")
def serve(config: Path | None) -> None:
    """Run the bot."""
    from bot import app  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy

    chosen = load_settings(config)
    run(app.serve(chosen, ready=lambda url: click.echo(f"ootbot {__version__} at {url}/oot")))
