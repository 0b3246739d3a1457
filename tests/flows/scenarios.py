"""What the tests of the loop do and ask: dispatches, reports, the gate, commands, check runs."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter

from bot.demo.github import Delivery
from tests import harness
from tests.harness import L3, L4, UPSTREAM

MOST_CHARACTERS = 65_535

READS_INPUTS = "name: Upstream\non: {workflow_dispatch: {inputs: {client_payload: {required: true}}}}\n"
BY_WORKFLOW = f"L4:\n  tpu: {{{L4}: {{oncalls: dave, dispatch: workflow, workflow_file: upstream.yml}}}}\n"
WRITER, AUTHOR, ON_CALL, STRANGER = "wendy", "octocat", "dave", "mallory"
JOBS = f"""
L3: {{npu: {{repo: {L3}, oncalls: [carol], checks: jobs}}}}
L4: [{{repo: {L4}, oncalls: [dave], device: tpu, checks: jobs}}]
"""


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


def opening_body(github):
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


def gate(bot, sha):
    found = bot.checks(UPSTREAM, sha).get("oot / gate")
    return found and found[1:]


async def finish(bot, github, repo, conclusion="success"):
    """A backend's run, its report and GitHub's own word on it."""
    run = await github.start_run(repo, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(repo), conclusion=conclusion, run_id=str(run.id))
    await github.finish_run(run, conclusion)
    await bot.settle()


async def post(bot, body, repo, **claims):
    token = bot.issuer.mint(**({"repository": repo, "run_id": "900", "run_attempt": 1} | claims))
    return await bot.request(
        "POST", "/api/oot/callback", json=body, headers={"Authorization": f"Bearer {token}"}
    )


async def green(bot, run_id, repo=L4):
    """The backend says that all went well."""
    for status in ("in_progress", "completed"):
        assert (await bot.report(bot.dispatch(repo), status=status, run_id=str(run_id)))[0] == 200


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


def dispatches_to(github, repo):
    return [one for one in github.dispatches if one.repo.full_name == repo]


async def open_under(bot, github, text=None, **options):
    """A pull request under this allowlist."""
    if text:
        await bot.list_backends(text)
    pull = await github.open_pull(UPSTREAM, **options)
    await bot.settle()
    return pull


# What the tests of recovery ask of GitHub's delivery log.


NOWHERE = "http://127.0.0.1:9/nobody"


ROUND = 660  # seconds in which each periodic task runs once more


ASKED = "/attempts"


def log_row(github, event, payload, *, guid=None, status=502, repository_id=5):
    """Put one more row into GitHub's log of deliveries to our App, as if it had been tried now."""
    row = Delivery(
        id=github.state.new_id(), guid=guid or str(uuid.uuid4()), app=github.app, event=event,
        action=payload.get("action"), payload=payload, raw=json.dumps(payload).encode(), headers={},
        status="OK" if status == 202 else "failed to connect to host", status_code=status,
        delivered_at=github.state.now(), duration=0.1, redelivery=False, repository_id=repository_id,
        installation_id=1,
    )  # fmt: skip
    github.deliveries.append(row)
    return row


def a_job(number):
    job = {"id": number, "run_id": 1, "run_attempt": 1, "name": "build", "status": "queued"}
    repository = {"id": 5, "full_name": "org/project"}
    return {"action": "queued", "workflow_job": job, "repository": repository}


def asked_for(github):
    """How often each delivery was asked for once more, by GUID."""
    rows = {row.id: row.guid for row in github.deliveries}
    calls = [call for call in github.calls if call.path.endswith(ASKED)]
    return Counter(rows[int(call.path.split("/")[-2])] for call in calls)


async def unseen(github, **options):
    """Open a pull request whose events GitHub never generates, not even in its log."""
    return await silently(github, github.open_pull(UPSTREAM, **options))


async def silently(github, happening):
    fault = github.faults.add(method="HOOK", drop=True, times=100)
    result = await happening
    github.faults.waiting.remove(fault)
    return result


async def stored(bot):
    return {row["guid"]: row["source"] for row in await bot.rows("delivery")}


async def metric(bot, name):
    """The value of one line of /metrics."""
    _, text = await bot.get("/metrics")
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


# How does a test hold somebody in the middle of a call? A clock by which one hangs until the test lets go.


HANGS = 3600.0  # seconds: the mark of a call that ends when the test lets it


class HoldingClock(harness.ManualClock):
    """Whoever hangs does so until the test lets go; everybody else's time passes as it sleeps."""

    def __init__(self):
        super().__init__()
        self.hanging, self.let_go = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds):
        if seconds != HANGS:
            return await super().sleep(seconds)
        self.hanging.set()
        return await self.let_go.wait()
