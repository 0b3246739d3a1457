"""What the tests of the gate ask the bot and GitHub."""

from __future__ import annotations

from tests.harness import UPSTREAM


def gate(bot, sha):
    found = bot.checks(UPSTREAM, sha).get("oot / gate")
    return found and found[1:]


async def finish(bot, github, repo, conclusion="success"):
    """A backend's run, its report and GitHub's own word on it."""
    run = await github.start_run(repo, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(repo), conclusion=conclusion, run_id=str(run.id))
    await github.finish_run(run, conclusion)
    await bot.settle()
