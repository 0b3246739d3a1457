"""A branch with pushes and jobs, as GitHub tells of them."""

from __future__ import annotations

from itertools import count

from tests.harness import START, UPSTREAM

MINUTE = 60_000
COMMITS = {name: f"{name.lower() * 2}{'0' * 38}"[:40] for name in "ABCDE"}
_ids = count(1_000)


def repository(bot):
    return {
        "id": bot.github.state.repo(UPSTREAM).id,
        "full_name": UPSTREAM,
        "default_branch": "main",
        "private": False,
        "updated_at": iso(START),
    }


def iso(at):
    from bot.core.json_fields import iso_time

    return iso_time(at)


def push(bot, name, *, parent=None, branch="main", at=0, forced=False, commits=1, title=None):
    """The push of a commit, given by its letter."""
    sha = COMMITS.get(name, name)
    return (
        "push",
        {
            "ref": f"refs/heads/{branch}",
            "before": COMMITS.get(parent, parent) if parent else "0" * 40,
            "after": sha,
            "forced": forced,
            "deleted": False,
            "created": parent is None,
            "commits": [*({"id": f"{number:040x}"} for number in range(commits - 1)), {"id": sha}],
            "head_commit": {
                "id": sha,
                "message": title or f"Change {name} (#{ord(name[0])})\n\nbody",
                "timestamp": iso(START + at * MINUTE),
            },
            "pusher": {"name": "octocat"},
            "repository": repository(bot),
        },
    )


def job(
    bot,
    name,
    commit,
    conclusion="success",
    *,
    number=None,
    status=None,
    workflow="pull",
    run=77,
    attempt=1,
    at=0,
):
    """A workflow job on a commit."""
    number = number or next(_ids)
    body = {
        "id": number,
        "run_id": run,
        "run_attempt": attempt,
        "name": name,
        "workflow_name": workflow,
        "head_sha": COMMITS.get(commit, commit),
        "head_branch": "main",
        "status": status or ("completed" if conclusion else "in_progress"),
        "conclusion": conclusion or None,
        "labels": ["self-hosted", "linux.4xlarge"],
        "created_at": iso(START + at * MINUTE),
        "started_at": iso(START + (at + 1) * MINUTE),
        "completed_at": iso(START + (at + 5) * MINUTE) if conclusion else None,
    }
    return ("workflow_job", {"action": body["status"], "repository": repository(bot), "workflow_job": body})


def run(
    bot, commit, *, number=77, event="push", status="completed", conclusion="success", name="pull", attempt=1,
    workflow_id=None,
):  # fmt: skip
    """A workflow run on a commit."""
    body = {
        "id": number,
        "run_attempt": attempt,
        "workflow_id": workflow_id,
        "name": name,
        "event": event,
        "status": status,
        "conclusion": conclusion,
        "head_sha": COMMITS.get(commit, commit),
        "head_branch": "main",
        "updated_at": iso(START),
        "run_started_at": iso(START),
    }
    return ("workflow_run", {"action": status, "repository": repository(bot), "workflow_run": body})


async def deliver(bot, *deliveries):
    """Have the bot handle some deliveries."""
    for event, body in deliveries:
        await bot.send(event, body)
    await bot.settle()
