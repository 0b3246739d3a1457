"""Which Apps hear of an event? Those that subscribed to it and may read what it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.demo.github.accounts import Installation
    from bot.demo.github.records import Event

# One of these permissions lets an App subscribe to an event and hear of it.
NEEDS = {
    "check_run": ("checks",),
    "check_suite": ("checks",),
    "issue_comment": ("issues", "pull_requests"),
    "issues": ("issues",),
    "merge_group": ("merge_queues",),
    "pull_request": ("pull_requests",),
    "pull_request_review": ("pull_requests",),
    "pull_request_review_comment": ("pull_requests",),
    "push": ("contents",),
    "repository": ("metadata",),
    "workflow_job": ("actions",),
    "workflow_run": ("actions",),
}
PERMISSIONS = {"metadata"} | {name for needs in NEEDS.values() for name in needs}
UNASKED = {"installation", "installation_repositories", "github_app_authorization"}
# Apps that may write checks hear of these whether they subscribed or not.
WITH_CHECKS_WRITE = {"check_run", "check_suite"}


def hears(installation: Installation, event: Event) -> bool:
    """Tell whether an installation is subscribed to an event and may see it."""
    if event.only is not None and event.only is not installation.app:
        return False
    if event.name in UNASKED:
        return True
    granted = installation.permissions
    if event.name in WITH_CHECKS_WRITE and granted.get("checks") == "write":
        return True
    return event.only is None and event.name in installation.events and allowed(event.name, granted)


def allowed(event: str, permissions: Iterable[str]) -> bool:
    """Tell whether an App with these permissions may subscribe to an event; nobody may to an unknown one."""
    return not set(permissions).isdisjoint(NEEDS.get(event, ()))
