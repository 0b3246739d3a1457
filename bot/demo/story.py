"""How is the demo played? The addresses first, then the story line by line; at the end a verdict, or a stay."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, TypeVar

import click

from bot.demo import cast, checks, loopback
from bot.demo.acts import Story
from bot.demo.checks import Finding
from bot.demo.loopback import NotAsToldError
from bot.demo.narrator import Narrator
from bot.demo.stage_bot import BotFailedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from bot.demo.loopback import Loopback

# The bot looks for silent backends once a minute: whoever stays sees that, and one play is over before.
START_TIMEOUT, NEVER = "20s", "1h"
INTERRUPTED = 130
T = TypeVar("T")

INVITATION = f"""
That was the story; everything goes on. On the page of #2, press Re-run on {cast.TPU_CHECK}: it passes then. Push
commits, set or remove the label {cast.NPU_LABEL}, comment: the backends answer, except {cast.FPGA},
which counts as never started after a minute or so. Ctrl-C ends it all, nothing is kept.
"""


async def main(*, once: bool, port: int) -> int:
    """Play the demo and return the exit code; `port` is the bot's, 0 a free one.

    `once`: 1 when anything was not as told, 130 when interrupted. Otherwise it goes on until it is interrupted, as it
    is meant to: 0; 1 when the bot failed.
    """
    myself = asyncio.current_task()
    assert myself is not None
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, myself.cancel)
    try:
        return await (_play_once(port) if once else _play_and_stay(port))
    except BotFailedError as error:
        click.echo(f"NOT AS TOLD: {error}")
        return 1
    except asyncio.CancelledError:  # by a signal; everything has been ended by now
        return INTERRUPTED if once else 0


async def _play_once(port: int) -> int:
    """Play, look at everything once more, stop, and judge."""
    async with loopback.running(port=port, start_timeout=NEVER) as on:
        _show_addresses(on)
        story = Story(on)
        found = await _with(_told(story), Narrator(on).run(), on.bot.watch())
        shown = "\n".join(checks.summary(on, story.pulls))
        if all(not finding.against for finding in found):
            found += await _with(checks.findings(on, story.pulls), on.bot.watch())
        click.echo(f"\n{shown}\n")
        found.append(await checks.stopping(on))
        return _judge(found, on)


async def _play_and_stay(port: int) -> int:
    """Play, then let the visitor play; only an interruption or a failure ends it."""
    async with loopback.running(port=port, start_timeout=START_TIMEOUT) as on:
        _show_addresses(on)
        await _with(_tell_and_stay(Story(on)), Narrator(on).run(), on.bot.watch())
    return 1


async def _tell_and_stay(story: Story) -> None:
    found = await _told(story)
    if _judge([finding for finding in found if finding.against], story.on) == 0:
        click.echo(INVITATION)
    await asyncio.Event().wait()


async def _told(story: Story) -> list[Finding]:
    """Play the story; returns what came true, and at the end what did not."""
    against = []
    try:
        await story.play()
    except NotAsToldError as error:
        against = [Finding(sentence=error.sentence, against=str(error))]
    return [*(Finding(sentence=sentence) for sentence in story.told), *against]


async def _with(work: Coroutine[object, object, T], *others: Coroutine[object, object, None]) -> T:
    """Do the work while the others go on; they end with it, and what one of them raises ends it."""
    doing = asyncio.create_task(work)
    tasks: list[asyncio.Task[object]] = [doing, *map(asyncio.create_task, others)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {doing}:
            task.result()
        return await doing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _show_addresses(on: Loopback) -> None:
    web, bot = on.github.url, on.bot.url
    for name, url in (
        ("HUD", f"{bot}/oot"),
        ("HUD, pull request", f"{bot}/{cast.UPSTREAM}/pull/1"),
        ("GitHub, pull request", f"{web}/{cast.UPSTREAM}/pull/1"),
        ("", f"{web}/{cast.UPSTREAM}/pull/2"),
        ("GitHub, delivery log", f"{web}/_/deliveries"),
    ):
        click.echo(f"{name:<22}{url}")
    click.echo()


def _judge(found: list[Finding], on: Loopback) -> int:
    """Print every finding, and the end of the bot's log when one is against it; returns the exit code."""
    for finding in found:
        if finding.against:
            click.secho(f"NOT AS TOLD: {finding.sentence}: {finding.against}", fg="red")
        else:
            click.echo(f"ok  {finding.sentence}")
    if not any(finding.against for finding in found):
        return 0
    click.echo(f"\nThe end of the bot's log:\n{on.bot.last_words()}")
    return 1
