"""What the tests of dispatches ask the bot and GitHub."""

from __future__ import annotations

from tests.harness import L4, UPSTREAM

MOST_CHARACTERS = 65_535

READS_INPUTS = "name: Upstream\non: {workflow_dispatch: {inputs: {client_payload: {required: true}}}}\n"
BY_WORKFLOW = f"L4:\n  tpu: {{{L4}: {{oncalls: dave, dispatch: workflow, workflow_file: upstream.yml}}}}\n"


def dispatched_to(github, repo=None):
    """Return the backends dispatched to, in order."""
    names = [dispatch.repo.full_name for dispatch in github.dispatches]
    return names if repo is None else [name for name in names if name == repo]


async def recorded(bot, repo, column):
    """Return a column of a backend's dispatches, oldest first."""
    rows = [row for row in await bot.rows("oot_dispatch") if row["backend"] == repo]
    return [row[column] for row in sorted(rows, key=lambda row: row["created_at"])]


async def states(bot, repo):
    return await recorded(bot, repo, "state")


async def reasons(bot, repo):
    return await recorded(bot, repo, "error")


def posts(github, repo):
    """Return GitHub's status for each attempt to dispatch to a repository."""
    return [
        call.status for call in github.calls
        if call.method == "POST" and call.path.startswith(f"/repos/{repo}/") and call.path.endswith("/dispatches")
    ]  # fmt: skip


def opened(github):
    """The body of a pull request's opening, without GitHub's own delivery of it."""
    repo = github.state.repo(UPSTREAM)
    return {
        "action": "opened", "number": 1, "repository": {"id": repo.id, "full_name": UPSTREAM, "private": False},
        "pull_request": {
            "id": 1, "number": 1, "title": "t", "state": "open", "author_association": "MEMBER", "labels": [],
            "head": {"sha": "a" * 40, "ref": "x"}, "base": {"sha": repo.branches["main"], "ref": "main"},
            "updated_at": "2026-11-01T00:00:00Z",
        },
    }  # fmt: skip


async def base_left_before_its_event_arrives(bot, github):
    """Return a pull request whose event of another base branch arrives when it has left that again."""
    pull = await github.open_pull(UPSTREAM)
    await github.push(UPSTREAM, "release", message="a branch")
    await bot.settle()
    github.faults.add(method="HOOK", path="edited")
    for base in ("release", "main"):
        bot.clock.advance(60)
        await github.retarget(pull, base)
        await bot.settle()
    (late,) = [one for one in github.deliveries if one.action == "edited" and not one.ok]
    await github.redeliver(late)
    return pull
