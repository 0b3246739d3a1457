"""How is the demo played? The addresses first, then the story line by line; at the end a verdict, or a stay."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import click

from bot.demo import cast, checks, loopback
from bot.demo.acts import Story
from bot.demo.checks import Finding
from bot.demo.loopback import NotAsToldError
from bot.demo.narrator import Narrator
from bot.demo.stage_bot import BotFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.demo.loopback import Loopback

# The bot looks for silent backends once a minute. A visitor sees it happen; one play is over before.
START_TIMEOUT, NEVER = "20s", "1h"
INTERRUPTED = 130


async def main(*, once: bool, port: int) -> int:
    """Play the demo and return the exit code.

    `once`: 1 when anything was not as told, 130 when interrupted. Otherwise it stays until it is interrupted, which
    is how it is meant to end: 0; or 1 when the bot ended by itself. `port` is the bot's, 0 a free one.
    """
    try:
        async with _interruptible():
            if once:
                return await _play_once(port)
            await _play_and_stay(port)
    except BotFailedError as error:
        click.echo(f"NOT AS TOLD: {error}")
        return 1
    except asyncio.CancelledError:
        return INTERRUPTED if once else 0
    return 1


async def _play_once(port: int) -> int:
    async with loopback.running(port=port, start_timeout=NEVER) as on:
        found = await _play(on)
        click.echo()
        ...
