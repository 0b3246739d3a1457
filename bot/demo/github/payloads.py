"""What does GitHub tell Apps when something happens? One function for each kind of event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github import git
from bot.demo.github.records import Event
from bot.demo.github.shapes import accounts, actions, checks, pull, repository

if TYPE_CHECKING:
    from bot.demo.github.accounts import App, Installation
    from bot.demo.github.state import CheckRun, CheckSuite, Comment, Pull, Repo, Run, WorkflowJob
    from bot.demo.github.world import World


def envelope(world: World, event: Event, installation: Installation) -> dict[str, Any]:
    """Return the whole webhook body that one installation gets of an event."""
    shown = repository.repository(world, event.repo)
    return {
        **({"action": event.action} if event.action else {}),
        **event.body,
        "repository": _in_a_push(event.repo, shown) if event.name == "push" else shown,
        "organization": accounts.organization(world, event.repo.owner),
        "sender": accounts.user(world, event.sender),
        "installation": {
            "id": installation.id,
            "node_id": accounts.node_id("IntegrationInstallation", installation.id),
        },
    }


def pull_request(world: World, which: Pull, action: str, sender: str, **extra: Any) -> Event:
    """Tell that something happened to a pull request; `extra` is what its action adds."""
    body = {"number": which.number, "pull_request": pull.pull_request(world, which), **extra}
    return Event(name="pull_request", action=action, repo=which.repo, sender=sender, body=body)


def issue_comment(world: World, which: Comment, action: str, sender: str, **extra: Any) -> Event:
    """Tell that something happened to a comment."""
    body = {
        **extra,
        "issue": pull.issue(world, which.pull),
        "comment": pull.comment(world, which),
    }
    return Event(name="issue_comment", action=action, repo=which.pull.repo, sender=sender, body=body)


def check_run(
    world: World,
    which: CheckRun,
    action: str,
    sender: str,
    *,
    only: App | None = None,
    **extra: Any,
) -> Event:
    """Tell that something happened to a check run."""
    body = {"check_run": checks.hooked_check_run(world, which), **extra}
    return Event(name="check_run", action=action, repo=which.repo, sender=sender, body=body, only=only)


def check_suite(
    world: World, which: CheckSuite, action: str, sender: str, *, only: App | None = None
) -> Event:
    """Tell that something happened to a check suite."""
    body = {"check_suite": checks.check_suite(world, which)}
    return Event(name="check_suite", action=action, repo=which.repo, sender=sender, body=body, only=only)


def workflow_run(world: World, which: Run, action: str) -> Event:
    """Tell that a workflow run moved on."""
    body = {
        "workflow_run": actions.run(world, which),
        "workflow": actions.workflow(world, which.repo, which.workflow),
    }
    return Event(name="workflow_run", action=action, repo=which.repo, sender=which.actor.login, body=body)


def workflow_job(world: World, which: WorkflowJob, action: str) -> Event:
    """Tell that a workflow job moved on."""
    body = {"workflow_job": actions.job(world, which)}
    run = which.run
    return Event(name="workflow_job", action=action, repo=run.repo, sender=run.actor.login, body=body)


def push(
    world: World,
    repo: Repo,
    *,
    ref: str,
    before: str,
    after: str,
    pusher: str,
) -> Event:
    """Tell that a ref moved; `before` and `after` are all zeros where there was or is none."""
    nothing = "0" * 40
    old = repo.commits.get(before)
    new = [repo.commits[after]] if after != nothing else []
    if new and old:
        new = git.only_in(repo, after, before)
    listed = [repository.pushed_commit(world, repo, each) for each in new]
    html = repository.html_of(world, repo)
    body = {
        "ref": ref,
        "before": before,
        "after": after,
        "base_ref": None,
        "pusher": {"name": pusher, "email": f"{pusher}@users.noreply.github.com"},
        "created": old is None,
        "deleted": after == nothing,
        "forced": False,
        "compare": f"{html}/compare/{before[:12]}...{after[:12]}",
        "commits": listed,
        "head_commit": listed[-1] if listed else None,
    }
    return Event(name="push", action=None, repo=repo, sender=pusher, body=body)


def _in_a_push(repo: Repo, shown: dict[str, Any]) -> dict[str, Any]:
    """Return a repository as push events alone write it: with times in epoch seconds."""
    return shown | {
        "created_at": repo.created_at // 1000,
        "pushed_at": max(commit.at for commit in repo.commits.values()) // 1000,
        "stargazers": 0,
        "master_branch": repo.default_branch,
        "organization": repo.owner,
        "owner": shown["owner"] | {"name": repo.owner, "email": None},
    }
