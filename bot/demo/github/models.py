"""Data classes of repositories and their content, changed in place.

Times are epoch milliseconds of the simulation's clock; the serializers convert them to GitHub's notation.
Objects that change compare by identity.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.demo.github.accounts import App, User
    from bot.demo.github.commit_statuses import CommitStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.demo.github.accounts import App, Installation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.demo.github.accounts import App


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit with its whole tree."""

    sha: str
    message: str
    author: str
    at: int
    parents: tuple[str, ...] = ()
    tree: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    changed: tuple[str, ...] = ()  # paths, compared with the first parent

    @cached_property
    def tree_sha(self) -> str:
        """The SHA of its tree: commits with the same files have the same."""
        parts = (f"{path}\0{hashlib.sha256(text).hexdigest()}" for path, text in sorted(self.tree.items()))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


@dataclass(kw_only=True, eq=False)
class Repo:
    """A repository and its content."""

    id: int
    owner: str
    name: str
    private: bool
    default_branch: str
    created_at: int
    archived: bool = False
    branches: dict[str, str] = field(default_factory=dict, repr=False)  # name -> head
    required_checks: dict[str, list[str]] = field(default_factory=dict, repr=False)  # by branch
    commits: dict[str, Commit] = field(default_factory=dict, repr=False)
    pulls: dict[int, Pull] = field(default_factory=dict, repr=False)
    issues: dict[int, Issue] = field(default_factory=dict, repr=False)
    comments: dict[int, Comment] = field(default_factory=dict, repr=False)
    check_runs: dict[int, CheckRun] = field(default_factory=dict, repr=False)
    suites: dict[int, CheckSuite] = field(default_factory=dict, repr=False)
    workflows: dict[str, Workflow] = field(default_factory=dict, repr=False)  # by path
    runs: dict[int, Run] = field(default_factory=dict, repr=False)
    jobs: dict[int, WorkflowJob] = field(default_factory=dict, repr=False)
    artifacts: dict[int, Artifact] = field(default_factory=dict, repr=False)
    statuses: list[CommitStatus] = field(default_factory=list, repr=False)  # oldest first
    labels: dict[str, int] = field(default_factory=dict, repr=False)  # name -> id
    permissions: dict[str, str] = field(default_factory=dict, repr=False)  # login -> role

    @property
    def full_name(self) -> str:
        """The name as `owner/name`."""
        return f"{self.owner}/{self.name}"

    @property
    def next_number(self) -> int:
        """The number of the next pull request or issue: the smallest that is free, as a past one may have any."""
        return next(
            number for number in itertools.count(1) if number not in self.pulls and number not in self.issues
        )


@dataclass(kw_only=True, eq=False)
class Issue:
    """An issue; pull requests, which are issues too, are kept apart."""

    id: int
    repo: Repo = field(repr=False)
    number: int
    title: str
    body: str
    author: str
    author_association: str
    created_at: int
    updated_at: int
    labels: list[str] = field(default_factory=list)
    state: str = "open"
    closed_at: int | None = None


@dataclass(kw_only=True, eq=False)
class Pull:
    """A pull request."""

    id: int
    issue_id: int
    repo: Repo = field(repr=False)
    number: int
    title: str
    body: str
    author: str
    author_association: str
    draft: bool
    from_fork: bool
    head_ref: str
    head_sha: str
    base_ref: str
    base_sha: str
    files: tuple[str, ...]
    created_at: int
    updated_at: int
    labels: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # changed files, by their new names: the old ones
    state: str = "open"
    closed_at: int | None = None
    merged_at: int | None = None
    merged_by: str | None = None
    merge_commit_sha: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reaction:
    """An emoji under a comment."""

    id: int
    content: str
    user: User
    at: int


@dataclass(kw_only=True, eq=False)
class Comment:
    """A comment on a pull request or an issue; `app` is set when an App wrote it."""

    id: int
    pull: Pull | Issue = field(repr=False)
    body: str
    user: User
    author_association: str
    created_at: int
    updated_at: int
    app: App | None = None
    reactions: list[Reaction] = field(default_factory=list)


@dataclass(kw_only=True, eq=False)
class CheckSuite:
    """The check runs of one App on one commit."""

    id: int
    repo: Repo = field(repr=False)
    app: App
    head_sha: str
    created_at: int
    updated_at: int
    head_branch: str | None = None
    reset: bool = False  # re-requested, and no run has been updated since


@dataclass(frozen=True, kw_only=True)
class Output:
    """The texts of a check run."""

    title: str | None = None
    summary: str | None = None
    text: str | None = None
    annotations: tuple[dict[str, Any], ...] = ()


