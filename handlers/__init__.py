"""Handlers of GitHub's events: one module for each event, named after it.

A handler gets the event and the running transaction, nothing else: it records what it read and enqueues tasks. It
never uses the network. The listing of this folder is the list of events the App subscribes to, to those that app.yml
calls optional only where it was asked to.
"""

from __future__ import annotations

from gidgethub.routing import Router

from handlers import (
    check_run,
    check_suite,
    installation,
    installation_repositories,
    issue_comment,
    issues,
    merge_group,
    ping,
    pull_request,
    pull_request_review,
    pull_request_review_comment,
    push,
    repository,
    status,
    workflow_job,
    workflow_run,
)

MODULES = (
    check_run, check_suite, installation, installation_repositories, issue_comment, issues, merge_group,
    ping, pull_request, pull_request_review, pull_request_review_comment, push, repository, status,
    workflow_job, workflow_run,
)  # fmt: skip
EVENTS = frozenset(module.__name__.rpartition(".")[2] for module in MODULES)


def make_router() -> Router:
    """Return gidgethub's router with every handler: one callback per event, so their order cannot matter."""
    return Router(*(module.router for module in MODULES))
