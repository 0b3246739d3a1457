"""What can be done from the command line? One command a job; the third place that catches errors."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot import __version__, logs, settings
from bot.domain import allowlist as allowlist_file
from bot.errors import Misconfigured, OotbotError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from bot.settings import Settings

SERVE_HELP = """Run the bot: webhooks, callbacks, pages and the worker, in one process.

\b
Settings come from the environment (OOTBOT_<NAME>) or ootbot.toml; environment wins.
\b
  OOTBOT_APP_ID=123 OOTBOT_PRIVATE_KEY_PATH=key.pem OOTBOT_WEBHOOK_SECRET=... \\
  OOTBOT_UPSTREAM_REPO=org/project OOTBOT_ALLOWLIST=allowlist.yml ootbot serve
  ootbot serve --config /etc/ootbot.toml
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ootbot")
def main() -> None:
    """One self-hosted GitHub App that closes the CI loop between a project and its out-of-tree backends."""


@main.command(help=SERVE_HELP)
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file; default: ootbot.toml if there.")
def serve(config: Path | None) -> None:
    """Run the bot."""
    from bot import app  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy

    chosen = _settings(config)
    logs.configure(fmt=chosen.log_format, level=chosen.log_level)
    _run(app.serve(chosen, ready=lambda url: click.echo(f"ootbot {__version__} at {url}/oot")))


@main.command()
@click.option("--once", is_flag=True, help="Play the story, check what the pull request shows, exit 0 or 1.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The bot's port; 0 takes a free one.")
def demo(*, once: bool, port: int) -> None:
    """Play the whole loop on this machine: bot, GitHub, four backends and an identity provider.

    Nothing leaves loopback and nothing is kept. It prints the addresses first, then one line per event.
    """
    from bot.demo import story  # noqa: PLC0415 - only the demo needs its GitHub

    sys.exit(asyncio.run(story.main(once=once, port=port)))


@main.group()
def allowlist() -> None:
    """Look at allowlist files."""


@allowlist.command()
@click.argument("file", type=click.File("rb"))
def check(file: click.utils.LazyFile) -> None:
    """Say what is wrong with an allowlist FILE, all of it at once; exit 1 when anything is.

    \b
      ootbot allowlist check config/allowlist.example.yml
    """
    try:
        found = allowlist_file.parse(file.read())
    except allowlist_file.AllowlistError as error:
        click.echo(allowlist_file.render_errors(error), err=True)
        sys.exit(1)
    levels = ", ".join(f"{len(found.at(level))} at L{level}" for level in range(1, 5))
    click.echo(f"ok: {len(found.entries)} backends, {levels}")


def _settings(config: Path | None) -> Settings:
    try:
        chosen, warnings = settings.load(os.environ, config)
    except Misconfigured as error:
        for problem in error.problems:
            click.echo(f"ootbot: {problem}", err=True)
        sys.exit(2)
    for warning in warnings:
        click.echo(f"ootbot: warning: {warning}", err=True)
    return chosen


def _run(work: Coroutine[None, None, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - not there on every platform
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        with runner:
            runner.run(work)
    except (OotbotError, OSError) as error:
        click.echo(f"ootbot: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
