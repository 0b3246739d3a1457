"""What happens to backends in these tests."""

from __future__ import annotations

from tests.harness import L3, UPSTREAM

LATER = 30 * 3_600  # seconds: another day, and not yet silent


async def run_once(bot, conclusion, backend=L3, run_id="1"):
    """A pull request whose job on a backend ends so."""
    await bot.github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    dispatch = bot.dispatch(backend)
    for status, ends in (("in_progress", None), ("completed", conclusion)):
        answer, _ = await bot.report(dispatch, status=status, conclusion=ends, run_id=run_id)
        assert answer == 200
    await bot.settle()


async def turn_red(bot, backend=L3):
    """Green, then the day after only failures."""
    for number in range(3):
        await run_once(bot, "success", backend, run_id=f"10{number}")
    bot.clock.advance(LATER)
    await run_once(bot, "failure", backend, run_id="200")


async def recover(bot, backend=L3):
    """The day after nothing but passes."""
    bot.clock.advance(LATER)
    for number in range(3):
        await run_once(bot, "success", backend, run_id=f"30{number}")
