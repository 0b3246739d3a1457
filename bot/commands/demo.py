"""ootbot demo: play the whole loop on this machine."""

from __future__ import annotations

import asyncio
import sys

import click


@click.command()
@click.option("--once", is_flag=True, help="Play the story, check what the pull request shows, exit 0 or 1.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The bot's port; 0 takes a free one.")
def demo(*, once: bool, port: int) -> None:
    """Play the whole loop on this machine: bot, GitHub, four backends and an identity provider.

    Nothing leaves loopback and nothing is kept. It prints the addresses first, then one line per event.
    """
    from bot.demo import story  # noqa: PLC0415 - only the demo needs its GitHub

    sys.exit(asyncio.run(story.main(once=once, port=port)))