@dataclass(kw_only=True, eq=False)
class CheckRun:
    """One check on one commit."""

    id: int
    repo: Repo = field(repr=False)
    app: App
    suite: CheckSuite = field(repr=False)
    name: str
    head_sha: str
    status: str
    conclusion: str | None = None
    external_id: str = ""
    details_url: str
    started_at: int | None
    completed_at: int | None = None
    output: Output = field(default_factory=Output)
    actions: tuple[dict[str, str], ...] = ()

    @property
    def outcome(self) -> str:
        """The conclusion, or the status of a run without one."""
        return self.conclusion or self.status


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A workflow file of a repository."""

    id: int
    name: str
    path: str
    created_at: int


@dataclass(kw_only=True, eq=False)
class Run:
    """A workflow run at its newest attempt; `attempts` holds the JSON of the older ones."""

    id: int
    repo: Repo = field(repr=False)
    workflow: Workflow
    suite: CheckSuite = field(repr=False)
    event: str
    display_title: str
    head_sha: str
    head_branch: str
    actor: User
    run_number: int
    created_at: int
    started_at: int
    updated_at: int
    run_attempt: int = 1
    status: str = "queued"
    conclusion: str | None = None
    attempts: list[dict[str, Any]] = field(default_factory=list, repr=False)
    head_repo: Repo | None = field(default=None, repr=False)  # a fork; None: the repository itself

    @property
    def head_repository(self) -> Repo:
        """The repository that the commit is from."""
        return self.head_repo or self.repo


@dataclass(kw_only=True, eq=False)
class WorkflowJob:
    """A job of one attempt of a run; its check run has the same id."""

    id: int
    run: Run = field(repr=False)
    check_run: CheckRun = field(repr=False)
    name: str
    labels: tuple[str, ...]
    run_attempt: int
    created_at: int
    started_at: int
    status: str = "queued"
    conclusion: str | None = None
    completed_at: int | None = None
    runner: str | None = None
    log: bytes | None = None  # None: a short one that says how it ended


@dataclass(kw_only=True, eq=False)
class Artifact:
    """A ZIP archive that a run left behind."""

    id: int
    run: Run = field(repr=False)
    name: str
    content: bytes = field(repr=False)
    digest: str | None
    created_at: int
    expires_at: int


# An App needs one of these permissions to subscribe to an event and to receive it.
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
    "status": ("statuses",),
    "workflow_job": ("actions",),
    "workflow_run": ("actions",),
}


PERMISSIONS = {"metadata"} | {name for needs in NEEDS.values() for name in needs}


WITHOUT_SUBSCRIPTION = {"installation", "installation_repositories", "github_app_authorization"}


# Apps that may write checks receive these whether they subscribed or not.
WITH_CHECKS_WRITE = {"check_run", "check_suite"}


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that Apps are notified of; `only` restricts it to one App."""

    name: str
    action: str | None
    repo: Repo
    sender: str
    body: dict[str, Any] = field(repr=False)
    only: App | None = None


def receives(installation: Installation, event: Event) -> bool:
    """Whether an installation is subscribed to an event and permitted to see it."""
    if event.only is not None and event.only is not installation.app:
        return False
    if event.name in WITHOUT_SUBSCRIPTION:
        return True
    granted = installation.permissions
    if event.name in WITH_CHECKS_WRITE and granted.get("checks") == "write":
        return True
    return event.only is None and event.name in installation.events and may_subscribe(event.name, granted)


def may_subscribe(event: str, permissions: Iterable[str]) -> bool:
    """Whether an App with these permissions may subscribe to an event; never for an unknown event."""
    return not set(permissions).isdisjoint(NEEDS.get(event, ()))


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request to the REST API; `app_id` is None for one that was not authenticated."""

    method: str
    path: str  # below the API's address, without the query
    query: str
    status: int  # 0 when the connection was dropped
    app_id: int | None
    faulted: bool
    at: int  # epoch milliseconds
    body: Any = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An attempt to deliver an event to an App: a row of the App's delivery log."""

    id: int
    guid: str
    app: App
    event: str
    action: str | None
    payload: dict[str, Any] = field(repr=False)
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    status: str
    status_code: int
    delivered_at: int  # epoch milliseconds
    duration: float  # seconds
    redelivery: bool
    repository_id: int | None
    installation_id: int | None
    answer: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        """Whether the App accepted it."""
        return 200 <= self.status_code < 300


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """An accepted repository_dispatch or workflow_dispatch.

    A workflow_dispatch has the `event_type` "workflow_dispatch", its inputs in `client_payload`, and its queued run
    in `run`.
    """

    repo: Repo
    event_type: str
    client_payload: dict[str, Any]
    at: int  # epoch milliseconds
    app: App
    workflow: str | None = None
    ref: str | None = None
    run: Run | None = None
