"""ootbot demo: play the whole loop on this machine."""

from __future__ import annotations

import asyncio
import sys

import click


@click.command()
@click.option("--once", is_flag=True, help="Play the story, check what the pull request shows, exit 0 or 1.")
@click.option(
    "--github",
    is_flag=True,
    help="Only the GitHub and the backends, to try an installation with: docs/install.md.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The bot's port, or GitHub's; 0 takes a free one.",
)
def demo(*, once: bool, github: bool, port: int) -> None:
    """Play the whole loop on this machine: bot, GitHub, four backends and an identity provider.

    Nothing leaves loopback and nothing is kept. It prints the addresses first, then one line per event.
    """
    from bot.demo import only_github, story  # noqa: PLC0415 - only the demo needs its GitHub

    if github:
        asyncio.run(only_github.main(port))
        return
    sys.exit(asyncio.run(story.main(once=once, port=port)))
