"""Comments with commands, and what became of them."""

from __future__ import annotations

from tests.harness import L4

WRITER, AUTHOR, ON_CALL, STRANGER = "wendy", "octocat", "dave", "mallory"


async def say(bot, github, pull, text, by=WRITER):
    """Comment, let the bot work, and return the reactions under the comment."""
    bot.clock.advance(1)
    said = await github.comment(pull, text, by)
    await bot.settle()
    return [reaction.content for reaction in said.reactions]


async def ours(bot, github, pull):
    """What our comment says, empty without one."""
    await bot.settle(horizon=60)
    said = [comment.body for comment in github.comments(pull) if comment.app is not None]
    assert len(said) <= 1
    return said[0] if said else ""


async def failed(bot, github, repo=L4):
    """A backend's run that failed."""
    run = await github.start_run(repo, event="repository_dispatch", name="CI")
    job = await github.start_job(run, "build")
    await bot.report(bot.dispatch(repo), conclusion="failure", run_id=str(run.id))
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.settle()
    return run


def dispatched_to(github, repo):
    return [one for one in github.dispatches if one.repo.full_name == repo]
