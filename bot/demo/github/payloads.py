"""Webhook payloads: one function for each kind of event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github import git
from bot.demo.github.models import Event
from bot.demo.github.serializers import actions, pull, repository

if TYPE_CHECKING:
    from bot.demo.github.accounts import App, Installation
    from bot.demo.github.models import CheckRun, CheckSuite, Comment, Issue, Pull, Repo, Run, WorkflowJob
    from bot.demo.github.state import GitHubState


def envelope(state: GitHubState, event: Event, installation: Installation) -> dict[str, Any]:
    """Return the webhook body of an event for one installation."""
    fields = repository.repository(state, event.repo)
    return {
        **({"action": event.action} if event.action else {}),
        **event.body,
        "repository": _push_repository(event.repo, fields) if event.name == "push" else fields,
        "organization": repository.organization(state, event.repo.owner),
        "sender": repository.user(state, event.sender),
        "installation": {
            "id": installation.id,
            "node_id": repository.node_id("IntegrationInstallation", installation.id),
        },
    }


def pull_request(state: GitHubState, which: Pull, action: str, sender: str, **extra: Any) -> Event:
    """Return the event of an action on a pull request; `extra` holds the fields of that action."""
    body = {"number": which.number, "pull_request": pull.pull_request(state, which), **extra}
    return Event(name="pull_request", action=action, repo=which.repo, sender=sender, body=body)


def issues(state: GitHubState, which: Issue, action: str, sender: str, **extra: Any) -> Event:
    """Return the event of an action on an issue."""
    body = {"issue": pull.plain_issue(state, which), **extra}
    return Event(name="issues", action=action, repo=which.repo, sender=sender, body=body)


def issue_comment(state: GitHubState, which: Comment, action: str, sender: str, **extra: Any) -> Event:
    """Return the event of an action on a comment."""
    body = {
        **extra,
        "issue": pull.any_issue(state, which.pull),
        "comment": pull.comment(state, which),
    }
    return Event(name="issue_comment", action=action, repo=which.pull.repo, sender=sender, body=body)


def check_run(
    state: GitHubState,
    which: CheckRun,
    action: str,
    sender: str,
    *,
    only: App | None = None,
    **extra: Any,
) -> Event:
    """Return the event of an action on a check run."""
    body = {"check_run": actions.check_run_with_suite(state, which), **extra}
    return Event(name="check_run", action=action, repo=which.repo, sender=sender, body=body, only=only)


def check_suite(
    state: GitHubState, which: CheckSuite, action: str, sender: str, *, only: App | None = None
) -> Event:
    """Return the event of an action on a check suite."""
    body = {"check_suite": actions.check_suite(state, which)}
    return Event(name="check_suite", action=action, repo=which.repo, sender=sender, body=body, only=only)


def workflow_run(state: GitHubState, which: Run, action: str) -> Event:
    """Return the event of a workflow run's change of status."""
    body = {
        "workflow_run": actions.serialize_run(state, which),
        "workflow": actions.workflow(state, which.repo, which.workflow),
    }
    return Event(name="workflow_run", action=action, repo=which.repo, sender=which.actor.login, body=body)


def workflow_job(state: GitHubState, which: WorkflowJob, action: str) -> Event:
    """Return the event of a workflow job's change of status."""
    body = {"workflow_job": actions.job(state, which)}
    run = which.run
    return Event(name="workflow_job", action=action, repo=run.repo, sender=run.actor.login, body=body)


def push(
    state: GitHubState,
    repo: Repo,
    *,
    ref: str,
    before: str,
    after: str,
    pusher: str,
) -> Event:
    """Return a push event; `before` is all zeros for a new ref, `after` for a deleted one."""
    zeros = "0" * 40
    old = repo.commits.get(before)
    new = [repo.commits[after]] if after != zeros else []
    if new and old:
        new = git.only_in(repo, after, before)
    listed = [repository.pushed_commit(state, repo, each) for each in new]
    html = repository.html_of(state, repo)
    body = {
        "ref": ref,
        "before": before,
        "after": after,
        "base_ref": None,
        "pusher": {"name": pusher, "email": f"{pusher}@users.noreply.github.com"},
        "created": old is None,
        "deleted": after == zeros,
        "forced": bool(old and new) and not git.holds(repo, after, before),
        "compare": f"{html}/compare/{before[:12]}...{after[:12]}",
        "commits": listed,
        "head_commit": listed[-1] if listed else None,
    }
    return Event(name="push", action=None, repo=repo, sender=pusher, body=body)


def _push_repository(repo: Repo, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a repository as only push events have it: with times in epoch seconds."""
    return fields | {
        "created_at": repo.created_at // 1000,
        "pushed_at": max(commit.at for commit in repo.commits.values()) // 1000,
        "stargazers": 0,
        "master_branch": repo.default_branch,
        "organization": repo.owner,
        "owner": fields["owner"] | {"name": repo.owner, "email": None},
    }
