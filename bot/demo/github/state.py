"""What exists on the simulated GitHub? Plain values, changed in place as people and Apps act.

Times are epoch milliseconds of the simulation's clock; shapes turn them into GitHub's notation.
Objects compare by identity: two looks at one pull request are the same pull request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.demo.github.accounts import App, User


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit with the whole tree it leaves behind."""

    sha: str
    message: str
    author: str
    at: int
    parents: tuple[str, ...] = ()
    tree: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    changed: tuple[str, ...] = ()  # paths, against the first parent


@dataclass(kw_only=True, eq=False)
class Repo:
    """A repository and everything in it."""

    id: int
    owner: str
    name: str
    private: bool
    default_branch: str
    created_at: int
    archived: bool = False
    branches: dict[str, str] = field(default_factory=dict, repr=False)  # name -> head
    commits: dict[str, Commit] = field(default_factory=dict, repr=False)
    pulls: dict[int, Pull] = field(default_factory=dict, repr=False)
    comments: dict[int, Comment] = field(default_factory=dict, repr=False)
    check_runs: dict[int, CheckRun] = field(default_factory=dict, repr=False)
    suites: dict[int, CheckSuite] = field(default_factory=dict, repr=False)
    workflows: dict[str, Workflow] = field(default_factory=dict, repr=False)  # by path
    runs: dict[int, Run] = field(default_factory=dict, repr=False)
    jobs: dict[int, WorkflowJob] = field(default_factory=dict, repr=False)
    labels: dict[str, int] = field(default_factory=dict, repr=False)  # name -> id
    permissions: dict[str, str] = field(default_factory=dict, repr=False)  # login -> role

    @property
    def full_name(self) -> str:
        """The `owner/name` people write."""
        return f"{self.owner}/{self.name}"


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
    """A comment in a pull request's conversation; `app` when an App wrote it."""

    id: int
    pull: Pull = field(repr=False)
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
    reset: bool = False  # re-requested, and no run has moved since


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a check run says."""

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


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A workflow file of a repository."""

    id: int
    name: str
    path: str
    created_at: int


@dataclass(kw_only=True, eq=False)
class Run:
    """A workflow run at its newest attempt; `attempts` keeps what older ones looked like."""

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


@dataclass(kw_only=True, eq=False)
class WorkflowJob:
    """One job of one attempt of a run; its id is also its check run's."""

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
